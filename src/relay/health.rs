//! Whether an upstream takes calls, as one unit has found: what failed is
//! ejected for a pause that doubles with each failure, and returns once an
//! association with it is up again. Pure bookkeeping: `now` and the jitter are
//! arguments, and nothing is dialled here.

use crate::limits;
use std::time::{Duration, Instant};

/// What callers are told while nothing is attempted for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Text for people.
    pub text: String,
    /// The failure was a deadline.
    pub timed_out: bool,
}

/// The health of one upstream.
#[derive(Debug, Default)]
pub struct Health {
    ejected: bool,
    pause: Duration,
    /// When it is to be probed; none while a probe is under way.
    probe_at: Option<Instant>,
    /// Dials that failed in a row.
    failures: u32,
    /// What the last one failed with, and until when calls need not try another.
    refused: Option<(Instant, Refusal)>,
}

impl Health {
    /// Whether calls go elsewhere where they can.
    pub fn is_ejected(&self) -> bool {
        self.ejected
    }

    /// When it is to be probed.
    pub fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    /// What a call is told instead of a dial, shortly after several that failed: one alone
    /// may have been a link that was cut just then.
    pub fn refusal(&self, now: Instant) -> Option<&Refusal> {
        let (until, refusal) = self.refused.as_ref()?;
        (now < *until).then_some(refusal)
    }

    /// A dial failed. True when this ejects it.
    pub fn dial_failed(&mut self, now: Instant, refusal: Refusal, jitter: u32) -> bool {
        if self.failures > 0 {
            let times = 1 << (self.failures - 1).min(16);
            let time = (limits::DIAL_REFUSAL_TIME_MIN * times).min(limits::DIAL_REFUSAL_TIME_MAX);
            self.refused = Some((now + time, refusal));
        }
        self.failures = self.failures.saturating_add(1);
        self.eject(now, jitter)
    }

    /// An association ended that lived so long; `silent` when a PING went
    /// unanswered. True when this ejects it.
    pub fn lost(&mut self, now: Instant, lived: Duration, silent: bool, jitter: u32) -> bool {
        if lived >= self.pause.max(limits::EJECTION_TIME_MIN) {
            self.pause = Duration::ZERO;
            if !silent {
                return false;
            }
        }
        self.eject(now, jitter)
    }

    /// An association is up. True when it had been ejected.
    pub fn up(&mut self) -> bool {
        self.failures = 0;
        self.refused = None;
        self.probe_at = None;
        std::mem::take(&mut self.ejected)
    }

    /// Whether it is to be probed by now, which then is under way.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let due = self.probe_at.is_some_and(|at| at <= now);
        if due {
            self.probe_at = None;
        }
        due
    }

    /// A probe came to nothing for a reason of our own: once more later.
    pub fn postpone(&mut self, now: Instant, jitter: u32) {
        if self.ejected && self.probe_at.is_none() {
            self.schedule(now, jitter);
        }
    }

    fn eject(&mut self, now: Instant, jitter: u32) -> bool {
        // A call's or a stream's own attempt does not put the probe off.
        if self.probe_at.is_none() {
            self.pause =
                (self.pause * 2).clamp(limits::EJECTION_TIME_MIN, limits::EJECTION_TIME_MAX);
            self.schedule(now, jitter);
        }
        !std::mem::replace(&mut self.ejected, true)
    }

    /// Between half the pause and the whole of it, so that many units do not probe at once.
    fn schedule(&mut self, now: Instant, jitter: u32) {
        let part = f64::from(jitter) / f64::from(u32::MAX);
        self.probe_at = Some(now + self.pause.mul_f64(0.5 + part / 2.0));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
mod tests {
    use super::*;

    fn refused() -> Refusal {
        Refusal {
            text: "cannot be reached".into(),
            timed_out: false,
        }
    }

    #[test]
    fn pauses_double_between_jittered_bounds() {
        let mut now = Instant::now();
        let mut health = Health::default();
        assert!(health.dial_failed(now, refused(), u32::MAX));
        assert_eq!(health.probe_at(), Some(now + limits::EJECTION_TIME_MIN));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let at = health.probe_at().unwrap();
            assert!(!health.take_due(now));
            pauses.push(at - now);
            now = at;
            assert!(health.take_due(now));
            assert!(!health.take_due(now), "one probe at a time");
            assert!(
                !health.dial_failed(now, refused(), u32::MAX),
                "ejected already"
            );
        }
        assert!(pauses.is_sorted());
        assert_eq!(pauses[1], 2 * pauses[0]);
        assert_eq!(pauses[9], limits::EJECTION_TIME_MAX);
        assert!(health.up());
        assert!(!health.is_ejected() && health.probe_at().is_none() && !health.up());
        assert!(health.refusal(now).is_none());

        let mut health = Health::default();
        health.dial_failed(now, refused(), 0);
        assert_eq!(health.probe_at(), Some(now + limits::EJECTION_TIME_MIN / 2));
    }

    /// Calls fail without a dial for a moment after one that failed, and what they try
    /// themselves neither doubles the pause nor puts the probe off.
    #[test]
    fn calls_fail_fast_for_a_moment() {
        let mut now = Instant::now();
        let mut health = Health::default();
        health.dial_failed(now, refused(), u32::MAX);
        assert!(health.refusal(now).is_none(), "the first is forgiven");
        let probe = health.probe_at();
        let mut times = Vec::new();
        for _ in 0..6 {
            health.dial_failed(now, refused(), u32::MAX);
            let begun = now;
            while health.refusal(now).is_some() {
                now += Duration::from_millis(10);
            }
            times.push(now - begun);
        }
        assert_eq!(times[0], limits::DIAL_REFUSAL_TIME_MIN);
        assert_eq!(times[1], 2 * times[0]);
        assert_eq!(times[5], limits::DIAL_REFUSAL_TIME_MAX);
        assert_eq!(health.probe_at(), probe);
        health.up();
        health.dial_failed(now, refused(), u32::MAX);
        assert!(health.refusal(now).is_none());
    }

    #[test]
    fn short_lives_and_silence_eject() {
        let now = Instant::now();
        let long = limits::EJECTION_TIME_MAX;
        let mut health = Health::default();
        assert!(!health.lost(now, long, false, 0), "it lived long enough");
        assert!(health.lost(now, long, true, 0), "it did not answer");
        assert!(health.refusal(now).is_none(), "a call may dial at once");
        health.up();
        // Comes up again and again, and never lasts.
        let mut pauses = Vec::new();
        for _ in 0..4 {
            assert!(health.lost(now, Duration::from_millis(10), false, u32::MAX));
            pauses.push(health.probe_at().unwrap() - now);
            health.up();
        }
        assert!(
            pauses.windows(2).all(|two| two[1] == 2 * two[0]),
            "{pauses:?}"
        );
        assert!(!health.lost(now, long, false, u32::MAX));
        assert!(health.lost(now, Duration::ZERO, false, u32::MAX));
        assert_eq!(health.probe_at(), Some(now + limits::EJECTION_TIME_MIN));
    }

    #[test]
    fn a_probe_that_we_could_not_make_is_made_later() {
        let now = Instant::now();
        let mut health = Health::default();
        health.postpone(now, 0);
        assert_eq!(health.probe_at(), None);
        health.dial_failed(now, refused(), u32::MAX);
        let at = health.probe_at().unwrap();
        assert!(health.take_due(at));
        health.postpone(at, u32::MAX);
        assert_eq!(health.probe_at(), Some(at + limits::EJECTION_TIME_MIN));
    }
}
