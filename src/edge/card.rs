//! The public agent card as HTTP clients of an ingress see it (ruling R20).
//!
//! Interface URLs point at the ingress, so that clients come through the relay
//! and learn nothing of the network behind it; interfaces of another binding
//! than JSON-RPC are removed, since they would lead past the relay or nowhere;
//! `signatures` are dropped, since they no longer verify. Every other member
//! keeps its octets and its place.

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt;

/// The card's octets with its interfaces at `url`. `None` when it is no JSON object.
pub(super) fn rewrite(document: &[u8], url: &str) -> Option<Bytes> {
    let card: Members<'_> = serde_json::from_slice(document).ok()?;
    let url = serde_json::to_string(url).ok()?;
    let mut members = Vec::with_capacity(card.0.len());
    for (name, value) in &card.0 {
        let value = match name.as_str() {
            "signatures" => continue,
            "url" => url.clone(),
            "preferredTransport" => JSON_RPC.to_owned(),
            "supportedInterfaces" => interfaces(value, "protocolBinding", &url),
            "additionalInterfaces" => interfaces(value, "transport", &url),
            _ => value.get().to_owned(),
        };
        members.push((name, value));
    }
    Some(object(members).into())
}

/// Strong entity tag of the octets served (RFC 9110 §8.8.3).
pub(super) fn etag(octets: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Sha256::digest(octets)))
}

/// Whether `If-None-Match` names `etag` (RFC 9110 §13.1.2: weak comparison).
pub(super) fn matches<'a>(if_none_match: impl IntoIterator<Item = &'a [u8]>, etag: &str) -> bool {
    if_none_match.into_iter().any(|line| {
        line.split(|&octet| octet == b',')
            .map(<[u8]>::trim_ascii)
            .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
    })
}

const JSON_RPC: &str = "\"JSONRPC\"";

/// The JSON-RPC interfaces of the list with their URL replaced, equal ones once.
fn interfaces(list: &RawValue, binding: &str, url: &str) -> String {
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(list.get()) else {
        return "[]".to_owned();
    };
    let mut kept: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for interface in list {
        let Ok(interface) = serde_json::from_str::<Members<'_>>(interface.get()) else {
            continue;
        };
        let json_rpc = interface.0.iter().any(|(name, value)| {
            name == binding
                && serde_json::from_str::<String>(value.get())
                    .is_ok_and(|text| text.eq_ignore_ascii_case("JSONRPC"))
        });
        if !json_rpc {
            continue;
        }
        let members = interface.0.iter().map(|(name, value)| {
            let value = if name == "url" { url } else { value.get() };
            (name, value.to_owned())
        });
        let interface = object(members);
        if seen.insert(interface.clone()) {
            kept.push(interface);
        }
    }
    format!("[{}]", kept.join(","))
}

fn object<'a>(members: impl IntoIterator<Item = (&'a String, String)>) -> String {
    let members: Vec<String> = members
        .into_iter()
        .map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name.as_str())))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// An object's members in order, values as they are spelled.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(card: &str) -> String {
        let octets = rewrite(card.as_bytes(), "https://edge/agents/x").unwrap();
        String::from_utf8(octets.to_vec()).unwrap()
    }

    /// Ruling R20, A2A v1.0 card.
    #[test]
    fn v1_interfaces() {
        assert_eq!(
            rewritten(
                r#" {"name": "n", "supportedInterfaces": [
                    {"url":"http://10.0.0.1/a","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
                    {"url":"http://10.0.0.1:9/","protocolBinding":"GRPC","protocolVersion":"1.0"},
                    {"protocolBinding":"JSONRPC","url":"http://10.0.0.1/b","protocolVersion":"0.3","tenant":1.50},
                    {"url":"http://10.0.0.2/a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}
                ], "signatures":[{"protected":"x"}], "x": 1.00, "y":"\u00fc" }"#
            ),
            concat!(
                r#"{"name":"n","supportedInterfaces":[{"url":"https://edge/agents/x","protocolBinding":"JSONRPC","protocolVersion":"1.0"},"#,
                r#"{"protocolBinding":"JSONRPC","url":"https://edge/agents/x","protocolVersion":"0.3","tenant":1.50}],"#,
                r#""x":1.00,"y":"\u00fc"}"#
            )
        );
    }

    /// Ruling R20, A2A v0.3 card, and one that is both.
    #[test]
    fn v03_and_hybrid_interfaces() {
        assert_eq!(
            rewritten(
                r#"{"url":"http://10.0.0.1/","preferredTransport":"GRPC","additionalInterfaces":[
                {"url":"http://10.0.0.1/","transport":"JSONRPC"},{"url":"http://10.0.0.1/r","transport":"HTTP+JSON"}],
                "provider":{"url":"https://vendor.example"}}"#
            ),
            r#"{"url":"https://edge/agents/x","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"https://edge/agents/x","transport":"JSONRPC"}],"provider":{"url":"https://vendor.example"}}"#
        );
        assert_eq!(
            rewritten(
                r#"{"url":"http://10.0.0.1/","supportedInterfaces":[{"url":"http://10.0.0.1/","protocolBinding":"JSONRPC"}]}"#
            ),
            r#"{"url":"https://edge/agents/x","supportedInterfaces":[{"url":"https://edge/agents/x","protocolBinding":"JSONRPC"}]}"#
        );
    }

    #[test]
    fn odd_cards() {
        assert_eq!(rewritten("{}"), "{}");
        assert_eq!(
            rewritten(
                r#"{"\u0075rl":"http://10.0.0.1/","supportedInterfaces":3,"additionalInterfaces":["http://10.0.0.1"]}"#
            ),
            r#"{"url":"https://edge/agents/x","supportedInterfaces":[],"additionalInterfaces":[]}"#,
            "no internal address leaks through an odd spelling"
        );
        for bad in ["", "[]", "<html>", "{", "null", "{} {}"] {
            assert!(rewrite(bad.as_bytes(), "http://e/").is_none(), "{bad}");
        }
    }

    #[test]
    fn entity_tags_match_weakly() {
        let tag = etag(b"card");
        assert!(tag.len() == 66 && tag.starts_with('"') && tag.ends_with('"'));
        let matches = |lines: &[&str]| matches(lines.iter().map(|line| line.as_bytes()), &tag);
        assert!(matches(&[&tag]));
        assert!(matches(&["*"]));
        assert!(matches(&[&format!("\"a\", W/{tag}")]));
        assert!(matches(&["\"a\"", &tag]));
        assert!(!matches(&["\"a\"", "b"]));
        assert!(!matches(&[]));
    }
}
