//! NPAMP-CC-DOC §12.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{request_json, result_json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use npamp_relay::a2a::MapperConfig;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, DetachedProof, DispatchAction};
use npamp_relay::bridge::safety::EffectSet;
use npamp_relay::limits::DOCUMENT_PART_OCTETS_MAX;
use sha2::Digest as _;

const METHOD: &str = "agent/getCard";
const DOC_ID: &str = "agent-card";
const DOCUMENT: &[u8] = b" {\"name\":\"\\u00e9\",\"x\":1e400,\r\n\"x\":[ ]}\n";

/// A consumer: the relay has asked for the card.
struct Consumer {
    ingress: Exchange,
    id: Vec<u8>,
}

impl Consumer {
    fn new() -> Self {
        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("");
        ingress.end.card(1);
        // §7.1: no foreign message, no DocumentBinding.
        ingress.emits(&[Frame::request(&id, METHOD, "")]);
        Self { ingress, id }
    }

    fn part(&mut self, frame_type: u16, binding: &Binding, octets: &[u8]) {
        self.ingress
            .peer(&Frame::part(frame_type, &self.id, binding, octets));
    }

    /// The last thing the client is told; before it nothing of the document.
    #[track_caller]
    fn told(&mut self) -> Option<CallEvent> {
        let mut told = self.ingress.told();
        told.retain(|event| !matches!(event, CallEvent::DocumentBegun));
        assert!(told.len() <= 1, "{}", self.ingress.recording());
        told.pop()
    }

    #[track_caller]
    fn presents(&mut self, expected: &[u8]) -> Vec<DetachedProof> {
        match self.told() {
            Some(CallEvent::Document {
                document, proofs, ..
            }) => {
                assert_eq!(document, expected, "{}", self.ingress.recording());
                proofs
            }
            other => panic!("{}told {other:?}", self.ingress.recording()),
        }
    }

    /// The client is told of the error, and so is the producer (§8).
    #[track_caller]
    fn fails(&mut self, code: u8) {
        let told = self.told();
        assert!(
            matches!(&told, Some(CallEvent::TransportError(error)) if error.code == code),
            "{}told {told:?}",
            self.ingress.recording()
        );
        let id = self.id.clone();
        self.ingress.emits_transport_error(&id, code);
    }
}

/// A producer: the peer asked for the card and the agent served `card`.
fn serves(channel: u16, card: &str, expected: &[Frame]) {
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", METHOD, "").on(channel));
    let (exchange, dispatch) = egress.dispatch();
    assert!(matches!(dispatch.action, DispatchAction::Card));
    egress.agent(
        exchange,
        AgentEvent::Body {
            status: 200,
            content_type: "application/json".into(),
            retry_after: None,
            body: card.to_owned().into(),
        },
    );
    egress.emits(expected);
}

fn jws(alg: &str) -> String {
    let protected = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{alg}"}}"#));
    format!("{{ \"signature\":\"AA_-\",\"protected\":\"{protected}\"}}")
}

fn signed(signatures: &[String]) -> String {
    format!(
        " {{\"name\":\"a\",\"signatures\":[{}] , \"z\":1.0}}\r\n",
        signatures.join(", ")
    )
}

/// NPAMP-CC-DOC §12 (1): bridge frames throughout: a single-frame document without
/// proofs is one BRIDGE_RESPONSE with the request's correlation_id, on its channel.
#[test]
fn clause_1_a_single_frame() {
    let card = signed(&[]);
    let binding = Binding::document(DOC_ID, card.as_bytes(), 0);
    for channel in [BRIDGE, DISCOVERY] {
        let part = Frame::part(RESPONSE, b"corr", &binding, card.as_bytes());
        serves(channel, &card, &[part.on(channel)]);
    }
    let mut consumer = Consumer::new();
    consumer.part(
        RESPONSE,
        &Binding::document("any id", DOCUMENT, 0),
        DOCUMENT,
    );
    assert!(consumer.presents(DOCUMENT).is_empty());
    consumer.ingress.emits_nothing();
}

/// NPAMP-CC-DOC §12 (2): document and proofs octet for octet; where it cannot be
/// said which octets are the document, DigestUnstable.
#[test]
fn clause_2_octets() {
    let signature = jws("EdDSA");
    let card = signed(std::slice::from_ref(&signature));
    let binding = Binding::document(DOC_ID, card.as_bytes(), 1);
    serves(
        BRIDGE,
        &card,
        &[
            Frame::part(DATA, b"corr", &binding, card.as_bytes()),
            Frame::part(
                END,
                b"corr",
                &binding.proof(0, 0x0807),
                signature.as_bytes(),
            ),
        ],
    );
    let mut consumer = Consumer::new();
    let binding = Binding::document(DOC_ID, DOCUMENT, 1);
    consumer.part(DATA, &binding, DOCUMENT);
    consumer.part(END, &binding.proof(0, 0x0807), b"\x00\xff proof\r\n");
    assert_eq!(
        consumer.presents(DOCUMENT),
        [DetachedProof {
            algorithm: 0x0807,
            octets: b"\x00\xff proof\r\n"[..].into(),
        }]
    );
    // Two results: a parser may see the one or the other.
    let method = "GetExtendedAgentCard";
    let object = request_json("1", method);
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", method, &object));
    let exchange = egress.reaches_agent(&object);
    egress.agent_body(
        exchange,
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"result":{"a":2}}"#,
    );
    egress.emits_transport_error(b"corr", DIGEST_UNSTABLE);
}

/// NPAMP-CC-DOC §12 (3): the digest is over the recovered octets; one altered octet is DigestMismatch.
#[test]
fn clause_3_digest() {
    for at in 0..DOCUMENT.len() {
        let mut altered = DOCUMENT.to_vec();
        altered[at] ^= 0x40;
        let mut consumer = Consumer::new();
        consumer.part(RESPONSE, &Binding::document(DOC_ID, DOCUMENT, 0), &altered);
        consumer.fails(DIGEST_MISMATCH);
    }
    // The other algorithm (digest_alg 2, SHA-384).
    let mut binding = Binding::document(DOC_ID, DOCUMENT, 0);
    binding.digest_alg = 2;
    binding.digest = sha2::Sha384::digest(DOCUMENT).to_vec();
    let mut consumer = Consumer::new();
    consumer.part(RESPONSE, &binding, DOCUMENT);
    consumer.presents(DOCUMENT);
    binding.digest[47] ^= 1;
    let mut consumer = Consumer::new();
    consumer.part(RESPONSE, &binding, DOCUMENT);
    consumer.fails(DIGEST_MISMATCH);
}

/// NPAMP-CC-DOC §12 (4): a descriptor on every part; absent, truncated or
/// inconsistent it is BindingMalformed; a request must not have one.
#[test]
fn clause_4_binding() {
    let good = Binding::document(DOC_ID, DOCUMENT, 1);
    let change = |change: &dyn Fn(&mut Binding)| {
        let mut binding = good.clone();
        change(&mut binding);
        binding
    };
    for bad in [
        change(&|b| b.part_kind = 0),
        change(&|b| b.part_kind = 3),
        change(&|b| b.doc_id.clear()),
        change(&|b| b.content_type.clear()),
        change(&|b| b.digest_alg = 0x7777),
        change(&|b| b.digest.truncate(31)),
        change(&|b| b.digest_alg = 2),
        change(&|b| b.proof_alg = 0x0807),
        good.proof(1, 0x0807),
    ] {
        let mut consumer = Consumer::new();
        consumer.part(RESPONSE, &bad, DOCUMENT);
        consumer.fails(BINDING_MALFORMED);
    }
    // Absent, and cut at each place.
    let mut consumer = Consumer::new();
    let id = consumer.id.clone();
    let absent = Frame::response(&id, std::str::from_utf8(DOCUMENT).unwrap());
    consumer.ingress.peer(&absent);
    consumer.fails(BINDING_MALFORMED);
    let value = good.value();
    for cut in 0..value.len() {
        let mut consumer = Consumer::new();
        let head = Frame::new(RESPONSE, &consumer.id, b"").octets();
        let octets = [&head[..], &tlv(DOCBIND, &value[..cut]), DOCUMENT].concat();
        consumer.ingress.peer_octets(BRIDGE, RESPONSE, octets);
        consumer.fails(BINDING_MALFORMED);
    }
    // Two parts that disagree.
    for other in [
        change(&|b| b.proof_count = 2),
        change(&|b| b.digest[0] ^= 1),
    ] {
        let mut consumer = Consumer::new();
        consumer.part(DATA, &good, DOCUMENT);
        consumer.part(END, &other.proof(0, 0x0807), b"{}");
        consumer.fails(BINDING_MALFORMED);
    }
    let mut ask = Frame::request(b"corr", METHOD, "");
    ask.binding = Some(good);
    let mut egress = Exchange::egress();
    egress.peer(&ask);
    egress.emits_transport_error(b"corr", BINDING_MALFORMED);
    egress.reaches_nobody();
}

/// NPAMP-CC-DOC §12 (5): a proof of another doc_id is ProofUnbound, and the
/// document is not presented as if it had one proof less.
#[test]
fn clause_5_unbound_proof() {
    let binding = Binding::document(DOC_ID, DOCUMENT, 1);
    let mut proof = binding.proof(0, 0x0807);
    proof.doc_id = b"another".to_vec();
    let mut consumer = Consumer::new();
    consumer.part(DATA, &binding, DOCUMENT);
    consumer.part(END, &proof, b"{}");
    consumer.fails(PROOF_UNBOUND);
    let mut consumer = Consumer::new();
    consumer.part(DATA, &proof, b"{}");
    consumer.part(END, &binding, DOCUMENT);
    consumer.fails(PROOF_UNBOUND);
}

/// NPAMP-CC-DOC §12 (6): proofs of mixed proof_alg, signatures by their core code
/// points; an unknown one is carried and reported as ProofUnsupported.
#[test]
fn clause_6_algorithms() {
    let signatures = ["EdDSA", "ML-DSA-87", "ES256"].map(jws);
    let card = signed(&signatures);
    let binding = Binding::document(DOC_ID, card.as_bytes(), 3);
    let proof = |frame_type, index: u8, algorithm| {
        let octets = signatures[usize::from(index)].as_bytes();
        Frame::part(
            frame_type,
            b"corr",
            &binding.proof(index, algorithm),
            octets,
        )
    };
    serves(
        BRIDGE,
        &card,
        &[
            Frame::part(DATA, b"corr", &binding, card.as_bytes()),
            proof(DATA, 0, 0x0807),
            proof(DATA, 1, 0x0905),
            proof(END, 2, 0xfe00),
        ],
    );
    let binding = Binding::document(DOC_ID, DOCUMENT, 2);
    let mut consumer = Consumer::new();
    consumer.part(DATA, &binding, DOCUMENT);
    consumer.part(DATA, &binding.proof(0, 0x0905), b"one");
    consumer.part(END, &binding.proof(1, 0x4242), b"two");
    let proofs = consumer.presents(DOCUMENT);
    let found: Vec<u16> = proofs.iter().map(|proof| proof.algorithm).collect();
    assert_eq!(found, [0x0905, 0x4242]);
    let id = consumer.id.clone();
    consumer
        .ingress
        .emits(&[Frame::transport_error(&id, 20, "proof 1: 0x4242")]);
}

/// NPAMP-CC-DOC §12 (7): parts in any order; a streamed document is put together
/// before its digest is taken; nothing is presented before the set is complete.
#[test]
fn clause_7_assembly() {
    // A proof before its document.
    let binding = Binding::document(DOC_ID, DOCUMENT, 2);
    let mut consumer = Consumer::new();
    consumer.part(RESPONSE, &binding.proof(1, 0xfe00), b"1");
    consumer.part(RESPONSE, &binding.proof(0, 0x0807), b"0");
    assert!(consumer.told().is_none());
    consumer.part(RESPONSE, &binding, DOCUMENT);
    let proofs = consumer.presents(DOCUMENT);
    assert_eq!(
        (&proofs[0].octets[..], &proofs[1].octets[..]),
        (&b"0"[..], &b"1"[..])
    );
    // Octet by octet.
    let binding = Binding::document(DOC_ID, DOCUMENT, 0);
    let mut consumer = Consumer::new();
    for (at, octet) in DOCUMENT.iter().enumerate() {
        assert!(consumer.told().is_none());
        let last = at + 1 == DOCUMENT.len();
        consumer.part(if last { END } else { DATA }, &binding, &[*octet]);
    }
    consumer.presents(DOCUMENT);
    consumer.ingress.emits_nothing();
    // A long one of the producer's, the digest that of the whole.
    let card = format!("{{\"x\":\"{}\"}}", "x".repeat(2 * DOCUMENT_PART_OCTETS_MAX));
    let binding = Binding::document(DOC_ID, card.as_bytes(), 0);
    let chunks: Vec<&[u8]> = card.as_bytes().chunks(DOCUMENT_PART_OCTETS_MAX).collect();
    let expected: Vec<Frame> = chunks
        .iter()
        .enumerate()
        .map(|(at, chunk)| {
            let last = at + 1 == chunks.len();
            Frame::part(if last { END } else { DATA }, b"corr", &binding, chunk)
        })
        .collect();
    serves(BRIDGE, &card, &expected);
    // Never assembled across channels (§3).
    let binding = Binding::document(DOC_ID, DOCUMENT, 1);
    let mut consumer = Consumer::new();
    let id = consumer.id.clone();
    consumer.part(RESPONSE, &binding, DOCUMENT);
    let proof = Frame::part(RESPONSE, &id, &binding.proof(0, 0x0807), b"p");
    consumer.ingress.peer(&proof.clone().on(DISCOVERY));
    assert!(consumer.told().is_none());
    consumer.ingress.peer(&proof);
    consumer.presents(DOCUMENT);
}

/// NPAMP-CC-DOC §12 (8): a set that ends early or is given up is SetIncomplete,
/// told to the producer too; a producer's own error keeps its code; none is a success.
#[test]
fn clause_8_errors() {
    let binding = Binding::document(DOC_ID, DOCUMENT, 2);
    let mut consumer = Consumer::new();
    consumer.part(DATA, &binding, DOCUMENT);
    consumer.part(END, &binding.proof(0, 0x0807), b"0");
    consumer.fails(SET_INCOMPLETE);
    let mut consumer = Consumer::new();
    consumer.part(RESPONSE, &binding, DOCUMENT);
    assert!(consumer.told().is_none());
    consumer.ingress.end.gone(1);
    let id = consumer.id.clone();
    consumer.ingress.emits_transport_error(&id, SET_INCOMPLETE);
    for code in [
        BINDING_MALFORMED,
        DIGEST_MISMATCH,
        DIGEST_UNSTABLE,
        PROOF_UNBOUND,
        20,
        SET_INCOMPLETE,
    ] {
        let mut consumer = Consumer::new();
        consumer.part(DATA, &binding, DOCUMENT);
        assert!(consumer.told().is_none());
        let id = consumer.id.clone();
        consumer
            .ingress
            .peer(&Frame::transport_error(&id, code, "why"));
        let told = consumer.told();
        assert!(matches!(&told, Some(CallEvent::TransportError(error)) if error.code == code));
        consumer.ingress.emits_nothing();
    }
    // The agent has no card: NotDelivered, not an empty document.
    for status in [404, 500, 204] {
        let mut egress = Exchange::egress();
        egress.peer(&Frame::request(b"corr", METHOD, ""));
        let (exchange, _) = egress.dispatch();
        egress.agent(exchange, crate::harness::body(status, ""));
        egress.emits(&[Frame::transport_error(
            b"corr",
            NOT_DELIVERED,
            &format!("http {status}"),
        )]);
    }
}

/// NPAMP-CC-DOC §12 (9): the request's label decides, and its absence on a method
/// that is not known to be read_only means destructive.
#[test]
fn clause_9_fail_safe() {
    let reads = || MapperConfig {
        allow: EffectSet::of(&[0]),
        ..MapperConfig::default()
    };
    for (label, passes) in [
        (None, true),
        (Some(0), true),
        (Some(1), false),
        (Some(3), false),
    ] {
        let mut egress = Exchange::egress_with(reads());
        let mut ask = Frame::request(b"corr", METHOD, "");
        ask.safety = label.map(|effect| (effect, String::new()));
        egress.peer(&ask);
        if passes {
            egress.dispatch();
        } else {
            egress.emits_transport_error(b"corr", SAFETY_POLICY);
            egress.reaches_nobody();
        }
    }
    let mut egress = Exchange::egress_with(reads());
    let object = request_json("1", "agent/regenerateCard");
    egress.peer(&Frame::request(b"corr", "agent/regenerateCard", &object));
    egress.emits_transport_error(b"corr", SAFETY_POLICY);
    // The extended card is read_only, and its document part says so.
    let object = request_json("1", "GetExtendedAgentCard");
    egress.peer(&Frame::request(b"corr", "GetExtendedAgentCard", &object));
    let exchange = egress.reaches_agent(&object);
    egress.agent_body(exchange, &result_json("1", "{\"name\":\"x\"}"));
    let card = b"{\"name\":\"x\"}";
    let binding = Binding::document("extended-agent-card", card, 0);
    egress.emits(&[Frame::part(RESPONSE, b"corr", &binding, card)]);
}
