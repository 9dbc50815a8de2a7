//! The kept refusals, and the charges that they answer.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::charge::KeepFree;
use crate::core::decision::Origin;
use crate::core::quota::Quotas;
use crate::core::{Charge, Decision, Outcome};
use crate::limiter::charge_numbers::{check_cost, one_key};

/// The longest time for which a refusal is repeated while a change of its key may not have reached
/// the store.
const SETTLING_AGE: Duration = Duration::from_millis(100);

pub(super) struct Question {
    pub(super) key: KeyHash,
    cost: u64,
    max_wait: Duration,
    quota: Option<Quotas>,
    keep_free: KeepFree,
    pub(super) asked_at: Instant,
}

impl Question {
    /// Returns `None` for a charge that only the inner limiter answers: a peek, or an invalid
    /// charge.
    pub(super) fn of(charge: &Charge) -> Option<Self> {
        if charge.units() == 0 || !has_keys(charge) || check_cost(charge).is_err() {
            return None;
        }
        Some(Self {
            key: KeyHash::of(charge),
            cost: charge.units(),
            max_wait: charge.longest_wait().unwrap_or_default(),
            quota: charge.own_quota().cloned(),
            keep_free: charge.keep_free.clone(),
            asked_at: Instant::now(),
        })
    }
}

/// Returns true if the inner limiter accepts each key. A key that is too long is not hashed.
fn has_keys(charge: &Charge) -> bool {
    match charge.has_parts() {
        true => charge.parts().iter().flatten().all(has_keys),
        false => one_key(charge).is_ok(),
    }
}

/// A denied question, and the answer.
pub(super) struct CachedRefusal {
    pub(super) question: Question,
    kept_at: Instant,
    /// The time for which the answer is repeated, counted from the question.
    lasts: Duration,
    decision: Decision,
}

impl CachedRefusal {
    /// Returns `None` if the decision must not be repeated. Only a denial with a time to come back
    /// is repeated. A denial from an inner cache is not repeated, since it would become older than
    /// `max_age`.
    pub(super) fn of(question: Question, decision: &Decision, max_age: Duration) -> Option<Self> {
        let Outcome::Deny { retry_after: Some(retry_after) } = decision.outcome() else {
            return None;
        };
        if decision.origin() == Origin::Cache || decision.was_retry {
            return None;
        }
        let lasts = Some(retry_after.min(max_age)).filter(|lasts| !lasts.is_zero())?;
        let (kept_at, decision) = (Instant::now(), decision.repeated(Duration::ZERO));
        Some(Self { question, kept_at, lasts, decision })
    }

    pub(super) fn place(&self) -> NonZeroU64 {
        self.question.key.place
    }

    /// Ends the refusal at most 100 ms after its question.
    pub(super) fn end_soon(&mut self) {
        self.lasts = self.lasts.min(SETTLING_AGE);
    }

    /// Ends the refusal at most 100 ms after `now`, if it was kept at `since` or later.
    pub(super) fn end_soon_if_kept_since(&mut self, since: Instant, now: Instant) {
        if self.kept_at >= since {
            self.lasts = self.lasts.min(self.age(now) + SETTLING_AGE);
        }
    }

    /// Returns true if the inner limiter must be asked again for every charge.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.age(now) >= self.lasts
    }

    /// Returns the answer that the inner limiter would give to another question, if that is
    /// certain.
    ///
    /// A charge with the same or a larger cost, which leaves as many units free or more, does not
    /// fit earlier. But a wait until the instant
    /// at which the charge fits could be reserved.
    pub(super) fn answer(&self, other: &Question) -> Option<Decision> {
        let (age, refused) = (self.age(other.asked_at), &self.question);
        let retry_after = self.decision.retry_after().unwrap_or_default();
        let is_refused = other.cost >= refused.cost
            && other.max_wait <= refused.max_wait
            && other.max_wait < retry_after.saturating_sub(age)
            && other.keep_free.covers(&refused.keep_free)
            && other.quota == refused.quota;
        is_refused.then(|| self.decision.repeated(age))
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.question.asked_at)
    }
}

/// A hash of a key, with 128 bits. The seeds are random, so callers cannot find two keys with equal
/// hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash {
    /// The place of the key. A reservation keeps this part.
    pub(super) place: NonZeroU64,
    /// Distinguishes keys with equal places, and charges of the same parts with different costs or
    /// quotas.
    pub(super) check: u64,
}

/// The seeds of all caches of a process. They are the same, so that a cache inside of another one
/// knows the same key of a reservation.
static SEEDS: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::new(), RandomState::new()]);

impl KeyHash {
    pub(super) fn of(charge: &Charge) -> Self {
        let [place, check] = if charge.has_parts() {
            let mut hashers = SEEDS.each_ref().map(RandomState::build_hasher);
            hash_keys(charge, &mut hashers[0]);
            hash_keys(charge, &mut hashers[1]);
            charge.hash_terms_of_parts(&mut hashers[1]);
            hashers.map(|hasher| hasher.finish())
        } else {
            SEEDS.each_ref().map(|seed| seed.hash_one(charge.key()))
        };
        Self { place: NonZeroU64::new(place).unwrap_or(NonZeroU64::MIN), check }
    }
}

/// Hashes the keys of parts. No text begins with the first byte, so the hash of a single key
/// differs.
fn hash_keys(charge: &Charge, hasher: &mut impl Hasher) {
    hasher.write_u8(0xff);
    hasher.write_usize(charge.parts().len());
    for part in charge.parts() {
        match part {
            None => hasher.write_u8(0),
            Some(part) if part.has_parts() => hash_keys(part, hasher),
            Some(part) => {
                hasher.write_u8(1);
                part.key().hash(hasher);
            }
        }
    }
}
