//! The producer's half of resumption: what was sent of a stream is kept within
//! bounds, the agent's stream goes on while nobody is there to take it, and a
//! consumer that comes back gets every event after its cursor, then the rest.
//! Serves NPAMP-CC-STREAM §6.1, §6.3, §7.2 and rulings R11, R15, R17, R27.
//!
//! A stream that was resumed once is *pulled*: its events go into the buffer and
//! leave it as the association says that it has room, because a replay is not
//! paced by the agent. When the buffer is full of events that cannot be sent,
//! the agent is paused; none is dropped.

mod resumed;

use super::responder::{Slot, Want};
use super::{Mapper, a2a_payload};
use crate::a2a::config::StreamConfig;
use crate::a2a::port::{AssociationId, AssociationInfo, ExchangeId, Output, Place, StreamMessage};
use crate::a2a::stats::{Outcome, Resumption};
use crate::a2a::streams::{MapperId, StreamHome, StreamKey, StreamRegistry};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::envelope::MessageKind;
use crate::bridge::own::OwnMap;
use crate::bridge::replay::{Held, ReplayBuffer};
use crate::bridge::safety::Effect;
use crate::bridge::stream::NotMonotonic;
use crate::bridge::stream_control::StreamControl;
use crate::bridge::transport_error::{TransportCode, TransportErrorBody};
use crate::limits::{REPLAY_BURST_OCTETS, RETAINED_STREAMS_MAX};
use crate::wire::ChannelId;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Void ends of retention that are not worth looking for.
const VOID_DUE_MIN: usize = 64;

/// Streams that this mapper keeps.
#[derive(Default)]
pub(super) struct Retained {
    registry: Arc<StreamRegistry>,
    id: MapperId,
    streams: OwnMap<ExchangeId, Stream>,
    /// Ends of retention, in order; one that its stream no longer has is void.
    due: VecDeque<(Instant, ExchangeId)>,
    /// How many ends of retention there may be before the void ones are looked for.
    due_max: usize,
    /// Streams without a place.
    idle: usize,
    /// Streams with something to send, by association.
    pulls: OwnMap<AssociationId, VecDeque<ExchangeId>>,
}

struct Stream {
    key: StreamKey,
    method: Box<str>,
    effect: Effect,
    buffer: ReplayBuffer,
    /// Octets held beside the buffer's.
    fixed: usize,
    /// Where its frames go; nowhere once its end was sent, or its association is gone.
    place: Option<Place>,
    /// Frames wait for room rather than leave as the agent sends them.
    pulled: bool,
    /// It comes from an upstream, which cannot be paused.
    transit: bool,
    /// Its frames say that it can be resumed. One that cannot is kept for as long as it
    /// waits to be sent, and only in transit.
    resumable: bool,
    queued: bool,
    paused: bool,
    /// When it is let go of; only without a place.
    due: Option<Instant>,
}

impl Stream {
    /// Whether its end was sent.
    fn is_over(&self) -> bool {
        self.buffer.terminal().is_some() && self.buffer.next_unsent().is_none()
    }

    /// The oldest events that were sent go, as far as they need not be kept.
    fn trim(&mut self, bounds: &StreamConfig) -> usize {
        if self.resumable {
            self.buffer.trim(bounds.replay_events, bounds.replay_octets)
        } else {
            self.buffer.trim(0, 0)
        }
    }

    fn control(&self, event_id: u64) -> StreamControl {
        if self.resumable {
            StreamControl::resumable(event_id)
        } else {
            StreamControl::data(event_id)
        }
    }
}

impl Retained {
    pub(super) fn new(registry: Arc<StreamRegistry>, id: MapperId) -> Self {
        registry.join(id);
        Self {
            registry,
            id,
            ..Self::default()
        }
    }

    /// The other mappers of this process.
    pub(super) fn other_mappers(&self) -> impl Iterator<Item = MapperId> + use<> {
        self.registry.others(self.id)
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Notes an end of retention. The void ones go before they outnumber the others: a
    /// consumer that comes back again and again leaves one each time.
    fn schedule(&mut self, at: Instant, name: ExchangeId) {
        if self.due.len() >= self.due_max {
            let streams = &self.streams;
            let stands = |due: &(Instant, ExchangeId)| {
                let stream = streams.get(&due.1);
                stream.is_some_and(|stream| stream.due == Some(due.0))
            };
            self.due.retain(stands);
            self.due_max = (2 * self.due.len()).max(VOID_DUE_MIN);
        }
        self.due.push_back((at, name));
    }
}

/// How a stream frame leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// At once; it is not kept and cannot be sent again.
    Unkept,
    /// At once, and it is kept.
    Live,
    /// When there is an association with room.
    Later,
    /// Never: it could be neither sent nor kept.
    Lost,
}

fn key_of(info: &AssociationInfo, correlation_id: CorrelationId) -> StreamKey {
    StreamKey {
        peer: Arc::clone(&info.peer),
        server_name: Arc::clone(&info.server_name),
        correlation_id,
    }
}

impl Mapper {
    fn home(&self, exchange: ExchangeId) -> StreamHome {
        StreamHome {
            mapper: self.retained.id,
            exchange,
        }
    }

    /// Whether the exchange is a stream that is kept.
    pub(super) fn is_kept(&self, name: ExchangeId) -> bool {
        self.retained.streams.contains_key(&name)
    }

    /// Events of a kept stream that were never sent, and their octets.
    pub(super) fn never_sent(&self, name: ExchangeId) -> Option<(usize, usize)> {
        let stream = self.retained.streams.get(&name)?;
        Some(stream.buffer.never_sent())
    }

    /// Sends the next frame of a stream, now or when it can be; `last` ends the exchange.
    pub(super) fn emit(
        &mut self,
        name: ExchangeId,
        kind: MessageKind,
        object: &[u8],
        last: Option<Outcome>,
        now: Instant,
    ) {
        let Some(exchange) = self.exchanges.get_mut(&name) else {
            return;
        };
        let producer = exchange.producer.get_or_insert_default();
        let first = producer.last_event_id() == 0;
        let event_id = producer.next_event_id();
        self.send_as(name, (event_id, first), kind, object, last, now);
    }

    /// [`Mapper::emit`] of a frame whose event_id is another producer's; not when it does not rise.
    pub(super) fn emit_as(
        &mut self,
        name: ExchangeId,
        event_id: u64,
        kind: MessageKind,
        object: &[u8],
        last: Option<Outcome>,
        now: Instant,
    ) -> Result<(), NotMonotonic> {
        let Some(exchange) = self.exchanges.get_mut(&name) else {
            return Ok(());
        };
        let producer = exchange.producer.get_or_insert_default();
        let first = producer.last_event_id() == 0;
        producer.advance_to(event_id)?;
        self.send_as(name, (event_id, first), kind, object, last, now);
        Ok(())
    }

    fn send_as(
        &mut self,
        name: ExchangeId,
        (event_id, first): (u64, bool),
        kind: MessageKind,
        object: &[u8],
        last: Option<Outcome>,
        now: Instant,
    ) {
        // A stream whose only frame is its end has nothing that a consumer could come back for.
        let begins = first && kind == MessageKind::StreamData;
        let way = self.keep(name, (event_id, begins), kind, object, now);
        let control = match way {
            Way::Unkept => StreamControl::data(event_id),
            Way::Live => StreamControl::resumable(event_id),
            Way::Later => {
                if let Some(outcome) = last {
                    self.end_exchange(name, outcome, now);
                } else if self.is_transit_stream(name) && self.break_lagging(name, now) {
                    return;
                }
                self.pull(name);
                return self.pace(name);
            }
            Way::Lost => {
                let text = "the relay keeps as much of streams as it may";
                return self.break_stream(name, last.is_none(), text, now);
            }
        };
        let destination = match last {
            Some(outcome) => self.end_exchange(name, outcome, now),
            None => self.destination(name),
        };
        let Some((id, channel, correlation_id)) = destination else {
            return;
        };
        let mut payload = a2a_payload(kind, correlation_id.as_octets(), "", object);
        payload.stream_control = Some(control);
        self.send(id, channel, &payload, None);
        if last.is_some() && way == Way::Live {
            self.displace(name, now);
        }
    }

    fn is_transit_stream(&self, name: ExchangeId) -> bool {
        let stream = self.retained.streams.get(&name);
        stream.is_some_and(|stream| stream.transit)
    }

    fn keep(
        &mut self,
        name: ExchangeId,
        (event_id, begins): (u64, bool),
        kind: MessageKind,
        object: &[u8],
        now: Instant,
    ) -> Way {
        let new = begins && !self.is_kept(name) && self.begin(name);
        if !new && !self.is_kept(name) {
            return Way::Unkept;
        }
        // The Request's id, which may be long, is held for as long as the stream can be.
        let fixed = if new { self.id_octets(name) } else { 0 };
        let held = Held {
            event_id,
            kind,
            // A copy: what came from the agent is a slice of something larger.
            object: Bytes::copy_from_slice(object),
        };
        let reserved = self.reserve(name, held.octets() + fixed, now);
        let bounds = &self.config.stream;
        let Some(stream) = self.retained.streams.get_mut(&name) else {
            return Way::Unkept;
        };
        if !reserved {
            self.stats.resumption.count(Resumption::Unkept);
            if stream.pulled {
                return Way::Lost;
            }
            self.forget(name);
            return Way::Unkept;
        }
        stream.fixed += fixed;
        stream.buffer.push(held);
        let way = if stream.pulled {
            Way::Later
        } else {
            stream.buffer.mark_sent();
            Way::Live
        };
        if stream.place.is_some() {
            // Whatever was sent may be needed while there is no association.
            let freed = stream.trim(bounds);
            self.free(freed);
        }
        way
    }

    fn id_octets(&self, name: ExchangeId) -> usize {
        match self.exchanges.get(&name).map(|exchange| &exchange.want) {
            Some(Want::Reply { id, .. }) => id.len(),
            _ => 0,
        }
    }

    /// Starts to keep a stream.
    fn begin(&mut self, name: ExchangeId) -> bool {
        let Some(exchange) = self.exchanges.get(&name) else {
            return false;
        };
        let (
            Some(association),
            Want::Reply {
                correlation_id,
                method,
                effect,
                ..
            },
        ) = (exchange.association, &exchange.want)
        else {
            return false;
        };
        let Some(info) = self.associations.get(&association).map(|found| &found.info) else {
            return false;
        };
        let (transit, resumable) = (exchange.transit, self.config.stream.resumes());
        if (!resumable && !transit) || exchange.channel != ChannelId::BRIDGE {
            return false;
        }
        let key = key_of(info, correlation_id.clone());
        let stream = Stream {
            key: key.clone(),
            method: method.clone(),
            effect: *effect,
            buffer: ReplayBuffer::default(),
            fixed: 0,
            place: Some(Place {
                association,
                home: self.retained.id,
            }),
            pulled: transit,
            transit,
            resumable,
            queued: false,
            paused: false,
            due: None,
        };
        if resumable {
            self.retained.registry.enter(key, self.home(name));
        }
        self.retained.streams.insert(name, stream);
        self.stats.kept.add(1);
        if transit {
            // Its upstream may end it before its peer has got it.
            self.uproot(name);
        }
        true
    }

    /// Takes octets of the process's, at the cost of the oldest streams that have ended, then
    /// of the one in transit of which most waits.
    fn reserve(&mut self, name: ExchangeId, octets: usize, now: Instant) -> bool {
        while !self.retained.registry.octets().take(octets) {
            if !self.evict() && !self.evict_lagging(name, now) {
                return false;
            }
        }
        self.stats.replay_octets.add(octets as u64);
        true
    }

    fn free(&self, octets: usize) {
        self.retained.registry.octets().give(octets);
        self.stats.replay_octets.sub(octets as u64);
    }

    /// Forgets the stream that has been over for longest.
    fn evict(&mut self) -> bool {
        let Retained { due, streams, .. } = &mut self.retained;
        let over = due.iter().position(|(at, name)| {
            streams
                .get(name)
                .is_some_and(|stream| stream.due == Some(*at) && stream.is_over())
        });
        let Some((_, name)) = over.and_then(|at| due.remove(at)) else {
            return false;
        };
        self.stats.resumption.count(Resumption::Evicted);
        self.forget(name);
        true
    }

    /// Ends the stream in transit of which most waits, unless it is `but` itself.
    fn evict_lagging(&mut self, but: ExchangeId, now: Instant) -> bool {
        let streams = self.retained.streams.iter();
        let most = streams
            .filter(|(_, stream)| stream.transit)
            .map(|(name, stream)| (stream.buffer.never_sent().1, *name))
            .filter(|(octets, _)| *octets > 0)
            .max();
        let Some((_, name)) = most.filter(|(_, name)| *name != but) else {
            return false;
        };
        self.stats.resumption.count(Resumption::Lagged);
        let goes_on = self.exchanges.contains_key(&name);
        let text = "the relay keeps as much of streams as it may";
        self.break_stream(name, goes_on, text, now);
        true
    }

    fn forget(&mut self, name: ExchangeId) -> Option<Stream> {
        let stream = self.retained.streams.remove(&name)?;
        self.retained.registry.leave(&stream.key, self.home(name));
        self.free(stream.buffer.octets() + stream.fixed);
        self.stats.kept.sub(1);
        if stream.due.is_some() {
            self.retained.idle -= 1;
        }
        if self.retained.streams.is_empty() && self.retained.streams.capacity() > 64 {
            // Nothing is held after a burst.
            self.retained.streams = OwnMap::default();
            self.retained.due = VecDeque::new();
        }
        Some(stream)
    }

    /// The stream is nowhere now: its time begins to run.
    fn displace(&mut self, name: ExchangeId, now: Instant) {
        let at = now + self.config.stream.retention;
        let Some(stream) = self.retained.streams.get_mut(&name) else {
            return;
        };
        stream.place = None;
        stream.queued = false;
        if stream.due.replace(at).is_none() {
            self.retained.idle += 1;
        }
        self.retained.schedule(at, name);
        if self.retained.idle > RETAINED_STREAMS_MAX && !self.evict() {
            self.stats.resumption.count(Resumption::Unkept);
            self.abandon(name, Outcome::AssociationLost, now);
        }
    }

    /// Forgets a stream, and stops its agent if that goes on.
    fn abandon(&mut self, name: ExchangeId, outcome: Outcome, now: Instant) -> Option<Stream> {
        if self.exchanges.contains_key(&name) {
            self.outputs.push_back(Output::Cancel { exchange: name });
            self.end_exchange(name, outcome, now);
        }
        self.forget(name)
    }

    /// An exchange of an association that is gone: a kept stream goes on without.
    pub(super) fn lose(
        &mut self,
        id: AssociationId,
        info: &AssociationInfo,
        correlation_id: CorrelationId,
        slot: Slot,
        now: Instant,
    ) {
        let name = match slot {
            Slot::Here(name) => name,
            Slot::Away(home) => {
                let place = Place {
                    association: id,
                    home: self.retained.id,
                };
                let key = key_of(info, correlation_id);
                return self.send_leave(home, key, place, false);
            }
        };
        if let Some(exchange) = self.exchanges.get_mut(&name) {
            exchange.octets = 0;
        }
        if let Some(stream) = self.retained.streams.get(&name) {
            if stream.resumable {
                self.detach(name, now);
            } else {
                self.abandon(name, Outcome::AssociationLost, now);
            }
        } else if self.exchanges.contains_key(&name) {
            self.outputs.push_back(Output::Cancel { exchange: name });
            self.end_exchange(name, Outcome::AssociationLost, now);
        }
    }

    fn detach(&mut self, name: ExchangeId, now: Instant) {
        self.uproot(name);
        if let Some(stream) = self.retained.streams.get_mut(&name) {
            stream.pulled = true;
        }
        self.stats.resumption.count(Resumption::Detached);
        self.displace(name, now);
        self.pace(name);
    }

    /// The agent's exchange belongs to no association any more.
    fn uproot(&mut self, name: ExchangeId) {
        if let Some(exchange) = self.exchanges.get_mut(&name) {
            let octets = std::mem::take(&mut exchange.octets);
            if let Some(association) = exchange.association.take() {
                self.release(association, octets);
            }
        }
    }

    /// Lets go of streams that nobody asked for in time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((at, name)) = self.retained.due.front().copied() {
            if at > now {
                return;
            }
            self.retained.due.pop_front();
            let Some(stream) = self.retained.streams.get(&name) else {
                continue;
            };
            if stream.due != Some(at) {
                continue;
            }
            if !stream.is_over() {
                self.stats.resumption.count(Resumption::Expired);
            }
            self.abandon(name, Outcome::AssociationLost, now);
        }
    }

    /// Asks for room if the stream has something to send and somewhere to send it.
    fn pull(&mut self, name: ExchangeId) {
        let Some(stream) = self.retained.streams.get_mut(&name) else {
            return;
        };
        let Some(place) = stream.place else { return };
        if stream.queued || stream.buffer.next_unsent().is_none() {
            return;
        }
        stream.queued = true;
        let queue = self.retained.pulls.entry(place.association).or_default();
        if queue.is_empty() {
            self.outputs.push_back(Output::WantRoom {
                association: place.association,
                mapper: self.retained.id,
            });
        }
        queue.push_back(name);
    }

    /// The association takes more: a burst, one event of each stream in turn.
    pub(super) fn room(&mut self, id: AssociationId, now: Instant) {
        let Some(mut queue) = self.retained.pulls.remove(&id) else {
            return;
        };
        let mut octets = 0;
        while octets < REPLAY_BURST_OCTETS {
            let Some(name) = queue.pop_front() else {
                return;
            };
            octets += self.send_next(name, id, now);
            if self.retained.streams.get(&name).is_some_and(|stream| {
                stream.queued && stream.place.is_some_and(|p| p.association == id)
            }) {
                queue.push_back(name);
            }
        }
        if !queue.is_empty() {
            self.outputs.push_back(Output::WantRoom {
                association: id,
                mapper: self.retained.id,
            });
            self.retained.pulls.insert(id, queue);
        }
    }

    /// Sends a stream's next event on `id`, if it is still there; gives its octets.
    fn send_next(&mut self, name: ExchangeId, id: AssociationId, now: Instant) -> usize {
        let bounds = &self.config.stream;
        let Some(stream) = self.retained.streams.get_mut(&name) else {
            return 0;
        };
        let Some(place) = stream.place.filter(|place| place.association == id) else {
            return 0;
        };
        let Some(held) = stream.buffer.next_unsent().cloned() else {
            stream.queued = false;
            return 0;
        };
        stream.buffer.mark_sent();
        stream.queued = stream.buffer.next_unsent().is_some();
        let freed = stream.trim(bounds);
        let (control, resumable) = (stream.control(held.event_id), stream.resumable);
        let correlation_id = stream.key.correlation_id.clone();
        self.free(freed);
        let mut payload = a2a_payload(held.kind, correlation_id.as_octets(), "", &held.object);
        payload.stream_control = Some(control);
        self.send(id, ChannelId::BRIDGE, &payload, None);
        if held.kind == MessageKind::StreamData {
            self.pace(name);
        } else {
            self.settle(place, correlation_id);
            if resumable {
                self.displace(name, now);
            } else {
                self.forget(name);
            }
        }
        held.octets()
    }

    pub(super) fn forget_room(&mut self, id: AssociationId) {
        self.retained.pulls.remove(&id);
    }

    /// Pauses the agent when what waits to be sent has reached the bounds, and
    /// lets it go on when half of that is gone.
    fn pace(&mut self, name: ExchangeId) {
        let bounds = &self.config.stream;
        let Some(stream) = self
            .retained
            .streams
            .get_mut(&name)
            .filter(|stream| !stream.transit)
        else {
            return;
        };
        let (events, octets) = if stream.place.is_some() {
            stream.buffer.unsent()
        } else {
            (stream.buffer.len(), stream.buffer.octets())
        };
        let paused = if stream.paused {
            events > bounds.replay_events / 2 || octets > bounds.replay_octets / 2
        } else {
            events >= bounds.replay_events || octets >= bounds.replay_octets
        };
        if paused != stream.paused && self.exchanges.contains_key(&name) {
            stream.paused = paused;
            self.outputs.push_back(Output::Pause {
                exchange: name,
                paused,
            });
        }
    }

    /// Ends a stream that can be neither sent nor kept, visibly.
    pub(super) fn break_stream(
        &mut self,
        name: ExchangeId,
        agent_goes_on: bool,
        message: &str,
        now: Instant,
    ) {
        if agent_goes_on {
            self.outputs.push_back(Output::Cancel { exchange: name });
        }
        self.end_exchange(name, Outcome::TransportError, now);
        let Some(stream) = self.forget(name) else {
            return;
        };
        let Some(place) = stream.place else { return };
        let correlation_id = stream.key.correlation_id;
        let body = TransportErrorBody {
            code: TransportCode::NOT_DELIVERED,
            message,
        }
        .encode();
        let mut payload = a2a_payload(MessageKind::Error, correlation_id.as_octets(), "", &body);
        payload.stream_control = Some(StreamControl::data(stream.buffer.reached() + 1));
        self.send(place.association, ChannelId::BRIDGE, &payload, None);
        self.settle(place, correlation_id);
    }

    /// Tells the association's own mapper that the exchange there is answered.
    fn settle(&mut self, place: Place, correlation_id: CorrelationId) {
        if place.home == self.retained.id {
            self.settled(place.association, &correlation_id);
        } else {
            self.outputs.push_back(Output::Forward {
                mapper: place.home,
                message: StreamMessage::Settled {
                    association: place.association,
                    correlation_id,
                },
            });
        }
    }

    pub(super) fn settled(&mut self, id: AssociationId, correlation_id: &CorrelationId) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.bridge.close(correlation_id.as_octets());
        }
    }

    fn send_leave(&mut self, home: StreamHome, key: StreamKey, place: Place, cancel: bool) {
        self.outputs.push_back(Output::Forward {
            mapper: home.mapper,
            message: StreamMessage::Leave {
                exchange: home.exchange,
                key,
                place,
                cancel,
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(due: Instant) -> Stream {
        Stream {
            key: StreamKey {
                peer: "ed25519:peer".into(),
                server_name: "agent".into(),
                correlation_id: CorrelationId::new(b"c").unwrap(),
            },
            method: "message/stream".into(),
            effect: Effect::DESTRUCTIVE,
            buffer: ReplayBuffer::default(),
            fixed: 0,
            place: None,
            pulled: true,
            transit: false,
            resumable: true,
            queued: false,
            paused: false,
            due: Some(due),
        }
    }

    /// A consumer that asks for its stream and leaves it, again and again, has the relay hold
    /// no more for that, and every stream its one end of retention.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
    fn void_ends_of_retention_do_not_pile_up() {
        let (mut retained, start) = (Retained::default(), Instant::now());
        let standing = 100;
        for n in 0..standing {
            let at = start + std::time::Duration::from_secs(n);
            retained.streams.insert(ExchangeId(n), stream(at));
            retained.schedule(at, ExchangeId(n));
        }
        let name = ExchangeId(standing);
        for n in 0..10_000 {
            let at = start + std::time::Duration::from_millis(n);
            retained.streams.insert(name, stream(at));
            retained.schedule(at, name);
            assert!(retained.due.len() <= 2 * (standing as usize + 1) + 1);
        }
        let stands = |n: u64| {
            let stream = &retained.streams[&ExchangeId(n)];
            let mut due = retained.due.iter();
            due.any(|&(at, name)| name == ExchangeId(n) && stream.due == Some(at))
        };
        assert!((0..=standing).all(stands));
    }
}
