//! BridgeEnvelope TLV 0x0010: which protocol, what kind of message, which
//! exchange, which operation. Serves NPAMP-BRIDGE §2, §4 and §5.

use crate::bridge::error::BridgeError;

/// TLV type of the BridgeEnvelope.
pub const TAG: u16 = 0x0010;
/// Octets before the correlation_id.
const FIXED: usize = 5;

/// A bridge frame's kind: the frame type on the channel and the `message_kind`
/// octet, which must say the same (NPAMP-BRIDGE §2, §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// BRIDGE_REQUEST 0x0100.
    Request,
    /// BRIDGE_RESPONSE 0x0101.
    Response,
    /// BRIDGE_ERROR 0x0102.
    Error,
    /// BRIDGE_NOTIFY 0x0103.
    Notification,
    /// BRIDGE_STREAM_DATA 0x0104.
    StreamData,
    /// BRIDGE_STREAM_END 0x0105.
    StreamEnd,
}

impl MessageKind {
    /// Every kind, in frame-type order.
    pub const ALL: [Self; 6] = [
        Self::Request,
        Self::Response,
        Self::Error,
        Self::Notification,
        Self::StreamData,
        Self::StreamEnd,
    ];

    /// The kind that a frame type of the Bridge namespace names.
    pub fn from_frame_type(frame_type: u16) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.frame_type() == frame_type)
    }

    /// The kind that a `message_kind` octet names.
    pub fn from_octet(octet: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.octet() == octet)
    }

    /// Frame type (NPAMP-BRIDGE §2).
    pub fn frame_type(self) -> u16 {
        match self {
            Self::Request => 0x0100,
            Self::Response => 0x0101,
            Self::Error => 0x0102,
            Self::Notification => 0x0103,
            Self::StreamData => 0x0104,
            Self::StreamEnd => 0x0105,
        }
    }

    /// `message_kind` octet (NPAMP-BRIDGE §4).
    pub fn octet(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Notification => 3,
            Self::Error => 4,
            Self::StreamData => 5,
            Self::StreamEnd => 6,
        }
    }
}

/// Bridge protocol identifier (NPAMP-REG §6). Zero never reaches a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtocolId(pub u8);

impl ProtocolId {
    /// Model Context Protocol.
    pub const MCP: Self = Self(1);
    /// Agent2Agent.
    pub const A2A: Self = Self(2);
}

/// Encoding of the foreign message (NPAMP-BRIDGE §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentType(pub u8);

impl ContentType {
    /// application/json.
    pub const JSON: Self = Self(1);
    /// application/cbor.
    pub const CBOR: Self = Self(2);
    /// application/grpc+proto.
    pub const GRPC: Self = Self(3);
}

/// Envelope flags, kept as received; reserved bits are ignored (NPAMP-BRIDGE §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EnvelopeFlags(pub u8);

impl EnvelopeFlags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// The frame ends its stream.
    pub const FINAL: Self = Self(1);

    /// Whether `final` is set.
    pub fn is_final(self) -> bool {
        self.0 & Self::FINAL.0 != 0
    }
}

/// The BridgeEnvelope's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Foreign protocol.
    pub protocol_id: ProtocolId,
    /// Kind, in agreement with the frame type.
    pub kind: MessageKind,
    /// Foreign-message encoding.
    pub content_type: ContentType,
    /// Flags as received.
    pub flags: EnvelopeFlags,
    /// Opaque, 0–255 octets.
    pub correlation_id: &'a [u8],
    /// Operation name, 0–255 octets.
    pub method: &'a str,
}

impl<'a> Envelope<'a> {
    /// Reads a TLV value that came in a frame of kind `kind`.
    pub fn decode(kind: MessageKind, value: &'a [u8]) -> Result<Self, BridgeError> {
        let [protocol_id, message_kind, content_type, flags, _] =
            *value.first_chunk().ok_or(BridgeError::EnvelopeTruncated)?;
        let (correlation_id, rest) =
            sized(&value[FIXED - 1..]).ok_or(BridgeError::EnvelopeTruncated)?;
        let (method, trailing) = sized(rest).ok_or(BridgeError::EnvelopeTruncated)?;
        if !trailing.is_empty() {
            return Err(BridgeError::EnvelopeTrailing);
        }
        if message_kind != kind.octet() {
            return Err(BridgeError::MessageKindContradicts);
        }
        if protocol_id == 0 {
            return Err(BridgeError::ProtocolIdZero);
        }
        let method = std::str::from_utf8(method).map_err(|_| BridgeError::MethodNotUtf8)?;
        let envelope = Self {
            protocol_id: ProtocolId(protocol_id),
            kind,
            content_type: ContentType(content_type),
            flags: EnvelopeFlags(flags),
            correlation_id,
            method,
        };
        envelope.check_correlation()?;
        Ok(envelope)
    }

    /// Octets of the value; the caller has checked the lengths with [`Envelope::check`].
    pub(crate) fn value_len(&self) -> usize {
        FIXED + self.correlation_id.len() + 1 + self.method.len()
    }

    /// Whether this may be sent: field lengths, protocol_id and the correlation rules (§5).
    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        if self.correlation_id.len() > 255 || self.method.len() > 255 {
            return Err(BridgeError::FieldTooLong);
        }
        if self.protocol_id.0 == 0 {
            return Err(BridgeError::ProtocolIdZero);
        }
        self.check_correlation()
    }

    pub(crate) fn encode_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[
            self.protocol_id.0,
            self.kind.octet(),
            self.content_type.0,
            self.flags.0,
            self.correlation_id.len() as u8,
        ]);
        out.extend_from_slice(self.correlation_id);
        out.push(self.method.len() as u8);
        out.extend_from_slice(self.method.as_bytes());
    }

    fn check_correlation(&self) -> Result<(), BridgeError> {
        match (self.kind, self.correlation_id.is_empty()) {
            (MessageKind::Notification, false) => Err(BridgeError::CorrelationOnNotify),
            (MessageKind::Notification, true) | (_, false) => Ok(()),
            (_, true) => Err(BridgeError::CorrelationEmpty),
        }
    }
}

/// The protocol_id and correlation_id of a value that may otherwise be
/// malformed, so that a bad request can still be answered (ruling R26). `None`
/// when the correlation_id is empty or not all there.
pub(crate) fn readable(value: &[u8]) -> Option<(ProtocolId, &[u8])> {
    let (correlation_id, _) = sized(value.get(FIXED - 1..)?)?;
    (!correlation_id.is_empty()).then_some((ProtocolId(value[0]), correlation_id))
}

/// Splits a field that opens with its one-octet length from what follows it.
pub(crate) fn sized(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = octets.split_first()?;
    rest.split_at_checked(usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: u8, correlation: &[u8], method: &[u8]) -> Vec<u8> {
        let mut out = vec![2, kind, 1, 0, correlation.len() as u8];
        out.extend_from_slice(correlation);
        out.push(method.len() as u8);
        out.extend_from_slice(method);
        out
    }

    /// NPAMP-BRIDGE §4: every way to be malformed is an error of its own.
    #[test]
    fn each_malformed_kind_is_distinct() {
        fn decode(value: &[u8]) -> Result<Envelope<'_>, BridgeError> {
            Envelope::decode(MessageKind::Request, value)
        }
        let good = value(1, b"c", b"m");
        assert!(decode(&good).is_ok());
        for cut in 0..good.len() {
            assert_eq!(decode(&good[..cut]), Err(BridgeError::EnvelopeTruncated));
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(decode(&long), Err(BridgeError::EnvelopeTrailing));
        assert_eq!(
            decode(&value(2, b"c", b"m")),
            Err(BridgeError::MessageKindContradicts)
        );
        assert_eq!(
            decode(&value(9, b"c", b"m")),
            Err(BridgeError::MessageKindContradicts)
        );
        let mut zero = good.clone();
        zero[0] = 0;
        assert_eq!(decode(&zero), Err(BridgeError::ProtocolIdZero));
        assert_eq!(
            decode(&value(1, b"c", &[0xff])),
            Err(BridgeError::MethodNotUtf8)
        );
        assert_eq!(
            decode(&value(1, b"", b"m")),
            Err(BridgeError::CorrelationEmpty)
        );
        assert_eq!(
            Envelope::decode(MessageKind::Notification, &value(3, b"c", b"m")),
            Err(BridgeError::CorrelationOnNotify)
        );
    }

    /// NPAMP-BRIDGE §2, §4: the two numberings differ for error and notification.
    #[test]
    fn kinds_map_both_ways() {
        for kind in MessageKind::ALL {
            assert_eq!(MessageKind::from_frame_type(kind.frame_type()), Some(kind));
            assert_eq!(MessageKind::from_octet(kind.octet()), Some(kind));
        }
        assert_eq!(
            MessageKind::from_frame_type(0x0102),
            Some(MessageKind::Error)
        );
        assert_eq!(MessageKind::from_octet(4), Some(MessageKind::Error));
        assert_eq!(MessageKind::from_frame_type(0x0106), None);
        assert_eq!(MessageKind::from_octet(0), None);
    }

    /// Ruling R26: a correlation_id is readable although the rest is not well-formed.
    #[test]
    fn a_correlation_is_readable_in_a_bad_envelope() {
        let bad = [0, 7, 1, 0, 2, b'x', b'y', 9];
        assert_eq!(readable(&bad), Some((ProtocolId(0), &b"xy"[..])));
        assert_eq!(readable(&[2, 1, 1, 0, 0, 0]), None);
        assert_eq!(readable(&[2, 1, 1, 0, 3, 0]), None);
        assert_eq!(readable(&[]), None);
    }
}
