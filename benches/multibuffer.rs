//! Sealing and opening messages together (`src/crypto/multibuffer/`) against one
//! after the other with `ring`, in one run and nothing but AEAD: 21 octets of
//! associated data, no header, no checksum. Batches of 64 by octets of plaintext
//! under one key and under a key for each message, on every path that the CPU
//! has; batches of 8 of mixed lengths, and few. Opening works in place, so its
//! figures hold one copy of the messages.
#![allow(missing_docs)] // criterion_group! makes public items

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::crypto::TAG_LEN;
use npamp_relay::crypto::multibuffer::{Message, Path};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

const BATCH: usize = 64;
const ABOUT_64: [usize; 8] = [64, 40, 17, 100, 72, 90, 33, 120];
const MIXED: [usize; 8] = [64, 300, 40, 1024, 120, 17, 512, 256];
const HEAD: [u8; 21] = [7; 21];

fn octets(key: usize) -> [u8; 32] {
    [key as u8; 32]
}

fn nonce(at: usize) -> [u8; 12] {
    [at as u8; 12]
}

fn seal(keys: &[LessSafeKey], payloads: &mut [Vec<u8>]) {
    for (at, payload) in payloads.iter_mut().enumerate() {
        let length = payload.len() - TAG_LEN;
        let (text, tag) = payload.split_at_mut(length);
        let nonce = Nonce::assume_unique_for_key(nonce(at));
        let key = &keys[at % keys.len()];
        let made = key.seal_in_place_separate_tag(nonce, Aad::from(HEAD), text);
        tag.copy_from_slice(made.expect("a short message").as_ref());
    }
}

fn shape(criterion: &mut Criterion, name: &str, lengths: &[usize], keys: usize) {
    let mut group = criterion.benchmark_group(format!("multibuffer/{name}"));
    group.throughput(Throughput::Elements(lengths.len() as u64));
    let ring: Vec<_> = (0..keys)
        .map(|key| UnboundKey::new(&AES_256_GCM, &octets(key)).map(LessSafeKey::new))
        .collect::<Result<_, _>>()
        .expect("keys of 32 octets");
    let mut payloads: Vec<_> = lengths
        .iter()
        .map(|length| vec![0xa5; length + TAG_LEN])
        .collect();
    group.bench_function(BenchmarkId::new("seal", "ring"), |bencher| {
        bencher.iter(|| seal(&ring, &mut payloads));
    });
    let mut sealed: Vec<_> = lengths
        .iter()
        .map(|length| vec![0xa5; length + TAG_LEN])
        .collect();
    seal(&ring, &mut sealed);
    group.bench_function(BenchmarkId::new("open", "ring"), |bencher| {
        bencher.iter(|| {
            for (at, (payload, sealed)) in payloads.iter_mut().zip(&sealed).enumerate() {
                payload.copy_from_slice(sealed);
                let nonce = Nonce::assume_unique_for_key(nonce(at));
                let opened = ring[at % keys].open_in_place(nonce, Aad::from(HEAD), payload);
                assert!(opened.is_ok());
            }
        });
    });
    for &path in Path::all() {
        let keys: Vec<_> = (0..keys).map(|key| path.key(&octets(key))).collect();
        let messages = payloads.iter_mut().enumerate();
        let mut messages: Vec<_> = messages
            .map(|(at, payload)| Message {
                nonce: nonce(at),
                head: &HEAD,
                payload,
                ..Message::place(&keys[at % keys.len()])
            })
            .collect();
        group.bench_function(BenchmarkId::new("seal", path.name()), |bencher| {
            bencher.iter(|| path.seal(&mut messages));
        });
        group.bench_function(BenchmarkId::new("open", path.name()), |bencher| {
            bencher.iter(|| {
                for (message, sealed) in messages.iter_mut().zip(&sealed) {
                    message.payload.copy_from_slice(sealed);
                }
                path.open(&mut messages);
                assert!(messages.iter().all(|message| message.verified));
            });
        });
    }
    group.finish();
}

fn multibuffer(criterion: &mut Criterion) {
    for octets in [64, 256, 1024, 4096, 16384] {
        for (name, keys) in [("one key", 1), ("a key each", BATCH)] {
            let name = format!("{BATCH} of {octets}, {name}");
            shape(criterion, &name, &[octets; BATCH], keys);
        }
    }
    shape(criterion, "8 about 64, one key", &ABOUT_64, 1);
    shape(criterion, "8 mixed, one key", &MIXED, 1);
    shape(criterion, "8 mixed, a key each", &MIXED, MIXED.len());
    for octets in [64, 1024] {
        shape(criterion, &format!("1 of {octets}"), &[octets], 1);
        shape(
            criterion,
            &format!("2 of {octets}, one key"),
            &[octets; 2],
            1,
        );
    }
}

criterion_group!(benches, multibuffer);
criterion_main!(benches);
