//! A policy with its limiter, its share of this process and its switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::gate::{Gate, Store};
use super::rule::Policy;
use crate::algorithm::AnyAlgorithm;
use crate::limiter::{Boxed, Switch, SwitchMode};
use crate::{Charge, Memory};

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
        let is_same = |before: &&Armed| before.policy.decides_as(&policy);
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
