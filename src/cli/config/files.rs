//! The files that a configuration names: do they exist, can they be read, do
//! they hold what they should. Their content goes nowhere from here, and no
//! message repeats any of it.

use super::reader::{At, Problems};
use crate::limits;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// What a file must hold.
#[derive(Debug, Clone)]
pub(super) enum FileKind {
    /// PKCS#8 PEM of an Ed25519 key.
    Identity,
    /// PEM certificate chain that belongs to the private key.
    Certificate { key: PathBuf, key_at: At },
    /// PEM certificates.
    Roots,
    /// One bearer token a line.
    Tokens,
    /// The value of an Authorization header.
    Authorization,
}

/// A file that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct FileUse {
    pub kind: FileKind,
    pub path: PathBuf,
    pub at: At,
}

/// Reads at most `octets_max` octets; a longer file is an error, and so is one
/// that is not there.
pub(crate) fn read_bounded(path: &Path, octets_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let explain = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = File::open(path).map_err(explain)?;
    let mut octets = Zeroizing::new(Vec::new());
    file.take(octets_max as u64 + 1)
        .read_to_end(&mut octets)
        .map_err(explain)?;
    if octets.len() > octets_max {
        return Err(format!(
            "{} is longer than {octets_max} octets",
            path.display()
        ));
    }
    Ok(octets)
}

/// As [`read_bounded`], for text.
pub(crate) fn read_text(path: &Path, octets_max: usize) -> Result<Zeroizing<String>, String> {
    let octets = read_bounded(path, octets_max)?;
    match std::str::from_utf8(&octets) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(format!("{} is not UTF-8", path.display())),
    }
}

/// Reads the certificates of a PEM file; there is at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let octets = read_bounded(path, limits::PEM_FILE_OCTETS_MAX)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&octets).collect();
    match certificates {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{} holds no certificate", path.display())),
        Err(e) => Err(format!("{} is no PEM file: {e}", path.display())),
    }
}

fn check_roots(path: &Path) -> Result<(), String> {
    let mut store = rustls::RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|e| {
            format!(
                "{} holds a certificate that is no root: {e}",
                path.display()
            )
        })?;
    }
    Ok(())
}

fn check_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let octets = read_bounded(path, limits::PEM_FILE_OCTETS_MAX)?;
    // The parser's own words are not repeated: they could quote the file.
    PrivateKeyDer::from_pem_slice(&octets)
        .map_err(|_| format!("{} holds no private key in PEM", path.display()))
}

fn check_identity(path: &Path) -> Result<(), String> {
    let text = read_text(path, limits::PEM_FILE_OCTETS_MAX)?;
    crate::crypto::Identity::from_pkcs8_pem(&text)
        .map(drop)
        .map_err(|_| {
            format!(
                "{} is no Ed25519 key in PKCS#8 PEM; `npamp-relay identity new` makes one",
                path.display()
            )
        })
}

fn check_tokens(path: &Path) -> Result<(), String> {
    let text = read_text(path, limits::PEM_FILE_OCTETS_MAX)?;
    let mut tokens = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .peekable();
    if tokens.peek().is_none() {
        return Err(format!(
            "{} holds no token, so it would lock everybody out",
            path.display()
        ));
    }
    if tokens.any(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
        return Err(format!(
            "{} holds a token that no Authorization header can carry",
            path.display()
        ));
    }
    Ok(())
}

fn check_authorization(path: &Path) -> Result<(), String> {
    let text = read_text(path, limits::PEM_FILE_OCTETS_MAX)?;
    let value = text.trim();
    if value.is_empty() || http::HeaderValue::from_str(value).is_err() {
        return Err(format!(
            "{} is no single line that an Authorization header can carry",
            path.display()
        ));
    }
    Ok(())
}

/// Checks every file; gives back what is worth knowing about them.
pub(super) fn check(files: &[FileUse], problems: &mut Problems) -> Vec<String> {
    let mut notes = Vec::new();
    for file in files {
        let path = &file.path;
        let outcome = match &file.kind {
            FileKind::Identity => check_identity(path),
            FileKind::Roots => check_roots(path),
            FileKind::Tokens => check_tokens(path),
            FileKind::Authorization => check_authorization(path),
            FileKind::Certificate { key, key_at } => {
                let chain = certificates(path);
                let key_der = check_key(key);
                if let Err(message) = &key_der {
                    problems.report(key_at, message);
                }
                chain.and_then(|chain| {
                    let Ok(key_der) = key_der else { return Ok(()) };
                    let provider = rustls::crypto::aws_lc_rs::default_provider();
                    rustls::sign::CertifiedKey::from_der(chain, key_der, &provider)
                        .map(drop)
                        .map_err(|e| {
                            format!(
                                "{} and {} do not go together: {e}",
                                path.display(),
                                key.display()
                            )
                        })
                })
            }
        };
        if let Err(message) = outcome {
            problems.report(&file.at, message);
            continue;
        }
        let secret = match &file.kind {
            FileKind::Roots => continue,
            FileKind::Certificate { key, .. } => key,
            _ => path,
        };
        let open = std::fs::metadata(secret).is_ok_and(|m| m.permissions().mode() & 0o077 != 0);
        if open {
            notes.push(format!(
                "{} can be read by others than its owner",
                secret.display()
            ));
        }
    }
    notes
}
