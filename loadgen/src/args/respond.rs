//! Arguments of `respond`, and what the built-in responder answers wherever it runs.

use super::values::{MESSAGE_OCTETS_MIN, message_octets, peer};
use clap::Args;
use npamp_relay::crypto::IdentityPublic;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the built-in responder answers.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReplyArguments {
    /// Events of each stream that the built-in responder sends, before its end
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    pub events: u32,
    /// Octets of each event and answer of the built-in responder
    #[arg(long, value_name = "N", default_value_t = MESSAGE_OCTETS_MIN, value_parser = message_octets())]
    pub event_octets: u64,
    /// Octets of the answer to a request of at least 16 KiB (a bulk request)
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = message_octets())]
    pub bulk_octets: u64,
    /// Threads of the built-in responder, each with its share of the associations
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub responder_threads: u32,
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
