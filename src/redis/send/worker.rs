//! The task that owns a limiter's queue. It receives charges, sends them in batches, and passes
//! refunds on.
//!
//! It polls the calls in flight itself: a task for each would wake another thread for each call.
//! Each runtime has one such task, until the limiter is dropped and every call has ended.

use std::future::ready;
use std::iter::from_fn;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis_once::calls::{Partition, SharedConnection};
use tokio::runtime::{self, Handle};
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::super::decision_times::SLOW_TURN;
use super::batch::{Call, CallEnd, QueuedRequest};
use super::call::{follow, send_call};
use super::config::Config;
use super::deadlines::Deadlines;
use super::queue::Queue;
use crate::core::Error;
use crate::core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A handle to the worker of one runtime.
pub(super) struct WorkerHandle {
    pub(super) runtime: runtime::Id,
    requests: UnboundedSender<Box<QueuedRequest>>,
    busy: Arc<Busy>,
    /// One permit: one caller at a time sends a charge inline.
    inline_permits: Arc<Semaphore>,
    /// The deadlines of callers that do not send their charges inline.
    pub(super) deadlines: Arc<Deadlines>,
}

impl WorkerHandle {
    /// Starts a worker on a runtime.
    pub(super) fn start(config: Arc<Config>, runtime: &Handle) -> Arc<Self> {
        let (requests, arrivals) = unbounded_channel();
        let (busy, inline_permits) = (Arc::<Busy>::default(), Arc::new(Semaphore::new(1)));
        runtime.spawn(run(config, arrivals, Arc::clone(&busy)));
        let (runtime, deadlines) = (runtime.id(), Arc::default());
        Arc::new(Self { runtime, requests, busy, inline_permits, deadlines })
    }

    /// Returns true if the worker has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Returns the permit to send a charge inline, if no request waits and none is in flight.
    pub(super) fn inline_permit(&self) -> Option<OwnedSemaphorePermit> {
        let is_idle = !self.busy.is_set();
        is_idle.then(|| Arc::clone(&self.inline_permits).try_acquire_owned().ok()).flatten()
    }

    /// Passes a request on to the worker. Returns false if the worker has ended.
    pub(super) fn push(&self, queued: Box<QueuedRequest>) -> bool {
        let is_sent = self.requests.send(queued).is_ok();
        self.busy.set();
        is_sent
    }
}

/// A flag that is set while a charge may wait or be in flight. It shows callers if the limiter is
/// idle.
///
/// It must stay set while a request waits in the queue. With one `bool` in place of two counts, a
/// worker that resets it could undo a caller's set.
#[derive(Debug, Default)]
struct Busy {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Busy {
    fn is_set(&self) -> bool {
        self.begun.load(Relaxed) != self.ended.load(Relaxed)
    }

    /// Sets the flag. Callers do this after they have passed a request on.
    fn set(&self) {
        self.begun.fetch_add(1, Release);
    }

    /// Resets the flag if the worker is idle and no request has arrived. `is_idle` is called after
    /// the count is read. So it sees the requests of all callers that are in the count.
    fn reset_if(&self, is_idle: impl FnOnce() -> bool) {
        let begun = self.begun.load(Acquire);
        if is_idle() {
            self.ended.store(begun, Relaxed);
        }
    }
}

/// Serves a limiter until its handles are gone. Keeps `busy` set while a charge waits or is in
/// flight.
async fn run(
    config: Arc<Config>,
    mut arrivals: UnboundedReceiver<Box<QueuedRequest>>,
    busy: Arc<Busy>,
) {
    let mut worker = Worker::new(config);
    let (mut is_open, mut is_slow) = (true, false);
    loop {
        busy.reset_if(|| worker.is_idle() && arrivals.is_empty());
        select! {
            // Replies come first. New requests come last: the code below takes all of them.
            biased;
            Some(ended) = worker.calls.next() => worker.call_ended(ended),
            Some(ended) = worker.late_replies.next() => worker.record_end(ended),
            Some((partition, outcome)) = worker.connecting.next() => {
                worker.connected(partition, outcome);
            }
            arrival = arrivals.recv(), if is_open => match arrival {
                Some(queued) => worker.queue.push(queued),
                None => is_open = false,
            },
            else => return,
        }
        busy.set();
        // The callers of several masters answer together: each calls all of them next.
        while (is_slow || worker.config.pool.client.is_routed())
            && let Some(Some(ended)) = worker.calls.next().now_or_never()
        {
            worker.call_ended(ended);
        }
        // If calls end in every turn, the others never come first above.
        while let Some(Some(ended)) = worker.late_replies.next().now_or_never() {
            worker.record_end(ended);
        }
        while let Some(Some((partition, outcome))) = worker.connecting.next().now_or_never() {
            worker.connected(partition, outcome);
        }
        worker.update();
        if worker.serves_one_caller() {
            busy.reset_if(|| worker.is_idle() && arrivals.is_empty());
        }
        // Ready tasks run first, so that their charges join the batch. One server's calls end one in
        // each turn: so the charges of the first callers are on their way while the others run.
        let begun = Instant::now();
        yield_now().await;
        is_slow = begun.elapsed() > SLOW_TURN;
        worker.queue.push_all(from_fn(|| arrivals.try_recv().ok()));
        worker.send();
        worker.answered = 0;
    }
}

type Calls = FuturesUnordered<BoxFuture<'static, CallEnd>>;

/// The state of the worker task.
struct Worker {
    config: Arc<Config>,
    queue: Queue,
    /// The connection of a call with refunds, on a plain server.
    refunding: Option<Arc<dyn SharedConnection>>,
    /// The attempts to get a connection, each for a partition.
    connecting: FuturesUnordered<BoxFuture<'static, (Partition, Result<(), Error>)>>,
    /// The number of requests whose calls have ended in this turn.
    answered: usize,
    calls: Calls,
    late_replies: Calls,
}

impl Worker {
    fn new(config: Arc<Config>) -> Self {
        Self {
            queue: Queue::new(config.pool.clone(), config.max_batch_size, config.max_in_flight),
            config,
            refunding: None,
            connecting: FuturesUnordered::new(),
            answered: 0,
            calls: Calls::new(),
            late_replies: Calls::new(),
        }
    }

    /// Returns true if no request waits and none is in flight.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.calls.is_empty()
    }

    /// Returns true if the only answer of this turn went to one caller. Its next charge may come as
    /// soon as ready tasks run: it is sent inline if the limiter is idle by then. Of several
    /// callers only the first could do so, and the batch would be two calls.
    fn serves_one_caller(&self) -> bool {
        self.answered == 1
    }

    /// Forgets the connection of refunds when these have ended.
    fn update(&mut self) {
        let Self { queue, refunding, .. } = self;
        refunding.take_if(|_| !queue.has_refunds_in_flight(0));
    }

    /// Sends calls while there are any and a connection is ready.
    fn send(&mut self) {
        while let Some((partition, hash_slot)) = self.queue.next_partition() {
            let pool = &self.config.pool;
            let Some(connection) = pool.client.ready_connection(hash_slot) else {
                let connected = pool.client.clone().connect_partition(partition, hash_slot);
                let connecting = async move { (partition, connected.await.map_err(Error::from)) };
                self.connecting.push(connecting.boxed());
                self.queue.partitions.set_connecting(partition, true);
                continue;
            };
            if let Some(call) = self.queue.take_call(partition) {
                self.send_call(connection, call);
            }
        }
    }

    /// Sends a call. A connection answers its calls in order. Calls after refunds use the
    /// connection of the refunds; in a cluster, all calls of a slot share one.
    ///
    /// The call is polled at once, so that it is sent before all later calls.
    fn send_call(&mut self, connection: Arc<dyn SharedConnection>, call: Call) {
        let same = self.refunding.as_ref().filter(|same| same.is_alive());
        let connection = same.map_or(connection, Arc::clone);
        if call.has_refunds() && !self.config.pool.client.is_routed() {
            self.refunding = Some(Arc::clone(&connection));
        }
        let mut call = send_call(Arc::clone(&self.config), connection, call).boxed();
        self.calls.push(match (&mut call).now_or_never() {
            Some(ended) => ready(ended).boxed(),
            None => call,
        });
    }

    fn connected(&mut self, partition: Partition, outcome: Result<(), Error>) {
        self.queue.partitions.set_connecting(partition, false);
        self.queue.regroup(partition, outcome.as_ref().err());
    }

    /// Records that a call has ended.
    fn call_ended(&mut self, ended: CallEnd) {
        if let Some((partition, requests)) = ended.partition {
            self.queue.partitions.call_ended(partition, requests, ended.took);
            self.answered += requests;
        }
        self.record_end(ended);
    }

    /// Queues the refunds of a call that has ended. Redirects the batches that no server has run,
    /// and waits for a late reply.
    fn record_end(&mut self, ended: CallEnd) {
        for hash_slot in ended.refunds_done {
            self.queue.refunds_done(hash_slot);
        }
        for batch in ended.unfinished {
            self.calls.push(follow(Arc::clone(&self.config), batch).boxed());
        }
        if let Some(late_reply) = ended.late_reply {
            self.late_replies.push(late_reply);
        }
        for request in ended.refunds {
            self.queue.push(QueuedRequest::refund(&self.config.pool, request));
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, interleavings))]
mod interleavings;
