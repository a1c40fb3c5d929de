//! A2A messages of a given size, and the bridge frames around them. A message
//! is text around two holes: its JSON-RPC id, and filling that brings it to the
//! octets asked for.

use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::error::BridgeError;
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;

/// The unary method, v0.3 spelling.
pub const SEND: &str = "message/send";
/// The streaming method, v0.3 spelling.
pub const STREAM: &str = "message/stream";

/// A JSON-RPC object with holes.
pub struct Template {
    head: String,
    middle: String,
    tail: &'static str,
    octets: usize,
}

impl Template {
    /// A request of `octets` with a message id that begins with `run`.
    pub fn request(method: &str, run: &str, octets: usize) -> Self {
        Self {
            head: r#"{"jsonrpc":"2.0","id":"#.into(),
            middle: format!(
                r#","method":"{method}","params":{{"message":{{"kind":"message","role":"user","messageId":"{run}","parts":[{{"kind":"text","text":""#
            ),
            tail: r#""}]}}}"#,
            octets,
        }
    }

    /// The answer to `message/send`.
    pub fn reply(octets: usize) -> Self {
        Self {
            head: r#"{"jsonrpc":"2.0","id":"#.into(),
            middle: r#","result":{"kind":"message","role":"agent","messageId":"reply","parts":[{"kind":"text","text":""#.into(),
            tail: r#""}]}}"#,
            octets,
        }
    }

    /// One event of a stream.
    pub fn event(octets: usize) -> Self {
        Self {
            head: r#"{"jsonrpc":"2.0","id":"#.into(),
            middle: r#","result":{"kind":"artifact-update","taskId":"task","contextId":"context","append":true,"artifact":{"artifactId":"text","parts":[{"kind":"text","text":""#.into(),
            tail: r#""}]}}}"#,
            octets,
        }
    }

    /// The status-update that ends a v0.3 stream.
    pub fn last() -> Self {
        Self {
            head: r#"{"jsonrpc":"2.0","id":"#.into(),
            middle: r#","result":{"kind":"status-update","taskId":"task","contextId":"context","status":{"state":"completed"},"final":true,"metadata":{"text":""#.into(),
            tail: r#""}}}"#,
            octets: 0,
        }
    }

    /// Writes the object with `id`, a JSON token. It is as long as asked, or longer when the id leaves no room.
    pub fn write(&self, id: &str, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(self.middle.as_bytes());
        let filled = self.octets.saturating_sub(self.tail.len()).max(out.len());
        out.resize(filled, b'x');
        out.extend_from_slice(self.tail.as_bytes());
    }
}

/// What a BRIDGE_REQUEST carries.
pub fn request(method: &str, correlation_id: &[u8], object: &[u8]) -> Result<Vec<u8>, BridgeError> {
    let label = SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE);
    encode(
        MessageKind::Request,
        method,
        correlation_id,
        EnvelopeFlags::NONE,
        Some(label),
        None,
        object,
    )
}

/// What an answer carries.
pub fn answer(
    kind: MessageKind,
    correlation_id: &[u8],
    object: &[u8],
) -> Result<Vec<u8>, BridgeError> {
    encode(
        kind,
        "",
        correlation_id,
        EnvelopeFlags::NONE,
        None,
        None,
        object,
    )
}

/// What a frame of a stream carries.
pub fn stream(
    kind: MessageKind,
    correlation_id: &[u8],
    control: StreamControl,
    object: &[u8],
) -> Result<Vec<u8>, BridgeError> {
    let flags = if kind == MessageKind::StreamEnd {
        EnvelopeFlags::FINAL
    } else {
        EnvelopeFlags::NONE
    };
    encode(kind, "", correlation_id, flags, None, Some(control), object)
}

fn encode(
    kind: MessageKind,
    method: &str,
    correlation_id: &[u8],
    flags: EnvelopeFlags,
    safety: Option<SafetyLabel<'_>>,
    stream_control: Option<StreamControl>,
    foreign: &[u8],
) -> Result<Vec<u8>, BridgeError> {
    let envelope = Envelope {
        protocol_id: ProtocolId::A2A,
        kind,
        content_type: ContentType::JSON,
        flags,
        correlation_id,
        method,
    };
    payload::encode(
        kind.frame_type(),
        &Payload {
            envelope,
            safety,
            stream_control,
            document_binding: None,
            foreign,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MESSAGE_OCTETS_MIN;
    use npamp_relay::a2a::json_rpc::{scan_request, scan_response};

    #[test]
    fn messages_have_the_octets_asked_for() {
        let shortest = usize::try_from(MESSAGE_OCTETS_MIN).unwrap();
        let mut out = Vec::new();
        for octets in [shortest, 1000] {
            for method in [SEND, STREAM] {
                Template::request(method, "0123456789abcdef", octets)
                    .write("18446744073709551615", &mut out);
                assert_eq!(out.len(), octets);
                let request = scan_request(&out).unwrap();
                assert_eq!(
                    (request.method.as_ref(), request.id.unwrap().token()),
                    (method, "18446744073709551615")
                );
            }
            for template in [Template::reply(octets), Template::event(octets)] {
                template.write("\"an id\"", &mut out);
                assert_eq!(out.len(), octets);
                let response = scan_response(&out).unwrap();
                assert_eq!(response.id.token(), "\"an id\"");
                assert!(!response.is_final_status_update());
            }
        }
        Template::last().write("1", &mut out);
        assert!(scan_response(&out).unwrap().is_final_status_update());
    }

    #[test]
    fn an_id_that_leaves_no_room_is_carried_all_the_same() {
        let id = format!("\"{}\"", "i".repeat(500));
        let mut out = Vec::new();
        Template::reply(256).write(&id, &mut out);
        assert_eq!(scan_response(&out).unwrap().id.token(), id);
    }
}
