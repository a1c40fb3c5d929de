//! Where the generator's threads meet: they begin together once each is ready,
//! and all hear that one cannot be, or that the user has seen enough.

use npamp_relay::engine::clock::now;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// From the last thread's readiness to the beginning, so that each hears of it in time.
const LEAD: Duration = Duration::from_millis(5);
/// How often a waiting thread looks.
pub const LOOK_TIME: Duration = Duration::from_millis(1);

/// See the module.
pub struct Gate {
    threads: usize,
    ready: AtomicUsize,
    start: OnceLock<Instant>,
    failed: AtomicBool,
    interrupt: Arc<AtomicBool>,
}

impl Gate {
    /// For so many threads; `interrupt` becomes true when the user has seen enough.
    pub fn new(threads: usize, interrupt: Arc<AtomicBool>) -> Self {
        Self {
            threads,
            ready: AtomicUsize::new(0),
            start: OnceLock::new(),
            failed: AtomicBool::new(false),
            interrupt,
        }
    }

    /// A thread is ready. To be called once by each.
    pub fn arrive(&self) {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            let _ = self.start.set(now() + LEAD);
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
        let gate = Gate::new(2, interrupt.clone());
        gate.arrive();
        assert_eq!(gate.start(), None);
        gate.arrive();
        assert!(gate.start().is_some());
        assert!(!gate.has_failed() && !gate.is_interrupted());
        gate.fail();
        interrupt.store(true, Ordering::Relaxed);
        assert!(gate.has_failed() && gate.is_interrupted());
    }
}
