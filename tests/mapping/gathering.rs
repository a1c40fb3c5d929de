//! Events of streams that come together at a consumer: NPAMP-CC-STREAM §5.

use crate::harness::*;
use npamp_relay::a2a::events::StreamEvents;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, CallId, ExchangeId};
use npamp_relay::bridge::payload;
use npamp_relay::limits::STREAM_BATCH_OCTETS_MAX;

/// Streams that have had their first event.
fn streams(pair: &mut Pair, count: u64) -> Vec<ExchangeId> {
    let mut exchanges = Vec::new();
    for call in 1..=count {
        let (exchange, _) = pair.ask(call, &request_json("1", "message/stream"));
        pair.agent(exchange, AgentEvent::StreamOpen);
        pair.agent(exchange, event(&said(call, 1)));
        exchanges.push(exchange);
    }
    assert_eq!(pair.ingress.calls.len() as u64, count);
    pair.ingress.calls.clear();
    assert!(
        pair.ingress.gathered.is_empty(),
        "the first changes the call"
    );
    exchanges
}

fn said(call: u64, n: u64) -> String {
    result_json("1", &format!(r#"{{"call":{call},"n":{n}}}"#))
}

/// What a call was told: ids, and 0 for its end.
fn told(end: &End, call: u64) -> Vec<u64> {
    let events = end.calls.iter().filter(|(name, _)| *name == CallId(call));
    events
        .map(|(_, told)| match told {
            CallEvent::StreamEvent { event_id, object } => {
                assert_eq!(object, said(call, *event_id).as_bytes());
                *event_id
            }
            CallEvent::StreamEnd { object: None, .. } => 0,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Events of several streams, mixed on their association, reach each caller together, in
/// order, and before its end.
#[test]
fn each_call_is_told_its_events_together() {
    let mut pair = Pair::new();
    let exchanges = streams(&mut pair, 2);
    for n in 2..=5 {
        for (&exchange, call) in exchanges.iter().zip(1..) {
            pair.egress.agent(exchange, event(&said(call, n)));
        }
    }
    pair.egress.agent(exchanges[0], AgentEvent::StreamEnd);
    pair.egress.agent(exchanges[1], event(&said(2, 6)));
    let frames = std::mem::take(&mut pair.egress.frames);
    pair.ingress.together(&frames);
    assert_eq!(pair.ingress.gathered, [(CallId(1), 4), (CallId(2), 5)]);
    assert_eq!(told(&pair.ingress, 1), [2, 3, 4, 5, 0]);
    assert_eq!(told(&pair.ingress, 2), [2, 3, 4, 5, 6]);
    // What was taken is not added to.
    pair.egress.agent(exchanges[1], event(&said(2, 7)));
    pair.pass();
    assert_eq!(pair.ingress.gathered[2..], [(CallId(2), 1)]);
    pair.agent(exchanges[1], AgentEvent::StreamEnd);
    assert_eq!(told(&pair.ingress, 2)[5..], [7, 0]);
    pair.ingress.assert_idle();
}

/// Whatever else is said of a call comes between the events before and those after it.
#[test]
fn what_changes_a_call_parts_its_events() {
    let mut pair = Pair::new();
    let exchange = streams(&mut pair, 1)[0];
    for n in 2..=6 {
        pair.egress.agent(exchange, event(&said(1, n)));
    }
    let mut frames = std::mem::take(&mut pair.egress.frames);
    // From the third on it cannot be resumed.
    for frame in &mut frames[2..] {
        let changed = {
            let mut decoded = frame.decode();
            let control = decoded.stream_control.as_mut().unwrap();
            control.resumable = false;
            payload::encode(frame.kind, &decoded).unwrap()
        };
        frame.octets = changed.into();
    }
    let before = pair.ingress.resumable.len();
    pair.ingress.together(&frames);
    assert_eq!(pair.ingress.resumable.len(), before + 1);
    assert_eq!(pair.ingress.gathered, [(CallId(1), 2), (CallId(1), 2)]);
    assert_eq!(told(&pair.ingress, 1), [2, 3, 4, 5, 6]);
}

/// NPAMP-CC-STREAM §5.1: an id that does not rise fails the stream, and what came before it stays.
#[test]
fn a_fault_comes_after_what_was_gathered() {
    let mut pair = Pair::new();
    let exchange = streams(&mut pair, 1)[0];
    for n in 2..=3 {
        pair.egress.agent(exchange, event(&said(1, n)));
    }
    let mut frames = std::mem::take(&mut pair.egress.frames);
    frames.push(frames[0].clone());
    pair.ingress.together(&frames);
    assert_eq!(pair.ingress.gathered, [(CallId(1), 2)]);
    assert!(matches!(
        pair.ingress.calls.pop(),
        Some((_, CallEvent::TransportError(_)))
    ));
    assert_eq!(told(&pair.ingress, 1), [2, 3]);
}

/// What is gathered is bounded; what goes beyond it comes in another piece.
#[test]
fn what_is_gathered_is_bounded() {
    let mut pair = Pair::new();
    let exchange = streams(&mut pair, 1)[0];
    let long = |n: u64| {
        result_json(
            "1",
            &format!(r#"{{"n":{n},"text":"{}"}}"#, "x".repeat(9000)),
        )
    };
    for n in 2..=9 {
        pair.egress.agent(exchange, event(&long(n)));
    }
    let frames = std::mem::take(&mut pair.egress.frames);
    pair.ingress.together(&frames);
    let each = STREAM_BATCH_OCTETS_MAX / long(2).len();
    let sizes: Vec<usize> = pair.ingress.gathered.iter().map(|(_, n)| *n).collect();
    assert_eq!(sizes, [each, each, 8 - 2 * each]);
    for ((_, told), n) in pair.ingress.calls.iter().zip(2..) {
        assert!(
            matches!(told, CallEvent::StreamEvent { event_id, object } if *event_id == n && object == long(n).as_bytes())
        );
    }
    assert!(StreamEvents::default().admits(usize::MAX), "one always may");
}
