//! The authenticated extended card of both versions as a document: NPAMP-CC-DOC,
//! NPAMP-MAP-A2A §7, ruling R25.

use crate::harness::*;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, Side};
use npamp_relay::a2a::stats::Outcome;
use npamp_relay::bridge::document::DocumentError;
use npamp_relay::bridge::document_binding::{Part, ProofAlgorithm};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload;
use npamp_relay::bridge::safety::Effect;
use npamp_relay::bridge::transport_error::TransportCode;
use sha2::{Digest as _, Sha256};

const METHODS: [&str; 2] = ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"];
const CARD: &str = "{ \"name\":\"\\u00e9\u{2028}\", \"x\":1.0e+2,\r\n\"x\":[ ] }";

/// The request carries the client's object; the document is `result`, octet for octet;
/// the client's own id stands in the Response that is written around it.
#[test]
fn the_result_travels_as_a_document() {
    for method in METHODS {
        for id in ["7", "\"a\\u0062\"", "-1.50e+1"] {
            let mut pair = Pair::new();
            let object = request_json(id, method);
            let (exchange, dispatch) = pair.ask(1, &object);
            assert_eq!(object_of(&dispatch), object.as_bytes());
            let ask = pair.passed[0].1.decode();
            assert_eq!(ask.foreign, object.as_bytes());
            assert_eq!(ask.envelope.method, method);
            assert!(ask.document_binding.is_none() && ask.safety.is_none());
            let reply =
                format!(" {{\"result\" : {CARD} ,\"extra\":1,\"id\":{id},\"jsonrpc\":\"2.0\"}}\n");
            pair.agent(exchange, body(200, &reply));
            let back = pair.passed[1].1.decode();
            assert_eq!(pair.back(), [RESPONSE]);
            assert_eq!(back.foreign, CARD.as_bytes());
            assert_eq!(back.safety.unwrap().effect, Effect::READ_ONLY);
            let binding = back.document_binding.unwrap();
            assert_eq!((binding.part, binding.proof_count), (Part::Document, 0));
            assert_eq!(binding.content_type, "application/json");
            assert_eq!(binding.digest, &Sha256::digest(CARD)[..]);
            match pair.ingress.one_event() {
                CallEvent::Response(response) => assert_eq!(
                    response,
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{CARD}}}"#)
                ),
                other => panic!("{other:?}"),
            }
            pair.ingress.assert_idle();
            pair.egress.assert_idle();
            assert_eq!(pair.ingress.stats.requester.total(Outcome::Document), 1);
            assert_eq!(pair.egress.stats.responder.total(Outcome::Document), 1);
        }
    }
}

/// Its signatures are proofs, and a long one goes in several parts.
#[test]
fn signatures_and_length() {
    let signature = r#"{"protected":"eyJhbGciOiJFUzI1NiJ9","signature":"AA" }"#;
    let card = format!(
        "{{\"padding\":\"{}\",\"signatures\":[{signature}]}}",
        "x".repeat(700_000)
    );
    for method in METHODS {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request_json("1", method));
        pair.agent(exchange, body(200, &result_json("1", &card)));
        assert_eq!(pair.back(), [DATA, DATA, DATA, END]);
        let mut document = Vec::new();
        for (_, frame) in &pair.passed[1..4] {
            let part = frame.decode();
            assert_eq!(part.document_binding.unwrap().part, Part::Document);
            document.extend_from_slice(part.foreign);
        }
        assert!(document == card.as_bytes());
        let proof = pair.passed[4].1.decode();
        assert_eq!(proof.foreign, signature.as_bytes());
        assert_eq!(
            proof.document_binding.unwrap().part,
            Part::Proof {
                index: 0,
                algorithm: ProofAlgorithm::OTHER_JWS
            }
        );
        assert!(matches!(
            pair.ingress.calls.remove(0).1,
            CallEvent::DocumentBegun
        ));
        match pair.ingress.one_event() {
            CallEvent::Response(response) => assert!(response == result_json("1", &card)),
            other => panic!("{other:?}"),
        }
    }
}

/// NPAMP-BRIDGE §6: a foreign error stays one, octet for octet.
#[test]
fn foreign_errors_stay_verbatim() {
    for method in METHODS {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request_json("1", method));
        let error = error_json("1", -32007);
        pair.agent(exchange, body(200, &error));
        assert_eq!(pair.back(), [ERROR]);
        match pair.ingress.one_event() {
            CallEvent::ErrorResponse(object) => assert_eq!(object, error),
            other => panic!("{other:?}"),
        }
        pair.ingress.assert_idle();
        pair.egress.assert_idle();
    }
}

/// Ruling R9: without agreement on the tag it is JSON-RPC like any other call.
#[test]
fn without_agreement_it_is_json_rpc() {
    let mut plain = info(Side::Initiator);
    plain.document_binding = None;
    let ingress = End::with(MapperConfig::default(), plain.clone());
    plain.side = Side::Responder;
    let egress = End::with(MapperConfig::default(), plain);
    let mut pair = Pair {
        ingress,
        egress,
        passed: Vec::new(),
    };
    let (exchange, _) = pair.ask(1, &request_json("1", METHODS[1]));
    let reply = format!("{} ", result_json("1", CARD));
    pair.agent(exchange, body(200, &reply));
    assert_eq!(pair.back(), [RESPONSE]);
    match pair.ingress.one_event() {
        CallEvent::Response(object) => assert_eq!(object, reply),
        other => panic!("{other:?}"),
    }
}

/// NPAMP-CC-DOC §4, §8: of two results nobody can say which one is the document: DigestUnstable.
#[test]
fn a_repeated_result_is_unstable() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", METHODS[0]));
    let reply = r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"result":{"a":2}}"#;
    pair.agent(exchange, body(200, reply));
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::DIGEST_UNSTABLE);
    let errors = &pair.egress.stats.document_errors;
    assert_eq!(errors.get(DocumentError::DigestUnstable), 1);
    pair.egress.assert_idle();
}

/// Ruling R14: no answer, no document.
#[test]
fn an_agent_without_an_answer() {
    let failed = AgentEvent::Failed {
        message: "refused".into(),
        timed_out: false,
    };
    for (event, message, cancelled) in [
        (body(503, "busy"), "http 503", false),
        (
            body(200, &result_json("2", "{}")),
            "the agent answered another id",
            false,
        ),
        (
            body(200, r#"{"jsonrpc":"2.0","id":1}"#),
            "the agent answered without a card",
            false,
        ),
        (AgentEvent::StreamOpen, "the agent streams its card", true),
        (failed, "refused", false),
    ] {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request_json("1", METHODS[0]));
        pair.agent(exchange, event);
        let (code, text) = pair.ingress.one_transport_error();
        assert_eq!((code, &text[..]), (TransportCode::NOT_DELIVERED, message));
        assert_eq!(pair.egress.cancels.len(), usize::from(cancelled));
        pair.egress.assert_idle();
    }
}

/// What a peer binds need not be JSON; nothing of it may break out of the Response around it.
#[test]
fn only_a_json_text_is_wrapped() {
    for (document, wrapped) in [
        ("{}", true),
        (" null\n", true),
        ("{},\"id\":2", false),
        ("{}}", false),
        ("", false),
        ("\u{feff}{}", false),
    ] {
        let mut ingress = End::ingress();
        ingress.call(1, &request_json("1", METHODS[1]));
        let correlation_id = ingress.one_frame().correlation_id();
        let digest = npamp_relay::bridge::document::Digest::of(
            npamp_relay::bridge::document_binding::DigestAlgorithm::Sha256,
            document.as_bytes(),
        );
        let mut reply = a2a(MessageKind::Response, &correlation_id, "", document);
        reply.document_binding = Some(digest.bind(b"d", "application/json"));
        ingress.payload(&reply);
        if wrapped {
            match ingress.one_event() {
                CallEvent::Response(object) => assert_eq!(object, result_json("1", document)),
                other => panic!("{other:?}"),
            }
        } else {
            let (code, _) = ingress.one_transport_error();
            assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
        }
        ingress.assert_idle();
    }
}

/// NPAMP-CC-DOC §6.1: under agreement the answer is a document; one without a binding is none.
#[test]
fn a_reply_without_a_binding() {
    let mut ingress = End::ingress();
    ingress.call(1, &request_json("1", METHODS[1]));
    let correlation_id = ingress.one_frame().correlation_id();
    let object = result_json("1", CARD);
    ingress.payload(&a2a(MessageKind::Response, &correlation_id, "", &object));
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::BINDING_MALFORMED);
    assert_eq!(
        ingress.one_frame().transport_error().0,
        TransportCode::BINDING_MALFORMED
    );
}

/// NPAMP-MAP-A2A §9: it may be asked for on the Discovery channel, and is answered there.
#[test]
fn on_the_discovery_channel() {
    let object = request_json("1", METHODS[1]);
    let ask = a2a(MessageKind::Request, b"corr", METHODS[1], &object);
    let octets = payload::encode(REQUEST, &ask).unwrap();
    let mut egress = End::egress();
    egress.frame(DISCOVERY, REQUEST, &octets);
    let (exchange, _) = egress.one_dispatch();
    egress.agent(exchange, body(200, &result_json("1", CARD)));
    let frame = egress.one_frame();
    assert_eq!((frame.channel, frame.kind), (DISCOVERY, RESPONSE));
    assert_eq!(frame.decode().foreign, CARD.as_bytes());
}
