//! Frames built from the specifications' tables, and read by them: nothing of
//! the crate's codecs is used here, so that what they emit has something to be
//! compared with.

use std::fmt::Write as _;

pub const CONTROL: u16 = 0x0000;
pub const BRIDGE: u16 = 0x000d;
pub const DISCOVERY: u16 = 0x0010;

/// NPAMP-BRIDGE §2, with the message_kind of §4 that agrees with each.
pub const REQUEST: u16 = 0x0100;
pub const RESPONSE: u16 = 0x0101;
pub const ERROR: u16 = 0x0102;
pub const NOTIFY: u16 = 0x0103;
pub const DATA: u16 = 0x0104;
pub const END: u16 = 0x0105;

/// NPAMP-BRIDGE §4, §7, NPAMP-CC-STREAM §5.3.
const ENVELOPE: u16 = 0x0010;
const SAFETY: u16 = 0x0013;
const STREAM_CONTROL: u16 = 0x0011;
/// The tag that the peers of these tests state for DocumentBinding (deviation R9).
pub const DOCBIND: u16 = 0x00f0;

/// NPAMP-BRIDGE §6, NPAMP-CC-STREAM §6.4, NPAMP-CC-DOC §8.
pub const ENVELOPE_MALFORMED: u8 = 1;
pub const PROTOCOL_UNSUPPORTED: u8 = 2;
pub const METHOD_UNSUPPORTED: u8 = 3;
pub const NOT_DELIVERED: u8 = 4;
pub const SAFETY_POLICY: u8 = 5;
pub const NOT_RESUMABLE: u8 = 6;
pub const BINDING_MALFORMED: u8 = 16;
pub const DIGEST_MISMATCH: u8 = 17;
pub const DIGEST_UNSTABLE: u8 = 18;
pub const PROOF_UNBOUND: u8 = 19;
pub const SET_INCOMPLETE: u8 = 21;

/// Type, Length, Value (draft, Extension TLVs).
pub fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("a TLV");
    [&tag.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

/// One octet of length, and the octets.
pub fn sized(value: &[u8]) -> Vec<u8> {
    [&[u8::try_from(value.len()).expect("a field")][..], value].concat()
}

/// NPAMP-CC-DOC §6.2, field by field.
#[derive(Debug, Clone)]
pub struct Binding {
    pub part_kind: u8,
    pub doc_id: Vec<u8>,
    pub content_type: String,
    pub digest_alg: u16,
    pub digest: Vec<u8>,
    pub proof_count: u8,
    pub proof_index: u8,
    pub proof_alg: u16,
}

impl Binding {
    /// A document part with its SHA-256 (digest_alg 1).
    pub fn document(doc_id: &str, document: &[u8], proof_count: u8) -> Self {
        use sha2::Digest as _;
        Self {
            part_kind: 1,
            doc_id: doc_id.into(),
            content_type: "application/json".into(),
            digest_alg: 1,
            digest: sha2::Sha256::digest(document).to_vec(),
            proof_count,
            proof_index: 0,
            proof_alg: 0,
        }
    }

    /// A proof of the same document.
    pub fn proof(&self, proof_index: u8, proof_alg: u16) -> Self {
        Self {
            part_kind: 2,
            content_type: String::new(),
            proof_index,
            proof_alg,
            ..self.clone()
        }
    }

    pub fn value(&self) -> Vec<u8> {
        [
            &[self.part_kind][..],
            &sized(&self.doc_id),
            &sized(self.content_type.as_bytes()),
            &self.digest_alg.to_be_bytes(),
            &sized(&self.digest),
            &[self.proof_count, self.proof_index],
            &self.proof_alg.to_be_bytes(),
        ]
        .concat()
    }
}

/// A bridge frame: every field is what the sender says, right or wrong.
#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names, reason = "the specification's nouns")]
pub struct Frame {
    pub channel: u16,
    pub frame_type: u16,
    pub protocol_id: u8,
    pub message_kind: u8,
    pub content_type: u8,
    pub flags: u8,
    pub correlation_id: Vec<u8>,
    pub method: String,
    pub safety: Option<(u8, String)>,
    /// version, control, flags, event_id.
    pub control: Option<(u8, u8, u8, u64)>,
    pub binding: Option<Binding>,
    pub foreign: Vec<u8>,
}

/// StreamControl flags (NPAMP-CC-STREAM §5.2).
pub const RESUMABLE: u8 = 1;
pub const CANCEL_ACK: u8 = 2;

impl Frame {
    /// On Bridge, A2A, application/json, message_kind by frame type, `final` on the end of a stream.
    pub fn new(frame_type: u16, correlation_id: &[u8], foreign: &[u8]) -> Self {
        let message_kind = match frame_type {
            REQUEST => 1,
            RESPONSE => 2,
            NOTIFY => 3,
            ERROR => 4,
            DATA => 5,
            END => 6,
            _ => unreachable!("a bridge frame"),
        };
        Self {
            channel: BRIDGE,
            frame_type,
            protocol_id: 0x02,
            message_kind,
            content_type: 0x01,
            flags: u8::from(frame_type == END),
            correlation_id: correlation_id.into(),
            method: String::new(),
            safety: None,
            control: None,
            binding: None,
            foreign: foreign.into(),
        }
    }

    pub fn request(correlation_id: &[u8], method: &str, foreign: &str) -> Self {
        let mut frame = Self::new(REQUEST, correlation_id, foreign.as_bytes());
        frame.method = method.into();
        frame
    }

    pub fn notify(method: &str, foreign: &str) -> Self {
        let mut frame = Self::new(NOTIFY, b"", foreign.as_bytes());
        frame.method = method.into();
        frame
    }

    pub fn response(correlation_id: &[u8], foreign: &str) -> Self {
        Self::new(RESPONSE, correlation_id, foreign.as_bytes())
    }

    pub fn error(correlation_id: &[u8], foreign: &str) -> Self {
        Self::new(ERROR, correlation_id, foreign.as_bytes())
    }

    /// A transport error in place of the foreign message: code, length, text (ruling R7).
    pub fn transport_error(correlation_id: &[u8], code: u8, text: &str) -> Self {
        let body = [&[code][..], &sized(text.as_bytes())].concat();
        Self::new(ERROR, correlation_id, &body)
    }

    /// A stream's event that can be resumed.
    pub fn data(correlation_id: &[u8], event_id: u64, foreign: &str) -> Self {
        Self::new(DATA, correlation_id, foreign.as_bytes()).control(0, RESUMABLE, event_id)
    }

    /// A stream's end.
    pub fn end(correlation_id: &[u8], event_id: u64, foreign: &str) -> Self {
        Self::new(END, correlation_id, foreign.as_bytes()).control(0, RESUMABLE, event_id)
    }

    /// NPAMP-CC-STREAM §7.1.
    pub fn cancel(correlation_id: &[u8], consumed: u64) -> Self {
        Self::new(END, correlation_id, b"").control(2, 0, consumed)
    }

    /// NPAMP-CC-STREAM §7.2.
    pub fn cancel_ack(correlation_id: &[u8], tail: u64) -> Self {
        Self::new(END, correlation_id, b"").control(0, CANCEL_ACK, tail)
    }

    /// A part of a document set; the document itself is labelled read_only (NPAMP-CC-DOC §9).
    pub fn part(frame_type: u16, correlation_id: &[u8], binding: &Binding, octets: &[u8]) -> Self {
        let mut frame = Self::new(frame_type, correlation_id, octets);
        frame.safety = (binding.part_kind == 1).then(|| (0, String::new()));
        frame.binding = Some(binding.clone());
        frame
    }

    pub fn control(mut self, control: u8, flags: u8, event_id: u64) -> Self {
        self.control = Some((1, control, flags, event_id));
        self
    }

    pub fn label(mut self, effect: u8) -> Self {
        self.safety = Some((effect, String::new()));
        self
    }

    pub fn on(mut self, channel: u16) -> Self {
        self.channel = channel;
        self
    }

    pub fn protocol(mut self, protocol_id: u8) -> Self {
        self.protocol_id = protocol_id;
        self
    }

    /// NPAMP-BRIDGE §4.
    fn envelope(&self) -> Vec<u8> {
        [
            &[
                self.protocol_id,
                self.message_kind,
                self.content_type,
                self.flags,
            ][..],
            &sized(&self.correlation_id),
            &sized(self.method.as_bytes()),
        ]
        .concat()
    }

    /// NPAMP-BRIDGE §3, NPAMP-CC-STREAM §4, NPAMP-CC-DOC §6.1.
    pub fn octets(&self) -> Vec<u8> {
        let mut out = tlv(ENVELOPE, &self.envelope());
        if let Some((version, control, flags, event_id)) = self.control {
            let value = [&[version, control, flags][..], &event_id.to_be_bytes()].concat();
            out.extend(tlv(STREAM_CONTROL, &value));
        }
        if let Some((effect, scope)) = &self.safety {
            let value = [&[*effect][..], &sized(scope.as_bytes())].concat();
            out.extend(tlv(SAFETY, &value));
        }
        if let Some(binding) = &self.binding {
            out.extend(tlv(DOCBIND, &binding.value()));
        }
        out.extend_from_slice(&self.foreign);
        out
    }
}

/// A frame as it went by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    pub channel: u16,
    pub frame_type: u16,
    pub octets: Vec<u8>,
}

impl From<&Frame> for Passed {
    fn from(frame: &Frame) -> Self {
        Self {
            channel: frame.channel,
            frame_type: frame.frame_type,
            octets: frame.octets(),
        }
    }
}

/// The fields of a frame, by name, as far as the tables read it.
pub fn fields(frame: &Passed) -> Vec<(String, Vec<u8>)> {
    let mut fields = vec![
        ("channel".to_owned(), frame.channel.to_be_bytes().to_vec()),
        (
            "frame type".to_owned(),
            frame.frame_type.to_be_bytes().to_vec(),
        ),
    ];
    let mut rest = &frame.octets[..];
    while let Some([a, b, c, d]) = rest.first_chunk::<4>().copied() {
        let tag = u16::from_be_bytes([a, b]);
        let names: &[(&str, usize)] = match tag {
            ENVELOPE => &[
                ("protocol_id", 1),
                ("message_kind", 1),
                ("content_type", 1),
                ("flags", 1),
                ("correlation_id", 0),
                ("method", 0),
            ],
            SAFETY => &[("effect", 1), ("scope", 0)],
            STREAM_CONTROL => &[
                ("version", 1),
                ("control", 1),
                ("flags", 1),
                ("event_id", 8),
            ],
            DOCBIND => &[
                ("part_kind", 1),
                ("doc_id", 0),
                ("doc_content_type", 0),
                ("digest_alg", 2),
                ("digest", 0),
                ("proof_count", 1),
                ("proof_index", 1),
                ("proof_alg", 2),
            ],
            _ => break,
        };
        let tlv = ["BridgeEnvelope", "SafetyLabel", "StreamControl"]
            .into_iter()
            .zip([ENVELOPE, SAFETY, STREAM_CONTROL])
            .find_map(|(name, known)| (known == tag).then_some(name))
            .unwrap_or("DocumentBinding");
        let length = usize::from(u16::from_be_bytes([c, d]));
        let Some(mut value) = rest.get(4..4 + length) else {
            break;
        };
        rest = &rest[4 + length..];
        fields.push((format!("{tlv} length"), vec![c, d]));
        for (name, width) in names {
            // Width 0 is a field with an octet of length before it.
            let (skip, width) = match width {
                0 => (1, value.first().map_or(0, |length| usize::from(*length))),
                width => (0, *width),
            };
            let Some(octets) = value.get(skip..skip + width) else {
                break;
            };
            fields.push((format!("{tlv} {name}"), octets.to_vec()));
            value = &value[skip + width..];
        }
        if !value.is_empty() {
            fields.push((format!("{tlv} trailing octets"), value.to_vec()));
        }
    }
    fields.push(("foreign message".to_owned(), rest.to_vec()));
    fields
}

/// A field for people: hexadecimal, and text where it is text.
pub fn show(octets: &[u8]) -> String {
    let mut out = String::new();
    for octet in octets.iter().take(48) {
        let _ = write!(out, "{octet:02x}");
    }
    if octets.len() > 48 {
        let _ = write!(out, "… ({} octets)", octets.len());
    }
    if octets.len() > 2 && octets.iter().all(|octet| (0x20..0x7f).contains(octet)) {
        let text = String::from_utf8_lossy(octets);
        let _ = write!(out, "  {}", text.chars().take(120).collect::<String>());
    }
    out
}

/// Field by field, what is not as it must be.
pub fn differences_of(frame: &Passed, expected: &Passed) -> String {
    let (frame, expected) = (fields(frame), fields(expected));
    let mut out = String::new();
    for at in 0..frame.len().max(expected.len()) {
        let none = ("(no field)".to_owned(), Vec::new());
        let (name, octets) = frame.get(at).unwrap_or(&none);
        let (must_name, must) = expected.get(at).unwrap_or(&none);
        if (name, octets) == (must_name, must) {
            continue;
        }
        let _ = writeln!(out, "  {name}: {}", show(octets));
        let _ = writeln!(out, "    must be {must_name}: {}", show(must));
        if octets.len() == must.len()
            && let Some(octet) = octets.iter().zip(must).position(|(a, b)| a != b)
        {
            let _ = writeln!(out, "    from octet {octet} on");
        }
        if name != must_name {
            break;
        }
    }
    out
}

/// The octets of the 36-octet header up to its sequence and length, and its
/// checks (draft, Frame Header): magic, version 2 and flags, type, channel,
/// sequence, length, CRC32C of these 21, and 11 zero octets.
pub fn header(flags: u8, frame_type: u16, channel: u16, sequence: u64, length: u32) -> Vec<u8> {
    let mut out = b"NPAM".to_vec();
    out.push(0x20 | flags);
    out.extend_from_slice(&frame_type.to_be_bytes());
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out.resize(36, 0);
    out
}

/// Castagnoli, bit by bit.
fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for octet in octets {
        crc ^= u32::from(*octet);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Deterministic CBOR (RFC 8949 §4.2): the shortest head of a major type.
pub fn head(major: u8, value: u64) -> Vec<u8> {
    let major = major << 5;
    let octets = value.to_be_bytes();
    match value {
        0..=23 => vec![major | octets[7]],
        24..=0xff => vec![major | 0x18, octets[7]],
        0x100..=0xffff => [&[major | 0x19][..], &octets[6..]].concat(),
        0x1_0000..=0xffff_ffff => [&[major | 0x1a][..], &octets[4..]].concat(),
        _ => [&[major | 0x1b][..], &octets[..]].concat(),
    }
}

pub fn uint(value: u64) -> Vec<u8> {
    head(0, value)
}

pub fn text(value: &str) -> Vec<u8> {
    [&head(3, value.len() as u64)[..], value.as_bytes()].concat()
}

pub fn array(items: &[u64]) -> Vec<u8> {
    let mut out = head(4, items.len() as u64);
    out.extend(items.iter().flat_map(|item| uint(*item)));
    out
}

/// A map whose entries are given encoded and in their deterministic order.
pub fn map(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = head(5, entries.len() as u64);
    for (key, value) in entries {
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    out
}
