//! A limiter whose type is hidden: for fields and tables of limiters of different types.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Limiter, Operation};
use crate::core::{Charge, Decision, Error};

/// The future of [`Boxed`], of [`AllInTurn`](crate::limiter::AllInTurn), of
/// [`AllAtOnce`](crate::redis::AllAtOnce) and of
/// [`Redisson`](https://docs.rs/tower-sluice-redisson).
pub type BoxedFuture = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

/// A limiter whose type is hidden, for fields and tables of limiters. Made by
/// [`LimiterExt::boxed`](crate::LimiterExt::boxed). It is cheap to clone, and allocates once for
/// each decision.
#[derive(Clone)]
pub struct Boxed {
    inner: Arc<dyn Limiter<Future = BoxedFuture> + Send + Sync>,
}

impl Boxed {
    pub(super) fn new<L>(limiter: L) -> Self
    where
        L: Limiter + Send + Sync + 'static,
        L::Future: Send + 'static,
    {
        Self { inner: Arc::new(BoxesFutures { inner: limiter }) }
    }
}

impl Limiter for Boxed {
    type Future = BoxedFuture;

    pass_on!(check, check_owned, check_keyless, settle, renew, keys, operate);
}

debug_by_name!([] Boxed);

/// Decides like its inner limiter, with futures of one type.
struct BoxesFutures<L> {
    inner: L,
}

impl<L> Limiter for BoxesFutures<L>
where
    L: Limiter,
    L::Future: Send + 'static,
{
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        Box::pin(self.inner.check(charge))
    }

    fn check_owned(&self, charge: Charge) -> BoxedFuture {
        Box::pin(self.inner.check_owned(charge))
    }

    pass_on!(check_keyless, settle, renew, keys);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        Some(Box::pin(self.inner.operate(operation, charge)?))
    }
}
