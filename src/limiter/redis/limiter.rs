//! The limiter itself: its name, its settings, and the requests that it passes to the batcher.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::client::Pool;
use super::client::times::{DEFAULT_DECISION_TIMEOUT, MAX_TIMEOUT};
use super::key_names::{Buckets, key_prefixes};
use super::redis_future::{Inner, RedisFuture};
use super::script::Op;
use super::send::{Batcher, Config};
use crate::Charge;
use crate::algorithm::{Check, InLua};
use crate::limiter::charge_numbers::block_time;
use crate::limiter::configured::{ConfiguredAlgorithm, expect_valid_quota};
use crate::limiter::{Limiter, Operation};
use crate::quota::QuotaError;
use crate::reservation::Reservation;
use crate::settlement::Settlement;

/// A limiter that many processes share: one script call to Redis decides. Cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_sluice::{LimiterExt, Pool, Quota, Redis, algorithm::TokenBucket};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::connect("redis://127.0.0.1:6379")?;
/// let api = Redis::new("api", TokenBucket::new(Quota::per_second(50).burst(100)), pool.clone());
/// let jobs = Redis::new("jobs", TokenBucket::new(Quota::per_minute(10)), pool)
///     .decision_timeout(Duration::from_millis(20));
/// jobs.acquire("nightly").await?;
/// # Ok(()) }
/// ```
///
/// The server's clock decides. A decision fails after its
/// [`decision_timeout`](Redis::decision_timeout), 100 ms unless set. The page
/// [when Redis fails](crate::guide::when_redis_fails) says what a caller then sees, and
/// [`or_else`](crate::LimiterExt::or_else) adds a fallback.
///
/// # Its keys in Redis
///
/// The key `alice` of the limiter `api` is called `sluice:api:tb1:{alice}`: the pool's
/// [`prefix`](Pool::prefix), the limiter's name, the algorithm with its version, and the key of the
/// charge. `redis-cli --scan --pattern 'sluice:api:*'` lists them. In a tuple each quota has its
/// own key, such as `sluice:api:1tb1:{alice}`. A key of the charge that is longer than 64 bytes, or
/// that holds other characters than letters, digits and `._~@:/-`, is replaced by a digest.
///
/// Anyone who may list the keys of the server can read all keys that are not digests. So hash a key
/// that is a secret before you charge it, as [`by_api_key`](crate::by_api_key) does. The values are
/// internal: [`peek`] reads a key, and [`reset`] deletes it.
///
/// [`peek`]: crate::LimiterExt::peek
/// [`reset`]: crate::LimiterExt::reset
///
/// # Paused time
///
/// It needs a tokio runtime whose clock runs: under paused time (`start_paused`) most decisions
/// miss their deadline. In such tests use [`Memory`](crate::Memory) or
/// [`testing::Scripted`](crate::testing::Scripted).
#[derive(Clone)]
pub struct Redis<A: InLua> {
    pub(super) inner: Arc<Inner<A>>,
}

impl<A: InLua> Redis<A> {
    /// A limiter called `name` over `pool`. Processes that use the same name share it.
    /// Where their quotas differ, they share the state of each key, and each decides under its own
    /// quota. Another algorithm has other keys.
    ///
    /// # Panics
    ///
    /// Where [`Redis::try_new`] returns an error.
    #[must_use]
    #[track_caller]
    pub fn new(name: impl Into<Arc<str>>, algorithm: A, pool: Pool) -> Self {
        let name = name.into();
        expect_valid_quota(&name, Self::try_new(Arc::clone(&name), algorithm, pool))
    }

    /// The same, for a quota that comes from a file or a user.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota: a window with a burst, or a limit that it cannot
    /// compute with exactly. And if the name is empty.
    pub fn try_new(
        name: impl Into<Arc<str>>,
        algorithm: A,
        pool: Pool,
    ) -> Result<Self, QuotaError> {
        let named = ConfiguredAlgorithm::new(name.into(), algorithm)?;
        let parts = named.algorithm().parts();
        let key_prefixes = key_prefixes(&parts, pool.key_prefix(), named.name());
        Ok(Self::with_key_prefixes(named, key_prefixes, pool))
    }

    /// A limiter whose keys begin with `key_prefixes`, one for each quota.
    pub(super) fn with_key_prefixes(
        named: ConfiguredAlgorithm<A>,
        key_prefixes: Vec<String>,
        pool: Pool,
    ) -> Self {
        let batcher = Batcher::new(Config::new(pool, key_prefixes, &named));
        let (decision_timeout, batcher) = (DEFAULT_DECISION_TIMEOUT, Arc::new(batcher));
        Self { inner: Arc::new(Inner { named, decision_timeout, batcher }) }
    }

    /// Sets how long a decision may take, including the wait for a connection; at most a day.
    /// Default: 100 ms.
    ///
    /// Where no connection can be made at all, the error comes after 500 ms at the latest.
    ///
    /// In a process that is on time, an error comes as late as a timer of tokio: 1 to 2 ms after
    /// this time. In a busy process it comes about 10 ms after it or later, since the runtime first
    /// reads the replies that have arrived.
    #[must_use]
    pub fn decision_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.inner).decision_timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: the server's.
    ///
    /// For tests and replays: callers whose clocks differ admit each other's charges early. The
    /// clock is read once for each call, when the call is sent.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.configure(|config| config.clock = Some(Arc::new(clock)))
    }

    /// Gathers the keys into this number of hash slots of a cluster, 1 to 16,384, so that charges
    /// of different keys share calls. Default: each key has a slot of its own, and in a cluster
    /// charges of different keys rarely share a call.
    ///
    /// Take about ten for each master. Fewer gather more charges in a call. More spread the load
    /// evenly, even when slots move. Keys are then named `sluice:api:tb1:{17}:alice`. All processes
    /// must set the same number: a process with another number has other keys, and so has a limiter
    /// whose number has changed.
    #[must_use]
    pub fn buckets(self, buckets: u16) -> Self {
        self.configure(|config| config.buckets = vec![Buckets::new(buckets)])
    }

    /// Sets the most charges in one call, 1 to 1,000; with several quotas at most 4,000 keys.
    /// Default: 64.
    ///
    /// A call of 64 holds Redis for about 200 µs. While 24 charges or more have no answer, a call
    /// takes half of them at most, so that Redis decides one half while this process reads the
    /// answers to the other. If as many arrive at one moment and no charge follows, the second half
    /// waits for the first answers, or for 5 ms.
    #[must_use]
    pub fn max_batch_size(self, charges: usize) -> Self {
        self.configure(|config| config.set_max_batch_size(charges))
    }

    /// Sets how many calls may be under way at once for each connection, at least 1. Default: 2.
    #[must_use]
    pub fn max_in_flight(self, calls: usize) -> Self {
        self.configure(|config| config.max_in_flight = calls.max(1))
    }

    /// Sets how many charges may wait to be sent, at least 1; beyond, the error is of kind
    /// [`Saturation`](crate::ErrorKind::Saturation). Settlements pass a full queue. Default:
    /// 16,384.
    #[must_use]
    pub fn queue_capacity(self, charges: usize) -> Self {
        let permits = Semaphore::new(charges.clamp(1, Semaphore::MAX_PERMITS));
        self.configure(|config| config.queue_permits = Arc::new(permits))
    }

    pub(super) fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let inner = Arc::make_mut(&mut self.inner);
        let mut config = inner.batcher.config().clone();
        change(&mut config);
        inner.batcher = Arc::new(Batcher::new(config));
        self
    }
}

impl<A: InLua> Limiter for Redis<A> {
    type Future = RedisFuture<A>;

    fn check(&self, charge: &Charge) -> RedisFuture<A> {
        self.inner.ask(charge, |Check { cost, max_wait }| Op::Check { cost, max_wait })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let settle = |payload: &_, cost| self.inner.settle(payload, cost, actual);
        self.inner.named.settle(reservation, actual, settle)
    }

    fn can_take_more(&self) -> bool {
        true
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<RedisFuture<A>> {
        Some(match operation {
            Operation::Estimate => {
                self.inner.ask(charge, |Check { cost, max_wait }| Op::Estimate { cost, max_wait })
            }
            Operation::Penalize => {
                self.inner.ask(charge, |Check { cost, .. }| Op::Penalize { cost })
            }
            Operation::Reset => self.inner.ask(charge, |_| Op::Reset),
            Operation::Block(time) => {
                self.inner.ask(charge, |_| Op::Block { time: block_time(time) })
            }
            Operation::Unblock => self.inner.ask(charge, |_| Op::Unblock),
        })
    }
}

impl<A: InLua> fmt::Debug for Redis<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { named, decision_timeout, batcher, .. } = &*self.inner;
        f.debug_struct("Redis")
            .field("named", named)
            .field("pool", &batcher.config().pool)
            .field("decision_timeout", decision_timeout)
            .finish_non_exhaustive()
    }
}
