//! Tables whose keys this side has chosen itself, by counting or at random: a
//! peer cannot choose keys that fall into one place of them, so that a hash as
//! short as a multiplication does. Not for anything that a peer names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by names of our own.
pub type OwnMap<K, V> = HashMap<K, V, BuildHasherDefault<OwnHasher>>;
/// A set of names of our own.
pub type OwnSet<K> = HashSet<K, BuildHasherDefault<OwnHasher>>;

/// Folds each eight octets in with a multiplication.
#[derive(Debug, Default, Clone, Copy)]
pub struct OwnHasher(u64);

/// 2⁶⁴ divided by the golden ratio.
const FACTOR: u128 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for OwnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        // Both halves of the product: numbers that differ in their high bits only, as a
        // unit's, differ in the low ones of the hash as well.
        let product = u128::from(self.0 ^ number) * FACTOR;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            // Octet by octet: a copy of a length that is not known is a call.
            let word = rest
                .iter()
                .rev()
                .fold(0, |word, &octet| word << 8 | u64::from(octet));
            self.write_u64(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, Hash};

    fn hash(value: impl Hash) -> u64 {
        BuildHasherDefault::<OwnHasher>::default().hash_one(value)
    }

    /// Names that are counted, whatever stands above or below the count, spread over a table.
    #[test]
    fn counted_names_spread() {
        for shift in [0, 8, 32, 48] {
            let mut places = HashSet::new();
            let mut tags = HashSet::new();
            for n in 0..256u64 {
                places.insert(hash(n << shift) & 0xfff);
                tags.insert(hash(n << shift) >> 57);
            }
            assert!(places.len() > 200, "{shift}: {}", places.len());
            assert!(tags.len() > 64, "{shift}: {}", tags.len());
        }
    }

    #[test]
    fn every_octet_counts() {
        let name = [7u8; 20];
        let mut hashes = HashSet::from([hash(&name[..])]);
        for at in 0..20 {
            let mut other = name;
            other[at] ^= 1;
            assert!(hashes.insert(hash(&other[..])), "{at}");
        }
        assert!(hashes.insert(hash(&name[..19])));
    }
}
