//! A call to a limiter with a breaker, which always reports its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::Breaker;
use super::circuit::{Ending, Permit};
use super::shared_circuit::SharedCircuit;
use crate::core::decision::Origin;
use crate::core::{Charge, Decision, Error, ErrorKind};
use crate::limiter::Operation;
use crate::limiter::on_time::{is_late, read_arrived};
use crate::limiter::runtime::sleep_until;
use crate::limiter::wrapped::{Around, Begin};

type Slowness = Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>;

/// A call to the limiter. It begins with the first poll: before that, nothing is taken, not even
/// the place of the probe.
pub struct BreakerCall {
    shared: Arc<SharedCircuit>,
    /// `None` before the call begins.
    permit: Option<Permit>,
    /// Watches if the call is slow. On the heap, since only breakers with `slow_after` need it.
    slowness: Option<Slowness>,
    is_slow: bool,
    /// True if the breaker was open, so that the limiter was not asked.
    is_refused: bool,
}

impl BreakerCall {
    fn new(shared: &Arc<SharedCircuit>, is_refused: bool) -> Self {
        let shared = Arc::clone(shared);
        Self { shared, permit: None, slowness: None, is_slow: false, is_refused }
    }

    /// Reports the end. Without an answer, since the caller left, the call does not count, unless
    /// it was already slow.
    fn end(self, answer: Option<&Result<Decision, Error>>) {
        let outcome = match answer.map_or(Ending::Unknown, what_it_says) {
            Ending::Failed => Ending::Failed,
            _ if self.is_slow => Ending::Slow,
            outcome => outcome,
        };
        if let Some(permit) = self.permit {
            self.shared.end(permit, outcome, answer.and_then(|answer| answer.as_ref().err()));
        }
    }
}

/// A settlement passes even while the breaker is open, and is not counted, since no caller waits
/// for it.
impl Around for Breaker {
    type Open = BreakerCall;

    fn open(&self, _: &Charge) -> Begin<BreakerCall> {
        match self.shared.refuses() {
            true => Begin::Refused(BreakerCall::new(&self.shared, true)),
            false => Begin::Seen(BreakerCall::new(&self.shared, false)),
        }
    }

    /// Asks the inner limiter even while the breaker is open, to learn if it can. Its future does
    /// nothing before it is polled.
    fn open_operation(&self, _: Operation, _: &Charge) -> Begin<BreakerCall> {
        Begin::Seen(BreakerCall::new(&self.shared, false))
    }

    fn begin(open: &mut BreakerCall) -> Result<(), Error> {
        if open.is_refused {
            return Err(open.shared.refuse());
        }
        open.permit = Some(open.shared.admit()?);
        let slow_after = open.shared.settings.slow_after;
        open.slowness = slow_after.map(|time| -> Slowness { Box::pin(is_slow_after(time)) });
        Ok(())
    }

    fn wait(open: &mut BreakerCall, cx: &mut Context<'_>) -> Result<(), Error> {
        if let Some(slowness) = &mut open.slowness
            && let Poll::Ready(is_slow) = slowness.as_mut().poll(cx)
        {
            open.slowness = None;
            open.is_slow = is_slow?;
        }
        Ok(())
    }

    fn close(open: BreakerCall, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        open.end(Some(&answer));
        answer
    }

    fn leave(open: BreakerCall) {
        open.end(None);
    }
}

fn what_it_says(answer: &Result<Decision, Error>) -> Ending {
    match answer {
        Ok(decision) => match decision.origin() {
            Origin::Store | Origin::Local => Ending::Answered,
            // The store did not decide it.
            _ => Ending::Unknown,
        },
        Err(error) => match error.kind() {
            ErrorKind::Infrastructure => Ending::Failed,
            // The store answers. An open breaker would hide that the store is full, is set up
            // wrongly, or has a corrupt value, and a fallback could admit.
            ErrorKind::Capacity | ErrorKind::Configuration | ErrorKind::State => Ending::Answered,
            // The load of this process, and invalid requests, say nothing about a store.
            ErrorKind::Saturation => Ending::Saturated,
            ErrorKind::Request => Ending::Unknown,
        },
    }
}

/// Returns true if a call that begins now has no answer after this time, and this process is not
/// late.
fn is_slow_after(slow_after: Duration) -> impl Future<Output = Result<bool, Error>> + Send {
    let begun = Instant::now();
    async move {
        // The deadline is beyond the range of an instant.
        let Some(deadline) = begun.checked_add(slow_after) else {
            return std::future::pending().await;
        };
        sleep_until(deadline)?.await;
        // In a busy process, timers fire late, or before the answer is read.
        read_arrived(deadline).await;
        Ok(!is_late(deadline))
    }
}

debug_by_name!([] BreakerCall);
