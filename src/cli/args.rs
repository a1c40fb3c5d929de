//! The arguments of every command, as clap reads them.

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Carries A2A over N-PAMP: an HTTP edge for ordinary A2A clients and agents,
/// post-quantum associations between sites.
#[derive(Debug, Parser)]
#[command(name = "npamp-relay", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const CALL_EXAMPLES: &str = "\
Examples:
  npamp-relay call npamp://relay.example:7443 tasks/get --params '{\"id\":\"1\"}'
  npamp-relay call npamp://relay.example:7443 --data @request.json
  npamp-relay call npamp://relay.example:7443 --card --docbind 0x00d0
  npamp-relay call npamp://relay.example:7443 --discover --kind agent
  npamp-relay call npamp://10.0.0.7:7443 --server-name literature.relay.example \\
    --tls-ca cert.pem --identity identity.pem message/send --params -";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the relay until SIGTERM or SIGINT
    Run(ConfigArgs),
    /// Try it: a sample agent, an egress and an ingress in one process
    ///
    /// Prints the curl lines that work against it.
    Demo(DemoArgs),
    /// Make one exchange with an N-PAMP responder and print what comes back
    ///
    /// Prints the reply, or each event of a stream, on a line of its own. Ends
    /// with 1 when the agent answers with an error or nothing is delivered.
    #[command(after_help = CALL_EXAMPLES)]
    Call(Box<CallArgs>),
    /// Check a configuration and the files it names; print what it amounts to
    ///
    /// Every problem is printed as `file:line: key: message`. A valid
    /// configuration is printed as TOML with all defaults filled in, after
    /// comments on what this machine and these settings lead to.
    Check(ConfigArgs),
    /// Make or show the identity that names a relay to its peers
    #[command(subcommand, arg_required_else_help = true)]
    Identity(IdentityCommand),
    /// Answer the public N-PAMP conformance runner on standard input and output
    ///
    /// Each message is a length of four octets, little-endian, and a JSON object.
    ConformanceAdapter,
}

/// A command that reads the configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The configuration file; `relay.example.toml` documents every key
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// `identity …`
#[derive(Debug, Clone, Subcommand)]
pub enum IdentityCommand {
    /// Write a new Ed25519 key as PKCS#8 PEM, mode 0600, and print its public half
    New {
        /// The file to write; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the public key as `ed25519:<base64url>`, as configuration takes it
    Show {
        /// The identity file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// `demo`
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Port of the HTTP ingress on 127.0.0.1; a free one is taken when it is in use
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && time <= crate::limits::UNARY_TIME_MAX => Ok(time),
        _ => Err(format!(
            "must be more than 0 and at most {} seconds",
            crate::limits::UNARY_TIME_MAX.as_secs()
        )),
    }
}

fn tlv_type(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| "not a TLV type, such as 0x00d0".to_owned())
}

/// What `call` does but for --discover. An option of --discover conflicts with these rather
/// than require it: clap waives a requirement that conflicts with what is given.
const OTHER_CALLS: [&str; 4] = ["method", "method_name", "data", "card"];

/// `call`: one exchange with an N-PAMP responder.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["method", "method_name", "data", "card", "discover"])))]
pub struct CallArgs {
    /// Where to: `npamp://host:port`
    #[arg(value_name = "URL")]
    pub url: String,
    /// The A2A method, such as `message/send` or `SendStreamingMessage`
    #[arg(value_name = "METHOD")]
    pub method: Option<String>,
    /// The A2A method, if it is not given after the URL
    #[arg(long = "method", value_name = "NAME")]
    pub method_name: Option<String>,
    /// The method's parameters as JSON, `@file`, or `-` for standard input
    #[arg(long, value_name = "JSON", conflicts_with_all = ["data", "card", "discover"])]
    pub params: Option<String>,
    /// The whole JSON-RPC object, carried octet for octet: JSON, `@file`, or `-` for standard input
    #[arg(long, value_name = "JSON")]
    pub data: Option<String>,
    /// Fetch the agent card; both ends must state the same --docbind
    #[arg(long, requires = "docbind")]
    pub card: bool,
    /// List what the responder carries for us: protocols, carriage classes, agents
    ///
    /// It says what it carries on this very association: documents are among
    /// that only with the same --docbind.
    #[arg(long)]
    pub discover: bool,
    /// With --discover: only records of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_enum, conflicts_with_all = OTHER_CALLS)]
    pub kind: Vec<Kind>,
    /// With --discover: of tools and agents, only those whose name begins so
    #[arg(long, value_name = "TEXT", conflicts_with_all = OTHER_CALLS)]
    pub prefix: Option<String>,
    /// With --discover: leave out records that cannot be represented, rather than fail
    #[arg(long, conflicts_with_all = OTHER_CALLS)]
    pub tolerant: bool,
    /// With --discover: JSON, a record to a line
    #[arg(long, conflicts_with_all = OTHER_CALLS)]
    pub json: bool,
    /// The name that selects the agent and that the certificate must cover; the URL's host by default
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// The responder's identity, `ed25519:<base64url>`; any by default
    #[arg(long, value_name = "IDENTITY")]
    pub peer: Option<String>,
    /// Trusted certificates (PEM); the system's by default
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Do not check the certificate; the identity given with --peer authenticates
    #[arg(long, requires = "peer", conflicts_with = "tls_ca")]
    pub pinned: bool,
    /// Whether the responder must answer HELLO; "optional" is outside conformance
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub hello: Hello,
    /// Our identity (see `identity new`); one that is forgotten afterwards by default
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The A2A version that is stated to the agent, such as 1.0
    #[arg(long, value_name = "VERSION")]
    pub a2a_version: Option<String>,
    /// DocumentBinding TLV type, such as 0x00d0: the responder's `policy.docbind`
    #[arg(long, value_name = "TYPE", value_parser = tlv_type)]
    pub docbind: Option<u16>,
    /// Seconds without a reply or an event after which to give up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
}

/// `--kind`: a kind of record (NPAMP-DISC §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// What can be carried
    Protocol,
    /// How it can be carried
    CarriageClass,
    /// What can be invoked
    Tool,
    /// Who can be reached
    Agent,
}

/// `--hello`, spelled as in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Hello {
    /// A responder without HELLO is refused
    #[default]
    Required,
    /// A responder without HELLO is accepted, with Control and Bridge only
    Optional,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
        CallArgs::augment_args(clap::Command::new("call")).debug_assert();
        DemoArgs::augment_args(clap::Command::new("demo")).debug_assert();
    }
}
