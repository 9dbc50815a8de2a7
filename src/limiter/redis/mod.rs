//! The limiter that many processes share: one script call decides.
//!
//! How a charge travels: [`Terms`] reads it into numbers, and `key.rs` names its key. `pending.rs` is the caller's half:
//! it hands a `request.rs` to `batcher.rs` and awaits the answer until the `deadline.rs`. A charge that finds the
//! limiter idle is sent at once. All others wait in the `queue.rs` that `worker.rs` owns. `call.rs` sends a batch with
//! `eval.rs`, which runs `script.rs` over a connection of `pool.rs`; `connection.rs` knows whether that is alive.
//! `reply.rs` reads the decisions, and `error.rs` classifies what went wrong.
//!
//! ```no_run
//! use std::time::Duration;
//! use tower_sluice::{LimiterExt, Pool, Quota, Redis, algorithm::TokenBucket};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::connect("redis://127.0.0.1:6379")?;
//! let api = Redis::new("api", TokenBucket::new(Quota::per_second(50).burst(100)), pool.clone());
//! let jobs = Redis::new("jobs", TokenBucket::new(Quota::per_minute(10)), pool)
//!     .deadline(Duration::from_millis(20));
//! jobs.acquire("nightly").await?;
//! # Ok(()) }
//! ```

mod batcher;
mod builder;
mod call;
mod config;
mod connection;
mod deadline;
mod error;
mod eval;
mod health;
mod key;
mod pending;
mod pool;
mod queue;
mod redisson;
mod reply;
mod request;
mod script;
mod source;
mod together;
mod worker;

pub use self::redisson::{Permits, RRateLimiter, Rate, RateType, Redisson};
pub use builder::PoolBuilder;
pub use pool::Pool;
pub use together::{Joined, Together};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::batcher::Batcher;
use self::config::Config;
use self::pending::Pending;
use self::queue::Answered;
use self::reply::odd;
use self::request::{Op, Request};
use self::script::Script;
use super::terms::{Answer, Terms, check_key, followed};
use super::{Limiter, Operation, within};
use crate::algorithm::{Ask, InLua};
use crate::charge::Key;
use crate::quota::QuotaError;
use crate::{Booking, Charge, Class, Decision, Error, Origin, Quotas};

/// How long a decision may take unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(100);

/// The most charges in one call unless set otherwise; Redis serves nobody else meanwhile.
const MAX_BATCH_SIZE: usize = 64;

/// The most charges in one call.
const LARGEST_BATCH: usize = 1_000;

/// The most keys in one call: a script can pass no more than 8,000 arguments to a command.
const MAX_KEYS: usize = 4_000;

/// The most calls at the same time over one connection unless set otherwise.
const MAX_IN_FLIGHT: usize = 2;

/// The most charges that wait to be sent unless set otherwise.
const QUEUE_CAPACITY: usize = 16_384;

/// A limiter decided in Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis<A: InLua> {
    shared: Arc<Shared<A>>,
}

#[derive(Clone)]
struct Shared<A: InLua> {
    terms: Terms<A>,
    deadline: Duration,
    batcher: Arc<Batcher>,
}

impl<A: InLua> Redis<A> {
    /// A limiter called `name` over `pool`. Processes that use the same name share it.
    ///
    /// # Panics
    ///
    /// If the name is empty, or where [`Redis::try_new`] returns an error.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, algorithm: A, pool: Pool) -> Self {
        followed(Self::try_new(name, algorithm, pool))
    }

    /// The same, for a quota that comes from a file or a user.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot follow its quota: a window with a burst, or a limit that it cannot compute with exactly.
    ///
    /// # Panics
    ///
    /// If the name is empty.
    pub fn try_new(
        name: impl Into<Arc<str>>,
        algorithm: A,
        pool: Pool,
    ) -> Result<Self, QuotaError> {
        let terms = Terms::new(name.into(), algorithm)?;
        let scopes = key::scopes::<A>(pool.key_prefix(), terms.name());
        Ok(Self::under(terms, scopes, pool))
    }

    /// With keys that begin as told, one for each quota.
    fn under(terms: Terms<A>, scopes: Vec<String>, pool: Pool) -> Self {
        let rule = A::arguments(terms.own_rule());
        let batcher = Batcher::new(Config {
            pool,
            script: Script::of::<A>(),
            max_batch_size: MAX_BATCH_SIZE.min(largest_batch(&scopes)),
            key_prefixes: scopes,
            rule,
            clock: None,
            max_in_flight: MAX_IN_FLIGHT,
            queue_capacity: QUEUE_CAPACITY,
        });
        Self { shared: Arc::new(Shared { terms, deadline: DEADLINE, batcher: Arc::new(batcher) }) }
    }

    /// Sets how long a decision may take, waiting for a connection included; a day at most. Default: 100 ms.
    ///
    /// Where no connection can be had at all, the error comes after 500 ms at the latest.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        Arc::make_mut(&mut self.shared).deadline = deadline.min(pool::LONGEST);
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: the server's.
    ///
    /// For tests and replays: callers whose clocks differ give each other's time away. It is read once for each
    /// call, when that is sent.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.configure(|config| config.clock = Some(Arc::new(clock)))
    }

    /// Sets the most charges in one call, 1 to 1,000; with several quotas at most 4,000 keys. Default: 64.
    ///
    /// A call of 64 holds Redis for about 200 µs.
    #[must_use]
    pub fn batch(self, charges: usize) -> Self {
        self.configure(|config| {
            config.max_batch_size = charges.clamp(1, largest_batch(&config.key_prefixes));
        })
    }

    /// Sets how many calls may be under way at once for each connection, at least 1. Default: 2.
    #[must_use]
    pub fn flights(self, calls: usize) -> Self {
        self.configure(|config| config.max_in_flight = calls.max(1))
    }

    /// Sets how many charges may wait to be sent, at least 1; beyond, the error is of class
    /// [`Saturation`](Class::Saturation). Default: 16,384.
    #[must_use]
    pub fn backlog(self, charges: usize) -> Self {
        self.configure(|config| config.queue_capacity = charges.clamp(1, Semaphore::MAX_PERMITS))
    }

    fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        let mut config = shared.batcher.config().clone();
        change(&mut config);
        shared.batcher = Arc::new(Batcher::new(config));
        self
    }

    fn ask(&self, charge: &Charge, op: impl Fn(Ask) -> Op) -> Deciding<A> {
        // A key that is too long is refused before it is digested.
        match check_key(charge.key()) {
            Ok(()) => self.ask_of(key::braced(charge.key()), charge, op),
            Err(error) => Deciding::refused(&self.shared, error),
        }
    }

    /// Asks about keys whose names end with `key`.
    fn ask_of(&self, key: String, charge: &Charge, op: impl Fn(Ask) -> Op) -> Deciding<A> {
        let shared = Arc::clone(&self.shared);
        let deadline = within::deadline(charge, shared.deadline);
        match shared.request(key, charge, op) {
            Ok((request, quota)) => {
                let pending = shared.send(request, deadline);
                Deciding { shared, state: State::Asking { pending, quota: Some(quota) } }
            }
            Err(error) => Deciding::refused(&shared, error),
        }
    }

    /// Gives a booking back, and tells how many units that were: 0 if others were decided on it since.
    ///
    /// # Errors
    ///
    /// If the booking is another limiter's, or Redis cannot be asked.
    pub async fn give_back(&self, booking: Booking) -> Result<u64, Error> {
        let shared = &self.shared;
        if booking.owner != shared.terms.owner {
            return Err(Error::new(Class::Request, "the booking is another limiter's"));
        }
        let request = shared.refund(booking)?;
        match shared.send(request, Instant::now() + shared.deadline).await?.answer {
            reply::Answer::Refunded { units } => Ok(units.cast_unsigned()),
            reply::Answer::Decided { .. } => Err(odd()),
        }
    }
}

impl<A: InLua> Shared<A> {
    /// What is asked about a charge, and what its answer is read with.
    fn request(
        &self,
        key: String,
        charge: &Charge,
        op: impl Fn(Ask) -> Op,
    ) -> Result<(Request, Quotas), Error> {
        let question = self.terms.read(charge)?;
        let request = Request {
            key,
            rule: charge.own_quota().map(|_| A::arguments(&question.rule)),
            op: op(question.ask),
        };
        Ok((request, question.quota))
    }

    fn send(&self, request: Request, deadline: Instant) -> Pending {
        let deadline = self.batcher.config().pool.reply_deadline(deadline);
        Pending::new(Arc::clone(&self.batcher), request, deadline)
    }

    fn refund(&self, booking: Booking) -> Result<Request, Error> {
        let rule = A::arguments(&*self.terms.rule(&booking.quota)?);
        let op = Op::Refund { cost: booking.cost.cast_signed(), left: booking.left };
        let rule = Some(rule).filter(|rule| *rule != self.batcher.config().rule);
        Ok(Request { key: booking.key.as_str().to_owned(), rule, op })
    }

    fn decision(&self, quota: Quotas, answered: Answered) -> Result<Decision, Error> {
        let Answered { request, answer, now, place } = answered;
        let reply::Answer::Decided { verdict, report, by, left } = answer else {
            return Err(odd());
        };
        let cost = if let Op::Check { cost, .. } = request.op { cost } else { 0 };
        let answer = Answer { verdict, report, by, left, now, place, origin: Origin::Store };
        Ok(self.terms.decision(quota, cost, answer, Key::Owned(request.key)))
    }
}

impl<A: InLua> Limiter for Redis<A> {
    type Future = Deciding<A>;

    fn check(&self, charge: &Charge) -> Deciding<A> {
        self.ask(charge, |Ask { cost, patience }| Op::Check { cost, patience })
    }

    fn owe(&self, charge: &Charge) -> bool {
        if check_key(charge.key()).is_ok()
            && let key = key::braced(charge.key())
            && let Ok((request, _)) =
                self.shared.request(key, charge, |Ask { cost, .. }| Op::Penalize { cost })
        {
            self.shared.batcher.send_unattended(request);
        }
        true
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Deciding<A>> {
        Some(match operation {
            Operation::Penalize => self.ask(charge, |Ask { cost, .. }| Op::Penalize { cost }),
            Operation::Reset => self.ask(charge, |_| Op::Reset),
        })
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        if booking.owner != self.shared.terms.owner {
            return Some(booking);
        }
        if let Ok(request) = self.shared.refund(booking) {
            self.shared.batcher.send_unattended(request);
        }
        None
    }
}

impl<A: InLua> fmt::Debug for Redis<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { terms, deadline, batcher, .. } = &*self.shared;
        f.debug_struct("Redis")
            .field("terms", terms)
            .field("pool", &batcher.config().pool)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a decision in Redis.
    ///
    /// A charge that is on its way when this is dropped may be taken all the same; what is taken for nobody is given
    /// back where that is safe.
    #[must_use = "nothing is decided until it is awaited"]
    pub struct Deciding<A: InLua> {
        shared: Arc<Shared<A>>,
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Asking { #[pin] pending: Pending, quota: Option<Quotas> },
        Refused { error: Option<Error> },
    }
}

impl<A: InLua> Deciding<A> {
    fn refused(shared: &Arc<Shared<A>>, error: Error) -> Self {
        Self { shared: Arc::clone(shared), state: State::Refused { error: Some(error) } }
    }
}

impl<A: InLua> Future for Deciding<A> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match this.state.project() {
            StateProj::Asking { pending, quota } => {
                let answered = ready!(pending.poll(cx))?;
                this.shared.decision(quota.take().expect("polled after it was done"), answered)
            }
            StateProj::Refused { error } => Err(error.take().expect("polled after it was done")),
        })
    }
}

impl<A: InLua> fmt::Debug for Deciding<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").finish_non_exhaustive()
    }
}

/// The most charges in one call, each of which has a key for each quota.
fn largest_batch(key_prefixes: &[String]) -> usize {
    LARGEST_BATCH.min(MAX_KEYS / key_prefixes.len())
}
