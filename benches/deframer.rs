//! Cutting received octets into frames (`src/wire/deframer.rs`): 64 KiB of
//! frames of 356 octets, whole, and so cut that one frame in each read straddles.
#![allow(missing_docs)] // criterion_group! makes public items

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::limits::FRAME_OCTETS_MAX;
use npamp_relay::wire::{ChannelId, Deframer, Flags, FrameType, Header, HeaderError};

const FRAME_OCTETS: usize = 356;
const READ_OCTETS: usize = 64 * 1024;

fn deframer(criterion: &mut Criterion) {
    let frames = READ_OCTETS / FRAME_OCTETS;
    let mut octets = Vec::new();
    for sequence in 0..frames as u64 {
        let header = Header {
            flags: Flags::ENC,
            frame_type: FrameType::BRIDGE_STREAM_DATA,
            channel: ChannelId::BRIDGE,
            sequence,
            payload_length: (FRAME_OCTETS - Header::LEN) as u32,
        };
        octets.extend_from_slice(&header.encode());
        octets.resize(octets.len() + FRAME_OCTETS - Header::LEN, 0xa5);
    }
    let mut group = criterion.benchmark_group("deframer");
    group.throughput(Throughput::Elements(frames as u64));
    for (name, first) in [("whole", 0), ("straddling", FRAME_OCTETS / 2)] {
        let mut deframer = Deframer::new(FRAME_OCTETS_MAX);
        let mut octets = octets.clone();
        // Each read begins in the middle of a frame and ends in the middle of another.
        octets.rotate_left(first);
        if first > 0 {
            let mut half = octets[octets.len() - first..].to_vec();
            deframer
                .push::<HeaderError>(&mut half, |_, _| Ok(()))
                .expect("half a frame");
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut seen = 0;
                deframer
                    .push::<HeaderError>(&mut octets, |_, payload| {
                        seen += payload.len();
                        Ok(())
                    })
                    .expect("good frames");
                seen
            });
        });
    }
    group.finish();
}

criterion_group!(benches, deframer);
criterion_main!(benches);
