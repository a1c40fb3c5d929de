//! What an agent's odd answers become, for a client of plain sockets and in the
//! relays' own accounts: a raw agent, two relays as processes, with mapping on
//! the units and on a worker (rulings R14, R15, R27). What travels between the
//! relays is recorded in `tests/conformance/odd_agents.rs`.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use std::io;
use std::net::TcpListener;
use std::time::Duration;
use support::agent::{Agent, Conversation, Request, close, event};
use support::client::{Client, End, Outcome, events};
use support::{Metrics, Pair, PairOptions};

/// Longest wait for a reply that must come.
const PATIENCE: Duration = Duration::from_secs(20);
const HEAD: &str = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";

fn said(n: u32) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"said":{n},"by":"\u00e9t\u00e9 – été"}}}}"#)
        .into_bytes()
}

fn last() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","id":1,"result":{"kind":"status-update","final":true}}"#.to_vec()
}

fn error() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no","data":[1e400]}}"#.to_vec()
}

/// Cuts an event inside its first character of two octets.
fn inside_a_character() -> (Vec<u8>, Vec<u8>) {
    let whole = event(&said(2));
    let at = whole.iter().position(|octet| *octet == 0xc3).expect("é") + 1;
    (whole[..at].to_vec(), whole[at..].to_vec())
}

/// An answer without a stream: status, more header lines, content type and body.
fn plain(
    conversation: &mut Conversation,
    status: &str,
    lines: &str,
    content_type: &str,
    body: &[u8],
) -> io::Result<()> {
    conversation.raw(
        format!(
            "HTTP/1.1 {status}\r\n{lines}content-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
    )?;
    conversation.raw(body)
}

const HTML: &[u8] = b"<html><body>go away</body></html>";

fn serve(request: &Request, conversation: &mut Conversation) -> io::Result<()> {
    let name = request.path.trim_start_matches('/');
    if let Some((status, what)) = name
        .split_once('-')
        .filter(|(status, _)| status.parse::<u16>().is_ok())
    {
        let retry = if matches!(status, "429" | "503") {
            "retry-after: 7\r\n"
        } else {
            ""
        };
        return match what {
            "html" => plain(
                conversation,
                &format!("{status} Odd"),
                retry,
                "text/html",
                HTML,
            ),
            "nothing" => plain(
                conversation,
                &format!("{status} Odd"),
                retry,
                "text/plain",
                b"",
            ),
            "events" => plain(
                conversation,
                &format!("{status} Odd"),
                retry,
                "text/event-stream",
                &event(&said(1)),
            ),
            _ => plain(
                conversation,
                &format!("{status} Odd"),
                retry,
                "application/json",
                &error(),
            ),
        };
    }
    if name == "hook" {
        let body: serde_json::Value =
            serde_json::from_slice(&request.body).map_err(io::Error::other)?;
        let reply = serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": body["params"]});
        return conversation.reply(200, reply.to_string().as_bytes());
    }
    conversation.raw(format!("HTTP/1.1 200 OK\r\n{HEAD}\r\n").as_bytes())?;
    match name {
        "after-final" => {
            conversation.event(&said(1))?;
            conversation.event(&last())?;
            conversation.event(&said(2))?;
            conversation.event(&last())?;
        }
        "after-final-at-once" => {
            let all = [&last()[..], &said(2), &error()].map(event).concat();
            conversation.chunk(&all)?;
        }
        "after-error" => {
            conversation.event(&said(1))?;
            conversation.event(&error())?;
            conversation.event(&said(2))?;
        }
        "error-first" => conversation.event(&error())?,
        "empty" => {}
        "empty-but-comments" => conversation.chunk(b": nothing\n\nevent: x\nid: 7\n\n")?,
        "no-blank-line" => {
            conversation.event(&said(1))?;
            let whole = event(&said(2));
            conversation.chunk(&whole[..whole.len() - 1])?;
        }
        "no-line-end" => {
            conversation.event(&said(1))?;
            let whole = event(&said(2));
            conversation.chunk(&whole[..whole.len() - 2])?;
        }
        "half-an-event" => {
            conversation.event(&said(1))?;
            conversation.chunk(&event(&said(2))[..20])?;
        }
        "cut-in-a-character" => {
            conversation.event(&said(1))?;
            conversation.chunk(&inside_a_character().0)?;
        }
        "broken-in-a-character" => {
            conversation.event(&said(1))?;
            conversation.chunk(&inside_a_character().0)?;
            return close();
        }
        "chunked-in-a-character" => {
            let (before, after) = inside_a_character();
            conversation.event(&said(1))?;
            conversation.chunk(&before)?;
            std::thread::sleep(Duration::from_millis(50));
            conversation.chunk(&after)?;
        }
        "no-last-chunk" => {
            conversation.event(&said(1))?;
            return close();
        }
        "no-json" => {
            conversation.event(&said(1))?;
            conversation.event(b"hello")?;
        }
        "another-id" => {
            conversation.event(&said(1))?;
            conversation.event(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#)?;
        }
        other => panic!("no agent {other}"),
    }
    conversation.end()
}

/// What a stream becomes: its events, its end, and how the egress has answered on the wire.
const STREAMS: [(&str, &[&str], End, &str); 15] = [
    ("after-final", &["1", "last"], End::Clean, "stream_end"),
    ("after-final-at-once", &["last"], End::Clean, "stream_end"),
    ("after-error", &["1", "error"], End::Clean, "stream_error"),
    ("error-first", &["error"], End::Clean, "stream_error"),
    ("empty", &[], End::Clean, "stream_end"),
    ("empty-but-comments", &[], End::Clean, "stream_end"),
    ("no-blank-line", &["1", "2"], End::Clean, "stream_end"),
    ("no-line-end", &["1", "2"], End::Clean, "stream_end"),
    ("half-an-event", &["1"], End::Broken, "transport_error"),
    ("cut-in-a-character", &["1"], End::Broken, "transport_error"),
    (
        "broken-in-a-character",
        &["1"],
        End::Broken,
        "transport_error",
    ),
    (
        "chunked-in-a-character",
        &["1", "2"],
        End::Clean,
        "stream_end",
    ),
    ("no-last-chunk", &["1"], End::Broken, "transport_error"),
    ("no-json", &["1"], End::Broken, "transport_error"),
    ("another-id", &["1"], End::Broken, "transport_error"),
];

/// What an answer without a stream becomes: the client's status, and whether
/// Retry-After is passed on (ruling R14).
const PLAIN: [(&str, u16, bool); 15] = [
    ("401-html", 502, false),
    ("401-nothing", 502, false),
    ("403-html", 502, false),
    ("404-nothing", 404, false),
    ("408-html", 408, false),
    ("413-nothing", 413, false),
    ("429-html", 429, true),
    ("429-nothing", 429, true),
    ("429-events", 429, true),
    ("503-html", 503, true),
    ("503-nothing", 503, true),
    ("503-events", 503, true),
    ("500-html", 502, false),
    ("200-html", 502, false),
    ("200-nothing", 502, false),
];

/// The same statuses with a JSON-RPC Response: that is the agent's own word.
const RESPONSES: [&str; 4] = [
    "401-response",
    "429-response",
    "503-response",
    "200-response",
];

fn named(name: &str) -> Vec<u8> {
    match name {
        "1" => said(1),
        "2" => said(2),
        "last" => last(),
        _ => error(),
    }
}

struct Bench {
    pair: Pair,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize) -> Self {
        let agent = Agent::start(serve);
        let names = STREAMS
            .iter()
            .map(|stream| stream.0)
            .chain(PLAIN.iter().map(|plain| plain.0))
            .chain(RESPONSES)
            .chain(["hook"]);
        let pair = Pair::start(&PairOptions {
            agents: names
                .map(|name| (format!("a{name}"), agent.url(name)))
                .collect(),
            both: format!("[engine]\nworkers = {workers}\n"),
            ..PairOptions::default()
        });
        Self {
            pair,
            _agent: agent,
        }
    }

    fn call(&self, name: &str, method: &str) -> Outcome {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
        let client = Client::post(self.pair.port, &format!("a{name}"), body.as_bytes());
        client.expect("a connection").reply(PATIENCE)
    }

    /// How often the egress has answered so.
    fn answered(&self, outcome: &str) -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        self.egress().sum("npamp_relay_requests_total", &[&label])
    }

    fn egress(&self) -> Metrics {
        self.pair.egress.metrics()
    }
}

fn streams(bench: &Bench) {
    for (name, expected, end, outcome) in STREAMS {
        let before = bench.answered(outcome);
        // The agent's content type decides, not the method (ruling R27).
        for (count, method) in (1..).zip(["message/stream", "SendStreamingMessage", "message/send"])
        {
            let reply = bench.call(name, method);
            let shown = format!(
                "{name}, {method}: {} {:?} {}",
                reply.status,
                reply.end,
                reply.text()
            );
            assert_eq!((reply.status, reply.end), (200, end), "{shown}");
            assert_eq!(
                reply.header("content-type"),
                Some("text/event-stream"),
                "{shown}"
            );
            let expected: Vec<Vec<u8>> = expected.iter().map(|name| named(name)).collect();
            let (got, rest) = events(&reply.body);
            assert!(got == expected && rest.is_empty(), "{shown}");
            let after = bench.answered(outcome);
            assert!(
                (after - before - f64::from(count)).abs() < 0.1,
                "{shown}: {outcome} {before} → {after}"
            );
        }
    }
    // What came behind a last event was counted, not carried.
    let dropped = "npamp_relay_bridge_dropped_total";
    let counted = support::wait_for("late events are counted", PATIENCE, || {
        let counted = bench.egress().sum(dropped, &["reason=\"agent_event\""]);
        (counted > 0.0).then_some(counted)
    });
    // Of each of three calls: two, two and one.
    assert!(counted <= 15.0, "{counted}");
}

fn answers_without_a_stream(bench: &Bench) {
    for (name, status, retry) in PLAIN {
        for method in ["message/stream", "SendStreamingMessage"] {
            let reply = bench.call(name, method);
            reply.assert_problem(&format!("{name}, {method}"), &[status]);
            assert_eq!(reply.header("retry-after"), retry.then_some("7"), "{name}");
            let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
            assert_eq!(body["code"], 4, "{name}: {}", reply.text());
            assert_eq!(body["name"], "NotDelivered", "{name}: {}", reply.text());
            assert!(
                !reply.text().contains("go away"),
                "{name}: {}",
                reply.text()
            );
        }
    }
    for name in RESPONSES {
        let reply = bench.call(name, "message/stream");
        assert_eq!((reply.status, reply.end), (200, End::Clean), "{name}");
        assert_eq!(reply.body, error(), "{name}: {}", reply.text());
    }
}

/// NPAMP-MAP-A2A §8: configuration is an ordinary exchange, and nobody here calls
/// the address in it.
fn no_webhook_is_called(bench: &Bench) {
    let webhook = TcpListener::bind("127.0.0.1:0").expect("a listener");
    webhook.set_nonblocking(true).expect("nonblocking");
    let url = format!("http://{}/hook", webhook.local_addr().expect("address"));
    for (method, params) in [
        (
            "tasks/pushNotificationConfig/set",
            format!(r#"{{"taskId":"t","pushNotificationConfig":{{"url":"{url}"}}}}"#),
        ),
        (
            "CreateTaskPushNotificationConfig",
            format!(r#"{{"taskId":"t","url":"{url}"}}"#),
        ),
        (
            "message/send",
            format!(r#"{{"configuration":{{"pushNotificationConfig":{{"url":"{url}"}}}}}}"#),
        ),
        (
            "tasks/pushNotificationConfig/get",
            r#"{"id":"t"}"#.to_owned(),
        ),
        (
            "tasks/pushNotificationConfig/list",
            r#"{"id":"t"}"#.to_owned(),
        ),
        (
            "tasks/pushNotificationConfig/delete",
            r#"{"id":"t"}"#.to_owned(),
        ),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let client = Client::post(bench.pair.port, "ahook", body.as_bytes());
        let reply = client.expect("a connection").reply(PATIENCE);
        assert_eq!((reply.status, reply.end), (200, End::Clean), "{method}");
        let said: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        let asked: serde_json::Value = serde_json::from_slice(body.as_bytes()).expect("JSON");
        assert_eq!(said["result"], asked["params"], "{method}");
    }
    std::thread::sleep(Duration::from_millis(300));
    let called = webhook.accept().map(|(_, from)| from);
    assert!(
        matches!(&called, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
        "the webhook got a connection: {called:?}"
    );
}

fn all(workers: usize) {
    let bench = Bench::start(workers);
    streams(&bench);
    answers_without_a_stream(&bench);
    no_webhook_is_called(&bench);
}

#[test]
fn odd_agents_with_mapping_on_the_units() {
    all(0);
}

#[test]
fn odd_agents_with_mapping_on_a_worker() {
    all(1);
}
