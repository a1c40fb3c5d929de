//! The handshake transcript (handshake binding §3): the two octets of each
//! frame type and each TLV in canonical form, nothing else of a frame.

use sha2::{Digest, Sha256, Sha384};

use super::Hash;
use crate::wire::{FrameType, Tlv};

/// A hash over everything absorbed up to a point: `TH_kem`, `TH_sId`, `TH_sCV`,
/// `TH_cId` or `TH_cCV`, depending on when it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptHash {
    octets: [u8; Hash::LEN_MAX],
    length: usize,
}

impl TranscriptHash {
    /// From 32 or 48 octets, for known-answer tests.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let mut hash = Self {
            octets: [0; Hash::LEN_MAX],
            length: octets.len(),
        };
        if ![Hash::Sha256.hash_len(), Hash::Sha384.hash_len()].contains(&octets.len()) {
            return None;
        }
        hash.octets[..octets.len()].copy_from_slice(octets);
        Some(hash)
    }
}

impl AsRef<[u8]> for TranscriptHash {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

/// The running transcript. The hash follows from the profile, which is known
/// only after the first flight, so both run until one is chosen.
#[derive(Debug, Clone)]
pub struct Transcript {
    sha256: Option<Sha256>,
    sha384: Option<Sha384>,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            sha256: Some(Sha256::new()),
            sha384: Some(Sha384::new()),
        }
    }
}

impl Transcript {
    /// An empty transcript.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fixes the hash; the other one stops running.
    pub fn select(&mut self, hash: Hash) {
        match hash {
            Hash::Sha256 => self.sha384 = None,
            Hash::Sha384 => self.sha256 = None,
        }
    }

    /// Absorbs the two octets of a frame type.
    pub fn add_frame_type(&mut self, frame_type: FrameType) {
        self.absorb(&frame_type.0.to_be_bytes());
    }

    /// Absorbs a TLV: type, length, value.
    pub fn add_tlv(&mut self, tlv: &Tlv<'_>) {
        let [tag_high, tag_low] = tlv.tag.to_be_bytes();
        let [length_high, length_low] = (tlv.value.len() as u16).to_be_bytes();
        self.absorb(&[tag_high, tag_low, length_high, length_low]);
        self.absorb(tlv.value);
    }

    /// The hash over everything absorbed so far, with the hash that was
    /// selected (SHA-256 before any was).
    pub fn point(&self) -> TranscriptHash {
        let mut out = [0; Hash::LEN_MAX];
        let length = match (&self.sha256, &self.sha384) {
            (None, Some(sha384)) => {
                out.copy_from_slice(&sha384.clone().finalize());
                Hash::Sha384.hash_len()
            }
            (sha256, _) => {
                let digest = sha256.clone().unwrap_or_default().finalize();
                out[..Hash::Sha256.hash_len()].copy_from_slice(&digest);
                Hash::Sha256.hash_len()
            }
        };
        TranscriptHash {
            octets: out,
            length,
        }
    }

    fn absorb(&mut self, octets: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(octets);
        }
        if let Some(sha384) = &mut self.sha384 {
            sha384.update(octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handshake binding §3: frame type and TLVs, nothing else.
    #[test]
    fn absorbs_exactly_the_stated_octets() {
        let octets = [0x01, 0x00, 0x00, 0x07, 0x00, 0x02, 0xaa, 0xbb];
        for hash in [Hash::Sha256, Hash::Sha384] {
            let mut transcript = Transcript::new();
            transcript.add_frame_type(FrameType::CLIENT_HELLO);
            transcript.select(hash);
            transcript.add_tlv(&Tlv {
                tag: 7,
                value: &[0xaa, 0xbb],
            });
            let expected = match hash {
                Hash::Sha256 => Sha256::digest(octets).to_vec(),
                Hash::Sha384 => Sha384::digest(octets).to_vec(),
            };
            assert_eq!(transcript.point().as_ref(), expected);
        }
    }
}
