//! The state that policies and their handles share: the table in use, which is exchanged while it
//! decides, and the switches, which outlive it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::armed::Armed;
use super::error::TableError;
use super::gate::Store;
use super::key::FindAddress;
use super::observe::Observer;
use super::read;
use super::row::Rows;
use super::rule::Policy;
use super::table::Table;
use crate::Charge;
use crate::http::Head;
use crate::key_extractor::Keyed;
use crate::limiter::{Switch, SwitchMode};
use crate::reservation::Owner;

/// The state that [`Policies`](super::Policies), its clones and its handles share.
pub(super) struct Shared {
    table: RwLock<Arc<Table>>,
    /// The switches, by the names of policies. One that was set outlives its row.
    switches: Mutex<HashMap<String, Switch>>,
    pub(super) global: Switch,
    store: Store,
    pub(super) addresses: Arc<dyn FindAddress>,
    pub(super) observer: Option<Observer>,
    /// True if a path that servers read differently is refused.
    refuses_ambiguous: bool,
    /// Identifies the reservations of this limiter.
    pub(super) owner: Owner,
}

impl Shared {
    pub(super) fn new(
        store: Store,
        addresses: Arc<dyn FindAddress>,
        observer: Option<Observer>,
        refuses_ambiguous: bool,
    ) -> Self {
        Self {
            table: RwLock::new(Arc::new(Table::new(Vec::new(), None))),
            switches: Mutex::default(),
            global: Switch::new(),
            store,
            addresses,
            observer,
            refuses_ambiguous,
            owner: Owner::new(),
        }
    }

    /// The table in use.
    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another table in force, from the next request on.
    pub(super) fn load(&self, rows: &Rows) -> Result<(), TableError> {
        let policies = read::policies(rows)?;
        // Held until the table is exchanged, so that loads come one after another.
        let mut switches = self.switches.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.table();
        let arm = |policy: Policy| {
            let switch = switches.entry(policy.name().to_owned()).or_default().clone();
            let before = before.get(policy.name()).map(|armed| &**armed);
            Arc::new(Armed::new(policy, &self.store, switch, before))
        };
        let armed = policies.into_iter().map(arm).collect();
        let table = Arc::new(Table::new(armed, Some(&before)));
        let of_rows = Arc::clone(&table);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        // A switch that is off or in a shadow waits for its row to come back.
        drop(before);
        switches.retain(|name, switch| {
            switch.mode() != SwitchMode::On || switch.is_shared() || of_rows.get(name).is_some()
        });
        drop(switches);
        #[cfg(feature = "tracing")]
        crate::observe::table_in_force(of_rows.counts(self.global.mode()));
        Ok(())
    }

    /// Returns the charge of a request, by the name that the program gives it.
    pub(super) fn charge(&self, head: &Head<'_>, name: Option<&str>) -> Keyed {
        let (table, addresses) = (self.table(), &*self.addresses);
        let selected = table.select(head, name, &self.global, addresses, self.refuses_ambiguous);
        let selection = match selected {
            Ok(selection) => selection,
            Err(no_key) => return Keyed::Missing(no_key.into()),
        };
        if selection.is_empty() {
            return Keyed::Exempt;
        }
        let (text, cost, max_wait) = (selection.text(), selection.cost(), selection.max_wait());
        let charge = Charge::attached(text, Arc::new(selection));
        Keyed::Charge(charge.cost(cost).max_wait(max_wait))
    }
}

/// The text that [`Policies`](super::Policies) shows.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("policies", &self.table())
            .field("switch", &self.global)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policies, Row};

    fn rows(name: &str) -> Rows {
        let row = Row::new().with("name", name).with("limit", 5).with("period", "1s");
        Rows::from_iter([row])
    }

    #[test]
    fn only_a_switch_that_somebody_uses_outlives_its_row() {
        let policies = Policies::builder().build(&rows("off")).unwrap();
        policies.get("off").unwrap().switch().set(SwitchMode::Off);
        policies.load(&rows("held")).unwrap();
        let held = policies.get("held").unwrap();
        for name in 0..100 {
            policies.load(&rows(&name.to_string())).unwrap();
        }
        assert_eq!(policies.shared.switches.lock().unwrap().len(), 3);
        held.switch().set(SwitchMode::Shadow);
        drop(held);
        policies.load(&rows("held")).unwrap();
        assert_eq!(policies.get("held").unwrap().mode(), SwitchMode::Shadow);
        policies.load(&rows("off")).unwrap();
        assert_eq!(policies.get("off").unwrap().mode(), SwitchMode::Off);
        policies.get("off").unwrap().switch().set(SwitchMode::On);
        policies.load(&rows("last")).unwrap();
        assert_eq!(policies.shared.switches.lock().unwrap().len(), 2);
    }
}
