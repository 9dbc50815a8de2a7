//! A policy with its limiter, its local share and its switch.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[cfg(feature = "redis")]
use tokio::time::Instant;
use tower_sluice::algorithm::{AnyAlgorithm, TokenBucket};
#[cfg(feature = "redisson")]
use tower_sluice::by_api_key;
use tower_sluice::limiter::{Boxed, Switch, SwitchMode};
use tower_sluice::{Charge, LimiterExt, Memory};
#[cfg(feature = "redis")]
use tower_sluice::{Pool, Redis};
#[cfg(feature = "redisson")]
use tower_sluice_redisson::{PermitLog, Redisson};

use super::bans::Ban;
use super::chosen_algorithm::Choice;
use super::policy::Policy;

/// A policy with its limiters and its switch.
#[derive(Debug)]
pub(crate) struct LimitedPolicy {
    pub(crate) policy: Policy,
    pub(crate) limiter: PolicyLimiter,
    /// The limiter of this process, which decides while the store cannot.
    pub(crate) share: Option<PolicyLimiter>,
    pub(crate) switch: Switch,
    pub(crate) ban: Option<Ban>,
    /// A digest of the settings that its decisions depend on. Equal rows have equal digests in
    /// every process of one build.
    pub(crate) digest: u64,
}

impl LimitedPolicy {
    /// Makes the limiters of a policy. They keep the states of the policy `before`.
    pub(crate) fn new(
        policy: Policy,
        store: &PolicyStore,
        switch: Switch,
        before: Option<&LimitedPolicy>,
    ) -> Self {
        let limiter = before.map(|before| &before.limiter);
        let limiter = PolicyLimiter::new(&policy, policy.choice, store, &store.place, limiter);
        let share = policy.share.map(|algorithm| {
            let before = before.and_then(|before| before.share.as_ref());
            PolicyLimiter::new(&policy, Choice::Any(algorithm), store, &StorePlace::Memory, before)
        });
        let ban = policy.ban.map(|row| {
            let before = before.and_then(|before| before.ban.as_ref());
            Ban::new(row, limiter.boxed.clone(), store, before)
        });
        let mut digest = DefaultHasher::new();
        let Policy { choice, max_wait, keep_free, plans, on_error, .. } = &policy;
        format!("{choice:?} {max_wait:?} {keep_free} {plans:?} {on_error:?}").hash(&mut digest);
        Self { policy, limiter, share, switch, ban, digest: digest.finish() }
    }

    /// Returns the most permissive mode of its row, its own switch and the global one.
    pub(crate) fn mode(&self, global: SwitchMode) -> SwitchMode {
        let row = match (self.policy.is_enabled(), self.policy.is_shadow()) {
            (false, _) => SwitchMode::Off,
            (true, true) => SwitchMode::Shadow,
            (true, false) => SwitchMode::On,
        };
        row.max(self.switch.mode()).max(global)
    }

    /// Returns the charge of a client's key.
    pub(crate) fn charge(&self, key: String) -> Charge {
        Charge::new(match self.limiter.kind {
            // The key is the name of Java's limiter, which all policies share.
            #[cfg(feature = "redisson")]
            Backend::Redisson if self.policy.key.is_global() => self.policy.name().to_owned(),
            #[cfg(feature = "redisson")]
            Backend::Redisson => format!("{}:{}", self.policy.name(), verbatim_or_digest(&key)),
            _ => key,
        })
    }
}

/// A policy that takes a request, and the charge of the request under it.
#[derive(Clone, Debug)]
pub(crate) struct AskedPolicy {
    pub(crate) limited: Arc<LimitedPolicy>,
    pub(crate) charge: Charge,
}

/// The place where policies count the taken units, and the clock of their decisions.
#[derive(Clone)]
pub(crate) struct PolicyStore {
    pub(crate) place: StorePlace,
    /// The most live keys of a limiter in this process.
    pub(crate) max_keys: usize,
    #[cfg(feature = "redis")]
    pub(crate) decision_timeout: Duration,
    pub(crate) clock: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
    /// A limiter without keys. All limiters of this process have its clock, since they decide
    /// together.
    pub(crate) clock_of: Memory<TokenBucket>,
}

impl PolicyStore {
    /// Returns the charge with one deadline for all its calls to Redis.
    pub(crate) fn with_deadline(&self, charge: Charge) -> Charge {
        #[cfg(feature = "redis")]
        if let StorePlace::Redis(_) = self.place
            && let Some(deadline) = Instant::now().checked_add(self.decision_timeout)
        {
            return charge.with_deadline(deadline.into_std());
        }
        charge
    }
}

#[derive(Clone)]
pub(crate) enum StorePlace {
    Memory,
    #[cfg(feature = "redis")]
    Redis(Pool),
}

/// Sets the clock of a limiter, if the application brings one.
#[cfg(feature = "redis")]
macro_rules! on_clock {
    ($limiter:expr, $store:ident) => {
        match $store.clock.clone() {
            Some(clock) => $limiter.clock(move || clock()),
            None => $limiter,
        }
    };
}

/// A limiter of one policy: for its store, or for its local share.
#[derive(Clone, Debug)]
pub(crate) struct PolicyLimiter {
    /// Its unique number, which stays the same in each table that keeps the limiter.
    pub(crate) id: u64,
    pub(crate) choice: Choice,
    kind: Backend,
    pub(crate) boxed: Boxed,
}

#[derive(Clone, Debug)]
enum Backend {
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
    /// Makes a limiter of a policy, or returns the one `before` if its decisions are the same. A
    /// new limiter keeps the states of the one before if they are of the same kind.
    fn new(
        policy: &Policy,
        choice: Choice,
        store: &PolicyStore,
        place: &StorePlace,
        before: Option<&PolicyLimiter>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if let Some(same) = before.filter(|before| before.choice == choice) {
            return same.clone();
        }
        let (id, before) = (NEXT.fetch_add(1, Relaxed), before.map(|before| &before.kind));
        let (kind, boxed) = match (choice, place) {
            (Choice::Any(algorithm), StorePlace::Memory) => {
                let kept = match before {
                    Some(Backend::Memory(memory)) => memory.with_algorithm(algorithm).ok(),
                    _ => None,
                };
                let new = || Memory::new(policy.name(), algorithm).clock_of(&store.clock_of);
                let memory = kept.unwrap_or_else(|| new().max_keys(store.max_keys));
                (Backend::Memory(memory.clone()), memory.boxed())
            }
            #[cfg(feature = "redis")]
            (Choice::Any(algorithm), StorePlace::Redis(pool)) => {
                let limiter = Redis::try_new(policy.name(), algorithm, pool.clone());
                let limiter = limiter.expect("a policy's algorithm follows its quota");
                let limiter = on_clock!(limiter.decision_timeout(store.decision_timeout), store);
                (Backend::Redis(limiter.clone()), limiter.boxed())
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(rate), StorePlace::Memory) => {
                let named = |log: PermitLog| log.name(policy.name()).max_keys(store.max_keys);
                let log = match before {
                    Some(Backend::PermitLog(log)) => log.with_rate(rate),
                    _ => PermitLog::new(rate).map(|log| on_clock!(named(log), store)),
                };
                let log = log.expect("a policy's rate is in range");
                (Backend::PermitLog(log.clone()), log.boxed())
            }
            #[cfg(feature = "redisson")]
            (Choice::Redisson(rate), StorePlace::Redis(pool)) => {
                let limiter = Redisson::new(pool.clone()).name(policy.name()).default_rate(rate);
                let limiter = limiter.decision_timeout(store.decision_timeout);
                (Backend::Redisson, on_clock!(limiter, store).boxed())
            }
        };
        Self { id, choice, kind, boxed }
    }

    /// The limiter in this process, if it can decide with others.
    pub(crate) fn memory(&self) -> Option<&Memory<AnyAlgorithm>> {
        match &self.kind {
            Backend::Memory(memory) => Some(memory),
            #[cfg(feature = "redis")]
            _ => None,
        }
    }

    /// The limiter in Redis, if it can decide with others.
    #[cfg(feature = "redis")]
    pub(crate) fn redis(&self) -> Option<&Redis<AnyAlgorithm>> {
        match &self.kind {
            Backend::Redis(redis) => Some(redis),
            _ => None,
        }
    }
}

/// Finds the policies of Redisson whose limiter may also belong to a client's key of another
/// policy.
pub(crate) fn shared_limiters(policies: &[Policy]) -> Vec<(&Policy, String)> {
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

/// Returns a key as names of Java's limiters have it: itself if it is short and has only safe
/// characters, or else its digest.
#[cfg(feature = "redisson")]
fn verbatim_or_digest(key: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._~@:/-".contains(&byte);
    match key.len() <= 64 && !key.starts_with("h:") && key.bytes().all(is_safe) {
        true => key.to_owned(),
        false => format!("h:{}", by_api_key("digest").key_for(key)),
    }
}
