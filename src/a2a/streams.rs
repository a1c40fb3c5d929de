//! What the mappers of a process share about streams that can be resumed: which
//! mapper keeps which, and the octets they keep together. A consumer that comes
//! back may reach another mapper than the one that has its stream. The lock is
//! taken when a stream begins, ends its retention or is resumed, never for an event.

use crate::a2a::budget::OctetBudget;
use crate::a2a::port::ExchangeId;
use crate::bridge::correlation::CorrelationId;
use crate::limits::REPLAY_PROCESS_OCTETS_MAX;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names a mapper of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MapperId(pub usize);

/// Where a retained stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHome {
    /// The mapper.
    pub mapper: MapperId,
    /// The exchange there.
    pub exchange: ExchangeId,
}

/// What tells a retained stream from every other (ruling R11).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Identity of the consumer.
    pub peer: Arc<str>,
    /// Server name of its association.
    pub server_name: Arc<str>,
    /// The stream's own.
    pub correlation_id: CorrelationId,
}

/// See the module.
#[derive(Debug)]
pub struct StreamRegistry {
    homes: Mutex<HashMap<StreamKey, StreamHome>>,
    octets: OctetBudget,
    /// One more than the greatest mapper that takes part.
    mappers: AtomicUsize,
}

impl Default for StreamRegistry {
    fn default() -> Self {
        Self::new(REPLAY_PROCESS_OCTETS_MAX)
    }
}

impl StreamRegistry {
    /// A registry whose streams may hold so many octets together.
    pub fn new(octets_max: usize) -> Self {
        Self {
            homes: Mutex::default(),
            octets: OctetBudget::new(octets_max),
            mappers: AtomicUsize::new(0),
        }
    }

    /// A mapper takes part; mappers are numbered from 0.
    pub fn join(&self, mapper: MapperId) {
        self.mappers.fetch_max(mapper.0 + 1, Ordering::Relaxed);
    }

    /// The mappers that take part beside `mapper`.
    pub fn others(&self, mapper: MapperId) -> impl Iterator<Item = MapperId> + use<> {
        let mappers = self.mappers.load(Ordering::Relaxed);
        (0..mappers).map(MapperId).filter(move |&id| id != mapper)
    }

    /// Octets that kept events may use.
    pub fn octets(&self) -> &OctetBudget {
        &self.octets
    }

    /// Where the stream is kept, if it is.
    pub fn find(&self, key: &StreamKey) -> Option<StreamHome> {
        self.lock().get(key).copied()
    }

    /// Enters a stream; an older one of the same key is no longer found.
    pub fn enter(&self, key: StreamKey, home: StreamHome) {
        self.lock().insert(key, home);
    }

    /// Takes a stream out, unless a newer one has its key.
    pub fn leave(&self, key: &StreamKey, home: StreamHome) {
        let mut homes = self.lock();
        if homes.get(key) == Some(&home) {
            homes.remove(key);
        }
    }

    /// Streams entered.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamKey, StreamHome>> {
        // A map is whole between two calls, whoever panicked meanwhile.
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_stream_of_the_same_key_stays() {
        let registry = StreamRegistry::new(10);
        let key = StreamKey {
            peer: "ed25519:peer".into(),
            server_name: "literature".into(),
            correlation_id: CorrelationId::new(b"c").unwrap(),
        };
        let home = |mapper, exchange| StreamHome {
            mapper: MapperId(mapper),
            exchange: ExchangeId(exchange),
        };
        registry.enter(key.clone(), home(0, 1));
        registry.enter(key.clone(), home(1, 1));
        registry.leave(&key, home(0, 1));
        assert_eq!(registry.find(&key), Some(home(1, 1)));
        registry.leave(&key, home(1, 1));
        assert!(registry.is_empty());
    }
}
