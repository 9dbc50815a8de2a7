//! A server, one client thread, and many tasks that ask through it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_sluice::algorithm::{InLua, IntoAlgorithm};
use tower_sluice::{Charge, Limiter, Pool, Redis};

use crate::measure::{Cost, cost};
use support::Server;

pub(crate) const KEYS: usize = 100_000;

pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) runtime: Runtime,
    pub(crate) keys: Arc<[Arc<str>]>,
    pool: Pool,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with_keys(KEYS)
    }

    pub(crate) fn with_keys(count: usize) -> Self {
        let server = Server::with(&[]);
        let pool = Pool::connect(&server.url()).expect("an address");
        Self { server, runtime: runtime(), keys: keys(count), pool }
    }

    /// A limiter that waits for its answers.
    pub(crate) fn limiter<A: InLua>(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Redis<A> {
        limiter(&self.pool, algorithm)
    }

    /// Charges every key once, so many units.
    pub(crate) fn charge_all<A: InLua>(&self, limiter: &Redis<A>, units: u64) {
        self.runtime.block_on(async {
            for chunk in self.keys.chunks(1_000) {
                let mut tasks = JoinSet::new();
                for key in chunk {
                    tasks.spawn(limiter.check(&Charge::new(Arc::clone(key)).cost(units)));
                }
                for decision in tasks.join_all().await {
                    assert!(decision.expect("a decision").is_admitted());
                }
            }
        });
    }

    /// So many charges of one unit.
    pub(crate) fn charge<A: InLua>(
        &self,
        limiter: &Redis<A>,
        tasks: usize,
        decisions: usize,
        keys: usize,
    ) -> Cost {
        let limiter = limiter.clone();
        self.drive(tasks, decisions, keys, move |key| {
            let asked = limiter.check(&Charge::new(key));
            async move { drop(asked.await.expect("a decision")) }
        })
    }

    /// So many tasks, each of which asks again as soon as it is answered.
    pub(crate) fn drive<F: Future<Output = ()> + Send>(
        &self,
        tasks: usize,
        decisions: usize,
        keys: usize,
        ask: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
    ) -> Cost {
        let each = decisions / tasks;
        cost(&self.server, each * tasks, || {
            let mut running = JoinSet::new();
            for task in 0..tasks {
                let (names, ask) = (Arc::clone(&self.keys), ask.clone());
                let asking = async move {
                    let mut took = Vec::with_capacity(each);
                    let mut random = fastrand::Rng::with_seed(task as u64);
                    for _ in 0..each {
                        let key = Arc::clone(&names[random.usize(..keys)]);
                        let begun = Instant::now();
                        ask(key).await;
                        took.push(begun.elapsed());
                    }
                    took
                };
                running.spawn_on(asking, self.runtime.handle());
            }
            self.runtime.block_on(running.join_all()).concat()
        })
    }

    /// The time in a command so far, by the server's own account, in µs.
    pub(crate) fn time_in(&self, command: &str) -> f64 {
        let line = self.figure("commandstats", &format!("cmdstat_{command}:"));
        let time = line.as_deref().and_then(|line| {
            line.split(',').find_map(|field| field.strip_prefix("usec=")?.parse().ok())
        });
        time.unwrap_or(0.0)
    }

    /// The bytes that the server has received and sent.
    pub(crate) fn network(&self) -> [f64; 2] {
        ["total_net_input_bytes:", "total_net_output_bytes:"].map(|name| {
            let bytes = self.figure("stats", name);
            bytes.and_then(|bytes| bytes.parse().ok()).expect("bytes")
        })
    }

    /// Fails unless the server holds so many keys.
    pub(crate) fn expect_keys(&self, keys: usize) {
        let held: usize = self.runtime.block_on(async {
            let mut connection = self.server.connection().await;
            redis::cmd("DBSIZE").query_async(&mut connection).await.expect("a number")
        });
        assert_eq!(held, keys, "no key is gone");
    }

    /// Returns the memory that the server uses, in bytes.
    pub(crate) fn used_memory(&self) -> f64 {
        let bytes = self.figure("memory", "used_memory:");
        bytes.and_then(|bytes| bytes.parse().ok()).expect("bytes")
    }

    /// The memory of all keys by Redis' own account, member by member.
    pub(crate) fn weight_of_all(&self) -> usize {
        self.runtime.block_on(async {
            let mut connection = self.server.connection().await;
            let keys: Vec<String> =
                redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
            let mut bytes = 0;
            for key in keys {
                let mut usage = redis::cmd("MEMORY");
                usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
                bytes += usage.query_async::<usize>(&mut connection).await.expect("bytes");
            }
            bytes
        })
    }

    /// Empties the server.
    pub(crate) fn flush(&self) {
        self.runtime.block_on(async {
            let mut connection = self.server.connection().await;
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("empty");
        });
    }

    fn figure(&self, section: &str, name: &str) -> Option<String> {
        let info: String = self.runtime.block_on(async {
            let mut connection = self.server.connection().await;
            let mut info = redis::cmd("INFO");
            info.arg(section).query_async(&mut connection).await.expect("figures")
        });
        info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    }
}

/// One client thread.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn keys(count: usize) -> Arc<[Arc<str>]> {
    (0..count).map(|key| format!("{key:012}").into()).collect()
}

/// A limiter that waits for its answers.
pub(crate) fn limiter<A: InLua>(
    pool: &Pool,
    algorithm: impl IntoAlgorithm<Algorithm = A>,
) -> Redis<A> {
    Redis::new("bench", algorithm, pool.clone()).decision_timeout(Duration::from_secs(60))
}
