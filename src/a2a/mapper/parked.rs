//! The consumer's half of resumption: streams whose association is gone wait for
//! another one and are asked for again from the last event that the caller got.
//! Serves NPAMP-CC-STREAM §6.2 and rulings R17, R18.

use super::labelling::Labelling;
use super::requester::Call;
use super::{Mapper, a2a_payload, ended, transport_error};
use crate::a2a::method;
use crate::a2a::port::{AssociationId, CallId, DownReason, Output, ResumeTicket, Side};
use crate::a2a::stats::{Outcome, Refusal, Resumption};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::document::DocumentError;
use crate::bridge::envelope::MessageKind;
use crate::bridge::own::OwnMap;
use crate::bridge::payload::Payload;
use crate::bridge::requester::{Outstanding, RequesterTable};
use crate::bridge::stream::Consumer;
use crate::bridge::stream_control::StreamControl;
use crate::bridge::transport_error::TransportCode;
use crate::wire::ChannelId;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Streams that wait, by the association that they were on.
#[derive(Default)]
pub(super) struct Parked {
    groups: OwnMap<AssociationId, Group>,
    /// Every wait is as long as every other, so that they end in this order.
    due: VecDeque<(Instant, AssociationId)>,
}

struct Group {
    streams: HashMap<CorrelationId, Stream>,
    /// What those who wait are told if nothing comes of it.
    message: String,
}

struct Stream {
    /// None once the caller left: the producer is told when it can be.
    call: Option<Call>,
    consumed: Consumer,
}

impl Parked {
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }
}

impl Mapper {
    /// The association is gone: keeps the streams that can be resumed, fails every other call.
    pub(super) fn park(
        &mut self,
        id: AssociationId,
        side: Side,
        requester: &mut RequesterTable<Call>,
        reason: &DownReason,
        now: Instant,
    ) {
        let message = format!("association lost: {}", reason.0);
        // Only who dialled an association can dial another.
        let may_wait = side == Side::Initiator && self.config.stream.resumes();
        let mut streams = HashMap::new();
        for (correlation_id, outstanding) in requester.drain() {
            let Outstanding { value, stream, .. } = outstanding;
            let mut call = value;
            match stream {
                Some(consumed) if may_wait && call.resumable && self.budget.take(call.held()) => {
                    call.octets = call.held();
                    self.stats.octets.add(call.octets as u64);
                    self.stats.resumption.count(Resumption::Parked);
                    let call = Some(call);
                    streams.insert(correlation_id, Stream { call, consumed });
                }
                None if side == Side::Initiator && call.may_repeat() => {
                    self.let_go(&call, Outcome::AssociationLost, now);
                    let message = message.clone();
                    self.outputs.push_back(Output::Unanswered {
                        call: call.name,
                        request: call.repeated(),
                        message,
                    });
                }
                _ => self.fail_call(&call, Outcome::AssociationLost, &message, now),
            }
        }
        if streams.is_empty() {
            return;
        }
        self.stats.parked.add(streams.len() as u64);
        self.parked.groups.insert(id, Group { streams, message });
        let due = now + self.config.stream.resume_time();
        self.parked.due.push_back((due, id));
        self.outputs
            .push_back(Output::WantAssociation { association: id });
    }

    /// Ends a call that is in no association's table.
    fn fail_call(&mut self, call: &Call, outcome: Outcome, message: &str, now: Instant) {
        let code = if call.set.is_some() {
            let error = DocumentError::SetIncomplete;
            self.stats.document_errors.count(error);
            error.transport_code()
        } else {
            TransportCode::NOT_DELIVERED
        };
        self.let_go(call, outcome, now);
        self.outputs.push_back(Output::Call {
            call: call.name,
            event: transport_error(code, message),
        });
    }

    fn let_go(&mut self, call: &Call, outcome: Outcome, now: Instant) {
        self.calls.remove(&call.name);
        let (operation, since) = (call.operation, call.since);
        ended(&self.stats.requester, operation, outcome, since, now);
    }

    /// Another association is up in place of `lost`: its streams go on there.
    pub(super) fn unpark(&mut self, lost: AssociationId, id: AssociationId, now: Instant) {
        for (correlation_id, stream) in self.take_group(lost).streams {
            let cursor = stream.consumed.last_event_id();
            let Some(mut call) = stream.call else {
                self.send_cancel(id, correlation_id.as_octets(), cursor);
                continue;
            };
            self.give_back(&mut call);
            match self.reopen(id, &correlation_id, call, stream.consumed) {
                Ok(()) => self.stats.resumption.count(Resumption::Asked),
                Err(failed) => {
                    let (call, refusal) = *failed;
                    self.stats.resumption.count(Resumption::GivenUp);
                    self.stats.calls_refused.count(refusal);
                    let message = refusal.to_string();
                    self.fail_call(&call, Outcome::AssociationLost, &message, now);
                }
            }
        }
    }

    /// Enters a parked call on an association and sends its resume request
    /// (NPAMP-CC-STREAM §6.2): the original method and label, and the object
    /// only where it is read_only (ruling R17).
    fn reopen(
        &mut self,
        id: AssociationId,
        correlation_id: &CorrelationId,
        mut call: Call,
        consumed: Consumer,
    ) -> Result<(), Box<(Call, Refusal)>> {
        if let Err(refusal) = self.carried(id) {
            return Err(Box::new((call, refusal)));
        }
        let octets = call.held();
        let full = self.associations.get(&id).is_none_or(|association| {
            association.requester.len() >= self.config.exchanges_per_association
        });
        if full {
            return Err(Box::new((call, Refusal::ExchangesFull)));
        }
        if !self.hold(id, octets) {
            return Err(Box::new((call, Refusal::OctetsFull)));
        }
        call.octets = octets;
        let (name, method, object) = (call.name, call.method.clone(), call.object.clone());
        let labelling = call.labelling.clone();
        if let Some(association) = self.associations.get_mut(&id) {
            let reopened = association
                .requester
                .reopen(correlation_id.clone(), call, consumed);
            if let Err(call) = reopened {
                self.release(id, octets);
                return Err(Box::new((call, Refusal::CorrelationOutstanding)));
            }
        }
        self.calls.insert(name, (id, correlation_id.clone()));
        let mut payload = a2a_payload(
            MessageKind::Request,
            correlation_id.as_octets(),
            &method,
            &object,
        );
        payload.safety = labelling.label(&method);
        payload.stream_control = Some(StreamControl::resume(consumed.last_event_id()));
        self.send(id, ChannelId::BRIDGE, &payload, None);
        Ok(())
    }

    /// A caller's client wants a stream that it had before (ruling R17).
    pub(super) fn call_resume(
        &mut self,
        id: AssociationId,
        name: CallId,
        ticket: ResumeTicket,
        cursor: u64,
        now: Instant,
    ) -> Result<(), Refusal> {
        let mut consumed = Consumer::default();
        if cursor > 0 && consumed.accept(cursor).is_err() {
            return Err(Refusal::NotResumable);
        }
        let ResumeTicket {
            correlation_id,
            method,
            id: token,
            object,
            ..
        } = ticket;
        let call = Call {
            name,
            operation: method::operation(&method),
            since: now,
            id: Some(token),
            streamed: true,
            document: false,
            set: None,
            document_label: None,
            octets: 0,
            method,
            object,
            resumable: true,
            gathering: None,
            labelling: Labelling::Table,
        };
        self.reopen(id, &correlation_id, call, consumed)
            .map_err(|failed| failed.1)?;
        self.stats.requester.outstanding.add(1);
        self.stats.resumption.count(Resumption::Asked);
        Ok(())
    }

    /// Tells the caller when its stream becomes one that can be resumed, or ceases to be.
    pub(super) fn note_resumable(
        &mut self,
        id: AssociationId,
        decoded: &Payload<'_>,
        resumable: bool,
    ) {
        let correlation_id = decoded.envelope.correlation_id;
        let Some(association) = self.associations.get_mut(&id) else {
            return;
        };
        let Some(call) = association.requester.get_mut(correlation_id) else {
            return;
        };
        if call.resumable == resumable {
            return;
        }
        call.resumable = resumable;
        let ticket = match (&call.id, CorrelationId::new(correlation_id)) {
            (Some(token), Some(correlation_id)) if resumable => Some(Box::new(ResumeTicket {
                correlation_id,
                method: call.method.clone(),
                id: token.clone(),
                // A copy: what came from a client is a slice of something larger.
                object: Bytes::copy_from_slice(&call.object),
                upstream: None,
            })),
            _ => None,
        };
        self.outputs.push_back(Output::Resumable {
            call: call.name,
            ticket,
        });
    }

    /// No association will take the place of `lost`.
    pub(super) fn give_up(&mut self, lost: AssociationId, now: Instant) {
        let group = self.take_group(lost);
        for mut call in group.streams.into_values().filter_map(|stream| stream.call) {
            self.give_back(&mut call);
            self.stats.resumption.count(Resumption::GivenUp);
            self.fail_call(&call, Outcome::AssociationLost, &group.message, now);
        }
    }

    pub(super) fn expire_parked(&mut self, now: Instant) {
        while let Some((at, lost)) = self.parked.due.front().copied() {
            if at > now {
                return;
            }
            self.parked.due.pop_front();
            self.give_up(lost, now);
        }
    }

    /// A caller leaves while its stream waits: the producer is told once an association is up.
    pub(super) fn parked_call_gone(&mut self, id: AssociationId, name: CallId, now: Instant) {
        let Some((_, correlation_id)) = self.calls.remove(&name) else {
            return;
        };
        let call = self
            .parked
            .groups
            .get_mut(&id)
            .and_then(|group| group.streams.get_mut(&correlation_id))
            .and_then(|stream| stream.call.take());
        if let Some(mut call) = call {
            self.give_back(&mut call);
            ended(
                &self.stats.requester,
                call.operation,
                Outcome::Abandoned,
                call.since,
                now,
            );
        }
    }

    fn take_group(&mut self, lost: AssociationId) -> Group {
        let group = self.parked.groups.remove(&lost).unwrap_or_else(|| Group {
            streams: HashMap::new(),
            message: String::new(),
        });
        if !group.streams.is_empty() {
            self.parked.due.retain(|(_, waiting)| *waiting != lost);
        }
        self.stats.parked.sub(group.streams.len() as u64);
        group
    }

    /// Gives back the octets that a parked call holds.
    fn give_back(&mut self, call: &mut Call) {
        let octets = std::mem::take(&mut call.octets);
        self.budget.give(octets);
        self.stats.octets.sub(octets as u64);
    }
}
