//! The future of such a decision.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::super::Redis;
use super::super::future::RedisFuture;
use crate::algorithm::AnyAlgorithm;
use crate::limiter::BoxedFuture;
use crate::{Decision, Error, Owner, Reservation};

/// A limiter that asks for several members in one call.
pub(super) type Joined = Redis<Vec<AnyAlgorithm>>;

/// The payload of a reservation: what members took in one call, and how it is settled.
pub(super) struct TakenTogether {
    pub(super) limiter: Joined,
    pub(super) reservation: Reservation,
    /// True if the members state their own costs.
    pub(super) states_costs: bool,
}

/// The reservation of the whole: its owner, its cost, and what its payload begins with.
type Reserved = (Owner, u64, Joined, bool);

pin_project! {
    /// The future of [`AllAtOnce`](crate::AllAtOnce).
    #[must_use = "nothing is decided until it is awaited"]
    pub struct AllAtOnceFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        InOneCall { #[pin] decision: RedisFuture<Vec<AnyAlgorithm>>, reserved: Option<Reserved> },
        InTurn { decision: BoxedFuture },
    }
}

impl AllAtOnceFuture {
    pub(super) fn in_one_call(
        decision: RedisFuture<Vec<AnyAlgorithm>>,
        reserved: Reserved,
    ) -> Self {
        Self { state: State::InOneCall { decision, reserved: Some(reserved) } }
    }

    pub(super) fn in_turn(decision: BoxedFuture) -> Self {
        Self { state: State::InTurn { decision } }
    }

    pub(super) fn failed(error: Error) -> Self {
        Self::in_turn(Box::pin(ready(Err(error))))
    }
}

impl Future for AllAtOnceFuture {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::InOneCall { decision, reserved } => {
                let mut decision = ready!(decision.poll(cx))?;
                if let Some(reservation) = decision.take_reservation()
                    && let Some((owner, cost, limiter, states_costs)) = reserved.take()
                {
                    let held = reservation.is_held();
                    let taken = TakenTogether { limiter, reservation, states_costs };
                    let reservation = Reservation::new(owner, cost, taken).with_held(held);
                    decision = decision.with_reservation(reservation);
                }
                Poll::Ready(Ok(decision))
            }
            StateProj::InTurn { decision } => decision.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for AllAtOnceFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllAtOnceFuture").finish_non_exhaustive()
    }
}
