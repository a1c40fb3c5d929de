//! What a peer has advertised on one association: merged by revision, bounded,
//! and only called whole once its snapshot is there and every update since was
//! understood. Serves NPAMP-DISC §7, §8 and §10.

use super::record::{Body, CarriageClass, Record, RecordId};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::envelope::ProtocolId;
use crate::limits::{DISCOVERY_LEARNED_OCTETS_MAX, DISCOVERY_LEARNED_RECORDS_MAX};
use std::collections::BTreeMap;

/// What became of a received record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Inserted, or in the place of a lesser revision.
    New,
    /// Not greater than what is held (§8).
    Stale,
    /// Of a kind that is not known here (§5).
    Unknown,
    /// There is no room.
    Full,
}

/// How far the subscription has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snapshot {
    /// Not asked for.
    #[default]
    None,
    /// Asked for.
    Awaited,
    /// All of it is there, and it is kept up by updates.
    Complete,
    /// The peer declined it.
    Refused,
    /// Some of it was not understood or did not fit: there may be more than is held.
    Partial,
}

/// The records, in the order of their record_ids.
#[derive(Debug, Default)]
pub struct Learned {
    records: BTreeMap<RecordId, (Record, usize)>,
    octets: usize,
    subscription: Option<CorrelationId>,
    snapshot: Snapshot,
    /// The last page has come.
    ended: bool,
}

impl Learned {
    /// A DISCO_SUBSCRIBE goes out with this `corr`.
    pub fn subscribed(&mut self, corr: CorrelationId) {
        self.subscription = Some(corr);
        self.snapshot = Snapshot::Awaited;
        self.ended = false;
    }

    /// Whether it is the live subscription's.
    pub fn is_subscription(&self, corr: &CorrelationId) -> bool {
        self.subscription.as_ref() == Some(corr)
    }

    /// The peer declined the subscription, or its answer was no answer.
    pub fn refused(&mut self) {
        self.subscription = None;
        self.snapshot = Snapshot::Refused;
    }

    /// The last page of the snapshot is there. True the first time.
    pub fn completed(&mut self) -> bool {
        if self.snapshot == Snapshot::Awaited {
            self.snapshot = Snapshot::Complete;
        }
        !std::mem::replace(&mut self.ended, true)
    }

    /// Something about the set was not understood.
    pub fn missed(&mut self) {
        if matches!(self.snapshot, Snapshot::Awaited | Snapshot::Complete) {
            self.snapshot = Snapshot::Partial;
        }
    }

    /// Takes a record that came by result, announcement or update (§8).
    pub fn take(&mut self, record: Record) -> Taken {
        if !record.kind().is_known() {
            return Taken::Unknown;
        }
        let held = self.records.get(&record.record_id);
        if held.is_some_and(|(held, _)| held.revision >= record.revision) {
            return Taken::Stale;
        }
        let before = held.map_or(0, |(_, octets)| *octets);
        let octets = record.octets();
        let full = held.is_none() && self.records.len() >= DISCOVERY_LEARNED_RECORDS_MAX;
        if full || self.octets - before + octets > DISCOVERY_LEARNED_OCTETS_MAX {
            return Taken::Full;
        }
        self.octets = self.octets - before + octets;
        self.records
            .insert(record.record_id.clone(), (record, octets));
        Taken::New
    }

    /// Drops a record that an update withdrew. False when it was not held.
    pub fn withdraw(&mut self, record_id: &RecordId) -> bool {
        let Some((_, octets)) = self.records.remove(record_id) else {
            return false;
        };
        self.octets -= octets;
        true
    }

    /// How far the subscription has come.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Records held.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values().map(|(record, _)| record)
    }

    /// Whether the whole set is known, and it names other things but not this
    /// protocol. An empty set says nothing (§10).
    pub fn lacks_protocol(&self, protocol_id: ProtocolId) -> bool {
        self.is_telling()
            && !self
                .records()
                .any(|record| record.names_protocol(protocol_id))
    }

    /// Whether the whole set is known, and it names carriage classes but not this one.
    pub fn lacks_class(&self, class: CarriageClass) -> bool {
        let mut classes = self.records().filter_map(|record| match &record.body {
            Body::CarriageClass(record) => Some(record.carriage_class),
            _ => None,
        });
        let mut any = false;
        self.is_telling()
            && !classes.any(|named| {
                any = true;
                named == class
            })
            && any
    }

    fn is_telling(&self) -> bool {
        self.snapshot == Snapshot::Complete && !self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{AgentRecord, CarriageClassRecord, RecordKind};
    use super::*;

    fn class(id: &[u8], revision: u64, class: u64) -> Record {
        Record {
            record_id: RecordId::new(id).unwrap(),
            revision,
            label: None,
            body: Body::CarriageClass(CarriageClassRecord {
                carriage_class: CarriageClass(class),
                content_types: None,
            }),
        }
    }

    fn corr(octets: &[u8]) -> CorrelationId {
        CorrelationId::new(octets).unwrap()
    }

    /// NPAMP-DISC §8: only a strictly greater revision replaces, and only a withdrawal deletes.
    #[test]
    fn revisions_decide() {
        let mut learned = Learned::default();
        assert_eq!(learned.take(class(b"a", 5, 1)), Taken::New);
        assert_eq!(learned.take(class(b"a", 5, 2)), Taken::Stale);
        assert_eq!(learned.take(class(b"a", 4, 2)), Taken::Stale);
        assert_eq!(learned.records().next(), Some(&class(b"a", 5, 1)));
        assert_eq!(learned.take(class(b"a", 6, 2)), Taken::New);
        assert_eq!(learned.take(class(b"b", 1, 3)), Taken::New);
        assert_eq!(learned.len(), 2);
        assert!(learned.withdraw(&RecordId::new(b"a").unwrap()));
        assert!(!learned.withdraw(&RecordId::new(b"a").unwrap()));
        assert_eq!(learned.take(class(b"a", 1, 1)), Taken::New, "not held");
    }

    /// NPAMP-DISC §5: an unknown kind is refused, record by record.
    #[test]
    fn unknown_kinds_are_not_held() {
        let mut learned = Learned::default();
        let mut record = class(b"a", 1, 1);
        record.body = Body::Unknown {
            kind: RecordKind(9),
            octets: vec![0xa0],
        };
        assert_eq!(learned.take(record), Taken::Unknown);
        assert!(learned.is_empty());
    }

    /// NPAMP-DISC §10: what a peer can make us hold is bounded, in records and in octets.
    #[test]
    fn what_is_held_is_bounded() {
        let mut learned = Learned::default();
        for n in 0..DISCOVERY_LEARNED_RECORDS_MAX as u64 {
            assert_eq!(learned.take(class(&n.to_be_bytes(), 1, 1)), Taken::New);
        }
        assert_eq!(learned.take(class(b"one more", 1, 1)), Taken::Full);
        assert_eq!(learned.take(class(&0_u64.to_be_bytes(), 2, 1)), Taken::New);

        let mut learned = Learned::default();
        let mut long = class(b"a", 1, 1);
        long.label = Some("x".repeat(DISCOVERY_LEARNED_OCTETS_MAX - 64));
        assert_eq!(learned.take(long.clone()), Taken::New);
        let mut other = class(b"b", 1, 1);
        other.label = Some("x".repeat(64));
        assert_eq!(learned.take(other.clone()), Taken::Full);
        long.label = None;
        long.revision = 2;
        assert_eq!(learned.take(long), Taken::New);
        assert_eq!(learned.take(other), Taken::New);
    }

    /// NPAMP-DISC §7.1, §10: nothing is concluded from an announcement, an empty set or a part of one.
    #[test]
    fn only_a_whole_set_tells() {
        let lacks = |learned: &Learned| {
            (
                learned.lacks_protocol(ProtocolId::A2A),
                learned.lacks_class(CarriageClass::DOC),
            )
        };
        let mut learned = Learned::default();
        learned.take(class(b"a", 1, 1));
        assert_eq!(lacks(&learned), (false, false), "announced");
        learned.subscribed(corr(b"s"));
        assert!(learned.is_subscription(&corr(b"s")));
        assert_eq!(lacks(&learned), (false, false), "awaited");
        assert!(learned.completed(), "the first time");
        assert_eq!(lacks(&learned), (true, true));
        learned.take(class(b"b", 1, 5));
        assert_eq!(lacks(&learned), (true, false));
        learned.take(Record {
            body: Body::Agent(AgentRecord {
                agent_id: b"x"[..].into(),
                protocols: vec![2],
                tools: None,
            }),
            ..class(b"c", 1, 1)
        });
        assert_eq!(lacks(&learned), (false, false));
        learned.withdraw(&RecordId::new(b"b").unwrap());
        assert_eq!(lacks(&learned), (false, true));
        learned.missed();
        assert_eq!(lacks(&learned), (false, false), "partial");
        assert!(!learned.completed());
        assert_eq!(learned.snapshot(), Snapshot::Partial);

        let mut empty = Learned::default();
        empty.subscribed(corr(b"s"));
        empty.completed();
        assert_eq!(lacks(&empty), (false, false), "empty");
        empty.refused();
        assert_eq!(empty.snapshot(), Snapshot::Refused);
        assert!(!empty.is_subscription(&corr(b"s")));
    }
}
