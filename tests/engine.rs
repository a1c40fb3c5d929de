//! The engine from outside, in this process: whole relays on loopback, and a
//! native peer that behaves as badly as it likes. Nothing may be left of a
//! connection, nothing may wait for good, and an idle relay does nothing.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::association::{
    Association, AssociationConfig, CloseReason, Event, HelloMode, ParamValue,
};
use npamp_relay::cli::args::DemoArgs;
use npamp_relay::cli::demo::Demo;
use npamp_relay::crypto::Identity;
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::engine::establish::Establish;
use npamp_relay::engine::shard::DownReason;
use npamp_relay::handshake::InitiatorConfig;
use npamp_relay::link::config::{Verify, client};
use npamp_relay::link::tls::Tls;
use npamp_relay::relay::Relay;
use npamp_relay::relay::settings::Settings;
use npamp_relay::relay::stats::UnitCount;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use support::{Proxy, http, wait_for};

const SOON: Duration = Duration::from_secs(10);
const BODY: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hello"}]}}}"#;

/// These tests count the descriptors and the CPU time of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A relay that is ingress and egress, with a sample agent behind it.
struct Bench {
    relay: Relay,
    proxy: Option<Proxy>,
    port: u16,
    _demo: Demo,
}

impl Bench {
    fn start(workers: usize, proxied: bool, change: impl FnOnce(&mut Settings)) -> Self {
        let demo = Demo::prepare(&DemoArgs { port: 0 }).unwrap();
        let mut settings = demo.settings.clone();
        settings.engine.workers = workers;
        settings.limits.shutdown_grace = Duration::from_secs(30);
        settings.listeners[0].peers = vec!["*".into()];
        let proxy = proxied.then(|| {
            let proxy = Proxy::start(settings.listeners[0].address.port());
            settings.routes[0].upstreams[0].address = format!("127.0.0.1:{}", proxy.port);
            proxy
        });
        change(&mut settings);
        let port = settings.ingresses[0].address.port();
        Self {
            relay: Relay::start(settings).unwrap(),
            proxy,
            port,
            _demo: demo,
        }
    }

    fn exchange(&self) -> u16 {
        exchange(self.port)
    }

    fn peer(&self) -> SocketAddr {
        self.relay.listen_addresses[0]
    }

    fn links(&self) -> u64 {
        let units = self.relay.stats.iter();
        units.map(|unit| unit.shard.links.get()).sum()
    }

    fn count(&self, what: UnitCount) -> u64 {
        self.relay
            .stats
            .iter()
            .map(|unit| unit.work.get(what))
            .sum()
    }

    /// The grace is long: only a relay that has nothing left under way is quick.
    fn stop(self) {
        let started = Instant::now();
        self.relay.shut_down().unwrap();
        let took = started.elapsed();
        assert!(took < SOON, "something was left under way: {took:?}");
    }
}

fn exchange(port: u16) -> u16 {
    let headers = [("content-type", "application/json")];
    http(port, "POST", "/", &headers, BODY).map_or(0, |reply| {
        assert!(reply.status != 200 || reply.text().contains("hello"));
        reply.status
    })
}

/// A native initiator that blocks.
struct Native {
    socket: TcpStream,
    tls: Tls,
    association: Association,
}

#[derive(Debug, PartialEq)]
enum Seen {
    Ready,
    PeerError(u16),
    Closed(CloseReason),
    Other,
}

impl Native {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SOON))?;
        let identity = Arc::new(Identity::generate(&mut SystemRandom));
        let mut establish = Establish::initiator(
            client(Verify::Pinned).unwrap(),
            &"sample.localhost".into(),
            InitiatorConfig::new(identity, None),
            &mut SystemRandom,
        )
        .unwrap();
        let (mut out, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        let mut established = establish.handle_octets(&mut [], &mut out).unwrap();
        while established.is_none() {
            socket.write_all(&std::mem::take(&mut out))?;
            let octets = socket.read(&mut buffer)?;
            assert!(octets > 0, "the relay ended the handshake");
            established = establish
                .handle_octets(&mut buffer[..octets], &mut out)
                .unwrap();
        }
        socket.write_all(&out)?;
        let mut config = AssociationConfig::new(HelloMode::Required);
        config.params.push((
            "server-name".into(),
            ParamValue::Text("sample.localhost".into()),
        ));
        let joined = establish.join(*established.unwrap());
        let (tls, association, early) =
            joined.into_association(Arc::new(config), &mut SystemRandom, Instant::now());
        assert!(early.is_empty(), "the responder answers HELLO only");
        Ok(Self {
            socket,
            tls,
            association,
        })
    }

    fn transmit(&mut self) {
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        self.association
            .poll_transmit(&mut plain, usize::MAX, Instant::now());
        self.tls.encrypt(&plain, &mut out).unwrap();
        let _ = self.socket.write_all(&out);
    }

    /// Reads until `wanted` was seen; panics when the connection ends first.
    fn until(&mut self, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let (mut seen, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while !seen.iter().any(&wanted) {
            self.transmit();
            let octets = self.socket.read(&mut buffer).expect("the relay goes on");
            assert!(octets > 0, "the relay ended the connection: {seen:?}");
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            self.tls
                .handle_octets(&mut buffer[..octets], &mut out, &mut |octets| {
                    plain.extend_from_slice(octets);
                })
                .unwrap();
            let _ = self
                .association
                .handle_octets(&mut plain, Instant::now(), &mut |event| {
                    seen.push(match event {
                        Event::Ready(_) => Seen::Ready,
                        Event::PeerError { code, .. } => Seen::PeerError(code),
                        Event::Closed(reason) => Seen::Closed(reason),
                        Event::Frame { .. } | Event::Dropped(_) => Seen::Other,
                    });
                });
        }
        self.transmit();
        seen
    }

    fn ready(address: SocketAddr) -> Self {
        let mut native = Self::connect(address).unwrap();
        native.until(|seen| *seen == Seen::Ready);
        native
    }

    fn send(&mut self, payload: &[u8]) {
        self.association
            .send(
                ChannelId::BRIDGE,
                FrameType::BRIDGE_REQUEST,
                Flags::NONE,
                payload.to_vec(),
            )
            .unwrap();
        self.transmit();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// CPU time of the process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    let ticks: u64 = [12, 13]
        .map(|at| fields[at].parse::<u64>().unwrap())
        .iter()
        .sum();
    Duration::from_millis(ticks * 10)
}

fn resident_octets() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

fn assert_idle(what: &str) {
    // What came before may still be settling.
    thread::sleep(Duration::from_millis(300));
    let (wall, before) = (Instant::now(), cpu());
    thread::sleep(Duration::from_millis(1500));
    let used = cpu().saturating_sub(before);
    assert!(
        used <= Duration::from_millis(60),
        "{what}: {used:?} of CPU in {:?} without anything to do",
        wall.elapsed()
    );
}

/// One of the ways in which a connection can begin and end.
fn come_and_go(address: SocketAddr, way: usize) {
    match way % 7 {
        // Orderly: CLOSE, CLOSE_ACK, close_notify.
        0 => {
            let mut native = Native::ready(address);
            native.association.close(0, "done");
            native.until(|seen| matches!(seen, Seen::Closed(CloseReason::Local)));
        }
        // FIN instead of CLOSE.
        1 => drop(Native::ready(address)),
        // RST.
        2 => {
            let native = Native::ready(address);
            let socket = socket2::SockRef::from(&native.socket);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }
        // Half-closed, and never heard of again until the relay gives up.
        3 => {
            let mut native = Native::ready(address);
            native.socket.shutdown(Shutdown::Write).unwrap();
            let _ = native.socket.read_to_end(&mut Vec::new());
        }
        // Gone before HELLO was answered.
        4 => {
            let mut native = Native::connect(address).unwrap();
            native.transmit();
        }
        // Gone within the handshake.
        5 => {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        }
        // No TLS at all.
        _ => {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        }
    }
}

#[test]
fn nothing_is_left_of_connections() {
    let _alone = alone();
    let bench = Bench::start(0, false, |_| {});
    let address = bench.peer();
    let cycle = |count: usize| {
        for way in 0..count {
            come_and_go(address, way);
        }
        wait_for("links end", SOON, || (bench.links() == 0).then_some(()));
    };
    cycle(140);
    let before = wait_settled(descriptors);
    let memory = resident_octets();
    cycle(500);
    wait_for("descriptors are closed", SOON, || {
        (descriptors() <= before).then_some(())
    });
    let grown = resident_octets().saturating_sub(memory);
    assert!(grown < 2 << 20, "{grown} octets more after 500 connections");
    let down = &bench.relay.stats[0].shard.down;
    assert!(down.get(DownReason::Closed) > 0 && down.get(DownReason::Ended) > 0);
    assert_eq!(bench.exchange(), 200);
    bench.stop();
}

/// The value once it no longer changes.
fn wait_settled(value: impl Fn() -> usize) -> usize {
    let mut last = value();
    wait_for("nothing changes", SOON, || {
        thread::sleep(Duration::from_millis(300));
        let now = value();
        (std::mem::replace(&mut last, now) == now).then_some(now)
    })
}

#[test]
fn an_idle_relay_does_nothing() {
    let _alone = alone();
    for workers in [0, 2] {
        let bench = Bench::start(workers, false, |_| {});
        assert_idle("before anything");
        for _ in 0..20 {
            assert_eq!(bench.exchange(), 200);
        }
        let mut native = Native::ready(bench.peer());
        assert_idle("with associations up");
        native.association.close(0, "");
        native.until(|seen| matches!(seen, Seen::Closed(_)));
        let _ = native.socket.shutdown(Shutdown::Both);
        assert_idle("after an association closed");
        bench.stop();
    }
}

/// Ruling R26: a bad frame is answered with ERROR, as often as it comes within
/// bounds, and the association serves on.
#[test]
fn bad_bridge_frames_are_answered_and_borne() {
    let _alone = alone();
    for workers in [0, 1] {
        let bench = Bench::start(workers, false, |_| {});
        let mut native = Native::ready(bench.peer());
        for _ in 0..5 {
            native.send(b"no envelope");
            native.until(|seen| *seen == Seen::PeerError(1));
        }
        assert_eq!(bench.count(UnitCount::ErrorsReported), 5);
        assert_eq!(bench.count(UnitCount::SendsRefused), 0);
        assert_eq!(bench.links(), 1);
        native.association.close(0, "");
        native.until(|seen| matches!(seen, Seen::Closed(CloseReason::Local)));
        bench.stop();
    }
}

/// More frames than a queue to a worker holds, none of which is answered: the
/// worker's room is found without anybody ringing for it.
#[test]
fn a_worker_that_says_nothing_is_asked_again() {
    let _alone = alone();
    let bench = Bench::start(1, false, |_| {});
    let mut native = Native::ready(bench.peer());
    for _ in 0..200 {
        for _ in 0..200 {
            let (channel, notify) = (ChannelId::BRIDGE, FrameType::BRIDGE_NOTIFY);
            native
                .association
                .send(channel, notify, Flags::NONE, b"no envelope".to_vec())
                .unwrap();
        }
        native.transmit();
    }
    native.send(b"no envelope");
    native.until(|seen| *seen == Seen::PeerError(1));
    assert_eq!(bench.count(UnitCount::FramesOpened), 40_001);
    assert_eq!(bench.exchange(), 200);
    drop(native);
    bench.stop();
}

/// Many small exchanges while the link is cut at any moment: each client gets a
/// reply or a clear failure, and once the cutting ends all is well.
#[test]
fn cut_links_leave_nobody_waiting() {
    let _alone = alone();
    for workers in [0, 2] {
        let bench = Bench::start(workers, true, |_| {});
        let proxy = bench.proxy.as_ref().unwrap();
        let (stop, good, bad) = (
            AtomicBool::new(false),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        match bench.exchange() {
                            200 => good.fetch_add(1, Ordering::Relaxed),
                            502 => bad.fetch_add(1, Ordering::Relaxed),
                            other => panic!("status {other}"),
                        };
                        assert!(started.elapsed() < SOON);
                    }
                });
            }
            let mut pause = 7u64;
            for _ in 0..60 {
                pause = pause * 31 % 97;
                thread::sleep(Duration::from_millis(pause));
                proxy.cut();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (good, bad) = (good.into_inner(), bad.into_inner());
        assert!(good > 100, "{good} good, {bad} bad");
        assert!(bad > 0, "the cuts hit nothing");
        assert_eq!(bench.exchange(), 200);
        // One association a unit at most, and both ends of each are here.
        let most = 2 * bench.relay.stats.len() as u64;
        wait_for("links end", SOON, || {
            (2..=most).contains(&bench.links()).then_some(())
        });
        bench.stop();
    }
}

#[test]
fn thousands_of_exchanges() {
    let _alone = alone();
    for workers in [0, 2] {
        let bench = Bench::start(workers, false, |_| {});
        let before = bench.exchange();
        assert_eq!(before, 200);
        let descriptors_before = wait_settled(descriptors);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        assert_eq!(bench.exchange(), 200);
                    }
                });
            }
        });
        assert_eq!(bench.count(UnitCount::Calls), 2001);
        wait_for("descriptors are closed", SOON, || {
            // Pooled connections to the agent may stay, both ends of each.
            (descriptors() <= descriptors_before + 40).then_some(())
        });
        bench.stop();
    }
}

/// Whoever waits for a dial is told when the relay stops.
#[test]
fn a_dial_under_way_does_not_hold_the_end_up() {
    let _alone = alone();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let bench = Bench::start(0, false, |settings| {
        settings.routes[0].upstreams[0].address = upstream.to_string();
    });
    let port = bench.port;
    let caller = thread::spawn(move || exchange(port));
    let (_held, _) = silent.accept().unwrap();
    // A handshake that stalls from the other side, too.
    let _stalled = TcpStream::connect(bench.peer()).unwrap();
    thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    bench.relay.shut_down().unwrap();
    assert!(started.elapsed() < Duration::from_secs(4));
    assert_eq!(caller.join().unwrap(), 502);
}

/// A relay that is dropped without having been shut down ends by itself.
#[test]
fn a_dropped_relay_ends() {
    let _alone = alone();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = wait_settled(threads);
    for workers in [0, 1] {
        let bench = Bench::start(workers, false, |_| {});
        assert_eq!(bench.exchange(), 200);
        drop(bench);
        wait_for("its threads end", SOON, || {
            (threads() <= before).then_some(())
        });
    }
}
