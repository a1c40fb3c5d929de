//! Composition: edge ↔ mapping ↔ association ↔ engine, and routing.
#![forbid(unsafe_code)]

pub mod settings;
