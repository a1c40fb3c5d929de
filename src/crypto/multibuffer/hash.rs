//! GHASH, computed as POLYVAL (RFC 8452, appendix A), whose octets are in our
//! order: sums of products that are reduced together, and the powers they take.

use super::vector::{BLOCK, Vector};
use super::{Key, POWERS};
use zeroize::Zeroize;

/// Blocks of text between two reductions.
pub(super) const STRIDE: usize = 16;
/// x^127 + x^126 + x^121 + 1, the field's polynomial without x^128.
const POLYNOMIAL: u128 = 0xc200_0000_0000_0000_0000_0000_0000_0001;

/// A sum of products, not reduced: low, middle and high.
#[derive(Clone, Copy)]
pub(super) struct Sum<V>(pub(super) V, pub(super) V, pub(super) V);

impl<V: Vector> Sum<V> {
    #[inline(always)]
    pub(super) fn new(proof: V::Proof) -> Self {
        let zero = V::splat_word(proof, 0);
        Self(zero, zero, zero)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, blocks: V, powers: V) {
        self.0 = self.0.xor(blocks.product::<0x00>(powers));
        self.1 = self
            .1
            .xor(blocks.product::<0x01>(powers))
            .xor(blocks.product::<0x10>(powers));
        self.2 = self.2.xor(blocks.product::<0x11>(powers));
    }

    /// Each lane divided by x^128 modulo the polynomial.
    #[inline(always)]
    pub(super) fn reduce(self, proof: V::Proof) -> V {
        let polynomial = V::splat_word(proof, POLYNOMIAL >> 64);
        let middle = self
            .1
            .xor(self.0.swap_halves())
            .xor(self.0.product::<0x00>(polynomial));
        self.2
            .xor(middle.swap_halves())
            .xor(middle.product::<0x00>(polynomial))
    }
}

/// The hash key from its block, in our order: times x, since POLYVAL divides by
/// it, without a branch on the bit that falls out.
pub(super) fn hash_key(block: u128) -> u128 {
    let carry = 0u128.wrapping_sub(block >> 127);
    (block << 1) ^ (carry & POLYNOMIAL)
}

impl Key {
    /// The powers of the hash key for blocks of which `power` are left, this one counted.
    #[inline(always)]
    pub(super) fn power<V: Vector>(&self, proof: V::Proof, power: usize) -> V {
        V::load(proof, &self.powers[(POWERS - power) * BLOCK..])
    }

    /// The hash key.
    #[inline(always)]
    pub(super) fn hash_key(&self) -> &[u8; BLOCK] {
        self.powers[(POWERS - 1) * BLOCK..]
            .first_chunk()
            .expect("zeros lie behind the first power")
    }

    /// Fills the powers.
    #[inline(always)]
    pub(super) fn raise<V: Vector>(&mut self, proof: V::Proof, mut hash_key: u128) {
        let first = V::first(proof, hash_key);
        hash_key.zeroize();
        let mut power = first;
        for i in (0..POWERS).rev() {
            power.store(&mut self.powers[i * BLOCK..(i + 1) * BLOCK]);
            let mut sum = Sum::new(proof);
            sum.add(power, first);
            power = sum.reduce(proof);
        }
    }
}
