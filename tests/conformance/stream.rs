//! NPAMP-CC-STREAM §13 for the streams that the A2A mapping carries; clause 7 is in `duplex`.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{error_json, event, info, request_json, result_json};
use npamp_relay::a2a::port::{AgentEvent, CallEvent, ExchangeId, Side};

const METHOD: &str = "message/stream";
const FINAL: &str = r#"{"kind":"status-update","final":true,"status":{"state":"completed"}}"#;

fn object() -> String {
    request_json("1", METHOD)
}

fn numbered(n: u64) -> String {
    result_json("1", &n.to_string())
}

/// A relay that produces: the peer asked, the agent streams `count` events.
fn producing(count: u64) -> (Exchange, ExchangeId) {
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", METHOD, &object()).label(2));
    let exchange = egress.reaches_agent(&object());
    egress.agent(exchange, AgentEvent::StreamOpen);
    for n in 1..=count {
        egress.agent(exchange, event(&numbered(n)));
        egress.emits(&[Frame::data(b"corr", n, &numbered(n))]);
    }
    (egress, exchange)
}

/// A relay that consumes: its request went, `count` events came.
fn consuming(count: u64) -> (Exchange, Vec<u8>) {
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1");
    ingress.end.call(1, &object());
    ingress.emits(&[Frame::request(&id, METHOD, &object()).label(2)]);
    for n in 1..=count {
        ingress.peer(&Frame::data(&id, n, &numbered(n)));
        told_event(&mut ingress, n);
    }
    (ingress, id)
}

#[track_caller]
fn told_event(ingress: &mut Exchange, n: u64) {
    let told = ingress.told_one();
    assert!(
        matches!(&told, CallEvent::StreamEvent { event_id, object }
            if *event_id == n && *object == numbered(n)),
        "{}told {told:?}",
        ingress.recording()
    );
}

/// The association is lost and another one comes up.
fn reconnect(relay: &mut Exchange, side: Side) {
    relay.end.down();
    relay.end.up(8, info(side));
}

/// NPAMP-CC-STREAM §13 (1): a complete stream is DATA frames and one END with the
/// `final` bit, each with the request's correlation_id, its event untouched.
#[test]
fn clause_1_a_complete_stream() {
    let odd = " {\"id\":1 ,\"result\":{\"a\":1e400,\"a\":\"\\u00e9\"},\"jsonrpc\":\"2.0\"}\n";
    let last = result_json("1", FINAL);
    let (mut egress, exchange) = producing(2);
    egress.agent(exchange, event(odd));
    egress.agent(exchange, event(&last));
    egress.emits(&[Frame::data(b"corr", 3, odd), Frame::end(b"corr", 4, &last)]);
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits_nothing();

    let (mut ingress, id) = consuming(2);
    ingress.peer(&Frame::data(&id, 3, odd));
    assert!(
        matches!(ingress.told_one(), CallEvent::StreamEvent { event_id: 3, object } if object == odd)
    );
    ingress.peer(&Frame::end(&id, 4, &last));
    assert!(
        matches!(ingress.told_one(), CallEvent::StreamEnd { event_id: 4, object: Some(object) } if object == last)
    );
    ingress.emits_nothing();
    // A foreign error inside the stream, verbatim, with an event_id (ruling R27).
    let error = error_json("1", -32004);
    let (mut egress, exchange) = producing(2);
    egress.agent(exchange, event(&error));
    egress.emits(&[Frame::error(b"corr", &error).control(0, RESUMABLE, 3)]);
    let (mut ingress, id) = consuming(2);
    ingress.peer(&Frame::error(&id, &error).control(0, RESUMABLE, 3));
    assert!(
        matches!(ingress.told_one(), CallEvent::StreamError { event_id: 3, object } if object == error)
    );
}

/// NPAMP-CC-STREAM §13 (2): StreamControl's 11 octets; another length, version or
/// control value is EnvelopeMalformed; reserved flags are ignored; the TLV is found in any order.
#[test]
fn clause_2_stream_control() {
    // On a request, where the answer can be seen.
    let good = Frame::request(b"corr", METHOD, &object()).label(2);
    let value = [&[1, 0, 0][..], &1u64.to_be_bytes()].concat();
    for bad in [
        value[..10].to_vec(),
        [&value[..], &[0]].concat(),
        Vec::new(),
        [&[2][..], &value[1..]].concat(),
        [&[0][..], &value[1..]].concat(),
        [&[1, 3][..], &value[2..]].concat(),
        [&[1, 0xff][..], &value[2..]].concat(),
    ] {
        let plain = Frame {
            foreign: Vec::new(),
            safety: None,
            ..good.clone()
        };
        let octets = [
            &plain.octets()[..],
            &tlv(0x0011, &bad),
            &tlv(0x0013, &[2, 0]),
            object().as_bytes(),
        ]
        .concat();
        let mut egress = Exchange::egress();
        egress.peer_octets(BRIDGE, REQUEST, octets);
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
        // On an event: the exchange fails where it is noticed (ruling R26).
        let (mut ingress, id) = consuming(1);
        let octets = [
            &Frame::new(DATA, &id, b"").octets()[..],
            &tlv(0x0011, &bad),
            numbered(2).as_bytes(),
        ]
        .concat();
        ingress.peer_octets(BRIDGE, DATA, octets);
        ingress.told_transport_error(ENVELOPE_MALFORMED);
        ingress.emits(&[Frame::cancel(&id, 1)]);
    }
    let (mut ingress, id) = consuming(1);
    ingress.peer(&Frame::new(DATA, &id, numbered(2).as_bytes()).control(0, 0xfd, 2));
    told_event(&mut ingress, 2);
    let control = [&[1, 0, 1][..], &3u64.to_be_bytes()].concat();
    let octets = [
        &tlv(0x0011, &control)[..],
        &Frame::new(DATA, &id, numbered(3).as_bytes()).octets(),
    ]
    .concat();
    ingress.peer_octets(BRIDGE, DATA, octets);
    told_event(&mut ingress, 3);
    // Without one it is no stream under this document.
    ingress.peer(&Frame::new(DATA, &id, numbered(4).as_bytes()));
    ingress.told_transport_error(ENVELOPE_MALFORMED);
}

/// NPAMP-CC-STREAM §13 (3): event_ids from 1, strictly rising, the end above all;
/// a consumer takes gaps and refuses repeats, steps back and a low end.
#[test]
fn clause_3_event_ids() {
    let (mut egress, exchange) = producing(3);
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits(&[Frame::end(b"corr", 4, "")]);
    for bad in [0, 1, 8, 9] {
        for frame_type in [DATA, END, ERROR] {
            let (mut ingress, id) = consuming(1);
            ingress.peer(&Frame::data(&id, 9, &numbered(9)));
            told_event(&mut ingress, 9);
            let foreign = match frame_type {
                ERROR => error_json("1", -32603),
                _ => numbered(bad),
            };
            let frame = Frame::new(frame_type, &id, foreign.as_bytes());
            ingress.peer(&frame.control(0, RESUMABLE, bad));
            ingress.told_transport_error(ENVELOPE_MALFORMED);
            // Who goes on producing is told to stop; the others have ended.
            if frame_type == DATA {
                ingress.emits(&[Frame::cancel(&id, 9)]);
            } else {
                ingress.emits_nothing();
            }
        }
    }
}

/// NPAMP-CC-STREAM §13 (4): a resume request names the stream, the cursor and the
/// original label; the producer goes on after the cursor, or refuses with
/// NotResumable; it never begins anew, nor asks its agent again.
#[test]
fn clause_4_resume_or_refuse() {
    // The consumer's side: the body of a mutating request is not sent again.
    let (mut ingress, id) = consuming(2);
    reconnect(&mut ingress, Side::Initiator);
    let mut resume = Frame::request(&id, METHOD, "").label(2);
    resume.control = Some((1, 1, 0, 2));
    ingress.emits(&[resume]);
    ingress.peer(&Frame::data(&id, 3, &numbered(3)));
    told_event(&mut ingress, 3);
    ingress.peer(&Frame::end(&id, 4, ""));
    assert!(matches!(
        ingress.told_one(),
        CallEvent::StreamEnd {
            event_id: 4,
            object: None
        }
    ));

    // The producer's side: a non-zero cursor, and from the beginning.
    for cursor in [0, 2, 3] {
        let (mut egress, exchange) = producing(3);
        reconnect(&mut egress, Side::Responder);
        egress.agent(exchange, event(&numbered(4)));
        egress.emits_nothing();
        let resume = Frame::request(b"corr", METHOD, "").label(2);
        egress.peer(&resume.control(1, 0, cursor));
        let again: Vec<Frame> = (cursor + 1..=4)
            .map(|n| Frame::data(b"corr", n, &numbered(n)))
            .collect();
        egress.emits(&again);
        egress.reaches_nobody();
        egress.agent(exchange, AgentEvent::StreamEnd);
        egress.emits(&[Frame::end(b"corr", 5, "")]);
    }
    // Refused: beyond what was sent, unknown, and on a live stream.
    let (mut egress, _) = producing(3);
    reconnect(&mut egress, Side::Responder);
    let resume = Frame::request(b"corr", METHOD, "").label(2);
    egress.peer(&resume.clone().control(1, 0, 4));
    egress.emits_transport_error(b"corr", NOT_RESUMABLE);
    let mut unknown = resume.clone().control(1, 0, 3);
    unknown.correlation_id = b"another".to_vec();
    egress.peer(&unknown);
    egress.emits_transport_error(b"another", NOT_RESUMABLE);
    egress.reaches_nobody();
    // NotResumable reaches the caller as a stream that broke.
    let (mut ingress, id) = consuming(2);
    reconnect(&mut ingress, Side::Initiator);
    ingress.emits(&[Frame::request(&id, METHOD, "").label(2).control(1, 0, 2)]);
    ingress.peer(&Frame::transport_error(&id, NOT_RESUMABLE, "gone"));
    ingress.told_transport_error(NOT_RESUMABLE);
    // A stream that did not say `resumable` is not asked for again.
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1");
    ingress.end.call(1, &object());
    ingress.emits(&[Frame::request(&id, METHOD, &object()).label(2)]);
    ingress.peer(&Frame::new(DATA, &id, numbered(1).as_bytes()).control(0, 0, 1));
    told_event(&mut ingress, 1);
    reconnect(&mut ingress, Side::Initiator);
    ingress.told_transport_error(NOT_DELIVERED);
    ingress.emits_nothing();
}

/// NPAMP-CC-STREAM §13 (4), §12: a resumed stream passes policy again.
#[test]
fn clause_4_policy_again() {
    let (mut egress, _) = producing(2);
    egress.end.down();
    let mut other = info(Side::Responder);
    other.peer = "ed25519:other".into();
    egress.end.up(8, other);
    egress.peer(
        &Frame::request(b"corr", METHOD, "")
            .label(2)
            .control(1, 0, 2),
    );
    egress.emits_transport_error(b"corr", NOT_RESUMABLE);
}

/// NPAMP-CC-STREAM §13 (5): repeats after a resume are discarded, each event is shown once.
#[test]
fn clause_5_repeats() {
    let (mut ingress, id) = consuming(3);
    reconnect(&mut ingress, Side::Initiator);
    ingress.emits(&[Frame::request(&id, METHOD, "").label(2).control(1, 0, 3)]);
    for n in 1..=3 {
        ingress.peer(&Frame::data(&id, n, &numbered(n)));
        assert!(ingress.told().is_empty(), "{}", ingress.recording());
    }
    ingress.peer(&Frame::data(&id, 4, &numbered(4)));
    told_event(&mut ingress, 4);
    ingress.peer(&Frame::data(&id, 4, &numbered(4)));
    ingress.told_transport_error(ENVELOPE_MALFORMED);
}

/// NPAMP-CC-STREAM §13 (6): a cancel upstream names the last event consumed; the
/// producer stops, acknowledges once with the true tail and `final`, and reports no
/// failure; a cancel after the natural end gets nothing.
#[test]
fn clause_6_cancel() {
    let (mut ingress, id) = consuming(2);
    ingress.end.gone(1);
    ingress.emits(&[Frame::cancel(&id, 2)]);
    // On its way already, and the acknowledgement.
    ingress.peer(&Frame::data(&id, 3, &numbered(3)));
    ingress.peer(&Frame::cancel_ack(&id, 3));
    ingress.emits_nothing();
    assert!(ingress.told().is_empty());

    let (mut egress, exchange) = producing(3);
    egress.peer(&Frame::cancel(b"corr", 2));
    egress.emits(&[Frame::cancel_ack(b"corr", 3)]);
    assert_eq!(egress.end.cancels, [exchange]);
    egress.agent(exchange, event(&numbered(4)));
    egress.peer(&Frame::cancel(b"corr", 2));
    egress.emits_nothing();
    // It is not resumed either.
    reconnect(&mut egress, Side::Responder);
    egress.peer(
        &Frame::request(b"corr", METHOD, "")
            .label(2)
            .control(1, 0, 2),
    );
    egress.emits_transport_error(b"corr", NOT_RESUMABLE);
    // Before the first event.
    let (mut egress, _) = producing(0);
    egress.peer(&Frame::cancel(b"corr", 0));
    egress.emits(&[Frame::cancel_ack(b"corr", 0)]);
    // After the end.
    let (mut egress, exchange) = producing(1);
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits(&[Frame::end(b"corr", 2, "")]);
    egress.peer(&Frame::cancel(b"corr", 1));
    egress.emits_nothing();
}

/// NPAMP-CC-STREAM §13 (8), §5.3: the provisional type 0x0011, never one of the
/// forward-incompatible range, and a peer that never sends it is met as NPAMP-BRIDGE
/// says: what carries no StreamControl is answered without one.
#[test]
fn clause_8_the_provisional_type() {
    let (egress, _) = producing(3);
    assert!(egress.recording().contains("StreamControl event_id"));
    for frame in [
        Frame::data(b"corr", 1, ""),
        Frame::end(b"corr", 1, ""),
        Frame::cancel(b"corr", 1),
    ] {
        // Behind the envelope of 4 + 4 + 5 + 1 octets.
        assert_eq!(frame.octets()[14..18], [0x00, 0x11, 0, 11]);
    }
    // The same octets under another type are another TLV: ignored with the high bit clear.
    let value = [&[9, 9, 0xff][..], &[0xff; 8]].concat();
    for (tag, taken) in [(0x0012, true), (0x00ee, true), (0x8011, false)] {
        let plain = Frame::request(b"corr", "tasks/get", "");
        let object = request_json("1", "tasks/get");
        let octets = [&plain.octets()[..], &tlv(tag, &value), object.as_bytes()].concat();
        let mut egress = Exchange::egress();
        egress.peer_octets(BRIDGE, REQUEST, octets);
        if taken {
            let exchange = egress.reaches_agent(&object);
            egress.agent_body(exchange, &numbered(1));
            egress.emits(&[Frame::response(b"corr", &numbered(1))]);
        } else {
            egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
            egress.reaches_nobody();
        }
    }
}
