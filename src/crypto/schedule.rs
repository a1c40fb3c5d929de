//! The key schedule (handshake binding §5), one type per stage: a stage can
//! only be reached from the one before it, and consuming a stage wipes it.

use super::finished::FinishedKey;
use super::hkdf::{self, Secret};
use super::kem::SharedSecret;
use super::record::{IV_LEN, KEY_LEN, KeyIv, TrafficKey};
use super::{CryptoError, Hash, Suite, TranscriptHash};
use crate::wire::ChannelId;

/// Which way a frame travels; the octet that goes into traffic secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// 0
    InitiatorToResponder,
    /// 1
    ResponderToInitiator,
}

impl Direction {
    /// 0 or 1.
    pub const fn octet(self) -> u8 {
        match self {
            Self::InitiatorToResponder => 0,
            Self::ResponderToInitiator => 1,
        }
    }

    /// The direction of 0 or 1.
    pub const fn from_octet(octet: u8) -> Option<Self> {
        match octet {
            0 => Some(Self::InitiatorToResponder),
            1 => Some(Self::ResponderToInitiator),
            _ => None,
        }
    }
}

/// The root of the schedule, from the KEM output.
#[derive(Debug)]
pub struct HandshakeSecret(Secret);

impl HandshakeSecret {
    /// HKDF-Extract with a salt of `HashLen` zero octets.
    pub fn extract(hash: Hash, shared: &SharedSecret) -> Self {
        Self(hkdf::extract(hash, None, shared.expose()))
    }

    /// `c_hs_secret` and `s_hs_secret`, from `TH_kem`.
    pub fn traffic_secrets(
        &self,
        th_kem: &TranscriptHash,
    ) -> (HandshakeTrafficSecret, HandshakeTrafficSecret) {
        (
            HandshakeTrafficSecret {
                secret: self.0.derive("c hs", th_kem.as_ref()),
                direction: Direction::InitiatorToResponder,
            },
            HandshakeTrafficSecret {
                secret: self.0.derive("s hs", th_kem.as_ref()),
                direction: Direction::ResponderToInitiator,
            },
        )
    }

    /// The master secret, from `TH_cCV`; the handshake secret is wiped.
    pub fn into_master(self, th_ccv: &TranscriptHash) -> MasterSecret {
        MasterSecret(self.0.derive("master", th_ccv.as_ref()))
    }

    /// The octets, for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// `c_hs_secret` or `s_hs_secret`.
#[derive(Debug)]
pub struct HandshakeTrafficSecret {
    secret: Secret,
    direction: Direction,
}

impl HandshakeTrafficSecret {
    /// The traffic secret of the AUTH frame: epoch 0, Control channel.
    pub fn traffic_secret(&self, suite: Suite) -> TrafficSecret {
        TrafficSecret::derive(&self.secret, self.direction, 0, suite, ChannelId::CONTROL)
    }

    /// The key of the sender's Finished.
    pub fn finished_key(&self) -> FinishedKey {
        FinishedKey::new(self.secret.derive("finished", &[]))
    }

    /// The octets, for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        self.secret.expose()
    }
}

/// The root of all application traffic keys of an association.
#[derive(Debug)]
pub struct MasterSecret(Secret);

impl MasterSecret {
    /// From `HashLen` octets, for known-answer tests.
    pub fn from_octets(hash: Hash, octets: &[u8]) -> Result<Self, CryptoError> {
        Secret::new(hash, octets).map(Self)
    }

    /// The traffic secret of one direction, epoch, suite and channel.
    pub fn traffic_secret(
        &self,
        direction: Direction,
        epoch: u64,
        suite: Suite,
        channel: ChannelId,
    ) -> TrafficSecret {
        TrafficSecret::derive(&self.0, direction, epoch, suite, channel)
    }

    /// The key that seals or opens frames of one direction, epoch, suite and channel.
    pub fn traffic_key(
        &self,
        direction: Direction,
        epoch: u64,
        suite: Suite,
        channel: ChannelId,
    ) -> TrafficKey {
        self.traffic_secret(direction, epoch, suite, channel)
            .key_iv()
            .into_traffic_key(suite)
    }

    /// The octets, for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// The secret of one direction, epoch, suite and channel.
#[derive(Debug)]
pub struct TrafficSecret(Secret);

impl TrafficSecret {
    fn derive(
        parent: &Secret,
        direction: Direction,
        epoch: u64,
        suite: Suite,
        channel: ChannelId,
    ) -> Self {
        let mut context = [0; 13];
        context[0] = direction.octet();
        context[1..9].copy_from_slice(&epoch.to_be_bytes());
        context[9..11].copy_from_slice(&suite.code_point().to_be_bytes());
        context[11..].copy_from_slice(&channel.0.to_be_bytes());
        Self(parent.derive("traffic", &context))
    }

    /// AEAD key and initialization vector.
    pub fn key_iv(&self) -> KeyIv {
        let mut key_iv = KeyIv::zero();
        let label = |label, out: &mut [u8]| {
            hkdf::expand_label(self.0.hash(), self.0.expose(), label, &[], out)
                .expect("labels of the key schedule are short");
        };
        label("key", &mut key_iv.key[..KEY_LEN]);
        label("iv", &mut key_iv.iv[..IV_LEN]);
        key_iv
    }

    /// The octets, for known-answer tests.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handshake binding §5: every element of the tuple separates keys.
    #[test]
    fn every_element_of_the_tuple_separates() {
        let master = MasterSecret::from_octets(Hash::Sha256, &[9; 32]).unwrap();
        let mut seen = std::collections::HashSet::new();
        for direction in [
            Direction::InitiatorToResponder,
            Direction::ResponderToInitiator,
        ] {
            for epoch in [0, 1, 1 << 40] {
                for suite in Suite::ALL {
                    for channel in [ChannelId::CONTROL, ChannelId::BRIDGE] {
                        let key_iv = master
                            .traffic_secret(direction, epoch, suite, channel)
                            .key_iv();
                        assert!(seen.insert((*key_iv.key, *key_iv.iv)));
                    }
                }
            }
        }
        assert_eq!(seen.len(), 24);
    }

    /// Handshake binding §5: phases share no key although their tuples are equal.
    #[test]
    fn phases_share_no_key() {
        let parent = Secret::new(Hash::Sha256, &[1; 32]).unwrap();
        let handshake = HandshakeSecret(parent);
        let point = TranscriptHash::from_octets(&[2; 32]).unwrap();
        let (client, server) = handshake.traffic_secrets(&point);
        let handshake_key = client.traffic_secret(Suite::Aes256Gcm).key_iv();
        assert_ne!(
            *handshake_key.key,
            *server.traffic_secret(Suite::Aes256Gcm).key_iv().key
        );
        let master = handshake.into_master(&point);
        let application_key = master
            .traffic_secret(
                Direction::InitiatorToResponder,
                0,
                Suite::Aes256Gcm,
                ChannelId::CONTROL,
            )
            .key_iv();
        assert_ne!(*handshake_key.key, *application_key.key);
    }

    #[test]
    fn debug_shows_no_secret() {
        let master = MasterSecret::from_octets(Hash::Sha256, &[0xab; 32]).unwrap();
        let shown = format!("{master:?}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }
}
