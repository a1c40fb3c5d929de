//! What an edge must know of a JSON-RPC body: whether it is a JSON-RPC 2.0
//! Request at all (ruling R23), whether it wants an answer, and whether its
//! method streams. The body itself is never changed.

use super::card::Members;
use crate::a2a::json_rpc::{ScanError, scan_request};
use crate::a2a::method::{Carriage, lookup};
use bytes::Bytes;

/// What a body is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Classified {
    /// A Request, and how its method is known to answer.
    Request { answers: Answers },
    /// A Request without id.
    Notification,
    /// No JSON-RPC 2.0 Request: answered with these octets, carried nowhere.
    Invalid(Bytes),
}

/// How a method answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// With one Response, as far as is known.
    Once,
    /// With a stream, of A2A 0.3.
    Stream03,
    /// With a stream of a task that may have one already, of A2A 0.3.
    Resubscription,
    /// With a stream, of A2A 1.0.
    Stream10,
}

impl Answers {
    fn of(method: &str) -> Self {
        match lookup(method).filter(|row| row.carriage == Carriage::Stream) {
            None => Self::Once,
            Some(_) if method == "tasks/resubscribe" => Self::Resubscription,
            // The spellings of 0.3 have a slash, those of 1.0 do not.
            Some(_) if method.contains('/') => Self::Stream03,
            Some(_) => Self::Stream10,
        }
    }

    /// Whether a stream is to be expected.
    pub(super) fn streams(self) -> bool {
        self != Self::Once
    }
}

/// Judges a request body (JSON-RPC 2.0 §4, §5.1; ruling R23).
pub(super) fn classify(body: &[u8]) -> Classified {
    match scan_request(body) {
        Ok(request) if request.id.is_none() => Classified::Notification,
        Ok(request) => Classified::Request {
            answers: Answers::of(&request.method),
        },
        Err(error) => Classified::Invalid(answer(error, body)),
    }
}

/// Whether the object is a Request whose method is known to answer with a stream.
pub(super) fn is_streaming(object: &[u8]) -> bool {
    matches!(classify(object), Classified::Request { answers } if answers.streams())
}

/// The answer of a JSON-RPC endpoint to what is no Request.
fn answer(error: ScanError, body: &[u8]) -> Bytes {
    let code = error.json_rpc_code();
    let (message, id) = if code == -32700 {
        ("Parse error", None)
    } else {
        ("Invalid Request", determined_id(body))
    };
    let id = id.unwrap_or("null");
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}"
    )
    .into()
}

/// The one valid id of an object that is otherwise no Request.
fn determined_id(body: &[u8]) -> Option<&str> {
    let members: Members<'_> = serde_json::from_slice(body).ok()?;
    let mut ids = members.0.iter().filter(|(name, _)| name == "id");
    let (_, id) = ids.next()?;
    let valid = matches!(
        id.get().as_bytes().first()?,
        b'"' | b'-' | b'0'..=b'9' | b'n'
    );
    (valid && ids.next().is_none()).then_some(id.get())
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
                Classified::Request {
                    answers: Answers::Once
                },
                "{id}"
            );
        }
        for (method, answers) in [
            ("message/stream", Answers::Stream03),
            ("SendStreamingMessage", Answers::Stream10),
            ("tasks/resubscribe", Answers::Resubscription),
            ("SubscribeToTask", Answers::Stream10),
        ] {
            assert_eq!(
                judged(&format!(
                    r#" {{"params":{{"id":1,"id":2}},"method":"{method}","id":1,"jsonrpc":"2.0"}} "#
                )),
                Classified::Request { answers }
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
            Classified::Request {
                answers: Answers::Once
            }
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
