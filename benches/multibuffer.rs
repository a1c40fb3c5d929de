//! Sealing and opening frames together (`src/crypto/multibuffer/`) against one
//! after the other with `ring`, in one run: batches of 64 by octets of plaintext
//! under one key and under a key for each frame, and a batch of 8 of mixed
//! lengths. Opening works in place, so its figures hold one copy of the frames.
#![allow(missing_docs)] // criterion_group! makes public items

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::crypto::{KeyIv, Suite, TAG_LEN, TrafficKey};
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header};
use std::hint::black_box;

const BATCH: usize = 64;
const MIXED: [usize; 8] = [64, 300, 40, 1024, 120, 17, 512, 256];

struct Batch {
    keys: Vec<TrafficKey>,
    headers: Vec<Header>,
    octets: Vec<u8>,
}

impl Batch {
    fn new(lengths: &[usize], keys: usize) -> Self {
        let key =
            |i: usize| KeyIv::new(&[i as u8; 32], &[9; 12]).into_traffic_key(Suite::Aes256Gcm);
        let header = |(i, octets): (usize, &usize)| Header {
            flags: Flags::ENC,
            frame_type: FrameType::BRIDGE_STREAM_DATA,
            channel: ChannelId::BRIDGE,
            sequence: i as u64,
            payload_length: (octets + TAG_LEN) as u32,
        };
        let octets = lengths.iter().map(|octets| Header::LEN + octets + TAG_LEN);
        Self {
            keys: (0..keys).map(key).collect(),
            headers: lengths.iter().enumerate().map(header).collect(),
            octets: vec![0xa5; octets.sum()],
        }
    }

    fn frames<'a>(
        &'a self,
        mut octets: &'a mut [u8],
    ) -> impl Iterator<Item = (&'a TrafficKey, Header, &'a mut [u8])> {
        self.headers.iter().enumerate().map(move |(i, header)| {
            let length = Header::LEN + header.payload_length as usize;
            let (frame, rest) = std::mem::take(&mut octets).split_at_mut(length);
            octets = rest;
            (&self.keys[i % self.keys.len()], *header, frame)
        })
    }
}

fn shape(criterion: &mut Criterion, name: &str, lengths: &[usize], keys: usize) {
    let batch = Batch::new(lengths, keys);
    let mut octets = batch.octets.clone();
    let mut group = criterion.benchmark_group(format!("multibuffer/{name}"));
    group.throughput(Throughput::Elements(lengths.len() as u64));
    group.bench_function(BenchmarkId::new("seal", "together"), |bencher| {
        bencher.iter(|| TrafficKey::seal_all(batch.frames(&mut octets)));
    });
    group.bench_function(BenchmarkId::new("seal", "ring"), |bencher| {
        bencher.iter(|| {
            for (key, header, frame) in batch.frames(&mut octets) {
                key.seal(&header, frame);
            }
        });
    });
    let mut sealed = batch.octets.clone();
    TrafficKey::seal_all(batch.frames(&mut sealed));
    group.bench_function(BenchmarkId::new("open", "together"), |bencher| {
        bencher.iter(|| {
            octets.copy_from_slice(&sealed);
            TrafficKey::open_all(batch.frames(&mut octets), |_, verified| assert!(verified));
        });
    });
    group.bench_function(BenchmarkId::new("open", "ring"), |bencher| {
        bencher.iter(|| {
            octets.copy_from_slice(&sealed);
            for (key, header, frame) in batch.frames(&mut octets) {
                let opened = key.open(&header, &mut frame[Header::LEN..]);
                assert!(black_box(opened).is_ok());
            }
        });
    });
    group.finish();
}

fn multibuffer(criterion: &mut Criterion) {
    for octets in [64, 256, 1024, 4096, 16384] {
        for (name, keys) in [("one key", 1), ("a key each", BATCH)] {
            let name = format!("{BATCH} of {octets}, {name}");
            shape(criterion, &name, &[octets; BATCH], keys);
        }
    }
    shape(criterion, "8 mixed, one key", &MIXED, 1);
    shape(criterion, "8 mixed, a key each", &MIXED, MIXED.len());
    shape(criterion, "1 of 64", &[64], 1);
    shape(criterion, "1 of 1024", &[1024], 1);
    shape(criterion, "2 of 64, one key", &[64; 2], 1);
    shape(criterion, "2 of 1024, one key", &[1024; 2], 1);
}

criterion_group!(benches, multibuffer);
criterion_main!(benches);
