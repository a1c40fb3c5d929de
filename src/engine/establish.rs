//! From a fresh connection to an association: the TLS handshake, then the
//! N-PAMP handshake inside it, as one machine without a socket. It ends with
//! the TLS state, the association and whatever octets arrived early.

use crate::association::{Association, AssociationConfig};
use crate::crypto::{IdentityPublic, Random};
use crate::handshake::{
    Established, HandshakeError, Initiator, InitiatorConfig, Progress, Responder, ResponderConfig,
    Side,
};
use crate::limits;
use crate::link::LinkError;
use crate::link::tls::Tls;
use crate::wire::{Header, HeaderError};
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;
use std::time::Instant;

/// Why no association came of a connection.
#[derive(Debug, thiserror::Error)]
pub enum EstablishError {
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A handshake frame is malformed.
    #[error("handshake frame: {0}")]
    Header(#[from] HeaderError),
    /// A handshake frame announces more than any handshake needs.
    #[error("handshake frame of {0} octets")]
    FrameTooLarge(u32),
    /// The N-PAMP handshake failed.
    #[error("handshake: {0}")]
    Handshake(#[from] HandshakeError),
    /// The client sent no server name, which names the agent (ruling R12).
    #[error("the link has no server name")]
    NoServerName,
    /// The peer ended the connection.
    #[error("the peer ended the connection during the handshake")]
    Ended,
    /// It took too long.
    #[error("the handshake took too long")]
    TimedOut,
    /// The relay stops.
    #[error("the relay is shutting down")]
    Stopped,
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    /// No address could be reached.
    #[error("{0}")]
    Unreachable(String),
}

crate::reasons! {
    /// Labels of handshake failures.
    pub enum EstablishFailure {
        /// TLS.
        Link => "link",
        /// ALPN n-pamp/2 was not agreed.
        Alpn => "alpn",
        /// The certificate did not verify.
        Certificate => "certificate",
        /// A malformed or oversized frame.
        Frame => "frame",
        /// The N-PAMP handshake.
        Handshake => "handshake",
        /// The peer's identity is not the pinned one or not among the allowed.
        Identity => "identity",
        /// No server name.
        ServerName => "server_name",
        /// The peer left.
        Ended => "ended",
        /// Deadline.
        TimedOut => "timed_out",
        /// The relay stopped meanwhile.
        Stopped => "stopped",
        /// Socket or resolver.
        Socket => "socket",
    }
}

impl EstablishError {
    /// What callers are told, who need not know addresses and names of certificates.
    pub fn for_callers(&self) -> &'static str {
        match self.reason() {
            EstablishFailure::Link => "the link's TLS handshake failed",
            EstablishFailure::Alpn => "the upstream does not speak n-pamp/2",
            EstablishFailure::Certificate => "the upstream's certificate did not verify",
            EstablishFailure::Frame | EstablishFailure::Handshake => "the N-PAMP handshake failed",
            EstablishFailure::Identity => "the upstream has another identity than the pinned one",
            EstablishFailure::ServerName => "the link has no server name",
            EstablishFailure::Ended => "the upstream ended the connection during the handshake",
            EstablishFailure::TimedOut => "the upstream did not answer in time",
            EstablishFailure::Stopped => "the relay is shutting down",
            EstablishFailure::Socket => "the upstream cannot be reached",
        }
    }

    /// The counter this failure belongs to.
    pub fn reason(&self) -> EstablishFailure {
        match self {
            Self::Link(LinkError::Alpn) => EstablishFailure::Alpn,
            Self::Link(LinkError::Certificate(_)) => EstablishFailure::Certificate,
            Self::Link(_) => EstablishFailure::Link,
            Self::Header(_) | Self::FrameTooLarge(_) => EstablishFailure::Frame,
            Self::Handshake(HandshakeError::IdentityNotAllowed(_)) => EstablishFailure::Identity,
            Self::Handshake(_) => EstablishFailure::Handshake,
            Self::NoServerName => EstablishFailure::ServerName,
            Self::Ended => EstablishFailure::Ended,
            Self::TimedOut => EstablishFailure::TimedOut,
            Self::Stopped => EstablishFailure::Stopped,
            Self::Socket(_) | Self::Unreachable(_) => EstablishFailure::Socket,
        }
    }
}

enum Handshake {
    Initiator(Initiator),
    Responder(Responder),
}

/// A connection on its way to an association.
pub struct Establish {
    tls: Tls,
    handshake: Handshake,
    started: bool,
    plain: Vec<u8>,
    server_name: Option<Arc<str>>,
}

/// What comes of it.
pub struct Joined {
    /// The link.
    pub tls: Tls,
    /// Keys and peer, for [`Association::new`].
    pub established: Established,
    /// Decrypted octets that followed the handshake.
    pub early: Vec<u8>,
    /// The link's server name.
    pub server_name: Arc<str>,
}

impl Establish {
    /// Our end dials. Call [`Establish::handle_octets`] with nothing to begin.
    pub fn initiator(
        tls: Arc<ClientConfig>,
        server_name: &Arc<str>,
        config: InitiatorConfig,
        random: &mut dyn Random,
    ) -> Result<Self, EstablishError> {
        Ok(Self {
            tls: Tls::client(tls, server_name)?,
            handshake: Handshake::Initiator(Initiator::new(config, random)),
            started: false,
            plain: Vec::new(),
            server_name: Some(server_name.clone()),
        })
    }

    /// Our end accepts.
    pub fn responder(
        tls: &Arc<ServerConfig>,
        config: ResponderConfig,
        random: &mut dyn Random,
    ) -> Result<Self, EstablishError> {
        Ok(Self {
            tls: Tls::server(tls)?,
            handshake: Handshake::Responder(Responder::new(config, random)),
            started: false,
            plain: Vec::new(),
            server_name: None,
        })
    }

    /// Feeds ciphertext; what must be sent is appended to `out`, also when this fails.
    pub fn handle_octets(
        &mut self,
        octets: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Box<Established>>, EstablishError> {
        let result = self.advance(octets, out);
        if result.is_err() {
            // Nothing where TLS is not up or has sent its alert.
            let _ = self.tls.close(out);
        }
        result
    }

    fn advance(
        &mut self,
        octets: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Box<Established>>, EstablishError> {
        let plain = &mut self.plain;
        self.tls
            .handle_octets(octets, out, &mut |octets| plain.extend_from_slice(octets))?;
        if !self.tls.is_established() {
            return Ok(None);
        }
        if !self.started {
            self.started = true;
            if self.server_name.is_none() {
                let name = self.tls.server_name().ok_or(EstablishError::NoServerName)?;
                self.server_name = Some(name.to_ascii_lowercase().into());
            }
            self.transmit(out)?;
        }
        while self.plain.len() >= Header::LEN {
            let header = Header::decode(&self.plain)?;
            let payload_octets = header.payload_length as usize;
            if payload_octets > limits::HANDSHAKE_PAYLOAD_OCTETS_MAX {
                return Err(EstablishError::FrameTooLarge(header.payload_length));
            }
            let frame_octets = Header::LEN + payload_octets;
            if self.plain.len() < frame_octets {
                break;
            }
            let payload = &mut self.plain[Header::LEN..frame_octets];
            let progress = match &mut self.handshake {
                Handshake::Initiator(initiator) => initiator.handle_frame(&header, payload),
                Handshake::Responder(responder) => responder.handle_frame(&header, payload),
            };
            self.plain.drain(..frame_octets);
            let progress = progress?;
            self.transmit(out)?;
            if let Progress::Done(established) = progress {
                return Ok(Some(established));
            }
        }
        if self.tls.is_peer_closed() {
            return Err(EstablishError::Ended);
        }
        Ok(None)
    }

    fn transmit(&mut self, out: &mut Vec<u8>) -> Result<(), EstablishError> {
        let mut frames = Vec::new();
        match &mut self.handshake {
            Handshake::Initiator(initiator) => initiator.poll_transmit(&mut frames),
            Handshake::Responder(responder) => responder.poll_transmit(&mut frames),
        }
        if !frames.is_empty() {
            self.tls.encrypt(&frames, out)?;
        }
        Ok(())
    }

    /// Ends the link in order, as far as it was established; octets to send are appended to `out`.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        // What cannot be sealed any more need not be said either.
        let _ = self.tls.close(out);
    }

    /// Once [`Establish::handle_octets`] gave the keys.
    pub fn join(self, established: Established) -> Joined {
        Joined {
            tls: self.tls,
            established,
            early: self.plain,
            server_name: self.server_name.unwrap_or_else(|| "".into()),
        }
    }
}

impl Joined {
    /// Our end.
    pub fn side(&self) -> Side {
        self.established.side
    }

    /// The peer's identity.
    pub fn peer(&self) -> &IdentityPublic {
        &self.established.peer
    }

    /// The established association; the shard feeds it `early` first.
    pub fn into_association(
        self,
        config: Arc<AssociationConfig>,
        random: &mut dyn Random,
        now: Instant,
    ) -> (Tls, Association, Vec<u8>) {
        (
            self.tls,
            Association::new(self.established, config, random, now),
            self.early,
        )
    }
}
