//! The N-PAMP wire format as a pure codec: the 36-octet header, TLVs, the
//! incremental deframer and deterministic CBOR.
//!
//! It never touches a socket, a key or the clock, and it never decides what a
//! frame means. Serves the draft's §Wire Format.
#![forbid(unsafe_code)]

pub mod cbor;
mod code_point;
mod deframer;
mod header;
pub mod tlv;

pub use code_point::{ChannelId, Flags, FrameType};
pub use deframer::{Deframer, Frame, Step};
pub use header::{Header, HeaderError, HeaderReason, crc32c};
pub use tlv::{KnownTags, Tlv, TlvError, Tlvs};
