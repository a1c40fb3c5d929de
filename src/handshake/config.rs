//! What each side brings to a handshake.

use std::collections::HashSet;
use std::sync::Arc;

use crate::crypto::{Identity, IdentityPublic, Suite};

/// Which peer identities are permitted.
#[derive(Debug, Clone)]
pub enum PeerPolicy {
    /// Every identity that proves itself.
    Any,
    /// Only these; the empty set permits none.
    Set(Arc<HashSet<IdentityPublic>>),
}

impl PeerPolicy {
    /// Exactly one identity.
    pub fn only(identity: IdentityPublic) -> Self {
        [identity].into_iter().collect()
    }

    /// Whether `identity` is permitted.
    pub fn permits(&self, identity: &IdentityPublic) -> bool {
        match self {
            Self::Any => true,
            Self::Set(set) => set.contains(identity),
        }
    }
}

impl FromIterator<IdentityPublic> for PeerPolicy {
    fn from_iter<I: IntoIterator<Item = IdentityPublic>>(identities: I) -> Self {
        Self::Set(Arc::new(identities.into_iter().collect()))
    }
}

/// The initiator's side.
#[derive(Debug, Clone)]
pub struct InitiatorConfig {
    /// Our identity.
    pub identity: Arc<Identity>,
    /// The responder's identity, if it is pinned; any responder otherwise.
    pub peer: Option<IdentityPublic>,
    /// AEAD suites to offer, preferred first; not empty.
    pub suites: Vec<Suite>,
}

/// The responder's side.
#[derive(Debug, Clone)]
pub struct ResponderConfig {
    /// Our identity.
    pub identity: Arc<Identity>,
    /// Permitted initiators.
    pub peers: PeerPolicy,
    /// AEAD suites we take; the initiator's order decides among them.
    pub suites: Vec<Suite>,
}

impl InitiatorConfig {
    /// Offers every suite, AES-256-GCM first.
    pub fn new(identity: Arc<Identity>, peer: Option<IdentityPublic>) -> Self {
        Self {
            identity,
            peer,
            suites: Suite::ALL.to_vec(),
        }
    }
}

impl ResponderConfig {
    /// Takes every suite.
    pub fn new(identity: Arc<Identity>, peers: PeerPolicy) -> Self {
        Self {
            identity,
            peers,
            suites: Suite::ALL.to_vec(),
        }
    }
}
