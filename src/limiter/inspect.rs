//! A limiter that shows each of its decisions to a closure.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Limiter, Operation};
use crate::{Charge, Decision, Error};

/// A limiter with a closure that sees each decision: made by
/// [`LimiterExt::inspect`](crate::LimiterExt::inspect). Clones share the closure.
///
/// It is for logs and counts of your own. It changes no answer, and what was taken is settled as
/// usual.
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
///         counter.fetch_add(charge.get_cost(), Relaxed);
///     }
/// });
/// for _ in 0..5 {
///     limiter.check(&Charge::new("alice")).await?;
/// }
/// assert_eq!(refused_units.load(Relaxed), 3);
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// # When the closure is called
///
/// | what happens | calls |
/// |---|---|
/// | a decision, whatever it is, or an error | one, before the caller has it |
/// | a peek, whose [cost](Charge::get_cost) is 0 | one |
/// | the future is dropped before the answer is there | none: there is no result |
/// | an estimate, a penalty, a reset, a settlement | none |
/// | a caller that asks again after [`Outcome::Retry`](crate::Outcome::Retry) | one each time |
///
/// [`AllInTurn`](crate::AllInTurn) peeks at its members before it charges them. Its peeks call the
/// closure of a member too.
///
/// It sees the answers of the limiter that it is called on. Inside of an
/// [`or_else`](crate::LimiterExt::or_else) it sees each error of the store. Outside, it sees the
/// decision of the fallback, whose [`fallback_cause`](Decision::fallback_cause) is that error.
///
/// # Cost
///
/// A copy of the charge for each decision, and with it of an owned key. The closure runs in the
/// caller's task, so it must not block.
pub struct Inspect<L, F> {
    inner: L,
    inspect: Arc<F>,
}

impl<L, F> Inspect<L, F> {
    pub(super) fn new(inner: L, inspect: F) -> Self {
        Self { inner, inspect: Arc::new(inspect) }
    }
}

impl<L, F> Limiter for Inspect<L, F>
where
    L: Limiter,
    F: Fn(&Charge, Result<&Decision, &Error>),
{
    type Future = InspectFuture<L::Future, F>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let inspect = Some((charge.clone(), Arc::clone(&self.inspect)));
        InspectFuture { answer: self.inner.check(charge), inspect }
    }

    pass_on!(check_keyless, settle, can_take_more);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let answer = self.inner.operate(operation, charge)?;
        Some(InspectFuture { answer, inspect: None })
    }
}

impl<L: Clone, F> Clone for Inspect<L, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), inspect: Arc::clone(&self.inspect) }
    }
}

impl<L: fmt::Debug, F> fmt::Debug for Inspect<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`Inspect`].
    pub struct InspectFuture<C, F> {
        #[pin]
        answer: C,
        // What the closure sees, if it is to see the answer.
        inspect: Option<(Charge, Arc<F>)>,
    }
}

impl<C, F> Future for InspectFuture<C, F>
where
    C: Future<Output = Result<Decision, Error>>,
    F: Fn(&Charge, Result<&Decision, &Error>),
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        if let Some((charge, inspect)) = this.inspect.take() {
            inspect(&charge, answer.as_ref());
        }
        Poll::Ready(answer)
    }
}

debug_by_name!([C, F] InspectFuture<C, F>);
