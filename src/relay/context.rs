//! What the units of a relay share, made once from the settings: identity, link
//! configurations, HELLO parameters. Immutable but for the octet gauge.

use super::RelayError;
use super::settings::{HelloMode, INBOUND_REST, RouteSettings, Settings, TlsVerify};
use super::stats::UpstreamStats;
use crate::a2a::port::{AgentDirectory, ServiceParameters, Target};
use crate::association::{AssociationConfig, ParamValue};
use crate::crypto::{Identity, IdentityPublic};
use crate::edge::files::{self, FileError};
use crate::edge::stats::EdgeStats;
use crate::edge::streams::Directory;
use crate::engine::control::{Command, ControlStats};
use crate::handshake::{PeerPolicy, ResponderConfig};
use crate::limits;
use crate::link::config::{self, Verify};
use rustls::{ClientConfig, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// A route, ready to dial.
pub struct RouteContext {
    /// Its settings.
    pub settings: RouteSettings,
    /// Its upstreams, in the order of the settings.
    pub upstreams: Vec<UpstreamContext>,
}

/// An upstream of a route, ready to dial.
pub struct UpstreamContext {
    /// Link configuration.
    pub tls: Arc<ClientConfig>,
    /// Pinned responder.
    pub peer: Option<IdentityPublic>,
    /// Counters, over all units.
    pub stats: Arc<UpstreamStats>,
}

/// A listener, ready to accept.
pub struct ListenContext {
    /// Link configuration.
    pub tls: Arc<ServerConfig>,
    /// Responder's handshake configuration, made for each connection.
    pub responder: Arc<dyn Fn() -> ResponderConfig + Send + Sync>,
    /// Configuration of the associations that come of it.
    pub association: Arc<AssociationConfig>,
}

/// What all units share.
pub struct Context {
    /// The settings.
    pub settings: Settings,
    /// This relay's identity.
    pub identity: Arc<Identity>,
    /// Routes by index.
    pub routes: Vec<RouteContext>,
    /// Commands to the control thread.
    pub control: mpsc::UnboundedSender<Command>,
    /// Counters of the edges.
    pub edge_stats: Arc<EdgeStats>,
    /// Counters of the control thread.
    pub control_stats: Arc<ControlStats>,
    /// What the units know of streams that their clients may come back for.
    pub directory: Arc<Directory>,
    octets: Vec<AtomicUsize>,
}

/// Reads an identity file.
pub fn load_identity(path: &Path) -> Result<Identity, FileError> {
    let text = files::text(path, limits::PEM_FILE_OCTETS_MAX)?;
    Identity::from_pkcs8_pem(&text)
        .map_err(|_| files::content(path, "is no Ed25519 key in PKCS#8 PEM"))
}

fn peer(text: &str) -> Result<IdentityPublic, RelayError> {
    text.parse()
        .map_err(|_| RelayError::Settings(format!("{text:?} is no ed25519:<base64url> identity")))
}

impl Context {
    /// Loads what the settings name.
    pub fn new(
        settings: Settings,
        identity: Identity,
        units: usize,
        control: mpsc::UnboundedSender<Command>,
    ) -> Result<Self, RelayError> {
        let identity = Arc::new(identity);
        let routes = settings
            .routes
            .iter()
            .map(|route| {
                let upstreams = route.upstreams.iter();
                let upstreams = upstreams
                    .map(|upstream| {
                        let verify = match route.tls_verify {
                            TlsVerify::Full => {
                                Verify::Roots(files::roots(upstream.tls_ca.as_deref())?)
                            }
                            TlsVerify::Pinned => Verify::Pinned,
                        };
                        Ok(UpstreamContext {
                            tls: config::client(verify)
                                .map_err(|error| RelayError::Settings(error.to_string()))?,
                            peer: upstream.peer.as_deref().map(peer).transpose()?,
                            stats: Arc::default(),
                        })
                    })
                    .collect::<Result<Vec<_>, RelayError>>()?;
                Ok(RouteContext {
                    settings: route.clone(),
                    upstreams,
                })
            })
            .collect::<Result<Vec<_>, RelayError>>()?;
        Ok(Self {
            identity,
            routes,
            control,
            edge_stats: Arc::new(EdgeStats::default()),
            control_stats: Arc::new(ControlStats::default()),
            directory: Arc::default(),
            octets: (0..units).map(|_| AtomicUsize::new(0)).collect(),
            settings,
        })
    }

    /// What a listener needs.
    pub fn listener(&self, index: usize) -> Result<ListenContext, RelayError> {
        let listen = &self.settings.listeners[index];
        let key = files::private_key(&listen.tls.key)?;
        let tls = config::server(files::certificates(&listen.tls.cert)?, key).map_err(|error| {
            files::content(&listen.tls.cert, format!("does not serve: {error}"))
        })?;
        let policy = if listen.peers.iter().any(|peer| peer == "*") {
            PeerPolicy::Any
        } else {
            listen
                .peers
                .iter()
                .map(|text| peer(text))
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .collect()
        };
        let identity = self.identity.clone();
        Ok(ListenContext {
            tls,
            responder: Arc::new(move || ResponderConfig::new(identity.clone(), policy.clone())),
            association: Arc::new(self.association_config(listen.hello)),
        })
    }

    fn association_config(&self, hello: HelloMode) -> AssociationConfig {
        let mut config = AssociationConfig::new(hello);
        let bounds = &self.settings.limits;
        // Ruling R5: HELLO may take as long as a handshake.
        config.hello_time = config.hello_time.min(bounds.handshake_time);
        config.idle_probe_time = bounds.idle_probe_time;
        config.probe_timeout = bounds.probe_timeout;
        config.queue_octets_max = bounds.association_octets.max(limits::FRAME_OCTETS_MAX);
        if let Some(tag) = self.settings.policy.document_binding {
            config
                .params
                .push(("docbind".into(), ParamValue::Uint(u64::from(tag))));
        }
        config
    }

    /// Configuration of an association that we dial, with what we state in HELLO (rulings R9, R12, R13).
    pub fn initiator_config(
        &self,
        route: usize,
        server_name: &str,
        parameters: &ServiceParameters,
    ) -> AssociationConfig {
        let mut config = self.association_config(self.routes[route].settings.hello);
        config
            .params
            .push(("server-name".into(), ParamValue::Text(server_name.into())));
        if parameters.hops > 0 {
            let hops = ParamValue::Uint(u64::from(parameters.hops));
            config.params.push((super::hello::HOPS.into(), hops));
        }
        for name in ServiceParameters::NAMES {
            let values: Vec<String> = parameters.values(name).map(str::to_owned).collect();
            if !values.is_empty() {
                config
                    .params
                    .push((name.into(), ParamValue::TextList(values)));
            }
        }
        config
    }

    /// Octets of foreign messages on their way out, over all units, as last published.
    pub fn octets_held(&self) -> usize {
        self.octets
            .iter()
            .map(|octets| octets.load(Ordering::Relaxed))
            .sum()
    }

    /// A unit says how much it holds.
    pub fn publish_octets(&self, unit: usize, octets: usize) {
        if let Some(cell) = self.octets.get(unit) {
            cell.store(octets, Ordering::Relaxed);
        }
    }
}

/// Agents and inbound routes by server name (ruling R12).
#[derive(Debug, Clone)]
pub struct Agents {
    names: Vec<(String, Target)>,
    default: Option<Target>,
}

impl Agents {
    /// From the settings.
    pub fn new(settings: &Settings) -> Self {
        let agents = settings.agents.iter().enumerate();
        let agents =
            agents.map(|(n, agent)| (agent.name.as_str(), agent.default, Target::Agent(n)));
        let routes = settings.routes.iter().enumerate();
        let routes = routes.filter_map(|(n, route)| {
            let name = route.inbound.as_deref()?;
            Some((name, name == INBOUND_REST, Target::Route(n)))
        });
        let (mut names, mut default) = (Vec::new(), None);
        for (name, takes_rest, target) in agents.chain(routes) {
            names.push((name.to_ascii_lowercase(), target));
            if takes_rest {
                default.get_or_insert(target);
            }
        }
        Self { names, default }
    }
}

impl AgentDirectory for Agents {
    fn agent_for(&self, server_name: &str) -> Option<usize> {
        match self.target_for(server_name)? {
            Target::Agent(agent) => Some(agent),
            Target::Route(_) => None,
        }
    }

    fn target_for(&self, server_name: &str) -> Option<Target> {
        let name = server_name.to_ascii_lowercase();
        let label = name.split('.').next().unwrap_or_default();
        let named = |wanted: &str| self.names.iter().find(|(name, _)| name == wanted);
        named(&name)
            .or_else(|| named(label))
            .map(|(_, target)| *target)
            .or(self.default)
    }

    fn name_for(&self, server_name: &str) -> Option<String> {
        let target = self.target_for(server_name)?;
        let mut names = self.names.iter();
        let name = names.find(|(name, named)| *named == target && name != INBOUND_REST);
        // A route for whatever has no other target has no name of its own.
        Some(name.map_or_else(|| server_name.to_owned(), |(name, _)| name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ruling R12: the name itself, then its first label, then the default.
    #[test]
    fn the_server_name_selects_the_agent() {
        let names = ["literature", "math.example", "rest"];
        let names = names.into_iter().enumerate();
        let agents = Agents {
            names: names
                .map(|(n, name)| (name.to_owned(), Target::Agent(n)))
                .chain([("far".to_owned(), Target::Route(0))])
                .collect(),
            default: Some(Target::Agent(2)),
        };
        assert_eq!(agents.agent_for("literature.relay.example"), Some(0));
        assert_eq!(agents.agent_for("Literature"), Some(0));
        assert_eq!(agents.agent_for("math.example"), Some(1));
        assert_eq!(agents.agent_for("math.other"), Some(2));
        assert_eq!(agents.target_for("far.example"), Some(Target::Route(0)));
        assert_eq!(agents.agent_for("far.example"), None);
        assert_eq!(
            Agents {
                default: None,
                ..agents
            }
            .agent_for("unknown.example"),
            None
        );
    }
}
