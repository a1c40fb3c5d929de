//! The native part: unary exchanges through the engine, against echoes of
//! messages as long over TCP alone, over TLS alone, and as gRPC streams over
//! TLS. Client and server are one thread each, in one process.

use super::arguments::CompareArguments;
use super::echo::{self, Security};
use super::result::{Case, Comparison, Outcome, Rounds};
use super::{Interrupt, grpc, rounds};
use crate::histogram::Times;
use crate::report::Report;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Part of what the engine can do at which latency is compared.
const PART_OF_KNEE: f64 = 0.5;
/// Rate that nothing reaches: the bound of exchanges under way decides.
const RATE_UNREACHABLE: &str = "5000000";
/// Contestants; the first is ours.
const NAMES: [&str; 4] = ["npamp", "tcp", "tls", "grpc"];

/// How requests come.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// So many a second, whatever becomes of them.
    Rate(f64),
    /// Always so many under way.
    Outstanding(usize),
}

/// What echoes have in common.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How requests come.
    pub load: Load,
    /// Connections.
    pub connections: usize,
    /// Octets of request and reply.
    pub octets: usize,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
}

/// Measures both cases.
pub fn compare(
    arguments: &CompareArguments,
    interrupt: &Interrupt,
    found: &mut Comparison,
) -> Result<(), String> {
    let names = NAMES.map(str::to_owned);
    for (name, what) in [
        (
            "npamp",
            "N-PAMP over TLS 1.3 on this engine's shard, requests and replies as bridge frames",
        ),
        ("tcp", "echo of octets on this engine's ring"),
        (
            "tls",
            "echo of octets over TLS 1.3 (rustls) on this engine's ring",
        ),
        (
            "grpc",
            "bidirectional stream of octets, tonic 0.14 over TLS 1.3 on tokio",
        ),
    ] {
        found.programs.insert(name.to_owned(), what.to_owned());
    }
    let plan = |load| -> Result<Plan, String> {
        Ok(Plan {
            load,
            connections: usize::try_from(arguments.connections)
                .map_err(|error| error.to_string())?,
            octets: usize::try_from(arguments.payload).map_err(|error| error.to_string())?,
            warmup: arguments.warmup,
            duration: arguments.duration,
        })
    };
    let most = usize::try_from(arguments.outstanding).map_err(|error| error.to_string())?;
    let saturated = plan(Load::Outstanding(most))?;
    let measured = rounds(arguments.rounds, &names, interrupt, |which| {
        run(which, saturated)
    })?;
    let case = Case::of(
        "native_saturation",
        format!(
            "unary, {} connections, {most} exchanges under way, {} octets each way",
            arguments.connections, arguments.payload
        ),
        "exchanges/s",
        &without_times(measured),
    );
    let knee = case
        .contestants
        .first()
        .map_or(0.0, |contestant| contestant.per_s.median);
    found.cases.push(case);
    let rate = arguments
        .rate
        .unwrap_or(knee * PART_OF_KNEE)
        .round()
        .max(1.0);
    let part = arguments.rate.map_or_else(
        || format!("{:.0} % of what npamp can do", PART_OF_KNEE * 100.0),
        |_| "as asked".to_owned(),
    );
    let paced = plan(Load::Rate(rate))?;
    let measured = rounds(arguments.rounds, &names, interrupt, |which| {
        run(which, paced)
    })?;
    found.cases.push(Case::of(
        "native_rate",
        format!(
            "unary, {} connections, open loop at {rate:.0}/s ({part}), {} octets each way; latency from the intended time",
            arguments.connections, arguments.payload
        ),
        "exchanges/s",
        &measured,
    ));
    Ok(())
}

/// With everything always under way, latency is but another name for throughput.
fn without_times(mut measured: Vec<Rounds>) -> Vec<Rounds> {
    for outcome in measured.iter_mut().flat_map(|rounds| &mut rounds.outcomes) {
        outcome.times = Times::default();
    }
    measured
}

fn run(which: usize, plan: Plan) -> Result<Outcome, String> {
    let measured = match which {
        0 => return npamp(plan),
        1 => echo::measure(plan, Security::None),
        2 => echo::measure(plan, Security::Tls),
        _ => grpc::measure(plan),
    };
    measured.map_err(|error| format!("{}: {error}", NAMES[which]))
}

/// The scenario *unary* of `run` in a process of its own.
fn npamp(plan: Plan) -> Result<Outcome, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let (rate, most) = match plan.load {
        Load::Rate(rate) => (rate.to_string(), None),
        Load::Outstanding(most) => (RATE_UNREACHABLE.to_owned(), Some(most.to_string())),
    };
    let octets = plan.octets.to_string();
    let mut command = Command::new(own);
    command
        .args(["run", "--self", "--scenario", "unary", "--json", "-"])
        .args([
            "--rate",
            &rate,
            "--payload",
            &octets,
            "--event-octets",
            &octets,
        ])
        .args(["--connections", &plan.connections.to_string()])
        .args(["--duration", &plan.duration.as_secs_f64().to_string()])
        .args(["--warmup", &plan.warmup.as_secs_f64().to_string()]);
    if let Some(most) = &most {
        // Requests that wait for the bound when the time is over are given up after the timeout.
        command.args(["--concurrency-max", most, "--timeout", "1"]);
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npamp: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Report = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("npamp: {error}: {}", said()))?;
    if let Some(reason) = report.aborted {
        return Err(format!("npamp: {reason}"));
    }
    let mut times = Times::default();
    if let Some(reply) = report.latency.get("reply") {
        times.add_buckets(&reply.buckets);
    }
    let failed: Vec<_> = report
        .errors
        .iter()
        // What a rate that nothing reaches leaves unsent is no error.
        .filter(|(kind, _)| most.is_none() || !kind.ends_with("not_sent"))
        .collect();
    Ok(Outcome {
        per_s: report.rates.completed_per_s,
        times,
        errors: failed.iter().map(|(_, error)| error.count).sum(),
        example: failed
            .first()
            .map(|(kind, error)| format!("{kind}: {}", error.example))
            .unwrap_or_default(),
    })
}
