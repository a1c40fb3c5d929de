//! Transport errors: what BRIDGE_ERROR carries in place of a foreign message
//! when the failure lies below the foreign protocol. Serves NPAMP-BRIDGE §6,
//! NPAMP-CC-STREAM §6.4 and NPAMP-CC-DOC §8; ruling R7 fixes the octets.

use std::fmt;

/// Registered transport-error code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportCode(pub u8);

impl TransportCode {
    /// The BridgeEnvelope is missing or invalid.
    pub const ENVELOPE_MALFORMED: Self = Self(1);
    /// This peer does not carry the protocol.
    pub const PROTOCOL_UNSUPPORTED: Self = Self(2);
    /// This peer does not carry the operation.
    pub const METHOD_UNSUPPORTED: Self = Self(3);
    /// The foreign endpoint did not accept the message.
    pub const NOT_DELIVERED: Self = Self(4);
    /// A local safety policy refused it.
    pub const SAFETY_POLICY: Self = Self(5);
    /// The stream cannot be resumed from that cursor.
    pub const NOT_RESUMABLE: Self = Self(6);
    /// The DocumentBinding is malformed.
    pub const BINDING_MALFORMED: Self = Self(16);
    /// The document's digest is not the asserted one.
    pub const DIGEST_MISMATCH: Self = Self(17);
    /// The octets of this document cannot be preserved.
    pub const DIGEST_UNSTABLE: Self = Self(18);
    /// A proof does not bind to its document.
    pub const PROOF_UNBOUND: Self = Self(19);
    /// A proof algorithm is unknown here.
    pub const PROOF_UNSUPPORTED: Self = Self(20);
    /// The document set was not completed.
    pub const SET_INCOMPLETE: Self = Self(21);

    /// Every registered code.
    pub const ALL: [Self; 12] = [
        Self::ENVELOPE_MALFORMED,
        Self::PROTOCOL_UNSUPPORTED,
        Self::METHOD_UNSUPPORTED,
        Self::NOT_DELIVERED,
        Self::SAFETY_POLICY,
        Self::NOT_RESUMABLE,
        Self::BINDING_MALFORMED,
        Self::DIGEST_MISMATCH,
        Self::DIGEST_UNSTABLE,
        Self::PROOF_UNBOUND,
        Self::PROOF_UNSUPPORTED,
        Self::SET_INCOMPLETE,
    ];

    /// The specification's name, or `Unregistered`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ENVELOPE_MALFORMED => "EnvelopeMalformed",
            Self::PROTOCOL_UNSUPPORTED => "ProtocolUnsupported",
            Self::METHOD_UNSUPPORTED => "MethodUnsupported",
            Self::NOT_DELIVERED => "NotDelivered",
            Self::SAFETY_POLICY => "SafetyPolicy",
            Self::NOT_RESUMABLE => "NotResumable",
            Self::BINDING_MALFORMED => "BindingMalformed",
            Self::DIGEST_MISMATCH => "DigestMismatch",
            Self::DIGEST_UNSTABLE => "DigestUnstable",
            Self::PROOF_UNBOUND => "ProofUnbound",
            Self::PROOF_UNSUPPORTED => "ProofUnsupported",
            Self::SET_INCOMPLETE => "SetIncomplete",
            _ => "Unregistered",
        }
    }

    /// Whether the code is one of NPAMP-CC-DOC §8.
    pub fn is_of_documents(self) -> bool {
        (Self::BINDING_MALFORMED.0..=Self::SET_INCOMPLETE.0).contains(&self.0)
    }

    /// Whether the code is registered.
    pub fn is_registered(self) -> bool {
        Self::ALL.contains(&self)
    }
}

impl fmt::Debug for TransportCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// A code and text for people, up to 255 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportErrorBody<'a> {
    /// Code.
    pub code: TransportCode,
    /// Text.
    pub message: &'a str,
}

impl<'a> TransportErrorBody<'a> {
    /// Reads the octets that follow a BRIDGE_ERROR's TLVs. `None` when they are
    /// no transport error, which for a well-formed frame means that they are a
    /// foreign message: no JSON text begins with a registered code.
    pub fn decode(octets: &'a [u8]) -> Option<Self> {
        let (&code, rest) = octets.split_first()?;
        let (&length, message) = rest.split_first()?;
        let code = TransportCode(code);
        if !code.is_registered() || message.len() != usize::from(length) {
            return None;
        }
        Some(Self {
            code,
            message: std::str::from_utf8(message).ok()?,
        })
    }

    /// Writes code, length and text, the text cut to 255 octets at a character's end.
    pub fn encode(&self) -> Vec<u8> {
        let message = cut(self.message, 255);
        let mut out = Vec::with_capacity(2 + message.len());
        out.push(self.code.0);
        out.push(message.len() as u8);
        out.extend_from_slice(message.as_bytes());
        out
    }
}

/// The longest prefix of `text` of at most `max` octets that ends with a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-BRIDGE §6, NPAMP-CC-STREAM §6.4, NPAMP-CC-DOC §8: every code, distinct.
    #[test]
    fn every_code_round_trips() {
        for code in TransportCode::ALL {
            let body = TransportErrorBody {
                code,
                message: "why",
            };
            assert_eq!(TransportErrorBody::decode(&body.encode()), Some(body));
            assert_ne!(code.name(), "Unregistered");
        }
        assert_eq!(
            TransportErrorBody {
                code: TransportCode(4),
                message: "no"
            }
            .encode(),
            [4, 2, b'n', b'o']
        );
    }

    /// Ruling R7: a foreign message is never taken for a transport error.
    #[test]
    fn json_and_junk_are_not_transport_errors() {
        for octets in [
            &b"{\"jsonrpc\":\"2.0\"}"[..],
            b"",
            b"\x04",
            b"\x04\x02n",
            b"\x04\x00n",
            b"\x07\x00",
            b"\x0a\x00",
            b" {}",
            b"\n{}",
            b"\x04\x01\xff",
        ] {
            assert_eq!(TransportErrorBody::decode(octets), None);
        }
        for code in TransportCode::ALL {
            assert!(![9, 10, 13, 32].contains(&code.0) && code.0 < 32);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let body = TransportErrorBody {
            code: TransportCode::NOT_DELIVERED,
            message: &"ü".repeat(200),
        };
        let octets = body.encode();
        assert_eq!(octets.len(), 2 + 254);
        assert!(TransportErrorBody::decode(&octets).is_some());
    }
}
