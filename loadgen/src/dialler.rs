//! Dials, for the threads of the generator that open associations themselves.

use crate::trust;
use npamp_relay::association::AssociationConfig;
use npamp_relay::crypto::{Identity, IdentityPublic};
use npamp_relay::engine::control::{Command, Dial};
use rustls::ClientConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// Associations from one source address: of its ports some 28,000 are for dialling.
const ASSOCIATIONS_PER_ADDRESS: u64 = 20_000;

/// Whom to dial.
#[derive(Clone)]
pub struct Target {
    /// `host:port`.
    pub upstream: String,
    /// SNI.
    pub server_name: String,
    /// Link configuration.
    pub tls: Arc<ClientConfig>,
    /// Pinned responder.
    pub peer: Option<IdentityPublic>,
    /// Our identity.
    pub identity: Arc<Identity>,
    /// Addresses to dial from, in turn; when none are given, more of loopback's are used as they are needed.
    pub sources: Vec<IpAddr>,
}

impl Target {
    /// From where the dial with a number is made.
    fn local(&self, number: u64) -> Option<IpAddr> {
        if !self.sources.is_empty() {
            let index = number % self.sources.len() as u64;
            return self.sources.get(usize::try_from(index).ok()?).copied();
        }
        let block = u8::try_from(number / ASSOCIATIONS_PER_ADDRESS).ok()?;
        let loopback = self
            .upstream
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.is_ipv4() && address.ip().is_loopback());
        (loopback && block > 0).then(|| Ipv4Addr::new(127, 0, 0, block.saturating_add(1)).into())
    }
}

/// Dials for one unit.
#[derive(Clone)]
pub struct Dialler {
    target: Arc<Target>,
    association: Arc<AssociationConfig>,
    commands: UnboundedSender<Command>,
    unit: usize,
}

impl Dialler {
    /// What is dialled goes to `unit`.
    pub fn new(target: Arc<Target>, commands: UnboundedSender<Command>, unit: usize) -> Self {
        let association = trust::initiator_association(&target.server_name);
        Self {
            target,
            association,
            commands,
            unit,
        }
    }

    /// Dials, as the `number`th of the process. False when the control thread has ended.
    pub fn dial(&self, token: u64, number: u64) -> bool {
        let target = &self.target;
        let dial = Dial {
            token,
            unit: self.unit,
            upstream: target.upstream.clone(),
            local: target.local(number),
            server_name: target.server_name.as_str().into(),
            tls: target.tls.clone(),
            identity: target.identity.clone(),
            peer: target.peer,
            association: self.association.clone(),
        };
        self.commands.send(Command::Dial(Box::new(dial))).is_ok()
    }
}
