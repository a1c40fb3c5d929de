//! The payloads of the seven discovery frame types: deterministic on the way
//! out, strict on the way in. Knows nothing of what was asked before.
//! Serves NPAMP-DISC §3, §4, §6, §7 and §9.

use super::error::{ErrorCode, Fault, FrameError};
use super::fields::{self, Read};
use super::filter::Filter;
use super::record::{self, Record, RecordId, RecordKind};
use crate::bridge::correlation::CorrelationId;
use crate::limits::{
    DISCOVERY_CORR_OCTETS_MAX, DISCOVERY_CURSOR_OCTETS_MAX, DISCOVERY_PAYLOAD_OCTETS_MAX,
    DISCOVERY_RECORDS_PER_FRAME_MAX,
};
use crate::wire::cbor::{MapWriter, check_deterministic, write_array_head};
use minicbor::Decoder;

/// A further filter of a later revision would have one of these keys. An unknown
/// one of them is FilterUnsupported (§9); any other unknown key is passed over (§4.1).
const FILTER_KEYS: std::ops::RangeInclusive<u64> = 7..=23;

/// A discovery frame type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// 0x0100.
    Query,
    /// 0x0101.
    Result,
    /// 0x0102.
    Error,
    /// 0x0103.
    Announce,
    /// 0x0104.
    Subscribe,
    /// 0x0105.
    Update,
    /// 0x0106.
    Unsubscribe,
}

impl FrameKind {
    /// `None` outside 0x0100–0x0106.
    pub fn from_frame_type(frame_type: u16) -> Option<Self> {
        Some(match frame_type {
            0x0100 => Self::Query,
            0x0101 => Self::Result,
            0x0102 => Self::Error,
            0x0103 => Self::Announce,
            0x0104 => Self::Subscribe,
            0x0105 => Self::Update,
            0x0106 => Self::Unsubscribe,
            _ => return None,
        })
    }

    /// The frame type, which `frame_kind` repeats.
    pub fn frame_type(self) -> u16 {
        0x0100 + self as u16
    }

    /// Whether a reply is owed to it (§3).
    pub fn is_request(self) -> bool {
        matches!(self, Self::Query | Self::Subscribe)
    }
}

/// A discovery payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// DISCO_QUERY (§6.1).
    Query {
        /// Unique among the peer's outstanding queries and subscriptions.
        corr: CorrelationId,
        /// What is asked for.
        filter: Filter,
        /// What cannot be represented may be left out.
        tolerant: bool,
        /// Continues an earlier result.
        cursor: Option<Vec<u8>>,
    },
    /// DISCO_RESULT (§6.2).
    Result {
        /// The query's or subscription's.
        corr: CorrelationId,
        /// A page.
        records: Vec<Record>,
        /// No page follows.
        complete: bool,
        /// Where the next page begins; present unless complete.
        cursor: Option<Vec<u8>>,
    },
    /// DISCO_ERROR (§9).
    Error {
        /// The request's.
        corr: CorrelationId,
        /// Why.
        code: ErrorCode,
        /// For people.
        reason: Option<String>,
    },
    /// DISCO_ANNOUNCE (§7.1).
    Announce {
        /// Some of what is advertised.
        records: Vec<Record>,
    },
    /// DISCO_SUBSCRIBE (§7.2).
    Subscribe {
        /// Lives as long as the subscription.
        corr: CorrelationId,
        /// Which changes are wanted.
        filter: Filter,
    },
    /// DISCO_UPDATE (§7.2).
    Update {
        /// The subscription's.
        corr: CorrelationId,
        /// New or replaced.
        added: Vec<Record>,
        /// Gone.
        withdrawn: Vec<RecordId>,
    },
    /// DISCO_UNSUBSCRIBE (§7.3).
    Unsubscribe {
        /// The subscription's.
        corr: CorrelationId,
    },
}

impl Frame {
    /// Its type.
    pub fn kind(&self) -> FrameKind {
        match self {
            Self::Query { .. } => FrameKind::Query,
            Self::Result { .. } => FrameKind::Result,
            Self::Error { .. } => FrameKind::Error,
            Self::Announce { .. } => FrameKind::Announce,
            Self::Subscribe { .. } => FrameKind::Subscribe,
            Self::Update { .. } => FrameKind::Update,
            Self::Unsubscribe { .. } => FrameKind::Unsubscribe,
        }
    }

    /// Its `corr`.
    pub fn corr(&self) -> Option<&CorrelationId> {
        match self {
            Self::Announce { .. } => None,
            Self::Query { corr, .. }
            | Self::Result { corr, .. }
            | Self::Error { corr, .. }
            | Self::Subscribe { corr, .. }
            | Self::Update { corr, .. }
            | Self::Unsubscribe { corr } => Some(corr),
        }
    }

    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::new();
        map.entry(0_u64, self.kind().frame_type());
        if let Some(corr) = self.corr() {
            fields::put_octets(&mut map, 1, corr.as_octets());
        }
        match self {
            Self::Query {
                filter,
                tolerant,
                cursor,
                ..
            } => {
                put_filter(&mut map, filter);
                // Absent is false.
                fields::put_some(&mut map, 5, tolerant.then_some(true));
                if let Some(cursor) = cursor {
                    fields::put_octets(&mut map, 6, cursor);
                }
            }
            Self::Result {
                records,
                complete,
                cursor,
                ..
            } => {
                map.entry_octets(2_u64, encode_records(records));
                map.entry(3_u64, *complete);
                if let Some(cursor) = cursor {
                    fields::put_octets(&mut map, 4, cursor);
                }
            }
            Self::Error { code, reason, .. } => {
                map.entry(2_u64, code.0);
                fields::put_some(&mut map, 3, reason.as_deref());
            }
            Self::Announce { records } => {
                map.entry_octets(2_u64, encode_records(records));
            }
            Self::Subscribe { filter, .. } => put_filter(&mut map, filter),
            Self::Update {
                added, withdrawn, ..
            } => {
                if !added.is_empty() {
                    map.entry_octets(2_u64, encode_records(added));
                }
                if !withdrawn.is_empty() {
                    let ids = fields::octet_strings(withdrawn.iter().map(RecordId::as_octets));
                    map.entry_octets(3_u64, ids);
                }
            }
            Self::Unsubscribe { .. } => {}
        }
        let mut out = Vec::new();
        map.write(&mut out);
        out
    }

    /// Reads the payload of a frame of this type (§4).
    pub fn decode(frame_type: u16, octets: &[u8]) -> Result<Self, Fault> {
        let fault = |error| Fault {
            error,
            corr: readable_corr(octets),
        };
        let kind = FrameKind::from_frame_type(frame_type).ok_or(Fault {
            error: FrameError::FrameType,
            corr: None,
        })?;
        if octets.len() > DISCOVERY_PAYLOAD_OCTETS_MAX {
            return Err(fault(FrameError::Oversize));
        }
        check_deterministic(octets).map_err(|_| fault(FrameError::NotDeterministic))?;
        Self::read(kind, octets).map_err(fault)
    }

    fn read(kind: FrameKind, octets: &[u8]) -> Read<Self> {
        let mut frame_kind = None;
        let mut corr = None;
        let mut parts = Parts::default();
        // What a field means hangs on the frame type, so that a mismatch comes first.
        fields::map(&mut Decoder::new(octets), |key, decoder| {
            if key == 0 {
                frame_kind = Some(fields::uint(decoder)?);
            }
            Ok(key == 0)
        })?;
        if frame_kind.ok_or(FrameError::Missing)? != u64::from(kind.frame_type()) {
            return Err(FrameError::KindMismatch);
        }
        fields::map(&mut Decoder::new(octets), |key, decoder| {
            if key == 1 {
                let octets = fields::octets(decoder, DISCOVERY_CORR_OCTETS_MAX)?;
                corr = CorrelationId::new(octets);
                return Ok(true);
            }
            parts.take(kind, key, decoder)
        })?;
        if kind == FrameKind::Announce {
            return match corr {
                Some(_) => Err(FrameError::CorrOnAnnounce),
                None => Ok(Self::Announce {
                    records: parts.records.ok_or(FrameError::Missing)?,
                }),
            };
        }
        parts.frame(kind, corr.ok_or(FrameError::Missing)?)
    }
}

/// The fields of a payload, of whichever type, as they were read.
#[derive(Default)]
struct Parts {
    filter: Filter,
    filter_unsupported: bool,
    tolerant: bool,
    cursor: Option<Vec<u8>>,
    records: Option<Vec<Record>>,
    complete: Option<bool>,
    code: Option<ErrorCode>,
    reason: Option<String>,
    withdrawn: Vec<RecordId>,
}

impl Parts {
    /// Reads a field; false when the frame type has none with this key.
    fn take(&mut self, kind: FrameKind, key: u64, decoder: &mut Decoder<'_>) -> Read<bool> {
        match (kind, key) {
            (FrameKind::Query | FrameKind::Subscribe, 2) => {
                let kinds = self.list(decoder)?;
                self.filter.kinds = Some(kinds.into_iter().map(RecordKind).collect());
            }
            (FrameKind::Query | FrameKind::Subscribe, 3) => {
                self.filter.protocol_ids = Some(self.list(decoder)?);
            }
            (FrameKind::Query | FrameKind::Subscribe, 4) => {
                self.filter.name_prefix = Some(fields::text(decoder)?);
            }
            (FrameKind::Query, 5) => self.tolerant = fields::boolean(decoder)?,
            (FrameKind::Query, 6) | (FrameKind::Result, 4) => self.cursor = Some(cursor(decoder)?),
            (FrameKind::Query | FrameKind::Subscribe, key) if FILTER_KEYS.contains(&key) => {
                self.filter_unsupported = true;
                return Ok(false);
            }
            (FrameKind::Result | FrameKind::Announce | FrameKind::Update, 2) => {
                self.records = Some(records(decoder)?);
            }
            (FrameKind::Result, 3) => self.complete = Some(fields::boolean(decoder)?),
            (FrameKind::Error, 2) => self.code = Some(ErrorCode(fields::uint(decoder)?)),
            (FrameKind::Error, 3) => self.reason = Some(fields::text(decoder)?),
            (FrameKind::Update, 3) => {
                self.withdrawn =
                    fields::array(decoder, DISCOVERY_RECORDS_PER_FRAME_MAX, record::record_id)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A filter's list. A longer one than is implemented is no malformed one.
    fn list(&mut self, decoder: &mut Decoder<'_>) -> Read<Vec<u64>> {
        let start = decoder.position();
        match fields::uints(decoder) {
            Err(FrameError::TooMany) => {
                decoder.set_position(start);
                fields::array(decoder, usize::MAX, |decoder| {
                    fields::uint(decoder).map(|_| ())
                })?;
                self.filter_unsupported = true;
                Ok(Vec::new())
            }
            read => read,
        }
    }

    fn frame(self, kind: FrameKind, corr: CorrelationId) -> Read<Frame> {
        if self.filter_unsupported {
            return Err(FrameError::FilterUnsupported);
        }
        Ok(match kind {
            FrameKind::Query => Frame::Query {
                corr,
                filter: self.filter,
                tolerant: self.tolerant,
                cursor: self.cursor,
            },
            FrameKind::Subscribe => Frame::Subscribe {
                corr,
                filter: self.filter,
            },
            FrameKind::Unsubscribe => Frame::Unsubscribe { corr },
            FrameKind::Result => {
                let complete = self.complete.ok_or(FrameError::Missing)?;
                if !complete && self.cursor.is_none() {
                    return Err(FrameError::Missing);
                }
                Frame::Result {
                    corr,
                    records: self.records.ok_or(FrameError::Missing)?,
                    complete,
                    cursor: self.cursor.filter(|_| !complete),
                }
            }
            FrameKind::Error => Frame::Error {
                corr,
                code: self.code.ok_or(FrameError::Missing)?,
                reason: self.reason,
            },
            FrameKind::Update => {
                let added = self.records.unwrap_or_default();
                if added.is_empty() && self.withdrawn.is_empty() {
                    return Err(FrameError::EmptyUpdate);
                }
                Frame::Update {
                    corr,
                    added,
                    withdrawn: self.withdrawn,
                }
            }
            FrameKind::Announce => return Err(FrameError::CorrOnAnnounce),
        })
    }
}

fn cursor(decoder: &mut Decoder<'_>) -> Read<Vec<u8>> {
    fields::octets(decoder, DISCOVERY_CURSOR_OCTETS_MAX).map(<[u8]>::to_vec)
}

fn records(decoder: &mut Decoder<'_>) -> Read<Vec<Record>> {
    fields::array(decoder, DISCOVERY_RECORDS_PER_FRAME_MAX, Record::decode)
}

fn encode_records(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    write_array_head(records.len(), &mut out);
    for record in records {
        record.encode(&mut out);
    }
    out
}

fn put_filter(map: &mut MapWriter, filter: &Filter) {
    if let Some(kinds) = &filter.kinds {
        let kinds: Vec<u64> = kinds.iter().map(|kind| kind.0).collect();
        map.entry(2_u64, kinds);
    }
    fields::put_some(map, 3, filter.protocol_ids.as_deref());
    fields::put_some(map, 4, filter.name_prefix.as_deref());
}

/// The `corr` of a payload that need not be well-formed otherwise, so that a bad
/// request can be answered.
pub fn readable_corr(octets: &[u8]) -> Option<CorrelationId> {
    let octets = octets.get(..DISCOVERY_PAYLOAD_OCTETS_MAX).unwrap_or(octets);
    let mut decoder = Decoder::new(octets);
    let entries = decoder.map().ok()??;
    for _ in 0..entries {
        let initial = decoder.input().get(decoder.position())?;
        let key = if initial >> 5 == 0 {
            decoder.u64().ok()
        } else {
            decoder.skip().ok()?;
            None
        };
        if key == Some(1) {
            let corr = decoder.bytes().ok()?;
            return CorrelationId::new(corr).filter(|_| corr.len() <= DISCOVERY_CORR_OCTETS_MAX);
        }
        decoder.skip().ok()?;
    }
    None
}
