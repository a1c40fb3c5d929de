//! Finished (handshake binding §6.2): an HMAC over the transcript hash, keyed
//! from the sender's handshake traffic secret, compared in constant time.

use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};
use subtle::ConstantTimeEq;

use super::hkdf::Secret;
use super::{CryptoError, Hash, TranscriptHash};

/// The key of a Finished MAC. Wiped when dropped.
#[derive(Debug)]
pub struct FinishedKey(Secret);

impl FinishedKey {
    /// A key of `HashLen` octets.
    pub const fn new(secret: Secret) -> Self {
        Self(secret)
    }

    /// The octets, for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// `verify_data`, `HashLen` octets. The hash is `TH_sCV` for the server and
    /// `TH_cCV` for the client.
    pub fn verify_data(&self, transcript_hash: &TranscriptHash) -> Vec<u8> {
        match self.0.hash() {
            Hash::Sha256 => Hmac::<Sha256>::new_from_slice(self.0.expose())
                .expect("HMAC takes a key of any length")
                .chain_update(transcript_hash)
                .finalize()
                .into_bytes()
                .to_vec(),
            Hash::Sha384 => Hmac::<Sha384>::new_from_slice(self.0.expose())
                .expect("HMAC takes a key of any length")
                .chain_update(transcript_hash)
                .finalize()
                .into_bytes()
                .to_vec(),
        }
    }

    /// Compares a received `verify_data` in constant time.
    pub fn verify(
        &self,
        received: &[u8],
        transcript_hash: &TranscriptHash,
    ) -> Result<(), CryptoError> {
        if bool::from(self.verify_data(transcript_hash).ct_eq(received)) {
            Ok(())
        } else {
            Err(CryptoError::Finished)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handshake binding §6.2: length is `HashLen`, any difference is refused.
    #[test]
    fn verification() {
        for hash in [Hash::Sha256, Hash::Sha384] {
            let key = FinishedKey::new(Secret::new(hash, &vec![1; hash.hash_len()]).unwrap());
            let point = TranscriptHash::from_octets(&vec![2; hash.hash_len()]).unwrap();
            let data = key.verify_data(&point);
            assert_eq!(data.len(), hash.hash_len());
            assert_eq!(key.verify(&data, &point), Ok(()));
            for at in 0..data.len() {
                let mut wrong = data.clone();
                wrong[at] ^= 0x10;
                assert_eq!(key.verify(&wrong, &point), Err(CryptoError::Finished));
            }
            assert_eq!(key.verify(&data[1..], &point), Err(CryptoError::Finished));
            assert_eq!(key.verify(&[], &point), Err(CryptoError::Finished));
        }
    }
}
