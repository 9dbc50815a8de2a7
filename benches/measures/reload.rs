//! The requests that run while 50 tables of policies are exchanged in ten seconds: none fails.

use std::time::Duration;

use tower_sluice::Pool;
use tower_sluice_policies::Policies;

use support::Server;
use support::swaps::{HOURLY, swap_under_load, table};

pub(crate) async fn run() {
    let server = Server::start();
    let pool = Pool::connect(&server.url()).unwrap();
    let over_redis = Policies::builder().redis(pool).decision_timeout(Duration::from_secs(20));
    for (store, builder) in [("memory", Policies::builder()), ("redis", over_redis)] {
        let policies = builder.build(&table(HOURLY, "fixed_window")).unwrap();
        let pause = Duration::from_millis(200);
        let (answered, slowest) = swap_under_load(policies, 64, 50, pause).await;
        println!("{store}: swaps=50 tasks=64 answered={answered} failed=0 slowest={slowest:?}");
    }
}
