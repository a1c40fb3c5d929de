//! The streams of a unit's clients: which are read, which wait for a client that
//! left, which have ended and can still be fetched (NPAMP-CC-STREAM §7, rulings
//! R17, R19). Bounded in number, in octets and in time; whoever comes too late
//! finds nothing, and nothing is left behind.
//!
//! Belongs to one thread. What units share is a [`Directory`]: the octets of all
//! windows, and the tasks whose streams are detached. Its lock is taken when a
//! stream is detached or goes on, never for an event.

use super::call::{CallHandle, Overflow, Phase, Queue};
use super::purse::Purse;
use super::stats::{EdgeStats, StreamFate};
use super::token::StreamToken;
use super::window::Bounds;
use crate::a2a::budget::OctetBudget;
use crate::a2a::config::StreamConfig;
use crate::a2a::json_rpc;
use crate::a2a::port::ResumeTicket;
use crate::limits;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whose a stream is: nobody else gets it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The ingress, by its place in the configuration.
    pub ingress: usize,
    /// Digest of the bearer token; none where the ingress asks for none.
    pub client: Option<[u8; 32]>,
    /// The route.
    pub route: usize,
}

/// Bounds of streams that are kept for clients.
#[derive(Debug, Clone, Copy)]
pub struct StreamBounds {
    /// What is kept of a stream beyond what waits for its client.
    pub history: Bounds,
    /// What is kept of a stream, what waits included.
    pub window: Bounds,
    /// How long a client may be away, and how long events are kept after the end.
    pub grace: Duration,
    /// How long it is known after the end that a stream was.
    pub retention: Duration,
    /// Streams without a reader, per unit.
    pub kept_max: usize,
}

impl StreamBounds {
    /// As configured.
    pub fn new(config: &StreamConfig) -> Self {
        Self {
            history: Bounds {
                events: config.replay_events.min(config.window_events),
                octets: config.replay_octets.min(config.window_octets),
            },
            window: Bounds {
                events: config.window_events,
                octets: config.window_octets,
            },
            grace: config.detach_grace,
            retention: config.retention,
            kept_max: limits::DETACHED_STREAMS_MAX,
        }
    }

    /// What is kept of a stream that its producer sends once more: at least what a
    /// producer keeps, since it does not wait for the client.
    pub(super) fn replayed(&self) -> Bounds {
        Bounds {
            events: self.window.events.max(limits::REPLAY_EVENTS_MAX + 1),
            octets: self.window.octets.max(2 * limits::REPLAY_OCTETS_MAX),
        }
    }
}

/// What the units of a process share about their clients' streams.
pub struct Directory {
    octets: Arc<OctetBudget>,
    tasks: Mutex<HashMap<(Origin, Box<str>), StreamToken>>,
}

impl Directory {
    /// A directory whose windows may hold so many octets together.
    pub fn new(octets_max: usize) -> Self {
        Self {
            octets: Arc::new(OctetBudget::new(octets_max)),
            tasks: Mutex::default(),
        }
    }

    /// Octets that the units' windows have taken.
    pub fn held_octets(&self) -> usize {
        self.octets.held()
    }

    /// The detached stream of a task.
    pub fn find_task(&self, origin: &Origin, task: &str) -> Option<StreamToken> {
        let key = (origin.clone(), task.into());
        self.lock().get(&key).copied()
    }

    fn enter_task(&self, origin: &Origin, task: &str, token: StreamToken) {
        self.lock().insert((origin.clone(), task.into()), token);
    }

    fn leave_task(&self, origin: &Origin, task: &str, token: StreamToken) {
        let key = (origin.clone(), task.into());
        let mut tasks = self.lock();
        if tasks.get(&key) == Some(&token) {
            tasks.remove(&key);
        }
    }

    /// Tasks whose streams are detached.
    pub fn tasks(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Origin, Box<str>), StreamToken>> {
        // A map is whole between two calls, whoever panicked meanwhile.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new(limits::WINDOW_PROCESS_OCTETS_MAX)
    }
}

/// Where a stream without a reader waits, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shelf {
    /// It goes on; its client may come back.
    Detached,
    /// It has ended; its events can be fetched.
    Ended,
    /// It has ended; its producer can be asked for its events.
    Remembered,
}

/// What is known of a stream that has a name.
pub(super) struct Entry {
    pub(super) token: StreamToken,
    pub(super) origin: Rc<Origin>,
    /// The task it is about, once an event said so.
    task: Option<Box<str>>,
    /// Events that may still be looked at for the task.
    looks: u8,
    shelf: Option<(Shelf, Instant)>,
    /// Its task is in the directory.
    listed: bool,
}

/// Events of a stream that are looked at for its task.
const TASK_LOOKS: u8 = 4;

/// Void times of a shelf that are not worth looking for.
const VOID_TIMES_MIN: usize = 64;

impl Entry {
    /// Whether it looks for the stream's task.
    pub(super) fn learns(&self) -> bool {
        self.looks > 0
    }

    /// Looks for the stream's task in an event.
    pub(super) fn learn(&mut self, object: Option<&[u8]>) {
        if self.looks == 0 {
            return;
        }
        self.looks -= 1;
        let Some(object) = object else { return };
        let task = json_rpc::event_task_id(object);
        if let Some(task) = task.filter(|task| task.len() <= limits::TASK_ID_OCTETS_MAX) {
            self.task = Some(task.into());
            self.looks = 0;
        }
    }
}

/// From where a client wants a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// After the event with this id.
    Cursor(u64),
    /// After the last one that was handed out, if nobody reads it.
    HandedOut,
}

/// How a stream goes on.
#[derive(Debug)]
pub(super) enum Continued {
    /// From its window.
    Window(CallHandle),
    /// Its client has all of it.
    Complete,
    /// Its producer must be asked.
    Wire {
        ticket: Box<ResumeTicket>,
        cursor: u64,
    },
}

/// Why a stream does not go on for who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotContinued {
    /// There is none of that name, any more or at all.
    Unknown,
    /// It is another client's, or of another route.
    Foreign,
    /// The cursor is beyond what was sent.
    Ahead,
    /// The events after the cursor are kept no more.
    NotHeld,
    /// Somebody reads it.
    Attached,
}

#[derive(Default)]
struct Table {
    streams: HashMap<StreamToken, Rc<Queue>>,
    /// By shelf, in the order of their times; a time that its stream no longer has is void.
    detached: VecDeque<(Instant, StreamToken)>,
    ended: VecDeque<(Instant, StreamToken)>,
    remembered: VecDeque<(Instant, StreamToken)>,
    /// Streams on a shelf.
    shelved: usize,
}

impl Table {
    fn shelf(&mut self, shelf: Shelf) -> &mut VecDeque<(Instant, StreamToken)> {
        match shelf {
            Shelf::Detached => &mut self.detached,
            Shelf::Ended => &mut self.ended,
            Shelf::Remembered => &mut self.remembered,
        }
    }

    /// Drops the void times of a shelf before they outnumber the others: a client that
    /// comes back and leaves again and again makes one each time.
    fn sweep(&mut self, shelf: Shelf) {
        let times_max = 2 * self.shelved + VOID_TIMES_MIN;
        if self.shelf(shelf).len() < times_max {
            return;
        }
        let mut times = std::mem::take(self.shelf(shelf));
        times.retain(|(at, token)| {
            let queue = self.streams.get(token);
            queue.is_some_and(|queue| queue.is_on(shelf, *at))
        });
        *self.shelf(shelf) = times;
    }

    /// The stream that has been on the shelf for longest.
    fn oldest(&mut self, shelf: Shelf) -> Option<Rc<Queue>> {
        loop {
            let (at, token) = self.shelf(shelf).front().copied()?;
            let queue = self.streams.get(&token);
            if queue.is_some_and(|queue| queue.is_on(shelf, at)) {
                return queue.cloned();
            }
            self.shelf(shelf).pop_front();
        }
    }
}

impl Queue {
    fn is_on(&self, shelf: Shelf, at: Instant) -> bool {
        let state = self.state.borrow();
        let entry = state.entry.as_ref();
        entry.is_some_and(|entry| entry.shelf == Some((shelf, at)))
    }
}

/// See the module.
pub struct Streams {
    unit: u16,
    bounds: StreamBounds,
    directory: Arc<Directory>,
    pub(super) purse: Purse,
    stats: Arc<EdgeStats>,
    random: fn(&mut [u8]),
    now: fn() -> Instant,
    table: RefCell<Table>,
    draining: Cell<bool>,
}

impl Streams {
    /// No streams. `random` fills tokens, `now` is the clock.
    pub fn new(
        unit: usize,
        bounds: StreamBounds,
        directory: Arc<Directory>,
        stats: Arc<EdgeStats>,
        random: fn(&mut [u8]),
        now: fn() -> Instant,
    ) -> Rc<Self> {
        Rc::new(Self {
            unit: u16::try_from(unit).unwrap_or(u16::MAX),
            bounds,
            purse: Purse::new(directory.octets.clone()),
            directory,
            stats,
            random,
            now,
            table: RefCell::default(),
            draining: Cell::new(false),
        })
    }

    pub(super) fn bounds(&self) -> &StreamBounds {
        &self.bounds
    }

    /// The unit whose streams these are.
    pub fn unit(&self) -> usize {
        usize::from(self.unit)
    }

    /// What it shares with the others.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Streams that have a name, read or not.
    pub fn len(&self) -> usize {
        self.table.borrow().streams.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets that this unit's windows hold.
    pub fn held_octets(&self) -> usize {
        self.purse.held()
    }

    /// Takes octets for an event or a ticket of a stream that goes on, at the cost of the
    /// oldest streams that have ended: their events first, then what their producers must
    /// be told.
    pub(super) fn afford(&self, octets: usize) -> bool {
        while !self.purse.take(octets) {
            // Never the stream itself: it goes on.
            let ended = self.table.borrow_mut().oldest(Shelf::Ended);
            if let Some(oldest) = ended {
                self.stats.stream_fates.count(StreamFate::Evicted);
                self.fade(&oldest);
                continue;
            }
            let remembered = self.table.borrow_mut().oldest(Shelf::Remembered);
            let Some(oldest) = remembered else {
                return false;
            };
            self.stats.stream_fates.count(StreamFate::Evicted);
            self.remove(&oldest);
        }
        true
    }

    /// Names a stream and keeps it for its client.
    pub(super) fn enter(
        &self,
        queue: &Rc<Queue>,
        origin: &Rc<Origin>,
        learns: bool,
    ) -> StreamToken {
        let mut random = [0; 16];
        (self.random)(&mut random);
        let token = StreamToken::new(random, self.unit);
        let mut entry = Box::new(Entry {
            token,
            origin: origin.clone(),
            task: None,
            looks: if learns { TASK_LOOKS } else { 0 },
            shelf: None,
            listed: false,
        });
        let mut state = queue.state.borrow_mut();
        for kept in state.window.iter().take(usize::from(TASK_LOOKS)) {
            entry.learn(kept.object.as_deref());
        }
        state.entry = Some(entry);
        drop(state);
        self.table.borrow_mut().streams.insert(token, queue.clone());
        token
    }

    /// A stream that was asked of its producer again takes the place of what was
    /// known of it.
    pub(super) fn replace(&self, queue: &Rc<Queue>, token: StreamToken, cursor: u64) {
        let Some(old) = self.table.borrow().streams.get(&token).cloned() else {
            return;
        };
        self.unshelve(&old);
        let (entry, ticket, reached) = {
            let mut state = old.state.borrow_mut();
            let reached = state.reached();
            (state.entry.take(), state.ticket.take(), reached)
        };
        // It is counted with its new owner.
        let octets = ticket.as_ref().map_or(0, |ticket| ticket.octets());
        self.purse.give(octets);
        queue.set_ticket(ticket);
        let mut state = queue.state.borrow_mut();
        state.window.begin_after(cursor, reached);
        state.entry = entry;
        drop(state);
        self.table.borrow_mut().streams.insert(token, queue.clone());
    }

    /// Goes on with a stream for its client.
    pub(super) fn resume(
        &self,
        token: StreamToken,
        origin: &Origin,
        from: From,
    ) -> Result<Continued, NotContinued> {
        let found = self.table.borrow().streams.get(&token).cloned();
        let queue = found.ok_or(NotContinued::Unknown)?;
        {
            let mut state = queue.state.borrow_mut();
            let owner = state.entry.as_ref().map(|entry| &*entry.origin);
            if owner != Some(origin) {
                return Err(NotContinued::Foreign);
            }
            let reached = state.reached();
            let cursor = match from {
                From::Cursor(cursor) => cursor,
                From::HandedOut if state.reader.is_some() => return Err(NotContinued::Attached),
                From::HandedOut => reached,
            };
            if cursor > reached {
                return Err(NotContinued::Ahead);
            }
            if state.phase == Phase::Complete && cursor >= state.window.visible() {
                return Ok(Continued::Complete);
            }
            // What broke below JSON-RPC may be whole at its producer.
            let broken = state.phase == Phase::Broken && state.ticket.is_some();
            if broken || state.window.seek(cursor).is_err() {
                let over = state.phase != Phase::Open;
                let ticket = state.ticket.clone().filter(|_| over);
                let ticket = ticket.ok_or(NotContinued::NotHeld)?;
                return Ok(Continued::Wire { ticket, cursor });
            }
        }
        self.unshelve(&queue);
        Ok(Continued::Window(queue.read_on()))
    }

    /// Puts a stream where it belongs now that nobody reads it, or that it has
    /// ended. [`Overflow`] when nobody wants it any more.
    pub(super) fn settle(&self, queue: &Rc<Queue>) -> Result<(), Overflow> {
        self.unshelve(queue);
        let (over, had, origin_task, token) = {
            let state = queue.state.borrow();
            let Some(entry) = &state.entry else {
                return Ok(());
            };
            if state.reader.is_some() {
                return Ok(());
            }
            let over = state.phase != Phase::Open;
            let waits = !over || state.window.waiting() > 0;
            let task = entry.task.clone().filter(|_| waits);
            (
                over,
                state.reached() > 0,
                task.map(|task| (entry.origin.clone(), task)),
                entry.token,
            )
        };
        let grace = if self.draining.get() {
            Duration::ZERO
        } else {
            self.bounds.grace
        };
        if !over && (!had || grace.is_zero()) {
            self.remove(queue);
            queue.give_up();
            return Err(Overflow);
        }
        if !had || self.draining.get() {
            self.remove(queue);
            return Ok(());
        }
        if grace.is_zero() {
            self.fade(queue);
            return Ok(());
        }
        let shelf = if over { Shelf::Ended } else { Shelf::Detached };
        self.put(queue, shelf, (self.now)() + grace);
        if let (Some((origin, task)), Some(entry)) =
            (origin_task, &mut queue.state.borrow_mut().entry)
        {
            self.directory.enter_task(&origin, &task, token);
            entry.listed = true;
        }
        Ok(())
    }

    fn put(&self, queue: &Rc<Queue>, shelf: Shelf, at: Instant) {
        let token = {
            let mut state = queue.state.borrow_mut();
            let Some(entry) = &mut state.entry else {
                return;
            };
            entry.shelf = Some((shelf, at));
            entry.token
        };
        let full = {
            let mut table = self.table.borrow_mut();
            table.sweep(shelf);
            table.shelf(shelf).push_back((at, token));
            table.shelved += 1;
            table.shelved > self.bounds.kept_max
        };
        if shelf == Shelf::Detached {
            self.stats.streams_detached.add(1);
            self.stats.stream_fates.count(StreamFate::Detached);
        }
        if full {
            self.evict();
        }
    }

    /// Makes room on the shelves: what is over goes first.
    fn evict(&self) {
        for shelf in [Shelf::Remembered, Shelf::Ended, Shelf::Detached] {
            let oldest = self.table.borrow_mut().oldest(shelf);
            if let Some(oldest) = oldest {
                self.stats.stream_fates.count(StreamFate::Evicted);
                self.remove(&oldest);
                if shelf == Shelf::Detached {
                    oldest.give_up();
                }
                return;
            }
        }
    }

    /// The stream is on no shelf, and its task in no directory.
    fn unshelve(&self, queue: &Rc<Queue>) {
        let mut state = queue.state.borrow_mut();
        let Some(entry) = &mut state.entry else {
            return;
        };
        if let Some((shelf, _)) = entry.shelf.take() {
            if shelf == Shelf::Detached {
                self.stats.streams_detached.sub(1);
            }
            self.table.borrow_mut().shelved -= 1;
        }
        if std::mem::take(&mut entry.listed)
            && let Some(task) = &entry.task
        {
            self.directory.leave_task(&entry.origin, task, entry.token);
        }
    }

    /// The events of a stream that has ended are kept no more; what its producer
    /// must be told to send them again is, for a while.
    fn fade(&self, queue: &Rc<Queue>) {
        self.unshelve(queue);
        let (freed, ticket) = {
            let mut state = queue.state.borrow_mut();
            (state.window.clear(), state.ticket.is_some())
        };
        self.purse.give(freed);
        let time = self.bounds.retention.saturating_sub(self.bounds.grace);
        if ticket && !time.is_zero() && !self.draining.get() {
            self.put(queue, Shelf::Remembered, (self.now)() + time);
        } else {
            self.remove(queue);
        }
    }

    fn remove(&self, queue: &Rc<Queue>) {
        self.unshelve(queue);
        let (freed, entry) = {
            let mut state = queue.state.borrow_mut();
            (state.window.clear(), state.entry.take())
        };
        self.purse.give(freed);
        queue.set_ticket(None);
        if let Some(entry) = entry {
            let mut table = self.table.borrow_mut();
            let own = table
                .streams
                .get(&entry.token)
                .is_some_and(|own| Rc::ptr_eq(own, queue));
            if own {
                table.streams.remove(&entry.token);
            }
            if table.streams.is_empty() && table.streams.capacity() > 64 {
                // Nothing is held after a burst.
                *table = Table::default();
            }
        }
    }

    /// When [`Streams::expire`] is due.
    pub fn next_timer(&self) -> Option<Instant> {
        let table = self.table.borrow();
        [&table.detached, &table.ended, &table.remembered]
            .into_iter()
            .filter_map(|shelf| shelf.front().map(|(at, _)| *at))
            .min()
    }

    /// Lets go of what nobody came back for in time. True when there was something.
    pub fn expire(&self, now: Instant) -> bool {
        let mut worked = false;
        for shelf in [Shelf::Detached, Shelf::Ended, Shelf::Remembered] {
            loop {
                let due = self.table.borrow_mut().shelf(shelf).front().copied();
                let Some((at, _)) = due.filter(|(at, _)| *at <= now) else {
                    break;
                };
                worked = true;
                let oldest = self.table.borrow_mut().oldest(shelf);
                // Unless what was due was void, and what is valid is not due.
                let Some(oldest) = oldest.filter(|oldest| oldest.is_on(shelf, at)) else {
                    continue;
                };
                self.table.borrow_mut().shelf(shelf).pop_front();
                match shelf {
                    Shelf::Detached => {
                        self.stats.stream_fates.count(StreamFate::Expired);
                        tracing::debug!("a detached stream is given up");
                        self.remove(&oldest);
                        oldest.give_up();
                    }
                    Shelf::Ended => self.fade(&oldest),
                    Shelf::Remembered => self.remove(&oldest),
                }
            }
        }
        worked
    }

    /// The unit takes nothing new: nobody can come back for what is on the shelves.
    pub fn drain(&self) {
        self.draining.set(true);
        for shelf in [Shelf::Detached, Shelf::Ended, Shelf::Remembered] {
            loop {
                let oldest = self.table.borrow_mut().oldest(shelf);
                let Some(oldest) = oldest else { break };
                self.remove(&oldest);
                if shelf == Shelf::Detached {
                    oldest.give_up();
                }
            }
        }
    }
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("unit", &self.unit)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
