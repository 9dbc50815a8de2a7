//! The limiter that many processes share: one script call decides.
//!
//! How a charge travels: [`Terms`] reads it into numbers; `key.rs` names its key; `script.rs` makes the call and
//! reads the reply; `pool.rs` finds a shared connection, which `connection.rs` knows to be alive; and
//! `failure.rs` puts what went wrong into its class.
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

mod connection;
mod failure;
mod key;
mod pool;
mod reply;
mod script;

pub use pool::{Pool, PoolBuilder};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::pool::{Failure, Late};
use self::reply::{Reply, Told, odd};
use self::script::{Line, Op, Script};
use super::Limiter;
use super::terms::{Answer, Clock, Terms, instant};
use crate::algorithm::Algorithm;
use crate::charge::Key;
use crate::{Booking, Charge, Class, Decision, Error, Origin, Quota};

/// How long a decision may take unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(100);

/// A limiter decided in Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis<A: Algorithm> {
    shared: Arc<Shared<A>>,
}

#[derive(Clone)]
struct Shared<A: Algorithm> {
    terms: Terms<A>,
    /// What its keys start with.
    scope: String,
    script: Script,
    pool: Pool,
    deadline: Duration,
    clock: Option<Clock>,
}

impl<A: Algorithm> Redis<A> {
    /// A limiter called `name` over `pool`. Processes that use the same name share it.
    ///
    /// # Panics
    ///
    /// If the name is empty.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, algorithm: A, pool: Pool) -> Self {
        let terms = Terms::new(name.into(), algorithm);
        let scope = key::scope::<A>(pool.key_prefix(), &terms.name);
        let script = Script::of::<A>();
        let shared = Shared { terms, scope, script, pool, deadline: DEADLINE, clock: None };
        Self { shared: Arc::new(shared) }
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
    /// For tests and replays: callers whose clocks differ give each other's time away.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.shared).clock = Some(Arc::new(clock));
        self
    }

    /// Gives a booking back, and tells how many units that were: 0 if others were decided on it since.
    ///
    /// # Errors
    ///
    /// If the booking is another limiter's, or Redis cannot be asked.
    pub async fn give_back(&self, booking: Booking) -> Result<u64, Error> {
        self.shared.give_back(booking).await
    }
}

impl<A: Algorithm> Shared<A> {
    async fn decide(
        self: &Arc<Self>,
        charge: Charge,
        deadline: Instant,
    ) -> Result<Decision, Error> {
        let question = self.terms.read(&charge)?;
        let (cost, patience) = (question.ask.cost, question.ask.patience);
        let line = Line {
            key: key::name(&self.scope, charge.key()),
            rule: charge.own_quota().map(|_| A::arguments(&question.rule)),
            op: Op::Check { cost, patience },
        };
        let decided = Decided { quota: question.quota, cost, line };
        let now = self.now()?;
        let late = (cost > 0).then(|| {
            let (shared, decided) = (Arc::clone(self), decided.clone());
            Arc::new(move |reply: &Value| shared.undo(&decided, reply)) as Late
        });
        let reply = self.call(now, &decided.line, deadline, late).await?;
        self.read(&decided, &reply)
    }

    fn read(&self, decided: &Decided, reply: &Value) -> Result<Decision, Error> {
        match read_one(reply, &decided.line)? {
            (now, Told::Decided { verdict, report, left }) => {
                let answer = Answer { verdict, report, left, now, place: 0, origin: Origin::Store };
                let key = Key::Owned(decided.line.key.clone());
                Ok(self.terms.decision(decided.quota, decided.cost, answer, key))
            }
            (_, Told::Refunded { .. }) => Err(odd()),
        }
    }

    /// Gives back what was decided for nobody.
    fn undo(self: &Arc<Self>, decided: &Decided, reply: &Value) {
        if let Some(booking) = self.read(decided, reply).ok().and_then(|mut told| told.booking()) {
            self.spawn_refund(booking);
        }
    }

    /// Best effort: without a runtime the units are lost, which errs on the safe side.
    fn spawn_refund(self: &Arc<Self>, booking: Booking) {
        if let Ok(runtime) = Handle::try_current() {
            let shared = Arc::clone(self);
            runtime.spawn(async move { shared.give_back(booking).await });
        }
    }

    async fn give_back(&self, booking: Booking) -> Result<u64, Error> {
        if booking.owner != self.terms.owner {
            return Err(Error::new(Class::Request, "the booking is another limiter's"));
        }
        let line = Line {
            key: booking.key.as_str().to_owned(),
            rule: Some(A::arguments(&*self.terms.rule(booking.quota)?)),
            op: Op::Refund { cost: booking.cost.cast_signed(), left: booking.left },
        };
        let deadline = Instant::now() + self.deadline;
        let reply = self.call(self.now()?, &line, deadline, None).await?;
        match read_one(&reply, &line)? {
            (_, Told::Refunded { units }) => Ok(units.cast_unsigned()),
            (_, Told::Decided { .. }) => Err(odd()),
        }
    }

    /// The caller's time, if it is to decide.
    fn now(&self) -> Result<Option<i64>, Error> {
        self.clock.as_ref().map(|clock| instant(clock())).transpose()
    }

    /// Calls by digest; where the server does not know it, nothing was done, and the text is sent.
    async fn call(
        &self,
        now: Option<i64>,
        line: &Line,
        deadline: Instant,
        late: Option<Late>,
    ) -> Result<Value, Error> {
        let rule = A::arguments(&*self.terms.own_rule()?);
        let lines = &[line];
        let by_digest = self.script.by_digest(now, &rule, lines);
        match self.pool.call(by_digest, deadline, late.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(Failure::Error(error)) => return Err(error),
            Err(Failure::NoScript) => {}
        }
        match self.pool.call(self.script.by_text(now, &rule, lines), deadline, late).await {
            Ok(reply) => Ok(reply),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::NoScript) => Err(Error::new(
                Class::Configuration,
                "redis does not run the script that it was sent",
            )),
        }
    }
}

fn read_one(reply: &Value, line: &Line) -> Result<(i64, Told), Error> {
    let reply = Reply::read(reply, 1)?;
    Ok((reply.now, reply.told(0, line)?))
}

/// What was asked, and what its answer is read with.
#[derive(Clone, Debug)]
struct Decided {
    quota: Quota,
    cost: i64,
    line: Line,
}

impl<A: Algorithm> Limiter for Redis<A> {
    type Future = Deciding<A>;

    fn check(&self, charge: &Charge) -> Deciding<A> {
        let shared = Arc::clone(&self.shared);
        let charge = charge.clone();
        let budget = charge.budget().map_or(shared.deadline, |budget| budget.min(shared.deadline));
        let deadline = Instant::now() + budget;
        let flight = Box::pin(async move { shared.decide(charge, deadline).await });
        Deciding { shared: Arc::clone(&self.shared), flight: Some(flight), begun: false }
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        if booking.owner != self.shared.terms.owner {
            return Some(booking);
        }
        self.shared.spawn_refund(booking);
        None
    }
}

impl<A: Algorithm> fmt::Debug for Redis<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { terms, deadline, pool, .. } = &*self.shared;
        f.debug_struct("Redis")
            .field("terms", terms)
            .field("pool", pool)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}

type Flight = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

/// The future of a decision in Redis.
///
/// A charge that is on its way when this is dropped may be taken all the same; what is taken for nobody is given
/// back where that is safe.
#[must_use = "nothing is decided until it is awaited"]
pub struct Deciding<A: Algorithm> {
    shared: Arc<Shared<A>>,
    flight: Option<Flight>,
    begun: bool,
}

impl<A: Algorithm> Future for Deciding<A> {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.begun = true;
        let flight = self.flight.as_mut().expect("polled after it was done");
        let decided = ready!(flight.as_mut().poll(cx));
        self.flight = None;
        Poll::Ready(decided)
    }
}

impl<A: Algorithm> Drop for Deciding<A> {
    fn drop(&mut self) {
        let flight = self.flight.take().filter(|_| self.begun);
        if let (Some(flight), Ok(runtime)) = (flight, Handle::try_current()) {
            let shared = Arc::clone(&self.shared);
            // It ends at its deadline.
            runtime.spawn(async move {
                let booking = flight.await.ok().and_then(|mut decision| decision.booking());
                if let Some(booking) = booking {
                    shared.spawn_refund(booking);
                }
            });
        }
    }
}

impl<A: Algorithm> fmt::Debug for Deciding<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").finish_non_exhaustive()
    }
}
