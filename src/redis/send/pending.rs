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
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer_place::{AnswerReceiver, AnsweredRequest, News};
use super::batch::QueuedRequest;
use super::batcher::{Batcher, InlineSend};
use crate::core::{Error, ErrorKind};

pin_project! {
    /// The future of the answer to a request.
    pub(crate) struct Pending {
        batcher: Arc<Batcher>,
        // `None` after the answer has come, or the sender gave up the charge at its deadline.
        receiver: Option<AnswerReceiver>,
        inline: Option<InlineSend>,
        progress: Option<Arc<Progress>>,
        deadline: Deadline,
        // Only of a charge that is sent inline: `deadlines.rs` has the others.
        timer: Option<Pin<Box<Sleep>>>,
        // Runs after the deadline.
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
        now: Instant,
    ) -> Result<Self, Error> {
        let deadline = Deadline::since(now, queued.deadline(), queued.hash_slot);
        if deadline.is_over() {
            let message = "the time ended before the charge was sent";
            return Err(Error::new(ErrorKind::Saturation, message));
        }
        // Outside a cluster, the stage of a charge does not change the error of a missed deadline.
        queued.progress = batcher.config().pool.is_clustered().then(Arc::default);
        let progress = queued.progress.clone();
        let (receiver, inline) = batcher.submit(queued)?;
        let timer = inline.as_ref().map(|_| Box::pin(sleep_until(deadline.at)));
        Ok(Self {
            batcher: Arc::clone(batcher),
            receiver: Some(receiver),
            inline,
            progress,
            deadline,
            timer,
            reading: None,
        })
    }

    /// Stops waiting. An earlier or later admission is refunded.
    fn cancel(self: Pin<&mut Self>) {
        let this = self.project();
        let completed = this.receiver.take().and_then(AnswerReceiver::leave).and_then(Result::ok);
        if let Some(request) = completed.and_then(QueuedRequest::into_refund) {
            // A lost refund is safe: its units stay taken.
            let _ = this.batcher.send_and_forget(request);
        }
        // A sent call continues without its caller, and refunds the units that it took. It ends
        // soon after its deadline. During a panic it is dropped. It is also dropped outside its own
        // runtime, which may be ending.
        if let Some(inline) = this.inline.take()
            && let Ok(runtime) = Handle::try_current()
            && inline.runtime == runtime.id()
            && !std::thread::panicking()
        {
            runtime.spawn(inline.future);
        }
    }
}

impl Future for Pending {
    type Output = AnsweredRequest;

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
        let news =
            this.receiver.as_ref().map(|receiver| receiver.poll((!is_sending).then_some(&*cx)));
        let mut is_late = news.is_none();
        match news {
            Some(Poll::Ready(News::Late)) => is_late = true,
            Some(Poll::Ready(news)) => {
                *this.receiver = None;
                let answer = match news {
                    News::Answered(answer) => Some(answer),
                    _ => dropped_error(this.deadline),
                };
                if let Some(answer) = answer {
                    *this.inline = None;
                    return Poll::Ready(answer);
                }
                is_late = true;
            }
            _ => {}
        }
        if !is_late && this.reading.is_none() {
            match this.timer {
                Some(timer) => ready!(timer.as_mut().poll(cx)),
                None => return Poll::Pending,
            }
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
fn dropped_error(deadline: &Deadline) -> Option<AnsweredRequest> {
    // The worker's runtime has ended, or the caller's clock panicked in it.
    let message = "the task that sends charges ended before the answer came";
    (Instant::now() < deadline.at).then(|| Err(Error::new(ErrorKind::State, message)))
}

#[cfg(test)]
mod tests;
