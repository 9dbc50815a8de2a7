//! The store of a [`Memory`](crate::Memory): its algorithm, its clock, and the keys in shards.

use std::borrow::Cow;
use std::hash::RandomState;
use std::sync::{Arc, OnceLock};

use super::clock::Clock;
use super::key_shard::{KeyState, Shard, hash};
use crate::algorithm::{Algorithm, Check, Refund, Ruling};
use crate::core::charge::Key;
use crate::core::decision::Origin;
use crate::core::mark::{Births, Mark};
use crate::core::quota::QuotaError;
use crate::core::reservation::ReservedUnits;
use crate::core::settlement::{Settled, Settlement};
use crate::core::sync::{Mutex, lock};
use crate::core::{Charge, Decision, Error, digest};
use crate::limiter::Operation;
use crate::limiter::charge_numbers::{block_time, units};
use crate::limiter::configured::{ConfiguredAlgorithm, Provenance};
use crate::limiter::line::SettleUnits;
use crate::limiter::queues::QueueTerms;
use crate::limiter::shards::Shards;

#[derive(Clone)]
pub(super) struct Store<A: Algorithm> {
    pub(super) named: ConfiguredAlgorithm<A>,
    clock: Clock,
    max_keys: usize,
    hasher: RandomState,
    /// Made for the first key, since many policies of a large table never have a key.
    shards: Arc<OnceLock<Shards<Shard<A::State>>>>,
}

impl<A: Algorithm> Store<A> {
    pub(super) fn new(named: ConfiguredAlgorithm<A>, max_keys: usize) -> Self {
        let (hasher, shards) = (RandomState::new(), Arc::default());
        // What is held is renewed by tokio's clock alone.
        let clock = Clock::tokio(!named.holds());
        Self { named, clock, max_keys, hasher, shards }
    }

    /// Returns the store of the same keys under another algorithm.
    pub(super) fn with_algorithm(&self, algorithm: A) -> Result<Self, QuotaError> {
        Ok(Self { named: self.named.with_algorithm(algorithm)?, ..self.clone() })
    }

    /// Returns the shard of a name, and the hash of the name.
    #[inline]
    pub(super) fn place(&self, name: &str) -> (&Mutex<Shard<A::State>>, u64) {
        let hash = hash(&self.hasher, name.as_bytes());
        let shard = |size| Shard::new(size, self.clock.is_monotonic(), self.hasher.clone());
        (self.shards.get_or_init(|| Shards::new(self.max_keys, shard)).of(hash), hash)
    }

    /// Forgets all keys, and sets the most keys that are held.
    pub(super) fn set_max_keys(&mut self, keys: usize) {
        // Reservations of the forgotten keys cannot be settled any more.
        self.named.forget_all();
        (self.max_keys, self.shards) = (keys, Arc::default());
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Forgets all keys, and decides by another clock.
    pub(super) fn decide_by(&mut self, clock: Clock) {
        self.set_max_keys(self.max_keys);
        self.clock = clock;
    }

    pub(super) fn len(&self) -> usize {
        self.shards.get().into_iter().flat_map(Shards::each).map(|shard| shard.len()).sum()
    }

    /// Decides, and takes the key and the quota out of the charge.
    #[inline]
    pub(super) fn decide(self: &Arc<Self>, charge: &mut Charge) -> Result<Decision, Error> {
        let check = self.named.read(charge)?;
        let rule = self.named.rule(charge.own_quota())?;
        let cost = check.cost;
        let name = digest::short(charge.key());
        let store = || Arc::clone(self) as Arc<dyn SettleUnits>;
        let (key, quota) = (|| name.to_string(), charge.own_quota());
        if let Some(decision) = self.named.take_spare(key, quota, check, store) {
            return Ok(decision);
        }
        if charge.retried_for().is_zero()
            && let Some(decision) = self.named.join_queue(&name, || QueueTerms::of(charge), check)
        {
            return Ok(decision);
        }
        let (known, max_wait) = (self.named.lines.known(), check.max_wait);
        // Not returned through `update`: it is long, and each move of it waits for the last one.
        let mut answer = None;
        let now = self.update(&name, |now, kept| {
            if let Some(until) = kept.block_end(now) {
                answer = Some(A::blocked(&rule, None, now, check, &[until]));
                return (now, None);
            }
            let (birth, paused, state) = (kept.birth(), kept.pause_end(now), &mut kept.state);
            let answer =
                answer.insert(A::step(&rule, state, now, check.paused_until(paused.as_slice())));
            if birth > 0 {
                answer.mark = answer.mark.take().map(|mark| mark.with_births(&[birth]));
            }
            let changed = state.as_ref().filter(|_| answer.mark.is_some());
            (now, changed.map(|state| A::expires_at(&rule, state)))
        })?;
        let answer = answer.expect("the closure has run");
        self.named.note_pause(&name, &answer, now);
        let may_queue = self.named.may_queue(check) && !answer.is_blocked;
        let queue = may_queue.then(|| (name.to_string(), QueueTerms::of(charge)));
        let key = match name {
            Cow::Owned(digest) => Key::Owned(digest),
            Cow::Borrowed(_) => charge.take_key(),
        };
        let (from, quota) = (local_provenance(now), charge.quota.take());
        let asked = (cost, &charge.keep_free);
        let mut decision = self.named.decision(quota, asked, answer, from, key);
        self.named.line_up(&mut decision, &charge.keep_free, known, store);
        if let Some((key, terms)) = queue {
            decision = self.named.queue_up(decision, (&key, terms), max_wait);
        }
        Ok(decision)
    }

    pub(super) fn change(&self, operation: Operation, charge: &Charge) -> Result<Decision, Error> {
        let asked = self.named.read(charge)?;
        let rule = self.named.rule(charge.own_quota())?;
        if operation == Operation::Grant {
            self.named.check_grant(&rule)?;
        }
        let name = digest::short(charge.key());
        // Of a lease, for a charge of before a reset.
        let births = charge.extension().map(|Births(births)| &**births);
        let (answer, now) = self.update(&name, |now, kept| {
            let (is_changed, not_taken) = match operation {
                Operation::Estimate => (false, 0),
                Operation::Penalize if kept.contradicts(births) => (false, asked.cost),
                Operation::Penalize => {
                    let answer = A::penalize(&rule, &mut kept.state, now, asked.cost);
                    (answer.mark.is_some(), answer.not_taken)
                }
                Operation::Grant => {
                    let answer = A::grant(&rule, &mut kept.state, now, asked.cost);
                    (answer.mark.is_some(), 0)
                }
                Operation::Reset => {
                    self.named.lines.forget(&name, true);
                    kept.reset(now);
                    (true, 0)
                }
                Operation::Block(time) => {
                    self.named.lines.forget(&name, false);
                    kept.block(now + block_time(time));
                    // A state lasts as long as before, whichever rule it has.
                    (kept.state.is_none(), 0)
                }
                Operation::Pause(time) => {
                    self.named.lines.forget(&name, false);
                    kept.pause(now + block_time(time));
                    (kept.state.is_none(), 0)
                }
                Operation::Unblock => {
                    kept.unblock();
                    self.named.lines.resume(&name);
                    (false, 0)
                }
            };
            let check = if operation == Operation::Estimate { asked } else { Check::PEEK };
            let (paused, state) = (kept.pause_end(now), kept.state.as_ref());
            let check = check.paused_until(paused.as_slice());
            let answer = match kept.block_end(now) {
                Some(until) => A::blocked(&rule, None, now, check, &[until]),
                None => A::estimate(&rule, state, now, check),
            };
            let expires_at = || state.map_or(now, |state| A::expires_at(&rule, state));
            ((Ruling { not_taken, ..answer }, now), is_changed.then(expires_at))
        })?;
        self.named.note_pause(&name, &answer, now);
        if operation != Operation::Estimate {
            // Not under the lock: a waker may drop a task that settles.
            self.named.lines.queues.release(&name);
        }
        let quota = charge.own_quota().cloned();
        let from = local_provenance(now);
        Ok(self.named.decision(quota, (0, &charge.keep_free), answer, from, Key::Constant("")))
    }

    /// Refunds or takes the difference between a reservation's units and the final cost.
    pub(super) fn settle(
        &self,
        reserved: &ReservedUnits,
        cost: u64,
        actual: u64,
    ) -> Result<Settled, Error> {
        let ReservedUnits { key, quota, mark } = reserved;
        let rule = self.named.rule_of(quota.as_ref())?;
        if actual == cost && !A::holds(&rule) {
            return Ok(Settled::default());
        }
        let (cost, actual) = (units(cost), units(actual));
        let refund = Refund { units: cost - actual, cost, mark };
        let nothing = Settled::of(refund.units.min(0));
        self.update(key.as_str(), |now, kept| {
            let is_other = match refund.units {
                0.. => mark.birth(0) != kept.birth(),
                // A key without a birth has expired since, which ends no debt.
                _ => kept.contradicts(Some(mark.births())),
            };
            if is_other {
                return (nothing, None);
            }
            // A block refuses checks, and nothing else.
            let state = &mut kept.state;
            let settled = A::settle(&rule, state, now, &refund);
            let changed = state.as_ref().filter(|_| settled.is_some());
            (settled.map_or(nothing, Settled::of), changed.map(|state| A::expires_at(&rule, state)))
        })
    }

    /// Holds the units of a charge with this mark as if they were charged now. Returns their mark,
    /// and false if they were no longer held.
    pub(super) fn renew(
        &self,
        reserved: &ReservedUnits,
        cost: i64,
        mark: &Mark,
    ) -> Result<(Mark, bool), Error> {
        let rule = self.named.rule_of(reserved.quota.as_ref())?;
        self.update(reserved.key.as_str(), |now, kept| {
            if mark.birth(0) != kept.birth() {
                return ((mark.clone(), false), None);
            }
            let (next, is_held) = A::renew(&rule, &mut kept.state, now, cost, mark);
            let changed = kept.state.as_ref().map(|state| A::expires_at(&rule, state));
            ((next.with_births(mark.births()), is_held), changed)
        })
    }

    /// Applies `change` to the key of a name at the current time, like [`Shard::update`].
    #[inline]
    pub(super) fn update<T>(
        &self,
        name: &str,
        change: impl FnOnce(i64, &mut KeyState<A::State>) -> (T, Option<i64>),
    ) -> Result<T, Error> {
        let (shard, hash) = self.place(name);
        let mut shard = lock(shard);
        // Read under the lock: otherwise a decision that overtakes this one would be in its future.
        let now = self.clock.now()?;
        shard.maintain(now);
        shard.update((hash, name.as_bytes()), now, |kept| change(now, kept))
    }
}

impl<A: Algorithm> SettleUnits for Store<A> {
    fn settle_units(&self, reserved: &ReservedUnits, cost: u64, actual: u64) -> Settlement {
        Settlement::from(self.settle(reserved, cost, actual))
    }
}

/// Makes the provenance of a decision of this process.
pub(super) fn local_provenance(now: i64) -> Provenance {
    Provenance { now, batch_position: 0, origin: Origin::Local }
}
