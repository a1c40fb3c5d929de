//! The queue between the mapper and one HTTP call: single-threaded, bounded in
//! events and octets, closed from both ends.
//!
//! It never waits for a slow client: what does not fit cuts the call (ruling
//! R19), so that the mapper and the other calls go on.

use crate::a2a::port::CallEvent;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Nobody takes the event: the client was too slow and its call is cut, or it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call takes no more events")]
pub struct Overflow;

/// Makes the two ends of a call.
///
/// `events_max` and `octets_max` bound the stream events that wait for the
/// client; the last event of a call always fits. `on_gone` runs once when the
/// handle is dropped although no last event was pushed: the client left, its
/// deadline passed or it was cut for slowness. The relay then tells the mapper.
pub fn channel(
    events_max: usize,
    octets_max: usize,
    on_gone: impl FnOnce() + 'static,
) -> (CallSink, CallHandle) {
    let shared = Rc::new(RefCell::new(Shared {
        events: VecDeque::new(),
        octets: 0,
        state: State::Open,
        waker: None,
        cut: None,
    }));
    let sink = CallSink {
        shared: Rc::downgrade(&shared),
        events_max,
        octets_max,
    };
    let handle = CallHandle {
        shared,
        on_gone: Some(Box::new(on_gone)),
    };
    (sink, handle)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// More events may be pushed.
    Open,
    /// The last event was pushed.
    Complete,
    /// The bound was exceeded.
    Cut,
    /// The sink was dropped before a last event.
    Abandoned,
}

struct Shared {
    events: VecDeque<CallEvent>,
    octets: usize,
    state: State,
    waker: Option<Waker>,
    cut: Option<Rc<Notify>>,
}

/// The mapper's end of a call.
#[must_use]
pub struct CallSink {
    shared: Weak<RefCell<Shared>>,
    events_max: usize,
    octets_max: usize,
}

impl CallSink {
    /// Queues an event for the client.
    ///
    /// [`Overflow`] when the handle is gone or the bound is exceeded; the call
    /// is then over for its client, `on_gone` runs as soon as the edge lets go
    /// of the handle, and further pushes give the same answer.
    pub fn push(&self, event: CallEvent) -> Result<(), Overflow> {
        let shared = self.shared.upgrade().ok_or(Overflow)?;
        let mut shared = shared.borrow_mut();
        if shared.state != State::Open {
            return Err(Overflow);
        }
        let octets = event_octets(&event);
        let fits =
            shared.events.len() < self.events_max && shared.octets + octets <= self.octets_max;
        let outcome = if event.is_last() || fits {
            if event.is_last() {
                shared.state = State::Complete;
            }
            shared.octets += octets;
            shared.events.push_back(event);
            Ok(())
        } else {
            shared.state = State::Cut;
            shared.events = VecDeque::new();
            shared.octets = 0;
            if let Some(cut) = &shared.cut {
                cut.notify_one();
            }
            Err(Overflow)
        };
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
        outcome
    }

    /// Events that wait for the client.
    pub fn waiting_events(&self) -> usize {
        self.shared
            .upgrade()
            .map_or(0, |shared| shared.borrow().events.len())
    }

    /// Octets that wait for the client.
    pub fn waiting_octets(&self) -> usize {
        self.shared
            .upgrade()
            .map_or(0, |shared| shared.borrow().octets)
    }
}

impl Drop for CallSink {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut shared = shared.borrow_mut();
        if shared.state == State::Open {
            shared.state = State::Abandoned;
        }
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for CallSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSink")
            .field("waiting_events", &self.waiting_events())
            .finish_non_exhaustive()
    }
}

/// The edge's end of a call. Dropping it before the last event was pushed gives the call up.
#[must_use]
pub struct CallHandle {
    shared: Rc<RefCell<Shared>>,
    on_gone: Option<Box<dyn FnOnce()>>,
}

impl CallHandle {
    /// The next event. `None` after the last one, and also when the call was
    /// cut or its sink was dropped without a last event: see [`CallHandle::is_cut`]
    /// and remember whether a last event came.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        let mut shared = self.shared.borrow_mut();
        if let Some(event) = shared.events.pop_front() {
            shared.octets -= event_octets(&event);
            return Poll::Ready(Some(event));
        }
        if shared.state != State::Open {
            return Poll::Ready(None);
        }
        match &mut shared.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits for [`CallHandle::poll_event`].
    pub async fn next(&mut self) -> Option<CallEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Whether the client was too slow and the call has been cut.
    pub fn is_cut(&self) -> bool {
        self.shared.borrow().state == State::Cut
    }

    /// Notifies `cut` when the call is cut. An HTTP library that waits for room
    /// in a socket does not poll the body, so the cut must reach it another way.
    pub(super) fn notify_cut(&mut self, cut: Rc<Notify>) {
        let mut shared = self.shared.borrow_mut();
        if shared.state == State::Cut {
            cut.notify_one();
        }
        shared.cut = Some(cut);
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        let complete = self.shared.borrow().state == State::Complete;
        if let Some(on_gone) = self.on_gone.take()
            && !complete
        {
            on_gone();
        }
    }
}

impl fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallHandle")
            .field("state", &self.shared.borrow().state)
            .finish_non_exhaustive()
    }
}

fn event_octets(event: &CallEvent) -> usize {
    match event {
        CallEvent::Response(object)
        | CallEvent::ErrorResponse(object)
        | CallEvent::StreamEvent { object, .. }
        | CallEvent::StreamError { object, .. } => object.len(),
        CallEvent::StreamEnd { object, .. } => object.as_ref().map_or(0, bytes::Bytes::len),
        CallEvent::Document { .. } => event.octets(),
        CallEvent::TransportError(error) => error.message.len(),
        CallEvent::DiscoveryError { reason, .. } => reason.len(),
        CallEvent::Accepted | CallEvent::DocumentBegun | CallEvent::Records(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::cell::Cell;

    fn event(event_id: u64, octets: usize) -> CallEvent {
        CallEvent::StreamEvent {
            event_id,
            object: Bytes::from(vec![b'x'; octets]),
        }
    }

    fn poll(handle: &mut CallHandle) -> Poll<Option<CallEvent>> {
        handle.poll_event(&mut Context::from_waker(Waker::noop()))
    }

    fn counted(events: usize, octets: usize) -> (CallSink, CallHandle, Rc<Cell<u32>>) {
        let gone = Rc::new(Cell::new(0));
        let seen = gone.clone();
        let (sink, handle) = channel(events, octets, move || seen.set(seen.get() + 1));
        (sink, handle, gone)
    }

    #[test]
    fn events_come_in_order_and_end() {
        let (sink, mut handle, gone) = counted(4, 100);
        assert!(poll(&mut handle).is_pending());
        sink.push(event(1, 3)).unwrap();
        sink.push(event(2, 3)).unwrap();
        sink.push(CallEvent::StreamEnd {
            event_id: 3,
            object: None,
        })
        .unwrap();
        assert_eq!(sink.push(event(4, 1)), Err(Overflow));
        for wanted in 1..=2 {
            assert!(
                matches!(poll(&mut handle), Poll::Ready(Some(CallEvent::StreamEvent { event_id, .. })) if event_id == wanted)
            );
        }
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::StreamEnd { .. }))
        ));
        assert!(matches!(poll(&mut handle), Poll::Ready(None)));
        drop(handle);
        assert_eq!(gone.get(), 0);
    }

    /// Ruling R19: beyond the bound the call is cut, and its memory is returned.
    #[test]
    fn overflow_cuts_and_frees() {
        for (events, octets) in [(2, 1000), (100, 20)] {
            let (sink, mut handle, gone) = counted(events, octets);
            let cut = Rc::new(Notify::new());
            handle.notify_cut(cut.clone());
            sink.push(event(1, 10)).unwrap();
            sink.push(event(2, 10)).unwrap();
            assert_eq!(sink.push(event(3, 10)), Err(Overflow));
            assert_eq!(sink.waiting_octets(), 0);
            assert!(handle.is_cut());
            assert!(matches!(poll(&mut handle), Poll::Ready(None)));
            let mut notified = std::pin::pin!(cut.notified());
            assert!(
                notified
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
            );
            assert_eq!(sink.push(CallEvent::Accepted), Err(Overflow));
            drop(handle);
            assert_eq!(gone.get(), 1);
        }
    }

    #[test]
    fn a_last_event_always_fits() {
        let (sink, mut handle, _) = counted(1, 1);
        sink.push(event(1, 1)).unwrap();
        sink.push(CallEvent::StreamEnd {
            event_id: 2,
            object: Some(Bytes::from_static(b"{}")),
        })
        .unwrap();
        assert!(matches!(poll(&mut handle), Poll::Ready(Some(_))));
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::StreamEnd {
                object: Some(_),
                ..
            }))
        ));
    }

    #[test]
    fn reading_makes_room() {
        let (sink, mut handle, _) = counted(1, 4);
        for n in 0..100 {
            sink.push(event(n, 4)).unwrap();
            assert!(matches!(poll(&mut handle), Poll::Ready(Some(_))));
        }
    }

    #[test]
    fn leaving_early_is_told_once() {
        let (sink, handle, gone) = counted(1, 1);
        drop(handle);
        assert_eq!(gone.get(), 1);
        assert_eq!(sink.push(CallEvent::Accepted), Err(Overflow));
        assert_eq!(gone.get(), 1);
    }

    #[test]
    fn a_dropped_sink_never_leaves_the_client_waiting() {
        let (sink, mut handle, gone) = counted(1, 1);
        assert!(poll(&mut handle).is_pending());
        drop(sink);
        assert!(matches!(poll(&mut handle), Poll::Ready(None)));
        assert!(!handle.is_cut());
        drop(handle);
        assert_eq!(gone.get(), 1);
    }
}
