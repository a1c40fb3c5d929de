//! The producer alone, with hand-made resume requests: NPAMP-CC-STREAM §6.1,
//! §6.3, §7.2, §12 and rulings R11, R17.

use crate::harness::*;
use bytes::Bytes;
use npamp_relay::a2a::budget::OctetBudget;
use npamp_relay::a2a::config::StreamConfig;
use npamp_relay::a2a::port::{
    AgentEvent, AssociationId, AssociationInfo, DownReason, ExchangeId, Input, Side,
};
use npamp_relay::a2a::stats::{Dropped, Refusal, Resumption};
use npamp_relay::a2a::streams::{MapperId, StreamRegistry};
use npamp_relay::a2a::{Mapper, MapperConfig};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::safety::{Effect, EffectSet, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits;
use std::sync::Arc;

const CORRELATION: &[u8] = b"correlation";
const METHOD: &str = "message/stream";

fn label() -> SafetyLabel<'static> {
    SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE)
}

fn numbered(n: u64) -> String {
    result_json("1", &n.to_string())
}

/// A peer's request for a stream, and the agent's first `count` events.
fn begin(egress: &mut End, count: u64) -> ExchangeId {
    let object = request_json("1", METHOD);
    let mut payload = a2a(MessageKind::Request, CORRELATION, METHOD, &object);
    payload.safety = Some(label());
    egress.payload(&payload);
    let (exchange, _) = egress.one_dispatch();
    egress.agent(exchange, AgentEvent::StreamOpen);
    for n in 1..=count {
        egress.agent(exchange, event(&numbered(n)));
    }
    exchange
}

fn resume(egress: &mut End, cursor: u64) {
    resume_as(egress, cursor, METHOD, "");
}

fn resume_as(egress: &mut End, cursor: u64, method: &str, object: &str) {
    egress.frames.clear();
    let mut payload = a2a(MessageKind::Request, CORRELATION, method, object);
    payload.safety = Some(label());
    payload.stream_control = Some(StreamControl::resume(cursor));
    egress.payload(&payload);
}

/// Frame types and event_ids that came out since the last look.
fn sent(egress: &mut End) -> Vec<(u16, u64)> {
    let frames = std::mem::take(&mut egress.frames);
    frames
        .iter()
        .map(|frame| {
            let control = frame.decode().stream_control.expect("a stream frame");
            assert!(control.resumable);
            (frame.kind, control.event_id)
        })
        .collect()
}

fn refused(egress: &mut End, code: TransportCode, refusal: Refusal) {
    let frame = egress.one_frame();
    assert_eq!(frame.correlation_id(), CORRELATION);
    assert_eq!(frame.transport_error().0, code, "{refusal:?}");
    assert_eq!(egress.stats.requests_refused.get(refusal), 1);
    assert_eq!(egress.stats.requests_refused.total(), 1);
    assert!(egress.dispatches.is_empty(), "never a restart");
}

fn with_stream(stream: StreamConfig) -> End {
    let config = MapperConfig {
        stream,
        ..MapperConfig::default()
    };
    End::with(config, info(Side::Responder))
}

/// NPAMP-CC-STREAM §6.3, ruling R17: any cursor that was sent is resumed from, the end included,
/// which whoever has it gets again, empty.
#[test]
fn resumes_from_any_cursor() {
    for with_object in [false, true] {
        for cursor in 0..=4 {
            let mut egress = End::egress();
            let exchange = begin(&mut egress, 3);
            egress.agent(
                exchange,
                event(&result_json(
                    "1",
                    r#"{"final":true,"kind":"status-update"}"#,
                )),
            );
            // Ended, and its association is still there.
            if cursor % 2 == 0 {
                egress.down();
                egress.up(8, info(Side::Responder));
            }
            let object = request_json("1", METHOD);
            resume_as(
                &mut egress,
                cursor,
                METHOD,
                if with_object { &object } else { "" },
            );
            let last = egress.frames.last().cloned().unwrap();
            let want: Vec<_> = (cursor + 1..=4)
                .map(|id| (if id == 4 { END } else { DATA }, id))
                .collect();
            if cursor == 4 {
                assert_eq!(sent(&mut egress), [(END, 4)]);
            } else {
                assert_eq!(sent(&mut egress), want);
            }
            assert!(last.decode().envelope.flags.is_final());
            assert_eq!(last.decode().foreign.is_empty(), cursor == 4);
            egress.assert_idle();
            // And once more, the end only.
            resume(&mut egress, 4);
            assert_eq!(sent(&mut egress), [(END, 4)]);
            assert!(egress.dispatches.is_empty());
        }
    }
}

/// Ruling R17: a cursor beyond what was sent is refused, and harms nothing.
#[test]
fn a_cursor_beyond_what_was_sent_is_refused() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 2);
    egress.down();
    // Kept, but not sent yet.
    egress.agent(exchange, event(&numbered(3)));
    egress.up(8, info(Side::Responder));
    resume(&mut egress, 3);
    refused(
        &mut egress,
        TransportCode::NOT_RESUMABLE,
        Refusal::CursorAhead,
    );
    resume(&mut egress, 2);
    assert_eq!(sent(&mut egress), [(DATA, 3)]);
}

/// Ruling R17: the events in flight of a live stream could not be told from the resumed run.
#[test]
fn a_live_stream_is_not_resumed_on_its_association() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 2);
    resume(&mut egress, 1);
    refused(
        &mut egress,
        TransportCode::ENVELOPE_MALFORMED,
        Refusal::CorrelationOutstanding,
    );
    egress.agent(exchange, event(&numbered(3)));
    assert_eq!(sent(&mut egress), [(DATA, 3)]);
}

/// Ruling R17: on another association it is: the old one is detached, whether this end has
/// noticed or not that it is gone.
#[test]
fn a_stream_leaves_an_association_that_its_consumer_has_left() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 3);
    let old = egress.association;
    egress.frames.clear();
    egress.up(8, info(Side::Responder));
    resume(&mut egress, 1);
    assert_eq!(sent(&mut egress), [(DATA, 2), (DATA, 3)]);
    // The old association's queue, which may be full, paces the agent no more.
    assert_eq!(egress.pauses, [(exchange, false)]);
    egress.input(Input::Down {
        association: old,
        reason: DownReason("late".into()),
    });
    egress.agent(exchange, event(&numbered(4)));
    egress.agent(exchange, AgentEvent::StreamEnd);
    assert_eq!(sent(&mut egress), [(DATA, 4), (END, 5)]);
    assert!(egress.cancels.is_empty());
    egress.assert_idle();
}

/// Ruling R11: a stream is its consumer's alone: identity, server name and correlation_id.
#[test]
fn streams_of_others_are_unknown() {
    let others: [fn(&mut AssociationInfo); 2] = [
        |info| info.peer = "ed25519:another".into(),
        |info| info.server_name = "literature.other.example".into(),
    ];
    for other in others {
        let mut egress = End::egress();
        begin(&mut egress, 2);
        egress.down();
        let mut theirs = info(Side::Responder);
        other(&mut theirs);
        egress.up(8, theirs);
        resume(&mut egress, 1);
        refused(
            &mut egress,
            TransportCode::NOT_RESUMABLE,
            Refusal::NotResumable,
        );
    }
}

/// NPAMP-CC-STREAM §12: a resume request passes what a fresh request must; it names the stream's
/// own method, so that no milder one can stand in for it.
#[test]
fn policy_is_applied_again() {
    let mut egress = End::egress();
    begin(&mut egress, 2);
    egress.down();
    egress.up(8, info(Side::Responder));
    resume_as(&mut egress, 1, "tasks/resubscribe", "");
    refused(
        &mut egress,
        TransportCode::ENVELOPE_MALFORMED,
        Refusal::MethodDiffers,
    );

    let registry = Arc::new(StreamRegistry::default());
    let mut egress = among(&registry, 0, MapperConfig::default());
    egress.up(7, info(Side::Responder));
    begin(&mut egress, 2);
    egress.down();
    let strict = MapperConfig {
        allow: EffectSet::of(&[0]),
        ..MapperConfig::default()
    };
    let mut other = among(&registry, 1, strict);
    other.up(8, info(Side::Responder));
    resume(&mut other, 1);
    refused(
        &mut other,
        TransportCode::SAFETY_POLICY,
        Refusal::SafetyPolicy,
    );
}

/// NPAMP-CC-STREAM §6.1, §6.3: what is no longer held is refused, never presented with a gap.
#[test]
fn the_oldest_events_go_first() {
    let mut egress = with_stream(StreamConfig {
        replay_events: 4,
        ..StreamConfig::default()
    });
    begin(&mut egress, 10);
    let id = "1".len();
    let held = egress.stats.replay_octets.get() as usize - id;
    assert_eq!(
        held,
        (7..=10)
            .map(|n| numbered(n).len() + limits::HELD_EVENT_OCTETS)
            .sum::<usize>()
    );
    egress.down();
    egress.up(8, info(Side::Responder));
    resume(&mut egress, 5);
    refused(
        &mut egress,
        TransportCode::NOT_RESUMABLE,
        Refusal::NotResumable,
    );
    resume(&mut egress, 6);
    assert_eq!(
        sent(&mut egress),
        [(DATA, 7), (DATA, 8), (DATA, 9), (DATA, 10)]
    );

    let octets = 3 * (numbered(1).len() + limits::HELD_EVENT_OCTETS);
    let mut egress = with_stream(StreamConfig {
        replay_octets: octets,
        ..StreamConfig::default()
    });
    begin(&mut egress, 9);
    assert_eq!(egress.stats.replay_octets.get() as usize, octets + id);
}

/// NPAMP-CC-STREAM §6.1: while nobody takes the events the agent is paused, none is dropped;
/// it goes on when there is room.
#[test]
fn the_agent_is_paused_when_the_buffer_is_full() {
    let mut egress = with_stream(StreamConfig {
        replay_events: 4,
        ..StreamConfig::default()
    });
    let exchange = begin(&mut egress, 2);
    egress.down();
    egress.agent(exchange, event(&numbered(3)));
    assert!(egress.pauses.is_empty());
    egress.agent(exchange, event(&numbered(4)));
    assert_eq!(egress.pauses, [(exchange, true)]);
    // What had been read already is kept, too.
    egress.agent(exchange, event(&numbered(5)));
    egress.agent(exchange, event(&numbered(6)));
    egress.up(8, info(Side::Responder));
    egress.roomy = false;
    resume(&mut egress, 1);
    egress.no_frame();
    assert_eq!(egress.pauses, [(exchange, true)]);
    let rooms = std::mem::take(&mut egress.rooms);
    assert_eq!(rooms, [(AssociationId(8), MapperId(0))]);
    egress.input(Input::Room {
        association: AssociationId(8),
    });
    assert_eq!(
        sent(&mut egress),
        [(DATA, 2), (DATA, 3), (DATA, 4), (DATA, 5), (DATA, 6)]
    );
    assert_eq!(egress.pauses, [(exchange, true), (exchange, false)]);
    // Without room the agent is paused again.
    for n in 7..=10 {
        egress.agent(exchange, event(&numbered(n)));
    }
    egress.no_frame();
    assert_eq!(egress.pauses.last(), Some(&(exchange, true)));
    assert_eq!(egress.rooms.len(), 1, "asked once");
}

/// A replay leaves in bursts, each as large as a queue can take.
#[test]
fn a_replay_waits_for_room() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 0);
    let large = result_json("1", &format!("\"{}\"", "x".repeat(100_000)));
    for _ in 0..10 {
        egress.agent(exchange, event(&large));
    }
    egress.down();
    egress.up(8, info(Side::Responder));
    egress.roomy = false;
    resume(&mut egress, 0);
    let mut total = 0;
    let mut bursts = 0;
    while let Some((association, _)) = egress.rooms.pop() {
        egress.input(Input::Room { association });
        let burst: usize = egress.frames.iter().map(|frame| frame.octets.len()).sum();
        assert!(burst < limits::REPLAY_BURST_OCTETS + 2 * large.len());
        total += sent(&mut egress).len();
        bursts += 1;
    }
    assert_eq!((total, bursts), (10, 5));
}

/// NPAMP-CC-STREAM §12: retention ends: the agent is let go, the state is gone, and the
/// consumer is refused.
#[test]
fn retention_ends() {
    for ended in [false, true] {
        let mut egress = End::egress();
        let exchange = begin(&mut egress, 2);
        if ended {
            egress.agent(exchange, AgentEvent::StreamEnd);
        } else {
            egress.down();
        }
        assert_eq!(egress.stats.kept.get(), 1);
        let due = egress.mapper.poll_timeout();
        assert_eq!(due, Some(egress.now + limits::RETENTION_TIME));
        egress.pass_time(limits::RETENTION_TIME.mul_f32(0.9));
        assert_eq!(egress.stats.kept.get(), 1);
        egress.pass_time(limits::RETENTION_TIME.mul_f32(0.11));
        assert_eq!(egress.cancels.len(), usize::from(!ended));
        assert_eq!(egress.stats.kept.get(), 0);
        assert_eq!(egress.stats.replay_octets.get(), 0);
        assert_eq!(
            egress.stats.resumption.get(Resumption::Expired),
            u64::from(!ended)
        );
        assert_eq!(egress.mapper.poll_timeout(), None);
        egress.assert_idle();
        egress.up(8, info(Side::Responder));
        resume(&mut egress, 1);
        refused(
            &mut egress,
            TransportCode::NOT_RESUMABLE,
            Refusal::NotResumable,
        );
    }
}

/// A stream that was resumed has no end of retention until it is left again.
#[test]
fn a_resumed_stream_stays() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 1);
    egress.down();
    egress.pass_time(limits::RETENTION_TIME / 2);
    egress.up(8, info(Side::Responder));
    resume(&mut egress, 1);
    egress.pass_time(limits::RETENTION_TIME * 2);
    egress.agent(exchange, event(&numbered(2)));
    assert_eq!(sent(&mut egress), [(DATA, 2)]);
    assert!(egress.cancels.is_empty());
}

/// NPAMP-CC-STREAM §7.2: a cancelled stream is never resumed, whether the cancel came in time or not.
#[test]
fn a_cancelled_stream_is_not_resumed() {
    for ended in [false, true] {
        let mut egress = End::egress();
        let exchange = begin(&mut egress, 2);
        if ended {
            egress.agent(exchange, AgentEvent::StreamEnd);
        }
        egress.frames.clear();
        let mut cancel = a2a(MessageKind::StreamEnd, CORRELATION, "", "");
        cancel.stream_control = Some(StreamControl::cancel(1));
        egress.payload(&cancel);
        if ended {
            egress.no_frame();
            assert_eq!(egress.stats.dropped.get(Dropped::MootCancel), 1);
        } else {
            let ack = egress.one_frame();
            let control = ack.decode().stream_control;
            assert_eq!(control, Some(StreamControl::cancel_ack(2)));
        }
        assert_eq!(egress.stats.kept.get(), 0);
        egress.down();
        egress.up(8, info(Side::Responder));
        resume(&mut egress, 1);
        refused(
            &mut egress,
            TransportCode::NOT_RESUMABLE,
            Refusal::NotResumable,
        );
        egress.assert_idle();
    }
}

fn among(registry: &Arc<StreamRegistry>, id: usize, config: MapperConfig) -> End {
    let budget = Arc::new(OctetBudget::default());
    let mapper =
        Mapper::new(config, Box::new(Agents), budget.clone()).among(registry.clone(), MapperId(id));
    End::of(mapper, budget)
}

/// NPAMP-CC-STREAM §12: the process's bound: ended streams go first, then a live stream is no
/// longer resumable, and a detached one is broken.
#[test]
fn the_process_keeps_so_much_and_no_more() {
    let one = numbered(1).len() + limits::HELD_EVENT_OCTETS;
    // Beside the events the ids of the two streams, and not as much as another event takes.
    let octets_max = 3 * one + limits::HELD_EVENT_OCTETS + 2 * "1".len();
    let registry = Arc::new(StreamRegistry::new(octets_max));
    let mut egress = among(&registry, 0, MapperConfig::default());
    egress.up(7, info(Side::Responder));
    let first = begin(&mut egress, 1);
    egress.agent(first, AgentEvent::StreamEnd);
    egress.frames.clear();
    let second = begin(&mut egress, 2);
    assert_eq!(egress.stats.kept.get(), 2);
    egress.agent(second, event(&numbered(3)));
    assert_eq!(egress.stats.resumption.get(Resumption::Evicted), 1);
    assert_eq!(sent(&mut egress), [(DATA, 1), (DATA, 2), (DATA, 3)]);
    egress.agent(second, event(&numbered(4)));
    assert_eq!(
        egress.one_frame().decode().stream_control,
        Some(StreamControl::data(4)),
        "no longer resumable"
    );
    assert_eq!((registry.octets().held(), registry.len()), (0, 0));
    egress.down();
    assert_eq!(egress.cancels, [second]);

    egress.cancels.clear();
    egress.up(8, info(Side::Responder));
    let third = begin(&mut egress, 1);
    egress.down();
    for n in 2..=4 {
        egress.agent(third, event(&numbered(n)));
    }
    assert_eq!(egress.cancels, [third]);
    assert_eq!((registry.octets().held(), registry.len()), (0, 0));
    egress.assert_idle();
}

/// NPAMP-CC-STREAM §12: a stream is kept with the id of its Request, which its peer chose and
/// which counts: one too long for the process's bound is not kept.
#[test]
fn a_long_id_counts() {
    let id = format!("\"{}\"", "i".repeat(10_000));
    for (octets_max, kept) in [(45_000, 2), (25_000, 1), (15_000, 0)] {
        let registry = Arc::new(StreamRegistry::new(octets_max));
        let mut egress = among(&registry, 0, MapperConfig::default());
        egress.up(7, info(Side::Responder));
        for correlation_id in [b"one", b"two"] {
            let object = request_json(&id, METHOD);
            egress.payload(&a2a(MessageKind::Request, correlation_id, METHOD, &object));
            let (exchange, _) = egress.one_dispatch();
            egress.agent(exchange, AgentEvent::StreamOpen);
            egress.agent(exchange, event(&result_json(&id, "1")));
        }
        let held = registry.octets().held();
        assert!(
            (kept * 20_000..=octets_max).contains(&held) || kept == 0,
            "{held}"
        );
        assert_eq!(egress.stats.kept.get(), kept as u64);
        egress.down();
        egress.pass_time(limits::RETENTION_TIME);
        assert_eq!((registry.octets().held(), registry.len()), (0, 0));
        egress.assert_idle();
    }
}

/// Two mappers of one process, as two units or two workers are.
struct Two {
    ends: [End; 2],
}

impl Two {
    fn new() -> Self {
        let registry = Arc::new(StreamRegistry::default());
        Self {
            ends: [0, 1].map(|id| among(&registry, id, MapperConfig::default())),
        }
    }

    /// Hands over what each has for the other; frames for the second's association go out there.
    fn settle(&mut self) {
        loop {
            let forwards: Vec<_> = self
                .ends
                .iter_mut()
                .flat_map(|end| std::mem::take(&mut end.forwards))
                .collect();
            if forwards.is_empty() {
                return;
            }
            for (mapper, message) in forwards {
                self.ends[mapper.0].input(Input::Stream(message));
            }
        }
    }

    fn agent(&mut self, exchange: ExchangeId, news: AgentEvent) {
        self.ends[0].agent(exchange, news);
        self.settle();
    }

    /// The first has a stream of so many events, and its consumer comes back to the second.
    fn moved(count: u64, cursor: u64) -> (Self, ExchangeId) {
        let mut two = Self::new();
        two.ends[0].up(7, info(Side::Responder));
        let exchange = begin(&mut two.ends[0], count);
        two.ends[0].down();
        two.ends[0].frames.clear();
        two.ends[0].association = AssociationId(8);
        two.ends[1].up(8, info(Side::Responder));
        resume(&mut two.ends[1], cursor);
        two.settle();
        (two, exchange)
    }
}

/// The consumer may come back to another mapper than the one that has its stream.
#[test]
fn a_stream_is_found_by_another_mapper() {
    let (mut two, exchange) = Two::moved(3, 1);
    assert_eq!(sent(&mut two.ends[0]), [(DATA, 2), (DATA, 3)]);
    // While it is live there, it is not resumed there.
    resume(&mut two.ends[1], 1);
    refused(
        &mut two.ends[1],
        TransportCode::ENVELOPE_MALFORMED,
        Refusal::CorrelationOutstanding,
    );
    two.agent(exchange, event(&numbered(4)));
    two.agent(exchange, AgentEvent::StreamEnd);
    assert_eq!(sent(&mut two.ends[0]), [(DATA, 4), (END, 5)]);
    two.ends[0].assert_idle();
    // Its exchange is answered, so that it can be asked for again.
    resume(&mut two.ends[1], 4);
    two.settle();
    assert_eq!(sent(&mut two.ends[0]), [(END, 5)]);
    for end in &two.ends {
        assert!(end.dispatches.is_empty() && end.cancels.is_empty());
    }
}

/// A refusal comes from the mapper that has the stream, and frees the exchange at the other.
#[test]
fn another_mapper_refuses() {
    for _ in 0..2 {
        let (mut two, _) = Two::moved(2, 3);
        refused(
            &mut two.ends[0],
            TransportCode::NOT_RESUMABLE,
            Refusal::CursorAhead,
        );
        resume(&mut two.ends[1], 2);
        two.settle();
        two.ends[1].no_frame();
    }
}

/// The association of the other mapper is lost in turn; the stream waits where it is.
#[test]
fn a_stream_is_lost_by_another_mapper() {
    let (mut two, exchange) = Two::moved(2, 2);
    two.ends[1].down();
    two.settle();
    two.agent(exchange, event(&numbered(3)));
    two.ends[0].no_frame();
    two.ends[0].up(9, info(Side::Responder));
    resume(&mut two.ends[0], 2);
    assert_eq!(sent(&mut two.ends[0]), [(DATA, 3)]);
    assert_eq!(two.ends[0].stats.resumption.get(Resumption::Resumed), 2);
}

/// A cancel that reaches the other mapper ends the stream where it is.
#[test]
fn a_stream_is_cancelled_at_another_mapper() {
    let (mut two, exchange) = Two::moved(2, 2);
    let mut cancel = a2a(MessageKind::StreamEnd, CORRELATION, "", "");
    cancel.stream_control = Some(StreamControl::cancel(2));
    two.ends[1].payload(&cancel);
    two.settle();
    let ack = two.ends[0].one_frame();
    assert_eq!(
        ack.decode().stream_control,
        Some(StreamControl::cancel_ack(2))
    );
    assert_eq!(two.ends[0].cancels, [exchange]);
    two.ends[0].assert_idle();
    resume(&mut two.ends[1], 2);
    refused(
        &mut two.ends[1],
        TransportCode::NOT_RESUMABLE,
        Refusal::NotResumable,
    );
}

/// What is kept is a copy: it does not hold on to what it came in.
#[test]
fn kept_events_are_small() {
    let mut egress = End::egress();
    let exchange = begin(&mut egress, 0);
    let chunk = Bytes::from(numbered(1).into_bytes());
    egress.agent(exchange, AgentEvent::StreamEvent(chunk.clone()));
    assert!(chunk.is_unique());
}

/// A peer may count its correlation_ids afresh on each association: a cancel means the stream of
/// its own association.
#[test]
fn a_cancel_means_its_own_association() {
    let mut egress = End::egress();
    let first = begin(&mut egress, 1);
    egress.frames.clear();
    egress.up(8, info(Side::Responder));
    let second = begin(&mut egress, 2);
    egress.frames.clear();
    let mut cancel = a2a(MessageKind::StreamEnd, CORRELATION, "", "");
    cancel.stream_control = Some(StreamControl::cancel(0));
    for (association, exchange, tail) in [(ASSOCIATION, first, 1), (AssociationId(8), second, 2)] {
        egress.association = association;
        egress.payload(&cancel);
        let ack = egress.one_frame();
        assert_eq!(
            ack.decode().stream_control,
            Some(StreamControl::cancel_ack(tail))
        );
        assert_eq!(egress.cancels.pop(), Some(exchange));
    }
    assert_eq!(egress.stats.kept.get(), 0);
    egress.assert_idle();
}
