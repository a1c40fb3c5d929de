//! Sealing and opening one frame (`src/crypto/record.rs`), per suite and octets
//! of plaintext. Opening works in place, so its figures hold one copy of the
//! sealed payload.
#![allow(missing_docs)] // criterion_group! makes public items

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::crypto::{KeyIv, Suite, TAG_LEN};
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header};

const SIZES: [usize; 6] = [64, 256, 1024, 4 * 1024, 16 * 1024, 64 * 1024];

fn record(criterion: &mut Criterion) {
    for suite in Suite::ALL {
        let key = KeyIv::new(&[7; 32], &[9; 12]).into_traffic_key(suite);
        let mut group = criterion.benchmark_group(format!("record/{}", suite.name()));
        for octets in SIZES {
            let mut header = Header {
                flags: Flags::ENC,
                frame_type: FrameType::BRIDGE_STREAM_DATA,
                channel: ChannelId::BRIDGE,
                sequence: 0,
                payload_length: (octets + TAG_LEN) as u32,
            };
            let mut frame = vec![0xa5; Header::LEN + octets + TAG_LEN];
            group.throughput(Throughput::Bytes(octets as u64));
            group.bench_function(BenchmarkId::new("seal", octets), |bencher| {
                bencher.iter(|| {
                    header.sequence += 1;
                    key.seal(&header, &mut frame);
                });
            });
            key.seal(&header, &mut frame);
            let sealed = frame[Header::LEN..].to_vec();
            let mut payload = sealed.clone();
            group.bench_function(BenchmarkId::new("open", octets), |bencher| {
                bencher.iter(|| {
                    payload.copy_from_slice(&sealed);
                    key.open(&header, &mut payload)
                        .map(|plaintext| plaintext.len())
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, record);
criterion_main!(benches);
