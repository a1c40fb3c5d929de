//! When requests are meant to be sent. The schedule knows nothing of what
//! became of earlier requests: that is what makes the load open-loop.

use crate::args::Arrivals;
use std::time::{Duration, Instant};

/// A part of a schedule that several threads share.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

/// Intended send times, one after the other, up to an end.
pub struct Schedule {
    start: Instant,
    end: Instant,
    rate: f64,
    share: Share,
    random: Option<fastrand::Rng>,
    /// Requests taken.
    taken: u64,
    /// Seconds from the start to the next intended time.
    next: f64,
}

impl Schedule {
    /// A share of `rate` per second from `start` on, for `time`. All shares together are as the whole would be.
    pub fn new(
        arrivals: Arrivals,
        rate: f64,
        start: Instant,
        time: Duration,
        seed: Option<u64>,
        share: Share,
    ) -> Self {
        let random = match (arrivals, seed) {
            (Arrivals::Constant, _) => None,
            (Arrivals::Poisson, Some(seed)) => Some(fastrand::Rng::with_seed(
                seed.wrapping_add(share.index.into()),
            )),
            (Arrivals::Poisson, None) => Some(fastrand::Rng::new()),
        };
        let mut schedule = Self {
            start,
            end: start + time,
            rate,
            share,
            random,
            taken: 0,
            next: f64::from(share.index) / rate,
        };
        if let Some(gap) = schedule.gap() {
            schedule.next = gap;
        }
        schedule
    }

    /// An exponential interval in seconds; none when intervals are equal.
    fn gap(&mut self) -> Option<f64> {
        // `f64()` is below 1, so the logarithm is finite.
        let rate = self.rate / f64::from(self.share.of);
        self.random
            .as_mut()
            .map(|random| -(1.0 - random.f64()).ln() / rate)
    }

    /// The next intended time; none after the end.
    pub fn peek(&self) -> Option<Instant> {
        let at = self.start + Duration::from_secs_f64(self.next);
        (at < self.end).then_some(at)
    }

    /// Moves on.
    pub fn take(&mut self) {
        self.taken += 1;
        #[allow(clippy::cast_precision_loss)] // exact up to 2^53 requests
        let equal = (self.taken as f64 * f64::from(self.share.of) + f64::from(self.share.index))
            / self.rate;
        self.next = match self.gap() {
            Some(gap) => self.next + gap,
            None => equal,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut schedule: Schedule) -> Vec<Instant> {
        std::iter::from_fn(|| {
            let at = schedule.peek()?;
            schedule.take();
            Some(at)
        })
        .collect()
    }

    #[test]
    fn equal_intervals() {
        let start = Instant::now();
        let times = times(Schedule::new(
            Arrivals::Constant,
            1000.0,
            start,
            Duration::from_secs(2),
            None,
            Share::WHOLE,
        ));
        assert_eq!(times.len(), 2000);
        assert_eq!(times[0], start);
        assert_eq!(times[1500], start + Duration::from_millis(1500));
    }

    #[test]
    fn shares_make_the_whole() {
        let start = Instant::now();
        let time = Duration::from_secs(2);
        let part =
            |arrivals, share| times(Schedule::new(arrivals, 900.0, start, time, Some(3), share));
        let mut together: Vec<Instant> = (0..3)
            .flat_map(|index| part(Arrivals::Constant, Share { index, of: 3 }))
            .collect();
        together.sort();
        assert_eq!(together, part(Arrivals::Constant, Share::WHOLE));
        let counts = [0, 1, 2].map(|index| part(Arrivals::Poisson, Share { index, of: 3 }).len());
        // 600 expected in each, with a standard deviation of 24.
        assert!(
            counts.iter().all(|count| (480..720).contains(count)),
            "{counts:?}"
        );
        assert_ne!(
            part(Arrivals::Poisson, Share { index: 0, of: 3 }),
            part(Arrivals::Poisson, Share { index: 1, of: 3 })
        );
    }

    #[test]
    fn independent_callers() {
        let start = Instant::now();
        let draw = |seed| {
            times(Schedule::new(
                Arrivals::Poisson,
                1000.0,
                start,
                Duration::from_secs(20),
                Some(seed),
                Share::WHOLE,
            ))
        };
        let times = draw(1);
        assert_eq!(times, draw(1));
        assert_ne!(times, draw(2));
        // 20,000 expected, with a standard deviation of 141.
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        // Exponential intervals: 1/e of them are longer than the mean.
        let long = times
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > Duration::from_millis(1))
            .count();
        assert!(
            (times.len() * 34 / 100..times.len() * 40 / 100).contains(&long),
            "{long}"
        );
    }
}
