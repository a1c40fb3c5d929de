//! JSON-RPC objects of A2A over HTTP, in the spellings of v0.3 and v1.0. Events
//! bear a number of fixed width in their text, so that whoever reads them knows
//! whether one is missing.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Digits of an event's number.
const DIGITS: usize = 10;
/// What is before the number of an event, in every object of this module.
const BEFORE_NUMBER: &[u8] = br#""text":"#;
/// What is behind the number of the last event.
const LAST: &[u8] = b" last";

/// Which A2A is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum A2aVersion {
    /// message/send and message/stream
    #[value(name = "0.3")]
    #[serde(rename = "0.3")]
    V0_3,
    /// SendMessage and SendStreamingMessage
    #[value(name = "1.0")]
    #[serde(rename = "1.0")]
    V1_0,
}

impl A2aVersion {
    /// The unary method.
    pub fn send(self) -> &'static str {
        match self {
            Self::V0_3 => crate::message::SEND,
            Self::V1_0 => "SendMessage",
        }
    }

    /// The streaming method.
    pub fn stream(self) -> &'static str {
        match self {
            Self::V0_3 => crate::message::STREAM,
            Self::V1_0 => "SendStreamingMessage",
        }
    }

    /// What the `A2A-Version` header says.
    pub fn header(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3",
            Self::V1_0 => "1.0",
        }
    }

    /// The version whose spelling a method is, and whether it streams.
    pub fn of_method(method: &str) -> Option<(Self, bool)> {
        [Self::V0_3, Self::V1_0].into_iter().find_map(|version| {
            if method == version.send() {
                Some((version, false))
            } else {
                (method == version.stream()).then_some((version, true))
            }
        })
    }
}

/// Text with filling that brings it to `octets`, unless it is longer anyway.
fn filled(head: &str, tail: &str, octets: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(octets.max(head.len() + tail.len()));
    out.extend_from_slice(head.as_bytes());
    out.resize(octets.saturating_sub(tail.len()).max(out.len()), b'x');
    out.extend_from_slice(tail.as_bytes());
    out
}

/// A request with the JSON token `id`.
pub fn request(version: A2aVersion, method: &str, id: &str, run: &str, octets: usize) -> Vec<u8> {
    let (kind, role, part) = match version {
        A2aVersion::V0_3 => (r#""kind":"message","#, "user", r#""kind":"text","#),
        A2aVersion::V1_0 => ("", "ROLE_USER", ""),
    };
    let head = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"message":{{{kind}"role":"{role}","messageId":"{run}","parts":[{{{part}"text":""#
    );
    filled(&head, r#""}]}}}"#, octets)
}

/// The answer to the unary method.
pub fn reply(version: A2aVersion, id: &str, octets: usize) -> Vec<u8> {
    match version {
        A2aVersion::V0_3 => filled(
            &format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"kind":"message","role":"agent","messageId":"reply","parts":[{{"kind":"text","text":""#
            ),
            r#""}]}}"#,
            octets,
        ),
        A2aVersion::V1_0 => filled(
            &format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"message":{{"role":"ROLE_AGENT","messageId":"reply","parts":[{{"text":""#
            ),
            r#""}]}}}"#,
            octets,
        ),
    }
}

/// Text that stands where a number goes.
const NO_NUMBER: &str = "0000000000";

/// An object with room for an event's number.
pub struct Numbered {
    object: Vec<u8>,
    number: usize,
}

impl Numbered {
    /// One event of a stream.
    pub fn event(version: A2aVersion, id: &str, octets: usize) -> Self {
        let (open, part, close) = match version {
            A2aVersion::V0_3 => (
                r#""kind":"artifact-update","taskId""#,
                r#""kind":"text","#,
                r#""}]}}}"#,
            ),
            A2aVersion::V1_0 => (r#""artifactUpdate":{"taskId""#, "", r#""}]}}}}"#),
        };
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{{open}:"task","contextId":"context","append":true,"artifact":{{"artifactId":"text","parts":[{{{part}"text":"{NO_NUMBER}"#
        );
        Self {
            number: head.len() - DIGITS,
            object: filled(&head, close, octets),
        }
    }

    /// The status-update that ends a stream.
    pub fn last(version: A2aVersion, id: &str) -> Self {
        let (open, state, close) = match version {
            A2aVersion::V0_3 => (
                r#""kind":"status-update","taskId""#,
                r#""completed"},"final":true"#,
                "}}}",
            ),
            A2aVersion::V1_0 => (
                r#""statusUpdate":{"taskId""#,
                r#""TASK_STATE_COMPLETED"}"#,
                "}}}}",
            ),
        };
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{{open}:"task","contextId":"context","status":{{"state":{state},"metadata":{{"text":"{NO_NUMBER}"#
        );
        let tail = format!("{}\"{close}", String::from_utf8_lossy(LAST));
        Self {
            number: head.len() - DIGITS,
            object: filled(&head, &tail, 0),
        }
    }

    /// The object with its number, which is below 10^10.
    pub fn numbered(&mut self, number: u64) -> &[u8] {
        let mut rest = number;
        for digit in self.object[self.number..self.number + DIGITS]
            .iter_mut()
            .rev()
        {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.object
    }
}

/// What an event says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub number: u64,
    /// It ends its stream.
    pub last: bool,
}

/// Finds the number in events.
pub struct Marks(memchr::memmem::Finder<'static>);

impl Default for Marks {
    fn default() -> Self {
        Self(memchr::memmem::Finder::new(BEFORE_NUMBER))
    }
}

impl Marks {
    /// The mark of an event made here; none of any other.
    pub fn of(&self, object: &[u8]) -> Option<Mark> {
        let at = self.0.find(object)? + BEFORE_NUMBER.len();
        let rest = object.get(at..)?.strip_prefix(b"\"")?;
        let (digits, rest) = rest.split_at_checked(DIGITS)?;
        let mut number = 0;
        for &digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + u64::from(digit - b'0');
        }
        Some(Mark {
            number,
            last: rest.starts_with(LAST),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npamp_relay::a2a::json_rpc::{scan_request, scan_response};

    #[test]
    fn objects_are_json_rpc_of_the_octets_asked_for() {
        for version in [A2aVersion::V0_3, A2aVersion::V1_0] {
            for method in [version.send(), version.stream()] {
                let object = request(version, method, "17", "run", 512);
                assert_eq!(object.len(), 512);
                let scanned = scan_request(&object).unwrap();
                assert_eq!(scanned.id.unwrap().token(), "17");
                assert_eq!(
                    A2aVersion::of_method(&scanned.method),
                    Some((version, method == version.stream()))
                );
            }
            let object = reply(version, "\"x\"", 300);
            assert_eq!(object.len(), 300);
            assert!(!scan_response(&object).unwrap().outcome.is_error());
        }
        assert_eq!(A2aVersion::of_method("tasks/get"), None);
    }

    #[test]
    fn events_bear_their_number() {
        let marks = Marks::default();
        for version in [A2aVersion::V0_3, A2aVersion::V1_0] {
            let mut event = Numbered::event(version, "1", 256);
            let mut last = Numbered::last(version, "1");
            for number in [0, 7, 1_234_567_890] {
                let object = event.numbered(number);
                assert_eq!(object.len(), 256);
                serde_json::from_slice::<serde_json::Value>(object).unwrap();
                let expected = |last| Some(Mark { number, last });
                assert_eq!(marks.of(object), expected(false));
                let object = last.numbered(number);
                serde_json::from_slice::<serde_json::Value>(object).unwrap();
                assert_eq!(marks.of(object), expected(true));
                assert_eq!(
                    scan_response(object).unwrap().is_final_status_update(),
                    version == A2aVersion::V0_3
                );
            }
        }
        assert_eq!(marks.of(br#"{"result":{}}"#), None);
        assert_eq!(marks.of(br#"{"text":"hello there"}"#), None);
        assert_eq!(marks.of(br#"{"text":"12"#), None);
    }
}
