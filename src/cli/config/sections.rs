//! Turns the tables of a configuration into [`Settings`], one function per
//! table. It checks every value by itself; [`super::relations`] then checks what
//! tables say about each other, and [`super::files`] the files they name.

use super::files::{FileKind, FileUse};
use super::reader::{At, Found, Problems, Section, unknown_word};
use super::upstreams;
use super::values;
use crate::crypto::AeadPath;
use crate::edge::settings::{AgentSettings, AgentVersion, CardMode, IngressSettings, TlsFiles};
use crate::limits;
use crate::relay::settings::{
    EngineSettings, HelloMode, INBOUND_REST, LimitSettings, ListenSettings, ObserveSettings,
    PolicySettings, RouteSettings, Settings, StreamConfig, TlsVerify, UnknownMethods,
};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

/// The names of the four effects, by their NPAMP-BRIDGE §7 value.
pub(super) const EFFECTS: [&str; 4] = [
    "read_only",
    "idempotent_write",
    "non_idempotent_write",
    "destructive",
];

/// A configuration whose values are each right by themselves.
pub(super) struct Draft {
    pub settings: Settings,
    pub files: Vec<FileUse>,
    pub listen_addresses: Vec<Found<SocketAddr>>,
    pub ingress_addresses: Vec<Found<SocketAddr>>,
    pub admin_address: Option<Found<SocketAddr>>,
    pub agent_names: Vec<Found<String>>,
    pub agent_defaults: Vec<At>,
    /// How each route is come by.
    pub routes: Vec<Entrance>,
    pub workers: Option<At>,
    /// Every `[[ingress]]` that was written could be read.
    pub ingresses_whole: bool,
}

/// How a route is come by.
pub(super) enum Entrance {
    /// By a path, and the ingress that alone serves it.
    Path(Found<String>, Option<Found<SocketAddr>>),
    /// By the server name of an inbound association.
    Inbound(Found<String>),
}

/// What the tables share while they are read.
pub(super) struct Reading<'r> {
    base: &'r Path,
    pub(super) problems: &'r mut Problems,
    files: Vec<FileUse>,
}

impl Reading<'_> {
    fn file(&mut self, kind: FileKind, found: &Found<PathBuf>) {
        self.files.push(FileUse {
            kind,
            path: found.value.clone(),
            at: found.at.clone(),
        });
    }

    pub(super) fn optional_file(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        kind: FileKind,
    ) -> Option<PathBuf> {
        let found = section.path(key, self.base, self.problems)?;
        self.file(kind, &found);
        Some(found.value)
    }

    fn tls_pair(&mut self, cert: &Found<PathBuf>, key: &Found<PathBuf>) -> TlsFiles {
        self.file(
            FileKind::Certificate {
                key: key.value.clone(),
                key_at: key.at.clone(),
            },
            cert,
        );
        TlsFiles {
            cert: cert.value.clone(),
            key: key.value.clone(),
        }
    }

    /// A string that `parse` accepts; its complaint becomes a problem.
    pub(super) fn parsed<T>(
        &mut self,
        found: Option<Found<String>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Found<T>> {
        let found = found?;
        match parse(&found.value) {
            Ok(value) => Some(Found {
                value,
                at: found.at,
            }),
            Err(message) => {
                self.problems.report(&found.at, message);
                None
            }
        }
    }
}

/// Reads the document. Problems are in `problems`; where there are any, the
/// draft is not to be used, because defaults stand in for what was wrong.
pub(super) fn read(
    document: &toml::Spanned<toml::de::DeTable<'_>>,
    base: &Path,
    problems: &mut Problems,
) -> Draft {
    let mut root = Section::root(document);
    let mut reading = Reading {
        base,
        problems,
        files: Vec::new(),
    };
    let r = &mut reading;

    let identity = identity(root.table("identity", r.problems), r);
    let limits = limit_settings(root.table("limits", r.problems), r);
    let (engine, workers) = engine(root.table("engine", r.problems), r);
    let policy = policy(root.table("policy", r.problems), r);
    let stream = stream_settings(root.table("stream", r.problems), r);
    let (observe, admin_address) = observe(root.table("observe", r.problems), r);

    let mut listen_addresses = Vec::new();
    let mut listeners = Vec::new();
    for section in root.tables("listen", limits::LISTENERS_MAX, r.problems) {
        if let Some((address, settings)) = listen(section, r) {
            listen_addresses.push(address);
            listeners.push(settings);
        }
    }
    let (mut agents, mut agent_names, mut agent_defaults) = (Vec::new(), Vec::new(), Vec::new());
    for section in root.tables("agent", limits::AGENTS_MAX, r.problems) {
        if let Some((name, default, settings)) = agent(section, &limits, r) {
            agent_names.push(name);
            agent_defaults.extend(default);
            agents.push(settings);
        }
    }
    let (mut ingresses, mut ingress_addresses) = (Vec::new(), Vec::new());
    let ingress_sections = root.tables("ingress", limits::LISTENERS_MAX, r.problems);
    let ingresses_written = ingress_sections.len();
    for section in ingress_sections {
        if let Some((address, settings)) = ingress(section, &limits, r) {
            ingress_addresses.push(address);
            ingresses.push(settings);
        }
    }
    let ingresses_whole = ingresses.len() == ingresses_written;
    let (mut routes, mut route_settings) = (Vec::new(), Vec::new());
    for section in root.tables("route", limits::ROUTES_MAX, r.problems) {
        if let Some((entrance, settings)) = route(section, r) {
            routes.push(entrance);
            route_settings.push(settings);
        }
    }
    root.finish(r.problems);

    Draft {
        settings: Settings {
            identity,
            listeners,
            agents,
            ingresses,
            routes: route_settings,
            engine,
            policy,
            stream,
            limits,
            observe,
        },
        files: reading.files,
        listen_addresses,
        ingress_addresses,
        admin_address,
        agent_names,
        agent_defaults,
        routes,
        workers,
        ingresses_whole,
    }
}

fn identity(mut section: Section<'_>, r: &mut Reading<'_>) -> PathBuf {
    let key = section.required_path("key", r.base, r.problems);
    if let Some(key) = &key {
        r.file(FileKind::Identity, key);
    }
    section.finish(r.problems);
    key.map(|found| found.value).unwrap_or_default()
}

fn hello(section: &mut Section<'_>, r: &mut Reading<'_>) -> Option<Found<HelloMode>> {
    section.choice(
        "hello",
        &[
            ("required", HelloMode::Required),
            ("optional", HelloMode::Optional),
        ],
        r.problems,
    )
}

fn listen(
    mut section: Section<'_>,
    r: &mut Reading<'_>,
) -> Option<(Found<SocketAddr>, ListenSettings)> {
    let address = section.required_string("address", r.problems);
    let address = r.parsed(address, values::address);
    let cert = section.required_path("tls_cert", r.base, r.problems);
    let key = section.required_path("tls_key", r.base, r.problems);
    let mut peers = Vec::new();
    for peer in section
        .required_strings("peers", r.problems)
        .unwrap_or_default()
    {
        if peer.value == "*" {
            peers.push(peer);
        } else if let Some(peer) = r.parsed(Some(peer), values::peer) {
            peers.push(peer);
        }
    }
    if peers.len() > limits::PEERS_MAX {
        r.problems.report(
            &section.at(),
            format_args!("at most {} peers", limits::PEERS_MAX),
        );
    }
    if peers.len() > 1
        && let Some(any) = peers.iter().find(|peer| peer.value == "*")
    {
        r.problems
            .report(&any.at, "\"*\" allows any initiator and must stand alone");
    }
    let hello = hello(&mut section, r).map(|h| h.value).unwrap_or_default();
    section.finish(r.problems);
    let (cert, key) = (cert?, key?);
    let tls = r.tls_pair(&cert, &key);
    let address = address?;
    let settings = ListenSettings {
        address: address.value,
        tls,
        peers: peers.into_iter().map(|peer| peer.value).collect(),
        hello,
    };
    Some((address, settings))
}

fn agent(
    mut section: Section<'_>,
    limits: &LimitSettings,
    r: &mut Reading<'_>,
) -> Option<(Found<String>, Option<At>, AgentSettings)> {
    let name = section.required_string("name", r.problems);
    let name = r.parsed(name, values::server_name);
    let default = section.boolean("default", r.problems);
    let url = section.required_string("url", r.problems);
    let url = r.parsed(url, values::agent_url);
    let version = section.choice(
        "a2a_version",
        &[
            ("auto", AgentVersion::Auto),
            ("0.3", AgentVersion::V03),
            ("1.0", AgentVersion::V10),
        ],
        r.problems,
    );
    let authorization_file =
        r.optional_file(&mut section, "authorization_file", FileKind::Authorization);
    let tls_ca = section.path("tls_ca", r.base, r.problems);
    let http2 = section.boolean("http2", r.problems);
    let connect_time = section.seconds(
        "connect_s",
        &(MILLISECOND..=limits::CONNECT_TIME),
        r.problems,
    );
    let unary_time = section.seconds(
        "unary_s",
        &(MILLISECOND..=limits::UNARY_TIME_MAX),
        r.problems,
    );
    if let Some(tls_ca) = &tls_ca {
        r.file(FileKind::Roots, tls_ca);
    }
    if let Some(url) = &url {
        let https = url.value.starts_with("https:");
        if let (false, Some(tls_ca)) = (https, &tls_ca) {
            r.problems
                .report(&tls_ca.at, "an http agent has no certificate to check");
        }
        if let (true, Some(http2)) = (https, http2.as_ref().filter(|http2| http2.value)) {
            r.problems.report(
                &http2.at,
                "an https agent chooses HTTP/2 in its TLS handshake; remove this key",
            );
        }
    }
    section.finish(r.problems);
    let name = name?;
    let settings = AgentSettings {
        name: name.value.clone(),
        default: default.as_ref().is_some_and(|default| default.value),
        url: url?.value,
        version: version.map(|v| v.value).unwrap_or_default(),
        authorization_file,
        tls_ca: tls_ca.map(|found| found.value),
        http2: http2.is_some_and(|http2| http2.value),
        connect_time: connect_time.map_or(limits::CONNECT_TIME, |t| t.value),
        unary_time: unary_time.map_or(limits.unary_time, |t| t.value),
        body_octets_max: limits.foreign_message_octets,
        pool_idle_max: limits::AGENT_IDLE_CONNECTIONS_MAX,
    };
    Some((name, default.filter(|d| d.value).map(|d| d.at), settings))
}

fn ingress(
    mut section: Section<'_>,
    limits: &LimitSettings,
    r: &mut Reading<'_>,
) -> Option<(Found<SocketAddr>, IngressSettings)> {
    let address = section.required_string("address", r.problems);
    let address = r.parsed(address, values::address);
    let cert = section.path("tls_cert", r.base, r.problems);
    let key = section.path("tls_key", r.base, r.problems);
    let tls = match (cert, key) {
        (Some(cert), Some(key)) => Some(r.tls_pair(&cert, &key)),
        (Some(cert), None) if !section.has("tls_key") => {
            r.problems
                .report(&cert.at, "HTTPS needs tls_key beside tls_cert");
            None
        }
        (None, Some(key)) if !section.has("tls_cert") => {
            r.problems
                .report(&key.at, "HTTPS needs tls_cert beside tls_key");
            None
        }
        _ => None,
    };
    let token_file = r.optional_file(&mut section, "token_file", FileKind::Tokens);
    let public_url = section.string("public_url", r.problems);
    let public_url = r.parsed(public_url, values::public_url);
    let card = section.choice(
        "card",
        &[
            ("rewrite", CardMode::Rewrite),
            ("verbatim", CardMode::Verbatim),
        ],
        r.problems,
    );
    let card_time = section.seconds(
        "card_max_age_s",
        &(Duration::ZERO..=limits::CARD_TIME_MAX),
        r.problems,
    );
    let sse_keep_alive = section.seconds(
        "sse_keep_alive_s",
        &(limits::SSE_KEEP_ALIVE_TIME_MIN..=limits::SSE_KEEP_ALIVE_TIME),
        r.problems,
    );
    section.finish(r.problems);
    let address = address?;
    let settings = IngressSettings {
        address: address.value,
        tls,
        token_file,
        public_url: public_url.map(|url| url.value),
        card: card.map(|card| card.value).unwrap_or_default(),
        card_time: card_time.map_or(limits::CARD_TIME, |t| t.value),
        routes: Vec::new(),
        body_octets_max: limits.foreign_message_octets,
        unary_time: limits.unary_time,
        sse_keep_alive: sse_keep_alive.map_or(limits::SSE_KEEP_ALIVE_TIME, |t| t.value),
    };
    Some((address, settings))
}

/// Whether a route belongs to the ingresses or to the listeners, which it must say.
fn entrance(section: &mut Section<'_>, r: &mut Reading<'_>) -> Option<Entrance> {
    let inbound = section.string("inbound", r.problems);
    if inbound.is_none() && !section.has("inbound") {
        let path = section.required_string("path", r.problems);
        let path = r.parsed(path, values::route_path);
        let only = section.string("ingress", r.problems);
        let only = r.parsed(only, values::address);
        return Some(Entrance::Path(path?, only));
    }
    for key in ["path", "ingress"] {
        if let Some(found) = section.string(key, r.problems) {
            let text = "an inbound route takes what arrives at [[listen]], not at an ingress";
            r.problems.report(&found.at, text);
        }
    }
    let name = r.parsed(inbound, |name| match name {
        INBOUND_REST => Ok(INBOUND_REST.to_owned()),
        name => values::server_name(name),
    })?;
    Some(Entrance::Inbound(name))
}

fn route(mut section: Section<'_>, r: &mut Reading<'_>) -> Option<(Entrance, RouteSettings)> {
    let entrance = entrance(&mut section, r);
    let names = section.has("server_name");
    let server_name = section.string("server_name", r.problems);
    let server_name = r.parsed(server_name, values::server_name);
    let peer = section.string("peer", r.problems);
    let peer = r.parsed(peer, values::peer);
    let tls_ca = r.optional_file(&mut section, "tls_ca", FileKind::Roots);
    let common = upstreams::Common {
        server_name: server_name.map(|name| name.value),
        names,
        peer: peer.map(|peer| peer.value),
        tls_ca,
    };
    let upstreams = upstreams::read(&mut section, &common, r);
    let tls_verify = section.choice(
        "tls_verify",
        &[("full", TlsVerify::Full), ("pinned", TlsVerify::Pinned)],
        r.problems,
    );
    let hello = hello(&mut section, r);
    if let Some(pinned) = tls_verify.as_ref().filter(|v| v.value == TlsVerify::Pinned) {
        if upstreams.whole && !section.has("peer") && !upstreams.each_has_peer {
            r.problems.report(
                &pinned.at,
                "\"pinned\" needs peer, the identity that authenticates instead of the certificate",
            );
        }
        if hello
            .as_ref()
            .is_some_and(|h| h.value == HelloMode::Optional)
        {
            r.problems.report(
                &pinned.at,
                "\"pinned\" needs hello = \"required\": only HELLO protects the server name then",
            );
        }
    }
    section.finish(r.problems);
    let entrance = entrance?;
    if !upstreams.whole {
        return None;
    }
    let (path, inbound) = match &entrance {
        Entrance::Path(path, _) => (path.value.clone(), None),
        Entrance::Inbound(name) => (String::new(), Some(name.value.clone())),
    };
    let settings = RouteSettings {
        path,
        inbound,
        upstreams: upstreams.settings,
        tls_verify: tls_verify.map(|v| v.value).unwrap_or_default(),
        hello: hello.map(|h| h.value).unwrap_or_default(),
    };
    Some((entrance, settings))
}

fn engine(mut section: Section<'_>, r: &mut Reading<'_>) -> (EngineSettings, Option<At>) {
    let workers = section.integer("workers", &(0..=limits::WORKERS_MAX as u64), r.problems);
    let cores = section.integers("cores", &(0..=limits::CORES_MAX as u64 - 1), r.problems);
    let cores = cores.unwrap_or_default();
    for (index, core) in cores.iter().enumerate() {
        if cores[..index].iter().any(|other| other.value == core.value) {
            r.problems.report(
                &core.at,
                format_args!("core {} is listed twice", core.value),
            );
        }
    }
    let aead = AeadPath::ALL.map(|path| (path.name(), path));
    let aead = section.choice("aead", &aead, r.problems);
    if let Some(aead) = &aead
        && !aead.value.is_available()
    {
        let message = format_args!("this CPU has no {}", aead.value.name());
        r.problems.report(&aead.at, message);
    }
    section.finish(r.problems);
    let settings = EngineSettings {
        aead: aead.map(|aead| aead.value).unwrap_or_default(),
        workers: workers.as_ref().map_or(0, |n| n.value as usize),
        cores: cores.iter().map(|core| core.value as usize).collect(),
    };
    (settings, workers.filter(|n| n.value > 0).map(|n| n.at))
}

fn effects(words: &[Found<String>], r: &mut Reading<'_>) -> Vec<u8> {
    let mut effects = Vec::new();
    for word in words {
        match EFFECTS.iter().position(|name| *name == word.value) {
            Some(effect) => effects.push(effect as u8),
            None => r
                .problems
                .report(&word.at, unknown_word(&word.value, EFFECTS.into_iter())),
        }
    }
    effects.sort_unstable();
    effects.dedup();
    effects
}

fn policy(mut section: Section<'_>, r: &mut Reading<'_>) -> PolicySettings {
    let unknown_methods = section.choice(
        "unknown_methods",
        &[
            ("carry", UnknownMethods::Carry),
            ("refuse", UnknownMethods::Refuse),
        ],
        r.problems,
    );
    let allow = section.strings("allow", r.problems);
    let document_binding = section.integer("docbind", &(0..=u64::from(u16::MAX)), r.problems);
    if let Some(tag) = &document_binding
        && let Err(message) = values::document_binding(tag.value as u16)
    {
        r.problems.report(&tag.at, message);
    }
    let by_peer = section.table("peers", r.problems).string_lists(r.problems);
    let mut peers = Vec::new();
    for (peer, words) in by_peer {
        let effects = effects(&words, r);
        if let Some(peer) = r.parsed(Some(peer), values::peer) {
            peers.push((peer.value, effects));
        }
    }
    section.finish(r.problems);
    PolicySettings {
        unknown_methods: unknown_methods.map(|u| u.value).unwrap_or_default(),
        allow: allow.map_or_else(|| vec![0, 1, 2, 3], |words| effects(&words, r)),
        peers,
        document_binding: document_binding.map(|tag| tag.value as u16),
    }
}

fn limit_settings(mut section: Section<'_>, r: &mut Reading<'_>) -> LimitSettings {
    let mut octets = |key, max: usize| {
        let range = limits::LOWERED_OCTETS_MIN as u64..=max as u64;
        let found = section.integer(key, &range, r.problems);
        (
            found.as_ref().map_or(max, |n| n.value as usize),
            found.map(|n| n.at),
        )
    };
    let (foreign_message_octets, _) =
        octets("foreign_message_octets", limits::FOREIGN_MESSAGE_OCTETS_MAX);
    let (association_octets, association_at) =
        octets("association_octets", limits::ASSOCIATION_OCTETS_MAX);
    let (process_octets, process_at) = octets("process_octets", limits::PROCESS_OCTETS_MAX);
    let whole = section.at();
    if association_octets < foreign_message_octets {
        r.problems.report(
            &association_at.unwrap_or_else(|| whole.clone()),
            format_args!("association_octets = {association_octets} is less than foreign_message_octets = {foreign_message_octets}"),
        );
    }
    if process_octets < association_octets {
        r.problems.report(
            &process_at.unwrap_or(whole),
            format_args!("process_octets = {process_octets} is less than association_octets = {association_octets}"),
        );
    }
    let exchanges = section.integer(
        "exchanges_per_association",
        &(1..=limits::EXCHANGES_PER_ASSOCIATION_MAX as u64),
        r.problems,
    );
    let mut seconds = |key, range: RangeInclusive<Duration>, default| {
        section
            .seconds(key, &range, r.problems)
            .map_or(default, |t| t.value)
    };
    let settings = LimitSettings {
        foreign_message_octets,
        exchanges_per_association: exchanges
            .map_or(limits::EXCHANGES_PER_ASSOCIATION_MAX, |n| n.value as usize),
        association_octets,
        process_octets,
        handshake_time: seconds(
            "handshake_s",
            MILLISECOND..=limits::HANDSHAKE_TIME,
            limits::HANDSHAKE_TIME,
        ),
        unary_time: seconds(
            "unary_s",
            MILLISECOND..=limits::UNARY_TIME_MAX,
            limits::UNARY_TIME,
        ),
        idle_probe_time: seconds(
            "idle_probe_s",
            MILLISECOND..=limits::IDLE_PROBE_TIME_MAX,
            limits::IDLE_PROBE_TIME,
        ),
        probe_timeout: seconds(
            "probe_timeout_s",
            MILLISECOND..=limits::PROBE_TIMEOUT_MAX,
            limits::PROBE_TIMEOUT,
        ),
        shutdown_grace: seconds(
            "shutdown_grace_s",
            Duration::ZERO..=limits::SHUTDOWN_GRACE_MAX,
            limits::SHUTDOWN_GRACE,
        ),
    };
    section.finish(r.problems);
    settings
}

fn stream_settings(mut section: Section<'_>, r: &mut Reading<'_>) -> StreamConfig {
    let mut events = |key, max: usize| {
        let found = section.integer(key, &(1..=max as u64), r.problems);
        found.map_or(max, |n| n.value as usize)
    };
    let replay_events = events("replay_events", limits::REPLAY_EVENTS_MAX);
    let transit_events = events("transit_events", limits::TRANSIT_EVENTS_MAX);
    let window_events = events("window_events", limits::WINDOW_EVENTS_MAX);
    let mut octets = |key, max: usize| {
        let range = limits::LOWERED_OCTETS_MIN as u64..=max as u64;
        let found = section.integer(key, &range, r.problems);
        found.map_or(max, |n| n.value as usize)
    };
    let replay_octets = octets("replay_bytes", limits::REPLAY_OCTETS_MAX);
    let transit_octets = octets("transit_bytes", limits::TRANSIT_OCTETS_MAX);
    let window_octets = octets("window_bytes", limits::WINDOW_OCTETS_MAX);
    let mut seconds = |key, max, default| {
        let found = section.seconds(key, &(Duration::ZERO..=max), r.problems);
        found.map_or(default, |t| t.value)
    };
    let retention = seconds(
        "retention_s",
        limits::RETENTION_TIME,
        limits::RETENTION_TIME,
    );
    let detach_grace = seconds(
        "detach_grace_s",
        limits::DETACH_GRACE_TIME_MAX,
        limits::DETACH_GRACE_TIME,
    );
    section.finish(r.problems);
    StreamConfig {
        retention,
        replay_events,
        replay_octets,
        transit_events,
        transit_octets,
        detach_grace,
        window_events,
        window_octets,
    }
}

fn observe(
    mut section: Section<'_>,
    r: &mut Reading<'_>,
) -> (ObserveSettings, Option<Found<SocketAddr>>) {
    let admin = section.string("admin", r.problems);
    let admin = r.parsed(admin, values::address);
    let log = section.string("log", r.problems);
    let log = r.parsed(log, crate::observe::logs::filter);
    let log_json = section.choice("log_format", &[("text", false), ("json", true)], r.problems);
    section.finish(r.problems);
    let settings = ObserveSettings {
        admin: admin.as_ref().map(|a| a.value),
        log_json: log_json.is_some_and(|json| json.value),
        log: log.map_or_else(|| "info".to_owned(), |log| log.value),
    };
    (settings, admin)
}
