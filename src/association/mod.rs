//! An established association: channels with their sequence spaces and epochs,
//! HELLO, key update, liveness and close, as one sans-IO machine.
//!
//! Octets go in through [`Association::handle_octets`], time through
//! [`Association::handle_timeout`]; sealed frames leave through
//! [`Association::poll_transmit`]. It never touches a socket, a thread, the
//! clock or ambient randomness, knows nothing of what travels on a channel, and
//! is made for an ordered, reliable link: the next sequence of a channel is the
//! only acceptable one (ruling R3).
//!
//! Serves: N-PAMP draft, Channel Architecture, Key Schedule and Nonces, Replay,
//! Forward Secrecy and Key Update, Authenticated Close; NPAMP-HELLO;
//! NPAMP-CH-0000.
#![forbid(unsafe_code)]

mod channel;
mod config;
mod error;
mod event;
mod hello;
mod machine;
mod outbound;
mod phase;
mod report;

pub use config::{AssociationConfig, HelloMode};
pub use error::{AssociationError, Code, DropReason, Failure, SendError};
pub use event::{AssociationStats, CloseReason, Event, Peer};
pub use hello::{Hello, HelloError, PROTOCOL_A2A, ParamValue};
pub use machine::Association;
