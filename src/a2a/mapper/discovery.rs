//! What an egress advertises of itself, and what an ingress has learned of its
//! peer: NPAMP-DISC on an association that has the Discovery channel.
//!
//! An egress advertises A2A, its carriage classes and the agent of the
//! association's server name, no other (ruling R10), and only while it can
//! carry them: the agent's record goes when no connection to the agent comes
//! about, and returns with its next answer, to stay for a moment at least. What was learned is a claim: it
//! refuses a call early that the peer would refuse anyway, and never permits one
//! (NPAMP-DISC §10). Nothing waits for it, and it ends with the association (§8).

use super::{Association, Mapper, transport_error};
use crate::a2a::config::UnknownMethods;
use crate::a2a::method::{self, CARD_METHOD};
use crate::a2a::port::{
    AgentEvent, AssociationId, CallEvent, CallId, DownReason, ExchangeId, Output, Side,
    StreamMessage, Target,
};
use crate::a2a::stats::{DiscoveryEvent, Dropped, Refusal};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::discovery::learned::{Learned, Snapshot, Taken};
use crate::bridge::discovery::query::{Progress, Queries};
use crate::bridge::discovery::record::{AgentRecord, CarriageClassRecord, ProtocolRecord};
use crate::bridge::discovery::responder::Responder;
use crate::bridge::discovery::{
    Body, CarriageClass, ErrorCode, Fault, Filter, Frame, FrameKind, Record, RecordId,
};
use crate::bridge::envelope::{ContentType, ProtocolId};
use crate::bridge::safety::{Effect, EffectSet};
use crate::bridge::transport_error::{TransportCode, cut};
use crate::crypto::Random;
use crate::limits::{
    CORRELATION_RANDOM_OCTETS, DISCOVERY_AGENT_ID_OCTETS_MAX, DISCOVERY_REACH_TIME,
};
use crate::wire::ChannelId;
use bytes::Bytes;
use std::time::Instant;

/// record_ids, which name one advertisement each for as long as the association lives.
const PROTOCOL_RECORD: &[u8] = b"protocol-2";
const AGENT_RECORD: &[u8] = b"agent";

/// Discovery on one association.
pub(super) struct Capabilities {
    /// What we advertise; nothing is served where it is absent.
    offered: Option<Responder>,
    /// What the peer advertises.
    learned: Learned,
    queries: Queries<CallId>,
}

impl Mapper {
    /// An association has come up: its owner advertises, its initiator subscribes.
    pub(super) fn discovery_up(&mut self, id: AssociationId, random: &mut dyn Random) {
        let Some(association) = self.associations.get(&id) else {
            return;
        };
        if !association.info.discovery {
            return;
        }
        let serves = association.info.side == Side::Responder || self.config.serve_initiated;
        let subscribes =
            association.info.side == Side::Initiator && self.config.discovery.subscribe;
        let mut capabilities = Capabilities {
            offered: None,
            learned: Learned::default(),
            queries: Queries::default(),
        };
        if serves {
            let mut responder = Responder::new(self.config.discovery.bounds.clone());
            for (record_id, label, body) in self.records_of(association) {
                // Nobody has subscribed yet.
                responder.put(record_id, label, body);
            }
            let announcement = responder.announcement();
            capabilities.offered = Some(responder);
            if let Some(frame) = announcement {
                self.stats.discovery.count(DiscoveryEvent::AnnounceSent);
                self.send_discovery(id, &frame);
            }
        }
        if subscribes {
            let corr = fresh(random);
            capabilities.learned.subscribed(corr.clone());
            self.stats.discovery.count(DiscoveryEvent::SubscribeSent);
            let filter = Filter::default();
            self.send_discovery(id, &Frame::Subscribe { corr, filter });
        }
        if let Some(association) = self.associations.get_mut(&id) {
            association.capabilities = Some(Box::new(capabilities));
        }
    }

    /// Everything learned over the association goes with it (NPAMP-DISC §8).
    pub(super) fn discovery_down(&mut self, association: &mut Association, reason: &DownReason) {
        let Some(mut capabilities) = association.capabilities.take() else {
            return;
        };
        let held = capabilities.learned.len() as u64;
        self.stats.discovery_records.sub(held);
        let subscriptions = capabilities.offered.map_or(0, |o| o.subscriptions());
        self.stats.discovery_subscriptions.sub(subscriptions as u64);
        for call in capabilities.queries.drain() {
            self.discoveries.remove(&call);
            self.outputs.push_back(Output::Call {
                call,
                event: transport_error(TransportCode::NOT_DELIVERED, &reason.0),
            });
        }
    }

    /// A frame that is no bridge frame, on the Discovery channel.
    pub(super) fn discovery_frame(
        &mut self,
        id: AssociationId,
        frame_type: u16,
        octets: &Bytes,
        now: Instant,
    ) {
        let present = self
            .associations
            .get(&id)
            .is_some_and(|association| association.capabilities.is_some());
        if !present {
            // Not advertised on this association (NPAMP-DISC §2).
            return self.stats.dropped.count(Dropped::Discovery);
        }
        match Frame::decode(frame_type, octets) {
            Err(fault) => self.discovery_fault(id, frame_type, fault),
            Ok(
                frame @ (Frame::Query { .. } | Frame::Subscribe { .. } | Frame::Unsubscribe { .. }),
            ) => self.discovery_asked(id, frame, now),
            Ok(frame) => self.discovery_heard(id, frame),
        }
    }

    /// A payload that is not taken is answered where an answer is owed, and fails
    /// what it would have answered (NPAMP-DISC §4.1, §7.1, §7.3).
    fn discovery_fault(&mut self, id: AssociationId, frame_type: u16, fault: Fault) {
        self.stats.discovery_malformed.count(fault.error);
        let kind = FrameKind::from_frame_type(frame_type);
        match (kind, fault.corr) {
            (Some(kind), Some(corr)) if kind.is_request() => {
                let frame = Frame::Error {
                    corr,
                    code: fault.error.code(),
                    reason: Some(fault.error.to_string()),
                };
                self.answer_discovery(id, &frame);
            }
            (Some(FrameKind::Update), _) => {
                // Whatever it said, we do not know the set any more.
                self.stats.dropped.count(Dropped::Discovery);
                self.learn(id, Learned::missed);
            }
            (Some(FrameKind::Result | FrameKind::Error), Some(corr)) => {
                self.stats.dropped.count(Dropped::Discovery);
                let text = format!("the answer is malformed: {}", fault.error);
                if !self.fail_discovery(id, &corr, ErrorCode::MALFORMED_PAYLOAD, Some(text)) {
                    self.learn(id, |learned| {
                        if learned.is_subscription(&corr) {
                            learned.missed();
                        }
                    });
                }
            }
            _ => self.stats.dropped.count(Dropped::Discovery),
        }
    }

    /// The peer asks, or ends what it asked for.
    fn discovery_asked(&mut self, id: AssociationId, frame: Frame, now: Instant) {
        let Some(association) = self.associations.get_mut(&id) else {
            return;
        };
        let Some(capabilities) = association.capabilities.as_mut() else {
            return;
        };
        let before = subscriptions(capabilities);
        let (event, answers) = match (frame, capabilities.offered.as_mut()) {
            (Frame::Unsubscribe { corr }, offered) => {
                let live = offered.is_some_and(|offered| offered.unsubscribe(&corr));
                if !live {
                    self.stats.discovery.count(DiscoveryEvent::Unmatched);
                }
                (DiscoveryEvent::UnsubscribeReceived, Vec::new())
            }
            (
                Frame::Query {
                    corr,
                    filter,
                    tolerant,
                    cursor,
                },
                Some(offered),
            ) => (
                DiscoveryEvent::QueryReceived,
                vec![offered.query(corr, &filter, tolerant, cursor.as_deref(), now)],
            ),
            (Frame::Subscribe { corr, filter }, Some(offered)) => (
                DiscoveryEvent::SubscribeReceived,
                offered.subscribe(corr, filter, now),
            ),
            (frame, None) => {
                let event = match frame {
                    Frame::Subscribe { .. } => DiscoveryEvent::SubscribeReceived,
                    _ => DiscoveryEvent::QueryReceived,
                };
                let refusal = frame.corr().map(|corr| Frame::Error {
                    corr: corr.clone(),
                    code: ErrorCode::NOT_ADVERTISED,
                    reason: Some("nothing is offered to whom this side has dialled".to_owned()),
                });
                (event, refusal.into_iter().collect())
            }
            (_, Some(_)) => return,
        };
        let after = subscriptions(capabilities);
        self.stats
            .discovery_subscriptions
            .add(after.saturating_sub(before));
        self.stats
            .discovery_subscriptions
            .sub(before.saturating_sub(after));
        self.stats.discovery.count(event);
        for frame in answers {
            self.answer_discovery(id, &frame);
        }
    }

    /// The peer answers or tells.
    fn discovery_heard(&mut self, id: AssociationId, frame: Frame) {
        match frame {
            Frame::Announce { records } => {
                self.stats.discovery.count(DiscoveryEvent::AnnounceReceived);
                self.take_records(id, records);
            }
            Frame::Update {
                corr,
                added,
                withdrawn,
            } => {
                self.stats.discovery.count(DiscoveryEvent::UpdateReceived);
                if !self.is_subscription(id, &corr) {
                    return self.stats.discovery.count(DiscoveryEvent::Unmatched);
                }
                self.take_records(id, added);
                let mut gone = 0;
                self.learn(id, |learned| {
                    gone = withdrawn.iter().filter(|id| learned.withdraw(id)).count() as u64;
                });
                self.stats
                    .discovery
                    .add(DiscoveryEvent::RecordWithdrawn, gone);
                self.stats.discovery_records.sub(gone);
            }
            Frame::Result {
                corr,
                records,
                complete,
                cursor,
            } => {
                self.stats.discovery.count(DiscoveryEvent::ResultReceived);
                if self.is_subscription(id, &corr) {
                    self.take_records(id, records);
                    if complete {
                        let mut first = false;
                        self.learn(id, |learned| first = learned.completed());
                        if first {
                            self.tell_learned(id);
                        }
                    }
                } else {
                    self.take_page(id, &corr, records, cursor);
                }
            }
            Frame::Error { corr, code, reason } => {
                self.stats.discovery_errors_received.count(code.reason());
                if self.is_subscription(id, &corr) {
                    self.learn(id, Learned::refused);
                    tracing::debug!(association = id.0, %code, "the peer declines a subscription");
                } else if !self.fail_discovery(id, &corr, code, reason) {
                    self.stats.discovery.count(DiscoveryEvent::Unmatched);
                }
            }
            Frame::Query { .. } | Frame::Subscribe { .. } | Frame::Unsubscribe { .. } => {}
        }
    }

    /// Records that came by result, announcement or update. Only who dialled makes
    /// anything of them, so only there are they held.
    fn take_records(&mut self, id: AssociationId, records: Vec<Record>) {
        let stats = self.stats.clone();
        let Some(association) = self.associations.get_mut(&id) else {
            return;
        };
        if association.info.side != Side::Initiator {
            return;
        }
        let Some(capabilities) = association.capabilities.as_mut() else {
            return;
        };
        let learned = &mut capabilities.learned;
        let before = learned.len() as u64;
        for record in records {
            let taken = learned.take(record);
            stats.discovery.count(match taken {
                Taken::New => DiscoveryEvent::RecordTaken,
                Taken::Stale => DiscoveryEvent::RecordStale,
                Taken::Unknown => DiscoveryEvent::RecordUnknownKind,
                Taken::Full => DiscoveryEvent::RecordOverBound,
            });
            if matches!(taken, Taken::Unknown | Taken::Full) {
                learned.missed();
            }
        }
        stats.discovery_records.add(learned.len() as u64 - before);
    }

    /// A page of a query of ours.
    fn take_page(
        &mut self,
        id: AssociationId,
        corr: &CorrelationId,
        records: Vec<Record>,
        cursor: Option<Vec<u8>>,
    ) {
        let Some(queries) = self.queries(id) else {
            return;
        };
        let (call, event) = match queries.page(corr, records, cursor) {
            Progress::Unmatched => return self.stats.discovery.count(DiscoveryEvent::Unmatched),
            Progress::More(frame) => {
                self.stats.discovery.count(DiscoveryEvent::QuerySent);
                return self.send_discovery(id, &frame);
            }
            Progress::Done(call, records) => (call, CallEvent::Records(records)),
            Progress::UnknownKind(call) => (
                call,
                CallEvent::DiscoveryError {
                    code: ErrorCode::UNKNOWN_RECORD_KIND,
                    reason: "the peer sent a record of a kind that is not known here".to_owned(),
                },
            ),
            Progress::TooMuch(call) => (
                call,
                transport_error(TransportCode::NOT_DELIVERED, "the result is too large"),
            ),
        };
        self.discoveries.remove(&call);
        self.outputs.push_back(Output::Call { call, event });
    }

    /// A caller wants the peer's records.
    pub(super) fn call_discover(
        &mut self,
        id: AssociationId,
        call: CallId,
        filter: Filter,
        tolerant: bool,
        random: &mut dyn Random,
    ) -> Result<(), Refusal> {
        let association = self
            .associations
            .get_mut(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        let queries = &mut association
            .capabilities
            .as_mut()
            .ok_or(Refusal::NoDiscovery)?
            .queries;
        let corr = fresh(random);
        if queries.is_full(&corr) {
            return Err(Refusal::ExchangesFull);
        }
        let frame = queries.open(corr.clone(), filter, tolerant, call);
        self.discoveries.insert(call, (id, corr));
        self.stats.discovery.count(DiscoveryEvent::QuerySent);
        self.send_discovery(id, &frame);
        Ok(())
    }

    /// Nobody waits for the call any more. False when it is no query.
    pub(super) fn discover_gone(&mut self, call: CallId) -> bool {
        let Some((id, corr)) = self.discoveries.remove(&call) else {
            return false;
        };
        if let Some(queries) = self.queries(id) {
            queries.close(&corr);
        }
        true
    }

    /// Notes whether the agent of an exchange can be reached.
    pub(super) fn reach(&mut self, name: ExchangeId, event: &AgentEvent, now: Instant) {
        let reached = match event {
            AgentEvent::Unreachable { .. } => false,
            AgentEvent::Body { .. } | AgentEvent::StreamOpen => true,
            _ => return,
        };
        if reached && self.unreachable.is_empty() {
            return;
        }
        let target = self
            .exchanges
            .get(&name)
            .and_then(|exchange| self.associations.get(&exchange.association?))
            .and_then(|association| association.target);
        let Some(Target::Agent(agent)) = target else {
            return;
        };
        let back = self.returned.get(&agent);
        if !reached && back.is_some_and(|&at| now < at + DISCOVERY_REACH_TIME) {
            // One that takes some connections and not others would have every peer told
            // with each of them.
            return;
        }
        if !self.set_reach(agent, reached, now) {
            return;
        }
        self.stats.discovery.count(if reached {
            DiscoveryEvent::AgentReturned
        } else {
            DiscoveryEvent::AgentWithdrawn
        });
        // Every mapper has associations that lead to the same agents.
        for mapper in self.retained.other_mappers() {
            let message = StreamMessage::Reach { agent, reached };
            self.outputs.push_back(Output::Forward { mapper, message });
        }
    }

    /// Notes it, and tells subscribers. False when it was known.
    pub(super) fn set_reach(&mut self, agent: usize, reached: bool, now: Instant) -> bool {
        let changed = if reached {
            self.unreachable.remove(&agent)
        } else {
            self.unreachable.insert(agent)
        };
        if changed {
            if reached {
                self.returned.insert(agent, now);
            }
            self.readvertise(agent, reached);
        }
        changed
    }

    /// The agent's record goes or returns on each of its associations (NPAMP-DISC §7.2, §8).
    fn readvertise(&mut self, agent: usize, reached: bool) {
        let concerned: Vec<AssociationId> = self
            .associations
            .iter()
            .filter(|(_, association)| association.target == Some(Target::Agent(agent)))
            .map(|(&id, _)| id)
            .collect();
        for id in concerned {
            let Some(association) = self.associations.get(&id) else {
                continue;
            };
            let record = if reached {
                self.agent_record(association)
            } else {
                None
            };
            let offered = self
                .associations
                .get_mut(&id)
                .and_then(|association| association.capabilities.as_mut())
                .and_then(|capabilities| capabilities.offered.as_mut());
            let Some(offered) = offered else { continue };
            let updates = match record {
                Some((record_id, label, body)) => offered.put(record_id, label, body),
                None => RecordId::new(AGENT_RECORD)
                    .map_or_else(Vec::new, |record_id| offered.withdraw(&record_id)),
            };
            for frame in updates {
                self.stats.discovery.count(DiscoveryEvent::UpdateSent);
                self.send_discovery(id, &frame);
            }
        }
    }

    /// Everything to advertise on an association: nothing where nothing can be carried.
    fn records_of(&self, association: &Association) -> Vec<(RecordId, Option<String>, Body)> {
        let info = &association.info;
        if association.target.is_none() || !info.carries_a2a || association.allow == EffectSet::NONE
        {
            return Vec::new();
        }
        let documents = info.document_binding.is_some();
        let json = || Some(vec![u64::from(ContentType::JSON.0)]);
        let mut channels = vec![u64::from(ChannelId::BRIDGE.0)];
        if documents {
            channels.push(u64::from(ChannelId::DISCOVERY.0));
        }
        let protocol = Body::Protocol(ProtocolRecord {
            protocol_id: ProtocolId::A2A,
            carriage_class: CarriageClass::JSONRPC,
            channels: Some(channels),
            content_types: json(),
            methods: self.methods_of(association, documents),
        });
        let mut records = vec![(PROTOCOL_RECORD.to_vec(), Some("A2A".to_owned()), protocol)];
        let classes = [
            Some(CarriageClass::JSONRPC),
            Some(CarriageClass::STREAM),
            documents.then_some(CarriageClass::DOC),
        ];
        for carriage_class in classes.into_iter().flatten() {
            let body = Body::CarriageClass(CarriageClassRecord {
                carriage_class,
                content_types: json(),
            });
            let label = format!("{}, for A2A", carriage_class.name());
            let record_id = format!("class-{}", carriage_class.0).into_bytes();
            records.push((record_id, Some(label), body));
        }
        records
            .into_iter()
            .filter_map(|(record_id, label, body)| Some((RecordId::new(&record_id)?, label, body)))
            .chain(self.agent_record(association))
            .collect()
    }

    /// The agent of the association's server name, unless it cannot be reached. One behind an
    /// upstream is fronted under the name of its route.
    fn agent_record(&self, association: &Association) -> Option<(RecordId, Option<String>, Body)> {
        let carried = association.info.carries_a2a && association.allow != EffectSet::NONE;
        let target = association.target.filter(|_| carried)?;
        if let Target::Agent(agent) = target
            && self.unreachable.contains(&agent)
        {
            return None;
        }
        let name = self.directory.name_for(&association.info.server_name)?;
        let agent_id = cut(&name, DISCOVERY_AGENT_ID_OCTETS_MAX);
        if agent_id.is_empty() {
            return None;
        }
        let body = Body::Agent(AgentRecord {
            agent_id: agent_id.as_bytes().into(),
            protocols: vec![u64::from(ProtocolId::A2A.0)],
            tools: None,
        });
        Some((RecordId::new(AGENT_RECORD)?, None, body))
    }

    /// The methods that policy leaves the peer, where it takes any away; else none are
    /// enumerated, and the peer learns them from the agent (NPAMP-DISC §5.1).
    fn methods_of(&self, association: &Association, documents: bool) -> Option<Vec<String>> {
        let allow = association.allow;
        if allow == EffectSet::ALL && self.config.unknown_methods == UnknownMethods::Carry {
            return None;
        }
        let listed = method::METHODS
            .iter()
            .filter(|row| allow.contains(row.effect))
            .map(|row| row.name);
        let card = (documents && allow.contains(Effect::READ_ONLY)).then_some(CARD_METHOD);
        Some(listed.chain(card).map(str::to_owned).collect())
    }

    /// Says once what the peer carries.
    fn tell_learned(&self, id: AssociationId) {
        let learned = self
            .associations
            .get(&id)
            .and_then(|association| association.capabilities.as_ref())
            .map(|capabilities| &capabilities.learned);
        let Some(learned) = learned else { return };
        tracing::info!(
            association = id.0,
            records = learned.len(),
            complete = learned.snapshot() == Snapshot::Complete,
            carries = %summary(learned),
            "the peer's capabilities"
        );
    }

    /// Ends a query of ours with an error. False when there is none with this `corr`.
    fn fail_discovery(
        &mut self,
        id: AssociationId,
        corr: &CorrelationId,
        code: ErrorCode,
        reason: Option<String>,
    ) -> bool {
        let Some(call) = self.queries(id).and_then(|queries| queries.close(corr)) else {
            return false;
        };
        self.discoveries.remove(&call);
        let reason = reason.unwrap_or_default();
        self.outputs.push_back(Output::Call {
            call,
            event: CallEvent::DiscoveryError { code, reason },
        });
        true
    }

    fn is_subscription(&self, id: AssociationId, corr: &CorrelationId) -> bool {
        self.associations
            .get(&id)
            .and_then(|association| association.capabilities.as_ref())
            .is_some_and(|capabilities| capabilities.learned.is_subscription(corr))
    }

    fn learn(&mut self, id: AssociationId, change: impl FnOnce(&mut Learned)) {
        let capabilities = self
            .associations
            .get_mut(&id)
            .and_then(|association| association.capabilities.as_mut());
        if let Some(capabilities) = capabilities {
            change(&mut capabilities.learned);
        }
    }

    fn queries(&mut self, id: AssociationId) -> Option<&mut Queries<CallId>> {
        let association = self.associations.get_mut(&id)?;
        Some(&mut association.capabilities.as_mut()?.queries)
    }

    /// Sends what answers a peer's request, counted by what it is.
    fn answer_discovery(&mut self, id: AssociationId, frame: &Frame) {
        match frame {
            Frame::Error { code, .. } => self.stats.discovery_errors_sent.count(code.reason()),
            _ => self.stats.discovery.count(DiscoveryEvent::ResultSent),
        }
        self.send_discovery(id, frame);
    }

    fn send_discovery(&mut self, association: AssociationId, frame: &Frame) {
        self.outputs.push_back(Output::Frame {
            association,
            channel: ChannelId::DISCOVERY.0,
            frame_type: frame.kind().frame_type(),
            payload: frame.encode(),
        });
    }
}

impl Association {
    /// What the peer's own records rule out. Only a whole set does, and an agent's
    /// absence never does: it may be back by now.
    pub(super) fn admits(&self, card: bool) -> Result<(), Refusal> {
        let Some(capabilities) = &self.capabilities else {
            return Ok(());
        };
        if capabilities.learned.lacks_protocol(ProtocolId::A2A) {
            return Err(Refusal::ProtocolNotAdvertised);
        }
        if card && capabilities.learned.lacks_class(CarriageClass::DOC) {
            return Err(Refusal::DocumentsNotAdvertised);
        }
        Ok(())
    }
}

fn subscriptions(capabilities: &Capabilities) -> u64 {
    capabilities
        .offered
        .as_ref()
        .map_or(0, |offered| offered.subscriptions() as u64)
}

/// A `corr` that is unique for all purposes (NPAMP-DISC §4.2).
fn fresh(random: &mut dyn Random) -> CorrelationId {
    let mut octets = [0; CORRELATION_RANDOM_OCTETS];
    random.fill(&mut octets);
    CorrelationId::derive(octets, b"")
}

/// Protocols, carriage classes and agents, for the log; a peer's text is escaped.
fn summary(learned: &Learned) -> String {
    let words = learned.records().map(|record| match &record.body {
        Body::Protocol(protocol) => format!("protocol {:#04x}", protocol.protocol_id.0),
        Body::CarriageClass(class) => format!("class {}", class.carriage_class.name()),
        Body::Tool(tool) => format!("tool {}", tool.name.escape_debug()),
        Body::Agent(agent) => format!("agent {}", agent.agent_id.escape_ascii()),
        Body::Unknown { kind, .. } => format!("kind {}", kind.0),
    });
    words.take(16).collect::<Vec<_>>().join(", ")
}
