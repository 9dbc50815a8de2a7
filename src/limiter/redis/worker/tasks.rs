//! The tasks that a worker runs its calls in.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::task::Poll;

use tokio::task::JoinError;

use super::super::call::EndedCall;

/// Sends a call before anything else is sent: a task of its own would send it when it runs first.
pub(super) async fn sent_now<F>(call: F) -> impl Future<Output = EndedCall> + use<F>
where
    F: Future<Output = EndedCall>,
{
    let mut call = Box::pin(call);
    let ended = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
    async move {
        match ended {
            Poll::Ready(ended) => ended,
            Poll::Pending => call.await,
        }
    }
}

/// How a call ended. `None`: the runtime is shutting down. A panic of the caller's clock continues
/// here and ends the worker; the next charge starts another.
pub(super) fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(ended) => Some(ended),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}
