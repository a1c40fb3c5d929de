//! Frames that are sealed and opened together, against `ring`: `../batches.rs`.
#![no_main]

#[path = "../batches.rs"]
mod batches;

libfuzzer_sys::fuzz_target!(|input: &[u8]| batches::check(input));
