//! What of an agent card is signature material: the members of its `signatures`,
//! which travel as detached proofs beside the card (NPAMP-MAP-A2A §7, ruling R9).
//!
//! Never changes a card: it is read, and every proof is a slice of it.

use crate::bridge::document::DetachedProof;
use crate::bridge::document_binding::ProofAlgorithm;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Proofs that one set can count.
const PROOFS_MAX: usize = u8::MAX as usize;

/// A card with more signatures than a document set can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the card has more than {PROOFS_MAX} signatures")]
pub struct TooManySignatures;

/// One proof for each JWS object in the card's `signatures`, as it is spelled
/// there. What is no card, or has no list there, has none.
pub fn proofs(card: &[u8]) -> Result<Vec<DetachedProof<'_>>, TooManySignatures> {
    let Some(signatures) = std::str::from_utf8(card)
        .ok()
        .and_then(|card| member(card, "signatures"))
    else {
        return Ok(Vec::new());
    };
    let mut deserializer = serde_json::Deserializer::from_str(signatures.get());
    let Ok(objects) = deserializer.deserialize_seq(Objects) else {
        return Ok(Vec::new());
    };
    if objects.len() > PROOFS_MAX {
        return Err(TooManySignatures);
    }
    Ok(objects
        .into_iter()
        .map(|signature| DetachedProof {
            algorithm: algorithm(signature.get()),
            octets: signature.get().as_bytes(),
        })
        .collect())
}

/// proof_alg of a JWS by the `alg` of its protected header.
fn algorithm(signature: &str) -> ProofAlgorithm {
    let header = member(signature, "protected")
        .and_then(text)
        .and_then(|protected| URL_SAFE_NO_PAD.decode(protected).ok())
        .and_then(|header| String::from_utf8(header).ok());
    let name = header
        .as_deref()
        .and_then(|header| member(header, "alg"))
        .and_then(text);
    match name.as_deref() {
        // RFC 8037, and the name that RFC 9864 gives to the same with this curve.
        Some("EdDSA" | "Ed25519") => ProofAlgorithm::ED25519,
        Some("ML-DSA-87") => ProofAlgorithm::ML_DSA_87,
        _ => ProofAlgorithm::OTHER_JWS,
    }
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The value of an object's member, the last one where a name repeats, as for most JSON parsers.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    let mut deserializer = serde_json::Deserializer::from_str(object);
    let found = deserializer.deserialize_map(Member(name)).ok()?;
    deserializer.end().ok()?;
    found
}

struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Name(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a member's name, decoded, is this one.
struct Name<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        // As octets: a name may hold a lone surrogate escape, which is JSON but no text.
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a member name")
    }

    fn visit_bytes<E: serde::de::Error>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<bool, E> {
        self.visit_bytes(name.as_bytes())
    }
}

/// The objects of a list, one more than a set can count at most.
struct Objects;

impl<'de> Visitor<'de> for Objects {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(value) = list.next_element::<&'de RawValue>()? {
            if value.get().starts_with('{') && objects.len() <= PROOFS_MAX {
                objects.push(value);
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jws(header: &str) -> String {
        let protected = URL_SAFE_NO_PAD.encode(header);
        format!(r#"{{ "signature":"c2ln","protected" : "{protected}", "header":{{"kid":1.0}}}}"#)
    }

    /// Ruling R9: proof_alg by the protected header, octets as spelled.
    #[test]
    fn each_signature_object_is_a_proof() {
        let cases = [
            (r#"{"alg":"EdDSA","kid":"k"}"#, 0x0807),
            (r#"{"alg":"Ed25519"}"#, 0x0807),
            (r#"{"\u0061lg":"EdD\u0053A"}"#, 0x0807),
            (r#"{"alg":"ML-DSA-87"}"#, 0x0905),
            (r#"{"alg":"ES256"}"#, 0xfe00),
            (r#"{"alg":7}"#, 0xfe00),
            ("no json", 0xfe00),
        ];
        let signatures: Vec<String> = cases.iter().map(|(header, _)| jws(header)).collect();
        let card = format!(
            "{{\"\\ud800\":1,\"signatures\" :\n[{}],\"name\":\"n\"}}",
            signatures.join(" , ")
        );
        let found = proofs(card.as_bytes()).unwrap();
        assert_eq!(found.len(), cases.len());
        for ((proof, signature), (_, algorithm)) in found.iter().zip(&signatures).zip(cases) {
            assert_eq!(proof.octets, signature.as_bytes());
            assert_eq!(proof.algorithm.0, algorithm);
        }
    }

    #[test]
    fn cards_without_signatures() {
        for card in [
            "{}",
            r#"{"signatures":[]}"#,
            r#"{"signatures":null}"#,
            r#"{"signatures":["x",1,[{}]]}"#,
            r#"{"signatures":{"protected":"x"}}"#,
            r#"{"signatures":[{}],"signatures":[]}"#,
            r#"{"x":{"signatures":[{}]}}"#,
            r#"{"signatures":[{}]"#,
            r#"{"signatures":[{}]} x"#,
            "[]",
            "<html>",
            "",
        ] {
            assert_eq!(proofs(card.as_bytes()), Ok(Vec::new()), "{card}");
        }
        assert_eq!(proofs(b"{\"signatures\":[{}]}\xff"), Ok(Vec::new()));
        let odd = proofs(br#"{"s\u0069gnatures":[{}, 1]}"#).unwrap();
        assert_eq!(odd[0].octets, b"{}");
        assert_eq!(odd[0].algorithm, ProofAlgorithm::OTHER_JWS);
    }

    /// NPAMP-CC-DOC §6.2: proof_count is one octet.
    #[test]
    fn more_signatures_than_a_set_can_count() {
        let card = |count: usize| format!("{{\"signatures\":[{}]}}", vec!["{}"; count].join(","));
        assert_eq!(proofs(card(255).as_bytes()).unwrap().len(), 255);
        assert_eq!(proofs(card(256).as_bytes()), Err(TooManySignatures));
        assert_eq!(proofs(card(4000).as_bytes()), Err(TooManySignatures));
    }
}
