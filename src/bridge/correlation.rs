//! correlation_id: opaque to everyone but its originator. Serves NPAMP-BRIDGE §5
//! and NPAMP-CC-JSONRPC §8; ruling R11 says how ours are made. Never used to
//! recover a foreign id.

use crate::limits::{CORRELATION_ID_OCTETS_MAX, CORRELATION_RANDOM_OCTETS};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// 1–255 octets, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CorrelationId(Arc<[u8]>);

impl CorrelationId {
    /// Takes what a peer chose. `None` when empty or too long.
    pub fn new(octets: &[u8]) -> Option<Self> {
        (1..=CORRELATION_ID_OCTETS_MAX)
            .contains(&octets.len())
            .then(|| Self(octets.into()))
    }

    /// Makes ours: random octets, unique although clients' ids collide, then the
    /// foreign id's token, cut to what fits.
    pub fn derive(random: [u8; CORRELATION_RANDOM_OCTETS], id_token: &[u8]) -> Self {
        let room = CORRELATION_ID_OCTETS_MAX - CORRELATION_RANDOM_OCTETS;
        let token = &id_token[..id_token.len().min(room)];
        let mut octets = Vec::with_capacity(CORRELATION_RANDOM_OCTETS + token.len());
        octets.extend_from_slice(&random);
        octets.extend_from_slice(token);
        Self(octets.into())
    }

    /// The octets.
    pub fn as_octets(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for CorrelationId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-CC-JSONRPC §8.1, ruling R11: derived from the id, unique, never empty, at most 255.
    #[test]
    fn derived_ids_hold_random_octets_and_the_token() {
        let id = CorrelationId::derive([7; 16], b"\"1\"");
        assert_eq!(&id.as_octets()[..16], &[7; 16]);
        assert_eq!(&id.as_octets()[16..], b"\"1\"");
        assert_eq!(CorrelationId::derive([0; 16], b"").as_octets().len(), 16);
        let long = CorrelationId::derive([0; 16], &[b'x'; 10_000]);
        assert_eq!(long.as_octets().len(), 255);
        assert_ne!(
            CorrelationId::derive([1; 16], b"1"),
            CorrelationId::derive([2; 16], b"1")
        );
    }

    #[test]
    fn a_peers_id_is_kept_as_it_is() {
        assert_eq!(CorrelationId::new(b"x").unwrap().as_octets(), b"x");
        assert!(CorrelationId::new(b"").is_none());
        assert!(CorrelationId::new(&[0; 256]).is_none());
    }
}
