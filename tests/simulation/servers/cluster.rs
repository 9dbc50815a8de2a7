//! A cluster: masters that share the slots, their replicas, and slots that move.
//!
//! Each node has its own view. Those who take part in a change know it at once, the others later.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::super::server::{Address, Mode};
use super::super::slots::{COUNT, Slots, slot_of};
use super::replication::Group;

/// The time for which a master refuses requests after it was restarted: long enough to hear of a
/// successor. Redis has 2 s.
const REJOINS_AFTER: Duration = Duration::from_millis(500);

pub struct Cluster {
    group: Rc<Group>,
    /// The node that holds each slot, once all know it.
    owners: RefCell<Vec<Option<u8>>>,
    /// The same before the last change.
    before: RefCell<Vec<Option<u8>>>,
}

impl Cluster {
    /// Masters come first, then the replica of each.
    pub fn new(group: &Rc<Group>, masters: usize) -> Self {
        let address = |number: usize| group.hosts[number].server().address.clone();
        let nodes: Rc<[Address]> = (0..group.hosts.len()).map(address).collect();
        let view = |own| Slots::shared(own as u8, Rc::clone(&nodes), masters as u8);
        let owners = view(0).owners;
        let last = masters as u8 - 1;
        let turned =
            owners.iter().map(|owner| owner.map(|one| if one == last { 0 } else { one + 1 }));
        let before = RefCell::new(turned.collect());
        for (own, host) in group.hosts.iter().enumerate() {
            host.server().mode = Mode::Cluster(view(own));
        }
        let cluster = Self { group: Rc::clone(group), owners: RefCell::new(owners), before };
        (0..group.hosts.len()).for_each(|node| cluster.tell(node));
        cluster
    }

    fn change_view(&self, node: usize, change: impl FnOnce(&mut Slots)) {
        change(self.group.hosts[node].server().slots().expect("a node"));
    }

    /// Lets a node know what is true.
    fn tell(&self, node: usize) {
        let masters = self.group.primaries();
        let replica = |master: &usize| {
            let replica = self.group.replicas_of(*master).first().copied()?;
            Some((*master as u8, replica as u8))
        };
        self.change_view(node, |view| {
            view.owners.clone_from(&self.owners.borrow());
            view.replicas = masters.iter().filter_map(replica).collect();
        });
    }

    /// Lets all nodes know what is true, one after another.
    async fn tell_all(&self) {
        for node in 0..self.group.hosts.len() {
            sleep(self.group.draw(0..60)).await;
            self.group.wait_for(node).await;
            self.tell(node);
        }
    }

    /// A master that holds slots and another, drawn by a number.
    fn pair(&self, place: u32) -> Option<(usize, usize)> {
        let masters = self.group.primaries();
        if masters.len() < 2 {
            return None;
        }
        let place = place as usize;
        let one = place % masters.len();
        let other = (one + 1 + place / masters.len() % (masters.len() - 1)) % masters.len();
        Some((masters[one], masters[other]))
    }

    fn keys_of(&self, node: usize, slot: u16) -> Vec<Vec<u8>> {
        let mut keys = self.group.hosts[node].server().keys();
        keys.retain(|key| slot_of(key) == slot);
        keys
    }

    /// Some slots of a master: those in use, or else one.
    fn slots_of(&self, node: usize, place: u32) -> Vec<u16> {
        let is_own = |slot: &u16| self.owners.borrow()[usize::from(*slot)] == Some(node as u8);
        let keys = self.group.hosts[node].server().keys();
        let used: BTreeSet<u16> = keys.iter().map(|key| slot_of(key)).filter(is_own).collect();
        let mut slots: Vec<_> = used.into_iter().collect();
        let first = place as usize / 64 % slots.len().max(1);
        slots.rotate_left(first);
        slots.truncate(1 + place as usize / 16 % 4);
        slots.extend((0..COUNT).find(is_own).filter(|_| slots.is_empty()));
        slots
    }

    /// Gives a key from one node to another.
    fn migrate(&self, key: &[u8], source: usize, target: usize) {
        let (source, target) = (&self.group.hosts[source], &self.group.hosts[target]);
        let (now, target_now) = (source.now(), target.now());
        source.server().migrate(now, key, &mut target.server(), target_now);
        source.touch();
        target.touch();
    }

    fn assign(&self, slot: u16, node: usize) {
        self.before.borrow_mut().clone_from(&self.owners.borrow());
        self.owners.borrow_mut()[usize::from(slot)] = Some(node as u8);
    }

    /// Moves some slots as an operator does, key by key.
    pub async fn move_slots(&self, place: u32, lasting: Duration) {
        let Some((source, target)) = self.pair(place) else { return };
        let slots = self.slots_of(source, place);
        let step = lasting / (3 * slots.len().max(1)) as u32;
        for slot in slots {
            let at = usize::from(slot);
            self.are_up(source, target).await;
            self.change_view(target, |view| {
                view.importing.insert(slot);
            });
            sleep(self.group.draw(0..5)).await;
            self.are_up(source, target).await;
            self.change_view(source, |view| {
                view.migrating.insert(slot, target as u8);
            });
            sleep(step).await;
            loop {
                self.are_up(source, target).await;
                let keys = self.keys_of(source, slot);
                let Some(key) = keys.first() else { break };
                self.migrate(key, source, target);
                sleep(step / keys.len() as u32).await;
            }
            self.assign(slot, target);
            self.change_view(target, |view| {
                view.importing.remove(&slot);
                view.owners[at] = Some(target as u8);
            });
            sleep(self.group.draw(0..20)).await;
            self.group.wait_for(source).await;
            self.change_view(source, |view| {
                view.migrating.remove(&slot);
                view.owners[at] = Some(target as u8);
            });
        }
        self.tell_all().await;
        self.group.catch_up().await;
    }

    /// Moves some slots at once, with their keys.
    pub async fn take_slots(&self, place: u32) {
        let Some((source, target)) = self.pair(place) else { return };
        self.are_up(source, target).await;
        for slot in self.slots_of(source, place) {
            for key in self.keys_of(source, slot) {
                self.migrate(&key, source, target);
            }
            self.assign(slot, target);
        }
        self.tell(source);
        self.tell(target);
        self.tell_all().await;
        self.group.catch_up().await;
    }

    async fn are_up(&self, one: usize, other: usize) {
        while !(self.group.hosts[one].is_up() && self.group.hosts[other].is_up()) {
            self.group.wait_for(one).await;
            self.group.wait_for(other).await;
        }
    }

    /// Lets one node or all refuse what concerns keys.
    pub async fn go_down(&self, node: Option<usize>, lasting: Duration) {
        let nodes = 0..self.group.hosts.len();
        let nodes: Vec<_> = nodes.filter(|one| node.is_none_or(|node| node == *one)).collect();
        let set = |is_down| {
            nodes.iter().for_each(|node| self.change_view(*node, |view| view.is_down = is_down));
        };
        set(true);
        sleep(lasting).await;
        set(false);
    }

    /// Lets a node that was restarted refuse requests for a while.
    pub async fn rejoin(&self, node: usize) {
        self.change_view(node, |view| view.is_down = true);
        sleep(REJOINS_AFTER).await;
        self.change_view(node, |view| view.is_down = false);
    }

    /// A master dies or stands. After a time to detect it its replica takes its slots.
    pub async fn fail_over(&self, place: u32, dies: bool, lasting: Duration) {
        let group = &self.group;
        let masters = group.primaries().into_iter();
        let masters: Vec<_> = masters.filter(|one| !group.replicas_of(*one).is_empty()).collect();
        let Some(old) = masters.get(place as usize % masters.len().max(1)).copied() else { return };
        let new = group.replicas_of(old)[0];
        let after = group.draw(1..600);
        if dies {
            group.hosts[old].crash(true);
        } else {
            group.hosts[old].stand_for(2 * lasting + after);
        }
        sleep(lasting / 2).await;
        // A slot that nobody serves: the others refuse all requests, as is the default.
        let others: Vec<_> = (0..group.hosts.len()).filter(|one| *one != old).collect();
        others.iter().for_each(|one| self.change_view(*one, |view| view.is_down = true));
        sleep(lasting / 2).await;
        group.wait_for(new).await;
        group.promote(new);
        self.before.borrow_mut().clone_from(&self.owners.borrow());
        for owner in self.owners.borrow_mut().iter_mut() {
            *owner = owner.map(|owner| if owner == old as u8 { new as u8 } else { owner });
        }
        self.tell(new);
        self.change_view(new, |view| view.is_down = false);
        for other in others {
            sleep(group.draw(0..20)).await;
            self.tell(other);
            self.change_view(other, |view| view.is_down = false);
        }
        if dies {
            sleep(after).await;
            self.change_view(old, |view| view.is_down = true);
            group.hosts[old].go_on();
        }
        group.wait_for(old).await;
        // One that goes on takes itself for a master until it hears of the other.
        sleep(group.draw(0..50)).await;
        group.wait_for(old).await;
        group.demote(old, new);
        self.change_view(old, |view| view.is_down = false);
        self.tell_all().await;
        group.catch_up().await;
    }

    /// Lets one node name the owners of before.
    pub async fn mislead(&self, node: usize, lasting: Duration) {
        let before = self.before.borrow().clone();
        self.change_view(node, |view| view.named = Some(before));
        sleep(lasting).await;
        self.change_view(node, |view| view.named = None);
    }
}
