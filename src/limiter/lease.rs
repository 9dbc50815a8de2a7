//! Leases: several units in one call, spent in this process.
//!
//! From the bottom up: a stock (`stock.rs`) has the units of one lease while they are valid. A key
//! (`leased_key.rs`) spends its stocks, and computes the size of the next refill from its demand.
//! `leased_keys.rs` has the state that the clones of a limiter share: the settings, and the keys in
//! shards. When units run out, a task (`refill.rs`) takes more, and callers wait for them. Another
//! task (`sweeper.rs`) ends expired leases. `lease_future.rs` is the answer to a charge, on the
//! caller's side.

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
/// A call to a store costs tens of microseconds. For a busy key, a lease takes several units in one
/// call. It then spends them in this process, each in a fraction of a microsecond. So a lease of
/// 100 turns 100 calls for a busy key into one.
///
/// ```
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{LimiterExt, Memory, Quota};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// // In a service: `Redis::new("api", TokenBucket::new(quota), pool)`.
/// let store = Memory::new("api", TokenBucket::new(Quota::per_hour(10_000)));
/// let limiter = store.clone().lease(100);
/// for _ in 0..1_000 {
///     limiter.acquire("everybody").await.unwrap();
/// }
/// // Leased units count as taken, until they are spent or returned.
/// assert!(store.peek("everybody").await?.remaining() < Some(9_010));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// Write it next to the store, as `redis.lease(..).timeout(..).or_else(..)`. Only a breaker and a
/// [`deny_cache`](crate::LimiterExt::deny_cache) come before it, so that the cache sees the units
/// that come back. Leased units are spent even while the store is away.
///
/// # The bound
///
/// Leased units may be spent for 100 ms, or for the time of [`valid_for`](Lease::valid_for). That
/// time begins before the call that takes them. After it, they are not spent. So **a window of
/// length `T` has at most the units that the inner limiter admits in a window of length
/// `T + validity`**, over all processes. For a bucket of 1,000 per second that is at most 100 units
/// more. Do not lease a limit that must be exact to the millisecond.
///
/// Counted at the instant of their lease, [`decided_at`](crate::Decision::decided_at), the units
/// keep the inner limiter's own bound. A leased but unspent unit is not available to other
/// processes until it is returned.
///
/// # Number of units
///
/// The number of leased units depends on the demand. A lease has at most
///
/// - half of the units that its key used within one validity: the last whole one, or the present.
///   So a rarely used key takes single units: it costs as much as without a lease, and wastes
///   nothing;
/// - half of the units that were left after the last answer. So the last units are taken one by
///   one, and other processes get some;
/// - the number that was passed to [`lease`](crate::LimiterExt::lease).
///
/// A refill starts when a quarter of a lease of 4 or more units is left, so callers rarely wait.
/// Callers without units share a refill. If the refill is refused, each of them asks alone: a
/// charge is refused only if the inner limiter refuses it. A refused charge costs one call, as
/// without a lease. A caller whose deadline is earlier than that of the refill asks alone too.
///
/// # Refunds of leased units
///
/// Unspent units are refunded when their time is over, or when no charge comes for half of that
/// time; each up to a quarter of the time later. They are also refunded when another quota, a
/// [penalty](crate::LimiterExt::penalize) or a [block](crate::LimiterExt::block) comes for the key.
/// The drop of the last clone refunds them too, and so does [`end_leases`](Lease::end_leases). As
/// for any refund, the algorithm determines how many units come back. Windows refund exactly, a
/// bucket only if no other charge was decided since. Units that do not come back count as taken:
/// after a crash, or with a busy bucket, less is admitted, never more. A closure cannot refund, so
/// its units are lost too.
///
/// # Settling
///
/// Units that a request gives back are spent by the next request while they are valid. Later they
/// are refunded with the rest of their lease, when the last of its requests is settled or dropped.
/// They are lost if units of that lease were returned before. A
/// [`Budget`](crate::algorithm::Budget) holds the units of a lease while it lasts. When it ends,
/// all units that were used and not given back count as spent. If a request costs more in the end,
/// a task takes the missing units: from the key's lease if it has enough, or else as a penalty.
///
/// # What it does not do
///
/// - It does not see changes by other processes: leased units stay valid after a reset or a block
///   by another process. A [`reset`](crate::LimiterExt::reset) through this limiter forgets them.
/// - It does not answer a peek, an estimate, a charge of [`several`](Charge::several) keys, or a
///   charge of at least as many units as a lease, or one that
///   [leaves units free](Charge::keep_free). These go to the inner limiter, where leased units
///   count as taken.
/// - It does not delay charges: a charge that may wait waits in the inner limiter. Its slot is
///   exact, and comes after the units that were leased before.
/// - It does not pace: leased units go at once. A bucket with `burst(1)` never has two units left,
///   so nothing is leased. Smooth limiters lease at most half of the stored permits.
/// - It does not work if the inner limiter takes another cost than that of the charge. So do not
///   put it around an [`AllInTurn`](crate::limiter::AllInTurn) or
///   [`AllAtOnce`](crate::redis::AllAtOnce) whose members state their own costs: a lease of 100
///   would charge them only once. Put it around the members.
/// - It does not notice [`FailOpen`](crate::FailOpen) inside of it: these admissions are leased
///   too, for the validity.
///
/// # The report
///
/// The decision for a leased unit is that of its lease. [`remaining`](crate::Decision::remaining)
/// counts the units that the lease left in the store, and the unspent units of the lease. It does
/// not count units that others took since. `reset_after` is that of the lease, minus the time
/// since.
///
/// # Runtime and memory
///
/// It needs a tokio runtime with a clock. Without a runtime, every charge asks alone. A refill is a
/// task, so it does not depend on a caller, and callers of another runtime do not wait for it. One
/// more task returns units; it runs while there are keys. Up to 10,000 keys are watched, or the
/// number of [`max_keys`](Lease::max_keys). Each takes a few hundred bytes.
#[must_use]
pub struct Lease<L: Limiter> {
    leases: Arc<Leases<L>>,
}

impl<L: Limiter> Lease<L> {
    pub(super) fn new(inner: L, max_units: u64) -> Self {
        Self { leases: Arc::new(Leases::new(Arc::new(inner), LeaseSettings::new(max_units))) }
    }

    /// Sets the time for which leased units may be spent, 1 ms to a day. Clones keep theirs.
    /// Default: 100 ms.
    ///
    /// A longer time weakens the bound: see [above](Lease#the-bound). It also saves more calls: a
    /// lease has at most half of the units that its key used within this time.
    pub fn valid_for(self, time: Duration) -> Self {
        let validity = time.clamp(LeaseSettings::MIN_VALIDITY, LeaseSettings::MAX_VALIDITY);
        self.with(LeaseSettings { validity, ..self.leases.settings })
    }

    /// Sets the most keys that are watched at once, at least 1. Charges of further keys go to the
    /// inner limiter. Clones keep theirs. Default: 10,000.
    ///
    /// A key is watched until it is idle for twice the validity. Keys are spread over up to 16
    /// shards of equal size, so a shard can be full a few percent early.
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(LeaseSettings { max_keys: keys.max(1), ..self.leases.settings })
    }

    /// Refunds the unspent units of all keys now. When the last clone is dropped, it does the same.
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
    /// The most units of one lease.
    max_units: u64,
    /// The time for which leased units may be spent.
    validity: Duration,
    /// The most keys that are watched at once.
    max_keys: usize,
}

impl LeaseSettings {
    const MIN_VALIDITY: Duration = Duration::from_millis(1);
    const MAX_VALIDITY: Duration = Duration::from_secs(86_400);

    fn new(max_units: u64) -> Self {
        Self { max_units, validity: DEFAULT_VALIDITY, max_keys: DEFAULT_MAX_KEYS }
    }
}
