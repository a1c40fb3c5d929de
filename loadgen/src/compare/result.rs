//! What a comparison found; `REPORT.md` describes the JSON form.

use crate::histogram::{Summary, Times};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Name and version of the form.
pub const SCHEMA: &str = "npamp-loadgen/compare/1";

/// What one contestant did in one round.
pub struct Outcome {
    /// Exchanges or events a second.
    pub per_s: f64,
    /// Latencies, where they mean something.
    pub times: Times,
    /// Errors.
    pub errors: u64,
    /// What one of them said.
    pub example: String,
}

impl Outcome {
    /// `count` in `time`.
    #[allow(clippy::cast_precision_loss)] // averages
    pub fn of(count: u64, time: Duration, times: Times, errors: u64, example: String) -> Self {
        Self {
            per_s: count as f64 / time.as_secs_f64(),
            times,
            errors,
            example,
        }
    }
}

/// A whole comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    pub schema: String,
    pub tool: String,
    pub version: String,
    pub command_line: Vec<String>,
    pub finished_unix_s: u64,
    pub machine: Machine,
    pub asked: Asked,
    /// What was compared, and its version.
    pub programs: BTreeMap<String, String>,
    /// What was not, and why.
    pub skipped: BTreeMap<String, String>,
    pub cases: Vec<Case>,
    /// No round had an error.
    pub clean: bool,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    pub rounds: usize,
    pub duration_s: f64,
    pub warmup_s: f64,
    pub payload_octets: u64,
    pub event_octets: u64,
    pub events: u32,
}

/// One load, carried by several contestants in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    /// Short name.
    pub name: String,
    /// What was done, for people.
    pub load: String,
    /// What `per_s` counts.
    pub unit: String,
    /// The contestant that the others' ratios are of.
    pub subject: String,
    pub contestants: Vec<Contestant>,
}

/// What one contestant did in all rounds of a case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contestant {
    pub name: String,
    pub per_s: Spread,
    /// Absent where latency means nothing.
    pub p50_ns: Option<Spread>,
    pub p99_ns: Option<Spread>,
    #[serde(rename = "p99.9_ns")]
    pub p99_9_ns: Option<Spread>,
    /// The subject's figure over this one's, round by round; absent of the subject itself.
    pub subject_ratio: Option<Ratios>,
    pub errors: u64,
    pub example: String,
    /// All rounds together.
    pub latency: Option<Summary>,
}

/// How the subject compares.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ratios {
    pub per_s: Spread,
    pub p50: Option<Spread>,
    pub p99: Option<Spread>,
    #[serde(rename = "p99.9")]
    pub p99_9: Option<Spread>,
}

/// The rounds' values and their median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// In the order of the rounds.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Of values, of which there is at least one.
    pub fn of(rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let last = sorted.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(sorted.len() / 2)),
            min: at(0),
            max: at(last),
            rounds,
        }
    }
}

/// Rounds of one contestant as they come.
pub struct Rounds {
    /// What it is called.
    pub name: String,
    /// In order.
    pub outcomes: Vec<Outcome>,
}

impl Case {
    /// Of rounds; the first contestant is the subject.
    pub fn of(name: &str, load: String, unit: &str, rounds: &[Rounds]) -> Self {
        let subject = rounds.first();
        Self {
            name: name.to_owned(),
            load,
            unit: unit.to_owned(),
            subject: subject
                .map(|rounds| rounds.name.clone())
                .unwrap_or_default(),
            contestants: rounds
                .iter()
                .enumerate()
                .map(|(index, rounds)| contestant(rounds, subject.filter(|_| index > 0)))
                .collect(),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // nanoseconds of less than months
fn quantiles(rounds: &Rounds, quantile: f64) -> Option<Vec<f64>> {
    rounds
        .outcomes
        .iter()
        .map(|outcome| match outcome.times.quantile_ns(quantile) {
            0 => None,
            value => Some(value as f64),
        })
        .collect()
}

fn contestant(rounds: &Rounds, subject: Option<&Rounds>) -> Contestant {
    let rates = |rounds: &Rounds| -> Vec<f64> {
        rounds
            .outcomes
            .iter()
            .map(|outcome| outcome.per_s)
            .collect()
    };
    let ratio = |of: Option<Vec<f64>>, to: Option<Vec<f64>>| {
        let pairs = of?.into_iter().zip(to?);
        let ratios: Vec<f64> = pairs
            .filter(|(_, to)| *to > 0.0)
            .map(|(of, to)| of / to)
            .collect();
        (!ratios.is_empty()).then(|| Spread::of(ratios))
    };
    let mut all = Times::default();
    for outcome in &rounds.outcomes {
        all.merge(&outcome.times);
    }
    let latency = all.summary();
    let spread = |quantile| quantiles(rounds, quantile).map(Spread::of);
    Contestant {
        name: rounds.name.clone(),
        per_s: Spread::of(rates(rounds)),
        p50_ns: spread(0.5),
        p99_ns: spread(0.99),
        p99_9_ns: spread(0.999),
        subject_ratio: subject.and_then(|subject| {
            let of = |quantile| ratio(quantiles(subject, quantile), quantiles(rounds, quantile));
            Some(Ratios {
                per_s: ratio(Some(rates(subject)), Some(rates(rounds)))?,
                p50: of(0.5),
                p99: of(0.99),
                p99_9: of(0.999),
            })
        }),
        errors: rounds.outcomes.iter().map(|outcome| outcome.errors).sum(),
        example: rounds
            .outcomes
            .iter()
            .map(|outcome| outcome.example.as_str())
            .find(|example| !example.is_empty())
            .unwrap_or_default()
            .to_owned(),
        latency: (latency.count > 0).then_some(latency),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(name: &str, values: &[(u64, u64)]) -> Rounds {
        let second = Duration::from_secs(1);
        Rounds {
            name: name.into(),
            outcomes: values
                .iter()
                .map(|&(count, micros)| {
                    let mut times = Times::default();
                    if micros > 0 {
                        times.record(Duration::from_micros(micros));
                    }
                    Outcome::of(count, second, times, 0, String::new())
                })
                .collect(),
        }
    }

    #[test]
    fn medians_are_of_rounds_and_ratios_of_pairs() {
        assert!((Spread::of(vec![3.0, 1.0, 2.0, 10.0]).median - 2.5).abs() < 1e-9);
        let all = [
            rounds("relay", &[(100, 10), (300, 40), (200, 20)]),
            rounds("other", &[(50, 20), (100, 20), (200, 20)]),
        ];
        let case = Case::of("case", "load".into(), "exchanges", &all);
        assert_eq!(case.subject, "relay");
        assert!(case.contestants[0].subject_ratio.is_none());
        let other = &case.contestants[1];
        assert!((other.per_s.median - 100.0).abs() < 1e-9);
        let ratios = other.subject_ratio.as_ref().unwrap();
        assert!((ratios.per_s.median - 2.0).abs() < 1e-9 && ratios.per_s.rounds.len() == 3);
        let p50 = ratios.p50.as_ref().unwrap();
        assert!((p50.median - 1.0).abs() < 0.01 && (p50.max - 2.0).abs() < 0.01);
        assert_eq!(other.latency.as_ref().unwrap().count, 3);
    }

    #[test]
    fn what_has_no_latency_has_no_ratio_of_it() {
        let all = [rounds("a", &[(1, 0)]), rounds("b", &[(0, 5)])];
        let case = Case::of("case", String::new(), "events", &all);
        assert!(case.contestants[0].p50_ns.is_none() && case.contestants[0].latency.is_none());
        // Nothing over nothing is no ratio.
        assert!(case.contestants[1].subject_ratio.is_none());
    }
}
