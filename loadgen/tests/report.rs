//! `report`: pages of runs that were just made, and files that are none.

#![allow(clippy::disallowed_methods)] // tests start processes and wait for them

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npamp-loadgen"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Records a run into a file.
fn record(directory: &Path, name: &str, scenario: &str) -> String {
    let file = directory.join(name).to_str().unwrap().to_owned();
    let output = run(&[
        "run",
        "--scenario",
        scenario,
        "--rate",
        "100",
        "--duration",
        "3",
        "--warmup",
        "0",
        "--events",
        "4",
        // How late a busy machine sends is not what is tested.
        "--lag-max",
        "60000",
        "--json",
        &file,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    file
}

fn page(files: &[&str]) -> String {
    let output = run(&[&["report", "--out", "-"], files].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    well_formed(&page);
    page
}

/// Every element is closed in order, ids are there once and what refers to them finds them, and
/// nothing is fetched from anywhere.
fn well_formed(page: &str) {
    let rest = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let (mut open, mut ids, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = rest;
    while let Some(at) = rest.find('<') {
        let tag_and_more = &rest[at + 1..];
        let end = tag_and_more.find('>').expect("a tag ends");
        let tag = &tag_and_more[..end];
        rest = &tag_and_more[end + 1..];
        for (mark, into) in [(" id=\"", &mut ids), (" aria-labelledby=\"", &mut wanted)] {
            if let Some(at) = tag.find(mark) {
                let value = &tag[at + mark.len()..];
                let value = &value[..value.find('"').unwrap()];
                into.extend(value.split(' ').map(str::to_owned));
            }
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name.trim()), "near {tag}");
            continue;
        }
        let name = tag.split([' ', '\n', '/']).next().unwrap();
        let is_void = ["meta", "link", "br", "img"].contains(&name);
        if !tag.ends_with('/') && !is_void {
            open.push(name.to_owned());
        }
        if name == "style" {
            let at = rest.find("</style>").unwrap();
            rest = &rest[at..];
        }
        assert!(
            name != "script" && !tag.contains("href=") && !tag.contains("src="),
            "{tag}"
        );
    }
    assert!(open.is_empty(), "{open:?} not closed");
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "ids are unique");
    assert!(wanted.iter().all(|id| ids.contains(id)), "{wanted:?}");
    assert!(!page.contains("url("));
}

#[test]
fn one_run_and_two() {
    let directory = tempfile::tempdir().unwrap();
    let first = record(directory.path(), "first.json", "stream");
    let second = record(directory.path(), "second <b>.json", "stream");
    let one = page(&[&first]);
    for piece in [
        "Latency by percentile",
        "Events received in each second",
        "first event",
        "stream end",
        "99.9 %",
        "--scenario stream --rate 100",
        "prefers-color-scheme: dark",
        // 300 streams of 4 events and their end.
        "<td>300</td>",
    ] {
        assert!(one.contains(piece), "{piece}");
    }
    let both = page(&[&first, &second]);
    assert!(both.contains("B against A") && both.contains("A first event"));
    // Names are text.
    assert!(both.contains("second &lt;b&gt;.json") && !both.contains("second <b>"));
    // Three seconds say nothing of their spread.
    assert!(both.contains("too few values to tell"));
    let out = directory.path().join("page.html");
    let output = run(&["report", &first, "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(out).unwrap(), one);
}

#[test]
fn a_sweep_has_a_curve() {
    let directory = tempfile::tempdir().unwrap();
    let file = record(directory.path(), "run.json", "unary");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let point = |rate: f64, passed: bool| {
        json!({
            "rate_per_s": rate, "scheduled_per_s": rate, "achieved_per_s": rate, "events_per_s": 0.0,
            "p50_ns": 50_000, "p99_ns": 900_000, "p99.9_ns": 1_234_000, "max_ns": 5_000_000,
            "lag_p99_ns": 1000, "errors": 0, "generator_bound": false, "cpu": null,
            "passed": passed, "reason": if passed { Value::Null } else { "p99 is <too> long".into() },
        })
    };
    value["sweep"] = json!({
        "from_per_s": 1000.0, "to_per_s": 4000.0, "achieved_min": 0.99, "p99_max_ns": 1_000_000,
        "p99_factor": 10.0, "points": [point(1000.0, true), point(4000.0, false), point(2000.0, true)],
        "knee_per_s": 2000.0, "limited_by": "p99 is <too> long",
    });
    std::fs::write(&file, value.to_string()).unwrap();
    let page = page(&[&file]);
    assert!(page.contains("Latency at each rate asked") && page.contains("1.23 ms"));
    assert!(page.contains("p99 is &lt;too&gt; long"));
}

fn comparison(rate: f64) -> Value {
    let spread = |value: f64| {
        json!({"median": value, "min": value * 0.9, "max": value * 1.1,
               "rounds": [value * 0.9, value, value, value, value * 1.1]})
    };
    let contestant = |name: &str, rate: f64, ratio: Value| {
        json!({"name": name, "per_s": spread(rate), "p50_ns": spread(20_000.0), "p99_ns": spread(90_000.0),
               "p99.9_ns": null, "subject_ratio": ratio, "errors": 0, "example": "", "latency": null})
    };
    let ratio = json!({"per_s": spread(1.5), "p50": null, "p99": null, "p99.9": null});
    json!({
        "schema": "npamp-loadgen/compare/1", "tool": "npamp-loadgen", "version": "0", "command_line": ["npamp-loadgen", "compare"],
        "finished_unix_s": 0, "machine": {"cores": 2, "cpu_model": "CPU", "kernel": "6", "memory_octets": 1},
        "asked": {"rounds": 5, "duration_s": 1.0, "warmup_s": 0.1, "payload_octets": 512, "event_octets": 256, "events": 10},
        "programs": {"relay": "0.1"}, "skipped": {"haproxy": "not installed"},
        "cases": [{"name": "http_unary_1", "load": "some", "unit": "requests/s", "subject": "relay",
                   "contestants": [contestant("relay", rate, Value::Null), contestant("nginx", 20_000.0, ratio)]}],
        "clean": true,
    })
}

#[test]
fn comparisons() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        let file = directory.path().join(name);
        std::fs::write(&file, value.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (first, second) = (
        write("a.json", &comparison(30_000.0)),
        write("b.json", &comparison(60_000.0)),
    );
    let one = page(&[&first]);
    assert!(
        one.contains("30\u{202f}000") && one.contains("1.50×") && one.contains("not installed")
    );
    let both = page(&[&first, &second]);
    assert!(both.contains("2.00×") && both.contains("\"good\">more"));
    assert!(both.contains("within the noise"));
    let run_file = record(directory.path(), "run.json", "unary");
    let output = run(&["report", "--out", "-", &first, &run_file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be held against"));
}

#[test]
fn files_that_are_no_report() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("missing.json", None, "missing.json"),
        ("text.json", Some("hello"), "is not JSON"),
        ("other.json", Some("{}"), "no schema"),
        (
            "later.json",
            Some(r#"{"schema":"npamp-loadgen/run/9"}"#),
            "npamp-loadgen/run/9",
        ),
        (
            "short.json",
            Some(r#"{"schema":"npamp-loadgen/run/1"}"#),
            "missing field",
        ),
    ];
    for (name, content, expected) in cases {
        let file = directory.path().join(name);
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let output = run(&["report", "--out", "-", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let errors = text(&output.stderr);
        assert!(
            errors.contains(expected) && errors.contains(name),
            "{errors}"
        );
        assert!(output.stdout.is_empty());
    }
    for wrong in [
        &["report"][..],
        &["report", "a", "b", "c"],
        &["report", "--out"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
