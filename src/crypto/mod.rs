//! The cryptographic suites of N-PAMP: hybrid KEM, signatures, HKDF labels, the
//! key schedule, the transcript and the per-frame AEAD.
//!
//! It invents no primitive, draws no ambient randomness (it is an argument),
//! and never shows a secret in `Debug`. Secrets are wiped when dropped, as far
//! as the primitives' own crates let them be reached. Serves the draft's
//! §Cryptographic Suites, §Key Schedule and the handshake binding §2–§6.
#![deny(unsafe_code)] // `multibuffer` alone may

mod aead_path;
pub mod cert_verify;
mod error;
pub mod finished;
pub mod hkdf;
mod identity;
pub mod kem;
pub mod multibuffer;
mod profile;
mod random;
mod record;
mod schedule;
mod suite;
mod transcript;

pub use aead_path::AeadPath;
pub use error::{CryptoError, CryptoReason};
pub use identity::{Identity, IdentityPublic};
pub use profile::{Kem, Profile, ProfileParameters, SignatureScheme, UpdateBounds};
pub use random::{Random, SeededRandom};
pub use record::{IV_LEN, KEY_LEN, KeyIv, OpenError, TAG_LEN, TrafficKey, nonce};
pub use schedule::{
    Direction, HandshakeSecret, HandshakeTrafficSecret, MasterSecret, TrafficSecret,
};
pub use suite::{Hash, Suite};
pub use transcript::{Transcript, TranscriptHash};
