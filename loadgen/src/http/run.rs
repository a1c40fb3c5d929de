//! The scenarios *http* and *sse* of `run`: a thread for the clients, a bar, the
//! report.

use super::client::{self, HttpPlan, Pacing};
use super::target::HttpTarget;
use crate::args::{RunArguments, Scenario};
use crate::measurement::Measurement;
use crate::observer::Observation;
use crate::process::Process;
use crate::progress::{Bar, Progress};
use crate::report::Report;
use crate::session::Load;
use http::HeaderValue;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Time between two drawings of the progress bar.
const DRAW_TIME: Duration = Duration::from_millis(100);

/// Runs the load and reports. True when everything was measured without an error.
pub fn run(arguments: &RunArguments) -> Result<bool, Box<dyn Error>> {
    let target: HttpTarget = arguments.target.as_deref().unwrap_or_default().parse()?;
    let bearer = arguments.bearer_file.as_deref().map(bearer).transpose()?;
    let plan = HttpPlan {
        target,
        streams: arguments.scenario == Scenario::Sse,
        version: arguments.a2a_version,
        bearer,
        pacing: Pacing::Open {
            rate: arguments.rate,
            arrivals: arguments.arrivals,
            seed: arguments.seed,
        },
        warmup: arguments.warmup,
        duration: arguments.duration,
        connections: usize::try_from(arguments.connections)?,
        payload: usize::try_from(arguments.payload)?,
        timeout: arguments.timeout,
        lag_max: arguments.lag_max,
    };
    let shown = plan.target.to_string();
    let progress = Arc::new(Progress::default());
    let mut bar = Bar::new(plan.warmup + plan.duration);
    let process = arguments.process();
    let mut memory = Vec::new();
    let measured = measure(plan, &progress, || {
        bar.draw(&progress);
        let elapsed = Duration::from_nanos(progress.elapsed.load(Ordering::Relaxed));
        let next = arguments.warmup + Duration::from_secs(1 + memory.len() as u64);
        if elapsed >= next {
            memory.push(process.and_then(Process::rss_octets));
        }
    });
    bar.clear();
    // The end of the last second.
    memory.push(process.and_then(Process::rss_octets));
    let measurement = measured?;
    let (clean, aborted) = (measurement.is_clean(), measurement.aborted.clone());
    let load = Load {
        rate: arguments.rate,
        warmup: arguments.warmup,
        duration: arguments.duration,
    };
    let observation = Observation {
        memory,
        ..Observation::default()
    };
    Report::new(arguments, &shown, load, measurement, &observation)
        .write(arguments.json.as_deref())?;
    match aborted {
        Some(reason) => Err(reason.into()),
        None => Ok(clean),
    }
}

/// The `Authorization` header for the token in a file.
fn bearer(file: &Path) -> Result<HeaderValue, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim()))
        .map_err(|_| format!("{} holds no token", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Runs a plan on a thread of its own; `draw` is called meanwhile.
fn measure(
    plan: HttpPlan,
    progress: &Arc<Progress>,
    mut draw: impl FnMut(),
) -> io::Result<Measurement> {
    let (result, results) = mpsc::channel();
    let thread = {
        let progress = progress.clone();
        std::thread::Builder::new()
            .name("clients".into())
            .spawn(move || {
                let _ = result.send(client::measure(plan, progress));
            })?
    };
    let measured = loop {
        match results.recv_timeout(DRAW_TIME) {
            Ok(measured) => break measured,
            Err(RecvTimeoutError::Timeout) => draw(),
            Err(RecvTimeoutError::Disconnected) => {
                break Err(io::Error::other("the clients panicked"));
            }
        }
    };
    let _ = thread.join();
    measured
}
