//! A recorded exchange for each clause of the companion specifications'
//! conformance sections. The script plays everything but the relay; what the
//! relay emits is compared octet for octet with frames that `build` makes from
//! the specifications' tables. A failing test prints its exchange.
//!
//! Names are `clause_<n>_…` after the clause, in a file per document; what a
//! document's last paragraph asks for beyond the clauses is named after it.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod bridge;
mod build;
mod discovery;
mod document;
mod duplex;
mod exchange;
#[path = "../mapping/harness.rs"]
#[allow(dead_code, reason = "written for another suite")]
mod harness;
mod hello;
mod json_rpc;
mod mapping;
mod odd_agents;
mod registry;
#[path = "../association/rig.rs"]
#[allow(dead_code, reason = "written for another suite")]
mod rig;
mod stream;
