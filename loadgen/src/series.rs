//! The measured time second by second: what happened in each, and how long what
//! completed in it had taken. A second that is over keeps only the buckets that
//! hold something.

use crate::histogram::Times;
use crate::report::Second;
use std::time::{Duration, Instant};

/// Counts and times of the seconds after a beginning.
pub struct Series {
    begin: Instant,
    seconds: Vec<Cell>,
    /// Times of the second that goes on.
    now: Times,
    now_second: usize,
}

#[derive(Default)]
struct Cell {
    sent: u64,
    completed: u64,
    events: u64,
    buckets: Vec<(u64, u64)>,
}

impl Series {
    /// Of `time` from `begin` on.
    pub fn new(begin: Instant, time: Duration) -> Self {
        let count = usize::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(1);
        Self {
            begin,
            seconds: std::iter::repeat_with(Cell::default)
                .take(count.max(1))
                .collect(),
            now: Times::default(),
            now_second: 0,
        }
    }

    /// Keeps no second after the one of `end`.
    pub fn cut(&mut self, end: Instant) {
        let keep = end.saturating_duration_since(self.begin).as_nanos();
        let keep = usize::try_from(keep.div_ceil(1_000_000_000)).unwrap_or(usize::MAX);
        self.fold();
        self.seconds.truncate(keep);
    }

    fn second(&mut self, at: Instant) -> Option<usize> {
        let second = at.checked_duration_since(self.begin)?.as_secs();
        let second = usize::try_from(second).ok()?;
        (second < self.seconds.len()).then_some(second)
    }

    /// A request was sent.
    pub fn sent(&mut self, at: Instant) {
        if let Some(second) = self.second(at) {
            self.seconds[second].sent += 1;
        }
    }

    /// A stream event came.
    pub fn event(&mut self, at: Instant) {
        self.events(at, 1);
    }

    /// `n` stream events came at once.
    pub fn events(&mut self, at: Instant, n: u64) {
        if let Some(second) = self.second(at) {
            self.seconds[second].events += n;
        }
    }

    /// An exchange completed that had taken `time`.
    pub fn completed(&mut self, at: Instant, time: Duration) {
        let Some(second) = self.second(at) else {
            return;
        };
        if second != self.now_second {
            self.fold();
            self.now_second = second;
        }
        self.seconds[second].completed += 1;
        self.now.record(time);
    }

    /// Puts the second that goes on where the others are.
    fn fold(&mut self) {
        if let Some(cell) = self.seconds.get_mut(self.now_second) {
            cell.buckets.extend(self.now.buckets());
        }
        self.now.clear();
    }

    /// Adds what another thread saw of the same time.
    pub fn merge(&mut self, mut other: Self) {
        self.fold();
        other.fold();
        for (cell, more) in self.seconds.iter_mut().zip(other.seconds) {
            cell.sent += more.sent;
            cell.completed += more.completed;
            cell.events += more.events;
            cell.buckets.extend(more.buckets);
        }
    }

    /// As the report has it, without the memory.
    pub fn finish(mut self) -> Vec<Second> {
        self.fold();
        let mut times = Times::default();
        (0..)
            .zip(&self.seconds)
            .map(|(second, cell)| {
                times.clear();
                times.add_buckets(&cell.buckets);
                Second {
                    second,
                    sent: cell.sent,
                    completed: cell.completed,
                    events: cell.events,
                    p50_ns: times.quantile_ns(0.5),
                    p99_ns: times.quantile_ns(0.99),
                    max_ns: times.quantile_ns(1.0),
                    rss_octets: None,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_second_has_its_own_times() {
        let begin = Instant::now();
        let mut series = Series::new(begin, 2500 * MS);
        let mut other = Series::new(begin, 2500 * MS);
        series.sent(begin);
        series.completed(begin + 10 * MS, 10 * MS);
        series.completed(begin + 1100 * MS, 20 * MS);
        series.event(begin + 2400 * MS);
        // Before and after count nowhere.
        series.sent(begin + 3001 * MS);
        series.completed(begin.checked_sub(MS).unwrap(), MS);
        other.completed(begin + 1900 * MS, 40 * MS);
        series.merge(other);
        let seconds = series.finish();
        assert_eq!(seconds.len(), 3);
        let count = |second: usize| {
            let Second {
                sent,
                completed,
                events,
                ..
            } = seconds[second];
            (sent, completed, events)
        };
        assert_eq!(
            (count(0), count(1), count(2)),
            ((1, 1, 0), (0, 2, 0), (0, 0, 1))
        );
        assert!(seconds[0].p99_ns.abs_diff(10_000_000) < 20_000);
        assert!(seconds[1].max_ns.abs_diff(40_000_000) < 80_000);
        assert_eq!(seconds[2].p50_ns, 0);
    }

    #[test]
    fn a_run_that_ended_early_has_fewer_seconds() {
        let begin = Instant::now();
        let mut series = Series::new(begin, 10_000 * MS);
        series.completed(begin + 1500 * MS, MS);
        series.cut(begin + 1600 * MS);
        let seconds = series.finish();
        assert_eq!((seconds.len(), seconds[1].completed), (2, 1));
    }
}
