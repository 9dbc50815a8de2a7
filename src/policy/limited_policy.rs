//! A policy with its limiter, its share of this process and its switch.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(feature = "redis")]
use std::time::Duration;

use super::checked_policy::Policy;
use super::chosen_algorithm::Choice;
use crate::algorithm::{Algorithm, AnyAlgorithm};
use crate::limiter::charge_numbers::Clock;
#[cfg(feature = "redisson")]
use crate::limiter::futures::MemoryFuture;
use crate::limiter::memory::Clock as MemoryClock;
use crate::limiter::{Boxed, LimiterExt, Switch, SwitchMode};
#[cfg(feature = "redisson")]
use crate::limiter::{Limiter, Operation};
#[cfg(feature = "redisson")]
use crate::redisson::{PermitLog, Redisson};
#[cfg(feature = "redisson")]
use crate::reservation::Reservation;
#[cfg(feature = "redisson")]
use crate::settlement::Settlement;
use crate::{Charge, Memory};
#[cfg(feature = "redis")]
use crate::{Pool, Redis};

/// A policy with its limiters and its switch.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) policy: Policy,
    pub(super) gate: Gate,
    /// The number of the gate, the same in each table that keeps the gate.
    pub(super) gate_id: u64,
    /// The gate as a limiter.
    pub(super) limiter: Boxed,
    /// The limiter of this process, which decides while the store cannot.
    pub(super) share: Option<Share>,
    pub(super) switch: Switch,
}

/// The local share of a policy.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) limiter: Memory<AnyAlgorithm>,
    /// Its number, which no other share and no gate has. It is the same in each table that keeps
    /// the share.
    pub(super) id: u64,
}

impl Armed {
    /// Makes the limiters of a policy, which keep the states of the one `before` it.
    pub(super) fn new(
        policy: Policy,
        store: &Store,
        switch: Switch,
        before: Option<&Armed>,
    ) -> Self {
        let is_same = |before: &&Armed| before.policy.choice == policy.choice;
        let (gate, gate_id) = match before.filter(is_same) {
            Some(before) => (before.gate.clone(), before.gate_id),
            None => {
                let gate = Gate::new(&policy, store, before.map(|before| &before.gate));
                (gate, next_id())
            }
        };
        let share = policy.share.map(|algorithm| {
            let before =
                before.and_then(|before| Some((before.policy.share?, before.share.as_ref()?)));
            match before {
                Some((same, share)) if same == algorithm => share.clone(),
                before => {
                    let kept =
                        before.and_then(|(_, one)| one.limiter.with_algorithm(algorithm).ok());
                    let limiter = kept.unwrap_or_else(|| store.memory(policy.name(), algorithm));
                    Share { limiter, id: next_id() }
                }
            }
        });
        let limiter = gate.limiter();
        Self { policy, gate, gate_id, limiter, share, switch }
    }

    /// Returns the most permissive mode of its row, its own switch and the global one.
    pub(super) fn mode(&self, global: SwitchMode) -> SwitchMode {
        let row = match (self.policy.is_enabled(), self.policy.is_shadow()) {
            (false, _) => SwitchMode::Off,
            (true, true) => SwitchMode::Shadow,
            (true, false) => SwitchMode::On,
        };
        let all = [row, self.switch.mode(), global];
        let is = |mode| all.contains(&mode);
        match () {
            () if is(SwitchMode::Off) => SwitchMode::Off,
            () if is(SwitchMode::Shadow) => SwitchMode::Shadow,
            () => SwitchMode::On,
        }
    }

    /// The charge of a key.
    pub(super) fn charge(&self, key: String) -> Charge {
        Charge::new(self.gate.name_of_key(&self.policy, key))
    }
}

/// A number that no gate and no share has had.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// A policy that takes a request, and the charge of the request under it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) armed: Arc<Armed>,
    pub(super) charge: Charge,
}

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
            Gate::Redisson(_) if policy.key.is_global() => policy.name().to_owned(),
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
    let keyed = javas.iter().filter(|policy| !policy.key.is_global());
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
