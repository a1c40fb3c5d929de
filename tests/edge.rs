//! The HTTP edges by behaviour: a mapping that the test plays, raw TCP clients
//! in front of the ingress, raw TCP agents behind the egress.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]
#![cfg(feature = "engine")]

#[path = "edge/egress.rs"]
mod egress;
#[path = "edge/ingress.rs"]
mod ingress;
#[path = "edge/resume.rs"]
mod resume;
#[path = "edge/streams.rs"]
mod streams;
#[path = "edge/support.rs"]
mod support;
