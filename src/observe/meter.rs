//! Counts decisions under one name.

use std::sync::Arc;

use tokio::time::Instant;

use super::limiter_handles::LimiterHandles;
use super::policy_series::PolicySeries;
use super::recorded_outcome::AskedCharge;
use super::recorder::Handles;
use crate::core::decision::PolicyReport;
use crate::core::settlement::Settlement;
use crate::core::waiters::Waiters;
use crate::core::{Charge, Decision, Error};

/// Counts decisions under the name of a limiter, as in
/// [`MetricsExt::metrics`](crate::limiter::MetricsExt::metrics). It is cheap to clone: clones count
/// together.
///
/// Use it directly if the name is known only when a charge is decided, such as the name of a
/// table's row. Make one meter for each name, and keep it, so that its handles are looked up once.
///
/// **Never make a meter for each key.** A name becomes a value of the label `limiter`, and a metric
/// is kept for each value as long as the process runs.
#[derive(Clone)]
pub struct Meter {
    limiter: Arc<str>,
    handles: Arc<Handles<LimiterHandles>>,
}

impl Meter {
    /// Makes a meter. `limiter` is the value of the label `limiter`.
    #[must_use]
    pub fn new(limiter: impl Into<Arc<str>>) -> Self {
        let meter = Self { limiter: limiter.into(), handles: Arc::default() };
        // Looks up the handles, so that each series begins with 0.
        meter.handles();
        meter
    }

    /// The name under which it counts.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Counts a result like [`Metered`](crate::limiter::Metered), except for the time of the
    /// decision. A peek is not counted.
    pub fn record(&self, charge: &Charge, result: Result<&Decision, &Error>) {
        self.record_after(&AskedCharge::of(charge), result, None, None);
    }

    /// Counts only the outcome of one [policy](Decision::policies) of a decision: for limiters with
    /// a meter for each of their policies. A peek is not counted.
    ///
    /// [`Metered::per_policy`](crate::limiter::Metered::per_policy) does this for any limiter.
    pub fn record_policy(&self, charge: &Charge, policy: &PolicyReport<'_>) {
        self.count_policy(&AskedCharge::of(charge), policy);
    }

    pub(super) fn count_policy(&self, asked: &AskedCharge, policy: &PolicyReport<'_>) {
        if let Some(handles) = self.handles().filter(|_| !asked.is_peek()) {
            handles.count(
                asked.of_outcome(policy.outcome(), None),
                policy.is_shadow().then_some(None),
            );
        }
    }

    pub(crate) fn record_after(
        &self,
        asked: &AskedCharge,
        result: Result<&Decision, &Error>,
        begun: Option<Instant>,
        policies: Option<&PolicySeries>,
    ) {
        let Some(handles) = self.handles().filter(|_| !asked.is_peek()) else { return };
        if let Some(begun) = begun {
            handles.decision_seconds.record(begun.elapsed());
        }
        let shadowed = result.ok().and_then(|decision| decision.shadowed()).map(Result::err);
        handles.count_faults(result);
        let recorded = asked.recorded(result, begun);
        if recorded.is_decided()
            && let (Some(policies), Ok(decision)) = (policies, result)
            && policies.count(asked, decision)
        {
            return;
        }
        handles.count(recorded, shadowed);
    }

    pub(crate) fn record_abandoned(&self) {
        if let Some(handles) = self.handles() {
            handles.abandoned.increment(1);
        }
    }

    /// Counts the units that a settlement gives back, and those that it could not take, when they
    /// are known: `cost` were charged, `actual` is the final cost.
    pub(crate) fn record_settlement(&self, cost: u64, actual: u64, settlement: &mut Settlement) {
        let (meter, unused) = (self.clone(), cost.saturating_sub(actual));
        settlement.observe(move |settled| {
            let Some(handles) = meter.handles() else { return };
            let settled = settled.as_ref().copied().unwrap_or_default();
            // A member with a cost of its own may have given back more than the whole charge. One
            // whose cost the response states gives back more than is unused of the whole.
            let given_back = settled.given_back.min(cost);
            let units = [cost, given_back, unused.saturating_sub(given_back), settled.not_taken];
            handles.count_settled(&meter.limiter, units);
        });
    }

    pub(crate) fn is_live(&self) -> bool {
        self.handles().is_some()
    }

    pub(crate) fn waiters(&self) -> Option<Arc<dyn Waiters>> {
        Some(Arc::clone(&self.handles()?.waiters) as Arc<dyn Waiters>)
    }

    /// Returns `None` without a recorder.
    #[inline]
    fn handles(&self) -> Option<&LimiterHandles> {
        self.handles.get(|| LimiterHandles::of(&self.limiter))
    }
}

debug_by_name!([] Meter: limiter);
