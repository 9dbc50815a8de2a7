//! A server, one client thread, and tasks that ask through it.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::cost::{Cost, processor};

pub(crate) const KEYS: usize = 100_000;

/// Coprime to `KEYS`: steps of this width visit every key.
const STEP: usize = 61_803;

/// The number of tasks that ask, and the time for which they do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) tasks: usize,
    pub(crate) length: Duration,
}

pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) server: u32,
    pub(crate) runtime: Runtime,
    pub(crate) keys: Arc<[Arc<str>]>,
    databases: Cell<u16>,
    /// The time that each decision of a slot took, in ns. Reused, so that no slot pays for its
    /// growth.
    took: Arc<Mutex<Vec<u32>>>,
}

impl Site {
    /// `server` is the id of the process that listens on `port`.
    pub(crate) fn new(port: u16, server: u32) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let keys = (0..KEYS).map(|key| format!("{key:012}").into()).collect();
        let took = Arc::new(Mutex::new(Vec::with_capacity(1 << 20)));
        Self { port, server, runtime, keys, databases: Cell::new(0), took }
    }

    /// A database that no other peer uses: its number.
    pub(crate) fn database(&self) -> u16 {
        self.databases.set(self.databases.get() + 1);
        self.databases.get()
    }

    pub(crate) fn url(&self, database: u16) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }

    /// One shared connection without timers.
    pub(crate) async fn connection(&self, database: u16) -> MultiplexedConnection {
        let client = redis::Client::open(self.url(database)).expect("an address");
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("a connection")
    }

    /// Tasks that ask again as soon as they are answered, over the first `keys` keys. `ask` returns
    /// whether the request was admitted.
    pub(crate) fn drive<F: Future<Output = bool> + Send + 'static>(
        &self,
        slot: Slot,
        keys: usize,
        ask: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
    ) -> Cost {
        self.took.lock().expect("whole").clear();
        let (client, server) = (processor(std::process::id()), processor(self.server));
        let mut failed = 0;
        let begun = Instant::now();
        let end = begun + slot.length;
        let allocated = allocation_counter::measure(|| {
            let mut running = JoinSet::new();
            for task in 0..slot.tasks {
                let (names, ask, took) =
                    (Arc::clone(&self.keys), ask.clone(), Arc::clone(&self.took));
                let asking = async move {
                    let mut at = task * keys / slot.tasks;
                    let mut failed = 0;
                    let mut now = Instant::now();
                    while now < end {
                        at = (at + STEP) % keys;
                        failed += usize::from(!ask(Arc::clone(&names[at])).await);
                        let answered = Instant::now();
                        let nanos = answered.duration_since(now).as_nanos();
                        took.lock().expect("whole").push(nanos.try_into().unwrap_or(u32::MAX));
                        now = answered;
                    }
                    failed
                };
                running.spawn_on(asking, self.runtime.handle());
            }
            failed = self.runtime.block_on(running.join_all()).iter().sum();
        });
        let elapsed = begun.elapsed().as_secs_f64();
        let spent = processor(std::process::id()) - client;
        let server_spent = processor(self.server) - server;
        let mut took = self.took.lock().expect("whole");
        let decisions = took.len() as f64;
        let middle = took.len() / 2;
        let (_, p50, _) = took.select_nth_unstable(middle);
        Cost {
            per_second: decisions / elapsed,
            p50_us: f64::from(*p50) / 1e3,
            client_us: Some(spent.as_secs_f64() * 1e6 / decisions),
            server_us: server_spent.as_secs_f64() * 1e6 / decisions,
            allocs: Some(allocated.count_total as f64 / decisions),
            failed,
        }
    }

    /// Asks once for every key, so that each exists before anything is timed.
    pub(crate) fn touch_all<F: Future<Output = bool> + Send + 'static>(
        &self,
        ask: impl Fn(Arc<str>) -> F,
    ) {
        self.runtime.block_on(async {
            for keys in self.keys.chunks(64) {
                let mut running = JoinSet::new();
                for key in keys {
                    running.spawn(ask(Arc::clone(key)));
                }
                assert!(running.join_all().await.into_iter().all(|admitted| admitted), "admitted");
            }
        });
    }
}
