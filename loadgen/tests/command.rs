//! The `npamp-loadgen` command as a user runs it: against its own responder in
//! one process and in two, and with everything that a user may get wrong. No
//! assertion here is about speed.

#![allow(clippy::disallowed_methods)] // tests start processes and wait for them

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npamp-loadgen"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// How late the generator may be here: no test is about speed.
const PATIENT: [&str; 2] = ["--lag-max", "60000"];

/// Runs with JSON on standard output, which must then hold nothing else.
fn report(arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = run(&[arguments, &PATIENT, &["--json", "-"]].concat());
    let errors = text(&output.stderr);
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code(), report, errors)
}

/// A responder in a process of its own, ended with the test.
struct Responder {
    process: Child,
    target: String,
    identity: String,
}

impl Responder {
    fn start(arguments: &[&str]) -> Self {
        let arguments = [&["respond", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut process = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["listening", "on", address, "as", identity] = words[..] else {
            panic!("{line}")
        };
        Self {
            target: format!("npamp://{address}"),
            identity: identity.into(),
            process,
        }
    }

    fn arguments(&self) -> Vec<&str> {
        vec![
            "run",
            "--target",
            &self.target,
            "--server-name",
            "agent.example",
            "--duration",
            "0.5",
            "--warmup",
            "0",
            PATIENT[0],
            PATIENT[1],
        ]
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn unary_against_itself() {
    let (status, report, errors) = report(&[
        "run",
        "--self",
        "--scenario",
        "unary",
        "--rate",
        "400/s",
        "--duration",
        "1",
        "--warmup",
        "0.25",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(report["clean"], true);
    let counts = &report["counts"];
    // The schedule decides how many, not the machine: 400 a second for one second.
    assert_eq!(
        (counts["scheduled"].as_u64(), counts["sent"].as_u64()),
        (Some(400), Some(400)),
        "{report}"
    );
    assert_eq!(
        (counts["completed"].as_u64(), counts["errors"].as_u64()),
        (Some(400), Some(0))
    );
    let latency = &report["latency"]["reply"];
    assert_eq!(latency["count"], 400);
    let at = |name: &str| latency[name].as_u64().unwrap();
    let values = [
        "min_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "p99.9_ns",
        "p99.99_ns",
        "max_ns",
    ]
    .map(at);
    assert!(values.is_sorted() && values[0] > 0, "{values:?}");
    let percentiles = latency["percentiles"].as_array().unwrap();
    assert!(percentiles.len() > 10);
    assert_eq!(percentiles.last().unwrap()["count_at_or_below"], 400);
    assert_eq!(report["schedule"]["lag"]["count"], 400);
    assert_eq!(report["schema"], "npamp-loadgen/run/1");
    let buckets = latency["buckets"].as_array().unwrap();
    let counts: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert_eq!(counts, 400);
    let series = report["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert!(series[0]["completed"].as_u64().unwrap() > 0, "{series:?}");
    assert!(series[0]["rss_octets"].as_u64().unwrap() > 1_000_000);
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(report["asked"]["rate_per_s"], 400.0);
    assert_eq!(report["command_line"].as_array().unwrap().len(), 15);
    assert!(
        errors.contains("rate achieved") && errors.contains("schedule lag"),
        "{errors}"
    );
}

#[test]
fn streams_against_itself() {
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "stream",
        "--rate",
        "20",
        "--duration",
        "1",
        "--warmup",
        "0",
        "--events",
        "10",
        "--event-octets",
        "1000",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    let counts = &report["counts"];
    assert_eq!(
        (counts["completed"].as_u64(), counts["errors"].as_u64()),
        (Some(20), Some(0)),
        "{report}"
    );
    // Ten events and the terminal status-update of each.
    assert_eq!(counts["events"], 20 * 11);
    assert!(counts["octets_received"].as_u64().unwrap() >= 20 * 10 * 1000);
    let count = |name: &str| report["latency"][name]["count"].as_u64();
    assert_eq!(
        (count("first_event"), count("gap"), count("stream_end")),
        (Some(20), Some(200), Some(20))
    );
}

#[test]
fn long_messages_both_ways() {
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "bulk",
        "--rate",
        "20",
        "--duration",
        "1",
        "--warmup",
        "0",
        "--bulk-payload",
        "100000",
        "--bulk-octets",
        "300000",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    let counts = &report["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("completed"), count("errors")), (20, 0), "{report}");
    assert_eq!(count("octets_sent"), 20 * 100_000);
    assert_eq!(count("octets_received"), 20 * 300_000);
    assert_eq!(report["latency"]["reply"]["count"], 20);
}

#[test]
fn several_threads_mix_kinds_as_asked() {
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "mixed",
        "--mix",
        "unary=7,stream=2,bulk=1",
        "--rate",
        "100",
        "--duration",
        "1",
        "--warmup",
        "0",
        "--events",
        "3",
        "--threads",
        "2",
        "--responder-threads",
        "2",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    // The sequence of each thread decides, not chance: five rounds of ten in each.
    for (kind, exchanges, events) in [("unary", 70, 0), ("stream", 20, 80), ("bulk", 10, 0)] {
        let counts = &report["kinds"][kind];
        assert_eq!(counts["scheduled"], exchanges, "{kind}: {report}");
        assert_eq!(counts["completed"], exchanges, "{kind}: {report}");
        assert_eq!(counts["events"], events, "{kind}: {report}");
    }
    assert_eq!(report["counts"]["completed"], 100);
    let count = |name: &str| report["latency"][name]["count"].as_u64();
    assert_eq!(
        [
            "unary_reply",
            "stream_first_event",
            "stream_gap",
            "stream_end",
            "bulk_reply"
        ]
        .map(count),
        [Some(70), Some(20), Some(60), None, Some(10)]
    );
    assert_eq!(count("stream_stream_end"), Some(20));
    let threads = report["cpu"]["threads"].as_array().unwrap();
    for name in ["generator-0", "generator-1", "responder-0", "responder-1"] {
        assert!(
            threads.iter().any(|thread| thread["name"] == name),
            "{threads:?}"
        );
    }
    assert!(
        report["cpu"]["completed_per_responder_cpu_s"]
            .as_f64()
            .unwrap()
            > 0.0
    );
}

#[test]
fn a_generator_that_is_late_is_not_clean() {
    // No send can be less than a nanosecond late.
    let output = run(&[
        "run",
        "--rate",
        "100",
        "--duration",
        "0.2",
        "--warmup",
        "0",
        "--lag-max",
        "0.000001",
        "--json",
        "-",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report["generator_bound"], true);
    assert_eq!(report["clean"], false);
    assert_eq!(report["counts"]["errors"], 0);
    assert!(text(&output.stderr).contains("GENERATOR WAS THE BOTTLENECK"));
}

#[test]
fn a_sweep_that_stays_below_the_knee_and_a_soak_behind_it() {
    let (status, report, errors) = report(&[
        "run",
        "--sweep",
        "40..80",
        "--p99-max",
        "60000",
        "--achieved-min",
        "10%",
        "--soak",
        "1",
        "--at",
        "50%",
        "--duration",
        "0.5",
        "--warmup",
        "0",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    let points = report["sweep"]["points"].as_array().unwrap();
    let rates: Vec<f64> = points
        .iter()
        .map(|point| point["rate_per_s"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [40.0, 60.0, 80.0], "{errors}");
    assert!(points.iter().all(|point| point["passed"] == true));
    assert_eq!(report["sweep"]["knee_per_s"], 80.0);
    assert_eq!(report["sweep"]["limited_by"], Value::Null);
    let soak = &report["soak"];
    assert_eq!((&soak["passed"], &soak["lost"]), (&true.into(), &0.into()));
    assert_eq!(report["counts"]["completed"], 40);
    assert!(errors.contains("Knee: not reached"), "{errors}");
}

#[test]
fn a_sweep_finds_where_a_bound_binds() {
    // One stream at a time, 20 ms at least each: 50 a second cannot be exceeded, and half of it is enough.
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "stream",
        "--sweep",
        "5..1000",
        "--p99-max",
        "60000",
        "--achieved-min",
        "50%",
        "--connections",
        "1",
        "--concurrency-max",
        "1",
        "--events",
        "2",
        "--event-gap-us",
        "10000",
        "--duration",
        "0.7",
        "--warmup",
        "0",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    let knee = report["sweep"]["knee_per_s"].as_f64().unwrap();
    assert!((5.0..=115.0).contains(&knee), "{errors}");
    let limited = report["sweep"]["limited_by"].as_str().unwrap();
    assert!(limited.contains("answered in time"), "{limited}");
    assert_eq!(report["asked"]["rate_per_s"], knee);
}

#[test]
fn an_association_each_time() {
    for exchange in [false, true] {
        let more: &[&str] = if exchange { &["--exchange"] } else { &[] };
        let arguments = [
            &[
                "run",
                "--scenario",
                "connect",
                "--rate",
                "20",
                "--duration",
                "1",
                "--warmup",
                "0.2",
                "--threads",
                "2",
                "--source",
                "127.0.0.2,127.0.0.3",
            ],
            more,
        ]
        .concat();
        let (status, report, errors) = report(&arguments);
        assert_eq!(status, Some(0), "{errors}");
        let count = |name: &str| report["counts"][name].as_u64().unwrap();
        assert_eq!(
            (count("scheduled"), count("completed"), count("errors")),
            (20, 20, 0),
            "{report}"
        );
        assert_eq!(report["latency"]["ready"]["count"], 20);
        assert_eq!(
            report["latency"]["reply"]["count"].as_u64(),
            exchange.then_some(20)
        );
        assert_eq!(count("octets_received") > 0, exchange);
    }
}

#[test]
fn an_association_each_time_until_the_responder_goes_away() {
    let mut responder = Responder::start(&[]);
    let identity = responder.identity.clone();
    let arguments = [
        &responder.arguments()[..5],
        &[
            "--scenario",
            "connect",
            "--warmup",
            "0",
            "--pinned",
            "--peer",
            &identity,
            "--rate",
            "20",
            "--duration",
            "4",
            "--json",
            "-",
        ],
    ]
    .concat();
    let running = command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    responder.process.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    assert_eq!(count("scheduled"), 80, "{report}");
    assert!(count("completed") < 80);
    assert_eq!(count("completed") + count("errors"), 80, "{report}");
    assert!(report["errors"]["dial_failed"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn idle_associations_beside_an_active_one() {
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "idle",
        "--idle",
        "150",
        "--open-rate",
        "300",
        "--rate",
        "100",
        "--duration",
        "0.5",
        "--warmup",
        "0",
    ]);
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(report["counts"]["completed"], 50);
    assert_eq!(report["latency"]["reply"]["count"], 50);
    assert_eq!(report["asked"]["connections"], 1);
    let idle = &report["idle"];
    assert_eq!(idle["associations"], 150);
    // The rate is a bound: 150 cannot be there before half a second less the first of them.
    assert!(idle["open_s"].as_f64().unwrap() > 0.49, "{idle}");
    // Both ends of an association have keys and TLS state at least.
    assert!(
        idle["heap_per_association_octets"].as_f64().unwrap() > 2000.0,
        "{idle}"
    );
}

#[test]
fn idle_associations_that_are_lost_are_an_error() {
    let mut responder = Responder::start(&[]);
    let identity = responder.identity.clone();
    let arguments = [
        &responder.arguments()[..5],
        &[
            "--scenario",
            "idle",
            "--idle",
            "20",
            "--warmup",
            "0",
            "--pinned",
            "--peer",
            &identity,
            "--rate",
            "20",
            "--duration",
            "20",
            "--json",
            "-",
        ],
    ]
    .concat();
    let running = command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    responder.process.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("lost"), "{errors}");
}

#[test]
fn what_was_measured_until_the_user_had_enough() {
    let running = command(&[
        "run",
        "--rate",
        "100",
        "--duration",
        "60",
        "--warmup",
        "0",
        "--json",
        "-",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let signalled = Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status()
        .unwrap();
    assert!(signalled.success());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    let time = report["rates"]["time_s"].as_f64().unwrap();
    assert!(time > 0.0 && time < 59.0, "{time}");
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    assert!(
        count("completed") > 0 && count("scheduled") < 5900,
        "{report}"
    );
    assert_eq!(
        (count("completed"), count("errors")),
        (count("scheduled"), 0),
        "{report}"
    );
}

#[test]
fn paced_streams_and_random_arrivals() {
    let arguments = [
        "run",
        "--scenario",
        "stream",
        "--rate",
        "30",
        "--duration",
        "0.5",
        "--warmup",
        "0",
        "--arrivals",
        "poisson",
        "--seed",
        "7",
        "--events",
        "5",
        "--event-gap-us",
        "2000",
    ];
    let (status, first, errors) = report(&arguments);
    assert_eq!(status, Some(0), "{errors}");
    let streams = first["counts"]["completed"].as_u64().unwrap();
    assert_eq!(first["counts"]["events"], streams * 6);
    // A pause is a pause: no event can come before its time, however fast the machine.
    assert!(
        first["latency"]["stream_end"]["min_ns"].as_u64().unwrap() >= 9_900_000,
        "{first}"
    );
    let (_, second, _) = report(&arguments);
    assert_eq!(
        second["counts"]["scheduled"], first["counts"]["scheduled"],
        "a seed replays"
    );
}

#[test]
fn a_bound_makes_requests_wait_and_their_wait_counts() {
    let (status, report, errors) = report(&[
        "run",
        "--scenario",
        "stream",
        "--rate",
        "50",
        "--duration",
        "0.5",
        "--warmup",
        "0",
        "--concurrency-max",
        "1",
        "--connections",
        "1",
        "--events",
        "2",
        "--event-gap-us",
        "30000",
    ]);
    // Each stream takes 60 ms and one is due every 20 ms: the last of 25 starts at 1.44 s at the earliest, though meant for 0.48 s.
    assert_eq!(status, Some(0), "{errors}");
    assert_eq!(report["counts"]["completed"], 25);
    assert!(
        report["schedule"]["wait"]["max_ns"].as_u64().unwrap() > 900_000_000,
        "{report}"
    );
    assert!(
        report["latency"]["first_event"]["max_ns"].as_u64().unwrap() > 900_000_000,
        "{report}"
    );
    // No more than nine can have ended within half a second.
    assert!(
        report["rates"]["completed_per_s"].as_f64().unwrap() <= 18.0,
        "{report}"
    );
}

#[test]
fn two_processes_with_files() {
    let directory = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["agent.example".to_owned()]).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (cert, key, identity, json) = (
        path("cert.pem"),
        path("key.pem"),
        path("identity.pem"),
        path("report.json"),
    );
    std::fs::write(&cert, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let seeded = npamp_relay::crypto::Identity::from_seed(&[7; 32]);
    std::fs::write(&identity, seeded.to_pkcs8_pem().as_bytes()).unwrap();
    let public = seeded.public().to_string();
    let responder = Responder::start(&[
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--identity",
        &identity,
        "--peers",
        &public,
    ]);
    assert_eq!(responder.identity, public);
    let process = responder.process.id().to_string();
    let files = [
        "--target-pid",
        &process,
        "--tls-ca",
        &cert,
        "--identity",
        &identity,
        "--peer",
        &public,
        "--json",
        &json,
    ];
    let output = run(&[&responder.arguments()[..], &files].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("rate achieved"));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["counts"]["completed"], 500);
    assert_eq!(report["in_process"], false);
    assert!(report["cpu"]["responder_s"].as_f64().unwrap() > 0.0);
    assert!(report["series"][0]["rss_octets"].as_u64().unwrap() > 0);

    // A certificate for another name.
    let wrong = [
        "--tls-ca",
        &cert,
        "--identity",
        &identity,
        "--server-name",
        "other.example",
        "--duration",
        "1",
    ];
    let output = run(&[&["run", "--target", &responder.target], &wrong[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("certificate"),
        "{}",
        text(&output.stderr)
    );
    // No roots for it.
    let output = run(&responder.arguments());
    assert_eq!(output.status.code(), Some(1));
    // An identity that is not allowed.
    let output = run(&[&responder.arguments()[..], &["--tls-ca", &cert]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("does it allow our identity ed25519:"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn another_identity_than_the_pinned_one() {
    let responder = Responder::start(&[]);
    let other = npamp_relay::crypto::Identity::from_seed(&[9; 32])
        .public()
        .to_string();
    let output = run(&[&responder.arguments()[..], &["--pinned", "--peer", &other]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("is not allowed"),
        "{}",
        text(&output.stderr)
    );
    let output = run(&[
        &responder.arguments()[..],
        &["--pinned", "--peer", &responder.identity],
    ]
    .concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_responder_that_goes_away_is_an_error() {
    let mut responder = Responder::start(&[]);
    let identity = responder.identity.clone();
    let arguments = [
        "--pinned",
        "--peer",
        &identity,
        "--duration",
        "10",
        "--rate",
        "200",
        "--json",
        "-",
    ];
    let arguments = [
        &responder.arguments()[..5],
        &["--warmup", "0"],
        &arguments[..],
    ]
    .concat();
    let running = command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    responder.process.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("every association is lost"),
        "{}",
        text(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    assert_eq!(count("scheduled"), 2000);
    assert!(count("completed") < 2000 && count("errors") > 0, "{report}");
    assert!(
        report["errors"]["not_sent"]["count"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[test]
fn an_unreachable_target() {
    // Bound and released: nothing listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = format!("npamp://{address}");
    let identity = npamp_relay::crypto::Identity::from_seed(&[9; 32])
        .public()
        .to_string();
    let output = run(&[
        "run",
        "--target",
        &target,
        "--server-name",
        "a.example",
        "--pinned",
        "--peer",
        &identity,
    ]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&target) && errors.contains("refused"),
        "{errors}"
    );
}

#[test]
fn files_that_do_not_serve() {
    let output = run(&["run", "--identity", "/nonexistent/identity.pem"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent/identity.pem"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("identity.pem");
    std::fs::write(&file, "not a key").unwrap();
    let output = run(&["run", "--identity", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("identity.pem"));
}

#[test]
fn wrong_arguments() {
    for wrong in [
        &[][..],
        &["walk"],
        &["run", "--rate", "fast"],
        &["run", "--duration", "0"],
        &["run", "--target", "http://127.0.0.1:1"],
        &["run", "--target", "npamp://127.0.0.1:1"],
        &["run", "--self", "--target", "npamp://a.example:1"],
        &["run", "--connections", "1", "--concurrency-max", "100000"],
        &["run", "--peer", "ed25519:AAAA"],
        &["run", "--mix", "unary=1,stream=1"],
        &["run", "--scenario", "mixed", "--mix", "unary=many"],
        &["run", "--threads", "5"],
        &["run", "--sweep", "2k..1k"],
        &["run", "--soak", "5"],
        &["run", "--exchange"],
        &["run", "--scenario", "idle", "--idle", "100000"],
        &["run", "--unknown"],
        &["respond", "--listen", "nowhere"],
        &["respond", "--tls-cert", "cert.pem"],
    ] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
}
