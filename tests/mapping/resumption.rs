//! Streams that outlive their association, both mappers together:
//! NPAMP-CC-STREAM §6, §13.4, §13.5 and rulings R17, R18.

use crate::harness::*;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::config::StreamConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, ExchangeId, Side};
use npamp_relay::a2a::stats::{Dropped, Outcome, Resumption};
use npamp_relay::bridge::safety::Effect;
use npamp_relay::bridge::stream_control::{Control, StreamControl};
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits;
use proptest::prelude::*;
use std::time::Duration;

fn open(pair: &mut Pair, method: &str) -> ExchangeId {
    let (exchange, _) = pair.ask(1, &request_json("1", method));
    pair.agent(exchange, AgentEvent::StreamOpen);
    exchange
}

fn numbered(n: u64) -> String {
    result_json("1", &n.to_string())
}

/// The event_ids that the caller saw, with what ended its stream, if anything did.
fn seen(end: &End) -> (Vec<u64>, Option<&CallEvent>) {
    let mut ids = Vec::new();
    for (_, event) in &end.calls {
        match event {
            CallEvent::StreamEvent { event_id, object } => {
                assert_eq!(object, numbered(*event_id).as_bytes());
                ids.push(*event_id);
            }
            last => return (ids, Some(last)),
        }
    }
    (ids, None)
}

/// NPAMP-CC-STREAM §6.2, §6.3, ruling R17: the resume request repeats the correlation_id, the
/// method and the label of the stream, never the body of a mutating one; the resumed run has
/// the same event_ids, then the rest, and one END.
#[test]
fn a_stream_goes_on_after_the_cursor() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair, "message/stream");
    let original = pair.passed[0].1.correlation_id();
    pair.agent(exchange, event(&numbered(1)));
    pair.agent(exchange, event(&numbered(2)));
    // The third is sent and lost with the association; the fourth finds none.
    pair.egress.agent(exchange, event(&numbered(3)));
    pair.cut();
    assert_eq!(pair.ingress.wanted, [ASSOCIATION]);
    assert!(pair.egress.cancels.is_empty());
    pair.egress.agent(exchange, event(&numbered(4)));
    pair.egress.no_frame();
    pair.passed.clear();
    pair.join(8);
    let request = pair.ingress.frames[0].clone();
    assert_eq!(request.kind, REQUEST);
    let decoded = request.decode();
    assert_eq!(decoded.envelope.correlation_id, original);
    assert_eq!(decoded.envelope.method, "message/stream");
    assert_eq!(decoded.stream_control, Some(StreamControl::resume(2)));
    assert_eq!(
        decoded.safety.map(|label| label.effect),
        Some(Effect::NON_IDEMPOTENT_WRITE)
    );
    assert!(decoded.foreign.is_empty());
    pair.pass();
    pair.agent(exchange, event(&numbered(5)));
    pair.agent(exchange, AgentEvent::StreamEnd);
    assert_eq!(pair.back(), [DATA, DATA, DATA, END]);
    for (at, (_, frame)) in pair.passed[1..].iter().enumerate() {
        let decoded = frame.decode();
        assert_eq!(decoded.envelope.correlation_id, original);
        assert_eq!(
            decoded.stream_control,
            Some(StreamControl::resumable(at as u64 + 3))
        );
    }
    let (ids, last) = seen(&pair.ingress);
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    assert!(matches!(
        last,
        Some(CallEvent::StreamEnd { event_id: 6, .. })
    ));
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
    assert_eq!(pair.ingress.stats.parked.get(), 0);
    assert_eq!(pair.egress.stats.resumption.get(Resumption::Resumed), 1);
    assert_eq!(pair.egress.dispatches.len(), 0, "the agent is asked once");
}

/// Ruling R17: the request of a read_only stream carries its object again.
#[test]
fn a_read_only_stream_repeats_its_object() {
    let mut pair = Pair::new();
    let object = request_json("1", "tasks/resubscribe");
    let exchange = open(&mut pair, "tasks/resubscribe");
    pair.agent(exchange, event(&numbered(1)));
    pair.cut();
    pair.join(8);
    let request = pair.ingress.frames[0].clone();
    assert_eq!(request.decode().foreign, object.as_bytes());
    assert!(request.decode().safety.is_none());
    pair.pass();
    pair.agent(exchange, event(&numbered(2)));
    assert_eq!(seen(&pair.ingress).0, [1, 2]);
    assert!(pair.egress.dispatches.is_empty());
}

/// NPAMP-CC-STREAM §6.1: what did not assert `resumable` is not resumed, and what is no stream
/// never is; nothing is asked twice of the agent.
#[test]
fn what_is_not_resumable_fails_at_once() {
    let mut pair = Pair::new();
    let (_, _) = pair.ask(1, &request_json("1", "message/send"));
    let (exchange, _) = pair.ask(2, &request_json("1", "message/stream"));
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.cut();
    assert!(pair.ingress.wanted.is_empty());
    assert_eq!(pair.ingress.calls.len(), 2);
    for (_, event) in &pair.ingress.calls {
        assert!(matches!(event, CallEvent::TransportError(error)
            if error.code == TransportCode::NOT_DELIVERED.0));
    }
    assert_eq!(pair.egress.cancels.len(), 2);
    pair.join(8);
    pair.ingress.no_frame();
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
    // The same at a relay that keeps no stream: its frames do not say resumable.
    let config = MapperConfig {
        stream: StreamConfig {
            retention: Duration::ZERO,
            ..StreamConfig::default()
        },
        ..MapperConfig::default()
    };
    let mut pair = Pair::new();
    pair.egress = End::with(config, info(Side::Responder));
    let exchange = open(&mut pair, "message/stream");
    pair.agent(exchange, event(&numbered(1)));
    assert_eq!(
        pair.passed[1].1.decode().stream_control,
        Some(StreamControl::data(1))
    );
    pair.cut();
    assert!(matches!(
        seen(&pair.ingress),
        (_, Some(CallEvent::TransportError(_)))
    ));
    assert_eq!(pair.egress.cancels, [exchange]);
    assert_eq!(pair.egress.stats.kept.get(), 0);
}

/// NPAMP-CC-STREAM §6.3, §13.5: a producer that replays too much is tolerated; repeats are
/// discarded, and what follows them must still rise.
#[test]
fn repeats_are_discarded() {
    use npamp_relay::bridge::envelope::MessageKind;
    for (after, passes) in [(3, true), (2, false)] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair, "message/stream");
        for n in 1..=2 {
            pair.agent(exchange, event(&numbered(n)));
        }
        let correlation_id = pair.passed[0].1.correlation_id();
        pair.cut();
        pair.join(8);
        pair.ingress.frames.clear();
        let ingress = &mut pair.ingress;
        for event_id in [1, 2, 3] {
            let object = numbered(event_id);
            let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
            data.stream_control = Some(StreamControl::resumable(event_id));
            ingress.payload(&data);
        }
        assert_eq!(seen(ingress).0, [1, 2, 3]);
        assert_eq!(ingress.stats.dropped.get(Dropped::Repeat), 2);
        let mut end = a2a(MessageKind::StreamEnd, &correlation_id, "", "");
        end.stream_control = Some(StreamControl::resumable(after + u64::from(passes)));
        ingress.payload(&end);
        let last = seen(ingress).1;
        assert_eq!(matches!(last, Some(CallEvent::StreamEnd { .. })), passes);
        ingress.assert_idle();
    }
}

/// Ruling R17, NPAMP-CC-STREAM §6.3: NotResumable reaches the caller as a broken stream.
#[test]
fn a_refused_stream_breaks() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair, "message/stream");
    pair.agent(exchange, event(&numbered(1)));
    pair.cut();
    // Another producer, which has never heard of it.
    pair.egress = End::egress();
    pair.join(8);
    pair.pass();
    assert_eq!(pair.back().last(), Some(&ERROR));
    match seen(&pair.ingress) {
        (ids, Some(CallEvent::TransportError(error))) => {
            assert_eq!(ids, [1]);
            assert_eq!(error.code, TransportCode::NOT_RESUMABLE.0);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.ingress.stats.resumption.get(Resumption::Refused), 1);
    assert!(pair.egress.dispatches.is_empty(), "never a restart");
    pair.ingress.assert_idle();
}

/// Ruling R18: streams wait for a bounded time, and break then; so they do when told.
#[test]
fn waiting_ends() {
    for told in [false, true] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair, "message/stream");
        pair.agent(exchange, event(&numbered(1)));
        pair.cut();
        let ingress = &mut pair.ingress;
        assert_eq!(ingress.stats.parked.get(), 1);
        if told {
            ingress.input(npamp_relay::a2a::port::Input::GiveUp {
                association: ASSOCIATION,
            });
        } else {
            let due = ingress.mapper.poll_timeout();
            assert_eq!(due, Some(ingress.now + limits::RESUME_TIME));
            ingress.pass_time(limits::RESUME_TIME.mul_f32(0.9));
            assert!(seen(ingress).1.is_none());
            ingress.pass_time(limits::RESUME_TIME.mul_f32(0.11));
        }
        assert!(matches!(
            seen(ingress),
            (_, Some(CallEvent::TransportError(_)))
        ));
        assert_eq!(ingress.mapper.poll_timeout(), None);
        assert_eq!(ingress.stats.parked.get(), 0);
        assert_eq!(ingress.stats.requester.total(Outcome::AssociationLost), 1);
        pair.join(8);
        pair.ingress.no_frame();
        pair.ingress.assert_idle();
    }
}

/// The id of a Request counts for as long as its stream can be resumed: while it waits for an
/// association, and on the next one.
#[test]
fn a_long_id_counts_while_its_stream_waits() {
    let mut pair = Pair::new();
    let id = format!("\"{}\"", "i".repeat(10_000));
    let (exchange, _) = pair.ask(1, &request_json(&id, "message/stream"));
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.agent(exchange, event(&result_json(&id, "1")));
    pair.cut();
    assert!(pair.ingress.budget.held() >= id.len());
    pair.join(8);
    pair.pass();
    assert!(pair.ingress.budget.held() >= id.len());
    pair.agent(exchange, AgentEvent::StreamEnd);
    pair.ingress.assert_idle();
}

/// NPAMP-CC-STREAM §7: a caller that leaves while its stream waits cancels it when it can be
/// told, and the agent is let go.
#[test]
fn leaving_while_the_stream_waits_cancels_it() {
    for ended in [false, true] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair, "message/stream");
        pair.agent(exchange, event(&numbered(1)));
        pair.cut();
        if ended {
            pair.egress.agent(exchange, AgentEvent::StreamEnd);
        }
        pair.ingress.gone(1);
        pair.ingress.assert_idle();
        pair.join(8);
        let cancel = pair.ingress.one_frame();
        let control = cancel.decode().stream_control.unwrap();
        assert_eq!((control.control, control.event_id), (Control::Cancel, 1));
        pair.ingress.frames.push(cancel);
        pair.pass();
        let (_, ack) = pair.passed.last().unwrap();
        assert_eq!(
            ack.decode().stream_control,
            Some(StreamControl::cancel_ack(1))
        );
        assert_eq!(pair.egress.cancels.len(), usize::from(!ended));
        assert_eq!(pair.egress.stats.kept.get(), 0);
        assert_eq!(pair.egress.stats.replay_octets.get(), 0);
        pair.ingress.assert_idle();
        pair.egress.assert_idle();
    }
}

/// What happens to the pair in the property below.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The agent says something.
    Agent,
    /// So many frames to the ingress arrive.
    Arrive(u8),
    /// Everything arrives.
    Settle,
    /// The association is cut, with all that is on its way.
    Cut,
    /// Only the ingress notices, and comes back by another association.
    CutUnnoticed,
    /// Another association.
    Join,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Agent),
        3 => (0u8..4).prop_map(Step::Arrive),
        2 => Just(Step::Settle),
        2 => Just(Step::Cut),
        1 => Just(Step::CutUnnoticed),
        3 => Just(Step::Join),
    ]
}

struct Course {
    pair: Pair,
    exchange: ExchangeId,
    said: u64,
    total: u64,
    connected: bool,
    next: u64,
}

impl Course {
    fn take(&mut self, step: Step) {
        match step {
            Step::Agent => self.say(),
            Step::Arrive(count) => {
                self.grant();
                // The egress has the requests, the ingress some of the answers.
                for frame in std::mem::take(&mut self.pair.ingress.frames) {
                    self.pair
                        .egress
                        .frame(frame.channel, frame.kind, &frame.octets);
                }
                for _ in 0..count {
                    if self.pair.egress.frames.is_empty() {
                        break;
                    }
                    let frame = self.pair.egress.frames.remove(0);
                    self.pair
                        .ingress
                        .frame(frame.channel, frame.kind, &frame.octets);
                }
            }
            Step::Settle => {
                self.pair.pass();
                while self.grant() {
                    self.pair.pass();
                }
            }
            Step::Cut if self.connected => {
                self.pair.cut();
                self.connected = false;
            }
            Step::CutUnnoticed if self.connected => {
                let old = self.pair.egress.association;
                self.pair.ingress.down();
                self.pair.ingress.frames.clear();
                self.pair.egress.frames.clear();
                self.next += 1;
                self.pair.join(self.next);
                self.pair.pass();
                self.pair.egress.input(npamp_relay::a2a::port::Input::Down {
                    association: old,
                    reason: npamp_relay::a2a::port::DownReason("late".into()),
                });
            }
            Step::Join if !self.connected => {
                self.next += 1;
                self.pair.join(self.next);
                self.connected = true;
            }
            Step::Cut | Step::CutUnnoticed | Step::Join => {}
        }
    }

    /// Gives room where it is asked for, on associations that are still there.
    fn grant(&mut self) -> bool {
        let rooms = std::mem::take(&mut self.pair.egress.rooms);
        let granted = !rooms.is_empty();
        for (association, _) in rooms {
            if association == self.pair.egress.association {
                self.pair
                    .egress
                    .input(npamp_relay::a2a::port::Input::Room { association });
            }
        }
        granted
    }

    fn say(&mut self) {
        if self.said > self.total {
            return;
        }
        self.said += 1;
        let news = if self.said > self.total {
            AgentEvent::StreamEnd
        } else {
            event(&numbered(self.said))
        };
        self.pair.egress.agent(self.exchange, news);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// NPAMP-CC-STREAM §6.3, §13.4, §13.5, ruling R18: wherever the association is cut, the
    /// caller gets each event once and in order, and one end.
    #[test]
    fn every_event_exactly_once(
        steps in prop::collection::vec(step(), 0..80),
        total in 0u64..30,
        roomy in any::<bool>(),
    ) {
        let mut pair = Pair::new();
        pair.egress.roomy = roomy;
        let exchange = open(&mut pair, "message/stream");
        let mut course = Course { pair, exchange, said: 0, total, connected: true, next: 100 };
        for step in steps {
            course.take(step);
            if seen(&course.pair.ingress).1.is_some() {
                break;
            }
        }
        course.take(Step::Join);
        course.take(Step::Settle);
        while course.said <= course.total {
            course.say();
        }
        course.take(Step::Settle);
        let (ids, last) = seen(&course.pair.ingress);
        match last {
            Some(CallEvent::StreamEnd { event_id, object }) => {
                prop_assert_eq!(ids, (1..=total).collect::<Vec<_>>());
                prop_assert_eq!(*event_id, total + 1);
                prop_assert!(object.is_none());
            }
            // Cut before a frame had said that it can be resumed.
            Some(CallEvent::TransportError(error)) => {
                prop_assert_eq!(error.code, TransportCode::NOT_DELIVERED.0);
                prop_assert!(ids.is_empty());
            }
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(course.pair.ingress.calls.len(), seen(&course.pair.ingress).0.len() + 1);
        course.pair.ingress.assert_idle();
        // What is kept goes with its time.
        course.pair.egress.pass_time(limits::RETENTION_TIME);
        course.pair.egress.assert_idle();
        prop_assert_eq!(course.pair.egress.stats.kept.get(), 0);
        prop_assert_eq!(course.pair.egress.stats.replay_octets.get(), 0);
        prop_assert_eq!(course.pair.egress.mapper.poll_timeout(), None);
    }
}
