//! What can be wrong with a bridge payload, one value per kind, so that each has
//! its own counter and no two are told as one. Serves NPAMP-BRIDGE §4–§7,
//! NPAMP-CC-STREAM §9 and NPAMP-CC-DOC §6.2.

use crate::bridge::transport_error::TransportCode;
use crate::reasons;

reasons! {
    /// A malformed bridge payload. The peer is to blame for every one of them
    /// on decode; `FieldTooLong` is ours, on encode.
    #[derive(thiserror::Error)]
    pub enum BridgeError {
        /// Frame type outside 0x0100–0x0105 (NPAMP-BRIDGE §2).
        #[error("not a bridge frame type")]
        NotABridgeFrame => "not_a_bridge_frame",
        /// No BridgeEnvelope TLV (§4).
        #[error("no BridgeEnvelope")]
        EnvelopeAbsent => "envelope_absent",
        /// The TLV or one of its fields ends early (§4).
        #[error("the BridgeEnvelope is truncated")]
        EnvelopeTruncated => "envelope_truncated",
        /// Octets after the method (§4).
        #[error("octets trail the BridgeEnvelope's method")]
        EnvelopeTrailing => "envelope_trailing",
        /// Two BridgeEnvelope TLVs.
        #[error("a second BridgeEnvelope")]
        EnvelopeDuplicate => "envelope_duplicate",
        /// message_kind is not the frame type's (§4).
        #[error("message_kind contradicts the frame type")]
        MessageKindContradicts => "message_kind_contradicts",
        /// protocol_id 0 (NPAMP-REG §4).
        #[error("protocol_id is 0")]
        ProtocolIdZero => "protocol_id_zero",
        /// The method is not UTF-8 (§4).
        #[error("the method is not UTF-8")]
        MethodNotUtf8 => "method_not_utf8",
        /// A request or reply without correlation_id (§5).
        #[error("the correlation_id is empty")]
        CorrelationEmpty => "correlation_empty",
        /// A notification with a correlation_id (§5, §8).
        #[error("a notification carries a correlation_id")]
        CorrelationOnNotify => "correlation_on_notify",
        /// The SafetyLabel ends early, or octets trail it (§7).
        #[error("the SafetyLabel has a wrong length")]
        SafetyLength => "safety_length",
        /// The scope is not UTF-8 (§7).
        #[error("the SafetyLabel's scope is not UTF-8")]
        SafetyScopeNotUtf8 => "safety_scope_not_utf8",
        /// Two SafetyLabel TLVs: no telling which one policy should see.
        #[error("a second SafetyLabel")]
        SafetyDuplicate => "safety_duplicate",
        /// Not 11 octets, or truncated (NPAMP-CC-STREAM §5.2, §9).
        #[error("the StreamControl is not 11 octets long")]
        StreamControlLength => "stream_control_length",
        /// Unimplemented version (NPAMP-CC-STREAM §5.2).
        #[error("the StreamControl has an unknown version")]
        StreamControlVersion => "stream_control_version",
        /// Undefined control value (NPAMP-CC-STREAM §5.2).
        #[error("the StreamControl has an undefined control value")]
        StreamControlUndefined => "stream_control_undefined",
        /// Two StreamControl TLVs.
        #[error("a second StreamControl")]
        StreamControlDuplicate => "stream_control_duplicate",
        /// A TLV with the high bit set that we do not know (ruling R8).
        #[error("an unknown critical TLV")]
        UnknownCriticalTlv => "unknown_critical_tlv",
        /// DocumentBinding ends early or octets trail it (NPAMP-CC-DOC §6.2).
        #[error("the DocumentBinding has a wrong length")]
        BindingLength => "binding_length",
        /// Unknown part_kind (§6.2).
        #[error("the DocumentBinding has an unknown part_kind")]
        BindingPartKind => "binding_part_kind",
        /// Empty doc_id (§6.2).
        #[error("the DocumentBinding has no doc_id")]
        BindingDocId => "binding_doc_id",
        /// No or no UTF-8 media type on a document part (§6.2).
        #[error("the DocumentBinding has no usable media type")]
        BindingContentType => "binding_content_type",
        /// Unknown digest_alg (§6.4).
        #[error("the DocumentBinding names an unknown digest algorithm")]
        BindingDigestAlgorithm => "binding_digest_algorithm",
        /// digest_len is not the algorithm's output length (§6.2).
        #[error("the DocumentBinding's digest has a wrong length")]
        BindingDigestLength => "binding_digest_length",
        /// proof_index out of range, or a proof field set on a document part (§6.2).
        #[error("the DocumentBinding's proof fields are inconsistent")]
        BindingProof => "binding_proof",
        /// A field is longer than its length octet can say (encode only).
        #[error("a field is too long for its length octet")]
        FieldTooLong => "field_too_long",
    }
}

impl BridgeError {
    /// The transport error that reports it: BindingMalformed for a
    /// DocumentBinding, EnvelopeMalformed for everything else.
    pub fn transport_code(self) -> TransportCode {
        match self {
            Self::BindingLength
            | Self::BindingPartKind
            | Self::BindingDocId
            | Self::BindingContentType
            | Self::BindingDigestAlgorithm
            | Self::BindingDigestLength
            | Self::BindingProof => TransportCode::BINDING_MALFORMED,
            _ => TransportCode::ENVELOPE_MALFORMED,
        }
    }
}
