//! The servers of an address: a pool never uses servers of another kind than its address says.

use std::future::ready;
use std::sync::atomic::AtomicBool;

use super::*;

use servers::in_a_process_with_files;
use servers::sentinel::{SERVICE, Sentinel};

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

#[tokio::test]
async fn a_cluster_address_of_a_plain_server_gets_no_connection() {
    let server = servers::Server::start();
    let pool = Pool::connect(&format!("redis-cluster://127.0.0.1:{}", server.port())).unwrap();
    let error = pool.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("write redis://"), "{cause}");
}

/// Valkey 9 has several databases in a cluster. Redis says that it has one.
#[tokio::test]
async fn a_cluster_answers_itself_for_its_databases() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    let address = format!("redis-cluster://127.0.0.1:{}/1", server.port());
    let error = Pool::connect(&address).unwrap().ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    assert!(chain(&error).contains("SELECT is not allowed in cluster mode"), "{}", chain(&error));
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
    let counter = over(Pool::connect("redis://localhost:1").unwrap());
    let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let error = runtime.block_on(counter.add()).unwrap_err();
    drop(files);
    assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
}

/// A pool for a name with the addresses of these servers, in this order.
fn named(servers: &[&Server]) -> Pool {
    asked("", servers)
}

/// The same with parameters of the address.
fn asked(query: &str, servers: &[&Server]) -> Pool {
    let addresses: Vec<_> =
        servers.iter().map(|server| SocketAddr::from(([127, 0, 0, 1], server.port()))).collect();
    let builder = Pool::builder(&format!("redis://redis.example{query}")).unwrap();
    builder.resolver(move |_, _| ready(Ok(addresses.clone()))).build().unwrap()
}

/// Options of a server that refuses `HELLO` in words.
const WITHOUT_HELLO: [&str; 3] = ["--rename-command", "HELLO", ""];

/// The ways by which a pool speaks RESP2.
const BY_RESP2: [(&str, &[&str]); 3] =
    [("?protocol=resp2", &[]), ("", &WITHOUT_HELLO), ("?protocol=resp2", &WITHOUT_HELLO)];

/// As the name of a service that leads to all its servers.
// Case 17.
#[tokio::test]
async fn a_name_of_a_replica_and_its_primary_leads_to_the_primary() {
    let primary = Server::start();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    for servers in [[&replica, &primary], [&primary, &replica]] {
        let counter = over(named(&servers)).within(LONG);
        for _ in 0..40 {
            let answer = counter.add().await;
            assert!(answer.is_ok(), "{answer:?}");
        }
    }
    let alone = named(&[&replica]);
    let error = alone.ready().await.expect_err("no primary");
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    assert!(chain(&error).contains("is a replica"), "{}", chain(&error));
    until(&over(alone), ErrorKind::Configuration).await;
}

/// The system may list the same address first for ever.
// Case 183.
#[tokio::test]
async fn an_address_that_hangs_keeps_no_call_from_the_others() {
    let (hanging, well) = (Server::start(), Server::start());
    // The kernel opens sockets for it.
    hanging.signal("STOP");
    let counter = over(named(&[&hanging, &well]));
    until_well(&counter).await;
    hanging.signal("CONT");
    well.signal("STOP");
    until_well(&counter).await;
}

/// As after a rollout: all servers have new addresses, and only the names of the first are known.
// Case 17.
#[tokio::test]
async fn names_lead_to_servers_that_have_all_been_replaced() {
    let (mut old, new) = (Cluster::with(3, 0, 1_000).await, Cluster::with(3, 0, 1_000).await);
    let (ports, moved) = ([old.nodes[0].port(), new.nodes[1].port()], Arc::default());
    let counter = over(moving("redis-cluster://name.example", ports, &moved));
    until_well(&counter).await;
    (0..3).for_each(|node| old.kill(node));
    until(&counter, ErrorKind::Infrastructure).await;
    moved.store(true, Relaxed);
    until_well(&counter).await;

    let (mut old, new) = (Server::start(), Server::start());
    let mut sentinels = [Sentinel::start(old.port()), Sentinel::start(new.port())];
    let (ports, moved) = (sentinels.each_ref().map(|one| one.port), Arc::default());
    let url = format!("redis-sentinel://name.example?sentinelServiceName={SERVICE}");
    let counter = over(moving(&url, ports, &moved));
    until_well(&counter).await;
    sentinels[0].kill();
    old.kill();
    until(&counter, ErrorKind::Infrastructure).await;
    moved.store(true, Relaxed);
    until_well(&counter).await;
}

/// A pool for a name that leads to the first port, and later to the second one. Each other host
/// leads to itself.
fn moving(url: &str, ports: [u16; 2], moved: &Arc<AtomicBool>) -> Pool {
    let moved = Arc::clone(moved);
    let resolve = move |host: String, port| {
        let is_name = host == "name.example";
        let port = if is_name { ports[usize::from(moved.load(Relaxed))] } else { port };
        ready(Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]))
    };
    Pool::builder(url).and_then(|builder| builder.resolver(resolve).build()).expect("a pool")
}

/// Not even one that takes writes.
// Case 17.
#[tokio::test]
async fn by_resp2_nothing_is_sent_to_a_replica() {
    for (query, options) in BY_RESP2 {
        let primary = Server::with(options);
        let port = primary.port().to_string();
        let replica = ["--replicaof", "127.0.0.1", &port, "--replica-read-only"];
        let [refusing, writable] =
            ["yes", "no"].map(|word| Server::with(&[&replica, &[word][..], options].concat()));
        for replica in [&refusing, &writable] {
            let counter = over(asked(query, &[replica, &primary])).within(LONG);
            for _ in 0..20 {
                let answer = counter.add().await;
                assert!(answer.is_ok(), "{query} {options:?}: {answer:?}");
            }
            let alone = asked(query, &[replica]);
            let error = alone.ready().await.expect_err("no primary");
            assert_eq!(error.kind(), ErrorKind::Configuration, "{query} {options:?}: {error:?}");
            assert!(chain(&error).contains("is a replica"), "{}", chain(&error));
            until(&over(alone), ErrorKind::Configuration).await;
        }
        let counter = over(asked(query, &[&primary])).within(LONG);
        assert_eq!(counter.add().await.expect("an answer"), 41, "the primary has counted all");
    }
}

/// `HELLO` needs no right, and `ROLE` does.
#[tokio::test]
async fn a_role_that_nobody_may_ask_for_is_not_needed() {
    for query in ["", "?protocol=resp2"] {
        let mut server = Server::start();
        server.option(&WITHOUT_HELLO);
        server.kill();
        server.restart();
        until_well(&over(asked(query, &[&server]))).await;
    }
}

/// Then a refused write shows the replica, and the pool leaves it for the next address.
// Case 17.
#[tokio::test]
async fn a_replica_that_says_no_role_is_left_when_it_refuses_a_write() {
    let may_not_ask = ["--user", "default", "on", "nopass", "~*", "&*", "+@all", "-role"];
    let options = [&WITHOUT_HELLO[..], &may_not_ask].concat();
    for query in ["", "?protocol=resp2"] {
        let primary = Server::with(&options);
        let port = primary.port().to_string();
        let replica = Server::with(&[&["--replicaof", "127.0.0.1", &port], &*options].concat());
        for servers in [[&replica, &primary], [&primary, &replica]] {
            let counter = over(asked(query, &servers)).within(LONG);
            until_well(&counter).await;
            for _ in 0..20 {
                let answer = counter.add().await;
                assert!(answer.is_ok(), "{query}: {answer:?}");
            }
        }
        let alone = over(asked(query, &[&replica])).within(LONG);
        let error = alone.add().await.expect_err("no primary");
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{query}: {error:?}");
        assert!(chain(&error).contains("READONLY"), "{}", chain(&error));
    }
}

/// A failover in which the name still leads to the old server alone.
#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_an_outage() {
    let server = Server::with(&[]);
    let counter = over(named(&[&server]));
    until_well(&counter).await;
    let mut connection = server.connection().await;
    let _: () =
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).query_async(&mut connection).await.unwrap();
    cut(&mut connection).await;
    until(&counter, ErrorKind::Infrastructure).await;
}

/// Although the replica needs no password, and could look like the primary after a failover.
#[tokio::test]
async fn a_primary_that_refuses_the_client_beside_a_replica_is_no_outage() {
    let replica = Server::with(&["--replicaof", "127.0.0.1", "1"]);
    let primary = Server::with(&["--requirepass", "secret"]);
    let error = named(&[&replica, &primary]).ready().await.expect_err("no login");
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error:?}");
    assert!(chain(&error).contains("NOAUTH"), "{}", chain(&error));
}
