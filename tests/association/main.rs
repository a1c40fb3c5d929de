//! Associations on a virtual clock: one against a puppet that may send
//! anything, and two against each other under random traffic.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod batches;
mod frames;
mod hello;
mod keys;
mod lifetime;
mod pair;
mod rig;
