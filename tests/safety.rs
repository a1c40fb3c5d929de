//! What an egress's policy lets through, by effect and by peer: a raw agent, two
//! relays as processes, clients of plain sockets (NPAMP-BRIDGE §7, NPAMP-MAP-A2A
//! §5, ruling R16). What a missing label means is recorded in
//! `tests/conformance/{bridge,mapping}.rs`.
#![cfg(feature = "engine")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

mod support;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::agent::Agent;
use support::client::{Client, End};
use support::{Pair, PairOptions};

const PATIENCE: Duration = Duration::from_secs(20);
const REPLY: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// Methods with their effects as NPAMP-MAP-A2A §5 has them.
const METHODS: [(&str, u8); 12] = [
    ("tasks/get", 0),
    ("ListTasks", 0),
    ("tasks/resubscribe", 0),
    ("tasks/pushNotificationConfig/list", 0),
    ("tasks/pushNotificationConfig/set", 1),
    ("CreateTaskPushNotificationConfig", 1),
    ("message/send", 2),
    ("SendStreamingMessage", 2),
    ("CancelTask", 2),
    ("tasks/pushNotificationConfig/delete", 3),
    ("DeleteTaskPushNotificationConfig", 3),
    ("unlisted/method", 3),
];

struct Bench {
    pair: Pair,
    seen: Arc<Mutex<usize>>,
    config: String,
    _agent: Agent,
}

impl Bench {
    fn start(workers: usize) -> Self {
        let seen = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&seen);
        let agent = Agent::start(move |_, conversation| {
            *counted.lock().expect("lock") += 1;
            conversation.reply(200, REPLY)
        });
        let pair = Pair::start(&PairOptions {
            agents: vec![("agent".into(), agent.url("agent"))],
            // With its own table of policy below, the egress needs no other one.
            both: format!("[engine]\nworkers = {workers}\n# no [policy]\n"),
            ..PairOptions::default()
        });
        let config = fs::read_to_string(pair.dir.path().join("egress.toml")).expect("a file");
        Self {
            pair,
            seen,
            config,
            _agent: agent,
        }
    }

    /// The public key of the ingress, as the egress's configuration has it.
    fn peer(&self) -> &str {
        let at = self.config.find("ed25519:").expect("a peer");
        self.config[at..].split('"').next().expect("a key")
    }

    /// Runs the egress with this policy from now on.
    fn policy(&mut self, policy: &str) {
        let file = self.pair.dir.path().join("egress.toml");
        fs::write(file, format!("{}\n{policy}\n", self.config)).expect("a file");
        // At once, as a supervisor would: the address of a killed process is waited for.
        self.pair.egress.process.kill();
        self.pair.egress.restart();
    }

    /// Every method passes or is refused, as its effect says, and nothing that is
    /// refused reaches the agent.
    fn check(&self, what: &str, allowed: &[u8]) {
        for (method, effect) in METHODS {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
            let before = *self.seen.lock().expect("lock");
            let refused = self.refused();
            // The first call after a restart may still meet the old association.
            let reply = support::wait_for(method, PATIENCE, || {
                let client = Client::post(self.pair.port, "agent", body.as_bytes()).ok()?;
                Some(client.reply(PATIENCE)).filter(|reply| reply.status != 502)
            });
            let shown = format!("{what}, {method}: {} {}", reply.status, reply.text());
            let asked = *self.seen.lock().expect("lock") - before;
            if allowed.contains(&effect) {
                assert_eq!((reply.status, reply.end), (200, End::Clean), "{shown}");
                assert_eq!(reply.body, REPLY, "{shown}");
                assert_eq!(asked, 1, "{shown}");
            } else {
                reply.assert_problem(&shown, &[403]);
                let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
                assert_eq!(
                    (&body["code"], &body["name"]),
                    (&5.into(), &"SafetyPolicy".into())
                );
                assert_eq!(asked, 0, "{shown}");
                assert!((self.refused() - refused - 1.0).abs() < 0.1, "{shown}");
            }
        }
    }

    fn refused(&self) -> f64 {
        let reason = ["reason=\"safety_policy\""];
        let metrics = self.pair.egress.metrics();
        metrics.sum("npamp_relay_requests_refused_total", &reason)
    }
}

fn all(workers: usize) {
    let mut bench = Bench::start(workers);
    bench.check("no policy", &[0, 1, 2, 3]);
    bench.policy("[policy]\nallow = [\"read_only\", \"idempotent_write\"]");
    bench.check("two effects", &[0, 1]);
    bench.policy(
        "[policy]\nallow = [\"read_only\", \"idempotent_write\", \"non_idempotent_write\"]",
    );
    bench.check("all but destructive", &[0, 1, 2]);
    let peer = bench.peer().to_owned();
    // A peer's own effects override the general ones, both ways.
    bench.policy(&format!(
        "[policy]\nallow = [\"read_only\"]\n[policy.peers]\n\"{peer}\" = [\"destructive\", \"read_only\"]"
    ));
    bench.check("more for this peer", &[0, 3]);
    bench.policy(&format!("[policy.peers]\n\"{peer}\" = [\"read_only\"]"));
    bench.check("less for this peer", &[0]);
    let other = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    bench.policy(&format!("[policy.peers]\n\"{other}\" = [\"read_only\"]"));
    bench.check("less for another peer", &[0, 1, 2, 3]);
}

#[test]
fn safety_with_mapping_on_the_units() {
    all(0);
}

#[test]
fn safety_with_mapping_on_a_worker() {
    all(1);
}
