//! A shard: the sockets and associations of one thread, on a ring of its own.
//! A turn reaps completions, decrypts, opens frames and reports them; a flush
//! seals what is queued and submits it. It never blocks, and a provided buffer
//! never outlives the turn in which it was received.

mod report;

pub use report::{Down, DownReason, Handler, LinkId, LinkInfo, ShardCount, ShardStats};

use super::clock::{SystemRandom, now};
use super::control::Handed;
use super::ring::{Completion, Ring};
use super::wake::Wake;
use crate::association::{Association, AssociationError, CloseReason, Event, SendError};
use crate::limits;
use crate::link::tls::Tls;
use crate::wire::{ChannelId, Flags, FrameType};
use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Send buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 32;
/// A scratch buffer larger than this goes back to the allocator.
const SCRATCH_OCTETS_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In use.
    Open,
    /// Reported down; what is queued is sent, then our direction of the socket is shut.
    Closing,
    /// All is sent and our direction is shut; waits for the peer's end. Closing
    /// at once would reset the connection under the last words if the peer had
    /// octets on their way to us.
    Lingering,
    /// shutdown(2) was called; waits for its operations to complete.
    Shut,
}

struct Link {
    generation: u32,
    socket: TcpStream,
    tls: Tls,
    association: Association,
    phase: Phase,
    receiving: bool,
    /// Ciphertext with the kernel, and how much of it is known to be sent.
    sending: Option<(Vec<u8>, usize)>,
    /// Ciphertext that waits for the send under way.
    outgoing: Vec<u8>,
    /// Sealed frames that are too much for one turn, and how much of them TLS has.
    sealed: Option<(Vec<u8>, usize)>,
    dirty: bool,
    timer: Option<Instant>,
    close_by: Option<Instant>,
}

impl Link {
    fn id(&self, slot: u32) -> LinkId {
        LinkId::new(self.generation, slot)
    }
}

/// See the module.
pub struct Shard {
    ring: Ring,
    links: Vec<Option<Link>>,
    free: Vec<u32>,
    generation: u32,
    dirty: Vec<u32>,
    timers: BTreeSet<(Instant, u32)>,
    completions: Vec<Completion>,
    plain: Vec<u8>,
    spare: Vec<Vec<u8>>,
    paused: bool,
    waiting: Vec<u32>,
    /// Links that failed where no handler was at hand; the next turn reports them.
    broken: Vec<(LinkId, Down)>,
    stats: Arc<ShardStats>,
}

impl Shard {
    /// Builds a shard on the thread that will use it.
    pub fn new(wake: Arc<Wake>, stats: Arc<ShardStats>) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::new(wake)?,
            links: Vec::new(),
            free: Vec::new(),
            generation: 0,
            dirty: Vec::new(),
            timers: BTreeSet::new(),
            completions: Vec::new(),
            plain: Vec::new(),
            spare: Vec::new(),
            paused: false,
            waiting: Vec::new(),
            broken: Vec::new(),
            stats,
        })
    }

    /// Whether receives are credited multishots on this kernel.
    pub fn is_credited(&self) -> bool {
        self.ring.is_credited()
    }

    /// Takes over a connection whose handshakes are done. `None` when the shard is full: the connection is dropped.
    pub fn adopt(&mut self, handed: Handed, handler: &mut dyn Handler) -> Option<LinkId> {
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else if self.links.len() < limits::ASSOCIATIONS_PER_SHARD_MAX {
            self.links.push(None);
            u32::try_from(self.links.len() - 1).ok()?
        } else {
            return None;
        };
        let Handed {
            socket,
            joined,
            association,
            origin,
            address,
            ..
        } = handed;
        let info = LinkInfo {
            side: joined.side(),
            server_name: joined.server_name.clone(),
            peer: *joined.peer(),
            address,
            origin,
        };
        limit_unsent(&socket);
        keep_alive(&socket);
        let (tls, association, mut early) =
            joined.into_association(association, &mut SystemRandom, now());
        self.generation = self.generation.wrapping_add(1);
        self.ring.register(slot, socket.as_raw_fd());
        let id = LinkId::new(self.generation, slot);
        self.links[slot as usize] = Some(Link {
            generation: self.generation,
            socket,
            tls,
            association,
            phase: Phase::Open,
            receiving: false,
            sending: None,
            outgoing: Vec::new(),
            sealed: None,
            dirty: false,
            timer: None,
            close_by: None,
        });
        self.stats.links.add(1);
        handler.up(id, &info);
        if !early.is_empty() {
            self.opened(slot, &mut early, handler);
        }
        self.arm(slot);
        self.touch(slot);
        Some(id)
    }

    /// Submits what is queued, takes what completed, reports what it means. True when there
    /// was anything that can make work for others: a send that went out whole is nobody's news.
    pub fn turn(&mut self, handler: &mut dyn Handler) -> io::Result<bool> {
        self.ring.enter_if_needed()?;
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.completions(&mut completions);
        if !completions.is_empty() {
            self.stats.work.count(ShardCount::Turns);
        }
        let worked = completions
            .iter()
            .any(|completion| !matches!(completion, Completion::Sent { result: Ok(_), .. }));
        for completion in completions.drain(..) {
            match completion {
                Completion::Received {
                    slot,
                    buffer,
                    octets,
                    armed,
                } => {
                    self.received(slot, buffer, octets, armed, handler);
                }
                Completion::ReceiveEnded { slot, errno } => {
                    self.receive_ended(slot, errno, handler);
                }
                Completion::Sent { slot, result } => self.sent(slot, result, handler),
            }
        }
        self.completions = completions;
        let failed = !self.broken.is_empty();
        for (id, reason) in std::mem::take(&mut self.broken) {
            let slot = id.slot();
            if self.link(slot).is_some_and(|link| link.id(slot) == id) {
                self.end(slot, &reason, handler);
                self.shut(slot);
            }
        }
        let fired = self.fire_timers(handler);
        Ok(worked || failed || fired)
    }

    /// Whether [`Shard::turn`] has something to do at once: submissions or completions that wait, links that failed.
    pub fn has_work(&mut self) -> bool {
        self.ring.wants_to_be_entered() || self.ring.has_completions() || !self.broken.is_empty()
    }

    fn fails(&mut self, slot: u32, reason: Down) {
        if let Some(link) = self.link(slot) {
            let id = link.id(slot);
            self.broken.push((id, reason));
        }
    }

    fn received(
        &mut self,
        slot: u32,
        buffer: u16,
        octets: usize,
        armed: bool,
        handler: &mut dyn Handler,
    ) {
        self.stats
            .work
            .add(ShardCount::OctetsReceived, octets as u64);
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let mut failure = None;
        if let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) {
            link.receiving = armed;
            if link.phase == Phase::Open {
                let cipher = self.ring.received(buffer, octets);
                let result = link
                    .tls
                    .handle_octets(cipher, &mut link.outgoing, &mut |octets| {
                        plain.extend_from_slice(octets);
                    });
                failure = result.err();
            }
        }
        self.ring.give_back(buffer);
        if !plain.is_empty() {
            self.opened(slot, &mut plain, handler);
        }
        if plain.capacity() <= SCRATCH_OCTETS_MAX {
            self.plain = plain;
        }
        if let Some(error) = failure {
            self.end(slot, &Down::Link(Arc::new(error)), handler);
        } else if self
            .link(slot)
            .is_some_and(|link| link.tls.is_peer_closed())
        {
            self.end(slot, &Down::Ended, handler);
        }
        if !armed {
            self.arm(slot);
        }
        self.touch(slot);
    }

    /// Gives decrypted octets to the association.
    fn opened(&mut self, slot: u32, plain: &mut [u8], handler: &mut dyn Handler) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let id = link.id(slot);
        let mut closed = None;
        let result = link.association.handle_octets(plain, now(), &mut |event| {
            note_close(&event, &mut closed);
            handler.event(id, event);
        });
        self.judge(slot, result, closed, handler);
    }

    /// What follows from the association's answer.
    fn judge(
        &mut self,
        slot: u32,
        result: Result<(), AssociationError>,
        closed: Option<String>,
        handler: &mut dyn Handler,
    ) {
        match result {
            Err(error) => self.end(slot, &Down::Association(Arc::new(error)), handler),
            Ok(()) => {
                if let Some(how) = closed {
                    self.end(slot, &Down::Closed(how), handler);
                }
            }
        }
        self.touch(slot);
    }

    fn receive_ended(&mut self, slot: u32, errno: i32, handler: &mut dyn Handler) {
        if let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) {
            link.receiving = false;
        }
        match errno {
            libc::ENOBUFS => {
                // Every buffer was taken within this turn; all are back by its end.
                self.stats.work.count(ShardCount::BuffersExhausted);
                self.arm(slot);
            }
            libc::EINTR | libc::EAGAIN => self.arm(slot),
            0 => self.end(slot, &Down::Ended, handler),
            errno => self.end(
                slot,
                &Down::Socket(io::Error::from_raw_os_error(errno).to_string()),
                handler,
            ),
        }
        self.touch(slot);
    }

    fn sent(&mut self, slot: u32, result: Result<usize, i32>, handler: &mut dyn Handler) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some((buffer, done)) = link.sending.take() else {
            return;
        };
        match result {
            Ok(octets) if octets > 0 => {
                self.stats.work.add(ShardCount::OctetsSent, octets as u64);
                let done = done + octets;
                if done < buffer.len() {
                    self.submit_send(slot, buffer, done);
                } else {
                    self.recycle(buffer);
                }
            }
            Err(libc::EINTR | libc::EAGAIN) => self.submit_send(slot, buffer, done),
            failed => {
                self.recycle(buffer);
                let errno = failed.err().unwrap_or(libc::EPIPE);
                self.end(
                    slot,
                    &Down::Socket(io::Error::from_raw_os_error(errno).to_string()),
                    handler,
                );
                self.shut(slot);
            }
        }
        self.touch(slot);
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX
            && buffer.capacity() <= 2 * limits::IN_FLIGHT_OCTETS_MAX
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn link(&self, slot: u32) -> Option<&Link> {
        self.links.get(slot as usize)?.as_ref()
    }

    fn open_link(&mut self, id: LinkId) -> Option<&mut Link> {
        let link = self.links.get_mut(id.slot() as usize)?.as_mut()?;
        (link.generation == (id.0 >> 32) as u32 && link.phase == Phase::Open).then_some(link)
    }

    /// Arms a receive unless receives are paused or one is armed.
    fn arm(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if link.receiving || link.phase == Phase::Shut {
            return;
        }
        if self.paused && link.phase == Phase::Open {
            self.waiting.push(slot);
            return;
        }
        let fd = link.socket.as_raw_fd();
        match self.ring.receive(slot, fd) {
            Ok(()) => link.receiving = true,
            Err(error) => {
                tracing::error!(%error, "a receive could not be queued");
                self.fails(slot, Down::Socket(error.to_string()));
            }
        }
    }

    /// Stops arming receives (what is armed runs to its credit), or arms again those that waited.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if !paused {
            for slot in std::mem::take(&mut self.waiting) {
                self.arm(slot);
            }
        }
    }

    /// Reports a link down, once, and lets it send its last words.
    fn end(&mut self, slot: u32, reason: &Down, handler: &mut dyn Handler) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if link.phase != Phase::Open {
            if matches!(reason, Down::Ended | Down::Socket(_)) {
                self.shut(slot);
            }
            return;
        }
        link.phase = Phase::Closing;
        let id = link.id(slot);
        link.close_by = Some(now() + limits::CLOSE_TIME);
        self.stats.down.count(reason.reason());
        handler.down(id, reason);
        if matches!(reason, Down::Socket(_)) {
            self.shut(slot);
        }
        self.touch(slot);
    }

    fn shut(&mut self, slot: u32) {
        if let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) {
            if link.phase == Phase::Open {
                return;
            }
            if link.phase != Phase::Shut {
                link.phase = Phase::Shut;
                let _ = link.socket.shutdown(Shutdown::Both);
            }
            self.touch(slot);
        }
    }

    /// The last octet of a closing link is with the kernel.
    fn linger(&mut self, slot: u32) {
        if let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) {
            if link.receiving && link.socket.shutdown(Shutdown::Write).is_ok() {
                link.phase = Phase::Lingering;
            } else {
                // The peer's end was seen, or will not be.
                self.shut(slot);
            }
        }
    }

    fn touch(&mut self, slot: u32) {
        if let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut)
            && !link.dirty
        {
            link.dirty = true;
            self.dirty.push(slot);
        }
    }

    fn fire_timers(&mut self, handler: &mut dyn Handler) -> bool {
        let Some(&(first, _)) = self.timers.first() else {
            return false;
        };
        let now = now();
        if first > now {
            return false;
        }
        while let Some(&(at, slot)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
                continue;
            };
            link.timer = None;
            let id = link.id(slot);
            if link.phase == Phase::Open {
                if link.association.poll_timeout().is_some_and(|at| at <= now) {
                    let mut closed = None;
                    let result = link.association.handle_timeout(now, &mut |event| {
                        note_close(&event, &mut closed);
                        handler.event(id, event);
                    });
                    self.judge(slot, result, closed, handler);
                }
            } else if link.close_by.is_some_and(|at| at <= now) {
                self.shut(slot);
            }
            self.touch(slot);
        }
        true
    }

    /// Seals and submits what the links have to say. Call after the events of a turn were worked.
    pub fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            self.flush_link(slot);
        }
        // Links that became dirty meanwhile are in the new list.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
        // What could not be submitted stays queued, and the next turn meets the same error.
        if self.ring.has_queued() {
            let _ = self.ring.enter();
        }
    }

    fn flush_link(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        link.dirty = false;
        if link.sending.is_none() && matches!(link.phase, Phase::Open | Phase::Closing) {
            let (plain, done) = if let Some(left) = link.sealed.take() {
                left
            } else {
                let mut plain = std::mem::take(&mut self.plain);
                plain.clear();
                let octets_max = limits::IN_FLIGHT_OCTETS_MAX;
                let sealed = link
                    .association
                    .poll_transmit(&mut plain, octets_max, now());
                self.stats.work.add(ShardCount::FramesSealed, sealed as u64);
                (plain, 0)
            };
            if link.outgoing.capacity() == 0 && !plain.is_empty() {
                link.outgoing = self.spare.pop().unwrap_or_default();
            }
            // A long frame lets the other links have their turns in between.
            let end = match plain.len() - done {
                left if left <= 2 * limits::IN_FLIGHT_OCTETS_MAX => plain.len(),
                _ => done + limits::IN_FLIGHT_OCTETS_MAX,
            };
            let result = link.tls.encrypt(&plain[done..end], &mut link.outgoing);
            if end < plain.len() {
                link.sealed = Some((plain, end));
            } else if plain.capacity() <= SCRATCH_OCTETS_MAX {
                self.plain = plain;
            }
            if let Err(error) = result {
                tracing::warn!(%error, "a record could not be sealed");
                let id = link.id(slot);
                self.broken.push((id, Down::Link(Arc::new(error))));
            }
            let finished = link.phase == Phase::Closing
                && link.association.queued_octets() == 0
                && link.sealed.is_none();
            if finished {
                let _ = link.tls.close(&mut link.outgoing);
            }
            if link.outgoing.is_empty() {
                link.outgoing = Vec::new();
                if finished {
                    self.linger(slot);
                }
            } else {
                let octets = std::mem::take(&mut link.outgoing);
                self.submit_send(slot, octets, 0);
            }
        }
        self.remove_if_done(slot);
        self.schedule(slot);
    }

    #[allow(unsafe_code)]
    fn submit_send(&mut self, slot: u32, octets: Vec<u8>, done: usize) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let fd = link.socket.as_raw_fd();
        let (octets, _) = link.sending.insert((octets, done));
        // SAFETY: `sending` keeps the vector untouched until `Completion::Sent`, and a link is
        // removed only when nothing is sending; moving a Vec does not move its octets.
        let queued = unsafe { self.ring.send(slot, fd, &octets[done..]) };
        if let Err(error) = queued {
            tracing::error!(%error, "a send could not be queued");
            link.sending = None;
            self.fails(slot, Down::Socket(error.to_string()));
        }
    }

    fn remove_if_done(&mut self, slot: u32) {
        let done = self.link(slot).is_some_and(|link| {
            link.phase == Phase::Shut && !link.receiving && link.sending.is_none()
        });
        if done {
            if let Some(link) = self.links[slot as usize].take()
                && let Some(at) = link.timer
            {
                self.timers.remove(&(at, slot));
            }
            self.ring.unregister(slot);
            self.free.push(slot);
            self.stats.links.sub(1);
        }
    }

    /// Keeps at most one timer a link, moved only when it must fire earlier.
    fn schedule(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let due = match link.phase {
            Phase::Open => link.association.poll_timeout(),
            Phase::Closing | Phase::Lingering => link.close_by,
            // Every operation ends by itself now; nothing is left to be hurried.
            Phase::Shut => None,
        };
        let Some(due) = due else { return };
        if link.timer.is_none_or(|at| due < at) {
            if let Some(at) = link.timer {
                self.timers.remove(&(at, slot));
            }
            link.timer = Some(due);
            self.timers.insert((due, slot));
        }
    }

    /// When [`Shard::turn`] must be called even if nothing completes.
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Queues a frame; it is sealed by a later [`Shard::flush`].
    pub fn send(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: Vec<u8>,
    ) -> Result<(), SendError> {
        let Some(open) = self.open_link(link) else {
            return Err(SendError::Closed);
        };
        open.association.send(channel, frame_type, flags, payload)?;
        self.touch(link.slot());
        Ok(())
    }

    /// Queues an ERROR about what the peer sent on a channel; the association bounds how many wait.
    pub fn report(&mut self, link: LinkId, channel: ChannelId, code: u16, text: &str) {
        if let Some(open) = self.open_link(link) {
            open.association.report(channel, code, text);
            self.touch(link.slot());
        }
    }

    /// Octets queued and not yet sealed; `None` when the link is gone.
    pub fn queued_octets(&mut self, link: LinkId) -> Option<usize> {
        self.open_link(link)
            .map(|link| link.association.queued_octets())
    }

    /// Closes an association in order.
    pub fn close(&mut self, link: LinkId, code: u16, text: &str) {
        if let Some(open) = self.open_link(link) {
            open.association.close(code, text);
            self.touch(link.slot());
        }
    }

    /// Begins a key update on a channel.
    pub fn update_keys(&mut self, link: LinkId, channel: ChannelId) {
        if let Some(open) = self.open_link(link) {
            open.association.update_keys(channel);
            self.touch(link.slot());
        }
    }

    /// Every open link.
    pub fn open_links(&self) -> Vec<LinkId> {
        (0..)
            .zip(&self.links)
            .filter_map(|(slot, link)| link.as_ref().map(|link| (slot, link)))
            .filter(|(_, link)| link.phase == Phase::Open)
            .map(|(slot, link)| link.id(slot))
            .collect()
    }

    /// Links that still exist, the closing ones included.
    pub fn links(&self) -> usize {
        self.links.len() - self.free.len()
    }
}

/// Remembers in words how an association ended in order. What the peer wrote is quoted.
fn note_close(event: &Event<'_>, closed: &mut Option<String>) {
    if let Event::Closed(reason) = event {
        *closed = Some(match reason {
            CloseReason::Local => "closed by this end".into(),
            CloseReason::LocalTimeout => {
                "closed by this end; the peer did not acknowledge it".into()
            }
            CloseReason::Peer { code, text } if text.is_empty() => {
                format!("closed by the peer with code {code}")
            }
            CloseReason::Peer { code, text } => {
                format!("closed by the peer with code {code}: {text:?}")
            }
            CloseReason::Failed(error) => error.to_string(),
        });
    }
}

impl Drop for Shard {
    /// The kernel must be done with the send buffers and the provided buffers before they go.
    fn drop(&mut self) {
        for link in self.links.iter().flatten() {
            let _ = link.socket.shutdown(Shutdown::Both);
        }
        let give_up = now() + Duration::from_secs(2);
        let mut completions = Vec::new();
        while self.ring.in_flight() > 0 && now() < give_up {
            if self.ring.enter().is_err() {
                break;
            }
            completions.clear();
            self.ring.completions(&mut completions);
            std::thread::yield_now();
        }
        if self.ring.in_flight() > 0 {
            // Never seen; leaking is the safe end of it.
            tracing::error!("operations are still in flight at shutdown; their memory is kept");
            std::mem::forget(std::mem::take(&mut self.links));
            self.ring.keep_memory();
        }
    }
}

/// Keeps the kernel's unsent queue short, so that Control and URG frames sealed later do not wait behind it.
#[allow(unsafe_code)]
fn limit_unsent(socket: &TcpStream) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // the bound fits an int
    let octets = limits::IN_FLIGHT_OCTETS_MAX as libc::c_int;
    // SAFETY: passes the address and size of a live int; failure only costs latency.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            std::ptr::from_ref(&octets).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Finds a peer dead that cannot be probed with PING, since it speaks no HELLO (ruling R6).
fn keep_alive(socket: &TcpStream) {
    let socket = socket2::SockRef::from(socket);
    let probe = socket2::TcpKeepalive::new()
        .with_time(limits::IDLE_PROBE_TIME)
        .with_interval(limits::PROBE_TIMEOUT / 3)
        .with_retries(3);
    let set = socket.set_tcp_keepalive(&probe).and_then(|()| {
        socket.set_tcp_user_timeout(Some(limits::IDLE_PROBE_TIME + limits::PROBE_TIMEOUT))
    });
    if let Err(error) = set {
        tracing::debug!(%error, "TCP keep-alive could not be set");
    }
}
