//! The units that are lost where members of `AllAtOnce` decide in turn, since their keys lie on
//! different servers: a member admits and the next one refuses.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, Limiter, LimiterExt, Pool, Quota, Redis};

use support::Server;

const PATIENT: Duration = Duration::from_secs(20);
const UNITS: u64 = 1_000_000;

fn user(pool: &Pool) -> Redis<TokenBucket> {
    let quota = Quota::new(UNITS, Duration::from_secs(300 * 3_600));
    Redis::new("user", TokenBucket::new(quota), pool.clone()).decision_timeout(PATIENT)
}

pub(crate) async fn run() {
    let server = Server::start();
    let mut asking = JoinSet::new();
    for task in 0..8_u64 {
        let pool = Pool::connect(&server.url()).unwrap().by_hash_slot();
        let scarce = TokenBucket::new(Quota::per_second(2_000));
        let scarce = Redis::new("scarce", scarce, pool.clone()).decision_timeout(PATIENT);
        let both = AllAtOnce::new((user(&pool), scarce), |charge: &Charge| {
            [charge.clone(), Charge::new("all")]
        });
        asking.spawn(async move {
            let mut admitted = 0_u64;
            for number in 0..4_000 {
                let charge = Charge::new(if task % 2 == 0 { "hot" } else { "warm" });
                let decision = both.check(&charge).await.unwrap();
                admitted += u64::from(decision.is_admitted());
                if number % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            admitted
        });
    }
    let admitted: u64 = asking.join_all().await.into_iter().sum();
    let pool = Pool::connect(&server.url()).unwrap();
    // For the refunds on their way.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut taken = 0;
    for key in ["hot", "warm"] {
        taken += UNITS - user(&pool).peek(key).await.unwrap().remaining().unwrap();
    }
    println!(
        "in turn: admitted={admitted} of 32000, taken={taken}, lost={:.1} % of admissions",
        (taken - admitted) as f64 * 100.0 / admitted as f64
    );
}
