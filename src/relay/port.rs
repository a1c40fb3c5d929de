//! What the edges see of a unit: they leave calls and news in its mailbox and
//! wait for pressure to fall. Never borrowed while an edge is called back.

use super::context::Context as Relay;
use super::mapping::call_id;
use super::pools::{Admission, PoolId, Pools};
use super::pressure::Pressure;
use super::stats::{UnitCount, UnitStats};
use super::unit::Message;
use crate::a2a::port::{
    AgentEvent, AssociationId, CallId, CallRequest, ExchangeId, ServiceParameters,
};
use crate::bridge::own::OwnMap;
use crate::crypto::Random;
use crate::edge::call::{self, CallHandle, CallSink};
use crate::edge::streams::{StreamBounds, Streams};
use crate::edge::{CallRefusal, Elsewhere, Mapping as EdgeMapping};
use crate::engine::clock::{SystemRandom, now};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, mpsc};

/// Something an edge left for the loop.
pub(super) enum Mail {
    Call {
        call: CallId,
        pool: PoolId,
        request: CallRequest,
        sink: CallSink,
    },
    Gone {
        call: CallId,
    },
    Agent {
        exchange: ExchangeId,
        event: AgentEvent,
    },
}

/// An agent's stream that no association paces.
#[derive(Default)]
pub(super) struct Paced {
    paused: bool,
    waker: Option<Waker>,
}

/// What the edges see of a unit.
pub struct Port {
    pub(super) unit: usize,
    pub(super) relay: Arc<Relay>,
    pub(super) mailbox: RefCell<VecDeque<Mail>>,
    pub(super) pools: RefCell<Pools>,
    pub(super) evicted: RefCell<Vec<AssociationId>>,
    pub(super) pressure: RefCell<Pressure>,
    /// Association of each exchange given to the egress.
    pub(super) exchanges: RefCell<OwnMap<ExchangeId, AssociationId>>,
    /// Exchanges whose streams outlived their association: the mapper paces them.
    pub(super) paced: RefCell<OwnMap<ExchangeId, Paced>>,
    pub(super) notify: Notify,
    pub(super) draining: Cell<bool>,
    pub(super) calls: Cell<u64>,
    pub(super) stats: Arc<UnitStats>,
    /// Streams of the unit's clients.
    pub(super) streams: Rc<Streams>,
    /// The inboxes of all units.
    peers: Vec<mpsc::WeakUnboundedSender<Message>>,
}

/// The port as the edges hold it.
#[derive(Clone)]
pub struct Handle(pub Rc<Port>);

impl Port {
    /// Starts a call; see [`EdgeMapping::call`].
    pub fn start_call(
        self: &Rc<Self>,
        route: usize,
        parameters: &ServiceParameters,
        request: CallRequest,
    ) -> Result<CallHandle, CallRefusal> {
        if self.draining.get() {
            return Err(CallRefusal::ShuttingDown);
        }
        if self.relay.octets_held() + request.octets() > self.relay.settings.limits.process_octets {
            self.stats.count(UnitCount::CallsOverloaded);
            return Err(CallRefusal::Overloaded);
        }
        let admission = self.pools.borrow_mut().admit(route, parameters, now());
        let pool = match admission {
            Admission::Full => return Err(CallRefusal::TooManyParameterSets),
            Admission::Entry { pool, evicted } => {
                self.evicted.borrow_mut().extend(evicted);
                pool
            }
        };
        let pool = match &request {
            // Only the producer that has a stream can resume it.
            CallRequest::Resume { ticket, .. } => {
                let mut pools = self.pools.borrow_mut();
                let upstream = ticket.upstream.unwrap_or(pool.upstream);
                pools.move_to(pool, upstream).unwrap_or(pool)
            }
            _ => pool,
        };
        let call = self.next_call();
        let gone = Rc::downgrade(self);
        let (sink, handle) = call::channel(&self.streams, move || {
            if let Some(port) = gone.upgrade() {
                port.leave(Mail::Gone { call });
            }
        });
        self.leave(Mail::Call {
            call,
            pool,
            request,
            sink,
        });
        Ok(handle)
    }

    /// A name for another call.
    pub(super) fn next_call(&self) -> CallId {
        let n = self.calls.get() + 1;
        self.calls.set(n);
        call_id(self.unit, n)
    }

    fn leave(&self, mail: Mail) {
        self.mailbox.borrow_mut().push_back(mail);
        self.notify.notify_one();
    }
}

impl Port {
    /// From now on the mapper says when the exchange's stream may be read.
    pub(super) fn pace(&self, exchange: ExchangeId, paused: bool) {
        let Some(&association) = self.exchanges.borrow().get(&exchange) else {
            // It has ended meanwhile.
            return;
        };
        let waker = {
            let mut all = self.paced.borrow_mut();
            let paced = all.entry(exchange).or_default();
            paced.paused = paused;
            if paused { None } else { paced.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        self.pressure.borrow_mut().ask_again(association);
    }

    /// The exchange is over; gives its association.
    pub(super) fn end_exchange(&self, exchange: ExchangeId) -> Option<AssociationId> {
        self.paced.borrow_mut().remove(&exchange);
        self.exchanges.borrow_mut().remove(&exchange)
    }
}

impl EdgeMapping for Handle {
    fn call(
        &self,
        route: usize,
        parameters: ServiceParameters,
        request: CallRequest,
    ) -> Result<CallHandle, CallRefusal> {
        self.0.start_call(route, &parameters, request)
    }

    fn streams(&self) -> &Rc<Streams> {
        &self.0.streams
    }

    fn elsewhere(&self, unit: usize, task: Elsewhere) -> bool {
        let peer = self.0.peers.get(unit);
        let task: Box<dyn FnOnce(Rc<Port>) + Send> =
            Box::new(move |port| task(Rc::new(Handle(port))));
        peer.and_then(mpsc::WeakUnboundedSender::upgrade)
            .is_some_and(|peer| peer.send(Message::Task(task)).is_ok())
    }

    fn agent_event(&self, exchange: ExchangeId, event: AgentEvent) {
        if let Some(&association) = self.0.exchanges.borrow().get(&exchange) {
            // Counted at once, so that many bodies that were let in together do not all pass the mark.
            self.0
                .pressure
                .borrow_mut()
                .coming(association, event.octets());
        }
        self.0.leave(Mail::Agent { exchange, event });
    }

    fn poll_ready(&self, exchange: ExchangeId, cx: &mut Context<'_>) -> Poll<()> {
        let mut pressure = self.0.pressure.borrow_mut();
        if let Some(paced) = self.0.paced.borrow_mut().get_mut(&exchange) {
            if paced.paused {
                paced.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            return pressure.poll_unplaced(cx);
        }
        match self.0.exchanges.borrow().get(&exchange) {
            Some(&association) => pressure.poll_ready(association, cx),
            None => Poll::Ready(()),
        }
    }
}

impl Port {
    /// The port of unit number `unit`.
    pub fn new(
        unit: usize,
        relay: Arc<Relay>,
        stats: Arc<UnitStats>,
        peers: Vec<mpsc::WeakUnboundedSender<Message>>,
    ) -> Self {
        let streams = Streams::new(
            unit,
            StreamBounds::new(&relay.settings.stream),
            relay.directory.clone(),
            relay.edge_stats.clone(),
            |octets| SystemRandom.fill(octets),
            now,
        );
        let upstreams = relay.routes.iter().map(|route| route.upstreams.len());
        let pools = Pools::new(upstreams);
        Self {
            streams,
            peers,
            unit,
            relay,
            mailbox: RefCell::default(),
            pools: RefCell::new(pools),
            evicted: RefCell::default(),
            pressure: RefCell::default(),
            exchanges: RefCell::default(),
            paced: RefCell::default(),
            notify: Notify::new(),
            draining: Cell::new(false),
            calls: Cell::new(0),
            stats,
        }
    }
}
