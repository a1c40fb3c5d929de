//! The sweep: one measurement after another at rising rates, to find the *knee*:
//! the highest rate at which everything was answered without an error, at least
//! 99 % of it (or the part asked for) within the measured time, and the 99th percentile of latency
//! stayed within its limit. The limit is the one given, or so many times that
//! of the first rate. The rate grows by half until a step fails; then the gap
//! between the last good and the first bad rate is halved (geometrically) until
//! they are within 5 % of one another.

use crate::args::RunArguments;
use crate::measurement::Measurement;
use crate::observer::Observation;
use crate::report::{self, Point, Soak, Sweep};
use crate::session::{Load, Session};
use std::error::Error;
use std::time::Duration;

/// Growth of the rate while all is well.
const GROWTH: f64 = 1.5;
/// The search ends when a good and a bad rate are as near as this.
const NEAR: f64 = 1.05;
/// Seconds below which memory cannot be judged.
const MEMORY_SECONDS_MIN: usize = 8;
/// Growth of memory that is noise: this part, or these octets.
const MEMORY_GROWTH_MAX: f64 = 0.05;
const MEMORY_NOISE_OCTETS: f64 = 16.0 * 1024.0 * 1024.0;

/// Which rate to try next.
#[derive(Debug, Clone, Copy)]
struct Search {
    from: f64,
    to: f64,
    good: Option<f64>,
    bad: Option<f64>,
}

impl Search {
    fn next(&self) -> Option<f64> {
        match (self.good, self.bad) {
            (None, None) => Some(self.from),
            (None, Some(_)) => None,
            (Some(good), None) if good >= self.to => None,
            (Some(good), None) => Some((good * GROWTH).min(self.to)),
            (Some(good), Some(bad)) if bad <= good * NEAR => None,
            (Some(good), Some(bad)) => Some((good * bad).sqrt()),
        }
    }

    fn note(&mut self, rate: f64, passed: bool) {
        if passed {
            self.good = Some(rate);
        } else {
            self.bad = Some(rate);
        }
    }
}

/// What the report shows: the measurement at the knee, or of the soak behind it.
pub struct Outcome {
    pub load: Load,
    pub measurement: Measurement,
    pub observation: Observation,
    pub sweep: Sweep,
    pub soak: Option<Soak>,
}

impl Outcome {
    /// A knee was found, and the soak, if any, was as it should be.
    pub fn is_clean(&self) -> bool {
        !self.measurement.interrupted
            && self.sweep.knee_per_s.is_some()
            && self.soak.as_ref().is_none_or(|soak| soak.passed)
    }
}

/// Sweeps, and soaks if asked.
pub fn sweep(session: &Session<'_>, range: (f64, f64)) -> Result<Outcome, Box<dyn Error>> {
    let arguments = session.arguments;
    let mut search = Search {
        from: range.0,
        to: range.1,
        good: None,
        bad: None,
    };
    let mut sweep = Sweep {
        from_per_s: range.0,
        to_per_s: range.1,
        achieved_min: arguments.achieved_min,
        p99_max_ns: arguments.p99_max.map(nanoseconds),
        p99_factor: arguments.p99_factor,
        points: Vec::new(),
        knee_per_s: None,
        limited_by: None,
    };
    let mut best: Option<(Load, Measurement, Observation)> = None;
    while let Some(rate) = search.next() {
        let load = Load {
            rate,
            warmup: arguments.warmup,
            duration: arguments.duration,
        };
        let (measurement, observation) = session.measure(load)?;
        if let (None, Some(reason)) = (&best, &measurement.aborted) {
            return Err(reason.clone().into());
        }
        let mut point = report::point(load, &measurement, &observation);
        point.reason = objection(&point, &measurement, &sweep);
        point.passed = point.reason.is_none();
        if point.passed && sweep.p99_max_ns.is_none() {
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a limit, rounded
            let limit = (point.p99_ns as f64 * arguments.p99_factor) as u64;
            sweep.p99_max_ns = Some(limit);
        }
        eprintln!("{}", report::step(&point));
        search.note(rate, point.passed);
        let (passed, interrupted) = (point.passed, measurement.interrupted);
        if passed {
            sweep.knee_per_s = Some(rate);
        } else if !interrupted {
            sweep.limited_by.clone_from(&point.reason);
        }
        sweep.points.push(point);
        if passed || best.is_none() {
            best = Some((load, measurement, observation));
        }
        if interrupted {
            break;
        }
    }
    let (load, measurement, observation) = best.ok_or("nothing was measured")?;
    let mut outcome = Outcome {
        load,
        measurement,
        observation,
        sweep,
        soak: None,
    };
    let is_interrupted = session.is_interrupted();
    outcome.measurement.interrupted |= is_interrupted;
    if let (Some(time), Some(knee), false) =
        (arguments.soak, outcome.sweep.knee_per_s, is_interrupted)
    {
        soak(session, arguments, knee, time, &mut outcome)?;
    }
    Ok(outcome)
}

fn soak(
    session: &Session<'_>,
    arguments: &RunArguments,
    knee: f64,
    time: Duration,
    outcome: &mut Outcome,
) -> Result<(), Box<dyn Error>> {
    let load = Load {
        rate: knee * arguments.at,
        warmup: arguments.warmup,
        duration: time,
    };
    eprintln!(
        "soak: {:.0}/s for {} s",
        load.rate,
        load.duration.as_secs_f64()
    );
    let (measurement, observation) = session.measure(load)?;
    let memory: Vec<u64> = observation.memory.iter().flatten().copied().collect();
    let flat = growth(&memory);
    let scheduled = measurement.sum(|kind| kind.scheduled);
    let lost = scheduled - measurement.sum(|kind| kind.completed).min(scheduled);
    outcome.soak = Some(Soak {
        at: arguments.at,
        rate_per_s: load.rate,
        duration_s: time.as_secs_f64(),
        memory_early_octets: flat.map(|(early, _)| early),
        memory_late_octets: flat.map(|(_, late)| late),
        memory_flat: flat.map(is_flat),
        lost,
        errors: measurement.error_count(),
        passed: measurement.is_clean() && lost == 0 && flat.is_none_or(is_flat),
    });
    outcome.load = load;
    outcome.measurement = measurement;
    outcome.observation = observation;
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Why a step does not count as good.
fn objection(point: &Point, measurement: &Measurement, sweep: &Sweep) -> Option<String> {
    if measurement.interrupted {
        return Some("interrupted".into());
    }
    if let Some(reason) = &measurement.aborted {
        return Some(reason.clone());
    }
    if let Some((kind, error)) = measurement.errors.iter().next() {
        return Some(format!(
            "{} errors, {kind}: {}",
            point.errors, error.example
        ));
    }
    if measurement.is_generator_bound() {
        return Some("the generator was the bottleneck".into());
    }
    if point.achieved_per_s < sweep.achieved_min * point.scheduled_per_s {
        return Some(format!(
            "only {:.1} % was answered in time",
            100.0 * point.achieved_per_s / point.scheduled_per_s
        ));
    }
    match sweep.p99_max_ns {
        Some(limit) if point.p99_ns > limit => Some(format!(
            "p99 {} is above {}",
            report::shown(point.p99_ns),
            report::shown(limit)
        )),
        _ => None,
    }
}

/// Means of the second and of the last quarter; the first is warm-up of caches and pools.
fn growth(memory: &[u64]) -> Option<(u64, u64)> {
    let quarter = memory.len() / 4;
    if memory.len() < MEMORY_SECONDS_MIN {
        return None;
    }
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len() as u64;
    Some((
        mean(&memory[quarter..2 * quarter]),
        mean(&memory[memory.len() - quarter..]),
    ))
}

#[allow(clippy::cast_precision_loss)] // octets of memory
fn is_flat((early, late): (u64, u64)) -> bool {
    let (early, late) = (early as f64, late as f64);
    late - early <= (early * MEMORY_GROWTH_MAX).max(MEMORY_NOISE_OCTETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(from: f64, to: f64, capacity: f64) -> (Search, usize) {
        let mut search = Search {
            from,
            to,
            good: None,
            bad: None,
        };
        let mut steps = 0;
        while let Some(rate) = search.next() {
            search.note(rate, rate <= capacity);
            steps += 1;
            assert!(steps < 50);
        }
        (search, steps)
    }

    #[test]
    fn the_knee_is_found() {
        let (found, steps) = search(1000.0, 1_000_000.0, 43_210.0);
        let knee = found.good.unwrap();
        assert!(knee <= 43_210.0 && knee * NEAR * NEAR > 43_210.0, "{knee}");
        assert!(steps < 16, "{steps}");
    }

    #[test]
    fn a_range_without_a_knee() {
        let (above, steps) = search(1000.0, 2000.0, 1e9);
        assert_eq!((above.good, above.bad, steps), (Some(2000.0), None, 3));
        let (below, steps) = search(1000.0, 2000.0, 10.0);
        assert_eq!((below.good, below.bad, steps), (None, Some(1000.0), 1));
    }

    #[test]
    fn memory_that_grows() {
        const MIB: u64 = 1024 * 1024;
        let flat: Vec<u64> = (0..40)
            .map(|n| if n < 10 { 50 } else { 100 } * MIB)
            .collect();
        assert!(is_flat(growth(&flat).unwrap()));
        let growing: Vec<u64> = (0..40).map(|n| (100 + 2 * n) * MIB).collect();
        assert!(!is_flat(growth(&growing).unwrap()));
        assert_eq!(growth(&flat[..7]), None);
    }
}
