//! How long a thread looks for work before it sleeps. Going to sleep and being
//! woken costs more than most of what there is to do, so that a thread whose
//! next work is near does better to look again; one whose work is far wastes
//! its core. Which it is, the thread learns from how its last looks ended.
//!
//! It never looks at a clock and never sleeps: the owner does both.

use std::time::{Duration, Instant};

/// After so many looks in vain, each in a row doubling the sleeps without one, there is one look in 2⁶ sleeps.
const MISSES_MAX: u32 = 6;
/// See the module.
#[derive(Debug)]
pub struct Spin {
    time: Duration,
    since: Option<Instant>,
    misses: u32,
    /// Sleeps before the next look.
    skipped: u32,
}

impl Spin {
    /// Looks for as long as `time`; zero never looks.
    pub fn new(time: Duration) -> Self {
        Self {
            time,
            since: None,
            misses: 0,
            skipped: 0,
        }
    }

    /// Nothing was found to do: whether to look again, or else to sleep.
    pub fn looks_again(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.time.is_zero() {
            return false;
        }
        let Some(since) = self.since else {
            if self.skipped > 0 {
                self.skipped -= 1;
                return false;
            }
            self.since = Some(now());
            return true;
        };
        if now().saturating_duration_since(since) < self.time {
            return true;
        }
        self.since = None;
        self.misses = (self.misses + 1).min(MISSES_MAX);
        self.skipped = (1 << self.misses) - 1;
        false
    }

    /// There was something to do. True when looking found it.
    pub fn found(&mut self) -> bool {
        let looked = self.since.take().is_some();
        if looked {
            self.misses = 0;
        }
        looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(50);

    /// Looks until it is told to sleep; how many looks that took.
    fn look(spin: &mut Spin, now: &mut Instant) -> u32 {
        let mut looks = 0;
        while spin.looks_again(|| *now) {
            looks += 1;
            *now += TIME / 10;
        }
        looks
    }

    #[test]
    fn looks_for_its_time_and_then_sleeps() {
        let mut now = Instant::now();
        let mut spin = Spin::new(TIME);
        assert_eq!(look(&mut spin, &mut now), 10);
        assert_eq!(look(&mut Spin::new(Duration::ZERO), &mut now), 0);
    }

    #[test]
    fn work_found_by_looking_keeps_it_looking() {
        let mut now = Instant::now();
        let mut spin = Spin::new(TIME);
        for _ in 0..1000 {
            assert!(spin.looks_again(|| now));
            now += TIME / 6;
            assert!(spin.looks_again(|| now));
            assert!(spin.found());
            assert!(!spin.found(), "found once");
        }
    }

    #[test]
    fn looks_in_vain_become_rare_and_one_that_is_not_ends_that() {
        let mut now = Instant::now();
        let mut spin = Spin::new(TIME);
        let mut looks = 0;
        let sleeps = 1000;
        for _ in 0..sleeps {
            looks += look(&mut spin, &mut now);
            assert!(!spin.found(), "sleeping found it");
        }
        assert!(looks > 0 && looks / 10 <= sleeps / 40, "{looks}");
        while !spin.looks_again(|| now) {}
        assert!(spin.found());
        assert!(spin.looks_again(|| now));
    }
}
