//! A limiter that blocks a key which is refused too often.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::{Limiter, Memory, Operation};
use crate::algorithm::FixedWindow;
use crate::core::quota::Quota;
use crate::core::{Charge, Decision, Error, Outcome};

/// A limiter that blocks a key for a time when it is refused too often: against those who never
/// stop. Made by [`LimiterExt::ban_after`](crate::LimiterExt::ban_after).
///
/// Each refusal of a charge counts, also one that a cache inside repeats. When `refusals` of them
/// fall into a window, which begins with the first one, the key is
/// [blocked](crate::LimiterExt::block), in every process. A caller that goes on is counted again,
/// and the block becomes longer.
///
/// **Cost.** Each process counts alone, in memory, and writes once for each ban. A
/// [`deny_cache`](crate::LimiterExt::deny_cache) inside saves the checks of a flood. Over `n`
/// processes, a key may be refused up to `n` times as often before it is banned. To count in one
/// place, use [`count_by`](BanAfter::count_by).
///
/// The answer to the last refusal waits for the block, and tells its end. If the block fails, the
/// next refusal tries again. Charges of several keys, peeks and errors do not count, and neither
/// does [`Retry`](crate::Outcome::Retry), the answer to a charge that may go on to wait.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota, algorithm::TokenBucket};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().build().unwrap().block_on(async {
/// const MINUTE: Duration = Duration::from_secs(60);
/// let limiter = Memory::new("login", TokenBucket::new(Quota::per_second(1)))
///     .ban_after(100, MINUTE, 60 * MINUTE);
/// let mallory = Charge::new("mallory");
/// assert!(limiter.check(&mallory).await?.is_admitted());
/// for _ in 0..99 {
///     assert!(limiter.check(&mallory).await?.retry_after() <= Some(MINUTE));
/// }
/// assert!(limiter.check(&mallory).await?.retry_after() > Some(50 * MINUTE));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
#[doc(alias("fail2ban", "penalty box", "lockout"))]
pub struct BanAfter<L, C = Memory<FixedWindow>> {
    limits: Arc<Limits<L, C>>,
}

struct Limits<L, C> {
    inner: L,
    /// Its last unit of a key is a ban.
    count: C,
    time: Duration,
}

impl<L> BanAfter<L> {
    #[track_caller]
    pub(super) fn new(inner: L, refusals: u64, window: Duration, time: Duration) -> Self {
        let count = FixedWindow::new(Quota::new(refusals, window)).anchored();
        let count = Memory::new("refusals", count);
        Self { limits: Arc::new(Limits { inner, count, time }) }
    }

    /// Counts refusals by this limiter, which takes one unit for each, and whose limit is the
    /// number of refusals. Default: an anchored window in this process. A limiter over Redis counts
    /// the refusals of all processes, and costs one call for each.
    #[must_use]
    pub fn count_by<C: Limiter>(self, count: C) -> BanAfter<L, C>
    where
        L: Clone,
    {
        let Limits { inner, time, .. } = &*self.limits;
        BanAfter { limits: Arc::new(Limits { inner: inner.clone(), count, time: *time }) }
    }
}

impl<L: Limiter, C: Limiter> BanAfter<L, C> {
    /// Counts a refusal that the limiter did not make itself: it was decided together with others,
    /// by an engine on [`store`](crate::store). Returns the refusal, or the block that it causes.
    pub fn refused(&self, charge: &Charge, refusal: Decision) -> BanAfterFuture<L, C> {
        let key = Charge::new(charge.key().to_owned());
        let state = State::Counting { count: self.limits.count.check(&key) };
        let (limits, refusal) = (Arc::clone(&self.limits), Some(refusal));
        BanAfterFuture { limits, key: Some(key), refusal, counted: None, state }
    }
}

impl<L, C> Clone for BanAfter<L, C> {
    fn clone(&self) -> Self {
        Self { limits: Arc::clone(&self.limits) }
    }
}

debug_by_name!([L, C] BanAfter<L, C>);

impl<L: Limiter, C: Limiter> Limiter for BanAfter<L, C> {
    type Future = BanAfterFuture<L, C>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let counts = charge.units() > 0 && !charge.has_parts();
        let key = counts.then(|| {
            let key = Charge::new(charge.key().to_owned());
            match charge.deadline {
                Some(deadline) => key.with_deadline(deadline),
                None => key,
            }
        });
        BanAfterFuture::new(&self.limits, self.limits.inner.check(charge), key)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let answer = self.limits.inner.operate(operation, charge)?;
        Some(BanAfterFuture::new(&self.limits, answer, None))
    }

    pass_on!(self.limits.inner, of self: check_keyless, settle, renew, keys);
}

pin_project! {
    /// The future of [`BanAfter`].
    #[must_use = "nothing is decided until it is awaited"]
    pub struct BanAfterFuture<L: Limiter, C: Limiter> {
        limits: Arc<Limits<L, C>>,
        // The key, if a refusal of it counts.
        key: Option<Charge>,
        // The refusal that is counted.
        refusal: Option<Decision>,
        // The count of the last refusal, until the key is blocked.
        counted: Option<Decision>,
        #[pin]
        state: State<L::Future, C::Future>,
    }

    impl<L: Limiter, C: Limiter> PinnedDrop for BanAfterFuture<L, C> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            not_banned(&this.limits.count, this.counted);
        }
    }
}

/// Gives back the last unit of a count, if the key may not be blocked: the next refusal is the last
/// one again.
fn not_banned<C: Limiter>(count: &C, counted: &mut Option<Decision>) {
    if let Some(reservation) = counted.take().and_then(Decision::into_reservation) {
        let _ = count.settle(reservation, 0);
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, C> {
        Asking { #[pin] check: F },
        Counting { #[pin] count: C },
        Banning { #[pin] block: F },
    }
}

/// Returns false for a charge that may go on to wait, which asks several times.
fn is_denied(decision: &Decision) -> bool {
    matches!(decision.outcome(), Outcome::Deny { .. })
}

impl<L: Limiter, C: Limiter> BanAfterFuture<L, C> {
    fn new(limits: &Arc<Limits<L, C>>, check: L::Future, key: Option<Charge>) -> Self {
        let (limits, state) = (Arc::clone(limits), State::Asking { check });
        Self { limits, key, refusal: None, counted: None, state }
    }
}

impl<L: Limiter, C: Limiter> Future for BanAfterFuture<L, C> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { check } => {
                    let answer = ready!(check.poll(cx));
                    let refusal = match (answer, this.key.as_ref()) {
                        (Ok(refusal), Some(_)) if is_denied(&refusal) => refusal,
                        (answer, _) => return Poll::Ready(answer),
                    };
                    let key = this.key.as_ref().expect("seen above");
                    let count = this.limits.count.check(key);
                    *this.refusal = Some(refusal);
                    State::Counting { count }
                }
                StateProj::Counting { count } => {
                    let counted = ready!(count.poll(cx));
                    let is_last = |counted: &Decision| counted.remaining() == Some(0);
                    let counted = counted.ok().filter(Decision::is_admitted).filter(is_last);
                    let block = Operation::Block(this.limits.time);
                    let key = this.key.as_ref().filter(|_| counted.is_some());
                    match key.and_then(|key| this.limits.inner.operate(block, key)) {
                        Some(block) => {
                            *this.counted = counted;
                            State::Banning { block }
                        }
                        None => return Poll::Ready(Ok(this.refusal.take().expect("refused"))),
                    }
                }
                StateProj::Banning { block } => {
                    let blocked = ready!(block.poll(cx));
                    let refusal = this.refusal.take().expect("refused");
                    match &blocked {
                        Ok(_) => *this.counted = None,
                        Err(_) => not_banned(&this.limits.count, this.counted),
                    }
                    return Poll::Ready(Ok(blocked.unwrap_or(refusal)));
                }
            };
            this.state.set(next);
        }
    }
}

debug_by_name!([L: Limiter, C: Limiter] BanAfterFuture<L, C>);
