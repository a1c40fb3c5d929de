//! The consumer's half of document sets: the parts that answer a card request
//! are assembled, and the set is handed on whole or not at all. Serves
//! NPAMP-CC-DOC §3, §5–§8, NPAMP-MAP-A2A §7 and ruling R25.
//!
//! Checks binding and digest and no more: proofs are carried for their reader
//! (NPAMP-CC-DOC §6.5). What is wrong with a set is told to the caller and, as
//! §8 asks, to the producer in a BRIDGE_ERROR.

use super::requester::Fault;
use super::{Mapper, a2a_payload, transport_error};
use crate::a2a::json_rpc::{self, Id};
use crate::a2a::port::{
    AssociationId, CallEvent, CallId, CarriedDocument, DetachedProof, Label, Output, UpstreamEvent,
};
use crate::a2a::stats::{Outcome, ReplyFault};
use crate::bridge::document::{self, DocumentError};
use crate::bridge::document_binding::{Part, ProofAlgorithm};
use crate::bridge::document_set::Progress;
use crate::bridge::envelope::MessageKind;
use crate::bridge::payload::Payload;
use crate::bridge::transport_error::{TransportCode, TransportErrorBody};
use crate::wire::ChannelId;
use bytes::Bytes;
use std::time::Instant;

impl Mapper {
    /// A reply to an outstanding call that asked for a document.
    pub(super) fn document_part(
        &mut self,
        id: AssociationId,
        octets: &Bytes,
        decoded: &Payload<'_>,
        now: Instant,
    ) {
        let kind = decoded.envelope.kind;
        let correlation_id = decoded.envelope.correlation_id;
        match self.take_part(id, octets, decoded) {
            Ok(None) => {}
            Ok(Some(set)) => self.present(id, kind, correlation_id, set, now),
            Err(error) => {
                self.stats.document_errors.count(error);
                let fault = Fault {
                    reason: ReplyFault::Document,
                    code: error.transport_code(),
                };
                self.reject_set(id, kind, correlation_id, &fault, &error.to_string(), now);
            }
        }
    }

    fn take_part(
        &mut self,
        id: AssociationId,
        octets: &Bytes,
        decoded: &Payload<'_>,
    ) -> Result<Option<CarriedDocument>, DocumentError> {
        let correlation_id = decoded.envelope.correlation_id;
        let is_first = self
            .associations
            .get(&id)
            .and_then(|association| association.requester.get(correlation_id))
            .is_some_and(|entry| entry.value.set.is_none());
        let is_alone = is_first
            && decoded.envelope.kind == MessageKind::Response
            && decoded
                .document_binding
                .as_ref()
                .is_none_or(|binding| binding.part == Part::Document && binding.proof_count == 0);
        if is_alone {
            let set = document::verify_single_part(decoded)?;
            return Ok(Some(CarriedDocument {
                document: octets.slice_ref(set.document),
                doc_id: set.doc_id.into(),
                content_type: set.content_type.to_owned(),
                digest_algorithm: set.digest_algorithm,
                label: decoded.safety.as_ref().map(Label::of),
                proofs: Vec::new(),
            }));
        }
        if !self.hold(id, decoded.foreign.len()) {
            return Err(DocumentError::OverBound);
        }
        let Some(call) = self
            .associations
            .get_mut(&id)
            .and_then(|association| association.requester.get_mut(correlation_id))
        else {
            return Ok(None);
        };
        call.octets += decoded.foreign.len();
        let is_document = decoded
            .document_binding
            .as_ref()
            .is_some_and(|binding| binding.part == Part::Document);
        if let Some(label) = decoded.safety.as_ref().filter(|_| is_document) {
            call.document_label = Some(Label::of(label));
        }
        let set = call.set.get_or_insert_default();
        if set.take(decoded)? == Progress::More {
            if is_first {
                let (call, event) = (call.name, CallEvent::DocumentBegun);
                self.outputs.push_back(Output::Call { call, event });
            }
            return Ok(None);
        }
        let assembled = call.set.take().unwrap_or_default().finish()?;
        Ok(Some(CarriedDocument {
            document: assembled.document.into(),
            doc_id: assembled.doc_id,
            content_type: assembled.content_type,
            digest_algorithm: assembled.digest_algorithm,
            label: call.document_label.take(),
            proofs: assembled
                .proofs
                .into_iter()
                .map(|(algorithm, octets)| DetachedProof {
                    algorithm: algorithm.0,
                    octets: octets.into(),
                })
                .collect(),
        }))
    }

    /// Hands a set on: as a document, or as the Response that its Request awaits (ruling
    /// R25); as it came where it goes on to a peer.
    fn present(
        &mut self,
        id: AssociationId,
        kind: MessageKind,
        correlation_id: &[u8],
        set: CarriedDocument,
        now: Instant,
    ) {
        let transit = self.is_transit(id, correlation_id);
        let id_token = self
            .associations
            .get(&id)
            .and_then(|association| association.requester.get(correlation_id))
            .and_then(|entry| entry.value.id.clone());
        self.report_unsupported(id, correlation_id, &set.proofs);
        if transit {
            let call = self.end_call(id, correlation_id, Outcome::Document, false, false, now);
            if let Some(call) = call {
                let event = UpstreamEvent::Document(Box::new(set));
                self.outputs.push_back(Output::Upstream { call, event });
            }
            return;
        }
        let event = if let Some(token) = id_token {
            let Some(response) = json_rpc::success(Id::from_token(&token), &set.document) else {
                let fault = ReplyFault::NotJsonRpc.into();
                let text = "the extended card is no JSON text";
                return self.fail(id, kind, correlation_id, &fault, text, now);
            };
            CallEvent::Response(response.into())
        } else {
            CallEvent::Document {
                document: set.document,
                content_type: set.content_type,
                proofs: set.proofs,
            }
        };
        let call = self.end_call(id, correlation_id, Outcome::Document, false, false, now);
        if let Some(call) = call {
            self.outputs.push_back(Output::Call { call, event });
        }
    }

    /// Whether the call passes a peer's request on.
    fn is_transit(&self, id: AssociationId, correlation_id: &[u8]) -> bool {
        self.associations
            .get(&id)
            .and_then(|association| association.requester.get(correlation_id))
            .is_some_and(|entry| entry.value.labelling.is_transit())
    }

    /// Proofs of an algorithm that is unknown here are carried, and reported (NPAMP-CC-DOC §6.4).
    fn report_unsupported(
        &mut self,
        id: AssociationId,
        correlation_id: &[u8],
        proofs: &[DetachedProof],
    ) {
        let mut unsupported = Vec::new();
        for (index, proof) in proofs.iter().enumerate() {
            if !ProofAlgorithm(proof.algorithm).is_known() {
                self.stats
                    .document_errors
                    .count(DocumentError::ProofUnsupported);
                unsupported.push(format!("proof {index}: {:#06x}", proof.algorithm));
            }
        }
        if !unsupported.is_empty() {
            let code = DocumentError::ProofUnsupported.transport_code();
            self.report(id, correlation_id, code, &unsupported.join(", "));
        }
    }

    /// Fails the call of a set that is wrong, and tells the producer.
    pub(super) fn reject_set(
        &mut self,
        id: AssociationId,
        kind: MessageKind,
        correlation_id: &[u8],
        fault: &Fault,
        message: &str,
        now: Instant,
    ) {
        self.stats.reply_faults.count(fault.reason);
        self.report(id, correlation_id, fault.code, message);
        let ended = kind == MessageKind::StreamEnd;
        let call = self.give_up_set(id, correlation_id, Outcome::TransportError, !ended, now);
        if let Some(call) = call {
            let event = transport_error(fault.code, message);
            self.outputs.push_back(Output::Call { call, event });
        }
    }

    /// The caller left, or its deadline passed, with a set begun: it is discarded (NPAMP-CC-DOC §7.5).
    pub(super) fn abandon_set(&mut self, id: AssociationId, correlation_id: &[u8], now: Instant) {
        let error = DocumentError::SetIncomplete;
        self.stats.document_errors.count(error);
        self.report(
            id,
            correlation_id,
            error.transport_code(),
            &error.to_string(),
        );
        self.give_up_set(id, correlation_id, Outcome::Abandoned, true, now);
    }

    /// Ends a call whose parts may go on coming. The report says so to the
    /// producer; the cancel of NPAMP-CC-STREAM has no meaning in this class.
    fn give_up_set(
        &mut self,
        id: AssociationId,
        correlation_id: &[u8],
        outcome: Outcome,
        remembers: bool,
        now: Instant,
    ) -> Option<CallId> {
        let call = self.end_call(id, correlation_id, outcome, false, remembers, now);
        if let Some(association) = self.associations.get_mut(&id) {
            association.requester.mark_cancelled(correlation_id);
        }
        call
    }

    /// A BRIDGE_ERROR to the producer of a set (NPAMP-CC-DOC §8).
    fn report(
        &mut self,
        id: AssociationId,
        correlation_id: &[u8],
        code: TransportCode,
        message: &str,
    ) {
        let foreign = TransportErrorBody { code, message }.encode();
        let payload = a2a_payload(MessageKind::Error, correlation_id, "", &foreign);
        self.send(id, ChannelId::BRIDGE, &payload, None);
    }
}
