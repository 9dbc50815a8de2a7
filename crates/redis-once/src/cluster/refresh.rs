//! Reads the slot map: from a connected server, or else from any known server.
//!
//! Each runtime makes one attempt at a time, with pauses between attempts. So a process asks only a
//! few times a second, even if many slots move or many calls fail.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ConnectionAddr, cmd};
use tokio::runtime::{self, Handle};
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::address::Host;
use super::super::backoff::{Backoff, with_patience};
use super::super::connection::SharedConnection;
use super::super::error::{Error, ErrorKind};
use super::super::error_reply::{from_redis_error, weight};
use super::super::lock::lock;
use super::super::on_time::unless_busy;
use super::super::times::{
    MAX_CONNECTION_WAIT, MAX_MAP_PAUSE, MAX_SILENCE, PATIENCE, REFRESH_CHECK,
};
use super::Cluster;
use super::nodes::Node;
use super::slot_map::SlotMap;

/// The attempts to read the slot map.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    /// The runtimes with a running attempt.
    running: Vec<runtime::Id>,
    pub(super) backoff: Backoff,
    /// True after the map was read. Then a slot without a server is not just a sign of load.
    pub(super) was_read: bool,
    /// The server that last said that it cannot serve its slots.
    doubted: Option<Host>,
}

impl Refreshes {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Shortens the pause after a success: calls wait for the next map.
    pub(super) fn hurry(&self) {
        let mut state = self.state();
        if state.backoff.last_error.is_none() {
            state.backoff.wait_at_most_until(Instant::now() + REFRESH_CHECK);
        }
    }

    /// Begins an attempt. Returns the time after which it blames the cluster. The error is the
    /// instant at which the next attempt may begin.
    fn begin(&self, runtime: runtime::Id) -> Result<Duration, Instant> {
        let (mut state, now) = (self.state(), Instant::now());
        if state.running.contains(&runtime) {
            return Err(now + MAX_CONNECTION_WAIT);
        }
        match state.backoff.retry_at(now) {
            Some(later) => return Err(later),
            None => state.backoff.record_attempt(now),
        }
        state.running.push(runtime);
        Ok(state.backoff.patience())
    }

    /// Records that an attempt gets no answer, although this process waits for it.
    fn record_overdue(&self) {
        let error = Error::new(ErrorKind::Infrastructure, "no server sent its slots in time");
        self.state().backoff.record_overdue(error);
    }

    /// Records the end of the attempt on `runtime` that began at `begun`. `None`: it did not
    /// finish.
    fn end(&self, runtime: runtime::Id, begun: Instant, result: Option<Result<(), Error>>) {
        let mut state = self.state();
        state.running.retain(|running| *running != runtime);
        let was_read = matches!(result, Some(Ok(())));
        state.backoff.record_end(begun, result);
        if was_read {
            state.was_read = true;
            let pause = MAX_MAP_PAUSE / 2 + MAX_MAP_PAUSE.mul_f64(fastrand::f64() / 2.0);
            state.backoff.hold_until(Instant::now() + pause);
        }
    }
}

impl Cluster {
    /// Reads the slot map, since the server at `address` cannot serve its slots. Asks that server
    /// after the other known servers: if it is cut off from them, it still claims its slots.
    pub(in super::super) fn doubt(self: &Arc<Self>, address: Option<&ConnectionAddr>) {
        self.refreshes.state().doubted = address.and_then(Host::of);
        self.refresh();
    }

    /// Starts to read the slot map, unless an attempt is running or has just ended. Returns the
    /// instant to try again.
    pub(super) fn refresh(self: &Arc<Self>) -> Instant {
        // A late reply may be read outside of a runtime.
        let Ok(runtime) = Handle::try_current() else { return Instant::now() + REFRESH_CHECK };
        let patience = match self.refreshes.begin(runtime.id()) {
            Ok(patience) => patience,
            Err(later) => return later,
        };
        let candidates = self.candidates();
        let (cluster, id, begun) = (Arc::downgrade(self), runtime.id(), Instant::now());
        let attempt = RefreshAttempt { cluster, runtime: id, begun, result: None };
        let mut attempts = lock(&self.attempts);
        while attempts.try_join_next().is_some() {}
        attempts.spawn_on(attempt.run(candidates, patience), &runtime);
        begun + MAX_CONNECTION_WAIT
    }

    /// Returns the servers that may know the map. Connected servers come first, and the addresses
    /// with which the pool was built come last.
    fn candidates(&self) -> Vec<Candidate> {
        let mut nodes = self.nodes.all();
        fastrand::shuffle(&mut nodes);
        let with_connection =
            |node: Arc<Node>| Candidate { connection: node.pool.ready_at(None), node };
        let mut candidates: Vec<_> = nodes.into_iter().map(with_connection).collect();
        candidates.sort_by_key(|candidate| candidate.connection.is_none());
        let doubted = self.refreshes.state().doubted.clone();
        candidates.sort_by_key(|candidate| Some(&candidate.node.host) == doubted.as_ref());
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        for node in seeds {
            if !candidates.iter().any(|candidate| candidate.node.host == node.host) {
                candidates.push(Candidate { node, connection: None });
            }
        }
        candidates
    }
}

/// An attempt to read the map. Its drop lets another attempt begin, after any end.
struct RefreshAttempt {
    cluster: Weak<Cluster>,
    runtime: runtime::Id,
    begun: Instant,
    /// The outcome; `None` until the attempt has finished.
    result: Option<Result<SlotMap, Error>>,
}

impl RefreshAttempt {
    async fn run(mut self, candidates: Vec<Candidate>, patience: Duration) {
        let waiting = self.cluster.clone();
        let record_overdue = || {
            if let Some(cluster) = waiting.upgrade() {
                cluster.refreshes.record_overdue();
            }
        };
        self.result = Some(with_patience(first_map(candidates), patience, record_overdue).await);
    }
}

impl Drop for RefreshAttempt {
    fn drop(&mut self) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let result = self.result.take().map(|map| cluster.nodes.replace(&map?, &cluster.connector));
        cluster.refreshes.end(self.runtime, self.begun, result);
        cluster.changed.notify_waiters();
    }
}

/// A server that may know the map.
struct Candidate {
    node: Arc<Node>,
    /// Its connection, if there is one.
    connection: Option<Arc<dyn SharedConnection>>,
}

impl Candidate {
    async fn ask(self) -> Result<SlotMap, Error> {
        let end = Instant::now() + self.node.server.connector.timeout;
        unless_busy(end, self.read_map(end)).await
    }

    async fn read_map(self, end: Instant) -> Result<SlotMap, Error> {
        let connection = match self.connection {
            Some(connection) => connection,
            None => Arc::new(self.node.server.connect().await?),
        };
        let mut reply = connection.send(cmd("CLUSTER").arg("SLOTS").take());
        let no_answer = |_| {
            let message = format!("{} did not answer in time", self.node.server.address());
            Error::new(ErrorKind::Infrastructure, message)
        };
        let reply =
            match timeout_at(end.min(Instant::now() + MAX_SILENCE + REFRESH_CHECK), &mut reply)
                .await
            {
                Ok(reply) => reply,
                Err(_) => {
                    // This call shows a silent connection, like a call without a reply.
                    connection.record_timeout();
                    timeout_at(end, reply).await.map_err(no_answer)?
                }
            };
        let reply = reply
            .and_then(redis::Value::extract_error)
            .map_err(|error| from_redis_error(error, []))?;
        let map = SlotMap::read(&reply, &self.node.host)?;
        if map.0.is_empty() {
            let message = format!("{} knows no slots", self.node.server.address());
            return Err(Error::new(ErrorKind::Infrastructure, message));
        }
        Ok(map)
    }
}

/// Asks one server after another, without a long wait for a slow one. Returns the first map.
async fn first_map(candidates: Vec<Candidate>) -> Result<SlotMap, Error> {
    let mut error = Error::new(ErrorKind::Infrastructure, "no server of the cluster is known");
    // This task polls them all: a thread that stands still delays its timers, too.
    let (mut candidates, mut asked) = (candidates.into_iter(), FuturesUnordered::new());
    loop {
        if let Some(candidate) = candidates.next() {
            asked.push(AssertUnwindSafe(candidate.ask()).catch_unwind());
        }
        let answer = select! {
            biased;
            answer = asked.next() => answer,
            () = sleep(PATIENCE), if candidates.len() > 0 => continue,
        };
        match answer {
            Some(Ok(Ok(map))) => return Ok(map),
            Some(Ok(Err(why))) if weight(&why) >= weight(&error) => error = why,
            // A panic (in a resolver, say) is a configuration error, so that no fallback admits.
            Some(Err(_)) => {
                let message = "a panic ended the attempt to connect to redis";
                error = Error::new(ErrorKind::Configuration, message);
            }
            Some(Ok(Err(_))) => {}
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use redis::Value;
    use tokio::time::advance;

    use super::super::super::connection::Connections as _;
    use super::super::super::dialer::Dialer;
    use super::super::super::fault::{Deadline, Failed, Stage};
    use super::super::super::pool::Pool;
    use super::super::super::silent_fake::SilentFake;
    use super::super::super::simulated;
    use super::super::super::times::OVERDUE_AFTER;
    use super::super::slot_map::HASH_SLOTS;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_slot_that_nobody_serves_is_known_once_the_map_is_read() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let cluster = pool.cluster().expect("a cluster");
        let (served, unserved) = (0, HASH_SLOTS - 1);
        assert!(cluster.facts(unserved).failure.is_none());
        let begun = Instant::now();
        let missed = Deadline::new(begun, 0);
        let kind = || missed.missed_error(&cluster.facts(unserved), &Stage::Waiting).kind();
        assert_eq!(kind(), ErrorKind::Saturation);

        // In a busy process, a failure counts if it is fresh.
        let runtime = Handle::current().id();
        let end = |result| {
            drop(RefreshAttempt { cluster: Arc::downgrade(cluster), runtime, begun, result });
        };
        end(Some(Err(Error::new(ErrorKind::Infrastructure, "away"))));
        let failed = cluster.facts(unserved).failure.expect("it has failed").at;
        assert!((Some(begun)..=Some(Instant::now())).contains(&failed));

        let master = Value::Array(vec![Value::BulkString(b"127.0.0.1".into()), Value::Int(1)]);
        let range = [Value::Int(0), Value::Int(i64::from(unserved) - 1), master];
        let reply = Value::Array(vec![Value::Array(range.into())]);
        let map = SlotMap::read(&reply, &cluster.seeds[0].host).expect("a map");
        end(Some(Ok(map)));
        assert!(cluster.facts(served).failure.is_none());
        let facts = cluster.facts(unserved);
        // A busy process would have read a later map.
        let Failed { error, at } = facts.failure.expect("known to the map");
        assert_eq!(at, None);
        assert_eq!(error.kind(), ErrorKind::Infrastructure);
        assert!(error.to_string().ends_with("holds the key"), "{error}");
        assert_eq!(kind(), ErrorKind::Infrastructure);
    }

    /// No call may use the connection, so that nothing else shows its silence.
    #[tokio::test(start_paused = true)]
    async fn a_reading_without_a_reply_is_recorded() {
        let pool = Pool::connect("redis-cluster://127.0.0.1:1").expect("an address");
        let cluster = pool.cluster().expect("a cluster");
        let silent = Arc::new(SilentFake::default());
        let connection: Arc<dyn SharedConnection> = silent.clone();
        let node = Arc::clone(&cluster.seeds[0]);
        let candidate = Candidate { node, connection: Some(connection) };
        assert!(candidate.ask().await.is_err());
        assert_eq!(silent.timeouts.load(Relaxed), 1);
    }

    /// A resolver blocks its thread, for example.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_that_stands_still_while_it_asks_blames_no_server() {
        let (released, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let dialer = Dialer::new(move |_, _| {
            let _ = lock(&gate).recv();
            std::future::ready(Err::<tokio::io::DuplexStream, _>(std::io::ErrorKind::Other.into()))
        });
        let connector = simulated::connector(4 * SECOND, dialer);
        let cluster = Arc::new(Cluster::new(connector, &[simulated::host(1)]));
        tokio::spawn({
            let cluster = Arc::clone(&cluster);
            async move { cluster.refresh() }
        });
        sleep(OVERDUE_AFTER * 3 / 2).await;
        assert!(cluster.facts(0).failure.is_none());
        drop(released);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_attempt_may_begin_whatever_ended_the_last_one() {
        let (refreshes, runtime) = (Refreshes::default(), Handle::current().id());
        let failed = Err(Error::new(ErrorKind::Infrastructure, "away"));
        for result in [Some(failed), None, Some(Ok(()))] {
            assert!(refreshes.begin(runtime).is_ok());
            assert!(refreshes.begin(runtime).is_err(), "one at a time");
            refreshes.end(runtime, Instant::now(), result);
            advance(SECOND).await;
        }
        assert!(refreshes.begin(runtime).is_ok());
    }
}
