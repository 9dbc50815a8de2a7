//! The servers of a world: one, a primary with replicas and sentinels, or a cluster; and what
//! happens to them.

mod strike;

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;
use tower_sluice::{Pool, PoolBuilder};

pub use self::strike::{Strike, StrikeKind};
use super::network::{Dialer, Host, Network, Reach};
use super::server::{Address, Role, Server};

/// The password of all servers that want one, and another.
const PASSWORD: &str = "secret";
const OTHER_PASSWORD: &str = "changed";

/// Which servers there are.
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

/// The servers of a world.
pub struct Servers {
    topology: Topology,
    data: Vec<Rc<Host>>,
    /// What clients log in with.
    password: Option<&'static str>,
}

fn address(name: &str) -> Address {
    (name.to_owned(), 6_379)
}

impl Servers {
    /// Starts the servers, and adds them to the network.
    pub fn start(topology: &Topology, network: &Rc<Network>, seed: u64) -> Rc<Self> {
        let mut dice = Rng::with_seed(seed);
        let password = dice.bool().then_some(PASSWORD);
        let Topology::One = topology else { todo!("{topology:?}") };
        let mut server = Server::new("redis", 6_379);
        server.password = password.map(str::to_owned);
        let host = Host::new(server);
        network.add_host("redis", Rc::clone(&host));
        Rc::new(Self { topology: topology.clone(), data: vec![host], password })
    }

    /// A pool of connections to them, as a client makes it. It has the builder's defaults.
    pub fn pool(&self, dialer: &Dialer) -> PoolBuilder {
        let login = self.password.map_or_else(String::new, |password| format!(":{password}@"));
        let url = match self.topology {
            Topology::One => format!("redis://{login}redis"),
            _ => todo!(),
        };
        let dialer = dialer.clone();
        let pool = Pool::builder(&url).expect("an address");
        pool.dial(move |host, _| dialer.clone().dial(host))
    }

    /// The servers that store, by name.
    pub fn hosts(&self) -> Vec<(String, Rc<Host>)> {
        let named = |host: &Rc<Host>| (host.server().address.0.clone(), Rc::clone(host));
        self.data.iter().map(named).collect()
    }

    /// Lets something happen, and returns once it is over and healed.
    pub async fn strike(self: &Rc<Self>, strike: &Strike) {
        let host = &self.data[strike.place as usize % self.data.len()];
        let lasting = strike.lasting;
        match strike.kind {
            StrikeKind::CrashKeepingData => crash(host, true, lasting).await,
            StrikeKind::CrashLosingData => crash(host, false, lasting).await,
            StrikeKind::Stand => {
                host.stand_for(lasting);
                sleep(host.standing()).await;
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
                host.set_reach(Reach::Refuses);
                host.cut();
                sleep(lasting).await;
                host.set_reach(Reach::Open);
            }
            StrikeKind::Silence => {
                host.set_reach(Reach::Silent);
                sleep(lasting).await;
                host.set_reach(Reach::Open);
            }
            StrikeKind::NameFails => {
                host.set_reach(Reach::Nameless);
                host.cut();
                sleep(lasting).await;
                host.set_reach(Reach::Open);
            }
            StrikeKind::Login => {
                host.server().password = Some(OTHER_PASSWORD.to_owned());
                host.cut();
                sleep(lasting).await;
                host.server().password = self.password.map(str::to_owned);
            }
            StrikeKind::ReadOnly => {
                host.server().role = Role::Replica { of: address("nobody") };
                sleep(lasting).await;
                host.server().role = Role::Primary;
            }
            StrikeKind::ClockStepForward => host.step_clock(micros_of(lasting)),
            StrikeKind::ClockStepBack => host.step_clock(-micros_of(lasting)),
            StrikeKind::ClockDrift => {
                let gain = i64::from(strike.place % 200) - 100;
                host.drift_clock(gain);
                sleep(lasting).await;
                host.drift_clock(0);
            }
            _ => todo!("{strike:?}"),
        }
    }

    /// Ends what the servers do by themselves.
    pub fn shut_down(&self) {}
}

async fn crash(host: &Host, keeps_data: bool, lasting: Duration) {
    host.crash(keeps_data);
    sleep(lasting).await;
    host.go_on();
}

fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("little")
}
