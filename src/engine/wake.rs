//! The doorbell of a thread that sleeps in a tokio runtime: an eventfd that the
//! thread's ring and other threads ring alike.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An eventfd and whether its owner is about to sleep on it.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Wake {
    /// A new doorbell, non-blocking.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointer; a negative result is checked before it becomes an OwnedFd.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the owner if it sleeps or is about to. Costs one atomic exchange when it is awake.
    pub fn ring(&self) {
        // Sequentially consistent, as is `prepare_sleep`: of "I push, then look whether you
        // sleep" and "I say that I sleep, then look for what was pushed" one must see the other.
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ring_always();
        }
    }

    /// Wakes the owner whether or not it said that it sleeps.
    pub fn ring_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes 8 octets of a live local to an eventfd we own. A full counter
        // (EAGAIN) already means "awake", so the result does not matter.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// The owner says that it is going to sleep; it must look at its queues once more afterwards.
    pub fn prepare_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// The owner is awake again, and heard of it by [`Doorbell::rung`] or not at all: what
    /// rang stays in the counter, since the next ring is an event of its own there.
    pub fn stay_awake(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    /// The owner is awake again; takes what rang, so that a poll of the descriptor sleeps next time.
    pub fn awake(&self) {
        self.stay_awake();
        let mut count = [0u8; 8];
        // SAFETY: reads at most 8 octets into a live local; EAGAIN means there was nothing.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// The owner's side in its tokio runtime.
#[derive(Debug)]
pub struct Doorbell(AsyncFd<Arc<Wake>>);

impl Doorbell {
    /// Must be called inside the owner's runtime.
    pub fn new(wake: Arc<Wake>) -> io::Result<Self> {
        // SAFETY: `Wake` owns its descriptor, always gives the same one, and lives as long as
        // the `AsyncFd` that holds it, so that nothing else can take its number meanwhile.
        let watched = unsafe { AsyncFd::register_with_interest(wake, Interest::READABLE) };
        Ok(Self(watched.map_err(|error| error.into_parts().1)?))
    }

    /// Resolves when the doorbell has been rung since it last did. The runtime watches for
    /// edges, and each ring is one whatever the counter holds: it need not be read.
    pub async fn rung(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
