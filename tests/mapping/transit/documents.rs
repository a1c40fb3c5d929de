//! Cards through a transit: NPAMP-CC-DOC §4–§8, NPAMP-MAP-A2A §7 and rulings R9, R10, R25.

use super::chain::{Chain, Middle};
use crate::harness::*;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, Side};
use npamp_relay::a2a::stats::Refusal;
use npamp_relay::bridge::document_binding::{
    DigestAlgorithm, DocumentBinding, Part, ProofAlgorithm,
};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload;
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits::DOCUMENT_PART_OCTETS_MAX;
use sha2::{Digest as _, Sha384};

const EXTENDED: &str = "agent/getAuthenticatedExtendedCard";
/// `{"alg":"EdDSA"}` and `{"alg":"ES256"}`.
const SIGNATURES: &str = r#"[ {"protected":"eyJhbGciOiJFZERTQSJ9","signature":"AAA_"} ,{"protected":"eyJhbGciOiJFUzI1NiJ9", "signature":"AAB_"}]"#;

fn card(padding: usize, signed: bool) -> String {
    let signatures = if signed { SIGNATURES } else { "[]" };
    format!(
        " {{\"name\":\"\\u00e9\", \"x\":1.0e+2,\n\"padding\":\"{}\",\"signatures\":{signatures}}}\r\n",
        "x".repeat(padding)
    )
}

fn card_body(card: &str) -> AgentEvent {
    AgentEvent::Body {
        status: 200,
        content_type: "application/json; charset=utf-8".to_owned(),
        retry_after: None,
        body: card.to_owned().into(),
    }
}

/// What came back on a hop: all but the correlation_id.
fn back(passed: &[(bool, Frame)]) -> Vec<String> {
    let back = passed.iter().filter(|(to_egress, _)| !to_egress);
    back.map(|(_, frame)| {
        let decoded = frame.decode();
        format!(
            "{:#06x} {:?} {:?} {:?} {:?}",
            frame.kind,
            decoded.envelope.flags,
            decoded.safety,
            decoded.document_binding,
            decoded.foreign
        )
    })
    .collect()
}

/// NPAMP-CC-DOC §4, §6: octets, doc_id, media type, digest and proofs arrive as the egress
/// sent them, in one part or several.
#[test]
fn a_card_and_its_proofs_pass_unchanged() {
    for (padding, signed) in [
        (0, false),
        (0, true),
        (DOCUMENT_PART_OCTETS_MAX, false),
        (2 * DOCUMENT_PART_OCTETS_MAX, true),
    ] {
        let card = card(padding, signed);
        let mut chain = Chain::new();
        chain.ingress.card(1);
        chain.pass();
        let (exchange, _) = chain.egress.one_dispatch();
        chain.agent(exchange, card_body(&card));
        assert!(!back(&chain.second).is_empty());
        assert_eq!(back(&chain.first), back(&chain.second));
        match chain.ingress.calls.pop().unwrap().1 {
            CallEvent::Document {
                document,
                content_type,
                proofs,
            } => {
                assert_eq!(document, card.as_bytes());
                assert_eq!(content_type, "application/json; charset=utf-8");
                assert_eq!(proofs.len(), if signed { 2 } else { 0 });
            }
            other => panic!("{other:?}"),
        }
        chain.assert_idle();
    }
}

/// NPAMP-CC-DOC §6: nothing of a set is the transit's: another producer's identifier, digest
/// algorithm, label and proof algorithms pass.
#[test]
fn a_set_of_another_producer_passes_unchanged() {
    let document = b"{\"any\":[ 1e0 ]} ";
    let digest = Sha384::digest(document);
    let document_part = DocumentBinding {
        part: Part::Document,
        doc_id: b"\x00\xff other",
        content_type: "application/vnd.other+json",
        digest_algorithm: DigestAlgorithm::Sha384,
        digest: &digest,
        proof_count: 2,
    };
    let proof = |index, algorithm: u16| DocumentBinding {
        part: Part::Proof {
            index,
            algorithm: ProofAlgorithm(algorithm),
        },
        content_type: "",
        ..document_part
    };
    let mut middle = Middle::new(MapperConfig::default());
    middle.inbound_payload(&a2a(MessageKind::Request, b"c", "agent/getCard", ""));
    let correlation_id = middle.to_egress.remove(0).correlation_id();
    // Proofs first, the second before the first.
    for (kind, binding, octets) in [
        (MessageKind::StreamData, proof(1, 0x0807), &b"two"[..]),
        (MessageKind::StreamData, proof(0, 0xfe77), b"one"),
        (MessageKind::StreamEnd, document_part, document),
    ] {
        let mut part = a2a(kind, &correlation_id, "", "");
        part.foreign = octets;
        part.document_binding = Some(binding);
        part.safety = (binding.part == Part::Document).then_some(SafetyLabel {
            effect: Effect::IDEMPOTENT_WRITE,
            scope: "of another",
        });
        middle.upstream_payload(&part);
    }
    let frames = std::mem::take(&mut middle.to_ingress);
    let parts: Vec<_> = frames.iter().map(Frame::decode).collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0].document_binding, Some(document_part));
    assert_eq!(parts[0].foreign, document);
    assert_eq!(
        parts[0].safety,
        Some(SafetyLabel {
            effect: Effect::IDEMPOTENT_WRITE,
            scope: "of another"
        })
    );
    assert_eq!(parts[1].document_binding, Some(proof(0, 0xfe77)));
    assert_eq!((parts[1].foreign, parts[1].safety), (&b"one"[..], None));
    assert_eq!(parts[2].document_binding, Some(proof(1, 0x0807)));
    assert_eq!(parts[2].foreign, b"two");
    assert_eq!(frames[2].kind, END);
    middle.assert_idle();
}

/// Ruling R10: on the Discovery channel the hop that asked there is answered there.
#[test]
fn a_card_asked_for_on_discovery_comes_back_there() {
    for method in ["agent/getCard", EXTENDED] {
        let mut chain = Chain::new();
        let object = if method == EXTENDED {
            request_json("5", EXTENDED)
        } else {
            String::new()
        };
        let payload = a2a(MessageKind::Request, b"c", method, &object);
        let octets = payload::encode_with(REQUEST, &payload, Some(DOCBIND)).unwrap();
        chain.middle.inbound_frame(&Frame {
            channel: DISCOVERY,
            kind: REQUEST,
            octets: octets.into(),
        });
        // There is no such request at this ingress, which must not matter here.
        let request = chain.middle.to_egress.remove(0);
        chain
            .egress
            .frame(request.channel, request.kind, &request.octets);
        let (exchange, _) = chain.egress.one_dispatch();
        let card = card(0, true);
        chain.egress.agent(
            exchange,
            if method == EXTENDED {
                body(200, &result_json("5", &card))
            } else {
                card_body(&card)
            },
        );
        for frame in std::mem::take(&mut chain.egress.frames) {
            chain.middle.upstream_frame(&frame);
        }
        let frames = std::mem::take(&mut chain.middle.to_ingress);
        assert_eq!(frames.len(), 3);
        for frame in &frames {
            assert_eq!(frame.channel, DISCOVERY);
            assert_eq!(frame.correlation_id(), b"c");
            assert_eq!(frame.decode().document_binding.unwrap().proof_count, 2);
        }
        let octets = if method == EXTENDED {
            card.trim()
        } else {
            &card
        };
        assert_eq!(frames[0].decode().foreign, octets.as_bytes());
        chain.middle.assert_idle();
    }
}

/// Rulings R9, R25: the extended card comes through whichever of the hops agrees on documents,
/// as each of them carries it; the client gets the same card in all four cases.
#[test]
fn the_extended_card_passes_with_and_without_agreement() {
    for first in [true, false] {
        for second in [true, false] {
            for fails in [false, true] {
                let agreed = |side, agreed: bool| {
                    let mut info = info(side);
                    info.document_binding = agreed.then_some(DOCBIND);
                    info
                };
                let mut chain = Chain::of(Middle::with(
                    MapperConfig::default(),
                    agreed(Side::Responder, first),
                    agreed(Side::Initiator, second),
                ));
                chain.ingress = End::with(MapperConfig::default(), agreed(Side::Initiator, first));
                chain.egress = End::with(MapperConfig::default(), agreed(Side::Responder, second));
                let object = request_json("\"e\"", EXTENDED);
                let (exchange, dispatch) = chain.ask(1, &object);
                assert_eq!(object_of(&dispatch), object.as_bytes());
                let card = card(0, true);
                let answer = if fails {
                    error_json("\"e\"", -32007)
                } else {
                    result_json("\"e\"", card.trim())
                };
                chain.agent(exchange, body(200, &answer));
                match chain.ingress.calls.pop().unwrap().1 {
                    CallEvent::Response(got) => {
                        assert!(!fails);
                        assert_eq!(got, answer.as_bytes());
                    }
                    CallEvent::ErrorResponse(got) => {
                        assert!(fails);
                        assert_eq!(got, answer.as_bytes());
                    }
                    other => panic!("{other:?}"),
                }
                for (passed, agreed) in [(&chain.first, first), (&chain.second, second)] {
                    let (_, frame) = passed.last().unwrap();
                    let bound = frame.decode().document_binding.is_some();
                    assert_eq!(bound, agreed && !fails);
                }
                chain.assert_idle();
            }
        }
    }
}

/// Ruling R9: without agreement upstream a public card gets the error that an egress gives.
#[test]
fn without_agreement_upstream_there_is_no_card() {
    let mut upstream = info(Side::Initiator);
    upstream.document_binding = None;
    let mut chain = Chain::of(Middle::with(
        MapperConfig::default(),
        info(Side::Responder),
        upstream,
    ));
    chain.ingress.card(1);
    chain.pass();
    let (code, text) = chain.ingress.one_transport_error();
    assert_eq!(code, TransportCode::METHOD_UNSUPPORTED);
    assert_eq!(text, Refusal::NoDocumentAgreement.to_string());
    assert!(chain.egress.dispatches.is_empty());
    chain.assert_idle();
}

/// NPAMP-CC-DOC §5, §8: the digest is verified at the hop, and what is wrong with a set is told
/// to both its sides.
#[test]
fn an_altered_document_is_found_at_the_hop() {
    let mut chain = Chain::new();
    chain.ingress.card(1);
    chain.pass();
    let (exchange, _) = chain.egress.one_dispatch();
    chain.egress.agent(exchange, card_body(&card(0, true)));
    let mut frames = std::mem::take(&mut chain.egress.frames);
    let mut octets = frames[0].octets.to_vec();
    let at = octets.len() - 3;
    octets[at] ^= 1;
    frames[0].octets = octets.into();
    for frame in frames {
        chain.middle.upstream_frame(&frame);
    }
    chain.pass();
    let (code, _) = chain.ingress.one_transport_error();
    assert_eq!(code, TransportCode::DIGEST_MISMATCH);
    let (_, report) = chain.second.last().unwrap();
    assert_eq!(report.transport_error().0, TransportCode::DIGEST_MISMATCH);
    chain.assert_idle();
}

/// NPAMP-CC-DOC §7.5, §7.6: a set whose end does not come is never shown, at no hop.
#[test]
fn an_incomplete_set_is_not_passed_on() {
    let mut chain = Chain::new();
    chain.ingress.card(1);
    chain.pass();
    let (exchange, _) = chain.egress.one_dispatch();
    chain.egress.agent(exchange, card_body(&card(0, true)));
    let frames = std::mem::take(&mut chain.egress.frames);
    chain.middle.upstream_frame(&frames[0]);
    chain.pass();
    assert!(chain.ingress.calls.is_empty());
    chain.cut_second();
    chain.pass();
    let (code, _) = chain.ingress.one_transport_error();
    assert_eq!(code, TransportCode::SET_INCOMPLETE);
    chain.middle.assert_idle();
}
