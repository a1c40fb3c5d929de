//! The mapper: calls of an ingress become bridge requests, requests of a peer
//! become dispatches to an egress, and answers go back. Serves NPAMP-MAP-A2A
//! with NPAMP-CC-JSONRPC, NPAMP-CC-STREAM and NPAMP-CC-DOC, and NPAMP-DISC; both
//! roles on any association (NPAMP-BRIDGE §5).
//!
//! Sans-IO: inputs are values, outputs are polled, time and randomness are
//! arguments. Never blocks and never waits: backpressure stops the sources of
//! its inputs. Foreign messages are handed on as they came, by reference.

mod admission;
mod discovery;
mod documents;
mod gathering;
mod labelling;
mod parked;
mod requester;
mod responder;
mod retained;
mod transit;

use crate::a2a::budget::OctetBudget;
use crate::a2a::config::MapperConfig;
use crate::a2a::method::Operation;
use crate::a2a::port::{
    AgentDirectory, AssociationId, AssociationInfo, CallEvent, CallId, DownReason, ExchangeId,
    Input, Output, StreamMessage, Target, TransportError,
};
use crate::a2a::stats::{Dropped, Elapsed, ExchangeStats, MapperStats, Outcome};
use crate::a2a::streams::{MapperId, StreamRegistry};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::envelope::{ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId};
use crate::bridge::error::BridgeError;
use crate::bridge::own::{OwnMap, OwnSet};
use crate::bridge::payload::{self, Payload};
use crate::bridge::requester::RequesterTable;
use crate::bridge::responder::ResponderTable;
use crate::bridge::safety::EffectSet;
use crate::bridge::stream_control::Control;
use crate::bridge::transport_error::TransportCode;
use crate::crypto::Random;
use crate::wire::ChannelId;
use bytes::Bytes;
use discovery::Capabilities;
use parked::Parked;
use requester::Call;
use responder::{Exchange, Slot};
use retained::Retained;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Opens the text of a NotDelivered whose cause was a deadline, so that the
/// other relay can tell 504 from 502.
const TIMEOUT_PREFIX: &str = "timeout";

/// See the module.
pub struct Mapper {
    config: MapperConfig,
    directory: Box<dyn AgentDirectory + Send>,
    budget: Arc<OctetBudget>,
    stats: Arc<MapperStats>,
    associations: OwnMap<AssociationId, Association>,
    calls: OwnMap<CallId, (AssociationId, CorrelationId)>,
    /// Calls that are discovery queries.
    discoveries: OwnMap<CallId, (AssociationId, CorrelationId)>,
    /// Agents that no connection came about to, and that have not answered since.
    unreachable: HashSet<usize>,
    /// When each agent that was out of reach was first heard of again.
    returned: HashMap<usize, Instant>,
    exchanges: OwnMap<ExchangeId, Exchange>,
    next_exchange: u64,
    /// Streams that we produce and can send again.
    retained: Retained,
    /// Streams that we consume and whose association is gone.
    parked: Parked,
    outputs: VecDeque<Output>,
    /// Outputs that were taken.
    outputs_taken: u64,
}

/// What is kept per association.
struct Association {
    info: AssociationInfo,
    allow: EffectSet,
    /// What is behind its server name.
    target: Option<Target>,
    /// Our requests, all on the Bridge channel.
    requester: RequesterTable<Call>,
    /// The peer's requests. A correlation_id on two channels is two exchanges (NPAMP-CC-DOC §3).
    bridge: ResponderTable<Slot>,
    discovery: ResponderTable<Slot>,
    /// Notifications with the agent.
    notifications: OwnSet<ExchangeId>,
    /// Foreign-message octets held.
    octets: usize,
    /// Present where both peers have the Discovery channel.
    capabilities: Option<Box<Capabilities>>,
}

impl Association {
    fn responder(&mut self, channel: ChannelId) -> &mut ResponderTable<Slot> {
        if channel == ChannelId::DISCOVERY {
            &mut self.discovery
        } else {
            &mut self.bridge
        }
    }

    fn responding(&self) -> usize {
        self.bridge.len() + self.discovery.len() + self.notifications.len()
    }
}

impl Mapper {
    /// A mapper without associations. `budget` is shared by the mappers of a process.
    pub fn new(
        config: MapperConfig,
        directory: Box<dyn AgentDirectory + Send>,
        budget: Arc<OctetBudget>,
    ) -> Self {
        Self {
            config,
            directory,
            budget,
            stats: Arc::default(),
            associations: OwnMap::default(),
            calls: OwnMap::default(),
            discoveries: OwnMap::default(),
            unreachable: HashSet::new(),
            returned: HashMap::new(),
            exchanges: OwnMap::default(),
            next_exchange: 1,
            retained: Retained::default(),
            parked: Parked::default(),
            outputs: VecDeque::new(),
            outputs_taken: 0,
        }
    }

    /// Makes it one of several mappers, which find each other's streams by the registry.
    #[must_use]
    pub fn among(mut self, registry: Arc<StreamRegistry>, id: MapperId) -> Self {
        self.retained = Retained::new(registry, id);
        self
    }

    /// The counters, to be read from any thread.
    pub fn stats(&self) -> Arc<MapperStats> {
        Arc::clone(&self.stats)
    }

    /// Calls and dispatches outstanding, notifications included.
    pub fn outstanding(&self) -> usize {
        self.calls.len() + self.discoveries.len() + self.exchanges.len()
    }

    /// Foreign-message octets held for one association.
    pub fn held_octets(&self, association: AssociationId) -> usize {
        self.associations
            .get(&association)
            .map_or(0, |association| association.octets)
    }

    /// Takes one input. What follows from it is in [`Mapper::poll_output`] at once.
    pub fn handle(&mut self, input: Input, now: Instant, random: &mut dyn Random) {
        match input {
            Input::Up {
                association,
                info,
                replaces,
            } => {
                self.up(association, info, now);
                if let Some(lost) = replaces {
                    self.unpark(lost, association, now);
                }
                self.discovery_up(association, random);
            }
            Input::Down {
                association,
                reason,
            } => self.down(association, &reason, now),
            Input::Frame {
                association,
                channel,
                frame_type,
                payload,
            } => {
                let channel = ChannelId(channel);
                if !self.next_event(association, channel, frame_type, &payload) {
                    self.frame(association, channel, frame_type, &payload, now);
                }
            }
            Input::Call {
                association,
                call,
                request,
            } => self.call(association, call, request, now, random),
            Input::CallGone { call } => {
                if !self.discover_gone(call) {
                    self.call_gone(call, now);
                }
            }
            Input::Agent { exchange, event } => self.agent(exchange, event, now),
            Input::Room { association } => self.room(association, now),
            Input::GiveUp { association } => self.give_up(association, now),
            Input::Stream(StreamMessage::Attach(attach)) => self.attach(*attach, now),
            Input::Stream(StreamMessage::Leave {
                exchange,
                key,
                place,
                cancel,
            }) => self.leave(exchange, &key, place, cancel, now),
            Input::Stream(StreamMessage::Reach { agent, reached }) => {
                self.set_reach(agent, reached, now);
            }
            Input::Stream(StreamMessage::Settled {
                association,
                correlation_id,
            }) => self.settled(association, &correlation_id),
        }
    }

    /// Takes an [`Input::Frame`] whose payload stays the caller's.
    pub fn handle_frame(
        &mut self,
        association: AssociationId,
        channel: u16,
        frame_type: u16,
        payload: &[u8],
        now: Instant,
    ) {
        let channel = ChannelId(channel);
        if !self.next_event(association, channel, frame_type, payload) {
            let payload = Bytes::copy_from_slice(payload);
            self.frame(association, channel, frame_type, &payload, now);
        }
    }

    /// When [`Mapper::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.retained.timeout(), self.parked.timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets go of streams whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire(now);
        self.expire_parked(now);
    }

    /// Whether [`Mapper::poll_output`] would give one.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// The next output, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        self.outputs_taken += u64::from(output.is_some());
        if output.is_none() && self.outputs.capacity() > 1024 {
            self.outputs = VecDeque::new();
        }
        output
    }

    fn up(&mut self, id: AssociationId, info: AssociationInfo, now: Instant) {
        self.down(id, &DownReason("replaced".into()), now);
        let allow = self
            .config
            .peers
            .iter()
            .find(|(peer, _)| **peer == *info.peer)
            .map_or(self.config.allow, |(_, allow)| *allow);
        let target = self.directory.target_for(&info.server_name);
        self.associations.insert(
            id,
            Association {
                info,
                allow,
                target,
                requester: RequesterTable::default(),
                bridge: ResponderTable::default(),
                discovery: ResponderTable::default(),
                notifications: OwnSet::default(),
                octets: 0,
                capabilities: None,
            },
        );
    }

    fn down(&mut self, id: AssociationId, reason: &DownReason, now: Instant) {
        let Some(mut association) = self.associations.remove(&id) else {
            return;
        };
        self.discovery_down(&mut association, reason);
        let held = association.octets;
        self.budget.give(held);
        self.stats.octets.sub(held as u64);
        self.park(
            id,
            association.info.side,
            &mut association.requester,
            reason,
            now,
        );
        let bridge = association.bridge.drain();
        let discovery = association.discovery.drain();
        for (correlation_id, slot) in bridge.chain(discovery) {
            self.lose(id, &association.info, correlation_id, slot, now);
        }
        self.forget_room(id);
        // Notifications go on: they are one-way, and whoever sent them awaits nothing.
        for notification in association.notifications {
            if let Some(exchange) = self.exchanges.get_mut(&notification) {
                exchange.octets = 0;
            }
        }
    }

    fn frame(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        frame_type: u16,
        octets: &Bytes,
        now: Instant,
    ) {
        let Some(association) = self.associations.get(&id) else {
            return self.stats.dropped.count(Dropped::AssociationUnknown);
        };
        if channel == ChannelId::DISCOVERY {
            // DISC and BRIDGE frame types collide there (ruling R10).
            if !octets.starts_with(&[0x00, 0x10]) {
                return self.discovery_frame(id, frame_type, octets, now);
            }
        } else if channel != ChannelId::BRIDGE {
            return self.stats.dropped.count(Dropped::Channel);
        }
        let Some(kind) = MessageKind::from_frame_type(frame_type) else {
            self.stats.dropped.count(Dropped::NotABridgeFrame);
            return self.channel_error(id, channel, "not a bridge frame type");
        };
        let tag = association.info.document_binding;
        match payload::decode_with(frame_type, octets, tag) {
            Err(error) => self.malformed(id, channel, kind, octets, error, now),
            Ok(decoded) => match kind {
                MessageKind::Request => self.request(id, channel, octets, &decoded, now),
                MessageKind::Notification => self.notification(id, channel, octets, &decoded, now),
                MessageKind::StreamEnd
                    if decoded
                        .stream_control
                        .is_some_and(|c| c.control == Control::Cancel && !c.cancel_ack) =>
                {
                    self.cancel(id, channel, decoded.envelope.correlation_id, now);
                }
                _ => self.reply(id, channel, octets, &decoded, now),
            },
        }
    }

    /// Answers a payload that did not decode, as ruling R26 says.
    fn malformed(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        kind: MessageKind,
        octets: &Bytes,
        error: BridgeError,
        now: Instant,
    ) {
        self.stats.malformed.count(error);
        let readable = payload::readable_correlation(octets);
        match (kind, readable) {
            (MessageKind::Notification, _) => self.stats.dropped.count(Dropped::NotifyMalformed),
            (MessageKind::Request, Some((protocol_id, correlation_id))) => {
                self.refuse_malformed(id, channel, protocol_id, correlation_id, error);
            }
            (_, Some((_, correlation_id))) if self.awaits_reply(id, channel, correlation_id) => {
                self.reply_malformed(id, kind, correlation_id, error, now);
            }
            // An error is never answered.
            (MessageKind::Error, _) => self.stats.dropped.count(Dropped::Malformed),
            _ => {
                self.stats.dropped.count(Dropped::Malformed);
                self.channel_error(id, channel, &error.to_string());
            }
        }
    }

    fn channel_error(&mut self, association: AssociationId, channel: ChannelId, message: &str) {
        self.outputs.push_back(Output::ChannelError {
            association,
            channel: channel.0,
            message: message.to_owned(),
        });
    }

    fn send(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        payload: &Payload<'_>,
        document_binding: Option<u16>,
    ) {
        let frame_type = payload.envelope.kind.frame_type();
        // Every field was bounded where it came from, so that this cannot fail.
        match payload::encode_with(frame_type, payload, document_binding) {
            Ok(octets) => self.outputs.push_back(Output::Frame {
                association,
                channel: channel.0,
                frame_type,
                payload: octets,
            }),
            Err(error) => debug_assert!(false, "a payload of ours does not encode: {error}"),
        }
    }

    /// Counts `octets` as held for the association, or refuses them.
    fn hold(&mut self, id: AssociationId, octets: usize) -> bool {
        let Some(association) = self.associations.get_mut(&id) else {
            return false;
        };
        if association.octets + octets > self.config.association_octets || !self.budget.take(octets)
        {
            return false;
        }
        association.octets += octets;
        self.stats.octets.add(octets as u64);
        true
    }

    /// Gives back what [`Mapper::hold`] counted; after the association is gone, all was given back.
    fn release(&mut self, id: AssociationId, octets: usize) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.octets -= octets;
            self.budget.give(octets);
            self.stats.octets.sub(octets as u64);
        }
    }
}

/// Counts the end of an exchange.
fn ended(
    stats: &ExchangeStats,
    operation: Operation,
    outcome: Outcome,
    since: Instant,
    now: Instant,
) {
    stats.outcomes(operation).count(outcome);
    stats
        .elapsed
        .count(Elapsed::of(now.saturating_duration_since(since)));
    stats.outstanding.sub(1);
}

/// The call event of a transport error that arose here.
fn transport_error(code: TransportCode, message: &str) -> CallEvent {
    CallEvent::TransportError(TransportError {
        code: code.0,
        message: message.to_owned(),
        timed_out: false,
    })
}

/// An A2A payload with neither label, control nor binding.
fn a2a_payload<'a>(
    kind: MessageKind,
    correlation_id: &'a [u8],
    method: &'a str,
    foreign: &'a [u8],
) -> Payload<'a> {
    Payload {
        envelope: Envelope {
            protocol_id: ProtocolId::A2A,
            kind,
            content_type: ContentType::JSON,
            // A STREAM_END is the last of its direction, a cancel included.
            flags: if kind == MessageKind::StreamEnd {
                EnvelopeFlags::FINAL
            } else {
                EnvelopeFlags::NONE
            },
            correlation_id,
            method,
        },
        safety: None,
        stream_control: None,
        document_binding: None,
        foreign,
    }
}
