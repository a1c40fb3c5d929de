//! Randomness as an argument. The operating system's generator lives where
//! ambient effects live; this room only says what it needs.

use sha2::{Digest, Sha256};

/// A source of random octets. In operation it must be a cryptographically
/// secure generator (draft §Random Number Generation).
pub trait Random {
    /// Fills `out`.
    fn fill(&mut self, out: &mut [u8]);
}

/// Octets that follow from a seed, so that a simulation replays. Never for
/// keys of a real association.
#[derive(Debug, Clone)]
pub struct SeededRandom {
    seed: u64,
    counter: u64,
}

impl SeededRandom {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, counter: 0 }
    }
}

impl Random for SeededRandom {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            let block = Sha256::new()
                .chain_update(self.seed.to_be_bytes())
                .chain_update(self.counter.to_be_bytes())
                .finalize();
            self.counter += 1;
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_seeds_differ() {
        let draw = |seed| {
            let mut out = [0; 50];
            SeededRandom::new(seed).fill(&mut out);
            out
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[..16], draw(1)[32..48]);
    }
}
