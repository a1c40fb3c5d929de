//! A unit: one thread with a shard, its mapping and its HTTP edges. The edges
//! leave what they have in a mailbox; the unit's loop takes it, maps it, seals
//! what came of it and goes to sleep only when nothing is left to do.

use super::context::Context as Relay;
use super::mapping::{Mapping, unit_of};
use super::pools::PoolId;
use super::port::{Handle, Mail, Port};
use super::stats::{UnitCount, UnitStats};
use crate::a2a::port::{AssociationId, CallId, Input, Output};
use crate::a2a::streams::MapperId;
use crate::association::Code;
use crate::bridge::own::{OwnMap, OwnSet};
use crate::edge::EdgeError;
use crate::edge::egress::Egress;
use crate::edge::ingress::Ingress;
use crate::engine::clock::now;
use crate::engine::control::Outcome;
use crate::engine::shard::{LinkId, LinkInfo, Shard};
use crate::engine::wake::{Doorbell, Wake};
use crate::limits;
use crate::wire::{ChannelId, Flags, FrameType};
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

mod associations;
mod calls;
mod ear;
mod streams;
mod transit;
mod upstreams;

use ear::{Ear, Heard};
use transit::{Owner, Transits};

/// How long nothing must be under way before a draining unit closes its
/// associations: a reply may still be with a mapping worker.
const QUIET_TIME: Duration = Duration::from_millis(40);

/// How soon a unit offers a worker again what it did not take.
const STALL_TIME: Duration = Duration::from_millis(1);

/// What a unit is told from outside.
pub enum Message {
    /// The control thread has news.
    Outcome(Outcome),
    /// Another unit's mapper has something for an association of this unit.
    Output(Output),
    /// Another unit has something for this unit's mapper.
    Input(Input),
    /// Run something on the unit's thread with its mapping.
    Task(Box<dyn FnOnce(Rc<Port>) + Send>),
    /// Take nothing new, finish what is under way within the grace, then stop.
    Drain,
}

/// What a unit is made of.
pub struct Setup {
    /// Its number.
    pub unit: usize,
    /// Core to pin to.
    pub core: Option<usize>,
    /// What all units share.
    pub relay: Arc<Relay>,
    /// News.
    pub inbox: mpsc::UnboundedReceiver<Message>,
    /// Doorbell.
    pub wake: Arc<Wake>,
    /// HTTP listeners, by index of the ingress.
    pub ingresses: Vec<(usize, TcpListener)>,
    /// Its mapping.
    pub mapping: Mapping,
    /// The inboxes of all units, its own among them.
    pub peers: Vec<mpsc::WeakUnboundedSender<Message>>,
    /// Its counters.
    pub stats: Arc<UnitStats>,
}

/// A link of the unit and what is known of it.
struct Line {
    link: LinkId,
    info: LinkInfo,
    ready: bool,
    closing: Option<String>,
    /// Whose calls it carries, once ready.
    pool: Option<PoolId>,
}

/// A call under way.
struct Call {
    owner: Owner,
    pool: PoolId,
    /// Upstreams of its route that it was tried at, a bit each.
    tried: u16,
    /// It was sent, and is sent again elsewhere.
    retried: bool,
}

struct Loop {
    unit: usize,
    port: Rc<Port>,
    handle: Rc<Handle>,
    shard: Shard,
    mapping: Mapping,
    peers: Vec<mpsc::WeakUnboundedSender<Message>>,
    /// Mappers that wait for room on an association.
    rooms: Vec<(AssociationId, MapperId)>,
    egress: Rc<Egress>,
    relay: Arc<Relay>,
    stats: Arc<UnitStats>,
    heard: Vec<Heard>,
    lines: OwnMap<AssociationId, Line>,
    associations: OwnMap<LinkId, AssociationId>,
    next_association: u64,
    calls: OwnMap<CallId, Call>,
    /// Association of each call given to the mapper.
    carried: OwnMap<CallId, AssociationId>,
    /// Exchanges of peers that are calls of ours.
    transits: Transits,
    dials: OwnMap<u64, PoolId>,
    next_dial: u64,
    /// Associations with octets on their way out.
    busy: OwnSet<AssociationId>,
    /// The ingresses being served; each ends once its last client has its reply.
    edges: Vec<JoinHandle<Result<(), EdgeError>>>,
    drain_by: Option<Instant>,
    /// While draining: since when nothing is under way.
    idle_since: Option<Instant>,
    closed_all: bool,
    /// A worker took no more at the end of the last turn.
    stalled: bool,
    /// What was last said to be on its way out.
    published: usize,
}

/// Runs a unit on the calling thread until it was drained.
pub fn run(setup: Setup) -> io::Result<()> {
    if let Some(core) = setup.core
        && !crate::engine::cores::pin(core)
    {
        tracing::warn!(unit = setup.unit, core, "the unit could not be pinned");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(limits::EVENTS_PER_POLL_MAX)
        .event_interval(limits::STEPS_PER_POLL_MAX)
        .build_local(LocalOptions::default())?;
    // A task like the others: waking the future that a runtime blocks on costs a system call.
    let work = runtime.spawn_local(work(setup));
    runtime.block_on(work).map_err(io::Error::other)?
}

async fn work(setup: Setup) -> io::Result<()> {
    let Setup {
        unit,
        relay,
        mut inbox,
        wake,
        ingresses,
        mapping,
        peers,
        stats,
        ..
    } = setup;
    let port = Rc::new(Port::new(unit, relay.clone(), stats.clone(), peers.clone()));
    let handle = Rc::new(Handle(port.clone()));
    let egress = Rc::new(
        Egress::new(relay.settings.agents.clone(), relay.edge_stats.clone())
            .map_err(io::Error::other)?,
    );
    let (stop_edges, edges_stopped) = watch::channel(false);
    let mut edges = Vec::new();
    for (index, listener) in ingresses {
        let settings = relay.settings.ingresses[index].clone();
        let ingress = Ingress::new(settings, relay.edge_stats.clone())
            .map_err(io::Error::other)?
            .numbered(index);
        let ingress = Rc::new(ingress);
        edges.push(tokio::task::spawn_local(ingress.serve(
            listener,
            handle.clone(),
            edges_stopped.clone(),
        )));
    }
    let shard = Shard::new(wake.clone(), stats.shard.clone())?;
    if !shard.is_credited() {
        tracing::info!(
            unit,
            "this kernel does not bound multishot receives; single receives are used"
        );
    }
    let mut unit_loop = Loop {
        unit,
        port: port.clone(),
        handle,
        shard,
        mapping,
        peers,
        rooms: Vec::new(),
        egress,
        relay,
        stats,
        heard: Vec::new(),
        lines: OwnMap::default(),
        associations: OwnMap::default(),
        next_association: 0,
        calls: OwnMap::default(),
        carried: OwnMap::default(),
        transits: Transits::default(),
        dials: OwnMap::default(),
        next_dial: 0,
        busy: OwnSet::default(),
        edges,
        drain_by: None,
        idle_since: None,
        closed_all: false,
        stalled: false,
        published: 0,
    };
    let doorbell = Doorbell::new(wake.clone())?;
    let mut alarm = Alarm::new();
    let mut inbox_open = true;
    loop {
        let mut worked = false;
        while let Ok(message) = inbox.try_recv() {
            worked = true;
            unit_loop.message(message, &stop_edges);
        }
        worked |= unit_loop.turn()?;
        if unit_loop.drained() {
            return Ok(());
        }
        if worked {
            let_others_run().await;
            continue;
        }
        wake.prepare_sleep();
        // Once more, since nobody rings for what came before. Nothing that this turn left
        // may be slept on: a submission that waits would never be made, for example.
        if unit_loop.turn()? || unit_loop.has_work() {
            wake.stay_awake();
            continue;
        }
        alarm.set(unit_loop.next_timer());
        tokio::select! {
            rung = doorbell.rung() => rung?,
            () = port.notify.notified() => {}
            message = inbox.recv(), if inbox_open => {
                // Nobody is left to say it: the relay was dropped.
                inbox_open = message.is_some();
                unit_loop.message(message.unwrap_or(Message::Drain), &stop_edges);
            }
            () = alarm.rung() => {}
        }
        wake.stay_awake();
    }
}

/// Lets every task run that is ready, the edges' above all, which leave what they have. Unlike
/// `yield_now` it does not ask the kernel what else is: the runtime does that often enough.
async fn let_others_run() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A timer that is moved only when it must ring earlier: most deadlines are put off
/// before they are due, and ringing too early costs one turn.
struct Alarm {
    sleep: Pin<Box<tokio::time::Sleep>>,
    at: Option<Instant>,
}

impl Alarm {
    fn new() -> Self {
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { sleep, at: None }
    }

    fn set(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.at.is_none_or(|armed| at < armed)
        {
            self.at = Some(at);
            self.sleep.as_mut().reset(at.into());
        }
    }

    async fn rung(&mut self) {
        match self.at {
            Some(_) => self.sleep.as_mut().await,
            None => std::future::pending().await,
        }
        self.at = None;
    }
}

impl Loop {
    fn message(&mut self, message: Message, stop_edges: &watch::Sender<bool>) {
        match message {
            Message::Outcome(outcome) => self.outcome(outcome),
            Message::Output(output) => self.output(output),
            Message::Input(input) => self.map(input),
            Message::Task(task) => task(self.port.clone()),
            Message::Drain => {
                self.port.draining.set(true);
                let _ = stop_edges.send(true);
                self.port.streams.drain();
                let grace = self.relay.settings.limits.shutdown_grace;
                self.drain_by.get_or_insert(now() + grace);
                // Nothing is dialled any more.
                let wanted = self.port.pools.borrow().wanted();
                for pool in wanted {
                    self.give_up(pool);
                }
            }
        }
    }

    /// Whether another turn would find something to do.
    fn has_work(&mut self) -> bool {
        self.mapping.has_output() || self.shard.has_work()
    }

    /// One round: the shard's completions, the mailbox, the mapper's outputs, then the seals.
    fn turn(&mut self) -> io::Result<bool> {
        let (heard, mapping) = (&mut self.heard, &mut self.mapping);
        let mut ear = Ear::new(heard, &self.stats, mapping, &self.associations);
        let mut worked = self.shard.turn(&mut ear)?;
        drop(ear);
        self.hear();
        worked |= self.take_mail();
        for association in self.port.evicted.take() {
            if let Some(line) = self.lines.get(&association) {
                self.shard.close(line.link, 0, "idle");
            }
        }
        worked |= self.redial();
        worked |= self.expire_transits();
        worked |= self.probe();
        worked |= self.mapping.handle_timer();
        worked |= self.port.streams.next_timer().is_some() && self.port.streams.expire(now());
        worked |= self.work_outputs();
        self.mapping.ring();
        let stalled = self.mapping.is_stalled();
        let resumed = self.stalled && !stalled;
        self.stalled = stalled;
        self.port.pressure.borrow_mut().stall(stalled);
        self.shard.pause(stalled);
        self.shard.flush();
        worked |= self.measure();
        worked |= self.make_room();
        if resumed {
            // Calls that waited for the workers, on associations with nothing to send.
            let pools = self.port.pools.borrow().with_waiting();
            for pool in pools {
                self.release_waiting(pool);
            }
            worked = true;
        }
        Ok(worked)
    }

    /// Turns what the shard reported into inputs, in the order it happened.
    fn hear(&mut self) {
        let mut heard = std::mem::take(&mut self.heard);
        for item in heard.drain(..) {
            match item {
                Heard::Up(link, info) => self.up(link, info),
                Heard::Ready(link, peer) => self.ready(link, &peer),
                Heard::Frame(link, channel, frame_type, payload) => {
                    if let Some(&association) = self.associations.get(&link) {
                        let (channel, frame_type) = (channel.0, frame_type.0);
                        self.map(Input::Frame {
                            association,
                            channel,
                            frame_type,
                            payload,
                        });
                    }
                }
                Heard::Down(link, reason) => self.down(link, &reason),
            }
        }
        self.heard = heard;
    }

    fn map(&mut self, input: Input) {
        self.mapping.handle(input, &self.carried);
    }

    fn take_mail(&mut self) -> bool {
        let mut mailbox = self.port.mailbox.take();
        if mailbox.is_empty() {
            return false;
        }
        for mail in mailbox.drain(..) {
            match mail {
                Mail::Call {
                    call,
                    pool,
                    request,
                    sink,
                } => {
                    self.stats.count(UnitCount::Calls);
                    let entry = Call {
                        owner: Owner::Edge(sink),
                        pool,
                        tried: 0,
                        retried: false,
                    };
                    self.calls.insert(call, entry);
                    self.place(call, pool, request);
                }
                Mail::Gone { call } => self.gone(call),
                Mail::Agent { exchange, event } => {
                    let octets = event.octets();
                    let association = if event.is_last() {
                        self.port.end_exchange(exchange)
                    } else {
                        self.port.exchanges.borrow().get(&exchange).copied()
                    };
                    self.map(Input::Agent { exchange, event });
                    if let Some(association) = association {
                        self.busy.insert(association);
                        self.port.pressure.borrow_mut().mapped(association, octets);
                    }
                }
            }
        }
        // Its allocation serves again, unless mail came meanwhile.
        let mut new = self.port.mailbox.borrow_mut();
        if new.is_empty() {
            *new = mailbox;
        }
        true
    }

    fn work_outputs(&mut self) -> bool {
        let mut worked = false;
        while let Some(output) = self.mapping.poll_output() {
            worked = true;
            self.output(output);
        }
        worked
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Frame { association, .. } | Output::WantRoom { association, .. }
                if unit_of(association.0) != self.unit =>
            {
                self.pass_on(unit_of(association.0), Message::Output(output));
            }
            Output::Frame {
                association,
                channel,
                frame_type,
                payload,
            } => {
                self.send(
                    association,
                    ChannelId(channel),
                    FrameType(frame_type),
                    payload,
                );
            }
            Output::Call { call, event } => self.tell(call, event),
            Output::Events { call, events } => self.tell_events(call, events),
            Output::Unanswered {
                call,
                request,
                message,
            } => self.unanswered(call, request, &message),
            Output::Resumable { call, ticket } => self.resumable(call, ticket),
            Output::Dispatch { exchange, dispatch } => {
                self.stats.count(UnitCount::Dispatches);
                self.port
                    .exchanges
                    .borrow_mut()
                    .insert(exchange, dispatch.association);
                self.egress
                    .dispatch(exchange, dispatch, self.handle.clone());
            }
            Output::Transit { exchange, transit } => self.pass_through(exchange, *transit),
            Output::Upstream { call, event } => self.tell_upstream(call, event),
            Output::Cancel { exchange } if self.cancel_transit(exchange) => {}
            Output::Cancel { exchange } => {
                self.port.end_exchange(exchange);
                self.egress.cancel(exchange);
            }
            Output::Finish { exchange } => {
                self.port.end_exchange(exchange);
                self.egress.finish(exchange);
            }
            Output::Pause { exchange, paused } => self.port.pace(exchange, paused),
            Output::WantRoom {
                association,
                mapper,
            } => self.want_room(association, mapper),
            Output::WantAssociation { association } => self.want_association(association),
            Output::Forward { mapper, message } => self.give(mapper, Input::Stream(message)),
            Output::ChannelError {
                association,
                channel,
                message,
            } => {
                self.stats.count(UnitCount::ErrorsReported);
                tracing::debug!(association = association.0, channel, %message, "bad bridge frame");
                if let Some(line) = self.lines.get(&association) {
                    self.shard
                        .report(line.link, ChannelId(channel), Code::PROTOCOL.0, &message);
                }
            }
        }
    }

    fn send(
        &mut self,
        association: AssociationId,
        channel: ChannelId,
        frame_type: FrameType,
        payload: Vec<u8>,
    ) {
        let Some(line) = self.lines.get(&association) else {
            return;
        };
        let link = line.link;
        match self
            .shard
            .send(link, channel, frame_type, Flags::default(), payload)
        {
            Ok(()) => {
                self.busy.insert(association);
            }
            Err(crate::association::SendError::Closed) => {}
            Err(error) => {
                // A frame that cannot be queued would leave a hole: every exchange on it ends instead.
                self.stats.count(UnitCount::SendsRefused);
                tracing::error!(association = association.0, %error, "association closed: a frame could not be queued");
                self.shard.close(link, 6, "the outbound queue is full");
            }
        }
    }

    /// Tells the pressure gauge what is still queued, and lets waiting calls go where it has fallen.
    /// True when there were such calls.
    fn measure(&mut self) -> bool {
        let released = !self.busy.is_empty() && self.measure_busy();
        // Also when an association has just taken its octets with it.
        let total = self.port.pressure.borrow().total();
        if total != self.published {
            self.published = total;
            self.relay.publish_octets(self.unit, total);
        }
        released
    }

    fn measure_busy(&mut self) -> bool {
        let mut calm = Vec::new();
        for &association in &self.busy {
            let link = self.lines.get(&association).map(|line| line.link);
            let octets = link
                .and_then(|link| self.shard.queued_octets(link))
                .unwrap_or(0);
            let mut pressure = self.port.pressure.borrow_mut();
            pressure.queued(association, octets);
            if octets == 0 {
                calm.push(association);
            }
        }
        let mut drained = Vec::new();
        let (pools, pressure) = (self.port.pools.borrow(), self.port.pressure.borrow());
        if pools.waiting() > 0 {
            for association in &self.busy {
                let pool = self.lines.get(association).and_then(|line| line.pool);
                if let Some(pool) = pool.filter(|&pool| pools.has_waiting(pool))
                    && !pressure.is_high(*association)
                {
                    drained.push(pool);
                }
            }
        }
        drop((pools, pressure));
        for association in calm {
            self.busy.remove(&association);
        }
        let released = !drained.is_empty();
        for pool in drained {
            self.release_waiting(pool);
        }
        released
    }

    fn next_timer(&self) -> Option<Instant> {
        let shard = self.shard.next_timer();
        // While draining, look again often enough to notice that the last exchange ended.
        let drain = self
            .drain_by
            .map(|by| by.min(now() + Duration::from_millis(20)));
        // A worker that made room need not have anything to say that would ring.
        let stalled = self.stalled.then(|| now() + STALL_TIME);
        let mapping = self.mapping.next_timer();
        let redial = self.port.pools.borrow().next_redial();
        let transit = self.next_transit_look();
        let probe = self.next_probe();
        let streams = self.port.streams.next_timer();
        [
            shard, drain, stalled, mapping, redial, probe, transit, streams,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether the unit may stop: everything under way has ended, or the grace has, and the peers know.
    fn drained(&mut self) -> bool {
        let Some(by) = self.drain_by else {
            return false;
        };
        let now = now();
        let late = now >= by;
        // A call is over for the mapping before its client has read the reply.
        let served = self.edges.iter().all(JoinHandle::is_finished);
        if self.closed_all {
            return late || (served && self.shard.links() == 0);
        }
        let idle = served
            && self.calls.is_empty()
            && self.port.exchanges.borrow().is_empty()
            && self.busy.is_empty();
        if !idle {
            self.idle_since = None;
        }
        let quiet = idle && now >= *self.idle_since.get_or_insert(now) + QUIET_TIME;
        if quiet || late {
            self.closed_all = true;
            let pools = self.port.pools.borrow().with_waiting();
            for pool in pools {
                self.fail_waiting(pool, "the relay is shutting down", false);
            }
            for link in self.shard.open_links() {
                self.shard.close(link, 0, "the relay shuts down");
            }
            self.shard.flush();
            self.drain_by = Some(now + limits::CLOSE_TIME + limits::CLOSE_TIME);
        }
        false
    }
}
