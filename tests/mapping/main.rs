//! The bridge and the A2A mapping, section by section: two mappers joined back
//! to back with a scripted agent, or one mapper and hand-made frames.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod document_sets;
mod documents;
mod extended_card;
mod gathering;
mod harness;
mod octets;
mod policy;
mod replies;
mod resumption;
mod retention;
mod streams;
mod transit;
mod unary;
mod wire_resume;
