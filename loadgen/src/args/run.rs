//! Arguments of `run`.

use super::respond::ReplyArguments;
use super::values::{
    any_target, bulk_octets, factor, fraction, host_of, is_http, message_octets, milliseconds,
    peer, positive, range, rate, seconds, seconds_or_zero, server_name,
};
use crate::http::objects::A2aVersion;
use crate::kind::{Kind, Mix};
use crate::process::Process;
use clap::{Args, ValueEnum};
use npamp_relay::crypto::IdentityPublic;
use npamp_relay::limits;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Exchanges at once when nothing is said.
const CONCURRENCY: usize = 1024;
/// Most connections of one run.
const CONNECTIONS_MAX: u64 = 1024;

/// Which exchange is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// message/send, one answer
    Unary,
    /// message/stream, many events and an end
    Stream,
    /// message/send with a long request and a long answer
    Bulk,
    /// The three mixed, as --mix says
    Mixed,
    /// An association each time: dial, handshakes, HELLO, close
    Connect,
    /// Associations that are only held, while others make unary exchanges
    Idle,
    /// One answer over HTTP, at an ingress
    Http,
    /// Streams of server-sent events over HTTP, at an ingress
    Sse,
}

impl Scenario {
    /// Whether requests are HTTP instead of N-PAMP.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Sse)
    }
}

/// How the intended send times are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal intervals
    Constant,
    /// Exponential intervals: independent callers
    Poisson,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --target the responder runs in this process, on loopback, with a new identity and certificate.\nThe scenarios http and sse need a --target http://HOST:PORT/PATH; their connections have one request under way each,\nand sse wants the numbered events of `npamp-loadgen agent`."
)]
pub struct RunArguments {
    /// Responder to load, or http://HOST:PORT/PATH of an ingress
    #[arg(long, value_name = "npamp://HOST:PORT", value_parser = any_target)]
    pub target: Option<String>,
    /// Run the built-in responder in this process (what no --target means)
    #[arg(long = "self", conflicts_with = "target")]
    pub own: bool,
    /// Server name of the link, which names the agent; the host of --target when absent
    #[arg(long, value_name = "NAME", requires = "target", value_parser = server_name)]
    pub server_name: Option<String>,
    /// Certificates that the responder's must chain to; the system's when absent
    #[arg(long, value_name = "FILE", requires = "target")]
    pub tls_ca: Option<PathBuf>,
    /// Do not check the certificate: --peer authenticates the responder
    #[arg(long, requires = "peer", conflicts_with = "tls_ca")]
    pub pinned: bool,
    /// Identity the responder must prove
    #[arg(long, value_name = "ed25519:…", requires = "target", value_parser = peer)]
    pub peer: Option<IdentityPublic>,
    /// Process of the responder, on this machine, for its memory and CPU time
    #[arg(long, value_name = "PID", requires = "target", value_parser = clap::value_parser!(u32).range(1..))]
    pub target_pid: Option<u32>,
    /// Our identity, PKCS#8 PEM; a new one when absent
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Exchange to repeat
    #[arg(long, value_enum, default_value = "unary")]
    pub scenario: Scenario,
    /// Associations held in the scenario idle, beside an active one for each thread
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub idle: u64,
    /// How many of them are opened per second
    #[arg(long, value_name = "N[/s]", default_value = "1000", value_parser = rate)]
    pub open_rate: f64,
    /// Addresses to dial from, in turn; on loopback, more of its addresses are used as they are needed
    #[arg(long = "source", value_name = "ADDR", value_delimiter = ',')]
    pub sources: Vec<IpAddr>,
    /// One unary exchange on each association of the scenario connect
    #[arg(long)]
    pub exchange: bool,
    /// A2A version of http and sse
    #[arg(long, value_enum, default_value = "0.3")]
    pub a2a_version: A2aVersion,
    /// File with the bearer token of http and sse
    #[arg(long, value_name = "FILE", requires = "target")]
    pub bearer_file: Option<PathBuf>,
    /// Weights of the scenario mixed [default: unary=80,stream=15,bulk=5]
    #[arg(long, value_name = "KIND=WEIGHT,…")]
    pub mix: Option<Mix>,
    /// Requests per second, all connections together
    #[arg(long, value_name = "N[/s]", default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// Rise the rate from FROM to TO, each step as long as --duration and --warmup say, to find the highest that is served well
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with = "rate")]
    pub sweep: Option<(f64, f64)>,
    /// Part of a step's requests that must be answered within its time
    #[arg(long, value_name = "PART", default_value = "99%", value_parser = fraction, requires = "sweep")]
    pub achieved_min: f64,
    /// Highest p99 of a step of the sweep that is served well, in milliseconds
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "sweep")]
    pub p99_max: Option<Duration>,
    /// Without --p99-max: how many times the first step's p99 that is
    #[arg(long, value_name = "F", default_value = "10", value_parser = factor, requires = "sweep")]
    pub p99_factor: f64,
    /// After the sweep, run for so long, in seconds, and look for lost requests and growing memory
    #[arg(long, value_name = "S", value_parser = seconds, requires = "sweep")]
    pub soak: Option<Duration>,
    /// At which part of the rate that the sweep found
    #[arg(long, value_name = "PART", default_value = "80%", value_parser = fraction, requires = "soak")]
    pub at: f64,
    /// How intended send times are spread
    #[arg(long, value_enum, default_value = "constant")]
    pub arrivals: Arrivals,
    /// Time measured, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// Time before it that is not measured, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds_or_zero)]
    pub warmup: Duration,
    /// Associations, or HTTP connections
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub connections: u64,
    /// Exchanges under way at once; beyond it requests wait, and their wait counts as latency
    #[arg(long, value_name = "N", default_value_t = CONCURRENCY, value_parser = positive)]
    pub concurrency_max: usize,
    /// Octets of each request's JSON-RPC object
    #[arg(long, value_name = "OCTETS", default_value_t = 512, value_parser = message_octets())]
    pub payload: u64,
    /// Octets of each bulk request's JSON-RPC object
    #[arg(long, value_name = "OCTETS", default_value_t = 65_536, value_parser = bulk_octets())]
    pub bulk_payload: u64,
    /// Time without an answer or an event after which an exchange is given up, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,
    /// Seed of random arrivals; another one each time when absent
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Generator threads, each with its share of the connections and of the rate
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Let threads move between cores; else those of the generator and of the built-in responder keep apart
    #[arg(long)]
    pub no_pin: bool,
    /// A send later than this is late, in milliseconds; more than 1 in 100 late, and the generator was the bottleneck
    #[arg(long, value_name = "MS", default_value = "1", value_parser = milliseconds)]
    pub lag_max: Duration,
    /// Never sleep: less lag, at the price of a core
    #[arg(long)]
    pub spin: bool,
    /// Write the report as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub replies: ReplyArguments,
}

impl RunArguments {
    /// Whether the responder runs here.
    pub fn is_self(&self) -> bool {
        self.own || self.target.is_none()
    }

    /// The responder's process, when it is known.
    pub fn process(&self) -> Option<Process> {
        if self.is_self() {
            Some(Process::Own)
        } else {
            self.target_pid.map(Process::Other)
        }
    }

    /// What no single argument shows to be wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.scenario.is_http() {
            return self.check_http();
        }
        if self.target.as_deref().is_some_and(is_http) {
            return Err("an http target needs --scenario http or sse".into());
        }
        if self.bearer_file.is_some() {
            return Err("--bearer-file needs --scenario http or sse".into());
        }
        if self.exchange && self.scenario != Scenario::Connect {
            return Err("--exchange belongs to --scenario connect".into());
        }
        let lines = self.lines();
        let most =
            usize::try_from(lines).unwrap_or(usize::MAX) * limits::EXCHANGES_PER_ASSOCIATION_MAX;
        if self.concurrency_max > most && self.scenario != Scenario::Connect {
            return Err(format!(
                "--concurrency-max {} is more than {lines} connections may have outstanding ({most})",
                self.concurrency_max
            ));
        }
        let per_thread = limits::ASSOCIATIONS_PER_SHARD_MAX as u64 - lines;
        for (threads, name) in [
            (self.threads, "--threads"),
            (self.replies.responder_threads, "--responder-threads"),
        ] {
            if self.held().div_ceil(threads.into()) > per_thread {
                return Err(format!(
                    "--idle {} is more than a thread holds ({per_thread}); give more {name}",
                    self.idle
                ));
            }
        }
        let threads = u64::from(self.threads);
        let fewest = match self.scenario {
            Scenario::Connect | Scenario::Idle => threads,
            _ => self.connections,
        };
        if threads > fewest || threads > self.concurrency_max as u64 {
            return Err(format!(
                "--threads {threads} needs at least as many --connections and as high a --concurrency-max"
            ));
        }
        if self.mix.is_some() && self.scenario != Scenario::Mixed {
            return Err("--mix belongs to --scenario mixed".into());
        }
        if let (Some(target), None) = (&self.target, &self.server_name) {
            let host = host_of(target);
            server_name(host).map_err(|_| {
                format!(
                    "{host} is an address, which TLS cannot carry as a name; give --server-name"
                )
            })?;
        }
        Ok(())
    }

    fn check_http(&self) -> Result<(), String> {
        if !self.target.as_deref().is_some_and(is_http) {
            return Err(
                "the scenarios http and sse need --target http://HOST:PORT/PATH".to_owned(),
            );
        }
        let native = [
            (self.server_name.is_some(), "--server-name"),
            (self.tls_ca.is_some(), "--tls-ca"),
            (self.pinned, "--pinned"),
            (self.peer.is_some(), "--peer"),
            (self.identity.is_some(), "--identity"),
            (self.spin, "--spin"),
            (self.mix.is_some(), "--mix"),
            (self.threads > 1, "--threads"),
            (self.no_pin, "--no-pin"),
            (self.sweep.is_some(), "--sweep"),
        ];
        match native.iter().find(|(given, _)| *given) {
            Some((_, name)) => Err(format!("{name} has no meaning with http and sse")),
            None => Ok(()),
        }
    }

    /// Associations that requests are sent on.
    pub fn lines(&self) -> u64 {
        match self.scenario {
            Scenario::Connect => 0,
            Scenario::Idle => self.threads.into(),
            _ => self.connections,
        }
    }

    /// Associations that are only held.
    pub fn held(&self) -> u64 {
        if self.scenario == Scenario::Idle {
            self.idle
        } else {
            0
        }
    }

    /// What is sent.
    pub fn mix(&self) -> Mix {
        match self.scenario {
            Scenario::Unary | Scenario::Http | Scenario::Connect | Scenario::Idle => {
                Mix::only(Kind::Unary)
            }
            Scenario::Stream | Scenario::Sse => Mix::only(Kind::Stream),
            Scenario::Bulk => Mix::only(Kind::Bulk),
            Scenario::Mixed => self.mix.unwrap_or(Mix::USUAL),
        }
    }

    /// The link's server name.
    pub fn link_name(&self) -> String {
        match (&self.server_name, &self.target) {
            (Some(name), _) => name.clone(),
            (None, Some(target)) => host_of(target).to_ascii_lowercase(),
            (None, None) => crate::trust::SELF_NAME.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn run(arguments: &[&str]) -> Result<RunArguments, String> {
        let line = ["npamp-loadgen", "run"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Run(arguments) = parsed.command else {
            unreachable!()
        };
        arguments.check().map(|()| *arguments)
    }

    #[test]
    fn what_belongs_together() {
        assert!(run(&[]).unwrap().is_self());
        assert_eq!(
            run(&["--target", "npamp://Agent.example:1"])
                .unwrap()
                .link_name(),
            "agent.example"
        );
        let address = "npamp://127.0.0.1:1";
        assert!(
            run(&["--target", address])
                .unwrap_err()
                .contains("--server-name")
        );
        assert!(run(&["--target", address, "--server-name", "a.example"]).is_ok());
        for wrong in [
            &["--self", "--target", address][..],
            &["--target", address, "--server-name", "a", "--pinned"],
            &["--tls-ca", "x"],
            &["--payload", "3"],
            &["--connections", "0"],
            &["--connections", "1", "--concurrency-max", "5000"],
            &["--rate", "0"],
            &["--mix", "unary=1"],
            &["--scenario", "mixed", "--mix", "unary"],
            &["--bulk-payload", "1000"],
            &["--threads", "8"],
            &["--lag-max", "-1"],
            &["--sweep", "10"],
            &["--sweep", "20..10"],
            &["--sweep", "10..20", "--rate", "10"],
            &["--soak", "10"],
            &["--exchange"],
            &["--scenario", "idle", "--idle", "100001"],
            &["--scenario", "idle", "--idle", "100000", "--threads", "2"],
            &["--source", "here"],
            &["--sweep", "10..20", "--soak", "1", "--at", "101%"],
        ] {
            assert!(run(wrong).is_err(), "{wrong:?}");
        }
    }
}
