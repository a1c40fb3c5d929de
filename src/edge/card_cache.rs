//! The agent cards that an ingress has seen: served again for a bounded time,
//! then asked for anew. What comes then is compared with what was there, so
//! that a card that did not change keeps its date.
//!
//! Bounded in entries and octets. Belongs to one thread.

use crate::a2a::port::ServiceParameters;
use crate::limits;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// See the module.
pub(super) struct CardCache {
    /// How long a card is served without asking for it again; zero asks each time.
    time: Duration,
    cards: RefCell<Cards>,
}

/// A card depends on where it comes from and on what the client stated (ruling R13).
type Key = (usize, ServiceParameters);

#[derive(Default)]
struct Cards {
    entries: HashMap<Key, Entry>,
    octets: usize,
}

struct Entry {
    document: Bytes,
    fetched: Instant,
    last_modified: String,
}

/// A card as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// The agent's octets.
    pub(super) document: Bytes,
    /// Since when this ingress has seen them, as an HTTP date.
    pub(super) last_modified: String,
    /// For how long they may be used without asking again.
    pub(super) fresh_for: Duration,
}

impl CardCache {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            cards: RefCell::default(),
        }
    }

    /// The card, if it was fetched not too long ago.
    pub(super) fn fresh(&self, key: &Key, now: Instant) -> Option<Card> {
        let cards = self.cards.borrow();
        let entry = cards.entries.get(key)?;
        let age = now.saturating_duration_since(entry.fetched);
        let fresh_for = self.time.checked_sub(age).filter(|left| !left.is_zero())?;
        Some(Card {
            document: entry.document.clone(),
            last_modified: entry.last_modified.clone(),
            fresh_for,
        })
    }

    /// Takes a card that was fetched just now.
    pub(super) fn fetched(&self, key: Key, document: Bytes, now: Instant) -> Card {
        let mut cards = self.cards.borrow_mut();
        let known = cards.entries.remove(&key);
        if let Some(known) = &known {
            cards.octets -= known.document.len();
        }
        let last_modified = match known {
            Some(known) if known.document == document => known.last_modified,
            _ => today(),
        };
        cards.make_room(document.len());
        cards.octets += document.len();
        cards.entries.insert(
            key,
            Entry {
                document: document.clone(),
                fetched: now,
                last_modified: last_modified.clone(),
            },
        );
        Card {
            document,
            last_modified,
            fresh_for: self.time,
        }
    }
}

impl Cards {
    /// Lets go of the cards that were fetched longest ago until one of `octets` fits.
    fn make_room(&mut self, octets: usize) {
        while self.entries.len() >= limits::CARDS_CACHED_MAX
            || (self.octets + octets > limits::CARDS_CACHED_OCTETS_MAX && !self.entries.is_empty())
        {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.fetched);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            if let Some(gone) = self.entries.remove(&key) {
                self.octets -= gone.document.len();
            }
        }
    }
}

fn today() -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "a date for people and caches, no deadline"
    )]
    httpdate::fmt_http_date(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    fn start() -> Instant {
        #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
        Instant::now()
    }

    fn key(route: usize) -> Key {
        (route, ServiceParameters::default())
    }

    #[test]
    fn a_card_is_fresh_for_its_time_and_no_longer() {
        let (cache, start) = (CardCache::new(TIME), start());
        assert_eq!(cache.fresh(&key(0), start), None);
        let card = cache.fetched(key(0), Bytes::from_static(b"{}"), start);
        assert_eq!(card.fresh_for, TIME);
        let later = cache.fresh(&key(0), start + TIME / 4).unwrap();
        assert_eq!(later.document, card.document);
        assert_eq!(later.fresh_for, TIME * 3 / 4);
        assert_eq!(cache.fresh(&key(0), start + TIME), None);
        assert_eq!(cache.fresh(&key(1), start), None, "another route");
        let stated = ServiceParameters {
            lines: vec![("a2a-version".into(), "1.0".into())],
            ..ServiceParameters::default()
        };
        assert_eq!(cache.fresh(&(0, stated), start), None, "another version");
    }

    #[test]
    fn an_unchanged_card_keeps_its_date() {
        let (cache, start) = (CardCache::new(TIME), start());
        cache.fetched(key(0), Bytes::from_static(b"{}"), start);
        let long_ago = "Thu, 01 Jan 1970 00:00:00 GMT".to_owned();
        let date = |cache: &CardCache| cache.cards.borrow().entries[&key(0)].last_modified.clone();
        if let Some(entry) = cache.cards.borrow_mut().entries.get_mut(&key(0)) {
            entry.last_modified.clone_from(&long_ago);
        }
        cache.fetched(key(0), Bytes::from_static(b"{}"), start + TIME);
        assert_eq!(date(&cache), long_ago);
        cache.fetched(key(0), Bytes::from_static(b"{ }"), start + TIME);
        assert_ne!(date(&cache), long_ago);
    }

    #[test]
    fn it_asks_each_time_without_a_time() {
        let (cache, start) = (CardCache::new(Duration::ZERO), start());
        let card = cache.fetched(key(0), Bytes::from_static(b"{}"), start);
        assert_eq!(card.fresh_for, Duration::ZERO);
        assert_eq!(cache.fresh(&key(0), start), None);
    }

    #[test]
    fn it_is_bounded() {
        let (cache, start) = (CardCache::new(TIME), start());
        let large = Bytes::from(vec![b' '; limits::CARD_OCTETS_MAX]);
        for route in 0..limits::CARDS_CACHED_MAX + 10 {
            let at = start + Duration::from_millis(route as u64);
            cache.fetched(key(route), large.clone(), at);
            let cards = cache.cards.borrow();
            assert!(cards.octets <= limits::CARDS_CACHED_OCTETS_MAX);
            assert_eq!(cards.octets, cards.entries.len() * large.len());
            assert!(cards.entries.contains_key(&key(route)));
        }
        let small = Bytes::from_static(b"{}");
        for route in 0..limits::CARDS_CACHED_MAX * 2 {
            let at = start + TIME + Duration::from_millis(route as u64);
            cache.fetched(key(route), small.clone(), at);
        }
        assert_eq!(cache.cards.borrow().entries.len(), limits::CARDS_CACHED_MAX);
    }
}
