//! Clients that leave their streams and come back, against whole relays as
//! processes (NPAMP-CC-STREAM §7, rulings R17, R19, R22).
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
use std::time::Duration;
use support::agent::{Agent, Conversation, Request};
use support::client::{Client, End, Outcome, post_head};
use support::{Pair, PairOptions, number, wait_for};

/// Longest wait for what must happen soon, on a machine that is busy.
const SOON: Duration = Duration::from_secs(10);
/// Events that a gated agent says before its gate.
const BEFORE: usize = 5;
/// Events that it says in all.
const ALL: usize = 10;
/// Octets of an event of the agent that says much.
const LARGE: usize = 16 * 1024;
/// Events of the agent that says more than every buffer on its way holds.
const MANY: usize = 4000;

fn object(id: &str, task: &str, n: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"kind":"artifact-update","taskId":"{task}","n":{n}}}}}"#
    )
}

fn last(id: &str, task: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"kind":"status-update","taskId":"{task}","final":true}}}}"#
    )
}

fn large(n: usize) -> String {
    let padding = "p".repeat(LARGE);
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"n":{n},"padding":"{padding}"}}}}"#)
}

/// A member of a request's JSON as it is written there.
fn member(request: &Request, name: &str) -> String {
    let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
    body[name].to_string()
}

#[derive(Default)]
struct Seen {
    /// Requests.
    asked: AtomicUsize,
    /// Connections that the relay closed in mid-stream.
    left: AtomicUsize,
    /// Events of the agent that says much.
    said: AtomicUsize,
    /// Gated agents go on.
    open: AtomicBool,
    /// The agent that says much comes to an end.
    end: AtomicBool,
}

impl Seen {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Counted events with pauses, then the final status-update.
fn talk(id: &str, conversation: &mut Conversation) -> io::Result<()> {
    let mut random = SeededRandom::new(id.len() as u64);
    conversation.stream()?;
    for n in 0..100 {
        conversation.event(object(id, id, n).as_bytes())?;
        thread::sleep(Duration::from_millis(number(&mut random, 20)));
    }
    conversation.event(last(id, id).as_bytes())?;
    conversation.end()
}

fn gated(id: &str, conversation: &mut Conversation, seen: &Seen) -> io::Result<()> {
    conversation.stream()?;
    for n in 0..BEFORE {
        conversation.event(object(id, "task", n).as_bytes())?;
    }
    conversation.wait(&seen.open)?;
    for n in BEFORE..ALL {
        conversation.event(object(id, "task", n).as_bytes())?;
    }
    conversation.event(last(id, "task").as_bytes())?;
    conversation.end()
}

/// `count` large events, one before the gate.
fn much(count: usize, conversation: &mut Conversation, seen: &Seen) -> io::Result<()> {
    conversation.stream()?;
    conversation.event(large(0).as_bytes())?;
    conversation.wait(&seen.open)?;
    for n in 1..count {
        conversation.event(large(n).as_bytes())?;
        seen.said.store(n, Ordering::SeqCst);
    }
    conversation.wait(&seen.end)?;
    conversation.event(last("1", "task").as_bytes())?;
    conversation.end()
}

/// Sends a request with these header lines more.
fn write(client: &mut Client, name: &str, method: &str, id: &str, lines: &str) {
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"id":"task"}}}}"#);
    let lines = if lines.is_empty() {
        String::new()
    } else {
        format!("\r\n{lines}")
    };
    let mut octets = post_head(name, &format!("content-length: {}{lines}", body.len()));
    octets.extend_from_slice(body.as_bytes());
    client.write(&octets).expect("a request");
}

struct Bench {
    pair: Pair,
    seen: Arc<Seen>,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize, options: PairOptions) -> Self {
        let seen: Arc<Seen> = Arc::default();
        let told = seen.clone();
        let agent = Agent::start(move |request, conversation| {
            told.asked.fetch_add(1, Ordering::SeqCst);
            let id = member(request, "id");
            let outcome = match request.path.trim_start_matches('/') {
                "talk" => talk(&id, conversation),
                "much" => much(MANY, conversation, &told),
                "some" => much(240, conversation, &told),
                _ => gated(&id, conversation, &told),
            };
            if outcome.is_err() {
                told.left.fetch_add(1, Ordering::SeqCst);
            }
            outcome
        });
        let both = format!("[engine]\nworkers = {workers}\n{}", options.both);
        let pair = Pair::start(&PairOptions {
            agents: ["talk", "gated", "much", "some"]
                .map(|name| (name.to_owned(), agent.url(name)))
                .to_vec(),
            both,
            ..options
        });
        Self {
            pair,
            seen,
            _agent: agent,
        }
    }

    fn ask(&self, name: &str, method: &str, id: &str, lines: &str) -> Client {
        let mut client = Client::connect(self.pair.port).expect("a connection");
        write(&mut client, name, method, id, lines);
        client
    }

    fn stream(&self, name: &str, id: &str) -> Client {
        self.ask(name, "message/stream", id, "")
    }

    /// Comes back for a stream.
    fn back(&self, name: &str, id: &str, position: &str) -> Client {
        let line = format!("Last-Event-ID: {position}");
        self.ask(name, "message/stream", id, &line)
    }

    fn metric(&self, name: &str, label: &str) -> u64 {
        let metrics = self.pair.ingress.metrics();
        let labels: &[&str] = if label.is_empty() { &[] } else { &[label] };
        let sum = metrics.sum(&format!("npamp_relay_{name}"), labels);
        format!("{sum:.0}").parse().expect("a number")
    }

    fn fate(&self, fate: &str) -> u64 {
        self.metric("http_stream_fates_total", &format!("fate=\"{fate}\""))
    }

    fn refusals(&self, reason: &str) -> u64 {
        self.metric(
            "http_resume_refusals_total",
            &format!("reason=\"{reason}\""),
        )
    }

    /// Nothing is left of any stream at the ingress, nor an exchange anywhere.
    fn nothing_is_left(&self) {
        wait_for("nothing is left", SOON, || {
            let egress = self.pair.egress.metrics();
            let at_egress = egress.sum("npamp_relay_agent_exchanges_open", &[]);
            let left = self.metric("window_octets", "")
                + self.metric("http_streams_detached", "")
                + self.metric("calls_outstanding", "");
            (left == 0 && at_egress < 0.5).then_some(())
        });
    }
}

/// The events of a reply with their ids.
fn identified(body: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(body);
    let whole = text.rfind("\n\n").map_or("", |at| &text[..at]);
    let mut events = Vec::new();
    for block in whole.split("\n\n").filter(|block| block.contains("data:")) {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().to_owned()
        };
        events.push((field("id: "), field("data: ")));
    }
    events
}

fn datas(outcome: &Outcome) -> Vec<String> {
    identified(&outcome.body)
        .into_iter()
        .map(|(_, data)| data)
        .collect()
}

/// What a gated agent says from event `from` on, as a client with this id sees it.
fn rest(id: &str, from: usize) -> Vec<String> {
    let mut all: Vec<String> = (from..ALL).map(|n| object(id, "task", n)).collect();
    all.push(last(id, "task"));
    all
}

/// A client that leaves again and again: a new request each time with an id of its
/// own, as an SDK makes them, and the position of the last event that it has.
/// Gives how often it left, and how often it was cut off.
fn leave_again_and_again(bench: &Bench, stream: usize) -> (usize, usize) {
    let mut random = SeededRandom::new(stream as u64 + 77);
    let own = format!("{stream}");
    let mut client = bench.stream("talk", &own);
    let mut id = own.clone();
    let mut got: Vec<String> = Vec::new();
    let mut position = String::new();
    let (mut leaves, mut broken) = (0, 0);
    loop {
        let time = Duration::from_millis(100 + number(&mut random, 300));
        let end = client.read_until(time, |_| false);
        let events = identified(&client.so_far.body);
        if client.so_far.status == 204 {
            // It left between the last event and the end of the response.
            break;
        }
        assert!(
            client.so_far.status == 200 || (client.so_far.status == 0 && end == End::Silent),
            "stream {stream}: {} {}",
            client.so_far.status,
            client.so_far.text()
        );
        for (event_id, data) in events {
            assert!(event_id.contains('.'), "every event has an id");
            let n = got.len();
            let wanted = if n < 100 {
                object(&id, &own, n)
            } else {
                last(&id, &own)
            };
            assert_eq!(data, wanted, "stream {stream}, event {n}");
            got.push(data);
            position = event_id;
        }
        if end == End::Clean {
            break;
        }
        // A request that was left behind may come after its successor, and take the
        // stream over from that.
        broken += usize::from(end == End::Broken);
        if position.is_empty() {
            continue;
        }
        leaves += 1;
        id = match leaves % 3 {
            0 => format!("{leaves}"),
            1 => format!("\"again-{leaves}\""),
            _ => own.clone(),
        };
        // Closed with its socket; sometimes after the new connection has taken over.
        let old = client;
        client = bench.back("talk", &id, &position);
        if leaves % 2 == 0 {
            client.read_until(Duration::from_millis(20), |_| true);
        }
        drop(old);
    }
    assert_eq!(got.len(), 101, "stream {stream}");
    let outcome = bench.back("talk", "9", &position).reply(SOON);
    assert_eq!((outcome.status, outcome.body.len()), (204, 0));
    (leaves, broken)
}

/// NPAMP-CC-STREAM §7, rulings R17, R22: each event once and in order, the final one once.
fn clients_come_back(workers: usize) {
    let both = "[stream]\ndetach_grace_s = 3\nretention_s = 4";
    let bench = Bench::start(
        workers,
        PairOptions {
            both: both.into(),
            ..PairOptions::default()
        },
    );
    let (leaves, broken) = thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|stream| {
                let bench = &bench;
                scope.spawn(move || leave_again_and_again(bench, stream))
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    let taken = bench.metric("http_streams_ended_total", "outcome=\"taken_over\"");
    assert!(broken as u64 <= taken, "{broken} broke, {taken} taken over");
    assert!(leaves >= 24, "{leaves}");
    assert_eq!(bench.seen.asked(), 12, "each was asked for once");
    assert_eq!(bench.seen.left.load(Ordering::SeqCst), 0);
    assert!(bench.fate("from_window") >= 12);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 {
        assert!(bench.fate("on_another_unit") > 0, "of {leaves}");
    }
    for fate in ["from_producer", "expired", "evicted"] {
        assert_eq!(bench.fate(fate), 0, "{fate}");
    }
    assert_eq!(bench.metric("http_resume_refusals_total", ""), 0);
    assert_eq!(bench.metric("streams_cancelled_upstream_total", ""), 0);
    bench.nothing_is_left();
}

#[test]
fn clients_come_back_with_mapping_on_the_units() {
    clients_come_back(0);
}

#[test]
fn clients_come_back_with_mapping_on_workers() {
    clients_come_back(3);
}

/// NPAMP-CC-STREAM §7: a stream that nobody comes back for is cancelled, once.
#[test]
fn the_grace_ends() {
    for (workers, grace) in [(0, 1), (3, 1), (0, 0)] {
        let bench = Bench::start(
            workers,
            PairOptions {
                both: format!("[stream]\ndetach_grace_s = {grace}\nretention_s = 2"),
                ..PairOptions::default()
            },
        );
        let mut client = bench.stream("gated", "1");
        client.read_events(SOON, BEFORE);
        let (position, _) = identified(&client.so_far.body).pop().expect("an event");
        drop(client);
        if grace > 0 {
            wait_for("it is detached", SOON, || {
                (bench.metric("http_streams_detached", "") == 1).then_some(())
            });
            assert_eq!(bench.seen.left.load(Ordering::SeqCst), 0);
        }
        wait_for("the agent's connection is closed", SOON, || {
            (bench.seen.left.load(Ordering::SeqCst) == 1).then_some(())
        });
        assert_eq!(bench.fate("expired"), grace);
        let outcome = bench.back("gated", "2", &position).reply(SOON);
        outcome.assert_problem("cancelled", &[409]);
        assert_eq!(bench.seen.asked(), 1);
        assert_eq!(bench.metric("streams_cancelled_upstream_total", ""), 1);
        bench.nothing_is_left();
    }
}

/// Ruling R17: 409, and nothing is forwarded.
#[test]
fn nobody_else_and_nothing_else() {
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(tokens.path(), "alice\nbob\n").expect("tokens");
    let bench = Bench::start(
        0,
        PairOptions {
            ingress_keys: format!("token_file = '{}'", tokens.path().display()),
            ..PairOptions::default()
        },
    );
    let call = |name: &str, token: &str, position: &str| {
        let lines = format!("Authorization: Bearer {token}\r\nLast-Event-ID: {position}");
        bench.ask(name, "message/stream", "2", &lines)
    };
    let mut client = bench.ask(
        "gated",
        "message/stream",
        "1",
        "Authorization: Bearer alice",
    );
    client.read_events(SOON, BEFORE);
    let events = identified(&client.so_far.body);
    let (token, _) = events[0].0.split_once('.').expect("a position");
    let foreign = "AAAAAAAAAAAAAAAAAAAAAAAA.1".to_owned();
    let elsewhere = "AAAAAAAAAAAAAAAAAAAAAP__.1".to_owned();
    for (what, name, bearer, position) in [
        ("another client", "gated", "bob", format!("{token}.1")),
        ("another route", "talk", "alice", format!("{token}.1")),
        ("an unknown token", "gated", "alice", foreign),
        ("a token of no unit", "gated", "alice", elsewhere),
        (
            "beyond what was sent",
            "gated",
            "alice",
            format!("{token}.6"),
        ),
        ("no position", "gated", "alice", "17".to_owned()),
        ("no number", "gated", "alice", format!("{token}.x")),
    ] {
        call(name, bearer, &position)
            .reply(SOON)
            .assert_problem(what, &[409]);
    }
    assert_eq!(bench.seen.asked(), 1);
    for (reason, count) in [
        ("foreign", 2),
        ("unknown", 2),
        ("ahead", 1),
        ("malformed", 2),
    ] {
        assert_eq!(bench.refusals(reason), count, "{reason}");
    }
    // It was not disturbed, and its own client takes it over on another connection.
    let mut newer = call("gated", "alice", &format!("{token}.3"));
    newer.read_events(SOON, 2);
    let older = client.reply(SOON);
    assert_eq!((older.end, datas(&older).len()), (End::Broken, BEFORE));
    bench.seen.open.store(true, Ordering::SeqCst);
    let outcome = newer.reply(SOON);
    assert_eq!(outcome.end, End::Clean);
    assert_eq!(datas(&outcome), rest("2", 3));
    let taken = bench.metric("http_streams_ended_total", "outcome=\"taken_over\"");
    assert_eq!(taken, 1);
    let end = identified(&outcome.body).pop().expect("an event").0;
    let outcome = call("gated", "alice", &end).reply(SOON);
    assert_eq!((outcome.status, outcome.body.len()), (204, 0));
    // A client that missed the end fetches it.
    let outcome = call("gated", "alice", &format!("{token}.8")).reply(SOON);
    assert_eq!(datas(&outcome), rest("2", 8));
    assert_eq!(outcome.end, End::Clean);
    assert_eq!(bench.seen.asked(), 1);
}

/// Ruling R17: v0.3 `tasks/resubscribe` continues a detached stream of its task, and
/// nothing else.
#[test]
fn resubscribing() {
    for workers in [0, 3] {
        let bench = Bench::start(workers, PairOptions::default());
        let mut client = bench.stream("gated", "1");
        client.read_events(SOON, BEFORE);
        let mut other = bench.ask("gated", "tasks/resubscribe", "\"attached\"", "");
        other.read_events(SOON, BEFORE);
        assert_eq!(bench.seen.asked(), 2, "somebody reads it: a fresh stream");
        drop(client);
        wait_for("it is detached", SOON, || {
            (bench.metric("http_streams_detached", "") == 1).then_some(())
        });
        let mut unknown = bench.ask("talk", "tasks/resubscribe", "5", "");
        unknown.read_events(SOON, 1);
        assert_eq!(bench.seen.asked(), 3, "another route");
        let mut again = bench.ask("gated", "SubscribeToTask", "6", "");
        again.read_events(SOON, BEFORE);
        assert_eq!(bench.seen.asked(), 4, "v1.0 begins with the agent's Task");

        let resumed = bench.ask("gated", "tasks/resubscribe", "\"again\"", "");
        wait_for("it goes on", SOON, || {
            (bench.fate("resubscribed") == 1).then_some(())
        });
        bench.seen.open.store(true, Ordering::SeqCst);
        let outcome = resumed.reply(SOON);
        assert_eq!(outcome.end, End::Clean);
        assert_eq!(datas(&outcome), rest("\"again\"", BEFORE));
        assert_eq!(bench.seen.asked(), 4, "the agent was not asked again");
        let outcome = other.reply(SOON);
        assert_eq!(datas(&outcome), rest("\"attached\"", 0));
    }
}

/// A stalled client that reads its first event and no further; gives its position.
fn stall(bench: &Bench, name: &str) -> (Client, String) {
    let mut client = Client::connect_narrow(bench.pair.port).expect("a connection");
    write(&mut client, name, "message/stream", "1", "");
    client.read_events(SOON, 1);
    let (position, _) = identified(&client.so_far.body).pop().expect("an event");
    bench.seen.open.store(true, Ordering::SeqCst);
    wait_for("it is cut", 3 * SOON, || {
        let cut = bench.metric("http_streams_ended_total", "outcome=\"slow_client\"");
        (cut == 1).then_some(())
    });
    (client, position)
}

fn ended(bench: &Bench) {
    bench.seen.end.store(true, Ordering::SeqCst);
    wait_for("the stream has ended", SOON, || {
        (bench.metric("calls_outstanding", "") == 0).then_some(())
    });
}

/// Ruling R19: a client that was cut goes on from its producer once the stream has
/// ended, and gets 409 while it goes on.
#[test]
fn a_stalled_client_comes_back_to_what_its_producer_kept() {
    for workers in [0, 3] {
        let bench = Bench::start(
            workers,
            PairOptions {
                ingress: "[stream]\nwindow_bytes = 65536".into(),
                ..PairOptions::default()
            },
        );
        let (client, position) = stall(&bench, "some");
        wait_for("the agent has said it all", SOON, || {
            (bench.seen.said.load(Ordering::SeqCst) == 239).then_some(())
        });
        let outcome = bench.back("some", "1", &position).reply(SOON);
        outcome.assert_problem("it goes on", &[409]);
        assert_eq!(bench.refusals("not_held"), 1);
        ended(&bench);
        let outcome = bench.back("some", "1", &position).reply(SOON);
        let (status, end, text) = (outcome.status, outcome.end, outcome.text());
        assert_eq!((status, end), (200, End::Clean), "{text}");
        let mut wanted: Vec<String> = (1..240).map(large).collect();
        wanted.push(last("1", "task"));
        assert!(datas(&outcome) == wanted, "{}", outcome.text());
        assert_eq!(bench.fate("from_producer"), 1);
        assert_eq!(bench.seen.asked(), 1);
        let (end, _) = identified(&outcome.body).pop().expect("an event");
        assert_eq!(bench.back("some", "1", &end).reply(SOON).status, 204);
        drop(client);
    }
}

/// Ruling R17: what its producer has lost is lost: 409, never a gap.
#[test]
fn a_producer_may_have_lost_it() {
    let bench = Bench::start(
        0,
        PairOptions {
            ingress: "[stream]\nwindow_bytes = 65536".into(),
            egress: "[stream]\nreplay_events = 10".into(),
            ..PairOptions::default()
        },
    );
    let (_client, position) = stall(&bench, "some");
    ended(&bench);
    let outcome = bench.back("some", "1", &position).reply(SOON);
    outcome.assert_problem("the producer kept ten events", &[409]);
    assert_eq!(bench.refusals("producer"), 1);
    assert_eq!(bench.seen.asked(), 1);
    // What the ingress itself has goes on as before.
    let (token, _) = position.split_once('.').expect("a position");
    let outcome = bench.back("some", "1", &format!("{token}.1")).reply(SOON);
    outcome.assert_problem("still", &[409]);
}

/// Ruling R19: a stalled reader of a long, fast stream is cut, memory stays bounded,
/// and others do not notice.
#[test]
fn a_stalled_reader_of_a_long_stream() {
    let bench = Bench::start(
        0,
        PairOptions {
            both: "[stream]\ndetach_grace_s = 5".into(),
            ..PairOptions::default()
        },
    );
    let before = bench.metric("process_resident_memory_octets", "");
    let (client, position) = stall(&bench, "much");
    wait_for("the agent has said it all", 6 * SOON, || {
        (bench.seen.said.load(Ordering::SeqCst) == MANY - 1).then_some(())
    });
    // Sixteen MiB of window, and what sockets and allocators make of it.
    let held = bench.metric("window_octets", "");
    assert!(held <= 17 << 20, "{held} octets in windows");
    let grown = bench
        .metric("process_resident_memory_octets", "")
        .saturating_sub(before);
    assert!(grown < 96 << 20, "{grown} octets of memory");
    let outcome = bench.back("much", "1", &position).reply(SOON);
    outcome.assert_problem("it goes on", &[409]);
    ended(&bench);
    let outcome = bench.back("much", "1", &position).reply(SOON);
    outcome.assert_problem("the producer lost it", &[409]);
    assert_eq!(bench.seen.asked(), 1);
    drop(client);
    bench.nothing_is_left();
}
