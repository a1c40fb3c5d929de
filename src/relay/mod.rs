//! Composition: edge ↔ mapping ↔ association ↔ engine, and routing. One
//! [`Relay`] is the control thread, the units and, if asked for, mapping workers.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // composition starts threads and reads the clock through the engine

pub mod context;
pub mod health;
mod hello;
pub mod mapping;
mod metrics;
pub mod pools;
pub mod port;
pub mod pressure;
pub mod redial;
pub mod run;
pub mod settings;
pub mod stats;
pub mod unit;

pub use run::Relay;

/// Why a relay does not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A configured file does not serve.
    #[error(transparent)]
    File(#[from] crate::edge::files::FileError),
    /// A setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A thread failed.
    #[error("{0}")]
    Thread(String),
}
