//! What an association tells its owner, and what it counts.

use super::error::{AssociationError, DropReason};
use super::hello::Hello;
use crate::crypto::IdentityPublic;
use crate::stats::Counters;
use crate::wire::{ChannelId, FrameType};

/// The peer, once its capabilities are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Identity the handshake proved.
    pub identity: IdentityPublic,
    /// Its HELLO; none for a peer accepted without (ruling R6).
    pub hello: Option<Hello>,
    /// Protocol and channel ids usable by both, in the initiator's order
    /// (NPAMP-HELLO §5). Only membership tests for ids that the relay
    /// implements mean anything (ruling R5).
    pub selected: Vec<u64>,
}

impl Peer {
    /// Whether both sides carry the Bridge Protocol Identifier or channel `id`.
    pub fn selects(&self, id: u64) -> bool {
        self.selected.contains(&id)
    }
}

/// How an association ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// Our CLOSE was acknowledged, or crossed the peer's.
    Local,
    /// Our CLOSE was not acknowledged in time.
    LocalTimeout,
    /// The peer's CLOSE.
    Peer {
        /// Code, 0 when the body held none.
        code: u16,
        /// Text, cut to [`crate::limits::ERROR_TEXT_OCTETS_MAX`] octets.
        text: String,
    },
    /// A fault.
    Failed(AssociationError),
}

/// One thing that happened. Borrowed parts live in the octets handed in.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// HELLO is done, or was done without: frames may be sent. Comes at most
    /// once, before any [`Event::Frame`].
    Ready(Peer),
    /// A channel-specific frame (type 0x0100 and above) on an advertised channel
    /// other than Control.
    Frame {
        /// Channel.
        channel: ChannelId,
        /// Frame type.
        frame_type: FrameType,
        /// Opened payload.
        payload: &'a mut [u8],
    },
    /// The peer's ERROR. Never answered. The text is as the peer wrote it,
    /// control characters included.
    PeerError {
        /// Code, 0 when the body held none.
        code: u16,
        /// Text, cut to [`crate::limits::ERROR_TEXT_OCTETS_MAX`] octets.
        text: &'a str,
    },
    /// The association ended. Comes exactly once, last. What
    /// [`super::Association::poll_transmit`] still yields should go out before
    /// the link is dropped.
    Closed(CloseReason),
    /// A frame was dropped.
    Dropped(DropReason),
}

/// What one association counted.
#[derive(Debug, Default)]
pub struct AssociationStats {
    /// Octets handed in.
    pub octets_received: u64,
    /// Frames opened and accepted.
    pub frames_received: u64,
    /// Octets sealed, headers and tags included.
    pub octets_sealed: u64,
    /// Frames sealed.
    pub frames_sealed: u64,
    /// Epochs begun for sending.
    pub key_updates_sent: u64,
    /// Epochs begun for receiving.
    pub key_updates_received: u64,
    /// Frames that failed to authenticate or were replayed.
    pub security_events: u64,
    /// ERROR frames of the peer.
    pub peer_errors: u64,
    /// Probes sent.
    pub probes: u64,
    /// Frames dropped.
    pub dropped: Counters<DropReason>,
}
