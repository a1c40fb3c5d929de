//! Plain HTTP/1.1 connections to one agent. Each is driven by the exchange that
//! uses it, so that no task of its own has to be woken to send a request or to
//! read its answer, and is kept between exchanges.
//!
//! Nobody listens to an idle connection: one that the agent has closed is found
//! when it would be used, or by a look every few seconds, whichever comes first.

use super::body::BodyBroken;
use crate::limits;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tower_service::Service;

/// How often idle connections are looked at.
const LOOK_TIME: Duration = Duration::from_secs(5);

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No connection came about.
    #[error("connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke before the response.
    #[error("exchange")]
    Broken(#[source] hyper::Error),
}

impl SendError {
    /// The agent was not even reached.
    pub(super) fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// A connection and its sending end.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<TokioIo<TcpStream>, Full<Bytes>>,
}

impl Line {
    /// Does what can be done without waiting. False once the connection has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.connection).poll(cx).is_pending()
    }
}

struct Idle {
    line: Box<Line>,
    since: Instant,
}

/// See the module. `C` connects.
pub(super) struct Connections<C> {
    connector: C,
    idle: RefCell<VecDeque<Idle>>,
    idle_max: usize,
    looking: Cell<bool>,
}

impl<C> Connections<C>
where
    C: Service<Uri, Response = TokioIo<TcpStream>> + Clone + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Keeps up to `idle_max` connections, each for [`limits::HTTP_POOL_IDLE_TIME`].
    pub(super) fn new(connector: C, idle_max: usize) -> Rc<Self> {
        Rc::new(Self {
            connector,
            idle: RefCell::default(),
            idle_max,
            looking: Cell::new(false),
        })
    }

    /// Sends a request, in origin form and with a `Host`, to the agent at `origin`, and waits for
    /// the head of its response. One that was not sent, because a kept connection had ended
    /// meanwhile, is sent on another; one that the agent may have seen never is.
    pub(super) async fn request(
        self: &Rc<Self>,
        origin: &Uri,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Driven<C>>, SendError> {
        loop {
            let kept = poll_fn(|cx| Poll::Ready(self.kept(cx))).await;
            let reused = kept.is_some();
            let mut line = match kept {
                Some(line) => line,
                None => self.connect(origin).await?,
            };
            match send(&mut line, request).await {
                Ok(response) => {
                    return Ok(response.map(|body| Driven {
                        body,
                        line: Some(line),
                        home: self.clone(),
                    }));
                }
                Err((_, Some(unsent))) if reused => request = unsent,
                Err((error, _)) => return Err(SendError::Broken(error)),
            }
        }
    }

    /// The connection that was used last, if there is one that has not ended.
    fn kept(&self, cx: &mut Context<'_>) -> Option<Box<Line>> {
        loop {
            let mut line = self.idle.borrow_mut().pop_back()?.line;
            if line.drive(cx) {
                return Some(line);
            }
        }
    }

    async fn connect(&self, origin: &Uri) -> Result<Box<Line>, SendError> {
        let mut connector = self.connector.clone();
        let connected = async {
            poll_fn(|cx| connector.poll_ready(cx)).await?;
            connector.call(origin.clone()).await
        };
        let stream = connected
            .await
            .map_err(|error: C::Error| SendError::Connect(error.into()))?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(limits::HTTP_BUFFER_OCTETS)
            .handshake(stream)
            .await
            .map_err(SendError::Broken)?;
        Ok(Box::new(Line { sender, connection }))
    }

    fn keep(self: &Rc<Self>, line: Box<Line>) {
        let mut idle = self.idle.borrow_mut();
        let since = Instant::now();
        idle.push_back(Idle { line, since });
        if idle.len() > self.idle_max {
            idle.pop_front();
        }
        drop(idle);
        if !self.looking.replace(true) {
            tokio::task::spawn_local(self.clone().look());
        }
    }

    /// Closes what has been idle for too long or has ended, as long as anything is idle.
    async fn look(self: Rc<Self>) {
        let looking = Looking(&self.looking);
        while !self.idle.borrow().is_empty() {
            sleep(LOOK_TIME).await;
            let now = Instant::now();
            let mut cx = Context::from_waker(Waker::noop());
            self.idle.borrow_mut().retain_mut(|idle| {
                now < idle.since + limits::HTTP_POOL_IDLE_TIME && idle.line.drive(&mut cx)
            });
        }
        drop(looking);
    }
}

struct Looking<'a>(&'a Cell<bool>);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Sends on `line` and drives it to the response's head; gives the request back with the
/// error if nothing of it was sent.
async fn send(
    line: &mut Line,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Full<Bytes>>>)> {
    let mut response = pin!(line.sender.try_send_request(request));
    let connection = &mut line.connection;
    let mut ended = false;
    poll_fn(|cx| {
        if !ended {
            ended = Pin::new(&mut *connection).poll(cx).is_ready();
        }
        if ended {
            return response.as_mut().poll(cx);
        }
        // Only driving the connection can make it ready, so that nobody has to be woken for it.
        response
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    })
    .await
    .map_err(|mut error| {
        let unsent = error.take_message();
        (error.into_error(), unsent)
    })
}

/// A response's body that drives its connection, which is kept once the body has been read.
pub(super) struct Driven<C> {
    body: Incoming,
    line: Option<Box<Line>>,
    home: Rc<Connections<C>>,
}

impl<C> Driven<C>
where
    C: Service<Uri, Response = TokioIo<TcpStream>> + Clone + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// The body was read to its end.
    fn release(&mut self, cx: &mut Context<'_>) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        // Not ready when the agent has answered before it had read the whole request.
        if line.drive(cx) && line.sender.is_ready() {
            self.home.keep(line);
        }
    }
}

impl<C> Body for Driven<C>
where
    C: Service<Uri, Response = TokioIo<TcpStream>> + Clone + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = BodyBroken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        let this = self.get_mut();
        let mut driven = false;
        loop {
            // As in `send`: only driving the connection makes it ready.
            let mut unheard = Context::from_waker(Waker::noop());
            if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(&mut unheard) {
                if frame.is_none() || this.body.is_end_stream() {
                    this.release(cx);
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(BodyBroken::Http)));
            }
            if driven {
                return Poll::Pending;
            }
            let Some(line) = &mut this.line else {
                return Poll::Ready(Some(Err(BodyBroken::Ended)));
            };
            driven = line.drive(cx);
            if !driven {
                this.line = None;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
