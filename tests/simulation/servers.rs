//! The servers of a world: one, a primary with replicas and sentinels, or a cluster; and what
//! happens to them.

mod cluster;
mod replication;
mod sentinels;
mod strike;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;
use tower_sluice::Pool;
use tower_sluice::redis::PoolBuilder;

use self::cluster::Cluster;
use self::replication::Group;
use self::sentinels::{SERVICE, Sentinels};
pub use self::strike::{ANYWHERE, Strike, StrikeKind};
use super::host::{Host, Reach};
use super::network::Network;
use super::server::{Role, Server};
use super::socket::Dialer;

/// The password of all servers that want one, and another.
const PASSWORD: &str = "secret";
const OTHER_PASSWORD: &str = "changed";

/// The servers that there are.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    One,
    Sentinels {
        replicas: usize,
        sentinels: usize,
    },
    Cluster {
        masters: usize,
        /// Of each master: none or one.
        replicas: usize,
    },
}

/// The record of which server decides.
enum Order {
    One,
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// The servers of a world.
pub struct Servers {
    group: Rc<Group>,
    order: Order,
    /// The password that clients log in with.
    password: Option<&'static str>,
    /// The number of connections of a pool to a server.
    connections: u32,
    /// Roles and slots change one at a time.
    turns: Mutex<()>,
    tasks: RefCell<Vec<AbortHandle>>,
}

impl Servers {
    /// Starts the servers, and adds them to the network. Half of the seeds have a password.
    pub fn start(topology: &Topology, network: &Rc<Network>, seed: u64) -> Rc<Self> {
        let mut dice = Rng::with_seed(seed);
        let password = dice.bool().then_some(PASSWORD);
        let (masters, replicas) = match *topology {
            Topology::One => (1, 0),
            Topology::Sentinels { replicas, .. } => (1, replicas),
            Topology::Cluster { masters, replicas } => (masters, masters * replicas),
        };
        let start = |number| {
            let name = if number == 0 { "redis".into() } else { format!("redis-{}", number + 1) };
            let mut server = Server::new(&name, 6_379);
            server.password = password.map(str::to_owned);
            Host::new(server)
        };
        let group = Group::new((0..masters + replicas).map(start).collect(), dice.u64(..));
        for replica in masters..masters + replicas {
            group.demote(replica, replica % masters);
        }
        let order = match *topology {
            Topology::One => Order::One,
            Topology::Sentinels { sentinels, .. } => {
                Order::Sentinels(Sentinels::new(&group, sentinels))
            }
            Topology::Cluster { masters, .. } => Order::Cluster(Cluster::new(&group, masters)),
        };
        let follow = |one| spawn_local(Rc::clone(&group).follow(one)).abort_handle();
        let has_replicas = replicas > 0;
        // Two connections that wait for a primary wake in an order that tokio draws.
        let connections = match order {
            Order::Sentinels(_) => 1,
            Order::One | Order::Cluster(_) => dice.u32(1..=2),
        };
        let tasks = (0..group.hosts.len()).filter(|_| has_replicas).map(follow).collect();
        let servers = Rc::new(Self {
            group: Rc::clone(&group),
            order,
            password,
            connections,
            turns: Mutex::default(),
            tasks: RefCell::new(tasks),
        });
        for host in servers.all_hosts() {
            let name = host.server().address.0.clone();
            network.add_host(&name, Rc::clone(host));
        }
        servers
    }

    /// A pool of connections to them, as a client makes it.
    pub fn pool(&self, dialer: &Dialer) -> PoolBuilder {
        self.pool_by(dialer, false)
    }

    /// The same, by RESP2 if a world says so: only a lone server may be a proxy.
    pub fn pool_by(&self, dialer: &Dialer, is_resp2: bool) -> PoolBuilder {
        let protocol = if is_resp2 { "?protocol=resp2" } else { "" };
        let login = self.password.map_or_else(String::new, |password| format!(":{password}@"));
        let url = match &self.order {
            Order::One => format!("redis://{login}redis{protocol}"),
            Order::Sentinels(sentinels) => {
                let others = 2..=sentinels.hosts.len();
                let nodes: String =
                    others.map(|number| format!("&node=sentinel-{number}:26379")).collect();
                format!("redis-sentinel://{login}sentinel-1?sentinelServiceName={SERVICE}{nodes}")
            }
            Order::Cluster(_) => {
                let second = self.group.hosts.get(1).map_or("", |_| "?node=redis-2:6379");
                format!("redis-cluster://{login}redis{second}")
            }
        };
        let dialer = dialer.clone();
        let pool = Pool::builder(&url).expect("an address").size(self.connections);
        pool.dial(move |host, _| dialer.clone().dial(host))
    }

    /// The servers that store, by name.
    pub fn hosts(&self) -> Vec<(String, Rc<Host>)> {
        let named = |host: &Rc<Host>| (host.server().address.0.clone(), Rc::clone(host));
        self.group.hosts.iter().map(named).collect()
    }

    /// The sentinels, too.
    fn all_hosts(&self) -> impl Iterator<Item = &Rc<Host>> {
        let sentinels = match &self.order {
            Order::Sentinels(sentinels) => &sentinels.hosts[..],
            _ => &[],
        };
        self.group.hosts.iter().chain(sentinels)
    }

    /// The server that stores at a place. Every second place is the primary that sentinels name.
    fn number_at(&self, place: u32) -> usize {
        let place = place as usize;
        match &self.order {
            Order::Sentinels(sentinels) if place.is_multiple_of(2) => sentinels.primary(),
            Order::Sentinels(_) => place / 2 % self.group.hosts.len(),
            _ => place % self.group.hosts.len(),
        }
    }

    /// The same for what may happen to a sentinel, too.
    fn host_at(&self, place: u32) -> &Rc<Host> {
        match &self.order {
            Order::Sentinels(sentinels) if place % 4 == 3 => {
                &sentinels.hosts[place as usize / 4 % sentinels.hosts.len()]
            }
            _ => &self.group.hosts[self.number_at(place)],
        }
    }

    /// Lets something happen, and returns once it is over and healed.
    pub async fn strike(self: &Rc<Self>, strike: &Strike) {
        let Strike { kind, place, lasting } = *strike;
        match &self.order {
            Order::Sentinels(sentinels) => self.strike_sentinels(sentinels, strike).await,
            Order::Cluster(cluster) => self.strike_cluster(cluster, strike).await,
            Order::One => {}
        }
        let number = self.number_at(place);
        let host = &self.group.hosts[number];
        match kind {
            StrikeKind::CrashKeepingData => self.crash(number, true, lasting).await,
            StrikeKind::CrashLosingData => self.crash(number, false, lasting).await,
            StrikeKind::Stand => {
                let host = self.host_at(place);
                host.stand_for(lasting);
                while !host.standing().is_zero() {
                    sleep(host.standing()).await;
                }
            }
            StrikeKind::ScriptFlush => host.server().flush_scripts(),
            StrikeKind::Loading => {
                host.crash(true);
                host.go_on();
                host.server().is_loading = true;
                sleep(lasting).await;
                host.server().is_loading = false;
            }
            StrikeKind::OutOfMemory => {
                host.server().is_out_of_memory = true;
                sleep(lasting).await;
                host.server().is_out_of_memory = false;
            }
            StrikeKind::Refuse => {
                self.host_at(place).cut();
                self.lose(self.host_at(place), Reach::Refuses, lasting).await;
            }
            StrikeKind::Silence => {
                self.lose(self.host_at(place), Reach::Silent, lasting).await;
            }
            StrikeKind::NameFails => {
                self.host_at(place).cut();
                self.lose(self.host_at(place), Reach::Nameless, lasting).await;
            }
            StrikeKind::DialerPanics => {
                self.host_at(place).cut();
                self.lose(self.host_at(place), Reach::Panics, lasting).await;
            }
            StrikeKind::Login => {
                host.server().password = Some(OTHER_PASSWORD.to_owned());
                host.cut();
                sleep(lasting).await;
                host.server().password = self.password.map(str::to_owned);
            }
            StrikeKind::ReadOnly if self.group.primary_of(number).is_none() => {
                let of = ("nobody".to_owned(), 6_379);
                host.server().role = Role::Replica { of };
                sleep(lasting).await;
                if self.group.primary_of(number).is_none() {
                    host.server().role = Role::Primary;
                }
            }
            StrikeKind::ClockStepForward => host.step_clock(micros_of(lasting)),
            StrikeKind::ClockStepBack => host.step_clock(-micros_of(lasting)),
            StrikeKind::ClockDrift => {
                host.drift_clock(i64::from(place % 200) - 100);
                sleep(lasting).await;
                host.drift_clock(0);
            }
            _ => {}
        }
        self.group.catch_up().await;
    }

    async fn strike_sentinels(&self, sentinels: &Sentinels, strike: &Strike) {
        let Strike { kind, place, lasting } = *strike;
        let sentinel = place as usize % sentinels.hosts.len();
        let (one_bit, other_bit) = (place.is_multiple_of(2), (place / 2).is_multiple_of(2));
        let has_replicas = self.group.hosts.len() > 1;
        match kind {
            StrikeKind::Failover if has_replicas => {
                let _turn = self.turns.lock().await;
                sentinels.fail_over(one_bit, other_bit, lasting).await;
            }
            StrikeKind::ManualFailover if has_replicas => {
                let _turn = self.turns.lock().await;
                sentinels.fail_over_by_hand(one_bit).await;
            }
            StrikeKind::SplitBrain if has_replicas => {
                let _turn = self.turns.lock().await;
                sentinels.split(lasting).await;
            }
            StrikeKind::SentinelCrash => {
                sentinels.hosts[sentinel].crash(true);
                sleep(lasting).await;
                sentinels.hosts[sentinel].go_on();
            }
            StrikeKind::SentinelStale if has_replicas => {
                sentinels.mislead(sentinel, lasting).await;
            }
            _ => {}
        }
    }

    async fn strike_cluster(&self, cluster: &Cluster, strike: &Strike) {
        let Strike { kind, place, lasting } = *strike;
        let node = place as usize % self.group.hosts.len();
        let bit = strike.dies();
        match kind {
            StrikeKind::MoveSlots => {
                let _turn = self.turns.lock().await;
                cluster.move_slots(place, lasting).await;
            }
            StrikeKind::TakeSlots => {
                let _turn = self.turns.lock().await;
                cluster.take_slots(place).await;
            }
            StrikeKind::ClusterDown => cluster.go_down((!bit).then_some(node), lasting).await,
            StrikeKind::NodeFailover => {
                let _turn = self.turns.lock().await;
                cluster.fail_over(place, bit, lasting).await;
            }
            StrikeKind::SlotMapStale => cluster.mislead(node, lasting).await,
            _ => {}
        }
    }

    /// Ends a server for a time in which nobody takes its place.
    async fn crash(&self, number: usize, keeps_data: bool, lasting: Duration) {
        let host = &self.group.hosts[number];
        host.crash(keeps_data);
        sleep(lasting).await;
        host.go_on();
        if !keeps_data {
            self.group.copy_all(number);
        }
        if let Order::Cluster(cluster) = &self.order {
            cluster.rejoin(number).await;
        }
    }

    /// Lets a host be out of reach for a time.
    async fn lose(&self, host: &Host, reach: Reach, lasting: Duration) {
        host.set_reach(reach);
        sleep(lasting).await;
        host.set_reach(Reach::Open);
    }

    /// Ends what the servers do by themselves.
    pub fn shut_down(&self) {
        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("little")
}
