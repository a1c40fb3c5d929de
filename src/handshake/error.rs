//! The one error type of this room, sorted by who is to blame. Every error
//! ends the handshake; nothing is sent in answer, since nothing would be
//! authenticated.

use thiserror::Error;

use crate::crypto::{CryptoError, IdentityPublic};
use crate::wire::{ChannelId, Flags, FrameType, HeaderError, TlvError};

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The peer, or who sits between, broke the protocol.
    Protocol,
    /// Both sides are correct but share no parameter.
    Incompatible,
    /// The peer could not prove itself, or proved to be someone not permitted.
    Authentication,
    /// Our own caller went on after the end.
    Caller,
}

/// Why a handshake ended without an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The octets are not frames.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Another frame type than the state expects.
    #[error("frame type {got} where {expected} is expected")]
    FrameType {
        /// The one this state expects.
        expected: FrameType,
        /// The one that came.
        got: FrameType,
    },
    /// A handshake frame off the Control channel.
    #[error("handshake frame on channel {0}")]
    Channel(ChannelId),
    /// A handshake frame whose sequence is not 0.
    #[error("handshake frame with sequence {0}")]
    Sequence(u64),
    /// Flags other than none on a hello and ENC on an AUTH frame.
    #[error("handshake frame with flags {0:?}")]
    Flags(Flags),
    /// A payload above the handshake bound, or not of the length its header states.
    #[error("handshake payload of {0} octets")]
    PayloadLength(usize),
    /// A payload that is no run of TLVs, or has an unknown critical one.
    #[error(transparent)]
    Tlv(#[from] TlvError),
    /// A registered TLV where another one is expected: wrong order or repeated.
    #[error("TLV {got:#06x} where {expected:#06x} is expected")]
    TlvOrder {
        /// The next tag of the flight.
        expected: u16,
        /// The one that came.
        got: u16,
    },
    /// A TLV after the last one of its flight.
    #[error("TLV {0:#06x} does not belong here")]
    TlvUnexpected(u16),
    /// The flight ends before this TLV.
    #[error("TLV {0:#06x} is missing")]
    TlvMissing(u16),
    /// A TLV value of a length it cannot have.
    #[error("TLV {0:#06x} has a malformed value")]
    TlvValue(u16),
    /// The responder selected a value that was not offered.
    #[error("TLV {tag:#06x} selects {value:#06x}, which was not offered")]
    SelectedNotOffered {
        /// The selecting TLV.
        tag: u16,
        /// The value it selects.
        value: u16,
    },
    /// The KEM share or ciphertext is refused.
    #[error("key establishment: {0}")]
    Kem(CryptoError),
    /// No offered profile is built here.
    #[error("no common profile")]
    NoCommonProfile,
    /// No offered KEM fits the profile.
    #[error("no common KEM")]
    NoCommonKem,
    /// No offered signature scheme fits the profile.
    #[error("no common signature scheme")]
    NoCommonSignature,
    /// No offered AEAD suite is taken.
    #[error("no common AEAD suite")]
    NoCommonSuite,
    /// The AUTH frame does not open: the transcripts or KEM secrets differ.
    #[error("AUTH frame does not open")]
    AuthSeal,
    /// CertVerify is refused.
    #[error("authentication: {0}")]
    CertVerify(CryptoError),
    /// Finished does not match.
    #[error("Finished does not match")]
    Finished,
    /// The peer proved an identity that is not permitted.
    #[error("identity {0} is not allowed")]
    IdentityNotAllowed(IdentityPublic),
    /// The handshake is complete; further frames are the association's.
    #[error("handshake is already complete")]
    AlreadyDone,
    /// The handshake failed before.
    #[error("handshake failed before")]
    AlreadyFailed,
}

crate::reasons! {
    /// What counters say of a failed handshake.
    pub enum HandshakeReason {
        /// [`HandshakeError::Header`]
        Header => "header",
        /// [`HandshakeError::FrameType`]
        FrameType => "frame_type",
        /// [`HandshakeError::Channel`]
        Channel => "channel",
        /// [`HandshakeError::Sequence`]
        Sequence => "sequence",
        /// [`HandshakeError::Flags`]
        Flags => "flags",
        /// [`HandshakeError::PayloadLength`]
        PayloadLength => "payload_length",
        /// [`HandshakeError::Tlv`]
        Tlv => "tlv",
        /// [`HandshakeError::TlvOrder`]
        TlvOrder => "tlv_order",
        /// [`HandshakeError::TlvUnexpected`]
        TlvUnexpected => "tlv_unexpected",
        /// [`HandshakeError::TlvMissing`]
        TlvMissing => "tlv_missing",
        /// [`HandshakeError::TlvValue`]
        TlvValue => "tlv_value",
        /// [`HandshakeError::SelectedNotOffered`]
        SelectedNotOffered => "selected_not_offered",
        /// [`HandshakeError::Kem`]
        Kem => "kem",
        /// [`HandshakeError::NoCommonProfile`]
        NoCommonProfile => "no_common_profile",
        /// [`HandshakeError::NoCommonKem`]
        NoCommonKem => "no_common_kem",
        /// [`HandshakeError::NoCommonSignature`]
        NoCommonSignature => "no_common_signature",
        /// [`HandshakeError::NoCommonSuite`]
        NoCommonSuite => "no_common_suite",
        /// [`HandshakeError::AuthSeal`]
        AuthSeal => "auth_seal",
        /// [`HandshakeError::CertVerify`]
        CertVerify => "cert_verify",
        /// [`HandshakeError::Finished`]
        Finished => "finished",
        /// [`HandshakeError::IdentityNotAllowed`]
        IdentityNotAllowed => "identity_not_allowed",
        /// [`HandshakeError::AlreadyDone`]
        AlreadyDone => "already_done",
        /// [`HandshakeError::AlreadyFailed`]
        AlreadyFailed => "already_failed",
    }
}

impl HandshakeError {
    /// The counter of this error.
    pub const fn reason(&self) -> HandshakeReason {
        match self {
            Self::Header(_) => HandshakeReason::Header,
            Self::FrameType { .. } => HandshakeReason::FrameType,
            Self::Channel(_) => HandshakeReason::Channel,
            Self::Sequence(_) => HandshakeReason::Sequence,
            Self::Flags(_) => HandshakeReason::Flags,
            Self::PayloadLength(_) => HandshakeReason::PayloadLength,
            Self::Tlv(_) => HandshakeReason::Tlv,
            Self::TlvOrder { .. } => HandshakeReason::TlvOrder,
            Self::TlvUnexpected(_) => HandshakeReason::TlvUnexpected,
            Self::TlvMissing(_) => HandshakeReason::TlvMissing,
            Self::TlvValue(_) => HandshakeReason::TlvValue,
            Self::SelectedNotOffered { .. } => HandshakeReason::SelectedNotOffered,
            Self::Kem(_) => HandshakeReason::Kem,
            Self::NoCommonProfile => HandshakeReason::NoCommonProfile,
            Self::NoCommonKem => HandshakeReason::NoCommonKem,
            Self::NoCommonSignature => HandshakeReason::NoCommonSignature,
            Self::NoCommonSuite => HandshakeReason::NoCommonSuite,
            Self::AuthSeal => HandshakeReason::AuthSeal,
            Self::CertVerify(_) => HandshakeReason::CertVerify,
            Self::Finished => HandshakeReason::Finished,
            Self::IdentityNotAllowed(_) => HandshakeReason::IdentityNotAllowed,
            Self::AlreadyDone => HandshakeReason::AlreadyDone,
            Self::AlreadyFailed => HandshakeReason::AlreadyFailed,
        }
    }

    /// Who is to blame.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::NoCommonProfile
            | Self::NoCommonKem
            | Self::NoCommonSignature
            | Self::NoCommonSuite => Blame::Incompatible,
            Self::AuthSeal | Self::CertVerify(_) | Self::Finished | Self::IdentityNotAllowed(_) => {
                Blame::Authentication
            }
            Self::AlreadyDone | Self::AlreadyFailed => Blame::Caller,
            _ => Blame::Protocol,
        }
    }
}
