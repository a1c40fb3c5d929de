//! The calls of a unit's ingresses: given to the mapper once their association
//! is up and takes more, waiting until then, ended exactly once.

use super::Loop;
use super::ear::Ear;
use super::streams::jitter;
use super::transit::Owner;
use crate::a2a::events::StreamEvents;
use crate::a2a::port::{
    CallEvent, CallId, CallRequest, Input, ResumeTicket, TransportError, UpstreamEvent,
};
use crate::bridge::transport_error::TransportCode;
use crate::engine::clock::now;
use crate::engine::control::{Command, Dial, Handed, Origin};
use crate::limits;
use crate::relay::pools::{PoolId, PoolState, Waiting};
use crate::relay::stats::UnitCount;
use std::collections::VecDeque;
use std::sync::Arc;

impl Loop {
    /// Gives a call to the mapper, or lets it wait for its association.
    pub(super) fn place(&mut self, call: CallId, pool_id: PoolId, request: CallRequest) {
        let state = self
            .port
            .pools
            .borrow_mut()
            .get(pool_id)
            .map(|pool| pool.state);
        match state {
            None => self.finish_failed(call, "the association's pool is gone", false),
            Some(PoolState::Up(association)) => {
                let octets = request.octets();
                let (held, high) = {
                    let pressure = self.port.pressure.borrow();
                    (pressure.octets(association), pressure.is_high(association))
                };
                if held + octets > self.relay.settings.limits.association_octets {
                    self.stats.count(UnitCount::CallsOverBudget);
                    self.finish_failed(call, "the association holds as much as it may", false);
                } else if high {
                    self.wait(call, pool_id, request);
                } else {
                    self.busy.insert(association);
                    self.carried.insert(call, association);
                    self.map(Input::Call {
                        association,
                        call,
                        request,
                    });
                }
            }
            Some(PoolState::Dialling) => self.wait(call, pool_id, request),
            Some(PoolState::Down) => {
                let refusal = self.port.pools.borrow().refusal(pool_id, now());
                if let Some(refusal) = refusal {
                    return self.refuse(call, pool_id, request, &refusal);
                }
                self.wait(call, pool_id, request);
                self.dial(pool_id);
            }
        }
    }

    fn wait(&mut self, call: CallId, pool_id: PoolId, request: CallRequest) {
        let mut pools = self.port.pools.borrow_mut();
        if pools.waiting() >= limits::CALLS_WAITING_MAX {
            drop(pools);
            self.stats.count(UnitCount::CallsOverBudget);
            self.finish_failed(call, "too many calls wait for an association", false);
        } else if !pools.wait(pool_id, Waiting { call, request }) {
            drop(pools);
            self.finish_failed(call, "the association's pool is gone", false);
        }
    }

    pub(super) fn dial(&mut self, pool_id: PoolId) {
        let Some(parameters) = self.port.pools.borrow_mut().get(pool_id).map(|pool| {
            pool.state = PoolState::Dialling;
            pool.parameters.clone()
        }) else {
            return;
        };
        self.next_dial += 1;
        let token = self.next_dial;
        self.dials.insert(token, pool_id);
        let route = &self.relay.routes[pool_id.route];
        let settings = &route.settings.upstreams[pool_id.upstream];
        let upstream = &route.upstreams[pool_id.upstream];
        let association =
            self.relay
                .initiator_config(pool_id.route, &settings.server_name, &parameters);
        let dial = Dial {
            token,
            unit: self.unit,
            upstream: settings.address.clone(),
            local: None,
            server_name: Arc::from(settings.server_name.as_str()),
            tls: upstream.tls.clone(),
            identity: self.relay.identity.clone(),
            peer: upstream.peer,
            association: Arc::new(association),
        };
        if self
            .relay
            .control
            .send(Command::Dial(Box::new(dial)))
            .is_err()
        {
            self.dials.remove(&token);
            self.fail_waiting(pool_id, "the relay is shutting down", false);
        }
    }

    /// Takes over an association whose handshakes are done.
    pub(super) fn adopt(&mut self, handed: Handed) {
        let origin = handed.origin;
        let (heard, mapping) = (&mut self.heard, &mut self.mapping);
        let mut ear = Ear::new(heard, &self.stats, mapping, &self.associations);
        let adopted = self.shard.adopt(handed, &mut ear).is_some();
        drop(ear);
        if !adopted {
            self.stats.count(UnitCount::AssociationsRefused);
            if let Origin::Dialled { token } = origin
                && let Some(pool) = self.dials.remove(&token)
            {
                self.fail_waiting(
                    pool,
                    "this relay holds as many associations as it may",
                    false,
                );
            }
        }
        self.hear();
    }

    /// Calls that waited go out, as far as the association takes them.
    pub(super) fn release_waiting(&mut self, pool_id: PoolId) {
        loop {
            let next = {
                let mut pools = self.port.pools.borrow_mut();
                let Some(pool) = pools.get(pool_id) else {
                    return;
                };
                let PoolState::Up(association) = pool.state else {
                    return;
                };
                if self.port.pressure.borrow().is_high(association) {
                    return;
                }
                pools.next_waiting(pool_id)
            };
            let Some(Waiting { call, request }) = next else {
                return;
            };
            self.place(call, pool_id, request);
        }
    }

    /// Calls that waited fail, for a reason that every upstream would share.
    pub(super) fn fail_waiting(&mut self, pool_id: PoolId, text: &str, timed_out: bool) {
        for Waiting { call, .. } in self.take_waiting(pool_id) {
            self.finish_failed(call, text, timed_out);
        }
        self.port
            .pools
            .borrow_mut()
            .dial_ended(pool_id, now(), jitter());
        self.redial_later(pool_id);
    }

    /// What waited for an association that does not come.
    pub(super) fn take_waiting(&mut self, pool_id: PoolId) -> VecDeque<Waiting> {
        let mut pools = self.port.pools.borrow_mut();
        if let Some(pool) = pools.get(pool_id)
            && pool.state == PoolState::Dialling
        {
            pool.state = PoolState::Down;
        }
        pools.take_waiting(pool_id)
    }

    pub(super) fn finish_failed(&mut self, call: CallId, text: &str, timed_out: bool) {
        let error = TransportError {
            code: TransportCode::NOT_DELIVERED.0,
            message: text.into(),
            timed_out,
        };
        self.tell(call, CallEvent::TransportError(error));
    }

    /// Tells a caller's edge what resuming its stream takes, and where it is.
    pub(super) fn resumable(&mut self, call: CallId, ticket: Option<Box<ResumeTicket>>) {
        let Some(entry) = self.calls.get(&call) else {
            return;
        };
        if let Owner::Edge(sink) = &entry.owner {
            sink.set_ticket(ticket.map(|mut ticket| {
                ticket.upstream = Some(entry.pool.upstream);
                ticket
            }));
        }
    }

    /// Passes an event to its caller; the last one ends the call.
    pub(super) fn tell(&mut self, call: CallId, event: CallEvent) {
        let last = event.is_last();
        let Some(entry) = self.calls.get(&call) else {
            return;
        };
        let overflow = match &entry.owner {
            Owner::Edge(sink) => sink.push(event).is_err(),
            &Owner::Exchange(exchange) => {
                return self.tell_exchange(call, exchange, UpstreamEvent::Call(event));
            }
        };
        if last {
            self.forget(call);
        } else if overflow {
            // The client was too slow, or has left: the exchange ends with it.
            self.gone(call);
        }
    }

    /// Passes on events of a stream that came together; more may follow.
    pub(super) fn tell_events(&mut self, call: CallId, events: StreamEvents) {
        let Some(entry) = self.calls.get(&call) else {
            return;
        };
        match &entry.owner {
            Owner::Edge(sink) => {
                if sink.push_events(events).is_err() {
                    self.gone(call);
                }
            }
            &Owner::Exchange(exchange) => {
                for (event_id, object) in events.into_shared() {
                    let event = CallEvent::StreamEvent { event_id, object };
                    self.tell_exchange(call, exchange, UpstreamEvent::Call(event));
                }
            }
        }
    }

    pub(super) fn forget(&mut self, call: CallId) {
        self.carried.remove(&call);
        if let Some(entry) = self.calls.remove(&call) {
            self.port.pools.borrow_mut().release(entry.pool);
        }
    }

    pub(super) fn gone(&mut self, call: CallId) {
        let Some(entry) = self.calls.get(&call) else {
            return;
        };
        if self.carried.contains_key(&call) {
            self.map(Input::CallGone { call });
        } else {
            let mut pools = self.port.pools.borrow_mut();
            pools.forget_waiting(entry.pool, call);
        }
        self.forget(call);
    }
}
