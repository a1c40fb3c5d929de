//! TLS configurations of the link: version 1.3 only, ALPN `n-pamp/2`, the
//! hybrid group X25519MLKEM768 preferred, no session tickets, no early data.

use super::{ALPN, LinkError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::sync::Arc;

/// How the initiator checks the responder's certificate.
#[derive(Debug)]
pub enum Verify {
    /// Chain to one of the roots, and the name.
    Roots(RootCertStore),
    /// Not at all: the pinned N-PAMP identity authenticates the responder, and
    /// HELLO repeats the server name under it (ruling R12).
    Pinned,
}

/// AES-256-GCM first, as the frames use; the hybrid group first.
fn provider() -> Arc<CryptoProvider> {
    let default = aws_lc_rs::default_provider();
    let mut cipher_suites: Vec<_> = default
        .cipher_suites
        .iter()
        .copied()
        .filter(|suite| suite.tls13().is_some())
        .collect();
    cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_256_GCM_SHA384);
    Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups: vec![
            aws_lc_rs::kx_group::X25519MLKEM768,
            aws_lc_rs::kx_group::X25519,
            aws_lc_rs::kx_group::SECP256R1,
            aws_lc_rs::kx_group::SECP384R1,
        ],
        ..default
    })
}

/// Configuration of an initiator's link.
pub fn client(verify: Verify) -> Result<Arc<ClientConfig>, LinkError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| LinkError::Configuration(error.to_string()))?;
    let mut config = match verify {
        Verify::Roots(roots) if roots.is_empty() => {
            return Err(LinkError::Configuration(
                "no root certificate to verify with".into(),
            ));
        }
        Verify::Roots(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        Verify::Pinned => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NameOnly { algorithms }))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// Configuration of a responder's link.
pub fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, LinkError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| LinkError::Configuration(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| LinkError::Configuration(error.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No resumption: an association is long-lived, and its identity is checked afresh each time.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// Accepts any certificate, yet still holds the peer to a signature by its key.
#[derive(Debug)]
struct NameOnly {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for NameOnly {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
