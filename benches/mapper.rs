//! One unary exchange through the mappers of two relays (`src/a2a/mapper/`),
//! without the wire: call, request frame, dispatch, agent's body, response frame,
//! answer.
#![allow(missing_docs)] // criterion_group! makes public items
#![allow(clippy::disallowed_methods)] // a bench reads the clock

mod support;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use npamp_relay::a2a::budget::OctetBudget;
use npamp_relay::a2a::config::MapperConfig;
use npamp_relay::a2a::mapper::Mapper;
use npamp_relay::a2a::port::{
    AgentDirectory, AgentEvent, AssociationId, AssociationInfo, CallEvent, CallId, CallRequest,
    Input, Output, ServiceParameters, Side,
};
use npamp_relay::crypto::SeededRandom;
use std::sync::Arc;
use std::time::Instant;

const LINK: AssociationId = AssociationId(1);

struct OneAgent;

impl AgentDirectory for OneAgent {
    fn agent_for(&self, _server_name: &str) -> Option<usize> {
        Some(0)
    }
}

struct Pair {
    ingress: Mapper,
    egress: Mapper,
    random: SeededRandom,
    now: Instant,
    calls: u64,
}

impl Pair {
    fn new() -> Self {
        let (now, mut random) = (Instant::now(), SeededRandom::new(5));
        let mut mapper = |side| {
            let mut mapper = Mapper::new(
                MapperConfig::default(),
                Box::new(OneAgent),
                Arc::new(OctetBudget::default()),
            );
            let info = AssociationInfo {
                side,
                server_name: "agent.example".into(),
                peer: "ed25519:peer".into(),
                document_binding: None,
                carries_a2a: true,
                discovery: false,
                hello: true,
                parameters: ServiceParameters::default(),
            };
            mapper.handle(
                Input::Up {
                    association: LINK,
                    info,
                    replaces: None,
                },
                now,
                &mut random,
            );
            mapper
        };
        let (ingress, egress) = (mapper(Side::Initiator), mapper(Side::Responder));
        Self {
            ingress,
            egress,
            random,
            now,
            calls: 0,
        }
    }

    fn exchange(&mut self, object: &Bytes, body: &Bytes) {
        self.calls += 1;
        let call = Input::Call {
            association: LINK,
            call: CallId(self.calls),
            request: CallRequest::Request {
                object: object.clone(),
            },
        };
        self.ingress.handle(call, self.now, &mut self.random);
        let Some(Output::Frame {
            channel,
            frame_type,
            payload,
            ..
        }) = self.ingress.poll_output()
        else {
            panic!("a request frame")
        };
        let payload = Bytes::from(payload);
        self.egress.handle(
            Input::Frame {
                association: LINK,
                channel,
                frame_type,
                payload,
            },
            self.now,
            &mut self.random,
        );
        let Some(Output::Dispatch { exchange, .. }) = self.egress.poll_output() else {
            panic!("a dispatch")
        };
        let event = AgentEvent::Body {
            status: 200,
            content_type: "application/json".into(),
            retry_after: None,
            body: body.clone(),
        };
        self.egress
            .handle(Input::Agent { exchange, event }, self.now, &mut self.random);
        let Some(Output::Frame {
            channel,
            frame_type,
            payload,
            ..
        }) = self.egress.poll_output()
        else {
            panic!("a response frame")
        };
        let payload = Bytes::from(payload);
        self.ingress.handle(
            Input::Frame {
                association: LINK,
                channel,
                frame_type,
                payload,
            },
            self.now,
            &mut self.random,
        );
        let Some(Output::Call {
            event: CallEvent::Response(answer),
            ..
        }) = self.ingress.poll_output()
        else {
            panic!("an answer")
        };
        assert_eq!(answer.len(), body.len());
    }
}

fn mapper(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mapper");
    group.throughput(Throughput::Elements(1));
    for octets in [742, 16 * 1024] {
        let (object, body) = (
            Bytes::from(support::request_object(octets)),
            Bytes::from(support::response_object(octets)),
        );
        let mut pair = Pair::new();
        group.bench_function(
            BenchmarkId::new("unary exchange, both relays", octets),
            |bencher| {
                bencher.iter(|| pair.exchange(&object, &body));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, mapper);
criterion_main!(benches);
