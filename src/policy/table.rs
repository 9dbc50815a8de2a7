//! The table in force: each policy with its limiter, and which of them take a request.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::gate::{Gate, Store};
use super::key::FindAddress;
use super::path::Readings;
use super::routes::Routes;
use super::rule::Policy;
use crate::algorithm::AnyAlgorithm;
use crate::limiter::memory::Together as MemoryTogether;
#[cfg(feature = "redis")]
use crate::limiter::redis::Together as RedisTogether;
use crate::{Charge, Head, Memory, Switch, SwitchMode};

/// How many combinations of policies keep a limiter of their own.
const MAX_COMBINATIONS: usize = 1_024;

/// How many policies one call decides about.
pub(super) const MAX_TOGETHER: usize = 8;

/// A policy with what decides about it.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) policy: Policy,
    pub(super) gate: Gate,
    /// What this process admits while the store is away.
    pub(super) local: Option<Memory<AnyAlgorithm>>,
    pub(super) switch: Switch,
}

impl Armed {
    /// What decides about a policy, which keeps the states of the one `before` it.
    pub(super) fn new(
        policy: Policy,
        store: &Store,
        switch: Switch,
        before: Option<&Armed>,
    ) -> Self {
        let is_same = |before: &&Armed| before.policy.decides_as(&policy);
        let gate = match before.filter(is_same) {
            Some(before) => before.gate.clone(),
            None => Gate::new(&policy, store, before.map(|before| &before.gate)),
        };
        let local = policy.share.map(|share| {
            let before = before.and_then(|before| before.local.as_ref());
            let kept = before.and_then(|before| before.with_algorithm(share).ok());
            kept.unwrap_or_else(|| store.memory(policy.name(), share))
        });
        Self { policy, gate, local, switch }
    }

    /// The laxest of its row, its own switch and the global one.
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

/// Several policies that decide together, all or nothing.
#[derive(Clone)]
pub(super) enum Together {
    Memory(Arc<MemoryTogether<AnyAlgorithm>>),
    #[cfg(feature = "redis")]
    Redis(Arc<RedisTogether<AnyAlgorithm>>),
}

/// A table of policies.
pub(super) struct Table {
    pub(super) armed: Vec<Arc<Armed>>,
    /// The place of each policy by its name.
    places: HashMap<String, usize>,
    routes: Routes,
    /// By the places of the policies, what decides about them together.
    combinations: Mutex<HashMap<Vec<usize>, Together>>,
}

/// A policy that takes a request, and what that costs under it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) place: usize,
    pub(super) armed: Arc<Armed>,
    pub(super) charge: Charge,
}

/// The policies that take one request, of the table in force when it came.
pub(super) struct Selection {
    pub(super) table: Arc<Table>,
    pub(super) in_force: Vec<Asked>,
    pub(super) in_shadow: Vec<Asked>,
}

/// A policy takes the request, which has no key for it.
pub(super) struct NoKey;

impl Table {
    pub(super) fn new(armed: Vec<Arc<Armed>>) -> Self {
        let names = armed.iter().map(|one| one.policy.name().to_owned());
        let places = names.zip(0..).collect();
        let routes = Routes::new(armed.iter().map(|armed| armed.policy.matcher()));
        Self { armed, places, routes, combinations: Mutex::default() }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Armed>> {
        self.places.get(name).map(|place| &self.armed[*place])
    }

    /// The policies that take a request.
    pub(super) fn select(
        self: &Arc<Self>,
        head: &Head<'_>,
        name: Option<&str>,
        global: SwitchMode,
        addresses: &dyn FindAddress,
    ) -> Result<Selection, NoKey> {
        let (mut in_force, mut in_shadow) = (Vec::new(), Vec::new());
        let path = Readings::of(head.uri().path());
        for place in self.routes.places(&path) {
            let armed = &self.armed[place];
            let policy = &armed.policy;
            let mode = armed.mode(global);
            if mode == SwitchMode::Off || !policy.matcher().matches(head, &path, name) {
                continue;
            }
            let Some(key) = policy.key().of_request(head, addresses) else {
                // A shadow refuses nothing.
                if mode == SwitchMode::Shadow {
                    continue;
                }
                return Err(NoKey);
            };
            let charge = armed.charge(key).cost(policy.cost_of(head)).max_wait(policy.max_wait());
            let asked = Asked { place, armed: Arc::clone(armed), charge };
            match mode {
                SwitchMode::Shadow => in_shadow.push(asked),
                _ => in_force.push(asked),
            }
        }
        Ok(Selection { table: Arc::clone(self), in_force, in_shadow })
    }

    /// What decides about these policies together. `None` if nothing can.
    pub(super) fn together(&self, asked: &[&Asked]) -> Option<Together> {
        if asked.len() > MAX_TOGETHER {
            return None;
        }
        let places: Vec<usize> = asked.iter().map(|asked| asked.place).collect();
        let mut known = self.combinations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&places) {
            return Some(found.clone());
        }
        let together = combined(asked)?;
        if known.len() >= MAX_COMBINATIONS {
            known.clear();
        }
        known.insert(places, together.clone());
        Some(together)
    }
}

fn combined(asked: &[&Asked]) -> Option<Together> {
    let gates = asked.iter().map(|asked| &asked.armed.gate);
    #[cfg(feature = "redis")]
    if let Some(members) = gates.clone().map(Gate::redis).collect::<Option<Vec<_>>>() {
        return Some(Together::Redis(RedisTogether::new(&members)?.into()));
    }
    let members = gates.map(Gate::memory).collect::<Option<Vec<_>>>()?;
    Some(Together::Memory(MemoryTogether::new(&members).into()))
}

impl Selection {
    /// The longest wait that one of the policies in force allows.
    pub(super) fn max_wait(&self) -> Duration {
        let waits = self.in_force.iter().map(|asked| asked.armed.policy.max_wait());
        waits.max().unwrap_or_default()
    }

    /// The cost of the whole charge: that of the first policy.
    pub(super) fn cost(&self) -> u64 {
        let first = self.in_force.first().or(self.in_shadow.first());
        first.map_or(1, |asked| asked.charge.get_cost())
    }

    /// A text that no other selection has: each policy with its key.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Asked { armed, charge, .. } in self.in_force.iter().chain(&self.in_shadow) {
            let (name, key) = (armed.policy.name(), charge.key());
            write!(text, "{name}={}:{key}", key.len()).expect("a string takes all");
        }
        text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_force.is_empty() && self.in_shadow.is_empty()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.armed.iter().map(|armed| armed.policy.name())).finish()
    }
}
