//! What an ingress keeps of one stream for its own client (rulings R17, R19):
//! the events that wait for it, and the last ones that it was handed, so that it
//! can come back. Sliding: the oldest go first. Holds octets, knows no bound of
//! its own and no clock: the owner counts what is added and freed.

use crate::a2a::events::{Mark, StreamEvents};
use crate::a2a::port::CallEvent;
use crate::limits::HELD_EVENT_OCTETS;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;

/// What a stream event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptKind {
    /// More may follow.
    Data,
    /// The orderly end.
    End,
    /// The agent's error Response, which ends the stream.
    Error,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// NPAMP-CC-STREAM event_id.
    pub event_id: u64,
    /// Its kind.
    pub kind: KeptKind,
    /// The agent's JSON-RPC Response; an end may have none.
    pub object: Option<Bytes>,
}

impl Kept {
    /// The event, if it is one of a stream; else gives it back.
    pub fn of(event: CallEvent) -> Result<Self, CallEvent> {
        let (event_id, kind, object) = match event {
            CallEvent::StreamEvent { event_id, object } => (event_id, KeptKind::Data, Some(object)),
            CallEvent::StreamEnd { event_id, object } => (event_id, KeptKind::End, object),
            CallEvent::StreamError { event_id, object } => {
                (event_id, KeptKind::Error, Some(object))
            }
            other => return Err(other),
        };
        Ok(Self {
            event_id,
            kind,
            object,
        })
    }

    /// The event again.
    pub fn into_event(self) -> CallEvent {
        let event_id = self.event_id;
        match (self.kind, self.object) {
            (KeptKind::End, object) => CallEvent::StreamEnd { event_id, object },
            (KeptKind::Error, Some(object)) => CallEvent::StreamError { event_id, object },
            (KeptKind::Data, Some(object)) => CallEvent::StreamEvent { event_id, object },
            // Only an end has no object.
            (KeptKind::Error | KeptKind::Data, None) => CallEvent::StreamEnd {
                event_id,
                object: None,
            },
        }
    }

    /// What it counts for in a bound on octets.
    pub fn octets(&self) -> usize {
        self.object.as_ref().map_or(0, Bytes::len) + HELD_EVENT_OCTETS
    }
}

/// So many events, and so many octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events.
    pub events: usize,
    /// Octets, those of [`Kept::octets`].
    pub octets: usize,
}

/// Why a window does not go on after a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHeld;

/// Events that came together, whose objects lie in one piece of memory. The memory is
/// held, and counted, until the last of them goes.
#[derive(Debug)]
struct Run {
    octets: Bytes,
    marks: Vec<Mark>,
    kind: KeptKind,
    /// An end may have no object; what else there is has one.
    shows: bool,
    /// Events at the front that are held no more.
    dropped: usize,
}

impl Run {
    fn of(kept: Kept) -> Self {
        let shows = kept.object.is_some();
        let octets = kept.object.unwrap_or_default();
        let mark = Mark {
            event_id: kept.event_id,
            end: octets.len(),
        };
        Self {
            octets,
            marks: vec![mark],
            kind: kept.kind,
            shows,
            dropped: 0,
        }
    }

    fn len(&self) -> usize {
        self.marks.len() - self.dropped
    }

    /// What it counts for in a bound on octets.
    fn charge(&self) -> usize {
        self.octets.len() + self.len() * HELD_EVENT_OCTETS
    }

    fn last_event_id(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.event_id)
    }

    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.marks[before].end);
        start..self.marks[at].end
    }

    fn kept(&self, at: usize) -> Kept {
        Kept {
            event_id: self.marks[at].event_id,
            kind: self.kind,
            object: self.shows.then(|| self.octets.slice(self.range(at))),
        }
    }
}

/// The events of a stream above some id, without a gap.
#[derive(Debug, Default)]
pub struct Window {
    runs: VecDeque<Run>,
    /// Events held.
    events: usize,
    octets: usize,
    /// Every event above this one is held.
    held_after: u64,
    /// Events at the front that were handed out.
    handed: usize,
    /// Where the next one to hand out is: its run, and its place among all that came with it.
    next: (usize, usize),
    /// Highest event_id ever handed out.
    reached: u64,
    /// Last event_id with something to show to a client.
    visible: u64,
}

impl Window {
    /// Events held.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Octets held.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Events that wait to be handed out.
    pub fn waiting(&self) -> usize {
        self.events - self.handed
    }

    /// Highest event_id that was handed out, 0 before the first.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Highest event_id that has something to show; what comes after is an empty end at most.
    pub fn visible(&self) -> u64 {
        self.visible
    }

    /// The events held, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Kept> {
        let places = |run: &Run| run.dropped..run.marks.len();
        self.runs
            .iter()
            .flat_map(move |run| places(run).map(|at| run.kept(at)))
    }

    /// Says that the stream goes on after `cursor`, up to which others had it.
    pub fn begin_after(&mut self, cursor: u64, reached: u64) {
        self.held_after = self.held_after.max(cursor);
        self.reached = self.reached.max(reached).max(cursor);
        self.visible = self.visible.max(cursor);
    }

    /// Takes the next event in; ids rise.
    pub fn push(&mut self, kept: Kept) {
        self.push_run(Run::of(kept));
    }

    /// Takes the next events in, in pieces of at most `piece_octets` or of one event:
    /// as much may slide out of the window as one.
    pub fn push_events(&mut self, events: StreamEvents, piece_octets: usize) {
        if events.octets() <= piece_octets {
            return self.push_piece(events);
        }
        let mut piece = StreamEvents::default();
        for (event_id, object) in events.iter() {
            if !piece.is_empty() && piece.octets() + object.len() > piece_octets {
                self.push_piece(std::mem::take(&mut piece));
            }
            piece.push(event_id, object);
        }
        self.push_piece(piece);
    }

    fn push_piece(&mut self, events: StreamEvents) {
        let (octets, marks) = events.into_parts();
        if !marks.is_empty() {
            self.push_run(Run {
                octets,
                marks,
                kind: KeptKind::Data,
                shows: true,
                dropped: 0,
            });
        }
    }

    fn push_run(&mut self, run: Run) {
        self.octets += run.charge();
        self.events += run.len();
        if run.shows {
            self.visible = run.last_event_id();
        }
        self.runs.push_back(run);
    }

    /// The next event for the client. With `reach` the client is taken to have
    /// it; otherwise [`Window::reach`] says so later.
    pub fn take(&mut self, reach: bool) -> Option<Kept> {
        let (run, at) = self.next_place()?;
        let kept = self.runs[run].kept(at);
        self.next = (run, at + 1);
        self.handed += 1;
        if reach {
            self.reach(kept.event_id);
        }
        Some(kept)
    }

    /// Hands out events until `take` wants no more or one comes that ends the stream, or
    /// none; `take` gets the id of each, and its object as a part of what holds it.
    /// Gives how many.
    pub fn hand_out(
        &mut self,
        reach: bool,
        mut take: impl FnMut(u64, &Bytes, Range<usize>) -> bool,
    ) -> usize {
        let before = self.handed;
        let mut wants = true;
        while wants
            && let Some((run, at)) = self.next_place()
            && let Some(whole) = self.runs.get(run)
            && whole.kind == KeptKind::Data
            && whole.shows
        {
            let (mut place, mut event_id) = (at, 0);
            while wants && place < whole.marks.len() {
                event_id = whole.marks[place].event_id;
                wants = take(event_id, &whole.octets, whole.range(place));
                place += 1;
            }
            self.handed += place - at;
            self.next = (run, place);
            if reach {
                self.reach(event_id);
            }
        }
        self.handed - before
    }

    /// Where the next event to hand out is, if it is there.
    fn next_place(&self) -> Option<(usize, usize)> {
        let (run, at) = self.next;
        if at < self.runs.get(run)?.marks.len() {
            return Some((run, at));
        }
        // Of a later run nothing is dropped before all of this one is.
        (run + 1 < self.runs.len()).then_some((run + 1, 0))
    }

    /// The client has had everything up to this event.
    pub fn reach(&mut self, event_id: u64) {
        self.reached = self.reached.max(event_id);
    }

    /// Goes on after `cursor` with what is handed out.
    pub fn seek(&mut self, cursor: u64) -> Result<(), NotHeld> {
        if cursor < self.held_after {
            return Err(NotHeld);
        }
        let run = self
            .runs
            .partition_point(|run| run.last_event_id() <= cursor);
        let before: usize = self.runs.range(..run).map(Run::len).sum();
        let (at, within) = self.runs.get(run).map_or((0, 0), |run| {
            let at = run.marks.partition_point(|mark| mark.event_id <= cursor);
            // Nothing up to the cursor is dropped that is not dropped already.
            (at.max(run.dropped), at.saturating_sub(run.dropped))
        });
        self.next = (run, at);
        self.handed = before + within;
        Ok(())
    }

    /// Slides until the bounds hold: beyond `history` goes what was handed out,
    /// beyond `whole` also what was not, but for the newest event. Gives the
    /// octets freed, and whether an event is lost to the client.
    pub fn slide(&mut self, history: Bounds, whole: Bounds) -> (usize, bool) {
        let before = self.octets;
        while self.handed > 0 && self.exceeds(history) {
            self.drop_oldest();
        }
        let mut lost = false;
        while self.events > 1 && self.exceeds(whole) {
            lost |= self.handed == 0;
            self.drop_oldest();
        }
        (before - self.octets, lost)
    }

    fn exceeds(&self, bounds: Bounds) -> bool {
        self.events > bounds.events || self.octets > bounds.octets
    }

    /// Lets go of what was handed out; gives the octets freed.
    pub fn forget_handed(&mut self) -> usize {
        let before = self.octets;
        while self.handed > 0 {
            self.drop_oldest();
        }
        before - self.octets
    }

    /// Lets go of every event; gives the octets freed.
    pub fn clear(&mut self) -> usize {
        let before = self.octets;
        while self.events > 0 {
            self.drop_oldest();
        }
        self.runs = VecDeque::new();
        before
    }

    fn drop_oldest(&mut self) {
        let Some(run) = self.runs.front_mut() else {
            return;
        };
        let before = run.charge();
        self.held_after = run.marks[run.dropped].event_id;
        run.dropped += 1;
        let over = run.len() == 0;
        self.octets -= if over { before } else { HELD_EVENT_OCTETS };
        self.events -= 1;
        self.handed = self.handed.saturating_sub(1);
        let (at_run, at) = self.next;
        self.next = match (at_run, over) {
            (0, true) => (0, 0),
            (0, false) => (0, at.max(run.dropped)),
            (_, true) => (at_run - 1, at),
            (_, false) => (at_run, at),
        };
        if over {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bounds = Bounds {
        events: 1000,
        octets: 1 << 20,
    };

    fn kept(event_id: u64) -> Kept {
        Kept {
            event_id,
            kind: KeptKind::Data,
            object: Some(Bytes::from(vec![b'x'; 36])),
        }
    }

    fn filled(count: u64) -> Window {
        let mut window = Window::default();
        for event_id in 1..=count {
            window.push(kept(event_id));
        }
        window
    }

    fn rest(window: &mut Window) -> Vec<u64> {
        std::iter::from_fn(|| window.take(true))
            .map(|kept| kept.event_id)
            .collect()
    }

    /// Ruling R17: every cursor that is held goes on with the event after it.
    #[test]
    fn goes_on_after_any_cursor() {
        let mut window = filled(5);
        assert_eq!(rest(&mut window), [1, 2, 3, 4, 5]);
        for cursor in 0..=5 {
            window.seek(cursor).unwrap();
            assert_eq!(rest(&mut window), (cursor + 1..=5).collect::<Vec<u64>>());
        }
        assert_eq!((window.reached(), window.octets()), (5, 500));
    }

    /// NPAMP-CC-STREAM §5.1: ids may leave gaps.
    #[test]
    fn ids_may_leave_gaps() {
        let mut window = Window::default();
        for event_id in [3, 7, 20] {
            window.push(kept(event_id));
        }
        for (cursor, wanted) in [(0, 3), (3, 2), (5, 2), (7, 1), (19, 1)] {
            window.seek(cursor).unwrap();
            assert_eq!(window.waiting(), wanted, "{cursor}");
        }
    }

    #[test]
    fn history_slides_and_what_waits_stays() {
        let mut window = filled(10);
        let history = Bounds { events: 4, ..WIDE };
        assert_eq!(window.slide(history, WIDE), (0, false));
        for _ in 0..8 {
            window.take(true);
        }
        assert_eq!(window.slide(history, WIDE), (600, false));
        assert_eq!((window.len(), window.waiting()), (4, 2));
        assert_eq!(window.seek(5), Err(NotHeld));
        assert_eq!(window.seek(6), Ok(()));
        let octets = Bounds {
            octets: 250,
            ..WIDE
        };
        assert_eq!(window.slide(octets, WIDE), (0, false), "all of it waits");
        window.seek(10).unwrap();
        assert_eq!(window.slide(octets, WIDE), (200, false));
    }

    /// Ruling R19: beyond the whole bound events are lost to a client that does not take them.
    #[test]
    fn what_waits_slides_beyond_the_whole_bound() {
        for whole in [
            Bounds { events: 3, ..WIDE },
            Bounds {
                octets: 399,
                ..WIDE
            },
        ] {
            let mut window = filled(3);
            assert_eq!(window.slide(WIDE, whole), (0, false));
            window.take(true);
            window.push(kept(4));
            assert_eq!(window.slide(WIDE, whole), (100, false), "it had that");
            window.push(kept(5));
            assert_eq!(window.slide(WIDE, whole), (100, true));
            assert_eq!((window.waiting(), window.seek(1)), (3, Err(NotHeld)));
            assert_eq!(window.seek(2), Ok(()));
        }
        let none = Bounds {
            events: 0,
            octets: 0,
        };
        let mut window = filled(4);
        assert_eq!(window.slide(WIDE, none), (300, true));
        assert_eq!(window.len(), 1, "the newest stays");
    }

    #[test]
    fn an_empty_end_shows_nothing() {
        let mut window = filled(2);
        let end = Kept {
            event_id: 3,
            kind: KeptKind::End,
            object: None,
        };
        window.push(end.clone());
        assert_eq!(window.visible(), 2);
        rest(&mut window);
        assert_eq!(window.reached(), 3);
        assert_eq!(window.clear(), 200 + HELD_EVENT_OCTETS);
        assert_eq!((window.octets(), window.seek(2)), (0, Err(NotHeld)));
        assert_eq!(window.seek(3), Ok(()));
        let again = Kept::of(end.clone().into_event()).unwrap();
        assert_eq!(again, end);
    }

    #[test]
    fn what_is_taken_on_trust_is_not_reached() {
        let mut window = filled(3);
        window.take(false);
        window.take(false);
        assert_eq!((window.reached(), window.waiting()), (0, 1));
        window.reach(1);
        assert_eq!(window.reached(), 1);
        assert_eq!(window.forget_handed(), 200);
        assert_eq!(window.seek(1), Err(NotHeld));
    }

    /// Events of 36 octets, so that each counts for 100.
    fn batch(event_ids: std::ops::RangeInclusive<u64>) -> StreamEvents {
        let mut events = StreamEvents::default();
        for event_id in event_ids {
            events.push(event_id, &[b'0' + event_id as u8; 36]);
        }
        events
    }

    /// Whatever came together, each event is handed out, kept and found by itself.
    #[test]
    fn what_came_together_is_handed_out_one_by_one() {
        let mut window = filled(2);
        window.push_events(batch(3..=6), usize::MAX);
        window.push(kept(7));
        window.push_events(batch(8..=9), usize::MAX);
        assert_eq!((window.len(), window.octets()), (9, 900));
        assert_eq!((window.waiting(), window.visible()), (9, 9));
        let mut seen = Vec::new();
        let handed = window.hand_out(true, |event_id, octets, at| {
            let first = octets[at.start];
            assert!(at.len() == 36 && octets[at].iter().all(|&octet| octet == first));
            assert!(matches!(event_id, 1 | 2 | 7) || u64::from(first - b'0') == event_id);
            seen.push(event_id);
            event_id != 4
        });
        assert_eq!((handed, window.reached(), window.waiting()), (4, 4, 5));
        assert_eq!(window.take(true).map(|kept| kept.event_id), Some(5));
        seen.extend(rest(&mut window));
        assert_eq!(seen, [1, 2, 3, 4, 6, 7, 8, 9]);
        for cursor in 0..=9 {
            window.seek(cursor).unwrap();
            assert_eq!(window.waiting() as u64, 9 - cursor);
            let ids: Vec<u64> = window.iter().map(|kept| kept.event_id).collect();
            assert_eq!(ids, (1..=9).collect::<Vec<u64>>());
            assert_eq!(rest(&mut window), (cursor + 1..=9).collect::<Vec<u64>>());
        }
    }

    /// An end stays to be taken by itself.
    #[test]
    fn only_data_is_handed_out() {
        let mut window = Window::default();
        window.push_events(batch(1..=2), usize::MAX);
        window.push(Kept {
            event_id: 3,
            kind: KeptKind::End,
            object: Some(Bytes::from_static(b"{}")),
        });
        assert_eq!(window.hand_out(false, |_, _, _| true), 2);
        assert_eq!(window.hand_out(false, |_, _, _| true), 0);
        assert_eq!((window.reached(), window.waiting()), (0, 1));
        assert_eq!(window.take(true).map(|kept| kept.kind), Some(KeptKind::End));
        assert_eq!(window.reached(), 3);
    }

    /// Memory counts for as long as it is held: that of a batch until its last event goes.
    #[test]
    fn a_batch_is_counted_until_it_is_gone() {
        let mut window = Window::default();
        window.push_events(batch(1..=4), usize::MAX);
        window.push(kept(5));
        rest(&mut window);
        let events = |events| Bounds { events, ..WIDE };
        assert_eq!(
            window.slide(events(2), WIDE),
            (3 * HELD_EVENT_OCTETS, false)
        );
        assert_eq!(window.octets(), 200 + 3 * 36);
        assert_eq!((window.seek(2), window.seek(3)), (Err(NotHeld), Ok(())));
        assert_eq!((window.waiting(), rest(&mut window)), (2, vec![4, 5]));
        assert_eq!(window.slide(events(1), WIDE), (100 + 3 * 36, false));
        window.push_events(batch(6..=9), usize::MAX);
        let octets = Bounds {
            octets: 499,
            ..WIDE
        };
        assert_eq!(window.slide(octets, WIDE), (100, false));
        assert_eq!(window.slide(WIDE, events(3)), (HELD_EVENT_OCTETS, true));
        assert_eq!((window.len(), rest(&mut window)), (3, vec![7, 8, 9]));
        assert_eq!(window.forget_handed(), 300 + 36);
        assert_eq!(window.octets(), 0);
    }

    /// What may slide away as one is no larger than asked.
    #[test]
    fn a_batch_is_cut_into_pieces() {
        let mut window = Window::default();
        window.push_events(batch(1..=7), 80);
        assert_eq!((window.len(), window.octets()), (7, 700));
        rest(&mut window);
        let octets = |octets| Bounds { octets, ..WIDE };
        assert_eq!(window.slide(octets(500), WIDE), (200, false));
        assert_eq!(window.slide(octets(499), WIDE), (64, false));
        window.push_events(batch(8..=9), 10);
        assert_eq!(window.slide(octets(400), WIDE), (336, false));
        assert_eq!((window.seek(5), window.seek(6)), (Err(NotHeld), Ok(())));
        assert_eq!(rest(&mut window), [7, 8, 9]);
    }
}
