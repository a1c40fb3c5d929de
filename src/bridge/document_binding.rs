//! DocumentBinding: names a document set, its digest and its proofs, beside the
//! document's octets. Serves NPAMP-CC-DOC §6. The specification assigns no TLV
//! type; the tag is configuration that both peers state (ruling R9), so nothing
//! here holds a value for it.

use crate::bridge::envelope::sized;
use crate::bridge::error::BridgeError;
use crate::bridge::{envelope, safety, stream_control};

/// Identifier of the algorithm that made a proof (§6.4, ruling R9). Carried, never performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProofAlgorithm(pub u16);

impl ProofAlgorithm {
    /// A signature under the core code point of Ed25519: a JWS of EdDSA.
    pub const ED25519: Self = Self(0x0807);
    /// A signature under the core code point of ML-DSA-87.
    pub const ML_DSA_87: Self = Self(0x0905);
    /// A JWS of any other algorithm, which its own header names.
    pub const OTHER_JWS: Self = Self(0xfe00);

    /// Whether a verifier here could tell what it is.
    pub fn is_known(self) -> bool {
        [Self::ED25519, Self::ML_DSA_87, Self::OTHER_JWS].contains(&self)
    }
}

/// Which part of a document set a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The document.
    Document,
    /// A detached proof.
    Proof {
        /// 0-based, less than proof_count.
        index: u8,
        /// Algorithm; unknown ones are values.
        algorithm: ProofAlgorithm,
    },
}

/// Digest over the document's octets (ruling R9 numbers them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestAlgorithm {
    /// SHA-256, identifier 1.
    Sha256,
    /// SHA-384, identifier 2.
    Sha384,
}

impl DigestAlgorithm {
    /// From its identifier.
    pub fn from_id(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha384),
            _ => None,
        }
    }

    /// Identifier.
    pub fn id(self) -> u16 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
        }
    }

    /// Output length in octets.
    pub fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }
}

/// The DocumentBinding's value (§6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentBinding<'a> {
    /// Document or proof.
    pub part: Part,
    /// Opaque, 1–255 octets, the same in every part of the set.
    pub doc_id: &'a [u8],
    /// Media type, 1–255 octets on a document part.
    pub content_type: &'a str,
    /// Digest algorithm.
    pub digest_algorithm: DigestAlgorithm,
    /// Asserted digest, as long as the algorithm's output.
    pub digest: &'a [u8],
    /// Proofs that complete the set.
    pub proof_count: u8,
}

impl<'a> DocumentBinding<'a> {
    /// Reads a TLV value.
    pub fn decode(value: &'a [u8]) -> Result<Self, BridgeError> {
        let (&part_kind, rest) = value.split_first().ok_or(BridgeError::BindingLength)?;
        let (doc_id, rest) = sized(rest).ok_or(BridgeError::BindingLength)?;
        let (content_type, rest) = sized(rest).ok_or(BridgeError::BindingLength)?;
        let (digest_alg, rest) = rest
            .split_first_chunk::<2>()
            .ok_or(BridgeError::BindingLength)?;
        let (digest, rest) = sized(rest).ok_or(BridgeError::BindingLength)?;
        let &[proof_count, index, alg0, alg1] =
            <&[u8; 4]>::try_from(rest).map_err(|_| BridgeError::BindingLength)?;
        let algorithm = u16::from_be_bytes([alg0, alg1]);
        if doc_id.is_empty() {
            return Err(BridgeError::BindingDocId);
        }
        let content_type =
            std::str::from_utf8(content_type).map_err(|_| BridgeError::BindingContentType)?;
        let digest_algorithm = DigestAlgorithm::from_id(u16::from_be_bytes(*digest_alg))
            .ok_or(BridgeError::BindingDigestAlgorithm)?;
        if digest.len() != digest_algorithm.output_len() {
            return Err(BridgeError::BindingDigestLength);
        }
        let part = match part_kind {
            // proof_index of a document part is ignored (§6.2).
            1 if algorithm != 0 => return Err(BridgeError::BindingProof),
            1 if content_type.is_empty() => return Err(BridgeError::BindingContentType),
            1 => Part::Document,
            2 if index >= proof_count => return Err(BridgeError::BindingProof),
            2 => Part::Proof {
                index,
                algorithm: ProofAlgorithm(algorithm),
            },
            _ => return Err(BridgeError::BindingPartKind),
        };
        Ok(Self {
            part,
            doc_id,
            content_type,
            digest_algorithm,
            digest,
            proof_count,
        })
    }

    pub(crate) fn value_len(&self) -> usize {
        10 + self.doc_id.len() + self.content_type.len() + self.digest.len()
    }

    /// Whether this may be sent.
    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        if self.doc_id.len() > 255 || self.content_type.len() > 255 {
            return Err(BridgeError::FieldTooLong);
        }
        if self.doc_id.is_empty() {
            return Err(BridgeError::BindingDocId);
        }
        if self.digest.len() != self.digest_algorithm.output_len() {
            return Err(BridgeError::BindingDigestLength);
        }
        match self.part {
            Part::Document if self.content_type.is_empty() => Err(BridgeError::BindingContentType),
            Part::Proof { index, .. } if index >= self.proof_count => {
                Err(BridgeError::BindingProof)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn encode_value(&self, out: &mut Vec<u8>) {
        let (part_kind, index, algorithm) = match self.part {
            Part::Document => (1, 0, 0),
            Part::Proof { index, algorithm } => (2, index, algorithm.0),
        };
        out.push(part_kind);
        out.push(self.doc_id.len() as u8);
        out.extend_from_slice(self.doc_id);
        out.push(self.content_type.len() as u8);
        out.extend_from_slice(self.content_type.as_bytes());
        out.extend_from_slice(&self.digest_algorithm.id().to_be_bytes());
        out.push(self.digest.len() as u8);
        out.extend_from_slice(self.digest);
        out.extend_from_slice(&[self.proof_count, index]);
        out.extend_from_slice(&algorithm.to_be_bytes());
    }
}

/// Whether `tag` can serve as the DocumentBinding type: found by the TLV rule of
/// ruling R8 (first octet 0x00 or ≥ 0x80) and not taken. Registered core types
/// below 0x0015 are taken.
pub fn tag_is_usable(tag: u16) -> bool {
    let readable = !(0x0100..0x8000).contains(&tag);
    readable && tag > 0x0014 && ![envelope::TAG, safety::TAG, stream_control::TAG].contains(&tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DocumentBinding<'static> {
        DocumentBinding {
            part: Part::Document,
            doc_id: b"card",
            content_type: "application/json",
            digest_algorithm: DigestAlgorithm::Sha256,
            digest: &[7; 32],
            proof_count: 0,
        }
    }

    fn encoded(binding: &DocumentBinding<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        binding.encode_value(&mut out);
        assert_eq!(out.len(), binding.value_len());
        out
    }

    /// NPAMP-CC-DOC §6.2: layout of both parts.
    #[test]
    fn round_trips() {
        let proof = DocumentBinding {
            part: Part::Proof {
                index: 1,
                algorithm: ProofAlgorithm::ED25519,
            },
            content_type: "",
            proof_count: 2,
            ..sample()
        };
        for binding in [sample(), proof] {
            binding.check().unwrap();
            assert_eq!(DocumentBinding::decode(&encoded(&binding)), Ok(binding));
        }
    }

    /// NPAMP-CC-DOC §6.2, §6.4: each inconsistency is rejected, and all are BindingMalformed.
    #[test]
    fn rejects_each_inconsistency() {
        let good = encoded(&sample());
        for cut in 0..good.len() {
            assert_eq!(
                DocumentBinding::decode(&good[..cut]),
                Err(BridgeError::BindingLength)
            );
        }
        let expect = |change: &dyn Fn(&mut Vec<u8>), error: BridgeError| {
            let mut bad = good.clone();
            change(&mut bad);
            assert_eq!(DocumentBinding::decode(&bad), Err(error));
            assert_eq!(error.transport_code().0, 16);
        };
        let len = good.len();
        expect(&|v| v.push(0), BridgeError::BindingLength);
        expect(&|v| v[0] = 3, BridgeError::BindingPartKind);
        expect(&|v| v[24] = 9, BridgeError::BindingDigestAlgorithm);
        expect(&|v| v[24] = 2, BridgeError::BindingDigestLength);
        expect(&|v| v[len - 1] = 1, BridgeError::BindingProof);
        expect(&|v| v[0] = 2, BridgeError::BindingProof);
        expect(&|v| v[7] = 0xff, BridgeError::BindingContentType);
        let no_id = encoded(&DocumentBinding {
            doc_id: b"",
            ..sample()
        });
        assert_eq!(
            DocumentBinding::decode(&no_id),
            Err(BridgeError::BindingDocId)
        );
        let no_type = encoded(&DocumentBinding {
            content_type: "",
            ..sample()
        });
        assert_eq!(
            DocumentBinding::decode(&no_type),
            Err(BridgeError::BindingContentType)
        );
    }

    #[test]
    fn tags_that_ruling_r8_cannot_find_are_refused() {
        for tag in [0x0010, 0x0011, 0x0013, 0x0014, 0x0100, 0x7b22] {
            assert!(!tag_is_usable(tag));
        }
        for tag in [0x0015, 0x00ff, 0xfe00] {
            assert!(tag_is_usable(tag));
        }
    }
}
