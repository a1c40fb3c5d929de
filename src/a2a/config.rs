//! What a mapper is told at start-up.

use crate::bridge::discovery::responder::Bounds;
use crate::bridge::safety::EffectSet;
use crate::limits;
use std::time::Duration;

/// What a method that the tables do not list gets (ruling R16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownMethods {
    /// Carried, labelled destructive.
    #[default]
    Carry,
    /// MethodUnsupported; never carried, never delivered.
    Refuse,
}

/// Which A2A version an agent speaks, for associations without HELLO (ruling R13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentVersion {
    /// By method spelling.
    #[default]
    Auto,
    /// 0.3: no version is sent, which means 0.3.
    V03,
    /// 1.0, always stated.
    V10,
}

/// A mapper's configuration.
#[derive(Debug, Clone)]
pub struct MapperConfig {
    /// Unlisted methods, at both ends.
    pub unknown_methods: UnknownMethods,
    /// Effects that requests of peers may have.
    pub allow: EffectSet,
    /// Effects by peer identity (`ed25519:…`), overriding `allow`.
    pub peers: Vec<(String, EffectSet)>,
    /// Version per agent, by the index that the agent directory gives; `Auto` beyond its end.
    pub agents: Vec<AgentVersion>,
    /// Serve requests that arrive on associations we dialled. Their server name
    /// is the peer's, so by default no agent of ours is reachable through them.
    pub serve_initiated: bool,
    /// Outstanding exchanges per association and direction.
    pub exchanges_per_association: usize,
    /// Foreign-message octets held per association.
    pub association_octets: usize,
    /// Largest foreign message, in octets.
    pub foreign_message_octets: usize,
    /// Streams that outlive their association.
    pub stream: StreamConfig,
    /// Discovery.
    pub discovery: DiscoveryConfig,
}

/// What is done on the Discovery channel (NPAMP-DISC).
#[derive(Debug, Clone)]
pub struct DiscoveryConfig {
    /// Whether whoever dialled asks to be told what its peer carries.
    pub subscribe: bool,
    /// What a peer may ask for.
    pub bounds: Bounds,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            subscribe: true,
            bounds: Bounds::default(),
        }
    }
}

/// How long and how much of a stream is kept (NPAMP-CC-STREAM §6.1).
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// How long a stream can be resumed after its association is gone or it
    /// has ended; with none, no stream is resumable and none is resumed.
    pub retention: Duration,
    /// Events kept of one stream.
    pub replay_events: usize,
    /// Octets kept of one stream.
    pub replay_octets: usize,
    /// Events of one stream in transit that may wait to be sent for the first time.
    pub transit_events: usize,
    /// Octets of them.
    pub transit_octets: usize,
    /// How long an ingress keeps a stream whose client left; with none, it is
    /// cancelled at once.
    pub detach_grace: Duration,
    /// Events of one stream at an ingress, those included that wait for its client.
    pub window_events: usize,
    /// Octets of one stream at an ingress.
    pub window_octets: usize,
}

impl StreamConfig {
    /// Whether streams outlive their association at all.
    pub fn resumes(&self) -> bool {
        !self.retention.is_zero()
    }

    /// How long a consumer waits for its association to come back.
    pub fn resume_time(&self) -> Duration {
        self.retention.min(limits::RESUME_TIME)
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            retention: limits::RETENTION_TIME,
            replay_events: limits::REPLAY_EVENTS_MAX,
            replay_octets: limits::REPLAY_OCTETS_MAX,
            transit_events: limits::TRANSIT_EVENTS_MAX,
            transit_octets: limits::TRANSIT_OCTETS_MAX,
            detach_grace: limits::DETACH_GRACE_TIME,
            window_events: limits::WINDOW_EVENTS_MAX,
            window_octets: limits::WINDOW_OCTETS_MAX,
        }
    }
}

impl Default for MapperConfig {
    fn default() -> Self {
        Self {
            unknown_methods: UnknownMethods::default(),
            allow: EffectSet::ALL,
            peers: Vec::new(),
            agents: Vec::new(),
            serve_initiated: false,
            exchanges_per_association: limits::EXCHANGES_PER_ASSOCIATION_MAX,
            association_octets: limits::ASSOCIATION_OCTETS_MAX,
            foreign_message_octets: limits::FOREIGN_MESSAGE_OCTETS_MAX,
            stream: StreamConfig::default(),
            discovery: DiscoveryConfig::default(),
        }
    }
}
