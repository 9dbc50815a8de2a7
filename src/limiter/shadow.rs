//! A limiter that decides and never refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Limiter, Operation};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::{Charge, Decision, Error, Outcome};

/// A limiter that admits whatever its inner one decides: made by
/// [`LimiterExt::shadow`](crate::LimiterExt::shadow). Clones share the counts.
///
/// It shows what a new limit would do to real traffic. It asks and takes as its inner limiter does,
/// so each outcome is the one that would have been without the shadow. Then it admits at once.
///
/// ```
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Outcome, Quota};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().build().unwrap().block_on(async {
/// let limiter = Memory::new("api", TokenBucket::new(Quota::per_hour(2))).shadow();
/// for call in 0..10 {
///     let decision = limiter.check(&Charge::new("alice")).await?;
///     assert!(decision.is_admitted());
///     let would_be_refused = matches!(decision.shadowed(), Some(Ok(Outcome::Deny { .. })));
///     assert_eq!(would_be_refused, call >= 2);
/// }
/// assert_eq!((limiter.counts().admitted, limiter.counts().refused), (2, 8));
/// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
/// ```
///
/// | the inner limiter answers | the decision |
/// |---|---|
/// | `Allow` | the same |
/// | `Wait` | `Allow`: the slot is reserved, and nobody waits for it |
/// | `Retry`, `Deny` | `Allow`, and nothing is taken |
/// | an error, of whatever kind | `Allow`, with [`Origin::Shadow`](crate::limiter::Origin::Shadow) |
/// | nothing, since a request has no key | the same |
///
/// [`Decision::shadowed`] holds the answer itself. All else that the decision reports is the inner
/// limiter's, such as [`remaining`](Decision::remaining). What was taken can be settled as usual.
///
/// # What it does not do
///
/// - It does not hide the time that a decision takes. So leave a `timeout` inside of it.
/// - It does not ask again: where nothing can be reserved, a caller would have, after `Retry`.
/// - An estimate, a penalty and a reset are those of the inner limiter.
#[derive(Clone, Debug)]
pub struct Shadow<L> {
    inner: L,
    counters: Arc<Counters>,
}

/// The counts of the results that the charges of a shadow would have had. A peek takes nothing and
/// is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCounts {
    /// Admitted at once.
    pub admitted: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Refused, or asked to come again.
    pub refused: u64,
    /// Not decided: over HTTP a 503, or a 400, as for a request without a key.
    pub undecided: u64,
}

/// The counts while they grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    admitted: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    undecided: AtomicU64,
}

impl Counters {
    pub(super) fn add(&self, answer: Result<Outcome, &Error>) {
        let counter = match answer {
            Ok(Outcome::Allow) => &self.admitted,
            Ok(Outcome::Wait(_)) => &self.delayed,
            Ok(Outcome::Retry(_) | Outcome::Deny { .. }) => &self.refused,
            Err(_) => &self.undecided,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn counts(&self) -> ShadowCounts {
        ShadowCounts {
            admitted: self.admitted.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            undecided: self.undecided.load(Relaxed),
        }
    }

    /// Admits a request without a key, and counts it as `inner` would have decided.
    pub(super) fn admit_keyless<L: Limiter>(&self, inner: &L, why: &Error) -> Decision {
        let answer = inner.check_keyless(why).ok_or_else(|| why.clone());
        self.add(answer.as_ref().map(Decision::outcome));
        Decision::in_shadow(answer)
    }
}

impl<L> Shadow<L> {
    pub(super) fn new(inner: L) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// Returns the counts of the results that its charges would have had, those of its clones
    /// included.
    #[must_use]
    pub fn counts(&self) -> ShadowCounts {
        self.counters.counts()
    }
}

impl<L: Limiter> Limiter for Shadow<L> {
    type Future = ShadowFuture<L::Future>;

    fn check(&self, charge: &Charge) -> Self::Future {
        ShadowFuture::admitting(self.inner.check(charge), charge, &self.counters)
    }

    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        Some(self.counters.admit_keyless(&self.inner, why))
    }

    pass_on!(settle);

    /// Always: a layer refuses requests otherwise. What the inner limiter cannot take is not taken.
    fn can_take_more(&self) -> bool {
        true
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.inner.operate(operation, charge).map(ShadowFuture::passing)
    }
}

pin_project! {
    /// The future of [`Shadow`].
    pub struct ShadowFuture<C> {
        #[pin]
        answer: C,
        handling: Handling,
    }
}

/// The way in which an answer is handled.
enum Handling {
    /// It passes as it is.
    Pass,
    /// It admits, and is not counted: nobody is charged.
    Admit,
    AdmitAndCount(Arc<Counters>),
}

impl<C> ShadowFuture<C> {
    pub(super) fn admitting(answer: C, charge: &Charge, counters: &Arc<Counters>) -> Self {
        let handling = match charge.units() {
            // `AllInTurn` peeks at its members before it charges them.
            0 => Handling::Admit,
            _ => Handling::AdmitAndCount(Arc::clone(counters)),
        };
        Self { answer, handling }
    }

    pub(super) fn passing(answer: C) -> Self {
        Self { answer, handling: Handling::Pass }
    }
}

impl<C> Future for ShadowFuture<C>
where
    C: Future<Output = Result<Decision, Error>>,
{
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        if let Handling::AdmitAndCount(counters) = &*this.handling {
            counters.add(answer.as_ref().map(Decision::outcome));
        }
        Poll::Ready(match this.handling {
            Handling::Pass => answer,
            Handling::Admit | Handling::AdmitAndCount(_) => Ok(Decision::in_shadow(answer)),
        })
    }
}

debug_by_name!([C] ShadowFuture<C>);
