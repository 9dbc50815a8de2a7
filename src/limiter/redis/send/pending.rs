//! The caller's half of a decision. It awaits the answer until the deadline. If it is dropped, it
//! refunds an admission.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::client::fault::{Deadline, Progress, Stage};
use super::super::script::Request;
use super::batcher::{Batcher, InlineSend, Receiver, Submitted};
use super::queued::{CompletedRequest, QueuedRequest};
use crate::limiter::on_time::Timers;
use crate::{Error, ErrorKind};

pin_project! {
    /// The future of the answer to one request. Nothing is sent before the first poll.
    pub(crate) struct Pending {
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
        Starting { queued: Option<Box<QueuedRequest>>, timeout: Duration },
        Waiting {
            // `None` once the sender gave up the charge at its deadline.
            receiver: Option<Receiver>,
            inline: Option<InlineSend>,
            progress: Option<Arc<Progress>>,
            deadline: Deadline,
            #[pin]
            timer: Sleep,
            timers: Timers,
            // Runs once the last of the timers has fired.
            grace_period: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        },
        Done,
    }
}

impl Pending {
    /// A future that ends `timeout` after its first poll, or earlier at the request's deadline.
    pub(crate) fn new(
        batcher: Arc<Batcher>,
        queued: Box<QueuedRequest>,
        timeout: Duration,
    ) -> Self {
        Self { batcher, state: State::Starting { queued: Some(queued), timeout } }
    }

    /// The request, as long as nothing was sent.
    pub(crate) fn unsent(&self) -> Option<&Request> {
        match &self.state {
            State::Starting { queued, .. } => queued.as_ref().map(|queued| &queued.request),
            _ => None,
        }
    }

    /// Stops waiting. An admission that has come or still comes is refunded.
    fn cancel(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let StateProj::Waiting { receiver, inline, .. } = this.state.as_mut().project() {
            let completed = receiver.take().and_then(|mut receiver| {
                receiver.close();
                receiver.try_recv().ok().and_then(Result::ok)
            });
            if let Some(request) = completed.and_then(CompletedRequest::into_refund) {
                // A lost refund is safe: its units stay taken.
                let _ = this.batcher.send_and_forget(request);
            }
            // A call that was sent goes on without its caller, and refunds the units that it took.
            // It ends soon after its deadline. During a panic it is dropped. It is also dropped
            // outside its own runtime, which may be ending.
            if let (Some(inline), Ok(runtime)) = (inline.take(), Handle::try_current())
                && inline.runtime == runtime.id()
                && !std::thread::panicking()
            {
                runtime.spawn(inline.future);
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
                StateProj::Starting { queued, timeout } => {
                    let mut queued = queued.take().expect("submitted once");
                    queued.deadline = queued.deadline.min(Instant::now() + *timeout);
                    let deadline = Deadline::new(queued.deadline, queued.hash_slot);
                    if deadline.is_over() {
                        let message = "the time ended before the charge was sent";
                        return Poll::Ready(Err(Error::new(ErrorKind::Saturation, message)));
                    }
                    let Submitted { receiver, inline, progress } = this.batcher.submit(queued)?;
                    let timers = deadline.timers();
                    let (receiver, timer) = (Some(receiver), sleep_until(timers.next()));
                    State::Waiting {
                        receiver,
                        inline,
                        progress,
                        deadline,
                        timer,
                        timers,
                        grace_period: None,
                    }
                }
                StateProj::Waiting {
                    receiver,
                    inline,
                    progress,
                    deadline,
                    mut timer,
                    timers,
                    grace_period,
                } => {
                    // The caller's own task sends the charge, and so brings its answer. A waker for
                    // it would run this task once more, and wake another thread for that.
                    let is_sending = match inline {
                        Some(sending) => sending.future.as_mut().poll(cx).is_pending(),
                        None => false,
                    };
                    if !is_sending {
                        *inline = None;
                    }
                    let answer =
                        receiver.as_mut().map_or(Poll::Pending, |waiting| {
                            match is_sending.then(|| waiting.try_recv()) {
                                Some(Err(TryRecvError::Empty)) => Poll::Pending,
                                Some(answer) => Poll::Ready(answer.map_err(drop)),
                                None => Pin::new(waiting).poll(cx).map_err(drop),
                            }
                        });
                    if let Poll::Ready(answer) = answer {
                        match answer.map_err(|()| dropped_error(deadline)) {
                            Ok(answer) | Err(Some(answer)) => {
                                this.state.set(State::Done);
                                return Poll::Ready(answer);
                            }
                            Err(None) => *receiver = None,
                        }
                    }
                    let pool = &this.batcher.config().pool;
                    let Some(grace_period) = grace_period else {
                        ready!(timer.as_mut().poll(cx));
                        if !deadline.record_timer(timers, pool) {
                            timer.reset(timers.next());
                            continue;
                        }
                        *grace_period = Some(Box::pin(deadline.catch_up()));
                        continue;
                    };
                    ready!(grace_period.as_mut().poll(cx));
                    let stage = progress.as_ref().map_or(Stage::Sent, |progress| progress.stage());
                    let error = deadline.missed_error(pool, stage);
                    self.cancel();
                    return Poll::Ready(Err(error));
                }
                StateProj::Done => panic!("polled after it was done"),
            };
            this.state.set(next);
        }
    }
}

/// Returns the error of a charge whose sender dropped it. `None` if its deadline has passed: the
/// caller decides on the error once its own timer has fired.
fn dropped_error(deadline: &Deadline) -> Option<Result<CompletedRequest, Error>> {
    // The worker's runtime has ended, or the caller's clock panicked in it.
    let message = "the task that sends charges ended before the answer came";
    (Instant::now() < deadline.at).then(|| Err(Error::new(ErrorKind::State, message)))
}

#[cfg(test)]
mod tests;
