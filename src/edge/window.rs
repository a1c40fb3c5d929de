//! What an ingress keeps of one stream for its own client (rulings R17, R19):
//! the events that wait for it, and the last ones that it was handed, so that it
//! can come back. Sliding: the oldest go first. Holds octets, knows no bound of
//! its own and no clock: the owner counts what is added and freed.

use crate::a2a::port::CallEvent;
use crate::limits::HELD_EVENT_OCTETS;
use bytes::Bytes;
use std::collections::VecDeque;

/// What a stream event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptKind {
    /// More may follow.
    Data,
    /// The orderly end.
    End,
    /// The agent's error Response, which ends the stream.
    Error,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// NPAMP-CC-STREAM event_id.
    pub event_id: u64,
    /// Its kind.
    pub kind: KeptKind,
    /// The agent's JSON-RPC Response; an end may have none.
    pub object: Option<Bytes>,
}

impl Kept {
    /// The event, if it is one of a stream; else gives it back.
    pub fn of(event: CallEvent) -> Result<Self, CallEvent> {
        let (event_id, kind, object) = match event {
            CallEvent::StreamEvent { event_id, object } => (event_id, KeptKind::Data, Some(object)),
            CallEvent::StreamEnd { event_id, object } => (event_id, KeptKind::End, object),
            CallEvent::StreamError { event_id, object } => {
                (event_id, KeptKind::Error, Some(object))
            }
            other => return Err(other),
        };
        Ok(Self {
            event_id,
            kind,
            object,
        })
    }

    /// The event again.
    pub fn into_event(self) -> CallEvent {
        let event_id = self.event_id;
        match (self.kind, self.object) {
            (KeptKind::End, object) => CallEvent::StreamEnd { event_id, object },
            (KeptKind::Error, Some(object)) => CallEvent::StreamError { event_id, object },
            (KeptKind::Data, Some(object)) => CallEvent::StreamEvent { event_id, object },
            // Only an end has no object.
            (KeptKind::Error | KeptKind::Data, None) => CallEvent::StreamEnd {
                event_id,
                object: None,
            },
        }
    }

    /// What it counts for in a bound on octets.
    pub fn octets(&self) -> usize {
        self.object.as_ref().map_or(0, Bytes::len) + HELD_EVENT_OCTETS
    }
}

/// So many events, and so many octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events.
    pub events: usize,
    /// Octets, those of [`Kept::octets`].
    pub octets: usize,
}

/// Why a window does not go on after a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHeld;

/// The events of a stream above some id, without a gap.
#[derive(Debug, Default)]
pub struct Window {
    events: VecDeque<Kept>,
    octets: usize,
    /// Every event above this one is held.
    held_after: u64,
    /// Events at the front that were handed out.
    handed: usize,
    /// Highest event_id ever handed out.
    reached: u64,
    /// Last event_id with something to show to a client.
    visible: u64,
}

impl Window {
    /// Events held.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Octets held.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Events that wait to be handed out.
    pub fn waiting(&self) -> usize {
        self.events.len() - self.handed
    }

    /// Highest event_id that was handed out, 0 before the first.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Highest event_id that has something to show; what comes after is an empty end at most.
    pub fn visible(&self) -> u64 {
        self.visible
    }

    /// The events held, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.events.iter()
    }

    /// Says that the stream goes on after `cursor`, up to which others had it.
    pub fn begin_after(&mut self, cursor: u64, reached: u64) {
        self.held_after = self.held_after.max(cursor);
        self.reached = self.reached.max(reached).max(cursor);
        self.visible = self.visible.max(cursor);
    }

    /// Takes the next event in; ids rise.
    pub fn push(&mut self, kept: Kept) {
        self.octets += kept.octets();
        if kept.object.is_some() {
            self.visible = kept.event_id;
        }
        self.events.push_back(kept);
    }

    /// The next event for the client. With `reach` the client is taken to have
    /// it; otherwise [`Window::reach`] says so later.
    pub fn take(&mut self, reach: bool) -> Option<Kept> {
        let kept = self.events.get(self.handed)?.clone();
        self.handed += 1;
        if reach {
            self.reach(kept.event_id);
        }
        Some(kept)
    }

    /// The client has had everything up to this event.
    pub fn reach(&mut self, event_id: u64) {
        self.reached = self.reached.max(event_id);
    }

    /// Goes on after `cursor` with what is handed out.
    pub fn seek(&mut self, cursor: u64) -> Result<(), NotHeld> {
        if cursor < self.held_after {
            return Err(NotHeld);
        }
        self.handed = self.events.partition_point(|kept| kept.event_id <= cursor);
        Ok(())
    }

    /// Slides until the bounds hold: beyond `history` goes what was handed out,
    /// beyond `whole` also what was not, but for the newest event. Gives the
    /// octets freed, and whether an event is lost to the client.
    pub fn slide(&mut self, history: Bounds, whole: Bounds) -> (usize, bool) {
        let before = self.octets;
        while self.handed > 0 && self.exceeds(history) {
            self.drop_oldest();
        }
        let mut lost = false;
        while self.events.len() > 1 && self.exceeds(whole) {
            lost |= self.handed == 0;
            self.drop_oldest();
        }
        (before - self.octets, lost)
    }

    fn exceeds(&self, bounds: Bounds) -> bool {
        self.events.len() > bounds.events || self.octets > bounds.octets
    }

    /// Lets go of what was handed out; gives the octets freed.
    pub fn forget_handed(&mut self) -> usize {
        let before = self.octets;
        while self.handed > 0 {
            self.drop_oldest();
        }
        before - self.octets
    }

    /// Lets go of every event; gives the octets freed.
    pub fn clear(&mut self) -> usize {
        let before = self.octets;
        while !self.events.is_empty() {
            self.drop_oldest();
        }
        self.events = VecDeque::new();
        before
    }

    fn drop_oldest(&mut self) {
        if let Some(kept) = self.events.pop_front() {
            self.held_after = kept.event_id;
            self.octets -= kept.octets();
            self.handed = self.handed.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bounds = Bounds {
        events: 1000,
        octets: 1 << 20,
    };

    fn kept(event_id: u64) -> Kept {
        Kept {
            event_id,
            kind: KeptKind::Data,
            object: Some(Bytes::from(vec![b'x'; 36])),
        }
    }

    fn filled(count: u64) -> Window {
        let mut window = Window::default();
        for event_id in 1..=count {
            window.push(kept(event_id));
        }
        window
    }

    fn rest(window: &mut Window) -> Vec<u64> {
        std::iter::from_fn(|| window.take(true))
            .map(|kept| kept.event_id)
            .collect()
    }

    /// Ruling R17: every cursor that is held goes on with the event after it.
    #[test]
    fn goes_on_after_any_cursor() {
        let mut window = filled(5);
        assert_eq!(rest(&mut window), [1, 2, 3, 4, 5]);
        for cursor in 0..=5 {
            window.seek(cursor).unwrap();
            assert_eq!(rest(&mut window), (cursor + 1..=5).collect::<Vec<u64>>());
        }
        assert_eq!((window.reached(), window.octets()), (5, 500));
    }

    /// NPAMP-CC-STREAM §5.1: ids may leave gaps.
    #[test]
    fn ids_may_leave_gaps() {
        let mut window = Window::default();
        for event_id in [3, 7, 20] {
            window.push(kept(event_id));
        }
        for (cursor, wanted) in [(0, 3), (3, 2), (5, 2), (7, 1), (19, 1)] {
            window.seek(cursor).unwrap();
            assert_eq!(window.waiting(), wanted, "{cursor}");
        }
    }

    #[test]
    fn history_slides_and_what_waits_stays() {
        let mut window = filled(10);
        let history = Bounds { events: 4, ..WIDE };
        assert_eq!(window.slide(history, WIDE), (0, false));
        for _ in 0..8 {
            window.take(true);
        }
        assert_eq!(window.slide(history, WIDE), (600, false));
        assert_eq!((window.len(), window.waiting()), (4, 2));
        assert_eq!(window.seek(5), Err(NotHeld));
        assert_eq!(window.seek(6), Ok(()));
        let octets = Bounds {
            octets: 250,
            ..WIDE
        };
        assert_eq!(window.slide(octets, WIDE), (0, false), "all of it waits");
        window.seek(10).unwrap();
        assert_eq!(window.slide(octets, WIDE), (200, false));
    }

    /// Ruling R19: beyond the whole bound events are lost to a client that does not take them.
    #[test]
    fn what_waits_slides_beyond_the_whole_bound() {
        for whole in [
            Bounds { events: 3, ..WIDE },
            Bounds {
                octets: 399,
                ..WIDE
            },
        ] {
            let mut window = filled(3);
            assert_eq!(window.slide(WIDE, whole), (0, false));
            window.take(true);
            window.push(kept(4));
            assert_eq!(window.slide(WIDE, whole), (100, false), "it had that");
            window.push(kept(5));
            assert_eq!(window.slide(WIDE, whole), (100, true));
            assert_eq!((window.waiting(), window.seek(1)), (3, Err(NotHeld)));
            assert_eq!(window.seek(2), Ok(()));
        }
        let none = Bounds {
            events: 0,
            octets: 0,
        };
        let mut window = filled(4);
        assert_eq!(window.slide(WIDE, none), (300, true));
        assert_eq!(window.len(), 1, "the newest stays");
    }

    #[test]
    fn an_empty_end_shows_nothing() {
        let mut window = filled(2);
        let end = Kept {
            event_id: 3,
            kind: KeptKind::End,
            object: None,
        };
        window.push(end.clone());
        assert_eq!(window.visible(), 2);
        rest(&mut window);
        assert_eq!(window.reached(), 3);
        assert_eq!(window.clear(), 200 + HELD_EVENT_OCTETS);
        assert_eq!((window.octets(), window.seek(2)), (0, Err(NotHeld)));
        assert_eq!(window.seek(3), Ok(()));
        let again = Kept::of(end.clone().into_event()).unwrap();
        assert_eq!(again, end);
    }

    #[test]
    fn what_is_taken_on_trust_is_not_reached() {
        let mut window = filled(3);
        window.take(false);
        window.take(false);
        assert_eq!((window.reached(), window.waiting()), (0, 1));
        window.reach(1);
        assert_eq!(window.reached(), 1);
        assert_eq!(window.forget_handed(), 200);
        assert_eq!(window.seek(1), Err(NotHeld));
    }
}
