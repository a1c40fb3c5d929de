//! `run`: makes the load that was asked for, and reports.

use crate::args::RunArguments;
use crate::measurement::Measurement;
use crate::observer::Observation;
use crate::report::Report;
use crate::session::{Load, Session};
use crate::sweep;
use clap::CommandFactory;
use std::error::Error;

/// Runs the load and reports. True when everything was measured without an error.
pub fn run(arguments: &RunArguments) -> Result<bool, Box<dyn Error>> {
    if let Err(text) = arguments.check() {
        crate::args::Arguments::command()
            .error(clap::error::ErrorKind::ArgumentConflict, text)
            .exit();
    }
    if arguments.scenario.is_http() {
        return crate::http::run(arguments);
    }
    let session = Session::start(arguments)?;
    let upstream = session.target.upstream.clone();
    let measured = if let Some(range) = arguments.sweep {
        sweep::sweep(&session, range).map(Measured::Sweep)
    } else {
        let load = Load {
            rate: arguments.rate,
            warmup: arguments.warmup,
            duration: arguments.duration,
        };
        let measured = session.measure(load);
        measured.map(|(measurement, observation)| Measured::One(load, measurement, observation))
    };
    session.stop()?;
    let (report, clean, aborted) = match measured? {
        Measured::One(load, measurement, observation) => {
            let (clean, aborted) = (measurement.is_clean(), measurement.aborted.clone());
            let report = Report::new(arguments, &upstream, load, measurement, &observation);
            (report, clean, aborted)
        }
        Measured::Sweep(outcome) => {
            let clean = outcome.is_clean();
            let aborted = outcome.measurement.aborted.clone();
            let (load, observation) = (outcome.load, &outcome.observation);
            let report = Report::new(arguments, &upstream, load, outcome.measurement, observation);
            let report = report.with_sweep(outcome.sweep, outcome.soak, clean);
            (report, clean, aborted)
        }
    };
    report.write(arguments.json.as_deref())?;
    match aborted {
        Some(reason) => Err(reason.into()),
        None => Ok(clean),
    }
}

enum Measured {
    One(Load, Measurement, Observation),
    Sweep(sweep::Outcome),
}
