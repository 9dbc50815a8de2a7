//! The methods of every limiter besides its decisions: limiters around it, and questions to it.

use std::time::Duration;

use super::futures::{AcquireFuture, OperationFuture};
use super::{
    Boxed, Breaker, DenyCache, Described, Description, Fallback, FallbackIf, Inspect, Lease,
    Limiter, Operation, OrElse, Shadow, Switch, Timeout, WithBreaker, WithSwitch,
};
use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error};

/// Wraps a limiter, and asks it: every [`Limiter`] has these methods.
pub trait LimiterExt: Limiter + Sized {
    /// Fails decisions that take longer than `timeout`, waiting for a connection included.
    ///
    /// The charge carries the instant at which the time ends, as [`Charge::deadline`]. A limiter
    /// that asks several others passes it on, so each gets the time that is left. A limiter over a
    /// store returns its own error by then, since only it can tell a store that is away from one
    /// that is busy.
    ///
    /// A limiter that ignores the deadline is ended 5 ms later, with an error of kind
    /// [`Saturation`](crate::ErrorKind::Saturation), which [`FailOpen`] does not admit.
    ///
    /// [`FailOpen`]: crate::FailOpen
    ///
    /// Write it before `or_else`, as `limiter.timeout(..).or_else(..)`: a fallback inside of the
    /// timeout gets only the time that is left. The wait for a reserved slot is not part of it:
    /// that is `max_wait`.
    #[must_use]
    fn timeout(self, timeout: Duration) -> Timeout<Self> {
        Timeout::new(self, timeout)
    }

    /// Asks `fallback` where this limiter cannot decide: another limiter for every
    /// [`ErrorKind`](crate::ErrorKind) but [`Request`] and [`State`], and [`FailOpen`] for
    /// [`Infrastructure`] alone.
    ///
    /// Another limiter, such as a [`Memory`] with the share of one process, keeps a bound. So it
    /// also answers where the process has too much to do, where Redis is full, and where its
    /// password has changed. [`FailOpen`] has none, and admits only while the store is away.
    /// Without a fallback a caller sees the error, over HTTP as 503.
    ///
    /// A request that cannot be charged stays an error, and so does a stored value that is not the
    /// crate's. For the latter write `or_else_if(Error::is_of_store, fallback)`.
    ///
    /// [`Request`]: crate::ErrorKind::Request
    /// [`State`]: crate::ErrorKind::State
    /// [`Infrastructure`]: crate::ErrorKind::Infrastructure
    /// [`FailOpen`]: crate::FailOpen
    /// [`Memory`]: crate::Memory
    ///
    /// ```
    /// use std::future::ready;
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Memory, Quota};
    ///
    /// let away = |_: &Charge| {
    ///     ready(Err::<Decision, _>(Error::new(ErrorKind::Infrastructure, "no connection")))
    /// };
    /// let share = Memory::new("share", TokenBucket::new(Quota::per_second(10)));
    /// let limiter = away.or_else(share);
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let decision = limiter.check(&Charge::new("alice")).await?;
    /// assert_eq!((decision.limiter(), decision.remaining()), (Some("share"), Some(9)));
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    #[must_use]
    fn or_else<F: Fallback>(self, fallback: F) -> OrElse<Self, F> {
        OrElse::new(self, fallback)
    }

    /// Asks `fallback` where this limiter cannot decide and `condition` holds, a closure over its
    /// error. The condition replaces the fallback's own, and it is the place to log an error.
    /// [`Error::is_of_store`] is a ready one: each kind but [`Request`](crate::ErrorKind::Request).
    ///
    /// Requests and load cause errors too, of four kinds that [`FailOpen`](crate::FailOpen) lists.
    /// A condition that holds for one of them lets a caller turn the limit off where the fallback
    /// is `FailOpen`.
    ///
    /// ```
    /// use std::future::ready;
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Memory, Quota};
    ///
    /// let corrupt = |_: &Charge| {
    ///     ready(Err::<Decision, _>(Error::new(ErrorKind::State, "not a value of ours")))
    /// };
    /// let share = Memory::new("share", TokenBucket::new(Quota::per_second(10)));
    /// let limiter = corrupt.or_else_if(
    ///     |error| {
    ///         eprintln!("no decision: {error}");
    ///         error.is_of_store()
    ///     },
    ///     share,
    /// );
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// assert!(limiter.check(&Charge::new("alice")).await?.is_admitted());
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    #[must_use]
    fn or_else_if<P, F>(self, condition: P, fallback: F) -> OrElse<Self, FallbackIf<P, F>>
    where
        P: Fn(&Error) -> bool,
        F: Fallback,
    {
        OrElse::new(self, FallbackIf::new(condition, fallback))
    }

    /// Stops asking this limiter while it fails or is slow, and probes it until it answers again.
    ///
    /// A call to a store that is away costs its caller the whole timeout. An open breaker answers
    /// at once, with an error that a fallback treats as it treats the error of the store. See
    /// [`Breaker`] for what counts as a failure. A clone of the breaker reads its state and its
    /// counts, and several limiters over one store may share one.
    ///
    /// Write it next to the store or after its `timeout`, and before `deny_cache`, `lease` and
    /// `or_else`: `limiter.timeout(..).breaker(..).or_else(..)`.
    #[must_use]
    fn breaker(self, breaker: Breaker) -> WithBreaker<Self> {
        WithBreaker::new(self, breaker)
    }

    /// Repeats a refusal until its time is over, and asks nothing of this limiter until then.
    ///
    /// For a limiter over a store, whose refusals cost a round trip each. See [`DenyCache`] for
    /// what is repeated and how soon a refund is seen. Write it before `or_else`, as
    /// `limiter.deny_cache().or_else(..)`, so that no refusal of a fallback is repeated.
    #[must_use]
    fn deny_cache(self) -> DenyCache<Self> {
        DenyCache::new(self)
    }

    /// Takes several units of a busy key in one call, `max_units` at most, and hands them out in
    /// this process. With 0 or 1, nothing is leased.
    ///
    /// A window may then hold what this limiter admits in a window that is 100 ms longer, or as
    /// [`valid_for`](Lease::valid_for) says. [`Lease`] says how many units are leased, and what
    /// comes back.
    ///
    /// Write it next to the store: after `breaker` and `deny_cache`, before `timeout` and
    /// `or_else`.
    #[must_use]
    fn lease(self, max_units: u64) -> Lease<Self> {
        Lease::new(self, max_units)
    }

    /// Decides and takes as this limiter does, and admits every charge at once, whatever was
    /// decided: for a limit that is to be watched before it counts.
    ///
    /// [`Decision::shadowed`](crate::Decision::shadowed) says what it would have been, and
    /// [`Shadow::counts`] how often. Write it after everything that decides, such as `or_else`:
    /// only `switch`, `inspect`, `metrics` and `trace` come later.
    #[must_use]
    #[doc(alias("dry_run", "report_only"))]
    fn shadow(self) -> Shadow<Self> {
        Shadow::new(self)
    }

    /// Lets `switch` turn this limiter off, into a shadow, and on again, while it is used.
    ///
    /// Off, every charge is admitted and nothing is asked. It costs one atomic load for each
    /// charge. Write it after everything that decides, so that nothing is asked behind it: only
    /// `inspect`, `metrics` and `trace` come later. See [`Switch`].
    #[must_use]
    fn switch(self, switch: &Switch) -> WithSwitch<Self> {
        WithSwitch::new(self, switch.clone())
    }

    /// Calls `inspect` with each charge and its result, for logs and counts of your own: a closure
    /// over `&Charge` and `Result<&Decision, &Error>`.
    ///
    /// It is called once for each decision, and not at all if the caller leaves before. Refunds and
    /// operations pass as they are. See [`Inspect`].
    #[must_use]
    fn inspect<F>(self, inspect: F) -> Inspect<Self, F>
    where
        F: Fn(&Charge, Result<&Decision, &Error>),
    {
        Inspect::new(self, inspect)
    }

    /// Names the policies of this limiter in header fields, with their unit and a digest of the
    /// key. It decides nothing.
    ///
    /// ```
    /// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
    /// use tower_sluice::limiter::Description;
    /// use tower_sluice::{LimiterExt, Memory, Quota};
    ///
    /// let (second, day) = (Quota::per_second(10), Quota::per_day(1_000));
    /// let api = Memory::new("api", (TokenBucket::new(second), FixedWindow::new(day)))
    ///     .describe(Description::new().names(["burst", "daily"]));
    /// # let _ = api;
    /// ```
    ///
    /// Write it directly after the limiter that it describes, before all other wrappers:
    /// `Redis::new(..).describe(..).breaker(..)`. Around a combination it names the policies of all
    /// members, in their order.
    #[must_use]
    fn describe(self, description: Description) -> Described<Self> {
        Described::new(self, description)
    }

    /// Hides the type, so that limiters of different types fit one field or table.
    #[must_use]
    fn boxed(self) -> Boxed
    where
        Self: Send + Sync + 'static,
        Self::Future: Send + 'static,
    {
        Boxed::new(self)
    }

    /// Decides, and sleeps the reserved wait: for workers and for clients without a service.
    ///
    /// It waits for the charge's [`max_wait`](Charge::max_wait) at most. Default: the horizon of
    /// the algorithm, 60 s unless set; where nothing can be reserved
    /// ([`Outcome::Retry`](crate::Outcome::Retry)), for ever. A queue longer than the horizon is
    /// refused, so set a longer one for long queues. Dropping the future before its slot
    /// passes the slot on: see [`RateLimitLayer::max_wait`](crate::RateLimitLayer::max_wait).
    ///
    /// To decide at once, set the wait to 0: `Charge::new("alice").max_wait(Duration::ZERO)`. A
    /// handler without a layer does so, and answers a refusal by
    /// [`HttpResponder::reject`](crate::HttpResponder::reject).
    ///
    /// # Errors
    ///
    /// The [`Refusal`](crate::Refusal), if the charge is denied or could not be decided.
    #[doc(alias("until_ready", "until_key_ready", "wait"))]
    fn acquire(&self, charge: impl Into<Charge>) -> AcquireFuture<'_, Self> {
        AcquireFuture::new(self, charge.into())
    }

    /// Returns the state of a key, and takes nothing.
    ///
    /// [`remaining`](crate::Decision::remaining) says how many units are left. For the wait of a
    /// cost, use [`estimate`](LimiterExt::estimate).
    fn peek(&self, charge: impl Into<Charge>) -> Self::Future {
        self.check(&charge.into().peek())
    }

    /// Returns the answer that a check of a charge would get now, without taking anything: whether
    /// it would be admitted, and how long it would wait.
    ///
    /// An estimate reserves nothing. Its [`Outcome::Wait`](crate::Outcome::Wait) is the wait that a
    /// check would reserve, and another charge may come first. `remaining` and `reset_after` are of
    /// the key as it stands. A [`peek`](LimiterExt::peek) has cost 0, so it says nothing about a
    /// cost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Charge, LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("api", TokenBucket::new(Quota::per_minute(60).burst(10)));
    /// limiter.acquire(Charge::new("alice").cost(10)).await.unwrap();
    /// let estimate = limiter.estimate(Charge::new("alice").cost(5)).await?;
    /// let wait = estimate.retry_after().unwrap();
    /// assert!(wait > Duration::from_secs(4) && wait <= Duration::from_secs(5));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As a check; and of the kind [`Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot: closures and [`Redisson`](crate::redisson::Redisson) cannot.
    #[doc(alias = "dry_run")]
    fn estimate(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Estimate, &charge.into()))
    }

    /// Refunds all that an admission took: [`settle`](Limiter::settle) with 0.
    ///
    /// # Errors
    ///
    /// As [`settle`](Limiter::settle).
    fn refund(&self, reservation: Reservation) -> Result<Settlement, Reservation> {
        self.settle(reservation, 0)
    }

    /// Takes units whether or not they fit: against abuse. What a request cost in the end is for
    /// [`settle`](Limiter::settle).
    ///
    /// ```
    /// use tower_sluice::{LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let limiter = Memory::new("login", TokenBucket::new(Quota::per_minute(5)));
    /// assert_eq!(limiter.penalize("mallory").await?.remaining(), Some(4));
    /// assert_eq!(limiter.peek("mallory").await?.remaining(), Some(4));
    /// assert_eq!(limiter.reset("mallory").await?.remaining(), Some(5));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// The answer is what a peek would then return; it cannot be refunded. A bucket and the smooth
    /// limiters owe all of it, up to their horizon and as much again at most. A window, a log or a
    /// counter takes at most its limit.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot.
    #[doc(alias = "debit")]
    fn penalize(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Penalize, &charge.into()))
    }

    /// Refuses all charges of a key for this time, 1 µs at least: against abuse. `Duration::MAX`
    /// lasts until [`unblock`](LimiterExt::unblock).
    ///
    /// The [`retry_after`](crate::Decision::retry_after) of a refusal is the end of the block, and
    /// nothing remains until then. `peek` and `estimate` say so too. Another block never ends a
    /// longer one. Every process that shares the key sees it: over Redis it is kept in the key
    /// itself, so a key that is not blocked costs nothing more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// const HOUR: Duration = Duration::from_secs(3_600);
    /// let limiter = Memory::new("login", TokenBucket::new(Quota::per_day(5)));
    /// limiter.acquire("mallory").await.unwrap();
    /// limiter.block("mallory", HOUR).await?;
    /// assert!(limiter.acquire("mallory").await.is_err());
    /// let peeked = limiter.peek("mallory").await?;
    /// assert!(!peeked.is_admitted() && peeked.retry_after() <= Some(HOUR));
    /// // What was taken before is still taken.
    /// assert_eq!(limiter.unblock("mallory").await?.remaining(), Some(4));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// A block refuses, and does nothing else. What was taken before counts again when it ends, as
    /// if time had passed without charges. A reservation of a blocked key is settled as always. A
    /// request that waits for its slot keeps it, and runs then. [`penalize`](LimiterExt::penalize)
    /// takes units, and [`reset`](LimiterExt::reset) forgets what was taken; neither ends the
    /// block. A charge of several keys blocks each of them: ask the limiter of the key that you
    /// mean.
    ///
    /// **A block that ends before the quota is free again** gives nothing back: the used-up window
    /// goes on refusing. Block the key, and then reset it. The block stays, and at its end the
    /// whole quota is there:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{LimiterExt, Memory, Quota, algorithm::FixedWindow};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build().unwrap().block_on(async {
    /// const MINUTE: Duration = Duration::from_secs(60);
    /// let quota = Quota::new(5, 15 * MINUTE);
    /// let failures = Memory::new("failed logins", FixedWindow::new(quota).anchored());
    /// for _ in 0..5 {
    ///     failures.acquire("mallory").await.unwrap();
    /// }
    /// failures.block("mallory", MINUTE).await?;
    /// failures.reset("mallory").await?;
    /// assert_eq!(failures.peek("mallory").await?.retry_after(), Some(MINUTE));
    /// tokio::time::advance(MINUTE).await;
    /// assert_eq!(failures.peek("mallory").await?.remaining(), Some(5));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// The guide's [login](crate::guide::login_protection) makes blocks that grow.
    ///
    /// A cached refusal of another process is repeated until the
    /// [`max_age`](DenyCache::max_age) of its cache, and units that it has
    /// [leased](LimiterExt::lease) are spent for 100 ms.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot: closures and [`Redisson`](crate::redisson::Redisson) cannot.
    #[doc(alias("ban", "lockout"))]
    fn block(&self, charge: impl Into<Charge>, time: Duration) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Block(time), &charge.into()))
    }

    /// Ends a [`block`](LimiterExt::block) of a key. What was taken before it still counts.
    ///
    /// The answer is what a peek would then return. A key that is not blocked stays as it is.
    ///
    /// # Errors
    ///
    /// As [`block`](LimiterExt::block).
    #[doc(alias("unban", "unlock"))]
    fn unblock(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Unblock, &charge.into()))
    }

    /// Starts a key anew: forgets what was taken and what is reserved. That holds under every
    /// quota: a quota of the charge changes only what the answer reports. A
    /// [`block`](LimiterExt::block) stays until it is over, or [`unblock`](LimiterExt::unblock)
    /// ends it.
    ///
    /// Requests that already wait keep their slots and still run then; the key no longer counts
    /// them. After a change of a plan, change your table first and reset afterwards: a charge that
    /// comes between is forgotten.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot.
    #[doc(alias("clear", "delete"))]
    fn reset(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Reset, &charge.into()))
    }
}

impl<L: Limiter> LimiterExt for L {}
