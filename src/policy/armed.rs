//! A policy with its limiter, its share of this process and its switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::gate::{Gate, Store};
use super::rule::Policy;
use crate::algorithm::AnyAlgorithm;
use crate::{Charge, Memory, Switch, SwitchMode};

/// A policy with its limiters and its switch.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) policy: Policy,
    pub(super) gate: Gate,
    /// The number of the gate, the same in each table that keeps the gate.
    pub(super) gate_id: u64,
    /// The limiter of this process, which decides while the store cannot.
    pub(super) local: Option<Memory<AnyAlgorithm>>,
    pub(super) switch: Switch,
}

impl Armed {
    /// Makes the limiters of a policy, which keep the states of the one `before` it.
    pub(super) fn new(
        policy: Policy,
        store: &Store,
        switch: Switch,
        before: Option<&Armed>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let is_same = |before: &&Armed| before.policy.decides_as(&policy);
        let (gate, gate_id) = match before.filter(is_same) {
            Some(before) => (before.gate.clone(), before.gate_id),
            None => {
                let gate = Gate::new(&policy, store, before.map(|before| &before.gate));
                (gate, NEXT_ID.fetch_add(1, Relaxed))
            }
        };
        let local = policy.share.map(|share| {
            let before = before.and_then(|before| before.local.as_ref());
            let kept = before.and_then(|before| before.with_algorithm(share).ok());
            kept.unwrap_or_else(|| store.memory(policy.name(), share))
        });
        Self { policy, gate, gate_id, local, switch }
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

/// A policy that takes a request, and the charge of the request under it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) armed: Arc<Armed>,
    pub(super) charge: Charge,
}
