//! What a shard tells its owner: names of links, what comes of them, how they
//! end, and what it counts.

use crate::association::{AssociationError, Event};
use crate::crypto::IdentityPublic;
use crate::engine::control::Origin;
use crate::handshake::Side;
use crate::link::LinkError;
use crate::stats::{Counters, Gauge};
use std::net::SocketAddr;
use std::sync::Arc;

/// Names a link of one shard; never reused while the shard lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(super) u64);

impl LinkId {
    pub(super) fn new(generation: u32, slot: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    #[allow(clippy::cast_possible_truncation)] // the low half is the slot
    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }

    /// As a number, for logs and for wider identifiers.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What an owner is told of a new link.
#[derive(Debug, Clone)]
pub struct LinkInfo {
    /// Our end.
    pub side: Side,
    /// Server name of the link.
    pub server_name: Arc<str>,
    /// The peer's identity.
    pub peer: IdentityPublic,
    /// The peer's address.
    pub address: SocketAddr,
    /// Where it came from.
    pub origin: Origin,
}

/// Why a link ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Down {
    /// The association closed in order.
    #[error("{0}")]
    Closed(String),
    /// The association failed.
    #[error("association: {0}")]
    Association(Arc<AssociationError>),
    /// TLS failed.
    #[error("link: {0}")]
    Link(Arc<LinkError>),
    /// The peer ended the connection without closing the association.
    #[error("the peer ended the connection")]
    Ended,
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(String),
}

crate::reasons! {
    /// Labels of link ends.
    pub enum DownReason {
        /// CLOSE, ours or the peer's.
        Closed => "closed",
        /// The association failed.
        Association => "association",
        /// TLS failed.
        Link => "link",
        /// End of stream.
        Ended => "ended",
        /// Socket error.
        Socket => "socket",
    }
}

impl Down {
    /// The counter this end belongs to.
    pub fn reason(&self) -> DownReason {
        match self {
            Self::Closed(_) => DownReason::Closed,
            Self::Association(_) => DownReason::Association,
            Self::Link(_) => DownReason::Link,
            Self::Ended => DownReason::Ended,
            Self::Socket(_) => DownReason::Socket,
        }
    }
}

crate::reasons! {
    /// What a shard counts.
    pub enum ShardCount {
        /// Turns that found completions.
        Turns => "turns",
        /// Ciphertext octets received.
        OctetsReceived => "octets_received",
        /// Ciphertext octets sent.
        OctetsSent => "octets_sent",
        /// Frames sealed.
        FramesSealed => "frames_sealed",
        /// Receives that found no provided buffer.
        BuffersExhausted => "buffers_exhausted",
    }
}

/// Counters of one shard.
#[derive(Debug, Default)]
pub struct ShardStats {
    /// Work.
    pub work: Arc<Counters<ShardCount>>,
    /// Ends of links.
    pub down: Arc<Counters<DownReason>>,
    /// Links.
    pub links: Arc<Gauge>,
}

/// Hears what happens on a shard's links.
pub trait Handler {
    /// A link was adopted.
    fn up(&mut self, link: LinkId, info: &LinkInfo);
    /// An event of a link's association.
    fn event(&mut self, link: LinkId, event: Event<'_>);
    /// A link is gone. The last that is heard of it.
    fn down(&mut self, link: LinkId, reason: &Down);
}
