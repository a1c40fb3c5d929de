//! Certificates, keys and roots of the HTTP edges. The link has its own.

use super::EdgeError;
use super::settings::TlsFiles;
use crate::limits;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Reads a configured file, bounded.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, EdgeError> {
    let file = |source| EdgeError::File {
        path: path.to_owned(),
        source,
    };
    let mut octets = Vec::new();
    std::fs::File::open(path)
        .map_err(file)?
        .take(limits::CONFIG_OCTETS_MAX as u64 + 1)
        .read_to_end(&mut octets)
        .map_err(file)?;
    if octets.len() > limits::CONFIG_OCTETS_MAX {
        return Err(content(path, "the file is too large"));
    }
    Ok(octets)
}

pub(super) fn content(path: &Path, problem: impl Into<String>) -> EdgeError {
    EdgeError::Content {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EdgeError> {
    let chain = CertificateDer::pem_slice_iter(&read_file(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| content(path, error.to_string()))?;
    if chain.is_empty() {
        return Err(content(path, "no certificate in the file"));
    }
    Ok(chain)
}

/// HTTPS server with ALPN for HTTP/2 and HTTP/1.1.
pub(super) fn server(files: &TlsFiles) -> Result<Arc<ServerConfig>, EdgeError> {
    let chain = certificates(&files.cert)?;
    let octets = zeroize::Zeroizing::new(read_file(&files.key)?);
    let key = PrivateKeyDer::from_pem_slice(&octets)
        .map_err(|_| content(&files.key, "no private key in the file"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// HTTPS client that trusts the certificates in `roots`, or the system's.
pub(super) fn client(roots: Option<&Path>) -> Result<ClientConfig, EdgeError> {
    let mut store = RootCertStore::empty();
    if let Some(path) = roots {
        for certificate in certificates(path)? {
            store.add(certificate)?;
        }
    } else {
        // A machine without roots still serves http agents; https ones fail when dialled.
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::warn!(%error, "a system root certificate cannot be read");
        }
        store.add_parsable_certificates(native.certs);
    }
    client_trusting(store)
}

/// The configuration of a client that dials no https agent: it trusts nobody.
pub(super) fn no_roots() -> Result<ClientConfig, EdgeError> {
    client_trusting(RootCertStore::empty())
}

fn client_trusting(store: RootCertStore) -> Result<ClientConfig, EdgeError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth())
}
