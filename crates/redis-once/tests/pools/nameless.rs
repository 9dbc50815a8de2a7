//! The names by which servers of a cluster announce themselves, and servers without a name.

use std::future::ready;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::AtomicBool;

use redis::cmd;
use servers::cluster::{SLOTS, keys_in};
use servers::{free_port, program};

use super::*;

const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
const NAME: &str = "one.example";

/// Three masters on one port of three addresses, which prefer names. Only the first has one, so
/// they call the others `?`.
struct Nameless {
    _nodes: Vec<Server>,
    port: u16,
}

impl Nameless {
    /// `None`: this server knows no names, as Redis 6.2.
    async fn start() -> Option<Self> {
        if is_redis_6() {
            return None;
        }
        let port = Self::port();
        let node = |(number, host): (usize, &&str)| {
            let mut options = vec!["--bind", host, "--cluster-enabled", "yes"];
            options.extend(["--cluster-announce-ip", host]);
            options.extend(["--cluster-preferred-endpoint-type", "hostname"]);
            if number == 0 {
                options.extend(["--cluster-announce-hostname", NAME]);
            }
            Server::on(|| port, &options)
        };
        let cluster = Self { _nodes: HOSTS.iter().enumerate().map(node).collect(), port };
        for (number, host) in HOSTS.iter().enumerate() {
            let (first, last) = (number as u32 * 16_384 / 3, (number as u32 + 1) * 16_384 / 3 - 1);
            let slots: Vec<u32> = (first..=last).collect();
            cluster.run(host, cmd("CLUSTER").arg("ADDSLOTS").arg(slots)).await;
            let mut epoch = cmd("CLUSTER");
            cluster.run(host, epoch.arg("SET-CONFIG-EPOCH").arg(number + 1)).await;
            if number > 0 {
                let mut meet = cmd("CLUSTER");
                cluster.run(HOSTS[0], meet.arg("MEET").arg(host).arg(port)).await;
            }
        }
        for host in HOSTS {
            eventually("all nodes know all", async || {
                let mut connection = cluster.connection(host).await;
                let info: String =
                    cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.expect("info");
                let slots: String = format!(
                    "{:?}",
                    cmd("CLUSTER")
                        .arg("SLOTS")
                        .query_async::<redis::Value>(&mut connection)
                        .await
                        .expect("slots")
                );
                info.contains("cluster_state:ok") && slots.contains(NAME) && slots.contains('?')
            })
            .await;
        }
        Some(cluster)
    }

    /// Waits until a server's answer has these words.
    async fn until(&self, host: &str, [command, part]: [&str; 2], words: &str) {
        eventually(words, async || {
            let answer: String = self.ask(host, cmd(command).arg(part)).await;
            answer.contains(words)
        })
        .await;
    }

    async fn ask<T: redis::FromRedisValue>(&self, host: &str, command: &redis::Cmd) -> T {
        command.query_async(&mut self.connection(host).await).await.expect("an answer")
    }

    /// A port that is free on all addresses, and whose bus is.
    fn port() -> u16 {
        let is_free = |port: u16| HOSTS.iter().all(|host| TcpListener::bind((*host, port)).is_ok());
        loop {
            let port = free_port();
            if let Some(bus) = port.checked_add(10_000)
                && is_free(port)
                && is_free(bus)
            {
                return port;
            }
        }
    }

    async fn connection(&self, host: &str) -> MultiplexedConnection {
        let client = redis::Client::open((host, self.port)).expect("an address");
        client.get_multiplexed_async_connection().await.expect("a connection")
    }

    async fn run(&self, host: &str, command: &mut redis::Cmd) {
        command.exec_async(&mut self.connection(host).await).await.expect("done");
    }

    async fn keys(&self, host: &str) -> usize {
        let mut connection = self.connection(host).await;
        cmd("DBSIZE").query_async(&mut connection).await.expect("a number")
    }

    /// A pool whose resolver knows the one name.
    fn pool(&self) -> Pool {
        let resolve = |host: String, port| {
            let host = if host == NAME { HOSTS[0] } else { &host };
            let address = host.parse::<IpAddr>().map_err(|_| io::ErrorKind::NotFound.into());
            ready(address.map(|address| vec![SocketAddr::from((address, port))]))
        };
        let builder = Pool::builder(&format!("redis-cluster://{}:{}", HOSTS[1], self.port));
        builder.and_then(|builder| builder.resolver(resolve).build()).expect("a pool")
    }
}

fn is_redis_6() -> bool {
    let version = std::process::Command::new(program()).arg("--version").output();
    String::from_utf8_lossy(&version.expect("a version").stdout).contains(" v=6.")
}

/// A server that was asked is not the one that it calls `?`.
// Case 36.
#[tokio::test]
async fn servers_without_a_name_are_found_by_their_address() {
    let Some(cluster) = Nameless::start().await else { return };
    let counter = over(cluster.pool()).within(Duration::from_secs(3));
    let keys: Vec<_> = keys_in(0..=SLOTS - 1).take(300).collect();
    let mut asked = JoinSet::new();
    for key in &keys {
        asked.spawn(counter.add_to(key));
    }
    let failed = asked.join_all().await.into_iter().filter(Result::is_err).count();
    println!("fault case=36 nameless keys=300 failed={failed}");
    assert_eq!(failed, 0);
    let mut held = 0;
    for host in HOSTS {
        held += cluster.keys(host).await;
    }
    assert_eq!(held, keys.len(), "each key is on one server");

    // The old server of a slot redirects to `?`.
    let slot = SLOTS / 2;
    let key = keys_in(slot..=slot).next().expect("a key");
    let mut connection = cluster.connection(HOSTS[2]).await;
    let id: String = cmd("CLUSTER").arg("MYID").query_async(&mut connection).await.expect("an id");
    for host in HOSTS {
        let mut give = cmd("CLUSTER");
        cluster.run(host, give.arg("SETSLOT").arg(slot).arg("NODE").arg(&id)).await;
    }
    let before = cluster.keys(HOSTS[2]).await;
    let answer = counter.add_to(&key).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(cluster.keys(HOSTS[2]).await, before + 1);
}

/// No later map and no wait ends that, so it is no outage.
// Case 182.
#[tokio::test]
async fn a_server_that_redirects_to_itself_is_set_up_wrongly() {
    for (host, url) in [("127.0.0.1", "127.0.0.1"), ("", "localhost")] {
        let connections = Arc::default();
        let port = fake::redirecting_to_itself(host, Arc::clone(&connections)).await;
        let pool = Pool::connect(&format!("redis-cluster://{url}:{port}")).unwrap();
        let counter = over(pool);
        until(&counter, ErrorKind::Configuration).await;
        let (begun, before) = (Instant::now(), connections.load(Relaxed));
        for _ in 0..100 {
            let error = counter.add().await.unwrap_err();
            assert_ne!(error.kind(), ErrorKind::Infrastructure, "{url}: {error:?}");
            sleep(Duration::from_millis(5)).await;
        }
        let (connects, seconds) =
            (connections.load(Relaxed) - before, begun.elapsed().as_secs_f64());
        assert!(connects as f64 <= 3.0 + 12.0 * seconds, "{url}: {connects} in {seconds} s");
    }
}

/// As a managed cluster that replaces its nodes: the name of a master leads to its successor, while
/// the old master lives on, and redirects to the name.
// Case 182.
#[tokio::test]
async fn a_name_that_leads_to_the_promoted_replica_is_followed() {
    let Some((cluster, promoted)) = Renamed::start().await else { return };
    let counter = over(cluster.pool(&promoted)).within(LONG);
    for _ in 0..4 {
        counter.add().await.expect("an answer");
    }
    cluster.promote().await;
    promoted.store(true, Relaxed);
    // Both connections still lead to the old master.
    for count in 5..9 {
        let answer = counter.add().await;
        assert_eq!(answer.as_ref().ok(), Some(&count), "{answer:?}");
    }
}

/// Until then, no call fails open.
// Case 182.
#[tokio::test]
async fn a_name_that_is_late_is_followed_when_it_moves() {
    let Some((cluster, promoted)) = Renamed::start().await else { return };
    let counter = over(cluster.pool(&promoted));
    until_well(&counter).await;
    cluster.promote().await;
    until(&counter, ErrorKind::Configuration).await;
    for _ in 0..50 {
        let error = counter.add().await.expect_err("the name is late");
        assert_ne!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
        sleep(Duration::from_millis(5)).await;
    }
    promoted.store(true, Relaxed);
    until_well(&counter).await;
}

/// A master and its replica, which announce the same name.
struct Renamed(Nameless);

impl Renamed {
    /// Returns the flag that moves the name to the replica, too. `None`: this server knows no names.
    async fn start() -> Option<(Self, Arc<AtomicBool>)> {
        if is_redis_6() {
            return None;
        }
        let port = Nameless::port();
        let node = |host: &&str| {
            let mut options = vec!["--bind", host, "--cluster-enabled", "yes"];
            options.extend(["--cluster-announce-ip", host, "--cluster-announce-hostname", NAME]);
            options.extend(["--cluster-preferred-endpoint-type", "hostname"]);
            Server::on(|| port, &options)
        };
        let nodes = Nameless { _nodes: HOSTS[..2].iter().map(node).collect(), port };
        let slots: Vec<u16> = (0..SLOTS).collect();
        nodes.run(HOSTS[0], cmd("CLUSTER").arg("ADDSLOTS").arg(slots)).await;
        nodes.run(HOSTS[1], cmd("CLUSTER").arg("MEET").arg(HOSTS[0]).arg(port)).await;
        let id: String = nodes.ask(HOSTS[0], cmd("CLUSTER").arg("MYID")).await;
        let mut replicate = cmd("CLUSTER");
        replicate.arg("REPLICATE").arg(id);
        eventually("the nodes have met", async || {
            replicate.exec_async(&mut nodes.connection(HOSTS[1]).await).await.is_ok()
        })
        .await;
        nodes.until(HOSTS[1], ["INFO", "replication"], "master_link_status:up").await;
        for host in &HOSTS[..2] {
            nodes.until(host, ["CLUSTER", "INFO"], "cluster_state:ok").await;
        }
        Some((Self(nodes), Arc::default()))
    }

    /// A pool of two connections that reads the map from any of the two.
    fn pool(&self, moved: &Arc<AtomicBool>) -> Pool {
        let moved = Arc::clone(moved);
        let resolve = move |_, port| {
            let address: IpAddr = HOSTS[usize::from(moved.load(Relaxed))].parse().expect("one");
            ready(Ok(vec![SocketAddr::from((address, port))]))
        };
        let builder = Pool::builder(&format!("redis-cluster://{NAME}:{}", self.0.port));
        builder.and_then(|builder| builder.size(2).resolver(resolve).build()).expect("a pool")
    }

    async fn promote(&self) {
        self.0.run(HOSTS[1], cmd("CLUSTER").arg("FAILOVER")).await;
        self.0.until(HOSTS[1], ["INFO", "replication"], "role:master").await;
        self.0.until(HOSTS[0], ["INFO", "replication"], "role:slave").await;
    }
}
