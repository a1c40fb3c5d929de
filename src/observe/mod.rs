//! What the relay shows of itself: the metric table, the admin listener that
//! serves it, process figures from `/proc`, and structured logs.
//!
//! It only reads: rooms count into [`crate::stats`] and know nothing of this
//! one. No identity, key, token, message or method name becomes a label or a
//! log field by itself.
#![forbid(unsafe_code)]

pub mod admin;
pub mod logs;
pub mod metrics;
pub mod process;
