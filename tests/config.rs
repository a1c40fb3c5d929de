//! The configuration file: every key is documented and taken, every mistake is
//! told with its file, line and key, and no text makes the reader panic.

use npamp_relay::cli::config::{self, Config, ConfigErrors};
use npamp_relay::crypto::AeadPath;
use npamp_relay::edge::settings::{AgentVersion, CardMode, RoutePath};
use npamp_relay::relay::settings::{HelloMode, TlsVerify, UnknownMethods};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const PEER: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    config::parse(text, Path::new("/etc/relay/relay.toml"))
}

fn example() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("relay.example.toml");
    std::fs::read_to_string(file).unwrap()
}

/// The example with its optional keys switched on.
fn whole_example() -> String {
    let optional = |line: &str| {
        let rest = line.strip_prefix('#')?;
        (rest.contains(" = ") && rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '"'))
            .then(|| rest.to_owned())
    };
    let lines: Vec<String> = example()
        .lines()
        .map(|line| optional(line).unwrap_or_else(|| line.to_owned()))
        .collect();
    lines.join("\n")
}

#[test]
fn the_example_is_valid_with_and_without_its_optional_keys() {
    let plain = parse(&example()).unwrap_or_else(|e| panic!("{e}"));
    let whole = parse(&whole_example()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        plain.settings.routes[0].upstreams[0].address,
        "relay.example:7443"
    );
    assert_eq!(whole.settings.ingresses[0].routes.len(), 2);
    assert_eq!(whole.settings.ingresses[1].routes.len(), 1);
    assert_eq!(plain.settings.ingresses[1].routes.len(), 2);
    // What the example shows as defaults are the defaults.
    assert_eq!(
        format!("{:?}", plain.settings.limits),
        format!("{:?}", whole.settings.limits)
    );
    assert_eq!(
        format!("{:?}", plain.settings.stream),
        format!("{:?}", whole.settings.stream)
    );
    assert_eq!(
        format!("{:?}", plain.settings.engine),
        format!("{:?}", whole.settings.engine)
    );
    assert_eq!(
        format!("{:?}", plain.settings.observe),
        format!("{:?}", whole.settings.observe)
    );
    assert_eq!(plain.settings.policy.allow, whole.settings.policy.allow);
}

#[test]
fn every_accepted_key_is_in_the_example() {
    let text = whole_example();
    let document: toml::Table = toml::from_str(&text).unwrap();
    for key in parse(&text).unwrap().accepted_keys {
        let mut tables = vec![&document];
        let words: Vec<&str> = key.split('.').collect();
        for (depth, word) in words.iter().enumerate() {
            let name = word.trim_end_matches("[]");
            let values: Vec<&toml::Value> = tables.iter().filter_map(|t| t.get(name)).collect();
            assert!(!values.is_empty(), "{key} is not in relay.example.toml");
            if depth + 1 < words.len() {
                tables = values
                    .into_iter()
                    .flat_map(|value| match value {
                        toml::Value::Table(table) => vec![table],
                        toml::Value::Array(items) => {
                            items.iter().filter_map(toml::Value::as_table).collect()
                        }
                        _ => Vec::new(),
                    })
                    .collect();
            }
        }
    }
}

/// What `check` prints is a configuration that means the same.
#[test]
fn the_effective_configuration_reads_back() {
    for text in [example(), whole_example()] {
        let first = parse(&text).unwrap().settings;
        let again = parse(&config::render(&first))
            .unwrap_or_else(|e| panic!("{e}"))
            .settings;
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
    }
}

#[test]
fn values_arrive() {
    let text = format!(
        r#"
        identity.key = "/keys/identity.pem"
        [[listen]]
        address = "[::1]:7443"
        tls_cert = "c.pem"
        tls_key = "../k.pem"
        peers = ["*"]
        hello = "optional"
        [[agent]]
        name = "Literature"
        default = true
        url = "http://127.0.0.1:9999"
        a2a_version = "0.3"
        authorization_file = "auth"
        http2 = true
        connect_s = 0.25
        unary_s = 600
        [[ingress]]
        address = "127.0.0.1:8080"
        card = "verbatim"
        public_url = "https://a2a.example/base/"
        card_max_age_s = 0
        sse_keep_alive_s = 2.5
        [[ingress]]
        address = "127.0.0.1:8081"
        tls_cert = "c.pem"
        tls_key = "k.pem"
        token_file = "tokens"
        [[route]]
        path = "/"
        upstream = "npamp://relay.example:7443"
        [[route]]
        path = "/b/"
        ingress = "127.0.0.1:8081"
        upstream = "npamp://10.0.0.1:7443"
        server_name = "b.example"
        peer = "{PEER}"
        tls_verify = "pinned"
        [engine]
        workers = 2
        cores = [1, 0]
        aead = "ring"
        [policy]
        unknown_methods = "refuse"
        allow = ["idempotent_write", "read_only"]
        docbind = 0xD0
        peers = {{ "{PEER}" = ["destructive"] }}
        [limits]
        foreign_message_octets = 65536
        unary_s = 1.5
        [observe]
        log_format = "json"
        "#
    );
    let config = parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let s = config.settings;
    assert_eq!(s.identity, Path::new("/keys/identity.pem"));
    assert_eq!(s.listeners[0].tls.cert, Path::new("/etc/relay/c.pem"));
    assert_eq!(s.listeners[0].peers, ["*"]);
    assert_eq!(s.listeners[0].hello, HelloMode::Optional);
    let agent = &s.agents[0];
    assert_eq!(agent.name, "literature");
    assert_eq!(agent.url, "http://127.0.0.1:9999/");
    assert!(agent.default && agent.http2);
    assert_eq!(agent.version, AgentVersion::V03);
    assert_eq!(agent.connect_time, Duration::from_millis(250));
    assert_eq!(agent.unary_time, Duration::from_secs(600));
    assert_eq!(agent.body_octets_max, 65536);
    assert_eq!(
        agent.authorization_file.as_deref(),
        Some(Path::new("/etc/relay/auth"))
    );
    let [plain, secure] = &s.ingresses[..] else {
        panic!()
    };
    assert_eq!(plain.card, CardMode::Verbatim);
    assert_eq!(
        plain.public_url.as_deref(),
        Some("https://a2a.example/base")
    );
    assert_eq!(plain.card_time, Duration::ZERO);
    assert_eq!(plain.sse_keep_alive, Duration::from_millis(2500));
    assert_eq!(plain.unary_time, Duration::from_millis(1500));
    assert_eq!(plain.body_octets_max, 65536);
    let path = |path: &str, route| RoutePath {
        path: path.to_owned(),
        route,
    };
    assert_eq!(plain.routes, [path("/", 0)]);
    assert_eq!(secure.routes, [path("/", 0), path("/b", 1)]);
    assert!(secure.tls.is_some() && secure.token_file.is_some());
    assert_eq!(s.routes[0].upstreams[0].server_name, "relay.example");
    assert_eq!(s.routes[0].tls_verify, TlsVerify::Full);
    assert_eq!(s.routes[1].tls_verify, TlsVerify::Pinned);
    assert_eq!(s.routes[1].upstreams[0].peer.as_deref(), Some(PEER));
    assert_eq!(s.engine.workers, 2);
    assert_eq!(s.engine.cores, [1, 0]);
    assert_eq!(s.engine.aead, AeadPath::Ring);
    assert_eq!(s.policy.unknown_methods, UnknownMethods::Refuse);
    assert_eq!(s.policy.allow, [0, 1]);
    assert_eq!(s.policy.peers, [(PEER.to_owned(), vec![3])]);
    assert_eq!(s.policy.document_binding, Some(0xd0));
    assert!(s.observe.log_json);
    assert!(
        config
            .notes
            .iter()
            .any(|note| note.contains("hello = \"optional\" is outside conformance"))
    );
}

/// A configuration that is right, and a line that is put in the place of `HERE`.
fn with(table: &str, line: &str) -> String {
    let table_of = |name: &str, body: &str| {
        let extra = if name == table { line } else { "" };
        format!("{body}\n{extra}\n")
    };
    [
        table_of("", ""),
        table_of("identity", "[identity]\nkey = \"i.pem\""),
        table_of(
            "listen",
            "[[listen]]\naddress = \"127.0.0.1:7443\"\ntls_cert = \"c\"\ntls_key = \"k\"\npeers = []",
        ),
        table_of("agent", "[[agent]]\nname = \"a\"\nurl = \"http://127.0.0.1:1/\""),
        table_of("ingress", "[[ingress]]\naddress = \"127.0.0.1:8080\""),
        table_of("route", "[[route]]\npath = \"/a\"\nupstream = \"npamp://r.example:7443\""),
        table_of("engine", "[engine]"),
        table_of("policy", "[policy]"),
        table_of("stream", "[stream]"),
        table_of("limits", "[limits]"),
        table_of("observe", "[observe]"),
    ]
    .concat()
}

/// One mistake, told once, at the line marked `#!`, with its key.
fn assert_told(text: &str, key: &str, message: &str) {
    let line = text.lines().position(|line| line.ends_with("#!")).unwrap() + 1;
    let told = parse(text).expect_err(text).to_string();
    let expected = if key.is_empty() {
        format!("/etc/relay/relay.toml:{line}: ")
    } else {
        format!("/etc/relay/relay.toml:{line}: {key}: ")
    };
    assert!(
        told.starts_with(&expected),
        "expected {expected:?}, told {told:?}"
    );
    assert!(
        told.contains(message),
        "expected {message:?}, told {told:?}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn each_mistake_is_told_with_its_line_and_key() {
    assert!(parse(&with("none", "")).is_ok());
    let table: &[(&str, &str, &str, &str)] = &[
        // wrong type
        (
            "identity",
            "[[ingress]]\naddress = 8080",
            "ingress[0].address",
            "expected a string, found integer",
        ),
        ("engine", "aead = \"fast\"", "engine.aead", "\"fast\""),
        (
            "engine",
            "workers = \"two\"",
            "engine.workers",
            "expected an integer, found string",
        ),
        (
            "agent",
            "default = 1",
            "agent[0].default",
            "expected true or false",
        ),
        (
            "agent",
            "unary_s = \"1\"",
            "agent[0].unary_s",
            "expected a number of seconds",
        ),
        (
            "engine",
            "cores = [0, \"1\"]",
            "engine.cores[1]",
            "expected an integer",
        ),
        (
            "policy",
            "allow = \"read_only\"",
            "policy.allow",
            "expected an array of strings",
        ),
        // unknown key, unknown table, unknown word
        (
            "listen",
            "adress = \"x\"",
            "listen[0].adress",
            "unknown key, known here are address,",
        ),
        ("agent", "\"a b\" = 1", "agent[0].\"a b\"", "unknown key"),
        ("observe", "[obsrve]", "obsrve", "unknown key"),
        ("observe", "[streams]", "streams", "unknown key"),
        (
            "policy",
            "allow = [\"read\"]",
            "policy.allow[0]",
            "\"read\" is not one of \"read_only\"",
        ),
        (
            "listen",
            "hello = \"maybe\"",
            "listen[0].hello",
            "is not one of",
        ),
        (
            "agent",
            "a2a_version = \"2.0\"",
            "agent[0].a2a_version",
            "is not one of",
        ),
        (
            "observe",
            "log_format = \"xml\"",
            "observe.log_format",
            "is not one of",
        ),
        // missing key
        (
            "agent",
            "[[agent]] #!\nname = \"b\"",
            "agent[1].url",
            "missing key",
        ),
        (
            "route",
            "[[route]] #!\npath = \"/b\"",
            "route[1].upstream",
            "missing key",
        ),
        (
            "route",
            "[[route]] #!\npath = \"/b\"\nupstream = \"npamp://10.0.0.1:1\"",
            "route[1]",
            "missing key server_name",
        ),
        // out of range
        (
            "limits",
            "foreign_message_octets = 8388609",
            "limits.foreign_message_octets",
            "out of range, allowed are 1024 to 8388608",
        ),
        (
            "limits",
            "foreign_message_octets = -1",
            "limits.foreign_message_octets",
            "out of range",
        ),
        (
            "limits",
            "exchanges_per_association = 4097",
            "limits.exchanges_per_association",
            "out of range",
        ),
        (
            "limits",
            "exchanges_per_association = 0",
            "limits.exchanges_per_association",
            "out of range",
        ),
        (
            "limits",
            "process_octets = 99999999999999999999999",
            "limits.process_octets",
            "",
        ),
        (
            "limits",
            "handshake_s = 5.01",
            "limits.handshake_s",
            "allowed are 0.001 to 5 seconds",
        ),
        (
            "stream",
            "retention_s = 121",
            "stream.retention_s",
            "out of range",
        ),
        (
            "stream",
            "replay_events = 0",
            "stream.replay_events",
            "out of range",
        ),
        (
            "stream",
            "replay_bytes = 4194305",
            "stream.replay_bytes",
            "out of range",
        ),
        (
            "stream",
            "detach_grace_s = 601",
            "stream.detach_grace_s",
            "out of range",
        ),
        (
            "stream",
            "window_events = 0",
            "stream.window_events",
            "out of range",
        ),
        (
            "stream",
            "window_bytes = 16777217",
            "stream.window_bytes",
            "out of range",
        ),
        ("limits", "unary_s = nan", "limits.unary_s", "out of range"),
        ("limits", "unary_s = inf", "limits.unary_s", "out of range"),
        ("limits", "unary_s = -1", "limits.unary_s", "out of range"),
        (
            "limits",
            "association_octets = 4096",
            "limits.association_octets",
            "less than foreign_message_octets",
        ),
        (
            "limits",
            "process_octets = 9000000",
            "limits.process_octets",
            "less than association_octets",
        ),
        (
            "agent",
            "connect_s = 6",
            "agent[0].connect_s",
            "out of range",
        ),
        ("engine", "workers = 65", "engine.workers", "out of range"),
        (
            "policy",
            "docbind = 0x10000",
            "policy.docbind",
            "out of range",
        ),
        // spelling of values
        (
            "listen",
            "[[listen]]\naddress = \"localhost:1\" #!\ntls_cert = \"c\"\ntls_key = \"k\"\npeers = []",
            "listen[1].address",
            "no address to listen on",
        ),
        (
            "observe",
            "admin = \"9090\"",
            "observe.admin",
            "no address to listen on",
        ),
        (
            "observe",
            "log = \"x=loud\"",
            "observe.log",
            "no log filter",
        ),
        (
            "route",
            "peer = \"ed25519:AAAA\"",
            "route[0].peer",
            "is no identity",
        ),
        (
            "route",
            "peer = \"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"",
            "route[0].peer",
            "is no identity",
        ),
        (
            "route",
            "server_name = \"a b\"",
            "route[0].server_name",
            "no host name",
        ),
        (
            "route",
            "server_name = \"\"",
            "route[0].server_name",
            "must not be empty",
        ),
        (
            "route",
            "tls_ca = \"a\\u0000b\"",
            "route[0].tls_ca",
            "control characters",
        ),
        (
            "agent",
            "[[agent]]\nname = \"b\"\nurl = \"ftp://x\"",
            "agent[1].url",
            "no http or https URL",
        ),
        (
            "ingress",
            "public_url = \"https://x/?q\"",
            "ingress[0].public_url",
            "query",
        ),
        (
            "agent",
            "tls_ca = \"ca\"",
            "agent[0].tls_ca",
            "no certificate to check",
        ),
        (
            "ingress",
            "tls_cert = \"c\"",
            "ingress[0].tls_cert",
            "needs tls_key",
        ),
        (
            "ingress",
            "tls_key = \"c\"",
            "ingress[0].tls_key",
            "needs tls_cert",
        ),
        // R9
        (
            "policy",
            "docbind = 0x0013",
            "policy.docbind",
            "assigned or reserved",
        ),
        (
            "policy",
            "docbind = 0x0011",
            "policy.docbind",
            "StreamControl",
        ),
        (
            "policy",
            "docbind = 0x8001",
            "policy.docbind",
            "reserved range",
        ),
        // R12
        (
            "route",
            "tls_verify = \"pinned\"",
            "route[0].tls_verify",
            "needs peer",
        ),
        // what tables say about each other
        (
            "route",
            "ingress = \"127.0.0.1:9\"",
            "route[0].ingress",
            "no [[ingress]] has the address",
        ),
        (
            "agent",
            "[[agent]]\nname = \"A\" #!\nurl = \"http://x/\"",
            "agent[1].name",
            "another agent",
        ),
        (
            "ingress",
            "[[ingress]]\naddress = \"127.0.0.1:7443\"",
            "ingress[1].address",
            "listened on twice",
        ),
        (
            "observe",
            "admin = \"127.0.0.1:8080\"",
            "observe.admin",
            "listened on twice",
        ),
        (
            "engine",
            "cores = [1, 1]",
            "engine.cores[1]",
            "listed twice",
        ),
        (
            "listen",
            "[[listen]]\naddress = \"127.0.0.1:1\"\ntls_cert = \"c\"\ntls_key = \"k\"\npeers = [\"*\", \"*\"]",
            "listen[1].peers[0]",
            "stand alone",
        ),
        // TOML itself
        ("engine", "workers = = 1", "", ""),
        ("engine", "workers = 1\nworkers = 2", "", "duplicate key"),
    ];
    for (section, lines, key, message) in table {
        // The mistake is in the last line unless another one is marked.
        let marked = if lines.contains("#!") {
            (*lines).to_owned()
        } else {
            format!("{lines} #!")
        };
        assert_told(&with(section, &marked), key, message);
    }
}

#[test]
fn mistakes_are_told_together() {
    let text = with(
        "policy",
        "allow = [\"x\", \"y\"]\nwrong = 1\n[[route]]\npath = \"b\"",
    );
    let told = parse(&text).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 5, "{told}");
    for (line, part) in lines.iter().zip([
        "policy.allow[0]: ",
        "policy.allow[1]: ",
        "policy.wrong: ",
        "route[1].upstream: ",
        "route[1].path: ",
    ]) {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn a_path_is_routed_once_per_ingress() {
    let two = |first: &str, second: &str| {
        format!(
            "identity.key = \"i\"\n[[ingress]]\naddress = \"127.0.0.1:1\"\n[[ingress]]\naddress = \"127.0.0.1:2\"\n\
             [[route]]\nupstream = \"npamp://r.example:1\"\n{first}\npath = \"/a\"\n\
             [[route]]\nupstream = \"npamp://r.example:1\"\n{second}\npath = \"/a/\" #!"
        )
    };
    let (one, other) = ("ingress = \"127.0.0.1:1\"", "ingress = \"127.0.0.1:2\"");
    assert!(parse(&two(one, other)).is_ok());
    assert_told(
        &two(one, one),
        "route[1].path",
        "another route for \"/a\" on ingress 127.0.0.1:1",
    );
    assert_told(&two("", other), "route[1].path", "another route");
    assert_told(&two("", ""), "route[1].path", "another route");
}

/// A route leads to one upstream or several, which may say for themselves what the route
/// says for all.
#[test]
fn a_route_has_several_upstreams() {
    let route = |upstream: &str, keys: &str| {
        format!(
            "identity.key = \"i\"\n[[ingress]]\naddress = \"127.0.0.1:1\"\n\
             [[route]]\npath = \"/a\"\n{keys}\nupstream = {upstream} #!"
        )
    };
    let text = route(
        &format!(
            "[\"npamp://a.example:1\", {{ url = \"npamp://10.0.0.2:2\", server_name = \"B.example\", peer = \"{PEER}\", tls_ca = \"b.pem\" }}]"
        ),
        "tls_ca = \"all.pem\"",
    );
    let settings = parse(&text).unwrap_or_else(|e| panic!("{e}")).settings;
    let [one, other] = &settings.routes[0].upstreams[..] else {
        panic!()
    };
    assert_eq!(
        (&*one.address, &*one.server_name),
        ("a.example:1", "a.example")
    );
    assert_eq!(one.peer, None);
    assert_eq!(one.tls_ca.as_deref(), Some(Path::new("/etc/relay/all.pem")));
    assert_eq!(
        (&*other.address, &*other.server_name),
        ("10.0.0.2:2", "b.example")
    );
    assert_eq!(other.peer.as_deref(), Some(PEER));
    assert_eq!(other.tls_ca.as_deref(), Some(Path::new("/etc/relay/b.pem")));
    let shown = config::render(&settings);
    assert!(shown.contains("npamp://10.0.0.2:2"), "{shown}");
    let again = parse(&shown)
        .unwrap_or_else(|e| panic!("{e}\n{shown}"))
        .settings;
    assert_eq!(format!("{settings:?}"), format!("{again:?}"));
    // The route's name is that of all.
    let named = route(
        "[\"npamp://10.0.0.1:1\", \"npamp://10.0.0.2:1\"]",
        "server_name = \"n.example\"",
    );
    let settings = parse(&named).unwrap_or_else(|e| panic!("{e}")).settings;
    assert!(
        settings.routes[0]
            .upstreams
            .iter()
            .all(|one| one.server_name == "n.example")
    );
    // One that differs in its name alone is another.
    let names =
        "[\"npamp://a.example:1\", { url = \"npamp://a.example:1\", server_name = \"b.example\" }]";
    assert!(parse(&route(names, "")).is_ok());

    let many = vec!["\"npamp://a.example:1\""; 17].join(", ");
    for (upstream, key, message) in [
        ("[]", "upstream", "0 entries, 1 to 16 are supported"),
        (
            &*format!("[{many}]"),
            "upstream",
            "17 entries, 1 to 16 are supported",
        ),
        (
            "1",
            "upstream",
            "expected a string or an array, found integer",
        ),
        (
            "[1]",
            "upstream[0]",
            "expected a string or a table, found integer",
        ),
        ("[\"http://a.example\"]", "upstream[0]", "is no upstream"),
        (
            "[\"npamp://a.example:1\", \"npamp://A.example:1\"]",
            "upstream[1]",
            "npamp://A.example:1 is listed twice",
        ),
        (
            "[\"npamp://a.example:1\", \"npamp://10.0.0.1:1\"]",
            "upstream[1]",
            "missing key server_name",
        ),
        (
            "[{ server_name = \"b.example\" }]",
            "upstream[0].url",
            "missing key",
        ),
        (
            "[{ url = \"npamp://a.example:1\", hello = \"optional\" }]",
            "upstream[0].hello",
            "unknown key, known here are url, server_name, peer, tls_ca",
        ),
        (
            "[{ url = \"npamp://a.example:1\", peer = \"x\" }]",
            "upstream[0].peer",
            "is no identity",
        ),
    ] {
        assert_told(&route(upstream, ""), &format!("route[0].{key}"), message);
    }
    // The identity of each must be known where nothing else is checked.
    let pinned = |keys: &str| {
        format!(
            "identity.key = \"i\"\n[[ingress]]\naddress = \"127.0.0.1:1\"\n[[route]]\npath = \"/a\"\n\
             upstream = [\"npamp://a.example:1\", {{ url = \"npamp://b.example:1\", peer = \"{PEER}\" }}]\n\
             {keys}\ntls_verify = \"pinned\" #!"
        )
    };
    assert!(parse(&pinned(&format!("peer = \"{PEER}\""))).is_ok());
    assert_told(&pinned(""), "route[0].tls_verify", "needs peer");
}

/// Ruling R12.
/// A route is a path's or a server name's, and a server name leads to one place.
#[test]
fn an_inbound_route_leads_a_server_name_on() {
    let with = |rest: &str| {
        format!(
            "identity.key = \"i\"\n[[listen]]\naddress = \"127.0.0.1:1\"\ntls_cert = \"c\"\ntls_key = \"k\"\npeers = [\"*\"]\n\
             [engine]\nworkers = 2\n[[route]]\nupstream = \"npamp://r.example:1\"\n{rest}"
        )
    };
    let config = parse(&with("inbound = \"far.example\"\n")).unwrap_or_else(|e| panic!("{e}"));
    let route = &config.settings.routes[0];
    assert_eq!(route.inbound.as_deref(), Some("far.example"));
    assert_eq!(
        (route.path.as_str(), route.upstreams[0].server_name.as_str()),
        ("", "r.example")
    );
    let shown = config::render(&config.settings);
    assert!(shown.contains("inbound = \"far.example\"") && !shown.contains("path ="));
    assert_eq!(config::render(&parse(&shown).unwrap().settings), shown);
    assert!(
        !config
            .notes
            .iter()
            .any(|note| note.contains("cannot be delivered"))
    );

    let alone = "arrives at [[listen]], not at an ingress";
    assert_told(
        &with("inbound = \"a\"\npath = \"/a\" #!"),
        "route[0].path",
        alone,
    );
    let ingress = "inbound = \"a\"\ningress = \"127.0.0.1:2\" #!";
    assert_told(&with(ingress), "route[0].ingress", alone);
    assert_told(&with("inbound = \"a b\" #!"), "route[0].inbound", "a b");
    let agent = "[[agent]]\nname = \"a\"\nurl = \"http://127.0.0.1:9/\"\n";
    let taken = "another agent or inbound route \"a\"";
    let text = with(&format!("inbound = \"a\" #!\n{agent}"));
    assert_told(&text, "route[0].inbound", taken);
    let twice =
        with("inbound = \"a\"\n[[route]]\nupstream = \"npamp://s.example:1\"\ninbound = \"a\" #!");
    assert_told(&twice, "route[1].inbound", taken);
    assert!(parse(&with(&format!("inbound = \"*\"\n{agent}"))).is_ok());
    let rest = with(&format!("inbound = \"*\" #!\n{agent}default = true\n"));
    assert_told(
        &rest,
        "route[0].inbound",
        "the default agent takes the rest",
    );
}

#[test]
fn pinned_needs_peer_and_hello() {
    let route = |extra: &str| with("route", &format!("{extra}\ntls_verify = \"pinned\" #!"));
    let peer = format!("peer = \"{PEER}\"");
    assert!(parse(&route(&peer)).is_ok());
    let optional = format!("{peer}\nhello = \"optional\"");
    assert_told(
        &route(&optional),
        "route[0].tls_verify",
        "needs hello = \"required\"",
    );
}

#[test]
fn nothing_to_do_and_no_identity() {
    let told = parse("").unwrap_err().to_string();
    assert!(
        told.starts_with("/etc/relay/relay.toml:1: identity.key: missing key"),
        "{told}"
    );
    let told = parse("identity.key = \"x\"").unwrap_err().to_string();
    assert_eq!(
        told,
        "/etc/relay/relay.toml: nothing to do: neither [[listen]] nor [[ingress]]"
    );
}

#[test]
fn a_credential_in_a_url_is_not_repeated() {
    let text = with(
        "agent",
        "[[agent]]\nname = \"b\"\nurl = \"http://user:hunter2@x/\" #!",
    );
    assert_told(&text, "agent[1].url", "must not hold credentials");
    assert!(!parse(&text).unwrap_err().to_string().contains("hunter2"));
}

#[test]
fn files_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let told = |text: &str| {
        write("relay.toml", text);
        config::load(&directory.path().join("relay.toml"))
            .unwrap_err()
            .to_string()
    };
    let make = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["r.example".to_owned()]).unwrap();
        write(&format!("{name}.cert"), &made.cert.pem());
        write(&format!("{name}.key"), &made.signing_key.serialize_pem());
    };
    make("one");
    make("two");
    write("empty", "\n");
    write("two-lines", "Bearer a\nBearer b\n");
    let config = "identity.key = \"empty\"
[[listen]]
address = \"127.0.0.1:0\"
tls_cert = \"one.cert\"
tls_key = \"two.key\"
peers = []
[[listen]]
address = \"127.0.0.1:0\"
tls_cert = \"one.key\"
tls_key = \"gone\"
peers = []
[[agent]]
name = \"a\"
url = \"https://a.example\"
tls_ca = \"empty\"
authorization_file = \"two-lines\"
[[ingress]]
address = \"127.0.0.1:0\"
token_file = \"empty\"
";
    let lines = told(config);
    for part in [
        ":1: identity.key: ",
        ":4: listen[0].tls_cert: ",
        ":9: listen[1].tls_cert: ",
        ":10: listen[1].tls_key: cannot read ",
        ":15: agent[0].tls_ca: ",
        ":16: agent[0].authorization_file: ",
        ":19: ingress[0].token_file: ",
    ] {
        assert!(lines.contains(part), "{part} is not in\n{lines}");
    }
    assert!(lines.contains("do not go together"), "{lines}");
    assert_eq!(lines.lines().count(), 7, "{lines}");
    assert!(!lines.contains("Bearer"), "{lines}");

    assert!(told(&"#".repeat(1024 * 1024 + 1)).contains("is longer than 1048576 octets"));
    std::fs::write(directory.path().join("relay.toml"), [0xff, 0xfe]).unwrap();
    let told = config::load(&directory.path().join("relay.toml"))
        .unwrap_err()
        .to_string();
    assert!(told.contains("is not UTF-8"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No text is a reason to panic, and every refusal says something.
    #[test]
    fn any_text(text in ".{0,200}") {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.0.is_empty());
        }
    }

    /// Nearly right configurations reach further into the reader.
    #[test]
    fn mangled_examples(at in 0_usize..6000, cut in 0_usize..40, put in "[\\[\\]=\"a-z0-9.\n]{0,12}") {
        let text = whole_example();
        let mut start = at.min(text.len());
        while !text.is_char_boundary(start) { start -= 1; }
        let mut end = (start + cut).min(text.len());
        while !text.is_char_boundary(end) { end -= 1; }
        let mangled = format!("{}{put}{}", &text[..start], &text[end.max(start)..]);
        if let Err(errors) = parse(&mangled) {
            prop_assert!(!errors.0.is_empty());
            let lines = mangled.matches('\n').count() + 1;
            for error in errors.0 {
                prop_assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
            }
        }
    }

    /// Any value in the place of any key.
    #[test]
    fn any_value(index in 0_usize..80, value in prop_oneof![
        Just("1".to_owned()), Just("-1".to_owned()), Just("1e400".to_owned()), Just("nan".to_owned()),
        Just("true".to_owned()), Just("[]".to_owned()), Just("[[]]".to_owned()), Just("{}".to_owned()),
        Just("{ a = { b = 1 } }".to_owned()), Just("1979-05-27".to_owned()), Just("''".to_owned()),
        Just("9223372036854775807".to_owned()), Just("0xFFFFFFFFFFFFFFFFFF".to_owned()),
    ]) {
        let text = whole_example();
        let keys: Vec<usize> = text.lines().enumerate()
            .filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'))
            .map(|(number, _)| number).collect();
        let victim = keys[index % keys.len()];
        let lines: Vec<String> = text.lines().enumerate().map(|(number, line)| {
            match line.split_once(" = ") {
                Some((key, _)) if number == victim => format!("{key} = {value}"),
                _ => line.to_owned(),
            }
        }).collect();
        let _ = parse(&lines.join("\n"));
    }
}
