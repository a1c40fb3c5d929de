//! A reader of the log that stalls must not stall the relay.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use support::{certificate, free_port, http, identity, npamp_relay, wait_for};

/// Octets of log that no pipe holds.
const PIPE_OCTETS: usize = 1024 * 1024;

#[test]
fn a_stalled_reader_stalls_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (key, _) = identity(dir.path(), "ingress");
    let (cert, _) = certificate(dir.path(), &["far.relay.test"]);
    let (port, admin, nowhere) = (free_port(), free_port(), free_port());
    let config = dir.path().join("relay.toml");
    let text = format!(
        "[identity]\nkey = '{}'\n[[ingress]]\naddress = \"127.0.0.1:{port}\"\n[[route]]\npath = \"/\"\nupstream = \"npamp://127.0.0.1:{nowhere}\"\nserver_name = \"far.relay.test\"\ntls_ca = '{}'\n[observe]\nadmin = \"127.0.0.1:{admin}\"\nlog = \"trace\"\n",
        key.display(),
        cert.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut relay = npamp_relay()
        .args(["run", "--config"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the relay is ready", Duration::from_secs(30), || {
        matches!(http(admin, "GET", "/readyz", &[], b""), Ok(reply) if reply.status == 200)
            .then_some(())
    });
    // Nobody reads the log while these fail, each with lines of its own.
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#;
    let method = format!("/{}", "x".repeat(2000));
    for _ in 0..3000 {
        let reply = http(port, "POST", &method, &[], body).unwrap();
        assert_ne!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(
        http(admin, "GET", "/healthz", &[], b"").unwrap().status,
        200
    );
    relay.kill().unwrap();
    relay.wait().unwrap();
    let mut rest = Vec::new();
    let mut stderr = relay.stderr.take().unwrap();
    stderr.read_to_end(&mut rest).unwrap();
    // What was still in the pipe shows that it was full and had not been read.
    assert!(rest.len() >= 60_000, "{} octets of log", rest.len());
    assert!(rest.len() < PIPE_OCTETS);
}
