//! NPAMP-BRIDGE §9.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{error_json, request_json, result_json};
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent};
use npamp_relay::bridge::safety::EffectSet;

/// JSON that a library would write otherwise.
const ODD: &str = " {\"jsonrpc\" : \"2.0\",\"id\":1.0,\r\n\"method\":\"tasks/get\",\"params\":{\"a\":1e400,\"a\":\"\\u00e9\\/\"} }\t";

/// NPAMP-BRIDGE §9 (1): the foreign message octet for octet, request and reply, at both ends.
#[test]
fn clause_1_foreign_octets() {
    let reply = "\n{\"id\":1.0 ,\"result\":{\"b\":-0,\"b\":[ ]},\"jsonrpc\":\"2.0\"}  ";
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1.0");
    ingress.end.call(1, ODD);
    ingress.emits(&[Frame::request(&id, "tasks/get", ODD)]);
    ingress.peer(&Frame::response(&id, reply));
    assert!(matches!(ingress.told_one(), CallEvent::Response(object) if object == reply));

    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"c", "tasks/get", ODD));
    let exchange = egress.reaches_agent(ODD);
    egress.agent_body(exchange, reply);
    egress.emits(&[Frame::response(b"c", reply)]);
}

/// NPAMP-BRIDGE §9 (2): the envelope's fields one by one; absent, truncated or
/// contradicting ones are EnvelopeMalformed.
#[test]
fn clause_2_envelope() {
    let object = request_json("1", "tasks/get");
    let good = Frame::request(b"corr", "tasks/get", &object);
    // Reserved flag bits are ignored (§4).
    let mut reserved = good.clone();
    reserved.flags = 0xfe;
    let mut egress = Exchange::egress();
    egress.peer(&reserved);
    let exchange = egress.reaches_agent(&object);
    egress.agent_body(exchange, &result_json("1", "{}"));
    egress.emits(&[Frame::response(b"corr", &result_json("1", "{}"))]);

    // A kind that contradicts the frame type.
    for kind in [0, 2, 3, 4, 5, 6, 7] {
        let mut contradicts = good.clone();
        contradicts.message_kind = kind;
        let mut egress = Exchange::egress();
        egress.peer(&contradicts);
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
    }
    // Cut at every place behind the correlation_id, which names what to answer.
    let envelope = 4 + 4 + 1 + 4 + 1 + "tasks/get".len();
    for cut in 13..envelope {
        let mut octets = good.octets();
        octets.truncate(cut);
        let mut egress = Exchange::egress();
        egress.peer_octets(BRIDGE, REQUEST, octets);
        egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
        egress.reaches_nobody();
    }
    // Absent: nothing names the exchange, so that a core ERROR answers (ruling R26).
    let mut egress = Exchange::egress();
    egress.peer_octets(BRIDGE, REQUEST, object.into_bytes());
    egress.emits_nothing();
    assert_eq!(egress.end.channel_errors.len(), 1);
}

/// NPAMP-BRIDGE §9 (3): replies echo the correlation_id and are matched by it,
/// whatever their order; an empty or outstanding one is refused.
#[test]
fn clause_3_correlation() {
    let mut ingress = Exchange::ingress();
    let ids: Vec<Vec<u8>> = (0..3).map(|_| ingress.next_correlation("1")).collect();
    for call in 0..3 {
        ingress.end.call(call, &request_json("1", "tasks/get"));
    }
    let requests: Vec<Frame> = ids
        .iter()
        .map(|id| Frame::request(id, "tasks/get", &request_json("1", "tasks/get")))
        .collect();
    ingress.emits(&requests);
    for call in [2, 0, 1] {
        let reply = result_json("1", &call.to_string());
        ingress.peer(&Frame::response(&ids[call], &reply));
        let (name, event) = ingress.end.calls.remove(0);
        assert_eq!(name.0, call as u64, "{}", ingress.recording());
        assert!(matches!(event, CallEvent::Response(object) if object == reply));
    }
    // One that nobody asked for changes nothing.
    ingress.peer(&Frame::response(b"another", &result_json("1", "{}")));
    assert!(ingress.told().is_empty());
    ingress.emits_nothing();

    let object = request_json("1", "tasks/get");
    let mut egress = Exchange::egress();
    let ask = Frame::request(b"corr", "tasks/get", &object);
    egress.peer(&ask);
    let exchange = egress.reaches_agent(&object);
    egress.peer(&ask);
    egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
    egress.reaches_nobody();
    // The first is answered all the same, and every octet of 255 comes back.
    egress.agent_body(exchange, &result_json("1", "{}"));
    egress.emits(&[Frame::response(b"corr", &result_json("1", "{}"))]);
    let long: Vec<u8> = (0..=254).collect();
    egress.peer(&Frame::request(&long, "tasks/get", &object));
    let exchange = egress.reaches_agent(&object);
    egress.agent_body(exchange, &result_json("1", "{}"));
    egress.emits(&[Frame::response(&long, &result_json("1", "{}"))]);
    egress.peer(&Frame::request(b"", "tasks/get", &object));
    egress.reaches_nobody();
    egress.emits_nothing();
    assert_eq!(egress.end.channel_errors.len(), 1);
}

/// NPAMP-BRIDGE §9 (4): the foreign error object verbatim, each code as it is;
/// what was not delivered is NotDelivered and never a success.
#[test]
fn clause_4_errors() {
    for code in [-32700, -32603, -32001, -32099, 1, 0] {
        let error = error_json("1", code);
        let object = request_json("1", "tasks/get");
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", "tasks/get", &object));
        let exchange = egress.reaches_agent(&object);
        egress.agent_body(exchange, &error);
        egress.emits(&[Frame::error(b"corr", &error)]);

        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("1");
        ingress.end.call(1, &object);
        ingress.emits(&[Frame::request(&id, "tasks/get", &object)]);
        ingress.peer(&Frame::error(&id, &error));
        assert!(matches!(ingress.told_one(), CallEvent::ErrorResponse(object) if object == error));
    }
    // The agent is not there, or says what is no answer.
    for event in [
        AgentEvent::Failed {
            message: "connection refused".into(),
            timed_out: false,
        },
        crate::harness::body(502, "<html></html>"),
        crate::harness::body(200, &result_json("2", "{}")),
        AgentEvent::StreamEnd,
    ] {
        let object = request_json("1", "message/send");
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", "message/send", &object).label(2));
        let exchange = egress.reaches_agent(&object);
        egress.agent(exchange, event);
        egress.emits_transport_error(b"corr", NOT_DELIVERED);
    }
    // The five codes that a responder has, each for its own reason.
    let reads = MapperConfig {
        allow: EffectSet::of(&[0]),
        unknown_methods: npamp_relay::a2a::config::UnknownMethods::Refuse,
        ..MapperConfig::default()
    };
    let mut egress = Exchange::egress_with(reads);
    let ask = |method: &str| Frame::request(b"corr", method, &request_json("1", method));
    egress.peer(&ask("tasks/get").protocol(1));
    egress.emits_transport_error_like(PROTOCOL_UNSUPPORTED, |text| {
        Frame::transport_error(b"corr", PROTOCOL_UNSUPPORTED, text).protocol(1)
    });
    egress.peer(&ask("no/such"));
    egress.emits_transport_error(b"corr", METHOD_UNSUPPORTED);
    egress.peer(&ask("message/send").label(2));
    egress.emits_transport_error(b"corr", SAFETY_POLICY);
    egress.reaches_nobody();
}

/// NPAMP-BRIDGE §9 (5): a label is attached to what mutates; its absence there is
/// destructive, never read_only; an unregistered effect is destructive too.
#[test]
fn clause_5_safety() {
    for (method, effect) in [
        ("message/send", Some(2)),
        ("tasks/cancel", Some(2)),
        ("tasks/pushNotificationConfig/set", Some(1)),
        ("tasks/pushNotificationConfig/delete", Some(3)),
        ("unlisted/method", Some(3)),
        ("tasks/get", None),
    ] {
        let object = request_json("1", method);
        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("1");
        ingress.end.call(1, &object);
        let mut ask = Frame::request(&id, method, &object);
        ask.safety = effect.map(|effect| (effect, String::new()));
        ingress.emits(&[ask]);
    }
    // Everything but destructive is allowed.
    let allow = EffectSet::of(&[0, 1, 2]);
    for (method, label, passes) in [
        ("tasks/cancel", Some(2), true),
        ("tasks/cancel", None, false),
        ("message/send", None, false),
        ("tasks/pushNotificationConfig/set", None, false),
        ("tasks/pushNotificationConfig/set", Some(1), true),
        ("unlisted/method", None, false),
        ("tasks/get", None, true),
        ("tasks/cancel", Some(0x77), false),
    ] {
        let object = request_json("1", method);
        let mut egress = Exchange::egress_with(MapperConfig {
            allow,
            ..MapperConfig::default()
        });
        let mut ask = Frame::request(b"corr", method, &object);
        ask.safety = label.map(|effect| (effect, "task 7".into()));
        egress.peer(&ask);
        if passes {
            egress.reaches_agent(&object);
            egress.emits_nothing();
        } else {
            egress.emits_transport_error(b"corr", SAFETY_POLICY);
            egress.reaches_nobody();
        }
    }
}

/// NPAMP-BRIDGE §9 (5), §7, ruling R16: what is allowed, by peer and effect.
#[test]
fn clause_5_policy_by_peer_and_effect() {
    for effect in 0..=3u8 {
        for (peer, allowed) in [("ed25519:peer", effect == 1), ("ed25519:other", true)] {
            let mut info = crate::harness::info(npamp_relay::a2a::port::Side::Responder);
            info.peer = peer.into();
            let config = MapperConfig {
                allow: EffectSet::ALL,
                peers: vec![("ed25519:peer".into(), EffectSet::of(&[1]))],
                ..MapperConfig::default()
            };
            let mut egress = Exchange::egress_with(config.clone());
            egress.end = crate::harness::End::with(config, info);
            // A method that the table calls read_only: the label alone decides.
            let object = request_json("1", "tasks/get");
            egress.peer(&Frame::request(b"corr", "tasks/get", &object).label(effect));
            if allowed {
                egress.reaches_agent(&object);
                egress.emits_nothing();
            } else {
                egress.emits_transport_error(b"corr", SAFETY_POLICY);
                egress.reaches_nobody();
            }
        }
    }
}

/// NPAMP-BRIDGE §9 (6): a notification has no correlation_id and gets no reply,
/// whatever the agent does with it.
#[test]
fn clause_6_notifications() {
    let object = r#"{"jsonrpc":"2.0","method":"message/send","params":{}}"#;
    let mut ingress = Exchange::ingress();
    ingress.end.notify(1, object);
    ingress.emits(&[Frame::notify("message/send", object).label(2)]);
    assert!(matches!(ingress.told_one(), CallEvent::Accepted));

    for event in [
        crate::harness::body(200, &result_json("null", "{}")),
        crate::harness::body(200, &error_json("null", -32601)),
        crate::harness::body(500, "no"),
        AgentEvent::Failed {
            message: "reset".into(),
            timed_out: false,
        },
    ] {
        let mut egress = Exchange::egress();
        egress.peer(&Frame::notify("message/send", object).label(2));
        let exchange = egress.reaches_agent(object);
        egress.agent(exchange, event);
        egress.emits_nothing();
    }
    // One with a correlation_id is malformed, and still not answered.
    let mut egress = Exchange::egress();
    let mut named = Frame::notify("message/send", object);
    named.correlation_id = b"corr".to_vec();
    egress.peer(&named);
    egress.emits_nothing();
    egress.reaches_nobody();
}
