//! The caller's half of a decision: it awaits the answer until the deadline, and refunds
//! it when dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::batcher::{Batcher, InlineSend, Receiver, Submitted};
use super::deadline::Deadline;
use super::pool::Pool;
use super::queued::{CompletedRequest, QueuedRequest};
use crate::{Error, ErrorKind};

pin_project! {
    /// The future of the answer to one request. Nothing is sent before the first poll.
    pub(super) struct Pending {
        batcher: Arc<Batcher>,
        #[pin]
        state: State,
    }

    impl PinnedDrop for Pending {
        fn drop(this: Pin<&mut Self>) {
            this.cancel();
        }
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Starting { queued: Option<Box<QueuedRequest>> },
        Waiting {
            receiver: Receiver,
            inline: Option<InlineSend>,
            in_queue: Option<Weak<()>>,
            deadline: Deadline,
            #[pin]
            timer: Sleep,
            // Runs once the timer has fired.
            grace_period: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        },
        Done,
    }
}

impl Pending {
    pub(super) fn new(batcher: Arc<Batcher>, queued: Box<QueuedRequest>) -> Self {
        Self { batcher, state: State::Starting { queued: Some(queued) } }
    }

    /// Stops waiting. An admission that has come or still comes is refunded.
    fn cancel(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let StateProj::Waiting { receiver, inline, .. } = this.state.as_mut().project() {
            receiver.close();
            let completed = receiver.try_recv().ok().and_then(Result::ok);
            if let Some(request) = completed.and_then(CompletedRequest::into_refund) {
                // A refund that is lost errs on the safe side.
                let _ = this.batcher.send_and_forget(request);
            }
            // A call that was sent runs on without its caller, and refunds what it took. It ends
            // soon after its deadline. After a panic there is nothing left to do.
            if let (Some(inline), Ok(runtime)) = (inline.take(), Handle::try_current())
                && !std::thread::panicking()
            {
                runtime.spawn(inline);
            }
        }
        this.state.set(State::Done);
    }
}

impl Future for Pending {
    type Output = Result<CompletedRequest, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            let next = match this.state.as_mut().project() {
                StateProj::Starting { queued } => {
                    let queued = queued.take().expect("submitted once");
                    let pool = &this.batcher.config().pool;
                    let deadline = Deadline::new(queued.deadline, pool, queued.hash_slot);
                    if deadline.is_over() {
                        let message = "the time ended before the charge was sent";
                        return Poll::Ready(Err(Error::new(ErrorKind::Saturation, message)));
                    }
                    let Submitted { receiver, inline, in_queue } = this.batcher.submit(queued)?;
                    let timer = sleep_until(deadline.at);
                    State::Waiting {
                        receiver,
                        inline,
                        in_queue,
                        deadline,
                        timer,
                        grace_period: None,
                    }
                }
                StateProj::Waiting {
                    receiver,
                    inline,
                    in_queue,
                    deadline,
                    timer,
                    grace_period,
                } => {
                    if let Some(sending) = inline
                        && sending.as_mut().poll(cx).is_ready()
                    {
                        *inline = None;
                    }
                    if let Poll::Ready(answer) = Pin::new(receiver).poll(cx) {
                        let pool = &this.batcher.config().pool;
                        let answer = answer.unwrap_or_else(|_| Err(no_answer(deadline, pool)));
                        this.state.set(State::Done);
                        return Poll::Ready(answer);
                    }
                    let Some(grace_period) = grace_period else {
                        ready!(timer.poll(cx));
                        *grace_period = Some(Box::pin(deadline.catch_up()));
                        continue;
                    };
                    ready!(grace_period.as_mut().poll(cx));
                    let was_sent =
                        in_queue.as_ref().is_none_or(|in_queue| in_queue.strong_count() == 0);
                    let error = deadline.missed_error(&this.batcher.config().pool, was_sent);
                    self.cancel();
                    return Poll::Ready(Err(error));
                }
                StateProj::Done => panic!("polled after it was done"),
            };
            this.state.set(next);
        }
    }
}

/// The error of a charge that will get no answer any more.
fn no_answer(deadline: &Deadline, pool: &Pool) -> Error {
    if deadline.at <= Instant::now() {
        // Its call was given up before, and its own timer has not fired yet.
        return deadline.missed_error(pool, true);
    }
    // The worker's runtime has ended, or the caller's clock panicked in it.
    Error::new(ErrorKind::State, "the task that sends charges ended before the answer came")
}

#[cfg(test)]
mod tests;
