//! Proxies on sockets, which answer as twemproxy and Envoy do, before one and two real servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use support::Server;
use support::faults::*;
use support::key_proxy::{KeyProxy, Kind};
use tokio::task::JoinSet;
use tower_sluice::algorithm::{AnyAlgorithm, TokenBucket};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::store::{Part, Rules, Together, decide};
use tower_sluice::{Charge, ErrorKind, Limiter, LimiterExt, Pool, Quota, Redis};

const KINDS: [Kind; 2] = [Kind::Twemproxy, Kind::Envoy];

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::with(&[])).collect()
}

fn ports(servers: &[Server]) -> Vec<u16> {
    servers.iter().map(Server::port).collect()
}

/// A limiter of `limit` units an hour, whose decisions have time.
fn hourly(name: &str, limit: u64, pool: Pool) -> Redis<TokenBucket> {
    let quota = Quota::new(limit, Duration::from_secs(360_000));
    Redis::new(name, TokenBucket::new(quota), pool).decision_timeout(LONG)
}

/// Charges every key from many tasks at once, so that batches have many keys. Returns the number
/// of charges that were admitted, by key.
async fn admitted<L>(limiter: &L, keys: usize, each: usize) -> HashMap<String, usize>
where
    L: Limiter + Clone + Send + Sync + 'static,
    L::Future: Send,
{
    let mut tasks = JoinSet::new();
    for number in 0..keys * each {
        let (limiter, key) = (limiter.clone(), format!("key {}", number % keys));
        tasks.spawn(async move {
            let decision = limiter.check(&Charge::new(key.clone())).await;
            (key, decision.expect("a decision").is_admitted())
        });
    }
    let mut admitted = HashMap::new();
    for (key, is_admitted) in tasks.join_all().await {
        *admitted.entry(key).or_default() += usize::from(is_admitted);
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_counts_once_behind_a_proxy() {
    for kind in KINDS {
        for count in [1, 2] {
            let servers = servers(count);
            let proxy = KeyProxy::before(kind, &ports(&servers)).await;
            let limiter = hourly("api", 10, Pool::connect(&proxy.url()).expect("an address"));
            let admitted = admitted(&limiter, 100, 20).await;
            let (all, over) = (
                admitted.values().sum::<usize>(),
                admitted.values().filter(|of| **of > 10).count(),
            );
            println!("{kind:?} servers={count} admitted={all} of 1000, keys over={over}");
            assert_eq!((all, over), (1_000, 0), "{kind:?} before {count}");
            for server in &servers {
                let mut connection = server.connection().await;
                let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
                assert!(keys > 10, "the keys are shared: {keys}");
            }
        }
    }
}

/// The members have other keys, and so other servers.
#[tokio::test(flavor = "multi_thread")]
async fn members_count_once_behind_a_proxy() {
    for kind in KINDS {
        for is_ready in [false, true] {
            let servers = servers(2);
            let proxy = KeyProxy::before(kind, &ports(&servers)).await;
            let pool = Pool::connect(&proxy.url()).expect("an address");
            if is_ready {
                pool.ready().await.expect("a connection");
            }
            let user = hourly("user", 1_000, pool.clone());
            let address = hourly("address", 10, pool);
            let both =
                AllAtOnce::new((user, address), |charge| [charge.clone(), Charge::new("all")]);
            let admitted: usize = admitted(&Arc::new(both), 40, 1).await.values().sum();
            println!("{kind:?} ready={is_ready} user x address admitted={admitted} of 10");
            assert_eq!(admitted, 10, "{kind:?}");
        }
    }
}

/// Limits that decide together in pairs.
struct Pairs(Vec<Redis<AnyAlgorithm>>);

impl Rules for Pairs {
    fn together(&self, parts: &[Part]) -> Option<Together> {
        let limits: Vec<_> = parts.iter().map(|part| &self.0[part.place]).collect();
        (parts.len() == 2).then(|| Together::of_redis(&limits))?
    }
}

/// The first that reaches the proxy is a peek at a pair, whose keys have other servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_peek_at_several_limits_waits_to_know_the_servers() {
    for kind in KINDS {
        let servers = servers(2);
        let proxy = KeyProxy::before(kind, &ports(&servers)).await;
        for request in 0..10 {
            let pool = Pool::connect(&proxy.url()).expect("an address");
            let bucket = AnyAlgorithm::from(TokenBucket::new(Quota::per_hour(100)));
            let limit = |name| Redis::new(name, bucket, pool.clone()).decision_timeout(LONG);
            let pairs = Pairs(["a", "b", "c", "d"].map(limit).into());
            let part = |(place, limit): (usize, &Redis<_>)| {
                Part::new(place, limit.clone().boxed(), Charge::new(format!("{request} {place}")))
            };
            let parts = pairs.0.iter().enumerate().map(part).collect();
            let decided = decide(parts, &pairs).await;
            assert!(decided.is_ok_and(|one| one.outcome().is_admitted()), "{kind:?} {request}");
        }
    }
}

/// The setting is for proxies that do not show themselves, and for given connections.
#[tokio::test(flavor = "multi_thread")]
async fn several_servers_are_noticed_or_set() {
    let servers = servers(2);
    let proxy = KeyProxy::before(Kind::Silent, &ports(&servers)).await;
    let error = Pool::connect(&proxy.url()).unwrap().ready().await.expect_err("two servers");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("limits would count twice"), "{error}");
    let client = redis::Client::open(proxy.url()).unwrap();
    // Its own timer ends no call, however busy the machine is.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let given = client.get_multiplexed_async_connection_with_config(&patient).await;
    let given = given.expect("a connection");
    let given = Pool::from_connection(given);
    let error = given.ready().await.expect_err("two servers");
    assert!(error.to_string().contains("limits would count twice"), "{error}");
    let by_url = Pool::connect(&format!("{}?servers=several", proxy.url())).unwrap();
    for (name, pool) in [("given", given.several_servers(true)), ("by URL", by_url)] {
        pool.ready().await.expect("a connection");
        let all: usize = admitted(&hourly(name, 10, pool), 100, 20).await.values().sum();
        assert_eq!(all, 1_000, "{name}");
    }
    // The prefix is in each key, and is not a hash tag.
    let tagged = Pool::connect(&proxy.url()).unwrap().prefix("{prod}");
    assert!(tagged.ready().await.is_err_and(|error| error.to_string().contains("count twice")));
    // One server needs no setting.
    let proxy = KeyProxy::before(Kind::Silent, &ports(&servers)[..1]).await;
    Pool::connect(&proxy.url()).unwrap().ready().await.expect("one server");
}

/// One address before the shards of a server, as that of Redis Enterprise: it says of itself that it
/// is no cluster, and takes the keys of one slot in a call.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_keys_of_one_slot_is_noticed() {
    let node = Server::with(&["--cluster-enabled", "yes"]);
    let mut admin = node.connection().await;
    let mut assign = redis::cmd("CLUSTER");
    assign.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>());
    assign.exec_async(&mut admin).await.expect("its slots");
    eventually("it has all slots", async || {
        let info = redis::cmd("CLUSTER").arg("INFO").query_async::<String>(&mut admin).await;
        info.expect("facts").contains("cluster_state:ok")
    })
    .await;
    let endpoint = KeyProxy::before(Kind::Silent, &[node.port()]).await;
    let error = Pool::connect(&endpoint.url()).unwrap().ready().await.expect_err("a slot");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("one slot"), "{error}");
    let pool = Pool::connect(&format!("{}?servers=several", endpoint.url())).unwrap();
    pool.ready().await.expect("a connection");
    let all: usize = admitted(&hourly("slots", 10, pool), 100, 20).await.values().sum();
    assert_eq!(all, 1_000);
}

#[tokio::test]
async fn a_server_that_refuses_hello_in_any_words_is_asked_by_resp2() {
    let server = Server::with(&[]);
    for text in [
        "-ERR unsupported command 'HELLO'\r\n",
        "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
        "-NOPROTO sorry, this protocol version is not supported\r\n",
        "-NOPERM this user has no permissions to run the 'hello' command\r\n",
        "-DENIED we do not do that here\r\n",
        "-what is that\r\n",
        "",
    ] {
        let proxy = KeyProxy::before(Kind::Refusing(text), &[server.port()]).await;
        let pool = Pool::connect(&format!("{}/3", proxy.url())).unwrap();
        pool.ready().await.unwrap_or_else(|error| panic!("{text:?}: {}", chain(&error)));
        until_well(&over(pool)).await;
        // Insisting on RESP3 gets the refusal, and not an outage that FailOpen admits in.
        let pool = Pool::connect(&format!("{}?protocol=resp3", proxy.url())).unwrap();
        let error = pool.ready().await.expect_err("no RESP3");
        assert_ne!(error.kind(), ErrorKind::Infrastructure, "{text:?}: {}", chain(&error));
    }
}

#[tokio::test]
async fn a_proxy_with_a_password_is_asked_by_resp2() {
    let server = Server::with(&[]);
    let proxy = KeyProxy::before(Kind::Guarded("secret"), &[server.port()]).await;
    let address = format!("127.0.0.1:{}", proxy.port());
    for login in [":secret@", "default:secret@"] {
        let pool = Pool::connect(&format!("redis://{login}{address}")).unwrap();
        pool.ready().await.unwrap_or_else(|error| panic!("{login}: {}", chain(&error)));
        until_well(&over(pool)).await;
    }
    for (login, code) in [("", "NOAUTH"), (":wrong@", "WRONGPASS")] {
        let pool = Pool::connect(&format!("redis://{login}{address}")).unwrap();
        let error = pool.ready().await.expect_err("no login");
        assert_eq!(error.kind(), ErrorKind::Configuration, "{}", chain(&error));
        assert!(chain(&error).contains(code), "{}", chain(&error));
    }
}

/// A charge stays in the queue that counts the calls behind a proxy.
#[tokio::test]
async fn a_charge_whose_keys_move_behind_a_proxy_is_an_outage() {
    let moving = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    let server = support::fake::answering(moving.to_vec()).await;
    for kind in KINDS {
        let proxy = KeyProxy::before(kind, &[server.port()]).await;
        let error = trouble(&yearly(&proxy.url()).decision_timeout(LONG), &one()).await;
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{kind:?}: {}", chain(&error));
        assert!(chain(&error).contains("moving the key"), "{kind:?}: {}", chain(&error));
    }
}

/// Until a write is refused with `READONLY`: the proxy may have ended at the question.
#[tokio::test]
async fn a_proxy_that_closes_is_asked_for_its_role_once() {
    let server = Server::with(&[]);
    let mut proxy = KeyProxy::before(Kind::Twemproxy, &[server.port()]).await;
    let limiter = yearly(&format!("{}?protocol=resp2", proxy.url()));
    until_well(&limiter).await;
    assert!(proxy.hellos() > 0);
    let port = proxy.end().await;
    until(&limiter, ErrorKind::Infrastructure).await;
    proxy = KeyProxy::on(port, Kind::Twemproxy, &[server.port()]).await;
    until_well(&limiter).await;
    assert_eq!(proxy.hellos(), 0);
    run(&mut server.connection().await, &["REPLICAOF", "127.0.0.1", "1"]).await;
    eventually("a question", async || limiter.check(&one()).await.is_err() && proxy.hellos() > 0)
        .await;
}

#[tokio::test]
async fn what_a_proxy_cannot_do_is_refused_in_a_sentence() {
    let server = Server::with(&[]);
    let twemproxy = KeyProxy::before(Kind::Twemproxy, &[server.port()]).await;
    let envoy = KeyProxy::before(Kind::Envoy, &[server.port()]).await;
    let (one, other) = (twemproxy.port(), envoy.port());
    let table = [
        (format!("redis://127.0.0.1:{one}/1"), "without a database"),
        (format!("redis://127.0.0.1:{one}/1?protocol=resp2"), "without a database"),
        (format!("redis://user:password@127.0.0.1:{one}"), "without a user"),
        (format!("redis://127.0.0.1:{one}?protocol=resp3"), "without protocol=resp3"),
        (format!("redis-cluster://127.0.0.1:{one}"), "neither clusters nor sentinels"),
        (
            format!("redis-sentinel://127.0.0.1:{one}?sentinelServiceName=main"),
            "neither clusters nor sentinels",
        ),
        (format!("redis://127.0.0.1:{other}/1"), "an address without a database"),
        (format!("redis://127.0.0.1:{other}/1?protocol=resp2"), "an address without a database"),
    ];
    for (url, sentence) in table {
        let pool = Pool::builder(&url).unwrap().connect_timeout(LONG).build().unwrap();
        eventually(sentence, async || {
            let error = pool.ready().await.expect_err(&url);
            let is_late = error.kind() != ErrorKind::Configuration;
            assert!(is_late || chain(&error).contains(sentence), "{url}: {}", chain(&error));
            !is_late
        })
        .await;
    }
    assert_eq!(envoy.selects(), 0, "SELECT would stay for all clients");
}

#[tokio::test]
async fn nobody_behind_the_address_is_an_outage() {
    let closing = support::fake::serving(async |_| None).await;
    until(&yearly(&format!("redis://{closing}")), ErrorKind::Infrastructure).await;
}
