//! Servers that copy what others write, a little later: asynchronous replication.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::book::Event;
use super::super::host::Host;
use super::super::server::Role;

/// The pause of a server that waits for another, between two looks.
const CHECK: Duration = Duration::from_millis(10);

/// All servers that store, by number, and who copies whom.
pub struct Group {
    pub hosts: Vec<Rc<Host>>,
    /// The primary of each replica.
    primaries: RefCell<Vec<Option<usize>>>,
    /// The number of events in the book of its primary that each replica has copied.
    copied: Vec<Cell<usize>>,
    /// Notifies of a change of `primaries`.
    roles: Notify,
    dice: RefCell<Rng>,
}

impl Group {
    /// Servers that copy nobody yet.
    pub fn new(hosts: Vec<Rc<Host>>, seed: u64) -> Rc<Self> {
        let count = hosts.len();
        Rc::new(Self {
            hosts,
            primaries: RefCell::new(vec![None; count]),
            copied: vec![Cell::new(0); count],
            roles: Notify::new(),
            dice: RefCell::new(Rng::with_seed(seed)),
        })
    }

    /// A time from a range, in ms.
    pub fn draw(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_micros(self.dice.borrow_mut().u64(range.start * 1_000..range.end * 1_000))
    }

    pub fn primary_of(&self, replica: usize) -> Option<usize> {
        self.primaries.borrow()[replica]
    }

    /// Those that are primaries.
    pub fn primaries(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|one| self.primary_of(*one).is_none()).collect()
    }

    /// Those that copy a primary.
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        (0..self.hosts.len()).filter(|one| self.primary_of(*one) == Some(primary)).collect()
    }

    /// Makes a server a primary, with what it has copied.
    pub fn promote(&self, one: usize) {
        self.primaries.borrow_mut()[one] = None;
        self.hosts[one].server().role = Role::Primary;
        self.roles.notify_waiters();
    }

    /// Makes a server a replica, which begins with all that its primary has.
    pub fn demote(&self, one: usize, primary: usize) {
        let of = self.hosts[primary].server().address.clone();
        self.hosts[one].server().role = Role::Replica { of };
        self.primaries.borrow_mut()[one] = Some(primary);
        self.copy_all(one);
        self.roles.notify_waiters();
    }

    /// Lets a replica begin anew with all that its primary has.
    pub fn copy_all(&self, replica: usize) {
        let Some(primary) = self.primary_of(replica) else { return };
        let source = self.hosts[primary].server();
        self.hosts[replica].server().replicate_all(&source);
        self.copied[replica].set(source.book().len());
    }

    /// Lets a replica copy what it lacks, up to a place in its primary's book.
    pub fn copy_to(&self, replica: usize, end: usize) {
        let Some(primary) = self.primary_of(replica) else { return };
        let (source, mut copy) = (self.hosts[primary].server(), self.hosts[replica].server());
        let begin = self.copied[replica].get();
        for event in source.book().events().get(begin..end).into_iter().flatten() {
            if let Event::Change(change) = event {
                copy.replicate(change);
            }
        }
        self.copied[replica].set(begin.max(end));
    }

    /// Returns the number of events in its primary's book that a replica has copied.
    pub fn copied(&self, replica: usize) -> usize {
        self.copied[replica].get()
    }

    fn book_end(&self, one: usize) -> usize {
        self.hosts[one].server().book().len()
    }

    /// Waits until a server hears the others.
    pub async fn wait_for(&self, one: usize) {
        while !self.hosts[one].is_up() {
            sleep(CHECK).await;
        }
    }

    /// Waits until all replicas have what their primaries have now.
    pub async fn catch_up(&self) {
        for replica in 0..self.hosts.len() {
            let Some(primary) = self.primary_of(replica) else { continue };
            let end = self.book_end(primary);
            while self.primary_of(replica) == Some(primary) && self.copied(replica) < end {
                sleep(CHECK).await;
            }
        }
    }

    /// Copies for one server whatever its primary writes.
    pub async fn follow(self: Rc<Self>, own: usize) {
        loop {
            let roles = self.roles.notified();
            let Some(primary) = self.primary_of(own) else {
                roles.await;
                continue;
            };
            let written = self.hosts[primary].written();
            let end = self.book_end(primary);
            if end == self.copied(own) {
                select! {
                    biased;
                    () = written => {}
                    () = roles => {}
                }
                continue;
            }
            sleep(self.lag()).await;
            let are_up = self.hosts[primary].is_up() && self.hosts[own].is_up();
            if are_up && self.primary_of(own) == Some(primary) {
                self.copy_to(own, end);
            } else {
                sleep(CHECK).await;
            }
        }
    }

    /// Short mostly, and long at times.
    fn lag(&self) -> Duration {
        let is_long = self.dice.borrow_mut().u32(..20) == 0;
        self.draw(if is_long { 5..150 } else { 0..3 })
    }
}
