//! What consumers ask of kept streams: to go on where they come back, and to
//! end. Serves NPAMP-CC-STREAM §6.3, §7.2, §12 and rulings R11, R17.
//!
//! The association that a consumer comes back on may belong to another mapper.
//! The stream stays where its agent is: the other mapper checks the request,
//! notes whose exchange it is, and hands it over ([`StreamMessage`]).

use super::key_of;
use crate::a2a::mapper::responder::Slot;
use crate::a2a::mapper::{Mapper, a2a_payload};
use crate::a2a::port::{AssociationId, Attach, ExchangeId, Output, Place, StreamMessage};
use crate::a2a::stats::{Dropped, Outcome, Refusal, Resumption};
use crate::a2a::streams::{StreamHome, StreamKey};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::envelope::{MessageKind, ProtocolId};
use crate::bridge::payload::Payload;
use crate::bridge::stream_control::StreamControl;
use crate::bridge::transport_error::TransportErrorBody;
use crate::wire::ChannelId;
use std::time::Instant;

impl Mapper {
    /// A resume request of a peer (NPAMP-CC-STREAM §6.3): the checks that a fresh
    /// request must pass, then to whoever keeps the stream.
    pub(in crate::a2a::mapper) fn resume(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        decoded: &Payload<'_>,
        cursor: u64,
        now: Instant,
    ) -> Result<(), Refusal> {
        if channel != ChannelId::BRIDGE {
            return Err(Refusal::NotResumable);
        }
        if decoded.document_binding.is_some() {
            return Err(Refusal::BindingOnRequest);
        }
        let method = decoded.envelope.method;
        if decoded.foreign.is_empty() {
            self.admit_method(id, method, decoded)?;
        } else {
            self.admit_object(id, decoded)?;
        }
        self.target_of(id)?;
        let correlation_id = CorrelationId::new(decoded.envelope.correlation_id)
            .ok_or(Refusal::EnvelopeMalformed)?;
        let association = self
            .associations
            .get_mut(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        if association.bridge.contains(correlation_id.as_octets()) {
            // A live stream: its events in flight could not be told from the resumed run.
            return Err(Refusal::CorrelationOutstanding);
        }
        if association.responding() >= self.config.exchanges_per_association {
            return Err(Refusal::ExchangesFull);
        }
        let key = key_of(&association.info, correlation_id.clone());
        let home = self
            .retained
            .registry
            .find(&key)
            .ok_or(Refusal::NotResumable)?;
        let here = home.mapper == self.retained.id;
        let slot = if here {
            Slot::Here(home.exchange)
        } else {
            Slot::Away(home)
        };
        let attach = Box::new(Attach {
            exchange: home.exchange,
            key,
            place: Place {
                association: id,
                home: self.retained.id,
            },
            cursor,
            method: method.into(),
            allow: association.allow,
        });
        let accepted = association.bridge.accept(correlation_id, slot);
        debug_assert!(accepted.is_ok(), "duplicates were refused");
        if here {
            self.attach(*attach, now);
        } else {
            self.outputs.push_back(Output::Forward {
                mapper: home.mapper,
                message: StreamMessage::Attach(attach),
            });
        }
        Ok(())
    }

    /// Goes on with a stream where its consumer asks for it, or refuses; never begins anew.
    pub(in crate::a2a::mapper) fn attach(&mut self, attach: Attach, now: Instant) {
        let (place, correlation_id) = (attach.place, attach.key.correlation_id.clone());
        match self.try_attach(attach, now) {
            Ok(()) => self.stats.resumption.count(Resumption::Resumed),
            Err(refusal) => {
                self.stats.requests_refused.count(refusal);
                let body = TransportErrorBody {
                    code: refusal.transport_code(),
                    message: &refusal.to_string(),
                };
                self.answer_error(
                    place.association,
                    ChannelId::BRIDGE,
                    ProtocolId::A2A,
                    correlation_id.as_octets(),
                    &body,
                );
                self.settle(place, correlation_id);
            }
        }
    }

    fn try_attach(&mut self, attach: Attach, now: Instant) -> Result<(), Refusal> {
        let Attach {
            exchange: name,
            key,
            place,
            cursor,
            method,
            allow,
        } = attach;
        let stream = self
            .retained
            .streams
            .get(&name)
            .filter(|stream| stream.key == key)
            .ok_or(Refusal::NotResumable)?;
        if stream.method != method {
            return Err(Refusal::MethodDiffers);
        }
        if !allow.contains(stream.effect) {
            return Err(Refusal::SafetyPolicy);
        }
        if cursor > stream.buffer.reached() {
            return Err(Refusal::CursorAhead);
        }
        if !stream.buffer.holds_after(cursor) {
            return Err(Refusal::NotResumable);
        }
        let pulled = stream.pulled;
        if let Some(old) = stream.place {
            // Its consumer knows before we do that this association is gone (ruling R17).
            self.settle(old, key.correlation_id);
            if !pulled && self.exchanges.contains_key(&name) {
                // So far the old association's queue has paced the agent; from now on we do.
                self.outputs.push_back(Output::Pause {
                    exchange: name,
                    paused: false,
                });
            }
            self.uproot(name);
        }
        let Some(stream) = self.retained.streams.get_mut(&name) else {
            return Err(Refusal::NotResumable);
        };
        stream.place = Some(place);
        stream.pulled = true;
        stream.queued = false;
        if stream.due.take().is_some() {
            self.retained.idle -= 1;
        }
        let freed = stream.buffer.rewind(cursor);
        let ended = stream.is_over();
        self.free(freed);
        if ended {
            self.repeat_end(name, now);
        } else {
            self.pull(name);
            self.pace(name);
        }
        Ok(())
    }

    /// The consumer has the terminal event: it gets the end once more (ruling R17).
    fn repeat_end(&mut self, name: ExchangeId, now: Instant) {
        let Some(stream) = self.retained.streams.get(&name) else {
            return;
        };
        let (Some(place), Some(terminal)) = (stream.place, stream.buffer.terminal()) else {
            return;
        };
        let correlation_id = stream.key.correlation_id.clone();
        let mut payload = a2a_payload(MessageKind::StreamEnd, correlation_id.as_octets(), "", &[]);
        payload.stream_control = Some(StreamControl::resumable(terminal));
        self.send(place.association, ChannelId::BRIDGE, &payload, None);
        self.settle(place, correlation_id);
        self.displace(name, now);
    }

    /// A consumer's cancel of an exchange that is a kept stream; false when it is none.
    pub(in crate::a2a::mapper) fn cancel_here(
        &mut self,
        name: ExchangeId,
        id: AssociationId,
        now: Instant,
    ) -> bool {
        let Some(key) = self
            .retained
            .streams
            .get(&name)
            .map(|found| found.key.clone())
        else {
            return false;
        };
        self.leave(name, &key, self.place(id), true, now);
        true
    }

    /// A consumer's cancel of a stream that another mapper goes on with.
    pub(in crate::a2a::mapper) fn cancel_away(
        &mut self,
        home: StreamHome,
        id: AssociationId,
        correlation_id: &[u8],
    ) -> bool {
        let Some(key) = self.key(id, correlation_id) else {
            return false;
        };
        self.send_leave(home, key, self.place(id), true);
        true
    }

    /// A consumer's cancel of a stream that is on no association now; false when there is none.
    pub(in crate::a2a::mapper) fn cancel_detached(
        &mut self,
        id: AssociationId,
        correlation_id: &[u8],
        now: Instant,
    ) -> bool {
        let Some(key) = self.key(id, correlation_id) else {
            return false;
        };
        let Some(home) = self.retained.registry.find(&key) else {
            return false;
        };
        if home.mapper == self.retained.id {
            self.leave(home.exchange, &key, self.place(id), true, now);
        } else {
            self.send_leave(home, key, self.place(id), true);
        }
        true
    }

    fn place(&self, association: AssociationId) -> Place {
        Place {
            association,
            home: self.retained.id,
        }
    }

    fn key(&self, id: AssociationId, correlation_id: &[u8]) -> Option<StreamKey> {
        let association = self.associations.get(&id)?;
        let correlation_id = CorrelationId::new(correlation_id)?;
        Some(key_of(&association.info, correlation_id))
    }

    /// The stream's consumer is gone from `place`, or cancels the stream there.
    pub(in crate::a2a::mapper) fn leave(
        &mut self,
        name: ExchangeId,
        key: &StreamKey,
        place: Place,
        cancel: bool,
        now: Instant,
    ) {
        if place.home != self.retained.id && !cancel {
            self.forget_room(place.association);
        }
        let found = self
            .retained
            .streams
            .get(&name)
            .filter(|stream| stream.key == *key)
            .filter(|stream| stream.place == Some(place) || (cancel && stream.place.is_none()));
        let Some(stream) = found else {
            if cancel {
                self.stats.dropped.count(Dropped::MootCancel);
            }
            return;
        };
        if !cancel {
            return self.detach(name, now);
        }
        let (over, tail) = (stream.is_over(), stream.buffer.reached());
        let attached = stream.place.is_some();
        self.abandon(name, Outcome::Abandoned, now);
        if over {
            // It is complete, and whoever cancels it does not resume it (NPAMP-CC-STREAM §7.2).
            return self.stats.dropped.count(Dropped::MootCancel);
        }
        self.stats.cancels_received.add(1);
        let correlation_id = key.correlation_id.clone();
        let mut payload = a2a_payload(MessageKind::StreamEnd, correlation_id.as_octets(), "", &[]);
        payload.stream_control = Some(StreamControl::cancel_ack(tail));
        self.send(place.association, ChannelId::BRIDGE, &payload, None);
        if attached {
            self.settle(place, correlation_id);
        }
    }

    /// The method of a resume request without an object, against policy.
    fn admit_method(
        &self,
        id: AssociationId,
        name: &str,
        decoded: &Payload<'_>,
    ) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::MethodDiffers);
        }
        self.admit_effect(id, name, decoded)
    }
}
