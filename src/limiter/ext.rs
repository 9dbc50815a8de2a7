//! The methods of every limiter besides its decisions: wrappers and operations.

use std::sync::Arc;
use std::time::Duration;

use super::futures::{AcquireFuture, OperationFuture};
use super::inspect::Closure;
use super::{
    BanAfter, Boxed, Breaker, DenyCache, Described, Description, Fallback, Hold, Inspect, Lease,
    Limiter, Operation, OrElse, Shadow, Switch, SwitchMode, Timeout, WithBreaker, WithSwitch,
    Wrapped,
};
use crate::core::decision::Done;
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;
use crate::core::{Charge, Decision, Error};

/// Wrappers and operations of a limiter: every [`Limiter`] has these methods.
///
/// An operation on a key, such as [`reset`](LimiterExt::reset), returns a [`Done`]: its field `0` is
/// the [`Decision`] of a peek afterwards.
///
/// For a key with a [quota of its own](Charge::quota), state that quota here, too. Otherwise
/// [`peek`](LimiterExt::peek), [`penalize`](LimiterExt::penalize) and [`grant`](LimiterExt::grant)
/// count by the limiter's quota: under 10 an hour, a penalty of 5 takes half of every bucket.
pub trait LimiterExt: Limiter + Sized {
    /// Fails decisions that take longer than `timeout`, including the wait for a connection.
    ///
    /// A limiter that ignores [`Charge::deadline`] fails 5 ms later, with an error of kind
    /// [`Saturation`](crate::ErrorKind::Saturation), which `FailOpen` does not admit.
    ///
    /// Write it before `or_else`: a fallback inside of the timeout gets only the remaining time. It
    /// does not limit the wait for a reserved slot; `max_wait` does.
    #[must_use]
    fn timeout(self, timeout: Duration) -> Timeout<Self> {
        Timeout::new(self, timeout)
    }

    /// Asks `fallback` if this limiter cannot decide. Another limiter as a fallback answers for
    /// every [`ErrorKind`](crate::ErrorKind) except [`Request`] and [`State`]. [`FailOpen`] answers
    /// only for [`Infrastructure`].
    ///
    /// [`FailOpen`] keeps no bound; a [`Memory`] with the share of one process does. For a stored
    /// value that is not the crate's, write `or_else_if(Error::is_of_store, fallback)`. [When Redis
    /// fails][failures] has a table.
    ///
    /// # Panics
    ///
    /// If the charges of this limiter have several keys, and the fallback takes another number, as
    /// a [`Memory`] behind `AllAtOnce::of_parts` would.
    ///
    /// [`Request`]: crate::ErrorKind::Request
    /// [`State`]: crate::ErrorKind::State
    /// [`Infrastructure`]: crate::ErrorKind::Infrastructure
    /// [`FailOpen`]: crate::FailOpen
    /// [`Memory`]: crate::Memory
    /// [failures]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/when_redis_fails/
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
    #[track_caller]
    fn or_else<F: Fallback>(self, fallback: F) -> OrElse<Self, F> {
        OrElse::new(self, F::stands_in as fn(&Error) -> bool, fallback)
    }

    /// Asks `fallback` if this limiter cannot decide and `condition` returns true: a closure over
    /// the error, such as [`Error::is_of_store`]. The condition replaces that of the fallback, and
    /// it is the place to log an error.
    ///
    /// If the fallback is [`FailOpen`](crate::FailOpen), a condition that covers more than
    /// `Infrastructure` lets a caller turn off the limit.
    #[must_use]
    #[track_caller]
    fn or_else_if<F: Fallback>(
        self,
        condition: impl Fn(&Error) -> bool + Send + Sync + 'static,
        fallback: F,
    ) -> OrElse<Self, F> {
        OrElse::new(self, condition, fallback)
    }

    /// Stops asking this limiter while it fails or is slow, and probes it until it answers again.
    ///
    /// [`Breaker`] lists what counts as a failure.
    ///
    /// Write it next to the store or after its `timeout`, and before `deny_cache`, `lease` and
    /// `or_else`: `limiter.timeout(..).breaker(..).or_else(..)`.
    #[must_use]
    fn breaker(self, breaker: Breaker) -> WithBreaker<Self> {
        Wrapped { inner: self, around: breaker }
    }

    /// Repeats a refusal until its time is over, and does not ask this limiter until then.
    ///
    /// [`DenyCache`] lists what is repeated, and when a refund takes effect. Write it before
    /// `or_else`, as `limiter.deny_cache().or_else(..)`.
    #[must_use]
    fn deny_cache(self) -> DenyCache<Self> {
        Wrapped { inner: self, around: Arc::default() }
    }

    /// Blocks a key for `time` when its charges are refused `refusals` times within `window`: see
    /// [`BanAfter`]. Write it after `deny_cache` and `or_else`.
    ///
    /// # Panics
    ///
    /// As [`Quota::new`](crate::Quota::new), of `refusals` per `window`.
    #[must_use]
    #[track_caller]
    fn ban_after(self, refusals: u64, window: Duration, time: Duration) -> BanAfter<Self> {
        BanAfter::new(self, refusals, window, time)
    }

    /// Takes several units of a busy key in one call, at most `max_units`, and spends them in this
    /// process. With 0 or 1, nothing is leased.
    ///
    /// A window may then have more units: those that this limiter admits in a window longer by 100
    /// ms, or by [`valid_for`](Lease::valid_for). [`Lease`] describes how many units are leased,
    /// and which come back.
    ///
    /// Write it next to the store: after `breaker` and `deny_cache`, before `timeout` and
    /// `or_else`.
    fn lease(self, max_units: u64) -> Lease<Self> {
        Lease::new(self, max_units)
    }

    /// Decides and takes units like this limiter, but admits every charge at once: for a limit that
    /// you want to observe before it counts.
    ///
    /// [`Decision::shadowed`](crate::Decision::shadowed) returns the result without the shadow, and
    /// [`Shadow::counts`] counts these results. Write it after all wrappers that decide, such as
    /// `or_else`: only `switch`, `inspect`, `metrics` and `trace` come later.
    #[must_use]
    #[doc(alias("dry_run", "report_only"))]
    fn shadow(self) -> Shadow<Self> {
        let switch = Switch::new();
        switch.set(SwitchMode::Shadow);
        self.switch(&switch)
    }

    /// Lets `switch` turn this limiter off, into a shadow, and on again, while it is used.
    ///
    /// Write it after all wrappers that decide: only `inspect`, `metrics` and `trace` come later.
    /// See [`Switch`].
    #[must_use]
    fn switch(self, switch: &Switch) -> WithSwitch<Self> {
        Wrapped { inner: self, around: switch.clone() }
    }

    /// Calls `inspect` with each charge and its result, for logs and counts of your own: a closure
    /// over `&Charge` and `Result<&Decision, &Error>`.
    ///
    /// It is called once for each decision, but not if the caller leaves before. It is not called
    /// for refunds and operations. See [`Inspect`].
    #[must_use]
    fn inspect<F>(self, inspect: F) -> Inspect<Self, F>
    where
        F: Fn(&Charge, Result<&Decision, &Error>),
    {
        Wrapped { inner: self, around: Closure(Arc::new(inspect)) }
    }

    /// Sets the names, the unit and the partition key of this limiter's policies in header fields.
    /// It does not change decisions.
    ///
    /// Write it directly after the limiter that it describes, before all other wrappers:
    /// `Redis::new(..).describe(..).breaker(..)`. Around a combination, it names the policies of
    /// all members, in order.
    #[must_use]
    fn describe(self, description: Description) -> Described<Self> {
        Wrapped { inner: self, around: Arc::new(description) }
    }

    /// Hides the type, so that limiters of different types fit into one field or table.
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
    /// It waits at most for the charge's [`max_wait`](Charge::max_wait). Default: the horizon of
    /// the algorithm, which is 60 s unless set. If nothing can be reserved
    /// ([`Outcome::Retry`](crate::Outcome::Retry)), the default has no end. A charge that would
    /// wait longer than the horizon is refused, so set a longer horizon for long queues.
    ///
    /// At most 1,024 callers wait for a limiter at once, unless
    /// [`max_waiters`](AcquireFuture::max_waiters) says otherwise.
    ///
    /// # Errors
    ///
    /// The [`Refusal`](crate::Refusal), if the charge is denied or could not be decided.
    #[doc(alias("until_ready", "until_key_ready", "wait"))]
    fn acquire(&self, charge: impl Into<Charge>) -> AcquireFuture<'_, Self> {
        AcquireFuture::new(self, charge.into())
    }

    /// Decides now, and never waits: the charge is admitted, or its refusal is the error. Use it in
    /// a handler without a layer, and answer a refusal with
    /// [`HttpResponder::refuse_in_handler`](crate::HttpResponder::refuse_in_handler).
    ///
    /// # Errors
    ///
    /// As [`acquire`](LimiterExt::acquire).
    #[doc(alias("try_wait"))]
    fn try_acquire(&self, charge: impl Into<Charge>) -> AcquireFuture<'_, Self> {
        AcquireFuture::new(self, charge.into().max_wait(Duration::ZERO))
    }

    /// Returns the state of a key, and takes nothing.
    ///
    /// [`remaining`](crate::Decision::remaining) is the number of units that are left. The outcome
    /// is that of a cost of 0: it is denied if the key owes units, if more are taken than a smaller
    /// quota has, or if it is [blocked](crate::Decision::is_blocked). For the outcome and the wait
    /// of a request, use [`estimate`](LimiterExt::estimate).
    fn peek(&self, charge: impl Into<Charge>) -> Self::Future {
        self.check(&charge.into().peek())
    }

    /// Returns the answer that a check of a charge would get now, and takes nothing: the outcome,
    /// and the wait.
    ///
    /// `remaining` and `reset_after` describe the key as it is now.
    ///
    /// # Errors
    ///
    /// The errors of a check. Also one of kind [`Configuration`](crate::ErrorKind::Configuration)
    /// if the limiter cannot estimate: closures and
    /// [`Redisson`](https://docs.rs/tower-sluice-redisson) cannot.
    #[doc(alias = "dry_run")]
    fn estimate(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future, Decision> {
        OperationFuture::new(self.operate(Operation::Estimate, &charge.into()), |estimate| estimate)
    }

    /// Refunds all that an admission took: [`settle`](Limiter::settle) with 0.
    ///
    /// # Errors
    ///
    /// As [`settle`](Limiter::settle).
    fn refund(&self, reservation: Reservation) -> Result<Settlement, Reservation> {
        self.settle(reservation, 0)
    }

    /// Holds the units of an admission until the returned guard is dropped, and renews them while
    /// it lives: for a [`Concurrency`](crate::algorithm::Concurrency). See [`Hold`].
    #[doc(alias("permit", "semaphore", "guard"))]
    fn hold(&self, reservation: Reservation) -> Hold
    where
        Self: Clone + Send + Sync + 'static,
    {
        Hold::new(Arc::new(self.clone()), reservation)
    }

    /// Takes units even if they do not fit: against abuse. For the final cost of a request, use
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
    /// The answer is that of a peek afterwards. A penalty cannot be refunded. A bucket, a budget or
    /// a smooth limiter owes all of it, for up to 365 days or its `max_debt`. A window, a log or a
    /// counter takes at most its limit, and nothing while more than that counts.
    /// [`Decision::not_taken`](crate::Decision::not_taken) has the units that were not taken.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot.
    #[doc(alias = "debit")]
    fn penalize(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Penalize, &charge.into()), Done)
    }

    /// Gives up to so many taken units of a key back, whoever took them: a customer is owed, or a
    /// batch failed for reasons of yours. For the units of one charge, use
    /// [`settle`](Limiter::settle).
    ///
    /// ```
    /// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let api = Memory::new("api", TokenBucket::new(Quota::per_day(100)));
    /// assert!(api.check(&Charge::new("acme").cost(80)).await?.is_admitted());
    /// assert_eq!(api.grant("acme", 50).await?.remaining(), Some(70));
    /// // A bucket is never more than full.
    /// assert_eq!(api.grant("acme", 50).await?.remaining(), Some(100));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// The answer is that of a peek afterwards. Of several quotas or limiters, each gets the units;
    /// a member whose charge has a cost of its own gets that number. A
    /// [`block`](LimiterExt::block) stays. A grant makes a debt smaller, too.
    ///
    /// | algorithm | gets back |
    /// |---|---|
    /// | a bucket | units, until it is full |
    /// | a [budget](crate::algorithm::Budget) | spent units; held ones stay held |
    /// | a window, a log, a counter | the newest units of its latest window, until none count |
    /// | a smooth limiter | permits, as if their time had passed |
    /// | a limit of [concurrency](crate::algorithm::Concurrency) | nothing, which is an error if it is alone |
    ///
    /// A later refund of an earlier charge may give back the granted units once more. Units that a
    /// [lease](LimiterExt::lease) has taken stay leased.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot.
    #[doc(alias("add_tokens", "credit", "reward"))]
    fn grant(&self, charge: impl Into<Charge>, units: u64) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Grant, &charge.into().cost(units)), Done)
    }

    /// Refuses all charges of a key for this time, at least 1 µs: against abuse. `Duration::MAX`
    /// lasts until [`unblock`](LimiterExt::unblock).
    ///
    /// The [`retry_after`](crate::Decision::retry_after) of a refusal is the end of the block, and
    /// `remaining` is 0 until then, also for `peek` and `estimate`. A shorter block does not end a
    /// longer one.
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
    /// assert!(peeked.is_blocked() && peeked.retry_after() <= Some(HOUR));
    /// // What was taken before is still taken.
    /// assert_eq!(limiter.unblock("mallory").await?.remaining(), Some(4));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// Neither [`penalize`](LimiterExt::penalize) nor [`reset`](LimiterExt::reset) ends it.
    /// Requests that wait for a slot keep it. A charge of several keys blocks each of them.
    ///
    /// **If a block ends before the quota is free again**, the used-up window still refuses. To
    /// avoid that, block the key, and then [`reset`](LimiterExt::reset) it, as the page on [logins]
    /// does.
    ///
    /// Other processes may notice a change later: their caches repeat a refusal until
    /// [`max_age`](DenyCache::max_age), and they spend [leased](LimiterExt::lease) units for 100
    /// ms.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot: closures and [`Redisson`](https://docs.rs/tower-sluice-redisson) cannot.
    ///
    /// [logins]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/login_protection/
    #[doc(alias("ban", "lockout"))]
    fn block(&self, charge: impl Into<Charge>, time: Duration) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Block(time), &charge.into()), Done)
    }

    /// Lets charges of a key fit only when this time is over, at least 1 µs: for an upstream that
    /// says stop. [`block`](LimiterExt::block) refuses; a pause also lets callers wait.
    ///
    /// A charge whose [`max_wait`](Charge::max_wait) allows it waits for the end of the pause, or
    /// for its slot behind those that wait already, in the order of the charges of all processes.
    /// Any other charge is refused, and its [`retry_after`](crate::Decision::retry_after) is that
    /// time. [`Decision::paused_for`] tells the rest of the pause. A shorter pause does not end a
    /// longer one. [`unblock`](LimiterExt::unblock) ends it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Charge, LimiterExt, Memory, Quota, algorithm::TokenBucket};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build().unwrap().block_on(async {
    /// const SECOND: Duration = Duration::from_secs(1);
    /// let supplier = Memory::new("supplier", TokenBucket::new(Quota::per_second(2).burst(1)));
    /// supplier.pause("key", 3 * SECOND).await?;
    /// assert!(supplier.try_acquire("key").await.is_err());
    /// // They go when the pause is over, at the pace of the quota.
    /// let first = supplier.acquire(Charge::new("key").max_wait(4 * SECOND)).await.unwrap();
    /// let second = supplier.acquire(Charge::new("key").max_wait(4 * SECOND)).await.unwrap();
    /// assert_eq!((first.waited(), second.waited()), (3 * SECOND, SECOND / 2));
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// Requests that wait already ask again at the end of their wait, if this process knows of the
    /// pause by then from an answer. Other processes spend [leased](LimiterExt::lease) units
    /// for 100 ms.
    ///
    /// A charge of several keys pauses each of them. Limiters that are asked in turn reserve no
    /// waits, so they refuse a charge of a paused key.
    ///
    /// # Errors
    ///
    /// As [`block`](LimiterExt::block).
    ///
    /// [`Decision::paused_for`]: crate::Decision::paused_for
    #[doc(alias("suspend", "backoff"))]
    fn pause(&self, charge: impl Into<Charge>, time: Duration) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Pause(time), &charge.into()), Done)
    }

    /// Ends a [`block`](LimiterExt::block) and a [`pause`](LimiterExt::pause) of a key. Units that
    /// were taken before still count.
    ///
    /// The answer is that of a peek afterwards. Charges that wait for the end of a pause keep their
    /// slots, and a window or a log admits no later charge before them.
    ///
    /// # Errors
    ///
    /// As [`block`](LimiterExt::block).
    #[doc(alias("unban", "unlock"))]
    fn unblock(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Unblock, &charge.into()), Done)
    }

    /// Resets a key: forgets the taken and the reserved units. It does so for every quota: a quota
    /// of the charge changes only the report of the answer. A [`block`](LimiterExt::block) and a
    /// [`pause`](LimiterExt::pause) stay until they are over, or until
    /// [`unblock`](LimiterExt::unblock) ends them.
    ///
    /// Requests that already wait keep their slots and run at that time; the key no longer counts
    /// them. A settlement or a refund of a charge from before the reset does nothing. The store
    /// remembers the reset for ten minutes after the last charge of the key, and for as long as
    /// units from before could count. A request that runs for longer, and uses more than it was
    /// charged, takes from the new units.
    ///
    /// When a plan changes, change your table first and reset afterwards: charges between the two
    /// are forgotten.
    ///
    /// # Errors
    ///
    /// As a check; and of [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the
    /// limiter cannot.
    #[doc(alias("clear", "delete"))]
    fn reset(&self, charge: impl Into<Charge>) -> OperationFuture<Self::Future> {
        OperationFuture::new(self.operate(Operation::Reset, &charge.into()), Done)
    }
}

impl<L: Limiter> LimiterExt for L {}
