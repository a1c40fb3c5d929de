//! The bridge framework (NPAMP-BRIDGE) with its carriage classes' parts:
//! BridgeEnvelope, SafetyLabel, StreamControl (NPAMP-CC-STREAM),
//! DocumentBinding and document sets (NPAMP-CC-DOC), transport errors,
//! correlation, discovery (NPAMP-DISC), and the state of exchanges and streams on both sides.
//!
//! Sans-IO. Knows no foreign protocol: the foreign message is octets that are
//! borrowed, never parsed and never rewritten (NPAMP-BRIDGE §1).
#![forbid(unsafe_code)]

pub mod correlation;
pub mod discovery;
pub mod document;
pub mod document_binding;
pub mod document_set;
pub mod duplex;
pub mod envelope;
pub mod error;
pub mod own;
pub mod payload;
pub mod replay;
pub mod requester;
pub mod responder;
pub mod safety;
pub mod stream;
pub mod stream_control;
pub mod transport_error;
