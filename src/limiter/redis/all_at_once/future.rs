//! The future of such a decision.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::super::future::RedisFuture;
use crate::algorithm::InLua;
use crate::limiter::BoxedFuture;
use crate::{Decision, Error, Owner, Reservation};

/// The payload of a reservation where all members state their own costs.
pub(super) struct StatedCosts(pub(super) Reservation);

pin_project! {
    /// The future of [`AllAtOnce`].
    #[must_use = "nothing is decided until it is awaited"]
    pub struct AllAtOnceFuture<A: InLua> {
        #[pin]
        state: State<A>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<A: InLua> {
        InOneCall { #[pin] decision: RedisFuture<A>, stated: Option<(Owner, u64)> },
        InTurn { decision: BoxedFuture },
    }
}

impl<A: InLua> AllAtOnceFuture<A> {
    /// `stated`: the owner and the cost of the reservation, if all members state their own costs.
    pub(super) fn in_one_call(decision: RedisFuture<A>, stated: Option<(Owner, u64)>) -> Self {
        Self { state: State::InOneCall { decision, stated } }
    }

    pub(super) fn in_turn(decision: BoxedFuture) -> Self {
        Self { state: State::InTurn { decision } }
    }
}

impl<A: InLua> Future for AllAtOnceFuture<A> {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::InOneCall { decision, stated } => {
                let mut decision = ready!(decision.poll(cx))?;
                if let Some((owner, cost)) = *stated
                    && let Some(taken) = decision.take_reservation()
                {
                    decision = decision.with_reservation(Reservation::new(
                        owner,
                        cost,
                        StatedCosts(taken),
                    ));
                }
                Poll::Ready(Ok(decision))
            }
            StateProj::InTurn { decision } => decision.as_mut().poll(cx),
        }
    }
}

impl<A: InLua> fmt::Debug for AllAtOnceFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllAtOnceFuture").finish_non_exhaustive()
    }
}
