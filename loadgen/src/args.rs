//! Arguments. Everything that can be judged without touching a file or a socket
//! is judged here, so that it ends with status 2 and the usage.

use clap::{Args, Parser, Subcommand, ValueEnum};
use npamp_relay::crypto::IdentityPublic;
use npamp_relay::limits;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Exchanges at once when nothing is said.
const CONCURRENCY: usize = 1024;
/// Most connections of one run.
const CONNECTIONS_MAX: u64 = 1024;
/// Highest rate that can be asked for, in requests per second.
const RATE_MAX: f64 = 10_000_000.0;
/// Longest time that can be asked for, in seconds.
const SECONDS_MAX: f64 = 24.0 * 3600.0;
/// Shortest message that can be asked for: the JSON-RPC object around an empty text.
pub const MESSAGE_OCTETS_MIN: u64 = 256;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "npamp-loadgen",
    version,
    about = "Open-loop load for N-PAMP peers that carry A2A"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send requests at a given rate and measure the answers
    Run(Box<RunArguments>),
    /// Answer requests, natively, without an agent
    Respond(RespondArguments),
}

/// Which exchange is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// message/send, one answer
    Unary,
    /// message/stream, many events and an end
    Stream,
}

/// How the intended send times are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
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
    after_help = "Without --target the responder runs in this process, on loopback, with a new identity and certificate."
)]
pub struct RunArguments {
    /// Responder to load
    #[arg(long, value_name = "npamp://HOST:PORT", value_parser = target)]
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
    /// Our identity, PKCS#8 PEM; a new one when absent
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Exchange to repeat
    #[arg(long, value_enum, default_value = "unary")]
    pub scenario: Scenario,
    /// Requests per second, all connections together
    #[arg(long, value_name = "N[/s]", default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// How intended send times are spread
    #[arg(long, value_enum, default_value = "constant")]
    pub arrivals: Arrivals,
    /// Time measured, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// Time before it that is not measured, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds_or_zero)]
    pub warmup: Duration,
    /// Associations
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub connections: u64,
    /// Exchanges under way at once; beyond it requests wait, and their wait counts as latency
    #[arg(long, value_name = "N", default_value_t = CONCURRENCY, value_parser = positive)]
    pub concurrency_max: usize,
    /// Octets of each request's JSON-RPC object
    #[arg(long, value_name = "OCTETS", default_value_t = 512, value_parser = message_octets())]
    pub payload: u64,
    /// Time without an answer or an event after which an exchange is given up, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,
    /// Seed of random arrivals; another one each time when absent
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
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

    /// What no single argument shows to be wrong.
    pub fn check(&self) -> Result<(), String> {
        let most = usize::try_from(self.connections).unwrap_or(usize::MAX)
            * limits::EXCHANGES_PER_ASSOCIATION_MAX;
        if self.concurrency_max > most {
            return Err(format!(
                "--concurrency-max {} is more than {} connections may have outstanding ({most})",
                self.concurrency_max, self.connections
            ));
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

    /// The link's server name.
    pub fn link_name(&self) -> String {
        match (&self.server_name, &self.target) {
            (Some(name), _) => name.clone(),
            (None, Some(target)) => host_of(target).to_ascii_lowercase(),
            (None, None) => crate::trust::SELF_NAME.to_owned(),
        }
    }
}

/// What the built-in responder answers.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReplyArguments {
    /// Events of each stream that the built-in responder sends, before its end
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    pub events: u32,
    /// Octets of each event and answer of the built-in responder
    #[arg(long, value_name = "N", default_value_t = MESSAGE_OCTETS_MIN, value_parser = message_octets())]
    pub event_octets: u64,
    /// Microseconds between two events of a stream; 0 sends as fast as the link takes them
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    pub event_gap_us: u64,
}

/// Arguments of `respond`.
#[derive(Debug, Args)]
pub struct RespondArguments {
    /// Address to listen on; port 0 takes any
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub listen: SocketAddr,
    /// Our identity, PKCS#8 PEM; a new one, printed, when absent
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Certificate chain, PEM; a new one when absent, for initiators that pin our identity
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Allowed initiators, ed25519:…; any when absent
    #[arg(long, value_name = "ed25519:…", value_delimiter = ',', value_parser = peer)]
    pub peers: Vec<IdentityPublic>,
    #[command(flatten)]
    pub replies: ReplyArguments,
}

fn host_of(target: &str) -> &str {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn target(text: &str) -> Result<String, String> {
    let upstream = text
        .strip_prefix("npamp://")
        .ok_or("a target is npamp://host:port")?;
    let upstream = upstream.strip_suffix('/').unwrap_or(upstream);
    let (host, port) = upstream
        .rsplit_once(':')
        .ok_or("a target is npamp://host:port")?;
    if host.is_empty() || host.contains(['/', '@']) {
        return Err("a target is npamp://host:port".into());
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(upstream.to_owned()),
        _ => Err(format!("{port:?} is no port")),
    }
}

fn server_name(text: &str) -> Result<String, String> {
    let refuse = || format!("{text:?} is no DNS name");
    if text.parse::<IpAddr>().is_ok() {
        return Err(refuse());
    }
    match rustls_pki_types::DnsName::try_from(text) {
        Ok(name) => Ok(name.as_ref().to_ascii_lowercase()),
        Err(_) => Err(refuse()),
    }
}

fn peer(text: &str) -> Result<IdentityPublic, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no ed25519:<base64url> identity"))
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, factor) = match number.strip_suffix('k') {
        Some(number) => (number, 1000.0),
        None => (number, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate * factor <= RATE_MAX => Ok(rate * factor),
        _ => Err(format!(
            "a rate is a number of requests per second above 0 and at most {RATE_MAX}"
        )),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!(
            "a time is a number of seconds above 0 and at most {SECONDS_MAX}"
        )),
    }
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('s').unwrap_or(text).parse::<f64>() {
        Ok(time) if (0.0..=SECONDS_MAX).contains(&time) => Ok(Duration::from_secs_f64(time)),
        _ => Err(format!(
            "a time is a number of seconds, at most {SECONDS_MAX}"
        )),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n @ 1..) => Ok(n),
        _ => Err("a number above 0".into()),
    }
}

fn message_octets() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(MESSAGE_OCTETS_MIN..=limits::FOREIGN_MESSAGE_OCTETS_MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn values() {
        assert_eq!(rate("5000/s"), Ok(5000.0));
        assert_eq!(rate("2.5k"), Ok(2500.0));
        for wrong in ["", "0", "-1", "nan", "inf", "fast", "1e9"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds_or_zero("0s"), Ok(Duration::ZERO));
        for wrong in ["0", "-1", "nan", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(target("npamp://[::1]:7443"), Ok("[::1]:7443".into()));
        for wrong in [
            "http://a:1",
            "npamp://a",
            "npamp://:1",
            "npamp://a:0",
            "npamp://a:1/b",
            "npamp://a:99999",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
        assert_eq!(server_name("Agent.Example"), Ok("agent.example".into()));
        assert!(server_name("127.0.0.1").is_err());
        assert!(server_name("::1").is_err());
    }

    fn run(arguments: &[&str]) -> Result<RunArguments, String> {
        let line = ["npamp-loadgen", "run"].iter().chain(arguments);
        match Arguments::try_parse_from(line)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Run(arguments) => arguments.check().map(|()| *arguments),
            Command::Respond(_) => unreachable!(),
        }
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
        ] {
            assert!(run(wrong).is_err(), "{wrong:?}");
        }
    }
}
