//! Streams through two relays as processes whose link is cut again and again:
//! the HTTP clients notice nothing (ruling R18), and see a broken stream, never
//! a gap, where the producer cannot go on (ruling R17).
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::crypto::SeededRandom;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation};
use support::client::{Client, End, events};
use support::{Pair, PairOptions, number, wait_for};

const STREAMS: usize = 20;
const EVENTS: usize = 200;
const CUTS: usize = 12;
/// Large events of an agent that hurries: more than every buffer on its way holds.
const MANY: usize = 8000;
/// Longest wait for what must happen soon, on a machine that is busy.
const SOON: Duration = Duration::from_secs(5);

fn object(stream: usize, n: usize) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"kind":"artifact-update","n":{n}}}}}"#)
        .into_bytes()
}

fn last(stream: usize) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"kind":"status-update","final":true}}}}"#)
        .into_bytes()
}

fn begin(pair: &Pair, name: &str, stream: usize) -> Client {
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":{stream},"method":"message/stream","params":{{}}}}"#);
    Client::post(pair.port, name, body.as_bytes()).expect("a connection")
}

/// Counted events with pauses, then for every other stream a final status-update.
fn talk(stream: usize, conversation: &mut Conversation) -> io::Result<()> {
    let mut random = SeededRandom::new(stream as u64 + 1);
    conversation.stream()?;
    for n in 0..EVENTS {
        conversation.event(&object(stream, n))?;
        thread::sleep(Duration::from_millis(number(&mut random, 30)));
    }
    if stream.is_multiple_of(2) {
        conversation.event(&last(stream))?;
    }
    conversation.end()
}

/// Large events as fast as they are taken, once the gate is open.
fn hurry(
    stream: usize,
    conversation: &mut Conversation,
    gate: &AtomicBool,
    said: &AtomicUsize,
) -> io::Result<()> {
    conversation.stream()?;
    conversation.event(&object(stream, 0))?;
    conversation.wait(gate)?;
    for n in 1..MANY {
        conversation.event(&large(stream, n))?;
        said.store(n, Ordering::SeqCst);
    }
    conversation.end()
}

fn large(stream: usize, n: usize) -> Vec<u8> {
    let padding = "p".repeat(16 * 1024);
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"n":{n},"padding":"{padding}"}}}}"#)
        .into_bytes()
}

struct Bench {
    pair: Pair,
    said: Arc<AtomicUsize>,
    /// The waiting agent goes on.
    open: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize, stream: &str) -> Self {
        let said = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let (say, gate, count) = (said.clone(), open.clone(), asked.clone());
        let agent = Agent::start(move |request, conversation| {
            count.fetch_add(1, Ordering::SeqCst);
            let stream = request.number();
            match request.path.trim_start_matches('/') {
                "hurry" => hurry(stream, conversation, &gate, &say),
                "wait" => {
                    conversation.stream()?;
                    conversation.event(&object(stream, 0))?;
                    conversation.wait(&gate)?;
                    conversation.event(&object(stream, 1))?;
                    conversation.end()
                }
                _ => talk(stream, conversation),
            }
        });
        let pair = Pair::start(&PairOptions {
            agents: ["talk", "hurry", "wait"]
                .map(|name| (name.to_owned(), agent.url(name)))
                .to_vec(),
            proxy: true,
            both: format!("[engine]\nworkers = {workers}\n[stream]\n{stream}\n"),
            ..PairOptions::default()
        });
        Self {
            pair,
            said,
            open,
            asked,
            _agent: agent,
        }
    }

    fn cut(&self) {
        self.pair.proxy.as_ref().expect("a proxy").cut();
    }

    fn resumption(&self, of_ingress: bool, event: &str) -> u64 {
        let relay = if of_ingress {
            &self.pair.ingress
        } else {
            &self.pair.egress
        };
        let label = format!("event=\"{event}\"");
        let count = relay
            .metrics()
            .sum("npamp_relay_streams_resumption_total", &[&label]);
        format!("{count:.0}").parse().expect("a count")
    }
}

/// Ruling R18: each client gets each event exactly once, in order, and one end.
fn cut_again_and_again(workers: usize) {
    let bench = Bench::start(workers, "");
    let mut random = SeededRandom::new(4711 + workers as u64);
    let begun = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let mut client = begin(&bench.pair, "talk", stream);
            let begun = begun.clone();
            thread::spawn(move || {
                client.read_events(SOON, 1);
                begun.fetch_add(1, Ordering::SeqCst);
                client.reply(Duration::from_secs(60))
            })
        })
        .collect();
    // What has not said that it is resumable cannot be resumed.
    wait_for("every stream has begun", SOON, || {
        (begun.load(Ordering::SeqCst) == STREAMS).then_some(())
    });
    let mut cuts = 0;
    while clients.iter().any(|client| !client.is_finished()) && cuts < 10 * CUTS {
        thread::sleep(Duration::from_millis(40 + number(&mut random, 300)));
        bench.cut();
        cuts += 1;
    }
    for (stream, client) in clients.into_iter().enumerate() {
        let outcome = client.join().expect("a client");
        let (got, rest) = events(&outcome.body);
        let mut want: Vec<_> = (0..EVENTS).map(|n| object(stream, n)).collect();
        if stream.is_multiple_of(2) {
            want.push(last(stream));
        }
        assert!(
            got == want,
            "stream {stream}: {} events of {}: {}",
            got.len(),
            want.len(),
            outcome.text()
        );
        assert!(rest.is_empty(), "stream {stream}");
        assert_eq!(
            (outcome.status, outcome.end),
            (200, End::Clean),
            "stream {stream}"
        );
    }
    assert!(cuts >= CUTS, "only {cuts} cuts");
    assert_eq!(
        bench.asked.load(Ordering::SeqCst),
        STREAMS,
        "each asked once"
    );
    assert!(bench.resumption(true, "asked") >= STREAMS as u64);
    assert!(bench.resumption(false, "resumed") >= STREAMS as u64);
    for event in ["refused", "given_up", "expired", "unkept"] {
        assert_eq!(bench.resumption(true, event), 0, "{event}");
        assert_eq!(bench.resumption(false, event), 0, "{event}");
    }
    println!(
        "{cuts} cuts, {} resumed",
        bench.resumption(false, "resumed")
    );
}

#[test]
fn cut_again_and_again_with_mapping_on_the_units() {
    cut_again_and_again(0);
}

#[test]
fn cut_again_and_again_with_mapping_on_workers() {
    cut_again_and_again(3);
}

/// An agent that says much while no association is there is read only as far as the bounds go,
/// and every event arrives in the end; one that is not come back for is let go.
#[test]
fn bounds_hold_while_nobody_listens() {
    for workers in [0, 2] {
        let bench = Bench::start(workers, "retention_s = 3");
        let proxy = bench.pair.proxy.as_ref().expect("a proxy");
        let mut client = begin(&bench.pair, "wait", 7);
        client.read_events(SOON, 1);
        proxy.refuse(true);
        bench.cut();
        wait_for("the stream waits", SOON, || {
            (bench.resumption(true, "parked") == 1).then_some(())
        });
        bench.open.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        proxy.refuse(false);
        let outcome = client.reply(SOON);
        assert_eq!(events(&outcome.body).0, [object(7, 0), object(7, 1)]);
        assert_eq!(outcome.end, End::Clean);

        bench.open.store(false, Ordering::SeqCst);
        let mut client = begin(&bench.pair, "hurry", 8);
        client.read_events(SOON, 1);
        proxy.refuse(true);
        bench.cut();
        wait_for("the stream waits", SOON, || {
            (bench.resumption(true, "parked") == 2).then_some(())
        });
        bench.open.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let outcome = client.reply(2 * SOON);
        assert_eq!(outcome.end, End::Broken);
        assert!(begun.elapsed() >= Duration::from_secs(2), "too early");
        assert_eq!(events(&outcome.body).0, [object(8, 0)]);
        wait_for("the agent is let go", SOON, || {
            let metrics = bench.pair.egress.metrics();
            let open = metrics.sum("npamp_relay_agent_exchanges_open", &[]);
            (open < 1.0).then_some(())
        });
        // 4 MiB are kept, and sockets hold as much again on either side, or a little more.
        let said = bench.said.load(Ordering::SeqCst);
        assert!((200..MANY / 2).contains(&said), "the agent said {said}");
        assert_eq!(bench.resumption(true, "given_up"), 1);
        assert_eq!(bench.resumption(false, "expired"), 1);
        let metrics = bench.pair.egress.metrics();
        assert!(metrics.sum("npamp_relay_replay_octets", &[]) < 1024.0 * 16.0);
        proxy.refuse(false);
    }
}

/// Ruling R17, R28: a producer that is gone takes its streams with it: a visible break, no restart.
#[test]
fn a_killed_producer_breaks_its_streams() {
    let mut bench = Bench::start(0, "");
    let mut client = begin(&bench.pair, "wait", 7);
    client.read_events(SOON, 1);
    bench.pair.egress.process.kill();
    bench.pair.egress.restart();
    let outcome = client.reply(2 * SOON);
    assert_eq!(outcome.end, End::Broken);
    assert_eq!(events(&outcome.body).0, [object(7, 0)]);
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
    assert_eq!(bench.resumption(true, "refused"), 1);
}

/// Ruling R17: the consumer may know before the producer that the association is gone: the
/// producer stood still, and finds the old one still there when it is asked for its streams.
#[test]
fn a_frozen_producer_goes_on() {
    for workers in [0, 2] {
        let limits = "[limits]\nhandshake_s = 1\nidle_probe_s = 1\nprobe_timeout_s = 1";
        let bench = Bench::start(workers, limits);
        let mut clients: Vec<_> = (0..8)
            .map(|stream| begin(&bench.pair, "wait", stream))
            .collect();
        for client in &mut clients {
            client.read_events(SOON, 1);
        }
        bench.pair.egress.process.signal("STOP");
        wait_for("the streams wait", 2 * SOON, || {
            (bench.resumption(true, "parked") == 8).then_some(())
        });
        bench.pair.egress.process.signal("CONT");
        bench.open.store(true, Ordering::SeqCst);
        for (stream, client) in clients.into_iter().enumerate() {
            let outcome = client.reply(2 * SOON);
            assert_eq!(outcome.end, End::Clean, "{stream}");
            let got = events(&outcome.body).0;
            assert_eq!(got, [object(stream, 0), object(stream, 1)]);
        }
        assert_eq!(bench.asked.load(Ordering::SeqCst), 8);
    }
}
