//! The callers that are served in each second while others hang up: the table of the documentation
//! of `acquire`, over Redis. It needs a quiet machine.

use tower_sluice::algorithm::SlidingLog;
use tower_sluice::limiter::Boxed;
use tower_sluice::{LimiterExt, Pool, Quota, Redis};

use support::Server;
use support::served::{PATIENCE, bucket, charge, served};

pub(crate) async fn run() {
    let server = Server::start();
    for (patience, max_wait) in PATIENCE {
        for count in [1, 3] {
            let pools = || (0..count).map(|_| Pool::connect(&server.url()).unwrap());
            let buckets = pools().map(|pool| Redis::new("bucket", bucket(), pool).boxed());
            let log = || SlidingLog::new(Quota::per_second(50));
            let logs = pools().map(|pool| Redis::new("log", log(), pool).boxed());
            let all: [(_, Vec<Boxed>); 2] =
                [("bucket", buckets.collect()), ("log", logs.collect())];
            for (name, limiters) in all {
                limiters[0].reset("supplier").await.unwrap();
                let each = served(&limiters, patience, move || charge("supplier", max_wait)).await;
                println!("{patience} ms, {max_wait} ms, {name}, {count} processes: {each:?}");
                assert!(each.iter().all(|served| *served >= 48), "{each:?}");
            }
        }
    }
}
