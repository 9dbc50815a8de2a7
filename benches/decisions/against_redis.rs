//! The cost of a decision in Redis, beside a competitor's: a lean script of a dozen lines
//! (`benches/lean.lua`), called once for each decision on one shared connection.

use redis::aio::MultiplexedConnection;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Quota, Redis};

use crate::measure::{Cost, median, median_of, redis_benchmark};
use crate::site::{KEYS, Site};

const ROUNDS: usize = 7;
const TASKS: [usize; 5] = [1, 16, 64, 256, 1_024];
const BATCH: usize = 64;

/// No key fills its bucket, and none expires: each owes the time of its first charge.
pub(crate) const BURST: u64 = 10_000_000_000;
pub(crate) const DEBT: u64 = 3_000_000_000;

/// Prints a line for each case and number of tasks.
pub(crate) fn run() {
    let bench = Bench::new();
    for tasks in TASKS {
        bench.compare(tasks);
    }
    bench.compare_server_times();
    bench.weigh();
}

struct Bench {
    site: Site,
    limiter: Redis<TokenBucket>,
    connection: MultiplexedConnection,
    /// The crate's script for checks, and the yardstick.
    own: String,
    lean: String,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new();
        let limiter = site.limiter(TokenBucket::new(Quota::per_second(1_000_000).burst(BURST)));
        let [checks, _] =
            tower_sluice::redis::script_texts(&TokenBucket::new(Quota::per_second(1)));
        let (connection, own, lean) = site.runtime.block_on(async {
            let mut connection = site.server.connection().await;
            let mut digests = Vec::new();
            for text in [&checks, include_str!("../lean.lua")] {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(text);
                let digest: String = load.query_async(&mut connection).await.expect("a digest");
                digests.push(digest);
            }
            let [own, lean] = digests.try_into().expect("two digests");
            (connection, own, lean)
        });
        let bench = Self { site, limiter, connection, own, lean };
        // Every key is there before anything is timed.
        bench.site.charge_all(&bench.limiter, DEBT);
        bench.site.runtime.block_on(async {
            let mut connection = bench.connection.clone();
            for key in &*bench.site.keys {
                let call = lean_call(&bench.lean, key, DEBT);
                call.exec_async(&mut connection).await.expect("a first charge");
            }
        });
        bench
    }

    /// One number of tasks: the rounds are interleaved, and so are the cases within them.
    fn compare(&self, tasks: usize) {
        let decisions = if tasks == 1 { 5_000 } else { 60_000 };
        let [mut bare, mut many, mut hot, mut peer] = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            bare.push(self.bare(tasks, decisions));
            peer.push(self.benchmark_lean(tasks, KEYS, decisions));
            many.push(self.limited(tasks, decisions, KEYS));
            hot.push(self.limited(tasks, decisions, 1));
        }
        let cases =
            [("redis", &many), ("redis_hot", &hot), ("evalsha", &bare), ("redis_benchmark", &peer)];
        for (case, rounds) in cases {
            let ratio = |cost: fn(&Cost) -> f64| {
                median_of(rounds.iter().zip(&bare).map(|(one, other)| cost(one) / cost(other)))
            };
            let Cost { p50_us, p99_us, client_us, server_us, allocs, per_second } = median(rounds);
            println!(
                "bench case={case} tasks={tasks} ratio={:.2} p50_ratio={:.2} client_us={client_us:.2} \
                 server_us={server_us:.2} allocs={allocs:.1} p50_us={p50_us:.0} spread={:.2} per_second={per_second:.0}",
                ratio(|cost| cost.per_second),
                ratio(|cost| cost.p50_us),
                p99_us / p50_us,
            );
        }
    }

    /// The server's own time for a decision: alone, 64 in a call, and the yardstick's. All are sent
    /// by `redis-benchmark`, so that no client counts.
    fn compare_server_times(&self) {
        let [mut lean, mut alone, mut many, mut hot] = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            lean.push(self.benchmark_lean(16, KEYS, 60_000));
            alone.push(self.benchmark_own(1, 16, KEYS, 60_000));
            many.push(self.benchmark_own(BATCH, 4, KEYS, 4_000));
            hot.push(self.benchmark_own(BATCH, 4, 1, 8_000));
        }
        for (case, rounds) in [("lean", &lean), ("alone", &alone), ("batch", &many), ("hot", &hot)]
        {
            let by = if ["batch", "hot"].contains(&case) { BATCH as f64 } else { 1.0 };
            let ratio =
                rounds.iter().zip(&lean).map(|(one, lean)| one.server_us / by / lean.server_us);
            println!(
                "bench case=server_{case} server_us={:.2} ratio={:.2}",
                median(rounds).server_us / by,
                median_of(ratio),
            );
        }
    }

    /// Measures the memory of a key, beside a plain SET of as many digits under the same name.
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
        self.site.charge_all(&self.limiter, 1);
        let ours = self.site.used_memory() - empty;
        let each = KEYS as f64;
        println!("bench case=bytes token_bucket={:.0} set={:.0}", ours / each, plain / each);
    }

    /// `redis-benchmark` with the crate's script, and `batch` charges in each call. Of many keys
    /// each charge has its own.
    fn benchmark_own(&self, batch: usize, depth: usize, keys: usize, calls: usize) -> Cost {
        let names = if keys == 1 { 1 } else { batch };
        let mut command = vec![String::from("EVALSHA"), self.own.clone(), names.to_string()];
        let key = if keys == 1 { "000000000000" } else { "__rand_int__" };
        command.extend((0..names).map(|_| format!("sluice:bench:tb1:{{{key}}}")));
        let charges = (batch / names).to_string();
        command.extend(
            [
                "",
                "60000000",
                "1",
                "1",
                &BURST.to_string(),
                "0",
                &names.to_string(),
                "1",
                &charges,
                "1",
                "0",
            ]
            .map(String::from),
        );
        redis_benchmark(&self.site.server, &command, calls, depth, keys)
    }

    /// `redis-benchmark` with the yardstick, `depth` calls at a time on one connection.
    fn benchmark_lean(&self, depth: usize, keys: usize, calls: usize) -> Cost {
        let burst = BURST.to_string();
        let command = ["EVALSHA", &self.lean, "1", "lean:__rand_int__", "1", &burst, "1"];
        redis_benchmark(&self.site.server, &command.map(String::from), calls, depth, keys)
    }

    /// Charges through the crate.
    fn limited(&self, tasks: usize, decisions: usize, keys: usize) -> Cost {
        self.site.charge(&self.limiter, tasks, decisions, keys)
    }

    /// The yardstick: one bare EVALSHA of the lean script for each decision.
    fn bare(&self, tasks: usize, decisions: usize) -> Cost {
        let (connection, digest) = (self.connection.clone(), self.lean.clone());
        self.site.drive(tasks, decisions, KEYS, move |key| {
            ask_lean(connection.clone(), lean_call(&digest, &key, 1))
        })
    }
}

/// Loads the yardstick's script. Returns its digest.
pub(crate) async fn load_lean(connection: &mut MultiplexedConnection) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(include_str!("../lean.lua"));
    load.query_async(connection).await.expect("a digest")
}

/// Makes a call of the yardstick, which admits.
pub(crate) async fn ask_lean(mut connection: MultiplexedConnection, call: redis::Cmd) {
    let told: (i64, i64, i64) = call.query_async(&mut connection).await.expect("a reply");
    assert_eq!(told.0, 1, "the yardstick admits");
}

/// A call of the yardstick.
pub(crate) fn lean_call(digest: &str, key: &str, cost: u64) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(digest).arg(1).arg(format!("lean:{key}")).arg(&[1, BURST, cost]);
    call
}
