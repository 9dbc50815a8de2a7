//! Counts each policy of a decision under its own name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::meter::Meter;
use super::recorded_outcome::AskedCharge;
use crate::core::Decision;
use crate::core::decision::PolicyReport;

/// The most names with metrics of their own, since an application's limiter could make a name for
/// each key. If new names come at the same instant, there may be a few more.
const MAX_NAMES: usize = 1_000;

/// The name under which all further names are counted.
const OTHERS: &str = "other";

/// The meter of each policy that has taken part.
#[derive(Debug, Default)]
pub(crate) struct PolicySeries {
    meters: RwLock<HashMap<Box<str>, Arc<Meter>>>,
}

impl PolicySeries {
    /// Counts the outcome of each policy alone. If some policies refuse, the others are not
    /// counted. Returns true if the policies show the outcome of the charge.
    pub(super) fn count(&self, asked: &AskedCharge, decision: &Decision) -> bool {
        let is_admitted = decision.is_admitted();
        let is_in_shadow = is_admitted && decision.policies().all(|policy| policy.is_shadow());
        let refuses =
            |policy: PolicyReport<'_>| !policy.is_admitted() && policy.is_shadow() == is_in_shadow;
        let has_refused = decision.policies().any(refuses);
        let is_refused = !is_admitted || is_in_shadow && has_refused;
        for policy in decision.policies() {
            if !is_refused || !policy.is_admitted() {
                self.meter(policy.name()).count_policy(asked, &policy);
            }
        }
        has_refused || !is_refused && decision.policies().next().is_some()
    }

    /// The meter of a name. It counts outside of the lock, since that runs code of the recorder.
    fn meter(&self, name: &str) -> Arc<Meter> {
        // No code panics while the table is locked, so it is complete.
        let table = self.meters.read().unwrap_or_else(PoisonError::into_inner);
        let is_other = table.len() >= MAX_NAMES && !table.contains_key(name);
        let name = if is_other { OTHERS } else { name };
        if let Some(meter) = table.get(name) {
            return Arc::clone(meter);
        }
        drop(table);
        let meter = Arc::new(Meter::new(name));
        let mut table = self.meters.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(table.entry(name.into()).or_insert(meter))
    }
}
