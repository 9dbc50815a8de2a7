//! A limiter behind a breaker.

use std::sync::Arc;

use super::Breaker;
use super::future::WithBreakerFuture;
use crate::Charge;
use crate::limiter::{Limiter, Operation};

/// A limiter with a [`Breaker`]: made by [`LimiterExt::breaker`](crate::LimiterExt::breaker).
#[derive(Clone, Debug)]
pub struct WithBreaker<L> {
    inner: L,
    breaker: Breaker,
}

impl<L> WithBreaker<L> {
    pub(in crate::limiter) fn new(inner: L, breaker: Breaker) -> Self {
        Self { inner, breaker }
    }
}

impl<L: Limiter> Limiter for WithBreaker<L> {
    type Future = WithBreakerFuture<L::Future>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let shared = Arc::clone(&self.breaker.shared);
        if shared.refuses() {
            return WithBreakerFuture::refusing(shared);
        }
        WithBreakerFuture::asking(self.inner.check(charge), shared)
    }

    // A settlement passes even while the breaker is open, and is not counted: nobody waits for it.
    pass_on!(check_keyless, settle, can_take_more);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        // Also while it is open: the inner limiter says whether it can. Its future does nothing
        // before it is polled.
        let answer = self.inner.operate(operation, charge)?;
        Some(WithBreakerFuture::asking(answer, Arc::clone(&self.breaker.shared)))
    }
}
