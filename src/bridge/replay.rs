//! What a producer keeps of one stream so that it can send it again from a
//! cursor: the last events, how far they were sent, and where the stream ended.
//! Serves NPAMP-CC-STREAM §6.1 and §6.3. Holds octets, knows no bound of its
//! own: the owner counts what is added and freed.

use crate::bridge::envelope::MessageKind;
use crate::limits::HELD_EVENT_OCTETS;
use bytes::Bytes;
use std::collections::VecDeque;

/// One frame of a stream, as it was or will be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// NPAMP-CC-STREAM event_id.
    pub event_id: u64,
    /// DATA, END or, in mid-stream, ERROR.
    pub kind: MessageKind,
    /// Foreign message or transport error, verbatim.
    pub object: Bytes,
}

impl Held {
    /// What it counts for in a bound on octets.
    pub fn octets(&self) -> usize {
        self.object.len() + HELD_EVENT_OCTETS
    }
}

/// The events of a stream above some id, none missing. Their ids rise, and need not
/// follow each other where another producer assigned them.
#[derive(Debug, Default)]
pub struct ReplayBuffer {
    events: VecDeque<Held>,
    octets: usize,
    /// Where in `events` the unsent ones begin.
    unsent_at: usize,
    /// How many events were never sent, and their octets.
    fresh: (usize, usize),
    /// Every event above this one is held.
    held_after: u64,
    /// Last one sent on the association that the stream is on now.
    sent: u64,
    /// Last one ever sent.
    reached: u64,
    /// Id of the frame that ends the stream.
    terminal: Option<u64>,
}

impl ReplayBuffer {
    /// Octets held.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Events held.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Last event_id that was sent where the stream is now, 0 before the first.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Highest event_id that a consumer can have seen.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// event_id of the frame that ended the stream.
    pub fn terminal(&self) -> Option<u64> {
        self.terminal
    }

    /// Takes the next event in; ids rise. DATA goes on, anything else ends the stream.
    pub fn push(&mut self, held: Held) {
        let last = self.events.back().map_or(self.held_after, |h| h.event_id);
        debug_assert!(held.event_id > last, "event_ids rise");
        if held.kind != MessageKind::StreamData {
            self.terminal = Some(held.event_id);
        }
        self.octets += held.octets();
        self.fresh.0 += 1;
        self.fresh.1 += held.octets();
        self.events.push_back(held);
    }

    /// The first event that is still to be sent.
    pub fn next_unsent(&self) -> Option<&Held> {
        self.events.get(self.unsent_at)
    }

    /// Records that the first unsent event was sent.
    pub fn mark_sent(&mut self) {
        let Some((event_id, octets)) = self.next_unsent().map(|h| (h.event_id, h.octets())) else {
            return;
        };
        self.sent = event_id;
        self.unsent_at += 1;
        if event_id > self.reached {
            self.reached = event_id;
            self.fresh.0 -= 1;
            self.fresh.1 -= octets;
        }
    }

    /// Whether every event after `cursor` is held.
    pub fn holds_after(&self, cursor: u64) -> bool {
        cursor >= self.held_after
    }

    /// Starts over after `cursor`, which the consumer has; gives the octets freed.
    /// The terminal frame stays, for a consumer that asks for the end once more.
    pub fn rewind(&mut self, cursor: u64) -> usize {
        self.sent = cursor;
        self.unsent_at = self.events.partition_point(|held| held.event_id <= cursor);
        let keep = self.terminal.unwrap_or(u64::MAX);
        self.drop_while(|held| held.event_id <= cursor && held.event_id < keep)
    }

    /// Drops the oldest events that were sent, until the bounds hold; gives the octets freed.
    pub fn trim(&mut self, events_max: usize, octets_max: usize) -> usize {
        let sent = self.sent;
        let (mut events, mut octets) = (self.events.len(), self.octets);
        self.drop_while(|held| {
            let goes = held.event_id <= sent && (events > events_max || octets > octets_max);
            if goes {
                events -= 1;
                octets -= held.octets();
            }
            goes
        })
    }

    /// Events that are still to be sent, and an upper bound of their octets.
    pub fn unsent(&self) -> (usize, usize) {
        match self.events.len() - self.unsent_at {
            0 => (0, 0),
            events => (events, self.octets),
        }
    }

    /// Events that were never sent, and their octets.
    pub fn never_sent(&self) -> (usize, usize) {
        self.fresh
    }

    fn drop_while(&mut self, mut goes: impl FnMut(&Held) -> bool) -> usize {
        let before = self.octets;
        while let Some(held) = self.events.front().filter(|held| goes(held)) {
            self.held_after = held.event_id;
            self.octets -= held.octets();
            self.events.pop_front();
            self.unsent_at = self.unsent_at.saturating_sub(1);
        }
        before - self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64) -> ReplayBuffer {
        let mut buffer = ReplayBuffer::default();
        for event_id in 1..=count {
            buffer.push(Held {
                event_id,
                kind: MessageKind::StreamData,
                object: Bytes::from(event_id.to_string()),
            });
        }
        buffer
    }

    fn send_all(buffer: &mut ReplayBuffer) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(event_id) = buffer.next_unsent().map(|held| held.event_id) {
            buffer.mark_sent();
            sent.push(event_id);
        }
        sent
    }

    /// NPAMP-CC-STREAM §6.3: the first event of a resumed run is the first after the cursor.
    #[test]
    fn goes_on_after_any_cursor_it_holds() {
        for cursor in 0..=5 {
            let mut buffer = filled(5);
            assert_eq!(send_all(&mut buffer), [1, 2, 3, 4, 5]);
            assert!(buffer.holds_after(cursor));
            buffer.rewind(cursor);
            assert_eq!(
                send_all(&mut buffer),
                (cursor + 1..=5).collect::<Vec<u64>>()
            );
            assert_eq!(buffer.reached(), 5);
            assert!(!buffer.holds_after(cursor.saturating_sub(1)) || cursor == 0);
        }
    }

    #[test]
    fn what_was_not_sent_is_never_trimmed() {
        let mut buffer = filled(6);
        assert_eq!(buffer.trim(2, usize::MAX), 0);
        buffer.mark_sent();
        buffer.mark_sent();
        assert_eq!(buffer.trim(5, usize::MAX), 1 + HELD_EVENT_OCTETS);
        assert_eq!(buffer.trim(0, 0), 1 + HELD_EVENT_OCTETS);
        assert_eq!((buffer.len(), buffer.holds_after(1)), (4, false));
        assert_eq!(buffer.unsent().0, 4);
        assert_eq!(send_all(&mut buffer), [3, 4, 5, 6]);
    }

    /// Ids of a stream that passes through may have gaps; every cursor is between two events.
    #[test]
    fn ids_may_have_gaps() {
        for cursor in 0..=5 {
            let mut buffer = ReplayBuffer::default();
            for event_id in [2, 5, 6, 11] {
                buffer.push(Held {
                    event_id,
                    kind: MessageKind::StreamData,
                    object: Bytes::from_static(b"12345678"),
                });
            }
            let each = 8 + HELD_EVENT_OCTETS;
            assert_eq!(buffer.never_sent(), (4, 4 * each));
            buffer.mark_sent();
            buffer.mark_sent();
            assert_eq!(buffer.never_sent(), (2, 2 * each));
            assert_eq!((buffer.reached(), buffer.unsent().0), (5, 2));
            buffer.rewind(cursor);
            let want: Vec<u64> = [2, 5, 6, 11]
                .into_iter()
                .filter(|id| *id > cursor)
                .collect();
            assert_eq!(send_all(&mut buffer), want);
            assert_eq!(
                buffer.trim(1, usize::MAX),
                want.len().saturating_sub(1) * each
            );
            assert_eq!(
                (buffer.holds_after(6), buffer.holds_after(5)),
                (true, false)
            );
        }
    }

    /// Ruling R17: the end can be had again by who has seen it.
    #[test]
    fn the_terminal_frame_stays() {
        let mut buffer = filled(2);
        buffer.push(Held {
            event_id: 3,
            kind: MessageKind::StreamEnd,
            object: Bytes::new(),
        });
        send_all(&mut buffer);
        buffer.rewind(3);
        assert_eq!((buffer.terminal(), buffer.len()), (Some(3), 1));
        buffer.rewind(2);
        assert_eq!(send_all(&mut buffer), [3]);
    }
}
