//! Streams through both mappers: NPAMP-CC-STREAM and NPAMP-MAP-A2A §6.

use crate::harness::*;
use npamp_relay::a2a::port::{AgentEvent, CallEvent};
use npamp_relay::a2a::stats::{Dropped, Outcome};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::stream_control::{Control, StreamControl};
use npamp_relay::bridge::transport_error::TransportCode;

const FINAL: &str = r#"{"final":true,"kind":"status-update","status":{"state":"completed"}}"#;

fn open(pair: &mut Pair) -> npamp_relay::a2a::port::ExchangeId {
    let (exchange, _) = pair.ask(1, &request_json("1", "message/stream"));
    pair.agent(exchange, AgentEvent::StreamOpen);
    exchange
}

/// NPAMP-CC-STREAM §4, §5.1, NPAMP-MAP-A2A §6: DATA from 1, strictly rising, verbatim, with
/// the resumable flag; a final status-update is END with the final bit; nothing after it.
#[test]
fn a_v03_stream_ends_with_its_final_status_update() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair);
    let events = [
        result_json("1", r#"{"kind":"task","id":"t"}"#),
        result_json("1.0", r#"{"kind":"status-update","final":false}"#),
        result_json("1", r#"{ "kind":"artifact-update" }"#),
        result_json("1", FINAL),
    ];
    for data in &events {
        pair.agent(exchange, event(data));
    }
    assert_eq!(pair.egress.finishes, [exchange]);
    assert!(pair.egress.cancels.is_empty());
    pair.agent(exchange, event(&events[0]));
    pair.agent(exchange, AgentEvent::StreamEnd);
    assert_eq!(pair.egress.stats.dropped.get(Dropped::AgentEvent), 1);

    let ask = pair.passed[0].1.correlation_id();
    assert_eq!(pair.back(), [DATA, DATA, DATA, END]);
    for (at, (_, frame)) in pair.passed[1..].iter().enumerate() {
        let decoded = frame.decode();
        assert_eq!(decoded.envelope.correlation_id, ask);
        assert_eq!(decoded.envelope.flags.is_final(), at == 3);
        assert_eq!(decoded.envelope.method, "");
        assert_eq!(decoded.foreign, events[at].as_bytes());
        assert_eq!(
            decoded.stream_control,
            Some(StreamControl::resumable(at as u64 + 1))
        );
    }
    for (at, (_, seen)) in pair.ingress.calls.iter().enumerate() {
        assert_eq!(seen.is_last(), at == 3);
        match seen {
            CallEvent::StreamEvent { event_id, object } => {
                assert_eq!(*event_id, at as u64 + 1);
                assert_eq!(object, events[at].as_bytes());
            }
            CallEvent::StreamEnd { event_id, object } => {
                assert_eq!(*event_id, 4);
                assert_eq!(object.as_ref().unwrap(), events[3].as_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
    assert_eq!(pair.ingress.stats.requester.total(Outcome::StreamEnd), 1);
}

/// Ruling R15: without a final event the orderly close is an empty END, for an empty stream too.
#[test]
fn an_orderly_close_is_an_empty_end() {
    for count in [0, 3] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair);
        for _ in 0..count {
            pair.agent(exchange, event(&result_json("1", r#"{"statusUpdate":{}}"#)));
        }
        pair.agent(exchange, AgentEvent::StreamEnd);
        let (_, last) = pair.passed.last().unwrap();
        let decoded = last.decode();
        assert_eq!(last.kind, END);
        assert!(decoded.envelope.flags.is_final());
        assert!(decoded.foreign.is_empty());
        // Nobody can come back for what had no event.
        let control = StreamControl {
            resumable: count > 0,
            ..StreamControl::data(count + 1)
        };
        assert_eq!(decoded.stream_control, Some(control));
        match pair.ingress.calls.last() {
            Some((_, CallEvent::StreamEnd { event_id, object })) => {
                assert_eq!((*event_id, object.is_none()), (count + 1, true));
            }
            other => panic!("{other:?}"),
        }
        assert!(pair.egress.cancels.is_empty());
        pair.egress.assert_idle();
    }
}

/// Ruling R15: a broken agent connection is NotDelivered with an event_id, never an END.
#[test]
fn a_broken_stream_is_visible() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair);
    pair.agent(exchange, event(&result_json("1", "{}")));
    pair.agent(
        exchange,
        AgentEvent::Failed {
            message: "reset".into(),
            timed_out: false,
        },
    );
    assert_eq!(pair.back(), [DATA, ERROR]);
    let (_, last) = pair.passed.last().unwrap();
    assert_eq!(last.transport_error().0, TransportCode::NOT_DELIVERED);
    assert_eq!(
        last.decode().stream_control,
        Some(StreamControl::resumable(2))
    );
    assert!(matches!(
        pair.ingress.calls.last(),
        Some((_, CallEvent::TransportError(error))) if error.code == 4
    ));
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
}

/// Ruling R15, NPAMP-CC-JSONRPC §6: an error Response inside a stream ends it, verbatim.
#[test]
fn an_error_inside_a_stream_is_verbatim() {
    for before in [0, 2] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair);
        for _ in 0..before {
            pair.agent(exchange, event(&result_json("1", "{}")));
        }
        let error = error_json("1", -32004);
        pair.agent(exchange, event(&error));
        let (_, last) = pair.passed.last().unwrap();
        assert_eq!(last.kind, ERROR);
        assert_eq!(
            last.decode().stream_control,
            Some(StreamControl {
                resumable: before > 0,
                ..StreamControl::data(before + 1)
            })
        );
        match pair.ingress.calls.last() {
            Some((_, CallEvent::StreamError { event_id, object })) => {
                assert_eq!(*event_id, before + 1);
                assert_eq!(object, error.as_bytes());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(pair.egress.finishes, [exchange]);
        assert!(pair.egress.cancels.is_empty());
        pair.egress.assert_idle();
    }
}

/// An event that is no Response of this exchange breaks the stream.
#[test]
fn an_event_that_is_no_response_breaks_the_stream() {
    for data in ["", "hello", "{}", &result_json("2", "{}"), "[]"] {
        let mut pair = Pair::new();
        let exchange = open(&mut pair);
        pair.agent(exchange, event(data));
        assert_eq!(pair.back(), [ERROR]);
        let (code, _) = pair.ingress.one_transport_error();
        assert_eq!(code, TransportCode::NOT_DELIVERED);
        assert_eq!(pair.egress.cancels, [exchange]);
        pair.egress.assert_idle();
    }
}

/// Ruling R27: the agent's content type decides, not the method.
#[test]
fn the_agents_answer_decides_between_stream_and_response() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "message/stream"));
    pair.agent(exchange, body(200, &error_json("1", -32004)));
    assert!(matches!(
        pair.ingress.one_event(),
        CallEvent::ErrorResponse(_)
    ));
    assert_eq!(pair.passed[1].1.decode().stream_control, None);
    let (exchange, _) = pair.ask(2, &request_json("1", "message/send"));
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.agent(exchange, event(&result_json("1", "{}")));
    assert!(matches!(
        pair.ingress.one_event(),
        CallEvent::StreamEvent { event_id: 1, .. }
    ));
    // A body in a stream, and an end without any answer.
    pair.agent(exchange, body(200, &result_json("1", "{}")));
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    let (exchange, _) = pair.ask(3, &request_json("1", "message/send"));
    pair.agent(exchange, AgentEvent::StreamEnd);
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
}

/// NPAMP-CC-STREAM §7.1, §7.2, §7.3: a caller that leaves a stream cancels it upstream; the
/// producer stops and acknowledges once with its true tail; frames in flight are discarded.
#[test]
fn leaving_a_stream_cancels_it() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair);
    pair.agent(exchange, event(&result_json("1", "1")));
    pair.agent(exchange, event(&result_json("1", "2")));
    // One more is in flight when the caller leaves.
    pair.egress.agent(exchange, event(&result_json("1", "3")));
    pair.ingress.calls.clear();
    pair.ingress.gone(1);
    let cancel = pair.ingress.frames[0].clone();
    assert_eq!(cancel.kind, END);
    let decoded = cancel.decode();
    assert_eq!(decoded.stream_control, Some(StreamControl::cancel(2)));
    assert_eq!(
        decoded.envelope.correlation_id,
        pair.passed[0].1.correlation_id()
    );
    pair.ingress.assert_idle();
    pair.pass();
    assert_eq!(pair.egress.cancels, [exchange]);
    let (_, ack) = pair.passed.last().unwrap();
    assert_eq!(ack.kind, END);
    let decoded = ack.decode();
    assert!(decoded.envelope.flags.is_final());
    assert_eq!(decoded.stream_control, Some(StreamControl::cancel_ack(3)));
    assert!(decoded.foreign.is_empty());
    assert!(pair.ingress.calls.is_empty());
    let dropped = &pair.ingress.stats.dropped;
    assert_eq!(dropped.get(Dropped::AbandonedReply), 2);
    pair.agent(exchange, event(&result_json("1", "4")));
    assert_eq!(pair.back(), [DATA, DATA, DATA, END]);
    pair.egress.assert_idle();
    assert_eq!(pair.egress.stats.cancels_received.get(), 1);
    assert_eq!(pair.ingress.stats.cancels_sent.get(), 1);
    assert_eq!(
        pair.egress.stats.responder.total(Outcome::TransportError),
        0
    );
}

/// NPAMP-CC-STREAM §7.1, §7.2: a cancel before the first event names 0 both ways.
#[test]
fn cancelling_before_the_first_event() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "SendStreamingMessage"));
    pair.ingress.gone(1);
    pair.pass();
    assert_eq!(pair.egress.cancels, [exchange]);
    let (_, ack) = pair.passed.last().unwrap();
    let control = ack.decode().stream_control;
    assert_eq!(control, Some(StreamControl::cancel_ack(0)));
    pair.egress.assert_idle();
}

/// NPAMP-CC-STREAM §7.2: after the natural END a cancel is moot and gets no second END.
#[test]
fn a_cancel_after_the_end_is_moot() {
    let mut pair = Pair::new();
    let exchange = open(&mut pair);
    pair.egress.agent(exchange, event(&result_json("1", FINAL)));
    pair.ingress.gone(1);
    pair.pass();
    assert_eq!(pair.back(), [END]);
    assert_eq!(pair.egress.stats.dropped.get(Dropped::MootCancel), 1);
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
}

/// A forgotten unary call whose agent streams after all is cancelled once.
#[test]
fn a_forgotten_call_that_streams_is_cancelled() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "message/send"));
    pair.ingress.gone(1);
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.egress.agent(exchange, event(&result_json("1", "1")));
    pair.egress.agent(exchange, event(&result_json("1", "2")));
    pair.pass();
    let cancels = pair
        .passed
        .iter()
        .filter(|(to_egress, frame)| *to_egress && frame.kind == END)
        .count();
    assert_eq!(cancels, 1);
    assert_eq!(pair.egress.cancels, [exchange]);
    pair.egress.assert_idle();
}

fn streaming_call() -> (End, Vec<u8>) {
    let mut ingress = End::ingress();
    ingress.call(1, &request_json("1", "message/stream"));
    let correlation_id = ingress.one_frame().correlation_id();
    (ingress, correlation_id)
}

/// NPAMP-CC-STREAM §5.1, §9: an event_id that does not rise fails the exchange with
/// EnvelopeMalformed, and the producer is told to stop; the event is not shown.
#[test]
fn event_ids_must_rise() {
    for bad in [0, 4, 5] {
        let (mut ingress, correlation_id) = streaming_call();
        let object = result_json("1", "{}");
        let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
        // Gaps are allowed.
        for event_id in [1, 2, 5] {
            data.stream_control = Some(StreamControl::data(event_id));
            ingress.payload(&data);
        }
        assert_eq!(ingress.calls.len(), 3);
        ingress.calls.clear();
        data.stream_control = Some(StreamControl::data(bad));
        ingress.payload(&data);
        let (code, _) = ingress.one_transport_error();
        assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
        let cancel = ingress.one_frame();
        let control = cancel.decode().stream_control.unwrap();
        assert_eq!((control.control, control.event_id), (Control::Cancel, 5));
        ingress.assert_idle();
    }
}

/// NPAMP-CC-STREAM §5.1: the END's event_id exceeds every data frame's.
#[test]
fn the_end_must_exceed_the_data() {
    for (event_id, passes) in [(1, false), (2, false), (3, true), (9, true)] {
        let (mut ingress, correlation_id) = streaming_call();
        let object = result_json("1", "{}");
        let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
        data.stream_control = Some(StreamControl::data(2));
        ingress.payload(&data);
        ingress.calls.clear();
        let mut end = a2a(MessageKind::StreamEnd, &correlation_id, "", "");
        end.stream_control = Some(StreamControl::data(event_id));
        ingress.payload(&end);
        let last = ingress.one_event();
        assert_eq!(matches!(last, CallEvent::StreamEnd { .. }), passes);
        ingress.assert_idle();
    }
}

/// NPAMP-CC-STREAM §4, §9: stream frames need a well-formed StreamControl that says data.
#[test]
fn stream_frames_need_a_stream_control() {
    let object = result_json("1", "{}");
    let controls = [
        None,
        Some(StreamControl::resume(1)),
        Some(StreamControl::cancel_ack(1)),
    ];
    for control in controls {
        for kind in [MessageKind::StreamData, MessageKind::StreamEnd] {
            let (mut ingress, correlation_id) = streaming_call();
            let mut data = a2a(kind, &correlation_id, "", &object);
            data.stream_control = control;
            ingress.payload(&data);
            let (code, _) = ingress.one_transport_error();
            assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
            ingress.assert_idle();
        }
    }
    let (mut ingress, correlation_id) = streaming_call();
    let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
    data.stream_control = Some(StreamControl::data(1));
    let mut octets = npamp_relay::bridge::payload::encode(DATA, &data).unwrap();
    let version_at = octets.len() - object.len() - 11;
    octets[version_at] = 2;
    ingress.frame(BRIDGE, DATA, &octets);
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
    assert!(ingress.channel_errors.is_empty());
}

/// NPAMP-BRIDGE §4: reserved envelope flags are ignored on a stream frame.
#[test]
fn reserved_flags_are_ignored() {
    let (mut ingress, correlation_id) = streaming_call();
    let object = result_json("1", "{}");
    let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
    data.envelope.flags.0 = 0xfe;
    data.stream_control = Some(StreamControl {
        resumable: true,
        ..StreamControl::data(1)
    });
    ingress.payload(&data);
    assert!(matches!(ingress.one_event(), CallEvent::StreamEvent { .. }));
}
