//! A server in the network: its clock, its reach, and the life of its connections.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::clock::{micros, now};
use super::server::{Address, ConnectionId, Server};

/// The way in which a host can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    #[default]
    Open,
    /// New connections are refused.
    Refuses,
    /// Nothing arrives or leaves, and neither side has a sign of it.
    Silent,
    /// Its name leads nowhere.
    Nameless,
    /// The code that asks for its name panics.
    Panics,
}

/// A server, and the clock and the place in the network that it has.
pub struct Host {
    server: RefCell<Server>,
    /// The difference of its clock to that of the world, in µs.
    clock: Cell<i64>,
    /// The gain of its clock on the world's, in ‰, and the instant since which it gains.
    drift: Cell<(i64, i64)>,
    pub reach: Cell<Reach>,
    /// Grows when all connections to it end.
    pub life: Cell<u64>,
    /// True if something is published that has not left yet.
    pub has_news: Cell<bool>,
    /// Wakes the network when one of these changes.
    pub bell: OnceLock<Arc<Notify>>,
    // It wakes those who wait in their order: a channel would draw another one.
    written: Notify,
    stands_until: Cell<Option<Instant>>,
}

/// One connection of a host.
pub struct Session {
    pub host: Rc<Host>,
    pub id: ConnectionId,
}

impl Host {
    pub fn new(server: Server) -> Rc<Self> {
        Rc::new(Self {
            server: RefCell::new(server),
            clock: Cell::default(),
            drift: Cell::default(),
            reach: Cell::default(),
            life: Cell::default(),
            has_news: Cell::default(),
            bell: OnceLock::new(),
            written: Notify::new(),
            stands_until: Cell::default(),
        })
    }

    pub fn server(&self) -> RefMut<'_, Server> {
        self.server.borrow_mut()
    }

    /// Ends the server, and all connections with it.
    pub fn crash(&self, keeps_data: bool) {
        self.server.borrow_mut().crash(self.now(), keeps_data);
        self.cut();
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.life.set(self.life.get() + 1);
        self.ring();
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.notify_one();
        }
    }

    /// Lets a server run that has ended.
    pub fn go_on(&self) {
        self.server.borrow_mut().go_on();
        // A crash without data is a change that replicas copy.
        self.touch();
    }

    pub fn set_reach(&self, reach: Reach) {
        self.reach.set(reach);
        self.ring();
    }

    /// Returns true if its replicas and the other servers hear of it.
    pub fn is_up(&self) -> bool {
        let is_silent = self.reach.get() == Reach::Silent;
        !is_silent && self.standing().is_zero() && self.server.borrow().runs()
    }

    /// Ends when something is written.
    pub fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    /// Says that something was written.
    pub fn touch(&self) {
        self.written.notify_waiters();
    }

    /// Lets a sentinel follow another primary, and publishes that.
    pub fn switch_primary(&self, name: &str, primary: Address, epoch: u64) {
        self.server.borrow_mut().switch_primary(name, primary, epoch);
        self.has_news.set(true);
        self.ring();
    }

    /// Publishes a message, as sentinels do.
    pub fn publish(&self, channel: &str, message: &str) {
        self.server.borrow_mut().publish(channel, message);
        self.has_news.set(true);
        self.ring();
    }

    /// Lets the clock step by some µs.
    pub fn step_clock(&self, step: i64) {
        self.clock.set(self.clock.get() + step);
    }

    /// Lets the clock gain so many ‰ on the world's from now on, which may be negative.
    pub fn drift_clock(&self, gain: i64) {
        self.clock.set(self.now() - micros());
        self.drift.set((gain, micros()));
    }

    /// Reads nothing for a time.
    pub fn stand_for(&self, time: Duration) {
        self.stands_until.set(self.stands_until.get().max(Some(now() + time)));
    }

    /// Returns the time for which it reads nothing yet.
    pub fn standing(&self) -> Duration {
        let until = self.stands_until.get();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now()))
    }

    /// The server's clock, in µs since the epoch.
    pub fn now(&self) -> i64 {
        let (gain, since) = self.drift.get();
        micros() + self.clock.get() + (micros() - since) * gain / 1_000
    }

    pub fn connect(self: &Rc<Self>) -> Option<Session> {
        let id = self.server.borrow_mut().connect()?;
        Some(Session { host: Rc::clone(self), id })
    }
}

impl Session {
    /// Takes bytes that have arrived, and returns the answer's. `None`: the host has closed.
    pub fn receive(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let now = self.host.now();
        let mut server = self.host.server.borrow_mut();
        let before = server.book().len();
        let answer = server.feed(self.id, now, bytes);
        if server.book().len() > before {
            self.host.written.notify_waiters();
        }
        answer
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.host.server.borrow_mut().disconnect(self.id);
    }
}
