//! The responder's exchanges on one channel: which of the peer's requests are
//! unanswered. Serves NPAMP-BRIDGE §5.

use crate::bridge::correlation::CorrelationId;
use std::collections::HashMap;

/// The table. `T` is what the owner keeps per exchange.
#[derive(Debug)]
pub struct ResponderTable<T> {
    outstanding: HashMap<CorrelationId, T>,
}

impl<T> Default for ResponderTable<T> {
    fn default() -> Self {
        Self {
            outstanding: HashMap::new(),
        }
    }
}

impl<T> ResponderTable<T> {
    /// Unanswered requests.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether every request is answered.
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether a request with this correlation_id is unanswered; a second one must be refused (§5).
    pub fn contains(&self, correlation_id: &[u8]) -> bool {
        self.outstanding.contains_key(correlation_id)
    }

    /// Takes a request in. Gives `value` back when its correlation_id is outstanding.
    pub fn accept(&mut self, correlation_id: CorrelationId, value: T) -> Result<(), T> {
        if self.outstanding.contains_key(&correlation_id) {
            return Err(value);
        }
        self.outstanding.insert(correlation_id, value);
        Ok(())
    }

    /// The exchange that a cancel names.
    pub fn get(&self, correlation_id: &[u8]) -> Option<&T> {
        self.outstanding.get(correlation_id)
    }

    /// Takes an exchange out: its last frame was sent.
    pub fn close(&mut self, correlation_id: &[u8]) -> Option<T> {
        let value = self.outstanding.remove(correlation_id);
        if self.outstanding.is_empty() && self.outstanding.capacity() > 64 {
            // An idle association holds no burst's memory.
            self.outstanding = HashMap::new();
        }
        value
    }

    /// Every unanswered exchange, taken out.
    pub fn drain(&mut self) -> impl Iterator<Item = (CorrelationId, T)> {
        std::mem::take(&mut self.outstanding).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-BRIDGE §5: one outstanding request per correlation_id; free again once answered.
    #[test]
    fn duplicates_are_refused_until_answered() {
        let mut table = ResponderTable::default();
        let id = || CorrelationId::new(b"c").unwrap();
        assert_eq!(table.accept(id(), 1), Ok(()));
        assert!(table.contains(b"c"));
        assert_eq!(table.accept(id(), 2), Err(2));
        assert_eq!(table.get(b"c"), Some(&1));
        assert_eq!(table.close(b"c"), Some(1));
        assert_eq!(table.close(b"c"), None);
        assert_eq!(table.accept(id(), 3), Ok(()));
    }
}
