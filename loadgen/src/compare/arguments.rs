//! Arguments of `compare`.

use crate::args::{message_octets, rate, seconds, seconds_or_zero};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Most rounds of a comparison.
const ROUNDS_MAX: u64 = 100;
/// Most connections of a case.
const CONNECTIONS_MAX: u64 = 1024;

/// Which baselines are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The engine against TCP, TLS and gRPC
    Native,
    /// Two relays against two nginx and two haproxy
    Http,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Every case is run in turns, round by round, and its ratios are those of the rounds' pairs. A program that is not\ninstalled is named as skipped. The status is 1 when a round had an error, or the relay could not be run."
)]
pub struct CompareArguments {
    /// What to compare; all when absent
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<Part>,
    /// Turns of each contestant
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=ROUNDS_MAX))]
    pub rounds: u64,
    /// Time measured of each turn, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub duration: Duration,
    /// Time before it that is not measured, in seconds
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = seconds_or_zero)]
    pub warmup: Duration,
    /// Octets of each request's object
    #[arg(long, value_name = "OCTETS", default_value_t = 512, value_parser = message_octets())]
    pub payload: u64,
    /// Rate of the native exchanges; half of what the engine can do when absent
    #[arg(long, value_name = "N[/s]", value_parser = rate)]
    pub rate: Option<f64>,
    /// Connections of the native exchanges
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub connections: u64,
    /// Native exchanges under way at saturation
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub outstanding: u64,
    /// Connections of the HTTP cases
    #[arg(long, value_name = "N,…", default_value = "1,8,32,256", value_delimiter = ',', value_parser = connections)]
    pub http_connections: Vec<usize>,
    /// Connections of the cases with streams
    #[arg(long, value_name = "N", default_value = "8", value_parser = connections)]
    pub sse_connections: usize,
    /// Events of each stream
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub events: u32,
    /// Octets of each event and of the agent's reply
    #[arg(long, value_name = "OCTETS", default_value_t = 256, value_parser = message_octets())]
    pub event_octets: u64,
    /// The relay's binary; npamp-relay beside this one when absent
    #[arg(long, value_name = "FILE")]
    pub relay: Option<PathBuf>,
    /// Write the result as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl CompareArguments {
    /// Whether a part is asked for.
    pub fn has(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }
}

fn connections(text: &str) -> Result<usize, String> {
    match text.parse::<u64>() {
        Ok(n @ 1..=CONNECTIONS_MAX) => usize::try_from(n).map_err(|error| error.to_string()),
        _ => Err(format!("a number from 1 to {CONNECTIONS_MAX}")),
    }
}
