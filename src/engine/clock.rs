//! The process's clock and its randomness, for the rooms that take both as arguments.

use crate::crypto::Random;
use std::time::Instant;

/// Now.
pub fn now() -> Instant {
    Instant::now()
}

/// A generator seeded by the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // Fails only when the process has no source of entropy at all, and then nothing may go on.
        aws_lc_rs::rand::fill(out).expect("a source of entropy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-PAMP draft, Random Number Generation.
    #[test]
    fn randomness_is_fresh() {
        let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
        SystemRandom.fill(&mut a);
        SystemRandom.fill(&mut b);
        assert!(a != b && a != [0; 32] && b != [0; 32]);
    }
}
