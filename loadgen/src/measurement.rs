//! What one run counted and timed. Counts and times are of requests whose
//! intended time lies in the measured time; rates are of what happened in it,
//! whoever asked for it: so a long stream weighs neither for nor against.

use crate::histogram::Times;
use crate::kind::Kind;
use crate::series::Series;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When more than one send in so many is late, the generator was the bottleneck.
const LATE_ONE_IN: u64 = 100;

/// One kind of error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorKind {
    /// How often.
    pub count: u64,
    /// What the first one said.
    pub example: String,
}

/// Counts and times of one kind of exchange.
#[derive(Default)]
pub struct KindMeasurement {
    /// Requests the schedule asked for.
    pub scheduled: u64,
    /// Requests sent.
    pub sent: u64,
    /// Exchanges completed without an error.
    pub completed: u64,
    /// Stream events received.
    pub events: u64,
    /// Octets of JSON-RPC objects sent.
    pub octets_sent: u64,
    /// Octets of JSON-RPC objects received.
    pub octets_received: u64,
    /// From the intended time to the answer.
    pub reply: Times,
    /// From the intended time to the first event.
    pub first_event: Times,
    /// From one event of a stream to the next.
    pub gap: Times,
    /// From the intended time to the end of the stream.
    pub stream_end: Times,
}

impl KindMeasurement {
    fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.completed += other.completed;
        self.events += other.events;
        self.octets_sent += other.octets_sent;
        self.octets_received += other.octets_received;
        self.reply.merge(&other.reply);
        self.first_event.merge(&other.first_event);
        self.gap.merge(&other.gap);
        self.stream_end.merge(&other.stream_end);
    }
}

/// Counts and times.
#[derive(Default)]
pub struct Measurement {
    /// First intended time that counts.
    pub begin: Option<Instant>,
    /// Last intended time that could count: the schedule's end.
    pub end: Option<Instant>,
    /// The measured time, second by second.
    pub series: Option<Series>,
    /// By [`Kind::index`].
    pub kinds: [KindMeasurement; 3],
    /// Requests sent within the measured time.
    pub sent_within: u64,
    /// Exchanges completed within it.
    pub completed_within: u64,
    /// Stream events received within it.
    pub events_within: u64,
    /// Octets of JSON-RPC objects received within it.
    pub octets_received_within: u64,
    /// From the intended time to the completion, whatever the kind.
    pub completion: Times,
    /// From the intended dial to the association's readiness (scenario connect).
    pub ready: Times,
    /// How much later than it could the generator sent a request.
    pub lag: Times,
    /// How long requests waited for the concurrency bound or a full association.
    pub wait: Times,
    /// Sends with a lag above the bound.
    pub late_sends: u64,
    /// Errors by kind.
    pub errors: BTreeMap<String, ErrorKind>,
    /// Frames for exchanges that were given up, all of the run.
    pub late_replies: u64,
    /// Why the run ended early.
    pub aborted: Option<String>,
    /// The user ended it.
    pub interrupted: bool,
}

impl Measurement {
    /// Counts an error; `text` is kept from the first of its kind.
    pub fn error(&mut self, kind: &str, text: impl Into<String>) {
        self.errors_of(kind, text, 1);
    }

    /// Counts `n` errors of a kind.
    pub fn errors_of(&mut self, kind: &str, text: impl Into<String>, n: u64) {
        if n == 0 {
            return;
        }
        match self.errors.get_mut(kind) {
            Some(known) => known.count += n,
            None => {
                self.errors.insert(
                    kind.to_owned(),
                    ErrorKind {
                        count: n,
                        example: text.into(),
                    },
                );
            }
        }
    }

    /// All errors.
    pub fn error_count(&self) -> u64 {
        self.errors.values().map(|kind| kind.count).sum()
    }

    /// One count over all kinds of exchange.
    pub fn sum(&self, count: impl Fn(&KindMeasurement) -> u64) -> u64 {
        self.kinds.iter().map(count).sum()
    }

    /// Of a kind.
    pub fn of(&mut self, kind: Kind) -> &mut KindMeasurement {
        &mut self.kinds[kind.index()]
    }

    /// The measured time; zero when it never began.
    pub fn time(&self) -> Duration {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) => end.saturating_duration_since(begin),
            _ => Duration::ZERO,
        }
    }

    /// Whether `at` lies in the measured time.
    pub fn is_within(&self, at: Instant) -> bool {
        self.begin.is_some_and(|begin| begin <= at) && self.end.is_some_and(|end| at < end)
    }

    /// A request was sent.
    pub fn sent_at(&mut self, at: Instant) {
        if self.is_within(at) {
            self.sent_within += 1;
            if let Some(series) = &mut self.series {
                series.sent(at);
            }
        }
    }

    /// An exchange completed that had taken `time` since its intended time.
    pub fn completed_at(&mut self, at: Instant, time: Duration) {
        if self.is_within(at) {
            self.completed_within += 1;
            if let Some(series) = &mut self.series {
                series.completed(at, time);
            }
        }
    }

    /// A stream event came.
    pub fn event_at(&mut self, at: Instant) {
        if self.is_within(at) {
            self.events_within += 1;
            if let Some(series) = &mut self.series {
                series.event(at);
            }
        }
    }

    /// `n` stream events came at once.
    pub fn events_at(&mut self, at: Instant, n: u64) {
        if self.is_within(at) {
            self.events_within += n;
            if let Some(series) = &mut self.series {
                series.events(at, n);
            }
        }
    }

    /// Nothing after `at` counts: the user ended the run.
    pub fn interrupt(&mut self, at: Instant) {
        self.interrupted = true;
        self.end = self.end.map(|end| end.min(at));
        if let (Some(series), Some(end)) = (&mut self.series, self.end) {
            series.cut(end);
        }
    }

    /// Adds what another thread measured in the same time.
    pub fn merge(&mut self, other: Self) {
        self.begin = self.begin.or(other.begin);
        self.end = match (self.end, other.end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match (&mut self.series, other.series) {
            (Some(series), Some(other)) => series.merge(other),
            (none, other) => *none = none.take().or(other),
        }
        for (kind, other) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.merge(other);
        }
        self.sent_within += other.sent_within;
        self.completed_within += other.completed_within;
        self.events_within += other.events_within;
        self.octets_received_within += other.octets_received_within;
        self.completion.merge(&other.completion);
        self.ready.merge(&other.ready);
        self.lag.merge(&other.lag);
        self.wait.merge(&other.wait);
        self.late_sends += other.late_sends;
        for (kind, error) in other.errors {
            self.errors_of(&kind, error.example, error.count);
        }
        self.late_replies += other.late_replies;
        self.aborted = self.aborted.take().or(other.aborted);
        self.interrupted |= other.interrupted;
    }

    /// The generator did not keep its schedule, so that what was measured is at best its own limit.
    pub fn is_generator_bound(&self) -> bool {
        self.late_sends * LATE_ONE_IN > self.sum(|kind| kind.sent)
    }

    /// Everything asked for was measured.
    pub fn is_clean(&self) -> bool {
        self.aborted.is_none()
            && !self.interrupted
            && self.errors.is_empty()
            && self.sum(|kind| kind.completed) > 0
            && !self.is_generator_bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind() {
        let mut measurement = Measurement::default();
        assert!(!measurement.is_clean(), "nothing was measured");
        measurement.of(Kind::Unary).completed = 1;
        assert!(measurement.is_clean());
        measurement.error("timed_out", "first");
        measurement.error("timed_out", "second");
        measurement.errors_of("not_sent", "", 0);
        measurement.errors_of("not_sent", "late", 3);
        assert_eq!(measurement.error_count(), 5);
        assert_eq!(
            measurement.errors["timed_out"],
            ErrorKind {
                count: 2,
                example: "first".into()
            }
        );
        assert!(!measurement.is_clean());
    }

    #[test]
    fn the_measured_time_has_two_ends() {
        let begin = Instant::now() + Duration::from_secs(1);
        let second = Duration::from_secs(1);
        let mut measurement = Measurement::default();
        assert!(!measurement.is_within(begin));
        assert_eq!(measurement.time(), Duration::ZERO);
        measurement.begin = Some(begin);
        measurement.end = Some(begin + second);
        assert_eq!(measurement.time(), second);
        assert!(measurement.is_within(begin) && measurement.is_within(begin + second / 2));
        assert!(
            !measurement.is_within(begin + second)
                && !measurement.is_within(begin.checked_sub(second).unwrap())
        );
        measurement.interrupt(begin + second / 4);
        assert_eq!(measurement.time(), second / 4);
        measurement.interrupt(begin + second / 2);
        assert_eq!(measurement.time(), second / 4);
    }

    #[test]
    fn threads_add_up() {
        let make = |late| {
            let mut part = Measurement::default();
            let unary = part.of(Kind::Unary);
            (unary.sent, unary.completed) = (100, 100);
            unary.reply.record(Duration::from_millis(1));
            part.late_sends = late;
            part
        };
        let mut whole = make(1);
        assert!(!whole.is_generator_bound());
        whole.merge(make(1));
        assert_eq!(whole.sum(|kind| kind.sent), 200);
        assert_eq!(whole.of(Kind::Unary).reply.summary().count, 2);
        assert!(whole.is_clean());
        let mut late = make(9);
        late.error("timed_out", "late");
        whole.merge(late);
        assert!(whole.is_generator_bound() && !whole.is_clean());
        assert_eq!(whole.error_count(), 1);
    }
}
