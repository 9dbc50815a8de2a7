//! Limiters whose charges are decided by one call or one lock.

use crate::Charge;
use crate::limiter::futures::BoxedFuture;
use crate::reservation::Reservation;
use crate::settlement::Settlement;

/// The number of parts that can be asked at a time, if no call can decide about all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtATime(pub(crate) usize);

/// Limiters whose charges are decided by one call or one lock.
pub(crate) trait AtOnce: Send + Sync {
    /// Takes the units of all charges, or nothing.
    ///
    /// # Errors
    ///
    /// The number of parts to ask at a time instead.
    fn check(&self, charges: &[&Charge]) -> Result<BoxedFuture, AtATime>;

    /// Settles a reservation of these limiters. `actual` maps the index and the cost of each charge
    /// to the used units.
    ///
    /// # Errors
    ///
    /// The reservation itself, if it belongs to another limiter.
    fn settle(
        &self,
        reservation: Reservation,
        actual: &dyn Fn(usize, u64) -> u64,
    ) -> Result<Settlement, Reservation>;
}
