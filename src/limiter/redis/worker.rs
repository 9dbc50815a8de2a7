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
use super::queue::{Batch, Queue, QueuedRequest};
use crate::Error;

/// Serves a limiter until its handles are gone. `is_busy` says whether a charge waits
/// or is in flight.
pub(super) async fn run(
    config: Arc<Config>,
    mut arrivals: UnboundedReceiver<Box<QueuedRequest>>,
    is_busy: Arc<AtomicBool>,
) {
    let mut worker = Worker::new(config);
    let mut is_open = true;
    loop {
        is_busy.store(!worker.is_idle(), Relaxed);
        if !arrivals.is_empty() {
            // It came before the line above, and no later charge may pass it.
            is_busy.store(true, Relaxed);
        }
        select! {
            // Replies come first, and arrivals last: all that have arrived are taken below.
            biased;
            Some(ended) = worker.calls.join_next() => {
                let Some(ended) = joined(ended) else { return };
                worker.call_ended(ended);
            }
            Some(ended) = worker.late_replies.join_next() => {
                let Some(ended) = joined(ended) else { return };
                worker.record_end(ended);
            }
            outcome = async { worker.connecting.as_mut().expect("checked").await },
                if worker.connecting.is_some() => worker.connected(outcome),
            arrival = arrivals.recv(), if is_open => match arrival {
                Some(queued) => worker.queue.push(queued),
                None => is_open = false,
            },
            else => return,
        }
        is_busy.store(true, Relaxed);
        while let Some(ended) = worker.calls.try_join_next() {
            let Some(ended) = joined(ended) else { return };
            worker.call_ended(ended);
        }
        worker.update();
        worker.allow_next();
        // The server works on what waits already while the tasks that are ready run.
        worker.send(Queue::next_whole_batch).await;
        // Tasks that are ready run first, so that their charges join the batch.
        yield_now().await;
        worker.allow_next();
        while let Ok(queued) = arrivals.try_recv() {
            worker.queue.push(queued);
        }
        worker.send(Queue::next_batch).await;
        (worker.has_replies, worker.new_connection) = (false, None);
    }
}

/// What the task has at hand.
struct Worker {
    config: Arc<Config>,
    queue: Queue,
    /// By hash slot, the connection of a call that carries refunds.
    refunding: HashMap<u16, Arc<dyn SharedConnection>>,
    connecting: Option<ConnectionFuture>,
    new_connection: Option<Arc<dyn SharedConnection>>,
    /// Whether a call has ended in this turn.
    has_replies: bool,
    calls: JoinSet<EndedCall>,
    late_replies: JoinSet<EndedCall>,
}

impl Worker {
    fn new(config: Arc<Config>) -> Self {
        Self {
            queue: Queue::new(config.max_batch_size),
            config,
            refunding: HashMap::new(),
            connecting: None,
            new_connection: None,
            has_replies: false,
            calls: JoinSet::new(),
            late_replies: JoinSet::new(),
        }
    }

    /// Whether nothing waits and nothing is in flight.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.calls.is_empty()
    }

    /// Follows what has changed since the last turn.
    fn update(&mut self) {
        let Self { config, queue, refunding, .. } = self;
        refunding.retain(|hash_slot, _| queue.has_refunds_in_flight(*hash_slot));
        queue.set_max_in_flight(config.max_in_flight * config.pool.size());
    }

    /// Lets the next calls follow the last ones if answers came, which this process has to read.
    fn allow_next(&mut self) {
        if self.has_replies {
            self.queue.allow_next();
        }
    }

    /// Sends batches while there are any and a connection is ready.
    async fn send(&mut self, next_batch: impl Fn(&mut Queue) -> Option<Batch>) {
        while self.queue.is_sendable() {
            let ready = self.new_connection.take();
            let Some(connection) = ready.or_else(|| self.config.pool.ready_connection()) else {
                self.connecting.get_or_insert_with(|| self.config.pool.connection());
                return;
            };
            let Some(batch) = next_batch(&mut self.queue) else { return };
            self.send_batch(connection, batch).await;
        }
    }

    /// Sends a batch.
    async fn send_batch(&mut self, connection: Arc<dyn SharedConnection>, batch: Batch) {
        // A connection answers its calls in order: so no charge is decided before a refund
        // that was made earlier.
        let same = self.refunding.get(&batch.hash_slot).filter(|same| same.is_alive());
        let keeps_order = batch.has_refunds() || same.is_some();
        let connection = same.map_or(connection, Arc::clone);
        if batch.has_refunds() {
            self.refunding.insert(batch.hash_slot, Arc::clone(&connection));
        }
        let call = send_batch(Arc::clone(&self.config), connection, batch);
        if keeps_order {
            self.calls.spawn(sent_now(call).await);
        } else {
            self.calls.spawn(call);
        }
    }

    fn connected(&mut self, outcome: Result<Arc<dyn SharedConnection>, Error>) {
        self.connecting = None;
        match outcome {
            Ok(connection) => self.new_connection = Some(connection),
            Err(error) => self.queue.fail_all(&error),
        }
    }

    /// Records that a call has ended.
    fn call_ended(&mut self, ended: EndedCall) {
        self.has_replies = true;
        self.queue.call_ended(ended.hash_slot, ended.requests);
        self.record_end(ended);
    }

    /// Queues the refunds of a call that has ended, and waits on for a late reply.
    fn record_end(&mut self, ended: EndedCall) {
        if ended.refunds_done {
            self.queue.refunds_done(ended.hash_slot);
        }
        if let Some(late_reply) = ended.late_reply {
            self.late_replies.spawn(late_reply);
        }
        for request in ended.refunds {
            let deadline = Instant::now() + LATE_REPLY_TIMEOUT;
            let pool = &self.config.pool;
            self.queue.push(QueuedRequest::without_receiver(pool, request, deadline));
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

/// How a call ended. `None`: the runtime is shutting down. A panic of the caller's clock continues
/// here and ends the worker; the next charge starts another.
fn joined(ended: Result<EndedCall, JoinError>) -> Option<EndedCall> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(ended) => Some(ended),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}
