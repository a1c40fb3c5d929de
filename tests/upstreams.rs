//! A route that leads to two relays: calls are spread, what one of them drops
//! goes to the other only where that changes nothing, and an upstream that
//! failed has traffic again once it is back. An ingress and two egresses as
//! processes, each egress with an agent of its own, mapping on the unit and on
//! workers.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::limits;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::agent::{Agent, Conversation, Request};
use support::client::{Client, End, Outcome, events};
use support::{Proxy, Relay, certificate, free_port, http, identity, wait_for};

/// Longest wait for what must happen soon, on a machine that is busy.
const SOON: Duration = Duration::from_secs(10);
const NAME: &str = "twin";

/// An agent that answers with its own number, behind a gate.
struct Twin {
    agent: Agent,
    gate: Arc<AtomicBool>,
    /// Methods asked for, in order.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Twin {
    fn start(number: usize) -> Self {
        let gate = Arc::new(AtomicBool::new(true));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (open, log) = (gate.clone(), seen.clone());
        let agent = Agent::start(move |request, conversation| {
            answer(number, request, conversation, &open, &log)
        });
        Self { agent, gate, seen }
    }

    fn hold(&self) {
        self.gate.store(false, Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.gate.store(true, Ordering::SeqCst);
    }

    fn asked(&self, method: &str) -> usize {
        let seen = self.seen.lock().expect("lock");
        seen.iter().filter(|one| *one == method).count()
    }

    fn asked_at_all(&self) -> usize {
        self.seen.lock().expect("lock").len()
    }
}

fn answer(
    number: usize,
    request: &Request,
    conversation: &mut Conversation,
    gate: &AtomicBool,
    seen: &Mutex<Vec<String>>,
) -> io::Result<()> {
    if request.method == "GET" {
        seen.lock().expect("lock").push("card".to_owned());
        conversation.wait(gate)?;
        return conversation.reply(200, br#"{"name":"twin","url":"http://nowhere/"}"#);
    }
    let body: serde_json::Value = serde_json::from_slice(&request.body)?;
    let method = body["method"].as_str().unwrap_or_default().to_owned();
    let (id, streams) = (body["id"].clone(), method.ends_with("stream"));
    seen.lock().expect("lock").push(method);
    let object = |n: usize| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"by":{number},"n":{n}}}}}"#).into_bytes()
    };
    if !streams {
        conversation.wait(gate)?;
        return conversation.reply(200, &object(0));
    }
    conversation.stream()?;
    conversation.event(&object(0))?;
    conversation.wait(gate)?;
    conversation.event(&object(1))?;
    conversation.end()
}

struct Bench {
    ingress: Relay,
    egresses: Vec<Relay>,
    proxies: Vec<Proxy>,
    twins: Vec<Twin>,
    port: u16,
    link_ports: Vec<u16>,
    _dir: tempfile::TempDir,
}

const QUICK: &str = "[limits]\nhandshake_s = 1\nidle_probe_s = 1\nprobe_timeout_s = 1\n";

impl Bench {
    /// With `count` egresses; those for which `absent` says so are not reachable at first.
    fn start(workers: usize, count: usize, tables: &str, absent: impl Fn(usize) -> bool) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (cert, key) = certificate(dir.path(), &["*.relay.test"]);
        let (ingress_identity, ingress_public) = identity(dir.path(), "ingress");
        let port = free_port();
        let engine = format!("[engine]\nworkers = {workers}\ncores = [0]\n");
        let tables = format!("{engine}[policy]\ndocbind = 0x00d0\n{tables}");
        let mut upstreams = String::new();
        let (mut egresses, mut proxies, mut twins, mut link_ports) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let name = format!("egress-{number}");
            let (file, public) = identity(dir.path(), &name);
            let (link_port, twin) = (free_port(), Twin::start(number));
            let proxy = Proxy::start(link_port);
            proxy.refuse(absent(number));
            let _ = write!(
                upstreams,
                "{{ url = \"npamp://127.0.0.1:{}\", peer = \"{public}\" }}, ",
                proxy.port
            );
            let config = format!(
                "[identity]\nkey = '{}'\n[[listen]]\naddress = \"127.0.0.1:{link_port}\"\ntls_cert = '{}'\ntls_key = '{}'\npeers = [\"{ingress_public}\"]\n[[agent]]\nname = \"{NAME}\"\nurl = \"{}\"\n{tables}",
                file.display(),
                cert.display(),
                key.display(),
                twin.agent.url(""),
            );
            egresses.push(Relay::start(dir.path(), &name, &config));
            proxies.push(proxy);
            twins.push(twin);
            link_ports.push(link_port);
        }
        let config = format!(
            "[identity]\nkey = '{}'\n[[ingress]]\naddress = \"127.0.0.1:{port}\"\n[[route]]\npath = \"/agents/{NAME}\"\nserver_name = \"{NAME}.relay.test\"\ntls_ca = '{}'\nupstream = [{upstreams}]\n{tables}",
            ingress_identity.display(),
            cert.display(),
        );
        Self {
            ingress: Relay::start(dir.path(), "ingress", &config),
            egresses,
            proxies,
            twins,
            port,
            link_ports,
            _dir: dir,
        }
    }

    fn begin(&self, method: &str) -> Client {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
        Client::post(self.port, NAME, body.as_bytes()).expect("a connection")
    }

    fn call(&self, method: &str) -> Outcome {
        self.begin(method).reply(SOON)
    }

    /// Until the agents have so many requests.
    fn wait_asked(&self, count: usize) {
        wait_for("the agents are asked", SOON, || {
            let asked: usize = self.twins.iter().map(Twin::asked_at_all).sum();
            (asked == count).then_some(())
        });
    }

    fn labels(&self, upstream: usize) -> String {
        format!("upstream=\"127.0.0.1:{}\"", self.proxies[upstream].port)
    }

    fn events(&self, upstream: usize, event: &str) -> u64 {
        let metrics = self.ingress.metrics();
        let labels = [&*self.labels(upstream), &*format!("event=\"{event}\"")];
        whole(metrics.sum("npamp_relay_upstream_events_total", &labels))
    }

    fn ejected(&self, upstream: usize) -> bool {
        let metrics = self.ingress.metrics();
        whole(metrics.sum("npamp_relay_upstream_ejected", &[&self.labels(upstream)])) > 0
    }

    fn wait_ejected(&self, upstream: usize, ejected: bool) {
        wait_for("the upstream is ejected, or back", SOON, || {
            (self.ejected(upstream) == ejected).then_some(())
        });
    }

    /// The egress is gone, and whoever connects to it is sent away.
    fn kill(&mut self, upstream: usize) {
        self.egresses[upstream].process.kill();
    }

    fn restart(&mut self, upstream: usize) {
        // The kernel lets go of a killed ring's listener a little later.
        let port = self.link_ports[upstream];
        wait_for("the egress's port is free", SOON, || {
            std::net::TcpListener::bind(("127.0.0.1", port)).ok()
        });
        self.egresses[upstream].restart();
    }

    fn wait_traffic(&self, upstream: usize) {
        let before = self.twins[upstream].asked_at_all();
        wait_for("the upstream has traffic again", SOON, || {
            assert_eq!(self.call("message/send").status, 200);
            (self.twins[upstream].asked_at_all() > before).then_some(())
        });
    }

    fn lines(&self, text: &str) -> usize {
        let log = self.ingress.process.log();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

fn whole(value: f64) -> u64 {
    format!("{value:.0}").parse().expect("a count")
}

#[track_caller]
fn assert_by(outcome: &Outcome, number: usize) {
    assert_eq!(outcome.status, 200, "{}", outcome.text());
    let by = format!("\"by\":{number}");
    assert!(outcome.text().contains(&by), "{}", outcome.text());
}

fn with_and_without_workers(test: impl Fn(usize)) {
    for workers in [0, 3] {
        test(workers);
    }
}

/// Each call goes to the upstream that has the least under way.
#[test]
fn calls_are_spread() {
    with_and_without_workers(|workers| {
        let bench = Bench::start(workers, 3, "", |_| false);
        bench.twins.iter().for_each(Twin::hold);
        let clients: Vec<Client> = (0..30).map(|_| bench.begin("message/send")).collect();
        bench.wait_asked(30);
        for twin in &bench.twins {
            assert_eq!(twin.asked("message/send"), 10);
        }
        bench.twins[1].go_on();
        bench.twins[2].go_on();
        wait_for("two have nothing left to do", SOON, || {
            let metrics = bench.ingress.metrics();
            (whole(metrics.sum("npamp_relay_calls_outstanding", &[])) == 10).then_some(())
        });
        for _ in 0..40 {
            assert_eq!(bench.call("message/send").status, 200);
        }
        assert_eq!(bench.twins[0].asked_at_all(), 10, "it is busy");
        // All else being equal, in turn.
        assert_eq!(bench.twins[1].asked_at_all(), 30);
        assert_eq!(bench.twins[2].asked_at_all(), 30);
        bench.twins[0].go_on();
        for client in clients {
            assert_eq!(client.reply(SOON).status, 200);
        }
        let metrics = bench.ingress.metrics();
        assert_eq!(
            whole(metrics.sum("npamp_relay_upstream_associations", &[])),
            3
        );
    });
}

/// Of what a dead upstream had, the read_only goes to the other one, and nothing else:
/// the agent there never sees a mutating request that was sent once before.
#[test]
fn what_a_dead_upstream_had() {
    with_and_without_workers(|workers| {
        let mut bench = Bench::start(workers, 2, "", |_| false);
        bench.twins.iter().for_each(Twin::hold);
        let methods = [
            "tasks/get",
            "message/send",
            "ListTasks",
            "message/send",
            "x/y",
            "x/y",
        ];
        let mut clients = Vec::new();
        let mut begun = 0;
        // Two of each, so that either upstream has one of each.
        for method in methods.into_iter().flat_map(|method| [method, method]) {
            clients.push((method, bench.begin(method)));
            begun += 1;
            bench.wait_asked(begun);
        }
        let port = bench.port;
        let cards: Vec<_> = (0..2)
            .map(|_| {
                let path = format!("/agents/{NAME}/.well-known/agent-card.json");
                let card = thread::spawn(move || http(port, "GET", &path, &[], b""));
                begun += 1;
                bench.wait_asked(begun);
                card
            })
            .collect();
        let before: Vec<usize> = bench.twins.iter().map(Twin::asked_at_all).collect();
        assert_eq!(before, [7, 7]);
        bench.kill(0);
        wait_for("what may be repeated is", SOON, || {
            (bench.twins[1].asked_at_all() == 10).then_some(())
        });
        bench.twins[1].go_on();
        let mut failed = 0;
        for (method, client) in clients {
            let outcome = client.reply(SOON);
            if outcome.status == 200 {
                assert_by(&outcome, 1);
            } else {
                assert!(["message/send", "x/y"].contains(&method), "{method}");
                outcome.assert_problem(method, &[502]);
                failed += 1;
            }
        }
        assert_eq!(failed, 4);
        for card in cards {
            assert_eq!(card.join().expect("a client").expect("a reply").status, 200);
        }
        let twin = &bench.twins[1];
        assert_eq!(twin.asked("message/send"), 2);
        assert_eq!(twin.asked("x/y"), 2);
        assert_eq!(twin.asked("tasks/get"), 2);
        assert_eq!(twin.asked("card"), 2);
        assert_eq!(bench.events(0, "read_only_retried"), 3);

        // Whoever comes now notices nothing, and the first that does not reach it is moved.
        for _ in 0..10 {
            assert_by(&bench.call("message/send"), 1);
        }
        assert!(bench.ejected(0) && !bench.ejected(1));
        assert_eq!(bench.events(0, "unsent_moved"), 1);
        bench.restart(0);
        bench.wait_ejected(0, false);
        bench.twins[0].go_on();
        bench.wait_traffic(0);
        assert_eq!(bench.events(0, "returned"), 1);
    });
}

/// A read_only call is tried at most once elsewhere, however many upstreams there are.
#[test]
fn twice_and_no_more() {
    with_and_without_workers(|workers| {
        let mut bench = Bench::start(workers, 3, "", |_| false);
        bench.twins.iter().for_each(Twin::hold);
        let client = bench.begin("tasks/get");
        bench.wait_asked(1);
        let has_it = |bench: &Bench, not: usize| {
            let twins = bench.twins.iter().enumerate();
            let mut asked = twins.filter(|(at, twin)| *at != not && twin.asked_at_all() == 1);
            asked.next().map(|(at, _)| at).expect("an agent has it")
        };
        let first = has_it(&bench, 9);
        bench.kill(first);
        bench.wait_asked(2);
        let second = has_it(&bench, first);
        bench.kill(second);
        client.reply(SOON).assert_problem("tried twice", &[502]);
        thread::sleep(Duration::from_millis(100));
        let asked: usize = bench.twins.iter().map(Twin::asked_at_all).sum();
        assert_eq!(asked, 2);
    });
}

/// What was never sent goes elsewhere, whatever it does; the log says once that an
/// upstream is gone, and once that it is back.
#[test]
fn what_was_not_sent_moves() {
    with_and_without_workers(|workers| {
        let bench = Bench::start(workers, 2, "", |number| number == 0);
        let clients: Vec<Client> = (0..20).map(|_| bench.begin("message/send")).collect();
        for client in clients {
            assert_by(&client.reply(SOON), 1);
        }
        assert_eq!(bench.twins[1].asked_at_all(), 20);
        assert!(bench.events(0, "unsent_moved") >= 1);
        assert_eq!(bench.events(0, "ejected"), 1);
        assert!(bench.ejected(0));
        let moved = bench.events(0, "unsent_moved");
        let dialled = ["event=\"dialled\""];
        wait_for("it is probed again and again", SOON, || {
            let metrics = bench.ingress.metrics();
            let dials = whole(metrics.sum("npamp_relay_connections_total", &dialled));
            (dials >= 5).then_some(())
        });
        for _ in 0..20 {
            assert_by(&bench.call("message/send"), 1);
        }
        assert_eq!(
            bench.events(0, "unsent_moved"),
            moved,
            "no call waits for it"
        );
        bench.proxies[0].refuse(false);
        bench.wait_ejected(0, false);
        bench.wait_traffic(0);
        assert_eq!(bench.events(0, "returned"), 1);
        assert_eq!(bench.lines("no association with the upstream"), 1);
        assert_eq!(bench.lines("the upstream is back"), 1);
    });
}

/// A stream goes on only at the upstream that has it, and breaks visibly when that stays away.
#[test]
fn streams_stay_where_they_are() {
    with_and_without_workers(|workers| {
        let bench = Bench::start(workers, 2, "[stream]\nretention_s = 3\n", |_| false);
        bench.twins.iter().for_each(Twin::hold);
        let mut clients: Vec<Client> = (0..4).map(|_| bench.begin("message/stream")).collect();
        for client in &mut clients {
            client.read_events(SOON, 1);
        }
        assert_eq!(bench.twins[0].asked_at_all(), 2);
        // It comes back.
        bench.proxies[0].refuse(true);
        bench.proxies[0].cut();
        thread::sleep(Duration::from_millis(500));
        for _ in 0..4 {
            let client = bench.begin("message/send");
            bench.twins[1].go_on();
            assert_by(&client.reply(SOON), 1);
        }
        bench.proxies[0].refuse(false);
        bench.twins[0].go_on();
        for client in clients {
            let outcome = client.reply(SOON);
            assert_eq!(outcome.end, End::Clean, "{}", outcome.text());
            assert_eq!(events(&outcome.body).0.len(), 2);
        }
        let streams = |bench: &Bench| {
            let twins = bench.twins.iter();
            twins
                .map(|twin| twin.asked("message/stream"))
                .sum::<usize>()
        };
        assert_eq!(streams(&bench), 4, "none was begun again");

        // It stays away.
        bench.wait_ejected(0, false);
        bench.twins.iter().for_each(Twin::hold);
        let mut clients: Vec<Client> = (0..2).map(|_| bench.begin("message/stream")).collect();
        for client in &mut clients {
            client.read_events(SOON, 1);
        }
        bench.proxies[0].refuse(true);
        bench.proxies[0].cut();
        bench.twins[1].go_on();
        let mut ends: Vec<(End, usize)> = clients
            .into_iter()
            .map(|client| {
                let outcome = client.reply(SOON);
                (outcome.end, events(&outcome.body).0.len())
            })
            .collect();
        ends.sort_by_key(|(_, events)| *events);
        assert_eq!(ends, [(End::Broken, 1), (End::Clean, 2)]);
        assert_eq!(streams(&bench), 6);
    });
}

/// Nothing answers: clients are told so at once, without a dial for each of them.
#[test]
fn all_are_down() {
    for (workers, count) in [(0, 2), (3, 2), (0, 1)] {
        let mut bench = Bench::start(workers, count, "", |_| false);
        assert_eq!(bench.call("message/send").status, 200);
        for upstream in 0..count {
            bench.kill(upstream);
        }
        let dials = |bench: &Bench| {
            let metrics = bench.ingress.metrics();
            whole(metrics.sum("npamp_relay_connections_total", &["event=\"dialled\""]))
        };
        let before = dials(&bench);
        let begun = Instant::now();
        for n in 0..300 {
            let called = Instant::now();
            let outcome = bench.call("message/send");
            // The first may be on its way while the process dies.
            outcome.assert_problem(&format!("call {n}"), &[502]);
            assert!(
                called.elapsed() < Duration::from_secs(2),
                "{n}: {:?}",
                called.elapsed()
            );
        }
        // A dial per upstream and tenth of a second, and a few probes.
        let allowed = begun.elapsed().as_millis() as u64 / 100 * count as u64 + 20;
        let dialled = dials(&bench) - before;
        assert!(dialled <= allowed, "{dialled} dials, {allowed} allowed");
        assert!(bench.events(0, "failed_fast") > 0);
        assert_eq!(bench.lines("no association with the upstream"), count);
        let last = count - 1;
        bench.restart(last);
        wait_for("calls are carried again", SOON, || {
            (bench.call("message/send").status == 200).then_some(())
        });
        bench.wait_ejected(last, false);
    }
}

/// An upstream that stands still with its connections open is found out by PING.
#[test]
fn a_silent_upstream_is_ejected() {
    with_and_without_workers(|workers| {
        let bench = Bench::start(workers, 2, QUICK, |_| false);
        bench.twins.iter().for_each(Twin::hold);
        let mut clients = Vec::new();
        for (begun, method) in ["tasks/get", "tasks/get", "message/send", "message/send"]
            .into_iter()
            .enumerate()
        {
            clients.push((method, bench.begin(method)));
            bench.wait_asked(begun + 1);
        }
        bench.egresses[0].process.signal("STOP");
        bench.twins[1].go_on();
        bench.wait_ejected(0, true);
        let mut failed = 0;
        for (method, client) in clients {
            let outcome = client.reply(SOON);
            if outcome.status != 200 {
                outcome.assert_problem(method, &[502]);
                assert_eq!(method, "message/send");
                failed += 1;
            }
        }
        assert_eq!(failed, 1);
        assert_eq!(bench.events(0, "read_only_retried"), 1);
        assert_eq!(bench.twins[1].asked("message/send"), 1);
        // Its kernel still takes connections; nobody waits for them.
        for _ in 0..20 {
            let called = Instant::now();
            assert_by(&bench.call("message/send"), 1);
            assert!(
                called.elapsed() < Duration::from_millis(900),
                "{:?}",
                called.elapsed()
            );
        }
        bench.egresses[0].process.signal("CONT");
        bench.wait_ejected(0, false);
        bench.twins[0].go_on();
        bench.wait_traffic(0);
    });
}

/// A probe whose set of service parameters has to go meanwhile finds out all the same that
/// its upstream is back.
#[test]
fn a_probe_outlives_its_set_of_parameters() {
    with_and_without_workers(|workers| {
        let bench = Bench::start(workers, 2, "[limits]\nhandshake_s = 4\n", |_| false);
        assert_by(&bench.call("message/send"), 0);
        // Its kernel still takes connections.
        bench.egresses[0].process.signal("STOP");
        bench.proxies[0].cut();
        for _ in 0..4 {
            assert_by(&bench.call("message/send"), 1);
        }
        bench.wait_ejected(0, true);
        // Longer than the pause before the first probe, shorter than a handshake may take.
        thread::sleep(limits::EJECTION_TIME_MIN * 2);
        for n in 0..limits::PARAMETER_SETS_PER_ROUTE_MAX {
            let version = format!("9.{n}");
            let headers = [
                ("content-type", "application/json"),
                ("a2a-version", &*version),
            ];
            let body = br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#;
            let path = format!("/agents/{NAME}");
            let reply = http(bench.port, "POST", &path, &headers, body).expect("a reply");
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        assert!(bench.ejected(0), "the probe waits for it");
        bench.egresses[0].process.signal("CONT");
        bench.wait_ejected(0, false);
        bench.wait_traffic(0);
    });
}
