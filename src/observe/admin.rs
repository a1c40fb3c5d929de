//! The admin listener: `/metrics`, `/healthz` and `/readyz` over HTTP/1.1, on a
//! thread and runtime of its own, so that it answers when the data path is busy.
//!
//! It has no authentication, serves nothing but these three, takes no request
//! body, and holds a bounded number of connections.

use super::metrics::{CONTENT_TYPE, Registry};
use crate::limits;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Whether the relay takes traffic, and if not, why; shared with whoever knows.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Mutex<Option<&'static str>>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some("starting"))))
    }
}

impl Readiness {
    /// Not ready yet, because it is starting.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(&self, why_not: Option<&'static str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why_not;
    }

    /// All listeners are bound.
    pub fn ready(&self) {
        self.set(None);
    }

    /// Not ready, with the reason that `/readyz` shows.
    pub fn not_ready(&self, why: &'static str) {
        self.set(Some(why));
    }

    /// Why it is not ready; none when it is.
    pub fn why_not(&self) -> Option<&'static str> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The admin listener could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address could not be bound.
    #[error("cannot listen on {0} for observe.admin: {1}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The thread or its runtime could not be made.
    #[error("cannot start the admin listener: {0}")]
    Start(#[source] std::io::Error),
}

/// A running admin listener; it stops when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds `address` and serves `registry` and `readiness` on a thread of its own.
    pub fn start(
        address: SocketAddr,
        registry: Arc<Registry>,
        readiness: Readiness,
    ) -> Result<Self, AdminError> {
        let bind = |e| AdminError::Bind(address, e);
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let bound = listener.local_addr().map_err(bind)?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AdminError::Start)?;
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = accept(listener, registry, readiness) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(AdminError::Start)?;
        Ok(Self {
            address: bound,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The bound address, whose port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, registry: Arc<Registry>, readiness: Readiness) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(e) => {
            tracing::error!(error = %e, "the admin listener stopped");
            return;
        }
    };
    let places = Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: that passes, a busy loop would not help.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (registry, readiness) = (Arc::clone(&registry), readiness.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let response = answer(
                    request.method(),
                    request.uri().path(),
                    &registry,
                    &readiness,
                );
                async move { Ok::<_, Infallible>(response) }
            });
            // One request a connection and a deadline on the whole of it: a client
            // that says nothing, or reads nothing, must not keep its place.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            match tokio::time::timeout(limits::HTTP_HEAD_TIME, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::debug!(error = %e, "an admin connection ended early"),
                Err(_) => tracing::debug!("an admin connection was given up"),
            }
            drop(place);
        });
    }
}

fn answer(
    method: &Method,
    path: &str,
    registry: &Registry,
    readiness: &Readiness,
) -> Response<Full<Bytes>> {
    let text = "text/plain; charset=utf-8";
    let known = matches!(path, "/metrics" | "/healthz" | "/readyz");
    let (status, content_type, body) = match (path, readiness.why_not()) {
        _ if known && method != Method::GET && method != Method::HEAD => (
            StatusCode::METHOD_NOT_ALLOWED,
            text,
            "only GET\n".to_owned(),
        ),
        ("/metrics", _) => (StatusCode::OK, CONTENT_TYPE, registry.render()),
        ("/healthz", _) => (StatusCode::OK, text, "alive\n".to_owned()),
        ("/readyz", None) => (StatusCode::OK, text, "ready\n".to_owned()),
        ("/readyz", Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, text, format!("{why}\n")),
        _ => (StatusCode::NOT_FOUND, text, "no such page\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    headers.insert(
        header::CACHE_CONTROL,
        http::HeaderValue::from_static("no-store"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, http::HeaderValue::from_static("GET, HEAD"));
    }
    response
}
