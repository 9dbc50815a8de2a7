//! Sends the batches of a call, and waits for their answers until the earliest deadline.

use std::future::Future;
use std::slice;
use std::sync::Arc;

use redis_once::calls::{Deadline, MAX_SILENCE, Partition, Rejected, SharedConnection};
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::decision_times::{ALIVE_CHECK, LATE_REPLY_TIMEOUT, PATIENCE};
use super::batch::{Batch, Call, CallEnd, CallFuture};
use super::config::Config;
use super::routed;

/// Sends a call, and waits for the reply until the earliest deadline in it.
pub(super) async fn send_call(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    call: Call,
) -> CallEnd {
    call.batches.iter().for_each(|batch| config.calls.sent(batch.requests.len()));
    let wait = Wait::new(&config, &call.batches, Some((call.partition, call.requests)));
    let used = Arc::clone(&connection);
    let sending = Box::pin(routed::send(config, connection, call.batches));
    wait.run(sending, Some(used)).await
}

/// Sends a batch that no server has run to the server that the cluster names.
pub(super) async fn follow(config: Arc<Config>, rejected: Rejected<Batch>) -> CallEnd {
    let mut wait = Wait::new(&config, slice::from_ref(&rejected.item), None);
    if rejected.item.frees_hash_slot {
        wait.refund_hash_slots.clear();
    }
    wait.run(Box::pin(routed::follow(config, rejected)), None).await
}

/// A wait for a call: its deadlines, and the parts of the queue that become free at its end.
///
/// Each charge has one deadline, at which its caller gives up (`pending.rs`). A call has its own
/// deadline: the earliest of these and of [`PATIENCE`]. A charge with a late deadline must not keep
/// its call in flight while charges with less time wait.
struct Wait {
    config: Arc<Config>,
    partition: Option<(Partition, usize)>,
    refund_hash_slots: Vec<u16>,
    earliest: Deadline,
    latest: Instant,
}

impl Wait {
    fn new(config: &Arc<Config>, batches: &[Batch], partition: Option<(Partition, usize)>) -> Self {
        let deadlines =
            || batches.iter().flat_map(|batch| &batch.requests).map(|queued| queued.deadline());
        let sent = Instant::now();
        let earliest = deadlines().min().unwrap_or(sent).min(sent + PATIENCE);
        let first_slot = batches.first().map_or(0, |batch| batch.hash_slot);
        let with_refunds = batches.iter().filter(|batch| batch.has_refunds());
        Self {
            config: Arc::clone(config),
            partition,
            refund_hash_slots: with_refunds.map(|batch| batch.hash_slot).collect(),
            earliest: Deadline::since(sent, earliest, first_slot),
            latest: deadlines().max().unwrap_or(sent),
        }
    }

    /// Sends, and waits until the deadline.
    #[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice")]
    fn run(
        self,
        mut sending: CallFuture,
        connection: Option<Arc<dyn SharedConnection>>,
    ) -> impl Future<Output = CallEnd> + Send {
        async move {
            let (partition, sent) = (self.partition, Instant::now());
            let (pool, over) = (&self.config.pool.client, connection.as_deref());
            let end = pool.reply_by(&self.earliest, over, sending.as_mut()).await;
            if let Some(end) = end {
                let took = end.was_answered.then(|| sent.elapsed());
                return CallEnd { partition, took, ..self.ended(end, sent) };
            }
            self.config.calls.unanswered();
            let late_reply = self.late_reply(sending, sent, connection);
            CallEnd { partition, late_reply: Some(Box::pin(late_reply)), ..CallEnd::default() }
        }
    }

    /// Waits for a late reply. In a cluster, refunds release their hash slots before that, since
    /// nothing else is sent for blocked ones.
    async fn late_reply(
        mut self,
        mut sending: CallFuture,
        sent: Instant,
        connection: Option<Arc<dyn SharedConnection>>,
    ) -> CallEnd {
        let until = self.latest + LATE_REPLY_TIMEOUT;
        if self.config.pool.client.is_routed() && !self.refund_hash_slots.is_empty() {
            let end = select! {
                biased;
                end = &mut sending => Some(end),
                () = is_silent(sent, connection) => None,
            };
            if let Some(end) = end {
                return self.ended(end, sent);
            }
            let refunds_done = std::mem::take(&mut self.refund_hash_slots);
            let late_reply = async move {
                let end = timeout_at(until, sending).await.unwrap_or_default();
                let mut end = self.ended(end, sent);
                end.unfinished.iter_mut().for_each(|rejected| rejected.item.frees_hash_slot = true);
                end
            };
            let late_reply: Option<CallFuture> = Some(Box::pin(late_reply));
            return CallEnd { refunds_done, late_reply, ..CallEnd::default() };
        }
        self.ended(timeout_at(until, sending).await.unwrap_or_default(), sent)
    }

    fn ended(self, mut end: CallEnd, sent: Instant) -> CallEnd {
        if end.was_answered {
            self.config.calls.answered(sent);
        }
        end.refunds_done = self.refund_hash_slots;
        // Redirected refunds are not done.
        let CallEnd { refunds_done, unfinished, .. } = &mut end;
        refunds_done
            .retain(|slot| !unfinished.iter().any(|rejected| rejected.item.hash_slot == *slot));
        end
    }
}

/// Waits until the connection of a call is no longer used, or until the call has had no reply for a
/// long time.
async fn is_silent(sent: Instant, connection: Option<Arc<dyn SharedConnection>>) {
    let end = sent + MAX_SILENCE;
    while Instant::now() < end && connection.as_ref().is_none_or(|one| one.is_alive()) {
        sleep(ALIVE_CHECK).await;
    }
}

#[cfg(test)]
mod tests;
