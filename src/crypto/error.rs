//! The one error type of this room.

use thiserror::Error;

/// Why a cryptographic operation refused its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CryptoError {
    /// A KEMShare of the wrong length.
    #[error("KEM share has the wrong length")]
    KemShareLength,
    /// An ML-KEM encapsulation key that fails the check of FIPS 203 §7.2.
    #[error("ML-KEM encapsulation key is not valid")]
    EncapsulationKey,
    /// A KEMCiphertext of the wrong length.
    #[error("KEM ciphertext has the wrong length")]
    KemCiphertextLength,
    /// The X25519 output is all zero: the peer's point has low order.
    #[error("X25519 gives the all-zero output")]
    LowOrder,
    /// A CertVerify value too short for its scheme, or of another length than its scheme has.
    #[error("CertVerify has the wrong length")]
    CertVerifyLength,
    /// A CertVerify made with a scheme that was not negotiated.
    #[error("CertVerify uses scheme {0:#06x}, which was not negotiated")]
    CertVerifyScheme(u16),
    /// A CertVerify that does not verify for this key, role and transcript.
    #[error("CertVerify does not verify")]
    CertVerify,
    /// A Finished MAC that does not match.
    #[error("Finished does not match")]
    Finished,
    /// An HKDF output, label or context longer than the construction allows.
    #[error("HKDF input or output is too long")]
    HkdfLength,
    /// A nonce, key or initialization vector of the wrong length.
    #[error("AEAD key or nonce has the wrong length")]
    AeadLength,
    /// An AEAD tag that does not verify.
    #[error("AEAD tag does not verify")]
    Aead,
    /// Text or octets that are not an Ed25519 identity.
    #[error("not an Ed25519 identity")]
    Identity,
}

crate::reasons! {
    /// What counters say of a [`CryptoError`].
    pub enum CryptoReason {
        /// [`CryptoError::KemShareLength`]
        KemShareLength => "kem_share_length",
        /// [`CryptoError::EncapsulationKey`]
        EncapsulationKey => "kem_encapsulation_key",
        /// [`CryptoError::KemCiphertextLength`]
        KemCiphertextLength => "kem_ciphertext_length",
        /// [`CryptoError::LowOrder`]
        LowOrder => "kem_low_order",
        /// [`CryptoError::CertVerifyLength`]
        CertVerifyLength => "cert_verify_length",
        /// [`CryptoError::CertVerifyScheme`]
        CertVerifyScheme => "cert_verify_scheme",
        /// [`CryptoError::CertVerify`]
        CertVerify => "cert_verify",
        /// [`CryptoError::Finished`]
        Finished => "finished",
        /// [`CryptoError::HkdfLength`]
        HkdfLength => "hkdf_length",
        /// [`CryptoError::AeadLength`]
        AeadLength => "aead_length",
        /// [`CryptoError::Aead`]
        Aead => "aead_tag",
        /// [`CryptoError::Identity`]
        Identity => "identity_malformed",
    }
}

impl CryptoError {
    /// The counter of this error.
    pub const fn reason(self) -> CryptoReason {
        match self {
            Self::KemShareLength => CryptoReason::KemShareLength,
            Self::EncapsulationKey => CryptoReason::EncapsulationKey,
            Self::KemCiphertextLength => CryptoReason::KemCiphertextLength,
            Self::LowOrder => CryptoReason::LowOrder,
            Self::CertVerifyLength => CryptoReason::CertVerifyLength,
            Self::CertVerifyScheme(_) => CryptoReason::CertVerifyScheme,
            Self::CertVerify => CryptoReason::CertVerify,
            Self::Finished => CryptoReason::Finished,
            Self::HkdfLength => CryptoReason::HkdfLength,
            Self::AeadLength => CryptoReason::AeadLength,
            Self::Aead => CryptoReason::Aead,
            Self::Identity => CryptoReason::Identity,
        }
    }
}
