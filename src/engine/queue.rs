//! A bounded lock-free queue between one producer thread and one consumer
//! thread, bounded in values and in octets, with a doorbell.
//!
//! Contract: `push` never blocks and never drops; a full queue gives the value
//! back and the producer must keep it and stop its source. `pop` never blocks.
//! The consumer that wants to sleep says so first, looks once more, then
//! sleeps; a producer rings only a consumer that said so.

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Wakes the consumer of a queue.
pub trait Doorbell: Send + Sync {
    /// Wakes the consumer if it sleeps or is about to.
    fn ring(&self);
}

impl Doorbell for super::wake::Wake {
    fn ring(&self) {
        super::wake::Wake::ring(self);
    }
}

/// How many octets a value weighs in a queue.
pub trait Weight {
    /// Octets, payload only.
    fn octets(&self) -> usize;
}

struct Shared<T> {
    values: ArrayQueue<T>,
    octets: CachePadded<AtomicUsize>,
    octets_max: usize,
    doorbell: Arc<dyn Doorbell>,
}

/// The producing end.
pub struct Producer<T>(Arc<Shared<T>>);

/// The consuming end.
pub struct Consumer<T>(Arc<Shared<T>>);

/// A queue of at most `values_max` values that weigh at most `octets_max`
/// together; a single heavier value is let in when the queue is empty.
pub fn bounded<T: Weight>(
    values_max: usize,
    octets_max: usize,
    doorbell: Arc<dyn Doorbell>,
) -> (Producer<T>, Consumer<T>) {
    let shared = Arc::new(Shared {
        values: ArrayQueue::new(values_max),
        octets: CachePadded::new(AtomicUsize::new(0)),
        octets_max,
        doorbell,
    });
    (Producer(shared.clone()), Consumer(shared))
}

impl<T: Weight> Producer<T> {
    /// Queues `value`, or gives it back when the queue is full. The consumer is not rung: see [`Producer::ring`].
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let octets = value.octets();
        let held = self.0.octets.load(Ordering::Acquire);
        if held != 0 && held + octets > self.0.octets_max {
            return Err(value);
        }
        // Counted before it is visible, so that the consumer never takes away what was not added.
        self.0.octets.fetch_add(octets, Ordering::AcqRel);
        self.0.values.push(value).inspect_err(|_| {
            self.0.octets.fetch_sub(octets, Ordering::AcqRel);
        })
    }

    /// How many values wait to be taken.
    pub fn waiting(&self) -> usize {
        self.0.values.len()
    }

    /// Wakes the consumer; once after a burst of pushes.
    pub fn ring(&self) {
        self.0.doorbell.ring();
    }
}

impl<T: Weight> Consumer<T> {
    /// The oldest value.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.0.values.pop()?;
        self.0.octets.fetch_sub(value.octets(), Ordering::AcqRel);
        Some(value)
    }

    /// Whether there is nothing to pop.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;
    impl Doorbell for Silent {
        fn ring(&self) {}
    }

    #[derive(Debug, PartialEq)]
    struct Heavy(usize, u64);
    impl Weight for Heavy {
        fn octets(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn bounded_in_values_and_octets() {
        let (mut producer, mut consumer) = bounded(2, 10, Arc::new(Silent));
        producer.push(Heavy(4, 0)).unwrap();
        assert_eq!(producer.push(Heavy(7, 1)), Err(Heavy(7, 1)));
        producer.push(Heavy(6, 2)).unwrap();
        assert_eq!(producer.push(Heavy(0, 3)), Err(Heavy(0, 3)));
        assert_eq!(producer.waiting(), 2);
        assert_eq!(consumer.pop(), Some(Heavy(4, 0)));
        assert_eq!(consumer.pop(), Some(Heavy(6, 2)));
        assert_eq!(consumer.pop(), None);
        producer
            .push(Heavy(100, 4))
            .expect("one heavy value fits an empty queue");
        assert_eq!(consumer.pop(), Some(Heavy(100, 4)));
        assert!(consumer.is_empty());
    }

    #[test]
    fn everything_arrives_in_order_across_threads() {
        let count = if cfg!(miri) { 200 } else { 200_000 };
        let (mut producer, mut consumer) = bounded(64, 1000, Arc::new(Silent));
        let sender = std::thread::spawn(move || {
            for n in 0..count {
                let mut value = Heavy((n % 37) as usize, n);
                while let Err(back) = producer.push(value) {
                    value = back;
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < count {
            match consumer.pop() {
                Some(Heavy(_, n)) => {
                    assert_eq!(n, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        sender.join().unwrap();
        assert!(consumer.is_empty());
    }
}
