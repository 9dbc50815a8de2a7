//! Sentinels, which name the primary, and put a replica in its place.
//!
//! The one that leads publishes `+promoted-slave` and `+switch-master`; the others learn of it
//! later. An old primary that comes back takes itself for one until the sentinels demote it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::host::Host;
use super::super::server::{Address, Mode, Server, Service};
use super::replication::Group;

/// The name of the service.
pub const SERVICE: &str = "main";

pub struct Sentinels {
    group: Rc<Group>,
    pub hosts: Vec<Rc<Host>>,
    /// The number of the last switch.
    epoch: Cell<u64>,
    primary: Cell<usize>,
    /// Held during a failover: there is one at a time.
    failover: Mutex<()>,
}

impl Sentinels {
    pub fn new(group: &Rc<Group>, count: usize) -> Self {
        let primary = group.hosts[0].server().address.clone();
        let service = Service { primary, epoch: 1 };
        let sentinel = |number| {
            let mut server = Server::new(&format!("sentinel-{number}"), 26_379);
            server.mode = Mode::Sentinel(BTreeMap::from([(SERVICE.to_owned(), service.clone())]));
            Host::new(server)
        };
        let hosts = (1..=count).map(sentinel).collect();
        let (epoch, primary, failover) = (Cell::new(1), Cell::new(0), Mutex::default());
        Self { group: Rc::clone(group), hosts, epoch, primary, failover }
    }

    pub fn primary(&self) -> usize {
        self.primary.get()
    }

    fn address(&self, number: usize) -> Address {
        self.group.hosts[number].server().address.clone()
    }

    /// The primary dies or stands. After a time to detect it another takes its place.
    pub async fn fail_over(&self, dies: bool, keeps_data: bool, detection: Duration) {
        let _turn = self.failover.lock().await;
        let group = &self.group;
        let old = self.primary();
        let after = group.draw(1..600);
        if dies {
            group.hosts[old].crash(keeps_data);
        } else {
            group.hosts[old].stand_for(detection + after);
        }
        sleep(detection).await;
        self.switch(false).await;
        if dies {
            sleep(after).await;
            group.hosts[old].go_on();
        }
        group.wait_for(old).await;
        self.demote_late(old).await;
    }

    /// Nothing is lost: the old primary stops writing when the new one has all.
    pub async fn fail_over_by_hand(&self, closes_connections: bool) {
        let _turn = self.failover.lock().await;
        let old = self.primary();
        self.group.wait_for(old).await;
        self.switch(true).await;
        if closes_connections {
            self.group.hosts[old].cut();
        }
        self.group.catch_up().await;
    }

    /// The old primary goes on for a while.
    pub async fn split(&self, lasting: Duration) {
        let _turn = self.failover.lock().await;
        let old = self.primary();
        self.switch(false).await;
        sleep(lasting).await;
        self.group.wait_for(old).await;
        self.demote_late(old).await;
    }

    /// Demotes an old primary that has not learned of its successor, a little later.
    async fn demote_late(&self, old: usize) {
        sleep(self.group.draw(0..300)).await;
        self.group.wait_for(old).await;
        // As sentinels do, in one transaction.
        self.group.demote(old, self.primary());
        self.group.hosts[old].cut();
        self.group.catch_up().await;
    }

    /// Puts the replica that has copied most in the place of the primary, and returns once all
    /// sentinels name it.
    async fn switch(&self, is_planned: bool) {
        let (group, old) = (&self.group, self.primary());
        let new = loop {
            let is_majority = 2 * self.hosts.iter().filter(|host| host.is_up()).count();
            let replicas = group.replicas_of(old).into_iter();
            let best = replicas.filter(|one| group.hosts[*one].is_up());
            match best.max_by_key(|one| group.copied(*one)) {
                Some(best) if is_majority > self.hosts.len() => break best,
                _ => sleep(Duration::from_millis(10)).await,
            }
        };
        let others = group.replicas_of(old);
        if is_planned {
            let end = group.hosts[old].server().book().len();
            group.copy_to(new, end);
        }
        group.promote(new);
        if is_planned {
            group.demote(old, new);
        }
        group.hosts[new].cut();
        self.primary.set(new);
        self.epoch.set(self.epoch.get() + 1);
        let mut told = self.announce(old, new);
        sleep(group.draw(0..50)).await;
        for other in others.into_iter().filter(|other| *other != new) {
            group.wait_for(other).await;
            group.demote(other, new);
        }
        while told.join_next().await.is_some() {}
    }

    /// Lets each sentinel learn of a switch: one at once, the others later.
    fn announce(&self, old: usize, new: usize) -> JoinSet<()> {
        let mut told = JoinSet::new();
        let up = self.hosts.iter().position(|host| host.is_up());
        let (before, after) = (self.address(old), self.address(new));
        let of = format!("@ {SERVICE} {} {}", before.0, before.1);
        for (number, host) in self.hosts.iter().enumerate() {
            let leads = Some(number) == up;
            let late = if leads { Duration::ZERO } else { self.group.draw(1..300) };
            let (host, after, of) = (Rc::clone(host), after.clone(), of.clone());
            let epoch = self.epoch.get();
            told.spawn_local(async move {
                sleep(late).await;
                while !host.is_up() {
                    sleep(Duration::from_millis(10)).await;
                }
                let (name, port) = &after;
                if leads {
                    let message = format!("slave {name}:{port} {name} {port} {of}");
                    host.publish("+promoted-slave", &message);
                } else {
                    let message = format!("sentinel leader sentinel-1 26379 {of}");
                    host.publish("+config-update-from", &message);
                }
                host.switch_primary(SERVICE, after, epoch);
            });
        }
        told
    }

    /// Lets one sentinel name another server for a while.
    pub async fn mislead(&self, sentinel: usize, lasting: Duration) {
        let host = &self.hosts[sentinel];
        let other = (self.primary() + 1) % self.group.hosts.len();
        let stale = Service { primary: self.address(other), epoch: self.epoch.get() - 1 };
        host.server().name_primary(SERVICE, stale);
        sleep(lasting).await;
        let now = Service { primary: self.address(self.primary()), epoch: self.epoch.get() };
        host.server().name_primary(SERVICE, now);
    }
}
