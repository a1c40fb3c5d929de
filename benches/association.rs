//! One turn of an association (`src/association/`): N frames with payloads of 256
//! octets are queued, sealed into one buffer, deframed and opened at the other end.
#![allow(missing_docs)] // criterion_group! makes public items
#![allow(clippy::disallowed_methods)] // a bench reads the clock

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::association::Event;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::time::Instant;

fn association(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("association");
    // One moment for all: a turn reads the clock once, and not here.
    let now = Instant::now();
    for frames in [1, 16, 64, 256] {
        let (mut sender, mut receiver) = support::associations(now);
        let mut octets = Vec::new();
        group.throughput(Throughput::Elements(frames));
        group.bench_function(BenchmarkId::new("seal, deframe, open", frames), |bencher| {
            bencher.iter(|| {
                octets.clear();
                for _ in 0..frames {
                    sender
                        .send(
                            ChannelId::BRIDGE,
                            FrameType::BRIDGE_STREAM_DATA,
                            Flags::NONE,
                            vec![0xa5; 256],
                        )
                        .expect("room");
                }
                sender.poll_transmit(&mut octets, usize::MAX, now);
                let mut seen = 0;
                receiver
                    .handle_octets(&mut octets, now, &mut |event| {
                        seen += u64::from(matches!(event, Event::Frame { .. }));
                    })
                    .expect("good frames");
                assert_eq!(seen, frames);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, association);
criterion_main!(benches);
