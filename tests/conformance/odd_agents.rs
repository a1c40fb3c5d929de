//! What an agent's odd answers become on the wire (rulings R14, R15, R27);
//! `tests/odd_agents.rs` has the agent and the HTTP client at both ends of it.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{body, error_json, event, request_json, result_json};
use npamp_relay::a2a::port::{AgentEvent, ExchangeId};
use npamp_relay::a2a::stats::Dropped;

const METHOD: &str = "message/stream";

fn asked() -> (Exchange, ExchangeId) {
    let object = request_json("1", METHOD);
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", METHOD, &object).label(2));
    let exchange = egress.reaches_agent(&object);
    (egress, exchange)
}

fn streaming() -> (Exchange, ExchangeId, String) {
    let (mut egress, exchange) = asked();
    let one = result_json("1", "1");
    egress.agent_streams(exchange, &[&one]);
    egress.emits(&[Frame::data(b"corr", 1, &one)]);
    (egress, exchange, one)
}

/// Ruling R15: behind the final event nothing travels; it is counted.
#[test]
fn events_after_the_final_one() {
    let (mut egress, exchange, one) = streaming();
    let last = result_json("1", r#"{"kind":"status-update","final":true}"#);
    for data in [&last, &one, &last] {
        egress.agent(exchange, event(data));
    }
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits(&[Frame::end(b"corr", 2, &last)]);
    assert_eq!(egress.end.stats.dropped.get(Dropped::AgentEvent), 2);
    egress.end.assert_idle();
}

/// Ruling R15: an empty stream is one END with event_id 1 and nothing in it, which
/// nobody can come back for.
#[test]
fn an_empty_stream() {
    let (mut egress, exchange) = asked();
    egress.agent(exchange, AgentEvent::StreamOpen);
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits(&[Frame::new(END, b"corr", b"").control(0, 0, 1)]);
    egress.end.assert_idle();
}

/// Ruling R15: an agent that breaks off, or ends inside an event or a character, is
/// NotDelivered with the next event_id, in place of an end.
#[test]
fn a_stream_that_breaks() {
    let (mut egress, exchange, _) = streaming();
    egress.agent(
        exchange,
        AgentEvent::Failed {
            message: "the stream ended inside an event".into(),
            timed_out: false,
        },
    );
    let text = "the stream ended inside an event";
    egress.emits(&[Frame::transport_error(b"corr", NOT_DELIVERED, text).control(0, RESUMABLE, 2)]);
    egress.end.assert_idle();
}

/// Rulings R15, R27: an error Response inside a stream ends it, verbatim, with an
/// event_id; as the first event too.
#[test]
fn an_error_inside_a_stream() {
    let error = error_json("1", -32004);
    let (mut egress, exchange, one) = streaming();
    egress.agent(exchange, event(&error));
    egress.agent(exchange, event(&one));
    egress.emits(&[Frame::error(b"corr", &error).control(0, RESUMABLE, 2)]);
    let (mut egress, exchange) = asked();
    egress.agent_streams(exchange, &[&error]);
    egress.emits(&[Frame::error(b"corr", &error).control(0, 0, 1)]);
    egress.end.assert_idle();
}

/// Ruling R14: a status without a JSON-RPC Response is NotDelivered, its text begins
/// with the status; a Response under any status is the agent's own.
#[test]
fn statuses_without_a_response() {
    for (status, retry_after, text) in [
        (401, None, "http 401"),
        (429, Some("7"), "http 429; retry-after 7"),
        (503, Some("7"), "http 503; retry-after 7"),
        (503, None, "http 503"),
    ] {
        for content in ["<html></html>", ""] {
            let (mut egress, exchange) = asked();
            egress.agent(
                exchange,
                AgentEvent::Body {
                    status,
                    content_type: "text/html".into(),
                    retry_after: retry_after.map(str::to_owned),
                    body: content.into(),
                },
            );
            egress.emits(&[Frame::transport_error(b"corr", NOT_DELIVERED, text)]);
            egress.end.assert_idle();
        }
        let (mut egress, exchange) = asked();
        egress.agent(exchange, body(status, &error_json("1", -32000)));
        egress.emits(&[Frame::error(b"corr", &error_json("1", -32000))]);
    }
}
