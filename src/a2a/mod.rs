//! The A2A mapping (NPAMP-MAP-A2A): method tables with effect classes, the
//! JSON-RPC scan, stream termination, card documents, and the mapper that turns
//! calls of an HTTP edge into bridge frames and back.
//!
//! Sans-IO: no socket, no thread, no clock. Never re-serialises a JSON body.
#![forbid(unsafe_code)]

pub mod budget;
pub mod card;
pub mod config;
pub mod events;
pub mod json_rpc;
mod json_text;
pub mod mapper;
pub mod method;
pub mod port;
pub mod stats;
pub mod streams;

pub use config::MapperConfig;
pub use mapper::Mapper;
