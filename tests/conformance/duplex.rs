//! NPAMP-CC-STREAM §13 (7), §8: a full-duplex stream as two streams on one
//! correlation_id. A2A has none: here the bridge room is used by itself, and its
//! frames are compared with those of `build`.

use crate::build::*;
use crate::build::{differences_of, fields};
use bytes::Bytes;
use npamp_relay::bridge::duplex::{Duplex, DuplexFrame, Received, Retention, Role};
use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use proptest::prelude::*;
use std::collections::VecDeque;

const ID: &[u8] = b"both";
const METHOD: &str = "chat/open";
const KEPT: Retention = Retention {
    events: 100,
    octets: 1 << 20,
};

/// One peer of the exchange, with what it has sent.
struct Peer {
    duplex: Duplex,
}

impl Peer {
    fn new(role: Role) -> Self {
        Self {
            duplex: Duplex::new(role, KEPT),
        }
    }

    fn say(&mut self, event: &'static str) {
        self.duplex
            .send(Bytes::from_static(event.as_bytes()))
            .unwrap();
    }

    /// Every frame that it wants to send now, in octets.
    fn frames(&mut self) -> Vec<Passed> {
        std::iter::from_fn(|| self.duplex.poll_frame())
            .map(|frame| wrap(&frame))
            .collect()
    }

    /// It sends exactly this now.
    #[track_caller]
    fn sends(&mut self, expected: &[Frame]) -> Vec<Passed> {
        let frames = self.frames();
        let expected: Vec<Passed> = expected.iter().map(Passed::from).collect();
        for (frame, expected) in frames.iter().zip(&expected) {
            assert!(frame == expected, "\n{}", differences_of(frame, expected));
        }
        assert_eq!(
            frames.len(),
            expected.len(),
            "{:?}",
            frames.iter().map(fields).collect::<Vec<_>>()
        );
        frames
    }

    /// It gets these frames; what they mean to it.
    fn gets(&mut self, frames: &[Passed]) -> Vec<Received> {
        frames
            .iter()
            .map(|frame| {
                let decoded = payload::decode(frame.frame_type, &frame.octets).unwrap();
                assert_eq!(decoded.envelope.correlation_id, ID);
                let foreign = Bytes::copy_from_slice(decoded.foreign);
                self.duplex
                    .handle(decoded.envelope.kind, decoded.stream_control, foreign)
                    .unwrap()
            })
            .collect()
    }
}

/// What a user of the library does with a frame: the exchange's correlation_id
/// around it, and on a request its method and label.
fn wrap(frame: &DuplexFrame) -> Passed {
    let request = frame.kind == MessageKind::Request;
    let payload = Payload {
        envelope: Envelope {
            protocol_id: ProtocolId::A2A,
            kind: frame.kind,
            content_type: ContentType::JSON,
            flags: if frame.kind == MessageKind::StreamEnd {
                EnvelopeFlags::FINAL
            } else {
                EnvelopeFlags::NONE
            },
            correlation_id: ID,
            method: if request { METHOD } else { "" },
        },
        safety: request.then(|| SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE)),
        stream_control: frame.control,
        document_binding: None,
        foreign: &frame.foreign,
    };
    let frame_type = frame.kind.frame_type();
    Passed {
        channel: BRIDGE,
        frame_type,
        octets: payload::encode(frame_type, &payload).unwrap(),
    }
}

fn event(event_id: u64, event: &'static str) -> Received {
    Received::Event {
        event_id,
        event: Bytes::from_static(event.as_bytes()),
    }
}

/// NPAMP-CC-STREAM §13 (7): both directions at once on one correlation_id, each
/// with event_ids from 1; each ends by itself. Whoever asked, and whoever speaks first.
#[test]
fn clause_7_two_streams_on_one_correlation() {
    for roles in [
        [Role::Requester, Role::Responder],
        [Role::Responder, Role::Requester],
    ] {
        let [mut a, mut b] = roles.map(Peer::new);
        a.say("a1");
        b.say("b1");
        a.say("a2");
        let from_a = a.sends(&[Frame::data(ID, 1, "a1"), Frame::data(ID, 2, "a2")]);
        let from_b = b.sends(&[Frame::data(ID, 1, "b1")]);
        assert_eq!(b.gets(&from_a), [event(1, "a1"), event(2, "a2")]);
        assert_eq!(a.gets(&from_b), [event(1, "b1")]);
        a.duplex.end(Bytes::new()).unwrap();
        let end = a.sends(&[Frame::end(ID, 3, "")]);
        assert!(matches!(
            b.gets(&end)[..],
            [Received::End { event_id: 3, .. }]
        ));
        // The other direction goes on.
        b.say("b2");
        b.duplex.end(Bytes::from_static(b"b3")).unwrap();
        let from_b = b.sends(&[Frame::data(ID, 2, "b2"), Frame::end(ID, 3, "b3")]);
        assert_eq!(a.gets(&from_b).len(), 2);
        assert!(a.duplex.is_over() && b.duplex.is_over());
    }
}

/// NPAMP-CC-STREAM §13 (7), §7, §8: a peer's END is told from its cancel of our
/// direction; each cancel stops one direction and is acknowledged once.
#[test]
fn clause_7_cancel_per_direction() {
    let [mut a, mut b] = [Role::Requester, Role::Responder].map(Peer::new);
    a.say("a1");
    b.say("b1");
    let from_a = a.sends(&[Frame::data(ID, 1, "a1")]);
    let from_b = b.sends(&[Frame::data(ID, 1, "b1")]);
    a.gets(&from_b);
    b.gets(&from_a);
    // The responder cancels what it consumes: the requester's direction.
    b.duplex.cancel().unwrap();
    let cancel = b.sends(&[Frame::cancel(ID, 1)]);
    assert_eq!(a.gets(&cancel), [Received::Cancelled]);
    let acknowledgement = a.sends(&[Frame::cancel_ack(ID, 1)]);
    assert_eq!(
        b.gets(&acknowledgement),
        [Received::CancelAcknowledged { tail: 1 }]
    );
    assert!(a.duplex.send(Bytes::new()).is_err());
    // Its own direction still flows, and is cancelled for itself.
    b.say("b2");
    let from_b = b.sends(&[Frame::data(ID, 2, "b2")]);
    assert_eq!(a.gets(&from_b), [event(2, "b2")]);
    a.duplex.cancel().unwrap();
    let cancel = a.sends(&[Frame::cancel(ID, 2)]);
    b.say("b3");
    assert_eq!(b.gets(&cancel), [Received::Cancelled]);
    let acknowledgement = b.sends(&[Frame::cancel_ack(ID, 2)]);
    a.gets(&acknowledgement);
    assert!(a.duplex.is_over() && b.duplex.is_over());
}

/// NPAMP-CC-STREAM §13 (7), §6, §8: each direction is resumed by who consumes it,
/// from its own cursor; a refused one leaves the other as it is.
#[test]
fn clause_7_resume_per_direction() {
    let [mut a, mut b] = [Role::Requester, Role::Responder].map(Peer::new);
    for event in ["1", "2", "3"] {
        a.say(event);
        b.say(event);
    }
    let from_a = a.frames();
    let from_b = b.frames();
    b.gets(&from_a[..1]);
    a.gets(&from_b[..2]);
    a.duplex.lose();
    b.duplex.lose();
    assert!(a.frames().is_empty() && b.frames().is_empty());
    // The responder asks for the requester's direction: a BRIDGE_REQUEST of its own.
    b.duplex.resume(Bytes::new()).unwrap();
    let resume = b.sends(&[Frame::request(ID, METHOD, "").label(2).control(1, 0, 1)]);
    assert_eq!(a.gets(&resume), [Received::ResumeRequest { cursor: 1 }]);
    assert!(a.duplex.answer_resume(true));
    let again = a.sends(&[Frame::data(ID, 2, "2"), Frame::data(ID, 3, "3")]);
    assert_eq!(b.gets(&again), [event(2, "2"), event(3, "3")]);
    // Nobody asked for the other yet.
    assert!(b.frames().is_empty());
    a.duplex.resume(Bytes::new()).unwrap();
    let resume = a.sends(&[Frame::request(ID, METHOD, "").label(2).control(1, 0, 2)]);
    b.gets(&resume);
    assert!(!b.duplex.answer_resume(false), "policy says no");
    let text = "the stream cannot be resumed";
    let refusal = b.sends(&[Frame::transport_error(ID, NOT_RESUMABLE, text)]);
    assert_eq!(a.gets(&refusal), [Received::NotResumable]);
    // The resumed direction is not touched.
    a.say("4");
    let more = a.sends(&[Frame::data(ID, 4, "4")]);
    assert_eq!(b.gets(&more), [event(4, "4")]);
}

/// What happens to the two peers in the property below.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// This peer says one more event.
    Say(bool),
    /// So many of the frames on their way to this peer arrive.
    Arrive(bool, u8),
    /// The association goes, with all that is on its way, and another one comes.
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Say),
        4 => (any::<bool>(), 0u8..4).prop_map(|(to, count)| Step::Arrive(to, count)),
        1 => Just(Step::Cut),
    ]
}

/// Two peers, what is on its way to each, and the event_ids that each got.
struct Course {
    peers: [Peer; 2],
    underway: [VecDeque<Passed>; 2],
    said: [u64; 2],
    got: [Vec<u64>; 2],
    ended: [bool; 2],
}

impl Course {
    fn pump(&mut self) {
        for from in 0..2 {
            let frames = self.peers[from].frames();
            self.underway[1 - from].extend(frames);
        }
    }

    fn arrive(&mut self, to: usize, count: usize) {
        for _ in 0..count {
            self.pump();
            let Some(frame) = self.underway[to].pop_front() else {
                return;
            };
            for received in self.peers[to].gets(&[frame]) {
                match received {
                    Received::Event { event_id, event } => {
                        assert_eq!(event, event_id.to_string());
                        self.got[to].push(event_id);
                    }
                    Received::End { event_id, .. } => {
                        assert_eq!(event_id, self.said[1 - to] + 1);
                        self.ended[to] = true;
                    }
                    Received::ResumeRequest { .. } => {
                        assert!(self.peers[to].duplex.answer_resume(true));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Until nothing is on its way.
    fn settle(&mut self) {
        loop {
            self.pump();
            if self.underway.iter().all(VecDeque::is_empty) {
                return;
            }
            for to in 0..2 {
                self.arrive(to, self.underway[to].len());
            }
        }
    }

    fn say(&mut self, from: usize) {
        self.said[from] += 1;
        let event = Bytes::from(self.said[from].to_string());
        self.peers[from].duplex.send(event).unwrap();
    }

    fn cut(&mut self) {
        for at in 0..2 {
            self.underway[at].clear();
            self.peers[at].duplex.lose();
        }
        for at in 0..2 {
            // What has ended has nothing to be resumed.
            let resumed = self.peers[at].duplex.resume(Bytes::new());
            assert_eq!(resumed.is_ok(), !self.ended[at]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// NPAMP-CC-STREAM §6, §8, §13 (5, 7): whatever is cut and when, each direction's
    /// events arrive once and in order, and its end once.
    #[test]
    fn clause_7_every_event_exactly_once(steps in prop::collection::vec(step(), 0..80)) {
        let retention = Retention { events: 1000, octets: 1 << 20 };
        let peers = [Role::Requester, Role::Responder].map(|role| Peer {
            duplex: Duplex::new(role, retention),
        });
        let mut course = Course {
            peers,
            underway: Default::default(),
            said: [0; 2],
            got: Default::default(),
            ended: [false; 2],
        };
        // Only what has said that it can be resumed is: each direction has an event first.
        course.say(0);
        course.say(1);
        course.settle();
        for step in steps {
            match step {
                Step::Say(from) => course.say(usize::from(from)),
                Step::Arrive(to, count) => course.arrive(usize::from(to), usize::from(count)),
                Step::Cut => course.cut(),
            }
        }
        for peer in &mut course.peers {
            peer.duplex.end(Bytes::new()).unwrap();
        }
        course.settle();
        for at in 0..2 {
            let said: Vec<u64> = (1..=course.said[1 - at]).collect();
            prop_assert_eq!(&course.got[at], &said);
            prop_assert!(course.ended[at]);
            prop_assert!(course.peers[at].duplex.is_over());
        }
    }
}
