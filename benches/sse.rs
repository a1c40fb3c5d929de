//! Reading and writing SSE events (`src/edge/sse.rs`): what an agent's octets
//! cost to cut into events, and what events cost to write into body chunks.
#![allow(missing_docs)] // criterion_group! makes public items

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::edge::sse::{SseParser, SseWriter};
use std::hint::black_box;

const EVENTS: u64 = 64;
const EVENT_OCTETS_MAX: usize = 1024 * 1024;

/// A JSON text of `octets` octets.
fn object(octets: usize) -> Bytes {
    let (head, tail) = (r#"{"jsonrpc":"2.0","id":1,"result":""#, r#""}"#);
    let text = "x".repeat(octets - head.len() - tail.len());
    Bytes::from(format!("{head}{text}{tail}"))
}

/// Counts the events that `chunks` hold.
fn parse(chunks: &[Bytes]) -> u64 {
    let mut parser = SseParser::new(EVENT_OCTETS_MAX);
    let mut events = 0;
    for chunk in chunks {
        parser
            .push(chunk, |event| {
                black_box(event);
                events += 1;
            })
            .expect("the bench's own events are well formed");
    }
    events
}

/// Counts the octets of the chunks that `EVENTS` events become.
fn write(object: &Bytes) -> usize {
    let (mut writer, mut octets) = (SseWriter::default(), 0);
    for event_id in 0..EVENTS {
        writer.id(b"id: ", event_id);
        writer.event(object);
        if writer.is_full() {
            while let Some(chunk) = writer.take_chunk() {
                octets += black_box(chunk).len();
            }
        }
    }
    while let Some(chunk) = writer.take_chunk() {
        octets += black_box(chunk).len();
    }
    octets
}

fn sse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::Elements(EVENTS));
    for octets in [300, 4 * 1024] {
        let object = object(octets);
        let event = [b"data: ", &object[..], b"\n\n"].concat();
        let whole = [Bytes::from(event.repeat(64))];
        let single = vec![Bytes::from(event); 64];
        assert_eq!((parse(&whole), parse(&single)), (EVENTS, EVENTS));
        assert!(write(&object) > 64 * octets);
        group.bench_function(BenchmarkId::new("parse, one chunk", octets), |bencher| {
            bencher.iter(|| parse(black_box(&whole)));
        });
        group.bench_function(BenchmarkId::new("parse, a chunk each", octets), |bencher| {
            bencher.iter(|| parse(black_box(&single)));
        });
        group.bench_function(BenchmarkId::new("write", octets), |bencher| {
            bencher.iter(|| write(black_box(&object)));
        });
    }
    group.finish();
}

criterion_group!(benches, sse);
criterion_main!(benches);
