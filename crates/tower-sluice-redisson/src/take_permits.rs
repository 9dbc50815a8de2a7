//! Takes permits, and refunds them when the caller leaves before the reply comes.
//!
//! Random bytes identify a grant. So an `acquire` may be sent again over another connection: the
//! script grants it once. When the caller leaves, the reply is awaited a little longer, and granted
//! permits are refunded. A refund names its grant, so it may be sent again too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis_once::Failure;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tower_sluice::Error;

use super::grant::GrantId;
use super::keys::Keys;
use super::messages::{DONE, PermitCall, ScriptReply};
use super::sender::{PendingReply, Sender};

/// The time for which a late reply is awaited after its deadline, and the time of a refund.
const LATE_REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// The most refunds of a grant whose reply never came, and the pause between two.
const MAX_REFUNDS: u32 = 3;
const REFUND_PAUSE: Duration = Duration::from_secs(1);

impl Sender {
    /// Takes permits for a grant. When the caller leaves, they are refunded.
    pub(super) async fn acquire(
        &self,
        keys: &Keys,
        permits: u32,
        grant: GrantId,
        deadline: Instant,
    ) -> Result<ScriptReply, Error> {
        let request = PermitCall::acquire(keys, permits, &grant);
        let mut guard = RefundOnDrop {
            sender: self,
            refund: PermitCall::refund(keys, permits, &grant, permits),
            in_flight: Some(self.in_flight_permit()?),
            pending: None,
            is_sent: Arc::default(),
            was_sent_again: false,
            is_needed: false,
        };
        loop {
            let is_sent = Arc::new(AtomicBool::new(false));
            guard.is_sent = Arc::clone(&is_sent);
            let connected = move || is_sent.store(true, Relaxed);
            let pending = guard.pending.insert(self.send(&request, deadline, connected)?);
            guard.is_needed = true;
            let result = pending.await;
            guard.pending = None;
            match result {
                Ok(reply) => {
                    let reply = ScriptReply::read(reply)?;
                    // Otherwise the reply is not from the script, or the first request may still
                    // arrive.
                    guard.is_needed = match reply.outcome {
                        DONE => reply.numbers::<5>().is_err(),
                        _ => guard.was_sent_again,
                    };
                    return Ok(reply);
                }
                Err(Failure::Unanswered(_, None)) if !guard.was_sent_again => {
                    guard.was_sent_again = true;
                }
                Err(Failure::Unanswered(error, late)) => {
                    guard.pending = late.map(|late| Box::pin(late) as PendingReply);
                    return Err(error.into());
                }
                Err(Failure::NotRun(error) | Failure::Answered(error)) => {
                    guard.is_needed = guard.was_sent_again;
                    return Err(error.into());
                }
            }
        }
    }
}

/// Refunds a grant when it is dropped, if that is needed.
struct RefundOnDrop<'a> {
    sender: &'a Sender,
    refund: PermitCall,
    /// Counts the request as in flight.
    in_flight: Option<OwnedSemaphorePermit>,
    /// The reply to the last request, if it may still come.
    pending: Option<PendingReply>,
    /// True if the last request had a connection.
    is_sent: Arc<AtomicBool>,
    was_sent_again: bool,
    is_needed: bool,
}

impl Drop for RefundOnDrop<'_> {
    fn drop(&mut self) {
        let is_sent = self.is_sent.load(Relaxed);
        if !self.is_needed || !(is_sent || self.was_sent_again) {
            return;
        }
        // Best effort: permits that are not refunded expire. Then too few permits are granted,
        // never too many.
        let Ok(runtime) = Handle::try_current() else { return };
        let (sender, refund) = (self.sender.clone(), self.refund.clone());
        // A request that still waits for a connection is sent no more.
        let (in_flight, pending) = (self.in_flight.take(), self.pending.take().filter(|_| is_sent));
        let was_sent_again = self.was_sent_again;
        runtime.spawn(async move {
            let _in_flight = in_flight;
            let granted = match pending {
                Some(pending) => timeout(LATE_REPLY_TIMEOUT, is_granted(pending)).await,
                None => Ok(None),
            };
            let granted = granted.unwrap_or_default();
            if granted == Some(false) && !was_sent_again {
                return;
            }
            for attempt in 1..=MAX_REFUNDS {
                let reply = sender.exchange(&refund, Instant::now() + LATE_REPLY_TIMEOUT).await;
                let freed = reply.and_then(|reply| reply.numbers());
                // Over another connection a refund may come before its grant: it frees nothing.
                let is_done = freed.is_ok_and(|[freed]| freed > 0 || granted == Some(true));
                if is_done || attempt == MAX_REFUNDS || sender.is_busy() {
                    return;
                }
                sleep(REFUND_PAUSE).await;
            }
        });
    }
}

/// Awaits a reply, even if it is late. Returns whether the script granted the permits; `None` if
/// nobody knows.
async fn is_granted(mut pending: PendingReply) -> Option<bool> {
    loop {
        pending = match pending.await {
            Ok(reply) => return Some(ScriptReply::read(reply).ok()?.outcome == DONE),
            Err(Failure::Unanswered(_, Some(late))) => Box::pin(late),
            Err(failure) => return (!failure.may_have_run()).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use super::super::messages::REFUSED;
    use super::*;
    use redis_once::calls::{ConnectionFuture, Connections, SharedConnection};
    use redis_once::redis::aio::ConnectionLike;
    use redis_once::redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
    use tower_sluice::Pool;

    const TIMEOUT: Duration = Duration::from_millis(20);

    /// A connection that records its requests.
    #[derive(Clone)]
    struct Fake {
        /// The outcome of a request for permits, which comes after the deadline. `None`: it never
        /// comes.
        late: Option<i64>,
        /// The number of refunds that come before the grant, and free nothing.
        early: usize,
        sent: Arc<Mutex<Vec<&'static str>>>,
    }

    impl ConnectionLike for Fake {
        fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
            let is_refund = command.args_iter().any(|word| matches!(word, Arg::Simple(b"refund")));
            let operation = if is_refund { "refund" } else { "acquire" };
            let mut sent = self.sent.lock().expect("no panic");
            sent.push(operation);
            let refunds = sent.iter().filter(|operation| **operation == "refund").count();
            let freed = i64::from(refunds > self.early);
            drop(sent);
            Box::pin(async move {
                let outcome = match (is_refund, self.late) {
                    (true, _) => DONE,
                    (false, None) => pending().await,
                    (false, Some(outcome)) => {
                        sleep(2 * TIMEOUT).await;
                        outcome
                    }
                };
                Ok(Value::Array([outcome, 1, freed].map(Value::Int).to_vec()))
            })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            Box::pin(pending())
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    /// Returns the requests that are sent for a caller who waits for this time, at most until its
    /// deadline.
    async fn sent(late: Option<i64>, early: usize, patience: Duration) -> Vec<&'static str> {
        let fake = Fake { late, early, sent: Arc::default() };
        let sender = Sender::new(Pool::from_connection(fake.clone()));
        let keys = Keys::new("orders", "id").expect("a name");
        let acquire = sender.acquire(&keys, 1, GrantId::default(), Instant::now() + TIMEOUT);
        if let Ok(reply) = timeout(patience, acquire).await {
            reply.expect_err("too late");
        }
        sleep(MAX_REFUNDS * (LATE_REPLY_TIMEOUT + REFUND_PAUSE)).await;
        fake.sent.lock().expect("no panic").clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_grant_is_refunded() {
        for (late, patience) in [None, Some(DONE)].into_iter().zip([2 * TIMEOUT, TIMEOUT / 2]) {
            assert_eq!(sent(late, 0, patience).await, ["acquire", "refund"], "{late:?}");
        }
        assert_eq!(sent(Some(DONE), 0, 2 * TIMEOUT).await, ["acquire", "refund"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refund_that_may_come_before_its_grant_is_sent_again() {
        for (late, early, refunds) in [(None, 1, 2), (None, 9, 3), (Some(DONE), 9, 1)] {
            let expected = [vec!["acquire"], vec!["refund"; refunds]].concat();
            assert_eq!(sent(late, early, 2 * TIMEOUT).await, expected, "{late:?}");
        }
    }

    /// A pool that connects slowly, and records that it did.
    #[derive(Default)]
    struct Slow(AtomicBool);

    impl Connections for Slow {
        fn ready_connection(self: Arc<Self>, _: u16) -> Option<Arc<dyn SharedConnection>> {
            None
        }

        fn connection(self: Arc<Self>, _: u16) -> ConnectionFuture {
            Box::pin(async move {
                sleep(TIMEOUT / 2).await;
                self.0.store(true, Relaxed);
                pending().await
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_for_a_caller_who_leaves_before_there_is_a_connection() {
        let slow = Arc::new(Slow::default());
        let sender = Sender::new(redis_once::Pool::from_source(Arc::clone(&slow)).into());
        let keys = Keys::new("orders", "id").expect("a name");
        let acquire = sender.acquire(&keys, 1, GrantId::default(), Instant::now() + TIMEOUT);
        timeout(TIMEOUT / 4, acquire).await.expect_err("it left");
        sleep(3 * TIMEOUT).await;
        assert!(!slow.0.load(Relaxed), "it connected for nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_refusal_is_heard_and_nothing_is_refunded() {
        for patience in [TIMEOUT / 2, 2 * TIMEOUT] {
            assert_eq!(sent(Some(REFUSED), 0, patience).await, ["acquire"]);
        }
    }
}
