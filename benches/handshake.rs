//! The N-PAMP handshake of both peers in memory (`src/handshake/`), and the
//! public-key work it is made of, alone.
#![allow(missing_docs)] // criterion_group! makes public items

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use npamp_relay::crypto::kem::{Decapsulator, Encapsulation, KeyMaterial, encapsulate};
use npamp_relay::crypto::{Identity, SeededRandom};
use std::hint::black_box;

fn handshake(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handshake");
    let (initiator, responder) = support::configs();
    let mut seed = 0;
    group.bench_function("both peers", |bencher| {
        bencher.iter(|| {
            seed += 1;
            support::shake_hands(initiator.clone(), responder.clone(), seed)
        });
    });

    let mut random = SeededRandom::new(4);
    let material = KeyMaterial::draw(&mut random);
    let encapsulation = Encapsulation::draw(&mut random);
    let decapsulator = Decapsulator::new(&material);
    let (ciphertext, _) = encapsulate(decapsulator.share(), &encapsulation).expect("a good share");
    group.bench_function("X25519MLKEM768 keys", |bencher| {
        bencher.iter(|| Decapsulator::new(black_box(&material)));
    });
    group.bench_function("X25519MLKEM768 encapsulate", |bencher| {
        bencher.iter(|| encapsulate(black_box(decapsulator.share()), &encapsulation));
    });
    group.bench_function("X25519MLKEM768 decapsulate", |bencher| {
        bencher.iter(|| decapsulator.decapsulate(black_box(&ciphertext[..])));
    });

    let identity = Identity::generate(&mut random);
    let message = [0xa5; 130];
    let signature = identity.sign(&message);
    group.bench_function("Ed25519 sign", |bencher| {
        bencher.iter(|| identity.sign(black_box(&message)));
    });
    group.bench_function("Ed25519 verify", |bencher| {
        bencher.iter(|| identity.public().verify(black_box(&message), &signature));
    });
    group.finish();
}

criterion_group!(benches, handshake);
criterion_main!(benches);
