//! The servers of an address: a pool never uses servers of another kind than its address says.

use tower_sluice::{Charge, ErrorKind, Limiter, Pool};

use support::faults::*;
use support::{Server, in_a_process_with_files};

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

/// Before its first look-up, the resolver has none of its own files open. Without them it says that
/// nobody has the name.
#[test]
fn a_look_up_without_files_blames_no_server() {
    let test = "addresses::a_look_up_without_files_blames_no_server";
    if in_a_process_with_files(64, test).is_some() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = over(Pool::connect("redis://localhost:1").unwrap());
    let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let error = runtime.block_on(limiter.check(&Charge::new("key"))).unwrap_err();
    drop(files);
    assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
}
