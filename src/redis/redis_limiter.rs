//! The limiter: its name and its settings, the requests for charges, and the future that reads the
//! answers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redis_once::calls::Deadline;
use tokio::time::Instant;

use super::Pool;
use super::decision_times::{DEFAULT_DECISION_TIMEOUT, LATE_REPLY_TIMEOUT, MAX_TIMEOUT};
use super::key_names::{Buckets, key_prefixes};
use super::script::{Op, ReplyEntry, Request, malformed_reply};
use super::send::{Batcher, Config, Pending, QueueRoom, QueuedRequest, ScriptAnswer};
use crate::algorithm::{Check, InLua, IntoAlgorithm};
use crate::core::charge::{KeepFree, Key};
use crate::core::decision::Origin;
use crate::core::mark::Births;
use crate::core::quota::{QuotaError, Quotas};
use crate::core::reservation::{Reservation, ReservedUnits};
use crate::core::settlement::{Renewal, Settlement};
use crate::core::{Charge, Decision, Error};
use crate::limiter::charge_numbers::{block_time, one_key, units};
use crate::limiter::configured::{ConfiguredAlgorithm, Provenance, expect_valid_quota};
use crate::limiter::line::{ResetsSeen, SettleUnits};
use crate::limiter::queues::QueueTerms;
use crate::limiter::{Limiter, Operation, charge_numbers};

/// A limiter that many processes share: one script call to Redis decides. It is cheap to clone.
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
/// It uses the server's clock. A decision fails after its
/// [`decision_timeout`](Redis::decision_timeout), by default 100 ms. The page [when Redis
/// fails][page] describes what a caller then sees, and
/// [`or_else`](crate::LimiterExt::or_else) adds a fallback.
///
/// # Its keys in Redis
///
/// The key `alice` of the limiter `api` is called `sluice:api:tb1:{alice}`: the pool's
/// [`prefix`](Pool::prefix), the limiter's name, the algorithm with its version, and the key of the
/// charge. `redis-cli --scan --pattern 'sluice:api:*'` lists them. In a tuple, each quota has its
/// own key, such as `sluice:api:1tb1:{alice}`. In the name of a limiter, a colon, a space and other
/// unusual characters are percent-encoded, as in `sluice:my%20api:*`. A charge's key is replaced by
/// a digest if it is longer than 64 bytes, or if it has other characters than letters, digits and
/// `._~@:/-`.
///
/// A user who may list the keys can read all that are not digests, so hash a secret, as
/// [`by_api_key`](crate::by_api_key) does. The values are internal: use
/// [`peek`](crate::LimiterExt::peek) to read a key.
///
/// # Paused time
///
/// It needs a tokio runtime whose clock runs: with paused time (`start_paused`), decisions miss
/// their deadline at random. In such tests, use [`Memory`](crate::Memory) or
/// [`testing::Scripted`](crate::testing::Scripted).
///
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/when_redis_fails/
#[derive(Clone)]
#[must_use]
pub struct Redis<A: InLua> {
    pub(super) inner: Arc<Inner<A>>,
}

impl<A: InLua> Redis<A> {
    /// A limiter called `name` over `pool`. Processes that use the same name share it. If their
    /// quotas differ, they share the state of each key, and each decides by its own quota. Another
    /// algorithm has other keys.
    ///
    /// # Panics
    ///
    /// If [`Redis::try_new`] returns an error.
    #[track_caller]
    pub fn new(
        name: impl Into<Arc<str>>,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        pool: Pool,
    ) -> Self {
        let name = name.into();
        expect_valid_quota(&name, Self::try_new(Arc::clone(&name), algorithm, pool))
    }

    /// A limiter called `name` over `pool`, for a quota that comes from a file or a user.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota: a window with a burst, or a limit with which it
    /// cannot compute exactly. Also if the name is empty.
    pub fn try_new(
        name: impl Into<Arc<str>>,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        pool: Pool,
    ) -> Result<Self, QuotaError> {
        let named = ConfiguredAlgorithm::new(name.into(), algorithm.into_algorithm())?;
        let key_prefixes = key_prefixes(&named.parts(), pool.key_prefix(), named.name());
        Ok(Self::with_key_prefixes(named, key_prefixes, pool))
    }

    pub(super) fn with_key_prefixes(
        named: ConfiguredAlgorithm<A>,
        key_prefixes: Vec<String>,
        pool: Pool,
    ) -> Self {
        let batcher = Batcher::new(Config::new(pool, key_prefixes, &named));
        let (decision_timeout, batcher) = (DEFAULT_DECISION_TIMEOUT, Arc::new(batcher));
        Self { inner: Arc::new(Inner { named, decision_timeout, batcher }) }
    }

    /// Sets the longest time of a decision, including the wait for a connection; at most a year.
    /// Default: 100 ms.
    ///
    /// If no connection can be made, the error comes after at most 500 ms.
    ///
    /// In a busy process, it may come later.
    pub fn decision_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.inner).decision_timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: the server's clock.
    ///
    /// It is for tests and replays: callers whose clocks differ admit charges too early. For
    /// servers whose scripts may not call `TIME`, see [`Pool::caller_clock`].
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.configure(|config| config.clock = Some(Arc::new(clock)))
    }

    /// Puts the keys into this number of hash slots of a cluster, 1 to 16,384, so that charges of
    /// different keys share calls. Default: each key has its own slot.
    ///
    /// Choose about ten for each master. Keys then have names such as `sluice:api:tb1:{17}:alice`.
    /// All processes must set the same number: a change of it starts all keys from the beginning.
    pub fn buckets(self, buckets: u16) -> Self {
        self.configure(|config| config.buckets = vec![Buckets::new(buckets)])
    }

    /// Sets the most charges in one call, 1 to 1,000; with several quotas at most 4,000 keys.
    /// Default: 64.
    ///
    /// A call of 64 charges blocks Redis for about 200 µs. While 8 or more charges have no answer
    /// (in a cluster 24, of one key more than a call takes), a call takes at most half of them.
    pub fn max_batch_size(self, charges: usize) -> Self {
        self.configure(|config| config.set_max_batch_size(charges))
    }

    /// Sets the most calls in flight to a server, at least 1; in a cluster, over a connection.
    /// Default: 16.
    ///
    /// A near server has four, so that others who use it wait for few calls. A far one has as many
    /// as keep it busy, by how much longer its calls take under load than the fastest.
    pub fn max_in_flight(self, calls: usize) -> Self {
        self.configure(|config| config.max_in_flight = calls.max(1))
    }

    /// Sets the most charges that may wait to be sent, at least 1. If the queue is full, a charge
    /// gets an error of kind [`Saturation`](crate::ErrorKind::Saturation). Settlements are sent
    /// even then. Default: 16,384.
    pub fn queue_capacity(self, charges: usize) -> Self {
        self.configure(|config| config.queue_room = QueueRoom::new(charges))
    }

    /// Returns true if it is known whether the keys of several limiters share a server.
    pub(super) fn knows_servers(&self) -> bool {
        self.inner.batcher.config().pool.client.keys_apart().is_some()
    }

    /// Returns true if each key needs its own call.
    pub(super) fn keys_apart(&self) -> bool {
        self.inner.batcher.config().pool.client.keys_apart() == Some(true)
    }

    /// Waits until that is known: for the first connection.
    ///
    /// # Errors
    ///
    /// The error of a charge that has no connection at its deadline.
    pub(super) async fn connected(self, deadline: Instant) -> Result<(), Error> {
        let pool = &self.inner.batcher.config().pool;
        pool.client.connection_by(Deadline::new(deadline, 0)).await?;
        Ok(())
    }

    pub(super) fn deadline(&self, charge: &Charge) -> Instant {
        charge_numbers::deadline(charge, self.inner.decision_timeout)
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

    fn keys(&self) -> Option<usize> {
        Some(1)
    }

    fn check(&self, charge: &Charge) -> RedisFuture<A> {
        self.inner.ask(None, charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let settle = |reserved: &_, cost| self.inner.settle(reserved, cost, actual);
        self.inner.named.settle(reservation, actual, settle)
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        let inner = Arc::clone(&self.inner);
        self.inner.named.renew(reservation, |reserved, cost, mark| async move {
            let op = Op::Renew { cost, mark: mark.get() };
            let request = inner.settling(&reserved, op)?;
            match inner.send_patiently(request)?.await?.answer.map(|answer| answer.entry) {
                Some(ReplyEntry::Renewed { mark: next, is_held }) => {
                    mark.set(next);
                    Ok(is_held)
                }
                _ => Err(malformed_reply()),
            }
        })
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<RedisFuture<A>> {
        Some(self.inner.ask(Some(operation), charge))
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

#[derive(Clone)]
pub(super) struct Inner<A: InLua> {
    pub(super) named: ConfiguredAlgorithm<A>,
    pub(super) decision_timeout: Duration,
    pub(super) batcher: Arc<Batcher>,
}

impl Op {
    /// Returns a check, or another operation, for a charge with these numbers. `births` are those
    /// of a charge of which a penalty is the rest.
    fn of(
        operation: Option<Operation>,
        Check { cost, max_wait, .. }: Check<'_>,
        births: Option<Box<[i64]>>,
    ) -> Self {
        match operation {
            None => Self::Check { cost, max_wait },
            Some(Operation::Estimate) => Self::Estimate { cost, max_wait },
            Some(Operation::Penalize) => Self::Penalize { cost, births },
            Some(Operation::Grant) => Self::Grant { cost },
            Some(Operation::Reset) => Self::Reset,
            Some(Operation::Block(time)) => Self::Block { time: block_time(time) },
            Some(Operation::Pause(time)) => Self::Pause { time: block_time(time) },
            Some(Operation::Unblock) => Self::Unblock,
        }
    }
}

/// Returns the birth of each quota's key. 0 where it was not reset.
fn of_each_quota(births: &[i64], quotas: &Quotas) -> Box<[i64]> {
    let birth = |index| births.get(index).copied().unwrap_or(0);
    (0..quotas.as_slice().len()).map(birth).collect()
}

impl<A: InLua> Inner<A> {
    fn ask(self: &Arc<Self>, operation: Option<Operation>, charge: &Charge) -> RedisFuture<A> {
        // A key that is too long is rejected before it is hashed.
        let key = one_key(charge).map(|key| self.batcher.config().buckets[0].suffix(key));
        self.ask_keys(key, operation, charge)
    }

    pub(super) fn ask_keys(
        self: &Arc<Self>,
        key: Result<String, Error>,
        operation: Option<Operation>,
        charge: &Charge,
    ) -> RedisFuture<A> {
        let asked = Some(key.and_then(|key| self.request(key, operation, charge)));
        let (known, is_new) = (self.named.lines.known(), charge.retried_for().is_zero());
        let state = State::Asking { asked, known, is_new };
        RedisFuture { inner: Arc::clone(self), state }
    }

    fn request(&self, key: String, operation: Option<Operation>, charge: &Charge) -> Asked {
        let check = self.named.read(charge)?;
        let rule = self.named.rule(charge.own_quota())?;
        if operation == Some(Operation::Grant) {
            self.named.check_grant(&rule)?;
        }
        let quotas = charge.own_quota().unwrap_or(&self.named.quota);
        let births = charge.extension().map(|Births(births)| of_each_quota(births, quotas));
        let request = Request {
            key,
            quota: charge.own_quota().cloned(),
            rule: charge.own_quota().map(|_| A::arguments(&rule, self.present())),
            keep_free: charge.keep_free.clone(),
            op: Op::of(operation, check, births),
        };
        let deadline = charge.deadline().map(Instant::from_std);
        Ok(QueuedRequest::without_receiver(&self.batcher.config().pool, request, deadline))
    }

    fn present(&self) -> i64 {
        self.batcher.config().present()
    }

    /// Sends a request, whose deadline is the charge's own, if it has one.
    fn send(&self, mut queued: Box<QueuedRequest>) -> Result<Pending, Error> {
        let (pool, now) = (&self.batcher.config().pool, Instant::now());
        let own = now + self.decision_timeout;
        let deadline = queued.deadline.map_or(own, |charge| own.min(charge));
        queued.deadline = Some(pool.client.reply_deadline(deadline));
        Pending::submit(&self.batcher, queued, now)
    }

    /// Sends a request that no caller waits for, so that it may take longer.
    fn send_patiently(&self, request: Request) -> Result<Pending, Error> {
        let (pool, now) = (&self.batcher.config().pool, Instant::now());
        let deadline = now + self.decision_timeout.max(LATE_REPLY_TIMEOUT);
        let queued = QueuedRequest::without_receiver(pool, request, Some(deadline));
        Pending::submit(&self.batcher, queued, now)
    }

    pub(super) fn settle(
        &self,
        reserved: &ReservedUnits,
        cost: u64,
        actual: u64,
    ) -> Result<Settlement, Error> {
        let ReservedUnits { quota, mark, .. } = reserved;
        let rule = self.named.rule(quota.as_ref())?;
        let (cost, actual) = (units(cost), units(actual));
        let op = match actual.cmp(&cost) {
            Ordering::Equal if !A::holds(&rule) => return Ok(Settlement::gave_back(0)),
            Ordering::Greater if !A::holds(&rule) => {
                let births = Some(of_each_quota(mark.births(), &self.named.quota));
                Op::Penalize { cost: actual - cost, births }
            }
            _ => Op::Refund { units: cost - actual, cost, mark: mark.clone() },
        };
        let request = self.settling(reserved, op)?;
        let (settler, settlement) = Settlement::begin();
        let patience = self.decision_timeout.max(LATE_REPLY_TIMEOUT);
        self.batcher.settle(request, Instant::now() + patience, settler)?;
        Ok(settlement)
    }

    fn settling(&self, reserved: &ReservedUnits, op: Op) -> Result<Request, Error> {
        let ReservedUnits { key, quota, .. } = reserved;
        // The rule of the own quota is in every call.
        let (quota, rule) = match self.named.rule(quota.as_ref())? {
            Cow::Borrowed(_) => (None, None),
            Cow::Owned(rule) => (quota.clone(), Some(A::arguments(&rule, self.present()))),
        };
        let (key, keep_free) = (key.as_str().to_owned(), KeepFree::default());
        Ok(Request { key, quota, rule, keep_free, op })
    }

    fn take_spare(self: &Arc<Self>, request: &Request) -> Option<Decision> {
        let Op::Check { cost, max_wait } = request.op else { return None };
        let check = Check::new(cost, max_wait).keeping(request.keep_free.as_slice());
        let store = || Arc::clone(self) as Arc<dyn SettleUnits>;
        self.named.take_spare(|| request.key.clone(), request.quota.as_ref(), check, store)
    }

    fn join_queue(&self, request: &Request) -> Option<Decision> {
        let Op::Check { cost, max_wait } = request.op else { return None };
        let check = Check::new(cost, max_wait);
        let joined = self.named.join_queue(&request.key, || queue_terms(request), check);
        joined.map(|decision| decision.with_origin(Origin::Store))
    }

    fn decision(
        self: &Arc<Self>,
        known: ResetsSeen,
        completed: Box<QueuedRequest>,
    ) -> Result<Decision, Error> {
        let QueuedRequest { request, answer, .. } = *completed;
        let Some(ScriptAnswer { entry: ReplyEntry::Decided(answer), now, batch_position }) = answer
        else {
            return Err(malformed_reply());
        };
        let (cost, max_wait) = match request.op {
            Op::Check { cost, max_wait } => (cost, max_wait),
            _ => (0, 0),
        };
        let may_queue = self.named.may_queue(Check::new(cost, max_wait)) && !answer.is_blocked;
        let queue = may_queue.then(|| (request.key.clone(), queue_terms(&request)));
        let Request { key, quota, keep_free, op, .. } = request;
        let quota = quota.unwrap_or_else(|| self.named.quota.clone());
        let from = Provenance { now, batch_position, origin: Origin::Store };
        match op {
            Op::Reset => {
                self.named.lines.forget(&key, true);
                self.named.lines.queues.release(&key);
            }
            Op::Unblock => self.named.lines.queues.release(&key),
            _ => {}
        }
        self.named.note_pause(&key, &answer, now);
        let mut decision = {
            let asked = (cost, &keep_free);
            self.named.decision(Some(quota), asked, answer, from, Key::Owned(key))
        };
        let store = || Arc::clone(self) as Arc<dyn SettleUnits>;
        self.named.line_up(&mut decision, &keep_free, known, store);
        Ok(match queue {
            Some((key, terms)) => self.named.queue_up(decision, (&key, terms), max_wait),
            None => decision,
        })
    }
}

fn queue_terms(request: &Request) -> QueueTerms {
    QueueTerms::new(request.quota.as_ref(), &request.keep_free)
}

/// A reset, a block or a pause that was sent. The server may run it until its answer is there, and
/// even if nobody waits for the answer. So the slots at hand are void when it begins, and when it
/// ends.
struct Change<A: InLua> {
    inner: Arc<Inner<A>>,
    key: String,
}

impl<A: InLua> Change<A> {
    fn of(request: &Request, inner: &Arc<Inner<A>>) -> Option<Box<Self>> {
        let changes = matches!(request.op, Op::Reset | Op::Block { .. } | Op::Pause { .. });
        changes.then(|| {
            inner.named.lines.forget(&request.key, false);
            Box::new(Self { inner: Arc::clone(inner), key: request.key.clone() })
        })
    }
}

impl<A: InLua> Drop for Change<A> {
    fn drop(&mut self) {
        self.inner.named.lines.forget(&self.key, false);
    }
}

impl<A: InLua> SettleUnits for Inner<A> {
    fn settle_units(&self, reserved: &ReservedUnits, cost: u64, actual: u64) -> Settlement {
        self.settle(reserved, cost, actual).unwrap_or_else(|error| Settlement::from(Err(error)))
    }
}

pin_project! {
    /// The future of a decision in Redis.
    ///
    /// If it is dropped after its charge was sent, the charge may still be taken. It is then
    /// refunded if that is safe.
    #[must_use = "nothing is decided until it is awaited"]
    pub struct RedisFuture<A: InLua> {
        inner: Arc<Inner<A>>,
        #[pin]
        state: State<A>,
    }
}

/// The request for a charge. The error says why the charge has no request.
type Asked = Result<Box<QueuedRequest>, Error>;

pin_project! {
    #[project = StateProj]
    enum State<A: InLua> {
        Asking {
            asked: Option<Asked>,
            known: ResetsSeen,
            // True if the request has not waited before.
            is_new: bool,
        },
        Waiting {
            #[pin]
            pending: Pending,
            known: ResetsSeen,
            change: Option<Box<Change<A>>>,
        },
    }
}

impl<A: InLua> Future for RedisFuture<A> {
    type Output = Result<Decision, Error>;

    /// Sends nothing before the first poll, with which the time of a decision begins.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { asked, known, is_new } => {
                    let queued = asked.take().expect("polled after it was done")?;
                    if let Some(decision) = this.inner.take_spare(&queued.request) {
                        return Poll::Ready(Ok(decision));
                    }
                    if *is_new && let Some(retry) = this.inner.join_queue(&queued.request) {
                        return Poll::Ready(Ok(retry));
                    }
                    let change = Change::of(&queued.request, this.inner);
                    let pending = this.inner.send(queued)?;
                    State::Waiting { pending, known: *known, change }
                }
                StateProj::Waiting { pending, known, change } => {
                    let completed = ready!(pending.poll(cx));
                    drop(change.take());
                    return Poll::Ready(this.inner.decision(*known, completed?));
                }
            };
            this.state.set(next);
        }
    }
}

debug_by_name!([A: InLua] RedisFuture<A>);
