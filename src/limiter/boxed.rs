//! A limiter whose type is hidden: for fields and tables of limiters of different types.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Limiter, Operation};
use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error};

/// The future of [`Boxed`], of [`AllInTurn`](crate::limiter::AllInTurn) and of
/// [`Redisson`](crate::redisson::Redisson).
pub type BoxedFuture = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

/// A limiter whose type is hidden, for fields and tables of limiters: made by
/// [`LimiterExt::boxed`](crate::LimiterExt::boxed). Cheap to clone; allocates once per decision.
#[derive(Clone)]
pub struct Boxed(Arc<dyn Erased + Send + Sync>);

impl Boxed {
    pub(super) fn new<L>(limiter: L) -> Self
    where
        L: Limiter + Send + Sync + 'static,
        L::Future: Send + 'static,
    {
        Self(Arc::new(limiter))
    }
}

impl Limiter for Boxed {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> BoxedFuture {
        self.0.check_boxed(charge)
    }

    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        self.0.check_keyless_boxed(why)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle_boxed(reservation, actual)
    }

    fn can_take_more(&self) -> bool {
        self.0.can_take_more_boxed()
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        self.0.operate_boxed(operation, charge)
    }
}

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Boxed").finish_non_exhaustive()
    }
}

trait Erased {
    fn check_boxed(&self, charge: &Charge) -> BoxedFuture;
    fn check_keyless_boxed(&self, why: &Error) -> Option<Decision>;
    fn settle_boxed(
        &self,
        reservation: Reservation,
        actual: u64,
    ) -> Result<Settlement, Reservation>;
    fn can_take_more_boxed(&self) -> bool;
    fn operate_boxed(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture>;
}

impl<L> Erased for L
where
    L: Limiter,
    L::Future: Send + 'static,
{
    fn check_boxed(&self, charge: &Charge) -> BoxedFuture {
        Box::pin(self.check(charge))
    }

    fn check_keyless_boxed(&self, why: &Error) -> Option<Decision> {
        self.check_keyless(why)
    }

    fn settle_boxed(
        &self,
        reservation: Reservation,
        actual: u64,
    ) -> Result<Settlement, Reservation> {
        self.settle(reservation, actual)
    }

    fn can_take_more_boxed(&self) -> bool {
        self.can_take_more()
    }

    fn operate_boxed(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        self.operate(operation, charge).map(|answer| Box::pin(answer) as BoxedFuture)
    }
}
