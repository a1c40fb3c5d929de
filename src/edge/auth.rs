//! Bearer tokens of the ingress's clients. Tokens are kept as digests and
//! compared in constant time; none is ever logged.

use super::respond::Failure;
use super::{EdgeError, files};
use crate::limits::PEM_FILE_OCTETS_MAX;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use std::path::Path;
use subtle::{Choice, ConstantTimeEq};

/// The tokens that clients may present.
pub(super) struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// Reads one token a line; empty lines are skipped.
    pub(super) fn read(path: &Path) -> Result<Self, EdgeError> {
        let octets = files::octets(path, PEM_FILE_OCTETS_MAX)?;
        let tokens: Vec<[u8; 32]> = octets
            .split(|&octet| octet == b'\n')
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty())
            .map(|line| Sha256::digest(line).into())
            .collect();
        if tokens.is_empty() {
            // Nobody could be let in; an empty file is a mistake, not a policy.
            return Err(files::content(path, "holds no token").into());
        }
        Ok(Self(tokens))
    }

    /// Lets a request pass that presents one of the tokens; gives its digest, which
    /// tells clients apart.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<[u8; 32], Failure> {
        let Some(value) = headers.get(AUTHORIZATION) else {
            return Err(Failure::Unauthorized { presented: false });
        };
        let presented = bearer(value.as_bytes())
            .map(|token| <[u8; 32]>::from(Sha256::digest(token)))
            .unwrap_or_default();
        let known = self.0.iter().fold(Choice::from(0), |known, token| {
            known | token.ct_eq(&presented)
        });
        if known.into() {
            Ok(presented)
        } else {
            Err(Failure::Unauthorized { presented: true })
        }
    }
}

/// The token of a `Bearer` credential (RFC 6750 §2.1); the scheme's case is free.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn tokens_pass_and_others_do_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\r\n\n two \n").unwrap();
        let tokens = Tokens::read(file.path()).unwrap();
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            tokens.check(&headers).is_ok()
        };
        for good in ["Bearer one", "bearer two", "BEARER  one "] {
            assert!(check(good), "{good}");
        }
        for bad in [
            "Bearer",
            "Bearer ",
            "Bearer on",
            "Bearer onee",
            "one",
            "Basic one",
            "",
        ] {
            assert!(!check(bad), "{bad}");
        }
        assert!(matches!(
            tokens.check(&HeaderMap::new()),
            Err(Failure::Unauthorized { presented: false })
        ));
    }

    #[test]
    fn an_empty_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\n \n").unwrap();
        assert!(matches!(
            Tokens::read(file.path()),
            Err(EdgeError::File(files::FileError::Content { .. }))
        ));
    }
}
