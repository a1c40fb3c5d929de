//! The files that a relay is told to read, certificates and keys in PEM above
//! all: bounded, wiped where they may hold a secret, and with errors that name
//! the file and never repeat any of it.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

use crate::limits::PEM_FILE_OCTETS_MAX;

/// Why a file does not serve.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It exceeds its bound.
    #[error("{} is longer than {octets_max} octets", path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
        /// The bound.
        octets_max: usize,
    },
    /// It does not hold what it should.
    #[error("{} {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, as the rest of a sentence about the file.
        problem: String,
    },
}

/// [`FileError::Content`].
pub fn content(path: &Path, problem: impl Into<String>) -> FileError {
    FileError::Content {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

/// A whole file of at most `octets_max` octets.
pub fn octets(path: &Path, octets_max: usize) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut octets = Zeroizing::new(Vec::new());
    File::open(path)
        .map_err(failed)?
        .take(octets_max as u64 + 1)
        .read_to_end(&mut octets)
        .map_err(failed)?;
    if octets.len() > octets_max {
        return Err(FileError::TooLong {
            path: path.to_owned(),
            octets_max,
        });
    }
    Ok(octets)
}

/// As [`octets`], for text.
pub fn text(path: &Path, octets_max: usize) -> Result<Zeroizing<String>, FileError> {
    let octets = octets(path, octets_max)?;
    match std::str::from_utf8(&octets) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(content(path, "is not UTF-8")),
    }
}

/// The certificates of a PEM file; there is at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let octets = octets(path, PEM_FILE_OCTETS_MAX)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&octets).collect();
    match certificates {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(content(path, "holds no certificate")),
        Err(error) => Err(content(path, format!("is no PEM file: {error}"))),
    }
}

/// The first private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let octets = octets(path, PEM_FILE_OCTETS_MAX)?;
    // The parser's own words are not repeated: they could quote the file.
    PrivateKeyDer::from_pem_slice(&octets).map_err(|_| content(path, "holds no private key in PEM"))
}

/// Trust in the certificates of a PEM file, or in those of the system.
pub fn roots(path: Option<&Path>) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = path {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| {
                content(
                    path,
                    format!("holds a certificate that is no root: {error}"),
                )
            })?;
        }
    } else {
        // A machine without roots still serves peers that need none.
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::warn!(%error, "a system root certificate cannot be read");
        }
        roots.add_parsable_certificates(native.certs);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(octets: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), octets).unwrap();
        file
    }

    #[test]
    fn a_file_is_whole_or_an_error() {
        let file = holding(b"1234");
        assert_eq!(*octets(file.path(), 4).unwrap(), b"1234");
        let error = octets(file.path(), 3).unwrap_err().to_string();
        assert!(error.ends_with("is longer than 3 octets"), "{error}");
        let error = octets(Path::new("/nowhere/at/all"), 3).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /nowhere/at/all"));
        let error = text(holding(&[0xff]).path(), 3).unwrap_err().to_string();
        assert!(error.ends_with("is not UTF-8"), "{error}");
    }

    #[test]
    fn no_error_repeats_the_file() {
        let secret = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0!!\n-----END PRIVATE KEY-----\n";
        let file = holding(secret);
        for error in [
            private_key(file.path()).unwrap_err(),
            certificates(holding(b"").path()).unwrap_err(),
            roots(Some(holding(b"secret").path())).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(!text.contains("c2Vj") && !text.contains("secret"), "{text}");
        }
    }
}
