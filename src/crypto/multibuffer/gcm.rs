//! AES-256-GCM (NIST SP 800-38D) over several messages, for any [`Vector`].
//!
//! No branch and no address depends on a key, a plaintext or a tag; lengths and
//! the number of messages are public. Blocks of different messages go through
//! the rounds together, which hides what one message would wait for; GHASH is
//! computed as POLYVAL (RFC 8452, appendix A), whose octets are in our order.

use super::vector::{BLOCK, Vector};
use super::{Key, Message, POWERS, ROUNDS};
use crate::wire::Header;
use zeroize::{Zeroize, Zeroizing};

/// Messages that are worked on together: what they need stays in the nearest cache.
pub(super) const GROUP: usize = 16;
/// Registers of counter blocks that go through the rounds together.
const PIPELINE: usize = 8;
/// Blocks of text between two reductions.
const STRIDE: usize = 16;
/// x^127 + x^126 + x^121 + 1, the field's polynomial without x^128.
const POLYNOMIAL: u128 = 0xc200_0000_0000_0000_0000_0000_0000_0001;

// Associated data, a stride of text and the lengths.
const _: () = assert!(Header::PREFIX_LEN.div_ceil(BLOCK) + STRIDE < POWERS);

/// Fills `key`, whose octets are all zero, from the AES key.
#[inline(always)]
pub(super) fn expand<V: Vector>(proof: V::Proof, octets: &[u8; 32], key: &mut Key) {
    let mut words = Zeroizing::new([0u32; 4 * ROUNDS]);
    for (word, octets) in words.iter_mut().zip(octets.chunks_exact(4)) {
        *word = u32::from_le_bytes([octets[0], octets[1], octets[2], octets[3]]);
    }
    let zero = V::splat_word(proof, 0);
    let mut constant = 1u32;
    for i in 8..words.len() {
        let mut word = words[i - 1];
        if i % 4 == 0 {
            // The last round substitutes octets; with equal columns its shift of rows does nothing.
            let columns = u128::from(word) * 0x0000_0001_0000_0001_0000_0001_0000_0001;
            word = V::splat_word(proof, columns).last_round(zero).first_lane() as u32;
        }
        if i % 8 == 0 {
            word = word.rotate_right(8) ^ constant;
            constant <<= 1;
        }
        words[i] = words[i - 8] ^ word;
    }
    for (round, words) in key.rounds.iter_mut().zip(words.chunks_exact(4)) {
        for (octets, word) in round.chunks_exact_mut(4).zip(words) {
            octets.copy_from_slice(&word.to_le_bytes());
        }
    }
    let mut hash = [zero];
    rounds(proof, &mut hash, &[&key.rounds; 1]);
    let mut hash = Zeroizing::new(hash[0].reverse().first_lane());
    // Times x, since POLYVAL divides by it: without a branch on the bit that falls out.
    let carry = 0u128.wrapping_sub(*hash >> 127);
    *hash = (*hash << 1) ^ (carry & POLYNOMIAL);
    let first = V::first(proof, *hash);
    let mut power = first;
    for i in (0..POWERS).rev() {
        power.store(&mut key.powers[i * BLOCK..(i + 1) * BLOCK]);
        let mut sum = Sum::new(proof);
        sum.add(power, first);
        power = sum.reduce(proof);
    }
}

/// Encrypts every text and writes every tag.
#[inline(always)]
pub(super) fn seal<V: Vector>(proof: V::Proof, messages: &mut [Message<'_>]) {
    for messages in messages.chunks_mut(GROUP) {
        let mut masks = [0; GROUP * BLOCK];
        tag_masks::<V>(proof, messages, &mut masks);
        encrypt::<V>(proof, messages);
        for (message, mask) in messages.iter_mut().zip(masks.chunks_exact(BLOCK)) {
            let tag = hash::<V>(proof, message.key, message.head, message.text());
            // As a word: the CPU takes a masked store for one of the whole register
            // and would hold up the loads of the frame that lies behind the tag.
            let tag = tag.first_lane() ^ word(mask);
            message.tag_mut().copy_from_slice(&tag.to_le_bytes());
        }
        masks.zeroize();
    }
}

/// Decrypts every text, and zeroes those whose tag does not verify.
#[inline(always)]
pub(super) fn open<V: Vector>(proof: V::Proof, messages: &mut [Message<'_>]) {
    for messages in messages.chunks_mut(GROUP) {
        let mut masks = [0; GROUP * BLOCK];
        let mut differences = [0u128; GROUP];
        tag_masks::<V>(proof, messages, &mut masks);
        for (i, message) in messages.iter().enumerate() {
            let tag = hash::<V>(proof, message.key, message.head, message.text());
            let difference = tag.first_lane() ^ word(&masks[i * BLOCK..(i + 1) * BLOCK]);
            differences[i] = difference ^ word(message.tag());
        }
        encrypt::<V>(proof, messages);
        masks.zeroize();
        for (message, &difference) in messages.iter_mut().zip(&differences) {
            // Every bit of both tags was compared; only the verdict is branched on.
            message.verified = difference == 0 && message.tag().len() == BLOCK;
            if !message.verified {
                message.payload.fill(0);
            }
        }
    }
}

/// A block as a number, its first octet the lowest; a shorter one is no tag of ours.
#[inline(always)]
fn word(octets: &[u8]) -> u128 {
    octets
        .first_chunk()
        .map_or(0, |octets| u128::from_le_bytes(*octets))
}

/// AES of one register for each of `keys`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays in step")]
fn rounds<V: Vector, const N: usize>(
    proof: V::Proof,
    blocks: &mut [V; N],
    keys: &[&[[u8; BLOCK]; ROUNDS]; N],
) {
    for i in 0..N {
        blocks[i] = blocks[i].xor(V::splat(proof, &keys[i][0]));
    }
    for round in 1..ROUNDS - 1 {
        for i in 0..N {
            blocks[i] = blocks[i].round(V::splat(proof, &keys[i][round]));
        }
    }
    for i in 0..N {
        blocks[i] = blocks[i].last_round(V::splat(proof, &keys[i][ROUNDS - 1]));
    }
}

/// AES of the first counter block of each message, one message a lane.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays in step")]
fn tag_masks<V: Vector>(
    proof: V::Proof,
    messages: &[Message<'_>],
    masks: &mut [u8; GROUP * BLOCK],
) {
    const REGISTERS: usize = 4;
    let together = REGISTERS * V::LANES;
    for (messages, masks) in messages
        .chunks(together)
        .zip(masks.chunks_mut(together * BLOCK))
    {
        let first = &messages[0];
        let at = |lane: usize| messages.get(lane).unwrap_or(first);
        let mut counters = [[0; BLOCK]; GROUP];
        for (counter, message) in counters.iter_mut().zip(messages) {
            counter[..12].copy_from_slice(&message.nonce);
            counter[15] = 1;
        }
        let mut blocks = [V::splat_word(proof, 0); REGISTERS];
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = V::load(proof, &counters.as_flattened()[i * V::OCTETS..]);
        }
        if messages
            .iter()
            .all(|message| std::ptr::eq(message.key, first.key))
        {
            rounds(proof, &mut blocks, &[&first.key.rounds; REGISTERS]);
        } else {
            for round in 0..ROUNDS {
                for i in 0..REGISTERS {
                    let key = V::gather(
                        proof,
                        [
                            &at(i * V::LANES).key.rounds[round],
                            &at(i * V::LANES + 1).key.rounds[round],
                            &at(i * V::LANES + 2).key.rounds[round],
                            &at(i * V::LANES + 3).key.rounds[round],
                        ],
                    );
                    blocks[i] = match round {
                        0 => blocks[i].xor(key),
                        round if round == ROUNDS - 1 => blocks[i].last_round(key),
                        _ => blocks[i].round(key),
                    };
                }
            }
        }
        for (i, masks) in masks.chunks_mut(V::OCTETS).enumerate() {
            blocks[i].store(masks);
        }
    }
}

/// Counter mode over all texts.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several arrays in step")]
fn encrypt<'m, V: Vector>(proof: V::Proof, messages: &mut [Message<'m>]) {
    let Some(first) = messages.first().map(|message| message.key) else {
        return;
    };
    let mut keys: [&'m [[u8; BLOCK]; ROUNDS]; PIPELINE] = [&first.rounds; PIPELINE];
    let mut blocks = [V::splat_word(proof, 0); PIPELINE];
    let mut texts: [&mut [u8]; PIPELINE] = Default::default();
    let mut waiting = 0;
    for message in messages {
        let key = message.key;
        let nonce = V::splat_word(proof, nonce_word(&message.nonce));
        let mut counter = 2u32;
        for text in message.text_mut().chunks_mut(V::OCTETS) {
            keys[waiting] = &key.rounds;
            blocks[waiting] = nonce.count(counter);
            texts[waiting] = text;
            counter = counter.wrapping_add(V::LANES as u32);
            waiting += 1;
            if waiting == PIPELINE {
                rounds(proof, &mut blocks, &keys);
                for i in 0..PIPELINE {
                    apply(proof, blocks[i], std::mem::take(&mut texts[i]));
                }
                waiting = 0;
            }
        }
    }
    if waiting > 0 {
        rounds(proof, &mut blocks, &keys);
        for i in 0..waiting {
            apply(proof, blocks[i], std::mem::take(&mut texts[i]));
        }
    }
}

#[inline(always)]
fn apply<V: Vector>(proof: V::Proof, stream: V, text: &mut [u8]) {
    if text.len() == V::OCTETS {
        V::load(proof, text).xor(stream).store(text);
    } else {
        V::load_short(proof, text).xor(stream).store(text);
    }
}

/// The nonce as the low octets of a block whose counter is zero.
#[inline(always)]
fn nonce_word(nonce: &[u8; 12]) -> u128 {
    let mut low = [0; 8];
    let mut high = [0; 4];
    low.copy_from_slice(&nonce[..8]);
    high.copy_from_slice(&nonce[8..]);
    u128::from(u64::from_le_bytes(low)) | u128::from(u32::from_le_bytes(high)) << 64
}

/// GHASH of associated data, text and their lengths, in the first lane.
#[inline(always)]
fn hash<V: Vector>(proof: V::Proof, key: &Key, head: &[u8; Header::PREFIX_LEN], text: &[u8]) -> V {
    const HEAD: usize = Header::PREFIX_LEN.div_ceil(BLOCK);
    let octets = text.len();
    let lengths = ((Header::PREFIX_LEN as u128 * 8) << 64) | (octets as u128 * 8);
    let mut done = 0;
    let mut state = V::splat_word(proof, 0);
    loop {
        let stride = &text[done..octets.min(done + STRIDE * BLOCK)];
        let (begins, ends) = (done == 0, done + stride.len() == octets);
        done += stride.len();
        // The power of a block is the number of blocks from it to the end of the stride.
        let mut power = stride.len().div_ceil(BLOCK) + usize::from(ends);
        let mut sum = Sum::new(proof);
        if begins {
            let blocks = V::load_short(proof, head).reverse();
            sum.add(blocks, key.power::<V>(proof, power + HEAD));
        }
        let mut wholes = stride.chunks_exact(V::OCTETS);
        for whole in &mut wholes {
            let blocks = V::load(proof, whole).reverse().xor(state);
            state = V::splat_word(proof, 0);
            sum.add(blocks, key.power::<V>(proof, power));
            power -= V::LANES;
        }
        let rest = wholes.remainder();
        if !rest.is_empty() {
            let blocks = V::load_short(proof, rest).reverse().xor(state);
            sum.add(blocks, key.power::<V>(proof, power));
        }
        if ends {
            sum.add(V::first(proof, lengths), key.power::<V>(proof, 1));
            return sum.reduce(proof).reverse();
        }
        state = sum.reduce(proof);
    }
}

impl Key {
    /// The powers of the hash key for blocks of which `power` are left, this one counted.
    #[inline(always)]
    fn power<V: Vector>(&self, proof: V::Proof, power: usize) -> V {
        V::load(proof, &self.powers[(POWERS - power) * BLOCK..])
    }
}

/// A sum of products, not reduced: low, middle and high.
struct Sum<V>(V, V, V);

impl<V: Vector> Sum<V> {
    #[inline(always)]
    fn new(proof: V::Proof) -> Self {
        let zero = V::splat_word(proof, 0);
        Self(zero, zero, zero)
    }

    #[inline(always)]
    fn add(&mut self, blocks: V, powers: V) {
        self.0 = self.0.xor(blocks.product::<0x00>(powers));
        self.1 = self
            .1
            .xor(blocks.product::<0x01>(powers))
            .xor(blocks.product::<0x10>(powers));
        self.2 = self.2.xor(blocks.product::<0x11>(powers));
    }

    /// The sum over all lanes, divided by x^128 modulo the polynomial.
    #[inline(always)]
    fn reduce(self, proof: V::Proof) -> V {
        let polynomial = V::splat_word(proof, POLYNOMIAL >> 64);
        let middle = self
            .1
            .xor(self.0.swap_halves())
            .xor(self.0.product::<0x00>(polynomial));
        self.2
            .xor(middle.swap_halves())
            .xor(middle.product::<0x00>(polynomial))
            .fold()
    }
}
