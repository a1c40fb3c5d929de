//! Type-Length-Value extensions and the critical-bit rule. Serves the draft's
//! §Extension TLVs and §TLV Type Registry. It never copies a value.

use thiserror::Error;

/// One TLV over borrowed octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// The type.
    pub tag: u16,
    /// 0 to 65,535 octets.
    pub value: &'a [u8],
}

/// The registered tags that this implementation names.
pub mod tag {
    /// Profiles offered, one octet each.
    pub const PROFILE_OFFER: u16 = 0x01;
    /// The selected profile, one octet.
    pub const PROFILE_SELECT: u16 = 0x02;
    /// KEMs offered, two octets each.
    pub const KEM_OFFER: u16 = 0x03;
    /// The selected KEM, two octets.
    pub const KEM_SELECT: u16 = 0x04;
    /// Signature schemes offered, two octets each.
    pub const SIG_OFFER: u16 = 0x05;
    /// The selected signature scheme, two octets.
    pub const SIG_SELECT: u16 = 0x06;
    /// The client's KEM share.
    pub const KEM_SHARE: u16 = 0x07;
    /// The server's KEM ciphertext.
    pub const KEM_CIPHERTEXT: u16 = 0x08;
    /// The sender's identity public key.
    pub const IDENTITY_KEY: u16 = 0x09;
    /// Signature scheme and signature over the transcript.
    pub const CERT_VERIFY: u16 = 0x0a;
    /// The Finished MAC.
    pub const FINISHED: u16 = 0x0b;
    /// AEAD suites offered, two octets each.
    pub const AEAD_OFFER: u16 = 0x0c;
    /// The selected AEAD suite, two octets.
    pub const AEAD_SELECT: u16 = 0x0d;
    /// Per-frame integrity charge.
    pub const ANOMALY_CHARGE: u16 = 0x12;
    /// Path-migration nonce.
    pub const PATH_CHALLENGE: u16 = 0x15;
    /// Path-migration response.
    pub const PATH_RESPONSE: u16 = 0x16;
    /// Key-update epoch, eight octets.
    pub const KEY_UPDATE_MARKER: u16 = 0x17;
    /// Protection-mode selector.
    pub const PROTECTION_MODE: u16 = 0x18;
    /// Master-ratchet generation, eight octets.
    pub const RATCHET_GENERATION: u16 = 0x19;
}

/// Every tag of the draft's registry that is not merely reserved.
pub const REGISTERED_TAGS: &[u16] = &[
    tag::PROFILE_OFFER,
    tag::PROFILE_SELECT,
    tag::KEM_OFFER,
    tag::KEM_SELECT,
    tag::SIG_OFFER,
    tag::SIG_SELECT,
    tag::KEM_SHARE,
    tag::KEM_CIPHERTEXT,
    tag::IDENTITY_KEY,
    tag::CERT_VERIFY,
    tag::FINISHED,
    tag::AEAD_OFFER,
    tag::AEAD_SELECT,
    tag::ANOMALY_CHARGE,
    tag::PATH_CHALLENGE,
    tag::PATH_RESPONSE,
    tag::KEY_UPDATE_MARKER,
    tag::PROTECTION_MODE,
    tag::RATCHET_GENERATION,
];

/// Why octets are not a run of TLVs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TlvError {
    /// The octets end inside a TLV.
    #[error("TLV is truncated")]
    Truncated,
    /// An unknown TLV with the high bit set: the frame is to be rejected.
    #[error("unknown TLV {0:#06x} must be understood")]
    UnknownCritical(u16),
}

impl<'a> Tlv<'a> {
    /// Octets before the value.
    pub const HEAD_LEN: usize = 4;
    /// Longest value.
    pub const VALUE_LEN_MAX: usize = u16::MAX as usize;

    /// Reads one TLV; gives it and the octets after it.
    pub fn decode(octets: &'a [u8]) -> Result<(Self, &'a [u8]), TlvError> {
        let (head, rest) = octets
            .split_first_chunk::<{ Tlv::HEAD_LEN }>()
            .ok_or(TlvError::Truncated)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, rest) = rest.split_at_checked(length).ok_or(TlvError::Truncated)?;
        let tag = u16::from_be_bytes([head[0], head[1]]);
        Ok((Self { tag, value }, rest))
    }

    /// Appends the TLV. A value above 65,535 octets is a bug of the caller.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.value.len() <= Self::VALUE_LEN_MAX,
            "TLV value fits its length field"
        );
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&(self.value.len() as u16).to_be_bytes());
        out.extend_from_slice(self.value);
    }

    /// Octets that [`Tlv::encode`] appends.
    pub const fn encoded_len(&self) -> usize {
        Self::HEAD_LEN + self.value.len()
    }

    /// Whether a receiver that does not know the tag must reject the frame.
    pub const fn is_critical(&self) -> bool {
        self.tag & 0x8000 != 0
    }
}

/// The tags a receiver knows, and what the critical-bit rule says of the others.
#[derive(Debug, Clone, Copy)]
pub struct KnownTags<'k>(pub &'k [u16]);

impl KnownTags<'_> {
    /// `true` for a known tag, `false` for one to skip, an error for an unknown
    /// tag with the high bit set (draft §Extension TLVs).
    pub fn admit(&self, tlv: &Tlv<'_>) -> Result<bool, TlvError> {
        if self.0.contains(&tlv.tag) {
            Ok(true)
        } else if tlv.is_critical() {
            Err(TlvError::UnknownCritical(tlv.tag))
        } else {
            Ok(false)
        }
    }
}

/// Iterates over octets that are wholly TLVs; stops after the first error.
#[derive(Debug, Clone)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Over `octets`.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, TlvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match Tlv::decode(self.rest) {
            Ok((tlv, rest)) => {
                self.rest = rest;
                Some(Ok(tlv))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Draft §Extension TLVs: unknown with 0x8000 clear is ignored, set rejects.
    #[test]
    fn critical_bit() {
        let known = KnownTags(&[0x17, 0x8002]);
        let value: &[u8] = &[];
        assert_eq!(known.admit(&Tlv { tag: 0x17, value }), Ok(true));
        assert_eq!(known.admit(&Tlv { tag: 0x8002, value }), Ok(true));
        assert_eq!(known.admit(&Tlv { tag: 0x7fff, value }), Ok(false));
        assert_eq!(
            known.admit(&Tlv { tag: 0x8001, value }),
            Err(TlvError::UnknownCritical(0x8001))
        );
    }

    #[test]
    fn truncation() {
        let whole = [0x00, 0x17, 0x00, 0x02, 0xaa, 0xbb];
        for short in 0..whole.len() {
            assert_eq!(Tlv::decode(&whole[..short]), Err(TlvError::Truncated));
        }
        let (tlv, rest) = Tlv::decode(&whole).unwrap();
        assert_eq!((tlv.tag, tlv.value, rest.len()), (0x17, &whole[4..], 0));
    }

    #[test]
    fn iteration_stops_after_an_error() {
        let octets = [0x00, 0x01, 0x00, 0x00, 0x00];
        let mut tlvs = Tlvs::new(&octets);
        assert!(tlvs.next().unwrap().is_ok());
        assert_eq!(tlvs.next(), Some(Err(TlvError::Truncated)));
        assert_eq!(tlvs.next(), None);
    }

    proptest! {
        #[test]
        fn round_trip(list in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let mut octets = Vec::new();
            for (tag, value) in &list {
                let tlv = Tlv { tag: *tag, value };
                let before = octets.len();
                tlv.encode(&mut octets);
                prop_assert_eq!(octets.len() - before, tlv.encoded_len());
            }
            let read: Vec<(u16, Vec<u8>)> = Tlvs::new(&octets).map(|t| t.map(|t| (t.tag, t.value.to_vec()))).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn garbage_never_panics(octets: Vec<u8>) {
            let mut total = 0;
            for tlv in Tlvs::new(&octets).flatten() {
                total += tlv.encoded_len();
            }
            prop_assert!(total <= octets.len());
        }
    }
}
