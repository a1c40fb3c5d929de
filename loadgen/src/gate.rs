//! Where the generator's threads meet: they begin together once each is ready,
//! and all hear that one cannot be, or that the user has seen enough.

use crate::heap;
use crate::process::Process;
use npamp_relay::engine::clock::now;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// From the last thread's readiness to the beginning, so that each hears of it in time.
const LEAD: Duration = Duration::from_millis(5);
/// How often a waiting thread looks.
pub const LOOK_TIME: Duration = Duration::from_millis(1);

/// What the associations of a process take, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// When.
    pub at: Instant,
    /// Resident octets of the responder's process, where it is known.
    pub rss_octets: Option<u64>,
    /// Octets that this process's allocator has given out.
    pub heap_octets: Option<u64>,
}

/// See the module.
pub struct Gate {
    threads: usize,
    ready: AtomicUsize,
    start: OnceLock<Instant>,
    process: Option<Process>,
    opened: OnceLock<Memory>,
    opening: OnceLock<Memory>,
    failed: AtomicBool,
    interrupt: Arc<AtomicBool>,
}

impl Gate {
    /// For so many threads; `interrupt` becomes true when the user has seen enough.
    /// `process` is the responder's.
    pub fn new(threads: usize, process: Option<Process>, interrupt: Arc<AtomicBool>) -> Self {
        Self {
            threads,
            ready: AtomicUsize::new(0),
            start: OnceLock::new(),
            process,
            opening: OnceLock::new(),
            opened: OnceLock::new(),
            failed: AtomicBool::new(false),
            interrupt,
        }
    }

    /// A thread is ready. To be called once by each.
    pub fn arrive(&self) {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            if self.opening.get().is_some() {
                let _ = self.opened.set(self.memory());
            }
            let _ = self.start.set(now() + LEAD);
        }
    }

    /// A thread begins to open what it only holds: what is there before is no part of that.
    pub fn open(&self) {
        self.opening.get_or_init(|| self.memory());
    }

    /// Memory before and after what is only held was opened.
    pub fn held(&self) -> Option<(Memory, Memory)> {
        Some((*self.opening.get()?, *self.opened.get()?))
    }

    fn memory(&self) -> Memory {
        Memory {
            at: now(),
            rss_octets: self.process.and_then(Process::rss_octets),
            heap_octets: heap::allocated(),
        }
    }

    /// When all begin; none as long as one is not ready.
    pub fn start(&self) -> Option<Instant> {
        self.start.get().copied()
    }

    /// A thread will never be ready.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether one will never be.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether the user has seen enough.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_begin_when_the_last_is_ready() {
        let interrupt = Arc::new(AtomicBool::new(false));
        let gate = Gate::new(2, Some(Process::Own), interrupt.clone());
        gate.arrive();
        assert_eq!(gate.start(), None);
        assert!(gate.held().is_none());
        gate.open();
        gate.arrive();
        let (before, after) = gate.held().unwrap();
        assert!(before.at <= after.at && after.rss_octets.is_some());
        assert!(gate.start().is_some());
        assert!(!gate.has_failed() && !gate.is_interrupted());
        gate.fail();
        interrupt.store(true, Ordering::Relaxed);
        assert!(gate.has_failed() && gate.is_interrupted());
    }
}
