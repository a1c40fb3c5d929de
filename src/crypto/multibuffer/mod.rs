//! AES-256-GCM over many frames in one call, each with a key of its own, in
//! place: with AVX-512 four blocks an instruction, with AVX2 and VAES two.
//!
//! It never chooses a nonce and knows nothing of headers but their length. A
//! path is used only where the CPU has its instructions and it agreed with
//! `ring` in a self-test when it was first asked for; elsewhere there is no
//! [`Path`], and the record layer does without. Serves the draft's
//! §Authenticated Encryption.
#![allow(
    unsafe_code,
    reason = "vector instructions; `vector` says why each is sound"
)]
#![allow(
    clippy::inline_always,
    reason = "what uses vector instructions must end up in the function that enables them"
)]

#[cfg(target_arch = "x86_64")]
mod gcm;
#[cfg(target_arch = "x86_64")]
mod hash;
#[cfg(target_arch = "x86_64")]
mod vector;

use super::record::{IV_LEN, KEY_LEN, TAG_LEN};
use crate::wire::Header;
use ring::aead;
use std::sync::OnceLock;
use zeroize::Zeroize;

/// Round keys of AES-256.
const ROUNDS: usize = 15;
/// Powers of the hash key that are kept.
const POWERS: usize = 19;
/// Zeros behind them, for lanes that hold no block.
const PADDING: usize = 3;
const BLOCK: usize = 16;

/// An implementation that this CPU can run and that agreed with `ring`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path(Width);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    #[cfg(target_arch = "x86_64")]
    Four(vector::Proof512),
    #[cfg(target_arch = "x86_64")]
    Two(vector::Proof256),
}

/// An expanded key, wiped when dropped.
#[repr(align(64))]
pub struct Key {
    rounds: [[u8; BLOCK]; ROUNDS],
    /// From the highest power to the first, then zeros.
    powers: [u8; (POWERS + PADDING) * BLOCK],
}

/// A frame to be sealed or opened.
pub struct Message<'a> {
    /// Its key.
    pub key: &'a Key,
    /// Its nonce. For sealing, one that was never used with the key.
    pub nonce: [u8; IV_LEN],
    /// Associated data.
    pub head: &'a [u8; Header::PREFIX_LEN],
    /// Plaintext or ciphertext, then the tag: written by sealing, read by opening.
    pub payload: &'a mut [u8],
    /// Written by opening: whether the tag verified. If not, all of `payload` was zeroed.
    pub verified: bool,
}

impl<'a> Message<'a> {
    /// No message yet: a place in an array.
    pub fn place(key: &'a Key) -> Self {
        Self {
            key,
            nonce: [0; IV_LEN],
            head: &[0; Header::PREFIX_LEN],
            payload: &mut [],
            verified: false,
        }
    }

    fn text_octets(&self) -> usize {
        self.payload.len().saturating_sub(TAG_LEN)
    }
}

impl Path {
    /// The widest path, if any. The first call tests it.
    pub fn best() -> Option<Self> {
        Self::all().first().copied()
    }

    /// Every path there is, the widest first. The first call tests them.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Path>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut paths = Self::supported();
            paths.retain(|path| path.agrees());
            paths
        })
    }

    /// What the CPU can run, the widest first; not tested.
    fn supported() -> Vec<Self> {
        let mut paths = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            paths.extend(vector::Proof512::find().map(|proof| Self(Width::Four(proof))));
            paths.extend(vector::Proof256::find().map(|proof| Self(Width::Two(proof))));
        }
        paths
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Width::Four(_) => "vaes-avx512",
            #[cfg(target_arch = "x86_64")]
            Width::Two(_) => "vaes-avx2",
        }
    }

    /// Octets of the longest text that it seals and opens at least as fast as
    /// anything else here, alone or together (`benches/multibuffer.rs`).
    pub const fn text_octets_max(self) -> usize {
        match self.0 {
            // In parts of ring's time, alone: 64 octets 0.26, 256 octets 0.37, 1 KiB 0.56,
            // 4 KiB 0.71 and aws-lc-rs 0.76, 16 KiB 0.93 and aws-lc-rs 0.67.
            #[cfg(target_arch = "x86_64")]
            Width::Four(_) => 4096,
            // Alone: 64 octets 0.33, 256 octets 0.53, 1 KiB 0.94, 4 KiB 1.27.
            #[cfg(target_arch = "x86_64")]
            Width::Two(_) => 1024,
        }
    }

    /// Expands a key. Boxed, so that moving it leaves no copy behind.
    pub fn key(self, octets: &[u8; KEY_LEN]) -> Box<Key> {
        let mut key = Box::new(Key {
            rounds: [[0; BLOCK]; ROUNDS],
            powers: [0; (POWERS + PADDING) * BLOCK],
        });
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Four(proof) => unsafe { wide512::expand(proof, octets, &mut key) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Two(proof) => unsafe { wide256::expand(proof, octets, &mut key) },
        }
        key
    }

    /// Seals every message. A payload without room for its tag is a bug of the caller.
    pub fn seal(self, messages: &mut [Message<'_>]) {
        assert!(
            messages
                .iter()
                .all(|message| message.payload.len() >= TAG_LEN),
            "a payload has room for its tag"
        );
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Four(proof) => unsafe { wide512::seal(proof, messages) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Two(proof) => unsafe { wide256::seal(proof, messages) },
        }
    }

    /// Opens every message: sets `verified`, and zeroes the payload where it is false.
    pub fn open(self, messages: &mut [Message<'_>]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Four(proof) => unsafe { wide512::open(proof, messages) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has the instructions.
            Width::Two(proof) => unsafe { wide256::open(proof, messages) },
        }
    }

    /// The self-test: messages of every length up to past a stride, two keys in
    /// turn, sealed as `ring` seals them, opened, and refused when changed.
    fn agrees(self) -> bool {
        const LENGTHS: usize = 300;
        let octets = [[0x5a; KEY_LEN], std::array::from_fn(|i| i as u8)];
        let keys = octets.each_ref().map(|octets| self.key(octets));
        let references = octets.each_ref().map(reference);
        let (Some(one), Some(two)) = (&references[0], &references[1]) else {
            return false;
        };
        let head: [u8; Header::PREFIX_LEN] = std::array::from_fn(|i| 0xc0 ^ i as u8);
        let nonce = |length: usize| [length as u8; IV_LEN];
        let plain = |length: usize| (0..length).map(|i| (i * 7) as u8).collect::<Vec<u8>>();
        let mut payloads: Vec<_> = (0..LENGTHS).map(plain).collect();
        for payload in &mut payloads {
            payload.resize(payload.len() + TAG_LEN, 0);
        }
        let batch = |payloads: &mut [Vec<u8>], seals: bool| {
            let mut messages: Vec<_> = payloads
                .iter_mut()
                .enumerate()
                .map(|(length, payload)| Message {
                    nonce: nonce(length),
                    head: &head,
                    payload,
                    ..Message::place(&keys[length % 2])
                })
                .collect();
            if seals {
                self.seal(&mut messages);
            } else {
                self.open(&mut messages);
            }
            messages
                .iter()
                .map(|message| message.verified)
                .collect::<Vec<_>>()
        };
        batch(&mut payloads, true);
        for (length, payload) in payloads.iter().enumerate() {
            let mut expected = plain(length);
            let key = if length % 2 == 0 { one } else { two };
            let sealed = key.seal_in_place_append_tag(
                aead::Nonce::assume_unique_for_key(nonce(length)),
                aead::Aad::from(head),
                &mut expected,
            );
            if sealed.is_err() || expected != *payload {
                return false;
            }
        }
        let changed = |length: usize| length % 5 == 3;
        for (length, payload) in payloads.iter_mut().enumerate() {
            if changed(length) {
                payload[length + length % TAG_LEN] ^= 1 << (length % 8);
            }
        }
        let verdicts = batch(&mut payloads, false);
        (0..LENGTHS).all(|length| {
            let payload = &payloads[length];
            if changed(length) {
                !verdicts[length] && payload.iter().all(|&octet| octet == 0)
            } else {
                verdicts[length] && payload[..length] == plain(length)
            }
        })
    }
}

fn reference(octets: &[u8; KEY_LEN]) -> Option<aead::LessSafeKey> {
    aead::UnboundKey::new(&aead::AES_256_GCM, octets)
        .ok()
        .map(aead::LessSafeKey::new)
}

impl Drop for Key {
    fn drop(&mut self) {
        self.rounds.zeroize();
        self.powers.zeroize();
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// The three operations, compiled for one set of instructions. The proof that
/// each takes says that the CPU has them, which is all that a caller must see to.
macro_rules! compiled {
    ($module:ident, $vector:ident, $lanes:literal, $proof:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::vector::{$proof, $vector};
            use super::{KEY_LEN, Key, Message, gcm};

            #[target_feature(enable = $features)]
            pub(super) fn expand(proof: $proof, octets: &[u8; KEY_LEN], key: &mut Key) {
                gcm::expand::<$vector>(proof, octets, key);
            }

            #[target_feature(enable = $features)]
            fn group<const F: usize, const ONE_KEY: bool, const ALIKE: bool, const SEALS: bool>(
                proof: $proof,
                messages: [&mut Message<'_>; F],
            ) {
                gcm::group::<$vector, F, ONE_KEY, ALIKE, SEALS>(proof, messages);
            }

            impl gcm::Compiled for $vector {
                #[inline(always)]
                fn group<
                    const F: usize,
                    const ONE_KEY: bool,
                    const ALIKE: bool,
                    const SEALS: bool,
                >(
                    proof: $proof,
                    messages: [&mut Message<'_>; F],
                ) {
                    // SAFETY: the proof says that the CPU has the instructions.
                    unsafe { group::<F, ONE_KEY, ALIKE, SEALS>(proof, messages) }
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn seal(proof: $proof, messages: &mut [Message<'_>]) {
                gcm::seal::<$vector, $lanes>(proof, messages);
            }

            #[target_feature(enable = $features)]
            pub(super) fn open(proof: $proof, messages: &mut [Message<'_>]) {
                gcm::open::<$vector, $lanes>(proof, messages);
            }
        }
    };
}

compiled!(
    wide512,
    Wide512,
    4,
    Proof512,
    "avx2,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq"
);
compiled!(wide256, Wide256, 2, Proof256, "avx2,vaes,vpclmulqdq");

#[cfg(test)]
mod tests;
