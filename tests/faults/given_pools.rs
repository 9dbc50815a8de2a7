//! Pools that an application brings: which ones will do, and when their connections are left.

use std::sync::atomic::AtomicU16;

use bb8_redis::{RedisConnectionManager, bb8};
use redis::RedisError;

use super::*;

use support::faults::*;

#[tokio::test]
async fn any_bb8_pool_of_cheap_clones_will_do() {
    let server = Server::for_pool_that_pings();
    let manager = RedisConnectionManager::new(server.url()).unwrap();
    let stock = bb8::Pool::builder().build(manager).await.unwrap();
    let limiter = over(Pool::from_bb8(stock)).decision_timeout(LONG);
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
    assert_eq!(taken(&server).await, 1);
}

/// A pool that connects lazily and slowly, over TLS or from afar, is not a server that is away.
#[tokio::test]
async fn a_given_pool_that_connects_for_the_first_time_blames_no_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let lazy = bb8::Pool::builder().build_unchecked(RedisConnectionManager::new(url).unwrap());
    let limiter = over(Pool::from_bb8(lazy)).decision_timeout(Duration::from_millis(50));
    assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::Saturation);
    eventually("the silence of the server", async || {
        limiter.check(&one()).await.unwrap_err().kind() == ErrorKind::Infrastructure
    })
    .await;
}

/// A manager of connections to whichever server is the primary at the moment, as a sentinel's is.
#[derive(Debug)]
struct Primary(Arc<AtomicU16>);

impl bb8::ManageConnection for Primary {
    type Connection = MultiplexedConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let client = redis::Client::open(("127.0.0.1", self.0.load(Relaxed)))?;
        client.get_multiplexed_async_connection().await
    }

    async fn is_valid(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        redis::cmd("PING").exec_async(connection).await
    }

    fn has_broken(&self, _: &mut MultiplexedConnection) -> bool {
        false
    }
}

#[tokio::test]
async fn a_given_pool_leaves_a_demoted_primary() {
    let (old, new) = (Server::for_pool_that_pings(), Server::for_pool_that_pings());
    let port = Arc::new(AtomicU16::new(old.port()));
    let pool = bb8::Pool::builder().min_idle(3).max_size(3).build(Primary(Arc::clone(&port)));
    let limiter = over(Pool::from_bb8(pool.await.unwrap()));
    until_well(&limiter).await;
    let mut connection = old.connection().await;
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &NOWHERE.to_string()]).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    let load = Load::on(&limiter, 8);
    let (before, begun) = (figure(&mut connection, RECEIVED).await, Instant::now());
    sleep(Duration::from_secs(2)).await;
    let connects = figure(&mut connection, RECEIVED).await - before;
    let seconds = begun.elapsed().as_secs_f64();
    port.store(new.port(), Relaxed);
    let back = until_well(&limiter).await;
    load.stop().await;
    // In the end every connection leads to the new primary. One that was made shortly before the
    // switch stays in the pool until a call uses it: if the connection of the calls is cut, the
    // pool returns its next connection.
    let mut to_new = new.connection().await;
    eventually("no connection to the demoted server", async || {
        cut(&mut to_new).await;
        until_well(&limiter).await;
        others(&mut connection).await.is_empty()
    })
    .await;
    println!(
        "fault case=22 given connects={connects} seconds={seconds:.1} back_ms={}",
        back.as_millis()
    );
    assert!(connects as f64 <= 10.0 * seconds, "{connects} in {seconds} s");
}

/// The pool tests an idle connection before it is used.
#[tokio::test]
async fn a_given_pool_sends_nothing_over_an_idle_connection_that_was_closed() {
    let server = Server::for_pool_that_pings();
    let manager = Primary(Arc::new(AtomicU16::new(server.port())));
    let pool = bb8::Pool::builder().max_size(1).build(manager).await.unwrap();
    let limiter = over(Pool::from_bb8(pool)).decision_timeout(LONG);
    let _ = limiter.check(&one()).await.unwrap();
    cut(&mut server.connection().await).await;
    sleep(Duration::from_millis(600)).await;
    let _ = limiter.check(&one()).await.unwrap();
}

#[tokio::test]
async fn a_given_pool_that_tests_nothing_leaves_dead_connections() {
    let server = Server::for_pool_that_pings();
    let manager = Primary(Arc::new(AtomicU16::new(server.port())));
    let pool = bb8::Pool::builder().test_on_check_out(false).max_size(1).build(manager);
    let limiter = over(Pool::from_bb8(pool.await.unwrap()));
    until_well(&limiter).await;
    let mut connection = server.connection().await;
    cut(&mut connection).await;
    until_well(&limiter).await;
}
