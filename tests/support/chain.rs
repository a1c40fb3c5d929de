//! Three relays in a row, as processes, with links that can be cut:
//! `ingress ══ transit ══ egress`.

use super::{Proxy, Relay, certificate, free_port, identity};
use std::fmt::Write as _;
use std::path::Path;

/// What a chain is made from.
#[derive(Default)]
pub struct ChainOptions {
    /// Agents by name and URL; each gets the route `/agents/<name>`.
    pub agents: Vec<(String, String)>,
    /// TOML tables added to all configurations, such as `[engine]`.
    pub all: String,
    /// Keys added to the `[[ingress]]`.
    pub ingress_keys: String,
}

/// See the module.
pub struct Chain {
    /// The HTTP side.
    pub ingress: Relay,
    /// Between the two others.
    pub transit: Relay,
    /// The agents' side.
    pub egress: Relay,
    /// The link from the ingress to the transit.
    pub front: Proxy,
    /// The link from the transit to the egress.
    pub back: Proxy,
    /// Port of the ingress's HTTP listener.
    pub port: u16,
    /// Port of the transit's N-PAMP listener.
    pub transit_port: u16,
    /// Where their files are. Goes last, after the processes.
    pub dir: tempfile::TempDir,
}

impl Chain {
    /// Starts all three and waits until all are ready.
    pub fn start(options: &ChainOptions) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (cert, key) = certificate(dir.path(), &["*.relay.test"]);
        let [egress, transit, ingress] =
            ["egress", "transit", "ingress"].map(|name| identity(dir.path(), name));
        let (port, transit_port, egress_port) = (free_port(), free_port(), free_port());
        let (front, back) = (Proxy::start(transit_port), Proxy::start(egress_port));
        let mut at_egress = listen(egress_port, &cert, &key, &transit.1);
        let mut at_transit = listen(transit_port, &cert, &key, &ingress.1);
        let mut at_ingress = format!(
            "[[ingress]]\naddress = \"127.0.0.1:{port}\"\n{}\n",
            options.ingress_keys
        );
        for (name, url) in &options.agents {
            let _ = write!(at_egress, "[[agent]]\nname = \"{name}\"\nurl = \"{url}\"\n");
            // Each hop has its own name for it.
            let far = format!("far-{name}");
            let inbound = format!("inbound = \"{far}\"");
            at_transit += &route(&inbound, back.port, name, &egress.1, &cert);
            let path = format!("path = \"/agents/{name}\"");
            at_ingress += &route(&path, front.port, &far, &transit.1, &cert);
        }
        let start = |name: &str, identity: &Path, own: &str| {
            let config = format!(
                "[identity]\nkey = '{}'\n{own}[policy]\ndocbind = 0x00d0\n{}\n",
                identity.display(),
                options.all
            );
            Relay::start(dir.path(), name, &config)
        };
        Self {
            egress: start("egress", &egress.0, &at_egress),
            transit: start("transit", &transit.0, &at_transit),
            ingress: start("ingress", &ingress.0, &at_ingress),
            front,
            back,
            port,
            transit_port,
            dir,
        }
    }

    /// All three, from the clients' side on.
    pub fn relays(&self) -> [&Relay; 3] {
        [&self.ingress, &self.transit, &self.egress]
    }
}

/// A `[[listen]]` table.
pub fn listen(port: u16, cert: &Path, key: &Path, peer: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:{port}\"\ntls_cert = '{}'\ntls_key = '{}'\npeers = [\"{peer}\"]\n",
        cert.display(),
        key.display(),
    )
}

/// A `[[route]]` table from what `from` says, such as `path = "/agents/a"`.
pub fn route(from: &str, port: u16, server_name: &str, peer: &str, ca: &Path) -> String {
    format!(
        "[[route]]\n{from}\nupstream = \"npamp://127.0.0.1:{port}\"\nserver_name = \"{server_name}.relay.test\"\npeer = \"{peer}\"\ntls_ca = '{}'\n",
        ca.display(),
    )
}
