//! What a frame means for the exchange it belongs to.

use crate::kind::Kind;
use npamp_relay::a2a::json_rpc::{self, Id, Outcome as Answer};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload::Payload;
use npamp_relay::bridge::stream::Consumer;
use npamp_relay::bridge::transport_error::TransportErrorBody;

/// Why an exchange failed: kind and text.
pub type Failure = (String, String);

/// What a frame that is in order means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The answer, which completes the exchange.
    Reply,
    /// A stream event. With `end` it completes the exchange.
    Event { end: bool },
    /// An empty end, which completes the exchange.
    End,
}

/// Judges a frame in answer to request `number`, of a stream after `events` events.
pub fn judge(
    kind: Kind,
    number: u64,
    stream: &mut Consumer,
    events: u64,
    frame: &Payload<'_>,
) -> Result<Verdict, Failure> {
    match (frame.envelope.kind, kind) {
        (MessageKind::Response, Kind::Unary | Kind::Bulk) => {
            check_reply(number, frame.foreign).map(|()| Verdict::Reply)
        }
        (MessageKind::StreamData | MessageKind::StreamEnd, Kind::Stream) => {
            let control = frame
                .stream_control
                .ok_or_else(|| failure("stream_broken", "a stream frame without StreamControl"))?;
            stream.accept(control.event_id).map_err(|_| {
                failure(
                    "stream_broken",
                    format!("event_id {} went back", control.event_id),
                )
            })?;
            let end = frame.envelope.kind == MessageKind::StreamEnd;
            if end && frame.foreign.is_empty() {
                return Ok(Verdict::End);
            }
            let (last, due) = (stream.last_event_id(), events + 1);
            if last != due {
                return Err(failure(
                    "stream_gap",
                    format!("event_id {last} where {due} was due"),
                ));
            }
            Ok(Verdict::Event { end })
        }
        (MessageKind::Error, _) => Err(match TransportErrorBody::decode(frame.foreign) {
            Some(error) => failure(&format!("transport_{}", error.code.name()), error.message),
            None => failure("agent_error", String::from_utf8_lossy(frame.foreign)),
        }),
        (other, _) => Err(failure(
            "kind_unexpected",
            format!("{other:?} in answer to a {} request", kind.name()),
        )),
    }
}

fn failure(kind: &str, text: impl Into<String>) -> Failure {
    (kind.to_owned(), text.into())
}

/// A Response that answers request `number` with a result.
pub fn check_reply(number: u64, object: &[u8]) -> Result<(), Failure> {
    let response = json_rpc::scan_response(object)
        .map_err(|error| failure("reply_malformed", error.to_string()))?;
    let id = number.to_string();
    if !response.answers(Id::from_token(&id)) {
        return Err(failure(
            "reply_crossed",
            format!("id {} in answer to {id}", response.id.token()),
        ));
    }
    match response.outcome {
        Answer::Result(_) => Ok(()),
        // Never the answer to message/send, whose result is a task or a message.
        Answer::Absent => Err(failure("reply_empty", "neither result nor error")),
        Answer::Error(error) => Err(failure("agent_error", error)),
    }
}
