//! The command as people run it: what it prints, where, and how it exits.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn relay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npamp-relay"))
        .args(args)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory with an identity, a certificate and a configuration that names them.
fn site() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = relay(&["identity", "new", "--out", &path("identity.pem")]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let pair = rcgen::generate_simple_self_signed(vec!["r.example".to_owned()]).unwrap();
    std::fs::write(path("cert.pem"), pair.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("tokens"), "s3cret-token\n").unwrap();
    let config = "[identity]
key = \"identity.pem\"
[[listen]]
address = \"127.0.0.1:0\"
tls_cert = \"cert.pem\"
tls_key = \"key.pem\"
peers = [\"*\"]
hello = \"optional\"
[[agent]]
name = \"r\"
url = \"http://127.0.0.1:9/\"
[[ingress]]
address = \"127.0.0.1:0\"
token_file = \"tokens\"
[[route]]
path = \"/\"
upstream = \"npamp://r.example:7443\"
tls_ca = \"cert.pem\"
";
    std::fs::write(path("relay.toml"), config).unwrap();
    let config = path("relay.toml");
    (directory, config)
}

#[test]
fn wrong_arguments_exit_with_2() {
    for args in [
        &[][..],
        &["frobnicate"],
        &["check"],
        &["check", "--config"],
        &["check", "--config", "x", "y"],
        &["identity"],
        &["identity", "new"],
        &["identity", "show"],
    ] {
        let output = relay(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            err(&output).contains("--help"),
            "{args:?}: {}",
            err(&output)
        );
    }
}

#[test]
fn help_and_version_exit_with_0() {
    let help = relay(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for command in ["check", "identity", "conformance-adapter"] {
        assert!(out(&help).contains(command));
    }
    let version = relay(&["--version"]);
    assert!(out(&version).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn identities_round_trip_and_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("identity.pem");
    let name = file.to_str().unwrap();
    let made = relay(&["identity", "new", "--out", name]);
    assert_eq!(made.status.code(), Some(0));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = out(&made);
    assert!(
        public.starts_with("ed25519:") && public.len() == "ed25519:".len() + 43 + 1,
        "{public}"
    );
    let shown = relay(&["identity", "show", name]);
    assert_eq!(out(&shown), public);
    let pem = std::fs::read_to_string(&file).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));

    let again = relay(&["identity", "new", "--out", name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        err(&again).contains("is not overwritten"),
        "{}",
        err(&again)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), pem);

    let other = directory.path().join("other.pem");
    let other = relay(&["identity", "new", "--out", other.to_str().unwrap()]);
    assert_ne!(out(&other), public);
}

#[test]
fn identity_show_refuses_what_is_no_identity() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key.pem");
    let pair = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let pem = pair.signing_key.serialize_pem();
    for text in [
        pem.as_str(),
        "",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let shown = relay(&["identity", "show", file.to_str().unwrap()]);
        assert_eq!(shown.status.code(), Some(1));
        assert!(err(&shown).contains("no Ed25519 key"), "{}", err(&shown));
        assert!(out(&shown).is_empty());
    }
    let gone = relay(&["identity", "show", "/nonexistent/identity.pem"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(err(&gone).contains("cannot read /nonexistent/identity.pem"));
}

#[test]
fn check_prints_the_effective_configuration_without_secrets() {
    let (directory, config) = site();
    let checked = relay(&["check", "--config", &config]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let text = out(&checked);
    for part in [
        "valid",
        "# aead: ",
        "aead = \"auto\"",
        "# cores: ",
        "is outside conformance",
        "unary_s = 60.0",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for secret in ["identity.pem", "key.pem", "tokens"] {
        let content = std::fs::read_to_string(directory.path().join(secret)).unwrap();
        for line in content.lines().filter(|line| !line.starts_with('-')) {
            assert!(!text.contains(line), "{secret} is shown");
        }
    }
    // What it prints is a configuration, and checking that prints the same.
    let again = directory.path().join("again.toml");
    std::fs::write(&again, &text).unwrap();
    let again = relay(&["check", "--config", again.to_str().unwrap()]);
    let body = |text: &str| text.split_once("\n\n").unwrap().1.to_owned();
    assert_eq!(body(&out(&again)), body(&text));
}

#[test]
fn check_tells_every_problem_and_exits_with_1() {
    let (_directory, config) = site();
    let text = std::fs::read_to_string(&config).unwrap();
    let broken = text
        .replace("key.pem", "gone.pem")
        .replace("peers =", "peer =");
    std::fs::write(&config, broken).unwrap();
    let checked = relay(&["check", "--config", &config]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(out(&checked).is_empty());
    let told = err(&checked);
    for part in [
        ":3: listen[0].peers: missing key",
        ":6: listen[0].tls_key: cannot read",
        ":7: listen[0].peer: unknown key",
    ] {
        assert!(
            told.contains(&format!("{config}{part}")),
            "{part} is not in\n{told}"
        );
    }
}

#[test]
fn a_configuration_that_is_not_there() {
    let checked = relay(&["check", "--config", "/nonexistent/relay.toml"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        err(&checked).starts_with("/nonexistent/relay.toml: cannot read"),
        "{}",
        err(&checked)
    );
    let directory = tempfile::tempdir().unwrap();
    let checked = relay(&["check", "--config", Path::to_str(directory.path()).unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
}

/// One message each way, and an orderly end when standard input closes.
#[test]
fn the_conformance_adapter_answers_on_standard_output() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_npamp-relay"))
        .arg("conformance-adapter")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let request = br#"{"op":"crc32c","in":{"octets":"313233343536373839"}}"#;
    let mut stdin = child.stdin.take().unwrap();
    let length = u32::try_from(request.len()).unwrap();
    stdin.write_all(&length.to_le_bytes()).unwrap();
    stdin.write_all(request).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let (length, answer) = output.stdout.split_at(4);
    assert_eq!(usize::from(length[0]), answer.len());
    // The check value of CRC32C.
    let answer = String::from_utf8(answer.to_vec()).unwrap();
    assert!(answer.contains("e3069283"), "{answer}");
}

/// The sample agent over HTTP.
mod sample_agent {
    use npamp_relay::cli::demo::agent::SampleAgent;
    use npamp_relay::cli::demo::curl_lines;
    use npamp_relay::limits;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    struct Answer {
        status: u16,
        head: String,
        body: String,
    }

    fn send(agent: &SampleAgent, head: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(agent.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let length = body.len();
        write!(
            stream,
            "{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        BufReader::new(stream)
    }

    fn ask(agent: &SampleAgent, head: &str, body: &str) -> Answer {
        let mut text = String::new();
        send(agent, head, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn post(agent: &SampleAgent, body: &str) -> Answer {
        ask(agent, "POST / HTTP/1.1", body)
    }

    const STREAM_V03: &str = r#"{"jsonrpc":"2.0","id":"s","method":"message/stream","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"one two"}]}}}"#;
    const STREAM_V10: &str = r#"{"jsonrpc":"2.0","id":"s","method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"one two"}]}}}"#;

    /// The events of a stream with the time each took to arrive, up to `max`.
    fn events(reader: &mut BufReader<TcpStream>, max: usize) -> Vec<(Value, Duration)> {
        let start = Instant::now();
        let mut events = Vec::new();
        let mut line = String::new();
        while events.len() < max && reader.read_line(&mut line).unwrap() > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                events.push((serde_json::from_str(data).unwrap(), start.elapsed()));
            }
            line.clear();
        }
        events
    }

    #[test]
    fn ids_are_echoed_verbatim() {
        let agent = SampleAgent::start().unwrap();
        for id in [
            "1",
            "1e2",
            "-0",
            "12345678901234567890123",
            "1.0",
            r#""\u0041b""#,
            r#""""#,
            "null",
        ] {
            let answer = post(
                &agent,
                &format!(
                    r#"{{"id":{id},"jsonrpc":"2.0","method":"tasks/get","params":{{"id":"x"}}}}"#
                ),
            );
            assert_eq!(answer.status, 200);
            let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001"#);
            assert!(answer.body.starts_with(&start), "{}", answer.body);
        }
    }

    #[test]
    fn what_is_no_request_is_told() {
        let agent = SampleAgent::start().unwrap();
        for (body, code) in [
            ("", -32700),
            ("hello", -32700),
            ("{", -32700),
            ("[]", -32600),
            ("{}", -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, -32601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get"}"#, -32602),
        ] {
            let answer: Value = serde_json::from_str(&post(&agent, body).body).unwrap();
            assert_eq!(answer["error"]["code"], code, "{body}");
        }
        let note = post(&agent, r#"{"jsonrpc":"2.0","method":"tasks/get"}"#);
        assert_eq!((note.status, note.body.as_str()), (202, ""));
        let versioned = ask(
            &agent,
            "POST / HTTP/1.1\r\nA2A-Version: 99.0",
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#,
        );
        let answer: Value = serde_json::from_str(&versioned.body).unwrap();
        assert_eq!(answer["error"]["code"], -32009);
        assert_eq!(
            answer["error"]["data"][0]["reason"],
            "VERSION_NOT_SUPPORTED"
        );
    }

    #[test]
    fn a_body_that_is_too_long_is_refused() {
        let agent = SampleAgent::start().unwrap();
        let mut stream = TcpStream::connect(agent.address()).unwrap();
        let length = limits::FOREIGN_MESSAGE_OCTETS_MAX + 1;
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        )
        .unwrap();
        let chunk = vec![b' '; 64 * 1024];
        for _ in 0..length / chunk.len() {
            if stream.write_all(&chunk).is_err() {
                break;
            }
        }
        let _ = stream.write_all(b" ");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    }

    #[test]
    fn cards_are_cacheable() {
        let agent = SampleAgent::start().unwrap();
        let answer = ask(&agent, "GET /.well-known/agent-card.json HTTP/1.1", "");
        assert_eq!(answer.status, 200);
        let card: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(card["url"], json!(format!("http://{}/", agent.address())));
        assert!(answer.head.contains("cache-control: "));
        let (_, tag) = answer.head.split_once("etag: ").unwrap();
        let tag = tag.lines().next().unwrap();
        let again = format!("GET /.well-known/agent.json HTTP/1.1\r\nIf-None-Match: {tag}");
        let again = ask(&agent, &again, "");
        assert_eq!((again.status, again.body.as_str()), (304, ""));
        assert_eq!(ask(&agent, "GET / HTTP/1.1", "").status, 404);
        assert_eq!(ask(&agent, "PUT / HTTP/1.1", "").status, 405);
    }

    /// Events are spaced, v0.3 ends with `final`, v1.0 by closing.
    #[test]
    fn streams() {
        let agent = SampleAgent::start().unwrap();
        for (body, last) in [
            (STREAM_V03, "/result/final"),
            (STREAM_V10, "/result/statusUpdate"),
        ] {
            let mut reader = send(&agent, "POST / HTTP/1.1", body);
            let all = events(&mut reader, usize::MAX);
            assert_eq!(all.len(), 6);
            assert!(
                all.iter()
                    .all(|(event, _)| event["id"] == "s" && event["jsonrpc"] == "2.0")
            );
            assert!(
                all[5]
                    .0
                    .pointer(last)
                    .is_some_and(|value| *value != json!(false))
            );
            let took = all[5].1;
            assert!(took >= limits::DEMO_EVENT_TIME * 4, "not spaced: {took:?}");
        }
    }

    /// A client that leaves does not cancel the task, and another one can watch it.
    #[test]
    fn leaving_does_not_cancel() {
        let agent = SampleAgent::start().unwrap();
        let mut reader = send(&agent, "POST / HTTP/1.1", STREAM_V10);
        let (first, _) = events(&mut reader, 1).remove(0);
        drop(reader);
        let task = &first["result"]["task"]["id"];
        let watch = json!({ "jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": { "id": task } });
        let mut reader = send(&agent, "POST / HTTP/1.1", &watch.to_string());
        let all = events(&mut reader, usize::MAX);
        assert_eq!(
            all[0].0["result"]["task"]["id"], *task,
            "the task comes first"
        );
        let (last, _) = all.last().unwrap();
        assert_eq!(
            last["result"]["statusUpdate"]["status"]["state"],
            "TASK_STATE_COMPLETED"
        );
    }

    /// The printed commands, run as printed, against the agent itself.
    #[test]
    fn curl_lines_work() {
        if std::process::Command::new("curl")
            .arg("--version")
            .output()
            .is_err()
        {
            println!("skipped: no curl here");
            return;
        }
        let agent = SampleAgent::start().unwrap();
        for (what, line) in curl_lines(&format!("http://{}", agent.address())) {
            let output = std::process::Command::new("sh")
                .args(["-c", &line])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{what}: {line}");
            let wanted = if what.contains("card") {
                "sample agent"
            } else {
                "\"hello "
            };
            assert!(text.contains(wanted), "{what}: {text}");
            assert!(!text.contains("\"error\""), "{what}: {text}");
        }
    }
}

/// The first signal waits for what is under way, the second does not.
#[test]
fn a_second_signal_ends_at_once() {
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    // An agent that accepts in its backlog and never says a word.
    let agent = free();
    let egress = free().local_addr().unwrap();
    let (_directory, file) = site();
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config
        .replacen("127.0.0.1:0", &egress.to_string(), 1)
        .replace("127.0.0.1:9/", &agent.local_addr().unwrap().to_string())
        .replace("token_file = \"tokens\"\n", "")
        .replace(
            "npamp://r.example:7443\"",
            &format!("npamp://{egress}\"\nserver_name = \"r.example\""),
        )
        + "[limits]\nshutdown_grace_s = 60\n";
    std::fs::write(&file, config).unwrap();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_npamp-relay"))
        .args(["run", "--config", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(relay.stderr.take().unwrap());
    let stdout = BufReader::new(relay.stdout.take().unwrap());
    let (line, lines) = std::sync::mpsc::channel();
    let other = line.clone();
    std::thread::spawn(move || {
        stderr
            .lines()
            .map_while(Result::ok)
            .try_for_each(|l| line.send(l))
    });
    std::thread::spawn(move || {
        stdout
            .lines()
            .map_while(Result::ok)
            .try_for_each(|l| other.send(l))
    });
    let address = loop {
        let line = lines.recv_timeout(Duration::from_secs(20)).unwrap();
        if line.contains("listening for A2A over HTTP") {
            break line.rsplit_once("address=").unwrap().1.trim().to_owned();
        }
    };
    let mut client = TcpStream::connect(address).unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"message/stream"}"#;
    write!(
        client,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let _call = agent.accept().unwrap();
    let signal = |relay: &std::process::Child| {
        let sent = Command::new("kill").arg(relay.id().to_string()).status();
        assert!(sent.unwrap().success());
        std::thread::sleep(Duration::from_millis(500));
    };
    signal(&relay);
    assert!(relay.try_wait().unwrap().is_none(), "a call is under way");
    signal(&relay);
    let ended = relay.try_wait().unwrap();
    let _ = relay.kill();
    assert_eq!(ended.expect("it ends at once").signal(), Some(15));
}
