//! The ingress edge: HTTP/1.1 and HTTP/2, with or without TLS, for ordinary
//! A2A clients. This file accepts connections and keeps their bounds; what a
//! request gets is decided in `request`.
//!
//! It never reads a request further than its bounds, and no connection waits
//! for another: a client that does not read is cut, one that sends nothing is
//! closed.

use super::auth::Tokens;
use super::body::Budget;
use super::card_cache::CardCache;
use super::executor::{LocalExecutor, cuttable};
use super::request::{Client, Paths};
use super::settings::IngressSettings;
use super::stats::{EdgeStats, Refusal};
use super::{EdgeError, Mapping, tls};
use crate::limits;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

/// Bounds of an ingress that its settings do not name. The defaults are those of [`limits`].
#[derive(Debug, Clone)]
pub struct IngressBounds {
    /// Open connections; further ones wait in the listener's backlog.
    pub connections_max: usize,
    /// Time to send a request head, the first one from the moment of connecting.
    pub head_time: Duration,
    /// Time without an octet of a request body.
    pub body_time: Duration,
    /// Time without a request after which a connection is closed.
    pub idle_time: Duration,
    /// SSE head goes out with the first event or after this (ruling R27).
    pub stream_head_time: Duration,
    /// TLS handshake.
    pub handshake_time: Duration,
}

impl Default for IngressBounds {
    fn default() -> Self {
        Self {
            connections_max: limits::HTTP_CONNECTIONS_MAX,
            head_time: limits::HTTP_HEAD_TIME,
            body_time: limits::HTTP_BODY_TIME,
            idle_time: limits::HTTP_IDLE_TIME,
            stream_head_time: limits::STREAM_HEAD_TIME,
            handshake_time: limits::HANDSHAKE_TIME,
        }
    }
}

/// One HTTP listener's rules. Belongs to one thread; every unit makes its own.
pub struct Ingress {
    /// Its place in the configuration, by which streams of its clients are told
    /// from those of other ingresses.
    pub(super) number: usize,
    pub(super) settings: IngressSettings,
    pub(super) bounds: IngressBounds,
    pub(super) tokens: Option<Tokens>,
    pub(super) budget: Budget,
    pub(super) stats: Arc<EdgeStats>,
    pub(super) paths: Paths,
    pub(super) cards: CardCache,
    tls: Option<TlsAcceptor>,
}

impl Ingress {
    /// Reads what the settings name.
    pub fn new(settings: IngressSettings, stats: Arc<EdgeStats>) -> Result<Self, EdgeError> {
        Self::with_bounds(settings, IngressBounds::default(), stats)
    }

    /// [`Ingress::new`] with other bounds.
    pub fn with_bounds(
        settings: IngressSettings,
        bounds: IngressBounds,
        stats: Arc<EdgeStats>,
    ) -> Result<Self, EdgeError> {
        let tokens = settings.token_file.as_deref().map(Tokens::read);
        let tls = settings.tls.as_ref().map(tls::server);
        if let Some(url) = &settings.public_url {
            check_public_url(url)?;
        }
        Ok(Self {
            tokens: tokens.transpose()?,
            tls: tls.transpose()?.map(TlsAcceptor::from),
            number: 0,
            budget: Budget::new(limits::EDGE_BODIES_OCTETS_MAX),
            cards: CardCache::new(settings.card_time),
            paths: Paths::new(&settings.routes),
            settings,
            bounds,
            stats,
        })
    }

    /// One of several ingresses.
    #[must_use]
    pub fn numbered(mut self, number: usize) -> Self {
        self.number = number;
        self
    }

    /// Serves `listener` (nonblocking) until `shutdown` turns true: then it
    /// accepts no more, lets every request under way finish, streams included,
    /// and returns. Dropping the future cuts whatever still runs. Must run
    /// inside a `LocalSet`.
    pub async fn serve<M: Mapping + ?Sized>(
        self: Rc<Self>,
        listener: std::net::TcpListener,
        mapping: Rc<M>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), EdgeError> {
        let listener = TcpListener::from_std(listener).map_err(EdgeError::Listener)?;
        let mut connections = JoinSet::new();
        let mut at_bound = false;
        loop {
            let room = connections.len() < self.bounds.connections_max;
            if !room && !at_bound {
                self.stats.refusals.count(Refusal::ConnectionsMax);
                tracing::warn!(
                    connections = connections.len(),
                    "connection bound reached; further clients wait"
                );
            }
            at_bound = !room;
            tokio::select! {
                biased;
                () = stopped(&mut shutdown) => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if room => match accepted {
                    Ok((stream, peer)) => {
                        let served = self.clone().connection(
                            stream,
                            peer,
                            mapping.clone(),
                            shutdown.clone(),
                        );
                        connections.spawn_local(cuttable(served));
                    }
                    Err(error) => {
                        // Mostly out of file descriptors: others must close first.
                        tracing::warn!(%error, "accept");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
        Ok(())
    }

    async fn connection<M: Mapping + ?Sized>(
        self: Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mapping: Rc<M>,
        shutdown: watch::Receiver<bool>,
    ) {
        self.stats.connections.add(1);
        let _open = OpenConnection(self.stats.clone());
        let socket = socket2::SockRef::from(&stream);
        // A client that takes no octet for this long is gone or stuck; without
        // it a reply to a client that never reads would stay in memory.
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| socket.set_tcp_user_timeout(Some(limits::HTTP_WRITE_STALL_TIME)));
        let local = match prepared.and_then(|()| stream.local_addr()) {
            Ok(local) => local,
            Err(error) => {
                tracing::debug!(%peer, %error, "connection");
                return;
            }
        };
        let Some(acceptor) = &self.tls else {
            return self
                .http(stream, peer, local, false, mapping, shutdown)
                .await;
        };
        match timeout(self.bounds.handshake_time, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                self.http(stream, peer, local, true, mapping, shutdown)
                    .await;
            }
            Ok(Err(error)) => {
                self.stats.refusals.count(Refusal::Tls);
                tracing::debug!(%peer, %error, "TLS handshake");
            }
            Err(_) => {
                self.stats.refusals.count(Refusal::Tls);
                tracing::debug!(%peer, "TLS handshake took too long");
            }
        }
    }

    async fn http<S, M>(
        self: &Rc<Self>,
        stream: S,
        peer: SocketAddr,
        local: SocketAddr,
        https: bool,
        mapping: Rc<M>,
        mut shutdown: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
        M: Mapping + ?Sized,
    {
        let activity = Rc::new(Activity {
            open: Cell::new(0),
            requests: Cell::new(0),
            last: Cell::new(Instant::now()),
        });
        let client = Client { local, https };
        let service = service_fn(|request| {
            let busy = Busy::new(&activity);
            let ingress = self.clone();
            let mapping = mapping.clone();
            async move {
                let reply = ingress.request(request, client, &*mapping).await;
                // A stream keeps its connection busy as long as its body lives.
                Ok::<_, Infallible>(reply.map(|body| busy.with(body)))
            }
        });
        let builder = self.builder();
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut check = std::pin::pin!(sleep_until(
            Instant::now() + self.bounds.head_time.min(self.bounds.idle_time),
        ));
        let mut stopping = false;
        // Made once: it enters a list, and a connection comes through here for each step of it.
        let mut told = std::pin::pin!(stopped(&mut shutdown));
        loop {
            tokio::select! {
                ended = serving.as_mut() => {
                    if let Err(error) = ended {
                        self.count_broken(&*error, &activity);
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                    return;
                }
                () = told.as_mut(), if !stopping => {
                    stopping = true;
                    serving.as_mut().graceful_shutdown();
                }
                () = check.as_mut() => match self.due(&activity) {
                    Some(next) => check.as_mut().reset(next),
                    None if activity.requests.get() == 0 => {
                        self.stats.refusals.count(Refusal::HeadTimeout);
                        tracing::debug!(%peer, "no request in time");
                        return;
                    }
                    // Second time: the client does not react to the first.
                    None if stopping => return,
                    None => {
                        stopping = true;
                        serving.as_mut().graceful_shutdown();
                        check.as_mut().reset(Instant::now() + self.bounds.head_time);
                    }
                },
            }
        }
    }

    /// When to look at the connection again; `None` when it has been idle for too long.
    fn due(&self, activity: &Activity) -> Option<Instant> {
        let now = Instant::now();
        if activity.open.get() > 0 {
            return Some(now + self.bounds.idle_time);
        }
        let time = if activity.requests.get() == 0 {
            self.bounds.head_time
        } else {
            self.bounds.idle_time
        };
        let due = activity.last.get() + time;
        (due > now).then_some(due)
    }

    fn builder(&self) -> auto::Builder<LocalExecutor> {
        let mut builder = auto::Builder::new(LocalExecutor);
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.head_time)
            .max_buf_size(limits::HTTP_HEAD_OCTETS_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(limits::HTTP_HEAD_OCTETS_MAX as u32)
            .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
            .max_send_buf_size(limits::HTTP_HEAD_OCTETS_MAX)
            .keep_alive_interval(limits::HTTP_PROBE_TIME)
            .keep_alive_timeout(limits::PROBE_TIMEOUT);
        builder
    }

    fn count_broken(&self, error: &(dyn std::error::Error + 'static), activity: &Activity) {
        let Some(error) = error.downcast_ref::<hyper::Error>() else {
            return;
        };
        if error.is_timeout() {
            // The same error ends an idle connection, which is nobody's fault.
            if activity.requests.get() == 0 {
                self.stats.refusals.count(Refusal::HeadTimeout);
            }
        } else if error.is_parse() {
            self.stats.refusals.count(Refusal::HeadInvalid);
        }
    }
}

impl std::fmt::Debug for Ingress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingress")
            .field("address", &self.settings.address)
            .field("routes", &self.settings.routes)
            .finish_non_exhaustive()
    }
}

/// How long accepting rests when the machine has no descriptor to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Resolves when the signal is true or nobody can give it any more.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|&stop| stop).await;
}

fn check_public_url(url: &str) -> Result<(), EdgeError> {
    let problem = |problem| EdgeError::Url {
        url: url.to_owned(),
        problem,
    };
    let parsed: http::Uri = url.parse().map_err(|_| problem("not a URL"))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.authority().is_none() {
        return Err(problem("not an absolute http or https URL"));
    }
    if parsed.query().is_some() {
        return Err(problem("a public URL has no query"));
    }
    Ok(())
}

struct OpenConnection(Arc<EdgeStats>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.sub(1);
    }
}

/// What a connection is doing.
struct Activity {
    open: Cell<usize>,
    requests: Cell<u64>,
    last: Cell<Instant>,
}

/// A request under way, its response body included.
struct Busy(Rc<Activity>);

impl Busy {
    fn new(activity: &Rc<Activity>) -> Self {
        activity.open.set(activity.open.get() + 1);
        activity.requests.set(activity.requests.get() + 1);
        Self(activity.clone())
    }

    fn with<B>(self, body: B) -> BusyBody<B> {
        BusyBody { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.last.set(Instant::now());
    }
}

struct BusyBody<B> {
    body: B,
    _busy: Busy,
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for BusyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<B::Data>, B::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
