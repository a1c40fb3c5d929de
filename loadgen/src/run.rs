//! `run`: makes the load that was asked for, and reports.

use crate::args::RunArguments;
use crate::report::Report;
use crate::session::{Load, Session};
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
    let load = Load {
        rate: arguments.rate,
        warmup: arguments.warmup,
        duration: arguments.duration,
    };
    let measured = session.measure(load);
    let upstream = session.target.upstream.clone();
    session.stop()?;
    let (measurement, observation) = measured?;
    let (clean, aborted) = (measurement.is_clean(), measurement.aborted.clone());
    Report::new(arguments, &upstream, load, measurement, &observation)
        .write(arguments.json.as_deref())?;
    match aborted {
        Some(reason) => Err(reason.into()),
        None => Ok(clean),
    }
}
