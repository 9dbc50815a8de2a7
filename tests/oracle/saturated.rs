//! Called without pause, an algorithm admits nearly all that its bound allows.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use support::Server;
use support::trial::algorithms::{Site, chosen, pool};
use support::trial::saturated::used;

#[test]
fn asked_without_pause_it_admits_99_percent_of_its_bound() {
    let server = Server::with(&[]);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let pool = pool(&server.url());
        let (mut runs, mut keys) = (JoinSet::new(), 0..);
        for algorithm in chosen() {
            for patience in [0, 200].map(Duration::from_millis) {
                let patience = if algorithm.reserves { patience } else { Duration::ZERO };
                let key: u32 = keys.next().expect("numbers");
                let used = used(algorithm, Site::new(pool.clone()), key.to_string(), patience);
                runs.spawn(async move { (algorithm.name, patience, used.await) });
            }
        }
        for (name, patience, (admitted, most)) in runs.join_all().await {
            println!(
                "oracle algorithm={name} patience={patience:?} admitted={admitted} most={most}"
            );
            assert!(admitted * 100 >= most * 99, "{name}: {admitted} of {most}");
        }
    });
}
