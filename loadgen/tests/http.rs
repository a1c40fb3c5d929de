//! The scenarios *http* and *sse* and the built-in agent, as a user runs them:
//! agent and clients in two processes, and agents of the test's own that do
//! what they should not. No assertion here is about speed.

#![allow(clippy::disallowed_methods)] // tests start processes and wait for them

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npamp-loadgen"));
    command.args(arguments);
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

struct Agent {
    process: Child,
    url: String,
}

impl Agent {
    fn start(arguments: &[&str]) -> Self {
        let arguments = [&["agent", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut process = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self { process, url }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a scenario with JSON on standard output.
fn run(scenario: &str, target: &str, more: &[&str]) -> (Option<i32>, Value, String) {
    let arguments = [
        "run",
        "--scenario",
        scenario,
        "--target",
        target,
        "--lag-max",
        "60000",
        "--warmup",
        "0",
        "--duration",
        "0.5",
        "--json",
        "-",
    ];
    let Output {
        status,
        stdout,
        stderr,
    } = command(&[&arguments, more].concat()).output().unwrap();
    let errors = text(&stderr);
    let report =
        serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (status.code(), report, errors)
}

fn kinds(report: &Value) -> Vec<&str> {
    let errors = report["errors"].as_object().unwrap();
    errors.keys().map(String::as_str).collect()
}

#[test]
fn unary_over_http() {
    let agent = Agent::start(&[]);
    for version in ["0.3", "1.0"] {
        let more = ["--rate", "200", "--a2a-version", version];
        let (status, report, errors) = run("http", &agent.url, &more);
        assert_eq!(status, Some(0), "{errors}");
        // The schedule decides how many: 200 a second for half a second.
        assert_eq!(report["counts"]["scheduled"], 100);
        assert_eq!(report["counts"]["completed"], 100);
        assert_eq!(report["latency"]["reply"]["count"], 100);
        assert!(report["latency"]["reply"]["min_ns"].as_u64() > Some(0));
        assert_eq!(report["target"], agent.url.as_str());
    }
}

#[test]
fn streams_of_events_whole_and_in_order() {
    let agent = Agent::start(&["--events", "50", "--event-octets", "600"]);
    for (path, version) in [
        ("event", "0.3"),
        ("bulk", "0.3"),
        ("event", "1.0"),
        ("bulk", "1.0"),
    ] {
        let target = format!("{}{path}", agent.url);
        let more = [
            "--rate",
            "40",
            "--connections",
            "8",
            "--a2a-version",
            version,
        ];
        let (status, report, errors) = run("sse", &target, &more);
        assert_eq!(status, Some(0), "{path} {version}: {errors}");
        assert_eq!(report["counts"]["completed"], 20);
        // Fifty events and the end of each.
        assert_eq!(report["counts"]["events"], 20 * 51);
        assert!(report["counts"]["octets_received"].as_u64() > Some(20 * 50 * 600));
        let latency = &report["latency"];
        assert_eq!(latency["first_event"]["count"], 20);
        assert_eq!(latency["gap"]["count"], 20 * 50);
        assert_eq!(latency["stream_end"]["count"], 20);
        assert!(errors.contains("events/s"), "{errors}");
    }
}

#[test]
fn a_connection_short_of_time_makes_requests_wait() {
    let agent = Agent::start(&["--events", "3", "--event-gap-us", "20000"]);
    let more = ["--rate", "40", "--connections", "1"];
    let (status, report, errors) = run("sse", &agent.url, &more);
    // Each stream takes 60 ms and one is due every 25 ms: the last of 20 begins at 1.14 s at the earliest, though meant for 0.475 s.
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(report["counts"]["completed"], 20);
    assert!(
        report["schedule"]["wait"]["max_ns"].as_u64() > Some(600_000_000),
        "{report}"
    );
    assert!(
        report["latency"]["stream_end"]["min_ns"].as_u64() > Some(59_000_000),
        "{report}"
    );
}

/// An agent that answers every request with the same octets and closes.
fn scripted(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            std::thread::spawn(move || {
                let mut held = vec![0; 4096];
                while socket.read(&mut held).is_ok_and(|octets| octets > 0) {
                    if socket.write_all(answer).is_err() {
                        return;
                    }
                    let _ = socket.shutdown(std::net::Shutdown::Write);
                }
            });
        }
    });
    url
}

#[test]
fn what_is_wrong_is_counted_by_kind() {
    let event = |octets: &'static [u8]| ("sse", octets);
    let cases = [
        ("http_503", ("http", &b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"[..])),
        ("connection_lost", ("http", b"")),
        ("reply_malformed", ("http", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")),
        ("reply_crossed", ("http", b"HTTP/1.1 200 OK\r\ncontent-length: 38\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}")),
        ("no_stream", ("sse", b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")),
        ("stream_incomplete", event(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"text\":\"0000000001 x\"}\n\n")),
        ("stream_gap", event(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"text\":\"0000000001\"}\n\ndata: {\"text\":\"0000000003\"}\n\n")),
        ("stream_broken", event(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"text\":\"0000000001 last\"}\n\ndata: {\"text\":\"0000000002\"}\n\n")),
        ("event_unnumbered", event(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"a\":1}\n\n")),
        ("agent_error", event(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"x\"}}\n\n")),
    ];
    for (kind, (scenario, answer)) in cases {
        let url = scripted(answer);
        let more = ["--rate", "10", "--connections", "2", "--timeout", "2"];
        let (status, report, errors) = run(scenario, &url, &more);
        assert_eq!(status, Some(1), "{kind}: {errors}");
        assert_eq!(kinds(&report), [kind], "{report}");
        assert_eq!(report["counts"]["completed"], 0);
        assert_eq!(report["errors"][kind]["count"], 5, "{kind}: {report}");
    }
}

#[test]
fn a_silent_agent_is_given_up() {
    // Accepts in the kernel, never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let more = ["--rate", "4", "--connections", "4", "--timeout", "0.3"];
    let (status, report, _) = run("http", &url, &more);
    assert_eq!(status, Some(1));
    assert_eq!(kinds(&report), ["timed_out"], "{report}");
    assert_eq!(report["errors"]["timed_out"]["count"], 2);
}

#[test]
fn an_unreachable_ingress() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = format!("http://{address}/");
    let output = command(&["run", "--scenario", "sse", "--target", &target])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&target) && errors.contains("refused"),
        "{errors}"
    );
}

#[test]
fn a_bearer_token_is_sent_and_never_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut held = vec![0; 4096];
        let octets = socket.read(&mut held).unwrap();
        text(&held[..octets])
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "a-secret-token\n").unwrap();
    let more = [
        "--rate",
        "2",
        "--connections",
        "1",
        "--timeout",
        "0.5",
        "--bearer-file",
        file.to_str().unwrap(),
    ];
    let (_, report, errors) = run("http", &url, &more);
    let head = asked.join().unwrap().to_lowercase();
    assert!(
        head.contains("authorization: bearer a-secret-token\r\n"),
        "{head}"
    );
    assert!(head.contains("a2a-version: 0.3\r\n"), "{head}");
    assert!(!report.to_string().contains("a-secret-token") && !errors.contains("a-secret-token"));
    let missing = [
        "run",
        "--scenario",
        "http",
        "--target",
        &url,
        "--bearer-file",
        "/nonexistent",
    ];
    let output = command(&missing).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent"));
}

#[test]
fn wrong_arguments() {
    let url = "http://127.0.0.1:1/";
    for wrong in [
        &["run", "--scenario", "sse"][..],
        &[
            "run",
            "--scenario",
            "http",
            "--target",
            "npamp://a.example:1",
        ],
        &["run", "--scenario", "unary", "--target", url],
        &["run", "--scenario", "sse", "--target", "https://a.example/"],
        &[
            "run",
            "--scenario",
            "sse",
            "--target",
            url,
            "--server-name",
            "a",
        ],
        &[
            "run",
            "--scenario",
            "sse",
            "--target",
            url,
            "--a2a-version",
            "2",
        ],
        &[
            "run",
            "--target",
            "npamp://a.example:1",
            "--bearer-file",
            "x",
        ],
        &["agent", "--listen", "nowhere"],
        &["agent", "--write", "slowly"],
    ] {
        let output = command(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
}
