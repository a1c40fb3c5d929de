//! The table of streams on a clock that the test moves.

use super::*;
use crate::a2a::port::{CallEvent, TransportError};
use crate::bridge::correlation::CorrelationId;
use crate::edge::call::{CallSink, Cut, channel};
use bytes::Bytes;
use std::task::{Context, Poll, Waker};

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    static DRAWN: Cell<u8> = const { Cell::new(0) };
}

fn read_clock() -> Instant {
    NOW.get().unwrap()
}

/// A clock that stands until it is moved, one for a thread.
pub(in crate::edge) struct Clock(pub(in crate::edge) Arc<EdgeStats>);

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
    pub(in crate::edge) fn new() -> Self {
        NOW.set(Some(Instant::now()));
        Self(Arc::default())
    }

    pub(in crate::edge) fn streams(&self, bounds: StreamBounds) -> Rc<Streams> {
        self.among(bounds, Arc::new(Directory::new(1 << 30)))
    }

    fn among(&self, bounds: StreamBounds, directory: Arc<Directory>) -> Rc<Streams> {
        fn draw(octets: &mut [u8]) {
            DRAWN.set(DRAWN.get() + 1);
            octets.fill(DRAWN.get());
        }
        Streams::new(3, bounds, directory, self.0.clone(), draw, read_clock)
    }

    fn pass(streams: &Streams, time: Duration) {
        NOW.set(Some(read_clock() + time));
        streams.expire(read_clock());
    }
}

pub(in crate::edge) fn bounds(events: usize, octets: usize) -> StreamBounds {
    let wide = Bounds { events, octets };
    StreamBounds {
        history: wide,
        window: wide,
        grace: GRACE,
        retention: RETENTION,
        kept_max: 8,
    }
}

const GRACE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(120);
/// What is left of the retention after the grace.
const REST: Duration = Duration::from_secs(90);

struct Bench {
    clock: Clock,
    streams: Rc<Streams>,
    origin: Rc<Origin>,
}

/// A stream with a client.
struct Stream {
    sink: CallSink,
    token: StreamToken,
    gone: Rc<Cell<u32>>,
}

impl Stream {
    fn event(&self, event_id: u64) {
        self.say(event_id, "\"x\"");
    }

    fn say(&self, event_id: u64, result: &str) {
        let object = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).into();
        let event = CallEvent::StreamEvent { event_id, object };
        self.sink.push(event).unwrap();
    }

    fn end(&self, event_id: u64) {
        self.sink
            .push(CallEvent::StreamEnd {
                event_id,
                object: Some(Bytes::from_static(b"end")),
            })
            .unwrap();
    }

    fn ticket(&self) -> ResumeTicket {
        let ticket = ResumeTicket {
            correlation_id: CorrelationId::new(b"c").unwrap(),
            method: "tasks/resubscribe".into(),
            id: "1".into(),
            object: Bytes::from_static(&[b' '; 2 * limits::TICKET_OCTETS_FREE]),
            upstream: Some(0),
        };
        self.sink.set_ticket(Some(Box::new(ticket.clone())));
        ticket
    }
}

impl Bench {
    fn new(bounds: StreamBounds) -> Self {
        let clock = Clock::new();
        Self {
            streams: clock.streams(bounds),
            clock,
            origin: Rc::new(Origin {
                ingress: 1,
                client: Some([7; 32]),
                route: 2,
            }),
        }
    }

    fn open(&self) -> (Stream, CallHandle) {
        let gone = Rc::new(Cell::new(0));
        let seen = gone.clone();
        let (sink, handle) = channel(&self.streams, move || seen.set(seen.get() + 1));
        let token = handle.keep_for(&self.origin, true);
        (Stream { sink, token, gone }, handle)
    }

    fn resume(&self, stream: &Stream, cursor: u64) -> Result<Continued, NotContinued> {
        let from = From::Cursor(cursor);
        self.streams.resume(stream.token, &self.origin, from)
    }

    #[track_caller]
    fn window(&self, stream: &Stream, cursor: u64) -> CallHandle {
        match self.resume(stream, cursor) {
            Ok(Continued::Window(handle)) => handle,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(&self, stream: &Stream, cursor: u64) -> NotContinued {
        self.resume(stream, cursor).map(|_| ()).unwrap_err()
    }

    fn fate(&self, fate: StreamFate) -> u64 {
        self.clock.0.stream_fates.get(fate)
    }

    /// Nothing is left behind.
    #[track_caller]
    fn empty(&self) {
        assert!(self.streams.is_empty());
        assert_eq!(self.streams.held_octets(), 0);
        assert_eq!(self.streams.directory.held_octets(), 0);
        assert_eq!(self.streams.directory.tasks(), 0);
        assert_eq!(self.clock.0.streams_detached.get(), 0);
        let table = self.streams.table.borrow();
        assert_eq!(table.shelved, 0);
    }
}

fn read(handle: &mut CallHandle) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        match handle.poll_event(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(
                CallEvent::StreamEvent { event_id, .. } | CallEvent::StreamEnd { event_id, .. },
            )) => ids.push(event_id),
            Poll::Ready(Some(_) | None) | Poll::Pending => return ids,
        }
    }
}

/// NPAMP-CC-STREAM §7, ruling R17: a client that comes back in time misses nothing.
#[test]
fn leaves_and_comes_back() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut handle) = bench.open();
    (1..=3).for_each(|n| stream.event(n));
    assert_eq!(read(&mut handle), [1, 2, 3]);
    drop(handle);
    assert_eq!(bench.clock.0.streams_detached.get(), 1);
    Clock::pass(&bench.streams, Duration::from_secs(29));
    (4..=5).for_each(|n| stream.event(n));
    let mut handle = bench.window(&stream, 2);
    assert_eq!(bench.clock.0.streams_detached.get(), 0);
    Clock::pass(&bench.streams, 2 * GRACE);
    stream.event(6);
    assert_eq!(read(&mut handle), [3, 4, 5, 6]);
    stream.end(7);
    assert_eq!(read(&mut handle), [7]);
    drop(handle);
    assert!(matches!(bench.resume(&stream, 7), Ok(Continued::Complete)));
    let mut handle = bench.window(&stream, 5);
    assert_eq!(read(&mut handle), [6, 7]);
    drop(handle);
    Clock::pass(&bench.streams, GRACE);
    assert_eq!(bench.refused(&stream, 5), NotContinued::Unknown);
    assert_eq!((stream.gone.get(), bench.fate(StreamFate::Expired)), (0, 0));
    bench.empty();
}

/// NPAMP-CC-STREAM §7: then it is cancelled, exactly once, and nothing is left.
#[test]
fn nobody_comes_back() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut handle) = bench.open();
    stream.ticket();
    stream.event(1);
    read(&mut handle);
    drop(handle);
    Clock::pass(&bench.streams, Duration::from_millis(29_999));
    assert_eq!(stream.gone.get(), 0);
    stream.event(2);
    Clock::pass(&bench.streams, Duration::from_millis(1));
    assert_eq!(stream.gone.get(), 1);
    let event = CallEvent::StreamEvent {
        event_id: 3,
        object: Bytes::new(),
    };
    assert!(stream.sink.push(event).is_err());
    assert_eq!(bench.refused(&stream, 1), NotContinued::Unknown);
    drop(stream.sink);
    assert_eq!((stream.gone.get(), bench.fate(StreamFate::Expired)), (1, 1));
    bench.empty();
}

#[test]
fn what_nobody_had_anything_of_is_given_up_at_once() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, handle) = bench.open();
    stream.event(1);
    drop(handle);
    assert_eq!(stream.gone.get(), 1);
    bench.empty();
    let none = StreamBounds {
        grace: Duration::ZERO,
        ..bounds(100, 1 << 20)
    };
    let bench = Bench::new(none);
    let (stream, mut handle) = bench.open();
    stream.event(1);
    read(&mut handle);
    drop(handle);
    assert_eq!(stream.gone.get(), 1);
    bench.empty();
}

/// Ruling R17: nobody else gets it, and no position is taken that was not sent.
#[test]
fn only_its_own_client_and_only_what_was_sent() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut handle) = bench.open();
    (1..=3).for_each(|n| stream.event(n));
    handle
        .poll_event(&mut Context::from_waker(Waker::noop()))
        .is_ready();
    for origin in [
        Origin {
            client: None,
            ..(*bench.origin).clone()
        },
        Origin {
            client: Some([8; 32]),
            ..(*bench.origin).clone()
        },
        Origin {
            route: 1,
            ..(*bench.origin).clone()
        },
        Origin {
            ingress: 0,
            ..(*bench.origin).clone()
        },
    ] {
        let refused = bench
            .streams
            .resume(stream.token, &origin, From::Cursor(1))
            .map(|_| ());
        assert_eq!(refused, Err(NotContinued::Foreign));
    }
    assert_eq!(bench.refused(&stream, 2), NotContinued::Ahead);
    assert_eq!(handle.cut(), None, "a refusal takes nothing over");
    let unknown = StreamToken::new([99; 16], 3);
    let refused = bench
        .streams
        .resume(unknown, &bench.origin, From::Cursor(0))
        .map(|_| ());
    assert_eq!(refused, Err(NotContinued::Unknown));
}

/// Ruling R17: the newer connection takes it over.
#[test]
fn the_newer_reader_has_it() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut old) = bench.open();
    (1..=3).for_each(|n| stream.event(n));
    assert_eq!(read(&mut old), [1, 2, 3]);
    let mut new = bench.window(&stream, 1);
    assert_eq!((old.cut(), new.cut()), (Some(Cut::TakenOver), None));
    assert_eq!(read(&mut old), [0; 0]);
    drop(old);
    stream.event(4);
    assert_eq!(read(&mut new), [2, 3, 4]);
    drop(new);
    assert_eq!(bench.fate(StreamFate::Detached), 1);
}

/// Ruling R19: a slow client is cut, its stream goes on and slides.
#[test]
fn a_slow_client_is_cut_and_its_stream_slides_on() {
    let bench = Bench::new(bounds(4, 1 << 20));
    let (stream, mut handle) = bench.open();
    stream.event(1);
    assert_eq!(read(&mut handle), [1]);
    (2..=5).for_each(|n| stream.event(n));
    assert_eq!(handle.cut(), None);
    stream.event(6);
    assert_eq!(handle.cut(), Some(Cut::Slow));
    drop(handle);
    assert_eq!(bench.refused(&stream, 1), NotContinued::NotHeld);
    (7..=20).for_each(|n| stream.event(n));
    assert_eq!(bench.refused(&stream, 1), NotContinued::NotHeld);
    assert_eq!(bench.clock.0.streams_detached.get(), 1);
    let ticket = stream.ticket();
    assert_eq!(
        bench.refused(&stream, 1),
        NotContinued::NotHeld,
        "the stream is live: its producer cannot be asked"
    );
    stream.end(21);
    match bench.resume(&stream, 1) {
        Ok(Continued::Wire {
            ticket: own,
            cursor,
        }) => assert_eq!((*own, cursor), (ticket, 1)),
        other => panic!("{other:?}"),
    }
    assert_eq!(stream.gone.get(), 0);
    Clock::pass(&bench.streams, GRACE);
    assert!(matches!(
        bench.resume(&stream, 1),
        Ok(Continued::Wire { .. })
    ));
    let ticket = limits::TICKET_OCTETS_FREE + "1".len();
    assert_eq!(bench.streams.held_octets(), ticket, "its object and id");
    Clock::pass(&bench.streams, REST);
    bench.empty();
}

/// What its producer sends again takes the place of what was kept.
#[test]
fn a_stream_from_its_producer_keeps_its_name() {
    let bench = Bench::new(bounds(4, 1 << 20));
    let (stream, mut handle) = bench.open();
    let ticket = stream.ticket();
    stream.event(1);
    read(&mut handle);
    drop(handle);
    (2..=20).for_each(|n| stream.event(n));
    stream.end(21);
    let (sink, mut again) = channel(&bench.streams, || panic!("it is complete"));
    let again_stream = Stream {
        sink,
        token: stream.token,
        gone: Rc::default(),
    };
    again_stream.event(2);
    again.keep_as(stream.token, 1);
    again_stream.event(3);
    assert_eq!(read(&mut again), [2, 3]);
    drop(again);
    let mut again = bench.window(&stream, 1);
    assert_eq!(read(&mut again), [2, 3]);
    again_stream.end(21);
    assert_eq!(read(&mut again), [21]);
    match bench.resume(&stream, 0) {
        Ok(Continued::Wire { ticket: own, .. }) => assert_eq!(*own, ticket),
        other => panic!("{other:?}"),
    }
    drop(again);
    Clock::pass(&bench.streams, RETENTION);
    Clock::pass(&bench.streams, RETENTION);
    bench.empty();
}

/// Ruling R17: what broke below JSON-RPC may be whole at its producer.
#[test]
fn a_broken_stream_is_asked_for() {
    let bench = Bench::new(bounds(4, 1 << 20));
    for ticket in [false, true] {
        let (stream, mut handle) = bench.open();
        stream.event(1);
        read(&mut handle);
        if ticket {
            stream.ticket();
        }
        let error = TransportError {
            code: 4,
            message: "association lost".into(),
            timed_out: false,
        };
        stream.sink.push(CallEvent::TransportError(error)).unwrap();
        drop(handle);
        match bench.resume(&stream, 1) {
            Ok(Continued::Wire { .. }) => assert!(ticket),
            Ok(Continued::Window(mut handle)) => {
                assert!(!ticket);
                let told = handle.poll_event(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(
                    told,
                    Poll::Ready(Some(CallEvent::TransportError(_)))
                ));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Ruling R17: `tasks/resubscribe` finds a task's stream while it is detached.
#[test]
fn a_task_leads_to_its_detached_stream() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut handle) = bench.open();
    let find = |task| bench.streams.directory.find_task(&bench.origin, task);
    stream.say(1, r#"{"kind":"task","id":"t1"}"#);
    stream.say(2, r#"{"kind":"status-update","taskId":"other"}"#);
    read(&mut handle);
    assert_eq!(find("t1"), None, "somebody reads it");
    let attached = bench
        .streams
        .resume(stream.token, &bench.origin, From::HandedOut)
        .map(|_| ());
    assert_eq!(attached, Err(NotContinued::Attached));
    drop(handle);
    assert_eq!(find("t1"), Some(stream.token));
    assert_eq!(find("other"), None);
    stream.say(3, "{}");
    let resumed = bench
        .streams
        .resume(stream.token, &bench.origin, From::HandedOut);
    let Ok(Continued::Window(mut handle)) = resumed else {
        panic!("{resumed:?}");
    };
    assert_eq!(find("t1"), None);
    assert_eq!(read(&mut handle), [3]);
    drop(handle);
    stream.end(4);
    assert_eq!(find("t1"), Some(stream.token), "its end was not read");
    let handle = bench.window(&stream, 3);
    drop(handle);
    Clock::pass(&bench.streams, RETENTION);
    bench.empty();
}

#[test]
fn only_so_many_are_kept_and_what_is_over_goes_first() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let open = |end| {
        let (stream, mut handle) = bench.open();
        stream.event(1);
        if end {
            stream.end(2);
        }
        read(&mut handle);
        stream
    };
    let live: Vec<Stream> = (0..4).map(|_| open(false)).collect();
    let over: Vec<Stream> = (0..5).map(|_| open(true)).collect();
    assert_eq!(bench.refused(&over[0], 1), NotContinued::Unknown);
    for stream in &over[1..] {
        drop(bench.window(stream, 1));
    }
    let more: Vec<Stream> = (0..5).map(|_| open(false)).collect();
    assert_eq!(bench.streams.len(), 8);
    assert_eq!(live[0].gone.get(), 1, "the oldest of those that go on");
    assert!(live[1..].iter().chain(&more).all(|s| s.gone.get() == 0));
    Clock::pass(&bench.streams, GRACE);
    bench.empty();
}

#[test]
fn all_windows_together_hold_so_much() {
    let clock = Clock::new();
    let directory = Arc::new(Directory::new(4000));
    let bench = Bench {
        streams: clock.among(bounds(1000, 1 << 20), directory.clone()),
        clock,
        origin: Rc::new(Origin {
            ingress: 0,
            client: None,
            route: 0,
        }),
    };
    let (over, mut handle) = bench.open();
    (1..=10).for_each(|n| over.event(n));
    over.end(11);
    read(&mut handle);
    drop(handle);
    let (stream, mut handle) = bench.open();
    for n in 1..=100 {
        stream.event(n);
        assert_eq!(read(&mut handle), [n], "a client that keeps up is not cut");
        assert!(directory.held_octets() <= 4000);
    }
    assert_eq!(
        bench.refused(&over, 1),
        NotContinued::Unknown,
        "it went first"
    );
    let (slow, mut slow_handle) = bench.open();
    slow.event(1);
    read(&mut slow_handle);
    let mut n = 1;
    while slow_handle.cut().is_none() {
        n += 1;
        slow.event(n);
        assert!(n < 100 && directory.held_octets() <= 4000 + 200);
    }
    bench.streams.drain();
    drop((handle, slow_handle));
    bench.empty();
}

/// A unit that takes nothing new waits for nobody who cannot come back.
#[test]
fn draining_gives_up_what_is_detached() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (stream, mut handle) = bench.open();
    let (other, mut other_handle) = bench.open();
    for (stream, handle) in [(&stream, &mut handle), (&other, &mut other_handle)] {
        stream.event(1);
        read(handle);
    }
    drop(handle);
    bench.streams.drain();
    assert_eq!((stream.gone.get(), other.gone.get()), (1, 0));
    other.event(2);
    assert_eq!(read(&mut other_handle), [2]);
    drop(other_handle);
    assert_eq!(other.gone.get(), 1);
    bench.empty();
}

/// What a client's requests are remembered by is bounded, too: a long id or object is no way
/// to have the relay hold more than it may.
#[test]
fn tickets_are_bounded() {
    let clock = Clock::new();
    let directory = Arc::new(Directory::new(4000));
    let bench = Bench {
        streams: clock.among(bounds(1000, 1 << 20), directory.clone()),
        clock,
        origin: Rc::new(Origin {
            ingress: 0,
            client: None,
            route: 0,
        }),
    };
    let mut streams = Vec::new();
    for n in 0..7 {
        let (stream, mut handle) = bench.open();
        stream.event(1);
        let mut ticket = stream.ticket();
        let long = "7".repeat(1000);
        if n % 2 == 0 {
            ticket.id = long.into();
        } else {
            ticket.object = long.into();
        }
        stream.sink.set_ticket(Some(Box::new(ticket)));
        stream.end(2);
        read(&mut handle);
        drop(handle);
        assert!(directory.held_octets() <= 4000);
        streams.push(stream);
    }
    assert_eq!(bench.refused(&streams[0], 1), NotContinued::Unknown);
    drop(bench.window(&streams[6], 1));
    Clock::pass(&bench.streams, GRACE);
    assert!(matches!(
        bench.resume(&streams[6], 1),
        Ok(Continued::Wire { .. })
    ));
    let (huge, handle) = bench.open();
    huge.event(1);
    let mut ticket = huge.ticket();
    ticket.id = "7".repeat(4000).into();
    huge.sink.set_ticket(Some(Box::new(ticket)));
    assert!(bench.streams.held_octets() <= 4000, "it cannot be resumed");
    drop(handle);
    bench.streams.drain();
    bench.empty();
}

/// A client that comes back and leaves again and again leaves nothing behind each time.
#[test]
fn void_times_do_not_pile_up() {
    let bench = Bench::new(bounds(100, 1 << 20));
    let (goes_on, mut handle) = bench.open();
    goes_on.event(1);
    read(&mut handle);
    drop(handle);
    let (over, mut handle) = bench.open();
    over.event(1);
    over.end(2);
    read(&mut handle);
    drop(handle);
    for _ in 0..10_000 {
        Clock::pass(&bench.streams, Duration::from_millis(1));
        drop(bench.window(&goes_on, 0));
        drop(bench.window(&over, 0));
        let table = bench.streams.table.borrow();
        let times = table.detached.len() + table.ended.len();
        assert!(times <= 2 * (2 * 2 + VOID_TIMES_MIN + 1), "{times}");
    }
    Clock::pass(&bench.streams, GRACE + REST);
    Clock::pass(&bench.streams, REST);
    bench.empty();
}
