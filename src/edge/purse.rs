//! The octets of a unit's windows. All units share one bound; each takes from it
//! in large pieces, so that an event costs no write to what other cores read.

use crate::a2a::budget::OctetBudget;
use std::cell::Cell;
use std::sync::Arc;

/// Octets that are taken from the shared bound at once.
const PIECE_OCTETS: usize = 256 * 1024;

/// See the module.
pub(super) struct Purse {
    shared: Arc<OctetBudget>,
    /// Taken from the shared bound.
    granted: Cell<usize>,
    held: Cell<usize>,
}

impl Purse {
    pub(super) fn new(shared: Arc<OctetBudget>) -> Self {
        Self {
            shared,
            granted: Cell::new(0),
            held: Cell::new(0),
        }
    }

    /// Octets held by this unit's windows.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Takes `octets`, or nothing when they do not fit.
    pub(super) fn take(&self, octets: usize) -> bool {
        let (held, granted) = (self.held.get() + octets, self.granted.get());
        if held > granted {
            let missing = held - granted;
            let piece = missing.max(PIECE_OCTETS);
            if self.shared.take(piece) {
                self.granted.set(granted + piece);
            } else if self.shared.take(missing) {
                self.granted.set(granted + missing);
            } else {
                return false;
            }
        }
        self.held.set(held);
        true
    }

    /// Takes `octets` that cannot be done without, beyond the bound if need be.
    pub(super) fn force(&self, octets: usize) {
        if !self.take(octets) {
            let held = self.held.get() + octets;
            let missing = held.saturating_sub(self.granted.get());
            self.shared.force(missing);
            self.granted.set(self.granted.get() + missing);
            self.held.set(held);
        }
    }

    /// Gives `octets` back.
    pub(super) fn give(&self, octets: usize) {
        debug_assert!(self.held.get() >= octets, "only what was taken");
        let held = self.held.get().saturating_sub(octets);
        self.held.set(held);
        let spare = self.granted.get() - held;
        let back = if held == 0 {
            spare
        } else if spare > 2 * PIECE_OCTETS {
            spare - PIECE_OCTETS
        } else {
            return;
        };
        self.granted.set(self.granted.get() - back);
        self.shared.give(back);
    }
}

impl Drop for Purse {
    fn drop(&mut self) {
        self.shared.give(self.granted.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_and_all_comes_back() {
        let shared = Arc::new(OctetBudget::new(PIECE_OCTETS + 100));
        let (one, other) = (Purse::new(shared.clone()), Purse::new(shared.clone()));
        assert!(one.take(10) && one.take(20));
        assert_eq!((one.held(), shared.held()), (30, PIECE_OCTETS));
        assert!(other.take(100), "what is left, exactly");
        assert!(!other.take(1));
        other.force(50);
        assert_eq!((other.held(), shared.held()), (150, PIECE_OCTETS + 150));
        assert!(one.take(PIECE_OCTETS - 30));
        assert!(!one.take(1));
        other.give(150);
        one.give(PIECE_OCTETS);
        assert_eq!(shared.held(), 0);
    }

    #[test]
    fn what_is_spare_goes_back() {
        let shared = Arc::new(OctetBudget::new(100 * PIECE_OCTETS));
        let purse = Purse::new(shared.clone());
        assert!(purse.take(10 * PIECE_OCTETS));
        purse.give(9 * PIECE_OCTETS);
        assert_eq!(shared.held(), 2 * PIECE_OCTETS);
        drop(purse);
        assert_eq!(shared.held(), 0);
    }
}
