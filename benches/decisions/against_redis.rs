//! What a decision in Redis costs, beside `redis-benchmark` sending the same script's single
//! calls as deep as there are tasks, and beside one bare EVALSHA for each decision on one
//! shared connection.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, Quota, Redis};

use crate::measure::{Cost, median, median_of, redis_benchmark};
use crate::site::{KEYS, Site};

const ROUNDS: usize = 7;
const TASKS: [usize; 5] = [1, 16, 64, 256, 1_024];
const BATCH: usize = 64;

/// Prints a line for each case and number of tasks.
pub(crate) fn run() {
    let bench = Bench::new();
    for tasks in TASKS {
        bench.compare(tasks);
    }
    bench.compare_batches("many", KEYS);
    bench.compare_batches("hot", 1);
    bench.weigh();
}

struct Bench {
    site: Site,
    limiter: Redis<TokenBucket>,
    connection: MultiplexedConnection,
    digest: String,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new();
        let limiter = site.limiter(TokenBucket::new(Quota::per_second(1_000_000)));
        let script = format!(
            "{}\n{}\n{}\nreturn run(token_bucket)\n",
            include_str!("../../scripts/head.lua"),
            include_str!("../../scripts/token_bucket.lua"),
            include_str!("../../scripts/tail.lua"),
        );
        let (connection, digest) = site.runtime.block_on(async {
            let mut connection = site.server.connection().await;
            let mut load = redis::cmd("SCRIPT");
            let digest = load.arg("LOAD").arg(script).query_async(&mut connection).await;
            (connection, digest.expect("a digest"))
        });
        let bench = Self { site, limiter, connection, digest };
        // Every key is there before anything is timed.
        bench.benchmark(BATCH, 4, KEYS, 4_000);
        bench
    }

    /// One number of tasks: the rounds are interleaved, and so are the cases within them.
    fn compare(&self, tasks: usize) {
        let decisions = if tasks == 1 { 5_000 } else { 60_000 };
        let [mut bare, mut many, mut hot, mut peer] = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            peer.push(self.benchmark(1, tasks, KEYS, decisions));
            bare.push(self.bare(tasks, decisions));
            many.push(self.limited(tasks, decisions, KEYS));
            hot.push(self.limited(tasks, decisions, 1));
        }
        for (case, rounds) in [("redis", &many), ("redis_hot", &hot), ("evalsha", &bare)] {
            let ratio = |cost: fn(&Cost) -> f64, to: &[Cost]| {
                median_of(rounds.iter().zip(to).map(|(one, other)| cost(one) / cost(other)))
            };
            let Cost { p50_us, p99_us, client_us, server_us, allocs, per_second } = median(rounds);
            println!(
                "bench case={case} tasks={tasks} ratio={:.2} p50_ratio={:.2} client_us={client_us:.2} \
                 server_us={server_us:.2} allocs={allocs:.1} p50_us={p50_us:.0} spread={:.2} per_second={per_second:.0}",
                ratio(|cost| cost.per_second, &peer),
                ratio(|cost| cost.p50_us, &bare),
                p99_us / p50_us,
            );
        }
    }

    /// Batches sent by `redis-benchmark`, beside single calls by it and charges through the crate.
    fn compare_batches(&self, case: &str, keys: usize) {
        let [mut single, mut batch, mut ours] = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            single.push(self.benchmark(1, 256, keys, 60_000));
            batch.push(self.benchmark(BATCH, 256 / BATCH, keys, 2_000));
            ours.push(self.limited(256, 60_000, keys));
        }
        let ratio = |cost: fn(&Cost) -> f64, one: &[Cost], to: &[Cost], by: f64| {
            median_of(one.iter().zip(to).map(|(one, to)| cost(one) / cost(to) / by))
        };
        println!(
            "bench case=batch_{case} server_ratio={:.2} to_redis_benchmark={:.2}",
            ratio(|cost| cost.server_us, &batch, &single, BATCH as f64),
            ratio(|cost| cost.per_second, &ours, &batch, BATCH as f64),
        );
    }

    /// What a key weighs, beside a plain SET of as many digits under the same name.
    fn weigh(&self) {
        self.site.flush();
        let empty = self.site.used_memory();
        self.site.runtime.block_on(async {
            let mut connection = self.connection.clone();
            for key in &*self.site.keys {
                let mut set = redis::cmd("SET");
                set.arg(format!("sluice:bench:tb1:{{{key}}}"))
                    .arg(1_767_225_600_333_333_i64)
                    .arg("PX")
                    .arg(600_000);
                set.exec_async(&mut connection).await.expect("set");
            }
        });
        let plain = self.site.used_memory() - empty;
        self.site.flush();
        let empty = self.site.used_memory();
        self.site.runtime.block_on(async {
            for chunk in self.site.keys.chunks(1_000) {
                let mut tasks = JoinSet::new();
                for key in chunk {
                    tasks.spawn(self.limiter.check(&Charge::new(Arc::clone(key))));
                }
                tasks.join_all().await;
            }
        });
        let ours = self.site.used_memory() - empty;
        let each = KEYS as f64;
        println!("bench case=bytes token_bucket={:.0} set={:.0}", ours / each, plain / each);
    }

    /// `redis-benchmark`, with `batch` keys in each call.
    fn benchmark(&self, batch: usize, depth: usize, keys: usize, calls: usize) -> Cost {
        let mut command = vec![String::from("EVALSHA"), self.digest.clone(), batch.to_string()];
        let key = if keys == 1 { "000000000000" } else { "__rand_int__" };
        command.extend((0..batch).map(|_| format!("sluice:bench:tb1:{{{key}}}")));
        command.extend(
            ["", "60000000", "1", "1", "1000000", &batch.to_string(), "1", "0"].map(String::from),
        );
        redis_benchmark(&self.site.server, &command, calls, depth, keys)
    }

    /// Charges through the crate.
    fn limited(&self, tasks: usize, decisions: usize, keys: usize) -> Cost {
        self.site.charge(&self.limiter, tasks, decisions, keys)
    }

    /// One bare EVALSHA for each.
    fn bare(&self, tasks: usize, decisions: usize) -> Cost {
        let (connection, digest) = (self.connection.clone(), self.digest.clone());
        self.site.drive(tasks, decisions, KEYS, move |key| {
            let mut connection = connection.clone();
            let mut call = redis::cmd("EVALSHA");
            call.arg(&digest).arg(1).arg(format!("sluice:bench:tb1:{{{key}}}")).arg("");
            call.arg(&[60_000_000, 1, 1, 1_000_000]).arg(&[1, 1, 0]);
            async move {
                call.query_async::<redis::Value>(&mut connection).await.map(drop).expect("a reply");
            }
        })
    }
}
