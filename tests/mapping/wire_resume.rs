//! A caller's client wants a stream again that has ended: asked of its producer by
//! what the mapper said of it. NPAMP-CC-STREAM §6, §13.4 and ruling R17.

use crate::harness::*;
use bytes::Bytes;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::config::StreamConfig;
use npamp_relay::a2a::port::{
    AgentEvent, CallEvent, CallId, CallRequest, Input, ResumeTicket, Side,
};
use npamp_relay::a2a::stats::Resumption;
use npamp_relay::bridge::safety::Effect;
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits;
use std::time::Duration;

fn numbered(n: u64) -> String {
    result_json("1", &n.to_string())
}

/// A stream of `count` events that has ended, and its ticket.
fn ended(pair: &mut Pair, method: &str, count: u64) -> ResumeTicket {
    let (exchange, _) = pair.ask(1, &request_json("1", method));
    pair.agent(exchange, AgentEvent::StreamOpen);
    for n in 1..=count {
        pair.agent(exchange, event(&numbered(n)));
    }
    pair.agent(exchange, AgentEvent::StreamEnd);
    pair.ingress.calls.clear();
    pair.passed.clear();
    let (call, ticket) = pair.ingress.resumable.remove(0);
    assert_eq!(call, CallId(1));
    assert!(pair.ingress.resumable.is_empty(), "told once");
    *ticket.expect("a ticket")
}

fn resume(pair: &mut Pair, call: u64, ticket: &ResumeTicket, cursor: u64) {
    pair.ingress.input(Input::Call {
        association: pair.ingress.association,
        call: CallId(call),
        request: CallRequest::Resume {
            ticket: Box::new(ticket.clone()),
            cursor,
        },
    });
}

fn ids(end: &mut End, call: u64) -> Vec<u64> {
    std::mem::take(&mut end.calls)
        .into_iter()
        .map(|(name, event)| {
            assert_eq!(name, CallId(call));
            match event {
                CallEvent::StreamEvent { event_id, object } => {
                    assert_eq!(object, numbered(event_id).as_bytes());
                    event_id
                }
                CallEvent::StreamEnd {
                    event_id,
                    object: None,
                } => event_id,
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

/// NPAMP-CC-STREAM §6.2, §6.3: the method and label of the stream, its correlation_id, never
/// the body of a mutating request; then the events after the cursor and the end.
#[test]
fn an_ended_stream_is_sent_again_from_any_cursor() {
    for cursor in 0..=6 {
        let mut pair = Pair::new();
        let ticket = ended(&mut pair, "message/stream", 5);
        assert!(ticket.object.is_empty());
        resume(&mut pair, 2, &ticket, cursor);
        let frame = pair.ingress.frames[0].clone();
        assert_eq!(frame.kind, REQUEST);
        let decoded = frame.decode();
        assert_eq!(
            decoded.envelope.correlation_id,
            ticket.correlation_id.as_octets()
        );
        assert_eq!(decoded.envelope.method, "message/stream");
        assert_eq!(decoded.stream_control, Some(StreamControl::resume(cursor)));
        let label = decoded.safety.map(|label| label.effect);
        assert_eq!(label, Some(Effect::NON_IDEMPOTENT_WRITE));
        assert!(decoded.foreign.is_empty());
        pair.pass();
        // Whoever has the end gets it once more.
        let wanted: Vec<u64> = (cursor.min(5) + 1..=6).collect();
        assert_eq!(ids(&mut pair.ingress, 2), wanted);
        assert!(pair.egress.dispatches.is_empty());
        pair.ingress.assert_idle();
        // And it can be had once more from there.
        resume(&mut pair, 3, &ticket, cursor);
        pair.pass();
        assert_eq!(ids(&mut pair.ingress, 3), wanted);
    }
}

/// What a ticket keeps is a copy: it does not hold on to what the object came in.
#[test]
fn a_ticket_is_small() {
    let mut pair = Pair::new();
    let object = Bytes::from(request_json("1", "tasks/resubscribe"));
    pair.ingress.input(Input::Call {
        association: pair.ingress.association,
        call: CallId(1),
        request: CallRequest::Request {
            object: object.clone(),
        },
    });
    pair.pass();
    let (exchange, _) = pair.egress.one_dispatch();
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.agent(exchange, event(&numbered(1)));
    pair.agent(exchange, AgentEvent::StreamEnd);
    let (_, ticket) = pair.ingress.resumable.remove(0);
    let ticket = ticket.expect("a ticket");
    assert!(object.is_unique());
    assert_eq!(ticket.object, object);
}

/// Ruling R17: the request of a read_only stream carries its object again.
#[test]
fn a_read_only_stream_repeats_its_object() {
    let mut pair = Pair::new();
    let ticket = ended(&mut pair, "tasks/resubscribe", 2);
    let object = request_json("1", "tasks/resubscribe");
    assert_eq!(ticket.object, object.as_bytes());
    resume(&mut pair, 2, &ticket, 1);
    let request = pair.ingress.frames[0].clone();
    assert_eq!(request.decode().foreign, object.as_bytes());
    assert!(request.decode().safety.is_none());
    pair.pass();
    assert_eq!(ids(&mut pair.ingress, 2), [2, 3]);
    assert!(pair.egress.dispatches.is_empty());
    pair.ingress.assert_idle();
    assert_eq!(pair.ingress.stats.resumption.get(Resumption::Asked), 1);
    assert_eq!(pair.egress.stats.resumption.get(Resumption::Resumed), 1);
}

/// NPAMP-CC-STREAM §6.3: a producer that has lost it refuses, and nothing begins anew.
#[test]
fn a_producer_that_lost_it_refuses() {
    let mut pair = Pair::new();
    let ticket = ended(&mut pair, "message/stream", 2);
    pair.egress.pass_time(limits::RETENTION_TIME);
    resume(&mut pair, 2, &ticket, 1);
    pair.pass();
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_RESUMABLE);
    assert_eq!(pair.ingress.resumable, [(CallId(2), None)]);
    assert!(pair.egress.dispatches.is_empty());
    pair.ingress.assert_idle();
    assert_eq!(pair.ingress.stats.resumption.get(Resumption::Refused), 1);
}

/// NPAMP-CC-STREAM §6.1: what did not assert `resumable` is not resumed.
#[test]
fn what_is_not_resumable_has_no_ticket() {
    let config = MapperConfig {
        stream: StreamConfig {
            retention: Duration::ZERO,
            ..StreamConfig::default()
        },
        ..MapperConfig::default()
    };
    let mut pair = Pair::new();
    pair.egress = End::with(config, info(Side::Responder));
    let (exchange, _) = pair.ask(1, &request_json("1", "message/stream"));
    pair.agent(exchange, AgentEvent::StreamOpen);
    pair.agent(exchange, event(&numbered(1)));
    pair.agent(exchange, AgentEvent::StreamEnd);
    assert!(pair.ingress.resumable.is_empty());
}
