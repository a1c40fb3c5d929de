//! The one place where what happened becomes an HTTP response: the agent's
//! answers as they are, and every failure as `application/problem+json`
//! (RFC 9457), never as a JSON-RPC error that nobody sent (rulings R14, R23).

use super::CallRefusal;
use super::card_cache::Card;
use super::stats::{Refusal, ResumeRefusal};
use super::stream::StreamBody;
use crate::a2a::port::TransportError;
use crate::bridge::transport_error::TransportCode;
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A response of the ingress.
pub(super) type Reply = Response<ReplyBody>;

/// Its body.
#[derive(Debug)]
pub(super) enum ReplyBody {
    /// Known octets, possibly none.
    Whole(Bytes),
    /// Server-sent events.
    Stream(Pin<Box<StreamBody>>),
}

/// The stream towards the client is over without its end; the connection shows it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream was aborted")]
pub(super) struct Aborted;

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self.get_mut() {
            Self::Whole(octets) if octets.is_empty() => Poll::Ready(None),
            Self::Whole(octets) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(octets))))),
            Self::Stream(stream) => stream.as_mut().poll_chunk(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(octets) if octets.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(octets) => SizeHint::with_exact(octets.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Why a request has no answer of the agent.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing lives at the path.
    NotFound,
    /// The path takes other methods.
    MethodNotAllowed {
        /// Which.
        allow: &'static str,
    },
    /// No known bearer token.
    Unauthorized {
        /// One was presented.
        presented: bool,
    },
    /// The body exceeds the bound.
    BodyTooLarge {
        /// The bound, in octets.
        octets_max: usize,
    },
    /// The body stalled.
    BodyTimeout,
    /// The body broke off.
    BodyBroken,
    /// A service parameter is no header value.
    ParameterInvalid {
        /// Its name.
        name: &'static str,
    },
    /// A service parameter exceeds its bound.
    ParameterTooLarge {
        /// Its name.
        name: &'static str,
    },
    /// The edge holds too many bodies.
    Overloaded,
    /// The relay took no call.
    Refused(CallRefusal),
    /// A failure below JSON-RPC.
    Transport(TransportError),
    /// The stream that the client came back for does not go on (ruling R17).
    NotResumable(ResumeRefusal),
    /// The agent's card cannot be shown.
    CardUnusable,
}

impl Failure {
    /// A failure of this ingress that the mapper did not report itself.
    pub(super) fn not_delivered(message: &str, timed_out: bool) -> Self {
        Self::Transport(TransportError {
            code: TransportCode::NOT_DELIVERED.0,
            message: message.to_owned(),
            timed_out,
        })
    }

    /// The deadline passed with part of a document set here (NPAMP-CC-DOC §7.5, §8).
    pub(super) fn set_incomplete() -> Self {
        Self::Transport(TransportError {
            code: TransportCode::SET_INCOMPLETE.0,
            message: "the document set is incomplete".to_owned(),
            timed_out: true,
        })
    }

    /// What it counts as, when nothing was carried.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            Self::NotFound => Refusal::NotFound,
            Self::MethodNotAllowed { .. } => Refusal::MethodNotAllowed,
            Self::Unauthorized { .. } => Refusal::Unauthorized,
            Self::BodyTooLarge { .. } => Refusal::BodyTooLarge,
            Self::BodyTimeout => Refusal::BodyTimeout,
            Self::BodyBroken => Refusal::BodyBroken,
            Self::ParameterInvalid { .. } => Refusal::ParameterInvalid,
            Self::ParameterTooLarge { .. } => Refusal::ParameterTooLarge,
            Self::Overloaded | Self::Refused(CallRefusal::Overloaded) => Refusal::Overloaded,
            Self::NotResumable(_) => Refusal::NotResumable,
            Self::Refused(CallRefusal::TooManyParameterSets) => Refusal::ParameterSets,
            Self::Refused(CallRefusal::ShuttingDown) => Refusal::ShuttingDown,
            Self::Transport(_) | Self::CardUnusable => return None,
        })
    }
}

/// HTTP status of a transport error's code (ruling R14). A document that is not
/// what it should be (NPAMP-CC-DOC §8), or an unregistered code, is the upstream's fault.
fn status_of(code: TransportCode) -> StatusCode {
    match code {
        TransportCode::ENVELOPE_MALFORMED => StatusCode::BAD_REQUEST,
        TransportCode::PROTOCOL_UNSUPPORTED | TransportCode::METHOD_UNSUPPORTED => {
            StatusCode::NOT_IMPLEMENTED
        }
        TransportCode::SAFETY_POLICY => StatusCode::FORBIDDEN,
        TransportCode::NOT_RESUMABLE => StatusCode::CONFLICT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// The agent's HTTP status and Retry-After where a NotDelivered text states
/// one that is the client's business (ruling R14).
fn passed_on(message: &str) -> Option<(StatusCode, Option<HeaderValue>)> {
    let mut parts = message.strip_prefix("http ")?.splitn(2, ';');
    let status: StatusCode = parts.next()?.trim().get(..3)?.parse().ok()?;
    if !matches!(status.as_u16(), 404 | 408 | 413 | 429 | 503) {
        return None;
    }
    let retry_after = parts
        .next()
        .and_then(|rest| rest.trim_start().strip_prefix("retry-after "))
        .map(|value| value.split(';').next().unwrap_or_default().trim())
        .filter(|value| !value.is_empty())
        .and_then(|value| HeaderValue::from_str(value).ok());
    Some((status, retry_after))
}

/// The response to a failure.
pub(super) fn failure(failure: &Failure) -> Reply {
    let refused = |status, name, detail: String| problem(status, None, name, &detail);
    match failure {
        Failure::NotFound => refused(
            StatusCode::NOT_FOUND,
            "NotFound",
            "no agent is routed at this path".into(),
        ),
        Failure::MethodNotAllowed { allow } => with(
            refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                format!("this path takes {allow}"),
            ),
            ALLOW,
            HeaderValue::from_static(allow),
        ),
        Failure::Unauthorized { presented } => with(
            refused(
                StatusCode::UNAUTHORIZED,
                "Unauthorized",
                "a bearer token is required".into(),
            ),
            WWW_AUTHENTICATE,
            HeaderValue::from_static(if *presented {
                "Bearer error=\"invalid_token\""
            } else {
                "Bearer"
            }),
        ),
        Failure::BodyTooLarge { octets_max } => refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            "BodyTooLarge",
            format!("a request body may have {octets_max} octets"),
        ),
        Failure::BodyTimeout => refused(
            StatusCode::REQUEST_TIMEOUT,
            "BodyTimeout",
            "the request body stalled".into(),
        ),
        Failure::BodyBroken => refused(
            StatusCode::BAD_REQUEST,
            "BodyBroken",
            "the request body broke off".into(),
        ),
        Failure::ParameterInvalid { name } => refused(
            StatusCode::BAD_REQUEST,
            "ParameterInvalid",
            format!("{name} is not visible ASCII"),
        ),
        Failure::ParameterTooLarge { name } => refused(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "ParameterTooLarge",
            format!("{name} is too long or given too often"),
        ),
        Failure::Overloaded => unavailable("Overloaded", CallRefusal::Overloaded),
        Failure::Refused(CallRefusal::TooManyParameterSets) => refused(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "TooManyParameterSets",
            CallRefusal::TooManyParameterSets.to_string(),
        ),
        Failure::Refused(refusal @ CallRefusal::Overloaded) => unavailable("Overloaded", *refusal),
        Failure::Refused(refusal @ CallRefusal::ShuttingDown) => {
            unavailable("ShuttingDown", *refusal)
        }
        Failure::CardUnusable => refused(
            StatusCode::BAD_GATEWAY,
            "CardUnusable",
            "the agent's card is no JSON object".into(),
        ),
        Failure::NotResumable(why) => transport(&TransportError {
            code: TransportCode::NOT_RESUMABLE.0,
            message: not_resumable(*why).into(),
            timed_out: false,
        }),
        Failure::Transport(error) => transport(error),
    }
}

/// What a client is told. Whoever is not the stream's own client learns nothing of it.
fn not_resumable(why: ResumeRefusal) -> &'static str {
    match why {
        ResumeRefusal::Malformed | ResumeRefusal::Unknown | ResumeRefusal::Foreign => {
            "Last-Event-ID names no stream of this client"
        }
        ResumeRefusal::Ahead => "Last-Event-ID is beyond what was sent",
        ResumeRefusal::NotHeld => "the events after Last-Event-ID are kept no more",
        ResumeRefusal::Producer => "the stream cannot go on from Last-Event-ID",
    }
}

fn transport(error: &TransportError) -> Reply {
    let code = TransportCode(error.code);
    let mut status = status_of(code);
    let mut retry_after = None;
    if code == TransportCode::SET_INCOMPLETE && error.timed_out {
        status = StatusCode::GATEWAY_TIMEOUT;
    }
    if code == TransportCode::NOT_DELIVERED {
        if error.timed_out {
            status = StatusCode::GATEWAY_TIMEOUT;
        } else if let Some(passed) = passed_on(&error.message) {
            (status, retry_after) = passed;
        }
    }
    let reply = problem(status, Some(error.code), code.name(), &error.message);
    match retry_after {
        Some(value) => with(reply, RETRY_AFTER, value),
        None => reply,
    }
}

fn unavailable(name: &str, refusal: CallRefusal) -> Reply {
    let detail = refusal.to_string();
    with(
        problem(StatusCode::SERVICE_UNAVAILABLE, None, name, &detail),
        RETRY_AFTER,
        HeaderValue::from_static("1"),
    )
}

fn problem(status: StatusCode, code: Option<u8>, name: &str, detail: &str) -> Reply {
    let mut body = serde_json::json!({
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "name": name,
        "detail": detail,
    });
    if let Some(code) = code {
        body["code"] = code.into();
    }
    let reply = whole(
        status,
        HeaderValue::from_static("application/problem+json"),
        body.to_string().into(),
    );
    with(reply, CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// The agent's JSON-RPC Response, or the ingress's own answer as endpoint: HTTP 200, octets as they are.
pub(super) fn json_rpc(object: Bytes) -> Reply {
    whole(
        StatusCode::OK,
        HeaderValue::from_static("application/json"),
        object,
    )
}

/// A notification was taken: 202 without a body.
pub(super) fn accepted() -> Reply {
    bare(StatusCode::ACCEPTED)
}

/// The client has all of its stream: 204, upon which it asks no more (WHATWG HTML §9.2).
pub(super) fn complete() -> Reply {
    bare(StatusCode::NO_CONTENT)
}

fn bare(status: StatusCode) -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// Server-sent events that nothing between may buffer or keep.
pub(super) fn events(body: StreamBody) -> Reply {
    let mut reply = Response::new(ReplyBody::Stream(Box::pin(body)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    reply
}

/// The service parameters (ruling R13), and the host that the interfaces are rewritten to.
const CARD_VARIES_BY: &str = "host, a2a-version, a2a-extensions, x-a2a-extensions";

/// A card with its validators and its freshness; without its octets for HEAD, as 304 when the client has it.
pub(super) fn card(octets: Bytes, etag: &str, card: &Card, head: bool, unchanged: bool) -> Reply {
    let length = octets.len();
    let mut reply = if unchanged {
        let mut reply = Response::new(ReplyBody::Whole(Bytes::new()));
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        reply
    } else {
        let mut reply = json_rpc(octets);
        if head {
            *reply.body_mut() = ReplyBody::Whole(Bytes::new());
            reply.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        reply
    };
    let headers = reply.headers_mut();
    headers.insert(VARY, HeaderValue::from_static(CARD_VARIES_BY));
    let fresh_for = card.fresh_for.as_secs();
    let cache_control = if card.fresh_for.is_zero() {
        "no-cache".to_owned()
    } else {
        format!("public, max-age={fresh_for}")
    };
    for (name, value) in [
        (CACHE_CONTROL, cache_control.as_str()),
        (ETAG, etag),
        (LAST_MODIFIED, card.last_modified.as_str()),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    reply
}

/// For HEAD: the same head, no octets.
pub(super) fn without_body(mut reply: Reply) -> Reply {
    if let ReplyBody::Whole(octets) = reply.body_mut()
        && !octets.is_empty()
    {
        let length = std::mem::take(octets).len();
        reply.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    reply
}

fn whole(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

fn with(mut reply: Reply, name: HeaderName, value: HeaderValue) -> Reply {
    reply.headers_mut().insert(name, value);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u8, message: &str, timed_out: bool) -> Reply {
        failure(&Failure::Transport(TransportError {
            code,
            message: message.into(),
            timed_out,
        }))
    }

    fn json(reply: &Reply) -> serde_json::Value {
        let ReplyBody::Whole(octets) = reply.body() else {
            panic!("a problem is whole");
        };
        assert_eq!(reply.headers()[CONTENT_TYPE], "application/problem+json");
        serde_json::from_slice(octets).unwrap()
    }

    /// NPAMP-BRIDGE §6, ruling R14.
    #[test]
    fn transport_errors_keep_their_code() {
        for (code, name, status) in [
            (1, "EnvelopeMalformed", 400),
            (2, "ProtocolUnsupported", 501),
            (3, "MethodUnsupported", 501),
            (4, "NotDelivered", 502),
            (5, "SafetyPolicy", 403),
            (6, "NotResumable", 409),
            (17, "DigestMismatch", 502),
            (200, "Unregistered", 502),
        ] {
            let reply = error(code, "text \"quoted\"", false);
            assert_eq!(reply.status(), status);
            let body = json(&reply);
            assert_eq!(body["code"], code);
            assert_eq!(body["name"], name);
            assert_eq!(body["detail"], "text \"quoted\"");
        }
        assert_eq!(error(4, "x", true).status(), 504);
        assert_eq!(error(5, "x", true).status(), 403);
        assert_eq!(error(21, "x", true).status(), 504);
        assert_eq!(error(21, "x", false).status(), 502);
    }

    /// Ruling R14: which of the agent's statuses pass.
    #[test]
    fn agent_status_passes_on() {
        for status in [404, 408, 413, 429, 503] {
            let reply = error(4, &format!("http {status}; retry-after 17"), false);
            assert_eq!(reply.status(), status);
            assert_eq!(reply.headers()[RETRY_AFTER], "17");
            assert_eq!(json(&reply)["code"], 4);
        }
        for status in [401, 403, 302, 500, 200] {
            let reply = error(4, &format!("http {status}; retry-after 17"), false);
            assert_eq!(reply.status(), 502);
            assert!(!reply.headers().contains_key(RETRY_AFTER));
        }
        let reply = error(4, "http 503", false);
        assert_eq!(reply.status(), 503);
        assert!(!reply.headers().contains_key(RETRY_AFTER));
        let dated = error(
            4,
            "http 503; retry-after Wed, 21 Oct 2026 07:28:00 GMT",
            false,
        );
        assert_eq!(
            dated.headers()[RETRY_AFTER],
            "Wed, 21 Oct 2026 07:28:00 GMT"
        );
        assert_eq!(
            error(4, "http 503 Service Unavailable", false).status(),
            503
        );
        for odd in [
            "http",
            "http ",
            "http 50",
            "http x03",
            "http é03",
            "HTTP 503",
        ] {
            assert_eq!(error(4, odd, false).status(), 502, "{odd}");
        }
        assert_eq!(error(5, "http 503", false).status(), 403);
    }

    #[test]
    fn refusals_have_a_status_and_a_reason() {
        let refusals = [
            (Failure::NotFound, 404),
            (Failure::MethodNotAllowed { allow: "POST" }, 405),
            (Failure::Unauthorized { presented: true }, 401),
            (Failure::BodyTooLarge { octets_max: 1 }, 413),
            (Failure::BodyTimeout, 408),
            (Failure::BodyBroken, 400),
            (
                Failure::ParameterInvalid {
                    name: "a2a-version",
                },
                400,
            ),
            (
                Failure::ParameterTooLarge {
                    name: "a2a-version",
                },
                431,
            ),
            (Failure::Overloaded, 503),
            (Failure::Refused(CallRefusal::Overloaded), 503),
            (Failure::Refused(CallRefusal::ShuttingDown), 503),
            (Failure::Refused(CallRefusal::TooManyParameterSets), 431),
        ];
        for (refusal, status) in refusals {
            let reply = super::failure(&refusal);
            assert_eq!(reply.status(), status);
            assert!(json(&reply).get("code").is_none(), "no N-PAMP code");
            assert!(refusal.refusal().is_some());
        }
    }
}
