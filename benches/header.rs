//! The 36-octet frame header, CRC32C included (`src/wire/header.rs`).
#![allow(missing_docs)] // criterion_group! makes public items

use criterion::{Criterion, criterion_group, criterion_main};
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header};
use std::hint::black_box;

fn header(criterion: &mut Criterion) {
    let header = Header {
        flags: Flags::ENC,
        frame_type: FrameType::BRIDGE_STREAM_DATA,
        channel: ChannelId::BRIDGE,
        sequence: 81_985_529_216_486_895,
        payload_length: 320,
    };
    let octets = header.encode();
    let mut group = criterion.benchmark_group("header");
    group.bench_function("encode", |bencher| {
        bencher.iter(|| black_box(&header).encode());
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| Header::decode(black_box(&octets)));
    });
    group.finish();
}

criterion_group!(benches, header);
criterion_main!(benches);
