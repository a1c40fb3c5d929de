//! The report as a table for people.

use super::{Point, Report};
use crate::args::Arrivals;
use crate::histogram::Summary;
use std::fmt::Write as _;

impl Report {
    /// The table.
    pub fn table(&self) -> String {
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
        if counts.events > 0 {
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
            "{:<19}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"
        );
        for (name, summary) in &self.latency {
            row(&mut out, &name.replace('_', " "), summary);
        }
        row(&mut out, "schedule lag", &schedule.lag);
        if schedule.wait.max_ns > 1 {
            row(&mut out, "bound wait", &schedule.wait);
        }
        let _ = writeln!(out, "Latency counts from the intended send time.");
        if let Some(cpu) = &self.cpu {
            let responder = cpu.responder_s.map_or_else(
                || "responder unknown (give --target-pid)".to_owned(),
                |time| format!("responder {time:.2} s"),
            );
            let _ = writeln!(
                out,
                "CPU time: generator {:.2} s, {responder}, in {:.2} s.",
                cpu.generator_s, cpu.wall_s
            );
            if let (Some(completed), Some(events)) = (
                cpu.completed_per_responder_cpu_s,
                cpu.events_per_responder_cpu_s,
            ) {
                let _ = writeln!(
                    out,
                    "Per CPU second of the responder: {completed:.0} exchanges, {events:.0} events."
                );
            }
        }
        if let Some(idle) = &self.idle {
            let shown = |octets: Option<f64>| {
                octets.map_or_else(
                    || "unknown".to_owned(),
                    |octets| format!("{:.1} KiB", octets / 1024.0),
                )
            };
            let _ = writeln!(
                out,
                "{} idle associations, opened at {:.0}/s; each takes {} resident, {} of heap{}.",
                idle.associations,
                idle.open_per_s,
                shown(idle.rss_per_association_octets),
                shown(idle.heap_per_association_octets),
                if self.in_process { " (both ends)" } else { "" }
            );
        }
        if let Some(sweep) = &self.sweep {
            match (sweep.knee_per_s, &sweep.limited_by) {
                (Some(knee), Some(reason)) => {
                    let _ = writeln!(out, "Knee: {knee:.0}/s; above it, {reason}.");
                }
                (Some(knee), None) if knee < sweep.to_per_s => {
                    let _ = writeln!(out, "Knee: not found yet; {knee:.0}/s was served well.");
                }
                (Some(knee), None) => {
                    let _ = writeln!(
                        out,
                        "Knee: not reached; {knee:.0}/s, the end of the range, was served well."
                    );
                }
                (None, reason) => {
                    let _ = writeln!(
                        out,
                        "Knee: below {:.0}/s; {}.",
                        sweep.from_per_s,
                        reason.as_deref().unwrap_or("nothing was measured")
                    );
                }
            }
        }
        if let Some(soak) = &self.soak {
            let memory = match (soak.memory_early_octets, soak.memory_late_octets) {
                (Some(early), Some(late)) => format!(
                    "memory {} MiB, later {} MiB",
                    early / 1_048_576,
                    late / 1_048_576
                ),
                _ => "memory not known".to_owned(),
            };
            let _ = writeln!(
                out,
                "Soak at {:.0} % of it: {} lost, {} errors, {memory}: {}.",
                soak.at * 100.0,
                soak.lost,
                soak.errors,
                if soak.passed { "passed" } else { "FAILED" }
            );
        }
        if self.interrupted {
            let _ = writeln!(
                out,
                "The run was interrupted; this is what was measured so far."
            );
        }
        if self.generator_bound {
            let _ = writeln!(
                out,
                "THE GENERATOR WAS THE BOTTLENECK: it was late too often, so this says nothing of the responder's limit."
            );
        }
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

/// One line about a step of a sweep.
pub fn step(point: &Point) -> String {
    let events = if point.events_per_s > 0.0 {
        format!(", {:.0} events/s", point.events_per_s)
    } else {
        String::new()
    };
    format!(
        "{:>9.0}/s: {:.0}/s{events}, p50 {}, p99 {}, p99.9 {}: {}",
        point.rate_per_s,
        point.achieved_per_s,
        shown(point.p50_ns),
        shown(point.p99_ns),
        shown(point.p99_9_ns),
        point.reason.as_deref().unwrap_or("served well"),
    )
}

fn row(out: &mut String, label: &str, summary: &Summary) {
    let _ = write!(out, "{label:<19}{:>9}", summary.count);
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
pub fn shown(ns: u64) -> String {
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
