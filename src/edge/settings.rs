//! What an edge is told at start-up: plain values, validated before they get here.

pub use crate::a2a::config::AgentVersion;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A PEM certificate chain and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// How the public card is shown to HTTP clients (ruling R20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CardMode {
    /// Interface URLs point at this ingress and signatures are dropped; `?original=true` gives the octets.
    #[default]
    Rewrite,
    /// The octets as the agent served them.
    Verbatim,
}

/// One HTTP listener for ordinary A2A clients.
#[derive(Debug, Clone)]
pub struct IngressSettings {
    /// Address to listen on.
    pub address: SocketAddr,
    /// HTTPS when present.
    pub tls: Option<TlsFiles>,
    /// File with one bearer token a line; absent means no client authentication.
    pub token_file: Option<PathBuf>,
    /// Base URL that clients use, when it is not `http(s)://<Host header>`.
    pub public_url: Option<String>,
    /// Card rewriting.
    pub card: CardMode,
    /// How long a card is served again before it is asked for anew; zero asks each time.
    pub card_time: Duration,
    /// Path prefixes in no particular order; the longest matching one wins. The index is the route's.
    pub routes: Vec<RoutePath>,
    /// Largest request body, in octets.
    pub body_octets_max: usize,
    /// Deadline of a unary exchange.
    pub unary_time: Duration,
    /// Keep-alive comment interval on idle SSE responses.
    pub sse_keep_alive: Duration,
}

/// A path prefix and the route it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePath {
    /// Begins with `/`, does not end with one unless it is `/`.
    pub path: String,
    /// Index of the route.
    pub route: usize,
}

/// One A2A agent behind an egress.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Equals the link's server name or its first label.
    pub name: String,
    /// Serves server names that no agent's name matches.
    pub default: bool,
    /// `http` or `https` URL that JSON-RPC is POSTed to.
    pub url: String,
    /// Version.
    pub version: AgentVersion,
    /// File whose content is the Authorization header's value.
    pub authorization_file: Option<PathBuf>,
    /// Roots for https agents; the system's when absent.
    pub tls_ca: Option<PathBuf>,
    /// Speak HTTP/2 with prior knowledge to an http agent.
    pub http2: bool,
    /// TCP and TLS connect deadline.
    pub connect_time: Duration,
    /// Deadline of a unary exchange, head and body.
    pub unary_time: Duration,
    /// Largest reply body and SSE event, in octets.
    pub body_octets_max: usize,
    /// Idle connections kept.
    pub pool_idle_max: usize,
}
