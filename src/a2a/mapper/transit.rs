//! A transit's half between the other two: an exchange that a peer asked for is a
//! call on an upstream association, and what that call hears becomes the answer.
//! Serves NPAMP-BRIDGE §5, §7, NPAMP-CC-STREAM §5, §6, NPAMP-CC-DOC §4, §7,
//! NPAMP-MAP-A2A §5 and rulings R13, R14, R17, R25.
//!
//! Never changes a foreign octet, an event_id, a label, a document or the text of
//! a transport error. What belongs to one association is each hop's own:
//! correlation_id, whether a stream can be resumed, agreement on documents.
//!
//! An upstream cannot be paused: the wire has no flow control, and one association
//! carries many streams. A stream in transit is therefore *pulled* from its first
//! event on (see `retained`), so that it never fills its peer's association, and
//! when too much of it waits it ends, visibly.

use super::admission::Admitted;
use super::responder::Want;
use super::{Mapper, TIMEOUT_PREFIX};
use crate::a2a::json_rpc::{self, Id};
use crate::a2a::method::Operation;
use crate::a2a::port::{
    AssociationId, CallEvent, CallRequest, CarriedDocument, ExchangeId, Label, ServiceParameters,
    Transit, TransportError, UpstreamEvent,
};
use crate::a2a::stats::{Outcome, Refusal, Resumption};
use crate::bridge::document::{DetachedProof, Digest};
use crate::bridge::document_binding::ProofAlgorithm;
use crate::bridge::envelope::MessageKind;
use crate::bridge::transport_error::{TransportCode, TransportErrorBody};
use crate::limits::HOPS_MAX;
use std::time::Instant;

/// What a transit must know of an exchange's answer.
struct Awaited {
    /// Nothing: it is a notification.
    nothing: bool,
    /// A document set.
    document: bool,
    /// id token of the Request.
    id: Option<Box<str>>,
    /// A stream has begun.
    streaming: bool,
}

impl Mapper {
    /// An exchange for an upstream: the peer's service parameters, one hop further on.
    pub(super) fn transit(
        &self,
        association: AssociationId,
        route: usize,
        mut parameters: ServiceParameters,
        admitted: &Admitted,
    ) -> Result<Box<Transit>, Refusal> {
        let stated = self
            .associations
            .get(&association)
            .ok_or(Refusal::AssociationUnknown)?
            .info
            .parameters
            .hops;
        if stated >= HOPS_MAX {
            return Err(Refusal::TooManyHops);
        }
        parameters.hops = stated + 1;
        Ok(Box::new(Transit {
            association,
            route,
            parameters,
            streamed: matches!(
                admitted.operation,
                Operation::SendStreamed | Operation::Reattach
            ),
            request: CallRequest::Transit {
                action: admitted.action.clone(),
                label: admitted.label.clone(),
            },
        }))
    }

    /// News of an upstream.
    pub(super) fn upstream(&mut self, name: ExchangeId, event: UpstreamEvent, now: Instant) {
        let Some(awaited) = self.awaited(name) else {
            return;
        };
        match event {
            UpstreamEvent::Document(set) => self.pass_document(name, &awaited, &set, now),
            UpstreamEvent::StreamFailed { event_id, error } => {
                self.pass_failure(name, &awaited, Some(event_id), &error, now);
            }
            UpstreamEvent::Call(CallEvent::TransportError(error)) => {
                self.pass_failure(name, &awaited, None, &error, now);
            }
            UpstreamEvent::Call(CallEvent::Accepted) => {
                self.end_exchange(name, Outcome::Notified, now);
            }
            // Nothing can be said of a set that is not whole.
            UpstreamEvent::Call(CallEvent::DocumentBegun) => {}
            UpstreamEvent::Call(CallEvent::Response(object)) if !awaited.streaming => {
                if awaited.document {
                    // The upstream carries extended cards as JSON-RPC (ruling R9).
                    self.answer_extended_card(name, 200, None, &object, now);
                } else {
                    self.answer(name, MessageKind::Response, &object, Outcome::Response, now);
                }
            }
            UpstreamEvent::Call(CallEvent::ErrorResponse(object)) if !awaited.streaming => {
                let outcome = Outcome::ErrorResponse;
                self.answer(name, MessageKind::Error, &object, outcome, now);
            }
            UpstreamEvent::Call(CallEvent::StreamEvent { .. }) if awaited.document => {
                self.not_delivered(name, "the agent streams its card", true, now);
            }
            UpstreamEvent::Call(CallEvent::StreamEvent { event_id, object }) => {
                let kind = MessageKind::StreamData;
                self.pass_event(name, event_id, kind, &object, None, now);
            }
            UpstreamEvent::Call(CallEvent::StreamEnd { event_id, object }) => {
                let object = object.unwrap_or_default();
                let last = Some(Outcome::StreamEnd);
                self.pass_event(name, event_id, MessageKind::StreamEnd, &object, last, now);
            }
            UpstreamEvent::Call(CallEvent::StreamError { event_id, object }) => {
                let last = Some(Outcome::StreamError);
                self.pass_event(name, event_id, MessageKind::Error, &object, last, now);
            }
            // The requester's half gives neither out for a call like this.
            UpstreamEvent::Call(
                CallEvent::Document { .. }
                | CallEvent::Records(_)
                | CallEvent::DiscoveryError { .. }
                | CallEvent::Response(_)
                | CallEvent::ErrorResponse(_),
            ) => self.not_delivered(name, "the upstream's answer fits no exchange", false, now),
        }
    }

    fn awaited(&self, name: ExchangeId) -> Option<Awaited> {
        let exchange = self.exchanges.get(&name)?;
        let id = match &exchange.want {
            Want::Reply { id, .. } | Want::ExtendedCard { id, .. } => Some(id.clone()),
            Want::Card { .. } | Want::Nothing => None,
        };
        Some(Awaited {
            nothing: matches!(exchange.want, Want::Nothing),
            document: matches!(exchange.want, Want::Card { .. } | Want::ExtendedCard { .. }),
            id,
            streaming: exchange.producer.is_some(),
        })
    }

    /// A stream frame, under the event_id that it has.
    fn pass_event(
        &mut self,
        name: ExchangeId,
        event_id: u64,
        kind: MessageKind,
        object: &[u8],
        last: Option<Outcome>,
        now: Instant,
    ) {
        if self
            .emit_as(name, event_id, kind, object, last, now)
            .is_ok()
        {
            return;
        }
        if last.is_some() {
            // The end once more, of a stream that was resumed at its end: it has the id of
            // the event before it, and ids of this hop rise.
            self.emit(name, kind, object, last, now);
        } else {
            // The requester's half has checked it, so that this is a fault of ours.
            debug_assert!(false, "event_ids rise");
            self.not_delivered(name, "the event_id did not rise", true, now);
        }
    }

    /// A transport error, of the upstream or of this relay on the way to it: code and text stay.
    fn pass_failure(
        &mut self,
        name: ExchangeId,
        awaited: &Awaited,
        event_id: Option<u64>,
        error: &TransportError,
        now: Instant,
    ) {
        let marked = error.message.starts_with(TIMEOUT_PREFIX);
        let message = if error.timed_out && !marked {
            &format!("{TIMEOUT_PREFIX}: {}", error.message)
        } else {
            &error.message
        };
        let body = TransportErrorBody {
            code: TransportCode(error.code),
            message,
        };
        if awaited.nothing {
            self.end_exchange(name, Outcome::TransportError, now);
        } else if awaited.streaming || event_id.is_some() {
            let (kind, last) = (MessageKind::Error, Some(Outcome::TransportError));
            let octets = body.encode();
            let passed = event_id.is_some_and(|event_id| {
                self.emit_as(name, event_id, kind, &octets, last, now)
                    .is_ok()
            });
            if !passed {
                self.emit(name, kind, &octets, last, now);
            }
        } else {
            self.answer_transport_error(name, &body, now);
        }
    }

    /// A document set: what its producer stated of it stays (NPAMP-CC-DOC §4); how it is cut
    /// into parts is each hop's own. To a peer without agreement on documents an extended
    /// card goes as JSON-RPC (ruling R9).
    fn pass_document(
        &mut self,
        name: ExchangeId,
        awaited: &Awaited,
        set: &CarriedDocument,
        now: Instant,
    ) {
        if !awaited.document {
            let token = awaited.id.as_deref().unwrap_or_default();
            let response = json_rpc::success(Id::from_token(token), &set.document);
            return match response {
                Some(object) if !awaited.nothing && !awaited.streaming => {
                    let (kind, outcome) = (MessageKind::Response, Outcome::Response);
                    self.answer(name, kind, object.as_ref(), outcome, now);
                }
                _ => self.not_delivered(name, "the extended card is no JSON text", false, now),
            };
        }
        let proofs: Vec<DetachedProof<'_>> = set
            .proofs
            .iter()
            .map(|proof| DetachedProof {
                algorithm: ProofAlgorithm(proof.algorithm),
                octets: &proof.octets,
            })
            .collect();
        let digest = Digest::of(set.digest_algorithm, &set.document);
        let binding = digest.bind(&set.doc_id, &set.content_type);
        let label = set.label.as_ref().map(Label::borrow);
        self.answer_set(name, binding, &set.document, &proofs, label, now);
    }

    /// Ends a stream in transit of which too much waits to be sent. True when it did.
    pub(super) fn break_lagging(&mut self, name: ExchangeId, now: Instant) -> bool {
        let bounds = &self.config.stream;
        let lags = self.never_sent(name).is_some_and(|(events, octets)| {
            // One alone is what the largest message may be.
            events > 1 && (events > bounds.transit_events || octets > bounds.transit_octets)
        });
        if lags {
            self.stats.resumption.count(Resumption::Lagged);
            self.break_stream(
                name,
                true,
                "the stream came faster than it could be passed on",
                now,
            );
        }
        lags
    }
}
