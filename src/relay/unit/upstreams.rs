//! What becomes of calls when an upstream fails: those that were not sent go to
//! another one, and so does a read_only one that got no reply, once. Upstreams
//! that fail are ejected, probed in the background, and return.

use super::Loop;
use super::streams::jitter;
use crate::a2a::port::{AssociationId, CallId, CallRequest};
use crate::engine::clock::now;
use crate::engine::control::Outcome;
use crate::engine::establish::EstablishError;
use crate::engine::shard::Down;
use crate::relay::health::Refusal;
use crate::relay::pools::{PoolId, PoolState, Waiting};
use crate::relay::stats::{UpstreamCount, UpstreamStats};
use std::fmt::Display;

/// An upstream in words, and where it is counted.
struct Named<'a> {
    route: String,
    upstream: &'a str,
    server_name: &'a str,
    stats: &'a UpstreamStats,
}

impl Loop {
    fn named(&self, id: PoolId) -> Option<Named<'_>> {
        let route = self.relay.routes.get(id.route)?;
        let settings = route.settings.upstreams.get(id.upstream)?;
        Some(Named {
            route: route.settings.label(),
            upstream: &settings.address,
            server_name: &settings.server_name,
            stats: &route.upstreams.get(id.upstream)?.stats,
        })
    }

    fn count_at(&self, id: PoolId, what: UpstreamCount) {
        if let Some(named) = self.named(id) {
            named.stats.events.count(what);
        }
    }

    /// An association with it is up: it takes calls again if it was ejected, also where
    /// the entry that had it dialled is gone.
    pub(super) fn upstream_back(&mut self, id: PoolId) {
        let restored = self.port.pools.borrow_mut().restore(id);
        if restored && let Some(named) = self.named(id) {
            named.stats.ejected.sub(1);
            named.stats.events.count(UpstreamCount::Returned);
            tracing::info!(
                route = named.route,
                upstream = named.upstream,
                server_name = named.server_name,
                "the upstream is back"
            );
        }
    }

    /// The calls that it is for go out. Gives the association whose place this one takes.
    pub(super) fn upstream_up(
        &mut self,
        id: PoolId,
        association: AssociationId,
    ) -> Option<AssociationId> {
        let replaces = {
            let mut pools = self.port.pools.borrow_mut();
            let pool = pools.get(id)?;
            pool.state = PoolState::Up(association);
            pool.since = Some(now());
            pool.redial.up(now());
            pool.lost.take()
        };
        if let Some(named) = self.named(id) {
            named.stats.associations.add(1);
        }
        replaces
    }

    /// An association that carried calls is gone.
    pub(super) fn upstream_lost(
        &mut self,
        id: PoolId,
        association: AssociationId,
        reason: &Down,
        text: &str,
    ) {
        let silent = matches!(reason, Down::Association(error) if error.is_silence());
        let ejected = self
            .port
            .pools
            .borrow_mut()
            .lost(id, association, now(), silent, jitter());
        if let Some(named) = self.named(id) {
            named.stats.associations.sub(1);
        }
        if ejected {
            self.note_ejected(id, &text);
        }
        self.move_waiting(id, text, false);
    }

    /// A dial came to no association, and not for a reason of our own.
    pub(super) fn dial_failed(
        &mut self,
        id: PoolId,
        text: &str,
        timed_out: bool,
        detail: &dyn Display,
    ) {
        let refusal = Refusal {
            text: text.to_owned(),
            timed_out,
        };
        let ejected = self
            .port
            .pools
            .borrow_mut()
            .dial_failed(id, now(), refusal, jitter());
        if ejected {
            self.note_ejected(id, detail);
        } else if let Some(named) = self.named(id) {
            tracing::debug!(
                route = named.route,
                upstream = named.upstream,
                reason = %detail,
                "still no association with the upstream"
            );
        }
        self.move_waiting(id, text, timed_out);
    }

    /// Once for each ejection: what goes on failing says no more than what failed.
    fn note_ejected(&self, id: PoolId, why: &dyn Display) {
        let Some(named) = self.named(id) else { return };
        named.stats.events.count(UpstreamCount::Ejected);
        named.stats.ejected.add(1);
        tracing::warn!(
            route = named.route,
            upstream = named.upstream,
            server_name = named.server_name,
            reason = %why,
            "no association with the upstream: ejected until it is back"
        );
    }

    pub(super) fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            // Too late: the associations have been told to close.
            Outcome::Joined(_) if self.closed_all => {}
            Outcome::Joined(handed) => self.adopt(*handed),
            Outcome::DialFailed { token, error, .. } => {
                let Some(id) = self.dials.remove(&token) else {
                    return;
                };
                if matches!(error, EstablishError::Stopped) {
                    return self.fail_waiting(id, error.for_callers(), false);
                }
                let timed_out = matches!(error, EstablishError::TimedOut);
                self.dial_failed(id, error.for_callers(), timed_out, &error);
            }
        }
    }

    /// Calls that waited for the entry's association go elsewhere, or fail. A stream
    /// stays: only the upstream that has it can go on with it.
    fn move_waiting(&mut self, id: PoolId, text: &str, timed_out: bool) {
        for Waiting { call, request } in self.take_waiting(id) {
            let how = UpstreamCount::UnsentMoved;
            if !self.elsewhere(call, request, how) {
                self.finish_failed(call, text, timed_out);
            }
        }
        self.redial_later(id);
    }

    /// Gives a call to another upstream of its route, one where it was not yet. False
    /// when there is none: the call is still to be ended then.
    pub(super) fn elsewhere(
        &mut self,
        call: CallId,
        request: CallRequest,
        how: UpstreamCount,
    ) -> bool {
        // A stream is where it is.
        if self.closed_all || matches!(request, CallRequest::Resume { .. }) {
            return false;
        }
        let Some(entry) = self.calls.get_mut(&call) else {
            return true;
        };
        let from = entry.pool;
        entry.tried |= 1 << from.upstream;
        let other = self
            .port
            .pools
            .borrow_mut()
            .move_call(from, entry.tried, now());
        let Some(other) = other else {
            return false;
        };
        entry.pool = other;
        self.count_at(from, how);
        self.place(call, other, request);
        true
    }

    /// A call whose upstream may not be dialled for it: a dial has just failed there.
    pub(super) fn refuse(
        &mut self,
        call: CallId,
        id: PoolId,
        request: CallRequest,
        refusal: &Refusal,
    ) {
        if !self.elsewhere(call, request, UpstreamCount::UnsentMoved) {
            self.count_at(id, UpstreamCount::FailedFast);
            self.finish_failed(call, &refusal.text, refusal.timed_out);
        }
    }

    /// The association of a read_only call is gone before any reply: it is tried once
    /// elsewhere, and where there is nowhere else the caller is told.
    pub(super) fn unanswered(&mut self, call: CallId, request: CallRequest, message: &str) {
        self.carried.remove(&call);
        let Some(entry) = self.calls.get_mut(&call) else {
            return;
        };
        let first = !std::mem::replace(&mut entry.retried, true);
        if !first || !self.elsewhere(call, request, UpstreamCount::ReadOnlyRetried) {
            self.finish_failed(call, message, false);
        }
    }

    /// Dials the ejected upstreams that it is time for. True when there was any.
    pub(super) fn probe(&mut self) -> bool {
        let now = now();
        let due = self.next_probe().is_some_and(|at| at <= now);
        if !due {
            return false;
        }
        let due = self.port.pools.borrow_mut().due_probes(now);
        for (upstream, entry) in due {
            let Some(id) = entry else {
                // Nothing is left to dial for: the next call finds out.
                if self.port.pools.borrow_mut().restore(upstream)
                    && let Some(named) = self.named(upstream)
                {
                    named.stats.ejected.sub(1);
                    named.stats.events.count(UpstreamCount::Returned);
                }
                continue;
            };
            let state = self.port.pools.borrow_mut().get(id).map(|pool| pool.state);
            // One that is being dialled is a probe already.
            if state == Some(PoolState::Down) {
                self.dial(id);
            }
        }
        true
    }

    /// When the next ejected upstream is due; none while the relay ends.
    pub(super) fn next_probe(&self) -> Option<std::time::Instant> {
        if self.drain_by.is_some() {
            return None;
        }
        self.port.pools.borrow().next_probe()
    }
}
