//! Healthy streams beside one whose reader stalls, through two whole relays:
//! what the stalled one costs the others in latency, and what it costs in memory.
//!
//! Phases without and with the stalled reader alternate in one run, and the
//! figure is the ratio of their percentiles. Each event says when it was
//! written; its latency is from there to the client that reads it.
#![allow(missing_docs, reason = "a program of its own")]
#![allow(
    clippy::disallowed_methods,
    reason = "benches may use threads and the clock"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation};
use support::client::{Client, End, events};
use support::{Pair, PairOptions};

/// Octets of one event of the stalled stream.
const LARGE: usize = 16 * 1024;

#[derive(Clone, Copy)]
struct Size {
    streams: usize,
    events: usize,
    pause: Duration,
    stalled_octets: usize,
    rounds: usize,
}

const WHOLE: Size = Size {
    streams: 100,
    events: 500,
    pause: Duration::from_millis(20),
    stalled_octets: 200 * 1024 * 1024,
    rounds: 3,
};

/// For `cargo test --benches`: it runs, and measures nothing.
const SMALL: Size = Size {
    streams: 4,
    events: 20,
    pause: Duration::from_millis(5),
    stalled_octets: 32 * 1024 * 1024,
    rounds: 1,
};

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Events at an even pace, each with the time it was written.
fn pace(conversation: &mut Conversation, size: Size, start: Instant) -> io::Result<()> {
    conversation.stream()?;
    for _ in 0..size.events {
        thread::sleep(size.pause);
        let at = nanos(start);
        let event = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"kind":"x","at":{at}}}}}"#);
        conversation.event(event.as_bytes())?;
    }
    conversation.end()
}

/// As much as is taken, as fast as it is taken.
fn flood(conversation: &mut Conversation, size: Size, said: &AtomicU64) -> io::Result<()> {
    let padding = "p".repeat(LARGE);
    let event = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"kind":"x","p":"{padding}"}}}}"#);
    conversation.stream()?;
    let mut left = size.stalled_octets;
    while left > 0 {
        conversation.event(event.as_bytes())?;
        left = left.saturating_sub(LARGE);
        said.fetch_add(LARGE as u64, Ordering::Relaxed);
    }
    conversation.end()
}

/// Both kinds of stream are of one agent, so that they share associations.
fn ask(port: u16, kind: &str) -> Client {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{{"kind":"{kind}"}}}}"#
    );
    Client::post(port, "agent", body.as_bytes()).expect("a connection")
}

/// One healthy client: the latency of each of its events.
fn listen(port: u16, size: Size, start: Instant) -> Histogram<u64> {
    let mut latencies = Histogram::new(3).expect("a histogram");
    let mut client = ask(port, "pace");
    let (mut counted, mut read) = (0, 0);
    loop {
        let end = client.read_until(Duration::from_secs(60), |so_far| {
            so_far.body[read..].windows(2).any(|two| two == b"\n\n")
        });
        let now = nanos(start);
        let (came, rest) = events(&client.so_far.body[read..]);
        read = client.so_far.body.len() - rest.len();
        counted += came.len();
        for event in came {
            let event: serde_json::Value = serde_json::from_slice(&event).expect("JSON");
            let written = event["result"]["at"].as_u64().expect("a time");
            latencies.record(now - written).expect("in range");
        }
        match end {
            End::Clean => break,
            End::Silent if counted <= size.events => {}
            end => panic!("a healthy stream ended {end:?} after {counted} events"),
        }
    }
    assert_eq!(counted, size.events, "every event came");
    latencies
}

fn healthy(port: u16, size: Size, start: Instant) -> Histogram<u64> {
    let clients: Vec<_> = (0..size.streams)
        .map(|_| thread::spawn(move || listen(port, size, start)))
        .collect();
    let mut all = Histogram::new(3).expect("a histogram");
    for client in clients {
        all += client.join().expect("a client");
    }
    all
}

fn milliseconds(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    Duration::from_nanos(latencies.value_at_quantile(quantile)).as_secs_f64() * 1e3
}

fn main() {
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    let whole = asked("--bench") && !asked("--test");
    let size = if whole { WHOLE } else { SMALL };
    let start = Instant::now();
    let said = Arc::new(AtomicU64::new(0));
    let flooded = said.clone();
    let agent = Agent::start(move |request, conversation| {
        if String::from_utf8_lossy(&request.body).contains("flood") {
            flood(conversation, size, &flooded)
        } else {
            pace(conversation, size, start)
        }
    });
    let pair = Pair::start(&PairOptions {
        agents: vec![("agent".into(), agent.url(""))],
        log: "warn".into(),
        ..PairOptions::default()
    });
    let mut without = Histogram::<u64>::new(3).expect("a histogram");
    let mut with = Histogram::<u64>::new(3).expect("a histogram");
    let mut cut = 0;
    for _ in 0..size.rounds {
        without += healthy(pair.port, size, start);
        let over = Arc::new(AtomicBool::new(false));
        let (port, seen) = (pair.port, over.clone());
        let stalled = thread::spawn(move || {
            let mut client = ask(port, "flood");
            client.read_events(Duration::from_secs(10), 1);
            while !seen.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
            }
            client.reply(Duration::from_secs(60)).end
        });
        with += healthy(pair.port, size, start);
        over.store(true, Ordering::Relaxed);
        cut += usize::from(stalled.join().expect("the stalled client") == End::Broken);
    }
    let mut report = String::from("healthy streams        p50 ms    p99 ms  p99.9 ms\n");
    for (name, latencies) in [("alone", &without), ("beside a stalled one", &with)] {
        let _ = writeln!(
            report,
            "{name:20} {:8.3}  {:8.3}  {:8.3}",
            milliseconds(latencies, 0.5),
            milliseconds(latencies, 0.99),
            milliseconds(latencies, 0.999),
        );
    }
    let ratio = milliseconds(&with, 0.99) / milliseconds(&without, 0.99);
    let _ = writeln!(
        report,
        "ratio of p99 {ratio:.2}; stalled streams cut {cut} of {}; their agent said {} MiB of {}",
        size.rounds,
        said.load(Ordering::Relaxed) / (1 << 20),
        (size.stalled_octets * size.rounds) >> 20,
    );
    for (name, relay) in [("ingress", &pair.ingress), ("egress", &pair.egress)] {
        let _ = writeln!(
            report,
            "{name}: {} MiB resident at most",
            relay.resident_max() >> 20
        );
    }
    println!("{report}");
}
