//! The scan for kind, method and id (`src/a2a/json_rpc.rs`), against what a
//! relay would do without it: a whole `serde_json::Value`.
#![allow(missing_docs)] // criterion_group! makes public items

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::a2a::json_rpc::{scan_request, scan_response};
use serde_json::Value;
use std::hint::black_box;

fn json_rpc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json_rpc");
    for octets in [742, 16 * 1024] {
        let (request, response) = (
            support::request_object(octets),
            support::response_object(octets),
        );
        group.throughput(Throughput::Bytes(octets as u64));
        group.bench_function(BenchmarkId::new("request, scan", octets), |bencher| {
            bencher.iter(|| scan_request(black_box(&request)).is_ok());
        });
        group.bench_function(BenchmarkId::new("request, Value", octets), |bencher| {
            bencher.iter(|| serde_json::from_slice::<Value>(black_box(&request)).is_ok());
        });
        group.bench_function(BenchmarkId::new("response, scan", octets), |bencher| {
            bencher.iter(|| scan_response(black_box(&response)).is_ok());
        });
        group.bench_function(BenchmarkId::new("response, Value", octets), |bencher| {
            bencher.iter(|| serde_json::from_slice::<Value>(black_box(&response)).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, json_rpc);
criterion_main!(benches);
