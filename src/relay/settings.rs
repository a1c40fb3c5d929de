//! Everything the relay is told at start-up: plain values, validated before
//! they get here. `cli` fills them from a configuration file.

pub use crate::a2a::config::{StreamConfig, UnknownMethods};
pub use crate::association::HelloMode;
use crate::crypto::AeadPath;
use crate::edge::settings::{AgentSettings, IngressSettings, TlsFiles};
use crate::limits;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The whole of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// PKCS#8 PEM of this relay's Ed25519 identity.
    pub identity: PathBuf,
    /// N-PAMP responders.
    pub listeners: Vec<ListenSettings>,
    /// A2A agents behind this relay.
    pub agents: Vec<AgentSettings>,
    /// HTTP listeners.
    pub ingresses: Vec<IngressSettings>,
    /// Where ingress paths lead; indexed by [`crate::edge::settings::RoutePath::route`].
    pub routes: Vec<RouteSettings>,
    /// Engine.
    pub engine: EngineSettings,
    /// Policy.
    pub policy: PolicySettings,
    /// Streams that outlive their association.
    pub stream: StreamConfig,
    /// Bounds that may be lowered.
    pub limits: LimitSettings,
    /// Admin listener and logs.
    pub observe: ObserveSettings,
}

impl Settings {
    /// A relay that only dials one route: no listener, no agent, every bound at its default.
    pub fn client(route: RouteSettings) -> Self {
        Self {
            identity: PathBuf::new(),
            listeners: Vec::new(),
            agents: Vec::new(),
            ingresses: Vec::new(),
            routes: vec![route],
            engine: EngineSettings::default(),
            policy: PolicySettings::default(),
            stream: StreamConfig::default(),
            limits: LimitSettings::default(),
            observe: ObserveSettings::default(),
        }
    }
}

/// One N-PAMP responder.
#[derive(Debug, Clone)]
pub struct ListenSettings {
    /// Address.
    pub address: SocketAddr,
    /// The link's certificate.
    pub tls: TlsFiles,
    /// Allowed initiators, `ed25519:<base64url>`; empty refuses all, `*` allows any.
    pub peers: Vec<String>,
    /// HELLO.
    pub hello: HelloMode,
}

/// How the link's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVerify {
    /// Chain and name.
    #[default]
    Full,
    /// Not at all; the pinned N-PAMP identity authenticates the peer.
    Pinned,
}

/// The name of the inbound route that takes the server names that nothing else does.
pub const INBOUND_REST: &str = "*";

/// One relay that a route leads to.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// `host:port`.
    pub address: String,
    /// SNI, and the name the certificate must cover.
    pub server_name: String,
    /// Pinned responder identity, `ed25519:<base64url>`.
    pub peer: Option<String>,
    /// Roots for the link; the system's when absent.
    pub tls_ca: Option<PathBuf>,
}

/// Where calls of one path go.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    /// Path prefix, for logs and metrics; empty for an inbound route.
    pub path: String,
    /// Server name, or its first label, whose inbound exchanges pass through this relay to
    /// the upstream; [`INBOUND_REST`] takes the rest. None for a route of an ingress.
    pub inbound: Option<String>,
    /// The relays that it leads to, any of which takes any call of it; at least
    /// one, at most [`limits::UPSTREAMS_PER_ROUTE_MAX`].
    pub upstreams: Vec<UpstreamSettings>,
    /// Certificate check.
    pub tls_verify: TlsVerify,
    /// HELLO.
    pub hello: HelloMode,
}

impl RouteSettings {
    /// Its name in logs and metrics.
    pub fn label(&self) -> String {
        match &self.inbound {
            Some(name) => format!("inbound {name}"),
            None => self.path.clone(),
        }
    }
}

/// Threads.
#[derive(Debug, Clone, Default)]
pub struct EngineSettings {
    /// What seals and opens frames of AES-256-GCM, in the whole process.
    pub aead: AeadPath,
    /// Mapping worker threads; 0 maps inline on the units.
    pub workers: usize,
    /// Cores to pin units to; empty means every core the process may use.
    pub cores: Vec<usize>,
}

/// Policy.
#[derive(Debug, Clone)]
pub struct PolicySettings {
    /// Unknown methods.
    pub unknown_methods: UnknownMethods,
    /// Effects an egress accepts, as NPAMP-BRIDGE §7 values 0–3.
    pub allow: Vec<u8>,
    /// Effects by peer identity, overriding `allow`.
    pub peers: Vec<(String, Vec<u8>)>,
    /// DocumentBinding TLV type stated in HELLO (ruling R9).
    pub document_binding: Option<u16>,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            unknown_methods: UnknownMethods::Carry,
            allow: vec![0, 1, 2, 3],
            peers: Vec::new(),
            document_binding: None,
        }
    }
}

/// Bounds and times that configuration may lower; see [`crate::limits`] for the defaults.
#[derive(Debug, Clone)]
pub struct LimitSettings {
    /// Largest foreign message, in octets.
    pub foreign_message_octets: usize,
    /// Outstanding exchanges per association.
    pub exchanges_per_association: usize,
    /// Foreign octets per association.
    pub association_octets: usize,
    /// Foreign octets per process.
    pub process_octets: usize,
    /// TLS and N-PAMP handshake together.
    pub handshake_time: Duration,
    /// Deadline of a unary exchange.
    pub unary_time: Duration,
    /// Silence before a PING.
    pub idle_probe_time: Duration,
    /// Time a PING may go unanswered.
    pub probe_timeout: Duration,
    /// Time in-flight exchanges may finish after SIGTERM.
    pub shutdown_grace: Duration,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            foreign_message_octets: limits::FOREIGN_MESSAGE_OCTETS_MAX,
            exchanges_per_association: limits::EXCHANGES_PER_ASSOCIATION_MAX,
            association_octets: limits::ASSOCIATION_OCTETS_MAX,
            process_octets: limits::PROCESS_OCTETS_MAX,
            handshake_time: limits::HANDSHAKE_TIME,
            unary_time: limits::UNARY_TIME,
            idle_probe_time: limits::IDLE_PROBE_TIME,
            probe_timeout: limits::PROBE_TIMEOUT,
            shutdown_grace: limits::SHUTDOWN_GRACE,
        }
    }
}

impl Default for ObserveSettings {
    fn default() -> Self {
        Self {
            admin: None,
            log_json: false,
            log: "info".into(),
        }
    }
}

/// Admin listener and logs.
#[derive(Debug, Clone)]
pub struct ObserveSettings {
    /// Admin listener; none when absent.
    pub admin: Option<SocketAddr>,
    /// JSON lines instead of text.
    pub log_json: bool,
    /// Filter in `tracing` syntax.
    pub log: String,
}
