//! A limiter whose type is hidden: for fields and tables of limiters of different types.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Limiter, Operation};
use crate::{Charge, Decision, Error, Reservation};

/// The future of [`Boxed`], of [`AllInTurn`](crate::AllInTurn) and of [`Redisson`](crate::redisson::Redisson).
pub type BoxedFuture = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

/// See [`LimiterExt::boxed`](crate::LimiterExt::boxed). Cheap to clone; allocates once per decision.
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

    fn refund(&self, reservation: Reservation) -> Option<Reservation> {
        self.0.refund_boxed(reservation)
    }

    fn owe(&self, charge: &Charge) -> bool {
        self.0.owe_boxed(charge)
    }

    fn can_owe(&self) -> bool {
        self.0.can_owe_boxed()
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
    fn refund_boxed(&self, reservation: Reservation) -> Option<Reservation>;
    fn owe_boxed(&self, charge: &Charge) -> bool;
    fn can_owe_boxed(&self) -> bool;
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

    fn refund_boxed(&self, reservation: Reservation) -> Option<Reservation> {
        self.refund(reservation)
    }

    fn owe_boxed(&self, charge: &Charge) -> bool {
        self.owe(charge)
    }

    fn can_owe_boxed(&self) -> bool {
        self.can_owe()
    }

    fn operate_boxed(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        self.operate(operation, charge).map(|answer| Box::pin(answer) as BoxedFuture)
    }
}
