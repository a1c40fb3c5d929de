//! One channel's two sequence spaces with their keys and epochs, and the
//! KEY_UPDATE payload. It never decides what an opened frame means.
//!
//! Keys are derived when first needed; those of a finished epoch are dropped,
//! and thereby zeroized, at once. Serves the N-PAMP draft, Channel
//! Architecture, Key Schedule and Nonces, Replay; rulings R3, R4, R24.

use crate::crypto::{MasterSecret, Suite, TAG_LEN, TrafficKey, UpdateBounds};
use crate::handshake::Side;
use crate::limits;
use crate::wire::{ChannelId, Flags, FrameType, Header, Tlv, tlv};
use std::time::Instant;

/// Where traffic keys come from.
pub(super) struct KeySource {
    pub(super) master: MasterSecret,
    pub(super) suite: Suite,
    pub(super) side: Side,
}

impl KeySource {
    fn sending(&self, channel: ChannelId, epoch: u64) -> TrafficKey {
        let direction = self.side.send_direction();
        self.master
            .traffic_key(direction, epoch, self.suite, channel)
    }

    fn receiving(&self, channel: ChannelId, epoch: u64) -> TrafficKey {
        let direction = self.side.receive_direction();
        self.master
            .traffic_key(direction, epoch, self.suite, channel)
    }
}

/// A frame as it waits for its seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsealed {
    pub(super) channel: ChannelId,
    pub(super) frame_type: FrameType,
    pub(super) flags: Flags,
    pub(super) payload: Vec<u8>,
}

impl Unsealed {
    /// Octets on the wire.
    pub(super) fn octets(&self) -> usize {
        Header::LEN + self.payload.len() + TAG_LEN
    }
}

/// Why a frame was not opened or not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Accepted before.
    Replay,
    /// Not authentic.
    Tag,
    /// Authentic, but frames before it are missing.
    Gap { expected: u64 },
    /// No sequence is left.
    Exhausted,
}

/// A channel that both sides may use.
pub(super) struct Channel {
    pub(super) id: ChannelId,
    /// Whether the peer takes frames on it.
    pub(super) peer_takes: bool,
    send: Sending,
    receive: Receiving,
}

#[derive(Default)]
struct Sending {
    key: Option<TrafficKey>,
    epoch: u64,
    /// Next sequence; also the number of frames sealed in this epoch.
    sequence: u64,
    octets: u64,
    /// When the epoch's first frame was sealed.
    used_since: Option<Instant>,
    update_requested: bool,
}

#[derive(Default)]
struct Receiving {
    key: Option<TrafficKey>,
    epoch: u64,
    expected: u64,
    /// What will be expected once the frames opened ahead of their turn are accepted.
    ahead: u64,
}

impl Channel {
    pub(super) fn new(id: ChannelId) -> Self {
        Self {
            id,
            peer_takes: false,
            send: Sending::default(),
            receive: Receiving::default(),
        }
    }

    /// Appends a frame to `out`, not sealed yet: room for its header, the
    /// payload, room for its tag. Its sequence is spent here, before the seal,
    /// so that no path can spend it twice.
    // Inlined, as are the others that pass a header on: one that is written field by field and
    // at once read whole waits for the writes, which costs more than all else here.
    #[inline]
    pub(super) fn append(
        &mut self,
        keys: &KeySource,
        frame: &Unsealed,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Header {
        let send = &mut self.send;
        let sequence = send.sequence;
        // Never wraps: the update bounds end an epoch long before.
        send.sequence += 1;
        send.octets += frame.payload.len() as u64;
        send.used_since.get_or_insert(now);
        send.key
            .get_or_insert_with(|| keys.sending(self.id, send.epoch));
        out.reserve(frame.octets());
        out.resize(out.len() + Header::LEN, 0);
        out.extend_from_slice(&frame.payload);
        out.resize(out.len() + TAG_LEN, 0);
        Header {
            flags: frame.flags | Flags::ENC,
            frame_type: frame.frame_type,
            channel: self.id,
            sequence,
            payload_length: (frame.payload.len() + TAG_LEN) as u32,
        }
    }

    /// The key of what was appended in this epoch.
    pub(super) fn sealing_key(&self) -> Option<&TrafficKey> {
        self.send.key.as_ref()
    }

    /// Appends KEY_UPDATE, the last frame of its epoch.
    #[cold]
    pub(super) fn append_update(
        &mut self,
        keys: &KeySource,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Header {
        let frame = Unsealed {
            channel: self.id,
            frame_type: FrameType::KEY_UPDATE,
            flags: Flags::NONE,
            payload: marker(self.send.epoch + 1),
        };
        self.append(keys, &frame, now, out)
    }

    /// Begins the epoch after a KEY_UPDATE that was sealed.
    pub(super) fn next_epoch(&mut self) {
        self.send = Sending {
            epoch: self.send.epoch + 1,
            ..Sending::default()
        };
    }

    /// Asks for KEY_UPDATE before the next frame.
    pub(super) fn request_update(&mut self) {
        self.send.update_requested = true;
    }

    pub(super) fn update_requested(&self) -> bool {
        self.send.update_requested
    }

    /// Whether the epoch must end before a frame of `payload_octets` is sealed.
    pub(super) fn update_due(
        &self,
        payload_octets: usize,
        bounds: &UpdateBounds,
        now: Instant,
    ) -> bool {
        let send = &self.send;
        let frames_max = bounds
            .frames
            .saturating_sub(limits::KEY_UPDATE_FRAMES_RESERVED)
            .max(2);
        send.update_requested
            || send.sequence >= frames_max
            || (send.sequence > 0
                && send.octets.saturating_add(payload_octets as u64) > bounds.octets)
            || self.update_time(bounds).is_some_and(|due| now >= due)
    }

    /// When the epoch must end by its age; a key that sealed nothing has none.
    pub(super) fn update_time(&self, bounds: &UpdateBounds) -> Option<Instant> {
        self.send.used_since?.checked_add(bounds.age)
    }

    /// Opens a frame in place and spends its sequence. Authenticity comes
    /// first: only an authentic frame can show that others are missing.
    pub(super) fn open<'a>(
        &mut self,
        keys: &KeySource,
        header: &Header,
        payload: &'a mut [u8],
    ) -> Result<&'a mut [u8], Refusal> {
        let receive = &mut self.receive;
        if header.sequence < receive.expected {
            return Err(Refusal::Replay);
        }
        let key = receive
            .key
            .get_or_insert_with(|| keys.receiving(self.id, receive.epoch));
        let authentic = key.open(header, payload).is_ok();
        self.accept(header, payload, authentic)
    }

    /// What is left of opening a frame once it was decrypted and its tag compared.
    pub(super) fn accept<'a>(
        &mut self,
        header: &Header,
        payload: &'a mut [u8],
        authentic: bool,
    ) -> Result<&'a mut [u8], Refusal> {
        let receive = &mut self.receive;
        if !authentic {
            return Err(Refusal::Tag);
        }
        if header.sequence > receive.expected {
            payload.fill(0);
            return Err(Refusal::Gap {
                expected: receive.expected,
            });
        }
        receive.expected = receive.expected.checked_add(1).ok_or(Refusal::Exhausted)?;
        let length = payload.len() - TAG_LEN;
        Ok(&mut payload[..length])
    }

    /// Begins to look ahead: no frame was opened before its turn.
    pub(super) fn look_ahead(&mut self) {
        self.receive.ahead = self.receive.expected;
    }

    /// Whether `sequence` is next, the frames opened ahead counted. Then the key is there.
    #[inline]
    pub(super) fn is_next_ahead(&mut self, keys: &KeySource, sequence: u64) -> bool {
        let receive = &mut self.receive;
        let Some(next) = receive.ahead.checked_add(1) else {
            return false;
        };
        if sequence != receive.ahead {
            return false;
        }
        receive.ahead = next;
        receive
            .key
            .get_or_insert_with(|| keys.receiving(self.id, receive.epoch));
        true
    }

    /// The key of the epoch received.
    pub(super) fn opening_key(&self) -> Option<&TrafficKey> {
        self.receive.key.as_ref()
    }

    /// Takes the peer's KEY_UPDATE payload: begins the epoch it announces and
    /// gives it, or `None` if it is not the next.
    pub(super) fn take_update(&mut self, payload: &[u8]) -> Option<u64> {
        let next = self.receive.epoch.checked_add(1)?;
        if read_marker(payload) != Some(next) {
            return None;
        }
        self.receive = Receiving {
            epoch: next,
            ..Receiving::default()
        };
        Some(next)
    }
}

/// The single TLV of KEY_UPDATE and KEY_UPDATE_ACK.
pub(super) fn marker(epoch: u64) -> Vec<u8> {
    let mut payload = Vec::with_capacity(Tlv::HEAD_LEN + 8);
    Tlv {
        tag: tlv::tag::KEY_UPDATE_MARKER,
        value: &epoch.to_be_bytes(),
    }
    .encode(&mut payload);
    payload
}

fn read_marker(payload: &[u8]) -> Option<u64> {
    let (tlv, rest) = Tlv::decode(payload).ok()?;
    if tlv.tag != tlv::tag::KEY_UPDATE_MARKER || !rest.is_empty() {
        return None;
    }
    tlv.value.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-PAMP draft, TLV Type Registry: 0x17, eight octets; ruling R4: nothing else.
    #[test]
    fn key_update_marker() {
        let payload = marker(0x0102);
        assert_eq!(payload, [0, 0x17, 0, 8, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(read_marker(&payload), Some(0x0102));
        assert_eq!(read_marker(&[]), None);
        assert_eq!(read_marker(&payload[..11]), None);
        assert_eq!(read_marker(&[payload.clone(), vec![0]].concat()), None);
        assert_eq!(read_marker(&[0, 0x18, 0, 1, 1]), None);
        assert_eq!(read_marker(&[0, 0x17, 0, 1, 1]), None);
    }

    /// Ruling R4: only the next epoch.
    #[test]
    fn only_the_next_epoch_is_taken() {
        let mut channel = Channel::new(ChannelId::BRIDGE);
        assert_eq!(channel.take_update(&marker(0)), None);
        assert_eq!(channel.take_update(&marker(2)), None);
        assert_eq!(channel.take_update(&marker(1)), Some(1));
        assert_eq!(channel.take_update(&marker(1)), None);
        assert_eq!(channel.take_update(&marker(2)), Some(2));
    }
}
