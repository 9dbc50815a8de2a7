//! The task that owns a limiter's queue: it receives charges, sends them in batches, and
//! passes refunds on.
//!
//! Each call runs as a task of its own, so that replies are read while the next batch
//! is put together.
//!
//! There is one for each runtime that uses the limiter. It ends when the limiter is dropped and
//! every call has ended, or with its runtime.

mod connecting;
mod hold;
mod tasks;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use self::connecting::{Connecting, ConnectionResult};
use self::hold::Hold;
use self::tasks::{joined, sent_now};
use super::batch::Call;
use super::busy::Busy;
use super::call::{EndedCall, follow, send_call};
use super::config::Config;
use super::connections::SharedConnection;
use super::eval::LATE_REPLY_TIMEOUT;
use super::queue::Queue;
use super::queued::QueuedRequest;
use super::slot::Partition;

/// Serves a limiter until its handles are gone. `busy` says whether a charge waits
/// or is in flight.
pub(super) async fn run(
    config: Arc<Config>,
    mut arrivals: UnboundedReceiver<Box<QueuedRequest>>,
    busy: Arc<Busy>,
) {
    let mut worker = Worker::new(config);
    let mut is_open = true;
    loop {
        busy.reset_if(|| worker.is_idle() && arrivals.is_empty());
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
            Some(connected) = worker.connecting.join_next() => {
                let Some((partitions, outcome)) = joined(connected) else { return };
                worker.connected(partitions, outcome);
            }
            arrival = arrivals.recv(), if is_open => match arrival {
                Some(queued) => worker.queue.push(queued),
                None => is_open = false,
            },
            () = worker.hold.end(), if worker.is_holding() => worker.lets_go = true,
            else => return,
        }
        busy.set();
        while let Some(ended) = worker.calls.try_join_next() {
            let Some(ended) = joined(ended) else { return };
            worker.call_ended(ended);
        }
        worker.update();
        worker.allow_next();
        // The server works on what waits already while the tasks that are ready run.
        worker.send(true).await;
        // Tasks that are ready run first, so that their charges join the batch.
        yield_now().await;
        worker.allow_next();
        while let Ok(queued) = arrivals.try_recv() {
            worker.queue.push(queued);
        }
        worker.send(false).await;
        (worker.lets_go, worker.new_connection) = (false, None);
    }
}

/// What the task has at hand.
struct Worker {
    config: Arc<Config>,
    queue: Queue,
    /// By hash slot, the connection of a call that carries refunds.
    refunding: HashMap<u16, Arc<dyn SharedConnection>>,
    connecting: Connecting,
    new_connection: Option<Arc<dyn SharedConnection>>,
    hold: Hold,
    /// Whether a call has ended in this turn, or nothing is held back any longer.
    lets_go: bool,
    calls: JoinSet<EndedCall>,
    late_replies: JoinSet<EndedCall>,
}

impl Worker {
    fn new(config: Arc<Config>) -> Self {
        Self {
            queue: Queue::new(config.pool.clone(), config.max_batch_size),
            config,
            refunding: HashMap::new(),
            connecting: Connecting::default(),
            new_connection: None,
            hold: Hold::new(),
            lets_go: false,
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
        queue.set_max_in_flight(config.max_in_flight.saturating_mul(config.pool.size()));
    }

    /// Lets the next calls follow the last ones if answers came, which this process has to read, or
    /// if none has come for too long.
    fn allow_next(&mut self) {
        if self.lets_go {
            self.queue.allow_next();
            self.hold.ended();
        }
    }

    /// Whether a call has left, and something waits that may be held back since.
    fn is_holding(&self) -> bool {
        self.hold.has_begun() && !self.queue.is_empty()
    }

    /// Sends calls while there are any and a connection is ready. `only_whole`: only those that
    /// need no further charges.
    async fn send(&mut self, only_whole: bool) {
        while let Some((partition, hash_slot)) = self.queue.next_partition(only_whole) {
            let (ready, pool) = (self.new_connection.take(), &self.config.pool);
            let Some(connection) = ready.or_else(|| pool.ready_connection(hash_slot)) else {
                self.connecting.begin(pool, partition, hash_slot);
                self.queue.connecting(partition);
                continue;
            };
            if let Some(call) = self.queue.take_call(partition) {
                self.hold.call_left();
                self.send_call(connection, call).await;
            }
        }
    }

    /// Sends a call. A connection answers its calls in order: so no charge is decided before one
    /// that left earlier over the same one, nor before a refund that was made earlier. In a cluster
    /// all calls of a slot share one connection.
    async fn send_call(&mut self, connection: Arc<dyn SharedConnection>, call: Call) {
        let hash_slot = call.batches[0].hash_slot;
        let same = self.refunding.get(&hash_slot).filter(|same| same.is_alive());
        let connection = same.map_or(connection, Arc::clone);
        if call.has_refunds() && !self.config.pool.is_routed() {
            self.refunding.insert(hash_slot, Arc::clone(&connection));
        }
        let call = send_call(Arc::clone(&self.config), connection, call);
        self.calls.spawn(sent_now(call).await);
    }

    fn connected(&mut self, partitions: Vec<Partition>, outcome: ConnectionResult) {
        for partition in partitions {
            self.queue.connected(partition);
            if let Err(error) = &outcome {
                self.queue.fail_all(partition, error);
            }
        }
        // In a cluster it may be that of another partition: the slot may have moved.
        self.new_connection = outcome.ok().filter(|_| !self.config.pool.is_routed());
    }

    /// Records that a call has ended.
    fn call_ended(&mut self, ended: EndedCall) {
        self.lets_go = true;
        if let Some((partition, requests)) = ended.partition {
            self.queue.call_ended(partition, requests);
        }
        self.record_end(ended);
    }

    /// Queues the refunds of a call that has ended, sends on what no server has run, and waits on
    /// for a late reply.
    fn record_end(&mut self, ended: EndedCall) {
        for hash_slot in ended.refunds_done {
            self.queue.refunds_done(hash_slot);
        }
        for unfinished in ended.unfinished {
            self.calls.spawn(follow(Arc::clone(&self.config), unfinished));
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

#[cfg(test)]
mod tests;
