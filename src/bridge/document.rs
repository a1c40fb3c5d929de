//! Document sets at their producer, their digest, and what can be wrong with
//! one. Serves NPAMP-CC-DOC §5–§8; `document_set` assembles those that came.
//!
//! How a set travels (§7.1 leaves a choice): one that fits a single part and has
//! no proof is one BRIDGE_RESPONSE, which is what NPAMP-BRIDGE knows as a reply.
//! Every other one is a run of BRIDGE_STREAM_DATA that a BRIDGE_STREAM_END closes,
//! so that the end of the exchange can be seen; the document first, then its
//! proofs, each cut into as many parts as it needs. There is no StreamControl:
//! it belongs to NPAMP-CC-STREAM, and a set is not resumed.
//!
//! Never changes a document octet and never decides trust.

use crate::bridge::document_binding::{DigestAlgorithm, DocumentBinding, Part, ProofAlgorithm};
use crate::bridge::envelope::MessageKind;
use crate::bridge::payload::Payload;
use crate::bridge::transport_error::TransportCode;
use crate::reasons;
use sha2::{Digest as _, Sha256, Sha384};
use subtle::ConstantTimeEq as _;

reasons! {
    /// What is wrong with a document set.
    #[derive(thiserror::Error)]
    pub enum DocumentError {
        /// A part without DocumentBinding (§6.1).
        #[error("the part has no DocumentBinding")]
        BindingAbsent => "binding_absent",
        /// The digest recomputed is not the one asserted (§5).
        #[error("the document's digest is not the asserted one")]
        DigestMismatch => "digest_mismatch",
        /// The set ended, or its deadline passed, before every part was there (§7.3, §7.5).
        #[error("the document set is incomplete")]
        SetIncomplete => "set_incomplete",
        /// The set has more octets or parts than are held for one (§8: the consumer's bound).
        #[error("the document set exceeds what is held for one")]
        OverBound => "over_bound",
        /// A part states another proof_count, digest, media type or proof_alg than the part before it (§6.2).
        #[error("two parts of the document set disagree")]
        PartsDisagree => "parts_disagree",
        /// A part came twice (§7.3: proof_index values are distinct).
        #[error("a part of the document set is repeated")]
        PartRepeated => "part_repeated",
        /// A proof names another doc_id than the document (§6.3).
        #[error("a proof does not bind to the document")]
        ProofUnbound => "proof_unbound",
        /// A proof_alg is unknown here; the set is presented all the same, the proof reported (§6.4).
        #[error("a proof's algorithm is unknown")]
        ProofUnsupported => "proof_unsupported",
        /// Which octets are the document cannot be said for certain (§4).
        #[error("the document's octets are not certain")]
        DigestUnstable => "digest_unstable",
    }
}

impl DocumentError {
    /// Its transport error (§8).
    pub fn transport_code(self) -> TransportCode {
        match self {
            Self::BindingAbsent | Self::PartsDisagree | Self::PartRepeated => {
                TransportCode::BINDING_MALFORMED
            }
            Self::DigestMismatch => TransportCode::DIGEST_MISMATCH,
            Self::DigestUnstable => TransportCode::DIGEST_UNSTABLE,
            Self::ProofUnbound => TransportCode::PROOF_UNBOUND,
            Self::ProofUnsupported => TransportCode::PROOF_UNSUPPORTED,
            Self::SetIncomplete | Self::OverBound => TransportCode::SET_INCOMPLETE,
        }
    }
}

/// A digest over document octets.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    algorithm: DigestAlgorithm,
    octets: [u8; 48],
}

impl Digest {
    /// Computes it.
    pub fn of(algorithm: DigestAlgorithm, document: &[u8]) -> Self {
        let mut octets = [0; 48];
        match algorithm {
            DigestAlgorithm::Sha256 => {
                octets[..32].copy_from_slice(&Sha256::digest(document));
            }
            DigestAlgorithm::Sha384 => octets.copy_from_slice(&Sha384::digest(document)),
        }
        Self { algorithm, octets }
    }

    /// As long as the algorithm's output.
    pub fn as_octets(&self) -> &[u8] {
        &self.octets[..self.algorithm.output_len()]
    }

    /// Whether it is `asserted`, in constant time (§5 rule 4).
    pub fn equals(&self, asserted: &[u8]) -> bool {
        self.as_octets().ct_eq(asserted).into()
    }

    /// The binding of a document part with this digest and no proofs.
    pub fn bind<'a>(&'a self, doc_id: &'a [u8], content_type: &'a str) -> DocumentBinding<'a> {
        DocumentBinding {
            part: Part::Document,
            doc_id,
            content_type,
            digest_algorithm: self.algorithm,
            digest: self.as_octets(),
            proof_count: 0,
        }
    }
}

/// A detached proof to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetachedProof<'a> {
    /// What made it.
    pub algorithm: ProofAlgorithm,
    /// Its octets.
    pub octets: &'a [u8],
}

/// One frame of a set to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingPart<'a> {
    /// Frame type.
    pub kind: MessageKind,
    /// What it carries.
    pub binding: DocumentBinding<'a>,
    /// Octets of the document or of the proof, or the next ones of them.
    pub octets: &'a [u8],
}

/// The frames of a set, in order, `part_octets_max` octets at most in each. `None` for
/// more than 255 proofs, which no proof_count can say.
pub fn parts<'a>(
    document_part: DocumentBinding<'a>,
    document: &'a [u8],
    proofs: &[DetachedProof<'a>],
    part_octets_max: usize,
) -> Option<Vec<OutgoingPart<'a>>> {
    let proof_count = u8::try_from(proofs.len()).ok()?;
    let document_part = DocumentBinding {
        proof_count,
        ..document_part
    };
    let mut parts = Vec::new();
    let mut cut = |binding: DocumentBinding<'a>, octets: &'a [u8]| {
        let (first, rest) = octets.split_at(octets.len().min(part_octets_max));
        for octets in std::iter::once(first).chain(rest.chunks(part_octets_max.max(1))) {
            parts.push(OutgoingPart {
                kind: MessageKind::StreamData,
                binding,
                octets,
            });
        }
    };
    cut(document_part, document);
    for (index, proof) in (0..proof_count).zip(proofs) {
        let part = Part::Proof {
            index,
            algorithm: proof.algorithm,
        };
        let binding = DocumentBinding {
            part,
            content_type: "",
            ..document_part
        };
        cut(binding, proof.octets);
    }
    let alone = parts.len() == 1;
    if let Some(last) = parts.last_mut() {
        last.kind = if alone {
            MessageKind::Response
        } else {
            MessageKind::StreamEnd
        };
    }
    Some(parts)
}

/// A complete set whose digest matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedDocument<'a> {
    /// Document octets.
    pub document: &'a [u8],
    /// Media type as stated.
    pub content_type: &'a str,
    /// Document identifier.
    pub doc_id: &'a [u8],
    /// Algorithm of the digest.
    pub digest_algorithm: DigestAlgorithm,
}

/// Judges a reply that is a whole set in one part (§5, §7.3, §7.5).
pub fn verify_single_part<'a>(
    payload: &Payload<'a>,
) -> Result<VerifiedDocument<'a>, DocumentError> {
    let binding = payload
        .document_binding
        .as_ref()
        .ok_or(DocumentError::BindingAbsent)?;
    if binding.part != Part::Document || binding.proof_count != 0 {
        return Err(DocumentError::SetIncomplete);
    }
    if !Digest::of(binding.digest_algorithm, payload.foreign).equals(binding.digest) {
        return Err(DocumentError::DigestMismatch);
    }
    Ok(VerifiedDocument {
        document: payload.foreign,
        content_type: binding.content_type,
        doc_id: binding.doc_id,
        digest_algorithm: binding.digest_algorithm,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::envelope::{ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId};

    fn reply<'a>(binding: Option<DocumentBinding<'a>>, foreign: &'a [u8]) -> Payload<'a> {
        Payload {
            envelope: Envelope {
                protocol_id: ProtocolId::A2A,
                kind: MessageKind::Response,
                content_type: ContentType::JSON,
                flags: EnvelopeFlags::NONE,
                correlation_id: b"c",
                method: "",
            },
            safety: None,
            stream_control: None,
            document_binding: binding,
            foreign,
        }
    }

    /// NPAMP-CC-DOC §5: both algorithms verify the exact octets.
    #[test]
    fn a_bound_document_verifies() {
        for algorithm in [DigestAlgorithm::Sha256, DigestAlgorithm::Sha384] {
            let digest = Digest::of(algorithm, b"{ card }");
            assert_eq!(digest.as_octets().len(), algorithm.output_len());
            let payload = reply(Some(digest.bind(b"id", "application/json")), b"{ card }");
            let set = verify_single_part(&payload).unwrap();
            assert_eq!(set.document, b"{ card }");
            assert_eq!(set.content_type, "application/json");
        }
        assert_eq!(
            hex::encode(Digest::of(DigestAlgorithm::Sha256, b"abc").as_octets()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    /// NPAMP-CC-DOC §5 rule 3, §12: one altered octet is DigestMismatch.
    #[test]
    fn an_altered_octet_is_a_digest_mismatch() {
        let digest = Digest::of(DigestAlgorithm::Sha256, b"{\"a\":1}");
        let payload = reply(Some(digest.bind(b"id", "x/y")), b"{\"a\":2}");
        let error = verify_single_part(&payload).unwrap_err();
        assert_eq!(error, DocumentError::DigestMismatch);
        assert_eq!(error.transport_code(), TransportCode::DIGEST_MISMATCH);
    }

    /// NPAMP-CC-DOC §6.1, §7.5: no binding, and announced proofs that are not there.
    #[test]
    fn absent_binding_and_missing_proofs() {
        let error = verify_single_part(&reply(None, b"{}")).unwrap_err();
        assert_eq!(error.transport_code(), TransportCode::BINDING_MALFORMED);
        let digest = Digest::of(DigestAlgorithm::Sha256, b"{}");
        let announced = DocumentBinding {
            proof_count: 1,
            ..digest.bind(b"id", "x/y")
        };
        let error = verify_single_part(&reply(Some(announced), b"{}")).unwrap_err();
        assert_eq!(error.transport_code(), TransportCode::SET_INCOMPLETE);
    }
}
