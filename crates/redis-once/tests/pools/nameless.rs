//! The names by which servers of a cluster announce themselves, and servers without a name.

use std::future::ready;
use std::io;
use std::net::{IpAddr, TcpListener};

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
        let version = std::process::Command::new(program()).arg("--version").output();
        if String::from_utf8_lossy(&version.expect("a version").stdout).contains(" v=6.") {
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
// Case 36.
#[tokio::test]
async fn a_server_that_redirects_to_itself_is_set_up_wrongly() {
    let port = servers::fake::redirecting_to_itself().await;
    let pool = Pool::connect(&format!("redis-cluster://127.0.0.1:{port}")).unwrap();
    let counter = over(pool);
    until(&counter, ErrorKind::Configuration).await;
    for _ in 0..20 {
        let error = counter.add().await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    }
}
