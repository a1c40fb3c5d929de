//! The control thread: tokio-uring accepts and dials, runs the handshakes under
//! a deadline and under separate budgets for inbound and outbound, and hands
//! over what came of them. No data of an established association passes here.
//!
//! A pending read of tokio-uring is never dropped, for it would stay armed and
//! swallow the next octets: a deadline ends it with shutdown(2) and awaits it.
#![allow(unsafe_code)]

use super::clock::SystemRandom;
use super::establish::{Establish, EstablishError, EstablishFailure, Joined};
use crate::association::AssociationConfig;
use crate::crypto::Identity;
use crate::handshake::{Established, HandshakeReason, InitiatorConfig, ResponderConfig};
use crate::limits;
use crate::stats::{Counters, Gauge};
use rustls::{ClientConfig, ServerConfig};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_uring::net as uring;

/// Octets read at once during a handshake.
const READ_OCTETS: usize = 16 * 1024;
/// How long a refused peer's octets are read and thrown away, at most.
const PART_TIME: Duration = Duration::from_millis(250);
/// How many reads that may take, at most.
const PART_READS: usize = 16;
/// Pause after accept(2) failed, for example because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One N-PAMP listener.
pub struct Acceptor {
    /// Bound and listening.
    pub socket: TcpListener,
    /// Link configuration.
    pub tls: Arc<ServerConfig>,
    /// Makes a responder's configuration for each connection.
    pub responder: Arc<dyn Fn() -> ResponderConfig + Send + Sync>,
    /// Configuration of the associations that come of it.
    pub association: Arc<AssociationConfig>,
}

/// One connection to make.
pub struct Dial {
    /// Handed back with the outcome.
    pub token: u64,
    /// Unit that wants the association.
    pub unit: usize,
    /// `host:port`.
    pub upstream: String,
    /// Address to dial from; the system's choice when absent. One address has some 28,000 ports to
    /// dial the same upstream from.
    pub local: Option<IpAddr>,
    /// SNI.
    pub server_name: Arc<str>,
    /// Link configuration.
    pub tls: Arc<ClientConfig>,
    /// Our identity.
    pub identity: Arc<Identity>,
    /// Pinned responder.
    pub peer: Option<crate::crypto::IdentityPublic>,
    /// Configuration of the association.
    pub association: Arc<AssociationConfig>,
}

/// What the control thread is told.
pub enum Command {
    /// Connect.
    Dial(Box<Dial>),
}

/// Where a connection came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A listener, by index.
    Accepted {
        /// Index of the [`Acceptor`].
        listener: usize,
    },
    /// A [`Dial`], by token.
    Dialled {
        /// Token of the dial.
        token: u64,
    },
}

/// A connection with its handshakes done.
pub struct Handed {
    /// The socket; TCP_NODELAY is set.
    pub socket: TcpStream,
    /// Link, keys and early octets.
    pub joined: Joined,
    /// Configuration of the association.
    pub association: Arc<AssociationConfig>,
    /// Where it came from.
    pub origin: Origin,
    /// The peer's address.
    pub address: SocketAddr,
    /// Unit that dialled it; any when it was accepted.
    pub unit: Option<usize>,
}

/// What comes of a connection.
pub enum Outcome {
    /// An association.
    Joined(Box<Handed>),
    /// A dial failed.
    DialFailed {
        /// Token of the dial.
        token: u64,
        /// Unit that asked.
        unit: usize,
        /// Why.
        error: EstablishError,
    },
}

/// Bounds of the control thread.
#[derive(Debug, Clone)]
pub struct ControlLimits {
    /// TLS and N-PAMP handshake together.
    pub handshake_time: Duration,
    /// TCP connect.
    pub connect_time: Duration,
    /// Inbound handshakes at once.
    pub inbound_max: usize,
    /// Outbound dials at once.
    pub outbound_max: usize,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self {
            handshake_time: limits::HANDSHAKE_TIME,
            connect_time: limits::CONNECT_TIME,
            inbound_max: limits::INBOUND_HANDSHAKES_MAX,
            outbound_max: limits::OUTBOUND_HANDSHAKES_MAX,
        }
    }
}

/// Counters of the control thread.
#[derive(Debug, Default)]
pub struct ControlStats {
    /// Inbound handshakes that failed.
    pub inbound_failed: Arc<Counters<EstablishFailure>>,
    /// Outbound connections that failed.
    pub outbound_failed: Arc<Counters<EstablishFailure>>,
    /// Handshakes that made an association, and connections accepted.
    pub handshakes: Arc<Counters<HandshakeCount>>,
    /// What was wrong with a handshake, in detail.
    pub refused: Arc<Counters<HandshakeReason>>,
    /// Handshakes under way.
    pub under_way: Arc<Gauge>,
}

impl ControlStats {
    fn failed(&self, counters: &Counters<EstablishFailure>, error: &EstablishError) {
        counters.count(error.reason());
        if let EstablishError::Handshake(error) = error {
            self.refused.count(error.reason());
        }
    }
}

crate::reasons! {
    /// What happens to connections.
    pub enum HandshakeCount {
        /// A connection was accepted.
        Accepted => "accepted",
        /// A dial began.
        Dialled => "dialled",
        /// An inbound handshake made an association.
        InboundDone => "inbound_done",
        /// An outbound handshake made an association.
        OutboundDone => "outbound_done",
        /// accept(2) failed.
        AcceptFailed => "accept_failed",
    }
}

/// Delivers outcomes; called on the control thread, must not block.
pub type Deliver = Rc<dyn Fn(Outcome)>;

/// Runs the control thread until `stop` says true and every dial is answered or dropped.
pub fn run(
    acceptors: Vec<Acceptor>,
    bounds: ControlLimits,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut stop: watch::Receiver<bool>,
    stats: Arc<ControlStats>,
    deliver: Box<dyn Fn(Outcome)>,
) -> io::Result<()> {
    let mut builder = tokio_uring::uring_builder();
    builder.setup_single_issuer().setup_coop_taskrun();
    let deliver: Deliver = deliver.into();
    tokio_uring::builder()
        .entries(256)
        .uring_builder(&builder)
        .start(async move {
            let bounds = Rc::new(bounds);
            let inbound = Arc::new(Semaphore::new(bounds.inbound_max));
            for (listener, acceptor) in acceptors.into_iter().enumerate() {
                let accept = accept(
                    listener,
                    acceptor,
                    inbound.clone(),
                    bounds.clone(),
                    stop.clone(),
                    stats.clone(),
                    deliver.clone(),
                );
                tokio_uring::spawn(accept);
            }
            let outbound = Arc::new(Semaphore::new(bounds.outbound_max));
            loop {
                let command = tokio::select! {
                    command = commands.recv() => command,
                    () = stopped(&mut stop) => None,
                };
                let Some(Command::Dial(dial)) = command else {
                    break;
                };
                let (outbound, bounds, stats) = (outbound.clone(), bounds.clone(), stats.clone());
                let answer = Answer::new(&dial, deliver.clone());
                tokio_uring::spawn(async move {
                    let Ok(_permit) = outbound.acquire().await else {
                        return;
                    };
                    stats.handshakes.count(HandshakeCount::Dialled);
                    stats.under_way.add(1);
                    let outcome = connect(*dial, &bounds).await;
                    stats.under_way.sub(1);
                    match &outcome {
                        Ok(_) => stats.handshakes.count(HandshakeCount::OutboundDone),
                        Err(error) => stats.failed(&stats.outbound_failed, error),
                    }
                    answer.give(outcome);
                });
            }
            // Those under way are answered as their tasks are dropped.
            commands.close();
            while let Ok(Command::Dial(dial)) = commands.try_recv() {
                drop(Answer::new(&dial, deliver.clone()));
            }
        });
    Ok(())
}

/// Owes a unit the outcome of its dial: calls wait for it. Dropped without one, it says that
/// the relay stops.
struct Answer {
    token: u64,
    unit: usize,
    deliver: Option<Deliver>,
}

impl Answer {
    fn new(dial: &Dial, deliver: Deliver) -> Self {
        Self {
            token: dial.token,
            unit: dial.unit,
            deliver: Some(deliver),
        }
    }

    fn give(mut self, outcome: Result<Handed, EstablishError>) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Result<Handed, EstablishError>) {
        if let Some(deliver) = self.deliver.take() {
            let (token, unit) = (self.token, self.unit);
            deliver(match outcome {
                Ok(handed) => Outcome::Joined(Box::new(handed)),
                Err(error) => Outcome::DialFailed { token, unit, error },
            });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.tell(Err(EstablishError::Stopped));
    }
}

/// Resolves once `stop` is true or its sender is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn accept(
    listener: usize,
    acceptor: Acceptor,
    inbound: Arc<Semaphore>,
    bounds: Rc<ControlLimits>,
    mut stop: watch::Receiver<bool>,
    stats: Arc<ControlStats>,
    deliver: Deliver,
) {
    let Acceptor {
        socket,
        tls,
        responder,
        association,
    } = acceptor;
    let socket = uring::TcpListener::from_std(socket);
    loop {
        // The backlog holds what the budget does not allow yet.
        let Ok(permit) = inbound.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = stopped(&mut stop) => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                stats.handshakes.count(HandshakeCount::AcceptFailed);
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        stats.handshakes.count(HandshakeCount::Accepted);
        let (tls, responder, association) = (tls.clone(), responder.clone(), association.clone());
        let (bounds, stats, deliver) = (bounds.clone(), stats.clone(), deliver.clone());
        tokio_uring::spawn(async move {
            let _permit = permit;
            stats.under_way.add(1);
            let establish = Establish::responder(&tls, responder(), &mut SystemRandom);
            let outcome = match establish {
                Ok(establish) => {
                    let origin = Origin::Accepted { listener };
                    shake_hands(
                        stream,
                        establish,
                        bounds.handshake_time,
                        association,
                        origin,
                        address,
                    )
                    .await
                }
                Err(error) => Err(error),
            };
            stats.under_way.sub(1);
            match outcome {
                Ok(handed) => {
                    stats.handshakes.count(HandshakeCount::InboundDone);
                    deliver(Outcome::Joined(Box::new(handed)));
                }
                Err(error) => {
                    stats.failed(&stats.inbound_failed, &error);
                    tracing::info!(peer = %address, reason = crate::stats::Reason::label(error.reason()), %error, "inbound handshake failed");
                }
            }
        });
    }
}

async fn connect(dial: Dial, bounds: &ControlLimits) -> Result<Handed, EstablishError> {
    let upstream = dial.upstream.clone();
    let connected = within(bounds.connect_time, async {
        let addresses = resolve(upstream).await?;
        let mut last = EstablishError::Unreachable(format!("{} has no address", dial.upstream));
        for address in addresses {
            match dial_from(dial.local, address).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => {
                    last = EstablishError::Unreachable(format!("connect to {address}: {error}"));
                }
            }
        }
        Err(last)
    })
    .await;
    let (stream, address) = connected.unwrap_or(Err(EstablishError::TimedOut))?;
    let config = InitiatorConfig::new(dial.identity, dial.peer);
    let establish = Establish::initiator(dial.tls, &dial.server_name, config, &mut SystemRandom)?;
    let origin = Origin::Dialled { token: dial.token };
    let mut handed = shake_hands(
        stream,
        establish,
        bounds.handshake_time,
        dial.association,
        origin,
        address,
    )
    .await?;
    handed.unit = Some(dial.unit);
    Ok(handed)
}

/// Connects, from a given address where one is wanted.
async fn dial_from(local: Option<IpAddr>, address: SocketAddr) -> io::Result<uring::TcpStream> {
    let Some(local) = local else {
        return uring::TcpStream::connect(address).await;
    };
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    choose_port_late(&socket);
    socket.bind(SocketAddr::new(local, 0))?;
    let stream = socket.connect(address).await?.into_std()?;
    // A ring waits for what is not ready by itself; a non-blocking socket would make it fail instead.
    stream.set_nonblocking(false)?;
    Ok(uring::TcpStream::from_std(stream))
}

/// Lets connect(2) choose the port, which then need only be free towards that upstream. Failure costs ports only.
fn choose_port_late(socket: &TcpSocket) {
    let yes: libc::c_int = 1;
    // SAFETY: passes the address and size of a live int.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&yes).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// The system's resolver blocks, so it gets a thread. Not one of the runtime's, which would
/// keep the runtime from ending until the resolver does.
async fn resolve(upstream: String) -> Result<Vec<SocketAddr>, EstablishError> {
    if let Ok(address) = upstream.parse() {
        return Ok(vec![address]);
    }
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("resolver".into())
        .spawn(move || {
            let _ = answer.send(upstream.to_socket_addrs().map(Iterator::collect));
        })?;
    let addresses = answered
        .await
        .map_err(|_| EstablishError::Unreachable("the resolver failed".into()))?;
    addresses.map_err(|error| EstablishError::Unreachable(error.to_string()))
}

/// A future with a deadline. Only for futures that may be dropped: connects and resolution.
async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(time, future).await.ok()
}

async fn shake_hands(
    stream: uring::TcpStream,
    mut establish: Establish,
    time: Duration,
    association: Arc<AssociationConfig>,
    origin: Origin,
    address: SocketAddr,
) -> Result<Handed, EstablishError> {
    stream.set_nodelay(true)?;
    let stream = Rc::new(stream);
    let expired = Rc::new(Cell::new(false));
    let watchdog = {
        let (stream, expired) = (stream.clone(), expired.clone());
        tokio_uring::spawn(async move {
            tokio::time::sleep(time).await;
            expired.set(true);
            let _ = stream.shutdown(Shutdown::Both);
        })
    };
    let result = drive(&stream, &mut establish).await;
    if result.is_err() && !expired.get() {
        part(&stream, &mut establish).await;
    }
    watchdog.abort();
    let established = match result {
        Ok(established) => established,
        Err(_) if expired.get() => return Err(EstablishError::TimedOut),
        Err(error) => return Err(error),
    };
    // No read is pending here: `drive` awaited every one it began.
    // SAFETY: `stream` owns the descriptor and lives to the end of this statement.
    let socket = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) }.try_clone_to_owned()?;
    Ok(Handed {
        socket: TcpStream::from(socket),
        joined: establish.join(*established),
        association,
        origin,
        address,
        unit: None,
    })
}

/// Ends a refused connection so that the peer reads an end and not a reset,
/// which octets of its that nobody read would cause.
async fn part(stream: &Rc<uring::TcpStream>, establish: &mut Establish) {
    let mut out = Vec::new();
    establish.close(&mut out);
    if !out.is_empty() {
        let _ = stream.write_all(out).await;
    }
    let _ = stream.shutdown(Shutdown::Write);
    let hurry = {
        let stream = stream.clone();
        tokio_uring::spawn(async move {
            tokio::time::sleep(PART_TIME).await;
            let _ = stream.shutdown(Shutdown::Both);
        })
    };
    let mut buffer = vec![0u8; READ_OCTETS];
    for _ in 0..PART_READS {
        let (result, read) = stream.read(buffer).await;
        buffer = read;
        if !matches!(result, Ok(octets) if octets > 0) {
            break;
        }
    }
    hurry.abort();
}

async fn drive(
    stream: &uring::TcpStream,
    establish: &mut Establish,
) -> Result<Box<Established>, EstablishError> {
    let mut out = Vec::new();
    let mut buffer = vec![0u8; READ_OCTETS];
    let mut progress = establish.handle_octets(&mut [], &mut out);
    loop {
        if !out.is_empty() {
            // Also after a failure: the alert tells the peer why.
            let (result, mut written) = stream.write_all(out).await;
            written.clear();
            out = written;
            if progress.is_ok() {
                result?;
            }
        }
        if let Some(established) = progress? {
            return Ok(established);
        }
        let (result, read) = stream.read(buffer).await;
        buffer = read;
        let octets = result?;
        if octets == 0 {
            return Err(EstablishError::Ended);
        }
        progress = establish.handle_octets(&mut buffer[..octets], &mut out);
    }
}
