//! The requester's half: calls go out as BRIDGE_REQUEST or BRIDGE_NOTIFY, and
//! replies are verified before a caller sees them. Serves NPAMP-CC-JSONRPC
//! §4–§8, NPAMP-CC-STREAM §5, §7.1, §9, NPAMP-CC-DOC §7.1 and rulings R11, R26.
//! What comes back as a document set is the affair of `documents`.

use super::labelling::Labelling;
use super::{Mapper, TIMEOUT_PREFIX, a2a_payload, ended, transport_error};
use crate::a2a::config::UnknownMethods;
use crate::a2a::json_rpc::{self, Id, Request};
use crate::a2a::method::{self, CARD_METHOD, Carriage, Operation};
use crate::a2a::port::{
    AssociationId, CallEvent, CallId, CallRequest, DispatchAction, Label, Output, TransportError,
    UpstreamEvent,
};
use crate::a2a::stats::{Dropped, MapperStats, Outcome, Refusal, ReplyFault, Resumption};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::document_set::DocumentSet;
use crate::bridge::envelope::{ContentType, MessageKind, ProtocolId};
use crate::bridge::error::BridgeError;
use crate::bridge::payload::Payload;
use crate::bridge::requester::{Abandoned, Outstanding};
use crate::bridge::safety::Effect;
use crate::bridge::stream_control::{Control, StreamControl};
use crate::bridge::transport_error::{TransportCode, TransportErrorBody};
use crate::crypto::Random;
use crate::limits::{CORRELATION_RANDOM_OCTETS, METHOD_OCTETS_MAX};
use crate::wire::ChannelId;
use bytes::Bytes;
use std::borrow::Cow;
use std::time::Instant;

/// An outstanding call.
pub(super) struct Call {
    pub(super) name: CallId,
    pub(super) operation: Operation,
    pub(super) since: Instant,
    /// The Request's id token; a card request has none.
    pub(super) id: Option<Box<str>>,
    /// The method's carriage class is STREAM.
    pub(super) streamed: bool,
    /// The answer is a document set.
    pub(super) document: bool,
    /// The set, from the first of several parts on.
    pub(super) set: Option<Box<DocumentSet>>,
    /// Label of the set's document part.
    pub(super) document_label: Option<Label>,
    /// Octets held for it.
    pub(super) octets: usize,
    /// What a resume request repeats of the request: its method, and its object
    /// where repeating that changes nothing (ruling R17).
    pub(super) method: Cow<'static, str>,
    pub(super) object: Bytes,
    /// The last stream frame said that the stream can be resumed.
    pub(super) resumable: bool,
    /// The output, by number, that takes its next event as long as nobody has taken it.
    pub(super) gathering: Option<u64>,
    /// Where its label comes from.
    pub(super) labelling: Labelling,
}

impl Call {
    /// Octets that are held for as long as it can be resumed.
    pub(super) fn held(&self) -> usize {
        self.object.len() + self.id.as_ref().map_or(0, |id| id.len())
    }

    /// Whether nothing came back of it yet, and asking twice does no harm: it is for the
    /// card, or its method is listed as read_only, and no label says more. What only a
    /// label says is read_only is not repeated.
    pub(super) fn may_repeat(&self) -> bool {
        let listed = self.operation == Operation::Card
            || method::lookup(&self.method).is_some_and(|row| row.effect == Effect::READ_ONLY);
        listed && self.set.is_none() && !self.labelling.says_mutating()
    }

    /// What it asked for.
    pub(super) fn repeated(self) -> CallRequest {
        let is_card = self.operation == Operation::Card;
        let object = self.object;
        match (self.labelling, is_card) {
            (Labelling::Table, true) => CallRequest::Card,
            (Labelling::Table, false) => CallRequest::Request { object },
            (Labelling::AsReceived(label), true) => CallRequest::Transit {
                action: DispatchAction::Card,
                label,
            },
            (Labelling::AsReceived(label), false) => CallRequest::Transit {
                action: DispatchAction::Request { object },
                label,
            },
        }
    }
}

/// What a good reply means to the caller.
enum Verdict {
    /// One event of a stream; more may follow.
    Event(u64, Bytes),
    /// The last event, with how the exchange is counted.
    Last(CallEvent, Outcome),
    /// A transport error in mid-stream, with its event_id.
    Failed(u64, TransportError),
}

/// Why a reply failed its exchange.
pub(super) struct Fault {
    pub(super) reason: ReplyFault,
    pub(super) code: TransportCode,
}

impl From<ReplyFault> for Fault {
    fn from(reason: ReplyFault) -> Self {
        Self {
            reason,
            code: TransportCode::ENVELOPE_MALFORMED,
        }
    }
}

impl Mapper {
    pub(super) fn call(
        &mut self,
        association: AssociationId,
        call: CallId,
        request: CallRequest,
        now: Instant,
        random: &mut dyn Random,
    ) {
        let (action, labelling) = match request {
            CallRequest::Resume { ticket, cursor } => {
                let result = self.call_resume(association, call, *ticket, cursor, now);
                return self.refuse_call(call, result);
            }
            CallRequest::Request { object } => {
                (DispatchAction::Request { object }, Labelling::Table)
            }
            CallRequest::Notification { object } => {
                (DispatchAction::Notification { object }, Labelling::Table)
            }
            CallRequest::Card => (DispatchAction::Card, Labelling::Table),
            CallRequest::Transit { action, label } => (action, Labelling::AsReceived(label)),
            CallRequest::Discover { filter, tolerant } => {
                let result = self.call_discover(association, call, filter, tolerant, random);
                return self.refuse_call(call, result);
            }
        };
        let result = match action {
            DispatchAction::Request { object } => {
                self.call_request(association, call, &object, labelling, now, random)
            }
            DispatchAction::Notification { object } => {
                self.call_notification(association, call, &object, &labelling)
            }
            DispatchAction::Card => self.call_card(association, call, labelling, now, random),
        };
        self.refuse_call(call, result);
    }

    fn refuse_call(&mut self, call: CallId, result: Result<(), Refusal>) {
        if let Err(refusal) = result {
            self.stats.calls_refused.count(refusal);
            self.outputs.push_back(Output::Call {
                call,
                event: transport_error(refusal.transport_code(), &refusal.to_string()),
            });
        }
    }

    fn call_request(
        &mut self,
        association: AssociationId,
        call: CallId,
        object: &Bytes,
        labelling: Labelling,
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<(), Refusal> {
        let scanned = self.outbound(association, object)?;
        let id = scanned.id.ok_or(Refusal::NotJsonRpc)?;
        let correlation_id = derive(random, id.token());
        let row = method::lookup(&scanned.method);
        let carriage = row.map(|row| row.carriage);
        // Without agreement on the tag it goes as JSON-RPC (ruling R9).
        let document = carriage == Some(Carriage::Document) && self.agreed(association);
        let octets = object.len() + id.token().len();
        let mut payload = a2a_payload(
            MessageKind::Request,
            correlation_id.as_octets(),
            &scanned.method,
            object,
        );
        let label = labelling.clone();
        payload.safety = label.label(&scanned.method);
        self.open(
            association,
            correlation_id.clone(),
            Call {
                name: call,
                operation: method::operation(&scanned.method),
                since: now,
                id: Some(id.token().into()),
                streamed: carriage == Some(Carriage::Stream),
                document,
                set: None,
                document_label: None,
                octets,
                method: row.map_or_else(
                    || Cow::Owned(scanned.method.clone().into_owned()),
                    |row| Cow::Borrowed(row.name),
                ),
                object: if labelling.is_read_only(&scanned.method) {
                    object.clone()
                } else {
                    Bytes::new()
                },
                resumable: false,
                gathering: None,
                labelling,
            },
        )?;
        self.send(association, ChannelId::BRIDGE, &payload, None);
        Ok(())
    }

    fn call_notification(
        &mut self,
        association: AssociationId,
        call: CallId,
        object: &Bytes,
        labelling: &Labelling,
    ) -> Result<(), Refusal> {
        let scanned = self.outbound(association, object)?;
        if scanned.id.is_some() {
            return Err(Refusal::NotJsonRpc);
        }
        let mut payload = a2a_payload(MessageKind::Notification, &[], &scanned.method, object);
        payload.safety = labelling.label(&scanned.method);
        self.send(association, ChannelId::BRIDGE, &payload, None);
        let operation = method::operation(&scanned.method);
        self.stats
            .requester
            .outcomes(operation)
            .count(Outcome::Notified);
        self.outputs.push_back(Output::Call {
            call,
            event: CallEvent::Accepted,
        });
        Ok(())
    }

    fn call_card(
        &mut self,
        association: AssociationId,
        call: CallId,
        labelling: Labelling,
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<(), Refusal> {
        self.carried(association)?;
        if !self.agreed(association) {
            return Err(Refusal::NoDocumentAgreement);
        }
        if let Some(association) = self.associations.get(&association) {
            association.admits(true)?;
        }
        let correlation_id = derive(random, "");
        let label = labelling.clone();
        self.open(
            association,
            correlation_id.clone(),
            Call {
                name: call,
                operation: Operation::Card,
                since: now,
                id: None,
                streamed: false,
                document: true,
                set: None,
                document_label: None,
                octets: 0,
                method: Cow::Borrowed(CARD_METHOD),
                object: Bytes::new(),
                resumable: false,
                gathering: None,
                labelling,
            },
        )?;
        let mut payload = a2a_payload(
            MessageKind::Request,
            correlation_id.as_octets(),
            CARD_METHOD,
            &[],
        );
        payload.safety = label.label(CARD_METHOD).filter(|_| label.is_transit());
        self.send(association, ChannelId::BRIDGE, &payload, None);
        Ok(())
    }

    /// What every object must pass before it is carried.
    fn outbound<'a>(
        &self,
        association: AssociationId,
        object: &'a [u8],
    ) -> Result<Request<'a>, Refusal> {
        self.carried(association)?;
        if object.len() > self.config.foreign_message_octets {
            return Err(Refusal::TooLarge);
        }
        let scanned = json_rpc::scan_request(object).map_err(|error| {
            self.stats.scan_errors.count(error);
            Refusal::NotJsonRpc
        })?;
        if scanned.method.len() > METHOD_OCTETS_MAX {
            return Err(Refusal::MethodTooLong);
        }
        if self.config.unknown_methods == UnknownMethods::Refuse
            && method::lookup(&scanned.method).is_none()
        {
            return Err(Refusal::MethodUnknown);
        }
        Ok(scanned)
    }

    /// Whether both peers stated the same DocumentBinding tag (ruling R9).
    fn agreed(&self, association: AssociationId) -> bool {
        self.associations
            .get(&association)
            .is_some_and(|association| association.info.document_binding.is_some())
    }

    pub(super) fn carried(&self, association: AssociationId) -> Result<(), Refusal> {
        let association = self
            .associations
            .get(&association)
            .ok_or(Refusal::AssociationUnknown)?;
        if association.info.carries_a2a {
            association.admits(false)
        } else {
            Err(Refusal::ProtocolNotCarried)
        }
    }

    fn open(
        &mut self,
        id: AssociationId,
        correlation_id: CorrelationId,
        call: Call,
    ) -> Result<(), Refusal> {
        let outstanding_max = self.config.exchanges_per_association;
        let association = self
            .associations
            .get(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        if association.requester.len() >= outstanding_max {
            return Err(Refusal::ExchangesFull);
        }
        if association
            .requester
            .get(correlation_id.as_octets())
            .is_some()
        {
            // Sixteen random octets repeat only when the generator is broken.
            return Err(Refusal::CorrelationOutstanding);
        }
        let (name, octets) = (call.name, call.octets);
        if !self.hold(id, octets) {
            return Err(Refusal::OctetsFull);
        }
        self.calls.insert(name, (id, correlation_id.clone()));
        self.stats.requester.outstanding.add(1);
        if let Some(association) = self.associations.get_mut(&id) {
            let opened = association.requester.open(correlation_id, call);
            debug_assert!(opened.is_ok(), "checked above");
        }
        Ok(())
    }

    /// Nobody waits for the call any more (NPAMP-CC-STREAM §7.1).
    pub(super) fn call_gone(&mut self, call: CallId, now: Instant) {
        let Some((id, correlation_id)) = self.calls.get(&call).cloned() else {
            return;
        };
        if !self.associations.contains_key(&id) {
            return self.parked_call_gone(id, call, now);
        }
        let entry = self
            .associations
            .get(&id)
            .and_then(|association| association.requester.get(correlation_id.as_octets()));
        if entry.is_some_and(|entry| entry.value.set.is_some()) {
            return self.abandon_set(id, correlation_id.as_octets(), now);
        }
        let cancels = entry.is_some_and(|entry| entry.value.streamed || entry.stream.is_some());
        self.end_call(
            id,
            correlation_id.as_octets(),
            Outcome::Abandoned,
            cancels,
            true,
            now,
        );
    }

    /// Whether an outstanding request of ours has this correlation_id.
    pub(super) fn awaits_reply(
        &self,
        association: AssociationId,
        channel: ChannelId,
        correlation_id: &[u8],
    ) -> bool {
        channel == ChannelId::BRIDGE
            && self
                .associations
                .get(&association)
                .is_some_and(|association| association.requester.get(correlation_id).is_some())
    }

    /// A reply that did not decode fails its exchange here (ruling R26).
    pub(super) fn reply_malformed(
        &mut self,
        association: AssociationId,
        kind: MessageKind,
        correlation_id: &[u8],
        error: BridgeError,
        now: Instant,
    ) {
        let code = error.transport_code();
        let document = self
            .associations
            .get(&association)
            .and_then(|association| association.requester.get(correlation_id))
            .is_some_and(|entry| entry.value.document);
        let fault = Fault {
            reason: ReplyFault::Malformed,
            code,
        };
        if document && code.is_of_documents() && kind != MessageKind::Error {
            let message = error.to_string();
            return self.reject_set(association, kind, correlation_id, &fault, &message, now);
        }
        self.fail(
            association,
            kind,
            correlation_id,
            &fault,
            &error.to_string(),
            now,
        );
    }

    pub(super) fn reply(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        octets: &Bytes,
        decoded: &Payload<'_>,
        now: Instant,
    ) {
        let correlation_id = decoded.envelope.correlation_id;
        let kind = decoded.envelope.kind;
        if !self.awaits_reply(id, channel, correlation_id) {
            return self.unmatched(id, channel, decoded);
        }
        let Some(association) = self.associations.get_mut(&id) else {
            return;
        };
        let Some(entry) = association.requester.outstanding(correlation_id) else {
            return;
        };
        // What is said of the call from here on comes after what was gathered for it.
        entry.value.gathering = None;
        let entry = &*entry;
        let call = entry.value.name;
        if entry.value.document
            && kind != MessageKind::Error
            && decoded.envelope.protocol_id == ProtocolId::A2A
        {
            return self.document_part(id, octets, decoded, now);
        }
        let resumed = entry.resumed_after.is_some();
        let repeat = kind == MessageKind::StreamData
            && entry.resumed_after.is_some_and(|cursor| {
                decoded
                    .stream_control
                    .is_some_and(|control| control.event_id <= cursor)
            });
        if repeat {
            // Consumed before the association was lost (NPAMP-CC-STREAM §6.3).
            return self.stats.dropped.count(Dropped::Repeat);
        }
        let resumable = decoded
            .stream_control
            .is_some_and(|control| control.resumable);
        let verdict = judge(entry, decoded, octets, &self.stats);
        let verdict = match verdict {
            Ok(Verdict::Event(event_id, object)) => association
                .requester
                .accept_event(correlation_id, event_id)
                .map(|()| Verdict::Event(event_id, object))
                .map_err(|_| Fault::from(ReplyFault::EventId)),
            other => other,
        };
        match verdict {
            Ok(Verdict::Event(event_id, object)) => {
                self.note_resumable(id, decoded, resumable);
                self.outputs.push_back(Output::Call {
                    call,
                    event: CallEvent::StreamEvent { event_id, object },
                });
            }
            Ok(Verdict::Last(event, outcome)) => {
                let refused = resumed
                    && matches!(&event, CallEvent::TransportError(error)
                        if error.code == TransportCode::NOT_RESUMABLE.0);
                if refused {
                    self.stats.resumption.count(Resumption::Refused);
                }
                if refused || decoded.stream_control.is_some() {
                    self.note_resumable(id, decoded, resumable && !refused);
                }
                self.end_call(id, correlation_id, outcome, false, false, now);
                self.outputs.push_back(Output::Call { call, event });
            }
            Ok(Verdict::Failed(event_id, error)) => {
                let outcome = Outcome::TransportError;
                self.end_call(id, correlation_id, outcome, false, false, now);
                let event = UpstreamEvent::StreamFailed { event_id, error };
                self.outputs.push_back(Output::Upstream { call, event });
            }
            Err(fault) => {
                self.fail(
                    id,
                    kind,
                    correlation_id,
                    &fault,
                    &fault.reason.to_string(),
                    now,
                );
            }
        }
    }

    /// Fails an outstanding exchange on our own finding, and stops a producer that goes on.
    pub(super) fn fail(
        &mut self,
        id: AssociationId,
        kind: MessageKind,
        correlation_id: &[u8],
        fault: &Fault,
        message: &str,
        now: Instant,
    ) {
        self.stats.reply_faults.count(fault.reason);
        let goes_on = kind == MessageKind::StreamData;
        let Some(call) = self.end_call(
            id,
            correlation_id,
            Outcome::TransportError,
            goes_on,
            goes_on,
            now,
        ) else {
            return;
        };
        self.outputs.push_back(Output::Call {
            call,
            event: transport_error(fault.code, message),
        });
    }

    /// Takes a call out of the tables; `cancels` tells the producer to stop,
    /// `remembers` that replies may still come.
    pub(super) fn end_call(
        &mut self,
        id: AssociationId,
        correlation_id: &[u8],
        outcome: Outcome,
        cancels: bool,
        remembers: bool,
        now: Instant,
    ) -> Option<CallId> {
        let requester = &mut self.associations.get_mut(&id)?.requester;
        let how = if cancels {
            Abandoned::Cancelled
        } else {
            Abandoned::Forgotten
        };
        let entry = if remembers {
            requester.abandon(correlation_id, how)?
        } else {
            requester.close(correlation_id)?
        };
        let consumed = entry.stream.unwrap_or_default().last_event_id();
        let call = entry.value;
        self.calls.remove(&call.name);
        self.release(id, call.octets);
        ended(
            &self.stats.requester,
            call.operation,
            outcome,
            call.since,
            now,
        );
        if cancels {
            self.send_cancel(id, correlation_id, consumed);
        }
        Some(call.name)
    }

    pub(super) fn send_cancel(&mut self, id: AssociationId, correlation_id: &[u8], consumed: u64) {
        let mut payload = a2a_payload(MessageKind::StreamEnd, correlation_id, "", &[]);
        payload.stream_control = Some(StreamControl::cancel(consumed));
        self.send(id, ChannelId::BRIDGE, &payload, None);
        self.stats.cancels_sent.add(1);
    }

    /// A reply that nothing waits for: dropped and counted. A forgotten call
    /// whose agent turns out to stream is cancelled once.
    fn unmatched(&mut self, id: AssociationId, channel: ChannelId, decoded: &Payload<'_>) {
        let kind = decoded.envelope.kind;
        let correlation_id = decoded.envelope.correlation_id;
        let Some(association) = self.associations.get_mut(&id) else {
            return;
        };
        let abandoned = (channel == ChannelId::BRIDGE)
            .then(|| association.requester.abandoned(correlation_id))
            .flatten();
        let Some(how) = abandoned else {
            let report = kind == MessageKind::Error
                && TransportErrorBody::decode(decoded.foreign)
                    .is_some_and(|body| body.code.is_of_documents());
            return self.stats.dropped.count(if report {
                Dropped::DocumentReport
            } else {
                Dropped::LateReply
            });
        };
        self.stats.dropped.count(Dropped::AbandonedReply);
        if kind != MessageKind::StreamData {
            association.requester.settle(correlation_id);
        } else if how == Abandoned::Forgotten {
            association.requester.mark_cancelled(correlation_id);
            self.send_cancel(id, correlation_id, 0);
        }
    }
}

/// A fresh correlation_id (ruling R11).
fn derive(random: &mut dyn Random, id_token: &str) -> CorrelationId {
    let mut octets = [0; CORRELATION_RANDOM_OCTETS];
    random.fill(&mut octets);
    CorrelationId::derive(octets, id_token.as_bytes())
}

/// Judges a reply to an outstanding call. The event_id of a plain event is left to the table.
fn judge(
    entry: &Outstanding<Call>,
    decoded: &Payload<'_>,
    octets: &Bytes,
    stats: &MapperStats,
) -> Result<Verdict, Fault> {
    if decoded.envelope.protocol_id != ProtocolId::A2A {
        return Err(ReplyFault::Protocol.into());
    }
    let last = entry.stream.unwrap_or_default().last_event_id();
    let id = entry.value.id.as_deref().map(Id::from_token);
    match decoded.envelope.kind {
        MessageKind::Response if entry.stream.is_some() => Err(ReplyFault::Unexpected.into()),
        MessageKind::Response => match id {
            None => Err(ReplyFault::Unexpected.into()),
            Some(id) => {
                let object = object(decoded, octets, id, false, stats)?;
                Ok(Verdict::Last(
                    CallEvent::Response(object),
                    Outcome::Response,
                ))
            }
        },
        MessageKind::Error => {
            if let Some(body) = TransportErrorBody::decode(decoded.foreign) {
                let error = TransportError {
                    code: body.code.0,
                    message: body.message.to_owned(),
                    timed_out: body.code == TransportCode::NOT_DELIVERED
                        && body.message.starts_with(TIMEOUT_PREFIX),
                };
                return Ok(match decoded.stream_control {
                    // An id that does not rise is no reason to lose the error.
                    Some(control) if entry.value.labelling.is_transit() => {
                        Verdict::Failed(control.event_id, error)
                    }
                    _ => Verdict::Last(CallEvent::TransportError(error), Outcome::TransportError),
                });
            }
            let object = object(
                decoded,
                octets,
                id.ok_or(ReplyFault::NotJsonRpc)?,
                true,
                stats,
            )?;
            let event_id = match decoded.stream_control {
                Some(control) if control.event_id <= last => {
                    return Err(ReplyFault::EventId.into());
                }
                Some(control) => control.event_id,
                None if entry.stream.is_some() => last.saturating_add(1),
                None => {
                    let event = CallEvent::ErrorResponse(object);
                    return Ok(Verdict::Last(event, Outcome::ErrorResponse));
                }
            };
            Ok(Verdict::Last(
                CallEvent::StreamError { event_id, object },
                Outcome::StreamError,
            ))
        }
        MessageKind::StreamData | MessageKind::StreamEnd => {
            let id = id.ok_or(ReplyFault::Unexpected)?;
            let control = decoded
                .stream_control
                .ok_or(ReplyFault::StreamControlAbsent)?;
            if control.control != Control::Data || control.cancel_ack {
                return Err(ReplyFault::Unexpected.into());
            }
            let event_id = control.event_id;
            if decoded.envelope.kind == MessageKind::StreamData {
                if event_id == u64::MAX {
                    // It leaves no id for the end (NPAMP-CC-STREAM §5.1).
                    return Err(ReplyFault::EventId.into());
                }
                let object = object(decoded, octets, id, false, stats)?;
                return Ok(Verdict::Event(event_id, object));
            }
            // Whoever has the last event gets the end once more, empty (ruling R17).
            let repeated = entry.resumed_after == Some(event_id) && decoded.foreign.is_empty();
            if event_id <= last && !(repeated && event_id == last) {
                return Err(ReplyFault::EventId.into());
            }
            let object = if decoded.foreign.is_empty() {
                None
            } else {
                Some(object(decoded, octets, id, false, stats)?)
            };
            Ok(Verdict::Last(
                CallEvent::StreamEnd { event_id, object },
                Outcome::StreamEnd,
            ))
        }
        MessageKind::Request | MessageKind::Notification => Err(ReplyFault::Unexpected.into()),
    }
}

/// The foreign message, if it is a Response to `id` of the kind wanted (NPAMP-CC-JSONRPC §5, §6).
fn object(
    decoded: &Payload<'_>,
    octets: &Bytes,
    id: Id<'_>,
    wants_error: bool,
    stats: &MapperStats,
) -> Result<Bytes, Fault> {
    if decoded.envelope.content_type != ContentType::JSON {
        return Err(ReplyFault::ContentType.into());
    }
    let response = json_rpc::scan_response(decoded.foreign).map_err(|error| {
        stats.scan_errors.count(error);
        ReplyFault::NotJsonRpc
    })?;
    if response.outcome.is_error() != wants_error {
        return Err(ReplyFault::NotJsonRpc.into());
    }
    if !response.answers(id) {
        return Err(ReplyFault::IdDiffers.into());
    }
    Ok(octets.slice_ref(decoded.foreign))
}
