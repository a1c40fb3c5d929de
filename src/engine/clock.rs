//! The process's clock and its randomness, for the rooms that take both as arguments.

use crate::crypto::Random;
use std::cell::RefCell;
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

/// [`SystemRandom`], drawn a block at a time on each thread: for names that nobody may guess
/// and that are made by the hundred thousand. Keys are drawn when they are needed.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameRandom;

const BLOCK_OCTETS: usize = 1024;

thread_local! {
    /// A block, and how much of it was given out.
    static BLOCK: RefCell<([u8; BLOCK_OCTETS], usize)> =
        const { RefCell::new(([0; BLOCK_OCTETS], BLOCK_OCTETS)) };
}

impl Random for NameRandom {
    fn fill(&mut self, out: &mut [u8]) {
        if out.len() > BLOCK_OCTETS {
            return SystemRandom.fill(out);
        }
        BLOCK.with_borrow_mut(|(block, used)| {
            if *used + out.len() > BLOCK_OCTETS {
                SystemRandom.fill(block);
                *used = 0;
            }
            let given = &mut block[*used..*used + out.len()];
            out.copy_from_slice(given);
            // What was given out is nowhere else.
            given.fill(0);
            *used += out.len();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is given out twice, whatever is asked for.
    #[test]
    fn names_are_drawn_once() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut name = [0; 16];
            NameRandom.fill(&mut name);
            assert!(seen.insert(name.to_vec()));
        }
        for octets in [0, 1, BLOCK_OCTETS, BLOCK_OCTETS + 1] {
            let mut name = vec![0; octets];
            NameRandom.fill(&mut name);
            assert!(octets < 16 || (name.iter().any(|&octet| octet != 0) && seen.insert(name)));
        }
    }

    /// N-PAMP draft, Random Number Generation.
    #[test]
    fn randomness_is_fresh() {
        let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
        SystemRandom.fill(&mut a);
        SystemRandom.fill(&mut b);
        assert!(a != b && a != [0; 32] && b != [0; 32]);
    }
}
