//! The place of an answer, which the caller of a charge and its sender share.
//!
//! It is a channel for one value in which a third party wakes the caller: `deadlines.rs`.

use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::batch::QueuedRequest;
use crate::core::Error;
use crate::core::sync::{Mutex, lock};

/// The request of a charge with its answer, or the error in its place.
pub(super) type AnsweredRequest = Result<Box<QueuedRequest>, Error>;

#[derive(Default)]
struct AnswerPlace {
    answer: Option<AnsweredRequest>,
    /// Wakes the caller.
    waker: Option<Waker>,
    /// True if the caller has left.
    is_left: bool,
    /// True if the sender has dropped the charge.
    is_dropped: bool,
    /// True if the caller's deadline has passed.
    is_late: bool,
}

/// The caller's half.
pub(super) struct AnswerReceiver(Arc<Mutex<AnswerPlace>>);

/// The sender's half. `None` after the answer.
pub(super) struct AnswerSender(Option<Arc<Mutex<AnswerPlace>>>);

/// Wakes the caller at its deadline.
pub(super) struct Alarm(Weak<Mutex<AnswerPlace>>);

/// What a caller learns.
pub(super) enum News {
    Answered(AnsweredRequest),
    /// The sender has dropped the charge.
    Dropped,
    /// The deadline has passed. The answer may still come.
    Late,
}

/// Returns both halves.
pub(super) fn place() -> (AnswerSender, AnswerReceiver) {
    let place = Arc::<Mutex<AnswerPlace>>::default();
    (AnswerSender(Some(Arc::clone(&place))), AnswerReceiver(place))
}

impl AnswerReceiver {
    /// Returns the news. With a context, wakes its task at the next.
    pub(super) fn poll(&self, cx: Option<&Context<'_>>) -> Poll<News> {
        let mut place = lock(&self.0);
        if let Some(answer) = place.answer.take() {
            return Poll::Ready(News::Answered(answer));
        }
        if place.is_dropped {
            return Poll::Ready(News::Dropped);
        }
        if let Some(cx) = cx
            && place.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker()))
        {
            place.waker = Some(cx.waker().clone());
        }
        if place.is_late { Poll::Ready(News::Late) } else { Poll::Pending }
    }

    /// Leaves. Returns the answer, if it has come.
    pub(super) fn leave(self) -> Option<AnsweredRequest> {
        let mut place = lock(&self.0);
        place.is_left = true;
        place.answer.take()
    }

    pub(super) fn alarm(&self) -> Alarm {
        Alarm(Arc::downgrade(&self.0))
    }
}

impl AnswerSender {
    /// Returns true if the caller has left.
    pub(super) fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(|place| Arc::strong_count(place) == 1)
    }

    /// Gives the caller its answer. Returns it if the caller has left.
    pub(super) fn send(mut self, answer: AnsweredRequest) -> Result<(), AnsweredRequest> {
        let Some(place) = self.0.take() else { return Err(answer) };
        let mut locked = lock(&place);
        if locked.is_left {
            return Err(answer);
        }
        locked.answer = Some(answer);
        let waker = locked.waker.take();
        drop(locked);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl Drop for AnswerSender {
    fn drop(&mut self) {
        let Some(place) = &self.0 else { return };
        let mut locked = lock(place);
        locked.is_dropped = true;
        let waker = locked.waker.take();
        drop(locked);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Alarm {
    /// Returns true if nobody waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Wakes the caller, since its deadline has passed.
    pub(super) fn ring(&self) {
        let Some(place) = self.0.upgrade() else { return };
        let waker = {
            let mut locked = lock(&place);
            locked.is_late = true;
            mem::take(&mut locked.waker)
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, interleavings))]
mod interleavings;
