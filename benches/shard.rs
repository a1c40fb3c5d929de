//! The whole native path of one thread (`src/engine/shard.rs`) over loopback: frames
//! come in, are opened, copied as a mapping would, sealed and sent back. Beside it
//! the kernel's share alone, on the same ring: what arrives is copied and sent.
//!
//! What is sent was sealed before, so that the other end costs system calls only;
//! it has a core of its own. Figures are CPU time of the thread that is measured,
//! all of it: completions, system calls, sleep and waking included.
#![allow(missing_docs)] // criterion_group! makes public items
#![allow(clippy::disallowed_methods)] // a bench reads the clock and starts threads
#![allow(unsafe_code)] // sends through the ring, reads a thread's clock

#[path = "support/engine.rs"]
mod rig;
mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::association::Event;
use npamp_relay::engine::ring::{Completion, Ring};
use npamp_relay::engine::shard::{Down, Handler, LinkId, LinkInfo, Shard, ShardStats};
use npamp_relay::engine::{cores, wake::Wake};
use npamp_relay::limits::{OUTBOUND_QUEUE_HIGH_OCTETS, RECEIVE_BUFFER_OCTETS};
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use rig::{Near, Rig, thread_time};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Payload of a frame of 356 octets: an event of 256 octets in its envelope.
const SMALL: usize = 356 - 36 - 16;
/// Payload of a frame of 16 KiB.
const LARGE: usize = 16 * 1024 - 36 - 16;
/// Connections with one frame outstanding each.
const SPARSE: usize = 64;

/// Sends every frame back.
#[derive(Default)]
struct Echo {
    heard: Vec<(LinkId, Vec<u8>)>,
    ready: usize,
    frames: u64,
}

impl Handler for Echo {
    fn up(&mut self, _: LinkId, _: &LinkInfo) {}

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        match event {
            Event::Ready(_) => self.ready += 1,
            Event::Frame { payload, .. } => self.heard.push((link, payload.to_vec())),
            _ => {}
        }
    }

    fn down(&mut self, _: LinkId, reason: &Down) {
        panic!("{reason}");
    }
}

/// A shard that sends frames back, on the calling thread.
struct Service {
    shard: Shard,
    wake: Arc<Wake>,
    echo: Echo,
    /// The link heard of last.
    last: Option<LinkId>,
}

impl Service {
    fn new() -> Self {
        let wake = Arc::new(Wake::new().expect("an eventfd"));
        let stats = Arc::new(ShardStats::default());
        Self {
            shard: Shard::new(wake.clone(), stats).expect("a ring"),
            wake,
            echo: Echo::default(),
            last: None,
        }
    }

    /// A connection that has exchanged HELLO.
    fn connect(&mut self, rig: &Rig) -> (TcpStream, Near) {
        let (mut socket, mut near, handed) = rig.connect();
        self.shard.adopt(*handed, &mut self.echo).expect("room");
        let mut out = Vec::new();
        near.transmit(&mut out);
        socket.write_all(&out).expect("room");
        let ready = self.echo.ready + 1;
        while self.echo.ready < ready {
            self.turn();
        }
        self.turn();
        let mut buffer = vec![0; 1 << 16];
        let octets = socket.read(&mut buffer).expect("HELLO");
        assert_eq!(near.take(&mut buffer[..octets]), 0);
        (socket, near)
    }

    fn turn(&mut self) -> bool {
        let worked = self.shard.turn(&mut self.echo).expect("a turn");
        for (link, payload) in self.echo.heard.drain(..) {
            self.echo.frames += 1;
            self.shard
                .send(
                    link,
                    ChannelId::BRIDGE,
                    FrameType::BRIDGE_STREAM_DATA,
                    Flags::NONE,
                    payload,
                )
                .expect("room");
            self.last = Some(link);
        }
        self.shard.flush();
        // What comes waits while much is to be said.
        let queued = self.last.and_then(|link| self.shard.queued_octets(link));
        self.shard
            .pause(queued.unwrap_or(0) > OUTBOUND_QUEUE_HIGH_OCTETS);
        worked
    }

    /// Sends back `frames` frames; the CPU time that took.
    fn serve(&mut self, frames: u64) -> Duration {
        self.echo.frames = 0;
        let started = thread_time();
        while self.echo.frames < frames {
            if !self.turn() {
                self.wake.prepare_sleep();
                if !self.turn() && !self.shard.has_work() {
                    sleep(&self.wake);
                }
                self.wake.awake();
            }
        }
        self.turn();
        thread_time().saturating_sub(started)
    }
}

fn sleep(wake: &Wake) {
    let mut doorbell = libc::pollfd {
        fd: wake.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: names one struct that lives here.
    unsafe { libc::poll(&raw mut doorbell, 1, 1000) };
}

/// Sends back what it receives, without looking at it.
struct Plain {
    ring: Ring,
    wake: Arc<Wake>,
    sockets: Vec<TcpStream>,
    /// What is on its way out, and what waits, by slot.
    sending: Vec<(Vec<u8>, bool)>,
    waiting: Vec<Vec<u8>>,
    completions: Vec<Completion>,
}

impl Plain {
    fn new(rig: &Rig, connections: usize) -> (Self, Vec<TcpStream>) {
        let wake = Arc::new(Wake::new().expect("an eventfd"));
        let mut ring = Ring::new(wake.clone()).expect("a ring");
        let (near, sockets): (Vec<_>, Vec<_>) = (0..connections)
            .map(|_| rig.sockets())
            .map(|(near, far, _)| (near, far))
            .unzip();
        for (slot, socket) in (0..).zip(&sockets) {
            ring.register(slot, socket.as_raw_fd());
            ring.receive(slot, socket.as_raw_fd()).expect("room");
        }
        let plain = Self {
            ring,
            wake,
            sending: vec![(Vec::new(), false); connections],
            waiting: vec![Vec::new(); connections],
            sockets,
            completions: Vec::new(),
        };
        (plain, near)
    }

    fn flush(&mut self, slot: u32) {
        let at = slot as usize;
        let (octets, busy) = &mut self.sending[at];
        if !*busy && !self.waiting[at].is_empty() {
            octets.clear();
            std::mem::swap(octets, &mut self.waiting[at]);
            *busy = true;
            let fd = self.sockets[at].as_raw_fd();
            // SAFETY: `busy` keeps the octets untouched until the send has completed.
            unsafe { self.ring.send(slot, fd, octets).expect("room") };
        }
    }

    fn turn(&mut self) -> (bool, u64) {
        self.ring.enter().expect("a turn");
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.completions(&mut completions);
        let (worked, mut taken) = (!completions.is_empty(), 0);
        for completion in completions.drain(..) {
            match completion {
                Completion::Received {
                    slot,
                    buffer,
                    octets,
                    armed,
                } => {
                    taken += octets as u64;
                    self.waiting[slot as usize]
                        .extend_from_slice(self.ring.received(buffer, octets));
                    self.ring.give_back(buffer);
                    if !armed {
                        let fd = self.sockets[slot as usize].as_raw_fd();
                        self.ring.receive(slot, fd).expect("room");
                    }
                    self.flush(slot);
                }
                Completion::Sent { slot, .. } => {
                    self.sending[slot as usize].1 = false;
                    self.flush(slot);
                }
                Completion::ReceiveEnded { slot, .. } => {
                    let fd = self.sockets[slot as usize].as_raw_fd();
                    self.ring.receive(slot, fd).expect("room");
                }
            }
        }
        self.completions = completions;
        (worked, taken)
    }

    fn serve(&mut self, octets: u64) -> Duration {
        let mut taken = 0;
        let started = thread_time();
        while taken < octets {
            let (worked, now) = self.turn();
            taken += now;
            if !worked {
                self.wake.prepare_sleep();
                let (worked, now) = self.turn();
                taken += now;
                if !worked && !self.ring.has_queued() {
                    sleep(&self.wake);
                }
                self.wake.awake();
            }
        }
        self.turn();
        thread_time().saturating_sub(started)
    }
}

/// Runs `measured` on the last core while `other` runs on the first, until `measured` is done.
fn beside(other: impl FnOnce(&AtomicBool) + Send, measured: impl FnOnce() -> Duration) -> Duration {
    let all = cores::available();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (first, done) = (all.first().copied(), &done);
        scope.spawn(move || {
            first.map(cores::pin);
            other(done);
        });
        all.last().copied().map(cores::pin);
        let time = measured();
        done.store(true, Ordering::Release);
        time
    })
}

/// Writes all of `octets`, and reads and drops what comes back until the service is done.
fn flood(socket: &TcpStream, octets: &[u8], done: &AtomicBool) {
    socket.set_nonblocking(true).expect("an option");
    let mut buffer = vec![0; 1 << 18];
    let mut sent = 0;
    loop {
        let last = done.load(Ordering::Acquire);
        let mut idle = true;
        if sent < octets.len() {
            let end = octets.len().min(sent + (1 << 18));
            match (&mut &*socket).write(&octets[sent..end]) {
                Ok(octets) => (sent, idle) = (sent + octets, false),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        match (&mut &*socket).read(&mut buffer) {
            Ok(0) => panic!("the service ended the connection"),
            Ok(_) => idle = false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        if idle && last {
            break;
        }
        if idle {
            std::thread::yield_now();
        }
    }
    socket.set_nonblocking(false).expect("an option");
}

/// One message out on each socket in turn as soon as the last has come back.
fn ping_pong(sockets: &[TcpStream], messages: &mut [VecDeque<Vec<u8>>]) {
    let mut left: usize = messages.iter().map(VecDeque::len).sum();
    let mut outstanding: Vec<usize> = vec![0; sockets.len()];
    let mut buffer = vec![0; 1 << 16];
    for ((socket, messages), outstanding) in
        sockets.iter().zip(&mut *messages).zip(&mut outstanding)
    {
        socket.set_nonblocking(true).expect("an option");
        if let Some(message) = messages.pop_front() {
            (&mut &*socket).write_all(&message).expect("room");
            *outstanding = message.len();
        }
    }
    while left > 0 {
        let mut idle = true;
        for (at, socket) in sockets.iter().enumerate() {
            if outstanding[at] == 0 {
                continue;
            }
            match (&mut &*socket).read(&mut buffer) {
                Ok(0) => panic!("the service ended the connection"),
                Ok(octets) => {
                    idle = false;
                    outstanding[at] = outstanding[at].saturating_sub(octets);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => panic!("{error}"),
            }
            if outstanding[at] == 0 {
                left -= 1;
                if let Some(message) = messages[at].pop_front() {
                    (&mut &*socket).write_all(&message).expect("room");
                    outstanding[at] = message.len();
                }
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
    for socket in sockets {
        socket.set_nonblocking(false).expect("an option");
    }
}

/// Frames sent before the next ones are sealed: some 24 MiB of ciphertext.
fn round(octets: usize) -> u64 {
    (24 << 20) / octets as u64
}

fn streaming(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shard");
    group.throughput(Throughput::Elements(1));
    let rig = Rig::new();
    for (name, octets) in [("356 octets", SMALL), ("16 KiB", LARGE)] {
        let mut service = Service::new();
        let (socket, mut near) = service.connect(&rig);
        let mut cipher = Vec::new();
        group.bench_function(format!("frames of {name}"), |bencher| {
            bencher.iter_custom(|frames| {
                let (mut time, mut left) = (Duration::ZERO, frames);
                while left > 0 {
                    let now = left.min(round(octets));
                    cipher.clear();
                    near.seal(now, octets, together(octets), &mut cipher);
                    time += beside(|done| flood(&socket, &cipher, done), || service.serve(now));
                    left -= now;
                }
                time
            });
        });
        cipher.clear();
        near.seal(round(octets), octets, together(octets), &mut cipher);
        let each = cipher.len() / round(octets) as usize;
        let (mut plain, sockets) = Plain::new(&rig, 1);
        group.bench_function(format!("frames of {name}, the kernel alone"), |bencher| {
            bencher.iter_custom(|frames| {
                let (mut time, mut left) = (Duration::ZERO, frames);
                while left > 0 {
                    let now = left.min(round(octets));
                    let octets = &cipher[..each * now as usize];
                    time += beside(
                        |done| flood(&sockets[0], octets, done),
                        || plain.serve(octets.len() as u64),
                    );
                    left -= now;
                }
                time
            });
        });
    }
    group.finish();
}

/// Frames that are sealed into records together: what fills one, or one frame.
fn together(octets: usize) -> u64 {
    (16 * 1024 / octets).max(1) as u64
}

fn sparse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shard");
    group.throughput(Throughput::Elements(1));
    let rig = Rig::new();
    let mut service = Service::new();
    let mut ends: Vec<_> = (0..SPARSE).map(|_| service.connect(&rig)).collect();
    let sockets: Vec<_> = ends
        .iter()
        .map(|(socket, _)| socket.try_clone().expect("a descriptor"))
        .collect();
    let (mut plain, plain_sockets) = Plain::new(&rig, SPARSE);
    let mut each = 0;
    let mut messages = |frames: u64| -> Vec<VecDeque<Vec<u8>>> {
        let frames = frames as usize;
        ends.iter_mut()
            .enumerate()
            .map(|(at, (_, near))| {
                let count = frames / SPARSE + usize::from(at < frames % SPARSE);
                (0..count)
                    .map(|_| {
                        let mut out = Vec::new();
                        near.seal(1, SMALL, 1, &mut out);
                        each = out.len();
                        out
                    })
                    .collect()
            })
            .collect()
    };
    group.bench_function("64 associations, a frame outstanding each", |bencher| {
        bencher.iter_custom(|frames| {
            let mut messages = messages(frames);
            let sockets = &sockets;
            beside(
                move |_| ping_pong(sockets, &mut messages),
                || service.serve(frames),
            )
        });
    });
    assert!(each < RECEIVE_BUFFER_OCTETS);
    let octets = each.max(SMALL);
    group.bench_function(
        "64 connections, a message outstanding each, the kernel alone",
        |bencher| {
            bencher.iter_custom(|frames| {
                let count = |at: usize| {
                    frames as usize / SPARSE + usize::from(at < frames as usize % SPARSE)
                };
                let mut messages: Vec<VecDeque<Vec<u8>>> = (0..SPARSE)
                    .map(|at| (0..count(at)).map(|_| vec![0; octets]).collect())
                    .collect();
                let sockets = &plain_sockets;
                beside(
                    move |_| ping_pong(sockets, &mut messages),
                    || plain.serve(frames * octets as u64),
                )
            });
        },
    );
    group.finish();
}

criterion_group!(benches, streaming, sparse);
criterion_main!(benches);
