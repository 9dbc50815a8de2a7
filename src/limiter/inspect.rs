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
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{LimiterExt, Memory, Quota};
///
/// let store = Memory::new("api", TokenBucket::new(Quota::per_hour(2)));
/// let limiter = store.inspect(|charge, result| {
///     if result.is_ok_and(|decision| !decision.is_admitted()) {
///         println!("{} units were refused", charge.units());
///     }
/// });
/// # let _ = limiter;
/// ```
///
/// It is called once for each decision or error, before the caller gets it: for a peek too, and
/// again if a caller asks again after [`Outcome::Retry`](crate::Outcome::Retry). It is not called
/// if the future is dropped before, nor for operations and settlements.
/// [`AllInTurn`](crate::limiter::AllInTurn) peeks at its members before it charges them: these
/// peeks call the closure of a member too.
///
/// Inside of an [`or_else`](crate::LimiterExt::or_else) it sees each error of the store. Outside of
/// it, it sees the decision of the fallback, whose [`fallback_cause`](Decision::fallback_cause) is
/// that error.
///
/// It copies the charge for each decision. The closure runs in the caller's task, so it must not
/// block.
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
