//! Where mapping happens: inline on the unit, or on worker threads behind
//! bounded lock-free queues. Both run the same mapper; associations are dealt
//! out to workers by number, so that no exchange is ever shared.
//!
//! A worker never blocks on a push: what a unit's queue does not take waits in
//! the worker, and a unit whose worker takes no more stops its sources.

use super::settings::Settings;
use crate::a2a::config::{DiscoveryConfig, MapperConfig};
use crate::a2a::mapper::Mapper;
use crate::a2a::port::{AssociationId, CallId, ExchangeId, Input, Output};
use crate::a2a::streams::MapperId;
use crate::bridge::own::OwnMap;
use crate::bridge::safety::EffectSet;
use crate::engine::clock::{NameRandom, now};
use crate::engine::queue::{Consumer, Doorbell, Producer, Weight, bounded};
use crate::engine::wake::Wake;
use crate::limits;
use bytes::Bytes;
use crossbeam::sync::{Parker, Unparker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker looks for work before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// How soon a worker tries again to hand over what a unit's queue did not take.
const RETRY_TIME: Duration = Duration::from_micros(100);
/// Inputs a worker takes from one unit before it looks at the next.
const BURST: usize = 64;
/// A worker's number in an exchange's name.
const WORKER_BITS: u32 = 8;
/// A unit's number in the name of an association or call.
const UNIT_SHIFT: u32 = 48;

/// Largest number of workers.
pub const WORKERS_MAX: usize = 1 << WORKER_BITS;

/// A mapper's configuration from the relay's settings.
pub fn mapper_config(settings: &Settings) -> MapperConfig {
    let policy = &settings.policy;
    MapperConfig {
        unknown_methods: policy.unknown_methods,
        allow: EffectSet::of(&policy.allow),
        peers: policy
            .peers
            .iter()
            .map(|(peer, allow)| (peer.clone(), EffectSet::of(allow)))
            .collect(),
        agents: settings.agents.iter().map(|agent| agent.version).collect(),
        exchanges_per_association: settings.limits.exchanges_per_association,
        association_octets: settings.limits.association_octets,
        foreign_message_octets: settings.limits.foreign_message_octets,
        stream: settings.stream.clone(),
        discovery: DiscoveryConfig {
            // A relay that only makes one call of its own has no use for it.
            subscribe: !settings.ingresses.is_empty() || !settings.listeners.is_empty(),
            ..DiscoveryConfig::default()
        },
        ..MapperConfig::default()
    }
}

/// The name of a unit's `n`th association.
pub fn association_id(unit: usize, n: u64) -> AssociationId {
    AssociationId((unit as u64) << UNIT_SHIFT | n)
}

/// The name of a unit's `n`th call.
pub fn call_id(unit: usize, n: u64) -> CallId {
    CallId((unit as u64) << UNIT_SHIFT | n)
}

/// The unit in the name of an association or call.
pub(super) fn unit_of(number: u64) -> usize {
    (number >> UNIT_SHIFT) as usize
}

impl Weight for Input {
    fn octets(&self) -> usize {
        match self {
            Self::Frame { payload, .. } => payload.len(),
            Self::Call { request, .. } => request.octets(),
            Self::Agent { event, .. } => event.octets(),
            Self::Up { .. }
            | Self::Down { .. }
            | Self::CallGone { .. }
            | Self::Room { .. }
            | Self::GiveUp { .. }
            | Self::Stream(_) => 0,
        }
    }
}

impl Weight for Output {
    fn octets(&self) -> usize {
        match self {
            Self::Frame { payload, .. } => payload.len(),
            Self::Call { event, .. } => event.octets(),
            Self::Events { events, .. } => events.octets(),
            Self::Unanswered { request, .. } => request.octets(),
            Self::Dispatch { dispatch, .. } => dispatch.action.octets(),
            Self::Transit { transit, .. } => transit.request.octets(),
            Self::Upstream { event, .. } => event.octets(),
            Self::Cancel { .. }
            | Self::Finish { .. }
            | Self::Resumable { .. }
            | Self::Pause { .. }
            | Self::WantRoom { .. }
            | Self::WantAssociation { .. }
            | Self::Forward { .. }
            | Self::ChannelError { .. } => 0,
        }
    }
}

/// A unit's way to its mapper or mappers.
pub enum Mapping {
    /// On the unit itself.
    Inline(Box<Mapper>),
    /// On worker threads.
    Workers(Vec<Port>),
}

/// A unit's two queues with one worker.
pub struct Port {
    to: Producer<Input>,
    from: Consumer<Output>,
    stalled: VecDeque<Input>,
    pushed: bool,
    /// So many inputs wait that sources must, until few do.
    high: bool,
}

impl Mapping {
    /// Maps one input, now or soon.
    pub fn handle(&mut self, input: Input, calls: &OwnMap<CallId, AssociationId>) {
        match self {
            Self::Inline(mapper) => mapper.handle(input, now(), &mut NameRandom),
            Self::Workers(ports) => {
                let workers = ports.len() as u64;
                let (worker, input) = match input {
                    Input::Agent { exchange, event } => (
                        exchange.0 & (WORKERS_MAX as u64 - 1),
                        Input::Agent {
                            exchange: ExchangeId(exchange.0 >> WORKER_BITS),
                            event,
                        },
                    ),
                    Input::CallGone { call } => match calls.get(&call) {
                        Some(association) => (association.0 % workers, Input::CallGone { call }),
                        None => return,
                    },
                    Input::Up { association, .. }
                    | Input::Down { association, .. }
                    | Input::Frame { association, .. }
                    | Input::Call { association, .. }
                    | Input::Room { association }
                    | Input::GiveUp { association } => (association.0 % workers, input),
                    // Addressed to one mapper: see `give`.
                    Input::Stream(_) => return,
                };
                if let Some(port) = ports.get_mut(usize::try_from(worker).unwrap_or(usize::MAX)) {
                    port.push(input);
                }
            }
        }
    }

    /// Maps a frame, now or soon; its payload stays the caller's.
    pub fn frame(
        &mut self,
        association: AssociationId,
        channel: u16,
        frame_type: u16,
        payload: &[u8],
        now: Instant,
    ) {
        match self {
            Self::Inline(mapper) => {
                mapper.handle_frame(association, channel, frame_type, payload, now);
            }
            Self::Workers(ports) => {
                let worker = association.0 % ports.len() as u64;
                if let Some(port) = ports.get_mut(usize::try_from(worker).unwrap_or(usize::MAX)) {
                    port.push(Input::Frame {
                        association,
                        channel,
                        frame_type,
                        payload: Bytes::copy_from_slice(payload),
                    });
                }
            }
        }
    }

    /// Gives one input to a certain mapper; gives it back when that is another unit's.
    pub fn give(&mut self, unit: usize, mapper: MapperId, input: Input) -> Result<(), Input> {
        match self {
            Self::Inline(own) if mapper.0 == unit => {
                own.handle(input, now(), &mut NameRandom);
                Ok(())
            }
            Self::Inline(_) => Err(input),
            Self::Workers(ports) => {
                if let Some(port) = ports.get_mut(mapper.0) {
                    port.push(input);
                }
                Ok(())
            }
        }
    }

    /// Whether both associations are the same mapper's.
    pub fn is_same_mapper(&self, one: AssociationId, other: AssociationId) -> bool {
        match self {
            Self::Inline(_) => true,
            Self::Workers(ports) => {
                let workers = ports.len() as u64;
                one.0 % workers == other.0 % workers
            }
        }
    }

    /// When the mapper on this unit has something to let go of; workers see to themselves.
    pub fn next_timer(&self) -> Option<Instant> {
        match self {
            Self::Inline(mapper) => mapper.poll_timeout(),
            Self::Workers(_) => None,
        }
    }

    /// Lets it go. True when it was time.
    pub fn handle_timer(&mut self) -> bool {
        match self {
            Self::Inline(mapper) => {
                let Some(at) = mapper.poll_timeout() else {
                    return false;
                };
                let now = now();
                if now < at {
                    return false;
                }
                mapper.handle_timeout(now);
                true
            }
            Self::Workers(_) => false,
        }
    }

    /// The next output for this unit.
    pub fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Inline(mapper) => mapper.poll_output(),
            Self::Workers(ports) => (0u64..).zip(ports).find_map(|(worker, port)| {
                port.from.pop().map(|output| match output {
                    Output::Dispatch { exchange, dispatch } => Output::Dispatch {
                        exchange: ExchangeId(exchange.0 << WORKER_BITS | worker),
                        dispatch,
                    },
                    Output::Transit { exchange, transit } => Output::Transit {
                        exchange: ExchangeId(exchange.0 << WORKER_BITS | worker),
                        transit,
                    },
                    Output::Cancel { exchange } => Output::Cancel {
                        exchange: ExchangeId(exchange.0 << WORKER_BITS | worker),
                    },
                    Output::Finish { exchange } => Output::Finish {
                        exchange: ExchangeId(exchange.0 << WORKER_BITS | worker),
                    },
                    Output::Pause { exchange, paused } => Output::Pause {
                        exchange: ExchangeId(exchange.0 << WORKER_BITS | worker),
                        paused,
                    },
                    other => other,
                })
            }),
        }
    }

    /// Rings the workers that were given something, and tries again what they did not take.
    pub fn ring(&mut self) {
        if let Self::Workers(ports) = self {
            for port in ports {
                while let Some(input) = port.stalled.pop_front() {
                    match port.to.push(input) {
                        Ok(()) => port.pushed = true,
                        Err(input) => {
                            port.stalled.push_front(input);
                            break;
                        }
                    }
                }
                if std::mem::take(&mut port.pushed) {
                    port.to.ring();
                }
                port.judge();
            }
        }
    }

    /// Whether a worker has so much before it that sources must stop, as of the last [`Mapping::ring`].
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Inline(_) => false,
            Self::Workers(ports) => ports.iter().any(|port| port.high),
        }
    }

    /// Whether an output waits.
    pub fn has_output(&self) -> bool {
        match self {
            Self::Inline(mapper) => mapper.has_output(),
            Self::Workers(ports) => ports.iter().any(|port| !port.from.is_empty()),
        }
    }
}

impl Port {
    fn push(&mut self, input: Input) {
        if !self.stalled.is_empty() {
            self.stalled.push_back(input);
            return;
        }
        match self.to.push(input) {
            Ok(()) => self.pushed = true,
            Err(input) => self.stalled.push_back(input),
        }
    }

    /// Hysteresis between the two marks. A queue that sources may fill to the brim makes a
    /// call that comes next wait for all of it, at every step of its way.
    fn judge(&mut self) {
        let waiting = self.to.waiting();
        if !self.stalled.is_empty() || waiting >= limits::QUEUE_HIGH_FRAMES {
            self.high = true;
        } else if waiting <= limits::QUEUE_LOW_FRAMES {
            self.high = false;
        }
    }
}

struct Bell {
    asleep: AtomicBool,
    unparker: Unparker,
}

impl Doorbell for Bell {
    fn ring(&self) {
        // Sequentially consistent for the reason given at `engine::wake::Wake::ring`.
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.unparker.unpark();
        }
    }
}

/// The worker threads and each unit's ports to them.
pub struct Workers {
    /// Ports by unit.
    pub ports: Vec<Vec<Port>>,
    threads: Vec<JoinHandle<()>>,
    bells: Vec<Arc<Bell>>,
    stop: Arc<AtomicBool>,
}

struct UnitEnd {
    inputs: Consumer<Input>,
    outputs: Producer<Output>,
    overflow: VecDeque<Output>,
    pushed: bool,
}

impl Workers {
    /// Starts a worker for each mapper, for the units whose doorbells are given.
    pub fn start(mappers: Vec<Mapper>, units: &[Arc<Wake>]) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut ports: Vec<Vec<Port>> = units.iter().map(|_| Vec::new()).collect();
        let (mut threads, mut bells) = (Vec::new(), Vec::new());
        for (worker, mapper) in mappers.into_iter().enumerate() {
            let parker = Parker::new();
            let bell = Arc::new(Bell {
                asleep: AtomicBool::new(false),
                unparker: parker.unparker().clone(),
            });
            let mut ends = Vec::new();
            for (unit, wake) in units.iter().enumerate() {
                let (to, inputs) = bounded(
                    limits::QUEUE_FRAMES_MAX,
                    limits::QUEUE_OCTETS_MAX,
                    bell.clone(),
                );
                let (outputs, from) = bounded(
                    limits::QUEUE_FRAMES_MAX,
                    limits::QUEUE_OCTETS_MAX,
                    wake.clone(),
                );
                ports[unit].push(Port {
                    to,
                    from,
                    stalled: VecDeque::new(),
                    pushed: false,
                    high: false,
                });
                ends.push(UnitEnd {
                    inputs,
                    outputs,
                    overflow: VecDeque::new(),
                    pushed: false,
                });
            }
            let (own_bell, stop) = (bell.clone(), stop.clone());
            threads.push(
                std::thread::Builder::new()
                    .name(format!("mapping-{worker}"))
                    .spawn(move || work(mapper, ends, &parker, &own_bell, &stop))?,
            );
            bells.push(bell);
        }
        Ok(Self {
            ports,
            threads,
            bells,
            stop,
        })
    }

    /// Whether a worker ended although nobody asked it to.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the workers; the units are gone by now. False when one had panicked.
    pub fn stop(mut self) -> bool {
        self.tell();
        let mut sound = true;
        for thread in std::mem::take(&mut self.threads) {
            if thread.join().is_err() {
                tracing::error!("a mapping worker panicked");
                sound = false;
            }
        }
        sound
    }

    fn tell(&self) {
        self.stop.store(true, Ordering::Release);
        for bell in &self.bells {
            bell.unparker.unpark();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.tell();
    }
}

fn work(
    mut mapper: Mapper,
    mut units: Vec<UnitEnd>,
    parker: &Parker,
    bell: &Bell,
    stop: &AtomicBool,
) {
    let mut dispatched: OwnMap<ExchangeId, usize> = OwnMap::default();
    let mut idle_since: Option<Instant> = None;
    while !stop.load(Ordering::Acquire) {
        let mut worked = false;
        for unit in 0..units.len() {
            for _ in 0..BURST {
                let Some(input) = units[unit].inputs.pop() else {
                    break;
                };
                worked = true;
                // Events that come together leave together.
                let gathers = matches!(input, Input::Frame { .. });
                if !gathers {
                    hand_out(&mut mapper, &mut units, &mut dispatched, unit);
                }
                if let Input::Agent { exchange, event } = &input
                    && event.is_last()
                {
                    dispatched.remove(exchange);
                }
                mapper.handle(input, now(), &mut NameRandom);
                if !gathers {
                    hand_out(&mut mapper, &mut units, &mut dispatched, unit);
                }
            }
            hand_out(&mut mapper, &mut units, &mut dispatched, unit);
        }
        if mapper.poll_timeout().is_some_and(|at| at <= now()) {
            worked = true;
            mapper.handle_timeout(now());
            hand_out(&mut mapper, &mut units, &mut dispatched, 0);
        }
        let mut waiting = false;
        for end in &mut units {
            while let Some(output) = end.overflow.pop_front() {
                match end.outputs.push(output) {
                    Ok(()) => end.pushed = true,
                    Err(output) => {
                        end.overflow.push_front(output);
                        waiting = true;
                        break;
                    }
                }
            }
            if std::mem::take(&mut end.pushed) {
                end.outputs.ring();
            }
        }
        if worked {
            idle_since = None;
            continue;
        }
        if waiting {
            parker.park_timeout(RETRY_TIME);
            continue;
        }
        if idle_since.get_or_insert_with(now).elapsed() < SPIN_TIME {
            std::thread::yield_now();
            continue;
        }
        bell.asleep.store(true, Ordering::SeqCst);
        if units.iter().all(|end| end.inputs.is_empty()) && !stop.load(Ordering::Acquire) {
            match mapper.poll_timeout() {
                Some(at) => parker.park_timeout(at.saturating_duration_since(now())),
                None => parker.park(),
            }
        }
        bell.asleep.store(false, Ordering::Release);
        idle_since = None;
    }
}

/// Gives what the mapper has to say to the units that it is for; `unit` gave rise to it.
fn hand_out(
    mapper: &mut Mapper,
    units: &mut [UnitEnd],
    dispatched: &mut OwnMap<ExchangeId, usize>,
    unit: usize,
) {
    while let Some(output) = mapper.poll_output() {
        let home = match &output {
            Output::Frame { association, .. }
            | Output::WantRoom { association, .. }
            | Output::WantAssociation { association }
            | Output::ChannelError { association, .. } => unit_of(association.0),
            Output::Call { call, .. }
            | Output::Events { call, .. }
            | Output::Unanswered { call, .. }
            | Output::Upstream { call, .. }
            | Output::Resumable { call, .. } => unit_of(call.0),
            Output::Transit { exchange, transit } => {
                let home = unit_of(transit.association.0);
                dispatched.insert(*exchange, home);
                home
            }
            Output::Dispatch { exchange, dispatch } => {
                let home = unit_of(dispatch.association.0);
                dispatched.insert(*exchange, home);
                home
            }
            Output::Cancel { exchange } | Output::Finish { exchange } => {
                dispatched.remove(exchange).unwrap_or(unit)
            }
            Output::Pause { exchange, .. } => dispatched.get(exchange).copied().unwrap_or(unit),
            // Any unit has a way to every worker.
            Output::Forward { .. } => unit,
        };
        if let Some(end) = units.get_mut(home) {
            end.overflow.push_back(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;
    impl Doorbell for Silent {
        fn ring(&self) {}
    }

    #[test]
    fn sources_stop_long_before_a_queue_is_full() {
        let (to, mut inputs) = bounded(
            limits::QUEUE_FRAMES_MAX,
            limits::QUEUE_OCTETS_MAX,
            Arc::new(Silent),
        );
        let (_outputs, from) = bounded(1, 1, Arc::new(Silent));
        let mut mapping = Mapping::Workers(vec![Port {
            to,
            from,
            stalled: VecDeque::new(),
            pushed: false,
            high: false,
        }]);
        let calls = OwnMap::default();
        for n in 0..limits::QUEUE_HIGH_FRAMES {
            mapping.ring();
            assert!(!mapping.is_stalled(), "{n} wait");
            mapping.handle(
                Input::Room {
                    association: AssociationId(0),
                },
                &calls,
            );
        }
        mapping.ring();
        assert!(mapping.is_stalled());
        for _ in limits::QUEUE_LOW_FRAMES..limits::QUEUE_HIGH_FRAMES {
            assert!(mapping.is_stalled(), "until few wait");
            assert!(inputs.pop().is_some());
            mapping.ring();
        }
        assert!(!mapping.is_stalled());
    }
}
