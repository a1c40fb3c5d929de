//! Our queries on one association: matched to their results by `corr` alone,
//! and assembled page by page within bounds. Serves NPAMP-DISC §4.2, §4.3, §6.2.

use super::filter::Filter;
use super::frame::Frame;
use super::record::Record;
use crate::bridge::correlation::CorrelationId;
use crate::limits::{
    DISCOVERY_PAGES_MAX, DISCOVERY_QUERIES_OUTSTANDING_MAX, DISCOVERY_RESULT_OCTETS_MAX,
    DISCOVERY_RESULT_RECORDS_MAX,
};
use std::collections::HashMap;

/// An outstanding query. `T` is what its owner keeps of it.
#[derive(Debug)]
pub struct Query<T> {
    /// The owner's.
    pub value: T,
    filter: Filter,
    tolerant: bool,
    records: Vec<Record>,
    octets: usize,
    pages: usize,
}

/// What a page means.
#[derive(Debug)]
pub enum Progress<T> {
    /// More is there: send this.
    More(Frame),
    /// The whole result, in the order that it came.
    Done(T, Vec<Record>),
    /// A record of an unknown kind, and the query was not tolerant (§5).
    UnknownKind(T),
    /// More than may be assembled (§10).
    TooMuch(T),
    /// Nobody asked.
    Unmatched,
}

/// The table.
#[derive(Debug)]
pub struct Queries<T> {
    outstanding: HashMap<CorrelationId, Query<T>>,
}

impl<T> Default for Queries<T> {
    fn default() -> Self {
        Self {
            outstanding: HashMap::new(),
        }
    }
}

impl<T> Queries<T> {
    /// Whether no further query may be opened, or not with this `corr`.
    pub fn is_full(&self, corr: &CorrelationId) -> bool {
        self.outstanding.len() >= DISCOVERY_QUERIES_OUTSTANDING_MAX
            || self.outstanding.contains_key(corr)
    }

    /// Opens a query; gives the frame that asks. The caller has seen to [`Queries::is_full`].
    pub fn open(&mut self, corr: CorrelationId, filter: Filter, tolerant: bool, value: T) -> Frame {
        let query = Query {
            value,
            filter: filter.clone(),
            tolerant,
            records: Vec::new(),
            octets: 0,
            pages: 0,
        };
        self.outstanding.insert(corr.clone(), query);
        Frame::Query {
            corr,
            filter,
            tolerant,
            cursor: None,
        }
    }

    /// Whether it is an outstanding query's.
    pub fn awaits(&self, corr: &CorrelationId) -> bool {
        self.outstanding.contains_key(corr)
    }

    /// Ends a query.
    pub fn close(&mut self, corr: &CorrelationId) -> Option<T> {
        self.outstanding.remove(corr).map(|query| query.value)
    }

    /// Ends all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.outstanding.drain().map(|(_, query)| query.value)
    }

    /// Takes a page. The next one is asked for with the same `corr`, whose exchange
    /// the page has ended, so that all results bear the same (§6.2).
    pub fn page(
        &mut self,
        corr: &CorrelationId,
        records: Vec<Record>,
        cursor: Option<Vec<u8>>,
    ) -> Progress<T> {
        let Some(mut query) = self.outstanding.remove(corr) else {
            return Progress::Unmatched;
        };
        query.pages += 1;
        for record in records {
            if !record.kind().is_known() {
                if query.tolerant {
                    continue;
                }
                return Progress::UnknownKind(query.value);
            }
            query.octets += record.octets();
            query.records.push(record);
        }
        if query.octets > DISCOVERY_RESULT_OCTETS_MAX
            || query.records.len() > DISCOVERY_RESULT_RECORDS_MAX
        {
            return Progress::TooMuch(query.value);
        }
        let Some(cursor) = cursor else {
            return Progress::Done(query.value, query.records);
        };
        if query.pages >= DISCOVERY_PAGES_MAX {
            return Progress::TooMuch(query.value);
        }
        let frame = Frame::Query {
            corr: corr.clone(),
            filter: query.filter.clone(),
            tolerant: query.tolerant,
            cursor: Some(cursor),
        };
        self.outstanding.insert(corr.clone(), query);
        Progress::More(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Body, CarriageClass, CarriageClassRecord, RecordId, RecordKind};
    use super::*;

    fn record(id: u8, kind: u64) -> Record {
        Record {
            record_id: RecordId::new(&[id]).unwrap(),
            revision: 1,
            label: None,
            body: if kind == 2 {
                Body::CarriageClass(CarriageClassRecord {
                    carriage_class: CarriageClass(1),
                    content_types: None,
                })
            } else {
                Body::Unknown {
                    kind: RecordKind(kind),
                    octets: vec![0xa0],
                }
            },
        }
    }

    fn corr() -> CorrelationId {
        CorrelationId::new(b"c").unwrap()
    }

    /// NPAMP-DISC §4.3, §6.2: pages are put together, the filter unchanged and the cursor echoed.
    #[test]
    fn pages_are_put_together() {
        let mut queries = Queries::default();
        let filter = Filter {
            name_prefix: Some("a".into()),
            ..Filter::default()
        };
        queries.open(corr(), filter.clone(), true, "owner");
        assert!(queries.is_full(&corr()), "the corr is outstanding");
        let Progress::More(next) = queries.page(&corr(), vec![record(1, 2)], Some(vec![7])) else {
            panic!()
        };
        assert_eq!(
            next,
            Frame::Query {
                corr: corr(),
                filter,
                tolerant: true,
                cursor: Some(vec![7]),
            }
        );
        let last = queries.page(&corr(), vec![record(2, 9), record(3, 2)], None);
        let Progress::Done("owner", records) = last else {
            panic!("{last:?}")
        };
        assert_eq!(records, [record(1, 2), record(3, 2)], "tolerant");
        let late = queries.page(&corr(), Vec::new(), None);
        assert!(matches!(late, Progress::Unmatched));
    }

    /// NPAMP-DISC §5: without tolerance an unknown kind fails the query.
    #[test]
    fn an_unknown_kind_fails_a_query() {
        let mut queries = Queries::default();
        queries.open(corr(), Filter::default(), false, ());
        let page = queries.page(&corr(), vec![record(1, 2), record(2, 9)], None);
        assert!(matches!(page, Progress::UnknownKind(())));
        assert!(!queries.awaits(&corr()));
    }

    /// NPAMP-DISC §10: results are bounded in records and in pages.
    #[test]
    fn results_are_bounded() {
        let mut queries = Queries::default();
        queries.open(corr(), Filter::default(), false, ());
        let many = vec![record(1, 2); DISCOVERY_RESULT_RECORDS_MAX + 1];
        assert!(matches!(
            queries.page(&corr(), many, None),
            Progress::TooMuch(())
        ));

        queries.open(corr(), Filter::default(), false, ());
        for _ in 1..DISCOVERY_PAGES_MAX {
            let page = queries.page(&corr(), Vec::new(), Some(vec![1]));
            assert!(matches!(page, Progress::More(_)));
        }
        let page = queries.page(&corr(), Vec::new(), Some(vec![1]));
        assert!(matches!(page, Progress::TooMuch(())));
    }
}
