//! NPAMP-CC-JSONRPC §10.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{request_json, result_json};
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent};
use npamp_relay::bridge::safety::EffectSet;

/// The relay asks `method` with `id` and the frame of its request has gone by.
fn asked(id_token: &str, object: &str, method: &str, effect: Option<u8>) -> (Exchange, Vec<u8>) {
    let mut ingress = Exchange::ingress();
    let correlation_id = ingress.next_correlation(id_token);
    ingress.end.call(1, object);
    let mut ask = Frame::request(&correlation_id, method, object);
    ask.safety = effect.map(|effect| (effect, String::new()));
    ingress.emits(&[ask]);
    (ingress, correlation_id)
}

/// A peer asked, and the agent has the object.
fn asking(object: &str, method: &str) -> (Exchange, npamp_relay::a2a::port::ExchangeId) {
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", method, object));
    let exchange = egress.reaches_agent(object);
    (egress, exchange)
}

/// NPAMP-CC-JSONRPC §10 (1): octet for octet with content_type 0x01; another one,
/// or an object that is not of JSON-RPC 2.0, is EnvelopeMalformed.
#[test]
fn clause_1_octets_and_content_type() {
    let object = "{ \"params\":{\"z\":1,\"a\":0.10},\"method\":\"tasks/get\",\"id\":7,\"jsonrpc\":\"2.0\"}\n";
    let (mut ingress, id) = asked("7", object, "tasks/get", None);
    let reply = "{ \"result\":{\"z\":1E2,\"a\":2},\"id\":7,\"jsonrpc\":\"2.0\"}";
    ingress.peer(&Frame::response(&id, reply));
    assert!(matches!(ingress.told_one(), CallEvent::Response(seen) if seen == reply));
    let (mut egress, exchange) = asking(object, "tasks/get");
    egress.agent_body(exchange, reply);
    egress.emits(&[Frame::response(b"corr", reply)]);

    for content_type in [0x00, 0x02, 0x03, 0xff] {
        let mut ask = Frame::request(b"corr", "tasks/get", object);
        ask.content_type = content_type;
        let mut egress = Exchange::egress();
        egress.peer(&ask);
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
        let (mut ingress, id) = asked("7", object, "tasks/get", None);
        let mut answer = Frame::response(&id, reply);
        answer.content_type = content_type;
        ingress.peer(&answer);
        ingress.told_transport_error(ENVELOPE_MALFORMED);
    }
    for wrong in [
        object.replace("2.0", "2.1"),
        object.replace(",\"jsonrpc\":\"2.0\"", ""),
        "[]".to_owned(),
        "{".to_owned(),
    ] {
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", "tasks/get", &wrong));
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
    }
}

/// NPAMP-CC-JSONRPC §10 (2): a Request is BRIDGE_REQUEST; the envelope's method
/// equals the object's, else EnvelopeMalformed; the correlation_id is not empty.
#[test]
fn clause_2_requests() {
    for id in ["1", "\"x\"", "-2.5e1"] {
        let object = request_json(id, "tasks/get");
        let (_, correlation_id) = asked(id, &object, "tasks/get", None);
        assert!(!correlation_id.is_empty());
        asking(&object, "tasks/get");
    }
    let object = request_json("1", "tasks/get");
    for method in ["", "tasks/ge", "tasks/get ", "TASKS/GET", "tasks/cancel"] {
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", method, &object).label(2));
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
    }
}

/// NPAMP-CC-JSONRPC §10 (3): a success Response is BRIDGE_RESPONSE with an empty
/// method; an error Response in such a frame fails its exchange.
#[test]
fn clause_3_success() {
    let object = request_json("\"a\"", "tasks/get");
    let (mut egress, exchange) = asking(&object, "tasks/get");
    let reply = result_json("\"a\"", "null");
    egress.agent_body(exchange, &reply);
    egress.emits(&[Frame::response(b"corr", &reply)]);
    let (mut ingress, id) = asked("\"a\"", &object, "tasks/get", None);
    let error = crate::harness::error_json("\"a\"", -32603);
    ingress.peer(&Frame::response(&id, &error));
    ingress.told_transport_error(ENVELOPE_MALFORMED);
}

/// NPAMP-CC-JSONRPC §10 (4): an error Response is BRIDGE_ERROR, with code, message
/// and a data member as the agent spelled them.
#[test]
fn clause_4_errors() {
    let object = request_json("1", "tasks/get");
    for code in [
        "-32700", "-32600", "-32601", "-32602", "-32603", "-32050", "4", "-32001.0",
    ] {
        let error = format!(
            "{{\"jsonrpc\":\"2.0\",\"error\":{{\"data\":{{\"x\":[1e999,\"\\u0041\"],\"x\":2}},\"code\":{code},\"message\":\"m\\n\"}},\"id\":1}}"
        );
        let (mut egress, exchange) = asking(&object, "tasks/get");
        egress.agent_body(exchange, &error);
        egress.emits(&[Frame::error(b"corr", &error)]);
        let (mut ingress, id) = asked("1", &object, "tasks/get", None);
        ingress.peer(&Frame::error(&id, &error));
        assert!(matches!(ingress.told_one(), CallEvent::ErrorResponse(seen) if seen == error));
    }
}

/// NPAMP-CC-JSONRPC §10 (5): a failure below JSON-RPC is a transport error, at
/// both ends, and no JSON-RPC object is made up for it.
#[test]
fn clause_5_transport_errors() {
    let object = request_json("1", "tasks/get");
    let (mut egress, exchange) = asking(&object, "tasks/get");
    egress.agent(
        exchange,
        AgentEvent::Failed {
            message: "connection refused".into(),
            timed_out: false,
        },
    );
    egress.emits(&[Frame::transport_error(
        b"corr",
        NOT_DELIVERED,
        "connection refused",
    )]);
    let (mut ingress, id) = asked("1", &object, "tasks/get", None);
    for code in 1..=6 {
        if code > 1 {
            let (next, next_id) = asked("1", &object, "tasks/get", None);
            ingress = next;
            ingress.peer(&Frame::transport_error(&next_id, code, "why"));
        } else {
            ingress.peer(&Frame::transport_error(&id, code, "why"));
        }
        ingress.told_transport_error(code);
    }
    // The association goes with the call, which may not be asked again elsewhere.
    let object = request_json("1", "message/send");
    let (mut ingress, _) = asked("1", &object, "message/send", Some(2));
    ingress.end.down();
    ingress.told_transport_error(NOT_DELIVERED);
}

/// NPAMP-CC-JSONRPC §10 (6): a Notification is BRIDGE_NOTIFY; nothing comes back;
/// an object with an id in such a frame, or one without in a request, is not carried.
#[test]
fn clause_6_notifications() {
    let notification = r#"{"jsonrpc":"2.0","method":"message/send"}"#;
    let mut ingress = Exchange::ingress();
    ingress.end.notify(1, notification);
    ingress.emits(&[Frame::notify("message/send", notification).label(2)]);
    assert!(matches!(ingress.told_one(), CallEvent::Accepted));
    let mut egress = Exchange::egress();
    egress.peer(&Frame::notify("message/send", notification).label(2));
    let exchange = egress.reaches_agent(notification);
    egress.agent_body(exchange, &result_json("1", "{}"));
    egress.emits_nothing();
    egress.peer(&Frame::notify(
        "message/send",
        &request_json("1", "message/send"),
    ));
    egress.emits_nothing();
    egress.reaches_nobody();
    egress.peer(&Frame::request(b"corr", "message/send", notification));
    egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
    egress.reaches_nobody();
}

/// NPAMP-CC-JSONRPC §10 (7): replies by correlation_id; ids stay as they are
/// spelled, null ones too; an id that is another one fails the exchange.
#[test]
fn clause_7_correlation_and_ids() {
    // The same id twice, outstanding at once: two exchanges.
    let object = request_json("null", "tasks/get");
    let mut ingress = Exchange::ingress();
    let ids = [
        ingress.next_correlation("null"),
        ingress.next_correlation("null"),
    ];
    assert_ne!(ids[0], ids[1]);
    for (call, id) in (1..).zip(&ids) {
        ingress.end.call(call, &object);
        ingress.emits(&[Frame::request(id, "tasks/get", &object)]);
    }
    for id in ids.iter().rev() {
        let reply = result_json("null", "1");
        ingress.peer(&Frame::response(id, &reply));
        assert!(matches!(ingress.told_one(), CallEvent::Response(seen) if seen == reply));
    }
    // An error whose id could not be determined answers by correlation_id.
    let (mut egress, exchange) = asking(&request_json("8", "tasks/get"), "tasks/get");
    let undetermined =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    egress.agent_body(exchange, undetermined);
    egress.emits(&[Frame::error(b"corr", undetermined)]);
    let (mut ingress, id) = asked("8", &request_json("8", "tasks/get"), "tasks/get", None);
    ingress.peer(&Frame::error(&id, undetermined));
    assert!(matches!(ingress.told_one(), CallEvent::ErrorResponse(seen) if seen == undetermined));
    // "8" is not 8.
    for other in ["\"8\"", "9", "null"] {
        let (mut ingress, id) = asked("8", &request_json("8", "tasks/get"), "tasks/get", None);
        ingress.peer(&Frame::response(&id, &result_json(other, "1")));
        ingress.told_transport_error(ENVELOPE_MALFORMED);
        let (mut egress, exchange) = asking(&request_json("8", "tasks/get"), "tasks/get");
        egress.agent_body(exchange, &result_json(other, "1"));
        egress.emits_transport_error(b"corr", NOT_DELIVERED);
    }
}

/// NPAMP-CC-JSONRPC §10 (8): a label that is missing on a mutating method means destructive.
#[test]
fn clause_8_fail_safe() {
    let object = request_json("1", "message/send");
    for (label, allow, passes) in [
        (None, EffectSet::of(&[0, 1, 2]), false),
        (None, EffectSet::of(&[0, 1, 2, 3]), true),
        (Some(2), EffectSet::of(&[0, 1, 2]), true),
        // No label lowers what the mapping says of the method.
        (Some(0), EffectSet::of(&[0]), false),
    ] {
        let mut egress = Exchange::egress_with(MapperConfig {
            allow,
            ..MapperConfig::default()
        });
        let mut ask = Frame::request(b"corr", "message/send", &object);
        ask.safety = label.map(|effect| (effect, String::new()));
        egress.peer(&ask);
        if passes {
            egress.reaches_agent(&object);
        } else {
            egress.emits_transport_error(b"corr", SAFETY_POLICY);
            egress.reaches_nobody();
        }
    }
}
