//! The relay's metric table: which room's counters appear under which name.

use super::context::Context;
use super::stats::{UnitStats, UpstreamCount, UpstreamStats};
use crate::a2a::method::Operation;
use crate::a2a::stats::{ExchangeStats, MapperStats, Outcome};
use crate::observe::metrics::{NamingError, Registry, Series};
use crate::stats::{Counters, Gauge, Reason};
use std::collections::BTreeMap;
use std::sync::Arc;

type Registered = Result<(), NamingError>;

/// Adds every counter of the relay to the registry.
pub fn register(
    registry: &Registry,
    relay: &Arc<Context>,
    units: &[Arc<UnitStats>],
    mappers: &[Arc<MapperStats>],
) -> Registered {
    registry.info(
        "build",
        "The running version",
        vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
    )?;
    register_control(registry, relay)?;
    register_units(registry, relay, units)?;
    register_edges(registry, relay)?;
    register_upstreams(registry, relay)?;
    register_mappers(registry, mappers)
}

fn register_control(registry: &Registry, relay: &Context) -> Registered {
    let control = &relay.control_stats;
    registry.counter_family(
        "connections",
        "Connections accepted and dialled, and the associations they made",
        "event",
        control.handshakes.clone(),
    )?;
    registry.counter_family(
        "inbound_handshakes_failed",
        "Accepted connections that made no association",
        "reason",
        control.inbound_failed.clone(),
    )?;
    registry.counter_family(
        "outbound_handshakes_failed",
        "Dials that made no association",
        "reason",
        control.outbound_failed.clone(),
    )?;
    registry.counter_family(
        "handshake_refusals",
        "What was wrong with N-PAMP handshakes",
        "reason",
        control.refused.clone(),
    )?;
    registry.gauge_of(
        "handshakes_under_way",
        "Handshakes under way",
        vec![control.under_way.clone()],
    )
}

fn register_units(
    registry: &Registry,
    relay: &Arc<Context>,
    units: &[Arc<UnitStats>],
) -> Registered {
    fn each<R: Reason>(
        units: &[Arc<UnitStats>],
        pick: impl Fn(&UnitStats) -> &Arc<Counters<R>>,
    ) -> Vec<Arc<Counters<R>>> {
        units.iter().map(|unit| pick(unit).clone()).collect()
    }
    registry.counter_family_of(
        "unit_events",
        "What happens on the units",
        "event",
        each(units, |unit| &unit.work),
    )?;
    registry.counter_family_of(
        "frames_dropped",
        "Frames dropped while their association goes on",
        "reason",
        each(units, |unit| &unit.dropped),
    )?;
    registry.counter_family_of(
        "associations_failed",
        "Associations that ended by a fault",
        "reason",
        each(units, |unit| &unit.failed),
    )?;
    registry.counter_family_of(
        "associations_down",
        "Associations that ended",
        "reason",
        each(units, |unit| &unit.shard.down),
    )?;
    registry.counter_family_of(
        "shard_work",
        "What the shards moved",
        "kind",
        each(units, |unit| &unit.shard.work),
    )?;
    registry.gauge_of(
        "associations",
        "Associations that exist",
        units.iter().map(|unit| unit.shard.links.clone()).collect(),
    )?;
    let held = relay.clone();
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    registry.gauge(
        "outbound_octets",
        "Octets of foreign messages on their way out",
        move || held.octets_held() as f64,
    )
}

/// The counters of one upstream, and of those that its labels do not tell it from:
/// a path may be routed on each ingress by itself.
type Alike = BTreeMap<[String; 3], Vec<Arc<UpstreamStats>>>;

fn register_upstreams(registry: &Registry, relay: &Context) -> Registered {
    const LABELS: [&str; 3] = ["route", "upstream", "server_name"];
    let mut alike = Alike::new();
    for route in &relay.routes {
        for (settings, upstream) in route.settings.upstreams.iter().zip(&route.upstreams) {
            let labels = [
                route.settings.label(),
                settings.address.clone(),
                settings.server_name.clone(),
            ];
            alike
                .entry(labels)
                .or_default()
                .push(upstream.stats.clone());
        }
    }
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    let level = |pick: fn(&UpstreamStats) -> &Gauge| -> Vec<Series<f64>> {
        let series = alike.iter().map(|(labels, stats)| {
            let stats = stats.clone();
            let [route, upstream, server_name] = labels;
            Series::new(&[route, upstream, server_name], move || {
                stats.iter().map(|stats| pick(stats).get()).sum::<u64>() as f64
            })
        });
        series.collect()
    };
    registry.gauge_series(
        "upstream_associations",
        "Associations that stand, by upstream",
        &LABELS,
        level(|stats| &stats.associations),
    )?;
    registry.gauge_series(
        "upstream_ejected",
        "Units that have ejected the upstream, which take it again once it is back",
        &LABELS,
        level(|stats| &stats.ejected),
    )?;
    let mut series = Vec::new();
    for (labels, stats) in &alike {
        for &event in UpstreamCount::ALL {
            let [route, upstream, server_name] = labels;
            let values = [route, upstream, server_name, event.label()];
            let stats = stats.clone();
            series.push(Series::new(&values, move || {
                stats.iter().map(|stats| stats.events.get(event)).sum()
            }));
        }
    }
    let [route, upstream, server_name] = LABELS;
    registry.counter_series(
        "upstream_events",
        "Ejections and returns of upstreams, and what became of their calls",
        &[route, upstream, server_name, "event"],
        series,
    )
}

fn register_edges(registry: &Registry, relay: &Context) -> Registered {
    macro_rules! edge {
        ($name:literal, $help:literal, $label:literal, $field:ident) => {{
            let stats = relay.edge_stats.clone();
            registry.counter_family_read($name, $help, $label, move |reason| {
                stats.$field.get(reason)
            })?;
        }};
    }
    edge!(
        "http_requests",
        "Requests at the ingress by how they were answered",
        "outcome",
        requests
    );
    edge!(
        "http_refusals",
        "Requests and connections that the ingress refused",
        "reason",
        refusals
    );
    edge!(
        "http_streams_ended",
        "SSE responses by how they ended",
        "outcome",
        streams_ended
    );
    edge!(
        "agent_exchanges",
        "HTTP exchanges with agents by how they ended",
        "outcome",
        agents
    );
    edge!(
        "http_cards",
        "Agent cards served by source",
        "source",
        cards
    );
    edge!(
        "http_stream_fates",
        "Streams whose HTTP client left or came back",
        "fate",
        stream_fates
    );
    edge!(
        "http_resume_refusals",
        "HTTP clients that came back in vain",
        "reason",
        resume_refusals
    );
    edge!("sse_events", "SSE events by direction", "direction", events);
    macro_rules! level {
        ($name:literal, $help:literal, $field:ident) => {{
            let stats = relay.edge_stats.clone();
            #[allow(clippy::cast_precision_loss)] // exact up to 2^53
            registry.gauge($name, $help, move || stats.$field.get() as f64)?;
        }};
    }
    level!("http_connections", "Open client connections", connections);
    level!("http_streams", "Open SSE responses", streams);
    level!(
        "http_streams_detached",
        "Streams that go on although their HTTP client left",
        streams_detached
    );
    let directory = relay.directory.clone();
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    registry.gauge(
        "window_octets",
        "Octets that the units have taken for streams of HTTP clients",
        move || directory.held_octets() as f64,
    )?;
    level!(
        "http_requests_open",
        "Requests being answered, streams included",
        requests_open
    );
    level!(
        "agent_exchanges_open",
        "Exchanges with agents under way",
        agents_open
    );
    Ok(())
}

fn register_mappers(registry: &Registry, mappers: &[Arc<MapperStats>]) -> Registered {
    macro_rules! sum {
        ($name:literal, $help:literal, $label:literal, $field:ident) => {{
            let mappers = mappers.to_vec();
            registry.counter_family_read($name, $help, $label, move |reason| {
                mappers.iter().map(|mapper| mapper.$field.get(reason)).sum()
            })?;
        }};
    }
    sum!(
        "calls_refused",
        "Calls of the ingress that were not carried",
        "reason",
        calls_refused
    );
    sum!(
        "requests_refused",
        "Requests of peers that were not delivered",
        "reason",
        requests_refused
    );
    sum!(
        "reply_faults",
        "Faulty replies of peers",
        "reason",
        reply_faults
    );
    sum!(
        "bridge_malformed",
        "Malformed bridge payloads",
        "reason",
        malformed
    );
    sum!(
        "json_rpc_invalid",
        "Foreign messages that are not the JSON-RPC object expected",
        "reason",
        scan_errors
    );
    sum!(
        "documents_refused",
        "Document sets not presented or not sent, and proofs of an unknown algorithm",
        "reason",
        document_errors
    );
    sum!(
        "bridge_dropped",
        "Bridge frames and news of agents dropped without an answer",
        "reason",
        dropped
    );
    sum!(
        "streams_resumption",
        "What became of streams whose association went away",
        "event",
        resumption
    );
    sum!(
        "discovery",
        "What happens on the Discovery channel",
        "event",
        discovery
    );
    sum!(
        "discovery_malformed",
        "Malformed discovery payloads",
        "reason",
        discovery_malformed
    );
    sum!(
        "discovery_errors_sent",
        "DISCO_ERROR frames to peers",
        "code",
        discovery_errors_sent
    );
    sum!(
        "discovery_errors_received",
        "DISCO_ERROR frames of peers",
        "code",
        discovery_errors_received
    );
    level(
        registry,
        mappers,
        "discovery_records",
        "Records of peers that are held",
        |mapper| &mapper.discovery_records,
    )?;
    level(
        registry,
        mappers,
        "discovery_subscriptions",
        "Live subscriptions of peers",
        |mapper| &mapper.discovery_subscriptions,
    )?;
    level(
        registry,
        mappers,
        "streams_parked",
        "Streams of callers that wait for an association",
        |mapper| &mapper.parked,
    )?;
    level(
        registry,
        mappers,
        "streams_kept",
        "Streams of agents that can be resumed, live ones included",
        |mapper| &mapper.kept,
    )?;
    level(
        registry,
        mappers,
        "replay_octets",
        "Octets of streams kept for peers that resume them",
        |mapper| &mapper.replay_octets,
    )?;
    level(
        registry,
        mappers,
        "transits_open",
        "Exchanges of peers that are with an upstream",
        |mapper| &mapper.transits,
    )?;
    exchanges(
        registry,
        mappers,
        "calls",
        "Exchanges that this relay asked for",
        |mapper| &mapper.requester,
    )?;
    exchanges(
        registry,
        mappers,
        "requests",
        "Exchanges that peers asked for",
        |mapper| &mapper.responder,
    )?;
    level(
        registry,
        mappers,
        "calls_outstanding",
        "Exchanges that this relay waits for",
        |mapper| &mapper.requester.outstanding,
    )?;
    level(
        registry,
        mappers,
        "requests_outstanding",
        "Exchanges that peers wait for",
        |mapper| &mapper.responder.outstanding,
    )?;
    level(
        registry,
        mappers,
        "mapper_octets",
        "Octets of foreign messages that mappers hold",
        |mapper| &mapper.octets,
    )?;
    count(
        registry,
        mappers,
        "streams_cancelled_upstream",
        "Streams that this relay cancelled at its peer",
        |mapper| &mapper.cancels_sent,
    )?;
    count(
        registry,
        mappers,
        "streams_cancelled_by_peers",
        "Streams that peers cancelled",
        |mapper| &mapper.cancels_received,
    )
}

fn exchanges(
    registry: &Registry,
    mappers: &[Arc<MapperStats>],
    name: &'static str,
    help: &'static str,
    role: fn(&MapperStats) -> &ExchangeStats,
) -> Registered {
    let mappers = mappers.to_vec();
    registry.counter_table_read(
        name,
        help,
        ["operation", "outcome"],
        move |operation: Operation, outcome: Outcome| {
            mappers
                .iter()
                .map(|mapper| role(mapper).outcomes(operation).get(outcome))
                .sum()
        },
    )
}

fn level(
    registry: &Registry,
    mappers: &[Arc<MapperStats>],
    name: &'static str,
    help: &'static str,
    gauge: fn(&MapperStats) -> &Gauge,
) -> Registered {
    let mappers = mappers.to_vec();
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    registry.gauge(name, help, move || {
        mappers
            .iter()
            .map(|mapper| gauge(mapper).get())
            .sum::<u64>() as f64
    })
}

fn count(
    registry: &Registry,
    mappers: &[Arc<MapperStats>],
    name: &'static str,
    help: &'static str,
    gauge: fn(&MapperStats) -> &Gauge,
) -> Registered {
    let mappers = mappers.to_vec();
    registry.counter(name, help, move || {
        mappers.iter().map(|mapper| gauge(mapper).get()).sum()
    })
}
