//! Counts each policy of a decision under its own name.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::meter::Meter;
use super::verdict::Asked;
use crate::{Decision, Outcome};

/// How many names have metrics of their own: a limiter of the application's own could make up one
/// for each key. Names that come first at the same instant may be a few more.
const MAX_NAMES: usize = 1_000;

/// What all further names are counted under.
const OTHERS: &str = "other";

/// A meter for each policy that has taken part.
#[derive(Debug, Default)]
pub(crate) struct PolicyMeters {
    meters: RwLock<HashMap<Box<str>, Meter>>,
}

impl PolicyMeters {
    /// Counts what each policy alone decided. Returns whether there was any. Where some refuse, the
    /// others have taken nothing, and are not counted.
    pub(super) fn count(&self, asked: &Asked, decision: &Decision) -> bool {
        let admits = |outcome| matches!(outcome, Outcome::Allow | Outcome::Wait(_));
        for policy in decision.policies() {
            if decision.is_admitted() || !admits(policy.outcome()) {
                self.with_meter(policy.name(), |meter| meter.count_policy(asked, &policy));
            }
        }
        decision.policies().next().is_some()
    }

    fn with_meter(&self, name: &str, count: impl FnOnce(&Meter)) {
        // Nothing panics while the table is locked, so it is whole.
        let meters = self.meters.read().unwrap_or_else(PoisonError::into_inner);
        let is_other = meters.len() >= MAX_NAMES && !meters.contains_key(name);
        let name = if is_other { OTHERS } else { name };
        if let Some(meter) = meters.get(name) {
            return count(meter);
        }
        drop(meters);
        // Outside of the lock, since this runs code of the recorder.
        let meter = Meter::new(name);
        let mut meters = self.meters.write().unwrap_or_else(PoisonError::into_inner);
        count(meters.entry(name.into()).or_insert(meter));
    }
}
