//! What we advertise on one association. The set gives the revisions, so that no
//! change of a record goes without a greater one. Serves NPAMP-DISC §5 and §8.

use super::record::{Body, Record, RecordId};
use std::collections::BTreeMap;

/// How the set changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A record is new, or takes the place of another.
    Put {
        /// As it is now.
        record: Record,
        /// As it was.
        replaced: Option<Record>,
    },
    /// A record is gone.
    Withdrawn(Record),
}

/// The set, in the order of record_ids.
#[derive(Debug, Default)]
pub struct Advertised {
    records: BTreeMap<RecordId, Record>,
    /// The greatest revision that each record_id ever had, withdrawn ones included.
    revisions: BTreeMap<RecordId, u64>,
    generation: u64,
}

impl Advertised {
    /// Advertises a record, with a revision greater than any that its record_id had.
    /// `None` when the set says exactly that already.
    pub fn put(
        &mut self,
        record_id: RecordId,
        label: Option<String>,
        body: Body,
    ) -> Option<Change> {
        let present = self.records.get(&record_id);
        if present.is_some_and(|record| record.body == body && record.label == label) {
            return None;
        }
        let revision = self.revisions.entry(record_id.clone()).or_insert(0);
        *revision = revision.saturating_add(1);
        let record = Record {
            record_id: record_id.clone(),
            revision: *revision,
            label,
            body,
        };
        self.generation += 1;
        let replaced = self.records.insert(record_id, record.clone());
        Some(Change::Put { record, replaced })
    }

    /// Advertises a record no more.
    pub fn withdraw(&mut self, record_id: &RecordId) -> Option<Change> {
        let record = self.records.remove(record_id)?;
        self.generation += 1;
        Some(Change::Withdrawn(record))
    }

    /// The records, in the order of their record_ids.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// Whether nothing is advertised.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Changes whenever the set does.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{CarriageClass, CarriageClassRecord};
    use super::*;

    fn body(class: u64) -> Body {
        Body::CarriageClass(CarriageClassRecord {
            carriage_class: CarriageClass(class),
            content_types: None,
        })
    }

    /// NPAMP-DISC §8: a greater revision with each change, also after a withdrawal.
    #[test]
    fn revisions_rise() {
        let id = || RecordId::new(b"x").unwrap();
        let mut set = Advertised::default();
        let revision = |change: Option<Change>| match change {
            Some(Change::Put { record, .. }) => record.revision,
            other => panic!("{other:?}"),
        };
        assert_eq!(revision(set.put(id(), None, body(1))), 1);
        assert_eq!(set.put(id(), None, body(1)), None, "nothing changed");
        assert_eq!(revision(set.put(id(), None, body(2))), 2);
        assert_eq!(revision(set.put(id(), Some("l".into()), body(2))), 3);
        let generation = set.generation();
        assert!(
            matches!(set.withdraw(&id()), Some(Change::Withdrawn(record)) if record.revision == 3)
        );
        assert_ne!(set.generation(), generation);
        assert_eq!(set.withdraw(&id()), None);
        assert!(set.is_empty());
        assert_eq!(revision(set.put(id(), Some("l".into()), body(2))), 4);
    }
}
