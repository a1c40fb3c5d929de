//! What must never be seen: nothing secret is in the logs at their most
//! talkative, nor in the metrics, and files with secrets are their owner's alone.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use npamp_relay::cli::demo::agent::SampleAgent;
use support::{Pair, PairOptions, http};

const CLIENT_TOKEN: &str = "client-token-7f3a9c";
const AGENT_TOKEN: &str = "agent-token-51be02";
const WORDS: &str = "words-of-the-message-c4d8";

#[test]
fn nothing_secret_is_logged_or_counted() {
    let agent = SampleAgent::start().unwrap();
    let files = tempfile::tempdir().unwrap();
    let tokens = files.path().join("tokens");
    std::fs::write(&tokens, format!("{CLIENT_TOKEN}\n")).unwrap();
    let authorization = files.path().join("authorization");
    std::fs::write(&authorization, format!("Bearer {AGENT_TOKEN}\n")).unwrap();
    let pair = Pair::start(&PairOptions {
        agents: vec![("sample".into(), format!("http://{}/", agent.address()))],
        agent_keys: format!("authorization_file = '{}'", authorization.display()),
        ingress_keys: format!("token_file = '{}'", tokens.display()),
        log: "trace".into(),
        ..PairOptions::default()
    });
    let bearer = format!("Bearer {CLIENT_TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("a2a-extensions", "https://extension.example/secret-5d1f"),
    ];
    for method in ["message/send", "message/stream"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"kind":"message","messageId":"m1","role":"user","parts":[{{"kind":"text","text":"{WORDS}"}}]}}}}}}"#
        );
        let reply = http(
            pair.port,
            "POST",
            "/agents/sample",
            &headers,
            body.as_bytes(),
        )
        .unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains(WORDS), "{}", reply.text());
    }
    let refused = [("authorization", "Bearer wrong-token-99aa")];
    let reply = http(pair.port, "POST", "/agents/sample", &refused, b"{}").unwrap();
    assert_eq!(reply.status, 401);

    let mut seen = String::new();
    for relay in [&pair.ingress, &pair.egress] {
        let log = relay.process.log();
        assert!(
            log.contains("association established"),
            "logging works: {log}"
        );
        seen += &log;
        seen += &http(relay.admin, "GET", "/metrics", &[], b"")
            .unwrap()
            .text();
    }
    for secret in [
        CLIENT_TOKEN,
        AGENT_TOKEN,
        WORDS,
        "wrong-token-99aa",
        "secret-5d1f",
        "PRIVATE KEY",
    ] {
        assert!(
            !seen.contains(secret),
            "{secret} is in the logs or metrics:\n{seen}"
        );
    }
    for name in ["egress.identity.pem", "ingress.identity.pem"] {
        let pem = std::fs::read_to_string(pair.dir.path().join(name)).unwrap();
        for line in pem.lines().filter(|line| !line.starts_with("-----")) {
            assert!(!seen.contains(line), "a private key is in the logs");
        }
    }
}
