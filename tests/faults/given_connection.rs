//! A connection that the application made: what it decides, and what its trouble looks like.

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tower_sluice::FailOpen;

use super::*;

use support::faults::*;
use support::stats::script_calls;

#[tokio::test]
async fn a_connection_decides_for_many_callers() {
    let server = Server::start();
    let limiter = over(Pool::from_connection(server.connection().await)).decision_timeout(LONG);
    let calls: JoinSet<_> = (0..1_000).map(|_| limiter.check(&one())).collect();
    assert!(calls.join_all().await.iter().all(|answer| answer.as_ref().unwrap().is_admitted()));
    assert_eq!(taken(&server).await, 1_000);
    let mut connection = server.connection().await;
    assert!(script_calls(&mut connection).await < 1_000, "no charges shared a call");
    // Limiters over one connection, and over clones of the pool, share it.
    let pool = Pool::from_connection(connection);
    pool.ready().await.unwrap();
    assert!(over(pool.clone()).check(&one()).await.unwrap().is_admitted());
    assert!(over(pool.prefix("other")).check(&one()).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_lost_connection_stays_lost() {
    let server = Server::start();
    let limiter = over(Pool::from_connection(server.connection().await));
    until_well(&limiter).await;
    let mut connection = server.connection().await;
    cut(&mut connection).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    for _ in 0..100 {
        assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
    }
    assert!(limiter.or_else(FailOpen).check(&one()).await.is_ok());
}

#[tokio::test]
async fn a_connection_manager_connects_again() {
    let mut server = Server::start();
    let config = ConnectionManagerConfig::new().set_min_delay(Duration::from_millis(10));
    let client = redis::Client::open(server.url()).unwrap();
    let manager = ConnectionManager::new_with_config(client, config).await.unwrap();
    let limiter = over(Pool::from_connection(manager));
    until_well(&limiter).await;
    server.kill();
    until(&limiter, ErrorKind::Infrastructure).await;
    server.restart();
    until_well(&limiter).await;
}

#[tokio::test]
async fn a_late_reply_is_read_and_its_units_come_back() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let client = redis::Client::open(proxy.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let limiter = over(Pool::from_connection(connection));
    until_well(&limiter).await;
    let before = taken(&server).await;
    proxy.set(Fault::Hold);
    let answer = ask(&limiter).await;
    assert!(answer.is_err(), "{answer:?}");
    proxy.set(Fault::None);
    eventually("the unit of a caller who left", async || taken(&server).await == before).await;
    // Answers are in order afterwards.
    assert_eq!(limiter.check(&one()).await.unwrap().remaining(), Some(MILLION - before - 1));
}
