//! Handshake frames: their envelope, and their TLVs in the order that the
//! handshake binding §1 fixes.

use super::HandshakeError;
use crate::crypto::Transcript;
use crate::limits::HANDSHAKE_PAYLOAD_OCTETS_MAX;
use crate::wire::tlv::REGISTERED_TAGS;
use crate::wire::{ChannelId, Flags, FrameType, Header, KnownTags, Tlv, Tlvs};

/// Checks that a frame is the one that is expected: type, Control channel,
/// sequence 0, exactly these flags, a payload within the handshake bound.
pub(super) fn check_frame(
    header: &Header,
    payload: &[u8],
    frame_type: FrameType,
    flags: Flags,
) -> Result<(), HandshakeError> {
    if header.channel != ChannelId::CONTROL {
        return Err(HandshakeError::Channel(header.channel));
    }
    if header.frame_type != frame_type {
        return Err(HandshakeError::FrameType {
            expected: frame_type,
            got: header.frame_type,
        });
    }
    if header.sequence != 0 {
        return Err(HandshakeError::Sequence(header.sequence));
    }
    if header.flags != flags {
        return Err(HandshakeError::Flags(header.flags));
    }
    if payload.len() > HANDSHAKE_PAYLOAD_OCTETS_MAX
        || header.payload_length as usize != payload.len()
    {
        return Err(HandshakeError::PayloadLength(payload.len()));
    }
    Ok(())
}

/// The header of a handshake frame.
pub(super) fn header(frame_type: FrameType, flags: Flags, payload_length: usize) -> Header {
    Header {
        flags,
        frame_type,
        channel: ChannelId::CONTROL,
        sequence: 0,
        payload_length: payload_length as u32,
    }
}

/// Whether a flight may carry unknown TLVs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extensions {
    /// Unknown non-critical TLVs are passed over (draft §Extension TLVs).
    Skipped,
    /// Exactly the expected TLVs (handshake binding §6.4).
    Forbidden,
}

/// The values of a flight's TLVs, which must appear in the order of `expected`,
/// each once, and no other registered TLV with them. `on_tlv` sees every TLV on
/// the wire in order, those passed over included, because the transcript
/// absorbs each of a frame's TLVs (handshake binding §3).
pub(super) fn read_flight<'a, const N: usize>(
    payload: &'a [u8],
    expected: [u16; N],
    extensions: Extensions,
    mut on_tlv: impl FnMut(&Tlv<'a>),
) -> Result<[&'a [u8]; N], HandshakeError> {
    let mut values: [&[u8]; N] = [&[]; N];
    let mut next = 0;
    for tlv in Tlvs::new(payload) {
        let tlv = tlv?;
        let known = KnownTags(REGISTERED_TAGS).admit(&tlv)?;
        if expected.get(next) == Some(&tlv.tag) {
            values[next] = tlv.value;
            next += 1;
        } else if known || extensions == Extensions::Forbidden {
            return Err(match expected.get(next) {
                Some(&expected) => HandshakeError::TlvOrder {
                    expected,
                    got: tlv.tag,
                },
                None => HandshakeError::TlvUnexpected(tlv.tag),
            });
        }
        on_tlv(&tlv);
    }
    match expected.get(next) {
        Some(&missing) => Err(HandshakeError::TlvMissing(missing)),
        None => Ok(values),
    }
}

/// Appends a cleartext flight to `out` and absorbs it.
pub(super) fn write_hello<const N: usize>(
    frame_type: FrameType,
    tlvs: [Tlv<'_>; N],
    transcript: &mut Transcript,
    out: &mut Vec<u8>,
) {
    let payload_length = tlvs.iter().map(Tlv::encoded_len).sum();
    out.extend_from_slice(&header(frame_type, Flags::NONE, payload_length).encode());
    transcript.add_frame_type(frame_type);
    for tlv in &tlvs {
        tlv.encode(out);
        transcript.add_tlv(tlv);
    }
}

/// The code points of an offer: two octets each, at least one.
pub(super) fn code_points(
    tag: u16,
    value: &[u8],
) -> Result<impl Iterator<Item = u16> + Clone + '_, HandshakeError> {
    let pairs = value.chunks_exact(2);
    if value.is_empty() || !pairs.remainder().is_empty() {
        return Err(HandshakeError::TlvValue(tag));
    }
    Ok(pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]])))
}

/// The one code point of a selection.
pub(super) fn selected(tag: u16, value: &[u8]) -> Result<u16, HandshakeError> {
    value
        .try_into()
        .map(u16::from_be_bytes)
        .map_err(|_| HandshakeError::TlvValue(tag))
}
