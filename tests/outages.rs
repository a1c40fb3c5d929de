//! A hundred streams of a thousand events through three relays whose links break
//! all the time: inside handshakes, inside frames and in between, from a seed.
//! Each event arrives exactly once and in order (NPAMP-CC-STREAM §6, rulings
//! R17–R19), the final one once, and memory stays within its bounds.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::crypto::SeededRandom;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation};
use support::chain::{Chain, ChainOptions};
use support::client::{Client, End, events, post_head};
use support::{Proxy, number, wait_for};

const STREAMS: usize = 100;
const EVENTS: usize = 1000;
const CUTS: usize = 50;
/// Longest pause between two events, in milliseconds; half of it on average.
const PAUSE: u64 = 40;
/// Longest wait for the whole of it, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(240);
/// What a relay may have resident in memory with all of this, in octets.
const RESIDENT: u64 = 256 * 1024 * 1024;

fn object(stream: usize, n: usize) -> Vec<u8> {
    // Of many sizes, so that cuts fall anywhere in a frame.
    let padding = "p".repeat(n * 37 % 500);
    format!(
        r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"kind":"artifact-update","taskId":"t{stream}","n":{n},"p":"{padding}"}}}}"#
    )
    .into_bytes()
}

fn last(stream: usize) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"kind":"status-update","taskId":"t{stream}","final":true}}}}"#
    )
    .into_bytes()
}

fn wanted(stream: usize) -> Vec<Vec<u8>> {
    let mut wanted: Vec<_> = (0..EVENTS).map(|n| object(stream, n)).collect();
    if stream.is_multiple_of(2) {
        wanted.push(last(stream));
    }
    wanted
}

/// Counted events with pauses, then for every other stream a final status-update.
fn talk(stream: usize, conversation: &mut Conversation) -> io::Result<()> {
    let mut random = SeededRandom::new(stream as u64 + 1);
    conversation.stream()?;
    for n in 0..EVENTS {
        conversation.event(&object(stream, n))?;
        thread::sleep(Duration::from_millis(number(&mut random, PAUSE)));
    }
    if stream.is_multiple_of(2) {
        conversation.event(&last(stream))?;
    }
    conversation.end()
}

fn request(stream: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"method":"message/stream","params":{{}}}}"#)
}

/// Cuts new connections of the proxy early: some inside the handshakes, some inside frames, some never.
fn break_often(proxy: &Proxy, seed: u64) {
    let mut random = SeededRandom::new(seed);
    proxy.limit(move || match number(&mut random, 4) {
        0 => Some(1 + number(&mut random, 8_000)),
        1 | 2 => Some(20_000 + number(&mut random, 400_000)),
        _ => None,
    });
}

struct Bench {
    chain: Chain,
    asked: Arc<AtomicUsize>,
    agent: Agent,
}

impl Bench {
    fn start(workers: usize) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let agent = Agent::start(move |request, conversation| {
            count.fetch_add(1, Ordering::SeqCst);
            talk(request.number(), conversation)
        });
        let chain = Chain::start(&ChainOptions {
            agents: vec![("talk".into(), agent.url("talk"))],
            all: format!("[engine]\nworkers = {workers}\n"),
            ..ChainOptions::default()
        });
        Self {
            chain,
            asked,
            agent,
        }
    }

    /// Runs a client for each stream while links break, and checks what each got.
    fn run<C>(&self, seed: u64, client: C)
    where
        C: Fn(u16, usize, &AtomicUsize) -> Got + Send + Sync + Clone + 'static,
    {
        let begun = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..STREAMS)
            .map(|stream| {
                let (begun, client, port) = (begun.clone(), client.clone(), self.chain.port);
                thread::spawn(move || client(port, stream, &begun))
            })
            .collect();
        // What has not said that it is resumable cannot be resumed.
        wait_for("every stream has begun", PATIENCE, || {
            (begun.load(Ordering::SeqCst) == STREAMS).then_some(())
        });
        break_often(&self.chain.front, seed);
        break_often(&self.chain.back, seed + 1);
        let mut random = SeededRandom::new(seed + 2);
        let mut cuts = 0;
        let begin = Instant::now();
        while clients.iter().any(|client| !client.is_finished()) {
            assert!(begin.elapsed() < PATIENCE, "it takes too long");
            thread::sleep(Duration::from_millis(100 + number(&mut random, 500)));
            match number(&mut random, 5) {
                0 | 1 => self.chain.front.cut(),
                2 | 3 => self.chain.back.cut(),
                _ => {
                    self.chain.front.cut();
                    self.chain.back.cut();
                }
            }
            cuts += 1;
        }
        for (stream, client) in clients.into_iter().enumerate() {
            let got = client.join().expect("a client");
            let wanted = wanted(stream);
            let same = got.events.iter().zip(&wanted).take_while(|(a, b)| a == b);
            assert!(
                got.events == wanted,
                "stream {stream}: {} events, the first {} of {} as they should be: {}",
                got.events.len(),
                same.count(),
                wanted.len(),
                got.note
            );
            assert_eq!(got.end, End::Clean, "stream {stream}: {}", got.note);
        }
        let inside = self.chain.front.limited() + self.chain.back.limited();
        let connections = cuts + inside;
        println!(
            "{cuts} cuts from outside, {inside} after a number of octets, {:?}",
            begin.elapsed()
        );
        assert!(connections >= CUTS, "only {connections} cuts");
        assert!(
            inside > 0,
            "no connection broke inside a handshake or frame"
        );
        assert_eq!(
            self.asked.load(Ordering::SeqCst),
            STREAMS,
            "the agent was asked once for each stream"
        );
        self.check_bounds();
    }

    fn check_bounds(&self) {
        for relay in self.chain.relays() {
            let resident = relay.resident_max();
            assert!(resident < RESIDENT, "{resident} octets resident");
        }
        let resumed = self.chain.egress.metrics();
        let labels = ["event=\"resumed\""];
        assert!(resumed.sum("npamp_relay_streams_resumption_total", &labels) >= 1.0);
        for relay in self.chain.relays() {
            let metrics = relay.metrics();
            for event in ["refused", "given_up", "expired", "unkept"] {
                let label = format!("event=\"{event}\"");
                let count = metrics.sum("npamp_relay_streams_resumption_total", &[&label]);
                assert!(count < 1.0, "{event}: {count}");
            }
        }
        wait_for("the agent's connections are idle", PATIENCE, || {
            let metrics = self.chain.egress.metrics();
            (metrics.sum("npamp_relay_agent_exchanges_open", &[]) < 1.0).then_some(())
        });
        assert!(self.agent.open() <= STREAMS);
    }
}

/// What a client saw.
struct Got {
    events: Vec<Vec<u8>>,
    end: End,
    note: String,
}

/// A client that notices nothing (ruling R18).
fn patient(port: u16, stream: usize, begun: &AtomicUsize) -> Got {
    let mut client = Client::post(port, "talk", request(stream).as_bytes()).expect("a connection");
    client.read_events(PATIENCE, 1);
    begun.fetch_add(1, Ordering::SeqCst);
    let outcome = client.reply(PATIENCE);
    let (events, rest) = events(&outcome.body);
    Got {
        events,
        end: if rest.is_empty() {
            outcome.end
        } else {
            End::Broken
        },
        note: format!("status {} {}", outcome.status, outcome.text()),
    }
}

/// A client that leaves again and again and comes back with `Last-Event-ID` (ruling R17).
fn restless(port: u16, stream: usize, begun: &AtomicUsize) -> Got {
    let mut random = SeededRandom::new(7_000 + stream as u64);
    let body = request(stream);
    let mut got = Got {
        events: Vec::new(),
        end: End::Broken,
        note: String::new(),
    };
    let mut last_id = None;
    let mut visits = 0;
    while visits < 400 {
        let mut lines = format!("content-length: {}", body.len());
        if let Some(id) = &last_id {
            lines = format!("{lines}\r\nlast-event-id: {id}");
        }
        let mut octets = post_head("talk", &lines);
        octets.extend_from_slice(body.as_bytes());
        let mut client = Client::connect(port).expect("a connection");
        client.write(&octets).expect("a request");
        let end = if last_id.is_none() {
            client.read_events(PATIENCE, 1);
            begun.fetch_add(1, Ordering::SeqCst);
            End::Silent
        } else {
            let time = Duration::from_millis(200 + number(&mut random, 3_000));
            client.read_until(time, |_| false)
        };
        visits += 1;
        let so_far = &client.so_far;
        let (events, _) = events(&so_far.body);
        got.events.extend(events);
        last_id = last_event_id(&so_far.body).or(last_id);
        got.note = format!("visit {visits}: status {} {}", so_far.status, so_far.text());
        let over = match so_far.status {
            200 => end == End::Clean,
            // It had the terminal event already.
            204 => true,
            // It is cut off before there is a head.
            0 => false,
            _ => return got,
        };
        if over {
            got.end = End::Clean;
            return got;
        }
        drop(client);
        thread::sleep(Duration::from_millis(number(&mut random, 400)));
    }
    got
}

/// The id of the last complete event.
fn last_event_id(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (whole, _) = text.rsplit_once("\n\n")?;
    let mut ids = whole.lines().filter_map(|line| line.strip_prefix("id:"));
    ids.next_back().map(|id| id.trim().to_owned())
}

#[test]
fn a_hundred_streams_survive_their_clients_too() {
    Bench::start(0).run(1234, restless);
}

#[test]
fn a_hundred_streams_survive_with_mapping_on_the_units() {
    Bench::start(0).run(4711, patient);
}

#[test]
fn a_hundred_streams_survive_with_mapping_on_workers() {
    Bench::start(2).run(815, patient);
}
