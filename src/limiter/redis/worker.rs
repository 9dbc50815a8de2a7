//! The task that owns a limiter's queue: it receives charges, sends them in batches, and passes refunds on.
//!
//! There is one for each runtime that uses the limiter. It ends when the limiter is dropped and every call has ended,
//! or with its runtime.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::call::{Ended, call};
use super::config::Config;
use super::eval::LATE;
use super::queue::{Queue, Queued};
use super::request::Request;
use super::source::{Connecting, SharedConnection};

/// What a worker shares with its handles.
#[derive(Default)]
pub(super) struct Status {
    /// Whether a charge waits or is in flight.
    pub(super) is_busy: AtomicBool,
    /// The connection to use while the worker is idle. A dead one is not kept, so that its socket closes.
    spare: Mutex<Option<Arc<dyn SharedConnection>>>,
}

impl Status {
    /// The spare connection, if it is alive.
    pub(super) fn spare(&self) -> Option<Arc<dyn SharedConnection>> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.as_ref().filter(|connection| connection.is_alive()).cloned()
    }

    /// Keeps a connection that was used last, if it is alive.
    pub(super) fn keep(&self, connection: Option<Arc<dyn SharedConnection>>) {
        let kept = connection.filter(|connection| connection.is_alive());
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

/// Serves a limiter until its handles are gone.
pub(super) async fn run(
    config: Arc<Config>,
    mut arrivals: UnboundedReceiver<Queued>,
    status: Arc<Status>,
) {
    let mut queue = Queue::new(config.max_batch_size);
    let mut connections: Vec<Arc<dyn SharedConnection>> = Vec::new();
    let mut connecting: Option<Connecting> = None;
    let mut calls = FuturesUnordered::new();
    let mut late = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        if queue.is_empty() && calls.is_empty() {
            status.is_busy.store(false, Relaxed);
            let last = connections.drain(..).next_back();
            status.keep(last.or_else(|| status.spare()));
        }
        select! {
            arrival = arrivals.recv(), if is_open => match arrival {
                Some(charge) => queue.push(charge),
                None => is_open = false,
            },
            Some(Ended { slot, had_refunds, connection, refunds, late: rest }) = calls.next() => {
                queue.call_ended(slot, had_refunds);
                connections.push(connection);
                late.extend(rest);
                refund(&config, &mut queue, refunds);
            }
            Some(refunds) = late.next() => refund(&config, &mut queue, refunds),
            connected = async { connecting.as_mut().expect("checked").await }, if connecting.is_some() => {
                connecting = None;
                match connected {
                    Ok(connection) => connections.push(connection),
                    Err(error) => queue.fail(&error),
                }
            }
            else => return,
        }
        status.is_busy.store(true, Relaxed);
        // Tasks that are about to ask run first, so that their charges join the batch.
        yield_now().await;
        while let Ok(charge) = arrivals.try_recv() {
            queue.push(charge);
        }
        connections.retain(|connection| connection.is_alive());
        queue.set_max_in_flight(config.max_in_flight * config.pool.size());
        while queue.is_sendable() {
            let spare = || if calls.is_empty() { status.spare() } else { None };
            let Some(connection) = connections.pop().or_else(spare) else {
                connecting.get_or_insert_with(|| config.pool.connection());
                break;
            };
            match queue.next_batch() {
                Some(batch) => calls.push(call(Arc::clone(&config), connection, batch)),
                None => connections.push(connection),
            }
        }
    }
}

fn refund(config: &Config, queue: &mut Queue, refunds: Vec<Request>) {
    for request in refunds {
        queue.push(config.unattended(request, Instant::now() + LATE));
    }
}
