//! The advertising role on one association: queries are answered in pages,
//! subscriptions with a snapshot and with updates from then on. Every bound that
//! a peer could run into is kept here. Serves NPAMP-DISC §6, §7, §9 and §10.

use super::advertised::{Advertised, Change};
use super::error::ErrorCode;
use super::filter::Filter;
use super::frame::Frame;
use super::rate::Rate;
use super::record::{Body, Record, RecordId};
use crate::bridge::correlation::CorrelationId;
use crate::limits;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a peer may take.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Records in one result, and in one announcement.
    pub page_records: usize,
    /// Octets of records in one result; a single longer record goes alone.
    pub page_octets: usize,
    /// Live subscriptions.
    pub subscriptions: usize,
    /// Queries and subscriptions that may come at once.
    pub queries_burst: u32,
    /// Time after which one more may come.
    pub query_time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            page_records: limits::DISCOVERY_PAGE_RECORDS_MAX,
            page_octets: limits::DISCOVERY_PAGE_OCTETS_MAX,
            subscriptions: limits::DISCOVERY_SUBSCRIPTIONS_MAX,
            queries_burst: limits::DISCOVERY_QUERIES_BURST_MAX,
            query_time: limits::DISCOVERY_QUERY_TIME,
        }
    }
}

/// Where a page ended.
#[derive(Debug)]
struct Cursor {
    token: [u8; 8],
    filter: Filter,
    tolerant: bool,
    /// The last record of the page.
    after: RecordId,
    /// The set that the page was of.
    generation: u64,
    expires: Instant,
}

#[derive(Debug)]
struct Subscription {
    corr: CorrelationId,
    filter: Filter,
}

/// The role's state.
#[derive(Debug)]
pub struct Responder {
    bounds: Bounds,
    advertised: Advertised,
    subscriptions: Vec<Subscription>,
    cursors: VecDeque<Cursor>,
    next_cursor: u64,
    rate: Rate,
}

/// Why a request is refused, with its text.
type Refused = (ErrorCode, &'static str);

impl Responder {
    /// Nothing is advertised yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            rate: Rate::new(bounds.queries_burst, bounds.query_time),
            bounds,
            advertised: Advertised::default(),
            subscriptions: Vec::new(),
            cursors: VecDeque::new(),
            next_cursor: 0,
        }
    }

    /// What is advertised.
    pub fn advertised(&self) -> &Advertised {
        &self.advertised
    }

    /// Live subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Answers a DISCO_QUERY with a page or an error (§6).
    pub fn query(
        &mut self,
        corr: CorrelationId,
        filter: &Filter,
        tolerant: bool,
        cursor: Option<&[u8]>,
        now: Instant,
    ) -> Frame {
        let page = self
            .admit(&corr, now)
            .and_then(|()| self.place(filter, tolerant, cursor, now))
            .and_then(|after| {
                let matching = self.matching(filter, tolerant)?;
                Ok(self.page(filter, tolerant, after, &matching, now))
            });
        match page {
            Ok((records, cursor)) => Frame::Result {
                corr,
                records,
                complete: cursor.is_none(),
                cursor,
            },
            Err(refused) => error(corr, refused),
        }
    }

    /// Answers a DISCO_SUBSCRIBE with the snapshot, in as many pages as it takes, or
    /// with an error (§7.2).
    pub fn subscribe(&mut self, corr: CorrelationId, filter: Filter, now: Instant) -> Vec<Frame> {
        let matching = self.admit(&corr, now).and_then(|()| {
            if self.subscriptions.len() >= self.bounds.subscriptions {
                return Err((ErrorCode::SUBSCRIPTION_REFUSED, "too many subscriptions"));
            }
            self.matching(&filter, false)
        });
        let matching = match matching {
            Ok(matching) => matching,
            Err(refused) => return vec![error(corr, refused)],
        };
        let (mut frames, mut after) = (Vec::new(), None);
        loop {
            let (records, cursor) = self.page(&filter, false, after, &matching, now);
            after = records.last().map(|record| record.record_id.clone());
            let complete = cursor.is_none();
            frames.push(Frame::Result {
                corr: corr.clone(),
                records,
                complete,
                cursor,
            });
            if complete {
                break;
            }
        }
        self.subscriptions.push(Subscription { corr, filter });
        frames
    }

    /// Ends a subscription. False when there is none, which is no fault (§7.3).
    pub fn unsubscribe(&mut self, corr: &CorrelationId) -> bool {
        let before = self.subscriptions.len();
        self.subscriptions.retain(|live| live.corr != *corr);
        self.subscriptions.len() < before
    }

    /// Advertises a record; gives the updates that subscribers are owed.
    pub fn put(&mut self, record_id: RecordId, label: Option<String>, body: Body) -> Vec<Frame> {
        let change = self.advertised.put(record_id, label, body);
        change.map_or_else(Vec::new, |change| self.updates(&change))
    }

    /// Withdraws a record; gives the updates that subscribers are owed.
    pub fn withdraw(&mut self, record_id: &RecordId) -> Vec<Frame> {
        let change = self.advertised.withdraw(record_id);
        change.map_or_else(Vec::new, |change| self.updates(&change))
    }

    /// Everything, unasked, as far as a page holds it (§7.1). `None` when there is nothing.
    pub fn announcement(&self) -> Option<Frame> {
        let mut records = Vec::new();
        let mut octets = 0;
        for record in self.advertised.records().filter(|r| r.kind().is_known()) {
            octets += record.octets();
            let full =
                records.len() >= self.bounds.page_records || octets > self.bounds.page_octets;
            if full && !records.is_empty() {
                break;
            }
            records.push(record.clone());
        }
        (!records.is_empty()).then_some(Frame::Announce { records })
    }

    fn admit(&mut self, corr: &CorrelationId, now: Instant) -> Result<(), Refused> {
        if !self.rate.take(now) {
            return Err((ErrorCode::SUBSCRIPTION_REFUSED, "too many queries"));
        }
        if self.subscriptions.iter().any(|live| live.corr == *corr) {
            // Not unique among the peer's own (§4.2).
            return Err((ErrorCode::MALFORMED_PAYLOAD, "the corr is a subscription's"));
        }
        Ok(())
    }

    /// The record after which the wanted page begins.
    fn place(
        &mut self,
        filter: &Filter,
        tolerant: bool,
        cursor: Option<&[u8]>,
        now: Instant,
    ) -> Result<Option<RecordId>, Refused> {
        let Some(token) = cursor else {
            return Ok(None);
        };
        self.cursors.retain(|cursor| now < cursor.expires);
        self.cursors
            .iter()
            .find(|cursor| {
                cursor.token == token
                    && cursor.filter == *filter
                    && cursor.tolerant == tolerant
                    && cursor.generation == self.advertised.generation()
            })
            .map(|cursor| Some(cursor.after.clone()))
            .ok_or((ErrorCode::STALE_CURSOR, "the cursor is not known any more"))
    }

    /// All records that the filter admits, if they can be represented (§6.3).
    fn matching(&self, filter: &Filter, tolerant: bool) -> Result<Vec<Record>, Refused> {
        let refused = (
            ErrorCode::UNKNOWN_RECORD_KIND,
            "a record kind that is not known here",
        );
        if !tolerant && filter.names_unknown_kind() {
            return Err(refused);
        }
        let mut matching = Vec::new();
        for record in self.advertised.records() {
            if !filter.matches(record) {
                continue;
            }
            if record.kind().is_known() {
                matching.push(record.clone());
            } else if !tolerant {
                return Err(refused);
            }
        }
        Ok(matching)
    }

    /// The next page of `matching`, and the cursor of the one behind it, if any.
    fn page(
        &mut self,
        filter: &Filter,
        tolerant: bool,
        after: Option<RecordId>,
        matching: &[Record],
        now: Instant,
    ) -> (Vec<Record>, Option<Vec<u8>>) {
        let rest = after.map_or(matching, |after| {
            let begins = matching.partition_point(|record| record.record_id <= after);
            &matching[begins..]
        });
        let mut octets = 0;
        let fitting = rest
            .iter()
            .take(self.bounds.page_records.max(1))
            .take_while(|record| {
                octets += record.octets();
                octets <= self.bounds.page_octets
            })
            .count();
        let (page, behind) = rest.split_at(fitting.max(1).min(rest.len()));
        let cursor = match page.last() {
            Some(last) if !behind.is_empty() => {
                Some(self.remember(filter.clone(), tolerant, last.record_id.clone(), now))
            }
            _ => None,
        };
        (page.to_vec(), cursor)
    }

    fn remember(
        &mut self,
        filter: Filter,
        tolerant: bool,
        after: RecordId,
        now: Instant,
    ) -> Vec<u8> {
        self.next_cursor += 1;
        let token = self.next_cursor.to_be_bytes();
        if self.cursors.len() >= limits::DISCOVERY_CURSORS_MAX {
            self.cursors.pop_front();
        }
        self.cursors.push_back(Cursor {
            token,
            filter,
            tolerant,
            after,
            generation: self.advertised.generation(),
            expires: now + limits::DISCOVERY_CURSOR_TIME,
        });
        token.to_vec()
    }

    /// What a change means to each subscriber (§7.2).
    fn updates(&self, change: &Change) -> Vec<Frame> {
        let update = |subscription: &Subscription| {
            let admits =
                |record: &Record| record.kind().is_known() && subscription.filter.matches(record);
            let (added, withdrawn) = match change {
                Change::Put { record, .. } if admits(record) => (vec![record.clone()], Vec::new()),
                Change::Put {
                    replaced: Some(old),
                    ..
                }
                | Change::Withdrawn(old)
                    if admits(old) =>
                {
                    (Vec::new(), vec![old.record_id.clone()])
                }
                Change::Put { .. } | Change::Withdrawn(_) => return None,
            };
            Some(Frame::Update {
                corr: subscription.corr.clone(),
                added,
                withdrawn,
            })
        };
        self.subscriptions.iter().filter_map(update).collect()
    }
}

fn error(corr: CorrelationId, (code, reason): Refused) -> Frame {
    Frame::Error {
        corr,
        code,
        reason: Some(reason.to_owned()),
    }
}
