//! The report: a table for people, JSON for everything else.

mod json;
mod schema;
mod table;

pub use schema::{Point, Report, SCHEMA, Second, Soak, Sweep};
pub use table::{shown, step};

use crate::args::{RunArguments, Scenario};
use crate::histogram::Summary;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::measurement::{ErrorKind, Measurement};
use crate::observer::Observation;
use crate::series::Series;
use crate::session::Load;
use npamp_relay::engine::cores;
use schema::{
    Asked, Counts, Cpu, ErrorReport, Idle, KindCounts, Rates, Replies, ScheduleReport, ThreadCpu,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

impl Report {
    /// Of a measurement.
    pub fn new(
        arguments: &RunArguments,
        target: &str,
        load: Load,
        mut measurement: Measurement,
        observation: &Observation,
    ) -> Self {
        let rates = rates(&measurement);
        let mut series = measurement
            .series
            .take()
            .map(Series::finish)
            .unwrap_or_default();
        for (second, rss_octets) in series.iter_mut().zip(&observation.memory) {
            second.rss_octets = *rss_octets;
        }
        let is_mixed = arguments.scenario == Scenario::Mixed;
        let kinds = arguments.mix().kinds();
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
            asked: asked(arguments, load),
            counts: Counts {
                scheduled: measurement.sum(|kind| kind.scheduled),
                sent: measurement.sum(|kind| kind.sent),
                completed: measurement.sum(|kind| kind.completed),
                errors: measurement.error_count(),
                events: measurement.sum(|kind| kind.events),
                octets_sent: measurement.sum(|kind| kind.octets_sent),
                octets_received: measurement.sum(|kind| kind.octets_received),
                late_replies: measurement.late_replies,
            },
            kinds: kinds
                .filter(|_| is_mixed)
                .map(|kind| {
                    let counts = measurement.of(kind);
                    let counts = KindCounts {
                        scheduled: counts.scheduled,
                        sent: counts.sent,
                        completed: counts.completed,
                        events: counts.events,
                        octets_sent: counts.octets_sent,
                        octets_received: counts.octets_received,
                    };
                    (kind.name().to_owned(), counts)
                })
                .collect(),
            cpu: cpu(observation, &rates),
            rates,
            latency: latency(arguments, &mut measurement),
            series,
            schedule: ScheduleReport {
                lag: measurement.lag.summary(),
                wait: measurement.wait.summary(),
                late_sends: measurement.late_sends,
                late_after_ms: arguments.lag_max.as_secs_f64() * 1000.0,
            },
            idle: idle(arguments, observation),
            sweep: None,
            soak: None,
            errors: measurement
                .errors
                .iter()
                .map(|(kind, error)| {
                    let ErrorKind { count, example } = error.clone();
                    (kind.clone(), ErrorReport { count, example })
                })
                .collect(),
            aborted: measurement.aborted.clone(),
            interrupted: measurement.interrupted,
            generator_bound: measurement.is_generator_bound(),
            clean: measurement.is_clean(),
        }
    }

    /// With what a sweep found, and a soak.
    pub fn with_sweep(mut self, sweep: Sweep, soak: Option<Soak>, clean: bool) -> Self {
        self.sweep = Some(sweep);
        self.soak = soak;
        self.clean = clean;
        self
    }

    /// Prints the table, and writes JSON where asked.
    pub fn write(&self, json: Option<&Path>) -> Result<(), String> {
        // A run that never began has no table; the error says why.
        let table = if self.rates.time_s == 0.0 {
            String::new()
        } else {
            self.table()
        };
        write(self, &table, json)
    }
}

fn asked(arguments: &RunArguments, load: Load) -> Asked {
    let replies = &arguments.replies;
    let has_bulk = arguments.mix().kinds().any(|kind| kind == Kind::Bulk);
    Asked {
        scenario: arguments.scenario,
        arrivals: arguments.arrivals,
        rate_per_s: load.rate,
        duration_s: load.duration.as_secs_f64(),
        warmup_s: load.warmup.as_secs_f64(),
        timeout_s: arguments.timeout.as_secs_f64(),
        connections: arguments.lines(),
        concurrency_max: if arguments.scenario.is_http() {
            usize::try_from(arguments.connections).unwrap_or(usize::MAX)
        } else {
            arguments.concurrency_max
        },
        payload_octets: arguments.payload,
        bulk_payload_octets: has_bulk.then_some(arguments.bulk_payload),
        mix: (arguments.scenario == Scenario::Mixed).then(|| arguments.mix().to_string()),
        threads: arguments.threads,
        pinned: arguments.is_self() && !arguments.no_pin && cores::available().len() > 1,
        replies: arguments.is_self().then_some(Replies {
            events: replies.events,
            event_octets: replies.event_octets,
            event_gap_us: replies.event_gap_us,
            bulk_octets: replies.bulk_octets,
            threads: replies.responder_threads,
        }),
    }
}

/// Histograms of what the scenario has; with several kinds their names begin with the kind.
fn latency(arguments: &RunArguments, measurement: &mut Measurement) -> BTreeMap<String, Summary> {
    let mut latency = BTreeMap::new();
    let is_mixed = arguments.scenario == Scenario::Mixed;
    if arguments.scenario == Scenario::Connect {
        latency.insert("ready".to_owned(), measurement.ready.summary());
        if !arguments.exchange {
            return latency;
        }
    }
    for kind in arguments.mix().kinds() {
        let name = |name: &str| {
            if is_mixed {
                format!("{}_{name}", kind.name())
            } else {
                name.to_owned()
            }
        };
        let times = measurement.of(kind);
        if kind == Kind::Stream {
            latency.insert(name("first_event"), times.first_event.summary());
            latency.insert(name("gap"), times.gap.summary());
            latency.insert(name("stream_end"), times.stream_end.summary());
        } else {
            latency.insert(name("reply"), times.reply.summary());
        }
    }
    latency
}

fn cpu(observation: &Observation, rates: &Rates) -> Option<Cpu> {
    if observation.time.is_zero() {
        return None;
    }
    let wall_s = observation.time.as_secs_f64();
    let sum = |is_generator: bool| {
        let threads = observation.threads.iter();
        threads
            .filter(|thread| thread.is_generator == is_generator)
            .map(|thread| thread.cpu.as_secs_f64())
            .sum::<f64>()
    };
    let responder_s = Some(sum(false)).filter(|&time| time > 0.0);
    let per_cpu = |rate: f64| responder_s.map(|time| rate * wall_s / time);
    Some(Cpu {
        wall_s,
        generator_s: sum(true),
        responder_s,
        completed_per_responder_cpu_s: per_cpu(rates.completed_per_s),
        events_per_responder_cpu_s: per_cpu(rates.events_per_s),
        threads: observation
            .threads
            .iter()
            .map(|thread| ThreadCpu {
                name: thread.name.clone(),
                side: if thread.is_generator {
                    "generator".to_owned()
                } else {
                    "responder".to_owned()
                },
                cpu_s: thread.cpu.as_secs_f64(),
            })
            .collect(),
    })
}

fn per_second(n: u64, time_s: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // averages
    if time_s > 0.0 { n as f64 / time_s } else { 0.0 }
}

fn rates(measurement: &Measurement) -> Rates {
    let time_s = measurement.time().as_secs_f64();
    Rates {
        time_s,
        sent_per_s: per_second(measurement.sent_within, time_s),
        completed_per_s: per_second(measurement.completed_within, time_s),
        events_per_s: per_second(measurement.events_within, time_s),
        octets_received_per_s: per_second(measurement.octets_received_within, time_s),
    }
}

/// One step of a sweep, not judged yet.
pub fn point(load: Load, measurement: &Measurement, observation: &Observation) -> Point {
    let rates = rates(measurement);
    let completion = &measurement.completion;
    Point {
        rate_per_s: load.rate,
        scheduled_per_s: per_second(measurement.sum(|kind| kind.scheduled), rates.time_s),
        achieved_per_s: rates.completed_per_s,
        events_per_s: rates.events_per_s,
        p50_ns: completion.quantile_ns(0.5),
        p99_ns: completion.quantile_ns(0.99),
        p99_9_ns: completion.quantile_ns(0.999),
        max_ns: completion.quantile_ns(1.0),
        lag_p99_ns: measurement.lag.quantile_ns(0.99),
        errors: measurement.error_count(),
        generator_bound: measurement.is_generator_bound(),
        cpu: cpu(observation, &rates),
        passed: false,
        reason: None,
    }
}

fn idle(arguments: &RunArguments, observation: &Observation) -> Option<Idle> {
    let (before, after) = observation.held?;
    #[allow(clippy::cast_precision_loss)] // averages
    let count = arguments.held() as f64;
    #[allow(clippy::cast_precision_loss)] // octets
    let each =
        |before: Option<u64>, after: Option<u64>| Some((after? as f64 - before? as f64) / count);
    let open_s = (after.at - before.at).as_secs_f64();
    Some(Idle {
        associations: arguments.held(),
        open_s,
        open_per_s: count / open_s,
        rss_per_association_octets: each(before.rss_octets, after.rss_octets),
        heap_per_association_octets: each(before.heap_octets, after.heap_octets)
            .filter(|_| arguments.is_self()),
    })
}

/// Prints a table, and writes JSON where asked. With JSON on standard output the table goes to standard error.
pub fn write(report: &impl Serialize, table: &str, json: Option<&Path>) -> Result<(), String> {
    let is_stdout = json.is_some_and(|path| path.as_os_str() == "-");
    let shown = if is_stdout {
        io::stderr().write_all(table.as_bytes())
    } else {
        io::stdout().write_all(table.as_bytes())
    };
    shown.map_err(|error| format!("the table cannot be written: {error}"))?;
    let Some(path) = json else { return Ok(()) };
    let text = json::to_string(report).map_err(|error| error.to_string())?;
    let written = if is_stdout {
        io::stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(path, text)
    };
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
