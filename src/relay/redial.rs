//! When an association is dialled again for the streams that wait for it
//! (ruling R18). Pure bookkeeping: `now` and the jitter are arguments.

use crate::limits;
use std::time::{Duration, Instant};

/// Attempts to get an association back, with a doubling pause between them.
#[derive(Debug, Default)]
pub struct Redial {
    pause: Duration,
    up_since: Option<Instant>,
    until: Option<Instant>,
    /// When to dial next.
    pub next: Option<Instant>,
}

impl Redial {
    /// The association is up.
    pub fn up(&mut self, now: Instant) {
        self.up_since = Some(now);
        self.next = None;
        self.until = None;
    }

    /// Streams wait for an association, for so long.
    pub fn begin(&mut self, now: Instant, time: Duration, jitter: u32) {
        // One that lived longer than it took to try again counts as a fresh start.
        let lived = self
            .up_since
            .take()
            .is_none_or(|since| now.saturating_duration_since(since) >= self.pause);
        if lived {
            self.pause = Duration::ZERO;
        }
        self.until = Some(now + time);
        self.schedule(now, jitter);
    }

    /// An attempt failed. False when there will be no other.
    pub fn failed(&mut self, now: Instant, jitter: u32) -> bool {
        if self.until.is_none_or(|until| now >= until) {
            self.end();
            return false;
        }
        self.schedule(now, jitter);
        true
    }

    /// Nobody waits any more.
    pub fn end(&mut self) {
        self.until = None;
        self.next = None;
    }

    /// Whether streams wait.
    pub fn is_wanted(&self) -> bool {
        self.until.is_some()
    }

    /// Between half the pause and the whole of it, so that many do not dial at once.
    fn schedule(&mut self, now: Instant, jitter: u32) {
        self.pause = (self.pause * 2).clamp(limits::REDIAL_TIME_MIN, limits::REDIAL_TIME_MAX);
        let part = f64::from(jitter) / f64::from(u32::MAX);
        self.next = Some(now + self.pause.mul_f64(0.5 + part / 2.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ruling R18: pauses double between jittered bounds, attempts end, and an
    /// association that did not last is no fresh start.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
    fn redialling_backs_off_and_ends() {
        let start = Instant::now();
        let mut redial = Redial::default();
        redial.begin(start, Duration::from_secs(10), u32::MAX);
        assert_eq!(redial.next, Some(start + limits::REDIAL_TIME_MIN));
        let mut now = start;
        let mut attempts = 0;
        while let Some(at) = redial.next {
            assert!(at - now <= limits::REDIAL_TIME_MAX);
            now = at;
            attempts += 1;
            redial.failed(now, u32::MAX);
        }
        assert!((8..20).contains(&attempts), "{attempts}");
        assert!(now - start >= Duration::from_secs(10));
        assert!(!redial.is_wanted());

        redial.up(now);
        redial.begin(now, Duration::from_secs(10), 0);
        assert_eq!(redial.next, Some(now + limits::REDIAL_TIME_MAX / 2));
        redial.up(now);
        now += limits::REDIAL_TIME_MAX;
        redial.begin(now, Duration::from_secs(10), 0);
        assert_eq!(redial.next, Some(now + limits::REDIAL_TIME_MIN / 2));
    }
}
