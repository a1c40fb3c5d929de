//! CertVerify (handshake binding §6.1): a signature over the transcript hash
//! with a context per role, so that one role's value is useless as the other's.

use super::{CryptoError, Identity, IdentityPublic, SignatureScheme, TranscriptHash};

/// Who signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The initiator.
    Client,
    /// The responder.
    Server,
}

impl Role {
    const fn context(self) -> &'static [u8] {
        match self {
            Self::Client => b"N-PAMP/2, client CertificateVerify",
            Self::Server => b"N-PAMP/2, server CertificateVerify",
        }
    }
}

/// Octets of an Ed25519 CertVerify value: scheme and signature.
pub const VALUE_LEN: usize = 2 + 64;

/// The octets that are signed: 64 spaces, the role's context, a zero, the hash.
pub fn signing_input(role: Role, transcript_hash: &TranscriptHash) -> Vec<u8> {
    let context = role.context();
    let hash = transcript_hash.as_ref();
    let mut input = Vec::with_capacity(64 + context.len() + 1 + hash.len());
    input.extend_from_slice(&[0x20; 64]);
    input.extend_from_slice(context);
    input.push(0);
    input.extend_from_slice(hash);
    input
}

/// The CertVerify value of `identity` in `role`. The hash is `TH_sId` for the
/// server and `TH_cId` for the client.
pub fn sign(identity: &Identity, role: Role, transcript_hash: &TranscriptHash) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    value[..2].copy_from_slice(&SignatureScheme::Ed25519.code_point().to_be_bytes());
    value[2..].copy_from_slice(&identity.sign(&signing_input(role, transcript_hash)));
    value
}

/// Verifies the value that a peer in `role` sent.
pub fn verify(
    value: &[u8],
    negotiated: SignatureScheme,
    role: Role,
    transcript_hash: &TranscriptHash,
    identity: &IdentityPublic,
) -> Result<(), CryptoError> {
    let (scheme, signature) = value
        .split_first_chunk::<2>()
        .ok_or(CryptoError::CertVerifyLength)?;
    let scheme = u16::from_be_bytes(*scheme);
    if scheme != negotiated.code_point() || !negotiated.is_built() {
        return Err(CryptoError::CertVerifyScheme(scheme));
    }
    if value.len() != VALUE_LEN {
        return Err(CryptoError::CertVerifyLength);
    }
    identity.verify(&signing_input(role, transcript_hash), signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(octet: u8) -> TranscriptHash {
        TranscriptHash::from_octets(&[octet; 32]).unwrap()
    }

    /// Handshake binding §6.1: role, transcript, key and scheme are all bound.
    #[test]
    fn what_is_bound() {
        let identity = Identity::from_seed(&[1; 32]);
        let other = Identity::from_seed(&[2; 32]);
        let ed25519 = SignatureScheme::Ed25519;
        let value = sign(&identity, Role::Server, &hash(3));
        let verify = |value: &[u8], scheme, role, hash, identity: &Identity| {
            verify(value, scheme, role, &hash, &identity.public())
        };
        assert_eq!(
            verify(&value, ed25519, Role::Server, hash(3), &identity),
            Ok(())
        );
        assert_eq!(
            verify(&value, ed25519, Role::Client, hash(3), &identity),
            Err(CryptoError::CertVerify)
        );
        assert_eq!(
            verify(&value, ed25519, Role::Server, hash(4), &identity),
            Err(CryptoError::CertVerify)
        );
        assert_eq!(
            verify(&value, ed25519, Role::Server, hash(3), &other),
            Err(CryptoError::CertVerify)
        );
        assert_eq!(
            verify(
                &value,
                SignatureScheme::MlDsa87,
                Role::Server,
                hash(3),
                &identity
            ),
            Err(CryptoError::CertVerifyScheme(0x0807))
        );
        let mut wrong = value;
        wrong[1] = 0x08;
        assert_eq!(
            verify(&wrong, ed25519, Role::Server, hash(3), &identity),
            Err(CryptoError::CertVerifyScheme(0x0808))
        );
        assert_eq!(
            verify(&value[..65], ed25519, Role::Server, hash(3), &identity),
            Err(CryptoError::CertVerifyLength)
        );
        assert_eq!(
            verify(&value[..1], ed25519, Role::Server, hash(3), &identity),
            Err(CryptoError::CertVerifyLength)
        );
    }
}
