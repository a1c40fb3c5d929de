//! Counters that any room may keep and `observe` reads: one array of atomics
//! per reason enumeration. No registry, no lock, no formatting.
#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// An enumeration whose values name what a counter counts.
pub trait Reason: Copy + 'static {
    /// Every value, in index order.
    const ALL: &'static [Self];
    /// Position of this value in [`Reason::ALL`].
    fn index(self) -> usize;
    /// The Prometheus label value: lower case, words joined by `_`.
    fn label(self) -> &'static str;
}

/// Declares an enumeration that implements [`Reason`].
#[macro_export]
macro_rules! reasons {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident => $label:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$vmeta])* $variant),+ }
        impl $crate::stats::Reason for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn index(self) -> usize { self as usize }
            fn label(self) -> &'static str { match self { $(Self::$variant => $label),+ } }
        }
    };
}

/// One monotonic counter per value of `R`. Relaxed atomics: a reader sees each
/// counter whole, not all of them at one instant.
#[derive(Debug)]
pub struct Counters<R> {
    cells: Box<[AtomicU64]>,
    reasons: PhantomData<R>,
}

impl<R: Reason> Default for Counters<R> {
    fn default() -> Self {
        Self {
            cells: R::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            reasons: PhantomData,
        }
    }
}

impl<R: Reason> Counters<R> {
    /// Adds one.
    pub fn count(&self, reason: R) {
        self.add(reason, 1);
    }

    /// Adds `n`.
    pub fn add(&self, reason: R, n: u64) {
        self.cells[reason.index()].fetch_add(n, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self, reason: R) -> u64 {
        self.cells[reason.index()].load(Ordering::Relaxed)
    }

    /// Every reason with its value.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }

    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, n)| n).sum()
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes `n` away. Never below zero in a correct program; saturates.
    pub fn sub(&self, n: u64) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| {
                Some(v.saturating_sub(n))
            });
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        /// Test reasons.
        enum Fruit { /// a
            Apple => "apple", /// b
            Pear => "pear" }
    }

    #[test]
    fn counts_by_reason() {
        let counters = Counters::<Fruit>::default();
        counters.count(Fruit::Pear);
        counters.add(Fruit::Pear, 2);
        assert_eq!(counters.get(Fruit::Pear), 3);
        assert_eq!(counters.get(Fruit::Apple), 0);
        assert_eq!(counters.total(), 3);
        assert_eq!(Fruit::Pear.label(), "pear");
    }

    #[test]
    fn gauge_saturates_at_zero() {
        let gauge = Gauge::default();
        gauge.add(2);
        gauge.sub(5);
        assert_eq!(gauge.get(), 0);
    }
}
