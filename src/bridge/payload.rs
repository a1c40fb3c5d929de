//! A bridge frame's whole payload: TLVs, then the foreign message to the end.
//! Decoding borrows, encoding makes one allocation of the exact size. Serves
//! NPAMP-BRIDGE §3, NPAMP-CC-STREAM §4 and NPAMP-CC-DOC §6.1; ruling R8 says
//! where the foreign message starts.

use crate::bridge::document_binding::DocumentBinding;
use crate::bridge::envelope::{self, Envelope, MessageKind, ProtocolId};
use crate::bridge::error::BridgeError;
use crate::bridge::safety::{self, SafetyLabel};
use crate::bridge::stream_control::{self, StreamControl};
use crate::wire::Tlv;

/// Octets of a TLV before its value.
const TLV_HEAD: usize = Tlv::HEAD_LEN;

/// A decoded payload, or one to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// BridgeEnvelope; its kind is the frame type's.
    pub envelope: Envelope<'a>,
    /// SafetyLabel, when present.
    pub safety: Option<SafetyLabel<'a>>,
    /// StreamControl, when present.
    pub stream_control: Option<StreamControl>,
    /// DocumentBinding, when present under the agreed tag.
    pub document_binding: Option<DocumentBinding<'a>>,
    /// Foreign message, transport error or document part, verbatim; may be empty.
    pub foreign: &'a [u8],
}

/// Decodes a payload that came under `frame_type`, without a DocumentBinding agreement.
pub fn decode(frame_type: u16, payload: &[u8]) -> Result<Payload<'_>, BridgeError> {
    decode_with(frame_type, payload, None)
}

/// As [`decode`], reading the TLV of type `document_binding` as DocumentBinding (ruling R9).
pub fn decode_with(
    frame_type: u16,
    payload: &[u8],
    document_binding: Option<u16>,
) -> Result<Payload<'_>, BridgeError> {
    let kind = MessageKind::from_frame_type(frame_type).ok_or(BridgeError::NotABridgeFrame)?;
    let mut found = Found::default();
    let mut rest = payload;
    while let Some(tag) = next_tag(rest) {
        let Some((value, after)) = split_tlv(rest) else {
            // A TLV of ours that ends early is malformed; anything else that
            // is no whole TLV is the foreign message.
            match tag {
                envelope::TAG => return Err(BridgeError::EnvelopeTruncated),
                safety::TAG => return Err(BridgeError::SafetyLength),
                stream_control::TAG => return Err(BridgeError::StreamControlLength),
                tag if Some(tag) == document_binding => return Err(BridgeError::BindingLength),
                _ => break,
            }
        };
        rest = after;
        match tag {
            envelope::TAG => {
                put(&mut found.envelope, value, BridgeError::EnvelopeDuplicate)?;
            }
            safety::TAG => put(&mut found.safety, value, BridgeError::SafetyDuplicate)?,
            stream_control::TAG => {
                put(
                    &mut found.control,
                    value,
                    BridgeError::StreamControlDuplicate,
                )?;
            }
            tag if Some(tag) == document_binding => {
                // The last TLV by rule: all after it is document, whatever it starts with.
                found.binding = Some(value);
                break;
            }
            tag if tag & 0x8000 != 0 => return Err(BridgeError::UnknownCriticalTlv),
            _ => {}
        }
    }
    let envelope = found.envelope.ok_or(BridgeError::EnvelopeAbsent)?;
    Ok(Payload {
        envelope: Envelope::decode(kind, envelope)?,
        safety: found.safety.map(SafetyLabel::decode).transpose()?,
        stream_control: found.control.map(StreamControl::decode).transpose()?,
        document_binding: found.binding.map(DocumentBinding::decode).transpose()?,
        foreign: rest,
    })
}

/// Encodes `payload`, whose kind must be that of `frame_type`. The
/// `document_binding` tag is needed when the payload has a DocumentBinding.
pub fn encode(frame_type: u16, payload: &Payload<'_>) -> Result<Vec<u8>, BridgeError> {
    encode_with(frame_type, payload, None)
}

/// As [`encode`], writing a DocumentBinding under the agreed tag.
pub fn encode_with(
    frame_type: u16,
    payload: &Payload<'_>,
    document_binding: Option<u16>,
) -> Result<Vec<u8>, BridgeError> {
    let kind = MessageKind::from_frame_type(frame_type).ok_or(BridgeError::NotABridgeFrame)?;
    if payload.envelope.kind != kind {
        return Err(BridgeError::MessageKindContradicts);
    }
    payload.envelope.check()?;
    let mut length = TLV_HEAD + payload.envelope.value_len() + payload.foreign.len();
    if payload.stream_control.is_some() {
        length += TLV_HEAD + stream_control::LEN;
    }
    if let Some(label) = &payload.safety {
        label.check()?;
        length += TLV_HEAD + label.value_len();
    }
    let binding = match (&payload.document_binding, document_binding) {
        (Some(binding), Some(tag)) => {
            binding.check()?;
            length += TLV_HEAD + binding.value_len();
            Some((binding, tag))
        }
        // Without an agreed tag there is no way to say it (ruling R9).
        (Some(_), None) => return Err(BridgeError::BindingLength),
        (None, _) => None,
    };
    let mut out = Vec::with_capacity(length);
    head(&mut out, envelope::TAG, payload.envelope.value_len());
    payload.envelope.encode_value(&mut out);
    if let Some(control) = &payload.stream_control {
        head(&mut out, stream_control::TAG, stream_control::LEN);
        out.extend_from_slice(&control.encode());
    }
    if let Some(label) = &payload.safety {
        head(&mut out, safety::TAG, label.value_len());
        label.encode_value(&mut out);
    }
    if let Some((binding, tag)) = binding {
        head(&mut out, tag, binding.value_len());
        binding.encode_value(&mut out);
    }
    out.extend_from_slice(payload.foreign);
    debug_assert_eq!(out.len(), length);
    Ok(out)
}

/// Whether `reply` answers `request`: a reply kind, the same protocol and the
/// same correlation_id (NPAMP-BRIDGE §5). Sequence numbers say nothing.
pub fn correlates(request: &Payload<'_>, reply: &Payload<'_>) -> bool {
    request.envelope.kind == MessageKind::Request
        && !matches!(
            reply.envelope.kind,
            MessageKind::Request | MessageKind::Notification
        )
        && request.envelope.protocol_id == reply.envelope.protocol_id
        && request.envelope.correlation_id == reply.envelope.correlation_id
}

/// The protocol_id and correlation_id of a payload that did not decode, when
/// they can be read all the same (ruling R26). The envelope TLV may be truncated
/// after its correlation_id.
pub fn readable_correlation(payload: &[u8]) -> Option<(ProtocolId, &[u8])> {
    let mut rest = payload;
    loop {
        let tag = next_tag(rest)?;
        if tag == envelope::TAG {
            let value = split_tlv(rest).map_or_else(|| rest.get(TLV_HEAD..), |(v, _)| Some(v))?;
            return envelope::readable(value);
        }
        (_, rest) = split_tlv(rest)?;
    }
}

#[derive(Default)]
struct Found<'a> {
    envelope: Option<&'a [u8]>,
    safety: Option<&'a [u8]>,
    control: Option<&'a [u8]>,
    binding: Option<&'a [u8]>,
}

fn put<'a>(
    slot: &mut Option<&'a [u8]>,
    value: &'a [u8],
    duplicate: BridgeError,
) -> Result<(), BridgeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(duplicate),
    }
}

/// The TLV type at the front, if the first octet can begin one (ruling R8).
fn next_tag(octets: &[u8]) -> Option<u16> {
    let tag = octets.first_chunk::<2>()?;
    (tag[0] == 0 || tag[0] >= 0x80).then(|| u16::from_be_bytes(*tag))
}

/// The value of the TLV at the front and what follows it, if it is all there.
fn split_tlv(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tlv, rest) = Tlv::decode(octets).ok()?;
    Some((tlv.value, rest))
}

/// Writes a TLV head. Every value we write is at most 3 × 255 + 16 octets.
fn head(out: &mut Vec<u8>, tag: u16, length: usize) {
    out.extend_from_slice(&tag.to_be_bytes());
    out.extend_from_slice(&(length as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::document_binding::{DigestAlgorithm, Part};
    use crate::bridge::envelope::{ContentType, EnvelopeFlags};
    use crate::bridge::safety::Effect;

    fn request(foreign: &[u8]) -> Payload<'_> {
        Payload {
            envelope: Envelope {
                protocol_id: ProtocolId::A2A,
                kind: MessageKind::Request,
                content_type: ContentType::JSON,
                flags: EnvelopeFlags::NONE,
                correlation_id: b"corr",
                method: "message/send",
            },
            safety: Some(SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE)),
            stream_control: None,
            document_binding: None,
            foreign,
        }
    }

    fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head(&mut out, tag, value.len());
        out.extend_from_slice(value);
        out
    }

    /// NPAMP-BRIDGE §1, §3: the foreign message survives, whatever JSON it is.
    #[test]
    fn round_trips_verbatim() {
        for foreign in [&b""[..], b"{}", b"\t{ }\r\n", b"  [1]", b"\"\xe2\x80\xa8\""] {
            let payload = request(foreign);
            let octets = encode(0x0100, &payload).unwrap();
            assert_eq!(decode(0x0100, &octets), Ok(payload));
        }
    }

    /// NPAMP-CC-STREAM §4: TLVs are found by type, in any order.
    #[test]
    fn order_of_tlvs_does_not_matter() {
        let plain = encode(0x0100, &request(b"{}")).unwrap();
        let envelope_len = TLV_HEAD + request(b"").envelope.value_len();
        let (envelope, label) = plain[..plain.len() - 2].split_at(envelope_len);
        let control = tlv(stream_control::TAG, &StreamControl::data(3).encode());
        let octets = [label, &control, envelope, b"{}"].concat();
        let decoded = decode(0x0100, &octets).unwrap();
        assert_eq!(decoded.stream_control, Some(StreamControl::data(3)));
        assert_eq!(decoded.safety, request(b"").safety);
        assert_eq!(decoded.foreign, b"{}");
    }

    /// Ruling R8: unknown TLVs are skipped, critical ones reject, our own may not repeat.
    #[test]
    fn unknown_and_repeated_tlvs() {
        let envelope = encode(
            0x0100,
            &Payload {
                safety: None,
                ..request(b"")
            },
        )
        .unwrap();
        let with = |extra: &[u8]| [&envelope[..], extra, b"{}"].concat();
        let octets = with(&tlv(0x0077, b"skip me"));
        assert_eq!(decode(0x0100, &octets).unwrap().foreign, b"{}");
        let octets = with(&tlv(0x8001, b""));
        assert_eq!(
            decode(0x0100, &octets),
            Err(BridgeError::UnknownCriticalTlv)
        );
        let octets = with(&envelope);
        assert_eq!(decode(0x0100, &octets), Err(BridgeError::EnvelopeDuplicate));
        let label = tlv(safety::TAG, &[0, 0]);
        let octets = with(&[&label[..], &label].concat());
        assert_eq!(decode(0x0100, &octets), Err(BridgeError::SafetyDuplicate));
        let control = tlv(stream_control::TAG, &StreamControl::data(1).encode());
        let octets = with(&[&control[..], &control].concat());
        assert_eq!(
            decode(0x0100, &octets),
            Err(BridgeError::StreamControlDuplicate)
        );
    }

    /// NPAMP-CC-STREAM §9: a truncated StreamControl TLV is malformed, not a foreign message.
    #[test]
    fn our_truncated_tlvs_are_malformed() {
        let envelope = encode(
            0x0100,
            &Payload {
                safety: None,
                ..request(b"")
            },
        )
        .unwrap();
        for (tag, error) in [
            (safety::TAG, BridgeError::SafetyLength),
            (stream_control::TAG, BridgeError::StreamControlLength),
        ] {
            let mut octets = envelope.clone();
            octets.extend_from_slice(&tag.to_be_bytes());
            octets.extend_from_slice(&[0, 11, 1, 0]);
            assert_eq!(decode(0x0100, &octets), Err(error));
        }
        assert_eq!(
            decode(0x0100, &envelope[..9]),
            Err(BridgeError::EnvelopeTruncated)
        );
        assert_eq!(decode(0x0100, &[]), Err(BridgeError::EnvelopeAbsent));
        assert_eq!(decode(0x0100, b"{}"), Err(BridgeError::EnvelopeAbsent));
        assert_eq!(decode(0x0003, &envelope), Err(BridgeError::NotABridgeFrame));
    }

    /// NPAMP-CC-DOC §6.1, ruling R8: after DocumentBinding all is document, even what looks like a TLV.
    #[test]
    fn a_document_may_start_with_anything() {
        let payload = Payload {
            envelope: Envelope {
                kind: MessageKind::Response,
                method: "",
                ..request(b"").envelope
            },
            safety: Some(SafetyLabel::new(Effect::READ_ONLY)),
            stream_control: None,
            document_binding: Some(DocumentBinding {
                part: Part::Document,
                doc_id: b"d",
                content_type: "x/y",
                digest_algorithm: DigestAlgorithm::Sha256,
                digest: &[1; 32],
                proof_count: 0,
            }),
            foreign: &[0x80, 0x01, 0, 0, 0, 0x10],
        };
        let octets = encode_with(0x0101, &payload, Some(0x00f0)).unwrap();
        assert_eq!(decode_with(0x0101, &octets, Some(0x00f0)), Ok(payload));
        assert_eq!(encode(0x0101, &payload), Err(BridgeError::BindingLength));
    }

    /// NPAMP-BRIDGE §5: matching is by correlation_id, and only a reply can match.
    #[test]
    fn correlation_needs_a_reply_kind() {
        let ask = request(b"");
        let mut reply = ask;
        reply.envelope.kind = MessageKind::StreamEnd;
        assert!(correlates(&ask, &reply));
        assert!(!correlates(&ask, &ask));
        reply.envelope.correlation_id = b"other";
        assert!(!correlates(&ask, &reply));
    }

    /// Ruling R26.
    #[test]
    fn correlation_of_a_malformed_payload() {
        let mut octets = encode(0x0100, &request(b"")).unwrap();
        octets[5] = 9;
        assert!(decode(0x0100, &octets).is_err());
        assert_eq!(
            readable_correlation(&octets),
            Some((ProtocolId::A2A, &b"corr"[..]))
        );
        // Truncated inside the method.
        assert_eq!(
            readable_correlation(&octets[..15]),
            Some((ProtocolId::A2A, &b"corr"[..]))
        );
        assert_eq!(readable_correlation(&octets[..11]), None);
        assert_eq!(readable_correlation(b"{}"), None);
    }

    #[test]
    fn too_long_fields_are_ours_to_refuse() {
        let long = "m".repeat(256);
        let mut payload = request(b"");
        payload.envelope.method = &long;
        assert_eq!(encode(0x0100, &payload), Err(BridgeError::FieldTooLong));
        payload.envelope.method = "";
        payload.envelope.kind = MessageKind::Response;
        assert_eq!(
            encode(0x0100, &payload),
            Err(BridgeError::MessageKindContradicts)
        );
    }
}
