//! Which association carries a call: per route one pool entry for each distinct
//! set of service parameters (ruling R13), dialled on demand, the idle one
//! evicted first. Pure bookkeeping; the unit dials and closes.

use crate::a2a::port::{AssociationId, CallId, CallRequest, ServiceParameters};
use crate::limits;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Names an entry of [`Pools`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolId(pub u64);

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

/// One association's worth of a route.
#[derive(Debug)]
pub struct Pool {
    /// Names it.
    pub id: PoolId,
    /// Route.
    pub route: usize,
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
    used: u64,
}

/// Attempts to get an association back, with a doubling pause between them.
#[derive(Debug, Default)]
pub struct Redial {
    pause: Duration,
    up_since: Option<Instant>,
    until: Option<Instant>,
    /// When to dial next.
    pub next: Option<Instant>,
}

impl Redial {
    /// The association is up.
    pub fn up(&mut self, now: Instant) {
        self.up_since = Some(now);
        self.next = None;
        self.until = None;
    }

    /// Streams wait for an association, for so long.
    pub fn begin(&mut self, now: Instant, time: Duration, jitter: u32) {
        // One that lived longer than it took to try again counts as a fresh start.
        let lived = self
            .up_since
            .take()
            .is_none_or(|since| now.saturating_duration_since(since) >= self.pause);
        if lived {
            self.pause = Duration::ZERO;
        }
        self.until = Some(now + time);
        self.schedule(now, jitter);
    }

    /// An attempt failed. False when there will be no other.
    pub fn failed(&mut self, now: Instant, jitter: u32) -> bool {
        if self.until.is_none_or(|until| now >= until) {
            self.end();
            return false;
        }
        self.schedule(now, jitter);
        true
    }

    /// Nobody waits any more.
    pub fn end(&mut self) {
        self.until = None;
        self.next = None;
    }

    /// Whether streams wait.
    pub fn is_wanted(&self) -> bool {
        self.until.is_some()
    }

    /// Between half the pause and the whole of it, so that many do not dial at once.
    fn schedule(&mut self, now: Instant, jitter: u32) {
        self.pause = (self.pause * 2).clamp(limits::REDIAL_TIME_MIN, limits::REDIAL_TIME_MAX);
        let part = f64::from(jitter) / f64::from(u32::MAX);
        self.next = Some(now + self.pause.mul_f64(0.5 + part / 2.0));
    }
}

/// Every entry of a unit.
#[derive(Debug, Default)]
pub struct Pools {
    entries: HashMap<PoolId, Pool>,
    /// The entries of each route, at most [`limits::PARAMETER_SETS_PER_ROUTE_MAX`].
    routes: HashMap<usize, Vec<PoolId>>,
    waiting: usize,
    /// Entries that streams wait for.
    redialled: Vec<PoolId>,
    next: u64,
    clock: u64,
}

/// The outcome of [`Pools::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The entry that takes the call, and one that had to go for it with its association, if it had any.
    Entry {
        /// Takes the call.
        pool: PoolId,
        /// Was evicted.
        evicted: Option<AssociationId>,
    },
    /// Every set of the route is in use.
    Full,
}

impl Pools {
    /// Finds or makes the entry for a route and a set, counting the call as outstanding on it.
    pub fn admit(&mut self, route: usize, parameters: &ServiceParameters) -> Admission {
        self.clock += 1;
        let clock = self.clock;
        let own = self.routes.entry(route).or_default();
        for id in own.iter() {
            if let Some(pool) = self.entries.get_mut(id)
                && pool.parameters == *parameters
            {
                pool.used = clock;
                pool.outstanding += 1;
                return Admission::Entry {
                    pool: pool.id,
                    evicted: None,
                };
            }
        }
        let mut evicted = None;
        if own.len() >= limits::PARAMETER_SETS_PER_ROUTE_MAX {
            let idle = own
                .iter()
                .enumerate()
                .filter_map(|(at, id)| Some((at, self.entries.get(id)?)))
                .filter(|(_, pool)| pool.outstanding == 0 && pool.state != PoolState::Dialling)
                .min_by_key(|(_, pool)| pool.used)
                .map(|(at, _)| at);
            let Some(at) = idle else {
                return Admission::Full;
            };
            let gone = self.entries.remove(&own.swap_remove(at));
            if let Some(PoolState::Up(association)) = gone.map(|pool| pool.state) {
                evicted = Some(association);
            }
        }
        self.next += 1;
        let id = PoolId(self.next);
        own.push(id);
        self.entries.insert(
            id,
            Pool {
                id,
                route,
                parameters: parameters.clone(),
                state: PoolState::Down,
                waiting: VecDeque::new(),
                outstanding: 1,
                lost: None,
                redial: Redial::default(),
                used: clock,
            },
        );
        Admission::Entry { pool: id, evicted }
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

    fn set(version: &str) -> ServiceParameters {
        ServiceParameters {
            lines: vec![("a2a-version".into(), version.into())],
            ..ServiceParameters::default()
        }
    }

    fn entry(admission: Admission) -> (PoolId, Option<AssociationId>) {
        match admission {
            Admission::Entry { pool, evicted } => (pool, evicted),
            Admission::Full => panic!("full"),
        }
    }

    #[test]
    fn one_entry_a_route_and_set() {
        let mut pools = Pools::default();
        let (a, _) = entry(pools.admit(0, &set("1.0")));
        let (b, _) = entry(pools.admit(0, &set("0.3")));
        let (c, _) = entry(pools.admit(1, &set("1.0")));
        assert!(a != b && b != c && a != c);
        assert_eq!(entry(pools.admit(0, &set("1.0"))).0, a);
        assert_eq!(pools.get(a).unwrap().outstanding, 2);
    }

    /// Ruling R18: pauses double between jittered bounds, attempts end, and an
    /// association that did not last is no fresh start.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant")]
    fn redialling_backs_off_and_ends() {
        let start = Instant::now();
        let mut redial = Redial::default();
        redial.begin(start, Duration::from_secs(10), u32::MAX);
        assert_eq!(redial.next, Some(start + limits::REDIAL_TIME_MIN));
        let mut now = start;
        let mut attempts = 0;
        while let Some(at) = redial.next {
            assert!(at - now <= limits::REDIAL_TIME_MAX);
            now = at;
            attempts += 1;
            redial.failed(now, u32::MAX);
        }
        assert!((8..20).contains(&attempts), "{attempts}");
        assert!(now - start >= Duration::from_secs(10));
        assert!(!redial.is_wanted());

        redial.up(now);
        redial.begin(now, Duration::from_secs(10), 0);
        assert_eq!(redial.next, Some(now + limits::REDIAL_TIME_MAX / 2));
        redial.up(now);
        now += limits::REDIAL_TIME_MAX;
        redial.begin(now, Duration::from_secs(10), 0);
        assert_eq!(redial.next, Some(now + limits::REDIAL_TIME_MIN / 2));
    }

    /// Ruling R13: at most 8 sets a route, the idle ones evicted first, then 431.
    #[test]
    fn the_idle_set_goes_first() {
        let mut pools = Pools::default();
        let ids: Vec<_> = (0..limits::PARAMETER_SETS_PER_ROUTE_MAX)
            .map(|n| entry(pools.admit(0, &set(&n.to_string()))).0)
            .collect();
        assert_eq!(pools.admit(0, &set("one too many")), Admission::Full);
        pools.get(ids[3]).unwrap().state = PoolState::Up(AssociationId(33));
        pools.release(ids[3]);
        pools.release(ids[5]);
        let (_, evicted) = entry(pools.admit(0, &set("new")));
        assert_eq!(evicted, Some(AssociationId(33)), "the one used longest ago");
        assert!(pools.get(ids[3]).is_none());
        assert!(pools.get(ids[5]).is_some());
        assert_eq!(
            pools.outstanding(),
            limits::PARAMETER_SETS_PER_ROUTE_MAX - 1
        );
    }

    #[test]
    fn waiting_calls_are_counted() {
        let mut pools = Pools::default();
        let (id, _) = entry(pools.admit(0, &set("1.0")));
        let waiting = |n| Waiting {
            call: CallId(n),
            request: CallRequest::Card,
        };
        for n in 0..4 {
            assert!(pools.wait(id, waiting(n)));
        }
        assert!(!pools.wait(PoolId(77), waiting(9)));
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
