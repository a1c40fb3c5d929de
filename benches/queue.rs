//! The bounded queue between a unit and a worker (`src/engine/queue.rs`): on one
//! thread, and from one thread to another.
#![allow(missing_docs)] // criterion_group! makes public items
#![allow(clippy::disallowed_methods)] // a bench reads the clock and starts threads

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::engine::queue::{Consumer, Doorbell, Weight, bounded};
use npamp_relay::limits::{QUEUE_FRAMES_MAX, QUEUE_OCTETS_MAX};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A value as large as what crosses in operation.
struct Value([u64; 8]);

impl Weight for Value {
    fn octets(&self) -> usize {
        256
    }
}

struct Silent;

impl Doorbell for Silent {
    fn ring(&self) {}
}

fn take(consumer: &mut Consumer<Value>, count: u64) {
    let mut taken = 0;
    while taken < count {
        match consumer.pop() {
            Some(Value([n, ..])) => {
                assert_eq!(n, taken);
                taken += 1;
            }
            None => std::hint::spin_loop(),
        }
    }
}

fn across(count: u64) -> Duration {
    let (mut producer, mut consumer) =
        bounded(QUEUE_FRAMES_MAX, QUEUE_OCTETS_MAX, Arc::new(Silent));
    let barrier = Arc::new(Barrier::new(2));
    let other = barrier.clone();
    let thread = std::thread::spawn(move || {
        other.wait();
        take(&mut consumer, count);
    });
    barrier.wait();
    let start = Instant::now();
    for n in 0..count {
        let mut value = Value([n; 8]);
        while let Err(back) = producer.push(value) {
            value = back;
            std::thread::yield_now();
        }
    }
    thread.join().expect("the consumer");
    start.elapsed()
}

fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    group.throughput(Throughput::Elements(1));
    let (mut producer, mut consumer) =
        bounded(QUEUE_FRAMES_MAX, QUEUE_OCTETS_MAX, Arc::new(Silent));
    group.bench_function("push and pop, one thread", |bencher| {
        bencher.iter(|| {
            assert!(producer.push(Value([1; 8])).is_ok());
            consumer.pop().map(|value| value.0[0])
        });
    });
    group.bench_function("across threads", |bencher| bencher.iter_custom(across));
    group.finish();
}

criterion_group!(benches, queue);
criterion_main!(benches);
