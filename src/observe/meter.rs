//! Counts decisions under one name.

use std::fmt;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};
use tokio::time::Instant;

use super::catalog;
use super::policies::PolicyMeters;
use super::recorder::{Handles, Value, counter, gauge, histogram};
use super::verdict::{Asked, Decided, KINDS, Verdict, error_of, kind_index};
use crate::waiters::Waiters;
use crate::{Charge, Decision, Error, Origin, PolicyReport};

/// Counts decisions under the name of a limiter, for
/// [`MetricsExt::metrics`](crate::MetricsExt::metrics). Cheap to clone: clones count together.
///
/// Use it on its own where the name is known only when a charge is decided, such as that of the
/// row of a table. Make one for each name, and keep it: that looks its handles up once.
///
/// ```
/// use tower_sluice::testing::Scripted;
/// use tower_sluice::{Limiter, LimiterExt, Meter};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (gold, others) = (Meter::new("gold"), Meter::new("others"));
/// let limiter = Scripted::new().allow().inspect(move |charge, result| {
///     let meter = if charge.key().starts_with("gold:") { &gold } else { &others };
///     meter.record(charge, result);
/// });
/// limiter.check(&"gold:alice".into()).await?;
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// **Never make one for each key.** A name becomes the label `limiter`, and a metric is kept for
/// each of its values as long as the process runs.
#[derive(Clone)]
pub struct Meter {
    inner: Arc<Inner>,
}

struct Inner {
    limiter: Arc<str>,
    handles: Handles<LimiterHandles>,
}

struct LimiterHandles {
    decisions: [Counter; Decided::ALL.len()],
    fail_open: Counter,
    switched_off: Counter,
    shadow_refusals: Counter,
    fallbacks: Counter,
    errors: [Counter; KINDS.len()],
    abandoned: Counter,
    decision_seconds: Histogram,
    wait_seconds: Histogram,
    waiters: Arc<WaitersGauge>,
}

impl Meter {
    /// Counts under `limiter`: the value of the label of that name.
    #[must_use]
    pub fn new(limiter: impl Into<Arc<str>>) -> Self {
        let meter =
            Self { inner: Arc::new(Inner { limiter: limiter.into(), handles: Handles::new() }) };
        // So that each series begins with 0.
        meter.handles();
        meter
    }

    /// The name that it counts under.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.inner.limiter
    }

    /// Counts a result, as [`Metered`](crate::Metered) does but for the time it took. A peek is not
    /// counted.
    pub fn record(&self, charge: &Charge, result: Result<&Decision, &Error>) {
        self.record_after(&Asked::of(charge), result, None, None);
    }

    /// Counts what one [policy](Decision::policies) of a decision decided, and nothing else of it:
    /// for limiters that know the meter of each of their policies. A peek is not counted.
    ///
    /// [`Metered::per_policy`](crate::Metered::per_policy) does so for any limiter.
    pub fn record_policy(&self, charge: &Charge, policy: &PolicyReport<'_>) {
        let asked = Asked::of(charge);
        if !asked.is_peek() {
            self.count_policy(&asked, policy);
        }
    }

    pub(super) fn count_policy(&self, asked: &Asked, policy: &PolicyReport<'_>) {
        if let Some(handles) = self.handles() {
            handles.count(asked.of_outcome(policy.outcome(), None), policy.is_shadow());
        }
    }

    pub(crate) fn record_after(
        &self,
        asked: &Asked,
        result: Result<&Decision, &Error>,
        begun: Option<Instant>,
        policies: Option<&PolicyMeters>,
    ) {
        let Some(handles) = self.handles().filter(|_| !asked.is_peek()) else { return };
        if let Some(begun) = begun {
            handles.decision_seconds.record(begun.elapsed());
        }
        let is_shadow = result.is_ok_and(|decision| decision.shadowed().is_some());
        handles.count_faults(result);
        let verdict = asked.verdict(result, begun);
        if let (Some(policies), Verdict::Decided(_), Ok(decision)) = (policies, verdict, result)
            && policies.count(asked, decision)
        {
            return;
        }
        handles.count(verdict, is_shadow);
    }

    /// Counts a charge whose caller has left.
    pub(crate) fn record_abandoned(&self) {
        if let Some(handles) = self.handles() {
            handles.abandoned.increment(1);
        }
    }

    /// Whether there is anybody to count for.
    pub(crate) fn is_live(&self) -> bool {
        self.handles().is_some()
    }

    /// Counts those who wait.
    pub(crate) fn waiters(&self) -> Option<Arc<dyn Waiters>> {
        Some(Arc::clone(&self.handles()?.waiters) as Arc<dyn Waiters>)
    }

    #[inline]
    fn handles(&self) -> Option<&LimiterHandles> {
        self.inner.handles.get(|| LimiterHandles::of(&self.inner.limiter))
    }
}

impl LimiterHandles {
    fn of(limiter: &Arc<str>) -> Self {
        use Value::{Name, Word};
        let name = [Name(limiter)];
        Self {
            decisions: Decided::ALL.map(|decided| {
                counter(&catalog::DECISIONS, &[Name(limiter), Word(decided.name())])
            }),
            fail_open: counter(&catalog::FAIL_OPEN, &name),
            switched_off: counter(&catalog::SWITCHED_OFF, &name),
            shadow_refusals: counter(&catalog::SHADOW_REFUSALS, &name),
            fallbacks: counter(&catalog::FALLBACKS, &name),
            errors: KINDS.map(|(_, kind)| counter(&catalog::ERRORS, &[Name(limiter), Word(kind)])),
            abandoned: counter(&catalog::ABANDONED, &name),
            decision_seconds: histogram(&catalog::DECISION_SECONDS, &name),
            wait_seconds: histogram(&catalog::WAIT_SECONDS, &name),
            waiters: Arc::new(WaitersGauge(gauge(&catalog::WAITERS, &name))),
        }
    }

    fn count(&self, verdict: Verdict, is_shadow: bool) {
        if is_shadow && verdict.is_refusal() {
            self.shadow_refusals.increment(1);
        }
        match verdict {
            Verdict::Decided(decided) => {
                self.decisions[decided.index()].increment(1);
                if let Decided::Delayed(wait) = decided {
                    self.wait_seconds.record(wait);
                }
            }
            Verdict::FailedOpen => self.fail_open.increment(1),
            Verdict::SwitchedOff => self.switched_off.increment(1),
            Verdict::AsksAgain => {}
        }
    }

    /// Counts an error, and the fallback that answers in its place.
    fn count_faults(&self, result: Result<&Decision, &Error>) {
        if let Some(error) = error_of(result) {
            self.errors[kind_index(error.kind())].increment(1);
        }
        let by_fallback = |decision: &Decision| {
            decision.fallback_cause().is_some() && decision.origin() != Origin::FailOpen
        };
        if result.is_ok_and(by_fallback) {
            self.fallbacks.increment(1);
        }
    }
}

/// How many wait, as a gauge.
struct WaitersGauge(Gauge);

impl Waiters for WaitersGauge {
    fn add(&self) {
        self.0.increment(1.0);
    }

    fn remove(&self) {
        self.0.decrement(1.0);
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("limiter", &self.limiter()).finish_non_exhaustive()
    }
}
