//! Where the label of a request that goes out comes from. Serves NPAMP-BRIDGE §7 and
//! NPAMP-MAP-A2A §5: whoever makes a request labels it, whoever passes it on leaves
//! it as it is.

use crate::a2a::method;
use crate::a2a::port::Label;
use crate::bridge::safety::{Effect, SafetyLabel};

/// Where the SafetyLabel of a request comes from.
#[derive(Debug, Clone)]
pub(super) enum Labelling {
    /// The method table: the request is an ingress's.
    Table,
    /// The peer whose request passes through; it stays absent where it was absent.
    AsReceived(Option<Label>),
}

impl Labelling {
    /// Whether the call passes a peer's request on.
    pub(super) fn is_transit(&self) -> bool {
        matches!(self, Self::AsReceived(_))
    }

    /// The label of a request for `method` (NPAMP-MAP-A2A §5, NPAMP-BRIDGE §7).
    pub(super) fn label(&self, method: &str) -> Option<SafetyLabel<'_>> {
        match self {
            Self::Table => {
                let effect = method::label_effect(method);
                effect.is_mutating().then(|| SafetyLabel::new(effect))
            }
            Self::AsReceived(label) => label.as_ref().map(Label::borrow),
        }
    }

    /// Whether a label says that the request changes something, whatever its method.
    pub(super) fn says_mutating(&self) -> bool {
        match self {
            Self::Table | Self::AsReceived(None) => false,
            Self::AsReceived(Some(label)) => label.effect != Effect::READ_ONLY,
        }
    }

    /// Whether a request for `method` changes nothing, so that it may be repeated.
    pub(super) fn is_read_only(&self, method: &str) -> bool {
        let label = match self {
            Self::Table => Some(method::label_effect(method)),
            Self::AsReceived(label) => label.as_ref().map(|label| label.effect),
        };
        method::judged_effect(method, label) == Effect::READ_ONLY
    }
}
