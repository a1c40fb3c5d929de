//! The metric table, in the OpenMetrics text that Prometheus reads.
//!
//! The naming law, which [`Registry`] enforces when a family is added:
//!
//! 1. Every name begins with `npamp_relay_`, which the registry puts there, and
//!    goes on in snake case: lower-case letters, digits and single underscores.
//! 2. A counter ends in `_total`, also put there by the registry; a gauge never does.
//! 3. Units are base units and stand last: `_octets`, `_seconds`; never
//!    milliseconds, kibibytes or percent.
//! 4. A family that is split by reason has one label, normally `reason`, whose
//!    values are the room's [`Reason`] labels; one that is split twice has two.
//!    All series are there from the start, at 0, so that a rate can be taken from
//!    the first one on.
//! 5. Every family has a help text, a sentence without its full stop.
//! 6. A label value may come from the configuration, such as a route's path. None
//!    comes from a peer, so the number of series is fixed at
//!    start-up.

use crate::stats::{Counters, Gauge, Reason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What every metric name begins with.
pub const PREFIX: &str = "npamp_relay";

/// Media type of [`Registry::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A family that breaks the naming law: always our own bug, so that it stops
/// the start of the relay and not a scrape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {name:?} {why}")]
pub struct NamingError {
    /// The name that was given.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;
/// Tells every series: the values of the labels, and the count.
type ReadLabelled = Box<dyn Fn(&mut dyn FnMut(&[&'static str], u64)) + Send + Sync>;

enum Source {
    Counter(Read<u64>),
    FractionalCounter(Read<f64>),
    Gauge(Read<f64>),
    CounterFamily(Vec<&'static str>, ReadLabelled),
    /// Sum, and counts by upper bound, none of them including another.
    Histogram(Read<f64>, Read<Vec<(f64, u64)>>),
    Info(Vec<(&'static str, String)>),
    /// Names of the labels, and series whose values come from the configuration.
    CounterSeries(Vec<&'static str>, Vec<Series<u64>>),
    GaugeSeries(Vec<&'static str>, Vec<Series<f64>>),
}

/// One series of a family that is split by what the configuration names.
pub struct Series<T> {
    values: Vec<String>,
    read: Read<T>,
}

impl<T> Series<T> {
    /// The values of the labels, in their order, and where the count is read.
    pub fn new(values: &[&str], read: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self {
            values: values.iter().map(|value| escaped(value)).collect(),
            read: Box::new(read),
        }
    }

    fn labels<'a>(&'a self, names: &[&'static str]) -> Vec<(&'static str, &'a str)> {
        let values = self.values.iter().map(String::as_str);
        names.iter().copied().zip(values).collect()
    }
}

struct Family {
    name: &'static str,
    help: &'static str,
    source: Source,
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Collector for Family {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        match &self.source {
            Source::Counter(read) => {
                let counter = ConstCounter::new(read());
                let metric =
                    encoder.encode_descriptor(self.name, self.help, None, counter.metric_type())?;
                counter.encode(metric)
            }
            Source::FractionalCounter(read) => {
                let counter = ConstCounter::new(read());
                let metric =
                    encoder.encode_descriptor(self.name, self.help, None, counter.metric_type())?;
                counter.encode(metric)
            }
            Source::Gauge(read) => {
                let gauge = ConstGauge::new(read());
                let metric =
                    encoder.encode_descriptor(self.name, self.help, None, gauge.metric_type())?;
                gauge.encode(metric)
            }
            Source::CounterFamily(labels, read) => {
                let kind = MetricType::Counter;
                let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
                let mut outcome = Ok(());
                read(&mut |values, count| {
                    if outcome.is_ok() {
                        let set: Vec<(&str, &str)> =
                            labels.iter().copied().zip(values.iter().copied()).collect();
                        outcome = metric
                            .encode_family(&set.as_slice())
                            .and_then(|series| ConstCounter::new(count).encode(series));
                    }
                });
                outcome
            }
            Source::Histogram(sum, buckets) => {
                let kind = MetricType::Histogram;
                let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
                let buckets = buckets();
                let count = buckets.iter().map(|(_, count)| count).sum();
                metric.encode_histogram::<NoLabelSet>(sum(), count, &buckets, None)
            }
            Source::CounterSeries(names, series) => {
                let kind = MetricType::Counter;
                let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
                series.iter().try_for_each(|one| {
                    let labels = one.labels(names);
                    let labels = labels.as_slice();
                    let encoder = metric.encode_family(&labels)?;
                    ConstCounter::new((one.read)()).encode(encoder)
                })
            }
            Source::GaugeSeries(names, series) => {
                let kind = MetricType::Gauge;
                let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
                series.iter().try_for_each(|one| {
                    let labels = one.labels(names);
                    let labels = labels.as_slice();
                    let encoder = metric.encode_family(&labels)?;
                    ConstGauge::new((one.read)()).encode(encoder)
                })
            }
            Source::Info(labels) => {
                let gauge = ConstGauge::new(1_i64);
                let mut metric =
                    encoder.encode_descriptor(self.name, self.help, None, gauge.metric_type())?;
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                metric
                    .encode_family(&labels.as_slice())
                    .and_then(|series| gauge.encode(series))
            }
        }
    }
}

/// Every family of the process. Families are added at start-up, read on every scrape.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: prometheus_client::registry::Registry,
    names: BTreeSet<&'static str>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            registry: prometheus_client::registry::Registry::with_prefix(PREFIX),
            names: BTreeSet::new(),
        }
    }
}

fn snake_case(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('_')
        && !name.contains("__")
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// A label value as the text format spells it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// What is wrong with the name of a family, its prefix and `_total` left out.
fn judge(name: &str, help: &str) -> Result<(), &'static str> {
    const FOREIGN_UNITS: [&str; 9] = [
        "ms",
        "us",
        "ns",
        "millis",
        "milliseconds",
        "kib",
        "mib",
        "bytes",
        "percent",
    ];
    if !snake_case(name) {
        return Err("is not snake case");
    }
    if name.starts_with(PREFIX) {
        return Err("repeats the prefix");
    }
    if name.ends_with("_total") {
        return Err("ends in _total, which the registry adds to counters");
    }
    if name.split('_').any(|word| FOREIGN_UNITS.contains(&word)) {
        return Err("is not in octets or seconds");
    }
    if help.is_empty() || help.ends_with('.') {
        return Err("needs a help text without a full stop");
    }
    Ok(())
}

/// Whether the label and its values are lawful.
fn judge_labels<R: Reason>(name: &str, label: &str) -> Result<(), NamingError> {
    if snake_case(label) && R::ALL.iter().all(|reason| snake_case(reason.label())) {
        return Ok(());
    }
    Err(NamingError {
        name: name.to_owned(),
        why: "has a label or a label value that is not snake case",
    })
}

/// Whether the labels are lawful and tell the series apart.
fn judge_series<T>(
    name: &str,
    labels: &[&'static str],
    series: &[Series<T>],
) -> Result<(), NamingError> {
    let refuse = |why| {
        Err(NamingError {
            name: name.to_owned(),
            why,
        })
    };
    if !labels.iter().all(|label| snake_case(label)) {
        return refuse("has a label that is not snake case");
    }
    let mut told: BTreeSet<&[String]> = BTreeSet::new();
    for one in series {
        if one.values.len() != labels.len() || !told.insert(&one.values) {
            return refuse("has series that its labels do not tell apart");
        }
    }
    Ok(())
}

impl Registry {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(
        &self,
        name: &'static str,
        help: &'static str,
        source: Source,
    ) -> Result<(), NamingError> {
        let refuse = |why| {
            Err(NamingError {
                name: name.to_owned(),
                why,
            })
        };
        if let Err(why) = judge(name, help) {
            return refuse(why);
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.names.insert(name) {
            return refuse("is there already");
        }
        inner
            .registry
            .register_collector(Box::new(Family { name, help, source }));
        Ok(())
    }

    /// A counter per reason; `name` without prefix and `_total`.
    pub fn counter_family<R: Reason + Send + Sync>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        counters: Arc<Counters<R>>,
    ) -> Result<(), NamingError> {
        self.counter_family_read(name, help, label, move |reason: R| counters.get(reason))
    }

    /// A counter per reason, summed over several sources, such as one per unit.
    pub fn counter_family_of<R: Reason + Send + Sync>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        sources: Vec<Arc<Counters<R>>>,
    ) -> Result<(), NamingError> {
        self.counter_family_read(name, help, label, move |reason: R| {
            sources.iter().map(|counters| counters.get(reason)).sum()
        })
    }

    /// A counter per reason that `read` gives, such as a sum over units or a
    /// field of a larger structure. No value may ever go down.
    pub fn counter_family_read<R: Reason>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: impl Fn(R) -> u64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        judge_labels::<R>(name, label)?;
        let read: ReadLabelled = Box::new(move |tell| {
            for &reason in R::ALL {
                tell(&[reason.label()], read(reason));
            }
        });
        self.add(name, help, Source::CounterFamily(vec![label], read))
    }

    /// As [`Registry::counter_family_read`], split twice.
    pub fn counter_table_read<R: Reason, S: Reason>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; 2],
        read: impl Fn(R, S) -> u64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        judge_labels::<R>(name, labels[0])?;
        judge_labels::<S>(name, labels[1])?;
        let read: ReadLabelled = Box::new(move |tell| {
            for &first in R::ALL {
                for &second in S::ALL {
                    tell(&[first.label(), second.label()], read(first, second));
                }
            }
        });
        self.add(name, help, Source::CounterFamily(labels.to_vec(), read))
    }

    /// A histogram whose buckets are the values of `R`, in rising order: their
    /// labels are upper bounds, the last one `+Inf`. `read` gives what fell into
    /// one bucket alone; `sum` the sum of all values, NaN where nobody keeps it.
    pub fn histogram<R: Reason>(
        &self,
        name: &'static str,
        help: &'static str,
        sum: impl Fn() -> f64 + Send + Sync + 'static,
        read: impl Fn(R) -> u64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        let bounds: Option<Vec<(f64, R)>> = R::ALL
            .iter()
            .map(|&reason| match reason.label() {
                // The encoder's own word for infinity.
                "+Inf" => Some((f64::MAX, reason)),
                bound => bound.parse().ok().map(|bound| (bound, reason)),
            })
            .collect();
        let rising = bounds.filter(|bounds| {
            bounds.windows(2).all(|pair| pair[0].0 < pair[1].0)
                && bounds.last().is_some_and(|(last, _)| *last >= f64::MAX)
        });
        let Some(bounds) = rising else {
            return Err(NamingError {
                name: name.to_owned(),
                why: "has labels that are no rising upper bounds up to +Inf",
            });
        };
        // Not the reasons themselves, which need not be Send.
        let order: Vec<(f64, usize)> = bounds
            .iter()
            .map(|(bound, r)| (*bound, r.index()))
            .collect();
        let buckets = Box::new(move || {
            order
                .iter()
                .filter_map(|&(bound, index)| R::ALL.get(index).map(|&r| (bound, read(r))))
                .collect()
        });
        self.add(name, help, Source::Histogram(Box::new(sum), buckets))
    }

    /// A single counter; `name` without prefix and `_total`. `read` must never go down.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        self.add(name, help, Source::Counter(Box::new(read)))
    }

    /// As [`Registry::counter`], for seconds.
    pub fn counter_fractional(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        self.add(name, help, Source::FractionalCounter(Box::new(read)))
    }

    /// A value that goes up and down; `name` without prefix.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), NamingError> {
        self.add(name, help, Source::Gauge(Box::new(read)))
    }

    /// A [`Gauge`] that a room keeps, or the sum of several.
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    pub fn gauge_of(
        &self,
        name: &'static str,
        help: &'static str,
        gauges: Vec<Arc<Gauge>>,
    ) -> Result<(), NamingError> {
        self.gauge(name, help, move || {
            gauges.iter().map(|gauge| gauge.get()).sum::<u64>() as f64
        })
    }

    /// A counter per series, each with a value for each of the labels. No value may
    /// ever go down, and no two series have the same values.
    pub fn counter_series(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        series: Vec<Series<u64>>,
    ) -> Result<(), NamingError> {
        judge_series(name, labels, &series)?;
        self.add(name, help, Source::CounterSeries(labels.to_vec(), series))
    }

    /// As [`Registry::counter_series`], for values that go up and down.
    pub fn gauge_series(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        series: Vec<Series<f64>>,
    ) -> Result<(), NamingError> {
        judge_series(name, labels, &series)?;
        self.add(name, help, Source::GaugeSeries(labels.to_vec(), series))
    }

    /// A gauge that is always 1 and says something in its labels, such as the version.
    pub fn info(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
    ) -> Result<(), NamingError> {
        if !labels.iter().all(|(label, _)| snake_case(label)) {
            return Err(NamingError {
                name: name.to_owned(),
                why: "has a label that is not snake case",
            });
        }
        // The encoder writes label values as they are.
        let labels = labels
            .into_iter()
            .map(|(label, value)| (label, escaped(&value)))
            .collect();
        self.add(name, help, Source::Info(labels))
    }

    /// The whole table as OpenMetrics text.
    pub fn render(&self) -> String {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &inner.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::reasons! {
        /// Test reasons.
        enum Drop { /// a
            TagFailure => "tag_failure", /// b
            Replay => "replay" }
    }
    crate::reasons! {
        /// Test buckets.
        enum Took { /// a
            Short => "0.025", /// b
            Long => "+Inf" }
    }
    crate::reasons! {
        /// Test reasons.
        enum Wrong { /// a
            TagFailure => "Tag-Failure" }
    }

    /// Series that the configuration names: values escaped, and told apart.
    #[test]
    fn series_of_the_configuration() {
        let registry = Registry::new();
        let one = || Series::new(&["/a\"b", "x:1"], || 3);
        let labels = ["route", "upstream"];
        registry
            .counter_series("events", "Events", &labels, vec![one()])
            .unwrap();
        let level = Series::new(&["/", "x:1"], || 2.0);
        registry
            .gauge_series("level", "Level", &labels, vec![level])
            .unwrap();
        let text = registry.render();
        for line in [
            r#"npamp_relay_events_total{route="/a\"b",upstream="x:1"} 3"#,
            r#"npamp_relay_level{route="/",upstream="x:1"} 2.0"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
        let refused = |labels: &[&'static str], series| {
            registry.counter_series("others", "Others", labels, series)
        };
        assert!(refused(&labels, vec![one(), one()]).is_err());
        assert!(refused(&["route"], vec![one()]).is_err());
        assert!(refused(&["Route", "upstream"], vec![one()]).is_err());
        assert!(refused(&labels, vec![one()]).is_ok());
    }

    #[test]
    fn renders_every_kind() {
        let registry = Registry::new();
        let (one, two) = (
            Arc::new(Counters::<Drop>::default()),
            Arc::new(Counters::default()),
        );
        one.add(Drop::Replay, 3);
        two.count(Drop::Replay);
        let gauge = Arc::new(Gauge::default());
        gauge.add(7);
        registry
            .counter_family_read(
                "frames_dropped",
                "Frames dropped",
                "reason",
                move |reason| one.get(reason) + two.get(reason),
            )
            .unwrap();
        registry
            .counter_table_read("both", "Both", ["one", "two"], |a: Drop, b: Drop| {
                (a.index() * 2 + b.index()) as u64
            })
            .unwrap();
        registry
            .histogram(
                "took_seconds",
                "Time taken",
                || 1.5,
                |bucket: Took| match bucket {
                    Took::Short => 3,
                    Took::Long => 4,
                },
            )
            .unwrap();
        registry
            .counter("handshakes", "Handshakes done", || 5)
            .unwrap();
        registry
            .gauge_of("associations", "Associations up", vec![gauge])
            .unwrap();
        registry
            .info(
                "build",
                "What was built",
                vec![("version", "1.2\"3".to_owned())],
            )
            .unwrap();
        let text = registry.render();
        for line in [
            "# HELP npamp_relay_frames_dropped Frames dropped",
            "# TYPE npamp_relay_frames_dropped counter",
            "npamp_relay_frames_dropped_total{reason=\"tag_failure\"} 0",
            "npamp_relay_frames_dropped_total{reason=\"replay\"} 4",
            "npamp_relay_both_total{one=\"replay\",two=\"tag_failure\"} 2",
            "# TYPE npamp_relay_took_seconds histogram",
            "npamp_relay_took_seconds_sum 1.5",
            "npamp_relay_took_seconds_count 7",
            "npamp_relay_took_seconds_bucket{le=\"0.025\"} 3",
            "npamp_relay_took_seconds_bucket{le=\"+Inf\"} 7",
            "npamp_relay_handshakes_total 5",
            "# TYPE npamp_relay_associations gauge",
            "npamp_relay_associations 7.0",
            "npamp_relay_build{version=\"1.2\\\"3\"} 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_naming_law_is_enforced() {
        let registry = Registry::new();
        for (name, help) in [
            ("Frames", "x"),
            ("frames__dropped", "x"),
            ("frames_", "x"),
            ("9frames", "x"),
            ("frames_total", "x"),
            ("npamp_relay_frames", "x"),
            ("latency_ms", "x"),
            ("memory_bytes", "x"),
            ("frames", ""),
            ("frames", "Ends."),
        ] {
            assert!(
                registry.counter(name, help, || 0).is_err(),
                "{name:?} {help:?}"
            );
        }
        registry.counter("frames", "Frames", || 0).unwrap();
        assert!(
            registry.gauge("frames", "Frames", || 0.0).is_err(),
            "taken twice"
        );
        let wrong = Arc::new(Counters::<Wrong>::default());
        assert!(
            registry
                .counter_family("drops", "Drops", "reason", wrong)
                .is_err()
        );
        assert!(registry.histogram("x", "X", || 0.0, |_: Drop| 0).is_err());
        let right = Arc::new(Counters::<Drop>::default());
        assert!(
            registry
                .counter_family("drops", "Drops", "Reason", right)
                .is_err()
        );
    }
}
