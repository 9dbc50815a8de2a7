//! Redisson's decisions in this process: a log of grants in milliseconds for each key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_sluice::future::{BoxedFuture, Settlement};
use tower_sluice::limiter::{Operation, Owner, Reservation};
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, Outcome};

use super::charge_permits::{only_key, permits};
use super::clock::{EpochClock, system_time};
use super::queues::lock;
use super::rate::Rate;

/// The least time in ms between two searches of a full memory for expired keys.
const SWEEP_PAUSE: u64 = 1_000;

/// So many keys are not swept: if the clock steps back, their grants count again, as in Redis.
const KEPT_KEYS: usize = 64;

/// The keys of which each call removes those that have expired.
const SWEPT_KEYS: usize = 2;

/// Decides like [`Redisson`](super::Redisson), but in this process: for tests, and for a process
/// without Redis. It is cheap to clone: clones share their keys.
///
/// All keys have the same rate: at most that number of permits in any stretch of an interval, in
/// whole milliseconds. A refused caller asks again, since the format cannot reserve waits.
///
/// It uses tokio's clock, so a test with paused time controls it. A grant takes at most 100 bytes
/// until it expires.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
/// use tower_sluice_redisson::{PermitLog, Rate};
/// use tower_sluice::{Charge, Limiter, Outcome};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// // Ten a second: three at the start, seven 100 ms later.
/// let (millis, now) = (Duration::from_millis, Arc::new(AtomicU64::new(0)));
/// let clock = { let now = Arc::clone(&now); move || millis(now.load(Relaxed)) };
/// let orders = PermitLog::new(Rate::overall(10, millis(1_000)))?.clock(clock);
/// for (at, permits, outcome) in [
///     (0, 3, Outcome::Allow),
///     (100, 8, Outcome::Retry(millis(900))),
///     (100, 7, Outcome::Allow),
///     (999, 1, Outcome::Retry(millis(1))),
///     (1_000, 3, Outcome::Allow),
/// ] {
///     now.store(at, Relaxed);
///     assert_eq!(orders.check(&Charge::new("orders").cost(permits)).await?.outcome(), outcome);
/// }
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use]
pub struct PermitLog {
    rate: Rate,
    name: Arc<str>,
    max_keys: usize,
    clock: EpochClock,
    owner: Owner,
    logs: Arc<Logs>,
}

/// The logs of all keys.
#[derive(Default)]
struct Logs {
    state: Mutex<State>,
    /// The number of grants so far.
    grants: AtomicU64,
    /// Each makes a half of a key's hash. A collision of both is out of reach.
    hashers: [RandomState; 2],
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<[u64; 2], GrantLog>,
    /// The time of the last search for expired keys, in ms.
    swept_at: u64,
    /// The key at which the last call stopped its search.
    swept_to: [u64; 2],
    /// The longest interval of the limiters so far, in ms: each may count what is younger.
    longest: u64,
}

/// The grants of one key.
#[derive(Default)]
struct GrantLog {
    /// The permits of each grant, by its time in ms and its number.
    grants: BTreeMap<(u64, u64), u32>,
    /// The sum of all permits.
    taken: u64,
}

/// The payload of a reservation: the hash of the key, the time and the number of the grant.
type LoggedGrant = ([u64; 2], (u64, u64));

impl PermitLog {
    /// A limiter whose keys all have this rate, called `redisson`, for up to 100,000 keys. The type
    /// of the rate has no effect: one process is one client.
    ///
    /// # Errors
    ///
    /// If the rate is out of range: see [`Rate::overall`].
    pub fn new(rate: Rate) -> Result<Self, Error> {
        rate.arguments()?;
        let (since, epoch) = (Instant::now(), system_time());
        Ok(Self {
            rate,
            name: super::NAME.into(),
            max_keys: 100_000,
            clock: Arc::new(move || epoch + since.elapsed()),
            owner: Owner::new(),
            logs: Arc::default(),
        })
    }

    /// Sets the name of the limiter in its decisions. Default: `redisson`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the most keys with live grants. A further key is an error of kind
    /// [`Capacity`](ErrorKind::Capacity). Default: 100,000. At least 1. The result has keys of its
    /// own: it shares none with earlier clones.
    pub fn max_keys(self, keys: usize) -> Self {
        Self { max_keys: keys.max(1), ..self.detached() }
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: tokio's clock. The result has
    /// keys of its own: it shares none with earlier clones.
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self.detached() }
    }

    /// Detaches the keys and the reservations from those of clones.
    fn detached(self) -> Self {
        Self { logs: Arc::default(), owner: Owner::new(), ..self }
    }

    /// Makes a limiter of the same keys with another rate: taken permits stay taken.
    ///
    /// # Errors
    ///
    /// If the rate is out of range.
    pub fn with_rate(&self, rate: Rate) -> Result<Self, Error> {
        rate.arguments()?;
        Ok(Self { rate, ..self.clone() })
    }

    /// Releases permits of the oldest grants of `key`, and returns their number, like
    /// [`RRateLimiter::release`](super::RRateLimiter::release).
    pub fn release(&self, key: &str, permits: u64) -> u64 {
        let release = |log: &mut GrantLog, now| {
            let live = millis(now).saturating_add(1).saturating_sub(self.interval());
            let mut freed = 0;
            while freed < permits
                && let Some((&oldest, _)) = log.grants.range((live, 0)..).next()
            {
                freed += log.give_back(oldest, permits - freed);
            }
            freed
        };
        self.update(self.hash(key), release).unwrap_or_default()
    }

    fn hash(&self, key: &str) -> [u64; 2] {
        self.logs.hashers.each_ref().map(|hasher| hasher.hash_one(key))
    }

    fn interval(&self) -> u64 {
        millis(self.rate.interval())
    }

    /// Applies `change` to the grants of a key.
    fn update<T>(
        &self,
        key: [u64; 2],
        change: impl FnOnce(&mut GrantLog, Duration) -> T,
    ) -> Result<T, Error> {
        let mut state = lock(&self.logs.state);
        // Read under the lock: otherwise a decision that overtakes this one would be in its future.
        let now = (self.clock)();
        state.sweep(self.interval(), now);
        let State { by_key, swept_at, .. } = &mut *state;
        let is_new = by_key.len() >= self.max_keys && !by_key.contains_key(&key);
        if is_new && millis(now).abs_diff(*swept_at) >= SWEEP_PAUSE {
            *swept_at = millis(now);
            by_key.retain(|_, log| log.expires_at(self.interval()) > millis(now));
        }
        if is_new && by_key.len() >= self.max_keys {
            return Err(Error::new(ErrorKind::Capacity, "the memory is full of live keys"));
        }
        let mut log = by_key.remove(&key).unwrap_or_default();
        let result = change(&mut log, now);
        if !log.grants.is_empty() {
            by_key.insert(key, log);
        }
        Ok(result)
    }

    fn decide(&self, operation: Option<Operation>, charge: &Charge) -> Result<Decision, Error> {
        let key = self.hash(only_key(charge)?);
        let permits = match permits(charge.units()) {
            Err(error) if operation.is_some() => return Err(error),
            permits => permits.ok(),
        };
        self.update(key, |log, now| {
            if operation == Some(Operation::Reset) {
                *log = GrantLog::default();
                return self.decision(log, now, Outcome::Allow);
            }
            let is_penalty = operation.is_some() && permits != Some(0);
            let fits = |permits: &u32| is_penalty || u64::from(*permits) <= self.rate.permits();
            let Some(permits) = permits.filter(fits) else {
                // Expired grants stay, as in Redis.
                return self.decision(log, now, Outcome::Deny { retry_after: None });
            };
            log.expire(self.interval(), now);
            let missing = (log.taken + u64::from(permits)).saturating_sub(self.rate.permits());
            let outcome = match missing {
                0 => Outcome::Allow,
                _ if is_penalty => Outcome::Allow,
                _ => {
                    Outcome::Retry(until(now, log.free_at(missing).saturating_add(self.interval())))
                }
            };
            if permits == 0 || outcome != Outcome::Allow {
                return self.decision(log, now, outcome);
            }
            let grant = (millis(now), self.logs.grants.fetch_add(1, Relaxed));
            log.grants.insert(grant, permits);
            log.taken += u64::from(permits);
            let decision = self.decision(log, now, outcome);
            if is_penalty {
                return decision;
            }
            let granted: LoggedGrant = (key, grant);
            decision.with_reservation(Reservation::new(self.owner, permits.into(), granted))
        })
    }

    fn decision(&self, log: &GrantLog, now: Duration, outcome: Outcome) -> Decision {
        let taken = log.taken - log.expired(self.interval(), now);
        let remaining = self.rate.permits().saturating_sub(taken);
        let decision = Decision::new(outcome)
            .with_report(remaining, until(now, log.expires_at(self.interval())))
            .with_instant(now, 0);
        match self.rate.quota() {
            Some(quota) => decision.with_limiter(Arc::clone(&self.name), quota),
            None => decision,
        }
    }
}

impl Limiter for PermitLog {
    type Future = BoxedFuture;

    fn keys(&self) -> Option<usize> {
        Some(1)
    }

    fn check(&self, charge: &Charge) -> Self::Future {
        let (this, charge) = (self.clone(), charge.clone());
        Box::pin(async move { this.decide(None, &charge) })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        if !matches!(operation, Operation::Reset | Operation::Penalize) {
            return None;
        }
        let (this, charge) = (self.clone(), charge.clone());
        Some(Box::pin(async move { this.decide(Some(operation), &charge) }))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let cost = reservation.cost();
        if reservation.owner() != self.owner {
            return Err(reservation);
        }
        if actual >= cost {
            return Ok(Settlement::not_taken(actual - cost));
        }
        let (key, grant) = reservation.into_payload::<LoggedGrant>()?;
        let given_back = self.update(key, |log, _| log.give_back(grant, cost - actual));
        Ok(Settlement::gave_back(given_back.unwrap_or_default()))
    }
}

impl fmt::Debug for PermitLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, name, .. } = self;
        f.debug_struct("PermitLog").field("rate", rate).field("name", name).finish_non_exhaustive()
    }
}

impl State {
    /// Removes the next few keys if they have expired: otherwise abandoned keys would stay.
    fn sweep(&mut self, interval: u64, now: Duration) {
        self.longest = self.longest.max(interval);
        if self.by_key.len() <= KEPT_KEYS {
            return;
        }
        for _ in 0..SWEPT_KEYS {
            let mut rest = self.by_key.range((Excluded(self.swept_to), Unbounded));
            let Some((&key, log)) = rest.next() else {
                self.swept_to = [0; 2];
                return;
            };
            self.swept_to = key;
            if log.expires_at(self.longest) <= millis(now) {
                self.by_key.remove(&key);
            }
        }
    }
}

impl GrantLog {
    /// Removes expired grants.
    fn expire(&mut self, interval: u64, now: Duration) {
        while let Some(oldest) = self.grants.first_entry()
            && oldest.key().0.saturating_add(interval) <= millis(now)
        {
            self.taken -= u64::from(oldest.remove());
        }
    }

    /// The permits of expired grants that are not yet removed.
    fn expired(&self, interval: u64, now: Duration) -> u64 {
        let grants = self.grants.iter();
        let expired = grants.take_while(|((at, _), _)| at.saturating_add(interval) <= millis(now));
        expired.map(|(_, held)| u64::from(*held)).sum()
    }

    /// The time in ms at which all grants have expired.
    fn expires_at(&self, interval: u64) -> u64 {
        self.grants.last_key_value().map_or(0, |(newest, _)| newest.0.saturating_add(interval))
    }

    /// The time in ms of the oldest grant that, with those before it, has this number of permits.
    fn free_at(&self, permits: u64) -> u64 {
        let mut freed = 0;
        let frees = |(&(at, _), held): (&(u64, u64), &u32)| {
            freed += u64::from(*held);
            (freed >= permits).then_some(at)
        };
        self.grants.iter().find_map(frees).unwrap_or_default()
    }

    /// Gives back at most this number of permits of a grant, and returns their number.
    fn give_back(&mut self, grant: (u64, u64), permits: u64) -> u64 {
        let Entry::Occupied(mut grant) = self.grants.entry(grant) else { return 0 };
        let held = *grant.get();
        let part = u32::try_from(permits).unwrap_or(u32::MAX).min(held);
        match held - part {
            0 => drop(grant.remove()),
            rest => *grant.get_mut() = rest,
        }
        self.taken -= u64::from(part);
        part.into()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time until this instant, in ms since the Unix epoch.
fn until(now: Duration, millis: u64) -> Duration {
    Duration::from_millis(millis).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a limiter with this rate, and the number that is its clock in ms.
    fn log(permits: u64) -> (PermitLog, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let log = PermitLog::new(Rate::overall(permits, SECOND)).expect("a rate");
        (log.clock(move || Duration::from_millis(clock.load(Relaxed))), now)
    }

    fn take(log: &PermitLog, key: &str, permits: u64) -> Decision {
        log.decide(None, &Charge::new(key).cost(permits)).expect("decided")
    }

    fn keys(log: &PermitLog) -> usize {
        lock(&log.logs.state).by_key.len()
    }

    #[test]
    fn abandoned_keys_are_removed_by_the_calls_of_others() {
        let (log, now) = log(5);
        for key in 0..100 {
            let _ = take(&log, &key.to_string(), 1);
        }
        let shorter = log.with_rate(Rate::overall(5, SECOND / 10)).expect("a rate");
        now.store(999, Relaxed);
        for _ in 0..100 {
            let _ = take(&shorter, "live", 0);
        }
        assert_eq!(keys(&log), 100, "the longer rate counts them");
        now.store(1_000, Relaxed);
        for _ in 0..100 {
            let _ = take(&log, "live", 0);
        }
        assert!(keys(&log) <= KEPT_KEYS, "{}", keys(&log));
    }

    #[test]
    fn a_clock_and_a_bound_detach_from_clones() {
        let (log, _) = log(5);
        let reservation = take(&log, "a", 5).take_reservation().expect("a grant");
        for other in [log.clone().clock(|| SECOND), log.clone().max_keys(0)] {
            assert_eq!(take(&other, "a", 5).outcome(), Outcome::Allow);
            assert_eq!(other.release("a", 9), 5);
            assert_ne!(reservation.owner(), other.owner);
        }
        assert_eq!((log.release("a", 9), log.keys()), (5, Some(1)));
    }

    #[test]
    fn what_never_fits_is_denied_and_sees_live_grants_alone() {
        let (log, now) = log(u64::from(u32::MAX) * 4);
        let never = Outcome::Deny { retry_after: None };
        let _ = take(&log, "a", 3);
        now.store(500, Relaxed);
        let _ = take(&log, "a", 2);
        for (at, taken) in [(999, 5), (1_000, 2), (1_500, 0)] {
            now.store(at, Relaxed);
            let denied = take(&log, "a", 1 << 32);
            let remaining = u64::from(u32::MAX) * 4 - taken;
            assert_eq!((denied.outcome(), denied.remaining()), (never, Some(remaining)));
        }
        let penalty = log.decide(Some(Operation::Penalize), &Charge::new("a").cost(1 << 32));
        assert_eq!(penalty.expect_err("too many").kind(), ErrorKind::Request);
    }
}
