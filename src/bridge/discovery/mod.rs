//! NPAMP-DISC on the Discovery channel: records, the payloads of its seven
//! frame types, and the state of both roles on one association.
//!
//! Sans-IO. Nothing here decides what is offered or what an offer means: a
//! record is a claim of the peer and never an authorization (NPAMP-DISC §10),
//! and all state lives and dies with its association (§8).

pub mod advertised;
pub mod error;
mod fields;
pub mod filter;
pub mod frame;
pub mod learned;
pub mod query;
pub mod rate;
pub mod record;
pub mod responder;

pub use error::{ErrorCode, Fault, FrameError};
pub use filter::Filter;
pub use frame::{Frame, FrameKind};
pub use record::{Body, CarriageClass, Record, RecordId, RecordKind};
