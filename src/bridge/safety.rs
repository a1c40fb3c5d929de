//! SafetyLabel TLV 0x0013: what a request may do to its target, and the
//! fail-safe when nobody said. Serves NPAMP-BRIDGE §7. Describes intent; it
//! never replaces authorization.

use crate::bridge::envelope::sized;
use crate::bridge::error::BridgeError;

/// TLV type of the SafetyLabel.
pub const TAG: u16 = 0x0013;

/// Effect of an operation. Greater is more dangerous; an unregistered value
/// counts as destructive wherever policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Effect(pub u8);

impl Effect {
    /// Reads only.
    pub const READ_ONLY: Self = Self(0);
    /// Repeating it changes nothing more.
    pub const IDEMPOTENT_WRITE: Self = Self(1);
    /// Repeating it does it again.
    pub const NON_IDEMPOTENT_WRITE: Self = Self(2);
    /// Loses something.
    pub const DESTRUCTIVE: Self = Self(3);

    /// This value, or destructive when it is not a registered one.
    pub fn or_destructive(self) -> Self {
        self.min(Self::DESTRUCTIVE)
    }

    /// Whether the sender of such a request must attach a label (NPAMP-BRIDGE §7).
    pub fn is_mutating(self) -> bool {
        self != Self::READ_ONLY
    }
}

/// A set of effects that policy accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectSet(u8);

impl EffectSet {
    /// All four.
    pub const ALL: Self = Self(0b1111);
    /// None.
    pub const NONE: Self = Self(0);

    /// The effects named by `values`; unregistered ones add nothing.
    pub fn of(values: &[u8]) -> Self {
        Self(
            values
                .iter()
                .filter(|&&value| value <= 3)
                .fold(0, |set, value| set | 1 << value),
        )
    }

    /// Whether `effect` is in the set; an unregistered one is judged as destructive.
    pub fn contains(self, effect: Effect) -> bool {
        self.0 & (1 << effect.or_destructive().0) != 0
    }
}

/// The SafetyLabel's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafetyLabel<'a> {
    /// Effect as received.
    pub effect: Effect,
    /// Advisory scope, 0–255 octets.
    pub scope: &'a str,
}

impl<'a> SafetyLabel<'a> {
    /// A label without scope.
    pub fn new(effect: Effect) -> Self {
        Self { effect, scope: "" }
    }

    /// Reads a TLV value.
    pub fn decode(value: &'a [u8]) -> Result<Self, BridgeError> {
        let (&effect, rest) = value.split_first().ok_or(BridgeError::SafetyLength)?;
        let (scope, trailing) = sized(rest).ok_or(BridgeError::SafetyLength)?;
        if !trailing.is_empty() {
            return Err(BridgeError::SafetyLength);
        }
        let scope = std::str::from_utf8(scope).map_err(|_| BridgeError::SafetyScopeNotUtf8)?;
        Ok(Self {
            effect: Effect(effect),
            scope,
        })
    }

    pub(crate) fn value_len(&self) -> usize {
        2 + self.scope.len()
    }

    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        (self.scope.len() <= 255)
            .then_some(())
            .ok_or(BridgeError::FieldTooLong)
    }

    pub(crate) fn encode_value(&self, out: &mut Vec<u8>) {
        out.push(self.effect.0);
        out.push(self.scope.len() as u8);
        out.extend_from_slice(self.scope.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-BRIDGE §7: layout, and its malformed forms.
    #[test]
    fn decodes_and_rejects() {
        let label = SafetyLabel::decode(&[2, 2, b'f', b's']).unwrap();
        assert_eq!(label.effect, Effect::NON_IDEMPOTENT_WRITE);
        assert_eq!(label.scope, "fs");
        for bad in [&[][..], &[2], &[2, 3, b'f'], &[2, 0, b'f']] {
            assert_eq!(SafetyLabel::decode(bad), Err(BridgeError::SafetyLength));
        }
        assert_eq!(
            SafetyLabel::decode(&[0, 1, 0xff]),
            Err(BridgeError::SafetyScopeNotUtf8)
        );
    }

    /// NPAMP-BRIDGE §7: an unregistered effect is never less than destructive.
    #[test]
    fn unregistered_effects_are_destructive() {
        assert_eq!(Effect(200).or_destructive(), Effect::DESTRUCTIVE);
        let writes = EffectSet::of(&[0, 1, 2, 9]);
        assert!(writes.contains(Effect(2)));
        assert!(!writes.contains(Effect(3)));
        assert!(!writes.contains(Effect(77)));
        assert!(EffectSet::ALL.contains(Effect(77)));
    }
}
