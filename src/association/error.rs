//! Everything that can go wrong on an association, sorted by what becomes of
//! it: a dropped frame, a refused `send`, the end.

use super::hello::HelloError;
use crate::wire::{ChannelId, HeaderError};

crate::reasons! {
    /// Why a received frame was dropped while the association goes on.
    pub enum DropReason {
        /// On a channel that was not advertised (N-PAMP draft, Channel Architecture).
        ChannelUnadvertised => "channel_unadvertised",
        /// On a GREASE channel (N-PAMP draft, Reserved Channel-ID Range).
        ChannelGrease => "channel_grease",
        /// Not encrypted after the handshake; a security event.
        NotEncrypted => "not_encrypted",
        /// The AEAD tag fails; a security event (ruling R24).
        TagFailure => "tag_failure",
        /// The sequence was accepted before; a security event (ruling R24).
        Replay => "replay",
        /// FRAG or COMP is set (ruling R21).
        FlagUnsupported => "flag_unsupported",
        /// A frame type that the channel does not define here.
        FrameTypeUnknown => "frame_type_unknown",
        /// A handshake frame after the handshake.
        HandshakeFrame => "handshake_frame",
        /// Path migration and flow control, which are never used (ruling R21).
        PathOrFlow => "path_or_flow",
        /// PING whose payload is too long to be echoed.
        PingOversize => "ping_oversize",
        /// PING or KEY_UPDATE that gets no reply since too many replies wait.
        ReplyFlood => "reply_flood",
        /// PONG without an outstanding PING of ours.
        PongUnexpected => "pong_unexpected",
        /// A Control frame beyond its size bound.
        ControlOversize => "control_oversize",
        /// HELLO after the association went on without it (ruling R6).
        HelloLate => "hello_late",
        /// HELLO_DONE before HELLO, or a second one.
        HelloDoneUnexpected => "hello_done_unexpected",
        /// CLOSE_ACK without a CLOSE of ours.
        CloseAckUnexpected => "close_ack_unexpected",
        /// Arrived after CLOSE.
        AfterClose => "after_close",
    }
}

crate::reasons! {
    /// Why an association failed: the label of an [`AssociationError`].
    pub enum Failure {
        /// [`AssociationError::Header`].
        Header => "header",
        /// [`AssociationError::Gap`].
        Gap => "gap",
        /// [`AssociationError::TagFailures`].
        TagFailures => "tag_failures",
        /// [`AssociationError::KeyUpdateMarker`].
        KeyUpdateMarker => "key_update_marker",
        /// [`AssociationError::SequenceExhausted`].
        SequenceExhausted => "sequence_exhausted",
        /// [`AssociationError::RatchetUnsupported`].
        RatchetUnsupported => "ratchet_unsupported",
        /// [`AssociationError::HelloMalformed`].
        HelloMalformed => "hello_malformed",
        /// [`AssociationError::HelloVersion`].
        HelloVersion => "hello_version",
        /// [`AssociationError::HelloRepeated`].
        HelloRepeated => "hello_repeated",
        /// [`AssociationError::HelloMissing`].
        HelloMissing => "hello_missing",
        /// [`AssociationError::HelloTimeout`].
        HelloTimeout => "hello_timeout",
        /// [`AssociationError::PeerDead`].
        PeerDead => "peer_dead",
    }
}

/// Codes in the bodies of our ERROR and CLOSE frames. The numbering is this
/// implementation's own, since the specification fixes none (ruling R21);
/// nothing is ever inferred from a peer's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u16);

impl Code {
    /// Nothing is wrong: an orderly close.
    pub const ORDERLY: Self = Self(0);
    /// The peer broke the protocol.
    pub const PROTOCOL: Self = Self(1);
    /// A frame type, flag or feature that is not supported.
    pub const UNSUPPORTED: Self = Self(2);
    /// Frames are missing on a reliable link, or did not authenticate.
    pub const INTEGRITY: Self = Self(3);
    /// HELLO was missing, malformed or of no common version.
    pub const HELLO: Self = Self(4);
    /// The peer did not answer in time.
    pub const TIMEOUT: Self = Self(5);
    /// Something is longer than allowed.
    pub const OVERSIZE: Self = Self(6);
}

impl From<u16> for Code {
    fn from(code: u16) -> Self {
        Self(code)
    }
}

/// The end of an association by a fault. `poll_transmit` then yields the ERROR
/// and CLOSE that tell the peer, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssociationError {
    /// A frame header is invalid: framing is lost.
    #[error("frame header refused: {0}")]
    Header(#[from] HeaderError),
    /// A sequence beyond the expected one on a reliable link (ruling R24).
    #[error("sequence {received} on channel {:#06x} where {expected} was due", channel.0)]
    Gap {
        /// Channel.
        channel: ChannelId,
        /// The sequence that was due.
        expected: u64,
        /// The sequence that came.
        received: u64,
    },
    /// More frames failed to authenticate than are borne (ruling R24).
    #[error("too many frames failed to authenticate")]
    TagFailures,
    /// KEY_UPDATE without exactly the marker of the next epoch (ruling R4).
    #[error("KEY_UPDATE on channel {:#06x} does not announce the next epoch", .0.0)]
    KeyUpdateMarker(ChannelId),
    /// The peer used up a sequence space without a key update.
    #[error("sequence space of channel {:#06x} is exhausted", .0.0)]
    SequenceExhausted(ChannelId),
    /// A master ratchet frame, which must not be ignored (ruling R21).
    #[error("the master ratchet is not supported")]
    RatchetUnsupported,
    /// HELLO payload refused (NPAMP-HELLO §4).
    #[error("HELLO refused: {0}")]
    HelloMalformed(#[from] HelloError),
    /// No common HELLO version (NPAMP-HELLO §6).
    #[error("HELLO version {0} is not supported")]
    HelloVersion(u64),
    /// A second HELLO (NPAMP-HELLO §3).
    #[error("more than one HELLO")]
    HelloRepeated,
    /// Another frame where HELLO was due (NPAMP-HELLO §3).
    #[error("the first frame is not HELLO")]
    HelloMissing,
    /// No HELLO in time.
    #[error("no HELLO in time")]
    HelloTimeout,
    /// A probe went unanswered.
    #[error("the peer does not answer")]
    PeerDead,
}

impl AssociationError {
    /// The counter this error belongs to.
    pub fn reason(&self) -> Failure {
        match self {
            Self::Header(_) => Failure::Header,
            Self::Gap { .. } => Failure::Gap,
            Self::TagFailures => Failure::TagFailures,
            Self::KeyUpdateMarker(_) => Failure::KeyUpdateMarker,
            Self::SequenceExhausted(_) => Failure::SequenceExhausted,
            Self::RatchetUnsupported => Failure::RatchetUnsupported,
            Self::HelloMalformed(_) => Failure::HelloMalformed,
            Self::HelloVersion(_) => Failure::HelloVersion,
            Self::HelloRepeated => Failure::HelloRepeated,
            Self::HelloMissing => Failure::HelloMissing,
            Self::HelloTimeout => Failure::HelloTimeout,
            Self::PeerDead => Failure::PeerDead,
        }
    }

    /// The code the peer is told.
    pub fn code(&self) -> Code {
        match self {
            Self::Header(_)
            | Self::KeyUpdateMarker(_)
            | Self::SequenceExhausted(_)
            | Self::HelloRepeated => Code::PROTOCOL,
            Self::Gap { .. } | Self::TagFailures => Code::INTEGRITY,
            Self::RatchetUnsupported => Code::UNSUPPORTED,
            Self::HelloMalformed(_) | Self::HelloVersion(_) | Self::HelloMissing => Code::HELLO,
            Self::HelloTimeout | Self::PeerDead => Code::TIMEOUT,
        }
    }

    /// Whether it ended because the peer said nothing for too long.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::HelloTimeout | Self::PeerDead)
    }

    /// Whether an ERROR goes out before the CLOSE. A silent peer gets only CLOSE.
    pub(super) fn reports(&self) -> bool {
        !self.is_silence()
    }
}

/// Why a frame was not queued. The payload is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// HELLO is not done.
    #[error("the association is not ready")]
    NotReady,
    /// Closed or closing.
    #[error("the association is closed")]
    Closed,
    /// More unsealed octets wait than allowed.
    #[error("too many octets wait to be sent")]
    Full,
    /// The frame would be larger than allowed.
    #[error("the frame is too large")]
    FrameTooLarge,
    /// The peer does not take frames on this channel (N-PAMP draft, Channel Architecture).
    #[error("the peer did not advertise the channel")]
    ChannelUnadvertised,
    /// Core frame types, and all of Control, belong to the association itself.
    #[error("the frame type belongs to the association")]
    FrameTypeReserved,
    /// FRAG and COMP are never sent (ruling R21).
    #[error("the flag is never sent")]
    FlagUnsupported,
}
