//! Identities, certificates and what is made of them.

use npamp_relay::association::{AssociationConfig, HelloMode, ParamValue};
use npamp_relay::crypto::Identity;
use npamp_relay::edge::files::{self, FileError};
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::link::config::{self, Verify};
use npamp_relay::relay::context::load_identity;
use npamp_relay::wire::ChannelId;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;

/// Server name of the responder in this process.
pub const SELF_NAME: &str = "responder.loadgen.localhost";

/// A file or a configuration that does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file does not serve.
    #[error(transparent)]
    File(#[from] FileError),
    /// TLS refuses it.
    #[error("TLS: {0}")]
    Tls(String),
}

/// The identity in a file, or a new one.
pub fn identity(path: Option<&Path>) -> Result<Arc<Identity>, TrustError> {
    let Some(path) = path else {
        return Ok(Arc::new(Identity::generate(&mut SystemRandom)));
    };
    Ok(Arc::new(load_identity(path)?))
}

/// A certificate chain and its key.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// From files.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TrustError> {
        Ok(Self {
            chain: files::certificates(cert)?,
            key: files::private_key(key)?,
        })
    }

    /// A new self-signed one.
    pub fn generate() -> Result<Self, TrustError> {
        let made = rcgen::generate_simple_self_signed([SELF_NAME.to_owned()])
            .map_err(|error| TrustError::Tls(error.to_string()))?;
        Ok(Self {
            chain: vec![made.cert.der().clone()],
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        })
    }

    /// Link configuration of an initiator that trusts exactly this.
    pub fn client(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.chain {
            roots
                .add(certificate.clone())
                .map_err(|error| TrustError::Tls(error.to_string()))?;
        }
        config::client(Verify::Roots(roots)).map_err(|error| TrustError::Tls(error.to_string()))
    }

    /// Link configuration of the responder.
    pub fn server(self) -> Result<Arc<ServerConfig>, TrustError> {
        config::server(self.chain, self.key).map_err(|error| TrustError::Tls(error.to_string()))
    }
}

/// Link configuration of an initiator: pinned, with the roots of a file, or with the system's.
pub fn client(pinned: bool, roots: Option<&Path>) -> Result<Arc<ClientConfig>, TrustError> {
    let verify = if pinned {
        Verify::Pinned
    } else {
        Verify::Roots(files::roots(roots)?)
    };
    config::client(verify).map_err(|error| TrustError::Tls(error.to_string()))
}

/// What an initiator's HELLO says: the link's server name (ruling R12).
pub fn initiator_association(server_name: &str) -> Arc<AssociationConfig> {
    let mut config = bridge_alone();
    config
        .params
        .push(("server-name".into(), ParamValue::Text(server_name.into())));
    Arc::new(config)
}

/// What the responder's HELLO says.
pub fn responder_association() -> Arc<AssociationConfig> {
    Arc::new(bridge_alone())
}

/// What a relay would say on the Discovery channel is no part of a measurement.
fn bridge_alone() -> AssociationConfig {
    let mut config = AssociationConfig::new(HelloMode::Required);
    config.channels = vec![ChannelId::BRIDGE];
    config
}
