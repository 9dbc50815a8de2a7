//! The cost of a decision in a cluster of three masters: the crate's own client, the same with keys
//! gathered into buckets, and a raw client with the lean script of `against_redis.rs`; beside one
//! plain server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, Pool, Quota, Redis};

use crate::against_redis::{BURST, DEBT, lean_call};
use crate::measure::{median_of, processor};
use crate::site::{KEYS, keys, runtime};
use support::{Server, cluster::Cluster};

const ROUNDS: usize = 5;
const TASKS: [usize; 3] = [64, 256, 1_024];
const DECISIONS: usize = 60_000;
const BUCKETS: [u16; 2] = [24, 96];

/// The time that a first charge may take, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most tries of a first charge: without a connection it fails after half a second.
const TRIES: usize = 100;

/// Prints a line for each case and number of tasks.
pub(crate) fn run() {
    let bench = Bench::new();
    for tasks in TASKS {
        bench.compare(tasks);
    }
}

struct Bench {
    runtime: Runtime,
    keys: Arc<[Arc<str>]>,
    plain: Server,
    cluster: Cluster,
    raw: ClusterConnection,
    lean: String,
}

/// One stretch of decisions.
struct Round {
    per_second: f64,
    client_us: f64,
    server_us: f64,
    errors: f64,
}

type Limited = Redis<TokenBucket>;

impl Bench {
    fn new() -> Self {
        let (runtime, keys) = (runtime(), keys(KEYS));
        let plain = Server::with(&[]);
        let (cluster, raw, lean) = runtime.block_on(async {
            let cluster = Cluster::start().await;
            let mut lean = String::new();
            for node in 0..cluster.nodes.len() {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(include_str!("../lean.lua"));
                lean = cluster.ask(node, &mut load).await;
            }
            let nodes = cluster.nodes.iter().map(Server::admin_url);
            let client = ClusterClient::builder(nodes);
            let client = client.connection_timeout(PATIENCE).response_timeout(PATIENCE);
            let client = client.build().expect("addresses");
            let raw = client.get_async_connection().await.expect("a cluster");
            (cluster, raw, lean)
        });
        let bench = Self { runtime, keys, plain, cluster, raw, lean };
        // Every key is there before anything is timed.
        let [one, _, cluster, few, many] = bench.limiters();
        bench.runtime.block_on(async {
            for limiter in [one, cluster, few, many] {
                let limiter = limiter.decision_timeout(PATIENCE);
                charge_all(&bench.keys, move |key| first_charge(limiter.clone(), key)).await;
            }
            let (raw, lean) = (bench.raw.clone(), bench.lean.clone());
            charge_all(&bench.keys, move |key| {
                let (mut raw, call) = (raw.clone(), lean_call(&lean, &key, DEBT));
                async move { call.exec_async(&mut raw).await.expect("a first charge") }
            })
            .await;
        });
        bench
    }

    /// On one server with batches, and with single calls; on the cluster, and with buckets.
    fn limiters(&self) -> [Limited; 5] {
        let limiter = |url: &str| {
            let pool = Pool::connect(url).expect("an address");
            Redis::new("bench", TokenBucket::new(Quota::per_second(1_000_000).burst(BURST)), pool)
        };
        let [plain, cluster] = [self.plain.url(), self.cluster.admin_url()];
        [
            limiter(&plain),
            limiter(&plain).max_batch_size(1),
            limiter(&cluster),
            limiter(&cluster).buckets(BUCKETS[0]),
            limiter(&cluster).buckets(BUCKETS[1]),
        ]
    }

    fn compare(&self, tasks: usize) {
        let names = [
            "one_server",
            "one_server_single",
            "cluster",
            "cluster_24_buckets",
            "cluster_96_buckets",
        ];
        let limiters = self.limiters();
        let mut raw = Vec::new();
        let mut ours = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            raw.push(self.raw(tasks));
            for (limiter, rounds) in limiters.iter().zip(&mut ours) {
                rounds.push(self.limited(limiter, tasks));
            }
        }
        let single = &ours[1];
        for (case, rounds) in names.iter().zip(&ours).chain([(&"raw", &raw)]) {
            let middle = |of: fn(&Round) -> f64| median_of(rounds.iter().map(of));
            let ratio = |others: &[Round], of: fn(&Round) -> f64| {
                median_of(rounds.iter().zip(others).map(|(one, other)| of(one) / of(other)))
            };
            println!(
                "bench case=cluster name={case} tasks={tasks} ratio={:.2} per_second={:.0} \
                 client_us={:.2} server_us={:.2} server_ratio={:.2} errors={:.0}",
                ratio(&raw, |round| round.per_second),
                middle(|round| round.per_second),
                middle(|round| round.client_us),
                middle(|round| round.server_us),
                ratio(single, |round| round.server_us),
                rounds.iter().map(|round| round.errors).sum::<f64>(),
            );
        }
    }

    /// Charges through the crate.
    fn limited(&self, limiter: &Limited, tasks: usize) -> Round {
        let limiter = limiter.clone();
        self.drive(tasks, move |key| {
            let asked = limiter.check(&Charge::new(key));
            async move { asked.await.is_ok() }
        })
    }

    /// One EVALSHA of the lean script for each decision.
    fn raw(&self, tasks: usize) -> Round {
        let (connection, digest) = (self.raw.clone(), self.lean.clone());
        self.drive(tasks, move |key| {
            let (mut connection, call) = (connection.clone(), lean_call(&digest, &key, 1));
            async move { call.query_async::<(i64, i64, i64)>(&mut connection).await.is_ok() }
        })
    }

    /// So many tasks, each of which asks again as soon as it is answered.
    fn drive<F: Future<Output = bool> + Send>(
        &self,
        tasks: usize,
        ask: impl Fn(Arc<str>) -> F + Clone + Send + 'static,
    ) -> Round {
        let each = DECISIONS / tasks;
        let errors = Arc::new(AtomicUsize::new(0));
        let (client, servers) = (processor(std::process::id()), self.servers());
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (names, ask, errors) = (Arc::clone(&self.keys), ask.clone(), Arc::clone(&errors));
            let asking = async move {
                let mut random = fastrand::Rng::with_seed(task as u64);
                for _ in 0..each {
                    if !ask(Arc::clone(&names[random.usize(..KEYS)])).await {
                        errors.fetch_add(1, Relaxed);
                    }
                }
            };
            running.spawn_on(asking, self.runtime.handle());
        }
        self.runtime.block_on(running.join_all());
        let decisions = (each * tasks) as f64;
        Round {
            per_second: decisions / begun.elapsed().as_secs_f64(),
            client_us: (processor(std::process::id()) - client).as_secs_f64() * 1e6 / decisions,
            server_us: (self.servers() - servers) * 1e6 / decisions,
            errors: errors.load(Relaxed) as f64,
        }
    }

    /// The processor time of all servers, in seconds.
    fn servers(&self) -> f64 {
        let servers = self.cluster.nodes.iter().chain([&self.plain]);
        servers.map(|server| processor(server.id()).as_secs_f64()).sum()
    }
}

/// Charges a key. Where no connection is ready in time, the machine is busy.
async fn first_charge(limiter: Limited, key: Arc<str>) {
    let charge = Charge::new(key).cost(DEBT);
    for _ in 0..TRIES {
        if limiter.check(&charge).await.is_ok() {
            return;
        }
    }
    panic!("no decision about a first charge");
}

/// Charges every key once.
async fn charge_all<F>(keys: &[Arc<str>], ask: impl Fn(Arc<str>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for chunk in keys.chunks(500) {
        let mut tasks = JoinSet::new();
        for key in chunk {
            tasks.spawn(ask(Arc::clone(key)));
        }
        tasks.join_all().await;
    }
}
