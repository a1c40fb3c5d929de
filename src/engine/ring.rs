//! A raw ring with provided buffers: credited multishot receives, plain sends,
//! and a registered eventfd as doorbell. Knows sockets by slot, nothing of what
//! they carry.
#![allow(unsafe_code)]

use super::buffers::{BufferRing, GROUP};
use super::clock::now;
use super::wake::Wake;
use crate::limits;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Entries of the submission queue. A turn that queues more submits in between.
const ENTRIES: u32 = 1024;
/// Offset of `optlen` in a submission entry: the total that a multishot receive may take.
const OPTLEN_OFFSET: usize = 44;

/// What completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Octets arrived in a provided buffer, which must be given back.
    Received {
        /// Socket.
        slot: u32,
        /// Buffer.
        buffer: u16,
        /// Octets in it.
        octets: usize,
        /// The receive is still armed.
        armed: bool,
    },
    /// A receive ended without octets: 0 at the end of the stream, else an errno.
    ReceiveEnded {
        /// Socket.
        slot: u32,
        /// Errno, 0 for end of stream.
        errno: i32,
    },
    /// A send ended: octets sent, or an errno.
    Sent {
        /// Socket.
        slot: u32,
        /// Octets, or an errno.
        result: Result<usize, i32>,
    },
}

const KIND_RECEIVE: u64 = 1;
const KIND_SEND: u64 = 2;

fn token(kind: u64, slot: u32) -> u64 {
    kind << 32 | u64::from(slot)
}

/// The ring of one shard. Must be used on the thread that made it.
pub struct Ring {
    // Declared before `buffers`: the ring closes first, then its memory goes.
    io: IoUring,
    buffers: BufferRing,
    wake: Arc<Wake>,
    /// Slots below this may be registered files; 0 once the kernel refused one.
    files: u32,
    /// Which slots are.
    registered: Vec<bool>,
    /// Operations whose completion has not been seen; memory must outlive them.
    in_flight: u64,
    credited: bool,
}

impl Ring {
    /// Builds the ring on the calling thread.
    pub fn new(wake: Arc<Wake>) -> io::Result<Self> {
        let io = build()?;
        io.submitter().register_eventfd(wake.as_raw_fd())?;
        let files = registered_files(&io);
        let buffers = BufferRing::new(&io, limits::RECEIVE_BUFFERS, limits::RECEIVE_BUFFER_OCTETS)?;
        let mut ring = Self {
            io,
            buffers,
            wake,
            files,
            registered: Vec::new(),
            in_flight: 0,
            credited: true,
        };
        ring.credited = ring.probe_credit()?;
        Ok(ring)
    }

    /// Whether multishot receives stop at their credit on this kernel. Single-shot receives are used elsewhere.
    pub fn is_credited(&self) -> bool {
        self.credited
    }

    /// The doorbell that completions ring.
    pub fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Registers a socket in `slot`, so that operations on it skip the descriptor table.
    pub fn register(&mut self, slot: u32, fd: RawFd) {
        if slot >= self.files {
            return;
        }
        match self.io.submitter().register_files_update(slot, &[fd]) {
            Ok(_) => {
                let at = slot as usize;
                if self.registered.len() <= at {
                    self.registered.resize(at + 1, false);
                }
                self.registered[at] = true;
            }
            // A kernel that refuses once would refuse again: plain descriptors
            // from here on. What is registered stays so until it is forgotten.
            Err(_) => self.files = 0,
        }
    }

    fn is_registered(&self, slot: u32) -> bool {
        self.registered
            .get(slot as usize)
            .is_some_and(|&registered| registered)
    }

    /// Forgets a socket; its operations have completed.
    pub fn unregister(&mut self, slot: u32) {
        // A table that still holds the file would keep its connection open.
        if self.is_registered(slot) {
            self.registered[slot as usize] = false;
            let _ = self.io.submitter().register_files_update(slot, &[-1]);
        }
    }

    /// Arms a receive into provided buffers.
    pub fn receive(&mut self, slot: u32, fd: RawFd) -> io::Result<()> {
        let credit = self.credited.then_some(limits::RECEIVE_CREDIT_OCTETS);
        let entry = match (credit, self.is_registered(slot)) {
            (Some(credit), true) => with_credit(
                opcode::RecvMulti::new(types::Fixed(slot), GROUP).build(),
                credit,
            ),
            (Some(credit), false) => {
                with_credit(opcode::RecvMulti::new(types::Fd(fd), GROUP).build(), credit)
            }
            (None, true) => single(opcode::Recv::new(
                types::Fixed(slot),
                std::ptr::null_mut(),
                0,
            )),
            (None, false) => single(opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)),
        };
        // SAFETY: the only memory this names is the provided buffers, which outlive the ring's operations.
        unsafe { self.push(&entry.user_data(token(KIND_RECEIVE, slot))) }
    }

    /// Sends all of `octets`.
    ///
    /// # Safety
    /// `octets` must stay where it is and unchanged until [`Completion::Sent`] for this slot.
    pub unsafe fn send(&mut self, slot: u32, fd: RawFd, octets: &[u8]) -> io::Result<()> {
        let length = u32::try_from(octets.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = if self.is_registered(slot) {
            opcode::Send::new(types::Fixed(slot), octets.as_ptr(), length)
                .flags(flags)
                .build()
        } else {
            opcode::Send::new(types::Fd(fd), octets.as_ptr(), length)
                .flags(flags)
                .build()
        };
        // SAFETY: the caller keeps `octets` alive and still until the completion.
        unsafe { self.push(&entry.user_data(token(KIND_SEND, slot))) }
    }

    /// # Safety
    /// Memory named by `entry` must outlive the operation.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: passed on from the caller.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                self.in_flight += 1;
                return Ok(());
            }
            match self.io.submit() {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                submitted => drop(submitted?),
            }
        }
    }

    /// Whether [`Ring::enter`] would find something to do: something is queued, or the kernel
    /// has more to complete. It signals only the first of what it has, so an owner that sleeps
    /// on the rest is not woken.
    pub fn wants_to_be_entered(&mut self) -> bool {
        let queue = self.io.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Whether something is queued that no [`Ring::enter`] has submitted yet.
    pub fn has_queued(&mut self) -> bool {
        !self.io.submission().is_empty()
    }

    /// Whether a completion is posted that [`Ring::completions`] has not taken.
    pub fn has_completions(&mut self) -> bool {
        !self.io.completion().is_empty()
    }

    /// [`Ring::enter`], unless the kernel has said that it would find nothing to do:
    /// nothing is queued, and no operation waits for us to post its completion.
    pub fn enter_if_needed(&mut self) -> io::Result<()> {
        if self.wants_to_be_entered() {
            self.enter()
        } else {
            Ok(())
        }
    }

    /// Submits what is queued and lets the kernel post completions, without waiting.
    pub fn enter(&mut self) -> io::Result<()> {
        let queued = u32::try_from(self.io.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: GETEVENTS with a minimum of 0 and no signal mask touches no memory of ours.
        let result = unsafe {
            self.io
                .submitter()
                .enter::<libc::sigset_t>(queued, 0, ENTER_GETEVENTS, None)
        };
        match result {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Moves every posted completion into `out`.
    pub fn completions(&mut self, out: &mut Vec<Completion>) {
        let (mut done, mut unused) = (0, false);
        for entry in self.io.completion() {
            #[allow(clippy::cast_possible_truncation)] // the token was built from a u32
            let slot = entry.user_data() as u32;
            let more = cqueue::more(entry.flags());
            if !more {
                done += 1;
            }
            out.push(match (entry.user_data() >> 32, entry.result()) {
                (KIND_SEND, result) if result < 0 => Completion::Sent {
                    slot,
                    result: Err(-result),
                },
                (KIND_SEND, result) => Completion::Sent {
                    slot,
                    result: Ok(result.unsigned_abs() as usize),
                },
                (_, result) => match cqueue::buffer_select(entry.flags()) {
                    Some(buffer) if result > 0 => Completion::Received {
                        slot,
                        buffer,
                        octets: result.unsigned_abs() as usize,
                        armed: more,
                    },
                    buffer => {
                        // Some kernels take a buffer even for the end of a stream.
                        if let Some(buffer) = buffer {
                            self.buffers.give_back(buffer);
                            unused = true;
                        }
                        Completion::ReceiveEnded {
                            slot,
                            errno: (-result).max(0),
                        }
                    }
                },
            });
        }
        self.in_flight -= done;
        if unused {
            self.buffers.commit();
        }
    }

    /// Octets of a received buffer.
    pub fn received(&mut self, buffer: u16, octets: usize) -> &mut [u8] {
        self.buffers.received(buffer, octets)
    }

    /// Gives a buffer back to the kernel.
    pub fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
        self.buffers.commit();
    }

    /// Operations not yet completed.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Never unmaps the provided buffers: the kernel may still write to them.
    pub fn keep_memory(&mut self) {
        self.buffers.keep();
    }

    /// Asks the kernel, on a socket pair, whether it honours the credit of a multishot receive:
    /// whether the receive ends by itself once it took that much. It may overshoot by a buffer.
    fn probe_credit(&mut self) -> io::Result<bool> {
        const CREDIT: u32 = 1000;
        let (mut near, far) = UnixStream::pair()?;
        near.write_all(&[0; 3 * CREDIT as usize])?;
        let entry = with_credit(
            opcode::RecvMulti::new(types::Fd(far.as_raw_fd()), GROUP).build(),
            CREDIT,
        );
        // SAFETY: names only the provided buffers.
        unsafe { self.push(&entry.user_data(token(KIND_RECEIVE, u32::MAX)))? };
        let (mut taken, mut ended, mut completions) = (0, false, Vec::new());
        self.enter()?;
        self.completions(&mut completions);
        let mut near = Some(near);
        while !ended {
            for completion in completions.drain(..) {
                match completion {
                    Completion::Received {
                        buffer,
                        octets,
                        armed,
                        ..
                    } => {
                        taken += octets;
                        ended |= !armed;
                        self.give_back(buffer);
                    }
                    Completion::ReceiveEnded { errno, .. } => {
                        ended = true;
                        if errno != 0 && errno != libc::ENOBUFS {
                            return Ok(false);
                        }
                    }
                    Completion::Sent { .. } => {}
                }
            }
            if !ended {
                // Still armed: not credited. The end of the stream ends the receive.
                near = None;
                self.io.submit_and_wait(1)?;
                self.completions(&mut completions);
            }
        }
        Ok(near.is_some() && taken >= CREDIT as usize)
    }
}

const ENTER_GETEVENTS: u32 = 1;
/// How long memory for a ring is waited for.
const MEMORY_TIME: Duration = Duration::from_secs(2);

/// A ring of our kind. Not DEFER_TASKRUN, under which some kernels (6.18.44) put off the
/// signal of what arrives until an RCU grace period is over: the owner sleeps 20 ms on it.
/// The kernel counts its memory against the user's RLIMIT_MEMLOCK and
/// gives that of a killed process back late, so that a restart may have to wait for it.
fn build() -> io::Result<IoUring> {
    let give_up = now() + MEMORY_TIME;
    loop {
        let built = IoUring::builder()
            .setup_cqsize(ENTRIES * 8)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES);
        match built {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                if now() >= give_up {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("no memory for an io_uring; is RLIMIT_MEMLOCK enough? ({error})"),
                    ));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            built => return built,
        }
    }
}

fn single(receive: opcode::Recv) -> squeue::Entry {
    receive
        .buf_group(GROUP)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

#[allow(clippy::cast_ptr_alignment)] // entries are 8-aligned, the offset is a multiple of 4
fn with_credit(mut entry: squeue::Entry, credit: u32) -> squeue::Entry {
    const { assert!(std::mem::size_of::<squeue::Entry>() >= OPTLEN_OFFSET + 4) };
    // SAFETY: a submission entry is 64 octets of plain data, `repr(C)` as the kernel defines
    // it, and `optlen` lies at this 4-aligned offset inside it.
    unsafe {
        std::ptr::from_mut(&mut entry)
            .cast::<u8>()
            .add(OPTLEN_OFFSET)
            .cast::<u32>()
            .write(credit);
    };
    entry
}

/// Registers an empty file table as large as the process may use; 0 when the kernel refuses.
fn registered_files(io: &IoUring) -> u32 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit writes one struct that lives here.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let wanted = u32::try_from(
        limit
            .rlim_cur
            .min(limits::ASSOCIATIONS_PER_SHARD_MAX as u64),
    )
    .unwrap_or(0);
    match io.submitter().register_files_sparse(wanted) {
        Ok(()) => wanted,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn ring() -> Ring {
        Ring::new(Arc::new(Wake::new().unwrap())).unwrap()
    }

    fn settle(ring: &mut Ring, until: impl Fn(&[Completion]) -> bool) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..1000 {
            ring.enter().unwrap();
            ring.completions(&mut all);
            if until(&all) {
                return all;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("no completion: {all:?}");
    }

    #[test]
    fn receives_and_sends() {
        let mut ring = ring();
        let (mut near, far) = UnixStream::pair().unwrap();
        ring.register(3, far.as_raw_fd());
        ring.receive(3, far.as_raw_fd()).unwrap();
        near.write_all(b"hello").unwrap();
        let got = settle(&mut ring, |all| !all.is_empty());
        let Completion::Received {
            slot: 3,
            buffer,
            octets: 5,
            ..
        } = got[0]
        else {
            panic!("{got:?}")
        };
        assert_eq!(ring.received(buffer, 5), b"hello");
        ring.give_back(buffer);
        let answer = b"world".to_vec();
        // SAFETY: `answer` lives to the end of the test.
        unsafe { ring.send(3, far.as_raw_fd(), &answer).unwrap() };
        settle(&mut ring, |all| {
            all.contains(&Completion::Sent {
                slot: 3,
                result: Ok(5),
            })
        });
        let mut octets = [0; 5];
        near.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"world");
        drop(near);
        settle(&mut ring, |all| {
            all.contains(&Completion::ReceiveEnded { slot: 3, errno: 0 })
        });
        assert_eq!(ring.in_flight(), 0);
    }

    /// A file that stayed in the table would keep its connection open.
    #[test]
    fn files_are_forgotten_although_a_later_one_was_refused() {
        let mut ring = ring();
        let (mut near, far) = UnixStream::pair().unwrap();
        ring.register(0, far.as_raw_fd());
        assert!(ring.is_registered(0));
        ring.files = 0;
        let (_other, second) = UnixStream::pair().unwrap();
        ring.register(1, second.as_raw_fd());
        assert!(!ring.is_registered(1));
        near.write_all(b"x").unwrap();
        ring.receive(0, far.as_raw_fd()).unwrap();
        ring.receive(1, second.as_raw_fd()).unwrap();
        assert!(ring.has_queued());
        settle(&mut ring, |all| {
            let received = |c: &Completion| matches!(c, Completion::Received { slot: 0, .. });
            all.iter().any(received)
        });
        assert!(!ring.has_queued());
        far.shutdown(std::net::Shutdown::Read).unwrap();
        settle(&mut ring, |all| {
            all.contains(&Completion::ReceiveEnded { slot: 0, errno: 0 })
        });
        drop(far);
        near.set_read_timeout(Some(std::time::Duration::from_millis(50)))
            .unwrap();
        assert!(near.read(&mut [0]).is_err(), "the table holds it still");
        ring.unregister(0);
        near.set_read_timeout(Some(std::time::Duration::from_secs(5)))
            .unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        second.shutdown(std::net::Shutdown::Both).unwrap();
        settle(&mut ring, |all| {
            all.contains(&Completion::ReceiveEnded { slot: 1, errno: 0 })
        });
    }

    #[test]
    fn one_arming_takes_no_more_than_its_credit() {
        let mut ring = ring();
        let (mut near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let writer = std::thread::spawn(move || {
            let chunk = vec![7u8; 1 << 16];
            let mut sent = 0;
            let started = std::time::Instant::now();
            while started.elapsed() < std::time::Duration::from_millis(300) {
                match near.write(&chunk) {
                    Ok(n) => sent += n,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
                }
            }
            (near, sent)
        });
        ring.register(1, far.as_raw_fd());
        ring.receive(1, far.as_raw_fd()).unwrap();
        let mut taken = 0;
        let started = std::time::Instant::now();
        let mut ended = false;
        while started.elapsed() < std::time::Duration::from_millis(250) {
            ring.enter().unwrap();
            let mut completions = Vec::new();
            ring.completions(&mut completions);
            for completion in completions {
                if let Completion::Received {
                    buffer,
                    octets,
                    armed,
                    ..
                } = completion
                {
                    taken += octets;
                    ended |= !armed;
                    ring.give_back(buffer);
                }
            }
        }
        assert!(ended, "the receive must end by itself");
        let most = limits::RECEIVE_CREDIT_OCTETS as usize + limits::RECEIVE_BUFFER_OCTETS;
        assert!(taken < most, "{taken}");
        let (_near, sent) = writer.join().unwrap();
        assert!(sent > taken, "more was there to take");
    }
}
