//! Echo over TCP, alone or under TLS, on the ring that a shard uses: credited
//! multishot receives into provided buffers, a write to the socket as soon as
//! there is something to write, a doorbell to sleep at. This is the floor of
//! what N-PAMP can cost on it.

use super::native::Plan;
use super::result::Outcome;
use super::tally::{self, Tally, apart};
use crate::drive;
use crate::trust::{Certificate, SELF_NAME};
use npamp_relay::engine::clock::now;
use npamp_relay::engine::ring::{Completion, Ring};
use npamp_relay::engine::wake::Wake;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ClientConnection, Connection, ServerConnection};
use rustls_pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Messages sent before what has arrived is looked at.
const MESSAGES_A_ROUND: usize = 64;
/// Sleep while a socket takes no more.
const FULL_PAUSE: Duration = Duration::from_micros(100);
/// Time for TLS handshakes, and for receives to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What lies between TCP and the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Nothing.
    None,
    /// TLS as the link has it.
    Tls,
}

struct Line {
    socket: TcpStream,
    tls: Option<Connection>,
    /// Octets for the socket.
    out: Vec<u8>,
    written: usize,
    /// Octets from the peer, decrypted.
    arrived: Vec<u8>,
    ended: bool,
}

impl Line {
    fn new(socket: TcpStream, tls: Option<Connection>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            tls,
            out: Vec::new(),
            written: 0,
            arrived: Vec::new(),
            ended: false,
        })
    }

    fn receive(&mut self, mut octets: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            self.arrived.extend_from_slice(octets);
            return Ok(());
        };
        while !octets.is_empty() {
            tls.read_tls(&mut octets)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            match tls.reader().read_to_end(&mut self.arrived) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queues octets for the peer.
    fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.out.extend_from_slice(octets),
            Some(tls) => tls.writer().write_all(octets)?,
        }
        Ok(())
    }

    /// Writes what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.out)?;
            }
        }
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(octets) => self.written += octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }
}

/// One end of all connections.
struct End {
    ring: Ring,
    wake: Arc<Wake>,
    lines: Vec<Line>,
    completions: Vec<Completion>,
}

impl End {
    /// Must be made on the thread that uses it.
    fn new(wake: Arc<Wake>, lines: Vec<Line>) -> io::Result<Self> {
        // The default slack of 50 µs would be lag of our own; it stays when the kernel refuses.
        let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
        let mut end = Self {
            ring: Ring::new(wake.clone())?,
            wake,
            lines,
            completions: Vec::new(),
        };
        for (slot, line) in (0..).zip(&end.lines) {
            let fd = line.socket.as_raw_fd();
            end.ring.register(slot, fd);
            end.ring.receive(slot, fd)?;
        }
        Ok(end)
    }

    /// Takes what arrived. Whether there was something.
    fn receive(&mut self) -> io::Result<bool> {
        self.ring.enter()?;
        self.completions.clear();
        self.ring.completions(&mut self.completions);
        for completion in &self.completions {
            match *completion {
                Completion::Received {
                    slot,
                    buffer,
                    octets,
                    armed,
                } => {
                    let line = &mut self.lines[slot as usize];
                    let taken = line.receive(self.ring.received(buffer, octets));
                    self.ring.give_back(buffer);
                    taken?;
                    if !armed {
                        self.ring.receive(slot, line.socket.as_raw_fd())?;
                    }
                }
                Completion::ReceiveEnded { slot, errno } => {
                    let line = &mut self.lines[slot as usize];
                    // A ring without buffers ends a receive, too.
                    if errno == rustix::io::Errno::NOBUFS.raw_os_error() {
                        self.ring.receive(slot, line.socket.as_raw_fd())?;
                    } else {
                        line.ended = true;
                    }
                }
                Completion::Sent { .. } => {}
            }
        }
        Ok(!self.completions.is_empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.iter_mut().try_for_each(Line::flush)
    }

    /// Sleeps until something arrives, or `until`.
    fn sleep(&mut self, until: Option<Instant>) -> io::Result<()> {
        let full = self.lines.iter().any(|line| !line.out.is_empty());
        let until = if full {
            Some(now() + FULL_PAUSE)
        } else {
            until
        };
        let timeout = match until {
            Some(until) => match until.checked_duration_since(now()) {
                Some(time) => Some(Timespec::try_from(time).map_err(io::Error::other)?),
                None => return Ok(()),
            },
            None => None,
        };
        let mut doorbell = [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        match poll(&mut doorbell, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for End {
    /// The kernel must be done with the provided buffers before they go.
    fn drop(&mut self) {
        for line in &self.lines {
            let _ = line.socket.shutdown(Shutdown::Both);
        }
        let give_up = now() + PATIENCE;
        while self.ring.in_flight() > 0 && now() < give_up {
            if self.ring.enter().is_err() {
                break;
            }
            self.completions.clear();
            self.ring.completions(&mut self.completions);
            std::thread::yield_now();
        }
        if self.ring.in_flight() > 0 {
            self.ring.keep_memory();
        }
    }
}

/// Sends back whatever comes, until it is told to stop.
fn serve(wake: Arc<Wake>, lines: Vec<Line>, stop: &AtomicBool) -> io::Result<()> {
    let mut end = End::new(wake, lines)?;
    let turn = |end: &mut End| -> io::Result<bool> {
        let worked = end.receive()?;
        for line in &mut end.lines {
            if !line.arrived.is_empty() {
                let mut arrived = std::mem::take(&mut line.arrived);
                line.send(&arrived)?;
                arrived.clear();
                line.arrived = arrived;
            }
        }
        end.flush()?;
        Ok(worked)
    };
    while !stop.load(Ordering::Acquire) && !end.lines.iter().all(|line| line.ended) {
        if turn(&mut end)? {
            continue;
        }
        end.wake.prepare_sleep();
        if !turn(&mut end)? && !stop.load(Ordering::Acquire) {
            end.sleep(None)?;
        }
        end.wake.awake();
    }
    Ok(())
}

/// Ends the handshakes.
fn shake_hands(end: &mut End) -> io::Result<()> {
    let give_up = now() + PATIENCE;
    while end
        .lines
        .iter()
        .any(|line| line.tls.as_ref().is_some_and(|tls| tls.is_handshaking()))
    {
        if now() >= give_up || end.lines.iter().any(|line| line.ended) {
            return Err(io::Error::other("the handshake failed"));
        }
        end.flush()?;
        end.receive()?;
    }
    Ok(())
}

fn client(wake: Arc<Wake>, lines: Vec<Line>, plan: Plan) -> io::Result<Outcome> {
    let mut end = End::new(wake, lines)?;
    shake_hands(&mut end)?;
    let mut message = Vec::new();
    let mut tally = Tally::new(plan);
    let mut turn = |end: &mut End, tally: &mut Tally| -> io::Result<bool> {
        let mut worked = end.receive()?;
        for (connection, line) in end.lines.iter_mut().enumerate() {
            if line.ended {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let whole = line.arrived.len() - line.arrived.len() % plan.octets;
            for message in line.arrived[..whole].chunks_exact(plan.octets) {
                tally.reply(connection, tally::read(message).unwrap_or_default());
            }
            line.arrived.drain(..whole);
        }
        for _ in 0..MESSAGES_A_ROUND {
            let Some((connection, number)) = tally.take() else {
                break;
            };
            worked = true;
            message.clear();
            tally::write(number, plan.octets, &mut message);
            end.lines[connection].send(&message)?;
        }
        end.flush()?;
        Ok(worked)
    };
    while !tally.is_done() {
        if turn(&mut end, &mut tally)? {
            continue;
        }
        end.wake.prepare_sleep();
        if !turn(&mut end, &mut tally)? && !tally.is_done() {
            end.sleep(Some(tally.wake_at()))?;
        }
        end.wake.awake();
    }
    Ok(tally.finish())
}

/// Measures one round.
pub fn measure(plan: Plan, security: Security) -> io::Result<Outcome> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let tls = match security {
        Security::None => None,
        Security::Tls => {
            let certificate = Certificate::generate().map_err(io::Error::other)?;
            let client = certificate.client().map_err(io::Error::other)?;
            Some((client, certificate.server().map_err(io::Error::other)?))
        }
    };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..plan.connections {
        let socket = TcpStream::connect(address)?;
        let (accepted, _) = listener.accept()?;
        let (mut client, mut server) = (None, None);
        if let Some((client_config, server_config)) = &tls {
            let name = ServerName::try_from(SELF_NAME).map_err(io::Error::other)?;
            let connection =
                ClientConnection::new(client_config.clone(), name).map_err(io::Error::other)?;
            client = Some(connection.into());
            let connection =
                ServerConnection::new(server_config.clone()).map_err(io::Error::other)?;
            server = Some(connection.into());
        }
        near.push(Line::new(socket, client)?);
        far.push(Line::new(accepted, server)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let bell = Arc::new(Wake::new()?);
    let (near_core, far_core) = apart();
    let server = {
        let (stop, bell) = (stop.clone(), bell.clone());
        std::thread::Builder::new()
            .name("echo".into())
            .spawn(move || {
                drive::pin(far_core);
                serve(bell, far, &stop)
            })?
    };
    let client = std::thread::Builder::new()
        .name("client".into())
        .spawn(move || {
            drive::pin(near_core);
            client(Arc::new(Wake::new()?), near, plan)
        })?;
    let panicked = |_| io::Error::other("a thread panicked");
    let outcome = client.join().map_err(panicked)?;
    stop.store(true, Ordering::Release);
    bell.ring_always();
    let served = server.join().map_err(panicked)?;
    let outcome = outcome?;
    served?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::super::native::Load;
    use super::*;

    #[test]
    fn echoes_come_back_whole_and_in_order() {
        for security in [Security::None, Security::Tls] {
            for load in [Load::Rate(500.0), Load::Outstanding(16)] {
                let plan = Plan {
                    load,
                    connections: 3,
                    octets: 700,
                    warmup: Duration::from_millis(20),
                    duration: Duration::from_millis(200),
                };
                let outcome = measure(plan, security).unwrap();
                assert_eq!(
                    outcome.errors, 0,
                    "{security:?} {load:?}: {}",
                    outcome.example
                );
                assert!(outcome.per_s > 0.0);
                if let Load::Rate(_) = load {
                    // All that was due in the measured time: 500 a second for 0.2 s.
                    assert_eq!(outcome.times.summary().count, 100);
                }
            }
        }
    }
}
