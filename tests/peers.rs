//! The official A2A SDKs as they are, through an ingress and an egress as two
//! processes: what each client reports must equal what it reports when it talks
//! to the same agent directly.
//!
//! Needs `tests/peers/install.sh`. Without it these tests say that they are
//! skipped, or fail when `NPAMP_PEERS=required`.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Pair, PairOptions, Process, Proxy, free_port, http, wait_for};

/// How long one run of a client may take.
const CLIENT_TIME: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Agent {
    /// a2a-sdk 0.3.
    V03,
    /// a2a-sdk 1.x, v1.0 methods only.
    V1,
    /// a2a-sdk 1.x, both versions on one URL.
    V1AndV03,
    /// a2a-sdk 1.x with signed cards.
    V1Signed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Client {
    /// a2a-sdk 0.3.
    PythonV03,
    /// a2a-sdk 1.x.
    PythonV1,
    /// @a2a-js/sdk 1.x.
    JavaScript,
    /// Hand-written requests.
    Raw,
    /// a2a-sdk 1.x, which verifies signed cards and makes no report.
    Signed,
}

const CLIENTS: [Client; 4] = [
    Client::PythonV03,
    Client::PythonV1,
    Client::JavaScript,
    Client::Raw,
];

/// Steps that a client cannot do with an agent, relay or not. Every other step
/// must work, unless its name says that it is an error.
fn cannot(client: Client, agent: Agent) -> &'static [&'static str] {
    match (client, agent) {
        // This client reads neither the card nor the methods of v1.0.
        (Client::PythonV03, Agent::V1) => &[
            "card",
            "transport: send",
            "transport: stream",
            "transport: card and extended card",
        ],
        // v0.3 has no listing over JSON-RPC, and this agent none of the v1.0 methods.
        (Client::PythonV1, Agent::V03) => {
            &["by card: list", "transport: send", "transport: stream"]
        }
        (Client::JavaScript, Agent::V03) => &[
            "by card: list",
            "transport 1.0: send",
            "transport 1.0: stream",
        ],
        (Client::JavaScript, Agent::V1) => &["transport 0.3: send", "transport 0.3: stream"],
        _ => &[],
    }
}

/// Where the SDKs are installed.
struct Peers {
    root: PathBuf,
    scripts: PathBuf,
}

impl Peers {
    fn find() -> Option<Self> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = repository.join(".peers");
        let complete = ["python-v03", "python-v1", "js"]
            .iter()
            .all(|part| root.join(part).join(".stamp").exists());
        if complete {
            let scripts = repository.join("tests/peers");
            return Some(Self { root, scripts });
        }
        assert!(
            std::env::var("NPAMP_PEERS").as_deref() != Ok("required"),
            "the SDKs are not installed: run tests/peers/install.sh"
        );
        println!("skipped: run tests/peers/install.sh");
        None
    }

    fn python(&self, version: &str, script: &str) -> Command {
        let mut command = Command::new(
            self.root
                .join(format!("python-{version}"))
                .join("bin/python"),
        );
        command
            .arg(self.scripts.join("python").join(script))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn start_agent(&self, agent: Agent, dir: &Path) -> (Process, u16) {
        let port = free_port();
        let mut command = match agent {
            Agent::V03 => self.python("v03", "agent_v03.py"),
            Agent::V1 | Agent::V1AndV03 | Agent::V1Signed => self.python("v1", "agent_v1.py"),
        };
        command.env("AGENT_PORT", port.to_string());
        if agent == Agent::V1AndV03 {
            command.env("AGENT_V03", "1");
        }
        if agent == Agent::V1Signed {
            command.env("AGENT_SIGNED", "1");
        }
        let mut process = Process::start("agent", command, dir);
        wait_for("the agent serves", Duration::from_secs(60), || {
            if let Some(status) = process.exited() {
                panic!("the agent ended instead of serving: {status}");
            }
            http(port, "GET", "/seen", &[], b"").ok()
        });
        (process, port)
    }

    /// Runs a client to its end; gives what it printed, or its log when it failed.
    fn run(&self, client: Client, base: &str, agent: &str, dir: &Path) -> Result<String, String> {
        let mut command = match client {
            Client::PythonV03 => self.python("v03", "client_v03.py"),
            Client::PythonV1 => self.python("v1", "client_v1.py"),
            Client::Raw => self.python("v1", "client_raw.py"),
            Client::Signed => self.python("v1", "client_signed.py"),
            Client::JavaScript => {
                let mut command = Command::new("node");
                command
                    .arg(self.scripts.join("js/client.mjs"))
                    .current_dir(self.root.join("js"));
                command
            }
        };
        command.args([base, agent]);
        let run = tempfile::tempdir_in(dir).expect("temporary directory");
        let mut process = Process::start("client", command, run.path());
        let status = process.wait_exit(CLIENT_TIME);
        if status.success() {
            Ok(process.log())
        } else {
            Err(process.log())
        }
    }

    fn report(&self, client: Client, base: &str, agent: &str, dir: &Path) -> Vec<Value> {
        let text = self
            .run(client, base, agent, dir)
            .unwrap_or_else(|log| panic!("{client:?} at {base} failed:\n{log}"));
        // The document is the last thing printed; an SDK may warn before it.
        let start = text.find("\n[\n").map_or(0, |at| at + 1);
        serde_json::from_str(&text[start..])
            .unwrap_or_else(|e| panic!("{client:?} printed no report ({e}):\n{text}"))
    }
}

/// What the agent saw since it was last asked.
fn seen(agent: u16) -> Vec<Value> {
    let reply = http(agent, "DELETE", "/seen", &[], b"").expect("what the agent saw");
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// The JSON-RPC methods with their service parameters, each once: how often a
/// client polls is a matter of time.
fn service_parameters(seen: &[Value]) -> BTreeSet<String> {
    seen.iter()
        .filter(|request| request["http"] == "POST")
        .map(|request| {
            format!(
                "{} a2a-version={} a2a-extensions={} x-a2a-extensions={}",
                request["rpc"],
                request["a2a-version"],
                request["a2a-extensions"],
                request["x-a2a-extensions"]
            )
        })
        .collect()
}

/// Names of the steps that did not go as `cannot` and their names say.
fn unexpected(client: Client, agent: Agent, report: &[Value]) -> Vec<String> {
    let failing = cannot(client, agent);
    let mut wrong: Vec<String> = report
        .iter()
        .filter(|step| {
            let name = step["step"].as_str().unwrap_or_default();
            let should = !(name.starts_with("error ") || failing.contains(&name));
            step["ok"] != should
        })
        .map(ToString::to_string)
        .collect();
    wrong.extend(
        failing
            .iter()
            .filter(|name| !report.iter().any(|step| step["step"] == **name))
            .map(|name| format!("no step `{name}`")),
    );
    wrong
}

/// Every difference between two reports, for people.
fn differences(direct: &[Value], other: &[Value]) -> Vec<String> {
    // From a little before the place where they part.
    let shown = |step: &Value, from: usize| {
        let text = step.to_string();
        text.chars().skip(from).take(600).collect::<String>()
    };
    let parting = |a: &Value, b: &Value| {
        let (a, b) = (a.to_string(), b.to_string());
        let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
        same.count().saturating_sub(100)
    };
    let missing = Value::Null;
    (0..direct.len().max(other.len()))
        .map(|i| {
            (
                direct.get(i).unwrap_or(&missing),
                other.get(i).unwrap_or(&missing),
            )
        })
        .filter(|(a, b)| a != b)
        .map(|(a, b)| {
            let (from, missing) = (parting(a, b), Value::Null);
            let name = a.get("step").or(b.get("step")).unwrap_or(&missing);
            format!(
                "step {name}\n  direct:  …{}\n  relayed: …{}",
                shown(a, from),
                shown(b, from)
            )
        })
        .collect()
}

/// Every client against one agent, directly and through two relays.
fn relayed_equals_direct(agent: Agent) {
    let Some(peers) = Peers::find() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let (_process, port) = peers.start_agent(agent, dir.path());
    let agent_url = format!("http://127.0.0.1:{port}");
    let pair = Pair::start(&PairOptions {
        agents: vec![("sample".to_owned(), format!("{agent_url}/"))],
        ..PairOptions::default()
    });
    let mut failures = Vec::new();
    for client in CLIENTS {
        seen(port);
        let direct = peers.report(client, &agent_url, &agent_url, dir.path());
        let seen_directly = seen(port);
        for wrong in unexpected(client, agent, &direct) {
            failures.push(format!("{client:?}, without a relay: {wrong}"));
        }
        let relayed = peers.report(client, &pair.url("sample"), &agent_url, dir.path());
        let seen_relayed = seen(port);
        for difference in differences(&direct, &relayed) {
            failures.push(format!("{client:?}: {difference}"));
        }
        let (want, got) = (
            service_parameters(&seen_directly),
            service_parameters(&seen_relayed),
        );
        for line in want.symmetric_difference(&got) {
            let whose = if want.contains(line) {
                "direct"
            } else {
                "relayed"
            };
            failures.push(format!(
                "{client:?}: only the {whose} run showed the agent {line}"
            ));
        }
        // Headers never travel, so a client's own User-Agent betrays a request
        // that went past the relays.
        for request in &seen_relayed {
            let user_agent = request["user-agent"].to_string();
            if user_agent.contains("python") || user_agent.contains("node") {
                failures.push(format!("{client:?}: went past the relays: {request}"));
            }
        }
        if seen_relayed.is_empty() {
            failures.push(format!("{client:?}: the agent saw nothing"));
        }
    }
    assert!(
        failures.is_empty(),
        "{agent:?}: {} differences\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn clients_get_the_same_from_an_agent_of_v03() {
    relayed_equals_direct(Agent::V03);
}

#[test]
fn clients_get_the_same_from_an_agent_of_v1() {
    relayed_equals_direct(Agent::V1);
}

#[test]
fn clients_get_the_same_from_an_agent_of_both_versions() {
    relayed_equals_direct(Agent::V1AndV03);
}

/// NPAMP-MAP-A2A §7, NPAMP-CC-DOC: a card signed by the SDK (ES256 and EdDSA) goes
/// through two relays and the SDK's own verifier accepts it; on N-PAMP its
/// signatures are detached proofs beside the untouched card.
#[test]
fn signed_cards_verify_with_the_sdk() {
    let Some(peers) = Peers::find() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let (_process, port) = peers.start_agent(Agent::V1Signed, dir.path());
    let agent_url = format!("http://127.0.0.1:{port}");
    let pair = Pair::start(&PairOptions {
        agents: vec![("sample".to_owned(), format!("{agent_url}/"))],
        ..PairOptions::default()
    });
    for base in [&agent_url, &pair.url("sample")] {
        let log = peers.run(Client::Signed, base, &agent_url, dir.path());
        let log = log.unwrap_or_else(|log| panic!("at {base}:\n{log}"));
        assert_eq!(log.matches(" verifies").count(), 4, "{log}");
    }
    // A native client sees the set itself.
    let output = support::npamp_relay()
        .arg("call")
        .arg(format!("npamp://127.0.0.1:{}", pair.link_port))
        .args([
            "--card",
            "--docbind",
            "0x00d0",
            "--server-name",
            "sample.relay.test",
        ])
        .arg("--tls-ca")
        .arg(pair.dir.path().join("cert.pem"))
        .arg("--identity")
        .arg(pair.dir.path().join("ingress.identity.pem"))
        .output()
        .expect("npamp-relay call");
    let log = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{log}");
    let direct = http(port, "GET", "/.well-known/agent-card.json", &[], b"").expect("the card");
    assert_eq!(output.stdout.trim_ascii_end(), direct.body.trim_ascii());
    let card: Value = serde_json::from_slice(&direct.body).expect("JSON");
    let signatures = card["signatures"].as_array().expect("signatures");
    let heads = ["proof 0 (0xfe00): ", "proof 1 (0x0807): "];
    let proofs: Vec<Value> = heads
        .iter()
        .map(|head| {
            let line = log.lines().find_map(|line| line.strip_prefix(head));
            let line = line.unwrap_or_else(|| panic!("no {head:?} in {log}"));
            serde_json::from_str(line).expect("a JWS")
        })
        .collect();
    assert_eq!(&proofs, signatures);
}

/// The comparison itself: two direct runs do not differ, a difference is seen,
/// and a card that leads elsewhere is not taken for a relay's.
#[test]
fn reports_are_repeatable() {
    let Some(peers) = Peers::find() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let (_process, port) = peers.start_agent(Agent::V1AndV03, dir.path());
    let url = format!("http://127.0.0.1:{port}");
    for client in CLIENTS {
        let first = peers.report(client, &url, &url, dir.path());
        let second = peers.report(client, &url, &url, dir.path());
        let found = differences(&first, &second);
        assert!(found.is_empty(), "{client:?}: {}", found.join("\n"));
        assert_eq!(
            unexpected(client, Agent::V1AndV03, &first),
            Vec::<String>::new()
        );
        assert_eq!(differences(&first, &first[1..]).len(), first.len());
    }
    let proxy = Proxy::start(port);
    let elsewhere = format!("http://127.0.0.1:{}", proxy.port);
    for client in [Client::PythonV03, Client::PythonV1, Client::JavaScript] {
        let log = peers
            .run(client, &elsewhere, &url, dir.path())
            .expect_err("the card leads past the proxy");
        assert!(log.contains("the card leads to"), "{client:?}: {log}");
    }
}
