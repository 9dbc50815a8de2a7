//! The saving of a lease on one hot key, beside one call for each decision: the crate's own, which
//! gathers charges of the same moment, and the yardstick's.

use redis::aio::MultiplexedConnection;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, Limiter, LimiterExt, Quota, Redis};

use crate::against_redis::lean_call;
use crate::measure::{Cost, median, median_of};
use crate::site::Site;

const ROUNDS: usize = 7;
const TASKS: [usize; 3] = [1, 16, 256];

/// Prints a line for each case and number of tasks.
pub(crate) fn run() {
    let site = Site::new();
    let limiter = site.limiter(TokenBucket::new(Quota::per_second(100_000_000)));
    let (connection, lean) = site.runtime.block_on(async {
        let mut connection = site.server.connection().await;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(include_str!("../lean.lua"));
        let lean: String = load.query_async(&mut connection).await.expect("a digest");
        (connection, lean)
    });
    for tasks in TASKS {
        compare(&site, &limiter, &connection, &lean, tasks);
    }
}

/// One number of tasks: the rounds are interleaved, and so are the cases within them.
fn compare(
    site: &Site,
    limiter: &Redis<TokenBucket>,
    connection: &MultiplexedConnection,
    lean: &str,
    tasks: usize,
) {
    let few = if tasks == 1 { 5_000 } else { 40_000 };
    let [mut bare, mut hot, mut ten, mut hundred] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        bare.push(bare_calls(site, connection, lean, tasks, few));
        hot.push(charge(site, limiter.clone(), tasks, few));
        ten.push(charge(site, limiter.clone().lease(10), tasks, 200_000));
        hundred.push(charge(site, limiter.clone().lease(100), tasks, 500_000));
    }
    let cases = [
        ("evalsha", &bare, 1),
        ("redis_hot", &hot, 1),
        ("lease", &ten, 10),
        ("lease", &hundred, 100),
    ];
    for (case, rounds, units) in cases {
        let to = |others: &[Cost]| {
            let ratios = rounds.iter().zip(others);
            median_of(ratios.map(|(one, other)| one.per_second / other.per_second))
        };
        let Cost { p50_us, p99_us, client_us, server_us, allocs, per_second } = median(rounds);
        println!(
            "bench case={case} units={units} tasks={tasks} ratio={:.2} ratio_hot={:.2} \
             client_us={client_us:.2} server_us={server_us:.2} allocs={allocs:.1} \
             p50_us={p50_us:.2} p99_us={p99_us:.0} per_second={per_second:.0}",
            to(&bare),
            to(&hot),
        );
    }
}

/// The yardstick on one key.
fn bare_calls(
    site: &Site,
    connection: &MultiplexedConnection,
    lean: &str,
    tasks: usize,
    decisions: usize,
) -> Cost {
    let (connection, digest) = (connection.clone(), lean.to_owned());
    site.drive(tasks, decisions, 1, move |key| {
        let (mut connection, call) = (connection.clone(), lean_call(&digest, &key, 1));
        async move {
            let told: (i64, i64, i64) = call.query_async(&mut connection).await.expect("a reply");
            assert_eq!(told.0, 1, "the yardstick admits");
        }
    })
}

/// So many charges of one key.
fn charge<L>(site: &Site, limiter: L, tasks: usize, decisions: usize) -> Cost
where
    L: Limiter<Future: Send> + Clone + Send + Sync + 'static,
{
    site.drive(tasks, decisions, 1, move |key| {
        let asked = limiter.check(&Charge::new(key));
        async move { assert!(asked.await.expect("a decision").is_admitted()) }
    })
}
