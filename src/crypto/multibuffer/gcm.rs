//! AES-256-GCM (NIST SP 800-38D) over several messages, for any [`Vector`].
//!
//! No branch and no address depends on a key, a plaintext or a tag; lengths and
//! the number of messages are public. As many messages as a register has lanes
//! are worked on in step, each with registers of its own: what one waits for is
//! hidden by the others, and what all have once (counter blocks of the tags,
//! sums, lengths) shares one register. The processor overlaps one such group
//! with the next, which depends on nothing of it.
//!
//! What is not wiped: a [`Key`] is, when dropped, and so are the words it is
//! expanded from, but not what the compiler moves out of registers during a
//! call (round keys, powers, key stream). No name here reaches those copies, so
//! no scratch space handed in could hold them; they lie in the stack frames of
//! a call, with AVX-512 up to 8 KiB, until later calls write over them. To zero
//! that much after each call would cost, by estimate, as much as a short frame
//! or two, so it is not done.

use super::hash::{STRIDE, Sum, hash_key};
use super::vector::{BLOCK, Vector};
use super::{Key, Message, POWERS, ROUNDS};
use crate::wire::Header;
use zeroize::{Zeroize, Zeroizing};

/// Messages that are put in order of length together.
const ORDERED: usize = 64;
/// Octets of text from which a message is worked on alone: by then it has
/// enough registers of its own to hide what it waits for.
const ALONE: usize = 2048;
/// The same for messages of different keys, whose round keys fill the registers
/// (measured with AVX-512, batches of 8, in parts of `ring`'s time: 256 octets
/// in step 0.56, alone 0.38; 64 octets 0.28 and 0.33).
const ALONE_KEY: usize = 192;
/// Blocks of associated data.
const HEAD: usize = Header::PREFIX_LEN.div_ceil(BLOCK);

// Associated data, a stride of text and the lengths.
const _: () = assert!(HEAD + STRIDE < POWERS);

/// The block for each number below `$count`, at most four, written out: what
/// lies in an array stays in registers only if every index is a constant.
macro_rules! each {
    ($i:ident < $count:expr, $block:block) => {
        const { assert!($count <= 4) }
        each!(@ $i, 0, $count, $block);
        each!(@ $i, 1, $count, $block);
        each!(@ $i, 2, $count, $block);
        each!(@ $i, 3, $count, $block);
    };
    (@ $i:ident, $value:literal, $count:expr, $block:block) => {
        if $value < $count {
            let $i: usize = $value;
            $block
        }
    };
}

/// [`group`], compiled for the instructions of a vector: functions of their own,
/// since all of them in one would have a frame too large for the stack when they
/// are not optimised.
pub(super) trait Compiled: Vector {
    /// [`group`].
    fn group<const F: usize, const ONE_KEY: bool, const ALIKE: bool, const SEALS: bool>(
        proof: Self::Proof,
        messages: [&mut Message<'_>; F],
    );
}

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
    let mut block = zero;
    for (round, octets) in key.rounds.iter().enumerate() {
        let round_key = V::splat(proof, octets);
        block = match round {
            0 => block.xor(round_key),
            round if round == ROUNDS - 1 => block.last_round(round_key),
            _ => block.round(round_key),
        };
    }
    key.raise::<V>(proof, hash_key(block.reverse().first_lane()));
}

/// Encrypts every text and writes every tag. `LANES` is the vector's.
#[inline(always)]
pub(super) fn seal<V: Compiled, const LANES: usize>(proof: V::Proof, messages: &mut [Message<'_>]) {
    all::<V, LANES, true>(proof, messages);
}

/// Decrypts every text, and zeroes those whose tag does not verify. `LANES` is the vector's.
#[inline(always)]
pub(super) fn open<V: Compiled, const LANES: usize>(proof: V::Proof, messages: &mut [Message<'_>]) {
    all::<V, LANES, false>(proof, messages);
}

#[inline(always)]
fn all<V: Compiled, const LANES: usize, const SEALS: bool>(
    proof: V::Proof,
    messages: &mut [Message<'_>],
) {
    const { assert!(LANES == V::LANES) }
    for messages in messages.chunks_mut(ORDERED) {
        let mut order = [0; ORDERED];
        let short = order_by_registers::<V>(messages, &mut order);
        let (short, long) = order[..messages.len()].split_at(short);
        let mut groups = short.chunks_exact(LANES);
        for group in &mut groups {
            let group = std::array::from_fn(|lane| usize::from(group[lane]));
            let group = messages.get_disjoint_mut(group);
            group_of::<V, LANES, SEALS>(proof, group.expect("an order names each message once"));
        }
        // Fewer than a group are as fast alone.
        for &at in groups.remainder() {
            group_of::<V, 1, SEALS>(proof, [&mut messages[usize::from(at)]]);
        }
        for &at in long {
            group_of::<V, 1, SEALS>(proof, [&mut messages[usize::from(at)]]);
        }
    }
}

/// Fills `order` with the places of `messages`, those with the fewest registers
/// of text first; gives how many are not worked on alone.
#[inline(always)]
fn order_by_registers<V: Vector>(messages: &[Message<'_>], order: &mut [u8; ORDERED]) -> usize {
    // One register for the shortest of BLOCK octets, and one for all long ones.
    const CLASSES: usize = ALONE / (2 * BLOCK) + 2;
    let class = |message: &Message<'_>| {
        let octets = message.text_octets();
        if octets >= ALONE {
            CLASSES - 1
        } else {
            octets.div_ceil(V::OCTETS)
        }
    };
    let first = messages.first().map_or(0, class);
    if messages.iter().all(|message| class(message) == first) {
        for (at, place) in order.iter_mut().enumerate() {
            *place = at as u8;
        }
        return if first == CLASSES - 1 {
            0
        } else {
            messages.len()
        };
    }
    let mut ends = [0u8; CLASSES];
    for message in messages {
        ends[class(message)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let short = usize::from(ends[CLASSES - 1]);
    for (at, message) in messages.iter().enumerate() {
        let end = &mut ends[class(message)];
        order[usize::from(*end)] = at as u8;
        *end += 1;
    }
    short
}

#[inline(always)]
fn group_of<V: Compiled, const F: usize, const SEALS: bool>(
    proof: V::Proof,
    messages: [&mut Message<'_>; F],
) {
    let first: *const Key = messages[0].key;
    if messages
        .iter()
        .all(|message| std::ptr::eq(message.key, first))
    {
        let octets = messages[0].payload.len();
        if messages
            .iter()
            .all(|message| message.payload.len() == octets)
        {
            V::group::<F, true, true, SEALS>(proof, messages);
        } else {
            V::group::<F, true, false, SEALS>(proof, messages);
        }
    } else if messages[0].text_octets() >= ALONE_KEY {
        for message in messages {
            V::group::<1, true, true, SEALS>(proof, [message]);
        }
    } else {
        V::group::<F, false, false, SEALS>(proof, messages);
    }
}

/// `F` messages in step: one, or as many as there are lanes. `ONE_KEY` says that they have one key,
/// `ALIKE` that they have one length, too.
#[inline(always)]
pub(super) fn group<
    V: Vector,
    const F: usize,
    const ONE_KEY: bool,
    const ALIKE: bool,
    const SEALS: bool,
>(
    proof: V::Proof,
    messages: [&mut Message<'_>; F],
) {
    let first = messages[0].key;
    let zero = V::splat_word(proof, 0);
    let mut frames = Frames {
        proof,
        keys: [first; F],
        nonces: [zero; F],
        heads: [&[0; Header::PREFIX_LEN]; F],
        texts: std::array::from_fn(|_| <&mut [u8]>::default()),
        blocks: [0; F],
        sums: [Sum(zero, zero, zero); F],
        mask: zero,
        behind: 1,
        counter: 2,
    };
    let mut lengths = [0; F];
    let mut tags: [&mut [u8]; F] = std::array::from_fn(|_| <&mut [u8]>::default());
    let mut verdicts: [Option<&mut bool>; F] = [const { None }; F];
    let mut messages = messages.into_iter();
    each!(f < F, {
        let Some(message) = messages.next() else {
            return;
        };
        let octets = message.text_octets();
        let (text, tag) = message.payload.split_at_mut(octets);
        frames.keys[f] = message.key;
        frames.nonces[f] = V::nonce(proof, &message.nonce);
        frames.blocks[f] = octets.div_ceil(BLOCK);
        frames.heads[f] = message.head;
        frames.texts[f] = text;
        lengths[f] = octets;
        tags[f] = tag;
        verdicts[f] = Some(&mut message.verified);
    });
    frames.mask = V::blend(&frames.nonces).xor(V::splat_word(proof, 1 << 120));
    frames.run::<ONE_KEY, ALIKE, SEALS>();
    let mut parts = [[zero; F]; 3];
    each!(f < F, {
        parts[0][f] = frames.sums[f].0;
        parts[1][f] = frames.sums[f].1;
        parts[2][f] = frames.sums[f].2;
    });
    let mut sum = Sum(
        V::fold_all(&parts[0]),
        V::fold_all(&parts[1]),
        V::fold_all(&parts[2]),
    );
    let length = |octets: usize| ((Header::PREFIX_LEN as u128 * 8) << 64) | (octets as u128 * 8);
    let mut hash_keys = V::splat(proof, first.hash_key());
    if !ONE_KEY {
        let mut each = [zero; F];
        each!(f < F, {
            each[f] = V::splat(proof, frames.keys[f].hash_key());
        });
        hash_keys = V::blend(&each);
    }
    let mut last = V::splat_word(proof, length(lengths[0]));
    if !ALIKE {
        let mut each = [zero; F];
        each!(f < F, {
            each[f] = V::splat_word(proof, length(lengths[f]));
        });
        last = V::blend(&each);
    }
    sum.add(last, hash_keys);
    let made = sum.reduce(proof).reverse().xor(frames.mask);
    let mut octets = [0; 4 * BLOCK];
    made.store(&mut octets[..V::OCTETS]);
    if SEALS {
        each!(f < F, {
            tags[f].copy_from_slice(&octets[f * BLOCK..(f + 1) * BLOCK]);
        });
        return;
    }
    each!(f < F, {
        // Every bit of both tags is compared; only the verdict is branched on.
        let difference = word(&octets[f * BLOCK..(f + 1) * BLOCK]) ^ word(tags[f]);
        let authentic = difference == 0 && tags[f].len() == BLOCK;
        if !authentic {
            frames.texts[f].fill(0);
            tags[f].fill(0);
        }
        if let Some(verdict) = &mut verdicts[f] {
            **verdict = authentic;
        }
    });
    octets.zeroize();
}

/// A block as a number, its first octet the lowest; a shorter one is no tag of ours.
#[inline(always)]
fn word(octets: &[u8]) -> u128 {
    octets
        .first_chunk()
        .map_or(0, |octets| u128::from_le_bytes(*octets))
}

/// The power for block `at` of `blocks`, to the end of its stride. `behind`
/// blocks are hashed after the last.
#[inline(always)]
fn power(blocks: usize, at: usize, behind: usize) -> usize {
    let left = blocks - at;
    let to_end = STRIDE - at % STRIDE;
    if left <= to_end {
        left + behind
    } else {
        to_end
    }
}

/// Texts that are worked on in step.
struct Frames<'m, V: Vector, const F: usize> {
    proof: V::Proof,
    keys: [&'m Key; F],
    nonces: [V; F],
    heads: [&'m [u8; Header::PREFIX_LEN]; F],
    texts: [&'m mut [u8]; F],
    /// Blocks of each text.
    blocks: [usize; F],
    sums: [Sum<V>; F],
    /// The first counter block of each, one a lane, and then what tags are masked with.
    mask: V,
    /// Blocks that are hashed after the text.
    behind: usize,
    /// Of the first block of text.
    counter: u32,
}

impl<V: Vector, const F: usize> Frames<'_, V, F> {
    /// Everything but what comes after the last block of text.
    #[inline(always)]
    fn run<const ONE_KEY: bool, const ALIKE: bool, const SEALS: bool>(&mut self) {
        let mut least = usize::MAX;
        let mut most = 0;
        each!(f < if ALIKE { 1 } else { F }, {
            least = least.min(self.texts[f].len() / V::OCTETS);
            most = most.max(self.texts[f].len().div_ceil(V::OCTETS));
        });
        let mut at = 0;
        if F == 1 {
            if least >= 4 {
                self.step::<4, true, true, ONE_KEY, ALIKE, SEALS>(0);
                at = 4;
                while least - at >= 4 {
                    self.step::<4, true, false, ONE_KEY, ALIKE, SEALS>(at);
                    at += 4;
                }
            }
        } else if least >= 2 {
            self.step::<2, true, true, ONE_KEY, ALIKE, SEALS>(0);
            at = 2;
            while least - at >= 2 {
                self.step::<2, true, false, ONE_KEY, ALIKE, SEALS>(at);
                at += 2;
            }
        }
        if at == 0 {
            if least >= 1 {
                self.step::<1, true, true, ONE_KEY, ALIKE, SEALS>(0);
            } else {
                self.step::<1, false, true, ONE_KEY, ALIKE, SEALS>(0);
            }
            at = 1;
        }
        while at < most {
            self.step::<1, false, false, ONE_KEY, ALIKE, SEALS>(at);
            at += 1;
        }
    }

    /// Registers `at` to `at + R` of every text, which are whole if `WHOLE`;
    /// otherwise they may be short or absent. `FIRST` makes the mask, too.
    #[inline(always)]
    fn step<
        const R: usize,
        const WHOLE: bool,
        const FIRST: bool,
        const ONE_KEY: bool,
        const ALIKE: bool,
        const SEALS: bool,
    >(
        &mut self,
        at: usize,
    ) {
        let proof = self.proof;
        let mut streams = [[self.mask; F]; R];
        each!(r < R, {
            let counters = ((at + r) * V::LANES) as u32;
            let counters = V::counters(proof, self.counter.wrapping_add(counters));
            each!(f < F, {
                streams[r][f] = self.nonces[f].xor(counters);
            });
        });
        macro_rules! round {
            ($round:literal, $apply:ident) => {
                let key = V::splat(proof, &self.keys[0].rounds[$round]);
                let mut keys = [key; F];
                if !ONE_KEY {
                    each!(f < F, {
                        keys[f] = V::splat(proof, &self.keys[f].rounds[$round]);
                    });
                }
                each!(r < R, {
                    each!(f < F, {
                        streams[r][f] = streams[r][f].$apply(keys[f]);
                    });
                });
                if FIRST {
                    let key = if ONE_KEY { key } else { V::blend(&keys) };
                    self.mask = self.mask.$apply(key);
                }
            };
        }
        round!(0, xor);
        round!(1, round);
        round!(2, round);
        round!(3, round);
        round!(4, round);
        round!(5, round);
        round!(6, round);
        round!(7, round);
        round!(8, round);
        round!(9, round);
        round!(10, round);
        round!(11, round);
        round!(12, round);
        round!(13, round);
        round!(14, last_round);
        if FIRST {
            each!(f < F, {
                let power = power(self.blocks[if ALIKE { 0 } else { f }], 0, self.behind) + HEAD;
                let key = self.keys[if ONE_KEY { 0 } else { f }];
                let head = V::load_short(proof, self.heads[f]);
                self.sums[f].add(head.reverse(), key.power(proof, power));
            });
        }
        each!(r < R, {
            each!(f < F, {
                self.apply::<WHOLE, FIRST, ONE_KEY, ALIKE, SEALS>(f, at + r, streams[r][f]);
            });
        });
    }

    /// The stream onto register `at` of text `f`, and the ciphertext into its sum.
    #[inline(always)]
    fn apply<
        const WHOLE: bool,
        const FIRST: bool,
        const ONE_KEY: bool,
        const ALIKE: bool,
        const SEALS: bool,
    >(
        &mut self,
        f: usize,
        at: usize,
        stream: V,
    ) {
        let proof = self.proof;
        let from = at * V::OCTETS;
        let length = self.texts[if ALIKE { 0 } else { f }].len();
        if !WHOLE && from >= length {
            return;
        }
        let ciphertext = if WHOLE || length - from >= V::OCTETS {
            let text = &mut self.texts[f][from..][..V::OCTETS];
            let before = V::load(proof, text);
            let after = before.xor(stream);
            after.store(text);
            if SEALS { after } else { before }
        } else {
            let text = &mut self.texts[f][from..];
            let before = V::load_short(proof, text);
            let after = before.xor(stream);
            after.store(text);
            if SEALS {
                after.keep(text.len())
            } else {
                before
            }
        };
        let mut block = ciphertext.reverse();
        let at = at * V::LANES;
        if !FIRST && at.is_multiple_of(STRIDE) {
            let sum = std::mem::replace(&mut self.sums[f], Sum::new(proof));
            block = block.xor(sum.reduce(proof).fold());
        }
        let power = power(self.blocks[if ALIKE { 0 } else { f }], at, self.behind);
        let key = self.keys[if ONE_KEY { 0 } else { f }];
        self.sums[f].add(block, key.power(proof, power));
    }
}
