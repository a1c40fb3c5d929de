//! The hybrid KEM X25519MLKEM768 (handshake binding §4): ML-KEM-768 first in
//! every layout, X25519 second. Randomness is an argument; a low-order X25519
//! point is refused; a corrupt ML-KEM ciphertext is not an error here but a
//! different secret (FIPS 203 implicit rejection), which Finished catches.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use libcrux_ml_kem::mlkem768;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::CryptoError;

/// Octets of an ML-KEM-768 encapsulation key.
pub const ENCAPSULATION_KEY_LEN: usize = 1184;
/// Octets of an ML-KEM-768 ciphertext.
pub const MLKEM_CIPHERTEXT_LEN: usize = 1088;
/// Octets of an X25519 key.
pub const X25519_LEN: usize = 32;
/// Octets of a KEMShare: encapsulation key, then X25519 public key.
pub const SHARE_LEN: usize = ENCAPSULATION_KEY_LEN + X25519_LEN;
/// Octets of a KEMCiphertext: ML-KEM ciphertext, then X25519 public key.
pub const CIPHERTEXT_LEN: usize = MLKEM_CIPHERTEXT_LEN + X25519_LEN;

/// ML-KEM secret (32 octets), then X25519 secret (32 octets). Wiped when dropped.
pub struct SharedSecret(Zeroizing<[u8; 64]>);

impl SharedSecret {
    /// From the two secrets of the component KEMs.
    pub fn from_parts(mlkem: &[u8; 32], x25519: &[u8; 32]) -> Self {
        let mut joined = Zeroizing::new([0; 64]);
        joined[..32].copy_from_slice(mlkem);
        joined[32..].copy_from_slice(x25519);
        Self(joined)
    }

    /// The 64 octets, the input keying material of the key schedule.
    pub fn expose(&self) -> &[u8; 64] {
        &self.0
    }
}

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret")
    }
}

/// What the initiator's ephemeral keys follow from. Wiped when dropped.
pub struct KeyMaterial {
    /// The FIPS 203 seed, d then z.
    pub mlkem_seed: Zeroizing<[u8; 64]>,
    /// The X25519 private key.
    pub x25519_private: Zeroizing<[u8; 32]>,
}

/// What the responder's encapsulation follows from.
pub enum Encapsulation {
    /// The message m of FIPS 203 and an X25519 private key.
    Random {
        /// The ML-KEM message.
        mlkem_message: Zeroizing<[u8; 32]>,
        /// The X25519 private key.
        x25519_private: Zeroizing<[u8; 32]>,
    },
    /// A recorded ML-KEM result, for known answers that give no message.
    Recorded {
        /// The ML-KEM ciphertext.
        mlkem_ciphertext: Box<[u8; MLKEM_CIPHERTEXT_LEN]>,
        /// The ML-KEM shared secret.
        mlkem_secret: Zeroizing<[u8; 32]>,
        /// The X25519 private key.
        x25519_private: Zeroizing<[u8; 32]>,
    },
}

impl KeyMaterial {
    /// Draws 96 octets.
    pub fn draw(random: &mut dyn super::Random) -> Self {
        let mut material = Self {
            mlkem_seed: Zeroizing::new([0; 64]),
            x25519_private: Zeroizing::new([0; 32]),
        };
        random.fill(&mut *material.mlkem_seed);
        random.fill(&mut *material.x25519_private);
        material
    }
}

impl Encapsulation {
    /// Draws 64 octets.
    pub fn draw(random: &mut dyn super::Random) -> Self {
        let mut mlkem_message = Zeroizing::new([0; 32]);
        let mut x25519_private = Zeroizing::new([0; 32]);
        random.fill(&mut *mlkem_message);
        random.fill(&mut *x25519_private);
        Self::Random {
            mlkem_message,
            x25519_private,
        }
    }
}

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyMaterial")
    }
}

impl std::fmt::Debug for Encapsulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encapsulation")
    }
}

/// The initiator's half between its share and the ciphertext.
pub struct Decapsulator {
    mlkem_private: Box<Zeroizing<[u8; 2400]>>,
    x25519_private: Zeroizing<[u8; 32]>,
    share: Box<[u8; SHARE_LEN]>,
}

impl Decapsulator {
    /// Makes the ephemeral keys and the KEMShare.
    pub fn new(material: &KeyMaterial) -> Self {
        let (mut private, public) = mlkem768::generate_key_pair(*material.mlkem_seed).into_parts();
        let mlkem_private = Box::new(Zeroizing::new(*private.as_slice()));
        private[0..].zeroize();
        let mut share = Box::new([0; SHARE_LEN]);
        share[..ENCAPSULATION_KEY_LEN].copy_from_slice(public.as_slice());
        share[ENCAPSULATION_KEY_LEN..].copy_from_slice(&x25519_public(&material.x25519_private));
        Self {
            mlkem_private,
            x25519_private: material.x25519_private.clone(),
            share,
        }
    }

    /// The KEMShare to send.
    pub fn share(&self) -> &[u8; SHARE_LEN] {
        &self.share
    }

    /// The secret that a KEMCiphertext stands for.
    pub fn decapsulate(&self, ciphertext: &[u8]) -> Result<SharedSecret, CryptoError> {
        let ciphertext: &[u8; CIPHERTEXT_LEN] = ciphertext
            .try_into()
            .map_err(|_| CryptoError::KemCiphertextLength)?;
        let (mlkem, x25519) = ciphertext.split_at(MLKEM_CIPHERTEXT_LEN);
        let mlkem_secret = mlkem_decapsulate(&self.mlkem_private, mlkem)?;
        let x25519_secret = x25519_agree(&self.x25519_private, x25519)?;
        Ok(SharedSecret::from_parts(&mlkem_secret, &x25519_secret))
    }
}

impl std::fmt::Debug for Decapsulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decapsulator")
    }
}

/// Encapsulates to a KEMShare: the KEMCiphertext to send, and its secret.
pub fn encapsulate(
    share: &[u8],
    encapsulation: &Encapsulation,
) -> Result<(Box<[u8; CIPHERTEXT_LEN]>, SharedSecret), CryptoError> {
    let share: &[u8; SHARE_LEN] = share.try_into().map_err(|_| CryptoError::KemShareLength)?;
    let (key, peer_x25519) = share.split_at(ENCAPSULATION_KEY_LEN);
    let key =
        mlkem768::MlKem768PublicKey::try_from(key).map_err(|_| CryptoError::KemShareLength)?;
    if !mlkem768::validate_public_key(&key) {
        return Err(CryptoError::EncapsulationKey);
    }
    let mut out = Box::new([0; CIPHERTEXT_LEN]);
    let (mlkem_secret, x25519_private) = match encapsulation {
        Encapsulation::Random {
            mlkem_message,
            x25519_private,
        } => {
            let (ciphertext, secret) = mlkem768::encapsulate(&key, **mlkem_message);
            out[..MLKEM_CIPHERTEXT_LEN].copy_from_slice(ciphertext.as_slice());
            (Zeroizing::new(secret), x25519_private)
        }
        Encapsulation::Recorded {
            mlkem_ciphertext,
            mlkem_secret,
            x25519_private,
        } => {
            out[..MLKEM_CIPHERTEXT_LEN].copy_from_slice(&**mlkem_ciphertext);
            (mlkem_secret.clone(), x25519_private)
        }
    };
    out[MLKEM_CIPHERTEXT_LEN..].copy_from_slice(&x25519_public(x25519_private));
    let x25519_secret = x25519_agree(x25519_private, peer_x25519)?;
    Ok((out, SharedSecret::from_parts(&mlkem_secret, &x25519_secret)))
}

/// ML-KEM-768 decapsulation with an expanded 2,400-octet decapsulation key.
pub fn mlkem_decapsulate(
    private: &[u8; 2400],
    ciphertext: &[u8],
) -> Result<Zeroizing<[u8; 32]>, CryptoError> {
    let ciphertext = mlkem768::MlKem768Ciphertext::try_from(ciphertext)
        .map_err(|_| CryptoError::KemCiphertextLength)?;
    let mut private = mlkem768::MlKem768PrivateKey::from(private);
    let secret = Zeroizing::new(mlkem768::decapsulate(&private, &ciphertext));
    private[0..].zeroize();
    Ok(secret)
}

/// X25519 public key of a private key.
pub fn x25519_public(private: &[u8; 32]) -> [u8; 32] {
    let public = x25519_key(private)
        .compute_public_key()
        .expect("an X25519 private key has a public key");
    public
        .as_ref()
        .try_into()
        .expect("an X25519 public key has 32 octets")
}

/// X25519 (RFC 7748); the all-zero output is refused.
pub fn x25519_agree(
    private: &[u8; 32],
    peer_public: &[u8],
) -> Result<Zeroizing<[u8; 32]>, CryptoError> {
    agreement::agree(
        &x25519_key(private),
        UnparsedPublicKey::new(&X25519, peer_public),
        CryptoError::LowOrder,
        |secret| {
            let secret: Zeroizing<[u8; 32]> =
                Zeroizing::new(secret.try_into().map_err(|_| CryptoError::LowOrder)?);
            if bool::from(secret.ct_eq(&[0; 32])) {
                return Err(CryptoError::LowOrder);
            }
            Ok(secret)
        },
    )
}

fn x25519_key(private: &[u8; 32]) -> PrivateKey {
    PrivateKey::from_private_key(&X25519, private).expect("any 32 octets are an X25519 private key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Random, SeededRandom};

    fn pair(seed: u64) -> (Decapsulator, Encapsulation) {
        let mut random = SeededRandom::new(seed);
        (
            Decapsulator::new(&KeyMaterial::draw(&mut random)),
            Encapsulation::draw(&mut random),
        )
    }

    /// Handshake binding §4: lengths and agreement.
    #[test]
    fn both_sides_agree() {
        let (decapsulator, encapsulation) = pair(1);
        let (ciphertext, ours) = encapsulate(decapsulator.share(), &encapsulation).unwrap();
        let theirs = decapsulator.decapsulate(&*ciphertext).unwrap();
        assert_eq!(ours.expose(), theirs.expose());
        assert_eq!((SHARE_LEN, CIPHERTEXT_LEN), (1216, 1120));
    }

    /// Handshake binding §4: implicit rejection.
    #[test]
    fn a_corrupt_ciphertext_gives_another_secret() {
        let (decapsulator, encapsulation) = pair(2);
        let (mut ciphertext, ours) = encapsulate(decapsulator.share(), &encapsulation).unwrap();
        ciphertext[5] ^= 1;
        let theirs = decapsulator.decapsulate(&*ciphertext).unwrap();
        assert_ne!(ours.expose()[..32], theirs.expose()[..32]);
        assert_eq!(ours.expose()[32..], theirs.expose()[32..]);
    }

    /// Handshake binding §4: the all-zero X25519 output is rejected.
    #[test]
    fn low_order_points_are_refused() {
        let low_order = [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ];
        let (decapsulator, encapsulation) = pair(3);
        for point in low_order {
            let point = hex::decode(point).unwrap();
            let mut share = *decapsulator.share();
            share[ENCAPSULATION_KEY_LEN..].copy_from_slice(&point);
            assert_eq!(
                encapsulate(&share, &encapsulation).unwrap_err(),
                CryptoError::LowOrder
            );
            let mut ciphertext = [0; CIPHERTEXT_LEN];
            ciphertext[MLKEM_CIPHERTEXT_LEN..].copy_from_slice(&point);
            assert_eq!(
                decapsulator.decapsulate(&ciphertext).unwrap_err(),
                CryptoError::LowOrder
            );
        }
    }

    /// FIPS 203 §7.2: an encapsulation key with a coefficient out of range is refused.
    #[test]
    fn an_invalid_encapsulation_key_is_refused() {
        let (decapsulator, encapsulation) = pair(4);
        let mut share = *decapsulator.share();
        share[..3].fill(0xff);
        assert_eq!(
            encapsulate(&share, &encapsulation).unwrap_err(),
            CryptoError::EncapsulationKey
        );
    }

    #[test]
    fn wrong_lengths() {
        let (decapsulator, encapsulation) = pair(5);
        assert_eq!(
            encapsulate(&decapsulator.share()[1..], &encapsulation).unwrap_err(),
            CryptoError::KemShareLength
        );
        assert_eq!(
            decapsulator.decapsulate(&[0; 1119]).unwrap_err(),
            CryptoError::KemCiphertextLength
        );
        let mut x25519 = [0; 32];
        SeededRandom::new(6).fill(&mut x25519);
        assert_eq!(
            x25519_agree(&x25519, &[9; 31]).unwrap_err(),
            CryptoError::LowOrder
        );
    }
}
