//! How often a peer may ask: a bucket that fills with time. Serves NPAMP-DISC §10.

use std::time::{Duration, Instant};

/// A token bucket, kept as the moment at which it would be full again.
#[derive(Debug, Clone)]
pub struct Rate {
    burst: u32,
    time: Duration,
    full_at: Option<Instant>,
}

impl Rate {
    /// A full bucket of `burst` tokens; one comes back every `time`.
    pub fn new(burst: u32, time: Duration) -> Self {
        Self {
            burst,
            time,
            full_at: None,
        }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.time;
        if full_at.saturating_duration_since(now) > self.time * self.burst {
            return false;
        }
        self.full_at = Some(full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-DISC §10: a burst, then no more than time allows.
    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "a virtual clock starts somewhere"
    )]
    fn a_burst_and_then_the_rate() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut rate = Rate::new(3, second);
        assert_eq!(
            [(); 5].map(|()| rate.take(now)),
            [true, true, true, false, false]
        );
        assert!(!rate.take(now + second / 2));
        assert!(rate.take(now + second));
        assert!(!rate.take(now + second));
        let later = now + second * 100;
        assert_eq!(
            [(); 4].map(|()| rate.take(later)),
            [true, true, true, false]
        );
    }
}
