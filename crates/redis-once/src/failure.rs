//! The failure of a command, and the answer that comes too late.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use redis::{RedisError, Value};

use super::error::Error;
use super::error_reply::{from_failed_call, is_answer};

/// The failure of a command, by what is known: did it run?
///
/// The [`error`](Failure::error) says who is at fault.
#[derive(Debug)]
pub enum Failure {
    /// It did not run: it was not sent, or each server that got it said that it did not run it.
    NotRun(Error),
    /// It was sent, and no answer came by the deadline, or the connection was lost. Or a proxy says
    /// that it has lost the server. It may have run, or may still run. If the connection is not
    /// known to be lost, the answer may come later. `None`: no answer comes, as where the client of
    /// an application has given up.
    Unanswered(Error, Option<LateReply>),
    /// The server answered with an error. A command did not run then. A script or a function may
    /// have stopped after some of its writes. An error *within* an answer, such as that of one
    /// element of a list, is a part of that answer.
    Answered(Error),
}

/// The answer that did not come by the deadline: a future, for a caller that has to undo what ran
/// too late.
///
/// For example, nobody waits any more for a seat that was reserved too late. If the late answer
/// says that it was reserved, give it back.
///
/// Nothing is sent again, but a full connection may send the command only now. If this is dropped,
/// the pool's own connections do not send it any more, those of an application perhaps within 300
/// ms. The answer may never come, so await it in a tokio runtime, under a time limit of your own.
/// If it does not matter, drop this.
///
/// ```no_run
/// use std::time::Duration;
///
/// use redis_once::redis::cmd;
/// use redis_once::{Failure, Pool};
/// use tokio::time::{Instant, timeout};
///
/// # async fn run(pool: Pool) {
/// let soon = || Instant::now() + Duration::from_millis(100);
/// let reserve = cmd("SADD").arg("seats").arg("12A").take();
/// if let Err(Failure::Unanswered(_, Some(late))) = pool.send(reserve, "seats", soon()).await {
///     let late = timeout(Duration::from_secs(1), late).await;
///     if late.is_ok_and(|reply| reply.is_ok()) {
///         let give_back = cmd("SREM").arg("seats").arg("12A").take();
///         pool.send(give_back, "seats", soon()).await.ok();
///     }
/// }
/// # }
/// ```
pub struct LateReply(pub(super) Mutex<Sending>);

/// The future of an answer.
type Sending = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

impl Future for LateReply {
    type Output = Result<Value, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner);
        reply.as_mut().poll(cx)
    }
}

impl fmt::Debug for LateReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateReply").finish_non_exhaustive()
    }
}

impl Failure {
    /// Returns true if the command may have run, or may still run.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(self, Self::Unanswered(..))
    }

    /// Makes the failure of a command that was sent.
    pub(super) fn of<'a>(error: RedisError, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let was_answered = is_answer(&error);
        let error = from_failed_call(error, secrets);
        if was_answered { Self::Answered(error) } else { Self::Unanswered(error, None) }
    }

    /// Returns the error, which says who is at fault.
    #[must_use]
    pub fn error(&self) -> &Error {
        let (Self::NotRun(error) | Self::Unanswered(error, _) | Self::Answered(error)) = self;
        error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().source()
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (Failure::NotRun(error) | Failure::Unanswered(error, _) | Failure::Answered(error)) =
            failure;
        error
    }
}
