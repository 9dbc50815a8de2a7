//! Redisson's `RRateLimiter` on Redisson's own keys: Java and Rust share one limiter.
//!
//! A charge's key is a limiter's name. How it travels: `names.rs` tells the keys, `deciding.rs`
//! asks `queue.rs` whether somebody of this process asks already, and `call.rs` sends one call of `scripts/redisson.lua`, which knows the rate by itself, since
//! that is stored. The answer is [`Outcome::Again`] where others book a wait: the format has no room for a booking.
//! `object.rs` is the rest of what Java's object does, `rate.rs` its configuration.
//!
//! What differs from Java, and why, stands in `docs/redisson.md`.

mod call;
mod deciding;
mod names;
mod object;
mod queue;
mod rate;

pub use object::{Permits, RRateLimiter};
pub use rate::{Rate, RateType};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::call::{Caller, Question};
use self::deciding::{Asked, Shared};
use self::names::Names;
use super::script::Script;
use super::{DEADLINE, pool};
use crate::limiter::terms::owner;
use crate::limiter::{Limiter, Operation};
use crate::{Booking, Charge, Decision, Error, Pool};

/// The page's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/redisson.md")]
struct Page;

/// What decisions call it.
const NAME: &str = "redisson";

/// Redisson's limiters in one Redis, each under the name that it has in Java: a charge's key names it. Cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_sluice::{LimiterExt, Pool, Rate, Redisson};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redisson = Redisson::new(Pool::connect("redis://127.0.0.1:6379")?);
///
/// // What is `redisson.getRateLimiter("orders")` in Java:
/// let orders = redisson.rate_limiter("orders")?;
/// orders.try_set_rate(Rate::overall(100, Duration::from_secs(1))).await?;
/// if let Some(permits) = orders.try_acquire(1).await? {
///     permits.release(1).await?;
/// }
///
/// // The same limiter, as a limiter of this crate:
/// redisson.acquire("orders").await?;
/// # Ok(()) }
/// ```
///
/// As a limiter it goes into a [`RateLimitLayer`](crate::RateLimitLayer) with a closure that names it. Names are taken
/// verbatim, so that one which a request brings should get a prefix: it could otherwise be that of any key.
#[derive(Clone)]
pub struct Redisson {
    shared: Arc<Shared>,
}

impl Redisson {
    /// The limiters over `pool`, whose prefix they do not have.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        let shared = Shared {
            caller: Caller { pool, script: Script::redisson(), clock: None },
            owner: owner(),
            name: NAME.into(),
            client: uuid(fastrand::u128(..)).into(),
            deadline: DEADLINE,
            default_rate: None,
            queues: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the client id, by which limiters of [`RateType::PerClient`] are counted. Default: a random one, which clones
    /// share.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.shared).client = id.into();
        self
    }

    /// Sets how long a call may take, waiting for a connection included; a day at most. Default: 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        Arc::make_mut(&mut self.shared).deadline = deadline.min(pool::LONGEST);
        self
    }

    /// Decides by this machine's clock, as Redisson does. Default: the server's.
    ///
    /// For fleets of Java processes whose clocks agree with each other, but not with the server's. Whoever's clock is
    /// ahead frees everybody else's permits early.
    #[must_use]
    pub fn caller_clock(self) -> Self {
        self.clock(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Decides by `clock`, the time since the Unix epoch, cut to milliseconds. Default: the server's.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.shared).caller.clock = Some(Arc::new(clock));
        self
    }

    /// Gives this rate to limiters that are asked and have none, as [`RRateLimiter::try_set_rate`] does. Default: asking
    /// one is an error.
    #[must_use]
    pub fn default_rate(mut self, rate: Rate) -> Self {
        Arc::make_mut(&mut self.shared).default_rate = Some(rate);
        self
    }

    /// The limiter called `name`: Java's `getRateLimiter`. Where Java maps names, it is the mapped one.
    ///
    /// # Errors
    ///
    /// If the name is empty, or its braces would spread its keys over a cluster: it has either no brace at all, or its
    /// first `{` opens a `{tag}` that is not empty.
    pub fn rate_limiter(&self, name: &str) -> Result<RRateLimiter, Error> {
        let names = Names::of(name, &self.shared.client)?;
        Ok(RRateLimiter::new(self.clone(), names))
    }

    /// Gives a booking back, and tells how many permits that were: 0 if they have expired or were released otherwise.
    ///
    /// # Errors
    ///
    /// If the booking is another limiter's, or Redis cannot be asked.
    pub async fn give_back(&self, booking: Booking) -> Result<u64, Error> {
        let held = booking.cost;
        self.shared.put_back(&booking, held).await
    }
}

impl Limiter for Redisson {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let (shared, asked) = (Arc::clone(&self.shared), self.shared.read(charge));
        Box::pin(async move { shared.decide(asked?).await })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        if operation != Operation::Reset {
            return None;
        }
        let (shared, asked) = (Arc::clone(&self.shared), self.shared.read(charge));
        Some(Box::pin(async move {
            let Asked { names, deadline, .. } = asked?;
            let question = Question::new(&names, "reset", [""; 0]);
            let ask = || shared.caller.call(&question, deadline);
            let told = shared.configured(&names, deadline, ask).await?;
            shared.queues.forget(names.name());
            shared.decision(&told, names.name(), None)
        }))
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        if booking.owner != self.shared.owner {
            return Some(booking);
        }
        if let Ok((names, question)) = self.shared.refund(&booking, booking.cost) {
            self.shared.caller.send_off(question);
            self.shared.queues.forget(names.name());
        }
        None
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { caller, client, deadline, .. } = &*self.shared;
        f.debug_struct("Redisson")
            .field("pool", &caller.pool)
            .field("client_id", client)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}

/// As Java writes a random one.
fn uuid(random: u128) -> String {
    let number = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{number:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_random_uuids_of_version_4() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
