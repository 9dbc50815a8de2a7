//! `Pool::ready` finds a server that does not decide, before a charge does. The clock of the caller
//! takes the place of one that scripts may not read.

use redis::cmd;
use tower_sluice::redis::AllAtOnce;
#[cfg(feature = "redisson")]
use tower_sluice_redisson::{Rate, Redisson};

use super::*;

use support::faults::*;

/// The error of `ready`, but for one of a machine that is too busy.
async fn not_ready(pool: &Pool) -> Error {
    loop {
        let error = pool.ready().await.expect_err("a server that does not decide");
        if error.kind() == ErrorKind::Configuration {
            return error;
        }
        assert_ne!(error.kind(), ErrorKind::State, "{error:#}");
    }
}

/// A server whose user `app` lacks a right.
async fn server_without(right: &str) -> (Server, String) {
    let server = Server::with(&[]);
    let mut admin = server.connection().await;
    run(&mut admin, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", right]).await;
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    (server, url)
}

// Case 176.
#[tokio::test]
async fn a_clock_that_scripts_may_not_read_is_found_and_replaced() {
    let (server, url) = server_without("-time").await;
    let pool = Pool::connect(&url).expect("an address");
    let error = not_ready(&pool).await;
    let shown = format!("{error:#}");
    println!("fault case=176 error={shown}");
    // The setting, and the words of the server.
    assert!(shown.contains("Pool::caller_clock") && shown.contains("clock=caller"), "{shown}");
    assert!(shown.contains("script"), "{shown}");
    let error = trouble(&over(pool.clone()).decision_timeout(LONG), &one()).await;
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:#}");

    let bucket = |name: &str, pool: &Pool| {
        let quota = Quota::new(2, Duration::from_secs(10));
        Redis::new(name, TokenBucket::new(quota), pool.clone()).decision_timeout(LONG)
    };
    let by_address = Pool::connect(&format!("{url}?clock=caller")).expect("an address");
    for (name, pool) in [("setter", pool.caller_clock()), ("address", by_address)] {
        eventually("a server that is ready", async || pool.ready().await.is_ok()).await;
        let limiter = bucket(name, &pool);
        for admitted in [true, true, false] {
            assert_eq!(limiter.check(&one()).await.expect("a decision").is_admitted(), admitted);
        }
        limiter.block("other", Duration::from_secs(9)).await.expect("a block");
        // The server's clock may differ, so that a key stays an hour longer. After a reset it stays
        // ten minutes more, for settlements of charges from before it.
        let mut admin = server.connection().await;
        let mut left = async || -> u64 {
            let key = format!("sluice:{name}:tb1:{{key}}");
            cmd("PTTL").arg(key).query_async(&mut admin).await.expect("a time")
        };
        let before = left().await;
        assert!((3_500_000..3_700_000).contains(&before), "{before}");
        limiter.reset("key").await.expect("a reset");
        assert!(limiter.check(&one()).await.expect("a decision").is_admitted());
        let after = left().await;
        assert!((4_100_000..4_300_000).contains(&after), "{after}");

        let log = SlidingLog::new(Quota::new(1, Duration::from_secs(10)));
        let log = Redis::new(format!("log-{name}"), log, pool.clone()).decision_timeout(LONG);
        let both = AllAtOnce::new((bucket("both", &pool), log), |charge| {
            [charge.clone(), Charge::new(charge.key().to_owned())]
        });
        assert!(both.check(&Charge::new(name)).await.expect("a decision").is_admitted());
        #[cfg(feature = "redisson")]
        {
            let redisson = Redisson::new(pool.clone()).decision_timeout(LONG);
            let redisson = redisson.default_rate(Rate::overall(1, Duration::from_secs(10)));
            assert!(redisson.check(&Charge::new(name)).await.expect("a decision").is_admitted());
        }
    }
    assert!(Pool::connect(&format!("{url}?clock=other")).is_err());
}

/// The first call of a script sends its text, so that the second one fails.
// Case 179.
#[tokio::test]
async fn a_server_that_refuses_digests_is_found_at_the_start() {
    for (right, word) in [("-evalsha", "'evalsha'"), ("-eval", "'eval'")] {
        let (_server, url) = server_without(right).await;
        let error = not_ready(&Pool::connect(&url).expect("an address")).await;
        let shown = format!("{error:#}");
        assert!(shown.contains("NOPERM") && shown.contains(word), "{shown}");
    }
}

// Case 176.
#[tokio::test]
async fn each_master_of_a_cluster_is_asked_at_the_start() {
    let cluster = Cluster::start().await;
    let pool = Pool::connect(&cluster.url()).expect("an address");
    eventually("a cluster that is ready", async || pool.ready().await.is_ok()).await;
    let refuse = ["SETUSER", "default", "-time"];
    let _: String = cluster.ask(1, cmd("ACL").arg(&refuse[..])).await;
    let error = not_ready(&pool).await;
    assert!(format!("{error:#}").contains("Pool::caller_clock"), "{error:#}");
}

#[tokio::test]
async fn a_connection_of_the_application_is_asked_at_the_start() {
    let (_server, url) = server_without("-eval").await;
    let client = redis::Client::open(url).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    not_ready(&Pool::from_connection(connection)).await;
}
