//! The requester's exchanges on one channel: which correlation_ids are
//! outstanding, how far each stream has come, and which ones nobody waits for
//! any more. Serves NPAMP-BRIDGE §5 and NPAMP-CC-STREAM §5, §7.

use crate::bridge::correlation::CorrelationId;
use crate::bridge::own::OwnMap;
use crate::bridge::stream::{Consumer, NotMonotonic};
use crate::limits::ABANDONED_EXCHANGES_REMEMBERED_MAX;
use std::collections::VecDeque;

/// An outstanding exchange.
#[derive(Debug)]
pub struct Outstanding<T> {
    /// The caller's own.
    pub value: T,
    /// Present once a stream frame came.
    pub stream: Option<Consumer>,
    /// The stream was begun elsewhere and resumed here after this event_id:
    /// repeats up to it are discarded (NPAMP-CC-STREAM §6.3).
    pub resumed_after: Option<u64>,
}

/// What became of an exchange that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// Forgotten without a word to the producer.
    Forgotten,
    /// The producer was sent a cancel.
    Cancelled,
}

/// Why a stream frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRefused {
    /// No such exchange.
    Unknown,
    /// event_id did not exceed the last one.
    NotMonotonic,
}

/// The table. `T` is what the owner keeps per exchange. The names in it are this side's own.
#[derive(Debug)]
pub struct RequesterTable<T> {
    outstanding: OwnMap<CorrelationId, Outstanding<T>>,
    abandoned: OwnMap<CorrelationId, Abandoned>,
    abandoned_order: VecDeque<CorrelationId>,
}

impl<T> Default for RequesterTable<T> {
    fn default() -> Self {
        Self {
            outstanding: OwnMap::default(),
            abandoned: OwnMap::default(),
            abandoned_order: VecDeque::new(),
        }
    }
}

impl<T> RequesterTable<T> {
    /// Outstanding exchanges.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether none is outstanding.
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Opens an exchange. Gives `value` back when the correlation_id is outstanding (§5).
    pub fn open(&mut self, correlation_id: CorrelationId, value: T) -> Result<(), T> {
        if self.outstanding.contains_key(&correlation_id) {
            return Err(value);
        }
        let entry = Outstanding {
            value,
            stream: None,
            resumed_after: None,
        };
        self.outstanding.insert(correlation_id, entry);
        Ok(())
    }

    /// Opens an exchange that goes on with a stream after what `stream` has
    /// consumed. Gives `value` back when the correlation_id is outstanding.
    pub fn reopen(
        &mut self,
        correlation_id: CorrelationId,
        value: T,
        stream: Consumer,
    ) -> Result<(), T> {
        if self.outstanding.contains_key(&correlation_id) {
            return Err(value);
        }
        let entry = Outstanding {
            value,
            stream: Some(stream),
            resumed_after: Some(stream.last_event_id()),
        };
        self.outstanding.insert(correlation_id, entry);
        Ok(())
    }

    /// The exchange that a reply names.
    pub fn get(&self, correlation_id: &[u8]) -> Option<&Outstanding<T>> {
        self.outstanding.get(correlation_id)
    }

    /// The exchange's own value, to be changed.
    pub fn get_mut(&mut self, correlation_id: &[u8]) -> Option<&mut T> {
        self.outstanding
            .get_mut(correlation_id)
            .map(|entry| &mut entry.value)
    }

    /// The whole of the exchange, to be changed.
    pub fn outstanding(&mut self, correlation_id: &[u8]) -> Option<&mut Outstanding<T>> {
        self.outstanding.get_mut(correlation_id)
    }

    /// Checks and records the event_id of a stream frame.
    pub fn accept_event(
        &mut self,
        correlation_id: &[u8],
        event_id: u64,
    ) -> Result<(), EventRefused> {
        let entry = self
            .outstanding
            .get_mut(correlation_id)
            .ok_or(EventRefused::Unknown)?;
        entry
            .stream
            .get_or_insert_default()
            .accept(event_id)
            .map_err(|NotMonotonic| EventRefused::NotMonotonic)
    }

    /// Takes an exchange out: it is answered, or failed.
    pub fn close(&mut self, correlation_id: &[u8]) -> Option<Outstanding<T>> {
        let entry = self.outstanding.remove(correlation_id);
        if self.outstanding.is_empty() && self.outstanding.capacity() > 64 {
            // An idle association holds no burst's memory.
            self.outstanding = OwnMap::default();
        }
        entry
    }

    /// Takes an exchange out and remembers, within a bound, that its replies are unwanted.
    pub fn abandon(&mut self, correlation_id: &[u8], how: Abandoned) -> Option<Outstanding<T>> {
        let entry = self.close(correlation_id)?;
        if let Some(key) = CorrelationId::new(correlation_id) {
            self.remember(key, how);
        }
        Some(entry)
    }

    /// What became of an exchange that is no longer outstanding, while remembered.
    pub fn abandoned(&self, correlation_id: &[u8]) -> Option<Abandoned> {
        self.abandoned.get(correlation_id).copied()
    }

    /// Records that a forgotten exchange turned out to be a stream and was cancelled.
    pub fn mark_cancelled(&mut self, correlation_id: &[u8]) {
        if let Some(how) = self.abandoned.get_mut(correlation_id) {
            *how = Abandoned::Cancelled;
        }
    }

    /// Forgets an abandoned exchange: its last frame came.
    pub fn settle(&mut self, correlation_id: &[u8]) {
        if self.abandoned.remove(correlation_id).is_some() {
            self.abandoned_order
                .retain(|key| key.as_octets() != correlation_id);
        }
    }

    /// Every outstanding exchange, taken out.
    pub fn drain(&mut self) -> impl Iterator<Item = (CorrelationId, Outstanding<T>)> {
        self.abandoned.clear();
        self.abandoned_order.clear();
        std::mem::take(&mut self.outstanding).into_iter()
    }

    fn remember(&mut self, key: CorrelationId, how: Abandoned) {
        if self.abandoned_order.len() == ABANDONED_EXCHANGES_REMEMBERED_MAX
            && let Some(oldest) = self.abandoned_order.pop_front()
        {
            self.abandoned.remove(&oldest);
        }
        self.abandoned_order.push_back(key.clone());
        self.abandoned.insert(key, how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> CorrelationId {
        CorrelationId::new(&n.to_be_bytes()).unwrap()
    }

    /// NPAMP-BRIDGE §5: unique among the outstanding, matched by correlation_id, answered once.
    #[test]
    fn opens_once_and_closes_once() {
        let mut table = RequesterTable::default();
        assert_eq!(table.open(id(1), 'a'), Ok(()));
        assert_eq!(table.open(id(1), 'b'), Err('b'));
        assert_eq!(table.open(id(2), 'c'), Ok(()));
        assert_eq!(table.close(id(1).as_octets()).unwrap().value, 'a');
        assert!(table.close(id(1).as_octets()).is_none());
        assert_eq!(table.len(), 1);
    }

    /// NPAMP-CC-STREAM §5.1, §9.
    #[test]
    fn events_must_rise() {
        let mut table = RequesterTable::default();
        table.open(id(1), ()).unwrap();
        let key = id(1);
        assert_eq!(table.accept_event(key.as_octets(), 1), Ok(()));
        assert_eq!(
            table.accept_event(key.as_octets(), 1),
            Err(EventRefused::NotMonotonic)
        );
        assert_eq!(
            table.accept_event(id(9).as_octets(), 1),
            Err(EventRefused::Unknown)
        );
        let last = table.get(key.as_octets()).unwrap().stream.unwrap();
        assert_eq!(last.last_event_id(), 1);
    }

    /// NPAMP-CC-STREAM §7.1: a cancelled stream's late frames are known as such, in bounded memory.
    #[test]
    fn abandoned_exchanges_are_remembered_within_a_bound() {
        let mut table = RequesterTable::default();
        for n in 0..=ABANDONED_EXCHANGES_REMEMBERED_MAX {
            table.open(id(n), n).unwrap();
            table.abandon(id(n).as_octets(), Abandoned::Forgotten);
        }
        assert_eq!(table.abandoned(id(0).as_octets()), None);
        assert_eq!(
            table.abandoned(id(1).as_octets()),
            Some(Abandoned::Forgotten)
        );
        table.mark_cancelled(id(1).as_octets());
        assert_eq!(
            table.abandoned(id(1).as_octets()),
            Some(Abandoned::Cancelled)
        );
        table.settle(id(1).as_octets());
        assert_eq!(table.abandoned(id(1).as_octets()), None);
        assert_eq!(
            table.abandoned_order.len(),
            ABANDONED_EXCHANGES_REMEMBERED_MAX - 1
        );
    }
}
