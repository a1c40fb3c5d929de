//! Certificates, keys and roots of the HTTP edges. The link has its own.

use super::settings::TlsFiles;
use super::{EdgeError, files};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;

/// HTTPS server with ALPN for HTTP/2 and HTTP/1.1.
pub(super) fn server(files: &TlsFiles) -> Result<Arc<ServerConfig>, EdgeError> {
    let chain = files::certificates(&files.cert)?;
    let key = files::private_key(&files.key)?;
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
    client_trusting(files::roots(roots)?)
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
