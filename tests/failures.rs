//! Whatever dies while clients wait: each gets within the configured time a
//! clear error of HTTP or a stream that visibly broke, never a hang, never a
//! result nobody sent, never half an event (rulings R14, R15, R21). Streams
//! that outlive their association are in `resumption.rs`; here none does. Two
//! relays as processes, with mapping on the units and on a worker.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation, Request, close, event};
use support::client::{Client, End, Outcome, events};
use support::{Pair, PairOptions, Relay, wait_for};

/// Longest wait for what must happen at once, on a machine that is busy.
const SOON: Duration = Duration::from_secs(2);
const UNARY: Duration = Duration::from_secs(3);
const HANDSHAKE: Duration = Duration::from_secs(2);
/// A probe after a second of silence, and a second for its answer.
const PROBE: Duration = Duration::from_secs(2);
/// Shorter than the deadline of a unary exchange.
const GRACE: Duration = Duration::from_secs(2);

/// What an exchange is in the middle of when something dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The agent has the request and says nothing.
    Unary,
    /// Half of a reply whose length was announced.
    HalfReply,
    /// Half of a reply in chunks, between two of them.
    HalfChunks,
    /// A streaming request, and the agent says nothing.
    StreamUnanswered,
    /// The stream is open, without an event yet.
    StreamOpen,
    /// Two events came.
    BetweenEvents,
    /// Two events came, and half of the third in a chunk of its own.
    InsideEvent,
    /// Two events came, and half of the third in half of a chunk.
    InsideChunk,
}

const PHASES: [Phase; 8] = [
    Phase::Unary,
    Phase::HalfReply,
    Phase::HalfChunks,
    Phase::StreamUnanswered,
    Phase::StreamOpen,
    Phase::BetweenEvents,
    Phase::InsideEvent,
    Phase::InsideChunk,
];

impl Phase {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn streams(self) -> bool {
        !matches!(self, Self::Unary | Self::HalfReply | Self::HalfChunks)
    }

    /// Events that the client has before anything dies.
    fn events_before(self) -> usize {
        match self {
            Self::BetweenEvents | Self::InsideEvent | Self::InsideChunk => 2,
            _ => 0,
        }
    }

    /// What the agent does, up to its gate and after it.
    fn play(self, conversation: &mut Conversation, gate: &Gate) -> io::Result<()> {
        let third = event(&object(3));
        let (half, rest) = third.split_at(third.len() / 2);
        match self {
            Self::Unary => {
                gate.pass(conversation)?;
                conversation.reply(200, &object(0))
            }
            Self::HalfReply => {
                let reply = object(0);
                conversation.raw(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ",
                )?;
                conversation.raw(format!("{}\r\n\r\n", reply.len()).as_bytes())?;
                conversation.raw(&reply[..10])?;
                gate.pass(conversation)?;
                conversation.raw(&reply[10..])
            }
            Self::HalfChunks => {
                let reply = object(0);
                conversation.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
                conversation.chunk(&reply[..10])?;
                gate.pass(conversation)?;
                conversation.chunk(&reply[10..])?;
                conversation.end()
            }
            Self::StreamUnanswered => {
                gate.pass(conversation)?;
                conversation.stream()?;
                conversation.raw(&[])?;
                conversation.end()
            }
            Self::StreamOpen => {
                conversation.stream()?;
                gate.pass(conversation)?;
                conversation.end()
            }
            Self::BetweenEvents | Self::InsideEvent | Self::InsideChunk => {
                conversation.stream()?;
                conversation.event(&object(1))?;
                conversation.event(&object(2))?;
                match self {
                    Self::BetweenEvents => {
                        gate.pass(conversation)?;
                        conversation.chunk(&third)?;
                    }
                    Self::InsideEvent => {
                        conversation.chunk(half)?;
                        gate.pass(conversation)?;
                        conversation.chunk(rest)?;
                    }
                    _ => {
                        conversation.raw(format!("{:x}\r\n", third.len()).as_bytes())?;
                        conversation.raw(half)?;
                        gate.pass(conversation)?;
                        conversation.raw(rest)?;
                        conversation.raw(b"\r\n")?;
                    }
                }
                conversation.end()
            }
        }
    }
}

/// A Response of the agent's; none that a relay would make up.
fn object(n: u32) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"said-by-the-agent":{n}}}}}"#).into_bytes()
}

fn request(streams: bool) -> Vec<u8> {
    let method = if streams {
        "message/stream"
    } else {
        "message/send"
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#).into_bytes()
}

/// Where the agent's exchanges wait for the test.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self, conversation: &mut Conversation) -> io::Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let passed = conversation.wait(&self.open);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        passed
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

fn serve(gate: &Gate, request: &Request, conversation: &mut Conversation) -> io::Result<()> {
    let path = request.path.trim_start_matches('/');
    if let Some(phase) = PHASES.into_iter().find(|phase| phase.name() == path) {
        return phase.play(conversation, gate);
    }
    match path {
        "large" => conversation.reply(200, &large()),
        // Too slow for its deadline, though never silent for long.
        "trickle" => {
            conversation.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")?;
            loop {
                conversation.raw(b" ")?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        // Events without end for whoever streams, a reply for others.
        "endless" if request.body.windows(8).any(|part| part == b"e/stream") => {
            conversation.stream()?;
            let padding = "p".repeat(64 * 1024);
            for n in 0.. {
                let event = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"result":{{"n":{n},"padding":"{padding}"}}}}"#
                );
                conversation.event(event.as_bytes())?;
            }
            conversation.end()
        }
        "good" | "endless" => conversation.reply(200, &object(0)),
        // Ends in order, yet inside an event.
        "unfinished" => {
            conversation.stream()?;
            conversation.event(&object(1))?;
            conversation.chunk(&event(&object(2))[..20])?;
            conversation.end()
        }
        // Lacks only the blank line.
        "unterminated" => {
            conversation.stream()?;
            conversation.event(&object(1))?;
            let last = event(&object(2));
            conversation.chunk(&last[..last.len() - 1])?;
            conversation.end()
        }
        "garbage" => {
            conversation.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")?;
            close()
        }
        "text" => conversation.reply(200, b"<html>it works</html>"),
        "broken" => conversation.reply(503, b"busy"),
        _ => conversation.reply(404, b""),
    }
}

fn large() -> Vec<u8> {
    let padding = "p".repeat(7 * 1024 * 1024);
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{padding}"}}"#).into_bytes()
}

const OTHERS: [&str; 9] = [
    "endless",
    "good",
    "large",
    "trickle",
    "unfinished",
    "unterminated",
    "garbage",
    "text",
    "broken",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    /// The agent's connections end.
    AgentEnds,
    /// The agent's connections are reset.
    AgentResets,
    EgressKilled,
    LinkCut,
    /// The egress stands still with its connections open.
    EgressFrozen,
}

struct Bench {
    pair: Pair,
    agent: Agent,
    gate: Arc<Gate>,
}

impl Bench {
    fn start(workers: usize) -> Self {
        let gate = Arc::new(Gate::default());
        let shared = gate.clone();
        let agent =
            Agent::start(move |request, conversation| serve(&shared, request, conversation));
        let names = PHASES
            .iter()
            .map(|phase| phase.name())
            .chain(OTHERS.map(str::to_owned));
        let pair = Pair::start(&PairOptions {
            agents: names.map(|name| (name.clone(), agent.url(&name))).collect(),
            proxy: true,
            both: format!(
                "[engine]\nworkers = {workers}\n[stream]\nretention_s = 0\ndetach_grace_s = 0.2\n[limits]\nunary_s = {}\nhandshake_s = {}\nidle_probe_s = 1\nprobe_timeout_s = 1\nshutdown_grace_s = {}\n",
                UNARY.as_secs(),
                HANDSHAKE.as_secs(),
                GRACE.as_secs()
            ),
            ..PairOptions::default()
        });
        Self { pair, agent, gate }
    }

    fn begin(&self, name: &str, streams: bool) -> Client {
        Client::post(self.pair.port, name, &request(streams)).expect("a connection")
    }

    fn call(&self, name: &str, streams: bool, time: Duration) -> Outcome {
        self.begin(name, streams).reply(time)
    }

    /// Two clients in each of these phases, all where the phase says.
    fn engage(&self, phases: &[Phase]) -> Vec<(Phase, Client)> {
        self.gate.open.store(false, Ordering::SeqCst);
        wait_for("no exchange is left", 3 * SOON, || {
            (self.gate.waiting() == 0).then_some(())
        });
        let mut clients: Vec<(Phase, Client)> = phases
            .iter()
            .chain(phases)
            .map(|&phase| (phase, self.begin(&phase.name(), phase.streams())))
            .collect();
        for (phase, client) in &mut clients {
            if phase.events_before() > 0 {
                client.read_events(SOON, phase.events_before());
            }
        }
        wait_for("the agent is in every exchange", SOON, || {
            (self.gate.waiting() == clients.len()).then_some(())
        });
        // What the agent sent last is on its way to the egress.
        thread::sleep(Duration::from_millis(50));
        clients
    }

    fn strike(&mut self, strike: Strike) {
        match strike {
            Strike::AgentEnds => self.agent.kill(false),
            Strike::AgentResets => self.agent.kill(true),
            Strike::EgressKilled => self.pair.egress.process.kill(),
            Strike::LinkCut => self.proxy(support::Proxy::cut),
            Strike::EgressFrozen => self.pair.egress.process.signal("STOP"),
        }
    }

    fn proxy(&self, act: impl FnOnce(&support::Proxy)) {
        act(self.pair.proxy.as_ref().expect("the link has a proxy"));
    }

    fn repair(&mut self, strike: Strike) {
        match strike {
            Strike::AgentEnds | Strike::AgentResets => self.agent.restart(),
            Strike::EgressKilled => self.pair.egress.restart(),
            Strike::LinkCut => {}
            Strike::EgressFrozen => self.pair.egress.process.signal("CONT"),
        }
    }

    /// A new call works, and nothing is left of the old ones.
    fn assert_recovered(&self, what: &str) {
        let mut last = String::new();
        let recovered = (0..50).any(|_| {
            let outcome = self.call("good", false, 2 * SOON);
            last = format!("{} {}", outcome.status, outcome.text());
            outcome.status == 200 && outcome.body == object(0) || {
                thread::sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(recovered, "{what}: no call works afterwards: {last}");
        self.assert_nothing_left(what);
    }

    fn assert_nothing_left(&self, what: &str) {
        let left = |relay: &Relay| {
            let metrics = relay.metrics();
            [
                "calls_outstanding",
                "requests_outstanding",
                "mapper_octets",
                "outbound_octets",
                "http_requests_open",
                "http_streams",
                "http_connections",
                "agent_exchanges_open",
            ]
            .iter()
            .map(|name| (name, metrics.sum(&format!("npamp_relay_{name}"), &[])))
            .filter(|(_, value)| *value != 0.0)
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
        };
        // An abandoned unary exchange may stay with its agent until its deadline.
        let end = Instant::now() + UNARY + SOON;
        loop {
            let (ingress, egress) = (left(&self.pair.ingress), left(&self.pair.egress));
            if ingress.is_empty() && egress.is_empty() {
                return;
            }
            assert!(
                Instant::now() < end,
                "{what}: left over: ingress {ingress:?}, egress {egress:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Each client has failed clearly, and has seen nothing that the agent did not say.
fn assert_failed(what: &str, clients: Vec<(Phase, Client)>, time: Duration) {
    let struck = Instant::now();
    for (phase, client) in clients {
        let left = (struck + time).saturating_duration_since(Instant::now());
        let outcome = client.reply(left.max(Duration::from_millis(1)));
        let shown = format!(
            "{what}, {phase:?}: {} {:?} after {:?}: {}",
            outcome.status,
            outcome.end,
            struck.elapsed(),
            outcome.text()
        );
        // The head of a stream goes out after a second, whether the agent said something or not.
        let headed = phase.streams() && outcome.status == 200;
        if headed {
            assert_eq!(outcome.end, End::Broken, "{shown}");
            assert_eq!(outcome.header("content-type"), Some("text/event-stream"));
            let (got, rest) = events(&outcome.body);
            let want: Vec<_> = (1..=phase.events_before() as u32).map(object).collect();
            assert_eq!(got, want, "{shown}");
            assert!(rest.is_empty(), "half an event: {shown}");
        } else {
            assert_eq!(phase.events_before(), 0, "{shown}");
            outcome.assert_problem(&shown, &[502, 504]);
        }
    }
}

/// Everything that can die, while clients are in every phase.
fn strikes_in_every_phase(bench: &mut Bench) {
    for (strike, time) in [
        (Strike::AgentEnds, SOON),
        (Strike::AgentResets, SOON),
        (Strike::EgressKilled, SOON),
        (Strike::LinkCut, SOON),
        (Strike::EgressFrozen, PROBE + SOON),
    ] {
        let what = format!("{strike:?}");
        let clients = bench.engage(&PHASES);
        bench.strike(strike);
        assert_failed(&what, clients, time);
        bench.repair(strike);
        bench.assert_recovered(&what);
    }
}

/// Everything that can be dead before a client comes.
fn dead_before(bench: &mut Bench) {
    for strike in [
        Strike::AgentEnds,
        Strike::EgressKilled,
        Strike::LinkCut,
        Strike::EgressFrozen,
    ] {
        let what = format!("{strike:?} before");
        if strike == Strike::LinkCut {
            bench.proxy(|proxy| proxy.refuse(true));
        }
        if strike == Strike::EgressFrozen {
            // No association, so that the dial is what stands still.
            bench.proxy(support::Proxy::cut);
        }
        bench.strike(strike);
        let slow = strike == Strike::EgressFrozen;
        let time = if slow { HANDSHAKE + SOON } else { SOON };
        let phases = [Phase::Unary, Phase::StreamUnanswered];
        let clients = phases
            .map(|phase| (phase, bench.begin(&phase.name(), phase.streams())))
            .into();
        assert_failed(&what, clients, time);
        let outcome = bench.call("good", false, time);
        outcome.assert_problem(&what, if slow { &[504] } else { &[502] });
        bench.proxy(|proxy| proxy.refuse(false));
        bench.repair(strike);
        bench.assert_recovered(&what);
    }
}

/// Agents that fail all by themselves.
fn failing_agents(bench: &Bench) {
    // The two that take their whole deadline run beside the others.
    let late: Vec<Client> = ["unary", "trickle"]
        .map(|name| bench.begin(name, false))
        .into();
    for (name, statuses) in [("garbage", 502), ("text", 502), ("broken", 503)] {
        for streams in [false, true] {
            let outcome = bench.call(name, streams, SOON);
            outcome.assert_problem(name, &[statuses]);
        }
    }
    let outcome = bench.call("unfinished", true, SOON);
    assert_eq!(
        (outcome.status, outcome.end),
        (200, End::Broken),
        "unfinished"
    );
    assert_eq!(events(&outcome.body), (vec![object(1)], &[][..]));
    let outcome = bench.call("unterminated", true, SOON);
    assert_eq!(
        (outcome.status, outcome.end),
        (200, End::Clean),
        "unterminated"
    );
    assert_eq!(events(&outcome.body), (vec![object(1), object(2)], &[][..]));
    for client in late {
        let outcome = client.reply(UNARY + SOON);
        outcome.assert_problem("an agent that does not answer in time", &[504]);
        let elapsed = outcome.elapsed;
        assert!(elapsed + Duration::from_millis(100) >= UNARY, "{elapsed:?}");
        let body: serde_json::Value = serde_json::from_slice(&outcome.body).expect("JSON");
        assert_eq!(
            (&body["code"], &body["name"]),
            (&4.into(), &"NotDelivered".into())
        );
    }
    bench.assert_recovered("failing agents");
}

/// A client that leaves: its stream's agent is told by the end of the
/// connection, others are not disturbed, nothing stays behind.
fn leaving_clients(bench: &Bench) {
    let count = |relay: &Relay, name: &str, labels: &[&str]| {
        relay.metrics().sum(&format!("npamp_relay_{name}"), labels)
    };
    let counts = || {
        [
            count(&bench.pair.ingress, "streams_cancelled_upstream_total", &[]),
            count(&bench.pair.egress, "streams_cancelled_by_peers_total", &[]),
            count(
                &bench.pair.egress,
                "agent_exchanges_total",
                &["outcome=\"cancelled\""],
            ),
        ]
    };
    let phases = [Phase::StreamOpen, Phase::BetweenEvents, Phase::InsideEvent];
    let before = counts();
    let mut clients = bench.engage(&phases);
    let (_, mut stays) = clients.remove(1);
    drop(clients);
    wait_for("the agent sees that five clients left", SOON, || {
        (bench.gate.waiting() == 1).then_some(())
    });
    let after = wait_for("the cancels are counted", SOON, || {
        let after = counts();
        (after[2] - before[2] >= 5.0).then_some(after)
    });
    for (after, before) in after.iter().zip(before) {
        assert!((after - before - 5.0).abs() < 0.1, "{before} → {after}");
    }
    bench.gate.open.store(true, Ordering::SeqCst);
    stays.read_until(SOON, |_| false);
    assert_eq!(stays.so_far.end, End::Clean);
    assert_eq!(events(&stays.so_far.body).0, [1, 2, 3].map(object));
    bench.assert_nothing_left("streams that clients left");

    // A unary exchange is not called back: its agent may go on with the task.
    drop(bench.engage(&[Phase::Unary, Phase::HalfReply]));
    wait_for("the ingress waits for nothing", SOON, || {
        (count(&bench.pair.ingress, "calls_outstanding", &[]) == 0.0).then_some(())
    });
    bench.assert_nothing_left("unary exchanges that clients left");
    bench.assert_recovered("clients that left");
}

/// A client that stops reading is cut (ruling R19), its agent is let go, and
/// others on the same association never wait for it.
fn stalled_client(bench: &Bench) {
    let cut = || {
        let metrics = bench.pair.ingress.metrics();
        metrics.sum(
            "npamp_relay_http_streams_ended_total",
            &["outcome=\"slow_client\""],
        )
    };
    let before = cut();
    let clients = [(); 4].map(|()| bench.begin("endless", true));
    let end = Instant::now() + 15 * SOON;
    let mut calls = 0;
    while cut() - before < 3.5 {
        assert!(Instant::now() < end, "clients that do not read are borne");
        // How long it takes beside four agents that never pause is a matter of a bench
        // (`stalled_reader`), and of what else the machine does; that it comes back is not.
        let outcome = bench.call("endless", false, 10 * SOON);
        assert_eq!(
            (outcome.status, outcome.end),
            (200, End::Clean),
            "{}",
            outcome.text()
        );
        calls += 1;
    }
    println!("{calls} calls beside the clients that did not read");
    for client in clients {
        let outcome = client.reply(SOON);
        assert_eq!((outcome.status, outcome.end), (200, End::Broken));
        let (got, _) = events(&outcome.body);
        for (n, event) in got.iter().enumerate() {
            let event: serde_json::Value = serde_json::from_slice(event).expect("a whole event");
            assert_eq!(event["result"]["n"], n, "in order, without a gap");
        }
    }
    bench.assert_nothing_left("clients that did not read");
    bench.assert_recovered("clients that did not read");
}

/// Large messages while the link is cut again and again: whole or refused.
fn torn_messages(bench: &Bench) {
    let port = bench.pair.port;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|n| {
            let over = over.clone();
            thread::spawn(move || {
                let (mut whole, mut refused) = (0, 0);
                let padding = "q".repeat(7 * 1024 * 1024);
                let upload = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":"{padding}"}}"#
                );
                let (name, body, want) = if n % 2 == 0 {
                    ("large", request(false), large())
                } else {
                    ("good", upload.into_bytes(), object(0))
                };
                while !over.load(Ordering::Relaxed) {
                    let client = Client::post(port, name, &body).expect("a connection");
                    let outcome = client.reply(UNARY + 2 * SOON);
                    if outcome.status == 200 {
                        assert_eq!(outcome.end, End::Clean);
                        assert!(outcome.body == want, "a reply that is not the agent's");
                        whole += 1;
                    } else {
                        outcome.assert_problem("the link was cut", &[502, 504]);
                        refused += 1;
                    }
                }
                (whole, refused)
            })
        })
        .collect();
    for n in 0..12 {
        thread::sleep(Duration::from_millis(150 + n * 37 % 120));
        bench.proxy(support::Proxy::cut);
    }
    thread::sleep(Duration::from_millis(500));
    over.store(true, Ordering::Relaxed);
    let (mut whole, mut refused) = (0, 0);
    for client in clients {
        let counts = client.join().expect("a client that got what it must");
        whole += counts.0;
        refused += counts.1;
    }
    println!("{whole} large messages whole, {refused} refused");
    assert!(whole > 0 && refused > 0);
    // Uploads that their clients do not finish.
    for _ in 0..8 {
        let mut client = Client::connect(port).expect("a connection");
        let head = support::client::post_head("good", "content-length: 7000000");
        client.write(&head).expect("a head");
        client.write(&vec![b' '; 1_000_000]).expect("a part");
    }
    bench.assert_recovered("torn messages");
}

/// The ingress dies: the egress lets go of every agent.
fn ingress_killed(bench: &mut Bench) {
    let clients = bench.engage(&PHASES);
    bench.pair.ingress.process.kill();
    for (phase, client) in clients {
        let outcome = client.reply(SOON);
        assert_eq!(outcome.end, End::Broken, "{phase:?}");
    }
    wait_for("no agent is kept busy for nobody", SOON, || {
        (bench.gate.waiting() == 0).then_some(())
    });
    bench.pair.ingress.restart();
    bench.assert_recovered("the ingress was killed");
}

/// Associations that ended, by the survivor's account.
fn down(relay: &Relay, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    relay
        .metrics()
        .sum("npamp_relay_associations_down_total", &[&label])
}

fn assert_finished(what: &str, clients: Vec<(Phase, Client)>) {
    for (phase, client) in clients {
        let outcome = client.reply(SOON);
        let shown = format!("{what}, {phase:?}: {} {}", outcome.status, outcome.text());
        assert_eq!((outcome.status, outcome.end), (200, End::Clean), "{shown}");
        if phase.events_before() > 0 {
            assert_eq!(events(&outcome.body).0, [1, 2, 3].map(object), "{shown}");
        } else if !phase.streams() {
            assert_eq!(outcome.body, object(0), "{shown}");
        }
    }
}

/// SIGTERM: what is under way finishes, nothing new is taken, the peer is told.
fn terminated(bench: &mut Bench) {
    let closed = down(&bench.pair.egress, "closed");
    let clients = bench.engage(&PHASES);
    let mut slow = bench.begin("large", false);
    slow.read_until(SOON, |so_far| !so_far.body.is_empty());
    bench.pair.ingress.process.signal("TERM");
    thread::sleep(Duration::from_millis(300));
    assert!(bench.pair.ingress.process.exited().is_none());
    if let Ok(client) = Client::post(bench.pair.port, "good", &request(false)) {
        let outcome = client.reply(SOON);
        assert!(
            outcome.status == 503 || (outcome.status == 0 && outcome.end == End::Broken),
            "a new client of a relay that goes: {} {}",
            outcome.status,
            outcome.text()
        );
    }
    bench.gate.open.store(true, Ordering::SeqCst);
    assert_finished("SIGTERM at the ingress", clients);
    // A client that takes its time loses nothing either.
    let slow = slow.reply(SOON);
    assert_eq!((slow.status, slow.end), (200, End::Clean), "a slow client");
    assert!(slow.body == large(), "a slow client");
    let status = bench.pair.ingress.process.wait_exit(GRACE + SOON);
    assert!(status.success(), "the ingress ended with {status}");
    wait_for("the egress was told", SOON, || {
        (down(&bench.pair.egress, "closed") > closed).then_some(())
    });
    bench.pair.ingress.restart();
    bench.assert_recovered("the ingress was terminated");

    let closed = down(&bench.pair.ingress, "closed");
    let clients = bench.engage(&PHASES);
    bench.pair.egress.process.signal("TERM");
    thread::sleep(Duration::from_millis(300));
    assert!(bench.pair.egress.process.exited().is_none());
    bench.gate.open.store(true, Ordering::SeqCst);
    assert_finished("SIGTERM at the egress", clients);
    let status = bench.pair.egress.process.wait_exit(GRACE + SOON);
    assert!(status.success(), "the egress ended with {status}");
    wait_for("the ingress was told", SOON, || {
        (down(&bench.pair.ingress, "closed") > closed).then_some(())
    });
    let outcome = bench.call("good", false, SOON);
    outcome.assert_problem("the egress is gone", &[502]);
    bench.pair.egress.restart();
    bench.assert_recovered("the egress was terminated");
}

/// SIGTERM, and what is under way does not finish within the grace.
fn terminated_too_late(bench: &mut Bench) {
    let phases = [
        Phase::StreamUnanswered,
        Phase::StreamOpen,
        Phase::BetweenEvents,
        Phase::InsideEvent,
    ];
    for of_ingress in [true, false] {
        let what = format!("the grace is over, of the ingress: {of_ingress}");
        let mut clients = bench.engage(&phases);
        let unary = [Phase::Unary, Phase::HalfReply]
            .map(|phase| (phase, bench.begin(&phase.name(), phase.streams())));
        clients.extend(unary);
        wait_for("the agent has these as well", SOON, || {
            (bench.gate.waiting() == clients.len()).then_some(())
        });
        let relay = if of_ingress {
            &mut bench.pair.ingress
        } else {
            &mut bench.pair.egress
        };
        relay.process.signal("TERM");
        thread::sleep(GRACE.mul_f32(0.8));
        assert!(relay.process.exited().is_none(), "{what}");
        assert_failed(&what, clients, 2 * SOON);
        let relay = if of_ingress {
            &mut bench.pair.ingress
        } else {
            &mut bench.pair.egress
        };
        let status = relay.process.wait_exit(2 * SOON);
        assert!(status.success(), "{what}: {status}");
        relay.restart();
        bench.assert_recovered(&what);
    }
}

fn all(workers: usize) {
    let mut bench = Bench::start(workers);
    let since = Instant::now();
    let step = |name: &str| println!("{name} at {:?}", since.elapsed());
    step("failing agents");
    failing_agents(&bench);
    step("leaving clients");
    leaving_clients(&bench);
    step("stalled client");
    stalled_client(&bench);
    step("torn messages");
    torn_messages(&bench);
    step("strikes");
    strikes_in_every_phase(&mut bench);
    step("dead before");
    dead_before(&mut bench);
    step("ingress killed");
    ingress_killed(&mut bench);
    step("terminated");
    terminated(&mut bench);
    step("terminated too late");
    terminated_too_late(&mut bench);
    step("done");
}

#[test]
fn failures_with_mapping_on_the_units() {
    all(0);
}

#[test]
fn failures_with_mapping_on_a_worker() {
    all(1);
}
