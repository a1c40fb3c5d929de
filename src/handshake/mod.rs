//! The N-PAMP handshake as two sans-IO state machines: one type per state,
//! named for the frame it expects; frames come in through `handle_frame`,
//! octets leave through `poll_transmit`.
//!
//! It never touches a socket or the clock (a slow peer is the caller's to give
//! up), and draws randomness only when a machine is made. Serves the handshake
//! binding §1–§7 and the draft's §Handshake and §Profile Negotiation.
#![forbid(unsafe_code)]

mod auth;
mod config;
mod error;
mod flight;
mod initiator;
mod responder;
#[cfg(test)]
mod tests;

pub use config::{InitiatorConfig, PeerPolicy, ResponderConfig};
pub use error::{Blame, HandshakeError, HandshakeReason};
pub use initiator::Initiator;
pub use responder::Responder;

use crate::crypto::{Direction, IdentityPublic, MasterSecret, Profile, Suite};

/// Which end of an association this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Sent CLIENT_HELLO.
    Initiator,
    /// Answered it.
    Responder,
}

impl Side {
    /// The direction of frames this side sends.
    pub const fn send_direction(self) -> Direction {
        match self {
            Self::Initiator => Direction::InitiatorToResponder,
            Self::Responder => Direction::ResponderToInitiator,
        }
    }

    /// The direction of frames this side receives.
    pub const fn receive_direction(self) -> Direction {
        self.other().send_direction()
    }

    /// The peer's side.
    pub const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// What a completed handshake leaves: both peers are authenticated and every
/// negotiated value is confirmed by both Finished MACs.
#[derive(Debug)]
pub struct Established {
    /// Our side.
    pub side: Side,
    /// The negotiated profile.
    pub profile: Profile,
    /// The negotiated AEAD suite.
    pub suite: Suite,
    /// The root of application traffic keys.
    pub master: MasterSecret,
    /// The peer's verified and permitted identity.
    pub peer: IdentityPublic,
}

/// What a frame led to.
#[derive(Debug)]
pub enum Progress {
    /// More frames are needed.
    Continue,
    /// The handshake is complete. The initiator still has CLIENT_AUTH to send:
    /// `poll_transmit` gives it.
    Done(Box<Established>),
}
