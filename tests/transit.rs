//! Three relays as processes, `ingress ══ transit ══ egress`: calls, streams and cards
//! pass, either link may be cut at any time, and a route that leads to itself ends
//! (rulings R13, R14, R17, R18, R20, R25).
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::crypto::SeededRandom;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation, Request};
use support::chain::{Chain, ChainOptions, listen, route};
use support::client::{Client, End, events, post_head};
use support::{Relay, certificate, free_port, http, identity, number, wait_for};

const STREAMS: usize = 20;
const EVENTS: usize = 150;
const CUTS: usize = 12;
/// Large events that fit what may wait of one stream, however slowly its peer takes them.
const BURST: usize = 200;
/// Longest wait for what must happen soon, on a machine that is busy.
const SOON: Duration = Duration::from_secs(10);
const CARD: &str = " {\"name\":\"\\u00e9\", \"url\":\"http://agent.test/\",\n\"signatures\":[ {\"protected\":\"eyJhbGciOiJFZERTQSJ9\",\"signature\":\"AAA_\"}]}\r\n";

fn object(stream: usize, n: usize) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"kind":"artifact-update","n":{n}}}}}"#)
        .into_bytes()
}

fn large(stream: usize, n: usize) -> Vec<u8> {
    let padding = "p".repeat(64 * 1024);
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{{"n":{n},"padding":"{padding}"}}}}"#)
        .into_bytes()
}

fn request(stream: usize, method: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{stream},"method":"{method}","params":{{}}}}"#).into_bytes()
}

#[derive(Default)]
struct Watch {
    asked: AtomicUsize,
    left: AtomicUsize,
    open: AtomicBool,
    said: AtomicUsize,
}

/// Counted events with pauses, then an orderly end.
fn talk(stream: usize, conversation: &mut Conversation) -> io::Result<()> {
    let mut random = SeededRandom::new(stream as u64 + 1);
    conversation.stream()?;
    for n in 0..EVENTS {
        conversation.event(&object(stream, n))?;
        thread::sleep(Duration::from_millis(number(&mut random, 30)));
    }
    conversation.end()
}

fn answer(watch: &Watch, request: &Request, conversation: &mut Conversation) -> io::Result<()> {
    if request.method == "GET" {
        return conversation.reply(200, CARD.as_bytes());
    }
    watch.asked.fetch_add(1, Ordering::SeqCst);
    let body = String::from_utf8_lossy(&request.body).into_owned();
    if !body.contains("\"id\":") {
        return conversation.reply(202, b"");
    }
    let stream = request.number();
    if body.contains("message/stream") {
        return match request.path.as_str() {
            "/talk" => talk(stream, conversation),
            "/hurry" => {
                conversation.stream()?;
                conversation.event(&large(stream, 0))?;
                conversation.wait(&watch.open)?;
                for n in 1..if stream == 3 { BURST } else { 2000 } {
                    conversation.event(&large(stream, n))?;
                    watch.said.store(n, Ordering::SeqCst);
                }
                conversation.end()
            }
            _ => {
                conversation.stream()?;
                conversation.event(&object(stream, 0))?;
                let waited = conversation.wait(&watch.open);
                if waited.is_err() {
                    watch.left.fetch_add(1, Ordering::SeqCst);
                }
                waited?;
                conversation.event(&object(stream, 1))?;
                conversation.end()
            }
        };
    }
    if body.contains("Extended") {
        let card = CARD.trim();
        let reply = format!(r#"{{"jsonrpc":"2.0","id":{stream},"result":{card}}}"#);
        return conversation.reply(200, reply.as_bytes());
    }
    if body.contains("tasks/get") {
        conversation.raw(
            b"HTTP/1.1 429 Scripted\r\ncontent-type: text/html\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n",
        )?;
        return Ok(());
    }
    if body.contains("tasks/cancel") {
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":{stream},"error":{{"code":-32002,"message":"\u0041","data":1e400}}}}"#
        );
        return conversation.reply(200, error.as_bytes());
    }
    // The head as the agent saw it.
    let head = request.head.replace(['\r', '\n', '"'], "|");
    let reply = format!(r#" {{"id":{stream},"result":"{head}","jsonrpc":"2.0"}} "#);
    conversation.reply(200, reply.as_bytes())
}

const NAMES: [&str; 3] = ["talk", "wait", "hurry"];

struct Bench {
    chain: Chain,
    watch: Arc<Watch>,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize, stream: &str) -> Self {
        Self::start_with(workers, stream, "")
    }

    fn start_with(workers: usize, stream: &str, limits: &str) -> Self {
        let watch = Arc::new(Watch::default());
        let watching = watch.clone();
        let agent =
            Agent::start(move |request, conversation| answer(&watching, request, conversation));
        let chain = Chain::start(&ChainOptions {
            agents: NAMES
                .map(|name| (name.to_owned(), agent.url(name)))
                .to_vec(),
            all: format!("[engine]\nworkers = {workers}\n[stream]\n{stream}\n[limits]\n{limits}\n"),
            ..ChainOptions::default()
        });
        Self {
            chain,
            watch,
            _agent: agent,
        }
    }

    fn post(&self, name: &str, body: &[u8]) -> Client {
        Client::post(self.chain.port, name, body).expect("a connection")
    }

    fn resumption(relay: &Relay, event: &str) -> u64 {
        let label = format!("event=\"{event}\"");
        let count = relay
            .metrics()
            .sum("npamp_relay_streams_resumption_total", &[&label]);
        format!("{count:.0}").parse().expect("a count")
    }

    /// Nothing is under way at any relay.
    fn wait_idle(&self) {
        for relay in self.chain.relays() {
            wait_for("nothing is under way", SOON, || {
                let metrics = relay.metrics();
                let open = [
                    "calls_outstanding",
                    "requests_outstanding",
                    "transits_open",
                    "mapper_octets",
                ];
                let open = open.map(|name| metrics.sum(&format!("npamp_relay_{name}"), &[]));
                open.iter().all(|open| *open < 1.0).then_some(())
            });
        }
    }
}

/// Calls, cards and failures through three relays.
fn everything_passes(workers: usize) {
    let bench = Bench::start(workers, "");
    let mut client = Client::connect(bench.chain.port).expect("a connection");
    let body = b" { \"id\":7 ,\"method\":\"message\\/send\",\"jsonrpc\":\"2.0\"}";
    let line = format!(
        "a2a-version: 1.0\r\na2a-extensions: b, a\r\na2a-extensions: c\r\ncontent-length: {}",
        body.len()
    );
    let mut octets = post_head("talk", &line);
    octets.extend_from_slice(body);
    client.write(&octets).expect("a request");
    let outcome = client.reply(SOON);
    assert_eq!(outcome.status, 200, "{}", outcome.text());
    let text = outcome.text();
    assert!(
        text.starts_with(" {\"id\":7,\"result\":\"") && text.ends_with(' '),
        "{text}"
    );
    for line in [
        "a2a-version: 1.0|",
        "a2a-extensions: b, a|",
        "a2a-extensions: c|",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("hops"), "{text}");

    let outcome = bench.post("talk", &request(8, "tasks/cancel")).reply(SOON);
    assert_eq!(outcome.status, 200);
    assert!(
        outcome
            .text()
            .contains(r#""message":"\u0041","data":1e400"#)
    );

    let outcome = bench.post("talk", &request(9, "tasks/get")).reply(SOON);
    outcome.assert_problem("the agent's 429", &[429]);
    assert_eq!(outcome.header("retry-after"), Some("3"));

    let notification = br#"{"jsonrpc":"2.0","method":"message/send","params":{}}"#;
    let asked = bench.watch.asked.load(Ordering::SeqCst);
    let outcome = bench.post("talk", notification).reply(SOON);
    assert_eq!((outcome.status, outcome.body.len()), (202, 0));
    wait_for("the agent is notified", SOON, || {
        (bench.watch.asked.load(Ordering::SeqCst) == asked + 1).then_some(())
    });

    let card = "/agents/talk/.well-known/agent-card.json?original=true";
    let reply = http(bench.chain.port, "GET", card, &[], b"").expect("a card");
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, CARD.as_bytes())
    );

    for method in ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"] {
        let outcome = bench.post("talk", &request(10, method)).reply(SOON);
        let card = CARD.trim();
        let want = format!(r#"{{"jsonrpc":"2.0","id":10,"result":{card}}}"#);
        assert_eq!(String::from_utf8_lossy(&outcome.body), want);
    }

    // A stream, one that is left, and its agent.
    bench.watch.open.store(true, Ordering::SeqCst);
    let outcome = bench
        .post("wait", &request(11, "message/stream"))
        .reply(SOON);
    assert_eq!(events(&outcome.body).0, [object(11, 0), object(11, 1)]);
    assert_eq!(outcome.end, End::Clean);
    bench.watch.open.store(false, Ordering::SeqCst);
    let mut client = bench.post("wait", &request(12, "message/stream"));
    client.read_events(SOON, 1);
    drop(client);
    wait_for("the agent's connection is closed", 5 * SOON, || {
        (bench.watch.left.load(Ordering::SeqCst) == 1).then_some(())
    });
    bench.wait_idle();
    let transits = bench
        .chain
        .transit
        .metrics()
        .sum("npamp_relay_unit_events_total", &["event=\"transits\""]);
    assert!((8.0..10.0).contains(&transits), "{transits}");
}

#[test]
fn everything_passes_with_mapping_on_the_units() {
    everything_passes(0);
}

#[test]
fn everything_passes_with_mapping_on_workers() {
    everything_passes(3);
}

/// Ruling R18 over two hops: each client gets each event exactly once, in order, and one end,
/// although either link is cut again and again, sometimes both.
fn cut_again_and_again(workers: usize) {
    let bench = Bench::start(workers, "");
    let mut random = SeededRandom::new(815 + workers as u64);
    let begun = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..STREAMS)
        .map(|stream| {
            let mut client = bench.post("talk", &request(stream, "message/stream"));
            let begun = begun.clone();
            thread::spawn(move || {
                client.read_events(SOON, 1);
                begun.fetch_add(1, Ordering::SeqCst);
                client.reply(Duration::from_secs(90))
            })
        })
        .collect();
    // What has not said that it is resumable cannot be resumed.
    wait_for("every stream has begun", SOON, || {
        (begun.load(Ordering::SeqCst) == STREAMS).then_some(())
    });
    let mut cuts = 0;
    while clients.iter().any(|client| !client.is_finished()) && cuts < 10 * CUTS {
        thread::sleep(Duration::from_millis(30 + number(&mut random, 250)));
        match number(&mut random, 5) {
            0 | 1 => bench.chain.front.cut(),
            2 | 3 => bench.chain.back.cut(),
            _ => {
                bench.chain.front.cut();
                bench.chain.back.cut();
            }
        }
        cuts += 1;
    }
    for (stream, client) in clients.into_iter().enumerate() {
        let outcome = client.join().expect("a client");
        let (got, rest) = events(&outcome.body);
        let want: Vec<_> = (0..EVENTS).map(|n| object(stream, n)).collect();
        assert!(
            got == want,
            "stream {stream}: {} events of {}: {}",
            got.len(),
            want.len(),
            outcome.text()
        );
        assert!(rest.is_empty(), "stream {stream}");
        let end = (outcome.status, outcome.end);
        assert_eq!(end, (200, End::Clean), "stream {stream}");
    }
    assert!(cuts >= CUTS, "only {cuts} cuts");
    let asked = bench.watch.asked.load(Ordering::SeqCst);
    assert_eq!(asked, STREAMS, "each asked once");
    let streams = STREAMS as u64;
    assert!(Bench::resumption(&bench.chain.ingress, "asked") >= streams);
    assert!(Bench::resumption(&bench.chain.transit, "resumed") >= streams);
    assert!(Bench::resumption(&bench.chain.transit, "asked") >= streams);
    assert!(Bench::resumption(&bench.chain.egress, "resumed") >= streams);
    for relay in bench.chain.relays() {
        for event in ["refused", "given_up", "expired", "unkept", "lagged"] {
            assert_eq!(Bench::resumption(relay, event), 0, "{event}");
        }
    }
    bench.wait_idle();
}

#[test]
fn cut_again_and_again_with_mapping_on_the_units() {
    cut_again_and_again(0);
}

#[test]
fn cut_again_and_again_with_mapping_on_workers() {
    cut_again_and_again(3);
}

/// A stream that comes faster than its peer is there to take ends visibly, within the bounds,
/// and its agent's connection closes; the others on the same association go on.
#[test]
fn a_stream_that_lags_ends_visibly() {
    for workers in [0, 2] {
        let bench = Bench::start(workers, "transit_bytes = 2097152");
        let mut slow = bench.post("hurry", &request(1, "message/stream"));
        slow.read_events(SOON, 1);
        bench.chain.front.refuse(true);
        bench.chain.front.cut();
        wait_for("the transit knows", SOON, || {
            (Bench::resumption(&bench.chain.transit, "detached") == 1).then_some(())
        });
        bench.watch.open.store(true, Ordering::SeqCst);
        wait_for("the stream is given up", SOON, || {
            (Bench::resumption(&bench.chain.transit, "lagged") == 1).then_some(())
        });
        let metrics = bench.chain.transit.metrics();
        assert!(metrics.sum("npamp_relay_replay_octets", &[]) < 1.0);
        bench.chain.front.refuse(false);
        let outcome = slow.reply(2 * SOON);
        assert_eq!(outcome.end, End::Broken);
        assert_eq!(events(&outcome.body).0, [large(1, 0)]);
        let outcome = bench.post("talk", &request(2, "message/send")).reply(SOON);
        assert_eq!(outcome.status, 200);
        bench.wait_idle();
        let said = bench.watch.said.load(Ordering::SeqCst);
        assert!(said < 1000, "the agent said {said}");
    }
}

/// What is large and comes fast passes within what may wait.
#[test]
fn large_streams_pass() {
    for workers in [0, 2] {
        let bench = Bench::start(workers, "");
        bench.watch.open.store(true, Ordering::SeqCst);
        let outcome = bench
            .post("hurry", &request(3, "message/stream"))
            .reply(6 * SOON);
        assert_eq!(outcome.end, End::Clean, "{}", outcome.body.len());
        let got = events(&outcome.body).0;
        assert_eq!(got.len(), BURST);
        assert!((0..BURST).all(|n| got[n] == large(3, n)));
        bench.wait_idle();
    }
}

/// A killed transit takes its streams with it: a visible break, never a restart; an upstream
/// that is not there is an error, with its cause.
#[test]
fn a_killed_transit_breaks_its_streams() {
    let mut bench = Bench::start(0, "");
    let mut client = bench.post("wait", &request(7, "message/stream"));
    client.read_events(SOON, 1);
    bench.chain.transit.process.kill();
    // The kernel lets go of a killed ring's listener a little later.
    wait_for("the transit's port is free", SOON, || {
        std::net::TcpListener::bind(("127.0.0.1", bench.chain.transit_port)).ok()
    });
    bench.chain.transit.restart();
    let outcome = client.reply(2 * SOON);
    assert_eq!(outcome.end, End::Broken);
    assert_eq!(events(&outcome.body).0, [object(7, 0)]);
    assert_eq!(bench.watch.asked.load(Ordering::SeqCst), 1);
    bench.chain.egress.process.kill();
    let outcome = bench
        .post("talk", &request(8, "message/send"))
        .reply(2 * SOON);
    outcome.assert_problem("no egress", &[502]);
}

/// A transit that is told to stop finishes what is under way.
#[test]
fn a_draining_transit_finishes() {
    for workers in [0, 2] {
        let mut bench = Bench::start(workers, "");
        let mut client = bench.post("wait", &request(7, "message/stream"));
        client.read_events(SOON, 1);
        bench.chain.transit.process.signal("TERM");
        thread::sleep(Duration::from_millis(200));
        assert!(bench.chain.transit.process.exited().is_none());
        bench.watch.open.store(true, Ordering::SeqCst);
        let outcome = client.reply(SOON);
        assert_eq!(events(&outcome.body).0, [object(7, 0), object(7, 1)]);
        assert_eq!(outcome.end, End::Clean);
        assert!(bench.chain.transit.process.wait_exit(SOON).success());
    }
}

/// An upstream that does not answer: the transit's own deadline, told as one (ruling R14).
#[test]
fn a_silent_upstream_is_a_deadline() {
    let bench = Bench::start_with(0, "", "unary_s = 2");
    let outcome = bench.post("talk", &request(1, "message/send")).reply(SOON);
    assert_eq!(outcome.status, 200);
    bench.chain.egress.process.signal("STOP");
    let begun = Instant::now();
    let outcome = bench
        .post("talk", &request(2, "message/send"))
        .reply(2 * SOON);
    outcome.assert_problem("no answer", &[504]);
    assert!(begun.elapsed() < SOON);
    wait_for("the transit lets go of it", SOON, || {
        let open = bench
            .chain
            .transit
            .metrics()
            .sum("npamp_relay_transits_open", &[]);
        (open < 1.0).then_some(())
    });
    bench.chain.egress.process.signal("CONT");
}

/// One relay is ingress, transit and egress at once; beside it a route that leads to itself
/// ends by its hops, and neither spends what the others need.
#[test]
fn one_relay_may_be_all_of_them_and_a_loop_ends() {
    for workers in [0, 2] {
        let watch = Arc::new(Watch::default());
        let watching = watch.clone();
        let agent =
            Agent::start(move |request, conversation| answer(&watching, request, conversation));
        let dir = tempfile::tempdir().expect("temporary directory");
        let (cert, key) = certificate(dir.path(), &["*.relay.test"]);
        let (own, public) = identity(dir.path(), "all");
        let [port, link] = [(); 2].map(|()| free_port());
        let mut config = format!("[identity]\nkey = '{}'\n", own.display());
        config += &listen(link, &cert, &key, &public);
        let _ = write!(config, "[[ingress]]\naddress = \"127.0.0.1:{port}\"\n");
        for (from, to) in [
            ("path = \"/agents/talk\"", "one"),
            ("inbound = \"one\"", "two"),
            ("inbound = \"two\"", "talk"),
            ("path = \"/agents/round\"", "round"),
            ("inbound = \"round\"", "round"),
            ("path = \"/agents/rest\"", "nobody"),
            ("inbound = \"*\"", "talk"),
        ] {
            config += &route(from, link, to, &public, &cert);
        }
        let url = agent.url("wait");
        let _ = write!(
            config,
            "[[agent]]\nname = \"talk\"\nurl = \"{url}\"\n[policy]\ndocbind = 0x00d0\n[engine]\nworkers = {workers}\n"
        );
        let relay = Relay::start(dir.path(), "all", &config);
        let post = |name: &str, body: &[u8]| Client::post(port, name, body).expect("a connection");
        for name in ["talk", "rest"] {
            let outcome = post(name, &request(1, "message/send")).reply(SOON);
            assert_eq!(outcome.status, 200, "{name}: {}", outcome.text());
        }
        let mut client = post("talk", &request(2, "message/stream"));
        client.read_events(SOON, 1);
        for n in 0..20 {
            let outcome = post("round", &request(n, "message/send")).reply(SOON);
            outcome.assert_problem("a loop", &[502]);
            assert!(
                outcome.text().contains("too many relays"),
                "{}",
                outcome.text()
            );
        }
        let metrics = relay.metrics();
        let refused = metrics.sum(
            "npamp_relay_requests_refused_total",
            &["reason=\"too_many_hops\""],
        );
        assert!((refused - 20.0).abs() < 0.5, "{refused}");
        let associations = metrics.sum("npamp_relay_associations", &[]);
        assert!(associations < 64.0, "{associations}");
        watch.open.store(true, Ordering::SeqCst);
        assert_eq!(client.reply(SOON).end, End::Clean);
    }
}
