//! The JSON form of a report; `REPORT.md` describes it. Names are those of the
//! JSON members. A member that a reader of version 1 must know is never renamed
//! or removed under the same [`SCHEMA`]; members may be added.

use crate::args::{Arrivals, Scenario};
use crate::histogram::Summary;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the form.
pub const SCHEMA: &str = "npamp-loadgen/run/1";

/// A whole report of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub tool: String,
    pub version: String,
    pub command_line: Vec<String>,
    pub finished_unix_s: u64,
    pub machine: Machine,
    pub target: String,
    /// The responder ran in the generator's process.
    pub in_process: bool,
    pub asked: Asked,
    /// All kinds of exchange together.
    pub counts: Counts,
    /// By kind of exchange, in the scenario mixed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, KindCounts>,
    pub rates: Rates,
    /// By what was timed; in nanoseconds from the intended send time.
    pub latency: BTreeMap<String, Summary>,
    pub schedule: ScheduleReport,
    /// CPU time in the measured time; none when it never came to its end.
    #[serde(default)]
    pub cpu: Option<Cpu>,
    /// One entry a second of the measured time, the last one maybe shorter.
    pub series: Vec<Second>,
    /// In the scenario idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// With `--sweep`; all else is then of the knee, or of the soak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Soak>,
    pub errors: BTreeMap<String, ErrorReport>,
    /// Why the run ended early.
    pub aborted: Option<String>,
    /// The user ended it.
    #[serde(default)]
    pub interrupted: bool,
    /// The generator was too late too often: the figures are its own limit, not the responder's.
    #[serde(default)]
    pub generator_bound: bool,
    /// Everything asked for was measured, without an error, and the generator kept its schedule.
    pub clean: bool,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    pub scenario: Scenario,
    pub arrivals: Arrivals,
    pub rate_per_s: f64,
    pub duration_s: f64,
    pub warmup_s: f64,
    pub timeout_s: f64,
    pub connections: u64,
    pub concurrency_max: usize,
    pub payload_octets: u64,
    /// Where bulk requests were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_payload_octets: Option<u64>,
    /// Weights, in the scenario mixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
    #[serde(default)]
    pub threads: u32,
    /// Threads of the generator and of the responder in its process were kept on cores apart.
    #[serde(default)]
    pub pinned: bool,
    /// What the responder was told to send, where it is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<Replies>,
}

/// What the built-in responder sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replies {
    pub events: u32,
    pub event_octets: u64,
    pub event_gap_us: u64,
    #[serde(default)]
    pub bulk_octets: u64,
    #[serde(default)]
    pub threads: u32,
}

/// Counts of requests whose intended time lies in the measured time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counts {
    pub scheduled: u64,
    pub sent: u64,
    pub completed: u64,
    /// All errors, those of the warm-up included.
    pub errors: u64,
    pub events: u64,
    pub octets_sent: u64,
    pub octets_received: u64,
    /// Frames for exchanges that were given up.
    pub late_replies: u64,
}

/// Counts of one kind of exchange.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindCounts {
    pub scheduled: u64,
    pub sent: u64,
    pub completed: u64,
    pub events: u64,
    pub octets_sent: u64,
    pub octets_received: u64,
}

/// CPU time that the measured time took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cpu {
    /// Between both readings.
    pub wall_s: f64,
    pub generator_s: f64,
    /// None when the responder's process is not known.
    pub responder_s: Option<f64>,
    /// Exchanges completed per second of the responder's CPU time: what a core of it could do.
    pub completed_per_responder_cpu_s: Option<f64>,
    pub events_per_responder_cpu_s: Option<f64>,
    pub threads: Vec<ThreadCpu>,
}

/// CPU time of a thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThreadCpu {
    pub name: String,
    /// `generator` or `responder`.
    pub side: String,
    pub cpu_s: f64,
}

/// Associations that were only held.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Idle {
    pub associations: u64,
    /// How long it took to open them.
    pub open_s: f64,
    pub open_per_s: f64,
    /// Growth of the responder's resident memory for each; of both ends when they are in one process.
    pub rss_per_association_octets: Option<f64>,
    /// Growth of the heap for each, both ends together; none when the responder is another process.
    pub heap_per_association_octets: Option<f64>,
}

/// A search for the highest rate that is served well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sweep {
    pub from_per_s: f64,
    pub to_per_s: f64,
    /// Part of what was scheduled that must be completed in the measured time.
    pub achieved_min: f64,
    /// The limit of p99; none when the first step failed that would have set it.
    pub p99_max_ns: Option<u64>,
    /// How many times the first step's p99 that is, unless it was given.
    pub p99_factor: f64,
    /// In the order in which they were measured.
    pub points: Vec<Point>,
    /// The highest rate that was served well.
    pub knee_per_s: Option<f64>,
    /// What was wrong with the lowest rate that was not; none when the whole range was served well.
    pub limited_by: Option<String>,
}

/// One step of a sweep.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    pub rate_per_s: f64,
    /// What the arrivals came to.
    pub scheduled_per_s: f64,
    /// What was completed in the measured time.
    pub achieved_per_s: f64,
    pub events_per_s: f64,
    /// From the intended send to the completion.
    pub p50_ns: u64,
    pub p99_ns: u64,
    #[serde(rename = "p99.9_ns")]
    pub p99_9_ns: u64,
    pub max_ns: u64,
    /// Of the generator.
    pub lag_p99_ns: u64,
    pub errors: u64,
    pub generator_bound: bool,
    /// In the measured time.
    pub cpu: Option<Cpu>,
    pub passed: bool,
    /// Why it did not pass.
    pub reason: Option<String>,
}

/// A long run at a part of the knee.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Soak {
    pub at: f64,
    pub rate_per_s: f64,
    pub duration_s: f64,
    /// Mean resident memory of the second and of the last quarter, where it is known and the time long enough.
    pub memory_early_octets: Option<u64>,
    pub memory_late_octets: Option<u64>,
    /// It grew by no more than 5 % or 16 MiB.
    pub memory_flat: Option<bool>,
    /// Scheduled and not completed.
    pub lost: u64,
    pub errors: u64,
    pub passed: bool,
}

/// What happened in the measured time, whenever it was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(clippy::struct_field_names)] // units last
pub struct Rates {
    /// The measured time.
    pub time_s: f64,
    pub sent_per_s: f64,
    pub completed_per_s: f64,
    pub events_per_s: f64,
    pub octets_received_per_s: f64,
}

/// How the generator kept its schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleReport {
    /// How much later than it could the generator sent: its own lag.
    pub lag: Summary,
    /// How long requests waited for the concurrency bound.
    pub wait: Summary,
    pub late_sends: u64,
    pub late_after_ms: f64,
}

/// What happened in one second of the measured time.
#[allow(clippy::struct_field_names)] // as the JSON form has it
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Its number, from 0.
    pub second: u64,
    pub sent: u64,
    /// Exchanges that completed in it.
    pub completed: u64,
    /// Stream events received in it.
    pub events: u64,
    /// Time from the intended send to the completion, of those that completed in it; 0 when none did.
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Resident memory of the responder's process at its end, when that is known.
    pub rss_octets: Option<u64>,
}

/// One kind of error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorReport {
    pub count: u64,
    /// What the first one said.
    pub example: String,
}
