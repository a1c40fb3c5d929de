//! Profiles as parameter rows (handshake binding §2, draft §Profile
//! Negotiation). One construction serves all rows; a row whose primitives this
//! build lacks is described here but never offered and never selected.

use std::time::Duration;

use super::Hash;

/// A negotiated level of strength, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// 0x01
    Standard,
    /// 0x02
    High,
    /// 0x03
    Sovereign,
}

/// A hybrid KEM, in ascending order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kem {
    /// 0x11ec
    X25519MlKem768,
    /// 0x11ed
    X25519MlKem1024,
}

/// A signature scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureScheme {
    /// 0x0807
    Ed25519,
    /// 0x0905
    MlDsa87,
}

/// When a (channel, direction) must change keys, whichever comes first (ruling R4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateBounds {
    /// Frames sealed under one key.
    pub frames: u64,
    /// Octets sealed under one key.
    pub octets: u64,
    /// Age of one key.
    pub age: Duration,
}

/// One row of the profile table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileParameters {
    /// The weakest KEM the profile takes.
    pub kem_min: Kem,
    /// The signature schemes the profile takes.
    pub signatures: &'static [SignatureScheme],
    /// KDF and transcript hash.
    pub hash: Hash,
    /// Whether the AEAD suite is chosen per frame.
    pub diversification: bool,
    /// Bounds of mandatory key update.
    pub update_bounds: UpdateBounds,
}

const HOUR: u64 = 60 * 60;

const STANDARD: ProfileParameters = ProfileParameters {
    kem_min: Kem::X25519MlKem768,
    signatures: &[SignatureScheme::Ed25519],
    hash: Hash::Sha256,
    diversification: false,
    update_bounds: UpdateBounds {
        frames: 1 << 30,
        octets: 1 << 36,
        age: Duration::from_secs(24 * HOUR),
    },
};

const HIGH: ProfileParameters = ProfileParameters {
    kem_min: Kem::X25519MlKem1024,
    signatures: &[SignatureScheme::Ed25519, SignatureScheme::MlDsa87],
    hash: Hash::Sha384,
    diversification: true,
    update_bounds: UpdateBounds {
        frames: 1 << 26,
        octets: 1 << 32,
        age: Duration::from_secs(HOUR),
    },
};

const SOVEREIGN: ProfileParameters = ProfileParameters {
    kem_min: Kem::X25519MlKem1024,
    signatures: &[SignatureScheme::MlDsa87],
    hash: Hash::Sha384,
    diversification: true,
    update_bounds: UpdateBounds {
        frames: 1 << 24,
        octets: 1 << 30,
        age: Duration::from_secs(10 * 60),
    },
};

impl Profile {
    /// Every profile, ascending.
    pub const ALL: [Self; 3] = [Self::Standard, Self::High, Self::Sovereign];

    /// The registered code point.
    pub const fn code_point(self) -> u8 {
        match self {
            Self::Standard => 0x01,
            Self::High => 0x02,
            Self::Sovereign => 0x03,
        }
    }

    /// The profile of a code point; 0x00 and 0x04–0xFF are reserved.
    pub const fn from_code_point(code_point: u8) -> Option<Self> {
        match code_point {
            0x01 => Some(Self::Standard),
            0x02 => Some(Self::High),
            0x03 => Some(Self::Sovereign),
            _ => None,
        }
    }

    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "Standard",
            Self::High => "High",
            Self::Sovereign => "Sovereign",
        }
    }

    /// The profile of a registered name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// The parameter row.
    pub const fn parameters(self) -> &'static ProfileParameters {
        match self {
            Self::Standard => &STANDARD,
            Self::High => &HIGH,
            Self::Sovereign => &SOVEREIGN,
        }
    }

    /// Whether the profile takes `kem`: registered for it and not below its
    /// minimum. In particular Sovereign never takes X25519MLKEM768.
    pub fn accepts_kem(self, kem: Kem) -> bool {
        let registered = match kem {
            Kem::X25519MlKem768 => self <= Self::High,
            Kem::X25519MlKem1024 => self >= Self::High,
        };
        registered && kem >= self.parameters().kem_min
    }

    /// Whether every primitive of the row is built. Only such profiles are
    /// offered or selected.
    pub fn is_built(self) -> bool {
        let parameters = self.parameters();
        parameters.kem_min.is_built()
            && parameters
                .signatures
                .iter()
                .all(|signature| signature.is_built())
            && !parameters.diversification
    }
}

impl Kem {
    /// The registered code point.
    pub const fn code_point(self) -> u16 {
        match self {
            Self::X25519MlKem768 => 0x11ec,
            Self::X25519MlKem1024 => 0x11ed,
        }
    }

    /// The registered name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::X25519MlKem1024 => "X25519MLKEM1024",
        }
    }

    /// The KEM of a registered name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::X25519MlKem768, Self::X25519MlKem1024]
            .into_iter()
            .find(|kem| kem.name() == name)
    }

    /// Whether this build has it.
    pub const fn is_built(self) -> bool {
        matches!(self, Self::X25519MlKem768)
    }
}

impl SignatureScheme {
    /// The registered code point.
    pub const fn code_point(self) -> u16 {
        match self {
            Self::Ed25519 => 0x0807,
            Self::MlDsa87 => 0x0905,
        }
    }

    /// Whether this build has it.
    pub const fn is_built(self) -> bool {
        matches!(self, Self::Ed25519)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draft §Profile Negotiation and §Key Encapsulation Mechanisms.
    #[test]
    fn kem_acceptance() {
        let table = [
            (Profile::Standard, Kem::X25519MlKem768, true),
            (Profile::Standard, Kem::X25519MlKem1024, false),
            (Profile::High, Kem::X25519MlKem768, false),
            (Profile::High, Kem::X25519MlKem1024, true),
            (Profile::Sovereign, Kem::X25519MlKem768, false),
            (Profile::Sovereign, Kem::X25519MlKem1024, true),
        ];
        for (profile, kem, accepted) in table {
            assert_eq!(profile.accepts_kem(kem), accepted, "{profile:?} {kem:?}");
        }
    }

    #[test]
    fn only_built_profiles_are_built() {
        assert!(Profile::Standard.is_built());
        assert!(!Profile::High.is_built());
        assert!(!Profile::Sovereign.is_built());
    }

    /// Draft §Forward Secrecy and Key Update: the bounds, which tighten with the profile.
    #[test]
    fn bounds_tighten() {
        let bounds = Profile::ALL.map(|profile| {
            let bounds = profile.parameters().update_bounds;
            (bounds.frames, bounds.octets, bounds.age.as_secs())
        });
        assert_eq!(
            bounds,
            [
                (1_073_741_824, 68_719_476_736, 86_400),
                (67_108_864, 4_294_967_296, 3_600),
                (16_777_216, 1_073_741_824, 600),
            ]
        );
        for pair in Profile::ALL.windows(2) {
            let (loose, tight) = (
                pair[0].parameters().update_bounds,
                pair[1].parameters().update_bounds,
            );
            assert!(tight.frames < loose.frames);
            assert!(tight.octets < loose.octets);
            assert!(tight.age < loose.age);
        }
    }

    #[test]
    fn code_points() {
        for profile in Profile::ALL {
            assert_eq!(
                Profile::from_code_point(profile.code_point()),
                Some(profile)
            );
            assert_eq!(Profile::from_name(profile.name()), Some(profile));
        }
        assert_eq!(Profile::from_code_point(0), None);
        assert_eq!(Profile::from_code_point(4), None);
    }
}
