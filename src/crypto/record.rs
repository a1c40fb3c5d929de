//! Sealing and opening one frame (draft §Key Schedule and Nonces, handshake
//! binding §6.4): nonce is the initialization vector xor the sequence number,
//! associated data is the 21-octet header prefix. It keeps no sequence: who
//! calls decides that a (key, sequence) is used once.

use std::hint::black_box;
use std::sync::OnceLock;

use aws_lc_rs::aead as aws_lc;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use super::multibuffer::{Key, Message, Path};
use super::{AeadPath, Suite};
use crate::limits;
use crate::wire::Header;

/// Octets of an AEAD tag.
pub const TAG_LEN: usize = 16;
/// Octets of an AEAD key.
pub const KEY_LEN: usize = 32;
/// Octets of an initialization vector and of a nonce.
pub const IV_LEN: usize = 12;

/// AEAD key and initialization vector. Wiped when dropped.
pub struct KeyIv {
    /// The key.
    pub key: Zeroizing<[u8; KEY_LEN]>,
    /// The initialization vector.
    pub iv: Zeroizing<[u8; IV_LEN]>,
}

impl KeyIv {
    pub(super) fn zero() -> Self {
        Self {
            key: Zeroizing::new([0; KEY_LEN]),
            iv: Zeroizing::new([0; IV_LEN]),
        }
    }

    /// From their octets.
    pub fn new(key: &[u8; KEY_LEN], iv: &[u8; IV_LEN]) -> Self {
        Self {
            key: Zeroizing::new(*key),
            iv: Zeroizing::new(*iv),
        }
    }

    /// The key of frames under `suite`, for the selected [`AeadPath`].
    pub fn into_traffic_key(self, suite: Suite) -> TrafficKey {
        self.into_traffic_key_for(suite, AeadPath::selected())
    }

    /// The key of frames under `suite`, for `path`.
    pub fn into_traffic_key_for(self, suite: Suite, path: AeadPath) -> TrafficKey {
        let is_aes = suite == Suite::Aes256Gcm;
        let batch = path.path().filter(|_| is_aes);
        TrafficKey {
            suite,
            ring: OnceLock::new(),
            aws_lc: OnceLock::new(),
            long_octets: match (is_aes && path != AeadPath::Ring, batch) {
                (false, _) => usize::MAX,
                (true, Some(path)) => path.text_octets_max().max(LONG_OCTETS),
                (true, None) => LONG_OCTETS,
            },
            batch: batch.map(|path| (path, path.key(&self.key))),
            octets: Box::new(self.key),
            iv: self.iv,
        }
    }
}

impl std::fmt::Debug for KeyIv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyIv")
    }
}

/// The tag of a frame does not verify; its payload was zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("frame tag does not verify")]
pub struct OpenError;

/// Octets of text above which aws-lc-rs is faster than `ring` (measured with
/// VAES, in parts of `ring`'s time: 512 octets 1.1, 1 KiB 0.96, 2 KiB 0.75,
/// 4 KiB 0.76, 16 KiB 0.67, 64 KiB 0.62).
const LONG_OCTETS: usize = 1024;

/// Seals or opens the frames of one direction, epoch, suite and channel.
///
/// Each frame is worked on with what is fastest for its length; the key of an
/// implementation is expanded when its first frame comes.
pub struct TrafficKey {
    suite: Suite,
    // Boxed, so that moving the TrafficKey leaves no copy behind.
    octets: Box<Zeroizing<[u8; KEY_LEN]>>,
    /// For what the others are not for.
    ring: OnceLock<Box<LessSafeKey>>,
    /// For texts of more than `long_octets`.
    aws_lc: OnceLock<Box<aws_lc::LessSafeKey>>,
    long_octets: usize,
    /// For short frames, and those that are worked on together, where the CPU can.
    batch: Option<(Path, Box<Key>)>,
    iv: Zeroizing<[u8; IV_LEN]>,
}

/// Why sealing with a key that is there cannot fail.
const SHORT: &str = "a frame is shorter than an AEAD message may be";

/// What works on a frame.
enum Way<'k> {
    Batch(Path, &'k Key),
    Ring(&'k LessSafeKey),
    AwsLc(&'k aws_lc::LessSafeKey),
}

impl TrafficKey {
    /// The suite it was derived for.
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// Seals a frame in place. `frame` is 36 octets for the header, which are
    /// written, the plaintext, and 16 octets for the tag; `header.payload_length`
    /// is all but the header. Another layout is a bug of the caller.
    pub fn seal(&self, header: &Header, frame: &mut [u8]) {
        assert_eq!(
            Header::LEN + header.payload_length as usize,
            frame.len(),
            "the header states the length of the frame"
        );
        let (head, payload) = frame.split_at_mut(Header::LEN);
        head.copy_from_slice(&header.encode());
        let nonce = nonce(&self.iv, header.sequence);
        let way = self.way(payload.len() - TAG_LEN);
        if let Way::Batch(path, key) = way {
            path.seal(&mut [Message {
                nonce,
                head: prefix(head),
                payload,
                ..Message::place(key)
            }]);
            return;
        }
        let (plaintext, tag_space) = payload.split_at_mut(payload.len() - TAG_LEN);
        let prefix = header.prefix();
        match way {
            Way::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                let tag =
                    key.seal_in_place_separate_tag(nonce, aws_lc::Aad::from(prefix), plaintext);
                tag_space.copy_from_slice(tag.expect(SHORT).as_ref());
            }
            Way::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(prefix), plaintext);
                tag_space.copy_from_slice(tag.expect(SHORT).as_ref());
            }
            Way::Batch(..) => {}
        }
    }

    /// Opens ciphertext and tag in place and gives the plaintext. On failure
    /// all of `payload` is zeroed.
    pub fn open<'a>(
        &self,
        header: &Header,
        payload: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let nonce = nonce(&self.iv, header.sequence);
        let length = payload.len().saturating_sub(TAG_LEN);
        let opened = match self.way(length) {
            Way::Batch(path, key) => {
                let mut messages = [Message {
                    nonce,
                    head: &header.prefix(),
                    payload: &mut *payload,
                    ..Message::place(key)
                }];
                path.open(&mut messages);
                messages[0].verified
            }
            Way::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let opened = key.open_in_place(nonce, Aad::from(header.prefix()), payload);
                opened.is_ok()
            }
            Way::AwsLc(key) => {
                let nonce = aws_lc::Nonce::assume_unique_for_key(nonce);
                let opened = key.open_in_place(nonce, aws_lc::Aad::from(header.prefix()), payload);
                opened.is_ok()
            }
        };
        if opened {
            Ok(&mut payload[..length])
        } else {
            payload.fill(0);
            Err(OpenError)
        }
    }

    /// Seals frames as [`TrafficKey::seal`] does, each under its own key, many at once.
    pub fn seal_all<'a>(frames: impl IntoIterator<Item = (&'a Self, Header, &'a mut [u8])>) {
        let mut batch: Option<Batch<'a>> = None;
        for (key, header, frame) in frames {
            let Some((path, expanded)) = key.batched(frame.len()) else {
                key.seal(&header, frame);
                continue;
            };
            assert_eq!(
                Header::LEN + header.payload_length as usize,
                frame.len(),
                "the header states the length of the frame"
            );
            let (head, payload) = frame.split_at_mut(Header::LEN);
            head.copy_from_slice(&header.encode());
            let batch = batch.get_or_insert_with(|| Batch::new(path, expanded));
            batch.push(expanded, nonce(&key.iv, header.sequence), head, payload);
            if batch.is_full() {
                path.seal(batch.take());
            }
        }
        if let Some(mut batch) = batch {
            batch.path.seal(batch.take());
        }
    }

    /// Opens whole frames, header included, as [`TrafficKey::open`] does, each
    /// under its own key, many at once. Calls `verdict` once for each with its
    /// place among `frames`, in any order; `false` means that its payload was zeroed.
    pub fn open_all<'a>(
        frames: impl IntoIterator<Item = (&'a Self, Header, &'a mut [u8])>,
        mut verdict: impl FnMut(usize, bool),
    ) {
        let mut batch: Option<Batch<'a>> = None;
        let mut places = [0; limits::AEAD_BATCH_FRAMES];
        for (place, (key, header, frame)) in frames.into_iter().enumerate() {
            let (head, payload) = frame.split_at_mut(Header::LEN);
            let Some((path, expanded)) = key.batched(Header::LEN + payload.len()) else {
                verdict(place, key.open(&header, payload).is_ok());
                continue;
            };
            let batch = batch.get_or_insert_with(|| Batch::new(path, expanded));
            places[batch.count] = place;
            batch.push(expanded, nonce(&key.iv, header.sequence), head, payload);
            if batch.is_full() {
                batch.open(&places, &mut verdict);
            }
        }
        if let Some(mut batch) = batch {
            batch.open(&places, &mut verdict);
        }
    }

    /// What a frame of `octets` is worked on with, if not alone.
    fn batched(&self, octets: usize) -> Option<(Path, &Key)> {
        let (path, key) = self.batch.as_ref()?;
        (octets <= Header::LEN + path.text_octets_max() + TAG_LEN).then_some((*path, key))
    }

    /// What a text of `octets` is worked on with when it is alone.
    fn way(&self, octets: usize) -> Way<'_> {
        if let Some((path, key)) = &self.batch
            && octets <= path.text_octets_max()
        {
            return Way::Batch(*path, key);
        }
        if octets > self.long_octets {
            let key = self
                .aws_lc
                .get_or_init(|| Box::new(expanded_long(&self.octets)));
            return Way::AwsLc(key);
        }
        let key = self
            .ring
            .get_or_init(|| Box::new(expanded(self.suite, &self.octets)));
        Way::Ring(key)
    }
}

/// Frames that wait to be worked on together.
struct Batch<'a> {
    path: Path,
    messages: [Message<'a>; limits::AEAD_BATCH_FRAMES],
    count: usize,
}

impl<'a> Batch<'a> {
    fn new(path: Path, key: &'a Key) -> Self {
        Self {
            path,
            messages: std::array::from_fn(|_| Message::place(key)),
            count: 0,
        }
    }

    fn push(&mut self, key: &'a Key, nonce: [u8; IV_LEN], head: &'a [u8], payload: &'a mut [u8]) {
        self.messages[self.count] = Message {
            key,
            nonce,
            head: prefix(head),
            payload,
            verified: false,
        };
        self.count += 1;
    }

    fn is_full(&self) -> bool {
        self.count == self.messages.len()
    }

    fn take(&mut self) -> &mut [Message<'a>] {
        let count = std::mem::take(&mut self.count);
        &mut self.messages[..count]
    }

    fn open(&mut self, places: &[usize], verdict: &mut impl FnMut(usize, bool)) {
        let path = self.path;
        let messages = self.take();
        path.open(messages);
        for (message, &place) in messages.iter().zip(places) {
            verdict(place, message.verified);
        }
    }
}

/// What seals authenticate of a header.
fn prefix(head: &[u8]) -> &[u8; Header::PREFIX_LEN] {
    head.first_chunk()
        .expect("a header is longer than its prefix")
}

impl Drop for TrafficKey {
    fn drop(&mut self) {
        // Expanded keys have no wiping of their own: others are written over
        // them, and black_box keeps that from being dropped as dead.
        if let Some(key) = self.ring.get_mut() {
            **key = expanded(self.suite, &[0; KEY_LEN]);
            black_box(key);
        }
        if let Some(key) = self.aws_lc.get_mut() {
            **key = expanded_long(&[0; KEY_LEN]);
            black_box(key);
        }
        self.iv.zeroize();
    }
}

impl std::fmt::Debug for TrafficKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrafficKey({:?})", self.suite)
    }
}

/// The nonce of a sequence number: `iv` xor the sequence in the low eight octets.
pub fn nonce(iv: &[u8; IV_LEN], sequence: u64) -> [u8; IV_LEN] {
    let mut nonce = *iv;
    for (octet, sequence) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *octet ^= sequence;
    }
    nonce
}

fn expanded_long(key: &[u8; KEY_LEN]) -> aws_lc::LessSafeKey {
    let key = aws_lc::UnboundKey::new(&aws_lc::AES_256_GCM, key);
    aws_lc::LessSafeKey::new(key.expect("the suite has keys of 32 octets"))
}

fn expanded(suite: Suite, key: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(
        UnboundKey::new(suite.algorithm(), key).expect("both suites have keys of 32 octets"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ChannelId, Flags, FrameType};
    use proptest::prelude::*;

    fn key(suite: Suite) -> TrafficKey {
        KeyIv::new(&[5; 32], &[6; 12]).into_traffic_key(suite)
    }

    fn sealed(suite: Suite, sequence: u64, plaintext: &[u8]) -> (Header, Vec<u8>) {
        let header = Header {
            flags: Flags::ENC,
            frame_type: FrameType::PING,
            channel: ChannelId::BRIDGE,
            sequence,
            payload_length: (plaintext.len() + TAG_LEN) as u32,
        };
        let mut frame = vec![0; Header::LEN + plaintext.len() + TAG_LEN];
        frame[Header::LEN..Header::LEN + plaintext.len()].copy_from_slice(plaintext);
        key(suite).seal(&header, &mut frame);
        (header, frame)
    }

    #[test]
    fn sendable() {
        fn is_send<T: Send>() {}
        is_send::<TrafficKey>();
    }

    /// Whatever a frame is worked on with, it is the same frame: lengths about
    /// every border between implementations, each opened by every other.
    #[test]
    fn every_path_seals_alike() {
        let paths = AeadPath::ALL.into_iter().filter(|path| path.is_available());
        let keys: Vec<_> = paths
            .map(|path| KeyIv::new(&[5; 32], &[6; 12]).into_traffic_key_for(Suite::Aes256Gcm, path))
            .collect();
        for octets in [0, 1, 64, 1023, 1024, 1025, 4096, 4097, 70_000] {
            let text: Vec<u8> = (0..octets).map(|i| i as u8).collect();
            let header = Header {
                flags: Flags::ENC,
                frame_type: FrameType::PING,
                channel: ChannelId::BRIDGE,
                sequence: octets as u64,
                payload_length: (octets + TAG_LEN) as u32,
            };
            let frames: Vec<_> = keys
                .iter()
                .map(|key| {
                    let mut frame = vec![0; Header::LEN + octets + TAG_LEN];
                    frame[Header::LEN..][..octets].copy_from_slice(&text);
                    key.seal(&header, &mut frame);
                    frame
                })
                .collect();
            for (frame, key) in frames.iter().zip(keys.iter().rev()) {
                assert_eq!(frame, &frames[0]);
                let mut payload = frame[Header::LEN..].to_vec();
                assert_eq!(key.open(&header, &mut payload).unwrap(), &text[..]);
                let mut payload = frame[Header::LEN..].to_vec();
                payload[octets / 2] ^= 0x10;
                assert!(key.open(&header, &mut payload).is_err());
                assert!(payload.iter().all(|&octet| octet == 0));
            }
        }
    }

    /// `ring` forced is `ring` alone: nothing else is even expanded.
    #[test]
    fn ring_forced_is_ring_alone() {
        let key =
            KeyIv::new(&[5; 32], &[6; 12]).into_traffic_key_for(Suite::Aes256Gcm, AeadPath::Ring);
        for octets in [0, 64, 100_000] {
            assert!(matches!(key.way(octets), Way::Ring(_)));
            assert!(key.batched(octets).is_none());
        }
        assert!(key.aws_lc.get().is_none());
    }

    proptest! {
        #[test]
        fn round_trip(sequence: u64, plaintext: Vec<u8>) {
            for suite in Suite::ALL {
                let (header, mut frame) = sealed(suite, sequence, &plaintext);
                prop_assert_eq!(Header::decode(&frame), Ok(header));
                let opened = key(suite).open(&header, &mut frame[Header::LEN..]).unwrap();
                prop_assert_eq!(&*opened, &plaintext[..]);
            }
        }
    }

    /// Draft §Wire Format: every header field of the prefix is authenticated,
    /// and so is every octet of ciphertext and tag; a failure zeroes the payload.
    #[test]
    fn every_octet_is_authenticated() {
        for suite in Suite::ALL {
            let (header, frame) = sealed(suite, 7, b"text");
            for at in Header::LEN..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                assert!(
                    key(suite)
                        .open(&header, &mut changed[Header::LEN..])
                        .is_err()
                );
                assert!(changed[Header::LEN..].iter().all(|&octet| octet == 0));
            }
            for field in 0..5 {
                let mut other = header;
                match field {
                    0 => other.flags = Flags::ENC | Flags::URG,
                    1 => other.frame_type = FrameType::CLOSE,
                    2 => other.channel = ChannelId::CONTROL,
                    3 => other.sequence += 1,
                    _ => other.payload_length += 1,
                }
                let mut payload = frame[Header::LEN..].to_vec();
                assert!(key(suite).open(&other, &mut payload).is_err());
            }
            assert!(key(suite).open(&header, &mut [0; 15]).is_err());
            assert!(key(suite).open(&header, &mut []).is_err());
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", key(Suite::Aes256Gcm));
        assert_eq!(shown, "TrafficKey(Aes256Gcm)");
    }
}
