//! Leases: several units in one call, spent in this process.
//!
//! A stock (`stock.rs`) has the units of one lease. A key (`leased_key.rs`) spends its stocks. A
//! task (`refill.rs`) takes more units; another (`sweeper.rs`) ends expired leases.

mod lease_future;
mod leased_key;
mod leased_keys;
mod refill;
mod stock;
mod sweeper;

pub use lease_future::LeaseFuture;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::leased_key::may_be_leased;
use self::leased_keys::Leases;
use self::stock::Stock;
use super::{Limiter, Operation};
use crate::core::Charge;
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;

/// A limiter that leases units. Made by [`LimiterExt::lease`](crate::LimiterExt::lease). It is
/// cheap to clone.
///
/// For a busy key, a lease takes several units in one call, and spends them in this process. Leased
/// units are spent even while the store is away. [Tuning] says where to write it.
///
/// # The bound
///
/// Leased units may be spent for 100 ms, or for the time of [`valid_for`](Lease::valid_for), which
/// begins before the call that takes them. So **a window of length `T` has at most the units that
/// the inner limiter admits in a window of length `T + validity`**, over all processes. Do not
/// lease a limit that must be exact to the millisecond.
///
/// # Number of units
///
/// A lease has at most
///
/// - half of the units that its key used within one validity;
/// - half of the units that were left after the last answer;
/// - the number that was passed to [`lease`](crate::LimiterExt::lease).
///
/// A refill starts when a quarter of a lease of 4 or more units is left, and callers without units
/// share it. A charge is refused only if the inner limiter refuses it.
///
/// # Refunds of leased units
///
/// Unspent units are refunded when their time is over, when no charge comes for half of that time,
/// when another quota, a [penalty](crate::LimiterExt::penalize) or a
/// [block](crate::LimiterExt::block) comes for the key, when the last clone is dropped, and by
/// [`end_leases`](Lease::end_leases). The algorithm determines how many come back: a busy bucket
/// gives back few, a closure none. Units that do not come back count as taken.
///
/// # Settling
///
/// Units that a request gives back are spent by the next request while they are valid, or refunded
/// with the rest of their lease. They are lost if units of that lease were returned before. If a
/// request costs more in the end, the missing units come from the key's lease, or else as a
/// penalty. A [`Budget`](crate::algorithm::Budget) holds the units of a lease while it lasts, and
/// then spends those that were used.
///
/// # What it does not do
///
/// - Leased units stay valid after a reset or a block by another process. A
///   [`reset`](crate::LimiterExt::reset) through this limiter forgets them.
/// - A peek, an estimate, a charge of [`several`](Charge::several) keys, one of at least as many
///   units as a lease, and one that [leaves units free](Charge::keep_free) go to the inner limiter,
///   where leased units count as taken. So does a charge that has to wait.
/// - It does not pace: leased units go at once. A bucket with `burst(1)` leases nothing, a smooth
///   limiter at most half of the stored permits.
/// - Do not put it around an [`AllInTurn`](crate::limiter::AllInTurn) or
///   [`AllAtOnce`](crate::redis::AllAtOnce) whose members state their own costs: a lease of 100
///   would charge them only once. Put it around the members.
/// - Admissions by a [`FailOpen`](crate::FailOpen) inside of it are leased too.
///
/// The decision for a leased unit is that of its lease. Without a tokio runtime with a clock, every
/// charge asks alone.
///
/// [Tuning]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/tuning/
#[must_use]
pub struct Lease<L: Limiter> {
    leases: Arc<Leases<L>>,
}

impl<L: Limiter> Lease<L> {
    pub(super) fn new(inner: L, max_units: u64) -> Self {
        Self { leases: Arc::new(Leases::new(Arc::new(inner), LeaseSettings::new(max_units))) }
    }

    /// Sets the time for which leased units may be spent, 1 ms to a day. Clones keep theirs.
    /// Default: 100 ms. A longer time weakens the [bound](Lease#the-bound).
    pub fn valid_for(self, time: Duration) -> Self {
        let validity = time.clamp(LeaseSettings::MIN_VALIDITY, LeaseSettings::MAX_VALIDITY);
        self.with(LeaseSettings { validity, ..self.leases.settings })
    }

    /// Sets the most keys that are watched at once, at least 1. Charges of further keys go to the
    /// inner limiter. Clones keep theirs. Default: 10,000.
    ///
    /// Keys are spread over shards of equal size, so a shard can be full a few percent early.
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(LeaseSettings { max_keys: keys.max(1), ..self.leases.settings })
    }

    /// Refunds the unspent units of all keys now.
    ///
    /// It is for a graceful shutdown. Call it when the last request has been answered, while the
    /// runtime still sends refunds. Leases for later charges are returned as usual.
    pub fn end_leases(&self) {
        self.leases.end_all();
    }

    fn with(&self, settings: LeaseSettings) -> Self {
        Self { leases: Arc::new(Leases::new(Arc::clone(&self.leases.inner), settings)) }
    }
}

impl<L> Limiter for Lease<L>
where
    L: Limiter + Send + Sync + 'static,
    L::Future: Send + 'static,
{
    type Future = LeaseFuture<L>;

    fn check(&self, charge: &Charge) -> LeaseFuture<L> {
        let (leases, cost) = (Arc::clone(&self.leases), charge.units());
        let is_large = cost >= leases.settings.max_units;
        if cost == 0 || is_large || !charge.keep_free.is_none() || !may_be_leased(charge) {
            let check = leases.inner.check(charge);
            return LeaseFuture::asking(leases, check);
        }
        LeaseFuture::starting(leases, charge.clone())
    }

    pass_on!(self.leases.inner, of self: check_keyless, renew, keys);

    /// Puts unused units back into the lease, or refunds them with the rest of the lease. Takes
    /// missing units from a lease, or from the inner limiter.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let leases = &self.leases;
        if reservation.owner() != leases.owner {
            return leases.inner.settle(reservation, actual);
        }
        let stock = reservation.payload::<Arc<Stock<L>>>();
        let settled = stock.and_then(|stock| leases.settle(stock, reservation.cost(), actual));
        settled.ok_or(reservation)
    }

    /// Asks the inner limiter. Before that, a penalty or a block ends the lease of its key, and a
    /// reset forgets it.
    fn operate(&self, operation: Operation, charge: &Charge) -> Option<LeaseFuture<L>> {
        let leases = Arc::clone(&self.leases);
        let answer = leases.inner.operate(operation, charge)?;
        if !may_be_leased(charge) {
            return Some(LeaseFuture::asking(leases, answer));
        }
        Some(LeaseFuture::operating(leases, answer, operation, charge.clone()))
    }
}

impl<L: Limiter> Clone for Lease<L> {
    fn clone(&self) -> Self {
        Self { leases: Arc::clone(&self.leases) }
    }
}

impl<L: Limiter + fmt::Debug> fmt::Debug for Lease<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("inner", &self.leases.inner)
            .field("settings", &self.leases.settings)
            .finish_non_exhaustive()
    }
}

const DEFAULT_VALIDITY: Duration = Duration::from_millis(100);
const DEFAULT_MAX_KEYS: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct LeaseSettings {
    max_units: u64,
    validity: Duration,
    max_keys: usize,
}

impl LeaseSettings {
    const MIN_VALIDITY: Duration = Duration::from_millis(1);
    const MAX_VALIDITY: Duration = Duration::from_secs(86_400);

    fn new(max_units: u64) -> Self {
        Self { max_units, validity: DEFAULT_VALIDITY, max_keys: DEFAULT_MAX_KEYS }
    }
}
