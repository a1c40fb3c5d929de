//! A recorded exchange: one real mapper, everything beyond it a script of the
//! test's. Each frame that passes is written down, and each one that the mapper
//! emits must be, octet for octet, what the test built from the specification.

use crate::build::{Frame, Passed, differences_of, fields, show};
use crate::harness;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{
    AgentEvent, AssociationInfo, CallEvent, Dispatch, DispatchAction, ExchangeId, Side,
};
use npamp_relay::crypto::{Random, SeededRandom};
use std::fmt::Write as _;

/// Who sent a recorded frame.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Peer,
    Relay,
}

/// One relay with its script.
pub struct Exchange {
    pub end: harness::End,
    record: Vec<(Sender, Passed)>,
    /// Draws what the mapper will draw.
    random: SeededRandom,
}

impl Exchange {
    fn with(config: MapperConfig, info: AssociationInfo) -> Self {
        Self {
            end: harness::End::with(config, info),
            record: Vec::new(),
            random: SeededRandom::new(1),
        }
    }

    /// The relay is the requester; the script is its client and the responder.
    pub fn ingress() -> Self {
        Self::with(MapperConfig::default(), harness::info(Side::Initiator))
    }

    /// The relay is the responder; the script is the requester and the agent.
    pub fn egress() -> Self {
        Self::egress_with(MapperConfig::default())
    }

    pub fn egress_with(config: MapperConfig) -> Self {
        Self::with(config, harness::info(Side::Responder))
    }

    pub fn with_info(info: AssociationInfo) -> Self {
        Self::with(MapperConfig::default(), info)
    }

    /// The correlation_id of the relay's next request: 16 octets that it draws,
    /// then the id token (NPAMP-CC-JSONRPC §8, ruling R11).
    pub fn next_correlation(&mut self, id_token: &str) -> Vec<u8> {
        let mut octets = vec![0; 16];
        self.random.fill(&mut octets);
        octets.extend_from_slice(id_token.as_bytes());
        octets
    }

    /// The peer sends a frame.
    pub fn peer(&mut self, frame: &Frame) {
        self.peer_octets(frame.channel, frame.frame_type, frame.octets());
    }

    /// The peer sends a payload that is no well-formed frame.
    pub fn peer_octets(&mut self, channel: u16, frame_type: u16, octets: Vec<u8>) {
        self.end.frame(channel, frame_type, &octets);
        self.record.push((
            Sender::Peer,
            Passed {
                channel,
                frame_type,
                octets,
            },
        ));
    }

    /// What the relay has emitted since the last look is exactly this.
    #[track_caller]
    pub fn emits(&mut self, expected: &[Frame]) {
        let emitted: Vec<Passed> = std::mem::take(&mut self.end.frames)
            .into_iter()
            .map(|frame| Passed {
                channel: frame.channel,
                frame_type: frame.kind,
                octets: frame.octets.to_vec(),
            })
            .collect();
        let expected: Vec<Passed> = expected.iter().map(Passed::from).collect();
        for frame in &emitted {
            self.record.push((Sender::Relay, frame.clone()));
        }
        for (at, (frame, expected)) in emitted.iter().zip(&expected).enumerate() {
            assert!(
                frame == expected,
                "{}frame {} of {} that the relay emitted differs:\n{}",
                self.recording(),
                at + 1,
                emitted.len(),
                differences_of(frame, expected)
            );
        }
        assert!(
            emitted.len() == expected.len(),
            "{}the relay emitted {} frames, not {}",
            self.recording(),
            emitted.len(),
            expected.len()
        );
    }

    #[track_caller]
    pub fn emits_nothing(&mut self) {
        self.emits(&[]);
    }

    /// As [`Exchange::emits`] with one transport error, whose text is for people and is taken as it is.
    #[track_caller]
    pub fn emits_transport_error(&mut self, correlation_id: &[u8], code: u8) {
        self.emits_transport_error_like(code, |text| {
            Frame::transport_error(correlation_id, code, text)
        });
    }

    /// The same with other fields than the usual.
    #[track_caller]
    pub fn emits_transport_error_like(&mut self, code: u8, frame: impl FnOnce(&str) -> Frame) {
        let text = self
            .end
            .frames
            .first()
            .map(|frame| transport_text(&frame.octets, code));
        let Some(text) = text else {
            self.emits(&[frame("")]);
            return;
        };
        self.emits(&[frame(&text)]);
    }

    /// The agent is asked for exactly this object.
    #[track_caller]
    pub fn reaches_agent(&mut self, object: &str) -> ExchangeId {
        let (exchange, dispatch) = self.dispatch();
        let (DispatchAction::Request { object: seen }
        | DispatchAction::Notification { object: seen }) = &dispatch.action
        else {
            panic!("{}the agent is asked for its card", self.recording());
        };
        assert!(
            seen == object.as_bytes(),
            "{}the agent got other octets: {}",
            self.recording(),
            show(seen)
        );
        exchange
    }

    #[track_caller]
    pub fn dispatch(&mut self) -> (ExchangeId, Dispatch) {
        assert!(
            self.end.dispatches.len() == 1,
            "{}{} requests reached the agent",
            self.recording(),
            self.end.dispatches.len()
        );
        self.end.dispatches.remove(0)
    }

    #[track_caller]
    pub fn reaches_nobody(&mut self) {
        assert!(
            self.end.dispatches.is_empty(),
            "{}the agent was asked",
            self.recording()
        );
    }

    /// The agent answers with a JSON body.
    pub fn agent_body(&mut self, exchange: ExchangeId, body: &str) {
        self.agent(exchange, harness::body(200, body));
    }

    pub fn agent(&mut self, exchange: ExchangeId, event: AgentEvent) {
        self.end.agent(exchange, event);
    }

    /// The agent opens a stream and says these events.
    pub fn agent_streams(&mut self, exchange: ExchangeId, events: &[&str]) {
        self.agent(exchange, AgentEvent::StreamOpen);
        for event in events {
            self.agent(exchange, harness::event(event));
        }
    }

    /// What the client was told since the last look.
    pub fn told(&mut self) -> Vec<CallEvent> {
        let calls = std::mem::take(&mut self.end.calls);
        calls.into_iter().map(|(_, event)| event).collect()
    }

    /// The client is told exactly one thing.
    #[track_caller]
    pub fn told_one(&mut self) -> CallEvent {
        let mut told = self.told();
        assert!(
            told.len() == 1,
            "{}the client was told {told:?}",
            self.recording()
        );
        told.remove(0)
    }

    /// The client is told of a transport error and of nothing else.
    #[track_caller]
    pub fn told_transport_error(&mut self, code: u8) {
        let told = self.told_one();
        assert!(
            matches!(&told, CallEvent::TransportError(error) if error.code == code),
            "{}the client was told {told:?}",
            self.recording()
        );
    }

    /// The exchange so far, as labelled hexadecimal.
    pub fn recording(&self) -> String {
        let mut out = "\nthe exchange:\n".to_owned();
        for (at, (sender, frame)) in self.record.iter().enumerate() {
            let _ = writeln!(out, "  {:2} {sender:?}", at + 1);
            for (name, octets) in fields(frame) {
                let _ = writeln!(out, "       {name:<32} {}", show(&octets));
            }
        }
        out
    }
}

/// The text of a transport error with this code at the end of a payload.
fn transport_text(octets: &[u8], code: u8) -> String {
    // After the envelope comes the body, or StreamControl and the body.
    (0..octets.len())
        .find_map(|at| {
            let [found, length, text @ ..] = &octets[at..] else {
                return None;
            };
            (at > 8 && *found == code && usize::from(*length) == text.len() && !text.is_empty())
                .then(|| String::from_utf8_lossy(text).into_owned())
        })
        .unwrap_or_default()
}
