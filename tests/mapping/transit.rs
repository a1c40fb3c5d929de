//! A transit between an ingress and an egress, three mappers in one thread: what
//! passes is unchanged, what belongs to a hop is the hop's own. NPAMP-BRIDGE §5, §7,
//! NPAMP-CC-STREAM §5–§7, NPAMP-CC-DOC §4, NPAMP-MAP-A2A §5 and rulings R9, R11,
//! R13, R14, R17, R18, R25.

mod chain;
mod cuts;
mod documents;

use crate::harness::*;
use bytes::Bytes;
use chain::{Chain, Middle, UPSTREAM};
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::config::{StreamConfig, UnknownMethods};
use npamp_relay::a2a::port::{
    AgentEvent, CallEvent, CallId, CallRequest, DispatchAction, Input, Side, TransportError,
    UpstreamEvent,
};
use npamp_relay::a2a::stats::{Dropped, Outcome, Refusal, Resumption};
use npamp_relay::a2a::streams::StreamRegistry;
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::safety::{Effect, EffectSet, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::bridge::transport_error::{TransportCode, TransportErrorBody};
use npamp_relay::limits::{CORRELATION_RANDOM_OCTETS, HOPS_MAX};
use std::sync::Arc;

const STREAM: &str = "message/stream";

fn numbered(n: u64) -> String {
    result_json("1", &n.to_string())
}

/// NPAMP-BRIDGE §5, NPAMP-CC-JSONRPC §3–§5, ruling R11: foreign octets, envelope method and
/// label pass, the correlation_id is each hop's own.
#[test]
fn a_request_and_its_answer_pass_unchanged() {
    let object = " {\"params\":{\"a\":1.0e+2,\"a\":\"\\u00e9\"},\t\"method\":\"message\\/send\",\"id\":\"q\\u0041\",\"jsonrpc\":\"2.0\"}\r\n";
    for answer in [
        " {\"result\":{\"x\":-0.0},\"id\":\"qA\",\"jsonrpc\":\"2.0\"}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":\"qA\",\"error\":{\"code\":-32001,\"message\":\"\\u0041\",\"data\":1e400}}",
    ] {
        let mut chain = Chain::new();
        let (exchange, dispatch) = chain.ask(1, object);
        assert_eq!(object_of(&dispatch), object.as_bytes());
        let (first, second) = (&chain.first[0].1, &chain.second[0].1);
        assert_eq!((first.kind, second.kind), (REQUEST, REQUEST));
        let (one, other) = (first.decode(), second.decode());
        assert_eq!(one.foreign, other.foreign);
        assert_eq!(one.envelope.method, other.envelope.method);
        assert_eq!(one.safety, other.safety);
        let (one, other) = (one.envelope.correlation_id, other.envelope.correlation_id);
        assert_ne!(
            one[..CORRELATION_RANDOM_OCTETS],
            other[..CORRELATION_RANDOM_OCTETS]
        );
        assert_eq!(
            one[CORRELATION_RANDOM_OCTETS..],
            other[CORRELATION_RANDOM_OCTETS..]
        );
        assert_eq!(chain.middle.stats.transits.get(), 1);
        chain.agent(exchange, body(500, answer));
        let event = chain.ingress.one_event();
        match &event {
            CallEvent::Response(got) | CallEvent::ErrorResponse(got) => {
                assert_eq!(got, answer.as_bytes());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            matches!(event, CallEvent::ErrorResponse(_)),
            answer.contains("error")
        );
        chain.assert_idle();
    }
}

/// NPAMP-BRIDGE §7, NPAMP-MAP-A2A §5: a label passes with all it says, an unregistered effect
/// included, and where there is none the transit makes none, as it would as an ingress.
#[test]
fn labels_pass_unchanged() {
    let labels = [
        None,
        Some(SafetyLabel {
            effect: Effect::NON_IDEMPOTENT_WRITE,
            scope: "tasks/\u{e9}",
        }),
        Some(SafetyLabel::new(Effect::READ_ONLY)),
        Some(SafetyLabel {
            effect: Effect(200),
            scope: "x",
        }),
    ];
    for method in ["message/send", "tasks/get", "no/such/method", STREAM] {
        for label in labels {
            let object = request_json("1", method);
            let mut middle = Middle::new(MapperConfig::default());
            let mut request = a2a(MessageKind::Request, b"c", method, &object);
            request.safety = label;
            middle.inbound_payload(&request);
            assert_eq!(
                middle.to_egress.len(),
                1,
                "{method}: {:?}",
                middle.to_ingress
            );
            assert_eq!(middle.to_egress[0].decode().safety, label, "{method}");

            let object = object.replace("\"id\":1,", "");
            let mut middle = Middle::new(MapperConfig::default());
            let mut notification = a2a(MessageKind::Notification, b"", method, &object);
            notification.safety = label;
            middle.inbound_payload(&notification);
            let passed = &middle.to_egress[0];
            assert_eq!(
                (passed.kind, passed.decode().safety),
                (NOTIFY, label),
                "{method}"
            );
            assert_eq!(passed.decode().foreign, object.as_bytes());
            middle.assert_idle();
        }
    }
    for label in labels {
        let mut middle = Middle::new(MapperConfig::default());
        let mut request = a2a(MessageKind::Request, b"c", "agent/getCard", "");
        request.safety = label;
        middle.inbound_payload(&request);
        assert_eq!(middle.to_egress[0].decode().safety, label);
        assert!(middle.to_egress[0].decode().foreign.is_empty());
    }
}

/// NPAMP-BRIDGE §8: one way, and whatever becomes of it nothing goes back.
#[test]
fn notifications_pass() {
    let mut chain = Chain::new();
    let object = r#"{"jsonrpc":"2.0","method":"message/send","params":{}}"#;
    chain.ingress.notify(1, object);
    chain.pass();
    let (exchange, dispatch) = chain.egress.one_dispatch();
    assert_eq!(object_of(&dispatch), object.as_bytes());
    assert!(matches!(
        dispatch.action,
        DispatchAction::Notification { .. }
    ));
    assert!(matches!(chain.ingress.one_event(), CallEvent::Accepted));
    chain.agent(exchange, body(200, ""));
    assert_eq!((chain.first.len(), chain.second.len()), (1, 1));
    chain.assert_idle();
    // Without a way on.
    chain.middle.fail_calls = true;
    chain.ingress.notify(2, object);
    chain.pass();
    assert_eq!((chain.first.len(), chain.second.len()), (2, 1));
    chain.middle.assert_idle();
}

/// Ruling R14: whatever fails at the far end is told in the same words as without a transit.
#[test]
fn failures_are_told_as_without_a_transit() {
    let refused = |status: u16, retry_after: Option<&str>| AgentEvent::Body {
        status,
        content_type: "text/html".to_owned(),
        retry_after: retry_after.map(str::to_owned),
        body: Bytes::from_static(b"<html>"),
    };
    let failed = |message: &str, timed_out| AgentEvent::Failed {
        message: message.to_owned(),
        timed_out,
    };
    let scripts: Vec<Vec<AgentEvent>> = vec![
        vec![refused(429, Some("3"))],
        vec![refused(503, None)],
        vec![failed("no answer", true)],
        vec![failed("no connection", false)],
        vec![body(200, &error_json("2", -1))],
        vec![AgentEvent::StreamEnd],
        vec![AgentEvent::StreamOpen, failed("broken", false)],
        vec![
            AgentEvent::StreamOpen,
            event(&numbered(1)),
            failed("broken", true),
        ],
        vec![
            AgentEvent::StreamOpen,
            event(&numbered(1)),
            event("no JSON"),
        ],
        vec![
            AgentEvent::StreamOpen,
            event(&numbered(1)),
            event(&error_json("1", -32000)),
        ],
        vec![AgentEvent::StreamOpen, event(&error_json("1", -32000))],
        vec![
            AgentEvent::StreamOpen,
            event(&numbered(1)),
            AgentEvent::StreamEnd,
        ],
        vec![AgentEvent::StreamOpen, AgentEvent::StreamEnd],
        vec![
            AgentEvent::StreamOpen,
            event(&result_json(
                "1",
                r#"{"kind":"status-update","final":true}"#,
            )),
        ],
    ];
    for script in scripts {
        let (mut pair, mut chain) = (Pair::new(), Chain::new());
        let object = request_json("1", STREAM);
        let (direct, _) = pair.ask(1, &object);
        let (through, _) = chain.ask(1, &object);
        for event in &script {
            pair.agent(direct, event.clone());
            chain.agent(through, event.clone());
        }
        let told = |end: &End| format!("{:?}", end.calls);
        assert!(!pair.ingress.calls.is_empty());
        assert_eq!(told(&chain.ingress), told(&pair.ingress), "{script:?}");
        // Frame for frame, event_ids and all.
        let frames = |passed: &[(bool, Frame)]| -> Vec<_> {
            let back = passed.iter().filter(|(to_egress, _)| !to_egress);
            back.map(|(_, frame)| {
                let decoded = frame.decode();
                (
                    frame.kind,
                    decoded.stream_control.map(|control| control.event_id),
                    decoded.foreign.to_vec(),
                )
            })
            .collect()
        };
        assert_eq!(frames(&chain.first), frames(&pair.passed), "{script:?}");
        assert_eq!(frames(&chain.second), frames(&pair.passed), "{script:?}");
        chain.assert_idle();
    }
}

/// Ruling R14: what fails between the relays is told like any other failure; a deadline of
/// the transit's own is marked as one.
#[test]
fn failures_of_the_transit_itself() {
    for (timed_out, message, want) in [
        (false, "no way on", "no way on"),
        (true, "too slow", "timeout: too slow"),
        (true, "timeout: there", "timeout: there"),
    ] {
        let mut chain = Chain::new();
        chain.ingress.call(1, &request_json("1", "message/send"));
        chain.pass();
        let exchange = chain.middle.only_exchange();
        let error = TransportError {
            code: TransportCode::NOT_DELIVERED.0,
            message: message.to_owned(),
            timed_out,
        };
        let event = UpstreamEvent::Call(CallEvent::TransportError(error));
        chain.middle.input(Input::Agent {
            exchange,
            event: AgentEvent::Upstream(event),
        });
        chain.pass();
        match chain.ingress.one_event() {
            CallEvent::TransportError(error) => {
                assert_eq!((error.message.as_str(), error.timed_out), (want, timed_out));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// NPAMP-CC-STREAM §5.1: event_ids pass as they are, gaps included, data, end and error;
/// `resumable` is what each hop says of itself.
#[test]
fn event_ids_pass_and_resumable_does_not() {
    let errors = [
        error_json("1", -32000).into_bytes(),
        TransportErrorBody {
            code: TransportCode::NOT_DELIVERED,
            message: "http 503; retry-after 7",
        }
        .encode(),
    ];
    for ending in 0..3 {
        for (resumable, retains) in [(true, true), (false, true), (true, false)] {
            let mut config = MapperConfig::default();
            if !retains {
                config.stream.retention = std::time::Duration::ZERO;
            }
            let mut middle = Middle::new(config);
            let correlation_id = middle.stream_request(STREAM);
            let ids = [2, 3, 700, u64::MAX - 1];
            for event_id in ids {
                let object = numbered(event_id);
                let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
                data.stream_control = Some(StreamControl {
                    resumable,
                    ..StreamControl::data(event_id)
                });
                middle.upstream_payload(&data);
                let frame = middle.one_back();
                let decoded = frame.decode();
                assert_eq!(decoded.foreign, object.as_bytes());
                let control = decoded.stream_control.unwrap();
                assert_eq!((control.event_id, control.resumable), (event_id, retains));
            }
            let kind = match ending {
                0 => MessageKind::StreamEnd,
                _ => MessageKind::Error,
            };
            let mut last = a2a(kind, &correlation_id, "", "");
            if ending > 0 {
                last.foreign = &errors[ending - 1];
            }
            last.stream_control = Some(StreamControl::data(u64::MAX));
            middle.upstream_payload(&last);
            let frame = middle.one_back();
            let decoded = frame.decode();
            assert_eq!(decoded.foreign, last.foreign);
            let control = decoded.stream_control.unwrap();
            assert_eq!((control.event_id, control.resumable), (u64::MAX, retains));
            middle.assert_idle();
            let kept = u64::from(retains);
            assert_eq!(
                middle.stats.kept.get(),
                kept,
                "it is kept only to be resumed"
            );
        }
    }
}

/// Ruling R13: the upstream association states what the peer's did, one hop further on; a
/// chain without an end is cut, and says so.
#[test]
fn parameters_are_copied_and_hops_counted() {
    for hops in [0, 1, HOPS_MAX - 1, HOPS_MAX] {
        let mut stated = info(Side::Responder);
        stated.parameters.hops = hops;
        stated.parameters.lines = vec![
            ("a2a-version".into(), "1.0".into()),
            ("x-a2a-extensions".into(), "b, a".into()),
        ];
        let lines = stated.parameters.lines.clone();
        let mut middle = Middle::with(MapperConfig::default(), stated, info(Side::Initiator));
        let object = request_json("1", "message/send");
        middle.inbound_payload(&a2a(MessageKind::Request, b"c", "message/send", &object));
        if hops == HOPS_MAX {
            let (code, text) = middle.one_back().transport_error();
            assert_eq!(code, TransportCode::NOT_DELIVERED);
            assert!(text.contains("too many relays"), "{text}");
            assert_eq!(middle.stats.requests_refused.get(Refusal::TooManyHops), 1);
            middle.assert_idle();
            continue;
        }
        let (_, transit) = &middle.transits[0];
        assert_eq!(transit.parameters.hops, hops + 1);
        assert_eq!(transit.parameters.lines, lines);
        assert_eq!(transit.route, chain::ROUTE);
    }
}

/// Rulings R13, R6: a peer without HELLO states nothing, so that the method's spelling does.
#[test]
fn without_hello_the_version_follows_the_spelling() {
    for (method, version) in [("SendMessage", Some("1.0")), ("message/send", None)] {
        let mut stated = info(Side::Responder);
        stated.hello = false;
        let mut middle = Middle::with(MapperConfig::default(), stated, info(Side::Initiator));
        let object = request_json("1", method);
        middle.inbound_payload(&a2a(MessageKind::Request, b"c", method, &object));
        let parameters = &middle.transits[0].1.parameters;
        assert_eq!(parameters.values("a2a-version").next(), version);
    }
}

/// Rulings R14, R16: policy applies at the transit as at an egress.
#[test]
fn policy_applies_at_the_transit() {
    let config = MapperConfig {
        unknown_methods: UnknownMethods::Refuse,
        allow: EffectSet::of(&[0, 2]),
        peers: vec![("ed25519:other".to_owned(), EffectSet::ALL)],
        ..MapperConfig::default()
    };
    let ask = |peer: &str, method: &str, label: Option<u8>| {
        let mut stated = info(Side::Responder);
        stated.peer = peer.into();
        let mut middle = Middle::with(config.clone(), stated, info(Side::Initiator));
        let object = request_json("1", method);
        let mut request = a2a(MessageKind::Request, b"c", method, &object);
        request.safety = label.map(|effect| SafetyLabel::new(Effect(effect)));
        middle.inbound_payload(&request);
        if middle.to_egress.is_empty() {
            Some(middle.one_back().transport_error().0)
        } else {
            None
        }
    };
    let refused = Some(TransportCode::SAFETY_POLICY);
    assert_eq!(ask("ed25519:peer", "message/send", Some(2)), None);
    assert_eq!(ask("ed25519:peer", "message/send", None), refused);
    assert_eq!(ask("ed25519:peer", "tasks/get", None), None);
    assert_eq!(ask("ed25519:peer", "tasks/get", Some(3)), refused);
    assert_eq!(ask("ed25519:other", "message/send", None), None);
    assert_eq!(
        ask("ed25519:other", "no/such/method", Some(0)),
        Some(TransportCode::METHOD_UNSUPPORTED)
    );
}

/// What arrives on the association to the upstream is no peer's request of ours (ruling R12).
#[test]
fn an_upstream_cannot_ask_back() {
    let mut middle = Middle::new(MapperConfig::default());
    let object = request_json("1", "message/send");
    middle.upstream_payload(&a2a(MessageKind::Request, b"c", "message/send", &object));
    assert!(middle.transits.is_empty());
    let (code, _) = middle.to_egress.remove(0).transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
}

/// NPAMP-CC-STREAM §7: a cancel goes on to the agent, each hop acknowledges its own, and
/// nothing stays behind; before the first event too.
#[test]
fn a_cancel_goes_on() {
    for events in 0..3 {
        let mut chain = Chain::new();
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        for n in 1..=events {
            chain.agent(exchange, event(&numbered(n)));
        }
        chain.ingress.gone(1);
        chain.pass();
        assert_eq!(chain.egress.cancels, [exchange]);
        for passed in [&chain.first, &chain.second] {
            let back = passed.iter().filter(|(to_egress, _)| !to_egress);
            let (_, ack) = back.last().unwrap();
            let control = ack.decode().stream_control.unwrap();
            assert!(control.cancel_ack && ack.kind == END);
            assert_eq!(control.event_id, events);
        }
        chain.assert_idle();
        assert_eq!(chain.middle.stats.kept.get(), 0);
        assert_eq!(chain.middle.stats.replay_octets.get(), 0);
    }
}

/// A unary exchange whose caller left is forgotten, hop by hop; a stream that begins then is
/// cancelled, hop by hop.
#[test]
fn a_forgotten_exchange_that_streams_is_cancelled() {
    let mut chain = Chain::new();
    let (exchange, _) = chain.ask(1, &request_json("1", "message/send"));
    chain.ingress.gone(1);
    chain.pass();
    assert!(chain.egress.cancels.is_empty());
    chain.agent(exchange, AgentEvent::StreamOpen);
    chain.agent(exchange, event(&numbered(1)));
    assert_eq!(chain.egress.cancels, [exchange]);
    chain.assert_idle();
}

/// Ruling R19 in transit: a stream whose peer takes nothing is kept within its bounds, then
/// ends visibly, and is cancelled upstream; every event before that is still delivered
/// to the others, and the association goes on.
#[test]
fn a_stream_that_lags_ends_visibly() {
    for detached in [false, true] {
        for by_octets in [false, true] {
            let config = MapperConfig {
                stream: StreamConfig {
                    transit_events: if by_octets { 1000 } else { 5 },
                    transit_octets: if by_octets { 1000 } else { 1 << 20 },
                    ..StreamConfig::default()
                },
                ..MapperConfig::default()
            };
            let mut chain = Chain::of(Middle::new(config));
            let (slow, _) = chain.ask(1, &request_json("1", STREAM));
            chain.agent(slow, AgentEvent::StreamOpen);
            chain.agent(slow, event(&numbered(1)));
            chain.middle.roomy = false;
            if detached {
                chain.cut_first();
            }
            let mut waiting = 0;
            while chain.egress.cancels.is_empty() {
                waiting += 1;
                assert!(waiting < 100);
                chain.agent(slow, event(&numbered(1 + waiting)));
            }
            let bound = if by_octets { 1000 / (64 + 36) } else { 5 };
            assert!((bound..=bound + 3).contains(&waiting), "{waiting}");
            assert_eq!(chain.middle.stats.resumption.get(Resumption::Lagged), 1);
            assert_eq!(chain.middle.stats.kept.get(), 0);
            assert_eq!(chain.middle.stats.replay_octets.get(), 0);
            chain.middle.assert_idle();
            if detached {
                // Its peer comes back for it, and is refused.
                chain.join_first(8);
            }
            chain.pass();
            let events = chain.ingress.calls.len();
            assert_eq!(events, 2, "the first event, and the break");
            match &chain.ingress.calls[1].1 {
                CallEvent::TransportError(error) => {
                    let code = if detached {
                        TransportCode::NOT_RESUMABLE
                    } else {
                        TransportCode::NOT_DELIVERED
                    };
                    assert_eq!(error.code, code.0);
                }
                other => panic!("{other:?}"),
            }
            chain.ingress.calls.clear();
            let (other, _) = chain.ask(2, &request_json("2", "message/send"));
            chain.agent(other, body(200, &result_json("2", "1")));
            assert!(matches!(chain.ingress.one_event(), CallEvent::Response(_)));
        }
    }
}

/// What the process keeps of all streams is bounded too, and it is the stream of which most
/// waits that ends for the others, its exchange over or not.
#[test]
fn the_stream_that_lags_most_makes_room() {
    for ended in [false, true] {
        let registry = Arc::new(StreamRegistry::new(10_000));
        let (inbound, upstream) = (info(Side::Responder), info(Side::Initiator));
        let config = MapperConfig::default();
        let mut chain = Chain::of(Middle::keeping(config, inbound, upstream, registry));
        let (slow, _) = chain.ask(1, &request_json("1", STREAM));
        let (other, _) = chain.ask(2, &request_json("2", STREAM));
        for exchange in [slow, other] {
            chain.agent(exchange, AgentEvent::StreamOpen);
        }
        chain.middle.roomy = false;
        let padding = "x".repeat(2000);
        for _ in 0..4 {
            let large = result_json("1", &format!("\"{padding}\""));
            chain.agent(slow, event(&large));
        }
        if ended {
            chain.agent(slow, AgentEvent::StreamEnd);
        }
        for _ in 0..3 {
            let large = result_json("2", &format!("\"{padding}\""));
            chain.agent(other, event(&large));
        }
        assert_eq!(chain.middle.stats.resumption.get(Resumption::Lagged), 1);
        assert_eq!(chain.egress.cancels.len(), usize::from(!ended));
        chain.agent(other, AgentEvent::StreamEnd);
        for _ in 0..3 {
            chain.middle.make_room();
        }
        chain.pass();
        let told = |call: u64| {
            let events = chain.ingress.calls.iter();
            let events = events.filter(|(name, _)| *name == CallId(call));
            events.map(|(_, event)| event.clone()).collect::<Vec<_>>()
        };
        assert!(matches!(told(1)[..], [CallEvent::TransportError(_)]));
        assert_eq!(told(2).len(), 4);
        assert!(matches!(told(2)[3], CallEvent::StreamEnd { .. }));
        chain.assert_idle();
        // One that alone is more than all ends by itself.
        chain.ingress.calls.clear();
        let (large, _) = chain.ask(3, &request_json("3", STREAM));
        chain.agent(large, AgentEvent::StreamOpen);
        for _ in 0..6 {
            let object = result_json("3", &format!("\"{padding}\""));
            chain.agent(large, event(&object));
        }
        assert!(matches!(
            chain.ingress.calls.last(),
            Some((_, CallEvent::TransportError(_)))
        ));
        chain.assert_idle();
    }
}

/// One event alone is never too much, however large, and what waits leaves as room comes.
#[test]
fn what_waits_leaves_as_room_comes() {
    let config = MapperConfig {
        stream: StreamConfig {
            transit_events: 3,
            transit_octets: 1024,
            ..StreamConfig::default()
        },
        ..MapperConfig::default()
    };
    let mut chain = Chain::of(Middle::new(config));
    let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
    chain.agent(exchange, AgentEvent::StreamOpen);
    chain.middle.roomy = false;
    for round in 0..5 {
        let large = result_json("1", &format!("\"{}\"", "x".repeat(5000)));
        let batch = if round % 2 == 0 {
            vec![large]
        } else {
            vec![numbered(1), numbered(2)]
        };
        for object in &batch {
            chain.agent(exchange, event(object));
        }
        assert!(chain.ingress.calls.is_empty());
        chain.middle.make_room();
        chain.pass();
        assert_eq!(chain.ingress.calls.len(), batch.len());
        chain.ingress.calls.clear();
    }
    assert!(chain.egress.cancels.is_empty());
    // The end waits with the rest, and its exchange is over all the same.
    chain.agent(exchange, event(&numbered(1)));
    chain.agent(exchange, AgentEvent::StreamEnd);
    chain.egress.assert_idle();
    assert!(chain.ingress.calls.is_empty());
    chain.middle.make_room();
    chain.pass();
    assert_eq!(chain.ingress.calls.len(), 2);
    assert!(matches!(
        chain.ingress.calls[1].1,
        CallEvent::StreamEnd { .. }
    ));
    chain.assert_idle();
}

/// What has ended upstream and waits for room is still cancelled, lost or resumed as a
/// stream that goes on.
#[test]
fn an_ended_stream_that_waits_is_still_its_peers() {
    for how in 0..3 {
        let mut chain = Chain::new();
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        chain.agent(exchange, event(&numbered(1)));
        chain.middle.roomy = false;
        chain.agent(exchange, event(&numbered(2)));
        chain.agent(exchange, AgentEvent::StreamEnd);
        match how {
            0 => {
                chain.ingress.gone(1);
                chain.pass();
                assert_eq!(chain.middle.stats.cancels_received.get(), 1);
                assert_eq!(chain.middle.stats.kept.get(), 0);
            }
            1 => {
                chain.cut_first();
                chain.middle.roomy = true;
                chain.join_first(8);
                chain.pass();
                assert_eq!(chain.ingress.calls.len(), 3);
                assert_eq!(chain.middle.stats.kept.get(), 1);
            }
            _ => {
                chain.cut_first();
                chain.middle.pass_time(npamp_relay::limits::RETENTION_TIME);
                assert_eq!(chain.middle.stats.kept.get(), 0);
                assert_eq!(chain.middle.stats.resumption.get(Resumption::Expired), 1);
            }
        }
        chain.middle.assert_idle();
        chain.egress.assert_idle();
    }
}

/// Without retention no hop resumes, and a stream breaks with either of its associations.
#[test]
fn without_retention_a_stream_breaks_with_its_association() {
    for first in [false, true] {
        let mut config = MapperConfig::default();
        config.stream.retention = std::time::Duration::ZERO;
        let mut chain = Chain::of(Middle::new(config));
        let (exchange, _) = chain.ask(1, &request_json("1", STREAM));
        chain.agent(exchange, AgentEvent::StreamOpen);
        chain.agent(exchange, event(&numbered(1)));
        if first {
            chain.cut_first();
            chain.pass();
            assert_eq!(chain.egress.cancels, [exchange]);
        } else {
            chain.cut_second();
            chain.pass();
        }
        let last = &chain.ingress.calls.last().unwrap().1;
        assert!(matches!(last, CallEvent::TransportError(_)), "{last:?}");
        chain.middle.assert_idle();
        assert_eq!(chain.middle.stats.kept.get(), 0);
        assert_eq!(chain.middle.stats.replay_octets.get(), 0);
    }
}

/// Octets are held for the exchange of either hop, within the bounds of both.
#[test]
fn octets_are_bounded_on_both_hops() {
    let config = MapperConfig {
        association_octets: 5000,
        ..MapperConfig::default()
    };
    let mut middle = Middle::new(config);
    let object = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"x":"{}"}}}}"#,
        "x".repeat(2000)
    );
    for n in 0..3u8 {
        middle.inbound_payload(&a2a(MessageKind::Request, &[n], "tasks/get", &object));
    }
    assert_eq!(middle.to_egress.len(), 2);
    let (code, text) = middle.one_back().transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    assert!(text.contains("budget"), "{text}");
    assert!(middle.budget.held() > 8000, "once for each hop");
    middle.down(ASSOCIATION);
    assert_eq!(middle.mapper.outstanding(), 0);
    assert_eq!(middle.budget.held(), 0);
}

/// News of exchanges that are over is dropped, and calls that an ingress makes on the same
/// relay are told apart from those that pass.
#[test]
fn a_relay_may_be_an_ingress_too() {
    let mut middle = Middle::new(MapperConfig::default());
    let object = request_json("1", "message/send");
    middle.input(Input::Call {
        association: UPSTREAM,
        call: CallId(9000),
        request: CallRequest::Request {
            object: object.clone().into(),
        },
    });
    middle.inbound_payload(&a2a(MessageKind::Request, b"c", "message/send", &object));
    let own = middle.to_egress[0].decode();
    assert_eq!(
        own.safety,
        Some(SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE))
    );
    assert_eq!(middle.to_egress[1].decode().safety, None);
    for at in [1, 0] {
        let correlation_id = middle.to_egress[at].correlation_id();
        let reply = result_json("1", &at.to_string());
        middle.upstream_payload(&a2a(MessageKind::Response, &correlation_id, "", &reply));
    }
    assert_eq!(
        middle.one_back().decode().foreign,
        result_json("1", "1").as_bytes()
    );
    let (call, event) = middle.calls.remove(0);
    assert_eq!(call, CallId(9000));
    assert!(matches!(event, CallEvent::Response(_)));
    middle.assert_idle();
    assert_eq!(middle.stats.requester.total(Outcome::Response), 2);
    assert_eq!(middle.stats.dropped.get(Dropped::AgentEvent), 0);
}
