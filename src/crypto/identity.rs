//! Ed25519 identities (RFC 8032): the signing key with its PKCS#8 PEM form, and
//! the public key with its text form `ed25519:<base64url>`. It reads no file.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::{CryptoError, Random};

const TEXT_PREFIX: &str = "ed25519:";
/// PKCS#8 v1 with the Ed25519 algorithm identifier, up to the 32 octets of the seed (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// Octets from the end of the outer SEQUENCE head to the seed: version, algorithm, two OCTET STRING heads.
const PKCS8_SEED_AFTER_HEAD: usize = 14;

/// The public key that names a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityPublic([u8; 32]);

impl IdentityPublic {
    /// Octets of the key.
    pub const LEN: usize = 32;

    /// From its octets, as the IdentityKey TLV carries them.
    pub const fn from_octets(octets: [u8; 32]) -> Self {
        Self(octets)
    }

    /// Its octets.
    pub const fn as_octets(&self) -> &[u8; 32] {
        &self.0
    }

    /// Verifies a 64-octet signature over `message`.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .map_err(|_| CryptoError::CertVerify)
    }
}

impl fmt::Display for IdentityPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for IdentityPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for IdentityPublic {
    type Err = CryptoError;

    fn from_str(text: &str) -> Result<Self, CryptoError> {
        let encoded = text
            .strip_prefix(TEXT_PREFIX)
            .ok_or(CryptoError::Identity)?;
        let octets = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| CryptoError::Identity)?;
        octets
            .try_into()
            .map(Self)
            .map_err(|_| CryptoError::Identity)
    }
}

/// A signing key. Its seed is wiped when dropped.
pub struct Identity {
    seed: Zeroizing<[u8; 32]>,
    key_pair: Box<Ed25519KeyPair>,
    public: IdentityPublic,
}

impl Identity {
    /// From the 32-octet seed of RFC 8032.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key_pair =
            Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 octets are an Ed25519 seed");
        let public: [u8; 32] = key_pair
            .public_key()
            .as_ref()
            .try_into()
            .expect("an Ed25519 public key has 32 octets");
        Self {
            seed: Zeroizing::new(*seed),
            key_pair: Box::new(key_pair),
            public: IdentityPublic(public),
        }
    }

    /// A new identity.
    pub fn generate(random: &mut dyn Random) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill(&mut *seed);
        Self::from_seed(&seed)
    }

    /// From the first `PRIVATE KEY` section of a PEM text, PKCS#8 version 1 or 2.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, CryptoError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| CryptoError::Identity)?;
        Self::from_pkcs8_der(key.secret_pkcs8_der())
    }

    fn from_pkcs8_der(der: &[u8]) -> Result<Self, CryptoError> {
        // ring checks the structure but does not give the seed back; with the
        // structure checked, the seed is at a known place, and a key pair made
        // from it must be the one ring read.
        let checked =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| CryptoError::Identity)?;
        let head = match der.get(1) {
            Some(0..=0x7f) => 2,
            Some(0x81) => 3,
            _ => return Err(CryptoError::Identity),
        };
        let seed = der
            .get(head + PKCS8_SEED_AFTER_HEAD..)
            .and_then(|rest| rest.first_chunk::<32>())
            .ok_or(CryptoError::Identity)?;
        let identity = Self::from_seed(seed);
        if checked.public_key().as_ref() != identity.public.0 {
            return Err(CryptoError::Identity);
        }
        Ok(identity)
    }

    /// PKCS#8 version 1 in PEM, as `openssl genpkey -algorithm ED25519` writes it.
    pub fn to_pkcs8_pem(&self) -> Zeroizing<String> {
        let mut der = Zeroizing::new([0; PKCS8_PREFIX.len() + 32]);
        der[..PKCS8_PREFIX.len()].copy_from_slice(&PKCS8_PREFIX);
        der[PKCS8_PREFIX.len()..].copy_from_slice(&*self.seed);
        let encoded = Zeroizing::new(STANDARD.encode(*der));
        Zeroizing::new(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            *encoded
        ))
    }

    /// The public key.
    pub const fn public(&self) -> IdentityPublic {
        self.public
    }

    /// Signs `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key_pair
            .sign(message)
            .as_ref()
            .try_into()
            .expect("an Ed25519 signature has 64 octets")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SeededRandom;

    /// RFC 8410 §10.3: the example private key, version 1.
    #[test]
    fn pem_version_1() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        let identity = Identity::from_pkcs8_pem(pem).unwrap();
        assert_eq!(
            hex::encode(*identity.seed),
            "d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842"
        );
        assert_eq!(*identity.to_pkcs8_pem(), pem);
    }

    /// Version 2, with the public key, as `ring` itself writes it.
    #[test]
    fn pem_version_2() {
        let written = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
        let read = Ed25519KeyPair::from_pkcs8(written.as_ref()).unwrap();
        let identity = Identity::from_pkcs8_der(written.as_ref()).unwrap();
        assert_eq!(identity.public().as_octets(), read.public_key().as_ref());
        let again = Identity::from_pkcs8_pem(&identity.to_pkcs8_pem()).unwrap();
        assert_eq!(again.public(), identity.public());
    }

    #[test]
    fn bad_pem_is_refused() {
        for pem in [
            "",
            "not a key",
            "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            assert_eq!(
                Identity::from_pkcs8_pem(pem).unwrap_err(),
                CryptoError::Identity
            );
        }
    }

    #[test]
    fn text_form() {
        let public = Identity::generate(&mut SeededRandom::new(7)).public();
        let text = public.to_string();
        assert_eq!(text.len(), "ed25519:".len() + 43);
        assert_eq!(text.parse(), Ok(public));
        for bad in [&text[1..], &text[..text.len() - 1], "ed25519:", "*"] {
            assert_eq!(bad.parse::<IdentityPublic>(), Err(CryptoError::Identity));
        }
        assert!(format!("{text}=").parse::<IdentityPublic>().is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        let identity = Identity::from_seed(&[0xab; 32]);
        let shown = format!("{identity:?}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }
}
