//! The public N-PAMP vectors against the library: the conformance corpus in
//! process and through the adapter, the five handshake known-answer files with
//! their three legs (anchor, oracle, implementation), and the golden handshake.
//!
//! The vectors are not part of the project. They are found at `NPAMP_VECTORS`,
//! else beside the repository; without them every test says so and passes.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

#[cfg(feature = "engine")]
#[path = "vectors/adapter.rs"]
mod adapter;
#[path = "vectors/corpus.rs"]
mod corpus;
#[path = "vectors/flow.rs"]
mod flow;
#[path = "vectors/known_answers.rs"]
mod known_answers;
#[path = "vectors/oracle.rs"]
mod oracle;
#[path = "vectors/support.rs"]
mod support;
