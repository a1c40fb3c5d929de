//! A document set at its consumer: assembled from parts in any order, bounded,
//! and given out only when it is complete and its digest matched. Serves
//! NPAMP-CC-DOC §5–§7.
//!
//! Never changes an octet, never gives out part of a set, never decides trust:
//! proofs are bound, not verified (§6.5). One value per correlation_id and
//! channel; whoever keeps it must feed it frames of no other (§3).

use crate::bridge::document::{Digest, DocumentError};
use crate::bridge::document_binding::{DigestAlgorithm, DocumentBinding, Part, ProofAlgorithm};
use crate::bridge::envelope::MessageKind;
use crate::bridge::payload::Payload;
use crate::limits::{DOCUMENT_OCTETS_MAX, DOCUMENT_PARTS_MAX, DOCUMENT_PROOFS_OCTETS_MAX};
use std::collections::BTreeMap;

/// Whether a set has all its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More parts must come.
    More,
    /// Every part is there: [`DocumentSet::finish`] says whether the digest matches.
    Complete,
}

/// A set under assembly. After an error it is of no more use.
#[derive(Debug, Default)]
pub struct DocumentSet {
    stated: Option<Stated>,
    document: Collected,
    content_type: String,
    /// By proof_index.
    proofs: BTreeMap<u8, (ProofAlgorithm, Collected)>,
    proofs_octets: usize,
    parts: usize,
}

/// What every part must state alike (§6.2, §6.3).
#[derive(Debug)]
struct Stated {
    doc_id: Box<[u8]>,
    digest_algorithm: DigestAlgorithm,
    digest: Box<[u8]>,
    proof_count: u8,
}

/// Octets of the document or of one proof.
#[derive(Debug, Default)]
struct Collected {
    octets: Vec<u8>,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Missing,
    /// Streamed, and its end has not come.
    Open,
    Whole,
}

/// A complete set whose digest matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// Document octets.
    pub document: Vec<u8>,
    /// Media type as stated.
    pub content_type: String,
    /// Document identifier.
    pub doc_id: Box<[u8]>,
    /// Algorithm of the digest.
    pub digest_algorithm: DigestAlgorithm,
    /// Proofs by index, with what made them.
    pub proofs: Vec<(ProofAlgorithm, Vec<u8>)>,
}

impl DocumentSet {
    /// Takes a reply of the set's exchange: BRIDGE_RESPONSE is a whole part,
    /// BRIDGE_STREAM_DATA the next octets of one, and BRIDGE_STREAM_END likewise
    /// and the end of the set; without octets it may come without DocumentBinding,
    /// since it then carries no part (§6.1).
    pub fn take(&mut self, payload: &Payload<'_>) -> Result<Progress, DocumentError> {
        let kind = payload.envelope.kind;
        let Some(binding) = &payload.document_binding else {
            if kind == MessageKind::StreamEnd && payload.foreign.is_empty() {
                return self.end();
            }
            return Err(DocumentError::BindingAbsent);
        };
        self.agree(binding)?;
        let octets = payload.foreign;
        self.parts += 1;
        let proofs_octets = match binding.part {
            Part::Document => self.proofs_octets,
            Part::Proof { .. } => self.proofs_octets.saturating_add(octets.len()),
        };
        if self.parts > DOCUMENT_PARTS_MAX || proofs_octets > DOCUMENT_PROOFS_OCTETS_MAX {
            return Err(DocumentError::OverBound);
        }
        self.proofs_octets = proofs_octets;
        let collected = match binding.part {
            Part::Document => {
                if self.document.state == State::Missing {
                    binding.content_type.clone_into(&mut self.content_type);
                } else if self.content_type != binding.content_type {
                    return Err(DocumentError::PartsDisagree);
                }
                if self.document.octets.len().saturating_add(octets.len()) > DOCUMENT_OCTETS_MAX {
                    return Err(DocumentError::OverBound);
                }
                &mut self.document
            }
            Part::Proof { index, algorithm } => {
                let (known, collected) = self
                    .proofs
                    .entry(index)
                    .or_insert_with(|| (algorithm, Collected::default()));
                if *known != algorithm {
                    return Err(DocumentError::PartsDisagree);
                }
                collected
            }
        };
        collected.take(kind, octets)?;
        match kind {
            MessageKind::StreamEnd => self.end(),
            MessageKind::Response if self.is_complete() => Ok(Progress::Complete),
            _ => Ok(Progress::More),
        }
    }

    /// The set, if its digest matches. Called once it is complete.
    pub fn finish(self) -> Result<Assembled, DocumentError> {
        let complete = self.is_complete();
        let stated = self
            .stated
            .filter(|_| complete)
            .ok_or(DocumentError::SetIncomplete)?;
        let document = self.document.octets;
        if !Digest::of(stated.digest_algorithm, &document).equals(&stated.digest) {
            return Err(DocumentError::DigestMismatch);
        }
        let proofs = self.proofs.into_values();
        Ok(Assembled {
            document,
            content_type: self.content_type,
            doc_id: stated.doc_id,
            digest_algorithm: stated.digest_algorithm,
            proofs: proofs
                .map(|(algorithm, collected)| (algorithm, collected.octets))
                .collect(),
        })
    }

    /// Compares a part with the first one. Parts that share their doc_id must agree in
    /// the rest (§6.2); a proof with another doc_id than its document is no proof of it (§6.3).
    fn agree(&mut self, binding: &DocumentBinding<'_>) -> Result<(), DocumentError> {
        let Some(stated) = &self.stated else {
            self.stated = Some(Stated {
                doc_id: binding.doc_id.into(),
                digest_algorithm: binding.digest_algorithm,
                digest: binding.digest.into(),
                proof_count: binding.proof_count,
            });
            return Ok(());
        };
        if *stated.doc_id != *binding.doc_id {
            let is_proof = binding.part != Part::Document;
            return Err(if is_proof || self.document.state == State::Missing {
                DocumentError::ProofUnbound
            } else {
                DocumentError::PartsDisagree
            });
        }
        let same = stated.digest_algorithm == binding.digest_algorithm
            && *stated.digest == *binding.digest
            && stated.proof_count == binding.proof_count;
        if same {
            Ok(())
        } else {
            Err(DocumentError::PartsDisagree)
        }
    }

    fn end(&mut self) -> Result<Progress, DocumentError> {
        let proofs = self.proofs.values_mut().map(|(_, collected)| collected);
        for collected in proofs.chain([&mut self.document]) {
            if collected.state == State::Open {
                collected.state = State::Whole;
            }
        }
        if self.is_complete() {
            Ok(Progress::Complete)
        } else {
            Err(DocumentError::SetIncomplete)
        }
    }

    fn is_complete(&self) -> bool {
        self.stated.as_ref().is_some_and(|stated| {
            self.document.state == State::Whole
                && self.proofs.len() == usize::from(stated.proof_count)
                && self
                    .proofs
                    .values()
                    .all(|(_, collected)| collected.state == State::Whole)
        })
    }
}

impl Collected {
    fn take(&mut self, kind: MessageKind, octets: &[u8]) -> Result<(), DocumentError> {
        let whole = kind == MessageKind::Response;
        match self.state {
            State::Missing => {}
            State::Open if !whole => {}
            State::Open | State::Whole => return Err(DocumentError::PartRepeated),
        }
        self.state = if whole { State::Whole } else { State::Open };
        self.octets.extend_from_slice(octets);
        Ok(())
    }
}
