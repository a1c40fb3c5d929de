//! The N-PAMP handshake of both peers in memory (`src/handshake/`), and the
//! public-key work it is made of, alone: each operation, all of them, and last
//! the whole handshake in parts of all of them, taken in turns.
#![allow(
    missing_docs, // criterion_group! makes public items
    clippy::disallowed_methods,
    reason = "a bench measures time"
)]

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use npamp_relay::crypto::kem::{Decapsulator, Encapsulation, KeyMaterial, encapsulate};
use npamp_relay::crypto::{Identity, SeededRandom};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Times that the whole handshake and its public-key operations take turns.
const TURNS: usize = 31;
/// How many of each in a turn.
const IN_A_TURN: u32 = 10;

/// Every public-key operation that both peers of a handshake do, and nothing
/// else: the initiator's keys, the responder's encapsulation, the initiator's
/// decapsulation, and a signature made and verified each way.
fn public_key_operations(ours: &Identity, theirs: &Identity, seed: u64) {
    let mut random = SeededRandom::new(seed);
    let decapsulator = Decapsulator::new(&KeyMaterial::draw(&mut random));
    let encapsulation = Encapsulation::draw(&mut random);
    let (ciphertext, secret) =
        encapsulate(black_box(decapsulator.share()), &encapsulation).expect("a good share");
    let decapsulated = decapsulator.decapsulate(black_box(&ciphertext[..]));
    black_box((decapsulated.expect("a good ciphertext"), secret));
    for signer in [theirs, ours] {
        let signature = signer.sign(black_box(&SIGNED));
        let verified = signer.public().verify(&SIGNED, black_box(&signature));
        assert!(verified.is_ok());
    }
}

/// As long as what CertVerify signs.
const SIGNED: [u8; 131] = [0xa5; 131];

fn median_of(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2] / IN_A_TURN
}

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
    let identities = [(); 2].map(|()| Identity::generate(&mut random));
    let [ours, theirs] = &identities;
    group.bench_function("public-key operations alone", |bencher| {
        bencher.iter(|| {
            seed += 1;
            public_key_operations(ours, theirs, seed);
        });
    });
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
    let signature = identity.sign(&SIGNED);
    group.bench_function("Ed25519 sign", |bencher| {
        bencher.iter(|| identity.sign(black_box(&SIGNED)));
    });
    group.bench_function("Ed25519 verify", |bencher| {
        bencher.iter(|| identity.public().verify(black_box(&SIGNED), &signature));
    });
    group.finish();

    let (mut whole, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let begun = Instant::now();
        for _ in 0..IN_A_TURN {
            seed += 1;
            black_box(support::shake_hands(
                initiator.clone(),
                responder.clone(),
                seed,
            ));
        }
        let between = Instant::now();
        for _ in 0..IN_A_TURN {
            seed += 1;
            public_key_operations(ours, theirs, seed);
        }
        whole.push(between - begun);
        alone.push(between.elapsed());
    }
    let (whole, alone) = (median_of(whole), median_of(alone));
    println!(
        "handshake: both peers {whole:?}, its public-key operations alone {alone:?}: {:.3} times",
        whole.as_secs_f64() / alone.as_secs_f64()
    );
}

criterion_group!(benches, handshake);
criterion_main!(benches);
