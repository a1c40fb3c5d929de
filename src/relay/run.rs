//! Starts a relay's threads and ends them in order.

use super::RelayError;
use super::context::{Agents, Context, load_identity};
use super::mapping::{self, Mapping, WORKERS_MAX, Workers};
use super::port::Port;
use super::settings::Settings;
use super::stats::UnitStats;
use super::unit::{self, Message, Setup};
use crate::a2a::budget::OctetBudget;
use crate::a2a::mapper::Mapper;
use crate::a2a::streams::{MapperId, StreamRegistry};
use crate::crypto::Identity;
use crate::engine::clock::now;
use crate::engine::control::{self, Acceptor, ControlLimits, Outcome};
use crate::engine::cores;
use crate::engine::wake::Wake;
use crate::observe::admin::{Admin, Readiness};
use crate::observe::metrics::Registry;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A running relay.
pub struct Relay {
    units: Vec<mpsc::UnboundedSender<Message>>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    control: JoinHandle<std::io::Result<()>>,
    stop_control: watch::Sender<bool>,
    workers: Option<Workers>,
    admin: Option<Admin>,
    readiness: Readiness,
    /// Where the N-PAMP listeners are bound, in the order of the settings.
    pub listen_addresses: Vec<SocketAddr>,
    /// Where the HTTP listeners are bound, in the order of the settings.
    pub ingress_addresses: Vec<SocketAddr>,
    /// Counters of the units.
    pub stats: Vec<Arc<UnitStats>>,
    /// What the units share.
    pub context: Arc<Context>,
}

/// How long an address that is taken is waited for, and how often it is tried.
const ADDRESS_TIME: Duration = Duration::from_secs(2);
const ADDRESS_PAUSE: Duration = Duration::from_millis(50);

/// A listener. The kernel closes the listeners of a killed process only when it has
/// taken its rings down, so that a restart may have to wait for the address.
fn bind(address: SocketAddr, reuse_port: bool) -> std::io::Result<TcpListener> {
    let give_up = now() + ADDRESS_TIME;
    loop {
        match bind_once(address, reuse_port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && now() < give_up => {
                std::thread::sleep(ADDRESS_PAUSE);
            }
            bound => return bound,
        }
    }
}

fn bind_once(address: SocketAddr, reuse_port: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// One listener a unit on the same address; the kernel spreads connections over them.
fn bind_each(
    address: SocketAddr,
    units: usize,
) -> Result<(SocketAddr, Vec<TcpListener>), RelayError> {
    let refuse = |source| RelayError::Listen { address, source };
    // Without SO_REUSEPORT first: another process on the address must be an error, not a partner.
    let bound = {
        let probe = bind(address, false).map_err(refuse)?;
        probe.local_addr().map_err(refuse)?
    };
    let listeners = (0..units)
        .map(|_| bind(bound, true))
        .collect::<Result<_, _>>()
        .map_err(refuse)?;
    Ok((bound, listeners))
}

impl Relay {
    /// Binds, loads and starts everything. Returns once all listeners are bound.
    pub fn start(settings: Settings) -> Result<Self, RelayError> {
        let identity = load_identity(&settings.identity)?;
        Self::start_as(settings, identity)
    }

    /// [`Relay::start`] with an identity that is in no file.
    pub fn start_as(settings: Settings, identity: Identity) -> Result<Self, RelayError> {
        settings.engine.aead.select();
        let cores = if settings.engine.cores.is_empty() {
            cores::available()
        } else {
            settings.engine.cores.clone()
        };
        let unit_count = cores.len().max(1);
        let worker_count = settings.engine.workers.min(WORKERS_MAX);
        let readiness = Readiness::new();
        let (commands, command_inbox) = mpsc::unbounded_channel();
        let agents = Agents::new(&settings);
        let context = Arc::new(Context::new(settings, identity, unit_count, commands)?);

        let mut acceptors = Vec::new();
        let mut listen_addresses = Vec::new();
        for (index, listen) in context.settings.listeners.iter().enumerate() {
            let refuse = |source| RelayError::Listen {
                address: listen.address,
                source,
            };
            let socket = bind(listen.address, false).map_err(refuse)?;
            // tokio-uring waits in the kernel; the listener itself must block.
            socket.set_nonblocking(false).map_err(refuse)?;
            listen_addresses.push(socket.local_addr().map_err(refuse)?);
            let parts = context.listener(index)?;
            acceptors.push(Acceptor {
                socket,
                tls: parts.tls,
                responder: parts.responder,
                association: parts.association,
            });
        }
        let mut ingress_addresses = Vec::new();
        let mut listeners: Vec<Vec<(usize, TcpListener)>> =
            (0..unit_count).map(|_| Vec::new()).collect();
        for (index, ingress) in context.settings.ingresses.iter().enumerate() {
            let (bound, sockets) = bind_each(ingress.address, unit_count)?;
            ingress_addresses.push(bound);
            for (unit, socket) in listeners.iter_mut().zip(sockets) {
                unit.push((index, socket));
            }
        }

        let stats: Vec<Arc<UnitStats>> = (0..unit_count).map(|_| Arc::default()).collect();
        let budget = Arc::new(OctetBudget::new(context.settings.limits.process_octets));
        let streams = Arc::new(StreamRegistry::default());
        let mapper_config = mapping::mapper_config(&context.settings);
        let mappers: Vec<Mapper> = (0..if worker_count > 0 {
            worker_count
        } else {
            unit_count
        })
            .map(|id| {
                Mapper::new(
                    mapper_config.clone(),
                    Box::new(agents.clone()),
                    budget.clone(),
                )
                .among(streams.clone(), MapperId(id))
            })
            .collect();
        let mapper_stats: Vec<_> = mappers.iter().map(Mapper::stats).collect();
        let registry = Arc::new(Registry::new());
        let naming =
            |error: crate::observe::metrics::NamingError| RelayError::Settings(error.to_string());
        super::metrics::register(&registry, &context, &stats, &mapper_stats).map_err(naming)?;
        crate::observe::process::register(&registry).map_err(naming)?;
        let admin = context
            .settings
            .observe
            .admin
            .map(|address| Admin::start(address, registry.clone(), readiness.clone()))
            .transpose()
            .map_err(|error| RelayError::Settings(error.to_string()))?;

        let thread = |error: std::io::Error| RelayError::Thread(error.to_string());
        let wakes = (0..unit_count)
            .map(|_| Wake::new().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(thread)?;
        let mut workers = None;
        let mappings: Vec<Mapping> = if worker_count > 0 {
            let mut started = Workers::start(mappers, &wakes).map_err(thread)?;
            let ports = std::mem::take(&mut started.ports);
            workers = Some(started);
            ports.into_iter().map(Mapping::Workers).collect()
        } else {
            mappers
                .into_iter()
                .map(|mapper| Mapping::Inline(Box::new(mapper)))
                .collect()
        };
        let mut threads = Vec::new();
        let (units, inboxes): (Vec<_>, Vec<_>) =
            (0..unit_count).map(|_| mpsc::unbounded_channel()).unzip();
        // Weak, so that a unit notices when the relay is gone.
        let peers: Vec<_> = units.iter().map(mpsc::UnboundedSender::downgrade).collect();
        for (index, ((ingresses, mapping), inbox)) in
            listeners.into_iter().zip(mappings).zip(inboxes).enumerate()
        {
            let setup = Setup {
                unit: index,
                core: cores.get(index).copied(),
                relay: context.clone(),
                inbox,
                wake: wakes[index].clone(),
                ingresses,
                mapping,
                peers: peers.clone(),
                stats: stats[index].clone(),
            };
            let spawned = std::thread::Builder::new()
                .name(format!("unit-{index}"))
                .spawn(move || {
                    let result = unit::run(setup);
                    if let Err(error) = &result {
                        tracing::error!(unit = index, %error, "the unit stopped");
                    }
                    result
                });
            threads.push(spawned.map_err(thread)?);
        }
        let (stop_control, stopped) = watch::channel(false);
        let control = {
            let units = units.clone();
            let next = AtomicUsize::new(0);
            let bounds = ControlLimits {
                handshake_time: context.settings.limits.handshake_time,
                ..ControlLimits::default()
            };
            let stats = context.control_stats.clone();
            std::thread::Builder::new()
                .name("control".into())
                .spawn(move || {
                    let deliver = move |outcome: Outcome| {
                        let unit = match &outcome {
                            Outcome::DialFailed { unit, .. } => *unit,
                            Outcome::Joined(handed) => handed.unit.unwrap_or_else(|| {
                                next.fetch_add(1, Ordering::Relaxed) % units.len()
                            }),
                        };
                        let _ = units[unit].send(Message::Outcome(outcome));
                    };
                    control::run(
                        acceptors,
                        bounds,
                        command_inbox,
                        stopped,
                        stats,
                        Box::new(deliver),
                    )
                })
                .map_err(thread)?
        };
        readiness.ready();
        Ok(Self {
            units,
            threads,
            control,
            stop_control,
            workers,
            admin,
            readiness,
            listen_addresses,
            ingress_addresses,
            stats,
            context,
        })
    }

    /// Where the admin listener is bound.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Runs something on the first unit's thread, with its mapping.
    pub fn on_unit(&self, task: impl FnOnce(Rc<Port>) + Send + 'static) {
        if let Some(unit) = self.units.first() {
            let _ = unit.send(Message::Task(Box::new(task)));
        }
    }

    /// Whether a thread ended although nobody asked it to.
    pub fn is_broken(&self) -> bool {
        self.control.is_finished()
            || self.threads.iter().any(JoinHandle::is_finished)
            || self.workers.as_ref().is_some_and(Workers::is_broken)
    }

    /// Takes nothing new, lets what is under way finish within the grace, closes
    /// every association, and waits for the threads.
    pub fn shut_down(self) -> Result<(), RelayError> {
        self.readiness.not_ready("shutting down");
        let _ = self.stop_control.send(true);
        for unit in &self.units {
            let _ = unit.send(Message::Drain);
        }
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => outcome = Err(RelayError::Thread(error.to_string())),
                Err(_) => outcome = Err(RelayError::Thread("a unit panicked".into())),
            }
        }
        if let Some(workers) = self.workers
            && !workers.stop()
        {
            outcome = Err(RelayError::Thread("a mapping worker panicked".into()));
        }
        match self.control.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => outcome = Err(RelayError::Thread(error.to_string())),
            Err(_) => outcome = Err(RelayError::Thread("the control thread panicked".into())),
        }
        drop(self.admin);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is killed and started again gets its address back; one that another
    /// process holds is refused all the same.
    #[test]
    fn an_address_is_waited_for() {
        let taken = bind((std::net::Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
        let address = taken.local_addr().unwrap();
        let since = now();
        assert_eq!(
            bind(address, false).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert!(since.elapsed() >= ADDRESS_TIME);
        let frees = std::thread::spawn(move || {
            std::thread::sleep(4 * ADDRESS_PAUSE);
            drop(taken);
        });
        bind(address, false).unwrap();
        frees.join().unwrap();
    }
}
