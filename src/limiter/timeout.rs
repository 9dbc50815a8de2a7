//! A time limit for decisions.
//!
//! The timer is a backstop for limiters that ignore the charge's deadline: it fires 5 ms later. It
//! does not show the state of a store, so its error is of kind
//! [`Saturation`](ErrorKind::Saturation).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::charge_numbers::deadline;
use super::on_time::read_arrived;
use super::{Limiter, Operation, runtime};
use crate::core::{Charge, Decision, Error, ErrorKind};

const BACKSTOP: Duration = Duration::from_millis(5);

/// Makes the error of a call that came after other calls for the same charge. If the deadline
/// passes after those, the error does not show the state of a store: the call had only the rest of
/// the time, and a store that is well may be silent for half of a rest of a few ms.
pub(crate) fn after_other_calls(error: Error, charge: &Charge) -> Error {
    let deadline = charge.deadline().map(Instant::from_std);
    unless_over(error, deadline, "the time ended before all limiters had decided")
}

fn unless_over(error: Error, deadline: Option<Instant>, late: &'static str) -> Error {
    let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
    match error.kind() {
        ErrorKind::Infrastructure if is_over => {
            Error::new(ErrorKind::Saturation, late).with_source(error)
        }
        _ => error,
    }
}

/// Waits for the first connection, before a call that needs it. Returns what makes its errors.
///
/// If the connection took most of the time, a missed deadline does not show the state of a store, as
/// in [`after_other_calls`]. A silence for half of the time is the fault of a store, and there is no
/// such time left. A call without a deadline has time of its own.
pub(crate) async fn connected(
    connecting: impl Future<Output = Result<(), Error>>,
    deadline: Option<Instant>,
) -> Result<impl FnOnce(Error) -> Error, Error> {
    let left = || deadline.map_or(Duration::MAX, |at| at.duration_since(Instant::now()));
    let time = left();
    connecting.await?;
    let over = deadline.filter(|_| left() < time / 2);
    Ok(move |error| unless_over(error, over, "the time ended while the process connected"))
}

/// A limiter with a time limit. Made by [`LimiterExt::timeout`](crate::LimiterExt::timeout).
#[derive(Clone, Debug)]
pub struct Timeout<L> {
    inner: L,
    timeout: Duration,
}

impl<L> Timeout<L> {
    pub(super) fn new(inner: L, timeout: Duration) -> Self {
        Self { inner, timeout }
    }

    /// Returns the charge with its deadline, and the instant of the backstop.
    fn with_backstop(&self, charge: &Charge) -> (Charge, Instant) {
        let deadline = deadline(charge, self.timeout);
        (charge.clone().with_deadline(deadline.into_std()), deadline + BACKSTOP)
    }
}

impl<L: Limiter> Limiter for Timeout<L> {
    type Future = TimeoutFuture<L::Future>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let (charge, backstop) = self.with_backstop(charge);
        TimeoutFuture::new(self.inner.check_owned(charge), backstop)
    }

    pass_on!(check_keyless, settle, renew, keys);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        let (charge, backstop) = self.with_backstop(charge);
        self.inner.operate(operation, &charge).map(|check| TimeoutFuture::new(check, backstop))
    }
}

pin_project! {
    /// The future of [`Timeout`].
    pub struct TimeoutFuture<F> {
        #[pin]
        check: F,
        // Made when the limiter has no answer yet.
        #[pin]
        backstop: Option<Sleep>,
        due: Instant,
        // Runs after the backstop has fired.
        catching_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    }
}

impl<F> TimeoutFuture<F> {
    fn new(check: F, backstop: Instant) -> Self {
        Self { check, backstop: None, due: backstop, catching_up: None }
    }
}

impl<F> Future for TimeoutFuture<F>
where
    F: Future<Output = Result<Decision, Error>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(answer) = this.check.poll(cx) {
            return Poll::Ready(answer);
        }
        if this.backstop.is_none() {
            this.backstop.set(Some(runtime::sleep_until(*this.due)?));
        }
        if this.catching_up.is_none() {
            ready!(this.backstop.as_pin_mut().expect("it was made").poll(cx));
        }
        let due = *this.due;
        let catching_up = this.catching_up.get_or_insert_with(|| Box::pin(read_arrived(due)));
        ready!(catching_up.as_mut().poll(cx));
        Poll::Ready(Err(Error::new(ErrorKind::Saturation, "the limiter did not decide in time")))
    }
}

debug_by_name!([F] TimeoutFuture<F>);
