//! An ingress, a transit and an egress. The transit's two associations are joined as a
//! unit joins them: its exchanges become calls, and what these hear goes back to them.

use crate::harness::*;
use bytes::Bytes;
use npamp_relay::a2a::budget::OctetBudget;
use npamp_relay::a2a::port::{
    AgentDirectory, AgentEvent, AssociationId, AssociationInfo, CallEvent, CallId, Dispatch,
    DownReason, ExchangeId, Input, Output, Side, Target, Transit, TransportError, UpstreamEvent,
};
use npamp_relay::a2a::stats::MapperStats;
use npamp_relay::a2a::streams::{MapperId, StreamRegistry};
use npamp_relay::a2a::{Mapper, MapperConfig};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::crypto::{Random, SeededRandom};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const ROUTE: usize = 3;
/// The transit's association to the egress, at first.
pub const UPSTREAM: AssociationId = AssociationId(7001);

struct Routes;

impl AgentDirectory for Routes {
    fn agent_for(&self, _: &str) -> Option<usize> {
        None
    }

    fn target_for(&self, _: &str) -> Option<Target> {
        Some(Target::Route(ROUTE))
    }
}

pub struct Middle {
    pub mapper: Mapper,
    pub stats: Arc<MapperStats>,
    pub budget: Arc<OctetBudget>,
    pub inbound: AssociationId,
    pub upstream: AssociationId,
    pub to_ingress: Vec<Frame>,
    pub to_egress: Vec<Frame>,
    /// Every exchange that was given out.
    pub transits: Vec<(ExchangeId, Transit)>,
    passing: HashMap<CallId, ExchangeId>,
    /// Events of calls that are no exchange's.
    pub calls: Vec<(CallId, CallEvent)>,
    pub wanted: Vec<AssociationId>,
    rooms: Vec<(AssociationId, MapperId)>,
    pub roomy: bool,
    /// There is no way on: what passes fails at once.
    pub fail_calls: bool,
    next_call: u64,
    random: SeededRandom,
    pub now: Instant,
}

impl Middle {
    pub fn new(config: MapperConfig) -> Self {
        Self::with(config, info(Side::Responder), info(Side::Initiator))
    }

    pub fn with(config: MapperConfig, inbound: AssociationInfo, upstream: AssociationInfo) -> Self {
        Self::keeping(config, inbound, upstream, Arc::default())
    }

    /// One whose streams may hold what the registry says.
    pub fn keeping(
        config: MapperConfig,
        inbound: AssociationInfo,
        upstream: AssociationInfo,
        registry: Arc<StreamRegistry>,
    ) -> Self {
        let budget = Arc::new(OctetBudget::default());
        let mapper =
            Mapper::new(config, Box::new(Routes), Arc::clone(&budget)).among(registry, MapperId(0));
        let mut middle = Self {
            stats: mapper.stats(),
            mapper,
            budget,
            inbound: ASSOCIATION,
            upstream: UPSTREAM,
            to_ingress: Vec::new(),
            to_egress: Vec::new(),
            transits: Vec::new(),
            passing: HashMap::new(),
            calls: Vec::new(),
            wanted: Vec::new(),
            rooms: Vec::new(),
            roomy: true,
            fail_calls: false,
            next_call: 0,
            random: SeededRandom::new(3),
            now: Instant::now(),
        };
        for (association, info) in [(ASSOCIATION, inbound), (UPSTREAM, upstream)] {
            middle.input(Input::Up {
                association,
                info,
                replaces: None,
            });
        }
        middle
    }

    pub fn input(&mut self, input: Input) {
        self.handle(input);
        while let Some(output) = self.mapper.poll_output() {
            self.output(output);
        }
    }

    fn handle(&mut self, input: Input) {
        let random: &mut dyn Random = &mut self.random;
        self.mapper.handle(input, self.now, random);
    }

    pub fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.mapper.handle_timeout(self.now);
        while let Some(output) = self.mapper.poll_output() {
            self.output(output);
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Frame {
                association,
                channel,
                frame_type,
                payload,
            } => {
                let frame = Frame {
                    channel,
                    kind: frame_type,
                    octets: payload.into(),
                };
                if association == self.inbound {
                    self.to_ingress.push(frame);
                } else {
                    assert_eq!(association, self.upstream);
                    self.to_egress.push(frame);
                }
            }
            Output::Transit { exchange, transit } => {
                self.transits.push((exchange, (*transit).clone()));
                if self.fail_calls {
                    let error = TransportError {
                        code: 4,
                        message: "no way on".to_owned(),
                        timed_out: false,
                    };
                    let event = UpstreamEvent::Call(CallEvent::TransportError(error));
                    return self.answer(exchange, event);
                }
                self.next_call += 1;
                let call = CallId(self.next_call);
                self.passing.insert(call, exchange);
                self.handle(Input::Call {
                    association: self.upstream,
                    call,
                    request: transit.request,
                });
            }
            Output::Call { call, event } if self.passing.contains_key(&call) => {
                self.tell(call, UpstreamEvent::Call(event));
            }
            Output::Call { call, event } => self.calls.push((call, event)),
            Output::Events { call, events } => {
                for (event_id, object) in events.into_shared() {
                    let event = CallEvent::StreamEvent { event_id, object };
                    self.output(Output::Call { call, event });
                }
            }
            Output::Upstream { call, event } => self.tell(call, event),
            Output::Cancel { exchange } => {
                let calls = self.passing.iter();
                let call = calls.filter(|(_, passing)| **passing == exchange).last();
                let call = *call.expect("a call that is under way").0;
                self.passing.remove(&call);
                self.handle(Input::CallGone { call });
            }
            Output::WantRoom { association, .. } if self.roomy => {
                self.handle(Input::Room { association });
            }
            Output::WantRoom {
                association,
                mapper,
            } => self.rooms.push((association, mapper)),
            Output::WantAssociation { association } => self.wanted.push(association),
            // Its peers resume streams at the transit, not at its upstream.
            Output::Resumable { .. } => {}
            Output::ChannelError { message, .. } => panic!("{message}"),
            other => panic!("not of a transit: {other:?}"),
        }
    }

    fn tell(&mut self, call: CallId, event: UpstreamEvent) {
        let exchange = self.passing[&call];
        if event.is_last() {
            self.passing.remove(&call);
        }
        self.answer(exchange, event);
    }

    fn answer(&mut self, exchange: ExchangeId, event: UpstreamEvent) {
        self.handle(Input::Agent {
            exchange,
            event: AgentEvent::Upstream(event),
        });
    }

    pub fn only_exchange(&self) -> ExchangeId {
        assert_eq!(self.passing.len(), 1);
        *self.passing.values().next().unwrap()
    }

    /// Gives the room that was asked for, once.
    pub fn make_room(&mut self) {
        for (association, _) in std::mem::take(&mut self.rooms) {
            self.input(Input::Room { association });
        }
    }

    pub fn down(&mut self, association: AssociationId) {
        self.input(Input::Down {
            association,
            reason: DownReason("link reset".into()),
        });
        self.rooms.retain(|(waiting, _)| *waiting != association);
    }

    fn frame(&mut self, association: AssociationId, channel: u16, kind: u16, octets: &[u8]) {
        self.input(Input::Frame {
            association,
            channel,
            frame_type: kind,
            payload: Bytes::copy_from_slice(octets),
        });
    }

    pub fn inbound_frame(&mut self, frame: &Frame) {
        self.frame(self.inbound, frame.channel, frame.kind, &frame.octets);
    }

    pub fn upstream_frame(&mut self, frame: &Frame) {
        self.frame(self.upstream, frame.channel, frame.kind, &frame.octets);
    }

    /// A hand-made frame of the peer.
    pub fn inbound_payload(&mut self, payload: &Payload<'_>) {
        let kind = payload.envelope.kind.frame_type();
        let octets = payload::encode_with(kind, payload, Some(DOCBIND)).unwrap();
        self.frame(self.inbound, BRIDGE, kind, &octets);
    }

    /// A hand-made frame of the upstream.
    pub fn upstream_payload(&mut self, payload: &Payload<'_>) {
        let kind = payload.envelope.kind.frame_type();
        let octets = payload::encode_with(kind, payload, Some(DOCBIND)).unwrap();
        self.frame(self.upstream, BRIDGE, kind, &octets);
    }

    /// A peer's request with id 1; gives the correlation_id that it has upstream.
    pub fn stream_request(&mut self, method: &str) -> Vec<u8> {
        let object = request_json("1", method);
        self.inbound_payload(&a2a(MessageKind::Request, b"c", method, &object));
        assert_eq!(self.to_egress.len(), 1, "{:?}", self.to_ingress);
        self.to_egress.remove(0).correlation_id()
    }

    /// The one frame for the peer since the last look.
    pub fn one_back(&mut self) -> Frame {
        assert_eq!(self.to_ingress.len(), 1, "{:?}", self.to_ingress);
        self.to_ingress.remove(0)
    }

    pub fn assert_idle(&self) {
        assert_eq!(self.mapper.outstanding(), 0);
        assert!(self.passing.is_empty());
        assert_eq!(self.budget.held(), 0);
        assert_eq!(self.stats.octets.get(), 0);
        assert_eq!(self.stats.transits.get(), 0);
        assert_eq!(self.stats.requester.outstanding.get(), 0);
        assert_eq!(self.stats.responder.outstanding.get(), 0);
    }
}

pub struct Chain {
    pub ingress: End,
    pub middle: Middle,
    pub egress: End,
    /// Frames between ingress and transit, with whether they went towards the egress.
    pub first: Vec<(bool, Frame)>,
    /// Frames between transit and egress.
    pub second: Vec<(bool, Frame)>,
}

impl Chain {
    pub fn new() -> Self {
        Self::of(Middle::new(MapperConfig::default()))
    }

    pub fn of(middle: Middle) -> Self {
        Self {
            ingress: End::ingress(),
            middle,
            egress: End::egress(),
            first: Vec::new(),
            second: Vec::new(),
        }
    }

    /// Passes frames until none is left.
    pub fn pass(&mut self) {
        loop {
            let mut any = false;
            for frame in std::mem::take(&mut self.ingress.frames) {
                any = true;
                self.middle.inbound_frame(&frame);
                self.first.push((true, frame));
            }
            for frame in std::mem::take(&mut self.middle.to_egress) {
                any = true;
                self.egress.frame(frame.channel, frame.kind, &frame.octets);
                self.second.push((true, frame));
            }
            for frame in std::mem::take(&mut self.egress.frames) {
                any = true;
                self.middle.upstream_frame(&frame);
                self.second.push((false, frame));
            }
            for frame in std::mem::take(&mut self.middle.to_ingress) {
                any = true;
                self.ingress.frame(frame.channel, frame.kind, &frame.octets);
                self.first.push((false, frame));
            }
            if !any {
                return;
            }
        }
    }

    /// Sends a Request and gives the dispatch at the far end.
    pub fn ask(&mut self, call: u64, object: &str) -> (ExchangeId, Dispatch) {
        self.ingress.call(call, object);
        self.pass();
        self.egress.one_dispatch()
    }

    pub fn agent(&mut self, exchange: ExchangeId, event: AgentEvent) {
        self.egress.agent(exchange, event);
        self.pass();
    }

    /// The hop to the ingress is gone, with what was on its way.
    pub fn cut_first(&mut self) {
        self.ingress.frames.clear();
        self.ingress.down();
        self.ingress.frames.clear();
        self.middle.to_ingress.clear();
        let inbound = self.middle.inbound;
        self.middle.down(inbound);
    }

    /// The hop to the egress is gone, with what was on its way.
    pub fn cut_second(&mut self) {
        self.egress.frames.clear();
        self.egress.down();
        self.egress.frames.clear();
        self.middle.to_egress.clear();
        let upstream = self.middle.upstream;
        self.middle.down(upstream);
    }

    /// The hop to the ingress is back.
    pub fn join_first(&mut self, id: u64) {
        let association = AssociationId(id);
        self.middle.inbound = association;
        self.middle.input(Input::Up {
            association,
            info: info(Side::Responder),
            replaces: None,
        });
        self.ingress.up(id, info(Side::Initiator));
    }

    /// The hop to the egress is back.
    pub fn join_second(&mut self, id: u64) {
        self.egress.up(id, info(Side::Responder));
        let association = AssociationId(7000 + id);
        let lost = std::mem::replace(&mut self.middle.upstream, association);
        self.middle.input(Input::Up {
            association,
            info: info(Side::Initiator),
            replaces: Some(lost),
        });
    }

    pub fn assert_idle(&self) {
        self.ingress.assert_idle();
        self.middle.assert_idle();
        self.egress.assert_idle();
    }
}
