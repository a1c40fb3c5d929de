//! npamp-relay: an io_uring transport engine and bridge relay that carries A2A
//! (Agent2Agent) over N-PAMP.
//!
//! The crate is divided into rooms with walls between them; `ARCHITECTURE.md`
//! draws them and `tests/walls.rs` holds them up. From [`wire`] to [`a2a`], and
//! in [`link`], nothing touches a socket, a thread or the clock: events come in
//! through `handle_*`, effects leave through `poll_*`, and `now` and randomness
//! are arguments. Those rooms are all there is without the feature `engine`.
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod a2a;
pub mod association;
pub mod bridge;
pub mod crypto;
pub mod handshake;
pub mod limits;
pub mod link;
pub mod stats;
pub mod wire;

#[cfg(feature = "engine")]
pub mod cli;
#[cfg(feature = "engine")]
pub mod edge;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
pub mod observe;
#[cfg(feature = "engine")]
pub mod relay;
