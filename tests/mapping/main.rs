//! The bridge and the A2A mapping, section by section: two mappers joined back
//! to back with a scripted agent, or one mapper and hand-made frames.

mod documents;
mod harness;
mod octets;
mod policy;
mod replies;
mod streams;
mod unary;
