//! Which implementation of AES-256-GCM the process uses: chosen by what the CPU
//! has, or by whoever configures it. It never changes what is on the wire.
//! Serves the draft's §Authenticated Encryption.

use super::multibuffer::Path;
use std::sync::atomic::{AtomicU8, Ordering};

/// A choice of implementation. `Display` is its name in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum AeadPath {
    /// The fastest for each length that this CPU has.
    #[default]
    Auto,
    /// `ring`, for every frame.
    Ring,
    /// Frames together and short ones, with AVX-512; long ones as [`AeadPath::Auto`].
    VaesAvx512,
    /// The same with AVX2 and VAES.
    VaesAvx2,
}

static CHOSEN: AtomicU8 = AtomicU8::new(AeadPath::Auto as u8);

impl AeadPath {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Ring, Self::VaesAvx512, Self::VaesAvx2];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::VaesAvx512 => "vaes-avx512",
            Self::VaesAvx2 => "vaes-avx2",
        }
    }

    /// Whether this CPU has what it takes.
    pub fn is_available(self) -> bool {
        matches!(self, Self::Auto | Self::Ring) || self.path().is_some()
    }

    /// What is used for short frames if it is chosen: the name of an available choice.
    pub fn resolved(self) -> &'static str {
        self.path().map_or(Self::Ring.name(), Path::name)
    }

    /// Every key made in this process from now on is for it. Where it is not
    /// available that is `ring`.
    pub fn select(self) {
        CHOSEN.store(self as u8, Ordering::Relaxed);
    }

    /// What was selected last.
    pub fn selected() -> Self {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        let found = Self::ALL.into_iter().find(|path| *path as u8 == chosen);
        found.unwrap_or_default()
    }

    /// What frames that it takes are worked on with, if not with `ring`.
    pub(super) fn path(self) -> Option<Path> {
        match self {
            Self::Auto => Path::best(),
            Self::Ring => None,
            Self::VaesAvx512 | Self::VaesAvx2 => {
                let mut paths = Path::all().iter().copied();
                paths.find(|path| path.name() == self.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_resolved_is_available() {
        for path in AeadPath::ALL {
            let resolved = AeadPath::ALL
                .into_iter()
                .find(|it| it.name() == path.resolved());
            assert!(resolved.unwrap().is_available());
            if path.is_available() && path != AeadPath::Auto {
                assert_eq!(path.resolved(), path.name());
            }
        }
        assert_eq!(AeadPath::Ring.resolved(), "ring");
    }
}
