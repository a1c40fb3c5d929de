//! HKDF (RFC 5869) and HKDF-Expand-Label with the prefix `n-pamp ` (draft §Key
//! Derivation and Hashing). No other prefix can be asked for.

use hkdf::Hkdf;
use sha2::{Sha256, Sha384};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{CryptoError, Hash};

const LABEL_PREFIX: &[u8] = b"n-pamp ";

/// `HashLen` secret octets, wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret {
    octets: [u8; Hash::LEN_MAX],
    #[zeroize(skip)]
    hash: Hash,
}

impl Secret {
    /// A secret of exactly `hash.hash_len()` octets; anything else is an error.
    pub fn new(hash: Hash, octets: &[u8]) -> Result<Self, CryptoError> {
        if octets.len() != hash.hash_len() {
            return Err(CryptoError::HkdfLength);
        }
        let mut secret = Self::zero(hash);
        secret.as_mut().copy_from_slice(octets);
        Ok(secret)
    }

    const fn zero(hash: Hash) -> Self {
        Self {
            octets: [0; Hash::LEN_MAX],
            hash,
        }
    }

    /// The hash whose length it has.
    pub const fn hash(&self) -> Hash {
        self.hash
    }

    /// The octets. For the next derivation and for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        &self.octets[..self.hash.hash_len()]
    }

    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.octets[..self.hash.hash_len()]
    }

    /// HKDF-Expand-Label to another secret of `HashLen` octets. Labels and
    /// contexts of the key schedule are constants and hashes, so they fit.
    pub(super) fn derive(&self, label: &str, context: &[u8]) -> Self {
        let mut derived = Self::zero(self.hash);
        expand_label(self.hash, self.expose(), label, context, derived.as_mut())
            .expect("labels of the key schedule are short");
        derived
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({:?})", self.hash)
    }
}

/// HKDF-Extract; `None` for the salt means `HashLen` zero octets.
pub fn extract(hash: Hash, salt: Option<&[u8]>, ikm: &[u8]) -> Secret {
    let mut secret = Secret::zero(hash);
    match hash {
        Hash::Sha256 => {
            let (mut prk, _) = Hkdf::<Sha256>::extract(salt, ikm);
            secret.as_mut().copy_from_slice(&prk);
            prk.as_mut_slice().zeroize();
        }
        Hash::Sha384 => {
            let (mut prk, _) = Hkdf::<Sha384>::extract(salt, ikm);
            secret.as_mut().copy_from_slice(&prk);
            prk.as_mut_slice().zeroize();
        }
    }
    secret
}

/// HKDF-Expand. More than 255·`HashLen` octets of output, or a pseudorandom key
/// shorter than `HashLen`, is an error.
pub fn expand(hash: Hash, prk: &[u8], info: &[u8], out: &mut [u8]) -> Result<(), CryptoError> {
    match hash {
        Hash::Sha256 => Hkdf::<Sha256>::from_prk(prk)
            .map_err(|_| CryptoError::HkdfLength)?
            .expand(info, out),
        Hash::Sha384 => Hkdf::<Sha384>::from_prk(prk)
            .map_err(|_| CryptoError::HkdfLength)?
            .expand(info, out),
    }
    .map_err(|_| CryptoError::HkdfLength)
}

/// HKDF-Expand-Label (RFC 8446 §7.1) with the N-PAMP prefix. Label with prefix
/// and context are at most 255 octets each.
pub fn expand_label(
    hash: Hash,
    secret: &[u8],
    label: &str,
    context: &[u8],
    out: &mut [u8],
) -> Result<(), CryptoError> {
    let length = u16::try_from(out.len()).map_err(|_| CryptoError::HkdfLength)?;
    let label_length =
        u8::try_from(LABEL_PREFIX.len() + label.len()).map_err(|_| CryptoError::HkdfLength)?;
    let context_length = u8::try_from(context.len()).map_err(|_| CryptoError::HkdfLength)?;
    let mut info = Vec::with_capacity(4 + usize::from(label_length) + context.len());
    info.extend_from_slice(&length.to_be_bytes());
    info.push(label_length);
    info.extend_from_slice(LABEL_PREFIX);
    info.extend_from_slice(label.as_bytes());
    info.push(context_length);
    info.extend_from_slice(context);
    expand(hash, secret, &info, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869 §2.3 and RFC 8446 §7.1: the bounds of the construction.
    #[test]
    fn bounds() {
        let prk = [1; 32];
        assert!(expand(Hash::Sha256, &prk, b"", &mut vec![0; 255 * 32]).is_ok());
        assert_eq!(
            expand(Hash::Sha256, &prk, b"", &mut vec![0; 255 * 32 + 1]),
            Err(CryptoError::HkdfLength)
        );
        let mut out = [0; 32];
        assert!(expand_label(Hash::Sha256, &prk, "", &[0; 255], &mut out).is_ok());
        assert_eq!(
            expand_label(Hash::Sha256, &prk, "", &[0; 256], &mut out),
            Err(CryptoError::HkdfLength)
        );
        assert_eq!(
            expand_label(Hash::Sha256, &prk, &"x".repeat(249), b"", &mut out),
            Err(CryptoError::HkdfLength)
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = Secret::new(Hash::Sha256, &[0xab; 32]).unwrap();
        let shown = format!("{secret:?}");
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
        assert!(Secret::new(Hash::Sha384, &[0; 32]).is_err());
    }
}
