//! The limiter of one policy.

use std::collections::HashSet;
#[cfg(feature = "redis")]
use std::time::Duration;

use super::choice::Choice;
use super::rule::Policy;
#[cfg(feature = "redisson")]
use crate::Charge;
use crate::Memory;
use crate::algorithm::{Algorithm, AnyAlgorithm};
use crate::limiter::charge_numbers::Clock;
#[cfg(feature = "redisson")]
use crate::limiter::futures::MemoryFuture;
use crate::limiter::memory::Clock as MemoryClock;
use crate::limiter::{Boxed, LimiterExt};
#[cfg(feature = "redisson")]
use crate::limiter::{Limiter, Operation};
#[cfg(feature = "redisson")]
use crate::redisson::{PermitLog, Redisson};
#[cfg(feature = "redisson")]
use crate::reservation::Reservation;
#[cfg(feature = "redisson")]
use crate::settlement::Settlement;
#[cfg(feature = "redis")]
use crate::{Pool, Redis};

/// The place where policies count the taken units, and the clock that they decide by.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) place: Place,
    /// The most live keys that a limiter of this process has.
    pub(super) max_keys: usize,
    #[cfg(feature = "redis")]
    pub(super) decision_timeout: Duration,
    pub(super) clock: Option<Clock>,
    /// The clock of this process, one for all policies: they decide together.
    pub(super) own_clock: MemoryClock,
}

#[derive(Clone)]
pub(super) enum Place {
    Memory,
    #[cfg(feature = "redis")]
    Redis(Pool),
}

impl Store {
    /// A limiter in this process.
    pub(super) fn memory<A: Algorithm>(&self, name: &str, algorithm: A) -> Memory<A> {
        let memory = Memory::new(name, algorithm).max_keys(self.max_keys);
        match self.clock.clone() {
            Some(clock) => memory.clock(move || clock()),
            None => memory.on_clock(self.own_clock.clone()),
        }
    }
}

/// The limiter that decides about the keys of one policy.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    Memory(Memory<AnyAlgorithm>),
    #[cfg(feature = "redis")]
    Redis(Redis<AnyAlgorithm>),
    /// Java's arithmetic in this process.
    #[cfg(feature = "redisson")]
    PermitLog(Memory<PermitLog>),
    #[cfg(feature = "redisson")]
    Redisson(Redisson),
}

impl Gate {
    /// The limiter of a policy, which keeps the states of the one `before` it as far as they are of
    /// the same kind.
    pub(super) fn new(policy: &Policy, store: &Store, before: Option<&Gate>) -> Self {
        #[cfg(feature = "redis")]
        let fits = "a policy's algorithm follows its quota";
        match (policy.choice, &store.place) {
            (Choice::Any(algorithm), Place::Memory) => {
                let kept = match before {
                    Some(Gate::Memory(memory)) => memory.with_algorithm(algorithm).ok(),
                    _ => None,
                };
                Gate::Memory(kept.unwrap_or_else(|| store.memory(policy.name(), algorithm)))
            }
            #[cfg(feature = "redis")]
            (Choice::Any(algorithm), Place::Redis(pool)) => {
                let limiter = Redis::try_new(policy.name(), algorithm, pool.clone()).expect(fits);
                let limiter = limiter.decision_timeout(store.decision_timeout);
                Gate::Redis(match store.clock.clone() {
                    Some(clock) => limiter.clock(move || clock()),
                    None => limiter,
                })
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(_), Place::Memory) => {
                let algorithm = PermitLog::new(policy.quota());
                let kept = match before {
                    Some(Gate::PermitLog(memory)) => memory.with_algorithm(algorithm).ok(),
                    _ => None,
                };
                Gate::PermitLog(kept.unwrap_or_else(|| store.memory(policy.name(), algorithm)))
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(rate), Place::Redis(pool)) => {
                let limiter = Redisson::new(pool.clone()).name(policy.name()).default_rate(rate);
                let limiter = limiter.decision_timeout(store.decision_timeout);
                Gate::Redisson(match store.clock.clone() {
                    Some(clock) => limiter.clock(move || clock()),
                    None => limiter,
                })
            }
        }
    }

    /// The limiter of this process, if it is one that decides with others.
    pub(super) fn memory(&self) -> Option<&Memory<AnyAlgorithm>> {
        match self {
            Gate::Memory(memory) => Some(memory),
            #[cfg(feature = "redis")]
            _ => None,
        }
    }

    /// The limiter in Redis, if it is one that decides with others.
    #[cfg(feature = "redis")]
    pub(super) fn redis(&self) -> Option<&Redis<AnyAlgorithm>> {
        match self {
            Gate::Redis(redis) => Some(redis),
            _ => None,
        }
    }

    /// The same as a limiter.
    pub(super) fn limiter(&self) -> Boxed {
        match self {
            Gate::Memory(limiter) => limiter.clone().boxed(),
            #[cfg(feature = "redis")]
            Gate::Redis(limiter) => limiter.clone().boxed(),
            #[cfg(feature = "redisson")]
            Gate::PermitLog(limiter) => WithoutDebts(limiter.clone()).boxed(),
            #[cfg(feature = "redisson")]
            Gate::Redisson(limiter) => limiter.clone().boxed(),
        }
    }

    /// Returns true if its decisions can be made together with those of others, all or nothing.
    pub(super) fn joins_others(&self) -> bool {
        match self {
            Gate::Memory(_) => true,
            #[cfg(feature = "redis")]
            Gate::Redis(_) => true,
            #[cfg(feature = "redisson")]
            Gate::PermitLog(_) | Gate::Redisson(_) => false,
        }
    }

    /// The name of a client's key in this limiter.
    pub(super) fn name_of_key(&self, policy: &Policy, key: String) -> String {
        let _ = policy;
        match self {
            // The key is the name of Java's limiter, and shared by all policies.
            #[cfg(feature = "redisson")]
            Gate::Redisson(_) if policy.key().is_global() => policy.name().to_owned(),
            #[cfg(feature = "redisson")]
            Gate::Redisson(_) => {
                let mut name = format!("{}:", policy.name());
                crate::limiter::redis::push_verbatim_or_digest(&mut name, &key);
                name
            }
            _ => key,
        }
    }
}

/// The policies of Redisson whose limiter may be that of a client's key under another one.
pub(super) fn shared_limiters(policies: &[Policy]) -> Vec<(&Policy, String)> {
    #[cfg(feature = "redisson")]
    let is_javas = |policy: &&Policy| matches!(policy.choice, Choice::Redisson(_));
    #[cfg(not(feature = "redisson"))]
    let is_javas = |_: &&Policy| false;
    let javas: Vec<_> = policies.iter().filter(is_javas).collect();
    let keyed = javas.iter().filter(|policy| !policy.key().is_global());
    let keyed: HashSet<&str> = keyed.map(|policy| policy.name()).collect();
    let mut shared = Vec::new();
    for policy in javas {
        let name = policy.name();
        let mut beginnings = name.match_indices(':').map(|(end, _)| &name[..end]);
        if let Some(other) = beginnings.find(|beginning| keyed.contains(beginning)) {
            shared.push((policy, format!("a key of the policy {other:?} may have this limiter")));
        }
    }
    shared
}

/// Like Java's limiter, which has no room for a debt.
#[cfg(feature = "redisson")]
struct WithoutDebts(Memory<PermitLog>);

#[cfg(feature = "redisson")]
impl Limiter for WithoutDebts {
    type Future = MemoryFuture<PermitLog>;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.0.check(charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        match actual > reservation.cost() {
            true => Err(reservation),
            false => self.0.settle(reservation, actual),
        }
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.0.operate(operation, charge)
    }
}
