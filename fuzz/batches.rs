//! Any octets as a batch of frames that is sealed, changed here and there, and
//! opened, on every path of `crypto::multibuffer` that the CPU has, and held to
//! `ring` frame by frame. The fuzz target and an ordinary test both run it.
//!
//! The first octet says how many keys there are, the second whether all frames
//! have the length of the first; then eight octets make a frame ([`Frame::of`]).

use npamp_relay::crypto::multibuffer::{Message, Path};
use npamp_relay::crypto::{IV_LEN, KEY_LEN, TAG_LEN};
use npamp_relay::wire::Header;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Keys of a batch at most.
const KEYS_MAX: usize = 16;
/// Frames of a batch at most: more than a call puts in order at once.
const FRAMES_MAX: usize = 70;
/// Octets about a payload that nothing may write to: more than the widest register.
const FENCE: usize = 80;
const FENCE_OCTET: u8 = 0xfe;

/// What becomes of a frame between sealing and opening.
#[derive(Clone, Copy)]
enum Change {
    None,
    Head,
    Nonce,
    Key,
    Bit,
    Tag,
    Truncated,
    Swapped,
}

#[derive(Clone)]
struct Frame {
    key: usize,
    nonce: [u8; IV_LEN],
    head: [u8; Header::PREFIX_LEN],
    /// Text and tag, with a fence on either side.
    octets: Vec<u8>,
    change: Change,
    /// Which octet of it, and which bit.
    at: usize,
    bit: u8,
}

impl Frame {
    /// Octet 0: key; 1: class of length, change; 2 and 3: octets of text;
    /// 4 and 5: which octet is changed; 6: which bit; 7: text, nonce and header.
    fn of(octets: [u8; 8], keys: usize, place: usize, length: Option<usize>) -> Self {
        let [
            key,
            shape,
            length_high,
            length_low,
            at_high,
            at_low,
            bit,
            fill,
        ] = octets;
        let bound = [80, 600, 2200, 6000][usize::from(shape & 3)];
        let stated = usize::from(u16::from_be_bytes([length_high, length_low]));
        let length = length.unwrap_or(stated % (bound + 1));
        let text = (0..length).map(|i| (i * 13 + place) as u8 ^ fill);
        let fence = [FENCE_OCTET; FENCE];
        let tag = [0xa5; TAG_LEN];
        Self {
            key: usize::from(key) % keys,
            nonce: std::array::from_fn(|i| if i == 0 { place as u8 } else { fill ^ i as u8 }),
            head: std::array::from_fn(|i| fill.wrapping_mul(3) ^ i as u8),
            octets: fence
                .into_iter()
                .chain(text)
                .chain(tag)
                .chain(fence)
                .collect(),
            change: match shape >> 2 & 15 {
                1 => Change::Head,
                2 => Change::Nonce,
                3 => Change::Key,
                4 => Change::Bit,
                5 => Change::Tag,
                6 => Change::Truncated,
                7 => Change::Swapped,
                _ => Change::None,
            },
            at: usize::from(u16::from_be_bytes([at_high, at_low])),
            bit: 1 << (bit & 7),
        }
    }

    fn payload(&self) -> &[u8] {
        &self.octets[FENCE..self.octets.len() - FENCE]
    }

    fn is_fenced(&self) -> bool {
        let behind = self.octets.len() - FENCE;
        let fences = self.octets[..FENCE].iter().chain(&self.octets[behind..]);
        fences.into_iter().all(|&octet| octet == FENCE_OCTET)
    }

    fn change(&mut self, keys: usize) {
        let payload = self.octets.len() - 2 * FENCE;
        match self.change {
            Change::None => {}
            Change::Head => self.head[self.at % Header::PREFIX_LEN] ^= self.bit,
            Change::Nonce => self.nonce[self.at % IV_LEN] ^= self.bit,
            // The same one if there is no other.
            Change::Key => self.key = (self.key + 1) % keys,
            Change::Bit => self.octets[FENCE + self.at % payload] ^= self.bit,
            Change::Tag => {
                self.octets[FENCE + payload - 1 - self.at % TAG_LEN] ^= self.bit;
            }
            Change::Truncated => {
                let left = self.at % payload;
                self.octets.drain(FENCE + left..FENCE + payload);
            }
            // The same octets in another order: what only adds blocks up would not see it.
            Change::Swapped => {
                let last = payload - 1;
                let at = self.at % payload;
                self.octets[FENCE..].swap(at, last - at.min(last));
            }
        }
    }

    fn sealed(&self, keys: &[LessSafeKey]) -> Vec<u8> {
        let payload = self.payload();
        let mut text = payload[..payload.len() - TAG_LEN].to_vec();
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        keys[self.key]
            .seal_in_place_append_tag(nonce, Aad::from(self.head), &mut text)
            .expect("a short message");
        text
    }

    fn opened(&self, keys: &[LessSafeKey]) -> Option<Vec<u8>> {
        let mut payload = self.payload().to_vec();
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let text = keys[self.key].open_in_place(nonce, Aad::from(self.head), &mut payload);
        text.ok().map(|text| text.to_vec())
    }
}

fn key_octets(key: usize) -> [u8; KEY_LEN] {
    std::array::from_fn(|i| (i * 31 + key * 77 + 1) as u8)
}

/// Panics if any path differs from `ring`, or writes beside a payload.
pub fn check(input: &[u8]) {
    let Some((&[keys, alike], frames)) = input.split_first_chunk() else {
        return;
    };
    let keys = usize::from(keys) % KEYS_MAX + 1;
    let mut frames_made: Vec<Frame> = Vec::new();
    for (place, octets) in frames.as_chunks().0.iter().take(FRAMES_MAX).enumerate() {
        let first = frames_made.first().filter(|_| alike & 1 == 1);
        let length = first.map(|frame| frame.payload().len() - TAG_LEN);
        frames_made.push(Frame::of(*octets, keys, place, length));
    }
    let ring: Vec<_> = (0..keys)
        .map(|key| UnboundKey::new(&AES_256_GCM, &key_octets(key)).map(LessSafeKey::new))
        .collect::<Result<_, _>>()
        .expect("keys of 32 octets");
    for &path in Path::all() {
        check_on(path, frames_made.clone(), &ring);
    }
}

fn check_on(path: Path, mut frames: Vec<Frame>, ring: &[LessSafeKey]) {
    let name = path.name();
    let keys: Vec<_> = (0..ring.len())
        .map(|key| path.key(&key_octets(key)))
        .collect();
    let work = |frames: &mut [Frame], seals: bool| -> Vec<bool> {
        let mut messages: Vec<_> = frames
            .iter_mut()
            .map(|frame| {
                let behind = frame.octets.len() - FENCE;
                Message {
                    nonce: frame.nonce,
                    head: &frame.head,
                    payload: &mut frame.octets[FENCE..behind],
                    ..Message::place(&keys[frame.key])
                }
            })
            .collect();
        if seals {
            path.seal(&mut messages);
        } else {
            path.open(&mut messages);
        }
        messages.iter().map(|message| message.verified).collect()
    };

    let expected: Vec<_> = frames.iter().map(|frame| frame.sealed(ring)).collect();
    work(&mut frames, true);
    for (place, (frame, expected)) in frames.iter().zip(&expected).enumerate() {
        assert!(frame.payload() == expected, "{name}: frame {place} sealed");
        assert!(frame.is_fenced(), "{name}: beside frame {place} sealed");
    }

    for frame in &mut frames {
        frame.change(ring.len());
    }
    let expected: Vec<_> = frames.iter().map(|frame| frame.opened(ring)).collect();
    let verdicts = work(&mut frames, false);
    for (place, (frame, expected)) in frames.iter().zip(&expected).enumerate() {
        assert_eq!(
            verdicts[place],
            expected.is_some(),
            "{name}: verdict on frame {place}"
        );
        assert!(frame.is_fenced(), "{name}: beside frame {place} opened");
        let payload = frame.payload();
        match expected {
            Some(text) => {
                assert!(
                    payload[..text.len()] == text[..],
                    "{name}: frame {place} opened"
                );
            }
            None => assert!(
                payload.iter().all(|&octet| octet == 0),
                "{name}: frame {place} kept"
            ),
        }
    }
}
