//! A policy with its limiter, its local share and its switch.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::checked_policy::Policy;
use super::chosen_algorithm::Choice;
use crate::algorithm::{Algorithm, AnyAlgorithm};
use crate::limiter::memory::Clock as MemoryClock;
use crate::limiter::{Boxed, LimiterExt, Switch, SwitchMode};
#[cfg(feature = "redisson")]
use crate::redisson::{PermitLog, Redisson};
use crate::{Charge, Error, Memory};
#[cfg(feature = "redis")]
use crate::{Pool, Redis};

/// A policy with its limiters and its switch.
#[derive(Debug)]
pub(super) struct LimitedPolicy {
    pub(super) policy: Policy,
    pub(super) limiter: PolicyLimiter,
    /// The limiter of this process, which decides while the store cannot.
    pub(super) share: Option<PolicyLimiter>,
    pub(super) switch: Switch,
    /// A digest of the settings that its decisions depend on. Equal rows have equal digests in
    /// every process of one build.
    pub(super) digest: u64,
}

impl LimitedPolicy {
    /// Makes the limiters of a policy. They keep the states of the policy `before`.
    pub(super) fn new(
        policy: Policy,
        store: &Store,
        switch: Switch,
        before: Option<&LimitedPolicy>,
    ) -> Self {
        let limiter = before.map(|before| &before.limiter);
        let limiter = PolicyLimiter::new(&policy, policy.choice, store, &store.place, limiter);
        let share = policy.share.map(|algorithm| {
            let before = before.and_then(|before| before.share.as_ref());
            PolicyLimiter::new(&policy, Choice::Any(algorithm), store, &Place::Memory, before)
        });
        let mut digest = DefaultHasher::new();
        format!("{:?} {:?} {:?}", policy.choice, policy.max_wait, policy.on_error)
            .hash(&mut digest);
        Self { policy, limiter, share, switch, digest: digest.finish() }
    }

    /// Returns the most permissive mode of its row, its own switch and the global one.
    pub(super) fn mode(&self, global: SwitchMode) -> SwitchMode {
        let row = match (self.policy.is_enabled(), self.policy.is_shadow()) {
            (false, _) => SwitchMode::Off,
            (true, true) => SwitchMode::Shadow,
            (true, false) => SwitchMode::On,
        };
        let all = [row, self.switch.mode(), global];
        let permissive = [SwitchMode::Off, SwitchMode::Shadow];
        permissive.into_iter().find(|mode| all.contains(mode)).unwrap_or(SwitchMode::On)
    }

    /// Returns the charge of a client's key.
    pub(super) fn charge(&self, key: String) -> Charge {
        Charge::new(match self.limiter.kind {
            // The key is the name of Java's limiter, which all policies share.
            #[cfg(feature = "redisson")]
            Kind::Redisson if self.policy.key.is_global() => self.policy.name().to_owned(),
            #[cfg(feature = "redisson")]
            Kind::Redisson => {
                let mut name = format!("{}:", self.policy.name());
                crate::limiter::redis::push_verbatim_or_digest(&mut name, &key);
                name
            }
            _ => key,
        })
    }
}

/// A policy that takes a request, and the charge of the request under it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) limited: Arc<LimitedPolicy>,
    pub(super) charge: Charge,
}

/// The place where policies count the taken units, and the clock of their decisions.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) place: Place,
    /// The most live keys of a limiter in this process.
    pub(super) max_keys: usize,
    #[cfg(feature = "redis")]
    pub(super) decision_timeout: Duration,
    pub(super) clock: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
    /// The clock of this process. All policies use it, since they decide together.
    pub(super) own_clock: MemoryClock,
}

#[derive(Clone)]
pub(super) enum Place {
    Memory,
    #[cfg(feature = "redis")]
    Redis(Pool),
}

impl Store {
    /// Makes a limiter in this process.
    pub(super) fn memory<A: Algorithm>(&self, name: &str, algorithm: A) -> Memory<A> {
        let memory = Memory::new(name, algorithm).max_keys(self.max_keys);
        match self.clock.clone() {
            Some(clock) => memory.clock(move || clock()),
            None => memory.on_clock(self.own_clock.clone()),
        }
    }

    /// Names a limiter of Java's arithmetic in this process, and sets its clock.
    #[cfg(feature = "redisson")]
    fn permit_log(&self, name: &str, log: PermitLog) -> PermitLog {
        let log = log.name(name).max_keys(self.max_keys);
        match self.clock.clone() {
            Some(clock) => log.clock(move || clock()),
            None => log,
        }
    }
}

/// A limiter of one policy: for its store, or for its local share.
#[derive(Clone, Debug)]
pub(super) struct PolicyLimiter {
    /// Its unique number, which stays the same in each table that keeps the limiter.
    pub(super) id: u64,
    choice: Choice,
    kind: Kind,
    pub(super) boxed: Boxed,
}

#[derive(Clone, Debug)]
enum Kind {
    Memory(Memory<AnyAlgorithm>),
    #[cfg(feature = "redis")]
    Redis(Redis<AnyAlgorithm>),
    /// Java's arithmetic in this process.
    #[cfg(feature = "redisson")]
    PermitLog(PermitLog),
    #[cfg(feature = "redisson")]
    Redisson,
}

impl PolicyLimiter {
    /// Waits for the first connection to the store: it shows if several keys share a server.
    pub(super) async fn connected(&self, charge: &Charge) -> Result<(), Error> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(limiter) => limiter.clone().connected(limiter.deadline(charge)).await,
            _ => Ok(()),
        }
    }

    /// Makes a limiter of a policy, or returns the one `before` if its decisions are the same. A
    /// new limiter keeps the states of the one before if they are of the same kind.
    fn new(
        policy: &Policy,
        choice: Choice,
        store: &Store,
        place: &Place,
        before: Option<&PolicyLimiter>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if let Some(same) = before.filter(|before| before.choice == choice) {
            return same.clone();
        }
        let (id, before) = (NEXT.fetch_add(1, Relaxed), before.map(|before| &before.kind));
        let (kind, boxed) = match (choice, place) {
            (Choice::Any(algorithm), Place::Memory) => {
                let kept = match before {
                    Some(Kind::Memory(memory)) => memory.with_algorithm(algorithm).ok(),
                    _ => None,
                };
                let memory = kept.unwrap_or_else(|| store.memory(policy.name(), algorithm));
                (Kind::Memory(memory.clone()), memory.boxed())
            }
            #[cfg(feature = "redis")]
            (Choice::Any(algorithm), Place::Redis(pool)) => {
                let limiter = Redis::try_new(policy.name(), algorithm, pool.clone());
                let limiter = limiter.expect("a policy's algorithm follows its quota");
                let mut limiter = limiter.decision_timeout(store.decision_timeout);
                if let Some(clock) = store.clock.clone() {
                    limiter = limiter.clock(move || clock());
                }
                (Kind::Redis(limiter.clone()), limiter.boxed())
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(rate), Place::Memory) => {
                let log = match before {
                    Some(Kind::PermitLog(log)) => log.with_rate(rate),
                    _ => PermitLog::new(rate).map(|log| store.permit_log(policy.name(), log)),
                };
                let log = log.expect("a policy's rate is in range");
                (Kind::PermitLog(log.clone()), log.boxed())
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(rate), Place::Redis(pool)) => {
                let limiter = Redisson::new(pool.clone()).name(policy.name()).default_rate(rate);
                let mut limiter = limiter.decision_timeout(store.decision_timeout);
                if let Some(clock) = store.clock.clone() {
                    limiter = limiter.clock(move || clock());
                }
                (Kind::Redisson, limiter.boxed())
            }
        };
        Self { id, choice, kind, boxed }
    }

    /// The limiter in this process, if it can decide with others.
    pub(super) fn memory(&self) -> Option<&Memory<AnyAlgorithm>> {
        match &self.kind {
            Kind::Memory(memory) => Some(memory),
            #[cfg(feature = "redis")]
            _ => None,
        }
    }

    /// The limiter in Redis, if it can decide with others.
    #[cfg(feature = "redis")]
    pub(super) fn redis(&self) -> Option<&Redis<AnyAlgorithm>> {
        match &self.kind {
            Kind::Redis(redis) => Some(redis),
            _ => None,
        }
    }

    /// Returns true if it can decide together with others, all or nothing.
    pub(super) fn joins_others(&self) -> bool {
        !self.choice.is_javas()
    }
}

/// Finds the policies of Redisson whose limiter may also belong to a client's key of another
/// policy.
pub(super) fn shared_limiters(policies: &[Policy]) -> Vec<(&Policy, String)> {
    let javas: Vec<_> = policies.iter().filter(|policy| policy.choice.is_javas()).collect();
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
