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
mod script;

pub use pool::Pool;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::pool::Failure;
use self::script::{Line, Op, Script, Told};
use super::Limiter;
use super::terms::{Answer, Clock, Terms, instant};
use crate::algorithm::Algorithm;
use crate::charge::Key;
use crate::{Booking, Charge, Class, Decision, Error, Origin};

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
        let scope = key::scope::<A>(&terms.name);
        let script = Script::of::<A>();
        let shared = Shared { terms, scope, script, pool, deadline: DEADLINE, clock: None };
        Self { shared: Arc::new(shared) }
    }

    /// Sets how long a decision may take, waiting for a connection included. Default: 100 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        Arc::make_mut(&mut self.shared).deadline = deadline;
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
        let shared = &self.shared;
        if booking.owner != shared.terms.owner {
            return Err(Error::new(Class::Request, "the booking is another limiter's"));
        }
        let line = Line {
            key: booking.key.as_str().to_owned(),
            rule: Some(A::arguments(&*shared.terms.rule(booking.quota)?)),
            op: Op::Refund { cost: booking.cost.cast_signed(), left: booking.left },
        };
        match shared.ask(&line, Instant::now() + shared.deadline).await?.1 {
            Told::Refunded { units } => Ok(units.cast_unsigned()),
            Told::Decided { .. } => Err(script::odd()),
        }
    }
}

impl<A: Algorithm> Shared<A> {
    async fn decide(&self, charge: Charge, deadline: Instant) -> Result<Decision, Error> {
        let question = self.terms.read(&charge)?;
        let (cost, patience) = (question.ask.cost, question.ask.patience);
        let line = Line {
            key: key::name(&self.scope, charge.key()),
            rule: charge.own_quota().map(|_| A::arguments(&question.rule)),
            op: Op::Check { cost, patience },
        };
        match self.ask(&line, deadline).await? {
            (now, Told::Decided { verdict, report, left }) => {
                let answer = Answer { verdict, report, left, now, place: 0, origin: Origin::Store };
                Ok(self.terms.decision(question.quota, cost, answer, Key::Owned(line.key)))
            }
            (_, Told::Refunded { .. }) => Err(script::odd()),
        }
    }

    async fn ask(&self, line: &Line, deadline: Instant) -> Result<(i64, Told), Error> {
        let now = self.clock.as_ref().map(|clock| instant(clock())).transpose()?;
        let (now, told) =
            script::read(&self.call(now, line, deadline).await?, std::slice::from_ref(line))?;
        let told = told.into_iter().next().ok_or_else(script::odd)?;
        Ok((now, told?))
    }

    /// Calls by digest; where the server does not know it, nothing was done, and the text is sent.
    async fn call(&self, now: Option<i64>, line: &Line, deadline: Instant) -> Result<Value, Error> {
        let rule = A::arguments(&*self.terms.own_rule()?);
        let lines = std::slice::from_ref(line);
        match self.pool.call(self.script.by_digest(now, &rule, lines), deadline).await {
            Ok(reply) => return Ok(reply),
            Err(Failure::Error(error)) => return Err(error),
            Err(Failure::NoScript) => {}
        }
        match self.pool.call(self.script.by_text(now, &rule, lines), deadline).await {
            Ok(reply) => Ok(reply),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::NoScript) => Err(Error::new(
                Class::Configuration,
                "redis does not run the script that it was sent",
            )),
        }
    }
}

impl<A: Algorithm> Limiter for Redis<A> {
    type Future = Deciding;

    fn check(&self, charge: &Charge) -> Deciding {
        let shared = Arc::clone(&self.shared);
        let charge = charge.clone();
        let budget = charge.budget().map_or(shared.deadline, |budget| budget.min(shared.deadline));
        let deadline = Instant::now() + budget;
        Deciding(Box::pin(async move { shared.decide(charge, deadline).await }))
    }

    fn refund(&self, booking: Booking) -> Option<Booking> {
        if booking.owner != self.shared.terms.owner {
            return Some(booking);
        }
        // Best effort: without a runtime the units are lost, which errs on the safe side.
        if let Ok(runtime) = Handle::try_current() {
            let limiter = self.clone();
            runtime.spawn(async move { limiter.give_back(booking).await });
        }
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

/// The future of a decision in Redis.
#[must_use = "nothing is decided until it is awaited"]
pub struct Deciding(Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>);

impl Future for Deciding {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Deciding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").finish_non_exhaustive()
    }
}
