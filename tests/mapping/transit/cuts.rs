//! Streams in transit whose hops are lost, each by itself and both at once:
//! NPAMP-CC-STREAM §6, §13.4, §13.5 and rulings R17, R18.

use super::chain::Chain;
use super::{STREAM, numbered};
use crate::harness::*;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, Input};
use npamp_relay::a2a::stats::Resumption;
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::bridge::stream_control::Control;
use npamp_relay::bridge::transport_error::TransportCode;
use proptest::prelude::*;

/// The event_ids that the caller saw, and the last event if there was one.
fn seen(chain: &Chain) -> (Vec<u64>, Option<&CallEvent>) {
    let mut ids = Vec::new();
    for (_, event) in &chain.ingress.calls {
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

/// The event_ids of a stream that has not ended.
fn goes_on(chain: &Chain) -> Vec<u64> {
    let (ids, last) = seen(chain);
    assert!(last.is_none(), "{last:?}");
    ids
}

/// Each hop resumes by itself, with its own correlation_id, the label as it came, and no
/// body of a mutating method; the other hop notices nothing.
#[test]
fn each_hop_resumes_by_itself() {
    for first in [true, false] {
        let mut chain = Chain::new();
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        chain.agent(exchange, event(&numbered(1)));
        chain.agent(exchange, event(&numbered(2)));
        // The third is lost on its way.
        let asked = if first {
            chain.egress.agent(exchange, event(&numbered(3)));
            for frame in std::mem::take(&mut chain.egress.frames) {
                chain.middle.upstream_frame(&frame);
            }
            chain.cut_first();
            chain.agent(exchange, event(&numbered(4)));
            (chain.first.len(), chain.second.len())
        } else {
            chain.egress.agent(exchange, event(&numbered(3)));
            chain.cut_second();
            chain.egress.agent(exchange, event(&numbered(4)));
            (chain.first.len(), chain.second.len())
        };
        assert_eq!(goes_on(&chain), vec![1, 2]);
        assert!(chain.egress.cancels.is_empty());
        if first {
            chain.join_first(8);
        } else {
            assert_eq!(chain.middle.wanted, [super::UPSTREAM]);
            chain.join_second(8);
        }
        chain.pass();
        assert_eq!(goes_on(&chain), vec![1, 2, 3, 4]);
        let (hop, at) = if first {
            (&chain.first, asked.0)
        } else {
            (&chain.second, asked.1)
        };
        let resume = hop[at..].iter().find(|(to_egress, _)| *to_egress).unwrap();
        let decoded = resume.1.decode();
        let control = decoded.stream_control.unwrap();
        assert_eq!((control.control, control.event_id), (Control::Resume, 2));
        assert_eq!(decoded.envelope.method, STREAM);
        assert!(decoded.foreign.is_empty());
        assert_eq!(
            decoded.safety,
            Some(SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE))
        );
        assert_eq!(resume.1.correlation_id(), hop[0].1.correlation_id());
        chain.agent(exchange, AgentEvent::StreamEnd);
        let (ids, last) = seen(&chain);
        assert_eq!(ids, [1, 2, 3, 4]);
        assert!(matches!(
            last,
            Some(CallEvent::StreamEnd {
                event_id: 5,
                object: None
            })
        ));
        assert!(chain.egress.dispatches.is_empty(), "never a restart");
        chain.assert_idle();
    }
}

/// A request without a label resumes without one, and a read_only one repeats its object.
#[test]
fn a_resume_request_upstream_repeats_what_came() {
    use npamp_relay::a2a::MapperConfig;
    use npamp_relay::a2a::port::{AssociationId, Side};
    use npamp_relay::bridge::envelope::MessageKind;
    use npamp_relay::bridge::stream_control::StreamControl;
    for (method, label, repeats) in [
        (STREAM, None, false),
        ("tasks/resubscribe", None, true),
        ("tasks/resubscribe", Some(Effect::READ_ONLY), true),
        ("tasks/resubscribe", Some(Effect::DESTRUCTIVE), false),
    ] {
        let mut middle = super::Middle::new(MapperConfig::default());
        let object = request_json("1", method);
        let mut request = a2a(MessageKind::Request, b"c", method, &object);
        request.safety = label.map(|effect| SafetyLabel { effect, scope: "s" });
        middle.inbound_payload(&request);
        let correlation_id = middle.to_egress.remove(0).correlation_id();
        let data = numbered(4);
        let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &data);
        data.stream_control = Some(StreamControl::resumable(4));
        middle.upstream_payload(&data);
        middle.one_back();
        let lost = middle.upstream;
        middle.down(lost);
        middle.upstream = AssociationId(7009);
        middle.input(Input::Up {
            association: middle.upstream,
            info: info(Side::Initiator),
            replaces: Some(lost),
        });
        let again = middle.to_egress.remove(0);
        let decoded = again.decode();
        assert_eq!(decoded.stream_control, Some(StreamControl::resume(4)));
        assert_eq!(decoded.safety, request.safety);
        assert_eq!(decoded.envelope.correlation_id, correlation_id);
        assert_eq!(decoded.foreign.is_empty(), !repeats, "{method} {label:?}");
    }
}

/// A transit whose upstream sent one event, and was lost and resumed after it; gives the
/// correlation_id upstream.
fn resumed_after(event_id: u64) -> (super::Middle, Vec<u8>) {
    use npamp_relay::a2a::port::AssociationId;
    use npamp_relay::bridge::envelope::MessageKind;
    use npamp_relay::bridge::stream_control::StreamControl;
    let mut middle = super::Middle::new(npamp_relay::a2a::MapperConfig::default());
    let correlation_id = middle.stream_request(STREAM);
    let object = numbered(event_id);
    let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
    data.stream_control = Some(StreamControl::resumable(event_id));
    middle.upstream_payload(&data);
    middle.one_back();
    let lost = middle.upstream;
    middle.down(lost);
    middle.upstream = AssociationId(7009);
    middle.input(Input::Up {
        association: middle.upstream,
        info: info(npamp_relay::a2a::port::Side::Initiator),
        replaces: Some(lost),
    });
    middle.to_egress.clear();
    (middle, correlation_id)
}

/// Ruling R17: an end that an upstream gives once more, under the id of the event that the
/// transit has, is an orderly end for the peer, under a greater id (NPAMP-CC-STREAM §5.1).
#[test]
fn an_end_once_more_is_an_end() {
    use npamp_relay::bridge::envelope::MessageKind;
    use npamp_relay::bridge::stream_control::StreamControl;
    for event_id in [4, u64::MAX - 1] {
        let (mut middle, correlation_id) = resumed_after(event_id);
        let mut end = a2a(MessageKind::StreamEnd, &correlation_id, "", "");
        end.stream_control = Some(StreamControl::resumable(event_id));
        middle.upstream_payload(&end);
        let frame = middle.one_back();
        assert_eq!(frame.kind, END, "{:?}", frame.decode());
        let control = frame.decode().stream_control.unwrap();
        assert_eq!(control.event_id, event_id + 1);
        middle.assert_idle();
    }
}

/// NPAMP-CC-STREAM §5.1: an event under the greatest id leaves none for the end, so that the
/// stream fails, visibly and at both its ends.
#[test]
fn an_event_under_the_greatest_id_fails_its_stream() {
    use npamp_relay::bridge::envelope::MessageKind;
    use npamp_relay::bridge::stream_control::StreamControl;
    let mut middle = super::Middle::new(npamp_relay::a2a::MapperConfig::default());
    let correlation_id = middle.stream_request(STREAM);
    for (event_id, kind) in [(1, DATA), (u64::MAX, ERROR)] {
        let object = numbered(1);
        let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
        data.stream_control = Some(StreamControl::resumable(event_id));
        middle.upstream_payload(&data);
        assert_eq!(middle.one_back().kind, kind);
    }
    let cancel = middle.to_egress.remove(0).decode().stream_control.unwrap();
    assert_eq!(cancel.control, Control::Cancel);
    middle.assert_idle();
}

/// Ruling R17: what the upstream cannot go on with ends visibly for the peer too, its code
/// passed on, after every event that there was; the peer may be away meanwhile.
#[test]
fn a_stream_that_the_upstream_lost_ends_visibly() {
    for away in [false, true] {
        let mut chain = Chain::new();
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        chain.agent(exchange, event(&numbered(1)));
        if away {
            chain.cut_first();
            chain.agent(exchange, event(&numbered(2)));
        }
        chain.cut_second();
        // The egress forgets it.
        chain.egress.pass_time(npamp_relay::limits::RETENTION_TIME);
        chain.join_second(8);
        chain.pass();
        if away {
            chain.join_first(8);
            chain.pass();
        }
        let (ids, last) = seen(&chain);
        assert_eq!(ids, if away { vec![1, 2] } else { vec![1] });
        match last {
            Some(CallEvent::TransportError(error)) => {
                assert_eq!(error.code, TransportCode::NOT_RESUMABLE.0);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(chain.middle.stats.resumption.get(Resumption::Refused), 1);
        chain.assert_idle();
    }
}

/// No association comes in place of the upstream's: a visible end too.
#[test]
fn a_stream_whose_upstream_stays_away_ends_visibly() {
    let mut chain = Chain::new();
    let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
    chain.agent(exchange, AgentEvent::StreamOpen);
    chain.agent(exchange, event(&numbered(1)));
    chain.cut_second();
    chain.pass();
    assert_eq!(goes_on(&chain), vec![1]);
    let lost = chain.middle.upstream;
    chain.middle.input(Input::GiveUp { association: lost });
    chain.pass();
    let (ids, last) = seen(&chain);
    assert_eq!(ids, [1]);
    assert!(matches!(last, Some(CallEvent::TransportError(error)) if error.code == 4));
    chain.middle.assert_idle();
}

/// A peer that does not come back: the stream is let go, and cancelled upstream.
#[test]
fn a_stream_that_nobody_comes_back_for_is_cancelled() {
    let mut chain = Chain::new();
    let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
    chain.agent(exchange, AgentEvent::StreamOpen);
    chain.agent(exchange, event(&numbered(1)));
    chain.cut_first();
    chain.agent(exchange, event(&numbered(2)));
    chain.middle.pass_time(npamp_relay::limits::RETENTION_TIME);
    chain.pass();
    assert_eq!(chain.egress.cancels, [exchange]);
    assert_eq!(chain.middle.stats.kept.get(), 0);
    chain.middle.assert_idle();
    chain.egress.assert_idle();
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The agent says something.
    Event,
    /// Frames of a hop pass one step.
    First,
    Second,
    Pass,
    CutFirst,
    CutSecond,
    JoinFirst,
    JoinSecond,
    Room,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Event),
        2 => Just(Step::First),
        2 => Just(Step::Second),
        2 => Just(Step::Pass),
        1 => Just(Step::CutFirst),
        1 => Just(Step::CutSecond),
        2 => Just(Step::JoinFirst),
        2 => Just(Step::JoinSecond),
        2 => Just(Step::Room),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The chain with what is up.
struct Run {
    chain: Chain,
    first: bool,
    second: bool,
    next: u64,
}

impl Run {
    fn step_first(&mut self) {
        for frame in std::mem::take(&mut self.chain.ingress.frames) {
            self.chain.middle.inbound_frame(&frame);
        }
        for frame in std::mem::take(&mut self.chain.middle.to_ingress) {
            self.chain
                .ingress
                .frame(frame.channel, frame.kind, &frame.octets);
        }
    }

    fn step_second(&mut self) {
        for frame in std::mem::take(&mut self.chain.middle.to_egress) {
            self.chain
                .egress
                .frame(frame.channel, frame.kind, &frame.octets);
        }
        for frame in std::mem::take(&mut self.chain.egress.frames) {
            self.chain.middle.upstream_frame(&frame);
        }
    }

    fn join(&mut self) {
        if !std::mem::replace(&mut self.first, true) {
            self.next += 1;
            self.chain.join_first(self.next);
        }
        self.join_second();
    }

    fn join_second(&mut self) {
        if !std::mem::replace(&mut self.second, true) {
            self.next += 1;
            self.chain.join_second(self.next);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Ruling R18: whatever is lost and whenever, each event arrives exactly once and in order,
    /// and one end.
    #[test]
    fn every_event_exactly_once(steps in steps()) {
        let mut chain = Chain::new();
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        chain.agent(exchange, event(&numbered(1)));
        chain.middle.roomy = false;
        let mut run = Run { chain, first: true, second: true, next: 100 };
        run.chain.middle.make_room();
        run.chain.pass();
        let mut said = 1;
        for step in steps {
            match step {
                Step::Event => {
                    said += 1;
                    run.chain.egress.agent(exchange, event(&numbered(said)));
                }
                Step::First => run.step_first(),
                Step::Second => run.step_second(),
                Step::Pass => run.chain.pass(),
                Step::Room => run.chain.middle.make_room(),
                Step::CutFirst => {
                    if std::mem::replace(&mut run.first, false) {
                        run.chain.cut_first();
                    }
                }
                Step::CutSecond => {
                    if std::mem::replace(&mut run.second, false) {
                        run.chain.cut_second();
                    }
                }
                Step::JoinFirst => {
                    if !std::mem::replace(&mut run.first, true) {
                        run.next += 1;
                        run.chain.join_first(run.next);
                    }
                }
                Step::JoinSecond => run.join_second(),
            }
        }
        run.chain.egress.agent(exchange, AgentEvent::StreamEnd);
        run.join();
        run.chain.middle.roomy = true;
        run.chain.middle.make_room();
        run.chain.pass();
        let (ids, last) = seen(&run.chain);
        prop_assert_eq!(ids, (1..=said).collect::<Vec<u64>>());
        let ended = matches!(last, Some(CallEvent::StreamEnd { event_id, .. }) if *event_id == said + 1);
        prop_assert!(ended, "{:?}", last);
        prop_assert!(run.chain.egress.dispatches.is_empty());
        prop_assert!(run.chain.egress.cancels.is_empty());
        run.chain.ingress.assert_idle();
        run.chain.middle.assert_idle();
        run.chain.egress.assert_idle();
    }
}
