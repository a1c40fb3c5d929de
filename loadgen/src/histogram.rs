//! A latency histogram with three significant digits, and its summary.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest time told apart, in nanoseconds; longer ones count as this.
const LONGEST_NS: u64 = 24 * 3600 * 1_000_000_000;
const DIGITS: u8 = 3;
/// Steps of the percentile list per halving of the distance to 100 %.
const STEPS: u32 = 5;

/// Times.
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("constant bounds are valid"))
    }
}

impl Times {
    /// Records one time.
    pub fn record(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS));
    }

    /// Adds what another one recorded.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("both have the same constant bounds");
    }

    /// The value that `quantile` (0 to 1) of the times do not exceed, in nanoseconds; 0 when nothing was recorded.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Every bucket that holds something: its highest value in nanoseconds, and how many.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }

    /// Adds buckets as [`Times::buckets`] gives them.
    pub fn add_buckets(&mut self, buckets: &[(u64, u64)]) {
        for &(value, count) in buckets {
            self.0.saturating_record_n(value, count);
        }
    }

    /// Records a time that came `n` times.
    pub fn record_times(&mut self, time: Duration, n: u64) {
        self.0
            .saturating_record_n(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS), n);
    }

    /// The summary.
    pub fn summary(&self) -> Summary {
        let histogram = &self.0;
        let mut below = 0;
        Summary {
            count: histogram.len(),
            min_ns: if histogram.is_empty() {
                0
            } else {
                histogram.min()
            },
            mean_ns: histogram.mean(),
            stdev_ns: histogram.stdev(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p99_9_ns: histogram.value_at_quantile(0.999),
            p99_99_ns: histogram.value_at_quantile(0.9999),
            max_ns: histogram.max(),
            percentiles: histogram
                .iter_quantiles(STEPS)
                .map(|step| {
                    below += step.count_since_last_iteration();
                    Percentile {
                        at: step.quantile_iterated_to() * 100.0,
                        value_ns: step.value_iterated_to(),
                        count_at_or_below: below,
                    }
                })
                .collect(),
            buckets: self.buckets(),
        }
    }
}

/// What a histogram says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub count: u64,
    pub min_ns: u64,
    pub mean_ns: f64,
    pub stdev_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    #[serde(rename = "p99.9_ns")]
    pub p99_9_ns: u64,
    #[serde(rename = "p99.99_ns")]
    pub p99_99_ns: u64,
    pub max_ns: u64,
    pub percentiles: Vec<Percentile>,
    /// The whole histogram, to be merged and drawn: pairs of a bucket's highest value in nanoseconds and its count.
    pub buckets: Vec<(u64, u64)>,
}

/// One line of the percentile list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Percentile {
    #[serde(rename = "percentile")]
    pub at: f64,
    pub value_ns: u64,
    pub count_at_or_below: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_whole_list() {
        let mut times = Times::default();
        for n in 1..=1000 {
            times.record(Duration::from_micros(n));
        }
        times.record(Duration::from_secs(1 << 40));
        let summary = times.summary();
        assert_eq!(summary.count, 1001);
        let near = |value: u64, expected: u64| value.abs_diff(expected) * 1000 <= expected * 2;
        assert!(near(summary.min_ns, 1000), "{summary:?}");
        assert!(near(summary.p50_ns, 501_000), "{summary:?}");
        assert!(near(summary.p99_ns, 991_000), "{summary:?}");
        assert!(near(summary.max_ns, LONGEST_NS), "{summary:?}");
        let last = summary.percentiles.last().unwrap();
        assert!((last.at - 100.0).abs() < f64::EPSILON);
        assert_eq!(last.count_at_or_below, 1001);
    }

    #[test]
    fn buckets_and_merging_lose_nothing() {
        let (mut one, mut other) = (Times::default(), Times::default());
        for n in 1..=500 {
            one.record(Duration::from_micros(n));
            other.record(Duration::from_micros(500 + n));
        }
        one.merge(&other);
        assert_eq!(one.summary().count, 1000);
        let mut copy = Times::default();
        copy.add_buckets(&one.buckets());
        assert_eq!(copy.summary().buckets, one.summary().buckets);
        assert_eq!(copy.quantile_ns(0.5), one.quantile_ns(0.5));
        copy.clear();
        assert!(copy.buckets().is_empty());
    }

    #[test]
    fn nothing_measured() {
        let summary = Times::default().summary();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (0, 0, 0));
        assert!(
            summary
                .percentiles
                .iter()
                .all(|step| step.count_at_or_below == 0)
        );
    }
}
