//! The task that owns a limiter's queue: it receives charges, sends them in batches, and
//! passes refunds on.
//!
//! Each call runs as a task of its own, so that replies are read while the next batch
//! is put together.
//!
//! There is one for each runtime that uses the limiter. It ends when the limiter is dropped and
//! every call has ended, or with its runtime.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::Instant;

use super::call::{EndedCall, send_batch};
use super::config::Config;
use super::connections::{ConnectionFuture, SharedConnection};
use super::eval::LATE_REPLY_TIMEOUT;
use super::queue::{Queue, QueuedRequest};

/// Serves a limiter until its handles are gone. `is_busy` says whether a charge waits
/// or is in flight.
pub(super) async fn run(
    config: Arc<Config>,
    mut arrivals: UnboundedReceiver<Box<QueuedRequest>>,
    is_busy: Arc<AtomicBool>,
) {
    let mut queue = Queue::new(config.max_batch_size);
    // By hash slot, the connection of a call that carries refunds.
    let mut refunding: HashMap<u16, Arc<dyn SharedConnection>> = HashMap::new();
    let mut connecting: Option<ConnectionFuture> = None;
    let mut calls = JoinSet::new();
    let mut late_replies = JoinSet::new();
    let mut is_open = true;
    loop {
        refunding.retain(|hash_slot, _| queue.has_refunds_in_flight(*hash_slot));
        is_busy.store(!(queue.is_empty() && calls.is_empty()), Relaxed);
        if !arrivals.is_empty() {
            // It came before the line above, and no later charge may pass it.
            is_busy.store(true, Relaxed);
        }
        let mut new_connection = None;
        select! {
            // Replies come first, and arrivals last: all that have arrived are taken below.
            biased;
            Some(ended) = calls.join_next() => {
                let Some(ended) = joined(ended) else { return };
                queue.call_ended(ended.hash_slot);
                record_end(&config, &mut queue, ended, &mut late_replies);
            }
            Some(ended) = late_replies.join_next() => {
                let Some(ended) = joined(ended) else { return };
                record_end(&config, &mut queue, ended, &mut late_replies);
            }
            outcome = async { connecting.as_mut().expect("checked").await }, if connecting.is_some() => {
                connecting = None;
                match outcome {
                    Ok(connection) => new_connection = Some(connection),
                    Err(error) => queue.fail_all(&error),
                }
            }
            arrival = arrivals.recv(), if is_open => match arrival {
                Some(queued) => queue.push(queued),
                None => is_open = false,
            },
            else => return,
        }
        is_busy.store(true, Relaxed);
        // Tasks that are ready run first, so that their charges join the batch.
        yield_now().await;
        while let Ok(queued) = arrivals.try_recv() {
            queue.push(queued);
        }
        queue.set_max_in_flight(config.max_in_flight * config.pool.size());
        while queue.is_sendable() {
            let Some(connection) = new_connection.take().or_else(|| config.pool.ready_connection())
            else {
                connecting.get_or_insert_with(|| config.pool.connection());
                break;
            };
            let Some(batch) = queue.next_batch() else { break };
            // A connection answers its calls in order: so no charge is decided before a refund
            // that was made earlier.
            let same = refunding.get(&batch.hash_slot).filter(|same| same.is_alive());
            let keeps_order = batch.has_refunds() || same.is_some();
            let connection = same.map_or(connection, Arc::clone);
            if batch.has_refunds() {
                refunding.insert(batch.hash_slot, Arc::clone(&connection));
            }
            let call = send_batch(Arc::clone(&config), connection, batch);
            if keeps_order {
                calls.spawn(sent_now(call).await);
            } else {
                calls.spawn(call);
            }
        }
    }
}

/// Sends a call before anything else is sent: a task of its own would send it when it runs first.
async fn sent_now<F>(call: F) -> impl Future<Output = EndedCall> + use<F>
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

/// Records that a call has ended: queues its refunds, and waits on for a late reply.
fn record_end(
    config: &Config,
    queue: &mut Queue,
    ended: EndedCall,
    late_replies: &mut JoinSet<EndedCall>,
) {
    if ended.refunds_done {
        queue.refunds_done(ended.hash_slot);
    }
    if let Some(late_reply) = ended.late_reply {
        late_replies.spawn(late_reply);
    }
    for request in ended.refunds {
        let deadline = Instant::now() + LATE_REPLY_TIMEOUT;
        queue.push(QueuedRequest::without_receiver(&config.pool, request, deadline));
    }
}

/// How a call ended. `None`: the runtime is shutting down. A panic of the caller's clock continues
/// here and ends the worker; the next charge starts another.
fn joined(ended: Result<EndedCall, JoinError>) -> Option<EndedCall> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(ended) => Some(ended),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}
