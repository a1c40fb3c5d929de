//! AEAD suites and hashes with their code points (draft §Authenticated
//! Encryption, §Key Derivation and Hashing).

use ring::aead;

use super::CryptoError;

/// An AEAD suite: 32-octet key, 12-octet nonce, 16-octet tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// 0x0001
    Aes256Gcm,
    /// 0x0002
    ChaCha20Poly1305,
}

impl Suite {
    /// Every suite.
    pub const ALL: [Self; 2] = [Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// The registered code point.
    pub const fn code_point(self) -> u16 {
        match self {
            Self::Aes256Gcm => 0x0001,
            Self::ChaCha20Poly1305 => 0x0002,
        }
    }

    /// The suite of a code point, if it is one of ours.
    pub const fn from_code_point(code_point: u16) -> Option<Self> {
        match code_point {
            0x0001 => Some(Self::Aes256Gcm),
            0x0002 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    pub(super) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Seals `in_out` in place and appends the tag. For single messages outside
    /// the record layer; frames use [`super::TrafficKey`].
    pub fn seal(
        self,
        key: &[u8],
        nonce: &[u8],
        associated_data: &[u8],
        in_out: &mut Vec<u8>,
    ) -> Result<(), CryptoError> {
        let (key, nonce) = self.key_and_nonce(key, nonce)?;
        key.seal_in_place_append_tag(nonce, aead::Aad::from(associated_data), in_out)
            .map_err(|_| CryptoError::AeadLength)
    }

    /// Opens ciphertext and tag in place. On failure `in_out` is emptied.
    pub fn open(
        self,
        key: &[u8],
        nonce: &[u8],
        associated_data: &[u8],
        in_out: &mut Vec<u8>,
    ) -> Result<(), CryptoError> {
        let (key, nonce) = self.key_and_nonce(key, nonce)?;
        let opened = key
            .open_in_place(nonce, aead::Aad::from(associated_data), in_out)
            .map(|plaintext| plaintext.len());
        if let Ok(length) = opened {
            in_out.truncate(length);
            Ok(())
        } else {
            in_out.fill(0);
            in_out.clear();
            Err(CryptoError::Aead)
        }
    }

    fn key_and_nonce(
        self,
        key: &[u8],
        nonce: &[u8],
    ) -> Result<(aead::LessSafeKey, aead::Nonce), CryptoError> {
        let key =
            aead::UnboundKey::new(self.algorithm(), key).map_err(|_| CryptoError::AeadLength)?;
        let nonce =
            aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| CryptoError::AeadLength)?;
        Ok((aead::LessSafeKey::new(key), nonce))
    }
}

/// The KDF and transcript hash of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hash {
    /// Standard profile, 32 octets.
    Sha256,
    /// High and Sovereign profiles, 48 octets.
    Sha384,
}

impl Hash {
    /// Octets of the longest output.
    pub const LEN_MAX: usize = 48;

    /// Octets of output (`HashLen`).
    pub const fn hash_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439 §2.8.2.
    #[test]
    fn chacha20_poly1305_known_answer() {
        let key: Vec<u8> = (0x80..0xa0).collect();
        let nonce = hex::decode("070000004041424344454647").unwrap();
        let aad = hex::decode("50515253c0c1c2c3c4c5c6c7").unwrap();
        let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let mut in_out = text.to_vec();
        Suite::ChaCha20Poly1305
            .seal(&key, &nonce, &aad, &mut in_out)
            .unwrap();
        assert_eq!(
            hex::encode(&in_out[text.len()..]),
            "1ae10b594f09e26a7e902ecbd0600691"
        );
        assert_eq!(hex::encode(&in_out[..8]), "d31a8d34648e60db");
        Suite::ChaCha20Poly1305
            .open(&key, &nonce, &aad, &mut in_out)
            .unwrap();
        assert_eq!(in_out, text);
    }

    #[test]
    fn wrong_lengths_and_tags() {
        let mut in_out = vec![1, 2, 3];
        for suite in Suite::ALL {
            assert_eq!(
                suite.seal(&[0; 31], &[0; 12], b"", &mut in_out),
                Err(CryptoError::AeadLength)
            );
            assert_eq!(
                suite.seal(&[0; 32], &[0; 13], b"", &mut in_out),
                Err(CryptoError::AeadLength)
            );
            let mut sealed = vec![1, 2, 3];
            suite.seal(&[0; 32], &[0; 12], b"a", &mut sealed).unwrap();
            assert_eq!(
                suite.open(&[0; 32], &[0; 12], b"b", &mut sealed),
                Err(CryptoError::Aead)
            );
            assert!(sealed.is_empty());
        }
    }

    /// Draft §Authenticated Encryption.
    #[test]
    fn code_points() {
        for suite in Suite::ALL {
            assert_eq!(Suite::from_code_point(suite.code_point()), Some(suite));
        }
        assert_eq!(Suite::from_code_point(0), None);
        assert_eq!(Suite::from_code_point(3), None);
    }
}
