//! Connections that end within a reply, at each of its bytes: that is the network, and no reply.

use redis::aio::ConnectionManager;
use redis_once::bb8_redis::{RedisConnectionManager, bb8};

use super::*;

/// The number of connections that are cut side by side.
const AT_ONCE: usize = 64;

/// More bytes than any conversation of these tests has.
const ENDLESS: usize = 4_096;

/// The connections over a proxy: of an address of each form, and of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Server,
    Cluster,
    Sentinel,
    Connection,
    Manager,
    Bb8,
}

impl Way {
    /// A pool of one connection, so that the next call goes over the one that is cut.
    async fn pool(self, proxy: &Proxy) -> Pool {
        let url = proxy.url();
        let client = || redis::Client::open(url.as_str()).expect("an address");
        match self {
            Self::Server => one_connection(&url),
            Self::Cluster => one_connection(&url.replace("redis:", "redis-cluster:")),
            Self::Sentinel => {
                let sentinel = fake::sentinel(proxy.port(), 1).await;
                one_connection(&servers::sentinel::url(&[sentinel]))
            }
            Self::Connection => {
                let connection = client().get_multiplexed_async_connection().await;
                Pool::from_connection(connection.expect("a connection"))
            }
            Self::Manager => {
                let manager = ConnectionManager::new(client()).await;
                Pool::from_connection(manager.expect("a connection"))
            }
            Self::Bb8 => {
                let manager = RedisConnectionManager::new(url).expect("an address");
                let pool = bb8::Pool::builder().max_size(1).build(manager).await;
                Pool::from_bb8(pool.expect("a pool"))
            }
        }
    }
}

fn one_connection(url: &str) -> Pool {
    Pool::builder(url).expect("an address").size(1).build().expect("a pool")
}

/// Checks that each of these errors, each after so many bytes, is of the infrastructure.
fn all_are_infrastructure(what: &str, errors: &[Error]) {
    assert!(!errors.is_empty(), "{what}: nothing was cut");
    let mut others = Vec::new();
    for (bytes, error) in errors.iter().enumerate() {
        if error.kind() != ErrorKind::Infrastructure {
            others.push(format!("{bytes}: {:?} {}", error.kind(), chain(error)));
        }
    }
    println!("fault case=152 cut={what} bytes={} other_kinds={}", errors.len(), others.len());
    assert!(others.is_empty(), "{what}, cut after these bytes\n{}", others.join("\n"));
}

// Case 152.
#[tokio::test]
async fn a_reply_that_is_cut_is_infrastructure() {
    let server = Server::for_pool_that_pings();
    let mut cluster = Cluster::with(1, 0, 15_000).await;
    let proxies =
        (Proxy::before(server.port()).await, Proxy::before(cluster.nodes[0].port()).await);
    cluster.nodes[0].option(&["--cluster-announce-port", &proxies.1.port().to_string()]);
    cluster.kill(0);
    cluster.nodes[0].restart();
    cluster.until_healthy().await;
    for way in [Way::Server, Way::Cluster, Way::Sentinel, Way::Connection, Way::Manager, Way::Bb8] {
        let proxy = if way == Way::Cluster { &proxies.1 } else { &proxies.0 };
        let (mut errors, mut begun) = (Vec::new(), Instant::now());
        loop {
            proxy.set(Fault::None);
            let counter = over(way.pool(proxy).await).within(LONG);
            let _ = counter.add().await.expect("nothing is cut");
            proxy.set(Fault::CutAfter(errors.len()));
            match counter.add().await {
                Ok(_) => break,
                // A busy machine.
                Err(error) if error.kind() == ErrorKind::Saturation => {
                    assert!(begun.elapsed() < LONG, "{way:?}: {error:?}");
                    continue;
                }
                Err(error) => errors.push(error),
            }
            begun = Instant::now();
            assert!(errors.len() < ENDLESS, "{way:?}: never answered");
        }
        all_are_infrastructure(&format!("{way:?}"), &errors);
    }
}

/// The error of the first answer over connections to `port` that are cut after so many bytes, if
/// there is one.
async fn greeted(way: Way, port: u16, bytes: usize) -> Option<Error> {
    let proxy = Proxy::before(port).await;
    proxy.set(Fault::CutAfter(bytes));
    let url = match way {
        Way::Cluster => proxy.url().replace("redis:", "redis-cluster:"),
        Way::Sentinel => servers::sentinel::url(&[proxy.port()]),
        _ => proxy.url(),
    };
    let pool = one_connection(&url);
    // However little of the machine this process gets, one of the calls lives to see its cut.
    for doubled in 0..12 {
        match over(pool.clone()).within(D * (1 << doubled)).add().await.err() {
            // An attempt to connect that has just begun.
            Some(error) if error.kind() == ErrorKind::Saturation => {}
            error => return error,
        }
    }
    panic!("{way:?}, cut after {bytes} bytes: no call saw it");
}

/// Of a cluster and of sentinels, the first server alone is behind the proxy.
// Case 152.
#[tokio::test]
async fn a_greeting_that_is_cut_is_infrastructure() {
    let server = Server::start();
    let cluster = Cluster::with(1, 0, 15_000).await;
    let ways = [
        (Way::Server, server.port()),
        (Way::Cluster, cluster.nodes[0].port()),
        (Way::Sentinel, fake::sentinel(server.port(), 1).await),
    ];
    for (way, port) in ways {
        let (mut errors, mut is_answered) = (Vec::new(), false);
        while !is_answered {
            let mut calls = JoinSet::new();
            for bytes in errors.len()..errors.len() + AT_ONCE {
                calls.spawn(async move { (bytes, greeted(way, port, bytes).await) });
            }
            let mut batch = calls.join_all().await;
            batch.sort_by_key(|(bytes, _)| *bytes);
            let cut = batch.into_iter().map_while(|(_, error)| error);
            let before = errors.len();
            errors.extend(cut);
            is_answered = errors.len() < before + AT_ONCE;
            assert!(errors.len() < ENDLESS, "{way:?}: never answered");
        }
        all_are_infrastructure(&format!("greeting of {way:?}"), &errors);
    }
}

/// A busy server may be late for the second question as well. That tells nothing of its protocol.
// Case 152.
#[tokio::test]
async fn silence_at_the_second_hello_is_infrastructure() {
    let port = fake::closing_or_silent_at_hello().await;
    let pool = one_connection(&format!("redis://127.0.0.1:{port}/?protocol=resp3"));
    let error = pool.ready().await.expect_err("no greeting");
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{}", chain(&error));
}
