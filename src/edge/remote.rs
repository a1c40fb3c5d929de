//! A stream whose client came back on another unit than the one that has it: its
//! events go over in a short queue, and neither unit touches what is the other's.
//!
//! The stream's own unit cuts off a client that is too slow, as it would one of
//! its own; the reader's side says how far it has come, so that nothing counts as
//! handed out that is still on its way over.

use super::call::{CallHandle, Cut};
use crate::a2a::port::CallEvent;
use crate::limits;
use bytes::Bytes;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::{Notify, mpsc, oneshot};

/// Where a response body's events come from.
pub(super) enum Source {
    /// This unit.
    Here(CallHandle),
    /// Another one.
    Elsewhere(RemoteHandle),
}

impl Source {
    /// The next event; see [`CallHandle::poll_event`].
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        match self {
            Self::Here(handle) => handle.poll_event(cx),
            Self::Elsewhere(handle) => handle.poll_event(cx),
        }
    }

    /// Hands out what waits here already; see [`CallHandle::hand_out`].
    pub(super) fn hand_out(
        &mut self,
        take: impl FnMut(u64, &Bytes, Range<usize>) -> bool,
    ) -> usize {
        match self {
            Self::Here(handle) => handle.hand_out(take),
            Self::Elsewhere(_) => 0,
        }
    }

    /// Why this reader was cut off, if it was.
    pub(super) fn cut(&self) -> Option<Cut> {
        match self {
            Self::Here(handle) => handle.cut(),
            Self::Elsewhere(handle) => handle.cut.get(),
        }
    }

    /// Notifies `cut` when this reader is cut off.
    pub(super) fn notify_cut(&mut self, cut: Rc<Notify>) {
        match self {
            Self::Here(handle) => handle.notify_cut(cut),
            Self::Elsewhere(handle) => handle.notify_cut(cut),
        }
    }
}

/// The reader's end of a stream of another unit, on its way there.
pub(super) struct Parcel {
    events: mpsc::Receiver<CallEvent>,
    cut: oneshot::Receiver<Cut>,
    written: Arc<AtomicU64>,
}

impl Parcel {
    /// To be unpacked on the reader's unit.
    pub(super) fn unpack(self) -> RemoteHandle {
        RemoteHandle {
            events: self.events,
            coming: Some(self.cut),
            cut: Rc::new(Cell::new(None)),
            written: self.written,
        }
    }
}

/// The reader's end of a stream of another unit.
pub(super) struct RemoteHandle {
    events: mpsc::Receiver<CallEvent>,
    coming: Option<oneshot::Receiver<Cut>>,
    cut: Rc<Cell<Option<Cut>>>,
    written: Arc<AtomicU64>,
}

impl RemoteHandle {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        let event = ready!(self.events.poll_recv(cx));
        match &event {
            Some(
                CallEvent::StreamEvent { event_id, .. }
                | CallEvent::StreamEnd { event_id, .. }
                | CallEvent::StreamError { event_id, .. },
            ) => {
                self.written.fetch_max(*event_id, Ordering::AcqRel);
            }
            Some(_) => {}
            None => {
                if let Some(Ok(cut)) = self.coming.as_mut().map(oneshot::Receiver::try_recv) {
                    self.cut.set(Some(cut));
                }
            }
        }
        Poll::Ready(event)
    }

    fn notify_cut(&mut self, notify: Rc<Notify>) {
        let Some(coming) = self.coming.take() else {
            return;
        };
        let cut = self.cut.clone();
        tokio::task::spawn_local(async move {
            if let Ok(why) = coming.await {
                cut.set(Some(why));
                notify.notify_one();
            }
        });
    }
}

/// The stream's end.
pub(super) struct Forwarder {
    handle: CallHandle,
    events: mpsc::Sender<CallEvent>,
    cut: oneshot::Sender<Cut>,
}

/// Makes the two ends of a way to another unit.
pub(super) fn bridge(handle: CallHandle) -> (Forwarder, Parcel) {
    let (events, coming) = mpsc::channel(limits::EVENTS_BETWEEN_UNITS_MAX);
    let (cut, cut_coming) = oneshot::channel();
    let written = Arc::new(AtomicU64::new(0));
    handle.read_by(&written);
    let forwarder = Forwarder {
        handle,
        events,
        cut,
    };
    let parcel = Parcel {
        events: coming,
        cut: cut_coming,
        written,
    };
    (forwarder, parcel)
}

impl Forwarder {
    /// Passes events on until the stream or its reader has gone. Until then the
    /// stream counts as read.
    pub(super) async fn run(self) {
        let Self {
            mut handle,
            events,
            cut,
        } = self;
        let notice = Rc::new(Notify::new());
        handle.notify_cut(notice.clone());
        loop {
            let event = tokio::select! {
                biased;
                () = events.closed() => return,
                event = handle.next() => event,
            };
            let Some(event) = event else { break };
            let last = event.is_last();
            tokio::select! {
                biased;
                sent = events.send(event) => if sent.is_err() {
                    return;
                },
                () = notice.notified() => break,
            }
            if last {
                // The reader has still to come to it.
                return events.closed().await;
            }
        }
        if let Some(why) = handle.cut() {
            let _ = cut.send(why);
        }
    }
}
