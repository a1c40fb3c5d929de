//! Octets that no honest peer or client sends, straight at the listeners of a
//! running relay: each kind is counted under its own reason, exactly as often
//! as it came, and the relay goes on serving (rulings R5, R6, R8, R12, R16,
//! R21, R23, R24, R26). Mapping on the units and on a worker.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod crowds;
mod envelopes;
mod frames;
mod handshakes;

use bench::Bench;
use std::time::Instant;

fn all(workers: usize) {
    let bench = Bench::start(workers);
    let since = Instant::now();
    let step = |name: &str| println!("{name} at {:?}", since.elapsed());
    // Both units have their association before anything is counted.
    for _ in 0..20 {
        bench.assert_serves("the start");
    }
    step("links");
    handshakes::links(&bench);
    step("handshakes");
    handshakes::handshakes(&bench);
    step("hellos");
    frames::hellos(&bench);
    step("frames");
    frames::frames(&bench);
    step("envelopes");
    envelopes::envelopes(&bench);
    step("http");
    crowds::http(&bench);
    step("silent crowd");
    crowds::silent_crowd(&bench);
    step("flood");
    crowds::flood(&bench);
    step("done");
}

#[test]
fn hostile_octets_with_mapping_on_the_units() {
    all(0);
}

#[test]
fn hostile_octets_with_mapping_on_a_worker() {
    all(1);
}
