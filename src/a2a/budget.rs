//! The octets that all mappers of a process hold together, one atomic.

use crate::limits::PROCESS_OCTETS_MAX;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on octets, shared by mappers.
#[derive(Debug)]
pub struct OctetBudget {
    held: AtomicUsize,
    max: usize,
}

impl Default for OctetBudget {
    fn default() -> Self {
        Self::new(PROCESS_OCTETS_MAX)
    }
}

impl OctetBudget {
    /// A budget of `max` octets.
    pub fn new(max: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            max,
        }
    }

    /// Takes `octets`, or nothing when they do not fit.
    pub fn take(&self, octets: usize) -> bool {
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(octets).filter(|&sum| sum <= self.max)
            })
            .is_ok()
    }

    /// Takes `octets` that cannot be done without, beyond the bound if need be.
    pub fn force(&self, octets: usize) {
        self.held.fetch_add(octets, Ordering::Relaxed);
    }

    /// Gives back what was taken.
    pub fn give(&self, octets: usize) {
        let before = self.held.fetch_sub(octets, Ordering::Relaxed);
        debug_assert!(before >= octets, "only what was taken is given back");
    }

    /// Octets taken now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_within_its_bound() {
        let budget = OctetBudget::new(10);
        assert!(budget.take(10));
        assert!(!budget.take(1));
        assert!(!budget.take(usize::MAX));
        budget.give(4);
        assert!(budget.take(4));
        assert_eq!(budget.held(), 10);
    }
}
