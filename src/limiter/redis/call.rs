//! Sends a batch in one call, and distributes the reply: each charge gets its own answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::time::{Instant, timeout_at};

use super::config::Config;
use super::connections::SharedConnection;
use super::deadline::Deadline;
use super::error;
use super::eval::{LATE_REPLY_TIMEOUT, eval, is_reply};
use super::key;
use super::queue::{Batch, QueuedRequest, Requests};
use super::reply::BatchReply;
use super::request::Request;
use super::script::Arguments;
use crate::limiter::named::instant;

/// Waits for a late reply. Ends when it has come, or when it is given up.
pub(super) type LateReply = Pin<Box<dyn Future<Output = EndedCall> + Send>>;

/// A call that no longer counts as in flight.
pub(super) struct EndedCall {
    pub(super) hash_slot: u16,
    /// How many requests it carried.
    pub(super) requests: usize,
    /// Whether it carried refunds, and no more reply to them is awaited.
    pub(super) refunds_done: bool,
    /// The refunds of what was taken for callers who have left.
    pub(super) refunds: Vec<Request>,
    /// Waits on, if no reply came by the earliest deadline of the batch.
    pub(super) late_reply: Option<LateReply>,
}

/// A call that has no reply after this time no longer counts as in flight: other charges may
/// have little time.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_millis(100);

/// Sends a batch, and waits for the reply until the earliest deadline in it.
pub(super) async fn send_batch(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    batch: Batch,
) -> EndedCall {
    let (hash_slot, has_refunds) = (batch.hash_slot, batch.has_refunds());
    let requests = batch.requests.len();
    let deadlines = || batch.requests.iter().map(|queued| queued.deadline);
    let sent = Instant::now();
    let earliest = deadlines().min().unwrap_or(sent).min(sent + IN_FLIGHT_TIMEOUT);
    let earliest = Deadline::new(earliest, &config.pool, hash_slot);
    let latest = deadlines().max().unwrap_or(sent);
    let pool = config.pool.clone();
    let mut sending =
        Box::pin(send_and_distribute(config, Arc::clone(&connection), batch.requests));
    let was_answered = |outcome: &BatchOutcome| outcome.was_answered;
    let outcome =
        earliest.wait_for_reply(&pool, &*connection, sending.as_mut(), was_answered).await;
    let (refunds, late_reply): (_, Option<LateReply>) = match outcome {
        Some(outcome) => (outcome.refunds, None),
        None => {
            let late_reply = async move {
                let outcome =
                    timeout_at(latest + LATE_REPLY_TIMEOUT, sending).await.unwrap_or_default();
                match outcome.was_answered {
                    true if Instant::now() <= latest => pool.record_reply(hash_slot),
                    true => pool.record_late_reply(hash_slot),
                    false => {}
                }
                EndedCall {
                    hash_slot,
                    requests,
                    refunds_done: has_refunds,
                    refunds: outcome.refunds,
                    late_reply: None,
                }
            };
            (Vec::new(), Some(Box::pin(late_reply)))
        }
    };
    let refunds_done = has_refunds && late_reply.is_none();
    EndedCall { hash_slot, requests, refunds_done, refunds, late_reply }
}

/// The result of a batch whose charges have their answers.
#[derive(Default)]
struct BatchOutcome {
    refunds: Vec<Request>,
    /// Whether the server replied, be it with an error.
    was_answered: bool,
}

/// Sends a batch and distributes the reply.
async fn send_and_distribute(
    config: Arc<Config>,
    connection: Arc<dyn SharedConnection>,
    mut requests: Requests,
) -> BatchOutcome {
    let now = match config.clock.as_ref().map(|clock| instant(clock())).transpose() {
        Ok(now) => now,
        Err(error) => {
            requests.into_iter().for_each(|queued| queued.fail(error.clone()));
            return BatchOutcome::default();
        }
    };
    requests.retain(|queued| queued.is_wanted());
    let queued = grouped(requests, config.key_prefixes.len());
    let requests: Vec<_> = queued.iter().map(|queued| &queued.request).collect();
    let Config { key_prefixes, rule, .. } = &*config;
    let call = Arguments { now, key_prefixes, rule, requests: &requests };
    let arguments = |command: &mut _| {
        call.append_to(command);
        queued.iter().any(|queued| queued.is_wanted())
    };
    let script = config.scripts.choose(&requests);
    let Some(reply) = eval(Arc::clone(&connection), script, arguments).await else {
        return BatchOutcome::default();
    };
    let was_answered = is_reply(&reply);
    // A client library has a timeout of its own, and a busy process fires it before it reads the
    // reply. Callers whose deadline has passed judge that by themselves.
    let has_timed_out = reply.as_ref().is_err_and(RedisError::is_timeout);
    let reply = reply.map_err(error::from_redis_error);
    let reply = reply.as_ref().map_err(Clone::clone);
    let elements = config.reader.state_elements();
    let refunds = match reply.and_then(|reply| BatchReply::read(reply, queued.len(), elements)) {
        Ok(reply) => distribute(&config, &*connection, queued, &reply),
        Err(error) => {
            let now = Instant::now();
            let is_late = |queued: &QueuedRequest| has_timed_out && queued.deadline <= now;
            let in_time = queued.into_iter().filter(|queued| !is_late(queued));
            in_time.for_each(|queued| queued.fail(error.clone()));
            Vec::new()
        }
    };
    BatchOutcome { refunds, was_answered }
}

/// The requests in the order in which a call carries them: those of one key stand together, each
/// after those that came before it.
///
/// Requests under several quotas may share one of their keys with others, so they keep their order.
fn grouped(mut requests: Requests, quotas: usize) -> Requests {
    if quotas == 1 && requests.len() > 1 && may_share_keys(&requests) {
        requests.sort_by(|one, other| one.request.key.cmp(&other.request.key));
    }
    requests
}

/// Whether two of the requests may have the same key: nearly always the keys of a batch differ.
fn may_share_keys(requests: &[Box<QueuedRequest>]) -> bool {
    let keys = requests.iter().map(|queued| queued.request.key.as_str());
    let mut fingerprints: Vec<_> = keys.map(key::fingerprint).collect();
    fingerprints.sort_unstable();
    fingerprints.windows(2).any(|pair| pair[0] == pair[1])
}

/// Gives each charge its answer. Returns the refunds of what was taken for callers who have left.
fn distribute(
    config: &Config,
    connection: &dyn SharedConnection,
    requests: Requests,
    reply: &BatchReply<'_>,
) -> Vec<Request> {
    if reply.is_read_only() {
        connection.mark_read_only();
    }
    let complete = |(position, queued): (usize, Box<QueuedRequest>)| match reply.entry(
        position,
        &queued.request,
        &*config.reader,
    ) {
        Ok(entry) => queued.complete(entry, reply.now, position),
        Err(error) => {
            queued.fail(error);
            None
        }
    };
    requests.into_iter().enumerate().filter_map(complete).collect()
}
