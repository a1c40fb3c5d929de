//! Writes settings back as a configuration file, defaults filled in. Files are
//! named, never read, so no secret can appear.

use super::sections::EFFECTS;
use crate::edge::settings::{AgentVersion, CardMode};
use crate::relay::settings::{HelloMode, Settings, TlsVerify, UnknownMethods, UpstreamSettings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

#[derive(Serialize)]
struct Document<'s> {
    identity: Identity<'s>,
    engine: Engine<'s>,
    limits: Limits,
    observe: Observe<'s>,
    policy: Policy<'s>,
    stream: Stream,
    listen: Vec<Listen<'s>>,
    agent: Vec<Agent<'s>>,
    ingress: Vec<Ingress<'s>>,
    route: Vec<Route<'s>>,
}

#[derive(Serialize)]
struct Identity<'s> {
    key: &'s Path,
}

#[derive(Serialize)]
struct Listen<'s> {
    address: SocketAddr,
    tls_cert: &'s Path,
    tls_key: &'s Path,
    peers: &'s [String],
    hello: &'static str,
}

#[derive(Serialize)]
struct Agent<'s> {
    name: &'s str,
    default: bool,
    url: &'s str,
    a2a_version: &'static str,
    authorization_file: Option<&'s Path>,
    tls_ca: Option<&'s Path>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    http2: bool,
    connect_s: f64,
    unary_s: f64,
}

#[derive(Serialize)]
struct Ingress<'s> {
    address: SocketAddr,
    tls_cert: Option<&'s Path>,
    tls_key: Option<&'s Path>,
    token_file: Option<&'s Path>,
    public_url: Option<&'s str>,
    card: &'static str,
    card_max_age_s: f64,
    sse_keep_alive_s: f64,
}

#[derive(Serialize)]
struct Route<'s> {
    path: Option<&'s str>,
    inbound: Option<&'s str>,
    ingress: Option<SocketAddr>,
    server_name: Option<&'s str>,
    peer: Option<&'s str>,
    tls_ca: Option<&'s Path>,
    tls_verify: &'static str,
    hello: &'static str,
    upstream: Upstreams<'s>,
}

/// One is written as most people do; of several each says everything itself.
#[derive(Serialize)]
#[serde(untagged)]
enum Upstreams<'s> {
    One(String),
    Several(Vec<Upstream<'s>>),
}

#[derive(Serialize)]
struct Upstream<'s> {
    url: String,
    server_name: &'s str,
    peer: Option<&'s str>,
    tls_ca: Option<&'s Path>,
}

#[derive(Serialize)]
struct Engine<'s> {
    aead: &'static str,
    workers: usize,
    cores: &'s [usize],
}

#[derive(Serialize)]
struct Policy<'s> {
    unknown_methods: &'static str,
    allow: Vec<&'static str>,
    docbind: Option<u16>,
    peers: BTreeMap<&'s str, Vec<&'static str>>,
}

#[derive(Serialize)]
struct Stream {
    retention_s: f64,
    replay_events: usize,
    replay_bytes: usize,
    transit_events: usize,
    transit_bytes: usize,
    detach_grace_s: f64,
    window_events: usize,
    window_bytes: usize,
}

#[derive(Serialize)]
struct Limits {
    foreign_message_octets: usize,
    exchanges_per_association: usize,
    association_octets: usize,
    process_octets: usize,
    handshake_s: f64,
    unary_s: f64,
    idle_probe_s: f64,
    probe_timeout_s: f64,
    shutdown_grace_s: f64,
}

#[derive(Serialize)]
struct Observe<'s> {
    admin: Option<SocketAddr>,
    log: &'s str,
    log_format: &'static str,
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn hello(mode: HelloMode) -> &'static str {
    match mode {
        HelloMode::Required => "required",
        HelloMode::Optional => "optional",
    }
}

fn effects(values: &[u8]) -> Vec<&'static str> {
    values
        .iter()
        .filter_map(|&value| EFFECTS.get(usize::from(value)).copied())
        .collect()
}

/// The ingress that alone serves a route; none when all do.
fn only_ingress(settings: &Settings, route: usize) -> Option<SocketAddr> {
    let mut serving = settings
        .ingresses
        .iter()
        .filter(|ingress| ingress.routes.iter().any(|path| path.route == route));
    let first = serving.next()?;
    (settings.ingresses.len() > 1 && serving.next().is_none()).then_some(first.address)
}

fn upstreams(settings: &[UpstreamSettings]) -> Upstreams<'_> {
    let url = |address: &str| format!("npamp://{address}");
    if let [only] = settings {
        return Upstreams::One(url(&only.address));
    }
    let each = settings.iter().map(|upstream| Upstream {
        url: url(&upstream.address),
        server_name: &upstream.server_name,
        peer: upstream.peer.as_deref(),
        tls_ca: upstream.tls_ca.as_deref(),
    });
    Upstreams::Several(each.collect())
}

/// The settings as a configuration that `check` would accept.
pub fn render(settings: &Settings) -> String {
    let document = Document {
        identity: Identity {
            key: &settings.identity,
        },
        listen: settings
            .listeners
            .iter()
            .map(|listen| Listen {
                address: listen.address,
                tls_cert: &listen.tls.cert,
                tls_key: &listen.tls.key,
                peers: &listen.peers,
                hello: hello(listen.hello),
            })
            .collect(),
        agent: settings
            .agents
            .iter()
            .map(|agent| Agent {
                name: &agent.name,
                default: agent.default,
                url: &agent.url,
                a2a_version: match agent.version {
                    AgentVersion::Auto => "auto",
                    AgentVersion::V03 => "0.3",
                    AgentVersion::V10 => "1.0",
                },
                authorization_file: agent.authorization_file.as_deref(),
                tls_ca: agent.tls_ca.as_deref(),
                http2: agent.http2,
                connect_s: seconds(agent.connect_time),
                unary_s: seconds(agent.unary_time),
            })
            .collect(),
        ingress: settings
            .ingresses
            .iter()
            .map(|ingress| Ingress {
                address: ingress.address,
                tls_cert: ingress.tls.as_ref().map(|tls| tls.cert.as_path()),
                tls_key: ingress.tls.as_ref().map(|tls| tls.key.as_path()),
                token_file: ingress.token_file.as_deref(),
                public_url: ingress.public_url.as_deref(),
                card: match ingress.card {
                    CardMode::Rewrite => "rewrite",
                    CardMode::Verbatim => "verbatim",
                },
                card_max_age_s: seconds(ingress.card_time),
                sse_keep_alive_s: seconds(ingress.sse_keep_alive),
            })
            .collect(),
        route: settings
            .routes
            .iter()
            .enumerate()
            .map(|(index, route)| {
                let only = match &route.upstreams[..] {
                    [only] => Some(only),
                    _ => None,
                };
                Route {
                    path: route.inbound.is_none().then_some(route.path.as_str()),
                    inbound: route.inbound.as_deref(),
                    ingress: only_ingress(settings, index),
                    server_name: only.map(|only| only.server_name.as_str()),
                    peer: only.and_then(|only| only.peer.as_deref()),
                    tls_ca: only.and_then(|only| only.tls_ca.as_deref()),
                    tls_verify: match route.tls_verify {
                        TlsVerify::Full => "full",
                        TlsVerify::Pinned => "pinned",
                    },
                    hello: hello(route.hello),
                    upstream: upstreams(&route.upstreams),
                }
            })
            .collect(),
        engine: Engine {
            aead: settings.engine.aead.name(),
            workers: settings.engine.workers,
            cores: &settings.engine.cores,
        },
        policy: Policy {
            unknown_methods: match settings.policy.unknown_methods {
                UnknownMethods::Carry => "carry",
                UnknownMethods::Refuse => "refuse",
            },
            allow: effects(&settings.policy.allow),
            docbind: settings.policy.document_binding,
            peers: settings
                .policy
                .peers
                .iter()
                .map(|(peer, allow)| (peer.as_str(), effects(allow)))
                .collect(),
        },
        stream: Stream {
            retention_s: seconds(settings.stream.retention),
            replay_events: settings.stream.replay_events,
            replay_bytes: settings.stream.replay_octets,
            transit_events: settings.stream.transit_events,
            transit_bytes: settings.stream.transit_octets,
            detach_grace_s: seconds(settings.stream.detach_grace),
            window_events: settings.stream.window_events,
            window_bytes: settings.stream.window_octets,
        },
        limits: Limits {
            foreign_message_octets: settings.limits.foreign_message_octets,
            exchanges_per_association: settings.limits.exchanges_per_association,
            association_octets: settings.limits.association_octets,
            process_octets: settings.limits.process_octets,
            handshake_s: seconds(settings.limits.handshake_time),
            unary_s: seconds(settings.limits.unary_time),
            idle_probe_s: seconds(settings.limits.idle_probe_time),
            probe_timeout_s: seconds(settings.limits.probe_timeout),
            shutdown_grace_s: seconds(settings.limits.shutdown_grace),
        },
        observe: Observe {
            admin: settings.observe.admin,
            log: &settings.observe.log,
            log_format: if settings.observe.log_json {
                "json"
            } else {
                "text"
            },
        },
    };
    // Paths come from UTF-8 text and every type above is a TOML type, so this
    // cannot fail for settings that a configuration gave.
    toml::to_string(&document).unwrap_or_else(|e| format!("# cannot be shown as TOML: {e}\n"))
}
