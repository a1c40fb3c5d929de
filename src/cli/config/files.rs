//! The files that a configuration names: do they exist, can they be read, do
//! they hold what they should. Their content goes nowhere from here, and no
//! message repeats any of it.

use super::reader::{At, Problems};
use crate::edge::files::{FileError, certificates, private_key, roots, text};
use crate::limits;
use crate::relay::context::load_identity;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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

fn check_identity(path: &Path) -> Result<(), String> {
    match load_identity(path) {
        Ok(_) => Ok(()),
        Err(error @ FileError::Content { .. }) => {
            Err(format!("{error}; `npamp-relay identity new` makes one"))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn check_tokens(path: &Path) -> Result<(), String> {
    let text = text(path, limits::PEM_FILE_OCTETS_MAX).map_err(|e| e.to_string())?;
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
    let text = text(path, limits::PEM_FILE_OCTETS_MAX).map_err(|e| e.to_string())?;
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
            FileKind::Roots => roots(Some(path)).map(drop).map_err(|e| e.to_string()),
            FileKind::Tokens => check_tokens(path),
            FileKind::Authorization => check_authorization(path),
            FileKind::Certificate { key, key_at } => {
                let chain = certificates(path).map_err(|e| e.to_string());
                let key_der = private_key(key);
                if let Err(error) = &key_der {
                    problems.report(key_at, error);
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
