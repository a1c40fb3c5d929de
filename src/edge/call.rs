//! The queue between the mapper and one HTTP call: single-threaded, bounded in
//! events and octets, closed from both ends.
//!
//! It never waits for a slow client: what does not fit cuts the client off
//! (ruling R19), so that the mapper and the other calls go on. A stream outlives
//! its reader: once the edge has given it a name it is kept by [`Streams`], its
//! window slides on, and another reader may take its place (ruling R17).

use super::streams::{Entry, Origin, StreamBounds, Streams};
use super::token::StreamToken;
use super::window::{Kept, KeptKind, Window};
use crate::a2a::events::StreamEvents;
use crate::a2a::port::{CallEvent, ResumeTicket};
use crate::limits::HELD_EVENT_OCTETS;
use bytes::Bytes;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Nobody takes the event: the client was too slow and its call is cut, or it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call takes no more events")]
pub struct Overflow;

/// A batch of events enters a window in pieces of at most this part of what is kept of it.
const WINDOW_PIECES: usize = 8;

/// Makes the two ends of a call.
///
/// `on_gone` runs at most once, when nobody wants the call any more although no
/// last event was pushed: the client left or was cut for slowness before its
/// stream had a name, or nobody came back for the stream in time. The relay then
/// tells the mapper.
pub fn channel(streams: &Rc<Streams>, on_gone: impl FnOnce() + 'static) -> (CallSink, CallHandle) {
    let queue = Rc::new(Queue {
        streams: streams.clone(),
        state: RefCell::new(State {
            window: Window::default(),
            begun: false,
            last: None,
            phase: Phase::Open,
            reader: Some(Reader::new(0)),
            readers: 0,
            replayed: false,
            cut: Cut::Slow,
            written: None,
            entry: None,
            ticket: None,
            on_gone: Some(Box::new(on_gone)),
        }),
    });
    let sink = CallSink {
        queue: Rc::downgrade(&queue),
    };
    (sink, CallHandle { queue, reader: 0 })
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// More events may be pushed.
    Open,
    /// The last event was pushed.
    Complete,
    /// It ended below JSON-RPC, or its sink was dropped before a last event.
    Broken,
    /// The bound was exceeded before it had a name.
    Cut,
}

/// Why a reader gets no more although the call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It was too slow (ruling R19).
    Slow,
    /// The same client reads the stream on another connection.
    TakenOver,
}

/// Who reads a call now.
pub(super) struct Reader {
    number: u64,
    /// It was told how a broken call ended.
    told: bool,
    waker: Option<Waker>,
    cut: Option<Rc<Notify>>,
}

impl Reader {
    fn new(number: u64) -> Self {
        Self {
            number,
            told: false,
            waker: None,
            cut: None,
        }
    }
}

pub(super) struct State {
    pub(super) window: Window,
    /// The first part of a document came.
    begun: bool,
    /// The last event, unless it is one of a stream.
    last: Option<CallEvent>,
    pub(super) phase: Phase,
    pub(super) reader: Option<Reader>,
    readers: u64,
    /// A producer sends what it kept, faster than a client can take it.
    replayed: bool,
    cut: Cut,
    /// How far a reader on another unit says that it has come.
    written: Option<Arc<AtomicU64>>,
    /// What [`Streams`] knows of it.
    pub(super) entry: Option<Box<Entry>>,
    pub(super) ticket: Option<Box<ResumeTicket>>,
    on_gone: Option<Box<dyn FnOnce()>>,
}

impl State {
    /// Highest event_id that the client can have.
    pub(super) fn reached(&self) -> u64 {
        let written = self.written.as_ref();
        let written = written.map_or(0, |written| written.load(Ordering::Acquire));
        self.window.reached().max(written)
    }

    /// Cuts off whoever reads; gives what wakes it.
    fn cut_off(&mut self, cut: Cut) -> Option<Waker> {
        let reader = self.reader.take()?;
        self.cut = cut;
        if let Some(cut) = &reader.cut {
            cut.notify_one();
        }
        reader.waker
    }
}

/// A call between its two ends.
pub(super) struct Queue {
    streams: Rc<Streams>,
    pub(super) state: RefCell<State>,
}

impl Queue {
    fn push(self: &Rc<Self>, event: CallEvent) -> Result<(), Overflow> {
        match Kept::of(event) {
            Ok(kept) => {
                let ends = kept.kind != KeptKind::Data;
                self.enter(kept.octets(), ends, |state, _| {
                    if let Some(entry) = &mut state.entry {
                        entry.learn(kept.object.as_deref());
                    }
                    state.window.push(kept);
                })
            }
            Err(other) => self.push_other(other),
        }
    }

    fn push_events(self: &Rc<Self>, events: StreamEvents) -> Result<(), Overflow> {
        let octets = events.octets() + events.len() * HELD_EVENT_OCTETS;
        self.enter(octets, false, |state, bounds| {
            if let Some(entry) = state.entry.as_mut().filter(|entry| entry.learns()) {
                for (_, object) in events.iter() {
                    entry.learn(Some(object));
                }
            }
            // What slides away as one is a small part of what is kept.
            let piece_octets = bounds.history.octets / WINDOW_PIECES;
            state.window.push_events(events, piece_octets);
        })
    }

    /// Takes in what counts for so many octets, if there is one who wants it.
    fn enter(
        self: &Rc<Self>,
        octets: usize,
        ends: bool,
        push: impl FnOnce(&mut State, &StreamBounds),
    ) -> Result<(), Overflow> {
        let affordable = self.streams.afford(octets);
        let bounds = self.streams.bounds();
        let mut state = self.state.borrow_mut();
        if state.phase != Phase::Open {
            if affordable {
                self.streams.purse.give(octets);
            }
            return Err(Overflow);
        }
        let mut lost = false;
        if !affordable {
            // All windows hold as much as they may: this one shrinks to what is new.
            self.streams.purse.give(state.window.forget_handed());
            if !self.streams.purse.take(octets) {
                lost = !state.window.is_empty();
                self.streams.purse.give(state.window.clear());
                self.streams.purse.force(octets);
            }
        }
        push(&mut state, bounds);
        if ends {
            // The last event always fits.
            state.phase = Phase::Complete;
        } else {
            let whole = if state.replayed {
                bounds.replayed()
            } else {
                bounds.window
            };
            let (freed, fell) = state.window.slide(bounds.history, whole);
            self.streams.purse.give(freed);
            lost |= fell;
        }
        let detached = state.reader.is_none();
        let waker = if lost && !detached {
            let waker = state.cut_off(Cut::Slow);
            if state.entry.is_none() {
                state.phase = Phase::Cut;
                self.streams.purse.give(state.window.clear());
            }
            waker
        } else {
            state.reader.as_mut().and_then(|reader| reader.waker.take())
        };
        let cut = state.phase == Phase::Cut;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if cut {
            return Err(Overflow);
        }
        if (lost && !detached) || (ends && detached) {
            return self.streams.settle(self);
        }
        Ok(())
    }

    fn push_other(self: &Rc<Self>, event: CallEvent) -> Result<(), Overflow> {
        let mut state = self.state.borrow_mut();
        if state.phase != Phase::Open {
            return Err(Overflow);
        }
        match event {
            CallEvent::DocumentBegun => state.begun = true,
            CallEvent::TransportError(_) => {
                state.phase = Phase::Broken;
                state.last = Some(event);
            }
            event => {
                state.phase = Phase::Complete;
                state.last = Some(event);
            }
        }
        self.woken(state)
    }

    /// Wakes the reader after the call has come to an end, or settles what has none.
    fn woken(self: &Rc<Self>, mut state: std::cell::RefMut<'_, State>) -> Result<(), Overflow> {
        let detached = state.reader.is_none();
        let waker = state.reader.as_mut().and_then(|reader| reader.waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if detached {
            return self.streams.settle(self);
        }
        Ok(())
    }

    /// Gives the call to a new reader, who goes on where the window stands.
    pub(super) fn read_on(self: &Rc<Self>) -> CallHandle {
        let mut state = self.state.borrow_mut();
        let waker = state.cut_off(Cut::TakenOver);
        // What the old reader has come to is kept before a new one counts anew.
        let reached = state.reached();
        state.window.reach(reached);
        state.written = None;
        state.readers += 1;
        let number = state.readers;
        state.reader = Some(Reader::new(number));
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        CallHandle {
            queue: self.clone(),
            reader: number,
        }
    }

    /// Keeps another ticket, or none: also where windows and tickets hold as much as
    /// they may. Its octets count as those of the window do.
    pub(super) fn set_ticket(&self, ticket: Option<Box<ResumeTicket>>) {
        let old = self.state.borrow_mut().ticket.take();
        let octets = old.map_or(0, |ticket| ticket.octets());
        self.streams.purse.give(octets);
        let ticket = ticket.filter(|ticket| self.streams.afford(ticket.octets()));
        self.state.borrow_mut().ticket = ticket;
    }

    /// Nobody wants the call any more.
    pub(super) fn give_up(&self) {
        let on_gone = {
            let mut state = self.state.borrow_mut();
            if matches!(state.phase, Phase::Open) {
                state.phase = Phase::Cut;
            }
            state.on_gone.take()
        };
        if let Some(on_gone) = on_gone {
            on_gone();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.set_ticket(None);
        let octets = self.state.get_mut().window.octets();
        self.streams.purse.give(octets);
    }
}

/// The mapper's end of a call.
#[must_use]
pub struct CallSink {
    queue: Weak<Queue>,
}

impl CallSink {
    /// Queues an event for the client.
    ///
    /// [`Overflow`] when nobody wants the call any more: its client has left, or
    /// was too slow for a stream that is not kept. Further pushes give the same
    /// answer.
    pub fn push(&self, event: CallEvent) -> Result<(), Overflow> {
        self.queue.upgrade().ok_or(Overflow)?.push(event)
    }

    /// Queues events of the client's stream that came together; see [`CallSink::push`].
    pub fn push_events(&self, events: StreamEvents) -> Result<(), Overflow> {
        self.queue.upgrade().ok_or(Overflow)?.push_events(events)
    }

    /// What resuming the call's stream at its producer takes; nothing when it cannot be.
    pub fn set_ticket(&self, ticket: Option<Box<ResumeTicket>>) {
        if let Some(queue) = self.queue.upgrade() {
            queue.set_ticket(ticket);
        }
    }

    /// Events that wait for the client.
    pub fn waiting_events(&self) -> usize {
        self.queue
            .upgrade()
            .map_or(0, |queue| queue.state.borrow().window.waiting())
    }
}

impl Drop for CallSink {
    fn drop(&mut self) {
        let Some(queue) = self.queue.upgrade() else {
            return;
        };
        let mut state = queue.state.borrow_mut();
        if state.phase == Phase::Open {
            state.phase = Phase::Broken;
            let _ = queue.woken(state);
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

/// The edge's end of a call. Dropping it before the last event was pushed gives
/// the call up, unless it is a stream that is kept for its client.
#[must_use]
pub struct CallHandle {
    queue: Rc<Queue>,
    reader: u64,
}

impl CallHandle {
    /// The next event. `None` after the last one, and also when this reader was
    /// cut off or the sink was dropped without a last event: see
    /// [`CallHandle::cut`] and remember whether a last event came.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        let mut guard = self.queue.state.borrow_mut();
        let state = &mut *guard;
        let Some(reader) = state
            .reader
            .as_mut()
            .filter(|reader| reader.number == self.reader)
        else {
            return Poll::Ready(None);
        };
        if std::mem::take(&mut state.begun) {
            return Poll::Ready(Some(CallEvent::DocumentBegun));
        }
        if let Some(kept) = state.window.take(state.written.is_none()) {
            return Poll::Ready(Some(kept.into_event()));
        }
        if state.phase != Phase::Open {
            let told = std::mem::replace(&mut reader.told, true);
            let last = match &state.last {
                // How it broke is told to everyone who comes back.
                Some(event @ CallEvent::TransportError(_)) => (!told).then(|| event.clone()),
                _ => state.last.take(),
            };
            return Poll::Ready(last);
        }
        match &mut reader.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Hands out the data events that wait, until `take` wants no more: it gets the id of
    /// each, and its object as a part of what holds it. Gives how many. What else there is,
    /// and whether there is nothing, [`CallHandle::poll_event`] says.
    pub(super) fn hand_out(
        &mut self,
        take: impl FnMut(u64, &Bytes, Range<usize>) -> bool,
    ) -> usize {
        let mut state = self.queue.state.borrow_mut();
        let reads = state
            .reader
            .as_ref()
            .is_some_and(|reader| reader.number == self.reader);
        if !reads || state.begun {
            return 0;
        }
        let reaches = state.written.is_none();
        state.window.hand_out(reaches, take)
    }

    /// Waits for [`CallHandle::poll_event`].
    pub async fn next(&mut self) -> Option<CallEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Why this reader was cut off, if it was.
    pub fn cut(&self) -> Option<Cut> {
        let state = self.queue.state.borrow();
        let reads = state
            .reader
            .as_ref()
            .is_some_and(|reader| reader.number == self.reader);
        (!reads).then_some(state.cut)
    }

    /// Notifies `cut` when this reader is cut off. An HTTP library that waits for room
    /// in a socket does not poll the body, so the cut must reach it another way.
    pub(super) fn notify_cut(&mut self, cut: Rc<Notify>) {
        let mut state = self.queue.state.borrow_mut();
        match &mut state.reader {
            Some(reader) if reader.number == self.reader => reader.cut = Some(cut),
            _ => cut.notify_one(),
        }
    }

    /// What is to come was kept elsewhere and comes all at once.
    pub(super) fn expect_replay(&self) {
        self.queue.state.borrow_mut().replayed = true;
    }

    /// The call is a stream towards a client: from now on it is kept for it.
    pub(super) fn keep_for(&self, origin: &Rc<Origin>, learns: bool) -> StreamToken {
        self.queue.streams.enter(&self.queue, origin, learns)
    }

    /// The call goes on with a stream that was kept under this name.
    pub(super) fn keep_as(&self, token: StreamToken, cursor: u64) {
        self.queue.streams.replace(&self.queue, token, cursor);
    }

    /// The reader is on another unit and says by `written` how far it has come.
    pub(super) fn read_by(&self, written: &Arc<AtomicU64>) {
        let mut state = self.queue.state.borrow_mut();
        written.store(state.reached(), Ordering::Release);
        state.written = Some(written.clone());
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        let mut state = self.queue.state.borrow_mut();
        match &state.reader {
            Some(reader) if reader.number == self.reader => {}
            // Cut off; a stream that is kept is another's by now.
            _ if state.entry.is_some() || state.readers > 0 => return,
            _ => {}
        }
        state.reader = None;
        let kept = state.entry.is_some();
        let complete = matches!(state.phase, Phase::Complete);
        let broken = state.phase == Phase::Broken && state.last.is_some();
        drop(state);
        if kept {
            let _ = self.queue.streams.settle(&self.queue);
        } else if !complete && !broken {
            self.queue.give_up();
        }
    }
}

impl fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallHandle")
            .field("phase", &self.queue.state.borrow().phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::port::TransportError;
    use crate::edge::streams::tests::{Clock, bounds};
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
        let streams = Clock::new().streams(bounds(events, octets));
        let gone = Rc::new(Cell::new(0));
        let seen = gone.clone();
        let (sink, handle) = channel(&streams, move || seen.set(seen.get() + 1));
        (sink, handle, gone)
    }

    #[test]
    fn events_come_in_order_and_end() {
        let (sink, mut handle, gone) = counted(4, 1000);
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

    #[test]
    fn what_is_no_stream_comes_as_it_was_pushed() {
        let (sink, mut handle, gone) = counted(1, 1);
        sink.push(CallEvent::DocumentBegun).unwrap();
        let document = CallEvent::Document {
            document: Bytes::from_static(b"a document beyond the bound"),
            content_type: String::new(),
            proofs: Vec::new(),
        };
        sink.push(document).unwrap();
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::DocumentBegun))
        ));
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::Document { .. }))
        ));
        assert!(matches!(poll(&mut handle), Poll::Ready(None)));
        drop(handle);
        assert_eq!(gone.get(), 0);
        let (sink, mut handle, gone) = counted(4, 1000);
        sink.push(event(1, 1)).unwrap();
        let error = TransportError {
            code: 4,
            message: "agent died".into(),
            timed_out: false,
        };
        sink.push(CallEvent::TransportError(error)).unwrap();
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::StreamEvent { .. }))
        ));
        assert!(matches!(
            poll(&mut handle),
            Poll::Ready(Some(CallEvent::TransportError(_)))
        ));
        assert!(matches!(poll(&mut handle), Poll::Ready(None)));
        drop(handle);
        assert_eq!(gone.get(), 0);
    }

    /// Ruling R19: beyond the bound the call is cut, and its memory is returned.
    #[test]
    fn overflow_cuts_and_frees() {
        for (events, octets) in [(2, 1000), (100, 150)] {
            let clock = Clock::new();
            let streams = clock.streams(bounds(events, octets));
            let gone = Rc::new(Cell::new(0));
            let seen = gone.clone();
            let (sink, mut handle) = channel(&streams, move || seen.set(seen.get() + 1));
            let cut = Rc::new(Notify::new());
            handle.notify_cut(cut.clone());
            sink.push(event(1, 10)).unwrap();
            sink.push(event(2, 10)).unwrap();
            assert_eq!(sink.push(event(3, 10)), Err(Overflow));
            assert_eq!(streams.held_octets(), 0);
            assert_eq!(handle.cut(), Some(Cut::Slow));
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

    /// Ruling R19: a batch that does not fit cuts the client as single events would.
    #[test]
    fn a_batch_counts_as_its_events() {
        let batch = |ids: std::ops::RangeInclusive<u64>| {
            let mut events = StreamEvents::default();
            ids.for_each(|event_id| events.push(event_id, b"{}"));
            events
        };
        let streams = Clock::new().streams(bounds(4, 1000));
        let (sink, mut handle) = channel(&streams, || {});
        sink.push_events(batch(1..=3)).unwrap();
        sink.push(event(4, 2)).unwrap();
        assert_eq!(streams.held_octets(), 4 * (2 + HELD_EVENT_OCTETS));
        let mut seen = Vec::new();
        let mut take = |event_id, octets: &Bytes, at: Range<usize>| {
            assert_eq!(octets[at].len(), 2);
            seen.push(event_id);
            true
        };
        assert_eq!(handle.hand_out(&mut take), 4);
        assert_eq!(handle.hand_out(&mut take), 0);
        assert_eq!(seen, [1, 2, 3, 4]);
        sink.push_events(batch(5..=8)).unwrap();
        assert_eq!(sink.waiting_events(), 4);
        assert_eq!(sink.push_events(batch(9..=10)), Err(Overflow));
        assert_eq!(streams.held_octets(), 0);
        assert_eq!(handle.hand_out(|_, _, _| true), 0);
        assert_eq!(handle.cut(), Some(Cut::Slow));
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
        assert!(handle.cut().is_none());
        drop(handle);
        assert_eq!(gone.get(), 1);
    }
}
