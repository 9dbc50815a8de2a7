//! Limiters whose charges are decided by one call or one lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::core::reservation::Reservation;
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Error};
use crate::limiter::futures::BoxedFuture;

/// Two to eight limiters that decide together: in one call to Redis, or under one lock in this
/// process. It is cheap to clone.
///
/// [`of_redis`](Together::of_redis) and [`of_memory`](Together::of_memory) make it at run time, of
/// the limits that a request happens to need. To make it costs as much as to make a limiter, so
/// keep it for later requests.
///
/// Each limiter decides about its own charge, with the key, the cost, the quota and the longest
/// wait of that charge. Reports have the names of the limiters.
#[derive(Clone)]
pub struct Together(pub(crate) Arc<dyn AtOnce>);

impl Together {
    /// The most limiters that decide together.
    pub const MAX: usize = 8;
}

debug_by_name!([] Together);

/// The number of parts that can be asked at a time, if no call can decide about all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtATime(pub(crate) usize);

pub(crate) type Connecting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Limiters whose charges are decided by one call or one lock.
pub(crate) trait AtOnce: Send + Sync {
    /// Returns the number of limiters: a check needs as many charges.
    fn members(&self) -> usize;

    /// Takes the units of all charges, or nothing.
    ///
    /// # Errors
    ///
    /// The number of parts to ask at a time instead.
    fn check(&self, charges: &[&Charge]) -> Result<BoxedFuture, AtATime>;

    /// Waits for the first connection to the store: it shows if several keys share a server.
    /// `None` if that is known.
    fn connecting(&self, charge: &Charge) -> Option<Connecting> {
        let _ = charge;
        None
    }

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

    /// Renews the hold of a reservation of these limiters: see [`Limiter::renew`](crate::Limiter).
    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal>;
}
