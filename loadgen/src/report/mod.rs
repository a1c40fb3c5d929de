//! The report: a table for people, JSON for everything else.

mod json;
mod schema;
mod table;

pub use schema::{Report, Second};

use crate::args::{RunArguments, Scenario};
use crate::histogram::Times;
use crate::machine::Machine;
use crate::measurement::{LATE, Measurement};
use schema::{Asked, Counts, ErrorReport, Rates, Replies, SCHEMA, ScheduleReport};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

impl Report {
    /// Of a measurement.
    pub fn new(
        arguments: &RunArguments,
        target: &str,
        measurement: &Measurement,
        series: Vec<Second>,
    ) -> Self {
        let time = measurement.time().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // averages
        let per_second = |n: u64| if time > 0.0 { n as f64 / time } else { 0.0 };
        let mut latency = BTreeMap::new();
        let mut add = |name: &'static str, times: &Times| {
            latency.insert(name.to_owned(), times.summary());
        };
        match arguments.scenario {
            Scenario::Unary | Scenario::Http => add("reply", &measurement.reply),
            Scenario::Stream | Scenario::Sse => {
                add("first_event", &measurement.first_event);
                add("gap", &measurement.gap);
                add("stream_end", &measurement.stream_end);
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            tool: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: std::env::args().collect(),
            finished_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            machine: Machine::read(),
            target: if arguments.scenario.is_http() {
                target.to_owned()
            } else {
                format!("npamp://{target}")
            },
            in_process: arguments.is_self(),
            asked: Asked {
                scenario: arguments.scenario,
                arrivals: arguments.arrivals,
                rate_per_s: arguments.rate,
                duration_s: arguments.duration.as_secs_f64(),
                warmup_s: arguments.warmup.as_secs_f64(),
                timeout_s: arguments.timeout.as_secs_f64(),
                connections: arguments.connections,
                concurrency_max: if arguments.scenario.is_http() {
                    usize::try_from(arguments.connections).unwrap_or(usize::MAX)
                } else {
                    arguments.concurrency_max
                },
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
            series,
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
        let text = json::to_string(self).map_err(|error| error.to_string())?;
        let written = if is_stdout {
            io::stdout().write_all(text.as_bytes())
        } else {
            std::fs::write(path, text)
        };
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}
