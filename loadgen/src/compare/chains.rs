//! Two programs in a row between clients and the built-in agent, with TLS 1.3
//! between them: two relays, two nginx, two haproxy. The first of each runs on
//! one core and the second on another, as far as there are two.

use super::child::{Running, cores, find, free_port};
use crate::http::target::HttpTarget;
use npamp_relay::crypto::{Identity, IdentityPublic};
use npamp_relay::engine::clock::SystemRandom;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Paths that lead to the agent, which answers each in its way.
pub const PATHS: [&str; 3] = ["unary", "event", "bulk"];
/// Name of the second program's certificate.
const NAME: &str = "back.compare.localhost";
/// Connections that a proxy keeps to the next.
const KEPT: usize = 512;

/// Files that all chains share, in a directory of their own that goes with it.
pub struct Place {
    directory: tempfile::TempDir,
    front: usize,
    back: usize,
}

impl Place {
    /// Makes the directory, a certificate and its key.
    pub fn new() -> Result<Self, String> {
        let directory = tempfile::Builder::new()
            .prefix("npamp-compare-")
            .tempdir()
            .map_err(|error| format!("no temporary directory: {error}"))?;
        let cores = cores().map_err(|error| error.to_string())?;
        let (Some(&back), Some(&front)) = (cores.first(), cores.last()) else {
            return Err("no core to run on".into());
        };
        let place = Self {
            directory,
            front,
            back,
        };
        let names = PATHS.map(|path| format!("{path}.compare.localhost"));
        let names = [&names[..], &[NAME.to_owned()]].concat();
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        place.write("cert.pem", &cert)?;
        place.write("key.pem", &key)?;
        // haproxy wants both in one file.
        place.write("both.pem", &(cert + &key))?;
        Ok(place)
    }

    /// Cores of the first and the second program.
    pub fn cores(&self) -> (usize, usize) {
        (self.front, self.back)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.path(name);
        std::fs::write(&path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// A new identity's file and public key.
    fn identity(&self, name: &str) -> Result<(String, IdentityPublic), String> {
        let identity = Identity::generate(&mut SystemRandom);
        let file = self.write(
            name,
            &String::from_utf8_lossy(identity.to_pkcs8_pem().as_bytes()),
        )?;
        Ok((file, identity.public()))
    }
}

/// What is in the way of requests, or nothing but the agent.
pub struct Chain {
    /// What it is called in results.
    pub name: &'static str,
    /// What its programs say of their version.
    pub version: String,
    address: SocketAddr,
    running: Vec<Running>,
}

impl Chain {
    /// URL of one of [`PATHS`].
    pub fn target(&self, path: &str) -> HttpTarget {
        HttpTarget {
            authority: self.address.to_string(),
            path: format!("/{path}"),
        }
    }

    /// Whether its programs live.
    pub fn check(&mut self) -> Result<(), String> {
        self.running.iter_mut().try_for_each(Running::check)
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn port() -> Result<u16, String> {
    free_port().map_err(|error| format!("no free port: {error}"))
}

/// The agent alone.
pub fn agent(events: u32, event_octets: u64, core: usize) -> Result<Chain, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let (events, octets) = (events.to_string(), event_octets.to_string());
    let arguments = [
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--events",
        &events,
        "--event-octets",
        &octets,
    ];
    let mut running = Running::start("agent", &own, &arguments, Some(core), true)?;
    let address = running.wait_for(|line| {
        let url = line.strip_prefix("listening on http://")?;
        url.trim_end_matches('/').parse().ok()
    })?;
    Ok(Chain {
        name: "agent",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        address,
        running: vec![running],
    })
}

/// What a relay says when it listens.
fn listening(line: &str, message: &str) -> Option<SocketAddr> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    if line["message"] != message {
        return None;
    }
    line["address"].as_str()?.parse().ok()
}

/// Two relays.
pub fn relay(place: &Place, program: &Path, agent: &Chain) -> Result<Chain, String> {
    let (egress_key, egress) = place.identity("egress-identity.pem")?;
    let (ingress_key, ingress) = place.identity("ingress-identity.pem")?;
    let (cert, key) = (place.path("cert.pem"), place.path("key.pem"));
    let observe = "[observe]\nlog_format = \"json\"\n";
    let mut config = format!(
        "[identity]\nkey = '{egress_key}'\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls_cert = '{}'\ntls_key = '{}'\npeers = [\"{ingress}\"]\n[engine]\ncores = [{}]\n{observe}",
        cert.display(),
        key.display(),
        place.back,
    );
    for path in PATHS {
        // Writing to a String cannot fail.
        let _ = write!(
            config,
            "[[agent]]\nname = \"{path}\"\nurl = \"{}\"\n",
            agent.target(path)
        );
    }
    let file = place.write("egress.toml", &config)?;
    let arguments = ["run", "--config", &file];
    let mut back = Running::start("the egress", program, &arguments, None, false)?;
    let address = back.wait_for(|line| listening(line, "listening for N-PAMP"))?;
    let mut config = format!(
        "[identity]\nkey = '{ingress_key}'\n[[ingress]]\naddress = \"127.0.0.1:0\"\n[engine]\ncores = [{}]\n{observe}",
        place.front,
    );
    for path in PATHS {
        let _ = write!(
            config,
            "[[route]]\npath = \"/{path}\"\nupstream = \"npamp://{address}\"\nserver_name = \"{path}.compare.localhost\"\npeer = \"{egress}\"\ntls_ca = '{}'\n",
            cert.display(),
        );
    }
    let file = place.write("ingress.toml", &config)?;
    let arguments = ["run", "--config", &file];
    let mut front = Running::start("the ingress", program, &arguments, None, false)?;
    let address = front.wait_for(|line| listening(line, "listening for A2A over HTTP"))?;
    Ok(Chain {
        name: "relay",
        version: version(program, "--version"),
        address,
        running: vec![front, back],
    })
}

/// The first line that a program says of its version, wherever it says it.
fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = std::process::Command::new(program).arg(flag).output() else {
        return String::new();
    };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text)
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn nginx_config(
    place: &Place,
    name: &str,
    listen: &str,
    server: &str,
    next: u16,
    to: &str,
) -> String {
    let directory = place.directory.path().display();
    let mut temporary = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(temporary, "  {kind}_temp_path '{directory}/{name}-{kind}';");
    }
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid '{directory}/{name}.pid';\nerror_log stderr warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  tcp_nodelay on;\n  keepalive_requests 1000000000;\n  client_body_buffer_size 64k;\n{temporary}\
         \x20 upstream next {{ server 127.0.0.1:{next}; keepalive {KEPT}; keepalive_requests 1000000000; }}\n\
         \x20 server {{\n    listen {listen};\n{server}\
         \x20   proxy_http_version 1.1;\n    proxy_set_header Connection \"\";\n\
         \x20   location / {{ proxy_pass {to}; }}\n\
         \x20   location = /event {{ proxy_buffering off; proxy_pass {to}; }}\n\
         \x20   location = /bulk {{ proxy_buffering off; proxy_pass {to}; }}\n\
         \x20 }}\n}}\n"
    )
}

/// Two nginx; none when it is not installed.
pub fn nginx(place: &Place, agent: &Chain) -> Result<Option<Chain>, String> {
    let Some(program) = find("nginx") else {
        return Ok(None);
    };
    let (front, back) = (port()?, port()?);
    let (cert, key) = (place.path("cert.pem"), place.path("key.pem"));
    let server = format!(
        "    ssl_certificate '{}';\n    ssl_certificate_key '{}';\n    ssl_protocols TLSv1.3;\n",
        cert.display(),
        key.display()
    );
    let listen = format!("127.0.0.1:{back} ssl");
    let config = nginx_config(
        place,
        "nginx-back",
        &listen,
        &server,
        agent.address.port(),
        "http://next",
    );
    let server = format!(
        "    proxy_ssl_protocols TLSv1.3;\n    proxy_ssl_trusted_certificate '{}';\n    proxy_ssl_verify on;\n    proxy_ssl_server_name on;\n    proxy_ssl_name {NAME};\n",
        cert.display(),
    );
    let listen = format!("127.0.0.1:{front}");
    let other = nginx_config(place, "nginx-front", &listen, &server, back, "https://next");
    let mut running = Vec::new();
    for (name, config, port, core) in [
        ("nginx-back", config, back, place.back),
        ("nginx-front", other, front, place.front),
    ] {
        let file = place.write(&format!("{name}.conf"), &config)?;
        let directory = place.directory.path().display().to_string();
        let arguments = ["-e", "stderr", "-p", &directory, "-c", &file];
        let mut program = Running::start(name, &program, &arguments, Some(core), false)?;
        program.wait_for_port(local(port))?;
        running.insert(0, program);
    }
    Ok(Some(Chain {
        name: "nginx",
        version: version(&program, "-v"),
        address: local(front),
        running,
    }))
}

/// Two haproxy; none when it is not installed.
pub fn haproxy(place: &Place, agent: &Chain) -> Result<Option<Chain>, String> {
    let Some(program) = find("haproxy") else {
        return Ok(None);
    };
    let (front, back) = (port()?, port()?);
    let config = |bind: String, server: String| {
        format!(
            "global\n  maxconn 4096\n  nbthread 1\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
             frontend front\n  bind {bind}\n  default_backend next\n\
             backend next\n  server next {server} pool-max-conn {KEPT}\n"
        )
    };
    let both = place.path("both.pem");
    let cert = place.path("cert.pem");
    let behind = config(
        format!(
            "127.0.0.1:{back} ssl crt '{}' alpn http/1.1 ssl-min-ver TLSv1.3",
            both.display()
        ),
        agent.address.to_string(),
    );
    let before = config(
        format!("127.0.0.1:{front}"),
        format!(
            "127.0.0.1:{back} ssl verify required ca-file '{}' sni str({NAME}) verifyhost {NAME} alpn http/1.1 ssl-min-ver TLSv1.3",
            cert.display()
        ),
    );
    let mut running = Vec::new();
    for (name, config, port, core) in [
        ("haproxy-back", behind, back, place.back),
        ("haproxy-front", before, front, place.front),
    ] {
        let file = place.write(&format!("{name}.cfg"), &config)?;
        let arguments = ["-db", "-f", &file];
        let mut program = Running::start(name, &program, &arguments, Some(core), false)?;
        program.wait_for_port(local(port))?;
        running.insert(0, program);
    }
    Ok(Some(Chain {
        name: "haproxy",
        version: version(&program, "-v"),
        address: local(front),
        running,
    }))
}
