//! Discovery between whole relays (NPAMP-DISC): what `call --discover` shows, and
//! what an ingress holds, while an agent goes and comes back.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use std::process::Output;
use std::time::Duration;
use support::agent::Agent;
use support::client::Client;
use support::{Pair, PairOptions, npamp_relay, wait_for};

const SOON: Duration = Duration::from_secs(10);
const OBJECT: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#;
const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// `call` against the egress, as the ingress's identity.
fn call(pair: &Pair, more: &[&str]) -> Output {
    let file = |name: &str| pair.dir.path().join(name);
    npamp_relay()
        .arg("call")
        .arg(format!("npamp://127.0.0.1:{}", pair.link_port))
        .args(["--server-name", "literature.relay.test", "--timeout", "20"])
        .arg("--tls-ca")
        .arg(file("cert.pem"))
        .arg("--identity")
        .arg(file("ingress.identity.pem"))
        .args(more)
        .output()
        .expect("npamp-relay call")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn status(pair: &Pair) -> u16 {
    let client = Client::post(pair.port, "literature", OBJECT).expect("a connection");
    client.reply(SOON).status
}

/// §6, §7.2, §8: the table, JSON and filters; then the agent is out of reach, its record is
/// withdrawn on every unit and at the ingress, calls go on being carried, and with its next
/// answer it is back with a greater revision.
fn the_agent_goes_and_comes_back(workers: usize) {
    let mut agent = Agent::start(|_, conversation| conversation.reply(200, RESPONSE));
    let pair = Pair::start(&PairOptions {
        agents: vec![("literature".into(), agent.url("a2a"))],
        egress: format!("[engine]\nworkers = {workers}\n"),
        // One unit, and so one association.
        ingress: format!("[engine]\ncores = [0]\nworkers = {}\n", workers.min(1)),
        ..PairOptions::default()
    });
    let held = |records: f64| {
        wait_for("the ingress follows", SOON, || {
            let metrics = pair.ingress.metrics();
            let held = metrics.sum("npamp_relay_discovery_records", &[]);
            (held - records).abs().lt(&0.5).then_some(())
        });
    };
    assert_eq!(status(&pair), 200);
    held(5.0);
    wait_for("the ingress says what it has learned", SOON, || {
        let log = pair.ingress.process.log();
        let said = log.contains("the peer's capabilities") && log.contains("agent literature");
        said.then_some(())
    });

    let table = printed(&call(&pair, &["--discover", "--docbind", "0x00d0"]));
    let expected = "\
KIND            NAME              PROTOCOL  CLASS    CHANNELS       REVISION  DETAILS
agent           literature        0x02 A2A  -        -              1         -
carriage-class  JSONRPC, for A2A  -         JSONRPC  -              1         -
carriage-class  STREAM, for A2A   -         STREAM   -              1         -
carriage-class  DOC, for A2A      -         DOC      -              1         -
protocol        A2A               0x02 A2A  JSONRPC  0x000d,0x0010  1         -
";
    assert_eq!(table, expected);
    // Without agreement on the tag there are no documents on that association.
    let kinds = ["--kind", "protocol", "--kind", "carriage-class", "--json"];
    let lines = printed(&call(&pair, &[&["--discover"], &kinds[..]].concat()));
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(!lines.contains("DOC"), "{lines}");
    let protocol = r#"{"carriage_class":1,"channels":[13],"content_types":[1],"kind":"protocol","label":"A2A","protocol_id":2,"record_id":"protocol-2","revision":1}"#;
    assert!(lines.contains(protocol), "{lines}");
    let agents = |prefix: &str| {
        let output = call(
            &pair,
            &["--discover", "--kind", "agent", "--prefix", prefix],
        );
        printed(&output).lines().count() - 1
    };
    assert_eq!((agents("lit"), agents("math")), (1, 0));

    agent.kill(false);
    wait_for("the agent is out of reach", SOON, || {
        assert_eq!(status(&pair), 502);
        let metrics = pair.egress.metrics();
        let withdrawn = ["event=\"agent_withdrawn\""];
        (metrics.sum("npamp_relay_discovery_total", &withdrawn) > 0.5).then_some(())
    });
    held(4.0);
    // New associations go to the units in turn.
    for _ in 0..4 {
        wait_for("no unit claims it", SOON, || {
            (agents("lit") == 0).then_some(())
        });
    }
    assert_eq!(status(&pair), 502, "a claim refuses no call");

    agent.restart();
    assert_eq!(status(&pair), 200);
    held(5.0);
    let returned = pair.egress.metrics();
    let returned = returned.sum("npamp_relay_discovery_total", &["event=\"agent_returned\""]);
    assert!((0.5..1.5).contains(&returned), "{returned}");
    for _ in 0..4 {
        wait_for("every unit has it", SOON, || {
            (agents("lit") == 1).then_some(())
        });
    }
    for relay in [&pair.ingress, &pair.egress] {
        let metrics = relay.metrics();
        let faults: f64 = ["malformed", "errors_sent", "errors_received"]
            .iter()
            .map(|name| metrics.sum(&format!("npamp_relay_discovery_{name}_total"), &[]))
            .sum();
        assert!(faults < 0.5, "{metrics:?}");
    }
}

#[test]
fn the_agent_goes_and_comes_back_on_units() {
    the_agent_goes_and_comes_back(0);
}

#[test]
fn the_agent_goes_and_comes_back_on_workers() {
    the_agent_goes_and_comes_back(2);
}

/// `call --discover` where there is nothing to ask: no such agent is an empty table, and no
/// responder is an error.
#[test]
fn discovering_nothing() {
    let agent = Agent::start(|_, conversation| conversation.reply(200, RESPONSE));
    let pair = Pair::start(&PairOptions {
        agents: vec![("literature".into(), agent.url("a2a"))],
        ..PairOptions::default()
    });
    let output = call(
        &pair,
        &["--discover", "--json", "--server-name", "other.relay.test"],
    );
    assert_eq!(output.status.code(), Some(2), "given twice");
    let other = npamp_relay()
        .arg("call")
        .arg(format!("npamp://127.0.0.1:{}", pair.link_port))
        .args(["--server-name", "other.relay.test", "--discover", "--json"])
        .arg("--tls-ca")
        .arg(pair.dir.path().join("cert.pem"))
        .arg("--identity")
        .arg(pair.dir.path().join("ingress.identity.pem"))
        .output()
        .expect("npamp-relay call");
    assert_eq!(printed(&other), "");
    drop(pair.egress);
    let output = npamp_relay()
        .arg("call")
        .arg(format!("npamp://127.0.0.1:{}", pair.link_port))
        .args(["--server-name", "literature.relay.test", "--discover"])
        .arg("--tls-ca")
        .arg(pair.dir.path().join("cert.pem"))
        .output()
        .expect("npamp-relay call");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("NotDelivered: "), "{said}");
}
