//! The public card as a document: NPAMP-CC-DOC, NPAMP-MAP-A2A §7, rulings R9, R10.

use crate::harness::*;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, DispatchAction, Side};
use npamp_relay::a2a::stats::{Dropped, Outcome, Refusal};
use npamp_relay::bridge::document::Digest;
use npamp_relay::bridge::document_binding::{DigestAlgorithm, Part};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload;
use npamp_relay::bridge::safety::Effect;
use npamp_relay::bridge::transport_error::TransportCode;

const CARD: &str = " {\"name\":\"a\",\n\t\"x\":1.0e+2, \"x\":\"\\u00e9\u{2028}\"}\r\n";

fn card_body(status: u16, text: &str, content_type: &str) -> AgentEvent {
    AgentEvent::Body {
        status,
        content_type: content_type.to_owned(),
        retry_after: None,
        body: text.to_owned().into(),
    }
}

/// NPAMP-CC-DOC §4, §6, §7.1, §9: the request carries no binding and nothing foreign; the
/// document arrives octet for octet with its media type, labelled read_only.
#[test]
fn the_card_travels_as_a_document_set() {
    for (stated, media_type) in [
        (
            "application/json; charset=utf-8",
            "application/json; charset=utf-8",
        ),
        ("", "application/json"),
    ] {
        let mut pair = Pair::new();
        pair.ingress.card(1);
        pair.pass();
        let ask = pair.passed[0].1.clone();
        let decoded = ask.decode();
        assert_eq!(decoded.envelope.method, "agent/getCard");
        assert!(decoded.foreign.is_empty() && decoded.document_binding.is_none());
        assert_eq!(decoded.envelope.correlation_id.len(), 16);
        let (exchange, dispatch) = pair.egress.one_dispatch();
        assert!(matches!(dispatch.action, DispatchAction::Card));
        pair.agent(exchange, card_body(200, CARD, stated));
        let back = pair.passed[1].1.clone();
        assert_eq!((back.channel, back.kind), (BRIDGE, RESPONSE));
        let decoded = back.decode();
        let binding = decoded.document_binding.unwrap();
        assert_eq!((binding.part, binding.proof_count), (Part::Document, 0));
        assert_eq!(binding.digest_algorithm, DigestAlgorithm::Sha256);
        assert_eq!(decoded.safety.unwrap().effect, Effect::READ_ONLY);
        match pair.ingress.one_event() {
            CallEvent::Document {
                document,
                content_type,
                proofs,
            } => {
                assert_eq!(document, CARD.as_bytes());
                assert_eq!(content_type, media_type);
                assert!(proofs.is_empty());
            }
            other => panic!("{other:?}"),
        }
        pair.ingress.assert_idle();
        pair.egress.assert_idle();
        assert_eq!(pair.ingress.stats.requester.total(Outcome::Document), 1);
    }
}

/// Ruling R9: without agreement on the tag neither end carries a card.
#[test]
fn no_agreement_no_card() {
    let mut plain = info(Side::Initiator);
    plain.document_binding = None;
    let mut ingress = End::with(MapperConfig::default(), plain.clone());
    ingress.card(1);
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::METHOD_UNSUPPORTED);
    ingress.no_frame();
    plain.side = Side::Responder;
    let mut egress = End::with(MapperConfig::default(), plain);
    egress.payload(&a2a(MessageKind::Request, b"corr", "agent/getCard", ""));
    let (code, _) = egress.one_frame().transport_error();
    assert_eq!(code, TransportCode::METHOD_UNSUPPORTED);
    let refused = &egress.stats.requests_refused;
    assert_eq!(refused.get(Refusal::NoDocumentAgreement), 1);
}

/// NPAMP-MAP-A2A §7, §9, ruling R10: a card request on Discovery is answered there; other
/// requests are not carried there, and DISC payloads are not bridge frames.
#[test]
fn cards_on_the_discovery_channel() {
    let mut egress = End::egress();
    let ask = a2a(MessageKind::Request, b"corr", "agent/getCard", "");
    let octets = payload::encode(REQUEST, &ask).unwrap();
    egress.frame(DISCOVERY, REQUEST, &octets);
    // The same correlation_id on the other channel is another exchange (NPAMP-CC-DOC §3).
    egress.frame(BRIDGE, REQUEST, &octets);
    let dispatches = std::mem::take(&mut egress.dispatches);
    assert_eq!(dispatches.len(), 2);
    for ((exchange, _), channel) in dispatches.iter().zip([DISCOVERY, BRIDGE]) {
        egress.agent(*exchange, card_body(200, CARD, ""));
        let frame = egress.one_frame();
        assert_eq!((frame.channel, frame.kind), (channel, RESPONSE));
    }
    let object = request_json("1", "tasks/get");
    let ask = a2a(MessageKind::Request, b"corr", "tasks/get", &object);
    let octets = payload::encode(REQUEST, &ask).unwrap();
    egress.frame(DISCOVERY, REQUEST, &octets);
    let frame = egress.one_frame();
    assert_eq!(frame.channel, DISCOVERY);
    assert_eq!(frame.transport_error().0, TransportCode::METHOD_UNSUPPORTED);
    egress.frame(DISCOVERY, REQUEST, &[0xa0]);
    egress.no_frame();
    assert_eq!(egress.stats.dropped.get(Dropped::Discovery), 1);
    egress.assert_idle();
}

/// NPAMP-BRIDGE §6, ruling R14: no card, no document.
#[test]
fn an_agent_without_a_card() {
    for (event, message) in [
        (card_body(404, "nope", "text/plain"), "http 404"),
        (card_body(200, "", ""), "http 200"),
        (AgentEvent::StreamOpen, "the agent streams its card"),
        (
            AgentEvent::Failed {
                message: "refused".into(),
                timed_out: false,
            },
            "refused",
        ),
    ] {
        let mut pair = Pair::new();
        pair.ingress.card(1);
        pair.pass();
        let (exchange, _) = pair.egress.one_dispatch();
        pair.agent(exchange, event);
        let (code, text) = pair.ingress.one_transport_error();
        assert_eq!(code, TransportCode::NOT_DELIVERED);
        assert_eq!(text, message);
        pair.egress.assert_idle();
    }
}

/// NPAMP-CC-DOC §5, §6.1, §6.2, §7.5, §8: each failure of a set has its own code and nothing is presented.
#[test]
fn bad_document_sets_are_not_presented() {
    let digest = Digest::of(DigestAlgorithm::Sha384, CARD.as_bytes());
    let good = digest.bind(b"d", "application/json");
    let altered = CARD.replace('a', "b");
    let cases = [
        (Some(good), CARD, None),
        (
            Some(good),
            altered.as_str(),
            Some(TransportCode::DIGEST_MISMATCH),
        ),
        (None, CARD, Some(TransportCode::BINDING_MALFORMED)),
    ];
    for (binding, document, expected) in cases {
        let mut ingress = End::ingress();
        ingress.card(1);
        let correlation_id = ingress.one_frame().correlation_id();
        let mut reply = a2a(MessageKind::Response, &correlation_id, "", document);
        reply.document_binding = binding;
        ingress.payload(&reply);
        match (ingress.one_event(), expected) {
            (CallEvent::Document { document, .. }, None) => assert_eq!(document, CARD.as_bytes()),
            (CallEvent::TransportError(error), Some(code)) => assert_eq!(error.code, code.0),
            other => panic!("{other:?}"),
        }
        ingress.assert_idle();
    }
}

/// NPAMP-CC-DOC §6.2: a malformed binding is BindingMalformed, on a reply and on a request.
#[test]
fn malformed_bindings() {
    let digest = Digest::of(DigestAlgorithm::Sha256, CARD.as_bytes());
    let mut ingress = End::ingress();
    ingress.card(1);
    let correlation_id = ingress.one_frame().correlation_id();
    let mut reply = a2a(MessageKind::Response, &correlation_id, "", CARD);
    reply.document_binding = Some(digest.bind(b"d", "x/y"));
    let mut octets = payload::encode_with(RESPONSE, &reply, Some(DOCBIND)).unwrap();
    // part_kind, after the envelope TLV and the binding's head.
    let part_at = 4 + 5 + correlation_id.len() + 1 + 4;
    octets[part_at] = 9;
    ingress.frame(BRIDGE, RESPONSE, &octets);
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::BINDING_MALFORMED);
    // §6.1: a request must not carry one.
    let mut egress = End::egress();
    let mut ask = a2a(MessageKind::Request, b"corr", "agent/getCard", "");
    ask.document_binding = Some(digest.bind(b"d", "x/y"));
    egress.payload(&ask);
    let (code, _) = egress.one_frame().transport_error();
    assert_eq!(code, TransportCode::BINDING_MALFORMED);
    assert!(egress.dispatches.is_empty());
}

/// The method with a foreign message is a JSON-RPC method like any other.
#[test]
fn a_json_rpc_request_named_like_the_card_is_carried_as_such() {
    let mut pair = Pair::new();
    let object = request_json("1", "agent/getCard");
    let (_, dispatch) = pair.ask(1, &object);
    assert_eq!(object_of(&dispatch), object.as_bytes());
}

/// NPAMP-CC-DOC §9: policy sees a card request as read_only unless its label says more.
#[test]
fn policy_on_cards() {
    let config = MapperConfig {
        allow: npamp_relay::bridge::safety::EffectSet::of(&[0]),
        ..MapperConfig::default()
    };
    for (label, passes) in [(None, true), (Some(0), true), (Some(1), false)] {
        let mut egress = End::with(config.clone(), info(Side::Responder));
        let mut ask = a2a(MessageKind::Request, b"corr", "agent/getCard", "");
        ask.safety =
            label.map(|effect| npamp_relay::bridge::safety::SafetyLabel::new(Effect(effect)));
        egress.payload(&ask);
        assert_eq!(egress.dispatches.len(), usize::from(passes));
        assert_eq!(egress.frames.len(), usize::from(!passes));
    }
}
