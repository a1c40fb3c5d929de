//! `demo`: everything a demonstration needs. A sample agent, and a configuration
//! in a temporary directory with which one relay is both ingress and egress, so
//! that a call goes client → ingress → N-PAMP → egress → agent inside one process.

pub mod agent;

use super::CliError;
use super::args::DemoArgs;
use super::{config, identity};
use crate::relay::settings::Settings;
use agent::SampleAgent;
use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The server name of the association; its first label is the agent's name.
const SERVER_NAME: &str = "sample.localhost";

/// DocumentBinding TLV type that both ends of the demonstration state (ruling R9).
const DOCUMENT_BINDING: u16 = 0x00d0;

/// A demonstration that is ready to run. Dropping it stops the agent and removes
/// the directory.
#[derive(Debug)]
pub struct Demo {
    /// What the relay is told.
    pub settings: Settings,
    /// Base URL of the ingress, without a slash at its end.
    pub url: String,
    /// The port that was asked for is taken, in a sentence.
    pub notice: Option<String>,
    agent: SampleAgent,
    directory: Directory,
}

impl Demo {
    /// Starts the sample agent and writes identity, certificate and configuration.
    pub fn prepare(args: &DemoArgs) -> Result<Self, CliError> {
        let failed = |e: std::io::Error| CliError(format!("cannot prepare the demonstration: {e}"));
        let agent = SampleAgent::start().map_err(failed)?;
        let directory = Directory::new().map_err(failed)?;
        // Held until all are chosen, so that no port is chosen twice.
        let (ingress, notice) = match TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)) {
            Ok(listener) => (listener, None),
            Err(e) => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
                let notice = format!(
                    "port {} cannot be had ({e}), so another one is used",
                    args.port
                );
                (listener, Some(notice))
            }
        };
        let egress = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let ingress = ingress.local_addr().map_err(failed)?;
        let egress = egress.local_addr().map_err(failed)?;
        let admin = admin.local_addr().map_err(failed)?;

        let public = identity::new(&directory.0.join("identity.pem"))?;
        let pair = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])
            .map_err(|e| CliError(format!("cannot make a certificate: {e}")))?;
        directory
            .write("cert.pem", &pair.cert.pem())
            .map_err(failed)?;
        let key = zeroize::Zeroizing::new(pair.signing_key.serialize_pem());
        directory.write("key.pem", &key).map_err(failed)?;
        let text = format!(
            r#"[identity]
key = "identity.pem"

[[listen]]
address = "{egress}"
tls_cert = "cert.pem"
tls_key = "key.pem"
peers = ["{public}"]

[[agent]]
name = "sample"
url = "http://{agent}/"

[[ingress]]
address = "{ingress}"

[[route]]
path = "/"
upstream = "npamp://{egress}"
server_name = "{SERVER_NAME}"
peer = "{public}"
tls_ca = "cert.pem"

[policy]
docbind = {DOCUMENT_BINDING:#06x}

[observe]
admin = "{admin}"
log = "warn"
"#,
            agent = agent.address(),
        );
        directory.write("relay.toml", &text).map_err(failed)?;
        let config = config::load(&directory.0.join("relay.toml"))
            .map_err(|errors| CliError(errors.to_string()))?;
        Ok(Self {
            settings: config.settings,
            url: format!("http://{ingress}"),
            notice,
            agent,
            directory,
        })
    }

    /// What to print once the relay is ready.
    pub fn banner(&self) -> String {
        let mut text = String::new();
        if let Some(notice) = &self.notice {
            let _ = writeln!(text, "{notice}");
        }
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "client -> {ingress} -> N-PAMP {egress} -> http://{agent}/ (sample agent)\nconfiguration: {config}\n",
            ingress = self.url,
            egress = self
                .settings
                .routes
                .first()
                .and_then(|route| route.upstreams.first())
                .map_or("", |upstream| upstream.address.as_str()),
            agent = self.agent.address(),
            config = self.directory.0.join("relay.toml").display(),
        );
        for (what, line) in curl_lines(&self.url) {
            let _ = writeln!(text, "# {what}\n{line}\n");
        }
        if let Some(admin) = self.settings.observe.admin {
            let _ = writeln!(text, "# Metrics\ncurl -s http://{admin}/metrics\n");
        }
        text
    }
}

/// Commands that work against the sample agent behind an ingress, each with what
/// it shows. `url` is the agent's base URL at the ingress, without a slash at its end.
pub fn curl_lines(url: &str) -> Vec<(&'static str, String)> {
    let post = |options: &str, body: &str| {
        format!("curl {options} {url}/ -H 'Content-Type: application/json' -d '{body}'")
    };
    let v03 = |method: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"kind":"message","messageId":"m1","role":"user","parts":[{{"kind":"text","text":"hello from curl"}}]}}}}}}"#
        )
    };
    let v10 = r#"{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello from curl"}]}}}"#;
    vec![
        (
            "The agent card",
            format!("curl -s {url}/.well-known/agent-card.json"),
        ),
        ("One message, A2A v0.3", post("-s", &v03("message/send"))),
        ("A stream, A2A v0.3", post("-sN", &v03("message/stream"))),
        ("A stream, A2A v1.0", post("-sN -H 'A2A-Version: 1.0'", v10)),
    ]
}

/// A directory that only its owner can enter, removed when dropped.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> std::io::Result<Self> {
        let mut octets = [0_u8; 8];
        getrandom::fill(&mut octets).map_err(|e| std::io::Error::other(e.to_string()))?;
        let path = std::env::temp_dir().join(format!("npamp-relay-demo-{}", hex::encode(octets)));
        // An existing directory is refused: whoever made it may not be us.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        let path: &Path = &self.0.join(name);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepares_a_valid_configuration_and_cleans_up() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let demo = Demo::prepare(&DemoArgs { port }).unwrap();
        assert!(demo.notice.as_ref().unwrap().contains(&port.to_string()));
        assert_eq!(demo.settings.ingresses[0].routes.len(), 1);
        assert_eq!(
            demo.settings.routes[0].upstreams[0].address,
            demo.settings.listeners[0].address.to_string()
        );
        assert_eq!(
            demo.settings.policy.document_binding,
            Some(DOCUMENT_BINDING)
        );
        let ingress = demo.settings.ingresses[0].address;
        assert!(
            demo.banner()
                .contains(&format!("curl -sN http://{ingress}/"))
        );
        let directory = demo.directory.0.clone();
        assert!(directory.join("relay.toml").exists());
        drop(demo);
        assert!(!directory.exists());
    }

    #[test]
    fn the_port_that_is_asked_for_is_used() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let demo = Demo::prepare(&DemoArgs { port }).unwrap();
        if demo.notice.is_none() {
            assert_eq!(demo.url, format!("http://127.0.0.1:{port}"));
        }
    }
}
