//! The same corpus through the conformance adapter, graded as the public runner
//! grades: in memory, and through the built program once it has the command.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use npamp_relay::cli::conformance_adapter::{OPERATIONS, run};
use serde_json::{Value, json};

use crate::corpus::{CLAIMED, Case, cases};

fn requests(cases: &[Case]) -> Vec<u8> {
    let mut input = Vec::new();
    for case in cases {
        let request = json!({"op": case.operation, "in": case.test["in"]}).to_string();
        input.extend_from_slice(&(request.len() as u32).to_le_bytes());
        input.extend_from_slice(request.as_bytes());
    }
    input
}

fn answers(mut output: &[u8]) -> Vec<Value> {
    let mut answers = Vec::new();
    while let Some((prefix, rest)) = output.split_first_chunk::<4>() {
        let (answer, rest) = rest.split_at(u32::from_le_bytes(*prefix) as usize);
        answers.push(serde_json::from_slice(answer).unwrap());
        output = rest;
    }
    answers
}

/// Strings equal but for case, everything else exactly; only expected keys count.
fn matches(expected: &Value, out: &Value) -> bool {
    expected.as_object().is_none_or(|expected| {
        expected
            .iter()
            .all(|(key, value)| match (value, &out[key]) {
                (Value::String(a), Value::String(b)) => a.eq_ignore_ascii_case(b),
                (a, b) => a == b,
            })
    })
}

fn grade(cases: &[Case], output: &[u8]) {
    let answers = answers(output);
    assert_eq!(answers.len(), cases.len(), "one answer per request");
    let mut passed: BTreeMap<&str, usize> = BTreeMap::new();
    let mut skipped = 0;
    for (case, answer) in cases.iter().zip(answers) {
        let claimed = CLAIMED.contains(&case.operation.as_str());
        if answer.get("skipped").is_some() {
            assert!(!claimed, "{}: skipped although claimed", case.name);
            skipped += 1;
            continue;
        }
        assert!(claimed, "{}: answered although not claimed", case.name);
        let pass = match case.test["result"].as_str().unwrap() {
            "invalid" => answer["error"].is_string(),
            "acceptable" => true,
            _ => answer
                .get("out")
                .is_some_and(|out| matches(&case.test["expected"], out)),
        };
        assert!(pass, "{}: {answer}", case.name);
        *passed.entry(case.operation.as_str()).or_default() += 1;
    }
    for operation in CLAIMED {
        assert!(passed.contains_key(operation), "{operation}: no case ran");
    }
    println!("passed {passed:?}, skipped {skipped}");
}

#[test]
fn in_memory() {
    assert_eq!(OPERATIONS, CLAIMED);
    let Some(cases) = cases() else {
        return;
    };
    let mut output = Vec::new();
    run(&requests(&cases)[..], &mut output).unwrap();
    grade(&cases, &output);
}

/// The built program, once its command line has the command.
#[test]
fn through_the_program() {
    let program = env!("CARGO_BIN_EXE_npamp-relay");
    let help = Command::new(program).arg("--help").output().unwrap();
    if !String::from_utf8_lossy(&help.stdout).contains("conformance-adapter") {
        println!("skipped: the program has no command conformance-adapter");
        return;
    }
    let Some(cases) = cases() else {
        return;
    };
    let mut child = Command::new(program)
        .arg("conformance-adapter")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let requests = requests(&cases);
    // Written beside the reading, so that neither pipe fills up and waits.
    let writer = std::thread::spawn(move || input.write_all(&requests).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    grade(&cases, &output.stdout);
}
