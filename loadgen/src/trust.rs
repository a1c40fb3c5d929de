//! Identities, certificates and what is made of them.

use npamp_relay::association::{AssociationConfig, HelloMode, ParamValue};
use npamp_relay::crypto::Identity;
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::limits;
use npamp_relay::link::config::{self, Verify};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Server name of the responder in this process.
pub const SELF_NAME: &str = "responder.loadgen.localhost";

/// A file or a configuration that does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// TLS refuses it.
    #[error("TLS: {0}")]
    Tls(String),
}

#[allow(clippy::needless_pass_by_value)] // serves as an argument of map_err
fn content(path: &Path, problem: impl ToString) -> TrustError {
    TrustError::Content {
        path: path.into(),
        problem: problem.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    let refuse = |source| TrustError::Read {
        path: path.into(),
        source,
    };
    let mut octets = Vec::new();
    let bound = limits::PEM_FILE_OCTETS_MAX;
    File::open(path)
        .map_err(refuse)?
        .take(bound as u64 + 1)
        .read_to_end(&mut octets)
        .map_err(refuse)?;
    if octets.len() > bound {
        return Err(content(path, format!("longer than {bound} octets")));
    }
    Ok(octets)
}

/// The identity in a file, or a new one.
pub fn identity(path: Option<&Path>) -> Result<Arc<Identity>, TrustError> {
    let Some(path) = path else {
        return Ok(Arc::new(Identity::generate(&mut SystemRandom)));
    };
    let octets = read(path)?;
    let text = std::str::from_utf8(&octets).map_err(|_| content(path, "not PEM text"))?;
    Identity::from_pkcs8_pem(text)
        .map(Arc::new)
        .map_err(|error| content(path, error))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let octets = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&octets)
        .collect::<Result<_, _>>()
        .map_err(|error| content(path, error))?;
    if chain.is_empty() {
        return Err(content(path, "holds no certificate"));
    }
    Ok(chain)
}

/// A certificate chain and its key.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// From files.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TrustError> {
        let octets = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&octets).map_err(|error| content(key, error))?;
        Ok(Self {
            chain: chain(cert)?,
            key,
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
        let mut store = RootCertStore::empty();
        if let Some(path) = roots {
            for certificate in chain(path)? {
                store
                    .add(certificate)
                    .map_err(|error| content(path, error))?;
            }
        } else {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Verify::Roots(store)
    };
    config::client(verify).map_err(|error| TrustError::Tls(error.to_string()))
}

/// What an initiator's HELLO says: the link's server name (ruling R12).
pub fn initiator_association(server_name: &str) -> Arc<AssociationConfig> {
    let mut config = AssociationConfig::new(HelloMode::Required);
    config
        .params
        .push(("server-name".into(), ParamValue::Text(server_name.into())));
    Arc::new(config)
}

/// What the responder's HELLO says.
pub fn responder_association() -> Arc<AssociationConfig> {
    Arc::new(AssociationConfig::new(HelloMode::Required))
}
