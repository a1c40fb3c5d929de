//! What can be wrong with a discovery payload, one value per kind, and the
//! codes of DISCO_ERROR. Serves NPAMP-DISC §4 and §9.

use crate::bridge::correlation::CorrelationId;
use crate::reasons;
use std::fmt;

/// Code of a DISCO_ERROR (NPAMP-DISC §9); unregistered ones are values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

impl ErrorCode {
    /// The payload is no deterministic map, or a field is absent or of a wrong type.
    pub const MALFORMED_PAYLOAD: Self = Self(1);
    /// `frame_kind` contradicts the frame type.
    pub const KIND_MISMATCH: Self = Self(2);
    /// A record's kind is unknown, and the query was not tolerant.
    pub const UNKNOWN_RECORD_KIND: Self = Self(3);
    /// A filter field that is not implemented.
    pub const FILTER_UNSUPPORTED: Self = Self(4);
    /// A cursor that is no longer known.
    pub const STALE_CURSOR: Self = Self(5);
    /// A subscription is declined, or a local bound is reached.
    pub const SUBSCRIPTION_REFUSED: Self = Self(6);
    /// Discovery is not advertised, or disabled by policy.
    pub const NOT_ADVERTISED: Self = Self(7);

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::MALFORMED_PAYLOAD => "MalformedPayload",
            Self::KIND_MISMATCH => "KindMismatch",
            Self::UNKNOWN_RECORD_KIND => "UnknownRecordKind",
            Self::FILTER_UNSUPPORTED => "FilterUnsupported",
            Self::STALE_CURSOR => "StaleCursor",
            Self::SUBSCRIPTION_REFUSED => "SubscriptionRefused",
            Self::NOT_ADVERTISED => "NotAdvertised",
            _ => "an unregistered code",
        }
    }

    /// What it is counted under.
    pub fn reason(self) -> ErrorReason {
        match self {
            Self::MALFORMED_PAYLOAD => ErrorReason::MalformedPayload,
            Self::KIND_MISMATCH => ErrorReason::KindMismatch,
            Self::UNKNOWN_RECORD_KIND => ErrorReason::UnknownRecordKind,
            Self::FILTER_UNSUPPORTED => ErrorReason::FilterUnsupported,
            Self::STALE_CURSOR => ErrorReason::StaleCursor,
            Self::SUBSCRIPTION_REFUSED => ErrorReason::SubscriptionRefused,
            Self::NOT_ADVERTISED => ErrorReason::NotAdvertised,
            _ => ErrorReason::Unregistered,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

reasons! {
    /// DISCO_ERROR codes, to be counted.
    pub enum ErrorReason {
        /// Code 1.
        MalformedPayload => "malformed_payload",
        /// Code 2.
        KindMismatch => "kind_mismatch",
        /// Code 3.
        UnknownRecordKind => "unknown_record_kind",
        /// Code 4.
        FilterUnsupported => "filter_unsupported",
        /// Code 5.
        StaleCursor => "stale_cursor",
        /// Code 6.
        SubscriptionRefused => "subscription_refused",
        /// Code 7.
        NotAdvertised => "not_advertised",
        /// Any other.
        Unregistered => "unregistered",
    }
}

reasons! {
    /// Why a discovery payload is not taken. The peer is to blame for each.
    #[derive(thiserror::Error)]
    pub enum FrameError {
        /// A frame type outside 0x0100–0x0106 (§3).
        #[error("not a discovery frame type")]
        FrameType => "frame_type",
        /// Longer than the bound.
        #[error("the payload is too long")]
        Oversize => "oversize",
        /// Not one deterministic CBOR item (§4.1).
        #[error("the payload is not deterministic CBOR")]
        NotDeterministic => "not_deterministic",
        /// A key that is no integer (§4.1).
        #[error("a key is no integer")]
        Key => "key",
        /// A negative key, none of which is known (§4.1).
        #[error("a negative key is not understood")]
        NegativeKey => "negative_key",
        /// A field, or the payload itself, of a wrong type (§4.1).
        #[error("a field has a wrong type")]
        FieldType => "field_type",
        /// A required field is absent (§4.1).
        #[error("a required field is absent")]
        Missing => "missing",
        /// An octet string or a number outside its range (§4.2, §5).
        #[error("a field is out of its range")]
        Range => "range",
        /// More entries than the bound.
        #[error("a list has too many entries")]
        TooMany => "too_many",
        /// A DISCO_ANNOUNCE with a `corr` (§4.2).
        #[error("an announcement carries a corr")]
        CorrOnAnnounce => "corr_on_announce",
        /// A DISCO_UPDATE with nothing in it (§7.2).
        #[error("an update with nothing in it")]
        EmptyUpdate => "empty_update",
        /// `frame_kind` is not the frame type (§4.2).
        #[error("frame_kind contradicts the frame type")]
        KindMismatch => "kind_mismatch",
        /// A filter that is not implemented (§9).
        #[error("the filter is not implemented")]
        FilterUnsupported => "filter_unsupported",
    }
}

impl FrameError {
    /// The DISCO_ERROR code that reports it.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::KindMismatch => ErrorCode::KIND_MISMATCH,
            Self::FilterUnsupported => ErrorCode::FILTER_UNSUPPORTED,
            _ => ErrorCode::MALFORMED_PAYLOAD,
        }
    }
}

/// A payload that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Why.
    pub error: FrameError,
    /// Its `corr`, where that much could be read.
    pub corr: Option<CorrelationId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Reason;

    /// NPAMP-DISC §9: the seven codes have a name and a counter each.
    #[test]
    fn codes_have_names_and_counters() {
        let mut seen = Vec::new();
        for code in 1..=7 {
            let reason = ErrorCode(code).reason();
            assert!(!seen.contains(&reason));
            seen.push(reason);
            let name = ErrorCode(code).name().to_lowercase();
            assert_eq!(name, reason.label().replace('_', ""));
        }
        assert_eq!(ErrorCode(8).reason(), ErrorReason::Unregistered);
        assert_eq!(ErrorCode(0).to_string(), "an unregistered code");
    }
}
