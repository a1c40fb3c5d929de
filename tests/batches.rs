//! The body of the fuzz target `multibuffer` (`fuzz/`), over the inputs that are
//! kept there and over drawn ones, so that it stays built and passing.

#[path = "../fuzz/batches.rs"]
mod batches;

use npamp_relay::crypto::multibuffer::Path;
use proptest::prelude::*;
use std::fs;

/// Without a path the others would hold nothing to anything: where the CPU has
/// the instructions, there must be one.
#[cfg(target_arch = "x86_64")]
#[test]
fn there_is_a_path_where_the_cpu_has_the_instructions() {
    let has = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq");
    assert_eq!(Path::best().is_some(), has);
}

/// Inputs from which fuzzing starts, and those that it once failed on.
#[test]
fn kept_inputs_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/multibuffer");
    let mut ran = 0;
    for entry in fs::read_dir(folder).unwrap() {
        batches::check(&fs::read(entry.unwrap().path()).unwrap());
        ran += 1;
    }
    assert!(ran > 0, "{folder} is empty");
    println!("{ran} inputs on {} paths", Path::all().len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn drawn_inputs_pass(input in prop::collection::vec(any::<u8>(), 0..=2 + 8 * 72)) {
        batches::check(&input);
    }
}
