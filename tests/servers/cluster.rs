//! A Redis Cluster of processes of its own: masters with equal shares of the slots, and replicas.

use std::iter::{once, repeat};
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::time::sleep;

use super::{ADMIN, Server, eventually, free_port};

pub const SLOTS: u16 = 16_384;

/// A cluster, whose servers end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The masters as it was made, then a replica of each if there are any.
    pub nodes: Vec<Server>,
    masters: u16,
}

impl Cluster {
    /// Three masters. A slot without a master leaves the others alone.
    pub async fn start() -> Self {
        Self::with(3, 0, 15_000).await
    }

    /// So many masters, each with so many replicas. A master that is silent for `node_timeout` ms
    /// is replaced.
    pub async fn with(masters: u16, replicas: u16, node_timeout: u32) -> Self {
        let mut cluster = Self { nodes: Vec::new(), masters };
        for _ in 0..masters * (1 + replicas) {
            cluster.nodes.push(node(node_timeout));
        }
        for master in 0..masters {
            let slots: Vec<u16> = cluster.share(master).collect();
            cluster.ask::<()>(usize::from(master), cmd("CLUSTER").arg("ADDSLOTS").arg(slots)).await;
            let mut epoch = cmd("CLUSTER");
            cluster
                .ask::<()>(usize::from(master), epoch.arg("SET-CONFIG-EPOCH").arg(master + 1))
                .await;
        }
        for node in 1..cluster.nodes.len() {
            cluster.meet(node).await;
        }
        cluster.until_known().await;
        for replica in usize::from(masters)..cluster.nodes.len() {
            let master = cluster.id(replica % usize::from(masters)).await;
            cluster.ask::<()>(replica, cmd("CLUSTER").arg("REPLICATE").arg(master)).await;
        }
        for replica in usize::from(masters)..cluster.nodes.len() {
            cluster.until_replicates(replica).await;
        }
        cluster.until_healthy().await;
        cluster
    }

    /// Adds a master without slots. Returns its number.
    pub async fn add(&mut self) -> usize {
        self.nodes.push(node(15_000));
        let new = self.nodes.len() - 1;
        self.meet(new).await;
        self.until_known().await;
        self.until_healthy().await;
        new
    }

    /// The slots that a master begins with.
    pub fn share(&self, master: u16) -> RangeInclusive<u16> {
        let first =
            |master: u16| (u32::from(master) * u32::from(SLOTS) / u32::from(self.masters)) as u16;
        first(master)..=first(master + 1) - 1
    }

    /// An address that names the first masters.
    pub fn url(&self) -> String {
        self.url_for("")
    }

    /// The same, of a user who may do everything.
    pub fn admin_url(&self) -> String {
        self.url_for(&format!("{ADMIN}:{ADMIN}@"))
    }

    fn url_for(&self, credentials: &str) -> String {
        let port = |master: u16| self.nodes[usize::from(master)].port();
        let more: Vec<_> =
            (1..self.masters).map(|master| format!("node=127.0.0.1:{}", port(master))).collect();
        format!("redis-cluster://{credentials}127.0.0.1:{}?{}", port(0), more.join("&"))
    }

    /// Asks a node.
    pub async fn ask<T: FromRedisValue>(&self, node: usize, command: &mut Cmd) -> T {
        let mut connection = self.nodes[node].connection().await;
        let answer = command.query_async(&mut connection).await;
        answer.unwrap_or_else(|error| panic!("node {node}: {error}"))
    }

    /// The number of the node that holds a slot, by what a node says that is alive.
    pub async fn master_of(&self, slot: u16) -> usize {
        self.holder_of(slot).await.unwrap_or_else(|| panic!("nobody holds slot {slot}"))
    }

    /// The same. `None`: nobody does at this moment, as while masters change.
    async fn holder_of(&self, slot: u16) -> Option<usize> {
        let asked = self.any_alive();
        let ranges: Vec<Value> = self.ask(asked, cmd("CLUSTER").arg("SLOTS")).await;
        for range in ranges {
            let fields: Vec<Value> = redis::from_redis_value(range).expect("a range");
            let number = |field: &Value| redis::from_redis_value_ref::<u16>(field).expect("a slot");
            if (number(&fields[0])..=number(&fields[1])).contains(&slot) {
                let master: Vec<Value> = redis::from_redis_value_ref(&fields[2]).expect("a node");
                let port = number(&master[1]);
                return self.nodes.iter().position(|node| node.port() == port);
            }
        }
        None
    }

    /// A connection to a node.
    pub async fn connection(&self, node: usize) -> MultiplexedConnection {
        self.nodes[node].connection().await
    }

    /// Moves a slot with all its keys.
    pub async fn move_slot(&self, slot: u16, to: usize) {
        let from = self.begin_move(slot, to).await;
        self.move_keys(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    /// Lets a slot begin to move. Returns the node that it leaves.
    pub async fn begin_move(&self, slot: u16, to: usize) -> usize {
        let from = self.master_of(slot).await;
        let (source, target) = (self.id(from).await, self.id(to).await);
        self.ask::<()>(to, setslot(slot).arg("IMPORTING").arg(source)).await;
        self.ask::<()>(from, setslot(slot).arg("MIGRATING").arg(target)).await;
        from
    }

    /// Moves the keys of a slot that begins to move. Returns how many.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let mut connection = self.connection(from).await;
        let mut moved = 0;
        loop {
            let mut ask = cmd("CLUSTER");
            let keys: Vec<Vec<u8>> = ask
                .arg("GETKEYSINSLOT")
                .arg(slot)
                .arg(100)
                .query_async(&mut connection)
                .await
                .expect("keys");
            if keys.is_empty() {
                return moved;
            }
            moved += keys.len();
            self.move_key(&mut connection, to, &keys).await;
        }
    }

    /// Moves some keys.
    pub async fn move_key<K: redis::ToRedisArgs>(
        &self,
        from: &mut MultiplexedConnection,
        to: usize,
        keys: K,
    ) {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.nodes[to].port()).arg("").arg(0).arg(10_000);
        migrate.arg("AUTH2").arg(ADMIN).arg(ADMIN);
        let answer: String =
            migrate.arg("KEYS").arg(keys).query_async(from).await.expect("migrated");
        assert!(["OK", "NOKEY"].contains(&&*answer), "{answer}");
    }

    /// Lets a slot belong to another node.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let target = self.id(to).await;
        for node in [to, from] {
            self.ask::<()>(node, setslot(slot).arg("NODE").arg(&target)).await;
        }
        // All others would learn it a little later. Replicas take no such order.
        for node in (0..self.nodes.len()).filter(|node| ![to, from].contains(node)) {
            if self.is_alive(node) {
                let mut connection = self.connection(node).await;
                let told = setslot(slot).arg("NODE").arg(&target).exec_async(&mut connection).await;
                drop(told);
            }
        }
    }

    /// Lets masters hold that a slot belongs to one of them. Only those that are alive are asked,
    /// and the one that held it before is not: it may be cut off.
    pub async fn give_slot(&self, slot: u16, to: usize) {
        let (target, before) = (self.id(to).await, self.first_master(slot));
        for node in (0..usize::from(self.masters)).filter(|node| *node != before) {
            self.ask::<()>(node, setslot(slot).arg("NODE").arg(&target)).await;
        }
    }

    /// The number of the master that a slot began with.
    fn first_master(&self, slot: u16) -> usize {
        let holds = |master: &u16| self.share(*master).contains(&slot);
        (0..self.masters).find(holds).expect("a slot").into()
    }

    /// Waits until all nodes agree on the epoch of each. A slot may move again only after that.
    pub async fn until_agreed(&self) {
        eventually("the nodes agree", async || {
            let mut views = Vec::new();
            for node in (0..self.nodes.len()).filter(|node| self.is_alive(*node)) {
                let nodes: String = self.ask(node, cmd("CLUSTER").arg("NODES")).await;
                let of_node = |line: &str| {
                    let fields: Vec<_> = line.split(' ').collect();
                    (fields[0].to_owned(), fields[6].to_owned())
                };
                let mut view: Vec<_> = nodes.lines().map(of_node).collect();
                view.sort();
                views.push(view);
            }
            views.windows(2).all(|pair| pair[0] == pair[1])
        })
        .await;
    }

    /// Kills a node as a crash does.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Lets the replica of a master take over from it, gracefully if it can, and waits for it.
    pub async fn fail_over(&self, master: u16) {
        let slot = *self.share(master).start();
        let old = self.master_of(slot).await;
        // A replica that has just joined may give up, or is not elected in its five seconds. It
        // then asks for no votes for a minute, so it takes over without them. By then, all writes
        // have reached it.
        let ask = async {
            for how in once(&[][..]).chain(repeat(&["TAKEOVER"][..])) {
                let mut connection = self.connection(usize::from(master + self.masters)).await;
                let _ = cmd("CLUSTER").arg("FAILOVER").arg(how).exec_async(&mut connection).await;
                sleep(Duration::from_secs(6)).await;
            }
        };
        tokio::select! {
            () = ask => {}
            _ = self.until_promoted(slot, old) => {}
        }
    }

    /// Waits until another node than `old` holds a slot, by its own account.
    pub async fn until_promoted(&self, slot: u16, old: usize) {
        eventually("a replica is promoted", async || match self.holder_of(slot).await {
            Some(master) if master != old => self.is_healthy(master).await,
            _ => false,
        })
        .await;
    }

    /// Waits until every node knows all, and serves.
    pub async fn until_healthy(&self) {
        for node in (0..self.nodes.len()).filter(|node| self.is_alive(*node)) {
            eventually("a node serves", async || self.is_healthy(node).await).await;
        }
    }

    async fn is_healthy(&self, node: usize) -> bool {
        let info: String = self.ask(node, cmd("CLUSTER").arg("INFO")).await;
        let all = |field: &str| info.lines().any(|line| line == field);
        all("cluster_state:ok") && all(&format!("cluster_slots_ok:{SLOTS}"))
    }

    /// Waits until all know each other.
    async fn until_known(&self) {
        let alive: Vec<_> = (0..self.nodes.len()).filter(|node| self.is_alive(*node)).collect();
        for node in alive.iter().copied() {
            let mut tries = 0;
            eventually("the nodes meet", async || {
                let nodes: String = self.ask(node, cmd("CLUSTER").arg("NODES")).await;
                let is_there =
                    |line: &&str| line.contains(" connected") && !line.contains("handshake");
                // On a busy machine a handshake takes too long, and the nodes forget each other.
                tries += 1;
                if tries % 1_000 == 0 {
                    self.meet(node).await;
                }
                nodes.lines().filter(is_there).count() == alive.len()
            })
            .await;
        }
    }

    async fn until_replicates(&self, replica: usize) {
        eventually("a node replicates", async || {
            let info: String = self.ask(replica, cmd("INFO").arg("replication")).await;
            info.contains("master_link_status:up")
        })
        .await;
    }

    async fn meet(&self, node: usize) {
        let mut meet = cmd("CLUSTER");
        meet.arg("MEET").arg("127.0.0.1").arg(self.nodes[self.any_alive()].port());
        self.ask::<()>(node, &mut meet).await;
    }

    async fn id(&self, node: usize) -> String {
        self.ask(node, cmd("CLUSTER").arg("MYID")).await
    }

    fn any_alive(&self) -> usize {
        (0..self.nodes.len()).find(|node| self.is_alive(*node)).expect("a node that is alive")
    }

    fn is_alive(&self, node: usize) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.nodes[node].port())).is_ok()
    }
}

/// A server that is not in a cluster yet.
fn node(node_timeout: u32) -> Server {
    let options = [
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
        "--cluster-node-timeout",
        &node_timeout.to_string(),
        // Replicas log in at their masters.
        "--masteruser",
        ADMIN,
        "--masterauth",
        ADMIN,
    ];
    Server::limited_on(cluster_port, &options)
}

/// A port whose bus port, 10,000 above, is free too.
fn cluster_port() -> u16 {
    loop {
        let port = free_port();
        if let Some(bus) = port.checked_add(10_000)
            && TcpListener::bind(("127.0.0.1", bus)).is_ok()
        {
            return port;
        }
    }
}

fn setslot(slot: u16) -> Cmd {
    cmd("CLUSTER").arg("SETSLOT").arg(slot).take()
}

/// Keys of the limiter called `name` whose slots a node holds: `slots` are its own.
pub fn keys_in(slots: RangeInclusive<u16>) -> impl Iterator<Item = String> {
    (0..).map(|number| format!("key-{number}")).filter(move |key| slots.contains(&slot_of(key)))
}

/// The slot of a charge's key.
pub fn slot_of(key: &str) -> u16 {
    let sum = key.bytes().fold(0_u16, |sum, byte| {
        (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| match sum >> 15 {
            0 => sum << 1,
            _ => sum << 1 ^ 0x1021,
        })
    });
    sum % SLOTS
}
