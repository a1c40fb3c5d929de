//! Which association carries a call: per route one pool entry for each distinct
//! set of service parameters (ruling R13) and each upstream, dialled on demand,
//! the idle set evicted first. A call goes to the upstream with the least calls
//! that is not ejected. Pure bookkeeping; the unit dials and closes.

use super::health::{Health, Refusal};
use super::redial::Redial;
use crate::a2a::port::{AssociationId, CallId, CallRequest, ServiceParameters};
use crate::bridge::own::OwnMap;
use crate::limits;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names an entry of [`Pools`], and says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId {
    number: u64,
    /// Its route.
    pub route: usize,
    /// Its upstream, by the order of the route's settings.
    pub upstream: usize,
}

/// A call that waits for its association.
#[derive(Debug)]
pub struct Waiting {
    /// Which call.
    pub call: CallId,
    /// What it carries.
    pub request: CallRequest,
}

/// What an entry's association is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// None, and none on its way.
    Down,
    /// A dial is under way.
    Dialling,
    /// Ready for frames.
    Up(AssociationId),
}

/// One association's worth of a route and an upstream.
#[derive(Debug)]
pub struct Pool {
    /// Names it.
    pub id: PoolId,
    /// The set that its association states.
    pub parameters: ServiceParameters,
    /// Its association.
    pub state: PoolState,
    waiting: VecDeque<Waiting>,
    /// Calls that it carries or that wait.
    pub outstanding: usize,
    /// The association that it had last; its streams go on with the next one (ruling R18).
    pub lost: Option<AssociationId>,
    /// When it is dialled for streams that wait.
    pub redial: Redial,
    /// Since when its association is up.
    pub since: Option<Instant>,
}

/// One upstream of a route.
#[derive(Debug, Default)]
struct Upstream {
    health: Health,
    /// Calls that it carries or that wait for it, whatever their parameters.
    outstanding: usize,
}

/// The entries for one set of service parameters.
#[derive(Debug)]
struct Set {
    parameters: ServiceParameters,
    /// By upstream.
    entries: Vec<PoolId>,
    used: u64,
}

#[derive(Debug)]
struct Route {
    upstreams: Vec<Upstream>,
    /// At most [`limits::PARAMETER_SETS_PER_ROUTE_MAX`].
    sets: Vec<Set>,
    /// The upstream that has the next call, all else being equal.
    turn: usize,
}

/// Every entry of a unit.
#[derive(Debug)]
pub struct Pools {
    entries: OwnMap<PoolId, Pool>,
    routes: Vec<Route>,
    waiting: usize,
    /// Entries that streams wait for.
    redialled: Vec<PoolId>,
    /// Upstreams that are ejected, by route and number.
    ejected: Vec<(usize, usize)>,
    next: u64,
    clock: u64,
}

/// The outcome of [`Pools::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The entry that takes the call, and the associations that had to go for it, if it is new.
    Entry {
        /// Takes the call.
        pool: PoolId,
        /// Those of an idle set.
        evicted: Vec<AssociationId>,
    },
    /// Every set of the route is in use.
    Full,
}

impl Pools {
    /// No entry yet; `upstreams` says how many each route has.
    pub fn new(upstreams: impl Iterator<Item = usize>) -> Self {
        let routes = upstreams.map(|count| Route {
            upstreams: (0..count).map(|_| Upstream::default()).collect(),
            sets: Vec::new(),
            turn: 0,
        });
        Self {
            entries: OwnMap::default(),
            routes: routes.collect(),
            waiting: 0,
            redialled: Vec::new(),
            ejected: Vec::new(),
            next: 0,
            clock: 0,
        }
    }

    /// Finds or makes the entry for a route and a set, at the upstream that is to have
    /// the call, and counts the call as outstanding there.
    pub fn admit(
        &mut self,
        route: usize,
        parameters: &ServiceParameters,
        now: Instant,
    ) -> Admission {
        self.clock += 1;
        let clock = self.clock;
        let mut evicted = Vec::new();
        let Some(own) = self.routes.get(route) else {
            return Admission::Full;
        };
        let known = own
            .sets
            .iter()
            .position(|set| set.parameters == *parameters);
        let at = if let Some(at) = known {
            at
        } else {
            if own.sets.len() >= limits::PARAMETER_SETS_PER_ROUTE_MAX {
                let Some(at) = self.idle_set(route) else {
                    return Admission::Full;
                };
                self.evict(route, at, &mut evicted);
            }
            self.add_set(route, parameters)
        };
        let set = &mut self.routes[route].sets[at];
        set.used = clock;
        // Where no upstream may be dialled the call is told so there.
        let fallback = set.entries.first().copied();
        let Some(pool) = self.choose(route, at, 0, now).or(fallback) else {
            return Admission::Full;
        };
        self.claim(pool);
        Admission::Entry { pool, evicted }
    }

    /// The set that nobody uses, longest.
    fn idle_set(&self, route: usize) -> Option<usize> {
        let sets = self.routes[route].sets.iter().enumerate();
        let idle = sets.filter(|(_, set)| {
            let mut entries = set.entries.iter().filter_map(|id| self.entries.get(id));
            entries.all(|pool| pool.outstanding == 0)
        });
        idle.min_by_key(|(_, set)| set.used).map(|(at, _)| at)
    }

    fn evict(&mut self, route: usize, at: usize, evicted: &mut Vec<AssociationId>) {
        let set = self.routes[route].sets.swap_remove(at);
        for id in set.entries {
            if let Some(PoolState::Up(association)) =
                self.entries.remove(&id).map(|pool| pool.state)
            {
                evicted.push(association);
            }
        }
    }

    fn add_set(&mut self, route: usize, parameters: &ServiceParameters) -> usize {
        let mut entries = Vec::new();
        for upstream in 0..self.routes[route].upstreams.len() {
            self.next += 1;
            let id = PoolId {
                number: self.next,
                route,
                upstream,
            };
            entries.push(id);
            self.entries.insert(
                id,
                Pool {
                    id,
                    parameters: parameters.clone(),
                    state: PoolState::Down,
                    waiting: VecDeque::new(),
                    outstanding: 0,
                    lost: None,
                    redial: Redial::default(),
                    since: None,
                },
            );
        }
        let sets = &mut self.routes[route].sets;
        sets.push(Set {
            parameters: parameters.clone(),
            entries,
            used: 0,
        });
        sets.len() - 1
    }

    /// The upstream that is to have a call that was tried at those in `tried`, a bit
    /// each: the one with the least calls of those that are not ejected, or else the
    /// ejected one that is probed next. None where a dial would fail, too.
    fn choose(&mut self, route: usize, set: usize, tried: u16, now: Instant) -> Option<PoolId> {
        let Route {
            upstreams,
            sets,
            turn,
        } = self.routes.get_mut(route)?;
        let entries = &sets.get(set)?.entries;
        let state = |at: usize| self.entries.get(&entries[at]).map(|pool| pool.state);
        let may_dial = |at: usize| {
            let refused = upstreams[at].health.refusal(now).is_some();
            !refused || state(at) == Some(PoolState::Dialling)
        };
        // An association that stands is good, whatever became of another.
        let is_healthy = |at: usize| {
            !upstreams[at].health.is_ejected() || matches!(state(at), Some(PoolState::Up(_)))
        };
        let (first, count) = (*turn, entries.len());
        let untried = (0..count)
            .map(|n| (first + n) % count)
            .filter(|at| tried & 1 << at == 0);
        let healthy = untried.clone().filter(|&at| is_healthy(at));
        let ejected = untried.filter(|&at| may_dial(at));
        let chosen = healthy
            .min_by_key(|&at| upstreams[at].outstanding)
            .or_else(|| ejected.min_by_key(|&at| upstreams[at].health.probe_at()))?;
        *turn = (chosen + 1) % count;
        Some(entries[chosen])
    }

    /// Another entry of the same route and set for a call that was tried at those in
    /// `tried`; the call is outstanding there from now on.
    pub fn move_call(&mut self, id: PoolId, tried: u16, now: Instant) -> Option<PoolId> {
        let sets = &self.routes.get(id.route)?.sets;
        let set = sets.iter().position(|set| set.entries.contains(&id))?;
        let other = self.choose(id.route, set, tried, now)?;
        self.release(id);
        self.claim(other);
        Some(other)
    }

    /// The entry of the same route and set at a certain upstream, for a call that must
    /// go there; the call is outstanding there from now on.
    pub fn move_to(&mut self, id: PoolId, upstream: usize) -> Option<PoolId> {
        let sets = &self.routes.get(id.route)?.sets;
        let set = sets.iter().find(|set| set.entries.contains(&id))?;
        let other = *set.entries.get(upstream)?;
        self.release(id);
        self.claim(other);
        Some(other)
    }

    fn claim(&mut self, id: PoolId) {
        if let Some(pool) = self.entries.get_mut(&id) {
            pool.outstanding += 1;
        }
        if let Some(upstream) = self.upstream(id) {
            upstream.outstanding += 1;
        }
    }

    fn upstream(&mut self, id: PoolId) -> Option<&mut Upstream> {
        let route = self.routes.get_mut(id.route)?;
        route.upstreams.get_mut(id.upstream)
    }

    /// What a call is told instead of a dial, shortly after one that failed.
    pub fn refusal(&self, id: PoolId, now: Instant) -> Option<Refusal> {
        let upstream = self.routes.get(id.route)?.upstreams.get(id.upstream)?;
        upstream.health.refusal(now).cloned()
    }

    /// A dial for the entry failed. True when this ejects its upstream.
    pub fn dial_failed(&mut self, id: PoolId, now: Instant, refusal: Refusal, jitter: u32) -> bool {
        let ejects = |health: &mut Health| health.dial_failed(now, refusal, jitter);
        self.eject(id, ejects)
    }

    /// A dial for the entry came to nothing for a reason of our own.
    pub fn dial_ended(&mut self, id: PoolId, now: Instant, jitter: u32) {
        if let Some(upstream) = self.upstream(id) {
            upstream.health.postpone(now, jitter);
        }
    }

    /// The entry's association is gone; `silent` when a PING went unanswered. True when
    /// this ejects its upstream.
    pub fn lost(
        &mut self,
        id: PoolId,
        association: AssociationId,
        now: Instant,
        silent: bool,
        jitter: u32,
    ) -> bool {
        let Some(pool) = self.entries.get_mut(&id) else {
            // Evicted, which is why it was closed.
            return false;
        };
        pool.state = PoolState::Down;
        pool.lost = Some(association);
        let since = pool.since.take().unwrap_or(now);
        let lived = now.saturating_duration_since(since);
        self.eject(id, |health| health.lost(now, lived, silent, jitter))
    }

    fn eject(&mut self, id: PoolId, ejects: impl FnOnce(&mut Health) -> bool) -> bool {
        let ejected = self
            .upstream(id)
            .is_some_and(|upstream| ejects(&mut upstream.health));
        if ejected {
            self.ejected.push((id.route, id.upstream));
        }
        ejected
    }

    /// The entry's upstream takes calls. True when it had been ejected.
    pub fn restore(&mut self, id: PoolId) -> bool {
        let restored = self
            .upstream(id)
            .is_some_and(|upstream| upstream.health.up());
        if restored {
            self.ejected.retain(|&at| at != (id.route, id.upstream));
        }
        restored
    }

    /// When the next ejected upstream is to be probed.
    pub fn next_probe(&self) -> Option<Instant> {
        let upstreams = self.ejected.iter().filter_map(|&(route, at)| {
            let upstream = self.routes.get(route)?.upstreams.get(at)?;
            upstream.health.probe_at()
        });
        upstreams.min()
    }

    /// The ejected upstreams that are to be probed by now, each with the entry to dial
    /// for it; none where no entry without an association is left.
    pub fn due_probes(&mut self, now: Instant) -> Vec<(PoolId, Option<PoolId>)> {
        let mut due = Vec::new();
        for &(route, upstream) in &self.ejected {
            let Some(own) = self.routes.get_mut(route) else {
                continue;
            };
            if !own.upstreams[upstream].health.take_due(now) {
                continue;
            }
            let mut sets: Vec<&Set> = own.sets.iter().collect();
            sets.sort_by_key(|set| std::cmp::Reverse(set.used));
            let entry = sets.iter().map(|set| set.entries[upstream]).find(|id| {
                let pool = self.entries.get(id);
                pool.is_some_and(|pool| !matches!(pool.state, PoolState::Up(_)))
            });
            let name = PoolId {
                number: 0,
                route,
                upstream,
            };
            due.push((name, entry));
        }
        due
    }

    /// The entry of that name.
    pub fn get(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.entries.get_mut(&id)
    }

    /// Lets a call wait; false when the entry is gone.
    pub fn wait(&mut self, id: PoolId, waiting: Waiting) -> bool {
        let pool = self.entries.get_mut(&id);
        let waits = pool.map(|pool| pool.waiting.push_back(waiting)).is_some();
        self.waiting += usize::from(waits);
        waits
    }

    /// The call that has waited longest.
    pub fn next_waiting(&mut self, id: PoolId) -> Option<Waiting> {
        let next = self.entries.get_mut(&id)?.waiting.pop_front()?;
        self.waiting -= 1;
        Some(next)
    }

    /// Every call that waits, oldest first.
    pub fn take_waiting(&mut self, id: PoolId) -> VecDeque<Waiting> {
        let pool = self.entries.get_mut(&id);
        let all = pool.map_or_else(VecDeque::new, |pool| std::mem::take(&mut pool.waiting));
        self.waiting -= all.len();
        all
    }

    /// A call waits no more.
    pub fn forget_waiting(&mut self, id: PoolId, call: CallId) {
        if let Some(pool) = self.entries.get_mut(&id) {
            let before = pool.waiting.len();
            pool.waiting.retain(|waiting| waiting.call != call);
            self.waiting -= before - pool.waiting.len();
        }
    }

    /// Whether a call waits for the entry.
    pub fn has_waiting(&self, id: PoolId) -> bool {
        let pool = self.entries.get(&id);
        pool.is_some_and(|pool| !pool.waiting.is_empty())
    }

    /// Streams wait for an association in place of `lost`, for so long; false when
    /// no entry is to have one.
    pub fn want(&mut self, lost: AssociationId, now: Instant, time: Duration, jitter: u32) -> bool {
        let found = self
            .entries
            .values_mut()
            .find(|pool| pool.lost == Some(lost));
        let Some(pool) = found else { return false };
        pool.redial.begin(now, time, jitter);
        if !self.redialled.contains(&pool.id) {
            self.redialled.push(pool.id);
        }
        true
    }

    /// When the next entry is to be dialled for streams that wait.
    pub fn next_redial(&self) -> Option<Instant> {
        let entries = self.redialled.iter().filter_map(|id| self.entries.get(id));
        entries.filter_map(|pool| pool.redial.next).min()
    }

    /// The entries that streams wait for.
    pub fn wanted(&self) -> Vec<PoolId> {
        self.redialled.clone()
    }

    /// The entries that are to be dialled by now.
    pub fn due(&mut self, now: Instant) -> Vec<PoolId> {
        let entries = &mut self.entries;
        self.redialled
            .retain(|id| entries.get(id).is_some_and(|pool| pool.redial.is_wanted()));
        let mut due = Vec::new();
        for id in &self.redialled {
            if let Some(pool) = entries.get_mut(id)
                && pool.redial.next.is_some_and(|at| at <= now)
            {
                pool.redial.next = None;
                due.push(*id);
            }
        }
        due
    }

    /// A call of the entry is over.
    pub fn release(&mut self, id: PoolId) {
        if let Some(pool) = self.get(id) {
            pool.outstanding = pool.outstanding.saturating_sub(1);
        }
        if let Some(upstream) = self.upstream(id) {
            upstream.outstanding = upstream.outstanding.saturating_sub(1);
        }
    }

    /// Calls that wait, over all entries.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The entries that calls wait for.
    pub fn with_waiting(&self) -> Vec<PoolId> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let waiting = self
            .entries
            .values()
            .filter(|pool| !pool.waiting.is_empty());
        waiting.map(|pool| pool.id).collect()
    }

    /// Calls that are carried or wait, over all entries.
    pub fn outstanding(&self) -> usize {
        self.entries.values().map(|pool| pool.outstanding).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
    fn now() -> Instant {
        Instant::now()
    }

    fn set(version: &str) -> ServiceParameters {
        ServiceParameters {
            lines: vec![("a2a-version".into(), version.into())],
            ..ServiceParameters::default()
        }
    }

    fn entry(admission: Admission) -> (PoolId, Vec<AssociationId>) {
        match admission {
            Admission::Entry { pool, evicted } => (pool, evicted),
            Admission::Full => panic!("full"),
        }
    }

    #[test]
    fn one_entry_a_route_and_set() {
        let mut pools = Pools::new([1, 1].into_iter());
        let now = now();
        let (a, _) = entry(pools.admit(0, &set("1.0"), now));
        let (b, _) = entry(pools.admit(0, &set("0.3"), now));
        let (c, _) = entry(pools.admit(1, &set("1.0"), now));
        assert!(a != b && b != c && a != c);
        assert_eq!(entry(pools.admit(0, &set("1.0"), now)).0, a);
        assert_eq!(pools.get(a).unwrap().outstanding, 2);
    }

    /// Ruling R13: at most 8 sets a route, the idle ones evicted first, then 431.
    #[test]
    fn the_idle_set_goes_first() {
        let mut pools = Pools::new([1, 1].into_iter());
        let now = now();
        let ids: Vec<_> = (0..limits::PARAMETER_SETS_PER_ROUTE_MAX)
            .map(|n| entry(pools.admit(0, &set(&n.to_string()), now)).0)
            .collect();
        assert_eq!(pools.admit(0, &set("one too many"), now), Admission::Full);
        pools.get(ids[3]).unwrap().state = PoolState::Up(AssociationId(33));
        pools.release(ids[3]);
        pools.release(ids[5]);
        let (_, evicted) = entry(pools.admit(0, &set("new"), now));
        assert_eq!(evicted, [AssociationId(33)], "the one used longest ago");
        assert!(pools.get(ids[3]).is_none());
        assert!(pools.get(ids[5]).is_some());
        assert_eq!(
            pools.outstanding(),
            limits::PARAMETER_SETS_PER_ROUTE_MAX - 1
        );
    }

    fn refused() -> Refusal {
        Refusal {
            text: "cannot be reached".into(),
            timed_out: false,
        }
    }

    /// Where the next calls go, which stay under way.
    fn next(pools: &mut Pools, count: usize, now: Instant) -> Vec<usize> {
        let mut to = Vec::new();
        for _ in 0..count {
            to.push(entry(pools.admit(0, &set("1.0"), now)).0.upstream);
        }
        to
    }

    #[test]
    fn the_least_busy_upstream_is_next() {
        let now = now();
        let mut pools = Pools::new([3].into_iter());
        assert_eq!(next(&mut pools, 4, now), [0, 1, 2, 0]);
        let (one, _) = entry(pools.admit(0, &set("1.0"), now));
        assert_eq!(one.upstream, 1);
        // Other parameters are other associations with the same upstreams.
        let (two, _) = entry(pools.admit(0, &set("0.3"), now));
        assert_eq!(two.upstream, 2);
        pools.release(one);
        assert_eq!(next(&mut pools, 2, now), [1, 2]);
        pools.release(two);
        assert_eq!(next(&mut pools, 1, now), [0]);
        assert_eq!(pools.outstanding(), 7);
    }

    #[test]
    fn ejected_upstreams_are_the_last_resort() {
        let mut now = now();
        let mut pools = Pools::new([3].into_iter());
        let (first, _) = entry(pools.admit(0, &set("1.0"), now));
        assert!(pools.dial_failed(first, now, refused(), 0));
        assert!(pools.next_probe().is_some());
        assert_eq!(next(&mut pools, 4, now), [1, 2, 1, 2]);
        let others: Vec<_> = [1, 2]
            .map(|upstream| PoolId {
                upstream,
                number: first.number + upstream as u64,
                ..first
            })
            .to_vec();
        for &other in &others {
            assert!(pools.get(other).is_some());
            assert!(pools.dial_failed(other, now, refused(), u32::MAX));
        }
        assert_eq!(
            next(&mut pools, 1, now),
            [0],
            "a single failure is no reason"
        );
        for &id in others.iter().chain([&first]) {
            assert!(!pools.dial_failed(id, now, refused(), u32::MAX));
        }
        // Nothing is dialled for a moment, and the call is told so.
        let (told, _) = entry(pools.admit(0, &set("1.0"), now));
        assert_eq!(pools.refusal(told, now), Some(refused()));
        now += limits::DIAL_REFUSAL_TIME_MIN;
        assert_eq!(
            next(&mut pools, 2, now),
            [0, 0],
            "the one that is due first"
        );
        // One that is being dialled is waited for.
        pools.get(others[1]).unwrap().state = PoolState::Dialling;
        pools.dial_failed(first, now, refused(), 0);
        pools.dial_failed(others[0], now, refused(), 0);
        assert_eq!(next(&mut pools, 1, now), [2]);
        assert!(pools.restore(others[0]) && !pools.restore(others[0]));
        assert_eq!(next(&mut pools, 2, now), [1, 1]);
    }

    /// A set whose association stands keeps its upstream, whatever became of another's.
    #[test]
    fn an_association_that_stands_is_good() {
        let now = now();
        let mut pools = Pools::new([2].into_iter());
        let (up, _) = entry(pools.admit(0, &set("1.0"), now));
        pools.get(up).unwrap().state = PoolState::Up(AssociationId(1));
        let (down, _) = entry(pools.admit(0, &set("0.3"), now));
        assert_eq!((up.upstream, down.upstream), (0, 1));
        let down = PoolId {
            upstream: 0,
            number: down.number - 1,
            ..down
        };
        assert!(pools.dial_failed(down, now, refused(), 0));
        assert_eq!(next(&mut pools, 2, now), [0, 1]);
        for _ in 0..2 {
            assert_eq!(entry(pools.admit(0, &set("0.3"), now)).0.upstream, 1);
        }
    }

    #[test]
    fn a_call_moves_to_each_upstream_once() {
        let now = now();
        let mut pools = Pools::new([3].into_iter());
        let (first, _) = entry(pools.admit(0, &set("1.0"), now));
        let second = pools.move_call(first, 0b001, now).unwrap();
        let third = pools.move_call(second, 0b011, now).unwrap();
        assert_eq!([first, second, third].map(|id| id.upstream), [0, 1, 2]);
        assert_eq!(pools.move_call(third, 0b111, now), None);
        let outstanding = [first, second, third].map(|id| pools.get(id).unwrap().outstanding);
        assert_eq!(outstanding, [0, 0, 1]);
        let mut alone = Pools::new([1].into_iter());
        let (only, _) = entry(alone.admit(0, &set("1.0"), now));
        assert_eq!(alone.move_call(only, 0b1, now), None);
    }

    /// Ruling R17: only the producer that has a stream can resume it.
    #[test]
    fn a_resumed_stream_goes_to_its_upstream() {
        let now = now();
        let mut pools = Pools::new([3].into_iter());
        for upstream in [2, 0, 1] {
            let (chosen, _) = entry(pools.admit(0, &set("1.0"), now));
            let there = pools.move_to(chosen, upstream).unwrap();
            assert_eq!(there.upstream, upstream);
            assert_eq!(pools.get(there).unwrap().outstanding, 1);
            pools.release(there);
        }
        assert_eq!(pools.outstanding(), 0);
        let (chosen, _) = entry(pools.admit(0, &set("1.0"), now));
        assert_eq!(pools.move_to(chosen, 3), None);
        assert_eq!(pools.get(chosen).unwrap().outstanding, 1);
    }

    #[test]
    fn probes_are_for_the_set_used_last() {
        let now = now();
        let mut pools = Pools::new([1].into_iter());
        let (old, _) = entry(pools.admit(0, &set("0.3"), now));
        let (new, _) = entry(pools.admit(0, &set("1.0"), now));
        pools.get(old).unwrap().state = PoolState::Up(AssociationId(7));
        pools.get(old).unwrap().since = Some(now);
        assert!(pools.dial_failed(new, now, refused(), u32::MAX));
        assert!(pools.due_probes(now).is_empty());
        let at = pools.next_probe().unwrap();
        let due = pools.due_probes(at);
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].1, Some(new));
        assert_eq!(pools.next_probe(), None, "it is under way");
        pools.dial_ended(new, at, 0);
        let at = pools.next_probe().unwrap();
        pools.get(new).unwrap().state = PoolState::Up(AssociationId(8));
        let due = pools.due_probes(at);
        assert_eq!(due[0].1, None, "every set has an association");
        assert!(pools.restore(due[0].0));
        assert!(pools.due_probes(at + limits::EJECTION_TIME_MAX).is_empty());

        assert!(!pools.lost(
            old,
            AssociationId(7),
            at + limits::EJECTION_TIME_MAX,
            false,
            0
        ));
        assert_eq!(pools.get(old).unwrap().lost, Some(AssociationId(7)));
        assert!(
            pools.lost(new, AssociationId(8), at, false, 0),
            "it did not last"
        );
    }

    #[test]
    fn waiting_calls_are_counted() {
        let mut pools = Pools::new([1, 1].into_iter());
        let now = now();
        let (id, _) = entry(pools.admit(0, &set("1.0"), now));
        let waiting = |n| Waiting {
            call: CallId(n),
            request: CallRequest::Card,
        };
        for n in 0..4 {
            assert!(pools.wait(id, waiting(n)));
        }
        let gone = PoolId { number: 77, ..id };
        assert!(!pools.wait(gone, waiting(9)));
        assert_eq!(pools.waiting(), 4);
        assert_eq!(pools.next_waiting(id).unwrap().call, CallId(0));
        pools.forget_waiting(id, CallId(2));
        pools.forget_waiting(id, CallId(2));
        assert_eq!((pools.waiting(), pools.has_waiting(id)), (2, true));
        let rest: Vec<_> = pools.take_waiting(id).into_iter().map(|w| w.call).collect();
        assert_eq!(rest, [CallId(1), CallId(3)]);
        assert_eq!((pools.waiting(), pools.has_waiting(id)), (0, false));
        assert!(pools.with_waiting().is_empty());
    }
}
