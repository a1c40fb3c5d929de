//! What the units count. One set a unit, so that no counter is contended; `observe` adds them up.

use crate::association::{DropReason, Failure};
use crate::engine::shard::ShardStats;
use crate::reasons;
use crate::stats::{Counters, Gauge};
use std::sync::Arc;

reasons! {
    /// What happens on a unit.
    pub enum UnitCount {
        /// Calls taken from an ingress.
        Calls => "calls",
        /// Calls refused because the process holds as many octets as it may.
        CallsOverloaded => "calls_overloaded",
        /// Calls not delivered because an association or a waiting list is full.
        CallsOverBudget => "calls_over_budget",
        /// Exchanges given to the egress.
        Dispatches => "dispatches",
        /// Exchanges of peers passed on to an upstream.
        Transits => "transits",
        /// Answers of upstreams not delivered because the peer's association or the process
        /// holds as much as it may.
        TransitsOverBudget => "transits_over_budget",
        /// Frames opened and mapped.
        FramesOpened => "frames_opened",
        /// ERROR frames received.
        PeerErrors => "peer_errors",
        /// Bad bridge frames answered with a core ERROR (ruling R26).
        ErrorsReported => "errors_reported",
        /// Associations closed because HELLO repeats another server name, or none (ruling R12).
        ServerNameMismatches => "server_name_mismatches",
        /// Associations closed because their service parameters are no header values (ruling R13).
        ParametersRefused => "parameters_refused",
        /// Associations refused because the shard is full.
        AssociationsRefused => "associations_refused",
        /// Frames that an association's queue did not take.
        SendsRefused => "sends_refused",
    }
}

reasons! {
    /// What happens to an upstream of a route.
    pub enum UpstreamCount {
        /// A unit ejected it.
        Ejected => "ejected",
        /// A unit that had ejected it places calls there again.
        Returned => "returned",
        /// A call that waited for it went to another upstream.
        UnsentMoved => "unsent_moved",
        /// A read_only call without a reply, whose association was lost, went to another upstream.
        ReadOnlyRetried => "read_only_retried",
        /// A call failed without an attempt, since a dial had failed a moment before.
        FailedFast => "failed_fast",
    }
}

/// Counters of one upstream of a route, kept by all units.
#[derive(Debug, Default)]
pub struct UpstreamStats {
    /// Events.
    pub events: Counters<UpstreamCount>,
    /// Associations that stand.
    pub associations: Gauge,
    /// Units that have ejected it.
    pub ejected: Gauge,
}

/// Counters of one unit.
#[derive(Debug, Default)]
pub struct UnitStats {
    /// Events.
    pub work: Arc<Counters<UnitCount>>,
    /// Frames dropped, by reason.
    pub dropped: Arc<Counters<DropReason>>,
    /// Associations that failed, by reason.
    pub failed: Arc<Counters<Failure>>,
    /// The shard's own.
    pub shard: Arc<ShardStats>,
}

impl UnitStats {
    /// Adds one.
    pub fn count(&self, what: UnitCount) {
        self.work.count(what);
    }
}
