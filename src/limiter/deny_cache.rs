//! A limiter that repeats its refusals, so that a refused key costs no call.

mod cache;
mod cached_refusal;
mod refusal_shard;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

pub use self::cache::Cache;
use self::cache::Miss;
use self::cached_refusal::{KeyHash, Question};
use super::Operation;
use super::wrapped::{Around, Begin, Wrapped};
use crate::core::reservation::{Reservation, SEVERAL};
use crate::core::settlement::Settlement;
use crate::core::{Charge, Decision, Error};

/// A limiter that repeats its refusals. Made by
/// [`LimiterExt::deny_cache`](crate::LimiterExt::deny_cache).
///
/// A refusal says when the charge would be admitted. Until then the cache repeats the refusal, with
/// the remaining time, and does not ask the inner limiter. A refused key costs each process one
/// call in [`max_age`](DenyCache::max_age).
///
/// # What is repeated
///
/// A denial with a time to come back is repeated until then, but at most for `max_age`. A denial
/// without a time, a [`Retry`](crate::Outcome::Retry), an admission and an error never are. A
/// charge of the refused key asks the inner limiter if it
///
/// - has a smaller cost, or [leaves fewer units free](Charge::keep_free): it might fit;
/// - has a longer `max_wait`, or one until the end of the refusal: a wait might be reserved;
/// - has another [`quota`](Charge::quota), or [`several`](Charge::several) keys that were not
///   refused together;
/// - would only be answered by an older refusal of the key: the cache keeps the newest;
/// - is a peek, or an operation, such as a block.
///
/// A repeated refusal has [`Origin::Cache`](crate::limiter::Origin::Cache). Its `retry_after` and
/// `reset_after` count down. For a larger cost, `retry_after` is that of the refused cost, so it
/// may be too short.
///
/// # When it forgets
///
/// A settlement, the admission of another charge, and an operation other than an estimate, through
/// this limiter or a clone, end the key's refusal at once. After a settlement, and after a charge
/// without an answer, refusals of the next second are repeated for at most 100 ms. So a key whose
/// charges are always settled or dropped costs up to ten calls a second.
///
/// Other changes take effect after `max_age`, by default 1 s:
///
/// - all changes by other processes, and changes through the inner limiter itself;
/// - a refund or a reset of another key, if both keys share a member of a combination, or if the
///   inner limiter chooses keys or quotas itself;
/// - a refund that reaches the store more than 1 s late.
///
/// Put it around a combination, such as [`AllAtOnce`](crate::redis::AllAtOnce), not around its
/// members.
///
/// # Cost and bounds
///
/// A repeated refusal takes about 0.2 µs. The cache holds 100,000 keys unless
/// [`max_keys`](DenyCache::max_keys) is set, of at most 400 bytes each, and more if a charge states
/// a tuple of quotas; after the first settlement, 400 KB more. When it is full, an older one goes.
///
/// It uses tokio's clock. So do not put it around a limiter with your own
/// [`clock`](crate::Memory::clock). Around [`Redisson`](https://docs.rs/tower-sluice-redisson) it
/// has no effect, since that answers `Retry`.
pub type DenyCache<L> = Wrapped<L, Arc<Cache>>;

impl<L> DenyCache<L> {
    /// Sets the longest time for which a refusal is repeated, and forgets all refusals. Clones keep
    /// theirs. Default: 1 s.
    ///
    /// A refund or a reset by another process takes effect within this time. A refused key costs
    /// one call in this time, with `Duration::MAX` none until its `retry_after` is over. With 0
    /// nothing is repeated.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.around = Arc::new(Cache::new(age, self.around.max_keys));
        self
    }

    /// Sets the most refused keys that are held, at least 1, and forgets all refusals. Clones keep
    /// theirs. Default: 100,000.
    ///
    /// Keys are spread over shards of equal size, so a large cache can be full a few percent
    /// early.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.around = Arc::new(Cache::new(self.around.max_age, keys.max(1)));
        self
    }

    /// The number of refused keys held, including expired refusals that are not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.around.len()
    }

    /// Returns true if no refused key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A question without an answer yet.
pub struct OpenQuestion {
    cache: Arc<Cache>,
    afterwards: Afterwards,
}

enum Afterwards {
    /// Keeps the answer if it is a refusal.
    Learn(Miss),
    /// Forgets the key, which was changed.
    Forget(NonZeroU64),
}

debug_by_name!([] OpenQuestion);

impl Around for Arc<Cache> {
    type Open = OpenQuestion;

    fn open(&self, charge: &Charge) -> Begin<OpenQuestion> {
        match Question::of(charge).map(|question| self.look_up(question)) {
            Some(Ok(refusal)) => Begin::Answered(refusal),
            Some(Err(miss)) => {
                let (cache, afterwards) = (Arc::clone(self), Afterwards::Learn(miss));
                Begin::Seen(OpenQuestion { cache, afterwards })
            }
            None => Begin::Unseen,
        }
    }

    fn open_operation(&self, operation: Operation, charge: &Charge) -> Begin<OpenQuestion> {
        match operation {
            Operation::Estimate => Begin::Unseen,
            Operation::Penalize
            | Operation::Grant
            | Operation::Reset
            | Operation::Block(_)
            | Operation::Pause(_)
            | Operation::Unblock => {
                let afterwards = Afterwards::Forget(KeyHash::of(charge).place);
                Begin::Seen(OpenQuestion { cache: Arc::clone(self), afterwards })
            }
        }
    }

    fn close(open: OpenQuestion, mut answer: Result<Decision, Error>) -> Result<Decision, Error> {
        match (&mut answer, open) {
            (Ok(decision), OpenQuestion { cache, afterwards: Afterwards::Learn(miss) }) => {
                cache.learn(miss, decision);
            }
            (Ok(_), OpenQuestion { cache, afterwards: Afterwards::Forget(key) }) => {
                cache.forget(key);
            }
            (Err(_), open) => Self::leave(open),
        }
        answer
    }

    /// Its charge may be taken and refunded, or its reset may be done.
    fn leave(OpenQuestion { cache, afterwards }: OpenQuestion) {
        match afterwards {
            Afterwards::Learn(miss) => cache.unanswered(&miss),
            Afterwards::Forget(key) => cache.forget_settling(key),
        }
    }

    /// Forgets the key, since its time to come back may change. The key is known only if the
    /// reservation came from this limiter.
    fn settle(
        &self,
        reservation: Reservation,
        actual: u64,
        settle: impl FnOnce(Reservation) -> Result<Settlement, Reservation>,
    ) -> Result<Settlement, Reservation> {
        // Units that were held may be free again, even if all were used.
        let is_changed = actual != reservation.cost() || reservation.is_held();
        let charged = reservation.charged;
        let settled = settle(reservation);
        match charged {
            _ if !is_changed => {}
            None if settled.is_err() => {}
            None | Some(SEVERAL) => self.forget_all(),
            Some(key) => self.forget_settling(key),
        }
        settled
    }
}

#[cfg(all(test, interleavings))]
mod interleavings;
