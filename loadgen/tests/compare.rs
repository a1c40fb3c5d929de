//! `compare` as a user runs it, in a few tenths of a second. No assertion here
//! is about speed. The HTTP part needs the relay's binary, which this package
//! does not build: a test that does not find it beside its own says so.

#![allow(clippy::disallowed_methods)] // tests start processes and wait for them

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npamp-loadgen"));
    command.arg("compare").args(arguments);
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn relay() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_npamp-loadgen")).with_file_name("npamp-relay");
    if path.is_file() {
        return Some(path);
    }
    println!("skipped: there is no {}", path.display());
    None
}

fn case<'a>(result: &'a Value, name: &str) -> &'a Value {
    let cases = result["cases"].as_array().unwrap();
    cases
        .iter()
        .find(|case| case["name"] == name)
        .unwrap_or_else(|| panic!("{name} in {result}"))
}

fn names(case: &Value) -> Vec<&str> {
    let contestants = case["contestants"].as_array().unwrap();
    contestants
        .iter()
        .map(|contestant| contestant["name"].as_str().unwrap())
        .collect()
}

#[test]
fn native_baselines() {
    let output = command(&[
        "--part",
        "native",
        "--rounds",
        "1",
        "--duration",
        "0.3",
        "--warmup",
        "0.1",
        "--rate",
        "500",
        "--outstanding",
        "16",
        "--connections",
        "2",
        "--json",
        "-",
    ])
    .output()
    .unwrap();
    let errors = text(&output.stderr);
    let result = json(&output);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(result["schema"], "npamp-loadgen/compare/1");
    assert_eq!(result["clean"], true);
    let paced = case(&result, "native_rate");
    assert_eq!(names(paced), ["npamp", "tcp", "tls", "grpc"]);
    for contestant in paced["contestants"].as_array().unwrap() {
        let name = &contestant["name"];
        // The schedule decides how many: 500 a second for 0.3 s.
        assert_eq!(contestant["latency"]["count"], 150, "{name}");
        assert_eq!(contestant["errors"], 0, "{name}");
        assert!(contestant["p99.9_ns"]["median"].as_f64() > Some(0.0));
        let ratio = &contestant["subject_ratio"]["p99.9"]["median"];
        assert_eq!(ratio.is_number(), name != "npamp", "{contestant}");
    }
    let saturated = case(&result, "native_saturation");
    for contestant in saturated["contestants"].as_array().unwrap() {
        assert!(
            contestant["per_s"]["median"].as_f64() > Some(0.0),
            "{contestant}"
        );
        assert!(contestant["latency"].is_null());
    }
    assert!(errors.contains("npamp against it"), "{errors}");
}

#[test]
fn two_relays_and_what_is_installed() {
    if relay().is_none() {
        return;
    }
    let output = command(&[
        "--part",
        "http",
        "--rounds",
        "2",
        "--duration",
        "0.3",
        "--warmup",
        "0.05",
        "--http-connections",
        "2",
        "--sse-connections",
        "2",
        "--events",
        "5",
        "--json",
        "-",
    ])
    .output()
    .unwrap();
    let errors = text(&output.stderr);
    let result = json(&output);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    for name in ["http_unary_2", "http_sse_event", "http_sse_bulk"] {
        let case = case(&result, name);
        let names = names(case);
        assert_eq!((names[0], *names.last().unwrap()), ("relay", "agent"));
        for program in ["nginx", "haproxy"] {
            // Run, or named as skipped: never silently absent.
            let skipped = result["skipped"][program].is_string();
            assert_ne!(names.contains(&program), skipped, "{program}: {result}");
        }
        for contestant in case["contestants"].as_array().unwrap() {
            assert_eq!(contestant["per_s"]["rounds"].as_array().unwrap().len(), 2);
            assert!(
                contestant["per_s"]["max"].as_f64() > Some(0.0),
                "{contestant}"
            );
        }
    }
    assert!(
        result["programs"]["relay"]
            .as_str()
            .unwrap()
            .contains("npamp-relay")
    );
}

/// Processes whose command line has a word.
fn processes(word: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| text(&line).contains(word))
        })
        .count()
}

/// Starts a long comparison with a temporary directory of its own and waits until its relays run.
fn long_comparison(directory: &std::path::Path) -> std::process::Child {
    let mut running = command(&["--part", "http", "--duration", "30"])
        .env("TMPDIR", directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    let word = directory.to_str().unwrap();
    while processes(word) < 2 {
        assert!(running.try_wait().unwrap().is_none(), "it ended");
        assert!(Instant::now() < give_up, "no relay was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

fn all_gone(directory: &std::path::Path) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while processes(directory.to_str().unwrap()) > 0 {
        assert!(
            Instant::now() < give_up,
            "a program outlived the comparison"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_program_outlives_a_comparison_that_is_killed() {
    if relay().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut running = long_comparison(directory.path());
    running.kill().unwrap();
    running.wait().unwrap();
    all_gone(directory.path());
}

#[test]
fn what_cannot_be_run_is_said() {
    let output = command(&["--part", "http", "--relay", "/nonexistent/npamp-relay"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent/npamp-relay"));
    for wrong in [
        &["--rounds", "0"][..],
        &["--part", "other"],
        &["--http-connections", "1,none"],
        &["--rate", "fast"],
        &["--payload", "1"],
    ] {
        let output = command(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
