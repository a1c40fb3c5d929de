//! The sample agent as an HTTP server: JSON-RPC by POST, SSE for streams, the
//! card by GET.

use super::{Agent, AgentError, Answer, Events};
use crate::limits;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Events that wait for a client to read; the task does not wait for it.
const EVENTS_WAITING: usize = 4;

/// A sample agent on a thread of its own; it stops when this is dropped.
#[derive(Debug)]
pub struct SampleAgent {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SampleAgent {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("sample-agent".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let serving = async {
                        match TcpListener::from_std(listener) {
                            Ok(listener) => serve(listener, &format!("http://{address}/")).await,
                            Err(e) => tracing::error!(error = %e, "the sample agent stopped"),
                        }
                    };
                    tokio::select! {
                        () = serving => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SampleAgent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves a sample agent, whose card says `url`, until the future is dropped.
pub async fn serve(listener: TcpListener, url: &str) {
    let agent = Shared(Arc::new(Mutex::new(Agent::new(url))));
    let places = Arc::new(Semaphore::new(limits::DEMO_CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let agent = agent.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let agent = agent.clone();
                async move { Ok::<_, Infallible>(respond(request, &agent).await) }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::HTTP_HEAD_TIME);
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(place);
        });
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Agent>>);

impl Shared {
    /// Never held across an await.
    fn lock(&self) -> MutexGuard<'_, Agent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task in the background, whoever listens.
    fn run(&self, task: Option<String>) {
        let Some(task) = task else { return };
        let agent = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(limits::DEMO_EVENT_TIME).await;
                if !agent.lock().step(&task) {
                    return;
                }
            }
        });
    }
}

/// Server-sent events, as they are made.
struct EventBody(mpsc::Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|next| next.map(|octets| Ok(Frame::data(octets))))
    }
}

type Answered = Response<Either<Full<Bytes>, EventBody>>;

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

async fn respond(request: Request<Incoming>, agent: &Shared) -> Answered {
    let text = "text/plain; charset=utf-8";
    let path = request.uri().path();
    let is_card = matches!(
        path,
        "/.well-known/agent-card.json" | "/.well-known/agent.json"
    );
    match *request.method() {
        Method::GET | Method::HEAD if is_card => card(request.headers(), agent),
        Method::POST if !is_card => post(request, agent).await,
        Method::GET | Method::HEAD => plain(
            StatusCode::NOT_FOUND,
            text,
            "POST JSON-RPC, or GET /.well-known/agent-card.json\n",
        ),
        _ => plain(
            StatusCode::METHOD_NOT_ALLOWED,
            text,
            "only POST, and GET for the card\n",
        ),
    }
}

fn card(headers: &HeaderMap, agent: &Shared) -> Answered {
    let card = agent.lock().card().to_string();
    let tag = format!("\"{:08x}\"", crc32c::crc32c(card.as_bytes()));
    let known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut response = if known {
        let mut response = plain(StatusCode::NOT_MODIFIED, "application/json", "");
        response.headers_mut().remove(header::CONTENT_TYPE);
        response
    } else {
        plain(StatusCode::OK, "application/json", card)
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    let caching = HeaderValue::from_static("public, max-age=60");
    headers.insert(header::CACHE_CONTROL, caching);
    response
}

#[derive(Deserialize)]
struct Call<'b> {
    #[serde(borrow)]
    jsonrpc: Cow<'b, str>,
    #[serde(borrow)]
    method: Cow<'b, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'b RawValue>,
    #[serde(default)]
    params: Value,
}

/// Tells an `id` of null from none.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// Whether a token may be a JSON-RPC id: a string, a number or null.
fn is_id(token: &str) -> bool {
    token == "null" || token.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

fn response_object(id: &str, member: &str, value: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

fn error_object(id: &str, error: &AgentError) -> String {
    let mut shown = json!({ "code": error.code, "message": error.message });
    if let Some(reason) = error.reason {
        shown["data"] = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
        }]);
    }
    response_object(id, "error", &shown)
}

fn json_rpc_error(code: i32, message: &str) -> Answered {
    let error = AgentError {
        code,
        message: message.to_owned(),
        reason: None,
    };
    plain(
        StatusCode::OK,
        "application/json",
        error_object("null", &error),
    )
}

/// The version that the client states, in the header or else in the query.
fn stated_version(request: &Request<Incoming>) -> String {
    if let Some(value) = request.headers().get("a2a-version") {
        return String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    }
    let query = request.uri().query().unwrap_or("").as_bytes();
    url::form_urlencoded::parse(query)
        .find(|(name, _)| name.eq_ignore_ascii_case("a2a-version"))
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

async fn post(request: Request<Incoming>, agent: &Shared) -> Answered {
    let text = "text/plain; charset=utf-8";
    let version = stated_version(&request);
    let body = Limited::new(request.into_body(), limits::FOREIGN_MESSAGE_OCTETS_MAX);
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) if e.is::<LengthLimitError>() => {
            return plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                text,
                "the body is too long\n",
            );
        }
        Err(_) => {
            return plain(
                StatusCode::BAD_REQUEST,
                text,
                "the body did not arrive whole\n",
            );
        }
    };
    if serde_json::from_slice::<&RawValue>(&body).is_err() {
        return json_rpc_error(-32700, "Parse error");
    }
    let call: Call<'_> = match serde_json::from_slice(&body) {
        Ok(call) => call,
        Err(_) => return json_rpc_error(-32600, "Invalid Request"),
    };
    if call.jsonrpc != "2.0" || call.id.is_some_and(|id| !is_id(id.get())) {
        return json_rpc_error(-32600, "Invalid Request");
    }
    let answer = match Agent::check_version(&version) {
        Ok(()) => agent.lock().handle(&call.method, &call.params),
        Err(error) => Answer::Error(error),
    };
    let Some(id) = call.id.map(RawValue::get) else {
        if let Answer::Result { run, .. } | Answer::Stream { run, .. } = answer {
            agent.run(run);
        }
        return plain(StatusCode::ACCEPTED, text, "");
    };
    match answer {
        Answer::Result { result, run } => {
            agent.run(run);
            plain(
                StatusCode::OK,
                "application/json",
                response_object(id, "result", &result),
            )
        }
        Answer::Error(error) => plain(StatusCode::OK, "application/json", error_object(id, &error)),
        Answer::Stream { first, events, run } => {
            agent.run(run);
            stream(id.to_owned(), first, events)
        }
    }
}

fn stream(id: String, first: Value, mut events: Events) -> Answered {
    let (sender, receiver) = mpsc::channel(EVENTS_WAITING);
    tokio::spawn(async move {
        let mut next = Some((first, false));
        while let Some((result, last)) = next {
            let event = format!("data: {}\n\n", response_object(&id, "result", &result));
            if sender.send(Bytes::from(event)).await.is_err() || last {
                return;
            }
            next = events.next().await;
        }
    });
    let mut response = Response::new(Either::Right(EventBody(receiver)));
    let headers = response.headers_mut();
    let event_stream = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, event_stream);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
