//! What the edge tests share: the played mapping, a raw HTTP/1.1 client, and a runtime.

use bytes::Bytes;
use npamp_relay::a2a::events::StreamEvents;
use npamp_relay::a2a::port::{
    AgentEvent, CallEvent, CallRequest, ExchangeId, ServiceParameters, TransportError,
};
use npamp_relay::crypto::Random;
use npamp_relay::edge::call::{CallHandle, CallSink, channel};
use npamp_relay::edge::ingress::{Ingress, IngressBounds};
use npamp_relay::edge::settings::{CardMode, IngressSettings, RoutePath};
use npamp_relay::edge::stats::EdgeStats;
use npamp_relay::edge::streams::{Directory, StreamBounds, Streams};
use npamp_relay::edge::window::Bounds;
use npamp_relay::edge::{CallRefusal, Elsewhere, Mapping};
use npamp_relay::engine::clock::SystemRandom;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::timeout;

/// Longest a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a test on one thread, as an edge does.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        timeout(Duration::from_secs(60), test)
            .await
            .expect("the test hangs");
    });
}

/// Waits for `future`, but not forever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it never happened")
}

/// Waits until `condition` holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// A call that reached the mapping.
pub struct Call {
    pub route: usize,
    pub parameters: ServiceParameters,
    pub request: CallRequest,
    pub sink: CallSink,
    pub gone: Rc<Cell<bool>>,
}

impl Call {
    pub fn object(&self) -> &Bytes {
        match &self.request {
            CallRequest::Request { object } | CallRequest::Notification { object } => object,
            CallRequest::Card | CallRequest::Discover { .. } | CallRequest::Resume { .. } => {
                panic!("the call has no object")
            }
            CallRequest::Transit { .. } => panic!("no edge makes such a call"),
        }
    }

    pub fn reply(&self, object: &'static str) {
        self.sink
            .push(CallEvent::Response(Bytes::from_static(object.as_bytes())))
            .unwrap();
    }

    pub fn event(&self, event_id: u64, object: impl Into<Bytes>) {
        self.sink
            .push(CallEvent::StreamEvent {
                event_id,
                object: object.into(),
            })
            .unwrap();
    }

    /// Events that came together.
    pub fn events(&self, objects: impl IntoIterator<Item = (u64, String)>) {
        let mut events = StreamEvents::default();
        for (event_id, object) in objects {
            events.push(event_id, object.as_bytes());
        }
        self.sink.push_events(events).unwrap();
    }

    pub fn end(&self, object: Option<&'static str>) {
        self.sink
            .push(CallEvent::StreamEnd {
                event_id: 99,
                object: object.map(|o| Bytes::from_static(o.as_bytes())),
            })
            .unwrap();
    }

    pub fn fail(&self, code: u8, message: &str, timed_out: bool) {
        self.sink
            .push(CallEvent::TransportError(TransportError {
                code,
                message: message.into(),
                timed_out,
            }))
            .unwrap();
    }
}

/// The mapping as the test plays it.
pub struct Played {
    calls: mpsc::UnboundedSender<Call>,
    events: mpsc::UnboundedSender<(ExchangeId, AgentEvent)>,
    pub refuse: Cell<Option<CallRefusal>>,
    pub streams: Rc<Streams>,
    pub pressed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

pub type Calls = mpsc::UnboundedReceiver<Call>;
pub type Events = mpsc::UnboundedReceiver<(ExchangeId, AgentEvent)>;

impl Played {
    /// No client may leave and come back.
    pub fn new() -> (Rc<Self>, Calls, Events) {
        Self::with(cancelling(), Arc::default())
    }

    pub fn with(bounds: StreamBounds, stats: Arc<EdgeStats>) -> (Rc<Self>, Calls, Events) {
        let (calls, calls_out) = mpsc::unbounded_channel();
        let (events, events_out) = mpsc::unbounded_channel();
        let played = Self {
            calls,
            events,
            refuse: Cell::new(None),
            streams: Streams::new(
                0,
                bounds,
                Arc::new(Directory::new(1 << 30)),
                stats,
                |octets| SystemRandom.fill(octets),
                Instant::now,
            ),
            pressed: Cell::new(false),
            waker: RefCell::new(None),
        };
        (Rc::new(played), calls_out, events_out)
    }

    pub fn press(&self, pressed: bool) {
        self.pressed.set(pressed);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Mapping for Played {
    fn call(
        &self,
        route: usize,
        parameters: ServiceParameters,
        request: CallRequest,
    ) -> Result<CallHandle, CallRefusal> {
        if let Some(refusal) = self.refuse.get() {
            return Err(refusal);
        }
        let gone = Rc::new(Cell::new(false));
        let seen = gone.clone();
        let (sink, handle) = channel(&self.streams, move || seen.set(true));
        let call = Call {
            route,
            parameters,
            request,
            sink,
            gone,
        };
        self.calls
            .send(call)
            .map_err(|_| CallRefusal::ShuttingDown)?;
        Ok(handle)
    }

    fn streams(&self) -> &Rc<Streams> {
        &self.streams
    }

    fn elsewhere(&self, _: usize, _: Elsewhere) -> bool {
        false
    }

    fn agent_event(&self, exchange: ExchangeId, event: AgentEvent) {
        let _ = self.events.send((exchange, event));
    }

    fn poll_ready(&self, _: ExchangeId, cx: &mut Context<'_>) -> Poll<()> {
        if self.pressed.get() {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// Streams are cancelled as soon as their client leaves.
pub fn cancelling() -> StreamBounds {
    let wide = Bounds {
        events: 1024,
        octets: 16 << 20,
    };
    StreamBounds {
        history: wide,
        window: wide,
        grace: Duration::ZERO,
        retention: Duration::ZERO,
        kept_max: 100,
    }
}

/// An ingress on a free port.
pub struct Edge {
    pub address: SocketAddr,
    pub mapping: Rc<Played>,
    pub calls: Calls,
    pub stats: Arc<EdgeStats>,
    pub shutdown: watch::Sender<bool>,
    pub served: tokio::task::JoinHandle<()>,
}

pub fn settings() -> IngressSettings {
    IngressSettings {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        token_file: None,
        public_url: None,
        card_time: Duration::ZERO,
        card: CardMode::Rewrite,
        routes: vec![
            RoutePath {
                path: "/a".into(),
                route: 0,
            },
            RoutePath {
                path: "/a/b".into(),
                route: 1,
            },
        ],
        body_octets_max: 1 << 20,
        unary_time: PATIENCE,
        sse_keep_alive: PATIENCE,
    }
}

impl Edge {
    pub fn new() -> Self {
        Self::with(settings(), IngressBounds::default())
    }

    pub fn with(settings: IngressSettings, bounds: IngressBounds) -> Self {
        Self::keeping(settings, bounds, cancelling())
    }

    /// An ingress that keeps streams for its clients.
    pub fn keeping(
        settings: IngressSettings,
        bounds: IngressBounds,
        streams: StreamBounds,
    ) -> Self {
        let listener = std::net::TcpListener::bind(settings.address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let stats = Arc::new(EdgeStats::default());
        let ingress = Rc::new(Ingress::with_bounds(settings, bounds, stats.clone()).unwrap());
        let (mapping, calls, _) = Played::with(streams, stats.clone());
        let (shutdown, stop) = watch::channel(false);
        let serving = mapping.clone();
        let served = tokio::task::spawn_local(async move {
            ingress.serve(listener, serving, stop).await.unwrap();
        });
        Self {
            address,
            mapping,
            calls,
            stats,
            shutdown,
            served,
        }
    }

    pub async fn connect(&self) -> Http<TcpStream> {
        Http::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// The next call that reaches the mapping.
    pub async fn call(&mut self) -> Call {
        soon(self.calls.recv()).await.unwrap()
    }

    /// Asserts that nothing was carried.
    pub fn nothing_carried(&mut self) {
        assert!(self.calls.try_recv().is_err(), "something was carried");
    }
}

/// A response's head.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub headers: HashMap<String, String>,
}

/// One end of a raw HTTP/1.1 connection.
pub struct Http<S> {
    pub stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub async fn send(&mut self, octets: impl AsRef<[u8]>) {
        self.stream.write_all(octets.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn post(&mut self, path: &str, body: impl AsRef<[u8]>) {
        self.post_with(path, "", body).await;
    }

    /// `headers` are whole lines.
    pub async fn post_with(&mut self, path: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: edge.example\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        self.send([head.as_bytes(), body].concat()).await;
    }

    pub async fn get(&mut self, method: &str, path: &str, headers: &str) {
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: edge.example\r\n{headers}\r\n"
        ))
        .await;
    }

    /// Reads more; false at the end of the connection, in order or not.
    pub async fn more(&mut self) -> bool {
        self.buffer.reserve(65536);
        !matches!(
            soon(self.stream.read_buf(&mut self.buffer)).await,
            Ok(0) | Err(_)
        )
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Some(String::from_utf8(line[..at].to_vec()).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The next message's first line and headers.
    pub async fn message(&mut self) -> Option<(String, HashMap<String, String>)> {
        let first = self.line().await?;
        let mut headers: HashMap<String, String> = HashMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some((first, headers));
            }
            let (name, value) = line.split_once(':').unwrap();
            headers
                .entry(name.to_ascii_lowercase())
                .and_modify(|known| {
                    known.push('|');
                    known.push_str(value.trim());
                })
                .or_insert_with(|| value.trim().to_owned());
        }
    }

    pub async fn head(&mut self) -> Head {
        let (first, headers) = self.message().await.expect("no response");
        Head {
            status: first.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
        }
    }

    pub async fn exactly(&mut self, octets: usize) -> Vec<u8> {
        while self.buffer.len() < octets {
            assert!(self.more().await, "the body broke off");
        }
        self.buffer.drain(..octets).collect()
    }

    /// A response with a Content-Length.
    pub async fn response(&mut self) -> (Head, Vec<u8>) {
        let head = self.head().await;
        let length = head
            .headers
            .get("content-length")
            .map_or(0, |length| length.parse().unwrap());
        let body = self.exactly(length).await;
        (head, body)
    }

    /// One chunk of a chunked body without the ids of its events: `Some(empty)` is
    /// its clean end, `None` a break.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        self.raw_chunk().await.map(|chunk| without_ids(&chunk))
    }

    /// One chunk of a chunked body.
    pub async fn raw_chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line().await?;
        let length = usize::from_str_radix(&line, 16).unwrap();
        while self.buffer.len() < length + 2 {
            if !self.more().await {
                return None;
            }
        }
        let chunk = self.buffer.drain(..length).collect();
        self.buffer.drain(..2);
        Some(chunk)
    }

    /// The rest of a chunked body, and whether it ended in order.
    pub async fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                None => return (body, false),
                Some(chunk) if chunk.is_empty() => return (body, true),
                Some(chunk) => body.extend(chunk),
            }
        }
    }

    /// Whether the peer closes without a further octet.
    pub async fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }
}

/// Events without the `id` lines of the relay's streams.
pub fn without_ids(octets: &[u8]) -> Vec<u8> {
    let lines = octets.split_inclusive(|&octet| octet == b'\n');
    lines
        .filter(|line| !line.starts_with(b"id: ") || !line.ends_with(b"\n"))
        .collect::<Vec<_>>()
        .concat()
}

pub const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#;
pub const STREAM: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{}}"#;

pub fn problem(head: &Head, body: &[u8]) -> serde_json::Value {
    assert_eq!(head.headers["content-type"], "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(problem["status"], head.status);
    assert!(problem.get("jsonrpc").is_none());
    problem
}
