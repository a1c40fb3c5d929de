//! The responder's half: a peer's request that was admitted is dispatched to the
//! agent, and the agent's answer becomes the reply. Serves NPAMP-BRIDGE §6–§8,
//! NPAMP-CC-JSONRPC §4–§9, NPAMP-CC-STREAM §5, §7.2, NPAMP-CC-DOC §7.1, §9,
//! NPAMP-MAP-A2A §4–§7 and rulings R13–R16, R26, R27.

use super::admission::{Admitted, parameters};
use super::{Mapper, TIMEOUT_PREFIX, a2a_payload, ended};
use crate::a2a::card;
use crate::a2a::config::AgentVersion;
use crate::a2a::json_rpc::{self, Id, Outcome as JsonOutcome};
use crate::a2a::method::Operation;
use crate::a2a::port::{AgentEvent, AssociationId, Dispatch, ExchangeId, Output, Target};
use crate::a2a::stats::{Dropped, Outcome, Refusal};
use crate::a2a::streams::StreamHome;
use crate::bridge::correlation::CorrelationId;
use crate::bridge::document::{self, DetachedProof, Digest, DocumentError};
use crate::bridge::document_binding::{DigestAlgorithm, DocumentBinding, Part};
use crate::bridge::envelope::{MessageKind, ProtocolId};
use crate::bridge::error::BridgeError;
use crate::bridge::payload::Payload;
use crate::bridge::safety::{Effect, SafetyLabel};
use crate::bridge::stream::Producer;
use crate::bridge::stream_control::{Control, StreamControl};
use crate::bridge::transport_error::{TransportCode, TransportErrorBody, cut};
use crate::limits::{CARD_OCTETS_MAX, DOCUMENT_PART_OCTETS_MAX};
use crate::wire::ChannelId;
use bytes::Bytes;
use std::time::Instant;

/// doc_id of the public card: there is one per agent, and one agent per server name.
const CARD_DOC_ID: &[u8] = b"agent-card";
/// doc_id of the extended card.
const EXTENDED_CARD_DOC_ID: &[u8] = b"extended-agent-card";
/// Media type of an extended card, and of a card whose agent stated none.
const CARD_CONTENT_TYPE: &str = "application/json";
/// Longest Retry-After that travels in a transport error's text, in octets.
const RETRY_AFTER_OCTETS_MAX: usize = 64;

/// A dispatched exchange.
pub(super) struct Exchange {
    pub(super) operation: Operation,
    pub(super) since: Instant,
    /// Octets held for it.
    pub(super) octets: usize,
    /// None once its association is gone and it goes on without.
    pub(super) association: Option<AssociationId>,
    pub(super) channel: ChannelId,
    pub(super) want: Want,
    /// It is with an upstream, not with an agent.
    pub(super) transit: bool,
    /// Present once the agent's answer is a stream.
    pub(super) producer: Option<Producer>,
}

/// What an unanswered request of a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// An exchange or a kept stream of this mapper.
    Here(ExchangeId),
    /// A stream that another mapper keeps and goes on with.
    Away(StreamHome),
}

/// What the peer waits for.
pub(super) enum Want {
    /// A reply to the Request with this id token.
    Reply {
        correlation_id: CorrelationId,
        id: Box<str>,
        /// As the request says, which a resume request must repeat.
        method: Box<str>,
        /// As policy judged it.
        effect: Effect,
    },
    /// The public card.
    Card { correlation_id: CorrelationId },
    /// The extended card, out of the reply to the Request with this id token (ruling R25).
    ExtendedCard {
        correlation_id: CorrelationId,
        id: Box<str>,
    },
    /// Nothing.
    Nothing,
}

impl Want {
    fn correlation_id(&self) -> Option<&CorrelationId> {
        match self {
            Self::Reply { correlation_id, .. }
            | Self::Card { correlation_id }
            | Self::ExtendedCard { correlation_id, .. } => Some(correlation_id),
            Self::Nothing => None,
        }
    }
}

impl Mapper {
    /// Answers a request that did not decode (ruling R26).
    pub(super) fn refuse_malformed(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        protocol_id: ProtocolId,
        correlation_id: &[u8],
        error: BridgeError,
    ) {
        let code = error.transport_code();
        self.stats
            .requests_refused
            .count(if code == TransportCode::BINDING_MALFORMED {
                Refusal::BindingMalformed
            } else {
                Refusal::EnvelopeMalformed
            });
        let body = TransportErrorBody {
            code,
            message: &error.to_string(),
        };
        self.answer_error(association, channel, protocol_id, correlation_id, &body);
    }

    pub(super) fn request(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        octets: &Bytes,
        decoded: &Payload<'_>,
        now: Instant,
    ) {
        let envelope = decoded.envelope;
        let admitted = match decoded.stream_control {
            Some(control) if control.control == Control::Resume => self
                .admit_envelope(id, decoded)
                .and_then(|()| self.resume(id, channel, decoded, control.event_id, now)),
            _ => self
                .admit_request(id, channel, octets, decoded)
                .and_then(|admitted| self.dispatch(id, channel, admitted, now)),
        };
        if let Err(refusal) = admitted {
            self.stats.requests_refused.count(refusal);
            let body = TransportErrorBody {
                code: refusal.transport_code(),
                message: &refusal.to_string(),
            };
            self.answer_error(
                id,
                channel,
                envelope.protocol_id,
                envelope.correlation_id,
                &body,
            );
        }
    }

    /// A one-way message: handed on or dropped, never answered (NPAMP-BRIDGE §8).
    pub(super) fn notification(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        octets: &Bytes,
        decoded: &Payload<'_>,
        now: Instant,
    ) {
        let admitted = self
            .admit_notification(id, channel, octets, decoded)
            .and_then(|admitted| self.dispatch(id, channel, admitted, now));
        if let Err(refusal) = admitted {
            self.stats.requests_refused.count(refusal);
            self.stats.dropped.count(match refusal.transport_code() {
                TransportCode::ENVELOPE_MALFORMED | TransportCode::BINDING_MALFORMED => {
                    Dropped::NotifyMalformed
                }
                _ => Dropped::NotifyRefused,
            });
        }
    }

    fn dispatch(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        admitted: Admitted,
        now: Instant,
    ) -> Result<(), Refusal> {
        let outstanding_max = self.config.exchanges_per_association;
        let responding = self
            .associations
            .get(&id)
            .ok_or(Refusal::AssociationUnknown)?
            .responding();
        if responding >= outstanding_max {
            return Err(Refusal::ExchangesFull);
        }
        if !self.hold(id, admitted.octets) {
            return Err(Refusal::OctetsFull);
        }
        let (name, octets) = (ExchangeId(self.next_exchange), admitted.octets);
        let transit = matches!(admitted.target, Target::Route(_));
        let output = match self.outward(id, name, &admitted) {
            Ok(output) => output,
            Err(refusal) => {
                self.release(id, octets);
                return Err(refusal);
            }
        };
        self.next_exchange += 1;
        let association = self
            .associations
            .get_mut(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        match admitted.want.correlation_id() {
            Some(correlation_id) => {
                let accepted = association
                    .responder(channel)
                    .accept(correlation_id.clone(), Slot::Here(name));
                debug_assert!(accepted.is_ok(), "duplicates were refused");
            }
            None => {
                association.notifications.insert(name);
            }
        }
        if transit {
            self.stats.transits.add(1);
        }
        self.stats.responder.outstanding.add(1);
        self.exchanges.insert(
            name,
            Exchange {
                operation: admitted.operation,
                since: now,
                octets: admitted.octets,
                association: Some(id),
                channel,
                want: admitted.want,
                transit,
                producer: None,
            },
        );
        self.outputs.push_back(output);
        Ok(())
    }

    /// What takes an exchange further: to the agent, or to the upstream.
    fn outward(
        &self,
        id: AssociationId,
        exchange: ExchangeId,
        admitted: &Admitted,
    ) -> Result<Output, Refusal> {
        let info = &self
            .associations
            .get(&id)
            .ok_or(Refusal::AssociationUnknown)?
            .info;
        match admitted.target {
            Target::Agent(agent) => {
                let version = self.config.agents.get(agent).copied().unwrap_or_default();
                let dispatch = Dispatch {
                    association: id,
                    agent,
                    action: admitted.action.clone(),
                    parameters: parameters(info, version, admitted.version),
                };
                Ok(Output::Dispatch { exchange, dispatch })
            }
            Target::Route(route) => {
                let parameters = parameters(info, AgentVersion::Auto, admitted.version);
                let transit = self.transit(id, route, parameters, admitted)?;
                Ok(Output::Transit { exchange, transit })
            }
        }
    }

    /// A consumer's cancel: stop, acknowledge once, say nothing of failure (NPAMP-CC-STREAM §7.2, §7.3).
    pub(super) fn cancel(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        correlation_id: &[u8],
        now: Instant,
    ) {
        let slot = self
            .associations
            .get_mut(&id)
            .and_then(|association| association.responder(channel).get(correlation_id).copied());
        let ended = match slot {
            Some(Slot::Here(name)) => self.cancel_here(name, id, now),
            Some(Slot::Away(home)) => self.cancel_away(home, id, correlation_id),
            None => channel == ChannelId::BRIDGE && self.cancel_detached(id, correlation_id, now),
        };
        if ended {
            return;
        }
        let Some(Slot::Here(name)) = slot else {
            return self.stats.dropped.count(Dropped::MootCancel);
        };
        self.stats.cancels_received.add(1);
        let tail = self
            .exchanges
            .get(&name)
            .and_then(|exchange| exchange.producer)
            .unwrap_or_default()
            .last_event_id();
        self.outputs.push_back(Output::Cancel { exchange: name });
        self.end_exchange(name, Outcome::Abandoned, now);
        let mut payload = a2a_payload(MessageKind::StreamEnd, correlation_id, "", &[]);
        payload.stream_control = Some(StreamControl::cancel_ack(tail));
        self.send(id, channel, &payload, None);
    }

    /// News of the agent.
    pub(super) fn agent(&mut self, name: ExchangeId, event: AgentEvent, now: Instant) {
        self.reach(name, &event, now);
        let Some(exchange) = self.exchanges.get(&name) else {
            // That the agent ends what has ended is as it should be.
            if !matches!(event, AgentEvent::StreamEnd) {
                self.stats.dropped.count(Dropped::AgentEvent);
            }
            return;
        };
        let streaming = exchange.producer.is_some();
        match (&exchange.want, event) {
            (_, AgentEvent::Upstream(event)) => self.upstream(name, event, now),
            (Want::Nothing, AgentEvent::Failed { .. } | AgentEvent::Unreachable { .. }) => {
                self.end_exchange(name, Outcome::TransportError, now);
            }
            (Want::Nothing, AgentEvent::Body { .. } | AgentEvent::StreamEnd) => {
                self.end_exchange(name, Outcome::Notified, now);
            }
            (Want::Nothing, AgentEvent::StreamOpen | AgentEvent::StreamEvent(_)) => {
                // Its answer is ignored, so that there is no reason to read it.
                self.outputs.push_back(Output::Cancel { exchange: name });
                self.end_exchange(name, Outcome::Notified, now);
            }
            (
                _,
                AgentEvent::Failed { message, timed_out }
                | AgentEvent::Unreachable { message, timed_out },
            ) => {
                let message = if timed_out {
                    format!("{TIMEOUT_PREFIX}: {message}")
                } else {
                    message
                };
                self.not_delivered(name, &message, false, now);
            }
            (
                Want::Card { .. },
                AgentEvent::Body {
                    status,
                    content_type,
                    retry_after,
                    body,
                },
            ) => {
                let fits = (1..=CARD_OCTETS_MAX).contains(&body.len());
                if (200..300).contains(&status) && fits {
                    self.answer_document(name, CARD_DOC_ID, &content_type, &body, now);
                } else {
                    let message = http_status(status, retry_after.as_deref());
                    self.not_delivered(name, &message, false, now);
                }
            }
            (
                Want::ExtendedCard { .. },
                AgentEvent::Body {
                    status,
                    retry_after,
                    body,
                    ..
                },
            ) => {
                self.answer_extended_card(name, status, retry_after.as_deref(), &body, now);
            }
            (Want::Card { .. } | Want::ExtendedCard { .. }, _) => {
                self.not_delivered(name, "the agent streams its card", true, now);
            }
            (
                Want::Reply { .. },
                AgentEvent::Body {
                    status,
                    retry_after,
                    body,
                    ..
                },
            ) => {
                if streaming {
                    self.not_delivered(name, "the agent broke its stream", false, now);
                } else {
                    self.answer_body(name, status, retry_after.as_deref(), &body, now);
                }
            }
            (Want::Reply { .. }, AgentEvent::StreamOpen) => {
                if let Some(exchange) = self.exchanges.get_mut(&name) {
                    exchange.producer.get_or_insert_default();
                }
            }
            (Want::Reply { .. }, AgentEvent::StreamEvent(object)) => {
                self.answer_event(name, &object, now);
            }
            (Want::Reply { .. }, AgentEvent::StreamEnd) if streaming => {
                self.answer_stream_end(name, &[], now);
            }
            (Want::Reply { .. }, AgentEvent::StreamEnd) => {
                self.not_delivered(name, "the agent ended without an answer", false, now);
            }
        }
    }

    /// A whole body: a JSON-RPC Response under any status is foreign (ruling R14).
    fn answer_body(
        &mut self,
        name: ExchangeId,
        status: u16,
        retry_after: Option<&str>,
        body: &Bytes,
        now: Instant,
    ) {
        match self.judge_object(name, body) {
            Ok(response) => {
                let (kind, outcome) = if response.outcome.is_error() {
                    (MessageKind::Error, Outcome::ErrorResponse)
                } else {
                    (MessageKind::Response, Outcome::Response)
                };
                self.answer(name, kind, body, outcome, now);
            }
            Err(fault) => self.no_response(name, fault, status, retry_after, now),
        }
    }

    /// The body of an extended card: its `result` is the document (ruling R25), a foreign error stays one.
    pub(super) fn answer_extended_card(
        &mut self,
        name: ExchangeId,
        status: u16,
        retry_after: Option<&str>,
        body: &Bytes,
        now: Instant,
    ) {
        let response = match self.judge_object(name, body) {
            Ok(response) => response,
            Err(fault) => return self.no_response(name, fault, status, retry_after, now),
        };
        match response.outcome {
            JsonOutcome::Error(_) => {
                self.answer(name, MessageKind::Error, body, Outcome::ErrorResponse, now);
            }
            JsonOutcome::Result(_) if response.repeated => {
                // Parsers differ on which of them a verifier would see (NPAMP-CC-DOC §4).
                let error = DocumentError::DigestUnstable;
                self.stats.document_errors.count(error);
                let body = TransportErrorBody {
                    code: error.transport_code(),
                    message: "the agent's answer has more than one result",
                };
                self.answer_transport_error(name, &body, now);
            }
            JsonOutcome::Result(card) => self.answer_document(
                name,
                EXTENDED_CARD_DOC_ID,
                CARD_CONTENT_TYPE,
                card.as_bytes(),
                now,
            ),
            JsonOutcome::Absent => {
                self.not_delivered(name, "the agent answered without a card", false, now);
            }
        }
    }

    fn no_response(
        &mut self,
        name: ExchangeId,
        fault: AgentFault,
        status: u16,
        retry_after: Option<&str>,
        now: Instant,
    ) {
        if matches!(fault, AgentFault::NotAResponse) {
            let message = http_status(status, retry_after);
            self.not_delivered(name, &message, false, now);
        } else {
            self.not_delivered(name, fault.text(), false, now);
        }
    }

    /// One event of the agent's stream (NPAMP-MAP-A2A §6, ruling R15).
    fn answer_event(&mut self, name: ExchangeId, object: &Bytes, now: Instant) {
        match self.judge_object(name, object) {
            Err(fault) => self.not_delivered(name, fault.text(), true, now),
            Ok(response) if response.outcome.is_error() => {
                self.outputs.push_back(Output::Finish { exchange: name });
                self.emit(
                    name,
                    MessageKind::Error,
                    object,
                    Some(Outcome::StreamError),
                    now,
                );
            }
            Ok(response) if response.is_final_status_update() => {
                self.outputs.push_back(Output::Finish { exchange: name });
                self.answer_stream_end(name, object, now);
            }
            Ok(_) => self.emit(name, MessageKind::StreamData, object, None, now),
        }
    }

    fn answer_stream_end(&mut self, name: ExchangeId, object: &[u8], now: Instant) {
        let outcome = Some(Outcome::StreamEnd);
        self.emit(name, MessageKind::StreamEnd, object, outcome, now);
    }

    /// A card as a document set with its signatures as proofs (NPAMP-CC-DOC §7, §9, NPAMP-MAP-A2A §7).
    fn answer_document(
        &mut self,
        name: ExchangeId,
        doc_id: &[u8],
        content_type: &str,
        document: &[u8],
        now: Instant,
    ) {
        let proofs = match card::proofs(document) {
            Ok(proofs) => proofs,
            Err(error) => return self.not_delivered(name, &error.to_string(), false, now),
        };
        let content_type = match cut(content_type, 255) {
            "" => CARD_CONTENT_TYPE,
            stated => stated,
        };
        let digest = Digest::of(DigestAlgorithm::Sha256, document);
        let binding = digest.bind(doc_id, content_type);
        let label = Some(SafetyLabel::new(Effect::READ_ONLY));
        self.answer_set(name, binding, document, &proofs, label, now);
    }

    /// Ends an exchange with a document set, cut as this hop does it; the label is
    /// the document's, proofs have none (NPAMP-CC-DOC §7, §9).
    pub(super) fn answer_set(
        &mut self,
        name: ExchangeId,
        binding: DocumentBinding<'_>,
        document: &[u8],
        proofs: &[DetachedProof<'_>],
        label: Option<SafetyLabel<'_>>,
        now: Instant,
    ) {
        let Some((id, channel, correlation_id)) = self.end_exchange(name, Outcome::Document, now)
        else {
            return;
        };
        let tag = self
            .associations
            .get(&id)
            .and_then(|association| association.info.document_binding);
        let octets_max = DOCUMENT_PART_OCTETS_MAX.min(self.config.foreign_message_octets);
        for part in document::parts(binding, document, proofs, octets_max).unwrap_or_default() {
            let mut payload = a2a_payload(part.kind, correlation_id.as_octets(), "", part.octets);
            payload.safety = label.filter(|_| part.binding.part == Part::Document);
            payload.document_binding = Some(part.binding);
            self.send(id, channel, &payload, tag);
        }
    }

    /// Sends the last frame of an exchange that is no stream.
    pub(super) fn answer(
        &mut self,
        name: ExchangeId,
        kind: MessageKind,
        foreign: &[u8],
        outcome: Outcome,
        now: Instant,
    ) {
        let Some((id, channel, correlation_id)) = self.end_exchange(name, outcome, now) else {
            return;
        };
        let payload = a2a_payload(kind, correlation_id.as_octets(), "", foreign);
        self.send(id, channel, &payload, None);
    }

    /// Ends an exchange with NotDelivered, in mid-stream with an event_id (ruling R27).
    pub(super) fn not_delivered(
        &mut self,
        name: ExchangeId,
        message: &str,
        cancels: bool,
        now: Instant,
    ) {
        let streams = self
            .exchanges
            .get(&name)
            .is_some_and(|exchange| exchange.producer.is_some());
        if cancels {
            self.outputs.push_back(Output::Cancel { exchange: name });
        }
        let body = TransportErrorBody {
            code: TransportCode::NOT_DELIVERED,
            message,
        };
        if streams {
            let outcome = Some(Outcome::TransportError);
            self.emit(name, MessageKind::Error, &body.encode(), outcome, now);
        } else {
            self.answer_transport_error(name, &body, now);
        }
    }

    /// Ends an exchange that is no stream with a transport error.
    pub(super) fn answer_transport_error(
        &mut self,
        name: ExchangeId,
        body: &TransportErrorBody<'_>,
        now: Instant,
    ) {
        self.answer(
            name,
            MessageKind::Error,
            &body.encode(),
            Outcome::TransportError,
            now,
        );
    }

    /// Where the exchange's next frame goes.
    pub(super) fn destination(
        &self,
        name: ExchangeId,
    ) -> Option<(AssociationId, ChannelId, CorrelationId)> {
        let exchange = self.exchanges.get(&name)?;
        let correlation_id = exchange.want.correlation_id()?.clone();
        Some((exchange.association?, exchange.channel, correlation_id))
    }

    /// What the agent sent, if it is a Response to the request.
    fn judge_object<'o>(
        &self,
        name: ExchangeId,
        object: &'o [u8],
    ) -> Result<json_rpc::Response<'o>, AgentFault> {
        let Some(Want::Reply { id, .. } | Want::ExtendedCard { id, .. }) =
            self.exchanges.get(&name).map(|found| &found.want)
        else {
            return Err(AgentFault::NotAResponse);
        };
        if object.len() > self.config.foreign_message_octets {
            return Err(AgentFault::TooLarge);
        }
        let response = json_rpc::scan_response(object).map_err(|error| {
            self.stats.scan_errors.count(error);
            AgentFault::NotAResponse
        })?;
        if !response.answers(Id::from_token(id)) {
            return Err(AgentFault::IdDiffers);
        }
        Ok(response)
    }

    /// Takes an exchange out of the tables; gives where its last frame goes.
    pub(super) fn end_exchange(
        &mut self,
        name: ExchangeId,
        outcome: Outcome,
        now: Instant,
    ) -> Option<(AssociationId, ChannelId, CorrelationId)> {
        let exchange = self.exchanges.remove(&name)?;
        if let Some(id) = exchange.association {
            self.release(id, exchange.octets);
        }
        if exchange.transit {
            self.stats.transits.sub(1);
        }
        ended(
            &self.stats.responder,
            exchange.operation,
            outcome,
            exchange.since,
            now,
        );
        let id = exchange.association?;
        let association = self.associations.get_mut(&id)?;
        let Some(correlation_id) = exchange.want.correlation_id() else {
            association.notifications.remove(&name);
            return None;
        };
        association
            .responder(exchange.channel)
            .close(correlation_id.as_octets());
        Some((id, exchange.channel, correlation_id.clone()))
    }

    /// A BRIDGE_ERROR with a transport error, outside any exchange of ours.
    pub(super) fn answer_error(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        protocol_id: ProtocolId,
        correlation_id: &[u8],
        body: &TransportErrorBody<'_>,
    ) {
        let foreign = body.encode();
        let mut payload = a2a_payload(MessageKind::Error, correlation_id, "", &foreign);
        if protocol_id.0 != 0 {
            payload.envelope.protocol_id = protocol_id;
        }
        self.send(id, channel, &payload, None);
    }
}

/// Why what an agent sent is no answer.
#[derive(Debug, Clone, Copy)]
enum AgentFault {
    NotAResponse,
    IdDiffers,
    TooLarge,
}

impl AgentFault {
    fn text(self) -> &'static str {
        match self {
            Self::NotAResponse => "the agent sent no JSON-RPC Response",
            Self::IdDiffers => "the agent answered another id",
            Self::TooLarge => "the agent's answer is too large",
        }
    }
}

/// The NotDelivered text of an HTTP answer without a JSON-RPC Response (ruling R14).
fn http_status(status: u16, retry_after: Option<&str>) -> String {
    match retry_after {
        Some(value)
            if !value.is_empty()
                && value.len() <= RETRY_AFTER_OCTETS_MAX
                && value.bytes().all(|octet| (0x20..0x7f).contains(&octet)) =>
        {
            format!("http {status}; retry-after {value}")
        }
        _ => format!("http {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ruling R14: the text that the ingress reads.
    #[test]
    fn http_status_text() {
        assert_eq!(http_status(404, None), "http 404");
        assert_eq!(http_status(429, Some("7")), "http 429; retry-after 7");
        assert_eq!(http_status(503, Some("a\r\nb")), "http 503");
        assert_eq!(http_status(503, Some("")), "http 503");
    }
}
