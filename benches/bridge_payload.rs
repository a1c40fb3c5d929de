//! The bridge payload codec (`src/bridge/payload.rs`): a request with envelope
//! and safety label, and a stream event with envelope and StreamControl.
//! Encoding allocates the payload and copies the foreign message into it.
#![allow(missing_docs)] // criterion_group! makes public items

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;
use std::hint::black_box;

const CORRELATION_ID: &[u8] = b"0123456789abcdef\"2b1f6a0c-77\"";

fn bridge_payload(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bridge_payload");
    let (request, event) = (support::request_object(742), support::response_object(256));
    let envelope = |kind, method| Envelope {
        protocol_id: ProtocolId::A2A,
        kind,
        content_type: ContentType::JSON,
        flags: EnvelopeFlags::NONE,
        correlation_id: CORRELATION_ID,
        method,
    };
    let messages = [
        (
            "request of 742",
            Payload {
                envelope: envelope(MessageKind::Request, "message/send"),
                safety: Some(SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE)),
                stream_control: None,
                document_binding: None,
                foreign: &request,
            },
        ),
        (
            "event of 256",
            Payload {
                envelope: envelope(MessageKind::StreamData, ""),
                safety: None,
                stream_control: Some(StreamControl::data(12)),
                document_binding: None,
                foreign: &event,
            },
        ),
    ];
    for (name, message) in messages {
        let frame_type = message.envelope.kind.frame_type();
        let octets = payload::encode(frame_type, &message).expect("a good payload");
        group.bench_function(BenchmarkId::new("encode", name), |bencher| {
            bencher.iter(|| payload::encode(frame_type, black_box(&message)));
        });
        group.bench_function(BenchmarkId::new("decode", name), |bencher| {
            bencher.iter(|| {
                payload::decode(frame_type, black_box(&octets)).map(|decoded| decoded.foreign.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bridge_payload);
criterion_main!(benches);
