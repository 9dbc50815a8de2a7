//! The limiter that many processes share: one script call decides.
//!
//! How a charge travels: [`Terms`] reads it into numbers; `key.rs` names its key; `asking.rs` holds the asker's side
//! and `dispatch.rs` the queues, one to a `lane.rs`; `flight.rs` carries what waits there, in one call that `script.rs` writes, over a
//! shared connection of `pool.rs` that `connection.rs` knows to be alive; `reply.rs` reads what was decided; and
//! `error.rs` puts what went wrong into its class.
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

mod asking;
mod builder;
mod connection;
mod dispatch;
mod error;
mod flight;
mod health;
mod key;
mod lane;
mod pool;
mod redisson;
mod reply;
mod request;
mod script;
mod source;
mod together;

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
use tokio::time::Instant;

use self::asking::Asking;
use self::dispatch::{Dispatcher, Route};
use self::reply::{Told, odd};
use self::request::{Op, Request};
use self::script::Script;
use super::terms::{Answer, Terms, followed};
use super::{Limiter, Operation, within};
use crate::algorithm::{Ask, InLua};
use crate::charge::Key;
use crate::quota::QuotaError;
use crate::{Booking, Charge, Class, Decision, Error, Origin, Quotas};

/// How long a decision may take unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(100);

/// The most charges in one call unless told otherwise; Redis serves nobody else meanwhile.
const BATCH: usize = 64;

/// A script takes no more arguments than fit its stack.
const LARGEST_BATCH: usize = 1_000;

/// The calls under way at once over one connection, unless told otherwise.
const FLIGHTS: usize = 2;

/// The most charges that wait to be sent, unless told otherwise.
const BACKLOG: usize = 16_384;

/// A limiter decided in Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis<A: InLua> {
    shared: Arc<Shared<A>>,
}

#[derive(Clone)]
struct Shared<A: InLua> {
    terms: Terms<A>,
    deadline: Duration,
    dispatcher: Arc<Dispatcher>,
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
        let dispatcher = Dispatcher::new(Route {
            pool,
            script: Script::of::<A>(),
            scopes,
            rule,
            clock: None,
            batch: BATCH,
            flights: FLIGHTS,
            backlog: BACKLOG,
        });
        Self { shared: Arc::new(Shared { terms, deadline: DEADLINE, dispatcher }) }
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
        self.route(|route| route.clock = Some(Arc::new(clock)))
    }

    /// Sets how many charges that wait at the same moment may leave in one call, 1 to 1,000. Default: 64.
    ///
    /// A call of 64 holds Redis for about 200 µs.
    #[must_use]
    pub fn batch(self, charges: usize) -> Self {
        self.route(|route| route.batch = charges.clamp(1, LARGEST_BATCH))
    }

    /// Sets how many calls may be under way at once for each connection, at least 1. Default: 2.
    #[must_use]
    pub fn flights(self, calls: usize) -> Self {
        self.route(|route| route.flights = calls.max(1))
    }

    /// Sets how many charges may wait to be sent, at least 1; beyond, the error is of class
    /// [`Saturation`](Class::Saturation). Default: 16,384.
    #[must_use]
    pub fn backlog(self, charges: usize) -> Self {
        self.route(|route| route.backlog = charges.max(1))
    }

    fn route(mut self, change: impl FnOnce(&mut Route)) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        let mut route = shared.dispatcher.route.clone();
        change(&mut route);
        shared.dispatcher = Dispatcher::new(route);
        self
    }

    fn ask(&self, charge: &Charge, op: impl Fn(Ask) -> Op) -> Deciding<A> {
        self.ask_of(key::braced(charge.key()), charge, op)
    }

    /// Asks of the keys whose names end so.
    fn ask_of(&self, key: String, charge: &Charge, op: impl Fn(Ask) -> Op) -> Deciding<A> {
        let shared = Arc::clone(&self.shared);
        let deadline = within::deadline(charge, shared.deadline);
        match shared.request(key, charge, op) {
            Ok((request, quota)) => {
                let asking = shared.dispatcher.ask(request, deadline);
                Deciding { shared, question: Question::Asked { asking, quota: Some(quota) } }
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
        match shared.dispatcher.ask(request, Instant::now() + shared.deadline).await?.told {
            Told::Refunded { units } => Ok(units.cast_unsigned()),
            Told::Decided { .. } => Err(odd()),
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

    fn refund(&self, booking: Booking) -> Result<Request, Error> {
        let rule = A::arguments(&*self.terms.rule(&booking.quota)?);
        let op = Op::Refund { cost: booking.cost.cast_signed(), left: booking.left };
        let rule = Some(rule).filter(|rule| *rule != self.dispatcher.route.rule);
        Ok(Request { key: booking.key.as_str().to_owned(), rule, op })
    }

    fn decision(&self, quota: Quotas, answer: lane::Answer) -> Result<Decision, Error> {
        let lane::Answer { request, told, now, place } = answer;
        let Told::Decided { verdict, report, by, left } = told else { return Err(odd()) };
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
        let key = key::braced(charge.key());
        if let Ok((request, _)) =
            self.shared.request(key, charge, |Ask { cost, .. }| Op::Penalize { cost })
        {
            self.shared.dispatcher.send_off(request);
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
            self.shared.dispatcher.send_off(request);
        }
        None
    }
}

impl<A: InLua> fmt::Debug for Redis<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { terms, deadline, dispatcher, .. } = &*self.shared;
        f.debug_struct("Redis")
            .field("terms", terms)
            .field("pool", &dispatcher.route.pool)
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
        question: Question,
    }
}

pin_project! {
    #[project = QuestionProj]
    enum Question {
        Asked { #[pin] asking: Asking, quota: Option<Quotas> },
        Refused { error: Option<Error> },
    }
}

impl<A: InLua> Deciding<A> {
    fn refused(shared: &Arc<Shared<A>>, error: Error) -> Self {
        let question = Question::Refused { error: Some(error) };
        Self { shared: Arc::clone(shared), question }
    }
}

impl<A: InLua> Future for Deciding<A> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match this.question.project() {
            QuestionProj::Asked { asking, quota } => {
                let answer = ready!(asking.poll(cx))?;
                this.shared.decision(quota.take().expect("polled after it was done"), answer)
            }
            QuestionProj::Refused { error } => Err(error.take().expect("polled after it was done")),
        })
    }
}

impl<A: InLua> fmt::Debug for Deciding<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").finish_non_exhaustive()
    }
}
