#![doc = include_str!("../README.md")]
// The steps of a charge: `keys.rs` names the keys. `charge_permits.rs` waits for a turn in
// `queues.rs`, takes the random bytes of a grant from `grant.rs`, and takes permits with
// `take_permits.rs`, which refunds a grant whose caller has left. `sender.rs` sends each request
// (`messages.rs`). The script reads the rate from its keys, and answers with a reply.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![doc(test(attr(deny(unused_imports))))]

mod charge_permits;
mod clock;
mod grant;
mod keys;
mod messages;
mod permit_log;
mod permits;
mod queues;
mod rate;
mod rate_limiter;
mod sender;
mod take_permits;

/// Each method of Java's object, what differs, and what Redis must allow.
pub mod guide {
    #![doc = include_str!("../redisson.md")]
}

pub use permit_log::PermitLog;
pub use permits::Permits;
pub use rate::{Rate, RateType};
pub use rate_limiter::RRateLimiter;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tower_sluice::future::{BoxedFuture, Settled, Settlement};
use tower_sluice::limiter::{Operation, Owner, Reservation};
use tower_sluice::{Charge, Error, Limiter, Pool};
use uuid::Uuid;

use self::charge_permits::{ParsedCharge, SharedRedisson};
use self::clock::system_time;
use self::keys::Keys;
use self::messages::PermitCall;
use self::sender::Sender;

/// The default name of the limiter in its decisions.
const NAME: &str = "redisson";

/// The longest time of a decision, so that deadlines do not overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

/// The rate limiters of Redisson in one Redis. The key of a charge is the name of a limiter. It is
/// cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_sluice_redisson::{Rate, Redisson};
/// use tower_sluice::{LimiterExt, Pool};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redisson = Redisson::new(Pool::connect("redis://127.0.0.1:6379")?);
///
/// // The same as `redisson.getRateLimiter("orders")` in Java:
/// let orders = redisson.rate_limiter("orders")?;
/// orders.try_set_rate(Rate::overall(100, Duration::from_secs(1))).await?;
/// if let Some(mut permits) = orders.try_acquire(1).await? {
///     permits.release(1).await?;
/// }
///
/// // The same limiter, as a limiter of `tower-sluice`:
/// redisson.acquire("orders").await?;
/// # Ok(()) }
/// ```
///
/// In a [`RateLimitLayer`](tower_sluice::RateLimitLayer), a closure over the request returns the
/// name of its limiter. Names are used unchanged. Add a prefix to a name that comes from a request:
/// without it, a request could name any key.
///
/// It supports refunds, resets and [`penalize`](tower_sluice::LimiterExt::penalize). A penalty is a
/// grant now, even if it does not fit, so Java services wait for it too. A settlement takes no more
/// than was charged.
#[derive(Clone)]
#[must_use]
pub struct Redisson {
    inner: Arc<SharedRedisson>,
}

impl Redisson {
    /// The limiters in the Redis of `pool`. Their keys have no prefix.
    pub fn new(pool: Pool) -> Self {
        let inner = SharedRedisson {
            sender: Sender::new(pool),
            owner: Owner::new(),
            name: NAME.into(),
            client: Uuid::new_v4().to_string().into(),
            decision_timeout: Duration::from_millis(100),
            default_rate: None,
            queues: Arc::default(),
            grants: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the client id: limiters of [`RateType::PerClient`] count the permits of each id
    /// separately. Default: a random UUID, which clones share.
    pub fn client_id(mut self, id: impl Into<Arc<str>>) -> Self {
        let inner = self.detached();
        inner.client = id.into();
        self
    }

    /// Sets the name of the limiter in its decisions, and so in header fields and metrics. It is
    /// not part of any key. Default: `redisson`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.inner).name = name.into();
        self
    }

    /// Sets the longest time of a decision, including the wait for a connection; at most a year.
    /// Default: 100 ms.
    pub fn decision_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.inner).decision_timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Decides by this machine's clock, as Redisson does. Default: the server's clock.
    ///
    /// It is for Java processes whose clocks agree with each other, but not with the server's
    /// clock. A process whose clock is ahead frees the permits of all other processes early.
    pub fn caller_clock(self) -> Self {
        self.clock(system_time)
    }

    /// Decides by `clock`, the time since the Unix epoch, truncated to milliseconds. Default: the
    /// server's clock.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let inner = self.detached();
        inner.sender.clock = Some(Arc::new(clock));
        self
    }

    /// Sets the rate of limiters without a configuration: it is stored at their first check,
    /// release or reset. Default: none, and such a call is an error.
    ///
    /// Names from requests then create keys. Add a prefix to such names: without it, a request
    /// could name any key.
    ///
    /// A rate out of range is an error of the call that would configure the limiter: see
    /// [`Rate::overall`].
    pub fn default_rate(mut self, rate: Rate) -> Self {
        Arc::make_mut(&mut self.inner).default_rate = Some(rate);
        self
    }

    /// Detaches the settings from those of clones. The result has its own queues and reservations.
    fn detached(&mut self) -> &mut SharedRedisson {
        let inner = Arc::make_mut(&mut self.inner);
        (inner.owner, inner.queues) = (Owner::new(), Arc::default());
        inner
    }

    /// Returns the limiter called `name`: Java's `getRateLimiter`. If Java maps names, use the
    /// mapped name.
    ///
    /// # Errors
    ///
    /// If the name is empty, or if its keys would be in several slots of a cluster. A valid name
    /// has no brace, or its first `{` begins a `{tag}` that is not empty.
    pub fn rate_limiter(&self, name: &str) -> Result<RRateLimiter, Error> {
        let keys = Keys::new(name, &self.inner.client)?;
        Ok(RRateLimiter::new(self.clone(), keys))
    }
}

impl Limiter for Redisson {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> Self::Future {
        let (inner, charge) = (Arc::clone(&self.inner), self.inner.read(charge));
        Box::pin(async move { inner.decide(charge?).await })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let is_reset = match operation {
            Operation::Reset => true,
            Operation::Penalize => false,
            _ => return None,
        };
        let (inner, charge) = (Arc::clone(&self.inner), self.inner.read(charge));
        Some(Box::pin(async move {
            let ParsedCharge { keys, permits, deadline, .. } = charge?;
            let request = match is_reset {
                true => PermitCall::new(&keys, "reset", [""; 0]),
                false if permits == 0 => PermitCall::new(&keys, "available", [""; 0]),
                false => PermitCall::penalize(&keys, permits, &inner.grants.next()),
            };
            let call = || inner.sender.call(&request, deadline);
            let reply = inner.with_default_rate(&keys, deadline, call).await;
            inner.queues.forget_refusal(keys.name());
            inner.decision(&reply?, keys.name(), None)
        }))
    }

    /// Refunds unused permits. Takes no more than was charged: the format has no room for a debt.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let cost = reservation.cost();
        if reservation.owner() != self.inner.owner {
            return Err(reservation);
        }
        if actual >= cost {
            return Ok(Settlement::not_taken(actual - cost));
        }
        let Ok(runtime) = Handle::try_current() else { return Err(reservation) };
        let inner = Arc::clone(&self.inner);
        // Best effort: permits that are not refunded expire.
        let (settler, settlement) = Settlement::begin();
        runtime.spawn(async move {
            let given_back = inner.refund(&reservation, cost - actual, cost).await;
            settler.end(given_back.map(Settled::gave_back));
        });
        Ok(settlement)
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedRedisson { sender, client, decision_timeout, .. } = &*self.inner;
        f.debug_struct("Redisson")
            .field("pool", &sender.pool)
            .field("client_id", client)
            .field("decision_timeout", decision_timeout)
            .finish_non_exhaustive()
    }
}
