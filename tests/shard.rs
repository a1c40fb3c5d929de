//! A shard over real sockets: what one link may take of a turn, what an idle one
//! keeps, and that two shards which say all they can to each other both go on.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]
#![allow(unsafe_code, reason = "an allocator that counts")]

#[path = "../benches/support/engine.rs"]
mod rig;
#[path = "../benches/support/mod.rs"]
mod support;

use npamp_relay::association::{Event, SendError};
use npamp_relay::engine::shard::{Down, Handler, LinkId, LinkInfo, Shard, ShardCount, ShardStats};
use npamp_relay::engine::wake::Wake;
use npamp_relay::limits::{
    IN_FLIGHT_OCTETS_MAX, OUTBOUND_QUEUE_HIGH_OCTETS, RECEIVE_BUFFER_OCTETS, RECEIVE_CREDIT_OCTETS,
};
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use rig::{Near, Rig};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// Counts what the calling thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn held(octets: usize, sign: isize) {
    let octets = sign * isize::try_from(octets).unwrap_or(0);
    let _ = HELD.try_with(|held| held.set(held.get() + octets));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        held(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        held(layout.size(), -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Remembers what came.
#[derive(Default)]
struct Ear {
    ready: usize,
    frames: Vec<(LinkId, usize)>,
}

impl Handler for Ear {
    fn up(&mut self, _: LinkId, _: &LinkInfo) {}

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        match event {
            Event::Ready(_) => self.ready += 1,
            Event::Frame { payload, .. } => self.frames.push((link, payload.len())),
            _ => {}
        }
    }

    fn down(&mut self, link: LinkId, reason: &Down) {
        panic!("{}: {reason}", link.number());
    }
}

struct Rigged {
    shard: Shard,
    stats: Arc<ShardStats>,
    ear: Ear,
    rig: Rig,
}

impl Rigged {
    fn new() -> Self {
        let stats = Arc::new(ShardStats::default());
        let wake = Arc::new(Wake::new().unwrap());
        Self {
            shard: Shard::new(wake, stats.clone()).unwrap(),
            stats,
            ear: Ear::default(),
            rig: Rig::new(),
        }
    }

    fn turn(&mut self) {
        self.shard.turn(&mut self.ear).unwrap();
        self.shard.flush();
    }

    /// Turns until `done`.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < SOON, "it does not come");
            self.turn();
            std::thread::yield_now();
        }
    }

    fn connect(&mut self) -> (LinkId, TcpStream, Near) {
        let (mut socket, mut near, handed) = self.rig.connect();
        let link = self.shard.adopt(*handed, &mut self.ear).unwrap();
        let mut octets = Vec::new();
        near.transmit(&mut octets);
        socket.write_all(&octets).unwrap();
        let ready = self.ear.ready + 1;
        self.until(|rigged| rigged.ear.ready == ready);
        self.turn();
        let mut buffer = vec![0; 1 << 16];
        let octets = socket.read(&mut buffer).unwrap();
        assert_eq!(near.take(&mut buffer[..octets]), 0);
        (link, socket, near)
    }

    fn send(&mut self, link: LinkId, octets: usize) -> Result<(), SendError> {
        self.shard.send(
            link,
            ChannelId::BRIDGE,
            FrameType::BRIDGE_NOTIFY,
            Flags::NONE,
            vec![0xa5; octets],
        )
    }

    fn received(&self) -> u64 {
        self.stats.work.get(ShardCount::OctetsReceived)
    }
}

/// A peer that sends all it can has no more than its credit of a turn, and what another one
/// says is not heard behind what the first one has sent.
#[test]
fn a_flood_has_its_share_of_a_turn() {
    let mut rigged = Rigged::new();
    if !rigged.shard.is_credited() {
        println!("skipped: this kernel does not bound receives");
        return;
    }
    let (flood, mut flooding, mut source) = rigged.connect();
    let (calm, mut calm_socket, mut other) = rigged.connect();
    let mut octets = Vec::new();
    source.seal(8192, 1024, 16, &mut octets);
    let writer = std::thread::spawn(move || {
        flooding.write_all(&octets).unwrap();
        flooding
    });
    let share = u64::from(RECEIVE_CREDIT_OCTETS) + RECEIVE_BUFFER_OCTETS as u64;
    let (mut small, mut asked, mut most) = (Vec::new(), 0, 0);
    let heard = |rigged: &Rigged, link| rigged.ear.frames.iter().filter(|f| f.0 == link).count();
    let started = Instant::now();
    while heard(&rigged, flood) < 8192 {
        assert!(started.elapsed() < SOON);
        small.clear();
        other.seal(1, 64, 1, &mut small);
        calm_socket.write_all(&small).unwrap();
        asked += 1;
        let came = rigged.received();
        while heard(&rigged, calm) < asked {
            assert!(started.elapsed() < SOON);
            let before = rigged.received();
            rigged.turn();
            most = most.max((rigged.received() - before).saturating_sub(small.len() as u64));
        }
        // The next turn, unless the kernel was late.
        let meanwhile = rigged.received() - came;
        assert!(meanwhile <= 4 * share, "{meanwhile} octets came first");
    }
    assert!(most <= share, "{most} octets in one turn");
    assert!(asked > 8, "the flood took {asked} turns only");
    writer.join().unwrap();
}

/// A frame far longer than may be in flight goes to the kernel piece by piece, a piece a turn.
#[test]
fn a_long_frame_leaves_in_pieces() {
    const LONG: usize = 4 << 20;
    let mut rigged = Rigged::new();
    let (link, mut socket, mut near) = rigged.connect();
    let sockets = socket2::SockRef::from(&socket);
    sockets.set_recv_buffer_size(2 * LONG).unwrap();
    rigged.send(link, LONG).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut buffer, mut frames) = (vec![0; 1 << 20], 0);
        while frames == 0 {
            let octets = socket.read(&mut buffer).unwrap();
            frames += near.take(&mut buffer[..octets]);
        }
        frames
    });
    let sent = |rigged: &Rigged| rigged.stats.work.get(ShardCount::OctetsSent);
    let (start, mut before, mut most) = (sent(&rigged), sent(&rigged), 0);
    let started = Instant::now();
    while sent(&rigged) - start < LONG as u64 {
        assert!(started.elapsed() < SOON);
        rigged.turn();
        most = most.max(sent(&rigged) - before);
        before = sent(&rigged);
    }
    let bound = 2 * IN_FLIGHT_OCTETS_MAX + 64 * 1024;
    assert!(most <= bound as u64, "{most} octets in one turn");
    assert_eq!(reader.join().unwrap(), 1);
}

/// What a link keeps when it is idle again: at most 16 KiB of heap.
#[test]
fn an_idle_link_is_small() {
    const LINKS: usize = 64;
    let mut rigged = Rigged::new();
    let mut ends = Vec::new();
    // What is there once for all of them comes with the first.
    let (link, socket, near) = rigged.connect();
    drop(near);
    ends.push((link, socket));
    ends.reserve(LINKS);
    let before = HELD.get();
    for _ in 0..LINKS {
        let (link, mut socket, mut near) = rigged.connect();
        // Something is said both ways, in more than one frame.
        let mut octets = Vec::new();
        near.seal(64, 1024, 16, &mut octets);
        socket.write_all(&octets).unwrap();
        let frames = rigged.ear.frames.len() + 64;
        rigged.until(|rigged| rigged.ear.frames.len() == frames);
        for _ in 0..64 {
            rigged.send(link, 1024).unwrap();
        }
        rigged.turn();
        rigged.turn();
        let (mut buffer, mut back) = (vec![0; 1 << 16], 0);
        while back < 64 {
            let octets = socket.read(&mut buffer).unwrap();
            back += near.take(&mut buffer[..octets]);
        }
        // The other end was made on this thread too, and counted.
        drop(near);
        ends.push((link, socket));
        rigged.turn();
    }
    rigged.ear.frames = Vec::new();
    let each = (HELD.get() - before) / isize::try_from(LINKS).unwrap();
    println!("{each} octets a link");
    assert!(each <= 16 * 1024, "{each} octets a link");
    assert_eq!(rigged.shard.links(), LINKS + 1);
}

/// One end of a pair that says all it can.
fn say_all(
    shard: &mut Shard,
    ear: &mut Ear,
    link: LinkId,
    heard: &AtomicU64,
    start: &Barrier,
    until: Duration,
) {
    start.wait();
    let started = Instant::now();
    while started.elapsed() < until {
        shard.turn(ear).unwrap();
        let frames = ear.frames.drain(..).len();
        heard.fetch_add(frames as u64, Ordering::Relaxed);
        while shard
            .queued_octets(link)
            .is_some_and(|octets| octets < OUTBOUND_QUEUE_HIGH_OCTETS)
        {
            shard
                .send(
                    link,
                    ChannelId::BRIDGE,
                    FrameType::BRIDGE_NOTIFY,
                    Flags::NONE,
                    vec![0xa5; 32 * 1024],
                )
                .unwrap();
        }
        shard.flush();
        std::thread::yield_now();
    }
    // Both stay until both are through.
    start.wait();
}

/// Two shards that say all they can to each other through small sockets: since what comes is
/// always taken, neither ever waits for the other to stop.
#[test]
fn saturation_both_ways_does_not_stall() {
    let until = Duration::from_secs(2);
    let heard = [AtomicU64::new(0), AtomicU64::new(0)];
    let start = Barrier::new(2);
    let rig = Rig::new();
    let (near, far) = rig.connect_handed();
    for handed in [&near, &far] {
        let socket = socket2::SockRef::from(&handed.socket);
        socket.set_send_buffer_size(16 * 1024).unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
    }
    std::thread::scope(|scope| {
        for (handed, heard) in [near, far].into_iter().zip(&heard) {
            let start = &start;
            scope.spawn(move || {
                let wake = Arc::new(Wake::new().unwrap());
                let mut shard = Shard::new(wake, Arc::default()).unwrap();
                let mut ear = Ear::default();
                let link = shard.adopt(*handed, &mut ear).unwrap();
                let started = Instant::now();
                while ear.ready == 0 {
                    assert!(started.elapsed() < SOON);
                    shard.flush();
                    shard.turn(&mut ear).unwrap();
                }
                shard.flush();
                for quarter in 1..=4 {
                    let before = heard.load(Ordering::Relaxed);
                    say_all(&mut shard, &mut ear, link, heard, start, until / 4);
                    let got = heard.load(Ordering::Relaxed) - before;
                    assert!(got > 0, "nothing came in quarter {quarter}");
                }
            });
        }
    });
}
