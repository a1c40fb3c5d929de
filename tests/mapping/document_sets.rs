//! Document sets with proofs and of several parts: NPAMP-CC-DOC §12 clause by
//! clause, each with a recorded exchange. Frames are compared octet for octet
//! with what the functions here build from the specification's tables.

use crate::harness::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use npamp_relay::a2a::port::{AgentEvent, CallEvent, CallRequest, DetachedProof};
use npamp_relay::a2a::stats::{Dropped, Outcome};
use npamp_relay::bridge::document::DocumentError;
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits::{DOCUMENT_OCTETS_MAX, DOCUMENT_PART_OCTETS_MAX};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256, Sha384};

const JSON: &str = "application/json";
const DOCUMENT: &[u8] = b" {\"name\":\"a\"}\r\n";

fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    [&tag.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

fn sized(value: &[u8]) -> Vec<u8> {
    [&[u8::try_from(value.len()).unwrap()][..], value].concat()
}

/// NPAMP-BRIDGE §4: A2A, application/json, `final` on the end of a stream.
fn envelope(frame_type: u16, correlation_id: &[u8], method: &str) -> Vec<u8> {
    let kind = match frame_type {
        REQUEST => 1,
        RESPONSE => 2,
        ERROR => 4,
        DATA => 5,
        END => 6,
        _ => unreachable!(),
    };
    let head = [2, kind, 1, u8::from(frame_type == END)];
    let fields = [&head[..], &sized(correlation_id), &sized(method.as_bytes())].concat();
    tlv(0x0010, &fields)
}

/// The fields of NPAMP-CC-DOC §6.2 in their order.
#[derive(Clone)]
struct Binding {
    part_kind: u8,
    doc_id: Vec<u8>,
    content_type: String,
    digest_alg: u16,
    digest: Vec<u8>,
    proof_count: u8,
    proof_index: u8,
    proof_alg: u16,
}

impl Binding {
    fn of(document: &[u8], proof_count: u8) -> Self {
        Self {
            part_kind: 1,
            doc_id: b"agent-card".to_vec(),
            content_type: JSON.to_owned(),
            digest_alg: 1,
            digest: Sha256::digest(document).to_vec(),
            proof_count,
            proof_index: 0,
            proof_alg: 0,
        }
    }

    fn proof(&self, proof_index: u8, proof_alg: u16) -> Self {
        Self {
            part_kind: 2,
            content_type: String::new(),
            proof_index,
            proof_alg,
            ..self.clone()
        }
    }

    fn tlv(&self) -> Vec<u8> {
        let value = [
            &[self.part_kind][..],
            &sized(&self.doc_id),
            &sized(self.content_type.as_bytes()),
            &self.digest_alg.to_be_bytes(),
            &sized(&self.digest),
            &[self.proof_count, self.proof_index],
            &self.proof_alg.to_be_bytes(),
        ]
        .concat();
        tlv(DOCBIND, &value)
    }
}

/// A part as a producer here sends it: the document labelled read_only (§9), the binding last (§6.1).
fn part(frame_type: u16, correlation_id: &[u8], binding: &Binding, octets: &[u8]) -> Vec<u8> {
    let label = if binding.part_kind == 1 {
        tlv(0x0013, &[0, 0])
    } else {
        Vec::new()
    };
    let head = envelope(frame_type, correlation_id, "");
    [&head, &label, &binding.tlv(), octets].concat()
}

fn jws(alg: &str) -> String {
    let protected = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{alg}","kid":"k"}}"#));
    format!("{{\"protected\": \"{protected}\",\n \"signature\":\"AAA_\" }}")
}

fn card_with(signatures: &[String], padding: usize) -> String {
    format!(
        "{{\"name\":\"\\u00e9\", \"x\":1.0e+2,\n\"padding\":\"{}\",\"signatures\":[ {} ]}}\n",
        "x".repeat(padding),
        signatures.join(" ,")
    )
}

fn card_body(card: &str) -> AgentEvent {
    AgentEvent::Body {
        status: 200,
        content_type: JSON.to_owned(),
        retry_after: None,
        body: card.to_owned().into(),
    }
}

/// Asks for a card through both ends; gives the frames that came back, checked
/// against `expected` (frame type, binding, octets), and what was presented.
fn exchange(card: &str, expected: &[(u16, Binding, &[u8])]) -> (Vec<u8>, Vec<DetachedProof>) {
    let mut pair = Pair::new();
    pair.ingress.card(1);
    pair.pass();
    let correlation_id = pair.passed[0].1.correlation_id();
    assert_eq!(
        (pair.passed[0].1.kind, &pair.passed[0].1.octets[..]),
        (
            REQUEST,
            &envelope(REQUEST, &correlation_id, "agent/getCard")[..]
        )
    );
    let (exchange, _) = pair.egress.one_dispatch();
    pair.agent(exchange, card_body(card));
    assert_eq!(pair.passed.len(), 1 + expected.len());
    for ((to_egress, frame), (frame_type, binding, octets)) in pair.passed[1..].iter().zip(expected)
    {
        assert!(!to_egress);
        assert_eq!((frame.channel, frame.kind), (BRIDGE, *frame_type));
        let expected = part(*frame_type, &correlation_id, binding, octets);
        assert!(frame.octets == expected, "{frame_type:#06x}");
    }
    if expected.len() > 1 {
        assert!(matches!(
            pair.ingress.calls.remove(0).1,
            CallEvent::DocumentBegun
        ));
    }
    let presented = match pair.ingress.one_event() {
        CallEvent::Document {
            document,
            content_type,
            proofs,
        } => {
            assert_eq!(content_type, JSON);
            (document.to_vec(), proofs)
        }
        other => panic!("{other:?}"),
    };
    pair.ingress.no_frame();
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
    assert_eq!(pair.ingress.stats.requester.total(Outcome::Document), 1);
    assert_eq!(pair.egress.stats.responder.total(Outcome::Document), 1);
    presented
}

/// §12 (1, 2, 4, 9): a document in one frame, without proofs.
#[test]
fn a_single_frame_without_proofs() {
    let card = card_with(&[], 10);
    let document = (RESPONSE, Binding::of(card.as_bytes(), 0), card.as_bytes());
    let (presented, proofs) = exchange(&card, &[document]);
    assert_eq!(presented, card.as_bytes());
    assert!(proofs.is_empty());
}

/// §12 (2, 4–6), NPAMP-MAP-A2A §7, ruling R9: a signature is a detached proof, as it is spelled.
#[test]
fn a_document_with_one_proof() {
    let signature = jws("EdDSA");
    let card = card_with(std::slice::from_ref(&signature), 0);
    let binding = Binding::of(card.as_bytes(), 1);
    let proof = (END, binding.proof(0, 0x0807), signature.as_bytes());
    let (presented, proofs) = exchange(&card, &[(DATA, binding, card.as_bytes()), proof]);
    assert_eq!(presented, card.as_bytes());
    assert_eq!(proofs.len(), 1);
    assert_eq!(proofs[0].algorithm, 0x0807);
    assert_eq!(proofs[0].octets, signature);
}

/// §12 (6): proofs of several algorithms, each with its identifier.
#[test]
fn proofs_of_mixed_algorithms() {
    let signatures = [jws("EdDSA"), jws("ES256"), jws("ML-DSA-87")];
    let algorithms = [0x0807, 0xfe00, 0x0905];
    let card = card_with(&signatures, 0);
    let binding = Binding::of(card.as_bytes(), 3);
    let mut expected = vec![(DATA, binding.clone(), card.as_bytes())];
    for ((index, signature), algorithm) in (0..).zip(&signatures).zip(algorithms) {
        let frame_type = if index == 2 { END } else { DATA };
        let proof = binding.proof(index, algorithm);
        expected.push((frame_type, proof, signature.as_bytes()));
    }
    let (presented, proofs) = exchange(&card, &expected);
    assert_eq!(presented, card.as_bytes());
    for ((proof, signature), algorithm) in proofs.iter().zip(&signatures).zip(algorithms) {
        assert_eq!(
            (proof.algorithm, &proof.octets[..]),
            (algorithm, signature.as_bytes())
        );
    }
    assert_eq!(proofs.len(), 3);
}

/// §12 (3, 7), §7.4: a long document and a long proof in several frames; the digest is the whole document's.
#[test]
fn a_streamed_document() {
    const MAX: usize = DOCUMENT_PART_OCTETS_MAX;
    for padding in [MAX - 1000, MAX, 3 * MAX] {
        let card = card_with(&[], padding);
        let binding = Binding::of(card.as_bytes(), 0);
        let chunks: Vec<&[u8]> = card.as_bytes().chunks(MAX).collect();
        let frame_type = |index: usize| match (chunks.len(), index + 1 == chunks.len()) {
            (1, _) => RESPONSE,
            (_, false) => DATA,
            (_, true) => END,
        };
        let expected: Vec<_> = chunks
            .iter()
            .enumerate()
            .map(|(index, chunk)| (frame_type(index), binding.clone(), *chunk))
            .collect();
        let (presented, _) = exchange(&card, &expected);
        assert!(presented == card.as_bytes());
    }
    let long = format!(r#"{{"protected":"","signature":"{}"}}"#, "A".repeat(MAX));
    let card = card_with(std::slice::from_ref(&long), 0);
    let binding = Binding::of(card.as_bytes(), 1);
    let proof = binding.proof(0, 0xfe00);
    let (first, rest) = card.as_bytes().split_at(MAX);
    let (proof_first, proof_rest) = long.as_bytes().split_at(MAX);
    let (presented, proofs) = exchange(
        &card,
        &[
            (DATA, binding.clone(), first),
            (DATA, binding, rest),
            (DATA, proof.clone(), proof_first),
            (END, proof, proof_rest),
        ],
    );
    assert!(presented == card.as_bytes() && proofs[0].octets == long);
}

/// An ingress that asked for a card, to be answered by hand.
struct Asked {
    ingress: End,
    correlation_id: Vec<u8>,
}

impl Asked {
    fn new() -> Self {
        let mut ingress = End::ingress();
        ingress.card(1);
        let correlation_id = ingress.one_frame().correlation_id();
        Self {
            ingress,
            correlation_id,
        }
    }

    fn part(&mut self, frame_type: u16, binding: &Binding, octets: &[u8]) {
        let frame = part(frame_type, &self.correlation_id, binding, octets);
        self.ingress.frame(BRIDGE, frame_type, &frame);
    }

    /// Takes the sign that a set has begun, which must be the only event so far.
    fn begun(&mut self) {
        assert!(matches!(self.ingress.one_event(), CallEvent::DocumentBegun));
    }

    fn presented(&mut self) -> (Vec<u8>, Vec<DetachedProof>) {
        match self.ingress.one_event() {
            CallEvent::Document {
                document, proofs, ..
            } => {
                self.ingress.assert_idle();
                (document.to_vec(), proofs)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The failure that the caller is told, and the producer in a BRIDGE_ERROR (§8).
    fn failed(&mut self) -> TransportCode {
        let (code, message) = self.ingress.one_transport_error();
        let report = self.ingress.one_frame();
        let body = [&[code.0][..], &sized(message.as_bytes())].concat();
        let expected = [envelope(ERROR, &self.correlation_id, ""), body].concat();
        assert_eq!((report.channel, report.kind), (BRIDGE, ERROR));
        assert_eq!(report.octets, expected);
        self.ingress.assert_idle();
        code
    }
}

/// §12 (7), §7.3: a proof before its document, in stream frames and in whole ones, and both mixed.
#[test]
fn a_proof_before_its_document() {
    let binding = Binding::of(DOCUMENT, 1);
    let proof = binding.proof(0, 0xfe00);
    for (proof_frame, document_frame) in [(DATA, END), (RESPONSE, RESPONSE), (RESPONSE, END)] {
        let mut asked = Asked::new();
        asked.part(proof_frame, &proof, b"{proof}");
        asked.begun();
        asked.part(document_frame, &binding, DOCUMENT);
        let (document, proofs) = asked.presented();
        assert_eq!(document, DOCUMENT);
        assert_eq!(proofs[0].octets, &b"{proof}"[..]);
        asked.ingress.no_frame();
    }
    // A document in one BRIDGE_RESPONSE, its proof in the next.
    let mut asked = Asked::new();
    asked.part(RESPONSE, &binding, DOCUMENT);
    asked.begun();
    asked.part(RESPONSE, &proof, b"{proof}");
    assert_eq!(asked.presented().0, DOCUMENT);
}

/// §6.1, §7.4: an end without octets carries no part and needs no binding.
#[test]
fn an_end_that_carries_nothing() {
    let mut asked = Asked::new();
    asked.part(DATA, &Binding::of(DOCUMENT, 0), DOCUMENT);
    asked.begun();
    let end = envelope(END, &asked.correlation_id, "");
    asked.ingress.frame(BRIDGE, END, &end);
    assert_eq!(asked.presented().0, DOCUMENT);
    // With octets it does.
    let mut asked = Asked::new();
    asked.part(DATA, &Binding::of(DOCUMENT, 0), DOCUMENT);
    asked.begun();
    let end = [&envelope(END, &asked.correlation_id, "")[..], b"{}"].concat();
    asked.ingress.frame(BRIDGE, END, &end);
    assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
}

/// §12 (3), §5: both digest algorithms; one altered octet of a document in one frame, in several, or with proofs.
#[test]
fn an_altered_octet_is_a_digest_mismatch() {
    let mut sha384 = Binding::of(DOCUMENT, 0);
    sha384.digest_alg = 2;
    sha384.digest = Sha384::digest(DOCUMENT).to_vec();
    for binding in [Binding::of(DOCUMENT, 0), sha384] {
        for at in 0..DOCUMENT.len() {
            let mut altered = DOCUMENT.to_vec();
            altered[at] ^= 1;
            for (octets, matches) in [(DOCUMENT, true), (&altered[..], false)] {
                let mut asked = Asked::new();
                asked.part(RESPONSE, &binding, octets);
                if matches {
                    assert_eq!(asked.presented().0, DOCUMENT);
                } else {
                    assert_eq!(asked.failed(), TransportCode::DIGEST_MISMATCH);
                }
                let mut asked = Asked::new();
                asked.part(DATA, &binding, &octets[..5]);
                asked.begun();
                asked.part(END, &binding, &octets[5..]);
                if matches {
                    assert_eq!(asked.presented().0, DOCUMENT);
                } else {
                    assert_eq!(asked.failed(), TransportCode::DIGEST_MISMATCH);
                }
            }
        }
    }
    let binding = Binding::of(DOCUMENT, 1);
    let mut asked = Asked::new();
    asked.part(DATA, &binding, b"something else");
    asked.begun();
    asked.part(END, &binding.proof(0, 0x0807), b"{proof}");
    assert_eq!(asked.failed(), TransportCode::DIGEST_MISMATCH);
    let errors = &asked.ingress.stats.document_errors;
    assert_eq!(errors.get(DocumentError::DigestMismatch), 1);
}

/// §12 (5), §6.3: a proof with another doc_id is no proof of the document, whichever comes first,
/// and the document is not shown with fewer proofs.
#[test]
fn an_unbound_proof() {
    let binding = Binding::of(DOCUMENT, 1);
    let mut proof = binding.proof(0, 0x0807);
    proof.doc_id = b"another".to_vec();
    for proof_first in [false, true] {
        let mut parts = [(&binding, DOCUMENT), (&proof, &b"{proof}"[..])];
        if proof_first {
            parts.reverse();
        }
        for (first, last) in [(DATA, END), (RESPONSE, RESPONSE)] {
            let mut asked = Asked::new();
            asked.part(first, parts[0].0, parts[0].1);
            asked.begun();
            asked.part(last, parts[1].0, parts[1].1);
            assert_eq!(asked.failed(), TransportCode::PROOF_UNBOUND);
        }
    }
}

/// §12 (4), §6.2: parts that share their doc_id and disagree in anything else, or come twice.
#[test]
fn parts_that_disagree() {
    let binding = Binding::of(DOCUMENT, 2);
    let changes: [&dyn Fn(&mut Binding); 4] = [
        &|b| b.digest[31] ^= 1,
        &|b| {
            b.digest_alg = 2;
            b.digest = vec![0; 48];
        },
        &|b| b.proof_count = 3,
        &|b| b.proof_index = 0,
    ];
    for change in changes {
        let mut asked = Asked::new();
        asked.part(RESPONSE, &binding.proof(0, 0x0807), b"{0}");
        asked.begun();
        let mut other = binding.proof(1, 0x0807);
        change(&mut other);
        asked.part(RESPONSE, &other, b"{1}");
        assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
    }
    // A proof whose algorithm, and a document whose media type, changes on the way.
    let mut other_type = binding.clone();
    other_type.content_type = "text/plain".to_owned();
    for (first, second) in [
        (binding.proof(0, 0x0807), binding.proof(0, 0xfe00)),
        (binding.clone(), other_type),
    ] {
        let mut asked = Asked::new();
        asked.part(DATA, &first, b"a");
        asked.begun();
        asked.part(DATA, &second, b"b");
        assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
    }
    // A whole part is not continued.
    let mut asked = Asked::new();
    asked.part(RESPONSE, &binding, DOCUMENT);
    asked.begun();
    asked.part(DATA, &binding, b"more");
    assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
}

/// §12 (4), §6.1, §6.2: a malformed descriptor in mid-set.
#[test]
fn a_malformed_binding_in_a_set() {
    let binding = Binding::of(DOCUMENT, 1);
    let mut out_of_range = binding.proof(1, 0x0807);
    let mut unknown_kind = binding.proof(0, 0x0807);
    unknown_kind.part_kind = 3;
    let mut short = binding.proof(0, 0x0807);
    short.digest.pop();
    let mut digest_unknown = binding.proof(0, 0x0807);
    digest_unknown.digest_alg = 3;
    for bad in [
        &mut out_of_range,
        &mut unknown_kind,
        &mut short,
        &mut digest_unknown,
    ] {
        let mut asked = Asked::new();
        asked.part(DATA, &binding, DOCUMENT);
        asked.begun();
        asked.part(END, bad, b"{proof}");
        assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
    }
}

/// §12 (6), §6.4: a proof of unknown algorithm is carried and reported; the document is not shown as if it had none.
#[test]
fn an_unsupported_proof() {
    let binding = Binding::of(DOCUMENT, 2);
    let mut asked = Asked::new();
    asked.part(DATA, &binding, DOCUMENT);
    asked.begun();
    asked.part(DATA, &binding.proof(1, 0x1234), b"receipt");
    asked.part(END, &binding.proof(0, 0xfe00), b"{jws}");
    let (_, proofs) = asked.presented();
    let found: Vec<_> = proofs
        .iter()
        .map(|p| (p.algorithm, &p.octets[..]))
        .collect();
    assert_eq!(found, [(0xfe00, &b"{jws}"[..]), (0x1234, b"receipt")]);
    let report = asked.ingress.one_frame();
    assert_eq!(
        report.transport_error(),
        (
            TransportCode::PROOF_UNSUPPORTED,
            "proof 1: 0x1234".to_owned()
        )
    );
    let errors = &asked.ingress.stats.document_errors;
    assert_eq!(errors.get(DocumentError::ProofUnsupported), 1);
}

/// §12 (7, 8), §7.5: a set that ends early is discarded whole.
#[test]
fn a_set_that_ends_early() {
    let binding = Binding::of(DOCUMENT, 2);
    let cases: [&[(u16, Binding, &[u8])]; 3] = [
        &[(END, binding.clone(), DOCUMENT)],
        &[
            (DATA, binding.clone(), DOCUMENT),
            (END, binding.proof(1, 0x0807), b"{1}"),
        ],
        &[
            (DATA, binding.proof(0, 0x0807), b"{0}"),
            (END, binding.proof(1, 0x0807), b"{1}"),
        ],
    ];
    for parts in cases {
        let mut asked = Asked::new();
        for (frame_type, binding, octets) in parts {
            asked.part(*frame_type, binding, octets);
        }
        if parts.len() > 1 {
            assert!(matches!(
                asked.ingress.calls.remove(0).1,
                CallEvent::DocumentBegun
            ));
        }
        assert_eq!(asked.failed(), TransportCode::SET_INCOMPLETE);
    }
    let mut asked = Asked::new();
    let end = envelope(END, &asked.correlation_id, "");
    asked.ingress.frame(BRIDGE, END, &end);
    assert_eq!(asked.failed(), TransportCode::SET_INCOMPLETE);
}

/// §7.5, §8: the caller's deadline passes, or the association goes, with part of a set here.
#[test]
fn a_set_that_is_given_up() {
    let binding = Binding::of(DOCUMENT, 1);
    let mut asked = Asked::new();
    asked.part(RESPONSE, &binding, DOCUMENT);
    asked.begun();
    assert_eq!(
        asked.ingress.mapper.held_octets(ASSOCIATION),
        DOCUMENT.len()
    );
    asked.ingress.gone(1);
    let report = asked.ingress.one_frame();
    assert_eq!(report.transport_error().0, TransportCode::SET_INCOMPLETE);
    asked.ingress.assert_idle();
    let errors = &asked.ingress.stats.document_errors;
    assert_eq!(errors.get(DocumentError::SetIncomplete), 1);
    // What comes later presents nothing and is not answered.
    asked.part(DATA, &binding.proof(0, 0x0807), b"{p");
    asked.part(END, &binding.proof(0, 0x0807), b"roof}");
    asked.ingress.no_frame();
    assert!(asked.ingress.calls.is_empty());
    assert_eq!(asked.ingress.stats.dropped.get(Dropped::AbandonedReply), 2);

    let mut asked = Asked::new();
    asked.part(DATA, &binding, DOCUMENT);
    asked.begun();
    asked.ingress.down();
    let (code, _) = asked.ingress.one_transport_error();
    assert_eq!(code, TransportCode::SET_INCOMPLETE);
    assert!(asked.ingress.unanswered.is_empty(), "a part of it came");
    asked.ingress.assert_idle();

    let mut asked = Asked::new();
    asked.ingress.down();
    let unanswered = asked.ingress.unanswered.pop();
    assert!(matches!(unanswered, Some((_, CallRequest::Card, _))));
    assert!(asked.ingress.calls.is_empty());
    asked.ingress.assert_idle();
}

/// §8: a failed set is failed once; its later parts change nothing.
#[test]
fn parts_after_a_failure() {
    let binding = Binding::of(DOCUMENT, 1);
    let mut asked = Asked::new();
    asked.part(RESPONSE, &binding, DOCUMENT);
    asked.begun();
    asked.part(DATA, &binding, DOCUMENT);
    assert_eq!(asked.failed(), TransportCode::BINDING_MALFORMED);
    asked.part(DATA, &binding.proof(0, 0x0807), b"{}");
    asked.part(END, &binding.proof(0, 0x0807), b"{}");
    asked.ingress.no_frame();
    assert!(asked.ingress.calls.is_empty());
}

/// A producer's own error ends a set that has begun, with the producer's code.
#[test]
fn an_error_of_the_producer_in_mid_set() {
    let mut asked = Asked::new();
    asked.part(DATA, &Binding::of(DOCUMENT, 1), DOCUMENT);
    asked.begun();
    let error = [
        &envelope(ERROR, &asked.correlation_id, "")[..],
        &[18, 1, b'x'],
    ]
    .concat();
    asked.ingress.frame(BRIDGE, ERROR, &error);
    let (code, _) = asked.ingress.one_transport_error();
    assert_eq!(code, TransportCode::DIGEST_UNSTABLE);
    asked.ingress.no_frame();
    asked.ingress.assert_idle();
}

/// §3: parts with the same correlation_id on the Discovery channel are another correlation.
#[test]
fn channels_are_never_mixed() {
    let binding = Binding::of(DOCUMENT, 1);
    let mut asked = Asked::new();
    asked.part(RESPONSE, &binding, DOCUMENT);
    asked.begun();
    let proof = part(
        RESPONSE,
        &asked.correlation_id,
        &binding.proof(0, 0x0807),
        b"{p}",
    );
    asked.ingress.frame(DISCOVERY, RESPONSE, &proof);
    assert!(asked.ingress.calls.is_empty());
    assert_eq!(asked.ingress.stats.dropped.get(Dropped::LateReply), 1);
    asked.part(RESPONSE, &binding.proof(0, 0x0807), b"{p}");
    assert_eq!(asked.presented().0, DOCUMENT);
}

/// §3, NPAMP-MAP-A2A §14: a set with a proof that was asked for on Discovery goes there, whole.
#[test]
fn a_set_on_the_discovery_channel() {
    for channel in [BRIDGE, DISCOVERY] {
        let mut egress = End::egress();
        let ask = envelope(REQUEST, b"corr", "agent/getCard");
        egress.frame(channel, REQUEST, &ask);
        let (exchange, _) = egress.one_dispatch();
        let signature = jws("ES256");
        let card = card_with(std::slice::from_ref(&signature), 0);
        egress.agent(exchange, card_body(&card));
        let binding = Binding::of(card.as_bytes(), 1);
        let proof = part(
            END,
            b"corr",
            &binding.proof(0, 0xfe00),
            signature.as_bytes(),
        );
        let expected = [
            (DATA, part(DATA, b"corr", &binding, card.as_bytes())),
            (END, proof),
        ];
        assert_eq!(egress.frames.len(), 2);
        for (frame, (frame_type, octets)) in egress.frames.iter().zip(expected) {
            assert_eq!((frame.channel, frame.kind), (channel, frame_type));
            assert_eq!(frame.octets, octets);
        }
    }
}

/// §8: a consumer's report is known as one at the producer, and never answered.
#[test]
fn a_report_arrives() {
    let mut egress = End::egress();
    for code in 16..=21 {
        let report = [&envelope(ERROR, b"corr", "")[..], &[code, 0]].concat();
        egress.frame(BRIDGE, ERROR, &report);
    }
    egress.no_frame();
    assert!(egress.channel_errors.is_empty());
    assert_eq!(egress.stats.dropped.get(Dropped::DocumentReport), 6);
}

/// The consumer's bound (§8): octets of a set, and what an association may hold.
#[test]
fn a_set_beyond_the_bound() {
    let binding = Binding::of(DOCUMENT, 1);
    let half = vec![b'x'; DOCUMENT_OCTETS_MAX / 2];
    for part in [binding.clone(), binding.proof(0, 0x0807)] {
        let mut asked = Asked::new();
        asked.part(DATA, &part, &half);
        asked.begun();
        asked.part(DATA, &part, &half);
        asked.ingress.no_frame();
        asked.part(DATA, &part, b"x");
        assert_eq!(asked.failed(), TransportCode::SET_INCOMPLETE);
        let errors = &asked.ingress.stats.document_errors;
        assert_eq!(errors.get(DocumentError::OverBound), 1);
    }
    let config = npamp_relay::a2a::MapperConfig {
        association_octets: 1000,
        ..npamp_relay::a2a::MapperConfig::default()
    };
    let mut ingress = End::with(config, info(npamp_relay::a2a::port::Side::Initiator));
    ingress.card(1);
    let correlation_id = ingress.one_frame().correlation_id();
    let mut asked = Asked {
        ingress,
        correlation_id,
    };
    asked.part(DATA, &binding, &[b'x'; 1000]);
    asked.begun();
    asked.part(DATA, &binding, b"x");
    assert_eq!(asked.failed(), TransportCode::SET_INCOMPLETE);
}

/// More signatures than proof_count can say: no card, rather than one with fewer proofs.
#[test]
fn a_card_with_too_many_signatures() {
    let mut pair = Pair::new();
    pair.ingress.card(1);
    pair.pass();
    let (exchange, _) = pair.egress.one_dispatch();
    pair.agent(exchange, card_body(&card_with(&vec![jws("EdDSA"); 256], 0)));
    let (code, text) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    assert_eq!(text, "the card has more than 255 signatures");
}

/// A part cut at some places: how often, and whether the cuts are even.
fn cuts(octets: &[u8], seed: &[usize]) -> Vec<Vec<u8>> {
    let mut at: Vec<usize> = seed.iter().map(|cut| cut % (octets.len() + 1)).collect();
    at.extend([0, octets.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| octets[w[0]..w[1]].to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// §12 (7), §7.3, §7.4: whatever the order of parts, where they are cut, and which
    /// of them are whole frames, the set is the same; an altered octet is found.
    #[test]
    fn any_order_and_any_cut(
        document in prop::collection::vec(any::<u8>(), 1..400),
        proofs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..6),
        seeds in prop::collection::vec(prop::collection::vec(any::<usize>(), 0..5), 7),
        whole in prop::collection::vec(any::<bool>(), 7),
        order in any::<u64>(),
        empty_end in any::<bool>(),
        altered in prop::option::of(any::<usize>()),
    ) {
        let mut sent = document.clone();
        if let Some(at) = altered {
            let at = at % sent.len();
            sent[at] ^= 0x20;
        }
        let binding = Binding::of(&document, u8::try_from(proofs.len()).unwrap());
        // One queue of frames per part; within a part their order is the octets'.
        let mut queues = Vec::new();
        for (n, octets) in std::iter::once(&sent).chain(&proofs).enumerate() {
            let binding = match n {
                0 => binding.clone(),
                n => binding.proof(u8::try_from(n - 1).unwrap(), 0x0807),
            };
            let frames: std::collections::VecDeque<_> = if whole[n] {
                [(RESPONSE, binding, octets.clone())].into()
            } else {
                let cut = cuts(octets, &seeds[n]);
                cut.into_iter().map(|octets| (DATA, binding.clone(), octets)).collect()
            };
            queues.push(frames);
        }
        let mut frames = Vec::new();
        let mut random = order;
        while !queues.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let queue = usize::try_from(random >> 33).unwrap() % queues.len();
            frames.push(queues[queue].pop_front().unwrap());
            queues.retain(|queue| !queue.is_empty());
        }
        let streamed = frames.iter().any(|frame| frame.0 == DATA);
        let last = frames.last_mut().unwrap();
        let ends_itself = last.0 == DATA && !empty_end;
        if ends_itself {
            last.0 = END;
        }
        let mut asked = Asked::new();
        for (frame_type, binding, octets) in &frames {
            prop_assert!(asked.ingress.frames.is_empty(), "judged before its end");
            asked.part(*frame_type, binding, octets);
        }
        if streamed && !ends_itself {
            prop_assert!(asked.ingress.frames.is_empty(), "judged before its end");
            let end = envelope(END, &asked.correlation_id, "");
            asked.ingress.frame(BRIDGE, END, &end);
        }
        asked.ingress.calls.retain(|(_, event)| !matches!(event, CallEvent::DocumentBegun));
        if altered.is_some() {
            prop_assert_eq!(asked.failed(), TransportCode::DIGEST_MISMATCH);
        } else {
            let (presented, found) = asked.presented();
            prop_assert_eq!(presented, document);
            let found: Vec<Vec<u8>> = found.iter().map(|proof| proof.octets.to_vec()).collect();
            prop_assert_eq!(found, proofs);
        }
    }
}
