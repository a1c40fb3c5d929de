//! What an edge must know of a JSON-RPC body: whether it is a JSON-RPC 2.0
//! Request at all (ruling R23), whether it wants an answer, and whether its
//! method streams. The body itself is never changed.

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// What a body is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Classified {
    /// A Request; `streaming` when its method is known to answer with a stream.
    Request { streaming: bool },
    /// A Request without id.
    Notification,
    /// No JSON-RPC 2.0 Request: answered with these octets, carried nowhere.
    Invalid(Bytes),
}

/// Judges a request body (JSON-RPC 2.0 §4, §5.1; ruling R23).
pub(super) fn classify(body: &Bytes) -> Classified {
    match serde_json::from_slice(body) {
        Err(_) => Classified::Invalid(answer(-32700, "Parse error", "null")),
        Ok(Top::Other) => invalid(None),
        Ok(Top::Object(object)) => object.judge(),
    }
}

/// Whether the object is a Request whose method is known to answer with a stream.
pub(super) fn is_streaming(object: &Bytes) -> bool {
    classify(object) == Classified::Request { streaming: true }
}

const STREAMING_METHODS: [&str; 4] = [
    "message/stream",
    "SendStreamingMessage",
    "tasks/resubscribe",
    "SubscribeToTask",
];

fn invalid(id: Option<&RawValue>) -> Classified {
    Classified::Invalid(answer(
        -32600,
        "Invalid Request",
        id.map_or("null", RawValue::get),
    ))
}

fn answer(code: i32, message: &str, id: &str) -> Bytes {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}"
    )
    .into()
}

enum Top<'a> {
    Object(Object<'a>),
    Other,
}

/// The top-level members that count, each once; a second one makes the object invalid.
#[derive(Default)]
struct Object<'a> {
    version: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    doubled: bool,
    id_doubled: bool,
}

impl Object<'_> {
    fn judge(&self) -> Classified {
        // The first octet tells a JSON value's type.
        let id_valid = self.id.is_none_or(|id| {
            matches!(
                id.get().as_bytes().first(),
                Some(b'"' | b'n' | b'-' | b'0'..=b'9')
            )
        });
        let id = self.id.filter(|_| id_valid && !self.id_doubled);
        let version: Option<Cow<'_, str>> = self.version.and_then(text);
        let method: Option<Cow<'_, str>> = self.method.and_then(text);
        match method {
            Some(method)
                if id_valid
                    && !self.doubled
                    && !self.id_doubled
                    && version.as_deref() == Some("2.0") =>
            {
                if self.id.is_none() {
                    Classified::Notification
                } else {
                    Classified::Request {
                        streaming: STREAMING_METHODS.contains(&&*method),
                    }
                }
            }
            _ => invalid(id),
        }
    }
}

fn text<'a>(value: &'a RawValue) -> Option<Cow<'a, str>> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'a>>(value.get())
        .ok()
        .map(|text| text.0)
}

impl<'de: 'a, 'a> Deserialize<'de> for Top<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TopVisitor)
    }
}

struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Object::default();
        while let Some(name) = members.next_key::<Name<'de>>()? {
            let slot = match &*name.0 {
                "jsonrpc" => &mut object.version,
                "method" => &mut object.method,
                "id" => &mut object.id,
                _ => {
                    // Raw, not ignored: depth is the agent's business, not a bound of the relay.
                    members.next_value::<&RawValue>()?;
                    continue;
                }
            };
            let second = slot.is_some();
            *slot = Some(members.next_value()?);
            if second && &*name.0 == "id" {
                object.id_doubled = true;
            } else if second {
                object.doubled = true;
            }
        }
        Ok(Top::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<&RawValue>()?.is_some() {}
        Ok(Top::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Top::Other)
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(body: &str) -> Classified {
        classify(&Bytes::copy_from_slice(body.as_bytes()))
    }

    fn answered(body: &[u8]) -> (i64, String) {
        let Classified::Invalid(answer) = classify(&Bytes::copy_from_slice(body)) else {
            panic!("{:?} is valid", String::from_utf8_lossy(body));
        };
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["jsonrpc"], "2.0");
        (
            answer["error"]["code"].as_i64().unwrap(),
            answer["id"].to_string(),
        )
    }

    #[test]
    fn requests_and_notifications() {
        for id in ["1", "-1.5e3", "\"\\u0061\"", "null", "99999999999999999999"] {
            assert_eq!(
                judged(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"message/send"}}"#
                )),
                Classified::Request { streaming: false },
                "{id}"
            );
        }
        for method in STREAMING_METHODS {
            assert_eq!(
                judged(&format!(
                    r#" {{"params":{{"id":1,"id":2}},"method":"{method}","id":1,"jsonrpc":"2.0"}} "#
                )),
                Classified::Request { streaming: true }
            );
        }
        assert_eq!(
            judged(r#"{"jsonrpc":"2.0","method":"x"}"#),
            Classified::Notification
        );
    }

    #[test]
    fn depth_and_duplicates_inside_are_the_agents_business() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(
            judged(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{deep},"x":1,"x":2}}"#
            )),
            Classified::Request { streaming: false }
        );
    }

    /// Ruling R23.
    #[test]
    fn what_is_no_request_is_answered() {
        for body in [
            &b""[..],
            b" ",
            b"hello",
            b"{",
            b"{} x",
            b"[",
            b"{\"a\":\"\xff\"}",
            b"\xef\xbb\xbf{}",
        ] {
            assert_eq!(answered(body), (-32700, "null".into()), "{body:?}");
        }
        for (body, id) in [
            ("[]", "null"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "null"),
            ("3", "null"),
            ("-3.5", "null"),
            ("null", "null"),
            ("true", "null"),
            ("\"x\"", "null"),
            ("{}", "null"),
            (r#"{"id":7,"method":"m"}"#, "7"),
            (r#"{"jsonrpc":"1.0","id":"a","method":"m"}"#, "\"a\""),
            (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "null"),
            (
                r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"m"}"#,
                "null",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","\u006dethod":"n"}"#,
                "1",
            ),
            (
                r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#,
                "1",
            ),
        ] {
            assert_eq!(answered(body.as_bytes()), (-32600, id.into()), "{body}");
        }
    }
}
