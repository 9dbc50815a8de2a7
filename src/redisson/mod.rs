//! Redisson's `RRateLimiter` on Redisson's own keys: Java and Rust share one limiter.
//!
//! A charge's key is a limiter's name. How it travels: `names.rs` tells the keys; `deciding.rs`
//! asks `queue.rs` whether somebody of this process asks already; `grant.rs` draws the bytes that
//! it is known by; and `call.rs` sends one call of `scripts/redisson.lua`, which knows the rate by
//! itself, since that is stored. The answer is [`Outcome::Retry`](crate::Outcome::Retry) where
//! others reserve a wait: the format has no room for a reservation. `object.rs` is the rest of what
//! Java's object does, `rate.rs` its configuration.
//!
//! What differs from Java, and why, stands in `docs/redisson.md`.

mod decide;
mod grant;
mod keys;
mod object;
mod permit_log;
mod queues;
mod rate;
mod refund_on_drop;
mod reply;
mod request;
mod sender;

pub use object::{Permits, RRateLimiter};
pub use permit_log::PermitLog;
pub use rate::{Rate, RateType};

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use uuid::Uuid;

use self::decide::{Inner, ParsedCharge};
use self::keys::Keys;
use self::request::Request;
use self::sender::Sender;
use crate::future::BoxedFuture;
use crate::limiter::redis::sending::{DEADLINE, LONGEST};
use crate::{Charge, Error, Limiter, Operation, Owner, Pool, Reservation};

/// The page's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/redisson.md")]
struct Page;

/// What decisions call it.
const NAME: &str = "redisson";

/// Redisson's limiters in one Redis, each under the name that it has in Java: a charge's key keys
/// it. Cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_sluice::redisson::{Rate, Redisson};
/// use tower_sluice::{LimiterExt, Pool};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redisson = Redisson::new(Pool::connect("redis://127.0.0.1:6379")?);
///
/// // What is `redisson.getRateLimiter("orders")` in Java:
/// let orders = redisson.rate_limiter("orders")?;
/// orders.try_set_rate(Rate::overall(100, Duration::from_secs(1))).await?;
/// if let Some(mut permits) = orders.try_acquire(1).await? {
///     permits.release(1).await?;
/// }
///
/// // The same limiter, as a limiter of this crate:
/// redisson.acquire("orders").await?;
/// # Ok(()) }
/// ```
///
/// As a limiter it goes into a [`RateLimitLayer`](crate::RateLimitLayer) with a closure that keys
/// it. Keys are taken verbatim, so that one which a request brings should get a prefix: it could
/// otherwise be that of any key.
#[derive(Clone)]
pub struct Redisson {
    inner: Arc<Inner>,
}

impl Redisson {
    /// The limiters over `pool`, whose prefix they do not have.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        let inner = Inner {
            sender: Sender::new(pool),
            owner: Owner::new(),
            name: NAME.into(),
            client: Uuid::new_v4().to_string().into(),
            deadline: DEADLINE,
            default_rate: None,
            queues: Arc::default(),
            grants: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the client id, by which limiters of [`RateType::PerClient`] are counted. Default: a
    /// random one, which clones share.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<Arc<str>>) -> Self {
        let inner = self.apart();
        inner.client = id.into();
        self
    }

    /// Sets how long a call may take, waiting for a connection included; a day at most.
    /// Default: 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        Arc::make_mut(&mut self.inner).deadline = deadline.min(LONGEST);
        self
    }

    /// Decides by this machine's clock, as Redisson does. Default: the server's.
    ///
    /// For fleets of Java processes whose clocks agree with each other, but not with the server's.
    /// Whoever's clock is ahead frees everybody else's permits early.
    #[must_use]
    pub fn caller_clock(self) -> Self {
        self.clock(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Decides by `clock`, the time since the Unix epoch, cut to milliseconds.
    /// Default: the server's.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let inner = self.apart();
        inner.sender.clock = Some(Arc::new(clock));
        self
    }

    /// Configures a limiter with this rate when it has no configuration yet and is first checked,
    /// released or reset. Default: none, and such a call is an error.
    ///
    /// Keys that come from requests then create keys. Give such keys a prefix: without one, a
    /// request could name any key.
    ///
    /// A rate out of range is an error of the call that would configure the limiter: see
    /// [`Rate::overall`].
    #[must_use]
    pub fn default_rate(mut self, rate: Rate) -> Self {
        Arc::make_mut(&mut self.inner).default_rate = Some(rate);
        self
    }

    /// For what clones do not share any more: who waits for what, and whose reservations are whose.
    fn apart(&mut self) -> &mut Inner {
        let inner = Arc::make_mut(&mut self.inner);
        (inner.owner, inner.queues) = (Owner::new(), Arc::default());
        inner
    }

    /// The limiter called `name`: Java's `getRateLimiter`. Where Java maps keys, it
    /// is the mapped one.
    ///
    /// # Errors
    ///
    /// If the name is empty, or its braces would spread its keys over a cluster: it has either no
    /// brace at all, or its first `{` opens a `{tag}` that is not empty.
    pub fn rate_limiter(&self, name: &str) -> Result<RRateLimiter, Error> {
        let keys = Keys::new(name, &self.inner.client)?;
        Ok(RRateLimiter::new(self.clone(), keys))
    }

    /// Gives a reservation back, and tells how many permits that were: 0 if they have expired or
    /// were released otherwise.
    ///
    /// # Errors
    ///
    /// If the reservation is another limiter's, or Redis cannot be asked.
    pub async fn refund_confirmed(&self, reservation: Reservation) -> Result<u64, Error> {
        let held = reservation.cost();
        self.inner.refund(&reservation, held, held).await
    }
}

impl Limiter for Redisson {
    type Future = BoxedFuture;

    fn check(&self, charge: &Charge) -> Self::Future {
        let (inner, charge) = (Arc::clone(&self.inner), self.inner.read(charge));
        Box::pin(async move { inner.decide(charge?).await })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        if operation != Operation::Reset {
            return None;
        }
        let (inner, charge) = (Arc::clone(&self.inner), self.inner.read(charge));
        Some(Box::pin(async move {
            let ParsedCharge { keys, deadline, .. } = charge?;
            let request = Request::new(&keys, "reset", [""; 0]);
            let call = || inner.sender.call(&request, deadline);
            let reply = inner.with_default_rate(&keys, deadline, call).await;
            inner.queues.forget_refusal(keys.name());
            inner.decision(&reply?, keys.name(), None)
        }))
    }

    /// The format has no room for a debt: a settlement that would take more is handed back.
    fn settle(&self, reservation: Reservation, actual: u64) -> Option<Reservation> {
        let cost = reservation.cost();
        if reservation.owner() != self.inner.owner || actual > cost {
            return Some(reservation);
        }
        if actual < cost
            && let Ok(runtime) = Handle::try_current()
        {
            let inner = Arc::clone(&self.inner);
            // Best effort: permits that do not come back err on the safe side.
            runtime.spawn(async move { inner.refund(&reservation, cost - actual, cost).await });
        }
        None
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { sender, client, deadline, .. } = &*self.inner;
        f.debug_struct("Redisson")
            .field("pool", &sender.pool)
            .field("client_id", client)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}
