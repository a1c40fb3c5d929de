//! Exchanges that pass through the unit: what a peer asked of an inbound route is a
//! call on the route's upstream, like an ingress's, and what the call hears goes back
//! to the exchange. The mapper that has the exchange and the one that has the call
//! need not be the same; the unit stands between them.
//!
//! Never holds an event back: a stream's wait for room in the mapper, and an answer
//! that does not fit what the peer's association may hold is not delivered.

use super::{Call, Loop};
use crate::a2a::port::{
    AgentEvent, AssociationId, CallEvent, CallId, ExchangeId, Input, Transit, TransportError,
    UpstreamEvent,
};
use crate::bridge::own::OwnMap;
use crate::bridge::transport_error::TransportCode;
use crate::edge::call::CallSink;
use crate::engine::clock::now;
use crate::relay::pools::{Admission, PoolState};
use crate::relay::stats::UnitCount;
use std::time::{Duration, Instant};

/// Whom the events of a call are for.
pub(super) enum Owner {
    /// A client of an ingress.
    Edge(CallSink),
    /// An exchange of a peer.
    Exchange(ExchangeId),
}

/// The exchanges of a unit's peers that are with an upstream.
#[derive(Default)]
pub(super) struct Transits {
    passing: OwnMap<ExchangeId, Passing>,
    /// When to look next for those that have waited too long.
    look_at: Option<Instant>,
}

struct Passing {
    call: CallId,
    /// The association that the peer asked on.
    association: AssociationId,
    since: Instant,
    /// It has no deadline: it is a stream.
    streamed: bool,
}

fn not_delivered(text: &str, timed_out: bool) -> UpstreamEvent {
    UpstreamEvent::Call(CallEvent::TransportError(TransportError {
        code: TransportCode::NOT_DELIVERED.0,
        message: text.into(),
        timed_out,
    }))
}

impl Loop {
    /// Passes an exchange on to the upstream of its route.
    pub(super) fn pass_through(&mut self, exchange: ExchangeId, transit: Transit) {
        self.stats.count(UnitCount::Transits);
        let Transit {
            association,
            route,
            parameters,
            streamed,
            request,
        } = transit;
        let bounds = &self.relay.settings.limits;
        if self.relay.octets_held() + request.octets() > bounds.process_octets {
            self.stats.count(UnitCount::CallsOverloaded);
            return self.answer_exchange(
                exchange,
                not_delivered("this relay holds as much as it may", false),
            );
        }
        let admission = self
            .port
            .pools
            .borrow_mut()
            .admit(route, &parameters, now());
        let pool = match admission {
            Admission::Full => {
                let text = "every set of service parameters of the route is in use";
                return self.answer_exchange(exchange, not_delivered(text, false));
            }
            Admission::Entry { pool, evicted } => {
                self.port.evicted.borrow_mut().extend(evicted);
                pool
            }
        };
        let is_up = self
            .port
            .pools
            .borrow_mut()
            .get(pool)
            .is_some_and(|pool| matches!(pool.state, PoolState::Up(_)));
        if self.drain_by.is_some() && !is_up {
            // Nothing is dialled any more.
            self.port.pools.borrow_mut().release(pool);
            let text = "the relay is shutting down";
            return self.answer_exchange(exchange, not_delivered(text, false));
        }
        let call = self.port.next_call();
        let since = now();
        self.transits.passing.insert(
            exchange,
            Passing {
                call,
                association,
                since,
                streamed,
            },
        );
        let interval = self.look_interval();
        self.transits.look_at.get_or_insert(since + interval);
        let owner = Owner::Exchange(exchange);
        let entry = Call {
            owner,
            pool,
            tried: 0,
            retried: false,
        };
        self.calls.insert(call, entry);
        self.place(call, pool, request);
    }

    /// News that only an exchange's call gets.
    pub(super) fn tell_upstream(&mut self, call: CallId, event: UpstreamEvent) {
        if let Some(&Owner::Exchange(exchange)) = self.calls.get(&call).map(|call| &call.owner) {
            self.tell_exchange(call, exchange, event);
        }
    }

    /// Gives an event of a call to the exchange that the call is for.
    pub(super) fn tell_exchange(
        &mut self,
        call: CallId,
        exchange: ExchangeId,
        mut event: UpstreamEvent,
    ) {
        if event.is_last() {
            let passing = self.transits.passing.remove(&exchange);
            self.forget(call);
            let whole = matches!(
                event,
                UpstreamEvent::Document(_)
                    | UpstreamEvent::Call(CallEvent::Response(_) | CallEvent::ErrorResponse(_))
            );
            if whole && passing.is_some_and(|passing| !self.takes(&passing, event.octets())) {
                self.stats.count(UnitCount::TransitsOverBudget);
                event = not_delivered("the association holds as much as it may", false);
            }
        } else if let Some(passing) = self.transits.passing.get_mut(&exchange) {
            passing.streamed |= matches!(event, UpstreamEvent::Call(CallEvent::StreamEvent { .. }));
        }
        self.answer_exchange(exchange, event);
    }

    fn answer_exchange(&mut self, exchange: ExchangeId, event: UpstreamEvent) {
        let event = AgentEvent::Upstream(event);
        self.map(Input::Agent { exchange, event });
    }

    /// Whether the way back to the peer takes so many octets more.
    fn takes(&mut self, passing: &Passing, octets: usize) -> bool {
        let Some(line) = self.lines.get(&passing.association) else {
            // Gone, and the answer with it.
            return true;
        };
        let bounds = &self.relay.settings.limits;
        let queued = self.shard.queued_octets(line.link).unwrap_or(0);
        queued + octets <= bounds.association_octets
            && self.relay.octets_held() + octets <= bounds.process_octets
    }

    /// The mapper has no use for the exchange's answer any more. False when it is no transit.
    pub(super) fn cancel_transit(&mut self, exchange: ExchangeId) -> bool {
        let passing = self.transits.passing.remove(&exchange);
        if let Some(passing) = &passing {
            self.gone(passing.call);
        }
        passing.is_some()
    }

    /// Often enough to tell a deadline, seldom enough to cost nothing.
    fn look_interval(&self) -> Duration {
        let unary = self.relay.settings.limits.unary_time;
        (unary / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// When [`Loop::expire_transits`] is due.
    pub(super) fn next_transit_look(&self) -> Option<Instant> {
        self.transits.look_at
    }

    /// Ends the exchanges whose upstream has not answered within the unary deadline; an
    /// ingress would have given up long ago, but a peer need not. True when there were some.
    pub(super) fn expire_transits(&mut self) -> bool {
        let Some(at) = self.transits.look_at else {
            return false;
        };
        let now = now();
        if now < at {
            return false;
        }
        let deadline = self.relay.settings.limits.unary_time;
        let late: Vec<_> = self
            .transits
            .passing
            .iter()
            .filter(|(_, passing)| !passing.streamed && now >= passing.since + deadline)
            .map(|(exchange, _)| *exchange)
            .collect();
        for &exchange in &late {
            self.cancel_transit(exchange);
            let text = "the upstream did not answer in time";
            self.answer_exchange(exchange, not_delivered(text, true));
        }
        let idle = self.transits.passing.is_empty();
        self.transits.look_at = (!idle).then(|| now + self.look_interval());
        !late.is_empty()
    }
}
