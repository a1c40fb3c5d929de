//! Two mappers joined back to back: frames are passed as values, the agent is a script.

use bytes::Bytes;
use npamp_relay::a2a::budget::OctetBudget;
use npamp_relay::a2a::port::{
    AgentDirectory, AgentEvent, AssociationId, AssociationInfo, CallEvent, CallId, CallRequest,
    Dispatch, DispatchAction, DownReason, ExchangeId, Input, Output, ResumeTicket,
    ServiceParameters, Side, StreamMessage,
};
use npamp_relay::a2a::stats::MapperStats;
use npamp_relay::a2a::streams::MapperId;
use npamp_relay::a2a::{Mapper, MapperConfig};
use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::transport_error::{TransportCode, TransportErrorBody};
use npamp_relay::crypto::{Random, SeededRandom};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const BRIDGE: u16 = 0x000d;
pub const DISCOVERY: u16 = 0x0010;
pub const REQUEST: u16 = 0x0100;
pub const RESPONSE: u16 = 0x0101;
pub const ERROR: u16 = 0x0102;
pub const NOTIFY: u16 = 0x0103;
pub const DATA: u16 = 0x0104;
pub const END: u16 = 0x0105;
pub const DOCBIND: u16 = 0x00f0;
pub const ASSOCIATION: AssociationId = AssociationId(7);

pub fn info(side: Side) -> AssociationInfo {
    AssociationInfo {
        side,
        server_name: "literature.relay.example".into(),
        peer: "ed25519:peer".into(),
        document_binding: Some(DOCBIND),
        carries_a2a: true,
        discovery: false,
        hello: true,
        parameters: ServiceParameters::default(),
    }
}

pub struct Agents;

impl AgentDirectory for Agents {
    fn agent_for(&self, server_name: &str) -> Option<usize> {
        server_name.starts_with("literature").then_some(0)
    }
}

/// A frame as it was passed.
#[derive(Debug, Clone)]
pub struct Frame {
    pub channel: u16,
    /// Frame type.
    pub kind: u16,
    pub octets: Bytes,
}

impl Frame {
    pub fn decode(&self) -> Payload<'_> {
        payload::decode_with(self.kind, &self.octets, Some(DOCBIND)).unwrap()
    }

    pub fn correlation_id(&self) -> Vec<u8> {
        self.decode().envelope.correlation_id.to_vec()
    }

    /// The transport error of a BRIDGE_ERROR.
    pub fn transport_error(&self) -> (TransportCode, String) {
        assert_eq!(self.kind, ERROR);
        let decoded = self.decode();
        let body = TransportErrorBody::decode(decoded.foreign).expect("a transport error");
        (body.code, body.message.to_owned())
    }
}

/// One mapper with what came out of it.
pub struct End {
    pub mapper: Mapper,
    pub stats: Arc<MapperStats>,
    pub budget: Arc<OctetBudget>,
    pub frames: Vec<Frame>,
    pub calls: Vec<(CallId, CallEvent)>,
    /// How many events came out together, each time that some did.
    pub gathered: Vec<(CallId, usize)>,
    /// Calls that may be asked again elsewhere.
    pub unanswered: Vec<(CallId, CallRequest, String)>,
    /// What resuming streams takes, as their callers are told.
    pub resumable: Vec<(CallId, Option<Box<ResumeTicket>>)>,
    pub dispatches: Vec<(ExchangeId, Dispatch)>,
    pub cancels: Vec<ExchangeId>,
    pub finishes: Vec<ExchangeId>,
    pub channel_errors: Vec<(u16, String)>,
    /// Lost associations that streams wait for.
    pub wanted: Vec<AssociationId>,
    /// Pauses and their ends.
    pub pauses: Vec<(ExchangeId, bool)>,
    /// Mappers that wait for room, unless they are given it at once.
    pub rooms: Vec<(AssociationId, MapperId)>,
    /// Associations always have room.
    pub roomy: bool,
    /// What is for other mappers.
    pub forwards: Vec<(MapperId, StreamMessage)>,
    /// The association that frames are sent on and expected on.
    pub association: AssociationId,
    random: SeededRandom,
    pub now: Instant,
}

impl End {
    pub fn with(config: MapperConfig, info: AssociationInfo) -> Self {
        let budget = Arc::new(OctetBudget::default());
        let mapper = Mapper::new(config, Box::new(Agents), Arc::clone(&budget));
        let mut end = Self::of(mapper, budget);
        end.input(Input::Up {
            association: ASSOCIATION,
            info,
            replaces: None,
        });
        end
    }

    /// One of several mappers, without an association.
    pub fn of(mapper: Mapper, budget: Arc<OctetBudget>) -> Self {
        Self {
            stats: mapper.stats(),
            mapper,
            budget,
            frames: Vec::new(),
            calls: Vec::new(),
            gathered: Vec::new(),
            unanswered: Vec::new(),
            resumable: Vec::new(),
            dispatches: Vec::new(),
            cancels: Vec::new(),
            finishes: Vec::new(),
            channel_errors: Vec::new(),
            wanted: Vec::new(),
            pauses: Vec::new(),
            rooms: Vec::new(),
            roomy: true,
            forwards: Vec::new(),
            association: ASSOCIATION,
            random: SeededRandom::new(1),
            now: Instant::now(),
        }
    }

    pub fn ingress() -> Self {
        Self::with(MapperConfig::default(), info(Side::Initiator))
    }

    pub fn egress() -> Self {
        Self::with(MapperConfig::default(), info(Side::Responder))
    }

    pub fn input(&mut self, input: Input) {
        let random: &mut dyn Random = &mut self.random;
        self.mapper.handle(input, self.now, random);
        self.drain();
    }

    /// Lets time pass.
    pub fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.mapper.handle_timeout(self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.mapper.poll_output() {
            match output {
                Output::Frame {
                    association,
                    channel,
                    frame_type,
                    payload,
                } => {
                    assert_eq!(association, self.association);
                    self.frames.push(Frame {
                        channel,
                        kind: frame_type,
                        octets: payload.into(),
                    });
                }
                Output::Call { call, event } => self.calls.push((call, event)),
                Output::Events { call, events } => {
                    self.gathered.push((call, events.len()));
                    let events = events
                        .into_shared()
                        .map(|(event_id, object)| CallEvent::StreamEvent { event_id, object });
                    self.calls.extend(events.map(|event| (call, event)));
                }
                Output::Unanswered {
                    call,
                    request,
                    message,
                } => self.unanswered.push((call, request, message)),
                Output::Dispatch { exchange, dispatch } => {
                    self.dispatches.push((exchange, dispatch));
                }
                Output::Transit { .. } | Output::Upstream { .. } => {
                    panic!("neither end is a transit")
                }
                Output::Resumable { call, ticket } => self.resumable.push((call, ticket)),
                Output::Cancel { exchange } => self.cancels.push(exchange),
                Output::Finish { exchange } => self.finishes.push(exchange),
                Output::Pause { exchange, paused } => self.pauses.push((exchange, paused)),
                Output::WantRoom {
                    association,
                    mapper: _,
                } if self.roomy => {
                    let random: &mut dyn Random = &mut self.random;
                    self.mapper
                        .handle(Input::Room { association }, self.now, random);
                }
                Output::WantRoom {
                    association,
                    mapper,
                } => self.rooms.push((association, mapper)),
                Output::WantAssociation { association } => self.wanted.push(association),
                Output::Forward { mapper, message } => self.forwards.push((mapper, message)),
                Output::ChannelError {
                    channel, message, ..
                } => self.channel_errors.push((channel, message)),
            }
        }
    }

    pub fn frame(&mut self, channel: u16, frame_type: u16, octets: &[u8]) {
        self.input(Input::Frame {
            association: self.association,
            channel,
            frame_type,
            payload: Bytes::copy_from_slice(octets),
        });
    }

    /// Takes frames in before anything that comes of them is taken out.
    pub fn together(&mut self, frames: &[Frame]) {
        for frame in frames {
            let (association, now) = (self.association, self.now);
            self.mapper
                .handle_frame(association, frame.channel, frame.kind, &frame.octets, now);
        }
        self.drain();
    }

    /// Encodes and takes in a frame on the Bridge channel.
    pub fn payload(&mut self, payload: &Payload<'_>) {
        let frame_type = payload.envelope.kind.frame_type();
        let octets = payload::encode_with(frame_type, payload, Some(DOCBIND)).unwrap();
        self.frame(BRIDGE, frame_type, &octets);
    }

    pub fn call(&mut self, call: u64, object: &str) {
        self.input(Input::Call {
            association: self.association,
            call: CallId(call),
            request: CallRequest::Request {
                object: Bytes::copy_from_slice(object.as_bytes()),
            },
        });
    }

    pub fn notify(&mut self, call: u64, object: &str) {
        self.input(Input::Call {
            association: self.association,
            call: CallId(call),
            request: CallRequest::Notification {
                object: Bytes::copy_from_slice(object.as_bytes()),
            },
        });
    }

    pub fn card(&mut self, call: u64) {
        self.input(Input::Call {
            association: self.association,
            call: CallId(call),
            request: CallRequest::Card,
        });
    }

    pub fn gone(&mut self, call: u64) {
        self.input(Input::CallGone { call: CallId(call) });
    }

    pub fn down(&mut self) {
        self.input(Input::Down {
            association: self.association,
            reason: DownReason("link reset".into()),
        });
    }

    pub fn agent(&mut self, exchange: ExchangeId, event: AgentEvent) {
        self.input(Input::Agent { exchange, event });
    }

    /// A new association, in place of the last one.
    pub fn up(&mut self, id: u64, info: AssociationInfo) {
        let replaces = (info.side == Side::Initiator).then_some(self.association);
        self.association = AssociationId(id);
        self.input(Input::Up {
            association: self.association,
            info,
            replaces,
        });
    }

    /// The one frame that came out since the last look.
    pub fn one_frame(&mut self) -> Frame {
        assert_eq!(self.frames.len(), 1, "{:?}", self.frames);
        self.frames.remove(0)
    }

    pub fn no_frame(&mut self) {
        assert!(self.frames.is_empty(), "{:?}", self.frames);
    }

    /// The one call event that came out since the last look.
    pub fn one_event(&mut self) -> CallEvent {
        assert_eq!(self.calls.len(), 1, "{:?}", self.calls);
        self.calls.remove(0).1
    }

    pub fn one_dispatch(&mut self) -> (ExchangeId, Dispatch) {
        assert_eq!(self.dispatches.len(), 1, "{:?}", self.dispatches);
        self.dispatches.remove(0)
    }

    /// The code and text of the one transport error that came out.
    pub fn one_transport_error(&mut self) -> (TransportCode, String) {
        match self.one_event() {
            CallEvent::TransportError(error) => (TransportCode(error.code), error.message),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing is held and nothing is outstanding.
    pub fn assert_idle(&self) {
        assert_eq!(self.mapper.outstanding(), 0);
        assert_eq!(self.mapper.held_octets(ASSOCIATION), 0);
        assert_eq!(self.budget.held(), 0);
        assert_eq!(self.stats.octets.get(), 0);
        assert_eq!(self.stats.requester.outstanding.get(), 0);
        assert_eq!(self.stats.responder.outstanding.get(), 0);
    }
}

/// An ingress and an egress, joined.
pub struct Pair {
    pub ingress: End,
    pub egress: End,
    /// Every frame that was passed, in order, with whether it went to the egress.
    pub passed: Vec<(bool, Frame)>,
}

impl Pair {
    pub fn new() -> Self {
        Self {
            ingress: End::ingress(),
            egress: End::egress(),
            passed: Vec::new(),
        }
    }

    /// Both lose their association, with what was on its way.
    pub fn cut(&mut self) {
        self.ingress.down();
        self.egress.down();
        self.ingress.frames.clear();
        self.egress.frames.clear();
    }

    /// Both get another association.
    pub fn join(&mut self, id: u64) {
        self.egress.up(id, info(Side::Responder));
        self.ingress.up(id, info(Side::Initiator));
    }

    /// Passes frames until none is left.
    pub fn pass(&mut self) {
        loop {
            let out = std::mem::take(&mut self.ingress.frames);
            let back = std::mem::take(&mut self.egress.frames);
            if out.is_empty() && back.is_empty() {
                return;
            }
            for frame in out {
                self.egress.frame(frame.channel, frame.kind, &frame.octets);
                self.passed.push((true, frame));
            }
            for frame in back {
                self.ingress.frame(frame.channel, frame.kind, &frame.octets);
                self.passed.push((false, frame));
            }
        }
    }

    /// Sends a Request and gives the dispatch at the other end.
    pub fn ask(&mut self, call: u64, object: &str) -> (ExchangeId, Dispatch) {
        self.ingress.call(call, object);
        self.pass();
        self.egress.one_dispatch()
    }

    pub fn agent(&mut self, exchange: ExchangeId, event: AgentEvent) {
        self.egress.agent(exchange, event);
        self.pass();
    }

    /// The types of the frames that came back to the ingress.
    pub fn back(&self) -> Vec<u16> {
        self.passed
            .iter()
            .filter(|(to_egress, _)| !to_egress)
            .map(|(_, frame)| frame.kind)
            .collect()
    }
}

pub fn body(status: u16, body: &str) -> AgentEvent {
    AgentEvent::Body {
        status,
        content_type: "application/json".to_owned(),
        retry_after: None,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub fn event(data: &str) -> AgentEvent {
    AgentEvent::StreamEvent(Bytes::copy_from_slice(data.as_bytes()))
}

pub fn request_json(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

pub fn result_json(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub fn error_json(id: &str, code: i32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"m","data":[{{"@type":"t","x":1e400}}]}}}}"#
    )
}

/// An A2A payload with a JSON content type and nothing but its envelope.
pub fn a2a<'a>(
    kind: MessageKind,
    correlation_id: &'a [u8],
    method: &'a str,
    foreign: &'a str,
) -> Payload<'a> {
    Payload {
        envelope: Envelope {
            protocol_id: ProtocolId::A2A,
            kind,
            content_type: ContentType::JSON,
            flags: EnvelopeFlags(u8::from(kind == MessageKind::StreamEnd)),
            correlation_id,
            method,
        },
        safety: None,
        stream_control: None,
        document_binding: None,
        foreign: foreign.as_bytes(),
    }
}

pub fn object_of(dispatch: &Dispatch) -> &Bytes {
    match &dispatch.action {
        DispatchAction::Request { object } | DispatchAction::Notification { object } => object,
        DispatchAction::Card => panic!("a card dispatch has no object"),
    }
}
