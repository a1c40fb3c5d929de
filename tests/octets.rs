//! What clients and agents send arrives octet for octet, whole or not at all,
//! and at nobody else's: two relays as processes, with mapping on the units and
//! on a worker (rulings R11, R14, R22).
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::agent::{Agent, Conversation, Request, close};
use support::client::{Client, End, Outcome, events, post_head};
use support::{Pair, PairOptions};

/// Longest wait for a reply that must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest foreign message.
const LIMIT: usize = 8 * 1024 * 1024;

/// What the agent says next.
#[derive(Clone, Default)]
enum Answer {
    #[default]
    Nothing,
    Whole(u16, Vec<u8>),
    Events(Vec<Vec<u8>>),
    /// A head without a clean end, and its body.
    Raw(Vec<u8>, Vec<u8>),
}

#[derive(Default)]
struct Plan {
    answer: Answer,
    seen: Vec<Vec<u8>>,
}

struct Bench {
    pair: Pair,
    plan: Arc<Mutex<Plan>>,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize) -> Self {
        let plan = Arc::new(Mutex::new(Plan::default()));
        let planned = plan.clone();
        let agent = Agent::start(move |request, conversation| match request.path.as_str() {
            "/planned" | "/planned/.well-known/agent-card.json" => {
                answer_planned(&planned, request, conversation)
            }
            "/mirror" => mirror(request, conversation),
            _ => conversation.reply(404, b""),
        });
        let pair = Pair::start(&PairOptions {
            agents: vec![
                ("planned".into(), agent.url("planned")),
                ("mirror".into(), agent.url("mirror")),
            ],
            both: format!("[engine]\nworkers = {workers}\n"),
            // The cards change from one to the next.
            ingress_keys: "card_max_age_s = 0".into(),
            ..PairOptions::default()
        });
        Self {
            pair,
            plan,
            _agent: agent,
        }
    }

    fn plan(&self, answer: Answer) {
        *self.plan.lock().expect("lock") = Plan {
            answer,
            seen: Vec::new(),
        };
    }

    fn seen(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.plan.lock().expect("lock").seen)
    }

    fn call(&self, body: &[u8], answer: Answer) -> Outcome {
        self.plan(answer);
        let client = Client::post(self.pair.port, "planned", body).expect("a connection");
        client.reply(PATIENCE)
    }

    /// The body arrives unchanged, and so does the reply.
    fn check_unary(&self, body: &[u8], status: u16, reply: &[u8]) -> Result<(), String> {
        let outcome = self.call(body, Answer::Whole(status, reply.to_vec()));
        let seen = self.seen();
        if seen.len() != 1 || seen[0] != body {
            return Err(format!(
                "the agent saw {} for {}; the client {} {}",
                show_all(&seen),
                show(body),
                outcome.status,
                outcome.text()
            ));
        }
        if outcome.status != 200 || outcome.end != End::Clean || outcome.body != reply {
            return Err(format!(
                "the client saw {} {:?} {} for {}",
                outcome.status,
                outcome.end,
                show(&outcome.body),
                show(reply)
            ));
        }
        Ok(())
    }

    /// The body arrives unchanged, and so does each event.
    fn check_stream(&self, body: &[u8], answer: &[Vec<u8>]) -> Result<(), String> {
        let outcome = self.call(body, Answer::Events(answer.to_vec()));
        let seen = self.seen();
        if seen.len() != 1 || seen[0] != body {
            return Err(format!(
                "the agent saw {} for {}; the client {} {}",
                show_all(&seen),
                show(body),
                outcome.status,
                outcome.text()
            ));
        }
        let (got, rest) = events(&outcome.body);
        if outcome.status != 200 || outcome.end != End::Clean || got != answer || !rest.is_empty() {
            return Err(format!(
                "the client saw {} {:?} {} for {}",
                outcome.status,
                outcome.end,
                show_all(&got),
                show_all(answer)
            ));
        }
        Ok(())
    }
}

fn show(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    let start: String = text.chars().take(300).collect();
    format!("{} octets {start:?}", octets.len())
}

fn show_all(all: &[Vec<u8>]) -> String {
    let shown: Vec<String> = all.iter().map(|octets| show(octets)).collect();
    format!("[{}]", shown.join(", "))
}

fn answer_planned(
    plan: &Mutex<Plan>,
    request: &Request,
    conversation: &mut Conversation,
) -> io::Result<()> {
    let answer = {
        let mut plan = plan.lock().expect("lock");
        plan.seen.push(request.body.clone());
        plan.answer.clone()
    };
    match answer {
        Answer::Nothing => close(),
        Answer::Whole(status, body) => conversation.reply(status, &body),
        Answer::Events(events) => {
            conversation.stream()?;
            for event in events {
                conversation.event(&event)?;
            }
            conversation.end()
        }
        Answer::Raw(head, body) => {
            conversation.raw(&head)?;
            conversation.raw(&body)?;
            // Open until the relay has had enough.
            while !conversation.has_left(Duration::from_millis(50))? {}
            close()
        }
    }
}

/// Says back the marker of a request, late for some, so that replies cross.
fn mirror(request: &Request, conversation: &mut Conversation) -> io::Result<()> {
    let body: serde_json::Value =
        serde_json::from_slice(&request.body).map_err(io::Error::other)?;
    let marker = body["params"]["marker"].as_u64().unwrap_or_default();
    let pause = Duration::from_millis(marker * 7 % 23);
    thread::sleep(pause);
    if body["method"] == "message/stream" {
        conversation.stream()?;
        for n in 0..EVENTS {
            conversation.event(&marked(marker, n))?;
            thread::sleep(pause / 5);
        }
        conversation.end()
    } else {
        conversation.reply(200, &marked(marker, 0))
    }
}

const EVENTS: u64 = 5;

fn marked(marker: u64, n: u64) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"marker":{marker},"n":{n}}}}}"#).into_bytes()
}

/// Values that a JSON library would write otherwise, or not at all.
fn strange_values() -> Vec<String> {
    vec![
        r#"{"a":1,"a":2,"":{},"a":{"a":[],"a":null}}"#.into(),
        "[1e400,-1e-400,-0,-0.0,1.0000000000000000000000000000001,0.1e+1,1E5,100000000000000000000000000000000000000001]".into(),
        r#"["\u0041\/\b\f\n\r\t\"\\","\ud83d\ude00","\uD83D\uDE00","\ud800","\u0000"]"#.into(),
        "\"\u{2028}\u{2029}\u{85}\u{feff}\u{1f600}\u{10ffff}\u{7f}é\"".into(),
        r#"{"id":7,"method":"other","jsonrpc":"1.0","result":1,"error":{"code":1},"params":{"id":"x","method":[]}}"#.into(),
        r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]"#.into(),
        " {\t\"a\" :\n [ 1 , 2\n, 3 ] \t, \"b\":\t{ } }\n".into(),
        format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000)),
        format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000)),
        format!("\"{}\"", "0123456789abcde\u{e9}".repeat(7 * 1024 * 1024 / 17)),
        format!("\"{}\"", r"\u00e9".repeat(7 * 1024 * 1024 / 6)),
        format!("[{}0]", "0,".repeat(1024 * 1024)),
        r#""data: x\n\nid: 5\n\n: comment""#.into(),
    ]
}

fn strange_ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "1",
        "0",
        "-0",
        "1.0",
        "1e3",
        "1E-2",
        "null",
        r#""1""#,
        r#""""#,
        r#""\u0031""#,
        r#""\/""#,
        "\"\u{2028}\"",
        "12345678901234567890123456789012345678901234567890",
    ]
    .map(str::to_owned)
    .into();
    ids.push(format!("\"{}\"", "i".repeat(10 * 1024)));
    ids
}

fn fixed_bodies(bench: &Bench) {
    let check = |what: &str, result: Result<(), String>| {
        if let Err(difference) = result {
            panic!("{what}: {difference}");
        }
    };
    for value in strange_values() {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{value}}}"#);
        let reply = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{value}}}"#);
        check(
            "value",
            bench.check_unary(body.as_bytes(), 200, reply.as_bytes()),
        );
        let error = format!(
            r#"{{"error":{{"code":-32001,"data":{value},"message":"x"}},"id":1,"jsonrpc":"2.0"}}"#
        );
        // A JSON-RPC Response under any HTTP status is a foreign message (ruling R14).
        check(
            "error",
            bench.check_unary(body.as_bytes(), 500, error.as_bytes()),
        );
        let body = body.replace("message/send", "message/stream");
        let event = reply.into_bytes();
        let events = [event.clone(), marked(1, 1), event];
        check("event", bench.check_stream(body.as_bytes(), &events));
        let failed = [marked(1, 1), error.into_bytes()];
        check("stream error", bench.check_stream(body.as_bytes(), &failed));
    }
    for id in strange_ids() {
        let body = format!(r#"{{"id":{id},"jsonrpc":"2.0","method":"tasks/get"}}"#);
        let reply = format!(r#"{{"result":null,"id":{id},"jsonrpc":"2.0"}}"#);
        check(
            "id",
            bench.check_unary(body.as_bytes(), 200, reply.as_bytes()),
        );
    }
    // White space around, escaped member names, an escaped method, unknown and repeated members.
    for body in [
        " \r\n\t{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message/send\"} \t\r\n\n",
        r#"{"m\u0065thod":"message\u002Fsend","\u006asonrpc":"2\u002e0","\u0069d":1}"#,
        r#"{"x":1,"jsonrpc":"2.0","params":1,"id":1,"x":2,"params":[],"method":"no/such/method","":0}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"","result":1,"error":2}"#,
    ] {
        let reply = "\n\t {\"jsonrpc\" : \"2.0\", \"id\" : 1 ,\r\n \"result\" : [ ] }\r\n \r\n";
        check(
            "form",
            bench.check_unary(body.as_bytes(), 200, reply.as_bytes()),
        );
    }
    // A notification has no reply.
    let notification = br#" {"jsonrpc":"2.0","method":"a/b","params":{"a":1e400,"a":"\ud800"}} "#;
    let outcome = bench.call(notification, Answer::Whole(202, Vec::new()));
    assert_eq!((outcome.status, outcome.body.len()), (202, 0));
    let seen = support::wait_for("the notification arrives", PATIENCE, || {
        Some(bench.seen()).filter(|seen| !seen.is_empty())
    });
    assert_eq!(seen, [notification.to_vec()]);
}

fn spaces() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just(""),
        1 => Just(" "),
        1 => Just("\t"),
        1 => Just("\n"),
        1 => Just("\r\n  "),
    ]
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => any::<char>().prop_map(|c| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\0'..='\x1f' => format!("\\u{:04X}", u32::from(c)),
            c => c.to_string(),
        }),
        1 => any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")),
        1 => prop::sample::select(vec!["\\/", "\\n", "\\b", "\u{2028}", "\u{85}", "data:", "id: 1"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?"
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        number(),
        string(),
        prop::sample::select(vec!["true", "false", "null", "[]", "{}"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        let key = prop_oneof![
            string(),
            prop::sample::select(vec!["id", "method", "jsonrpc", "result", "a", "a"])
                .prop_map(|key| format!("\"{key}\"")),
        ];
        let member = (key, spaces(), spaces(), inner.clone())
            .prop_map(|(key, before, after, value)| format!("{key}{before}:{after}{value}"));
        let list = |items: Vec<String>, space: &str, open: char, close: char| {
            format!(
                "{open}{space}{}{space}{close}",
                items.join(&format!("{space},{space}"))
            )
        };
        prop_oneof![
            (prop::collection::vec(inner, 0..6), spaces())
                .prop_map(move |(items, space)| list(items, space, '[', ']')),
            (prop::collection::vec(member, 0..6), spaces())
                .prop_map(move |(items, space)| list(items, space, '{', '}')),
        ]
    })
}

/// An object of these members in any order, with white space.
fn object(members: Vec<String>) -> impl Strategy<Value = String> {
    (Just(members).prop_shuffle(), spaces(), spaces()).prop_map(|(members, inner, outer)| {
        let inside = members.join(&format!("{inner},{inner}"));
        format!("{outer}{{{inner}{inside}{inner}}}{outer}")
    })
}

fn response(id: &str, value: &str, error: bool) -> impl Strategy<Value = String> + use<> {
    let outcome = if error {
        format!(r#""error":{{"code":-1,"message":"m","data":{value}}}"#)
    } else {
        format!(r#""result":{value}"#)
    };
    object(vec![
        r#""jsonrpc":"2.0""#.to_owned(),
        format!("\"id\":{id}"),
        outcome,
    ])
}

/// A request, a unary reply, and events.
fn exchange() -> impl Strategy<Value = (String, String, Vec<String>)> {
    let id = prop_oneof![number(), string()];
    (
        id,
        value(),
        value(),
        any::<bool>(),
        prop::collection::vec(value(), 0..4),
    )
        .prop_flat_map(|(id, params, result, error, results)| {
            let request = object(vec![
                r#""jsonrpc":"2.0""#.to_owned(),
                r#""method":"message/send""#.to_owned(),
                format!("\"id\":{id}"),
                format!("\"params\":{params}"),
            ]);
            let events: Vec<_> = results
                .iter()
                // A CR can be only white space here, and ends a line of an event.
                .map(|value| response(&id, value, false).prop_map(|text| text.replace('\r', " ")))
                .collect();
            (request, response(&id, &result, error), events)
        })
}

fn generated_bodies(bench: &Bench) {
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    });
    let outcome = runner.run(&exchange(), |(request, reply, events)| {
        bench
            .check_unary(request.as_bytes(), 200, reply.as_bytes())
            .map_err(TestCaseError::fail)?;
        let request = request.replace("\"message/send\"", "\"message/stream\"");
        let events: Vec<Vec<u8>> = events.into_iter().map(String::into_bytes).collect();
        bench
            .check_stream(request.as_bytes(), &events)
            .map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A body that makes `around(body)` exactly `octets` long.
fn padded(before: &str, after: &str, octets: usize) -> Vec<u8> {
    let padding = "p".repeat(octets - before.len() - after.len());
    format!("{before}{padding}{after}").into_bytes()
}

fn request_of(method: &str, octets: usize) -> Vec<u8> {
    let before = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":""#);
    padded(&before, "\"}", octets)
}

fn reply_of(octets: usize) -> Vec<u8> {
    padded(r#"{"jsonrpc":"2.0","id":1,"result":""#, "\"}", octets)
}

fn limits(bench: &Bench) {
    let small = request_of("message/send", 200);
    // Exactly the bound goes through, both ways.
    bench
        .check_unary(&request_of("message/send", LIMIT), 200, &reply_of(LIMIT))
        .expect("exactly the bound");
    bench
        .check_stream(&request_of("message/stream", LIMIT), &[reply_of(LIMIT)])
        .expect("exactly the bound");

    // Above it: refused before it was sent whole, announced or not.
    bench.plan(Answer::Whole(200, marked(1, 1)));
    let refused = "npamp_relay_http_refusals_total";
    let reason = ["reason=\"body_too_large\""];
    let before = bench.pair.ingress.metrics().sum(refused, &reason);
    let mut client = Client::connect(bench.pair.port).expect("a connection");
    client
        .write(&post_head(
            "planned",
            &format!("content-length: {}", LIMIT + 1),
        ))
        .expect("a head");
    client.write(&small[..100]).expect("a beginning");
    client.reply(PATIENCE).assert_problem("announced", &[413]);
    let mut client = Client::connect(bench.pair.port).expect("a connection");
    client
        .write(&post_head("planned", "transfer-encoding: chunked"))
        .expect("a head");
    let chunk = vec![b' '; 1024 * 1024];
    for _ in 0..8 {
        client.write(b"100000\r\n").expect("a chunk");
        client.write(&chunk).expect("a chunk");
        client.write(b"\r\n").expect("a chunk");
    }
    // So far it could be white space before an object.
    assert_eq!(
        client.read_until(Duration::from_millis(100), |_| true),
        End::Silent
    );
    assert_eq!(client.so_far.status, 0);
    client.write(b"1\r\n \r\n").expect("one octet too many");
    client.reply(PATIENCE).assert_problem("in chunks", &[413]);
    let whole = request_of("message/send", LIMIT + 1);
    bench
        .call(&whole, Answer::Whole(200, marked(1, 1)))
        .assert_problem("sent whole", &[413]);
    assert!(bench.seen().is_empty(), "nothing of it reached the agent");
    let after = bench.pair.ingress.metrics().sum(refused, &reason);
    assert!((after - before - 3.0).abs() < 0.1, "{before} → {after}");

    // A reply above it is never cut short.
    let large = reply_of(LIMIT + 1);
    let outcome = bench.call(&small, Answer::Whole(200, large.clone()));
    outcome.assert_problem("an announced reply", &[502]);
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunks = format!("{:x}\r\n", large.len()).into_bytes();
    chunks.extend_from_slice(&large);
    let outcome = bench.call(&small, Answer::Raw(head.to_vec(), chunks));
    outcome.assert_problem("a reply in chunks", &[502]);
    let outcome = bench.call(&small, Answer::Whole(500, large.clone()));
    outcome.assert_problem("an error reply", &[502]);

    // Nor is an event: the stream breaks where it would have been.
    let streaming = request_of("message/stream", 200);
    let first = marked(1, 1);
    let outcome = bench.call(
        &streaming,
        Answer::Events(vec![first.clone(), large.clone()]),
    );
    assert_eq!(
        (outcome.status, outcome.end),
        (200, End::Broken),
        "{}",
        outcome.text()
    );
    assert_eq!(events(&outcome.body), (vec![first], &[][..]));
    let outcome = bench.call(&streaming, Answer::Events(vec![large]));
    outcome.assert_problem("an event before all others", &[502]);
}

/// Signed cards of one part and of several, both kinds: NPAMP-CC-DOC §4, ruling R25.
/// An agent that writes many events at once cuts no client that reads: what waits
/// for a client is bounded by octets, and small events have room in great number.
fn bulk(bench: &Bench) {
    let sent: Vec<Vec<u8>> = (0..20_000).map(|n| marked(1, n)).collect();
    let mut stream = Vec::new();
    for event in &sent {
        stream.extend_from_slice(b"data: ");
        stream.extend_from_slice(event);
        stream.extend_from_slice(b"\n\n");
    }
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunks = format!("{:x}\r\n", stream.len()).into_bytes();
    chunks.extend_from_slice(&stream);
    chunks.extend_from_slice(b"\r\n0\r\n\r\n");
    let request = request_of("message/stream", 200);
    let outcome = bench.call(&request, Answer::Raw(head.to_vec(), chunks));
    let (got, rest) = events(&outcome.body);
    assert_eq!((outcome.status, outcome.end), (200, End::Clean));
    assert_eq!(got.len(), sent.len());
    assert!(got == sent && rest.is_empty());
}

fn cards(bench: &Bench) {
    for octets in [300, 200_000, 262_144, 1_000_000] {
        let strange = "\"x\":1.0e+2, \"x\":\"\\ud800\u{2028}\\/\",\r\n\t\"n\" : -0.0";
        let signature = r#"{ "protected":"eyJhbGciOiJFUzI1NiJ9", "signature":"AA" }"#;
        let card = format!(
            "{{{strange},\"padding\":\"{}\",\"signatures\":[{signature} ]}}",
            "p".repeat(octets)
        );
        bench.plan(Answer::Whole(200, card.clone().into_bytes()));
        let path = "/agents/planned/.well-known/agent-card.json?original=true";
        let reply = support::http(bench.pair.port, "GET", path, &[], b"").expect("the card");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.body == card.as_bytes(), "a public card of {octets}");
        for method in ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":"\u0061","method":"{method}"}}"#);
            // As the ingress writes it, so that all of it can be compared.
            let reply = format!(r#"{{"jsonrpc":"2.0","id":"\u0061","result":{card}}}"#);
            bench
                .check_unary(body.as_bytes(), 200, reply.as_bytes())
                .unwrap_or_else(|difference| panic!("{method} of {octets}: {difference}"));
        }
    }
    let labels = ["outcome=\"document\""];
    for (relay, sets) in [
        (&bench.pair.ingress, "npamp_relay_calls_total"),
        (&bench.pair.egress, "npamp_relay_requests_total"),
    ] {
        let carried = relay.metrics().sum(sets, &labels);
        assert!((carried - 12.0).abs() < 0.1, "{carried} document sets");
    }
}

/// Ruling R11: ids of clients may collide, answers never do.
fn crossing_ids(bench: &Bench) {
    const CLIENTS: u64 = 64;
    let port = bench.pair.port;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            thread::spawn(move || {
                for round in 0..4 {
                    let marker = n + CLIENTS * round;
                    let method = ["message/send", "message/stream"][(n + round) as usize % 2];
                    let body = format!(
                        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"marker":{marker}}}}}"#
                    );
                    let client = Client::post(port, "mirror", body.as_bytes()).expect("a connection");
                    let outcome = client.reply(PATIENCE);
                    assert_eq!((outcome.status, outcome.end), (200, End::Clean), "{}", outcome.text());
                    if method == "message/send" {
                        assert_eq!(outcome.body, marked(marker, 0), "{}", outcome.text());
                    } else {
                        let want: Vec<_> = (0..EVENTS).map(|n| marked(marker, n)).collect();
                        assert_eq!(events(&outcome.body).0, want, "{}", outcome.text());
                    }
                }
            })
        })
        .collect();
    let crossed = clients
        .into_iter()
        .filter_map(|client| client.join().err())
        .count();
    assert_eq!(
        crossed, 0,
        "clients that did not get exactly their own answers"
    );
}

fn all(workers: usize) {
    let bench = Bench::start(workers);
    fixed_bodies(&bench);
    generated_bodies(&bench);
    limits(&bench);
    bulk(&bench);
    cards(&bench);
    crossing_ids(&bench);
}

#[test]
fn octets_with_mapping_on_the_units() {
    all(0);
}

#[test]
fn octets_with_mapping_on_a_worker() {
    all(1);
}
