//! The servers of an address: a pool never uses servers of another kind than its address says.

use tower_sluice::{ErrorKind, Pool};

use support::Server;
use support::faults::*;

// Case 41.
#[tokio::test]
async fn a_plain_address_of_a_cluster_gets_no_connection() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    let pool = Pool::connect(&server.url()).unwrap();
    until(&over(pool.clone()), ErrorKind::Configuration).await;
    let error = pool.ready().await.unwrap_err();
    let why = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(why.contains("write redis-cluster://"), "{why}");
}
