//! Events of one stream that came one after another, in one piece of memory: what
//! is ready together costs one allocation, one look-up and one wake-up. Serves
//! NPAMP-CC-STREAM §5. Holds octets, judges nothing.

use crate::limits::STREAM_BATCH_OCTETS_MAX;
use bytes::Bytes;

/// Places that are made at once for where events end.
const EVENTS_EXPECTED: usize = 32;

/// Data events of one stream, in order (BRIDGE_STREAM_DATA).
#[derive(Debug, Clone, Default)]
pub struct StreamEvents {
    octets: Vec<u8>,
    marks: Vec<Mark>,
}

/// Where an event ends among the octets of its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// NPAMP-CC-STREAM event_id.
    pub event_id: u64,
    /// Offset behind its last octet.
    pub end: usize,
}

impl StreamEvents {
    /// Whether an event of so many octets may be added: one always may to none.
    pub fn admits(&self, octets: usize) -> bool {
        self.marks.is_empty() || self.octets.len() + octets <= STREAM_BATCH_OCTETS_MAX
    }

    /// Adds the next event; ids rise.
    pub fn push(&mut self, event_id: u64, object: &[u8]) {
        if self.marks.is_empty() {
            self.octets.reserve_exact(object.len());
        } else if self.octets.capacity() - self.octets.len() < object.len() {
            // Where a second event comes, many do.
            self.octets
                .reserve(object.len().max(STREAM_BATCH_OCTETS_MAX / 4));
            self.marks.reserve(EVENTS_EXPECTED);
        }
        self.octets.extend_from_slice(object);
        self.marks.push(Mark {
            event_id,
            end: self.octets.len(),
        });
    }

    /// Events.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Octets of the foreign messages.
    pub fn octets(&self) -> usize {
        self.octets.len()
    }

    /// Each event_id with its object.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut start = 0;
        self.marks.iter().map(move |mark| {
            let object = &self.octets[start..mark.end];
            start = mark.end;
            (mark.event_id, object)
        })
    }

    /// The same with objects that share their memory: each holds that of all.
    pub fn into_shared(self) -> impl Iterator<Item = (u64, Bytes)> {
        let (octets, marks) = self.into_parts();
        let mut start = 0;
        marks.into_iter().map(move |mark| {
            let object = octets.slice(start..mark.end);
            start = mark.end;
            (mark.event_id, object)
        })
    }

    /// The objects one behind the other, and where each ends. Holds little more memory
    /// than there are octets.
    pub fn into_parts(mut self) -> (Bytes, Vec<Mark>) {
        if self.octets.capacity() - self.octets.len() > self.octets.len() / 8 {
            self.octets.shrink_to_fit();
        }
        (self.octets.into(), self.marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_as_they_went_in() {
        let mut events = StreamEvents::default();
        assert!(events.is_empty() && events.admits(usize::MAX));
        for (event_id, object) in [(1, "{}"), (4, "{\"a\":1}"), (9, "[]")] {
            events.push(event_id, object.as_bytes());
        }
        assert_eq!((events.len(), events.octets()), (3, 11));
        let wanted: [(u64, &[u8]); 3] = [(1, b"{}"), (4, b"{\"a\":1}"), (9, b"[]")];
        assert!(events.iter().eq(wanted));
        let shared: Vec<(u64, Bytes)> = events.into_shared().collect();
        assert!(
            shared
                .iter()
                .map(|(id, object)| (*id, &object[..]))
                .eq(wanted)
        );
    }

    #[test]
    fn a_batch_is_bounded_and_holds_no_more_than_it_needs() {
        let mut events = StreamEvents::default();
        events.push(1, &vec![b'x'; STREAM_BATCH_OCTETS_MAX - 10]);
        assert!(events.admits(10) && !events.admits(11));
        let mut grown = StreamEvents::default();
        for event_id in 1..=5 {
            grown.push(event_id, &[b'x'; 100]);
        }
        let (octets, marks) = grown.into_parts();
        let octets: Vec<u8> = octets.into();
        assert_eq!((octets.len(), marks.len()), (500, 5));
        assert!(octets.capacity() <= 562);
    }
}
