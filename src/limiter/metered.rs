//! A limiter whose decisions are counted.

use std::sync::Arc;

use tokio::time::Instant;

use super::Limiter;
use super::wrapped::{Around, Begin, Wrapped};
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;
use crate::core::{Charge, Decision, Error, Outcome};
use crate::observe::{AskedCharge, Meter, PolicySeries};

/// Counts decisions: every [`Limiter`] has this method with the feature `metrics`.
pub trait MetricsExt: Limiter + Sized {
    /// Counts the decisions of this limiter with the crate [`metrics`](https://docs.rs/metrics).
    /// `limiter` is the value of the label `limiter`. See [`Metered`].
    ///
    /// Write it after all wrappers that decide, including `or_else`, `shadow` and `switch`, so that
    /// it counts their decisions. Only `inspect`, `metrics` and `trace` may come later.
    #[must_use]
    fn metrics(self, limiter: impl Into<Arc<str>>) -> Metered<Self> {
        let counts = Counts { meter: Meter::new(limiter), policies: None };
        Wrapped { inner: self, around: Arc::new(counts) }
    }
}

impl<L: Limiter> MetricsExt for L {}

/// A limiter whose decisions are counted. Made by [`MetricsExt::metrics`].
///
/// The application installs a recorder, such as metrics-exporter-prometheus. Until then nothing is
/// counted. A limiter keeps the recorder of its first use. One of your own needs at least one
/// field: a recorder of size 0 counts as no recorder.
///
/// [Metrics and alerts][page] installs a recorder, lists every metric, and says what counts as
/// what.
///
/// `limiter` is the name that you set, never a key. Two limiters with the same name are counted
/// together.
///
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/metrics_and_alerts/
pub type Metered<L> = Wrapped<L, Arc<Counts>>;

/// Counts the decisions of a limiter.
#[derive(Debug)]
pub struct Counts {
    meter: Meter,
    /// The series of each policy, if each policy is counted under its own name.
    policies: Option<PolicySeries>,
}

impl<L> Metered<L> {
    /// Counts each [policy](Decision::policies) of a decision under its own name, by that policy's
    /// own outcome, in place of the whole decision. Default: counts the whole, under the limiter's
    /// name.
    ///
    /// It is for combinations and tables of policies. If some policies refuse, the others are not
    /// counted. Results without a policy, such as errors, and the times are counted under the
    /// limiter's name. A tuple called `api` counts as `api-1`, `api-2` and so on.
    ///
    /// The first 1,000 names have their own metrics; all further names are counted as `other`.
    #[must_use]
    pub fn per_policy(self) -> Self {
        let policies = Some(PolicySeries::default());
        let counts = Counts { meter: self.meter().clone(), policies };
        Self { around: Arc::new(counts), ..self }
    }

    /// Returns the meter that counts the decisions.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.around.meter
    }
}

impl Around for Arc<Counts> {
    type Open = Counted;

    fn open(&self, charge: &Charge) -> Begin<Counted> {
        let asked = AskedCharge::of(charge);
        if asked.is_peek() || !self.meter.is_live() {
            return Begin::Unseen;
        }
        Begin::Seen(Counted { counts: Self::clone(self), asked, begun: None })
    }

    fn begin(open: &mut Counted) -> Result<(), Error> {
        open.begun = Some(Instant::now());
        Ok(())
    }

    fn close(open: Counted, mut answer: Result<Decision, Error>) -> Result<Decision, Error> {
        let Counts { meter, policies } = &*open.counts;
        meter.record_after(&open.asked, answer.as_ref(), open.begun, policies.as_ref());
        if let Ok(decision) = &mut answer
            && matches!(decision.outcome(), Outcome::Wait(_) | Outcome::Retry(_))
            && let Some(waiters) = meter.waiters()
        {
            decision.add_waiters(waiters);
        }
        answer
    }

    fn leave(open: Counted) {
        open.counts.meter.record_abandoned();
    }

    fn keyless(&self, why: &Error, ask: impl FnOnce() -> Option<Decision>) -> Option<Decision> {
        let answer = ask();
        self.meter.record_after(&AskedCharge::KEYLESS, answer.as_ref().ok_or(why), None, None);
        answer
    }

    fn settle(
        &self,
        reservation: Reservation,
        actual: u64,
        settle: impl FnOnce(Reservation) -> Result<Settlement, Reservation>,
    ) -> Result<Settlement, Reservation> {
        let cost = reservation.cost();
        let mut settlement = settle(reservation)?;
        if self.meter.is_live() {
            self.meter.record_settlement(cost, actual, &mut settlement);
        }
        Ok(settlement)
    }
}

/// A charge without an answer yet.
#[derive(Debug)]
pub struct Counted {
    counts: Arc<Counts>,
    asked: AskedCharge,
    begun: Option<Instant>,
}
