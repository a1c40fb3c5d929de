//! NPAMP-MAP-A2A §14.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{event, info, request_json, result_json};
use crate::rig::{self, Rig, Seen};
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, Side};
use npamp_relay::association::{DropReason, HelloMode, SendError};
use npamp_relay::bridge::safety::EffectSet;
use npamp_relay::wire::{Flags, FrameType};

/// §4, §5: the unary methods of v0.3, and the released names of v1.0, with their effects.
const UNARY: [(&str, u8); 15] = [
    ("message/send", 2),
    ("tasks/get", 0),
    ("tasks/cancel", 2),
    ("tasks/pushNotificationConfig/set", 1),
    ("tasks/pushNotificationConfig/get", 0),
    ("tasks/pushNotificationConfig/list", 0),
    ("tasks/pushNotificationConfig/delete", 3),
    ("SendMessage", 2),
    ("GetTask", 0),
    ("ListTasks", 0),
    ("CancelTask", 2),
    ("CreateTaskPushNotificationConfig", 1),
    ("GetTaskPushNotificationConfig", 0),
    ("ListTaskPushNotificationConfigs", 0),
    ("DeleteTaskPushNotificationConfig", 3),
];

/// §6: the streaming ones.
const STREAMED: [(&str, u8); 4] = [
    ("message/stream", 2),
    ("tasks/resubscribe", 0),
    ("SendStreamingMessage", 2),
    ("SubscribeToTask", 0),
];

const FINAL: &str =
    r#"{"kind":"status-update","taskId":"t","status":{"state":"completed"},"final":true}"#;

/// The request for `method` as the mapping has it: labelled when it mutates (§5).
fn ask(correlation_id: &[u8], method: &str, effect: u8) -> Frame {
    let mut frame = Frame::request(correlation_id, method, &request_json("1", method));
    frame.safety = (effect > 0).then(|| (effect, String::new()));
    frame
}

/// `method` through a relay as requester and one as responder: the same request
/// frame, and the reply that `reply` makes of its correlation_id.
fn through(method: &str, effect: u8, body: &str, reply: impl Fn(&[u8]) -> Frame) -> CallEvent {
    let object = request_json("1", method);
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1");
    ingress.end.call(1, &object);
    ingress.emits(&[ask(&id, method, effect)]);
    let mut egress = Exchange::egress();
    egress.peer(&ask(&id, method, effect));
    let exchange = egress.reaches_agent(&object);
    egress.agent_body(exchange, body);
    egress.emits(&[reply(&id)]);
    ingress.peer(&reply(&id));
    ingress.told_one()
}

/// NPAMP-MAP-A2A §14 (1): protocol_id 0x02 and content_type 0x01 on every frame,
/// under no other identifier, and A2A by its identifier alone.
#[test]
fn clause_1_identifier_and_content_type() {
    let body = result_json("1", r#"{"kind":"task","id":"t"}"#);
    for method in ["message/send", "tasks/get"] {
        let effect = if method == "tasks/get" { 0 } else { 2 };
        let told = through(method, effect, &body, |id| Frame::response(id, &body));
        assert!(matches!(told, CallEvent::Response(object) if object == body));
    }
    for protocol_id in [0x10, 0x7f, 0x80, 0xff] {
        let mut egress = Exchange::egress();
        egress.peer(&ask(b"corr", "tasks/get", 0).protocol(protocol_id));
        egress.emits_transport_error_like(PROTOCOL_UNSUPPORTED, |text| {
            Frame::transport_error(b"corr", PROTOCOL_UNSUPPORTED, text).protocol(protocol_id)
        });
        egress.reaches_nobody();
    }
    // §3: no jsonrpc member, no A2A object.
    let mut egress = Exchange::egress();
    let object = r#"{"id":1,"method":"tasks/get"}"#;
    egress.peer(&Frame::request(b"corr", "tasks/get", object));
    egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
    egress.reaches_nobody();
}

/// NPAMP-MAP-A2A §14 (2): each unary method with its method string and a
/// correlation_id from its id, and each A2A error as the agent spelled it.
#[test]
fn clause_2_unary_methods_and_errors() {
    for (method, effect) in UNARY {
        let body = result_json("1", &format!("{{\"of\" : \"{method}\"}}"));
        let told = through(method, effect, &body, |id| Frame::response(id, &body));
        assert!(matches!(told, CallEvent::Response(object) if object == body));
    }
    for code in [
        -32001, -32002, -32003, -32004, -32005, -32006, -32007, -32008, -32009, -32099, -32000,
        -32601, -32602,
    ] {
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":{code}, \"message\":\"TaskNotFound\",\"data\":[{{\"@type\":\"x\",\"n\":1.50}}]}}}} "
        );
        let told = through("tasks/get", 0, &body, |id| Frame::error(id, &body));
        assert!(matches!(told, CallEvent::ErrorResponse(object) if object == body));
    }
}

/// NPAMP-MAP-A2A §14 (2), §4: what a receiver does not carry is MethodUnsupported.
#[test]
fn clause_2_a_method_that_is_not_carried() {
    let mut egress = Exchange::egress_with(MapperConfig {
        unknown_methods: npamp_relay::a2a::config::UnknownMethods::Refuse,
        ..MapperConfig::default()
    });
    for method in ["tasks/sendSubscribe", "tasks/subscribe", "tools/call"] {
        egress.peer(&ask(b"corr", method, 3));
        egress.emits_transport_error(b"corr", METHOD_UNSUPPORTED);
        egress.reaches_nobody();
    }
}

/// NPAMP-MAP-A2A §14 (3): the label of every method by §5; tasks/cancel with its
/// label passes a policy without `destructive`, and without it does not.
#[test]
fn clause_3_effects() {
    for (method, effect) in UNARY.into_iter().chain(STREAMED) {
        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("1");
        ingress.end.call(1, &request_json("1", method));
        ingress.emits(&[ask(&id, method, effect)]);
        // At the receiver: without the label it is destructive, unless it only reads.
        let mut egress = Exchange::egress_with(MapperConfig {
            allow: EffectSet::of(&[0, 1, 2]),
            ..MapperConfig::default()
        });
        egress.peer(&ask(b"corr", method, 0));
        if effect == 0 {
            egress.dispatch();
            egress.emits_nothing();
        } else {
            egress.emits_transport_error(b"corr", SAFETY_POLICY);
            egress.reaches_nobody();
        }
    }
    let object = request_json("1", "tasks/cancel");
    let mut egress = Exchange::egress_with(MapperConfig {
        allow: EffectSet::of(&[0, 1, 2]),
        ..MapperConfig::default()
    });
    egress.peer(&ask(b"corr", "tasks/cancel", 2));
    let exchange = egress.reaches_agent(&object);
    let body = result_json("1", r#"{"kind":"task","status":{"state":"canceled"}}"#);
    egress.agent_body(exchange, &body);
    egress.emits(&[Frame::response(b"corr", &body)]);
    egress.peer(&Frame::request(b"corr", "tasks/cancel", &object));
    egress.emits_transport_error(b"corr", SAFETY_POLICY);
    egress.reaches_nobody();
}

/// NPAMP-MAP-A2A §14 (4): each event is one DATA frame without a trace of SSE; the
/// `final: true` status-update is the END frame with the final bit.
#[test]
fn clause_4_streams() {
    let events = [
        result_json("1", r#"{"kind":"task","id":"t"}"#),
        result_json("1", r#"{"kind":"artifact-update","lastChunk":true}"#),
        result_json("1", r#"{"kind":"status-update","final":false}"#),
    ];
    let last = result_json("1", FINAL);
    for (method, effect) in [("message/stream", 2), ("tasks/resubscribe", 0)] {
        let mut egress = Exchange::egress();
        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("1");
        ingress.end.call(1, &request_json("1", method));
        ingress.emits(&[ask(&id, method, effect)]);
        egress.peer(&ask(&id, method, effect));
        let exchange = egress.reaches_agent(&request_json("1", method));
        egress.agent_streams(exchange, &events.each_ref().map(|event| &**event));
        egress.agent(exchange, event(&last));
        let mut frames: Vec<Frame> = (1..)
            .zip(&events)
            .map(|(event_id, event)| Frame::data(&id, event_id, event))
            .collect();
        frames.push(Frame::end(&id, 4, &last));
        egress.emits(&frames);
        for frame in &frames {
            assert!(!frame.octets().windows(5).any(|five| five == b"data:"));
            ingress.peer(frame);
        }
        let told = ingress.told();
        assert_eq!(told.len(), 4);
        assert!(
            matches!(&told[3], CallEvent::StreamEnd { event_id: 4, object: Some(object) } if *object == last)
        );
    }
    // v1.0 has no `final`: the agent's orderly close is an END that carries nothing (ruling R15).
    let update = result_json(
        "1",
        r#"{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}"#,
    );
    let mut egress = Exchange::egress();
    egress.peer(&ask(b"corr", "SendStreamingMessage", 2));
    let exchange = egress.reaches_agent(&request_json("1", "SendStreamingMessage"));
    egress.agent_streams(exchange, &[&update]);
    egress.agent(exchange, AgentEvent::StreamEnd);
    egress.emits(&[Frame::data(b"corr", 1, &update), Frame::end(b"corr", 2, "")]);
}

/// NPAMP-MAP-A2A §14 (5): tasks/resubscribe resumed from a non-zero cursor, and one
/// that is refused with NotResumable; no consumed event is sent again.
#[test]
fn clause_5_resubscribe() {
    let method = "tasks/resubscribe";
    let numbered = |n: u64| result_json("1", &n.to_string());
    let mut egress = Exchange::egress();
    egress.peer(&ask(b"corr", method, 0));
    let exchange = egress.reaches_agent(&request_json("1", method));
    let events: Vec<String> = (1..=3).map(numbered).collect();
    egress.agent_streams(exchange, &events.iter().map(|e| &**e).collect::<Vec<_>>());
    let frames: Vec<Frame> = (1..=3)
        .map(|n| Frame::data(b"corr", n, &numbered(n)))
        .collect();
    egress.emits(&frames);
    egress.end.down();
    egress.end.up(8, info(Side::Responder));
    egress.peer(&ask(b"corr", method, 0).control(1, 0, 2));
    egress.emits(&[Frame::data(b"corr", 3, &numbered(3))]);
    egress.reaches_nobody();
    egress.agent(exchange, event(&result_json("1", FINAL)));
    egress.emits(&[Frame::end(b"corr", 4, &result_json("1", FINAL))]);
    egress.peer(&ask(b"other", method, 0).control(1, 0, 2));
    egress.emits_transport_error(b"other", NOT_RESUMABLE);
    egress.reaches_nobody();
    // The consumer's own request: the correlation_id of the stream, its cursor, and the object.
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1");
    ingress.end.call(1, &request_json("1", method));
    ingress.emits(&[ask(&id, method, 0)]);
    ingress.peer(&Frame::data(&id, 1, &numbered(1)));
    ingress.end.down();
    ingress.end.up(8, info(Side::Initiator));
    ingress.emits(&[ask(&id, method, 0).control(1, 0, 1)]);
}

/// NPAMP-MAP-A2A §14 (6): the card and both extended cards as document sets, octet
/// for octet, a signature as a detached proof, whole on Bridge or whole on Discovery.
#[test]
fn clause_6_cards() {
    // {"alg":"EdDSA"}
    let signature = r#"{"protected":"eyJhbGciOiJFZERTQSJ9", "signature":"AA"}"#;
    let card = format!("{{\"name\" : \"a\",\"signatures\":[ {signature} ],\"x\":1e+2}}");
    for channel in [BRIDGE, DISCOVERY] {
        let set = |doc_id: &str| {
            let binding = Binding::document(doc_id, card.as_bytes(), 1);
            [
                Frame::part(DATA, b"corr", &binding, card.as_bytes()).on(channel),
                Frame::part(
                    END,
                    b"corr",
                    &binding.proof(0, 0x0807),
                    signature.as_bytes(),
                )
                .on(channel),
            ]
        };
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", "agent/getCard", "").on(channel));
        let (exchange, _) = egress.dispatch();
        egress.agent_body(exchange, &card);
        egress.emits(&set("agent-card"));
        for method in ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"] {
            let object = request_json("1", method);
            egress.peer(&ask(b"corr", method, 0).on(channel));
            let exchange = egress.reaches_agent(&object);
            egress.agent_body(exchange, &result_json("1", &card));
            egress.emits(&set("extended-agent-card"));
        }
    }
}

/// NPAMP-MAP-A2A §14 (7), §8: the configuration methods of both versions are
/// ordinary exchanges, and PushNotificationNotSupported comes back verbatim. That
/// no webhook is called is shown by `tests/odd_agents.rs`.
#[test]
fn clause_7_push_configuration() {
    for (method, effect) in UNARY {
        if !method.contains("PushNotificationConfig") && !method.contains("pushNotificationConfig")
        {
            continue;
        }
        let body = result_json("1", r#"{"url":"https://hook.example/x","token":"\u0041"}"#);
        let told = through(method, effect, &body, |id| Frame::response(id, &body));
        assert!(matches!(told, CallEvent::Response(object) if object == body));
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32003,"message":"Push Notification is not supported","data":null}}"#;
        let told = through(method, effect, body, |id| Frame::error(id, body));
        assert!(matches!(told, CallEvent::ErrorResponse(object) if object == body));
    }
}

/// NPAMP-MAP-A2A §14 (8), §9: no frame goes to a channel that the peer did not
/// advertise, and none is taken from one that we did not; A2A has no other channel.
#[test]
fn clause_8_channels() {
    // The peer carries Bridge and not Discovery.
    let mut rig = Rig::new(
        npamp_relay::handshake::Side::Responder,
        rig::config(HelloMode::Required),
    );
    let hello = map(&[(uint(0), uint(1)), (uint(1), array(&[0x02, 0x0d, 0x00]))]);
    rig.send(rig::CONTROL, FrameType::HELLO, &hello).0.unwrap();
    rig.transmit();
    assert_eq!(
        rig.association
            .send(rig::DISCOVERY, FrameType(REQUEST), Flags::NONE, vec![]),
        Err(SendError::ChannelUnadvertised)
    );
    for channel in [0x0001, 0x000c, 0x000e, 0x0011] {
        let channel = npamp_relay::wire::ChannelId(channel);
        let (_, seen) = rig.send(channel, FrameType(REQUEST), b"x");
        assert_eq!(seen, [Seen::Dropped(DropReason::ChannelUnadvertised)]);
    }
    // Only cards travel on Discovery.
    let mut egress = Exchange::egress();
    egress.peer(&ask(b"corr", "message/send", 2).on(DISCOVERY));
    egress.emits_transport_error_like(METHOD_UNSUPPORTED, |text| {
        Frame::transport_error(b"corr", METHOD_UNSUPPORTED, text).on(DISCOVERY)
    });
    egress.reaches_nobody();
    for channel in [0x0001, 0x000c, 0x0011] {
        egress.peer(&ask(b"corr", "message/send", 2).on(channel));
        egress.emits_nothing();
        egress.reaches_nobody();
    }
}

/// NPAMP-MAP-A2A §14 (9), §10: no frame type and no TLV beyond the listed ones: no
/// tag for DocumentBinding exists until both peers state one (deviation R9), and
/// without it a card request is MethodUnsupported and an extended card is JSON-RPC.
#[test]
fn clause_9_no_code_point_of_its_own() {
    let mut plain = info(Side::Responder);
    plain.document_binding = None;
    let mut egress = Exchange::with_info(plain.clone());
    egress.peer(&Frame::request(b"corr", "agent/getCard", ""));
    egress.emits_transport_error(b"corr", METHOD_UNSUPPORTED);
    let method = "GetExtendedAgentCard";
    egress.peer(&ask(b"corr", method, 0));
    let exchange = egress.reaches_agent(&request_json("1", method));
    let body = result_json("1", r#"{"name":"a","signatures":[]}"#);
    egress.agent_body(exchange, &body);
    egress.emits(&[Frame::response(b"corr", &body)]);
    plain.side = Side::Initiator;
    let mut ingress = Exchange::with_info(plain);
    ingress.end.card(1);
    ingress.emits_nothing();
    ingress.told_transport_error(METHOD_UNSUPPORTED);
}
