//! How full the way out of each association is, and who waits for it to drain.
//! Pressure stops sources only: agents' streams through [`Pressure::poll_ready`],
//! calls through [`Pressure::is_high`]. Nothing on the mapping path waits.

use crate::a2a::port::AssociationId;
use crate::bridge::own::OwnMap;
use crate::limits;
use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct Level {
    /// Octets queued at the association, as last seen.
    queued: usize,
    /// Octets handed in by edges and not yet queued there.
    coming: usize,
    high: bool,
    waiting: Waiting,
}

/// Who is to be woken, each once however often it asked.
type Waiting = HashMap<(usize, usize), Waker>;

/// What tells one waker from another.
fn key(waker: &Waker) -> (usize, usize) {
    let table = std::ptr::from_ref(waker.vtable());
    (waker.data() as usize, table as usize)
}

impl Level {
    fn octets(&self) -> usize {
        self.queued + self.coming
    }

    /// Hysteresis between the two marks; gives back who must be woken.
    fn judge(&mut self) -> Waiting {
        if self.octets() >= limits::OUTBOUND_QUEUE_HIGH_OCTETS {
            self.high = true;
        } else if self.octets() <= limits::OUTBOUND_QUEUE_LOW_OCTETS {
            self.high = false;
            return std::mem::take(&mut self.waiting);
        }
        Waiting::new()
    }
}

/// Levels of a unit's associations.
#[derive(Debug, Default)]
pub struct Pressure {
    levels: OwnMap<AssociationId, Level>,
    total: usize,
    /// Mapping workers cannot take more; every source waits.
    stalled: bool,
    /// Sources without an association that wait for the workers.
    unplaced: Waiting,
}

fn wake(wakers: Waiting) {
    for waker in wakers.into_values() {
        waker.wake();
    }
}

impl Pressure {
    /// A new association, at level 0.
    pub fn open(&mut self, association: AssociationId) {
        self.levels.insert(association, Level::default());
    }

    /// An association is gone: nobody need wait for it.
    pub fn close(&mut self, association: AssociationId) {
        if let Some(level) = self.levels.remove(&association) {
            self.total -= level.octets();
            wake(level.waiting);
        }
    }

    /// An edge hands in octets for the association.
    pub fn coming(&mut self, association: AssociationId, octets: usize) {
        if let Some(level) = self.levels.get_mut(&association) {
            level.coming += octets;
            self.total += octets;
            wake(level.judge());
        }
    }

    /// Octets handed in have been mapped; what they became is counted by [`Pressure::queued`].
    pub fn mapped(&mut self, association: AssociationId, octets: usize) {
        if let Some(level) = self.levels.get_mut(&association) {
            let octets = octets.min(level.coming);
            level.coming -= octets;
            self.total -= octets;
            wake(level.judge());
        }
    }

    /// The association's queue holds so many octets now.
    pub fn queued(&mut self, association: AssociationId, octets: usize) {
        if let Some(level) = self.levels.get_mut(&association) {
            self.total = self.total - level.queued + octets;
            level.queued = octets;
            wake(level.judge());
        }
    }

    /// Whether the association's way out is too full for a new call.
    pub fn is_high(&self, association: AssociationId) -> bool {
        self.stalled
            || self
                .levels
                .get(&association)
                .is_some_and(|level| level.high)
    }

    /// Octets on the way out of the association.
    pub fn octets(&self, association: AssociationId) -> usize {
        self.levels.get(&association).map_or(0, Level::octets)
    }

    /// Octets on the way out of all of them.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Ready when an agent's stream may be read further.
    pub fn poll_ready(&mut self, association: AssociationId, cx: &mut Context<'_>) -> Poll<()> {
        match self.levels.get_mut(&association) {
            Some(level) if level.high || self.stalled => {
                level.waiting.insert(key(cx.waker()), cx.waker().clone());
                Poll::Pending
            }
            Some(_) => Poll::Ready(()),
            None => self.poll_unplaced(cx),
        }
    }

    /// [`Pressure::poll_ready`] for a source that no association paces.
    pub fn poll_unplaced(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stalled {
            let waker = cx.waker();
            self.unplaced.insert(key(waker), waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Those who wait for the association ask again: one of them has left it.
    pub fn ask_again(&mut self, association: AssociationId) {
        if let Some(level) = self.levels.get_mut(&association) {
            wake(std::mem::take(&mut level.waiting));
        }
    }

    /// Workers can or cannot take more.
    pub fn stall(&mut self, stalled: bool) {
        if self.stalled && !stalled {
            self.stalled = false;
            wake(std::mem::take(&mut self.unplaced));
            for level in self.levels.values_mut() {
                if !level.high {
                    wake(std::mem::take(&mut level.waiting));
                }
            }
        }
        self.stalled = stalled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn waits_between_the_marks() {
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut pressure = Pressure::default();
        let id = AssociationId(1);
        pressure.open(id);
        assert!(pressure.poll_ready(id, &mut cx).is_ready());
        pressure.coming(id, limits::OUTBOUND_QUEUE_HIGH_OCTETS);
        assert!(pressure.poll_ready(id, &mut cx).is_pending());
        assert!(pressure.poll_ready(id, &mut cx).is_pending());
        pressure.mapped(id, limits::OUTBOUND_QUEUE_HIGH_OCTETS);
        pressure.queued(id, limits::OUTBOUND_QUEUE_LOW_OCTETS + 1);
        assert_eq!(pressure.total(), limits::OUTBOUND_QUEUE_LOW_OCTETS + 1);
        pressure.queued(id, 0);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(pressure.poll_ready(id, &mut cx).is_ready());
    }

    #[test]
    fn a_gone_association_holds_nobody() {
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut pressure = Pressure::default();
        let id = AssociationId(1);
        pressure.open(id);
        pressure.queued(id, limits::OUTBOUND_QUEUE_HIGH_OCTETS);
        assert!(pressure.poll_ready(id, &mut cx).is_pending());
        pressure.close(id);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(pressure.total(), 0);
        assert!(pressure.poll_ready(id, &mut cx).is_ready());
    }

    #[test]
    fn a_stall_holds_everybody() {
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut pressure = Pressure::default();
        let id = AssociationId(1);
        pressure.open(id);
        pressure.stall(true);
        assert!(pressure.poll_ready(id, &mut cx).is_pending());
        assert!(pressure.poll_unplaced(&mut cx).is_pending());
        pressure.stall(false);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(pressure.poll_unplaced(&mut cx).is_ready());
    }
}
