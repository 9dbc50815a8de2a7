//! The caller's half of a decision, which awaits the answer until the deadline. If it is dropped,
//! it refunds an admission.
//!
//! `crates/redis-once/src/fault.rs` decides the kind of the error at the deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use redis_once::calls::{Deadline, Progress, Stage};
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, Sleep, sleep_until};

use super::batch::{CompletedRequest, QueuedRequest};
use super::batcher::{Batcher, InlineSend, Receiver};
use crate::core::{Error, ErrorKind};

pin_project! {
    /// The future of the answer to a request.
    pub(crate) struct Pending {
        batcher: Arc<Batcher>,
        // `None` after the answer has come, or the sender gave up the charge at its deadline.
        receiver: Option<Receiver>,
        inline: Option<InlineSend>,
        progress: Option<Arc<Progress>>,
        deadline: Deadline,
        #[pin]
        timer: Sleep,
        // Runs after the timer has fired.
        reading: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    }

    impl PinnedDrop for Pending {
        fn drop(this: Pin<&mut Self>) {
            this.cancel();
        }
    }
}

impl Pending {
    /// Submits a request. The future ends at its deadline.
    pub(crate) fn submit(
        batcher: &Arc<Batcher>,
        mut queued: Box<QueuedRequest>,
    ) -> Result<Self, Error> {
        let deadline = Deadline::new(queued.deadline, queued.hash_slot);
        if deadline.is_over() {
            let message = "the time ended before the charge was sent";
            return Err(Error::new(ErrorKind::Saturation, message));
        }
        // Outside a cluster, the stage of a charge does not change the error of a missed deadline.
        queued.progress = batcher.config().pool.is_clustered().then(Arc::default);
        let progress = queued.progress.clone();
        let (receiver, inline) = batcher.submit(queued)?;
        Ok(Self {
            batcher: Arc::clone(batcher),
            receiver: Some(receiver),
            inline,
            progress,
            deadline,
            timer: sleep_until(deadline.at),
            reading: None,
        })
    }

    /// Stops waiting. An earlier or later admission is refunded.
    fn cancel(self: Pin<&mut Self>) {
        let this = self.project();
        let completed = this.receiver.take().and_then(|mut receiver| {
            receiver.close();
            receiver.try_recv().ok().and_then(Result::ok)
        });
        if let Some(request) = completed.and_then(CompletedRequest::into_refund) {
            // A lost refund is safe: its units stay taken.
            let _ = this.batcher.send_and_forget(request);
        }
        // A sent call continues without its caller, and refunds the units that it took. It ends
        // soon after its deadline. During a panic it is dropped. It is also dropped outside its own
        // runtime, which may be ending.
        if let (Some(inline), Ok(runtime)) = (this.inline.take(), Handle::try_current())
            && inline.runtime == runtime.id()
            && !std::thread::panicking()
        {
            runtime.spawn(inline.future);
        }
    }
}

impl Future for Pending {
    type Output = Result<CompletedRequest, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        // The caller's own task sends the charge, and so gets its answer. A waker for the answer
        // would run this task again, and wake another thread for that.
        let is_sending = match this.inline {
            Some(sending) => sending.future.as_mut().poll(cx).is_pending(),
            None => false,
        };
        if !is_sending {
            *this.inline = None;
        }
        let answer = this.receiver.as_mut().map_or(Poll::Pending, |waiting| {
            match is_sending.then(|| waiting.try_recv()) {
                Some(Err(TryRecvError::Empty)) => Poll::Pending,
                Some(answer) => Poll::Ready(answer.map_err(drop)),
                None => Pin::new(waiting).poll(cx).map_err(drop),
            }
        });
        if let Poll::Ready(answer) = answer {
            *this.receiver = None;
            if let Ok(answer) | Err(Some(answer)) =
                answer.map_err(|()| dropped_error(this.deadline))
            {
                *this.inline = None;
                return Poll::Ready(answer);
            }
        }
        if this.reading.is_none() {
            ready!(this.timer.poll(cx));
        }
        let deadline = *this.deadline;
        let reading = this.reading.get_or_insert_with(|| Box::pin(deadline.catch_up()));
        ready!(reading.as_mut().poll(cx));
        let stage = this.progress.as_ref().map_or(Stage::Waiting, |progress| progress.stage());
        let pool = &this.batcher.config().pool.client;
        let error = pool.missed_error(&deadline, &stage).into();
        self.cancel();
        Poll::Ready(Err(error))
    }
}

/// Returns the error of a charge whose sender dropped it. `None` if its deadline has passed: the
/// caller chooses the error after its own timer has fired.
fn dropped_error(deadline: &Deadline) -> Option<Result<CompletedRequest, Error>> {
    // The worker's runtime has ended, or the caller's clock panicked in it.
    let message = "the task that sends charges ended before the answer came";
    (Instant::now() < deadline.at).then(|| Err(Error::new(ErrorKind::State, message)))
}

#[cfg(test)]
mod tests;
