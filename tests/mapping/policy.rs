//! What a responder refuses, and how: one code and one counter each.

use crate::harness::*;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::config::UnknownMethods;
use npamp_relay::a2a::port::Side;
use npamp_relay::a2a::stats::{Dropped, Refusal};
use npamp_relay::bridge::envelope::{ContentType, MessageKind, ProtocolId};
use npamp_relay::bridge::payload;
use npamp_relay::bridge::safety::{Effect, EffectSet, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::bridge::transport_error::TransportCode;

fn refused(egress: &mut End, code: TransportCode, refusal: Refusal) {
    let frame = egress.one_frame();
    assert_eq!(frame.transport_error().0, code, "{refusal:?}");
    assert_eq!(frame.correlation_id(), b"corr");
    assert_eq!(egress.stats.requests_refused.get(refusal), 1, "{refusal:?}");
    assert_eq!(egress.stats.requests_refused.total(), 1);
    assert!(egress.dispatches.is_empty());
    egress.assert_idle();
}

/// NPAMP-CC-JSONRPC §3, §4, NPAMP-MAP-A2A §3: the object must be what the frame says it is.
#[test]
fn malformed_requests_are_refused() {
    let good = request_json("1", "tasks/get");
    let cases = [
        (good.replace("2.0", "1.0"), "tasks/get", Refusal::NotJsonRpc),
        (
            good.replace("\"jsonrpc\":\"2.0\",", ""),
            "tasks/get",
            Refusal::NotJsonRpc,
        ),
        (
            good.replace("\"id\":1,", ""),
            "tasks/get",
            Refusal::NotJsonRpc,
        ),
        (result_json("1", "1"), "tasks/get", Refusal::NotJsonRpc),
        (format!("[{good}]"), "tasks/get", Refusal::NotJsonRpc),
        ("hello".to_owned(), "tasks/get", Refusal::NotJsonRpc),
        (String::new(), "tasks/get", Refusal::NotJsonRpc),
        (good.clone(), "tasks/cancel", Refusal::MethodDiffers),
        (good.clone(), "", Refusal::MethodDiffers),
        (
            good.replace("\"id\":1", "\"id\":1,\"id\":2"),
            "tasks/get",
            Refusal::NotJsonRpc,
        ),
    ];
    for (object, method, refusal) in cases {
        let mut egress = End::egress();
        egress.payload(&a2a(MessageKind::Request, b"corr", method, &object));
        refused(&mut egress, TransportCode::ENVELOPE_MALFORMED, refusal);
    }
}

/// NPAMP-CC-JSONRPC §4: an escaped method in the object equals the decoded one in the envelope.
#[test]
fn methods_compare_decoded() {
    let mut egress = End::egress();
    let object = request_json("1", "tasks\\/g\\u0065t");
    egress.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
    assert_eq!(object_of(&egress.one_dispatch().1), object.as_bytes());
}

/// NPAMP-CC-JSONRPC §3: content_type other than application/json.
#[test]
fn another_content_type_is_refused() {
    let mut egress = End::egress();
    let object = request_json("1", "tasks/get");
    let mut payload = a2a(MessageKind::Request, b"corr", "tasks/get", &object);
    payload.envelope.content_type = ContentType::CBOR;
    egress.payload(&payload);
    refused(
        &mut egress,
        TransportCode::ENVELOPE_MALFORMED,
        Refusal::ContentType,
    );
}

/// NPAMP-REG §9, NPAMP-BRIDGE §6: another protocol gets ProtocolUnsupported, a notification is
/// dropped and counted, and protocol_id 0 is malformed, not unsupported.
#[test]
fn uncarried_protocols() {
    let object = request_json("1", "tasks/get");
    for protocol in [1, 3, 5, 0x0f, 0x10, 0x7f, 0x80, 0xff] {
        let mut egress = End::egress();
        let mut payload = a2a(MessageKind::Request, b"corr", "tasks/get", &object);
        payload.envelope.protocol_id = ProtocolId(protocol);
        egress.payload(&payload);
        let frame = egress.frames[0].clone();
        assert_eq!(frame.decode().envelope.protocol_id.0, protocol);
        refused(
            &mut egress,
            TransportCode::PROTOCOL_UNSUPPORTED,
            Refusal::ProtocolNotCarried,
        );
        payload.envelope.kind = MessageKind::Notification;
        payload.envelope.correlation_id = b"";
        egress.payload(&payload);
        egress.no_frame();
        assert_eq!(egress.stats.dropped.get(Dropped::NotifyRefused), 1);
    }
    let mut egress = End::egress();
    let payload = a2a(MessageKind::Request, b"corr", "tasks/get", &object);
    let mut octets = payload::encode(REQUEST, &payload).unwrap();
    octets[4] = 0;
    egress.frame(BRIDGE, REQUEST, &octets);
    refused(
        &mut egress,
        TransportCode::ENVELOPE_MALFORMED,
        Refusal::EnvelopeMalformed,
    );
}

/// NPAMP-HELLO §5: a peer that did not list A2A cannot use it, nor is it used towards one.
#[test]
fn a_peer_without_a2a() {
    let mut silent = info(Side::Responder);
    silent.carries_a2a = false;
    let mut egress = End::with(MapperConfig::default(), silent.clone());
    let object = request_json("1", "tasks/get");
    egress.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
    refused(
        &mut egress,
        TransportCode::PROTOCOL_UNSUPPORTED,
        Refusal::ProtocolNotCarried,
    );
    egress.call(1, &object);
    let (code, _) = egress.one_transport_error();
    assert_eq!(code, TransportCode::PROTOCOL_UNSUPPORTED);
    egress.no_frame();
}

/// NPAMP-BRIDGE §7, NPAMP-MAP-A2A §5, §14: a labelled tasks/cancel passes a policy that an
/// unlabelled one, judged destructive, does not; no label lowers what the table says.
#[test]
fn safety_policy_and_its_fail_safe() {
    let writes = EffectSet::of(&[0, 1, 2]);
    let reads = EffectSet::of(&[0]);
    let unknown = "x/y";
    let cases = [
        ("tasks/cancel", Some(2), writes, true),
        ("tasks/cancel", None, writes, false),
        ("tasks/cancel", Some(3), writes, false),
        ("tasks/cancel", Some(0), reads, false),
        ("tasks/cancel", Some(200), writes, false),
        ("tasks/get", None, reads, true),
        ("tasks/get", Some(1), reads, false),
        ("SendMessage", None, writes, false),
        ("SendMessage", Some(2), writes, true),
        (unknown, None, writes, false),
        (unknown, None, EffectSet::ALL, true),
        ("tasks/get", None, EffectSet::NONE, false),
        (
            "tasks/pushNotificationConfig/delete",
            Some(0),
            writes,
            false,
        ),
    ];
    for (method, label, allow, passes) in cases {
        let config = MapperConfig {
            allow,
            ..MapperConfig::default()
        };
        let mut egress = End::with(config, info(Side::Responder));
        let object = request_json("1", method);
        let mut payload = a2a(MessageKind::Request, b"corr", method, &object);
        payload.safety = label.map(|effect| SafetyLabel {
            effect: Effect(effect),
            scope: "hint",
        });
        egress.payload(&payload);
        if passes {
            egress.no_frame();
            egress.one_dispatch();
        } else {
            refused(
                &mut egress,
                TransportCode::SAFETY_POLICY,
                Refusal::SafetyPolicy,
            );
        }
    }
}

/// Ruling R16: a peer's own set overrides the general one.
#[test]
fn policy_by_peer() {
    let config = MapperConfig {
        allow: EffectSet::ALL,
        peers: vec![
            ("ed25519:other".to_owned(), EffectSet::ALL),
            ("ed25519:peer".to_owned(), EffectSet::of(&[0])),
        ],
        ..MapperConfig::default()
    };
    let mut egress = End::with(config, info(Side::Responder));
    let object = request_json("1", "message/send");
    egress.payload(&a2a(MessageKind::Request, b"corr", "message/send", &object));
    refused(
        &mut egress,
        TransportCode::SAFETY_POLICY,
        Refusal::SafetyPolicy,
    );
    let notify = r#"{"jsonrpc":"2.0","method":"message/send"}"#;
    egress.payload(&a2a(MessageKind::Notification, b"", "message/send", notify));
    egress.no_frame();
    assert!(egress.dispatches.is_empty());
    assert_eq!(egress.stats.dropped.get(Dropped::NotifyRefused), 1);
}

/// NPAMP-MAP-A2A §4, ruling R16: unlisted methods, at both ends and in both settings.
#[test]
fn unknown_methods() {
    let object = request_json("1", "no/such");
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &object);
    let label = pair.passed[0].1.decode().safety.unwrap().effect;
    assert_eq!(label, Effect::DESTRUCTIVE);
    pair.agent(exchange, body(200, &error_json("1", -32601)));
    assert!(matches!(
        pair.ingress.one_event(),
        npamp_relay::a2a::port::CallEvent::ErrorResponse(_)
    ));
    let refuse = || MapperConfig {
        unknown_methods: UnknownMethods::Refuse,
        ..MapperConfig::default()
    };
    let mut egress = End::with(refuse(), info(Side::Responder));
    egress.payload(&a2a(MessageKind::Request, b"corr", "no/such", &object));
    refused(
        &mut egress,
        TransportCode::METHOD_UNSUPPORTED,
        Refusal::MethodUnknown,
    );
    let mut ingress = End::with(refuse(), info(Side::Initiator));
    ingress.call(1, &object);
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::METHOD_UNSUPPORTED);
    ingress.no_frame();
}

/// Ruling R16: a method of 255 octets is carried, one of 256 is refused.
#[test]
fn method_length() {
    let mut ingress = End::ingress();
    ingress.call(1, &request_json("1", &"m".repeat(255)));
    assert_eq!(ingress.one_frame().decode().envelope.method.len(), 255);
    ingress.call(2, &request_json("1", &"m".repeat(256)));
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::METHOD_UNSUPPORTED);
    let refused = &ingress.stats.calls_refused;
    assert_eq!(refused.get(Refusal::MethodTooLong), 1);
}

/// NPAMP-BRIDGE §5: a correlation_id is unique among the outstanding, per channel.
#[test]
fn duplicate_correlation_is_refused() {
    let mut egress = End::egress();
    let object = request_json("1", "tasks/get");
    let payload = a2a(MessageKind::Request, b"corr", "tasks/get", &object);
    egress.payload(&payload);
    let (exchange, _) = egress.one_dispatch();
    egress.payload(&payload);
    let (code, _) = egress.one_frame().transport_error();
    assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
    assert!(egress.dispatches.is_empty());
    let refused = &egress.stats.requests_refused;
    assert_eq!(refused.get(Refusal::CorrelationOutstanding), 1);
    egress.agent(exchange, body(200, &result_json("1", "1")));
    assert_eq!(egress.one_frame().kind, RESPONSE);
    // Free again once answered.
    egress.payload(&payload);
    egress.one_dispatch();
}

/// NPAMP-BRIDGE §6, ruling R12: no agent for the name.
#[test]
fn no_agent_for_the_server_name() {
    let mut other = info(Side::Responder);
    other.server_name = "poetry.relay.example".into();
    let mut egress = End::with(MapperConfig::default(), other);
    let object = request_json("1", "tasks/get");
    egress.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
    refused(&mut egress, TransportCode::NOT_DELIVERED, Refusal::NoAgent);
}

/// Memory is bounded: exchanges and octets, per association and per process, at both ends.
#[test]
fn bounds_answer_not_delivered() {
    let object = request_json("1", "tasks/get");
    let config = MapperConfig {
        exchanges_per_association: 2,
        ..MapperConfig::default()
    };
    let mut egress = End::with(config.clone(), info(Side::Responder));
    for correlation_id in [b"a", b"b"] {
        egress.payload(&a2a(
            MessageKind::Request,
            correlation_id,
            "tasks/get",
            &object,
        ));
    }
    assert_eq!(egress.dispatches.len(), 2);
    egress.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
    let frame = egress.one_frame();
    assert_eq!(frame.transport_error().0, TransportCode::NOT_DELIVERED);
    let stats = std::sync::Arc::clone(&egress.stats);
    let refused_by = &stats.requests_refused;
    assert_eq!(refused_by.get(Refusal::ExchangesFull), 1);
    // A notification counts too.
    let notify = r#"{"jsonrpc":"2.0","method":"n"}"#;
    egress.payload(&a2a(MessageKind::Notification, b"", "n", notify));
    assert_eq!(refused_by.get(Refusal::ExchangesFull), 2);

    let mut ingress = End::with(config, info(Side::Initiator));
    for call in 0..3 {
        ingress.call(call, &object);
    }
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    assert_eq!(ingress.frames.len(), 2);

    let config = MapperConfig {
        association_octets: object.len() * 2,
        foreign_message_octets: object.len(),
        ..MapperConfig::default()
    };
    let mut egress = End::with(config.clone(), info(Side::Responder));
    egress.payload(&a2a(MessageKind::Request, b"a", "tasks/get", &object));
    egress.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
    let frame = egress.one_frame();
    assert_eq!(frame.transport_error().0, TransportCode::NOT_DELIVERED);
    let stats = std::sync::Arc::clone(&egress.stats);
    let refused_by = &stats.requests_refused;
    assert_eq!(refused_by.get(Refusal::OctetsFull), 1);
    assert!(egress.mapper.held_octets(ASSOCIATION) <= object.len() * 2);
    let mut ingress = End::with(config, info(Side::Initiator));
    ingress.call(1, &format!("{object} "));
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    let refused_by = &ingress.stats.calls_refused;
    assert_eq!(refused_by.get(Refusal::TooLarge), 1);
}

/// Ruling R26: BRIDGE_ERROR only for a request whose correlation_id is readable; a malformed
/// NOTIFY is dropped; anything else gets a core ERROR; an error is never answered.
#[test]
fn answers_to_bad_frames() {
    let object = request_json("1", "tasks/get");
    let request = payload::encode(
        REQUEST,
        &a2a(MessageKind::Request, b"corr", "tasks/get", &object),
    )
    .unwrap();
    let envelope_at = 4;

    // Each malformed kind with a readable correlation_id.
    let mut contradicts = request.clone();
    contradicts[envelope_at + 1] = 2;
    let truncated = request[..envelope_at + 12].to_vec();
    let critical = [
        &request[..envelope_at + 19],
        &[0x80, 1, 0, 0],
        object.as_bytes(),
    ]
    .concat();
    for octets in [&contradicts, &truncated, &critical] {
        let mut egress = End::egress();
        egress.frame(BRIDGE, REQUEST, octets);
        refused(
            &mut egress,
            TransportCode::ENVELOPE_MALFORMED,
            Refusal::EnvelopeMalformed,
        );
        assert!(egress.channel_errors.is_empty());
    }

    // Not readable.
    for octets in [&b"{}"[..], b"", &request[..7]] {
        let mut egress = End::egress();
        egress.frame(BRIDGE, REQUEST, octets);
        egress.no_frame();
        assert_eq!(egress.channel_errors.len(), 1);
        assert_eq!(egress.stats.dropped.get(Dropped::Malformed), 1);
    }

    // Notifications and errors are never answered; other frames get ERROR.
    for (frame_type, errors, reason) in [
        (NOTIFY, 0, Dropped::NotifyMalformed),
        (ERROR, 0, Dropped::Malformed),
        (RESPONSE, 1, Dropped::Malformed),
        (DATA, 1, Dropped::Malformed),
        (END, 1, Dropped::Malformed),
        (0x0106, 1, Dropped::NotABridgeFrame),
    ] {
        let mut egress = End::egress();
        egress.frame(BRIDGE, frame_type, &request);
        egress.no_frame();
        assert_eq!(egress.channel_errors.len(), errors, "{frame_type:#x}");
        assert_eq!(egress.stats.dropped.get(reason), 1, "{frame_type:#x}");
    }

    // A channel that carries no bridge frames.
    let mut egress = End::egress();
    egress.frame(0x000c, REQUEST, &request);
    assert_eq!(egress.stats.dropped.get(Dropped::Channel), 1);
    egress.no_frame();
}

/// NPAMP-CC-STREAM §6.3: nothing here is resumable, and a cancel does not belong in a request.
#[test]
fn resume_is_refused() {
    let object = request_json("1", "tasks/resubscribe");
    for (control, code, refusal) in [
        (
            StreamControl::resume(3),
            TransportCode::NOT_RESUMABLE,
            Refusal::NotResumable,
        ),
        (
            StreamControl::cancel(3),
            TransportCode::ENVELOPE_MALFORMED,
            Refusal::ControlMisplaced,
        ),
    ] {
        let mut egress = End::egress();
        let mut payload = a2a(MessageKind::Request, b"corr", "tasks/resubscribe", &object);
        payload.stream_control = Some(control);
        egress.payload(&payload);
        refused(&mut egress, code, refusal);
    }
}

/// NPAMP-CC-STREAM §9: a malformed StreamControl on a request is EnvelopeMalformed.
#[test]
fn malformed_stream_control_is_refused() {
    let object = request_json("1", "message/stream");
    let mut payload = a2a(MessageKind::Request, b"corr", "message/stream", &object);
    payload.stream_control = Some(StreamControl::data(1));
    let good = payload::encode(REQUEST, &payload).unwrap();
    let control_at = good.len() - object.len() - 11;
    for (at, value) in [(control_at, 9), (control_at + 1, 7), (control_at - 1, 12)] {
        let mut octets = good.clone();
        octets[at] = value;
        let mut egress = End::egress();
        egress.frame(BRIDGE, REQUEST, &octets);
        refused(
            &mut egress,
            TransportCode::ENVELOPE_MALFORMED,
            Refusal::EnvelopeMalformed,
        );
    }
}
