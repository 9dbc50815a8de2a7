//! A limiter that shows each of its decisions to a closure.

use std::sync::Arc;

use super::wrapped::{Around, Begin, Wrapped};
use crate::core::{Charge, Decision, Error};

/// A limiter with a closure that sees each decision. Made by
/// [`LimiterExt::inspect`](crate::LimiterExt::inspect). Clones share the closure.
///
/// It is for logs and counts of your own. It does not change answers or settlements.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().build().unwrap().block_on(async {
/// let refused_units = Arc::new(AtomicU64::new(0));
/// let counter = Arc::clone(&refused_units);
/// let store = Memory::new("api", TokenBucket::new(Quota::per_hour(2)));
/// let limiter = store.inspect(move |charge, result| {
///     if result.is_ok_and(|decision| !decision.is_admitted()) {
///         counter.fetch_add(charge.units(), Relaxed);
///     }
/// });
/// for _ in 0..5 {
///     let _ = limiter.check(&Charge::new("alice")).await?;
/// }
/// assert_eq!(refused_units.load(Relaxed), 3);
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// # When the closure is called
///
/// | what happens | calls |
/// |---|---|
/// | any decision, or an error | one, before the caller gets it |
/// | a peek: the [cost](Charge::units) is 0 | one |
/// | the future is dropped before the answer | none: there is no result |
/// | an estimate, a penalty, a reset, a settlement | none |
/// | a caller that asks again after [`Outcome::Retry`](crate::Outcome::Retry) | one each time |
///
/// [`AllInTurn`](crate::limiter::AllInTurn) peeks at its members before it charges them. These
/// peeks call the closure of a member too.
///
/// It sees the answers of the limiter that it wraps. Inside of an
/// [`or_else`](crate::LimiterExt::or_else) it sees each error of the store. Outside of it, it sees
/// the decision of the fallback, whose [`fallback_cause`](Decision::fallback_cause) is that error.
///
/// # Cost
///
/// It copies the charge, including an owned key, for each decision. The closure runs in the
/// caller's task, so it must not block.
pub type Inspect<L, F> = Wrapped<L, Closure<F>>;

/// A closure that sees each decision.
pub struct Closure<F>(pub(super) Arc<F>);

impl<F: Fn(&Charge, Result<&Decision, &Error>)> Around for Closure<F> {
    type Open = (Charge, Self);

    fn open(&self, charge: &Charge) -> Begin<Self::Open> {
        Begin::Seen((charge.clone(), self.clone()))
    }

    fn close(
        (charge, Self(inspect)): Self::Open,
        answer: Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        inspect(&charge, answer.as_ref());
        answer
    }
}

impl<F> Clone for Closure<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

debug_by_name!([F] Closure<F>);
