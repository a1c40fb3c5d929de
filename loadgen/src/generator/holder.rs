//! Associations that are opened at a bounded rate and then only held.

use crate::dialler::Dialler;
use npamp_relay::engine::shard::LinkId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Dials that have not come to anything yet, at most.
const UNDER_WAY_MAX: u64 = 256;
/// Time without a new association after which no more are expected.
const PROGRESS_TIME: Duration = Duration::from_secs(12);
/// How often a holder that waits for its rate looks.
const LOOK_TIME: Duration = Duration::from_millis(1);

/// See the module.
pub struct Holder {
    dialler: Dialler,
    /// How many.
    count: u64,
    /// Per second.
    rate: f64,
    /// Number of the first of them in the process, of this and other threads together.
    first: u64,
    dialled: u64,
    ready: u64,
    /// Those adopted, and whether each is ready.
    links: HashMap<LinkId, bool>,
    begun: Option<Instant>,
    progress: Option<Instant>,
}

/// How far a holder is.
pub enum Step {
    /// All are open.
    Done,
    /// Not yet; look again then.
    Until(Instant),
    /// No more are coming.
    Stuck(String),
}

impl Holder {
    /// Of `count` associations, opened at `rate` a second.
    pub fn new(dialler: Dialler, count: u64, first: u64, rate: f64) -> Self {
        Self {
            dialler,
            count,
            rate,
            first,
            dialled: 0,
            ready: 0,
            links: HashMap::new(),
            begun: None,
            progress: None,
        }
    }

    /// Whether there is something to hold.
    pub fn is_wanted(&self) -> bool {
        self.count > 0
    }

    /// Dials what is due.
    pub fn open(&mut self, at: Instant) -> Step {
        let begun = *self.begun.get_or_insert(at);
        let progress = *self.progress.get_or_insert(at);
        if self.ready == self.count {
            return Step::Done;
        }
        if at >= progress + PROGRESS_TIME {
            return Step::Stuck(format!(
                "only {} of {} associations could be opened; nothing came for {} s",
                self.ready,
                self.count,
                PROGRESS_TIME.as_secs()
            ));
        }
        #[allow(clippy::cast_sign_loss)] // both are positive
        let due = (at.saturating_duration_since(begun).as_secs_f64() * self.rate) as u64 + 1;
        while self.dialled < due.min(self.count) && self.dialled - self.ready < UNDER_WAY_MAX {
            let number = self.first + self.dialled;
            if !self.dialler.dial(number, number) {
                return Step::Stuck("the control thread ended".into());
            }
            self.dialled += 1;
        }
        Step::Until(at + LOOK_TIME)
    }

    /// Whether a dial's token is of this holder.
    pub fn is_mine(&self, token: u64) -> bool {
        token >= self.first
    }

    /// One was adopted.
    pub fn up(&mut self, link: LinkId) {
        self.links.insert(link, false);
    }

    /// It is ready, if it is one of these.
    pub fn ready(&mut self, link: LinkId, at: Instant) {
        if let Some(ready) = self.links.get_mut(&link)
            && !std::mem::replace(ready, true)
        {
            self.ready += 1;
            self.progress = Some(at);
        }
    }

    /// It is gone. True if it was one of these.
    pub fn down(&mut self, link: LinkId) -> bool {
        self.links.remove(&link).is_some()
    }

    /// Those there are.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.links.keys().copied()
    }
}
