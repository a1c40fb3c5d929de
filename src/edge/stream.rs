//! The body of an SSE response: a call's stream events towards one client.
//!
//! Events that are ready together leave in one chunk; an idle stream gets
//! comments; an orderly end is a clean end of the body and nothing else is. It
//! has no deadline.

use super::call::Cut;
use super::executor::current_cut;
use super::remote::Source;
use super::respond::Aborted;
use super::sse::SseWriter;
use super::stats::{EdgeStats, EventFlow, StreamOutcome};
use super::token::StreamToken;
use crate::a2a::json_rpc::{self, Id};
use crate::a2a::port::CallEvent;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// See the module.
pub(super) struct StreamBody {
    request: u64,
    source: Source,
    /// What each event's `id` begins with.
    id_prefix: Box<[u8]>,
    /// The id token that its events must bear.
    rename: Option<Box<str>>,
    first: Option<CallEvent>,
    writer: SseWriter,
    end: Option<StreamOutcome>,
    /// What precedes an abort had its chance to leave.
    flushed: bool,
    keep_alive: Pin<Box<Sleep>>,
    keep_alive_time: Duration,
    last_sent: Instant,
    stats: Arc<EdgeStats>,
}

impl StreamBody {
    /// A stream that begins with `first`, if that has come already. Its events
    /// bear `rename` for an id where it resumes another request's (ruling R22). To
    /// be made in the task that serves the response, so that a slow client can be cut.
    pub(super) fn new(
        request: u64,
        mut source: Source,
        token: StreamToken,
        rename: Option<Box<str>>,
        first: Option<CallEvent>,
        keep_alive_time: Duration,
        stats: Arc<EdgeStats>,
    ) -> Self {
        if let Some(cut) = current_cut() {
            source.notify_cut(cut);
        }
        stats.streams.add(1);
        let now = Instant::now();
        Self {
            request,
            source,
            id_prefix: format!("id: {token}.").into_bytes().into(),
            rename,
            first,
            writer: SseWriter::default(),
            end: None,
            flushed: false,
            keep_alive: Box::pin(sleep_until(now + keep_alive_time)),
            keep_alive_time,
            last_sent: now,
            stats,
        }
    }

    /// The next chunk; an error aborts the response so that the client sees it.
    pub(super) fn poll_chunk(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Aborted>>> {
        let this = &mut *self;
        loop {
            if let Some(chunk) = this.writer.take_chunk() {
                this.last_sent = Instant::now();
                return Poll::Ready(Some(Ok(chunk)));
            }
            match this.end {
                Some(StreamOutcome::Ended | StreamOutcome::ErrorResponse) => {
                    return Poll::Ready(None);
                }
                Some(_) if this.flushed => return Poll::Ready(Some(Err(Aborted))),
                Some(_) => {
                    // An error makes the HTTP library drop what it has not
                    // written yet; one more turn lets the last events leave.
                    this.flushed = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                None => {}
            }
            if this.poll_fill(cx).is_pending() && this.poll_idle(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Ready when something was written or the stream is over.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut filled = false;
        while self.end.is_none() && !self.writer.is_full() {
            if self.first.is_none() && self.write_waiting() {
                filled = true;
                continue;
            }
            let event = match self.first.take() {
                Some(event) => Some(event),
                None => match self.source.poll_event(cx) {
                    Poll::Ready(event) => event,
                    Poll::Pending if filled => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                },
            };
            filled = true;
            self.take(event);
        }
        Poll::Ready(())
    }

    /// Writes data events that wait here, as many as leave together. False when there are none.
    fn write_waiting(&mut self) -> bool {
        let Self {
            source,
            writer,
            id_prefix,
            rename,
            ..
        } = self;
        let rename = rename.as_deref().map(Id::from_token);
        let events = source.hand_out(|event_id, octets, at| {
            let renamed = rename.and_then(|id| json_rpc::with_id(&octets[at.clone()], id));
            match renamed.map(Bytes::from) {
                Some(renamed) => {
                    writer.event_with_id(id_prefix, event_id, &renamed, 0..renamed.len());
                }
                None => writer.event_with_id(id_prefix, event_id, octets, at),
            }
            !writer.is_full()
        });
        self.stats.events.add(EventFlow::ToClients, events as u64);
        events > 0
    }

    fn take(&mut self, event: Option<CallEvent>) {
        match event {
            Some(CallEvent::StreamEvent { event_id, object }) => {
                self.write(Some(event_id), object);
            }
            Some(CallEvent::StreamEnd { event_id, object }) => {
                if let Some(object) = object {
                    self.write(Some(event_id), object);
                }
                self.end = Some(StreamOutcome::Ended);
            }
            // A Response here means that the agent answered a streaming call
            // without a stream after the head had to go out: it is then the one
            // event of the stream.
            Some(CallEvent::Response(object)) => {
                self.write(None, object);
                self.end = Some(StreamOutcome::Ended);
            }
            Some(CallEvent::StreamError { event_id, object }) => {
                self.write(Some(event_id), object);
                self.end = Some(StreamOutcome::ErrorResponse);
            }
            Some(CallEvent::ErrorResponse(object)) => {
                self.write(None, object);
                self.end = Some(StreamOutcome::ErrorResponse);
            }
            Some(CallEvent::TransportError(error)) => {
                tracing::info!(
                    request = self.request,
                    code = error.code,
                    detail = error.message,
                    "stream aborted"
                );
                self.end = Some(StreamOutcome::Aborted);
            }
            Some(
                CallEvent::Accepted
                | CallEvent::Document { .. }
                | CallEvent::DocumentBegun
                | CallEvent::Records(_)
                | CallEvent::DiscoveryError { .. },
            ) => {
                tracing::warn!(request = self.request, "no stream event in mid-stream");
                self.end = Some(StreamOutcome::Aborted);
            }
            None => self.end = Some(self.cut().unwrap_or(StreamOutcome::Aborted)),
        }
    }

    fn cut(&self) -> Option<StreamOutcome> {
        self.source.cut().map(|cut| match cut {
            Cut::Slow => StreamOutcome::SlowClient,
            Cut::TakenOver => StreamOutcome::TakenOver,
        })
    }

    fn write(&mut self, event_id: Option<u64>, mut object: Bytes) {
        self.stats.events.count(EventFlow::ToClients);
        if let Some(event_id) = event_id {
            self.writer.id(&self.id_prefix, event_id);
        }
        if let Some(id) = &self.rename
            && let Some(renamed) = json_rpc::with_id(&object, Id::from_token(id))
        {
            object = renamed.into();
        }
        self.writer.event(&object);
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.keep_alive.as_mut().poll(cx).is_ready() {
            let due = self.last_sent + self.keep_alive_time;
            if due <= Instant::now() {
                self.writer.keep_alive();
                self.keep_alive
                    .as_mut()
                    .reset(Instant::now() + self.keep_alive_time);
                return Poll::Ready(());
            }
            self.keep_alive.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let outcome = match self.end {
            Some(outcome) => outcome,
            None => self.cut().unwrap_or(StreamOutcome::ClientLeft),
        };
        self.stats.streams.sub(1);
        self.stats.streams_ended.count(outcome);
        tracing::debug!(
            request = self.request,
            outcome = crate::stats::Reason::label(outcome),
            "stream over"
        );
    }
}

impl std::fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamBody")
            .field("request", &self.request)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
