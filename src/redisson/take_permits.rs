//! Takes permits, and refunds them when the caller leaves before the reply comes.
//!
//! Random bytes identify a grant. So an `acquire` may be sent again over another connection: the
//! script grants it once. When the caller leaves, the reply is awaited a little longer, and granted
//! permits are refunded.

use std::sync::Arc;

use redis_once::calls::SharedConnection;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::grant::GrantId;
use super::keys::Keys;
use super::messages::{DONE, Request, ScriptReply};
use super::sender::{Failure, PendingReply, Sender};
use crate::Error;
use crate::limiter::redis::{LATE_REPLY_TIMEOUT, malformed_reply};

impl Sender {
    /// Takes permits for a grant. When the caller leaves, they are refunded.
    pub(super) async fn acquire(
        &self,
        keys: &Keys,
        permits: u32,
        grant: GrantId,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let request = Request::acquire(keys, permits, &grant);
        let deadline = self.deadline(keys, deadline);
        let mut refund = RefundOnDrop {
            sender: self,
            keys,
            permits,
            grant,
            in_flight: Some(self.in_flight_permit()?),
            connection: None,
            reply: None,
            is_needed: false,
        };
        let mut sent_again = false;
        loop {
            let connection = self.connection(deadline).await?;
            (refund.connection, refund.is_needed) = (Some(Arc::clone(&connection)), true);
            match self.send(&connection, &request, &mut refund.reply, deadline).await? {
                Ok(reply) => {
                    let reply = ScriptReply::read(reply)?;
                    // Otherwise the reply is not from the script, or the first request may still
                    // arrive.
                    refund.is_needed = match reply.outcome {
                        DONE => reply.numbers::<5>().is_err(),
                        _ => sent_again,
                    };
                    return Ok(reply);
                }
                Err(Failure::Failed(error)) if error.is_io_error() && !sent_again => {
                    sent_again = true;
                }
                Err(failure) => {
                    refund.is_needed = sent_again || !took_nothing(&failure);
                    return Err(failure.into_error(&request.keys));
                }
            }
        }
    }
}

/// Returns true if it is certain that the script granted nothing.
fn took_nothing(failure: &Failure) -> bool {
    match failure {
        Failure::TimedOut(_) => false,
        Failure::Unsent(_) => true,
        Failure::Failed(error) => {
            matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
        }
    }
}

/// Refunds a grant when it is dropped, if that is needed.
struct RefundOnDrop<'a> {
    sender: &'a Sender,
    keys: &'a Keys,
    permits: u32,
    grant: GrantId,
    /// Counts the request as in flight.
    in_flight: Option<OwnedSemaphorePermit>,
    /// The connection over which the request was last sent, and its future reply.
    connection: Option<Arc<dyn SharedConnection>>,
    reply: Option<PendingReply>,
    is_needed: bool,
}

impl Drop for RefundOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_needed {
            return;
        }
        // Best effort: permits that are not refunded expire. Then too few permits are granted,
        // never too many.
        let Ok(runtime) = Handle::try_current() else { return };
        let refund = Request::refund(self.keys, self.permits, &self.grant, self.permits);
        let sender = self.sender.clone();
        let in_flight = self.in_flight.take();
        let (connection, reply) = (self.connection.take(), self.reply.take());
        runtime.spawn(async move {
            let _in_flight = in_flight;
            if let Some(reply) = reply
                && let Ok(Some(Ok(reply))) = timeout(LATE_REPLY_TIMEOUT, reply).await
                && let Ok(reply) =
                    reply.extract_error().map_or_else(|_| Err(malformed_reply()), ScriptReply::read)
                && reply.outcome != DONE
            {
                return;
            }
            // Over the same connection the refund arrives after the grant, even on a connection
            // that seemed silent.
            if let Some(connection) = connection {
                let deadline = sender.deadline(&refund.keys, Instant::now() + LATE_REPLY_TIMEOUT);
                if let Ok(Ok(_)) = sender.send(&connection, &refund, &mut None, deadline).await {
                    return;
                }
            }
            let _ = sender.exchange(&refund, Instant::now() + LATE_REPLY_TIMEOUT).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use redis::{Arg, Cmd, Pipeline, Value};
    use tokio::time::sleep;

    use super::super::messages::REFUSED;
    use super::*;
    use crate::Pool;
    use redis_once::calls::{ConnectionFuture, Connections, RepliesFuture, ReplyFuture};

    const TIMEOUT: Duration = Duration::from_millis(20);

    /// Gives each request its own connection, and records the requests of each connection.
    #[derive(Default)]
    struct Fake {
        /// The outcome of a request for permits, which comes after the deadline. `None`: it never
        /// comes.
        late: Option<i64>,
        made: AtomicUsize,
        sent: Mutex<Vec<(usize, &'static str)>>,
    }

    struct FakeConnection {
        number: usize,
        fake: Arc<Fake>,
    }

    impl Connections for Fake {
        fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
            let number = self.made.fetch_add(1, Relaxed);
            Some(Arc::new(FakeConnection { number, fake: self }))
        }

        fn connection(self: Arc<Self>, hash_slot: u16) -> ConnectionFuture {
            Box::pin(async move { Ok(self.ready_connection(hash_slot).expect("one is ready")) })
        }
    }

    impl SharedConnection for FakeConnection {
        fn send(&self, command: Cmd) -> ReplyFuture {
            let is_refund = command.args_iter().any(|word| matches!(word, Arg::Simple(b"refund")));
            let operation = if is_refund { "refund" } else { "acquire" };
            self.fake.sent.lock().expect("no panic").push((self.number, operation));
            let late = self.fake.late;
            Box::pin(async move {
                let outcome = match (is_refund, late) {
                    (true, _) => DONE,
                    (false, None) => pending().await,
                    (false, Some(outcome)) => {
                        sleep(2 * TIMEOUT).await;
                        outcome
                    }
                };
                Ok(Value::Array([outcome, 1, 1].map(Value::Int).to_vec()))
            })
        }

        fn send_all(&self, _: Pipeline) -> RepliesFuture {
            Box::pin(pending())
        }
    }

    /// Returns the requests that are sent for a caller whose deadline passes.
    async fn sent(late: Option<i64>) -> Vec<(usize, &'static str)> {
        let fake = Arc::new(Fake { late, ..Fake::default() });
        let sender = Sender::new(Pool::new(Arc::clone(&fake)));
        let keys = Keys::new("orders", "id").expect("a name");
        let deadline = Instant::now() + TIMEOUT;
        sender.acquire(&keys, 1, GrantId::default(), deadline).await.expect_err("too late");
        sleep(3 * LATE_REPLY_TIMEOUT).await;
        fake.sent.lock().expect("no panic").clone()
    }

    /// Over another connection the refund could come before the grant.
    #[tokio::test(start_paused = true)]
    async fn a_late_grant_is_refunded_over_its_own_connection() {
        for late in [None, Some(DONE)] {
            assert_eq!(sent(late).await, [(0, "acquire"), (0, "refund")], "{late:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_refusal_is_heard_and_nothing_is_refunded() {
        assert_eq!(sent(Some(REFUSED)).await, [(0, "acquire")]);
    }
}
