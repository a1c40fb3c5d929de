//! The report: a table for people, JSON for everything else.

use crate::args::{Arrivals, RunArguments, Scenario};
use crate::histogram::{Summary, Times};
use crate::machine::Machine;
use crate::measurement::{LATE, Measurement};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A whole report. The names are those of the JSON form.
#[derive(Debug, Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    command_line: Vec<String>,
    finished_unix_s: u64,
    machine: Machine,
    target: String,
    in_process: bool,
    asked: Asked,
    counts: Counts,
    rates: Rates,
    latency: BTreeMap<&'static str, Summary>,
    schedule: ScheduleReport,
    errors: BTreeMap<String, ErrorReport>,
    aborted: Option<String>,
    clean: bool,
}

#[derive(Debug, Serialize)]
struct Asked {
    scenario: Scenario,
    arrivals: Arrivals,
    rate_per_s: f64,
    duration_s: f64,
    warmup_s: f64,
    timeout_s: f64,
    connections: u64,
    concurrency_max: usize,
    payload_octets: u64,
    /// What the responder was told to send, where it is ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<Replies>,
}

#[derive(Debug, Serialize)]
struct Replies {
    events: u32,
    event_octets: u64,
    event_gap_us: u64,
}

#[derive(Debug, Serialize)]
struct Counts {
    scheduled: u64,
    sent: u64,
    completed: u64,
    errors: u64,
    events: u64,
    octets_sent: u64,
    octets_received: u64,
    late_replies: u64,
}

#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names)] // units last
struct Rates {
    /// The measured time: rates count what happened in it.
    time_s: f64,
    sent_per_s: f64,
    completed_per_s: f64,
    events_per_s: f64,
    octets_received_per_s: f64,
}

#[derive(Debug, Serialize)]
struct ScheduleReport {
    /// How much later than it could the generator sent: its own lag.
    lag: Summary,
    /// How long requests waited for the concurrency bound.
    wait: Summary,
    late_sends: u64,
    late_after_ms: f64,
}

#[derive(Debug, Serialize)]
struct ErrorReport {
    count: u64,
    example: String,
}

impl Report {
    /// Of a measurement.
    pub fn new(arguments: &RunArguments, target: &str, measurement: &Measurement) -> Self {
        let time = measurement.time().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // averages
        let per_second = |n: u64| if time > 0.0 { n as f64 / time } else { 0.0 };
        let mut latency = BTreeMap::new();
        let mut add = |name: &'static str, times: &Times| {
            latency.insert(name, times.summary());
        };
        match arguments.scenario {
            Scenario::Unary => add("reply", &measurement.reply),
            Scenario::Stream => {
                add("first_event", &measurement.first_event);
                add("gap", &measurement.gap);
                add("stream_end", &measurement.stream_end);
            }
        }
        Self {
            tool: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            command_line: std::env::args().collect(),
            finished_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            machine: Machine::read(),
            target: format!("npamp://{target}"),
            in_process: arguments.is_self(),
            asked: Asked {
                scenario: arguments.scenario,
                arrivals: arguments.arrivals,
                rate_per_s: arguments.rate,
                duration_s: arguments.duration.as_secs_f64(),
                warmup_s: arguments.warmup.as_secs_f64(),
                timeout_s: arguments.timeout.as_secs_f64(),
                connections: arguments.connections,
                concurrency_max: arguments.concurrency_max,
                payload_octets: arguments.payload,
                replies: arguments.is_self().then_some(Replies {
                    events: arguments.replies.events,
                    event_octets: arguments.replies.event_octets,
                    event_gap_us: arguments.replies.event_gap_us,
                }),
            },
            counts: Counts {
                scheduled: measurement.scheduled,
                sent: measurement.sent,
                completed: measurement.completed,
                errors: measurement.error_count(),
                events: measurement.events,
                octets_sent: measurement.octets_sent,
                octets_received: measurement.octets_received,
                late_replies: measurement.late_replies,
            },
            rates: Rates {
                time_s: time,
                sent_per_s: per_second(measurement.sent_within),
                completed_per_s: per_second(measurement.completed_within),
                events_per_s: per_second(measurement.events_within),
                octets_received_per_s: per_second(measurement.octets_received_within),
            },
            latency,
            schedule: ScheduleReport {
                lag: measurement.lag.summary(),
                wait: measurement.wait.summary(),
                late_sends: measurement.late_sends,
                late_after_ms: LATE.as_secs_f64() * 1000.0,
            },
            errors: measurement
                .errors
                .iter()
                .map(|(kind, error)| {
                    (
                        kind.clone(),
                        ErrorReport {
                            count: error.count,
                            example: error.example.clone(),
                        },
                    )
                })
                .collect(),
            aborted: measurement.aborted.clone(),
            clean: measurement.is_clean(),
        }
    }

    /// Prints the table, and writes JSON where asked. With JSON on standard output the table goes to standard error.
    pub fn write(&self, json: Option<&Path>) -> Result<(), String> {
        let table = self.table();
        let is_stdout = json.is_some_and(|path| path.as_os_str() == "-");
        let shown = if self.rates.time_s == 0.0 {
            // It never began; the error says why.
            Ok(())
        } else if is_stdout {
            io::stderr().write_all(table.as_bytes())
        } else {
            io::stdout().write_all(table.as_bytes())
        };
        shown.map_err(|error| format!("the table cannot be written: {error}"))?;
        let Some(path) = json else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        let written = if is_stdout {
            io::stdout().write_all(text.as_bytes())
        } else {
            std::fs::write(path, text)
        };
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn table(&self) -> String {
        let Self {
            asked,
            counts,
            rates,
            machine,
            schedule,
            ..
        } = self;
        let mut out = String::new();
        let place = if self.in_process {
            "built-in responder"
        } else {
            &self.target
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:?} to {place}, {} connections, {} arrivals, request {} octets",
            asked.scenario,
            asked.connections,
            if asked.arrivals == Arrivals::Constant {
                "constant"
            } else {
                "Poisson"
            },
            asked.payload_octets,
        );
        let _ = writeln!(
            out,
            "{} cores, {}, Linux {}",
            machine.cores, machine.cpu_model, machine.kernel
        );
        let _ = writeln!(out);
        let _ = writeln!(
            out,
            "rate asked        {:>12.1} requests/s for {} s",
            asked.rate_per_s, asked.duration_s
        );
        let _ = writeln!(
            out,
            "rate achieved     {:>12.1} requests/s completed in that time",
            rates.completed_per_s
        );
        if asked.scenario == Scenario::Stream {
            let _ = writeln!(
                out,
                "events            {:>12.1} events/s, {} in all",
                rates.events_per_s, counts.events
            );
        }
        let _ = writeln!(
            out,
            "received          {:>12.3} MB/s of JSON-RPC objects",
            rates.octets_received_per_s / 1e6
        );
        let _ = writeln!(
            out,
            "requests          {:>12} scheduled, {} sent, {} completed, {} errors",
            counts.scheduled, counts.sent, counts.completed, counts.errors
        );
        let _ = writeln!(out);
        let _ = writeln!(
            out,
            "{:<13}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"
        );
        for (name, label) in [
            ("reply", "reply"),
            ("first_event", "first event"),
            ("gap", "event gap"),
            ("stream_end", "stream end"),
        ] {
            if let Some(summary) = self.latency.get(name) {
                row(&mut out, label, summary);
            }
        }
        row(&mut out, "schedule lag", &schedule.lag);
        if schedule.wait.max_ns > 1 {
            row(&mut out, "bound wait", &schedule.wait);
        }
        let _ = writeln!(out, "Latency counts from the intended send time.");
        if schedule.late_sends > 0 {
            let _ = writeln!(
                out,
                "{} requests were sent more than {} ms late by this generator; its own lag is in the latencies.",
                schedule.late_sends, schedule.late_after_ms
            );
        }
        if counts.late_replies > 0 {
            let _ = writeln!(
                out,
                "{} frames came for exchanges already given up.",
                counts.late_replies
            );
        }
        if !self.errors.is_empty() {
            let _ = writeln!(out, "\nerrors");
            for (kind, error) in &self.errors {
                let example: String = error.example.chars().take(120).collect();
                let _ = writeln!(out, "{:>12} {kind}: {example}", error.count);
            }
        }
        if counts.completed == 0 {
            let _ = writeln!(out, "\nNothing was measured.");
        }
        out
    }
}

fn row(out: &mut String, label: &str, summary: &Summary) {
    let _ = write!(out, "{label:<13}{:>9}", summary.count);
    for value in [
        summary.p50_ns,
        summary.p90_ns,
        summary.p99_ns,
        summary.p99_9_ns,
        summary.p99_99_ns,
        summary.max_ns,
    ] {
        let _ = write!(out, "{:>10}", shown(value));
    }
    out.push('\n');
}

/// A time with three significant digits or so.
#[allow(clippy::cast_precision_loss)] // shown rounded
fn shown(ns: u64) -> String {
    let ns = ns as f64;
    if ns < 1e3 {
        format!("{ns:.0} ns")
    } else if ns < 1e6 {
        format!("{:.1} µs", ns / 1e3)
    } else if ns < 1e9 {
        format!("{:.2} ms", ns / 1e6)
    } else {
        format!("{:.2} s", ns / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(12_345), "12.3 µs");
        assert_eq!(shown(12_345_678), "12.35 ms");
        assert_eq!(shown(12_345_678_901), "12.35 s");
    }
}
