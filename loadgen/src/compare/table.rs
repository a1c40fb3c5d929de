//! A comparison as a table for people.

use super::result::{Comparison, Spread};
use crate::report::shown;
use std::fmt::Write as _;

impl Comparison {
    /// The table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} cores, {}, Linux {}",
            self.machine.cores, self.machine.cpu_model, self.machine.kernel
        );
        let _ = writeln!(
            out,
            "{} rounds of {} s in turns; medians, and in brackets the least and the most",
            self.asked.rounds, self.asked.duration_s
        );
        for (name, version) in &self.programs {
            let _ = writeln!(out, "{name}: {version}");
        }
        for (name, reason) in &self.skipped {
            let _ = writeln!(out, "{name}: skipped, {reason}");
        }
        for case in &self.cases {
            let _ = writeln!(out, "\n{}: {}", case.name, case.load);
            let _ = writeln!(
                out,
                "{:<9}{:>30}{:>11}{:>11}{:>11}  {} against it",
                "", case.unit, "p50", "p99", "p99.9", case.subject
            );
            for contestant in &case.contestants {
                let time = |spread: &Option<Spread>| {
                    spread
                        .as_ref()
                        .map_or_else(|| "–".to_owned(), |spread| shown(rounded(spread.median)))
                };
                let _ = write!(
                    out,
                    "{:<9}{:>30}{:>11}{:>11}{:>11}",
                    contestant.name,
                    rates(&contestant.per_s),
                    time(&contestant.p50_ns),
                    time(&contestant.p99_ns),
                    time(&contestant.p99_9_ns),
                );
                if let Some(ratio) = &contestant.subject_ratio {
                    let _ = write!(
                        out,
                        "  {:.2} ({:.2}–{:.2})",
                        ratio.per_s.median, ratio.per_s.min, ratio.per_s.max
                    );
                    if let Some(p99_9) = &ratio.p99_9 {
                        let _ = write!(
                            out,
                            ", p99.9 {:.2} ({:.2}–{:.2})",
                            p99_9.median, p99_9.min, p99_9.max
                        );
                    }
                }
                if contestant.errors > 0 {
                    let example: String = contestant.example.chars().take(120).collect();
                    let _ = write!(out, "  {} errors: {example}", contestant.errors);
                }
                out.push('\n');
            }
        }
        out
    }
}

#[allow(clippy::cast_sign_loss)] // times are positive
fn rounded(ns: f64) -> u64 {
    ns.max(0.0).round() as u64
}

fn rates(spread: &Spread) -> String {
    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
}
