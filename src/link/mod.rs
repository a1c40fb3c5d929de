//! Links: byte movers beneath N-PAMP that authenticate a server name and
//! encrypt, without sockets. The one here is TLS 1.3 over TCP (ietf draft,
//! Protocol Overview); ALPN `n-pamp/2` is required on it.
//!
//! A link never looks into what it moves.
#![forbid(unsafe_code)]

pub mod config;
pub mod tls;

use crate::reasons;

/// ALPN identifier of wire major version 2 (ietf draft, IANA Considerations).
pub const ALPN: &[u8] = b"n-pamp/2";

reasons! {
    /// Why a link failed; the label of its counter.
    pub enum LinkFailure {
        /// The peer broke TLS or refused us.
        Tls => "tls",
        /// The peer did not agree on ALPN `n-pamp/2`.
        Alpn => "alpn",
        /// The peer's certificate did not verify.
        Certificate => "certificate",
        /// The peer ended the link without close_notify.
        Truncated => "truncated",
        /// Our own configuration does not work.
        Configuration => "configuration",
    }
}

/// A link that failed, sorted by who is to blame.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer broke TLS, or refused us.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// The peer's certificate did not verify.
    #[error("certificate: {0}")]
    Certificate(#[source] rustls::Error),
    /// No ALPN, or another protocol.
    #[error("ALPN n-pamp/2 was not agreed")]
    Alpn,
    /// Our own configuration.
    #[error("configuration: {0}")]
    Configuration(String),
}

impl LinkError {
    /// The counter this failure belongs to.
    pub fn reason(&self) -> LinkFailure {
        match self {
            Self::Tls(_) => LinkFailure::Tls,
            Self::Certificate(_) => LinkFailure::Certificate,
            Self::Alpn => LinkFailure::Alpn,
            Self::Configuration(_) => LinkFailure::Configuration,
        }
    }
}

impl From<rustls::Error> for LinkError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(_) => Self::Certificate(error),
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => {
                Self::Alpn
            }
            other => Self::Tls(other),
        }
    }
}
