//! The counters of each policy.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tower_sluice::policy::Event;
use tower_sluice::{Charge, Meter};

/// A meter for each policy that was ever in force. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    by_policy: Arc<RwLock<HashMap<String, Meter>>>,
}

impl Meters {
    /// Begins to count for a policy: its counters are there from now on, at 0.
    pub(crate) fn begin(&self, policy: &str) {
        let mut meters = self.by_policy.write().unwrap_or_else(PoisonError::into_inner);
        meters.entry(policy.to_owned()).or_insert_with(|| Meter::new(policy));
    }

    /// Counts what a policy decided. A refusal in a shadow is counted as one besides.
    pub(crate) fn record(&self, event: &Event<'_>) {
        let meters = self.by_policy.read().unwrap_or_else(PoisonError::into_inner);
        let Some(meter) = meters.get(event.policy.name()) else { return };
        let decision = event.decision();
        // What counts is the outcome: the key is nobody's business here.
        meter.record(&Charge::from_static(""), decision.as_ref());
    }
}
