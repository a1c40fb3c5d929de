//! The link's TLS 1.3 (`src/link/tls.rs`): a record of 16 KiB, and the whole
//! handshake of both ends.
#![allow(missing_docs)] // criterion_group! makes public items
#![allow(clippy::disallowed_methods)] // a bench reads the clock

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::link::config::{self, Verify};
use npamp_relay::link::tls::Tls;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::PrivatePkcs8KeyDer;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RECORD_OCTETS: usize = 16 * 1024;
/// Records made before they are timed.
const BATCH: u64 = 16;

fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let made =
        rcgen::generate_simple_self_signed(["relay.example".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = config::server(vec![made.cert.der().clone()], key.into()).expect("a server");
    (
        config::client(Verify::Roots(roots)).expect("a client"),
        server,
    )
}

fn shake_hands(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (Tls, Tls) {
    let mut client = Tls::client(client.clone(), "relay.example").expect("a client");
    let mut server = Tls::server(server).expect("a server");
    let (mut up, mut down) = (Vec::new(), Vec::new());
    client
        .handle_octets(&mut [], &mut up, &mut |_| {})
        .expect("a start");
    while !up.is_empty() || !down.is_empty() {
        server
            .handle_octets(&mut up, &mut down, &mut |_| {})
            .expect("a good flight");
        up.clear();
        client
            .handle_octets(&mut down, &mut up, &mut |_| {})
            .expect("a good flight");
        down.clear();
    }
    assert!(client.is_established() && server.is_established());
    (client, server)
}

fn link(criterion: &mut Criterion) {
    let (client_config, server_config) = configs();
    let mut group = criterion.benchmark_group("link");
    group.bench_function("handshake, both ends", |bencher| {
        bencher.iter(|| shake_hands(&client_config, &server_config));
    });

    let plain = vec![0xa5; RECORD_OCTETS];
    let mut out = Vec::new();
    group.throughput(Throughput::Bytes(RECORD_OCTETS as u64));
    let (mut client, _) = shake_hands(&client_config, &server_config);
    group.bench_function("encrypt 16 KiB", |bencher| {
        bencher.iter(|| {
            out.clear();
            client.encrypt(&plain, &mut out)
        });
    });

    let (mut client, mut server) = shake_hands(&client_config, &server_config);
    group.bench_function("decrypt 16 KiB", |bencher| {
        bencher.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let records = left.min(BATCH);
                let mut cipher: Vec<Vec<u8>> = (0..records)
                    .map(|_| {
                        let mut record = Vec::new();
                        client.encrypt(&plain, &mut record).expect("a record");
                        record
                    })
                    .collect();
                let (mut seen, mut alerts) = (0, Vec::new());
                let start = Instant::now();
                for record in &mut cipher {
                    server
                        .handle_octets(record, &mut alerts, &mut |octets| seen += octets.len())
                        .expect("good records");
                }
                spent += start.elapsed();
                assert_eq!(seen as u64, records * RECORD_OCTETS as u64);
                left -= records;
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, link);
criterion_main!(benches);
