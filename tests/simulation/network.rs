//! The network between simulated clients and servers, and what goes wrong in it. Every delay and
//! fault is drawn from one seed.
//!
//! Bytes travel in order and take time. A fault holds for one connection, or for all to a server.
//!
//! All that happens is a queue of events, each at its instant. So the network and the servers go on
//! while the clients' thread stands still: [`Network::run_until`] runs what happened meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::clock::{self, elapsed, micros_at, now, since_begin};
use super::host::{Host, Reach, Session};
use super::keyspace::reset_versions;
use super::socket::{Dialer, Inbox, Opening, Outbox, Sent, Socket};

/// Losses that follow each other within this time are of one moment.
const MOMENT: Duration = Duration::from_millis(100);

/// A client may lose calls in that many more moments until it leaves a connection.
const FREE_LOSSES: i32 = 3;

/// A call is given up so long after it was lost.
const NOTICED: Duration = Duration::from_millis(150);

/// The odds of each fault: one in so many, 0 being never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    /// A new connection is refused.
    pub refuse: u32,
    /// A new connection is never made, nor refused.
    pub silence: u32,
    /// A piece is lost, and the connection with it.
    pub cut_before: u32,
    /// A piece arrives in part, and the connection is closed.
    pub cut_within: u32,
    /// A piece arrives, and its answer is lost with the connection.
    pub cut_after: u32,
    /// The answer arrives in part, and the connection is closed.
    pub cut_answer: u32,
    /// A piece and all behind it arrive later.
    pub stall: u32,
    /// Nothing arrives any more, and neither side has a sign of it.
    pub half_open: u32,
}

impl Odds {
    /// The odds of each kind.
    pub fn all_mut(&mut self) -> [&mut u32; 8] {
        let Self {
            refuse,
            silence,
            cut_before,
            cut_within,
            cut_after,
            cut_answer,
            stall,
            half_open,
        } = self;
        [refuse, silence, cut_before, cut_within, cut_after, cut_answer, stall, half_open]
    }
}

/// The kinds of faults, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Refuse,
    Silence,
    CutBefore,
    CutWithin,
    CutAfter,
    CutAnswer,
    Stall,
    HalfOpen,
}

/// A fault that was drawn. Times are since the world began.
#[derive(Clone, Debug)]
pub struct Disturbance {
    pub fault: Fault,
    pub from: Duration,
    pub until: Duration,
}

/// An attempt of a client to connect to a host. Its time is since the world began.
#[derive(Clone, Debug)]
pub struct Dial {
    pub at: Duration,
    pub client: usize,
    pub host: String,
    /// The number of the connection at the host, if one was made.
    pub session: Option<u64>,
    /// The instant at which it found that the host had ended.
    pub found_ended: Option<Duration>,
}

/// A connection as the network has it.
struct Link {
    session: Session,
    client: usize,
    inbox: Arc<Mutex<Inbox>>,
    /// The host's life in which it began.
    life: u64,
    /// Nothing arrives at the host or at the client before: bytes keep their order.
    arrival: Instant,
    delivery: Instant,
    /// Nothing arrives until then.
    stalled_until: Instant,
    /// Nothing arrives any more: the number of the fault.
    lost: Option<usize>,
    /// The instant at which the last piece was lost, and the number of moments of loss, less one
    /// for each time that the client stood still.
    last_lost: Instant,
    losses: i32,
    /// Pieces that are sent again once the host can be reached.
    waiting: Vec<Piece>,
}

/// Bytes on their way to a host.
struct Piece {
    order: u64,
    /// The instant at which the client wrote them.
    sent_at: Instant,
    bytes: Vec<u8>,
}

/// Something that happens at an instant.
enum Event {
    Dial {
        host: String,
        client: usize,
        socket: Opening,
        /// Its place among all dials.
        place: usize,
    },
    /// A piece arrives at the host. An empty one fetches what was published.
    Arrive { link: u64, piece: Piece },
    /// A piece of an answer arrives at the client. The end closes the connection behind it.
    Deliver {
        link: u64,
        piece: Vec<u8>,
        is_end: bool,
        /// The last piece of a whole answer: when its question came, by the host's clock.
        answers: Option<i64>,
    },
}

/// The network.
pub struct Network {
    hosts: RefCell<BTreeMap<String, Rc<Host>>>,
    dice: RefCell<Rng>,
    odds: Cell<Odds>,
    disturbances: RefCell<Vec<Disturbance>>,
    links: RefCell<BTreeMap<u64, Link>>,
    events: RefCell<BTreeMap<(Instant, u64), Event>>,
    /// The number of links and of events so far.
    count: Cell<u64>,
    outbox: Outbox,
    dials: RefCell<Vec<Dial>>,
    /// Clients that were killed: nothing leaves them.
    dead: RefCell<BTreeSet<usize>>,
    /// Dials that nobody answers, and the number of the fault if one was drawn.
    silent: RefCell<Vec<(Opening, Option<usize>)>>,
}

impl Network {
    /// Begins a world: its time, and the numbers of its writes.
    pub fn new(seed: u64) -> Rc<Self> {
        clock::begin();
        reset_versions();
        Rc::new(Self {
            hosts: RefCell::default(),
            dice: RefCell::new(Rng::with_seed(seed)),
            odds: Cell::default(),
            disturbances: RefCell::default(),
            links: RefCell::default(),
            events: RefCell::default(),
            count: Cell::default(),
            outbox: Outbox::default(),
            dials: RefCell::default(),
            dead: RefCell::default(),
            silent: RefCell::default(),
        })
    }

    /// Begins a world, and serves its clients until it is dropped.
    pub fn start(seed: u64) -> Rc<Self> {
        let network = Self::new(seed);
        spawn_local(Self::serve(Rc::downgrade(&network)));
        network
    }

    pub fn add_host(&self, name: &str, host: Rc<Host>) {
        let _ = host.bell.set(Arc::clone(&self.outbox.bell));
        self.hosts.borrow_mut().insert(name.to_owned(), host);
    }

    pub fn set_odds(&self, odds: Odds) {
        self.odds.set(odds);
    }

    /// The faults that were drawn.
    pub fn disturbances(&self) -> Vec<Disturbance> {
        self.disturbances.borrow().clone()
    }

    /// Kills a client: what it has sent arrives, and nothing leaves it any more.
    pub fn kill(&self, client: usize) {
        self.take_sent();
        self.dead.borrow_mut().insert(client);
    }

    /// Returns all attempts of clients to connect.
    pub fn dials(&self) -> Vec<Dial> {
        self.dials.borrow().clone()
    }

    /// Forgets the faults that were drawn and the dials. Returns how many faults there were.
    pub fn forget(&self) -> usize {
        self.dials.borrow_mut().clear();
        std::mem::take(&mut *self.disturbances.borrow_mut()).len()
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.links.borrow().len()
    }

    /// Opens sockets for clients, while somebody serves them.
    pub fn dialer(&self) -> Dialer {
        self.dialer_of(0)
    }

    /// The same, for the client of this number.
    pub fn dialer_of(&self, client: usize) -> Dialer {
        Dialer { outbox: self.outbox.clone(), client }
    }

    /// Serves the clients until the network is dropped.
    pub async fn serve(network: Weak<Self>) {
        while let Some(this) = network.upgrade() {
            this.run_until(Instant::now());
            let next = this.events.borrow().keys().next().map(|(at, _)| *at);
            let bell = Arc::clone(&this.outbox.bell);
            drop(this);
            match next {
                Some(next) => drop(timeout_at(next, bell.notified()).await),
                None => bell.notified().await,
            }
        }
    }

    /// Runs all events up to an instant, each at its own.
    pub fn run_until(&self, until: Instant) {
        self.take_sent();
        self.follow_hosts();
        while let Some((at, event)) = self.next_event(until) {
            clock::run_at(at, || {
                self.run(at, event);
                self.take_sent();
                self.follow_hosts();
            });
        }
    }

    fn next_event(&self, until: Instant) -> Option<(Instant, Event)> {
        let mut events = self.events.borrow_mut();
        let next = events.first_entry().filter(|next| next.key().0 <= until)?;
        let ((at, _), event) = next.remove_entry();
        Some((at, event))
    }

    fn schedule(&self, at: Instant, event: Event) {
        let number = self.next_number();
        self.events.borrow_mut().insert((at, number), event);
    }

    /// Lets a piece arrive, at an instant behind those that were sent before it.
    fn schedule_arrival(&self, at: Instant, link: u64, piece: Piece) {
        self.events.borrow_mut().insert((at, piece.order), Event::Arrive { link, piece });
    }

    fn next_number(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    /// Takes what clients have sent.
    fn take_sent(&self) {
        for sent in self.outbox.take() {
            let at = now() + self.latency();
            match sent {
                Sent::Dial { client, socket, .. } if self.dead.borrow().contains(&client) => {
                    self.silent.borrow_mut().push((socket, None));
                }
                Sent::Dial { host, client, socket } => {
                    let (session, found_ended) = (None, None);
                    let dial =
                        Dial { at: elapsed(), client, host: host.clone(), session, found_ended };
                    let mut dials = self.dials.borrow_mut();
                    let place = dials.len();
                    dials.push(dial);
                    self.schedule(at, Event::Dial { host, client, socket, place });
                }
                Sent::Piece { link, bytes } => {
                    let dead = self.dead.borrow();
                    let mut links = self.links.borrow_mut();
                    let link_of = links.get_mut(&link).filter(|link| !dead.contains(&link.client));
                    let arrival = link_of.map(|link| {
                        link.arrival = link.arrival.max(at);
                        link.arrival
                    });
                    drop(links);
                    if let Some(at) = arrival {
                        let (order, sent_at) = (self.next_number(), now());
                        self.schedule_arrival(at, link, Piece { order, sent_at, bytes });
                    }
                }
                Sent::End { link } => self.close(link),
            }
        }
        self.silent.borrow_mut().retain(|(socket, fault)| {
            if let (true, Some(fault)) = (socket.is_closed(), fault) {
                self.end(*fault);
            }
            !socket.is_closed()
        });
    }

    /// Takes what has changed at the hosts.
    fn follow_hosts(&self) {
        let (mut ended, mut events) = (Vec::new(), Vec::new());
        for (&number, link) in &mut *self.links.borrow_mut() {
            let host = &link.session.host;
            if link.life != host.life.get() {
                ended.push(number);
            } else if host.has_news.get() {
                let (order, sent_at, bytes) = (self.next_number(), now(), Vec::new());
                events.push((now(), number, Piece { order, sent_at, bytes }));
            }
            if !link.waiting.is_empty() && host.reach.get() != Reach::Silent {
                // They are sent again, the later the longer the silence was.
                let pause = Duration::from_millis(self.dice.borrow_mut().u64(1..300));
                link.arrival = link.arrival.max(now() + pause);
                // What was stalled before arrives behind them.
                link.stalled_until = link.stalled_until.max(link.arrival);
                let arrive = |piece| (link.arrival, number, piece);
                events.extend(link.waiting.drain(..).map(arrive));
            }
        }
        for host in self.hosts.borrow().values() {
            host.has_news.set(false);
        }
        for (at, link, piece) in events {
            self.schedule_arrival(at, link, piece);
        }
        for link in ended {
            self.close(link);
        }
    }

    fn run(&self, at: Instant, event: Event) {
        match event {
            Event::Dial { host, client, socket, place } => {
                self.open_socket(&host, client, socket, place);
            }
            Event::Arrive { link, piece } => {
                if self.arrive(at, link, piece).is_break() {
                    self.close(link);
                }
            }
            Event::Deliver { link, piece, is_end, answers } => {
                if let Some(link) = self.links.borrow().get(&link) {
                    let mut inbox = link.inbox.lock().expect("no panic");
                    inbox.bytes.extend(piece);
                    inbox.wake();
                    if let Some(came_at) = answers {
                        // A client that stood still reads it when it goes on.
                        let read_at = micros_at(Instant::now());
                        let Session { host, id } = &link.session;
                        host.server().note_reading(*id, came_at, read_at);
                    }
                }
                if is_end {
                    self.close(link);
                }
            }
        }
    }

    fn open_socket(&self, host: &str, client: usize, socket: Opening, place: usize) {
        let odds = self.odds.get();
        if let Some(fault) = self.draw_lasting(odds.silence, Fault::Silence) {
            return self.silent.borrow_mut().push((socket, Some(fault)));
        }
        let host = self.hosts.borrow().get(host).cloned();
        let is_refused = self.draw(odds.refuse, Fault::Refuse);
        let session = match host.as_ref().map(|host| host.reach.get()) {
            Some(Reach::Silent) => return self.silent.borrow_mut().push((socket, None)),
            Some(Reach::Nameless) | None => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the name does not resolve"))
            }
            Some(Reach::Panics) => Err(io::Error::other("a panic")),
            Some(Reach::Open) if !is_refused => {
                let session = host.and_then(|host| host.connect());
                if let Some(dial) = self.dials.borrow_mut().get_mut(place) {
                    dial.session = session.as_ref().map(|session| session.id.0);
                    dial.found_ended = session.is_none().then(elapsed);
                }
                session.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
            }
            Some(Reach::Open | Reach::Refuses) => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let opened = session.map(|session| {
            self.count.set(self.count.get() + 1);
            let (link, inbox) = (self.count.get(), Arc::<Mutex<Inbox>>::default());
            let (life, now) = (session.host.life.get(), now());
            self.links.borrow_mut().insert(
                link,
                Link {
                    session,
                    client,
                    inbox: Arc::clone(&inbox),
                    life,
                    arrival: now,
                    delivery: now,
                    stalled_until: now,
                    lost: None,
                    last_lost: now,
                    losses: 0,
                    waiting: Vec::new(),
                },
            );
            Socket { link, inbox, outbox: self.outbox.clone() }
        });
        // One that nobody waits for any more closes itself.
        drop(socket.send(opened));
    }

    /// Gives a piece to the host, or loses it. Breaks if the connection ends.
    fn arrive(&self, at: Instant, number: u64, piece: Piece) -> ControlFlow<()> {
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&number) else { return ControlFlow::Continue(()) };
        let (odds, host) = (self.odds.get(), Rc::clone(&link.session.host));
        if let Some(fault) = link.lost {
            self.lose(link, fault);
            return ControlFlow::Continue(());
        }
        if let Some(stall) = self.draw_lasting(odds.stall, Fault::Stall) {
            link.stalled_until = link.stalled_until.max(now() + self.stall());
            self.disturbances.borrow_mut()[stall].until = since_begin(link.stalled_until);
        }
        if !host.standing().is_zero() {
            link.stalled_until = link.stalled_until.max(now() + host.standing());
        }
        // The clock may be ahead of an event. What came before it on its connection is not.
        let from = link.stalled_until;
        if from > at {
            // What is behind it in the queue does not overtake it.
            self.schedule_arrival(from, number, piece);
            return ControlFlow::Continue(());
        }
        let is_silent = host.reach.get() == Reach::Silent;
        if is_silent && (!link.waiting.is_empty() || self.dice.borrow_mut().bool()) {
            link.waiting.push(piece);
            return ControlFlow::Continue(());
        }
        let odds_of_loss = if is_silent { 1 } else { odds.half_open };
        link.lost = self.draw_lasting(odds_of_loss, Fault::HalfOpen);
        if let Some(fault) = link.lost {
            (link.last_lost, link.losses) = (now(), 0);
            self.lose(link, fault);
            return ControlFlow::Continue(());
        }
        if self.draw(odds.cut_before, Fault::CutBefore) {
            return ControlFlow::Break(());
        }
        let came_at = host.now();
        let is_cut_within = self.draw(odds.cut_within, Fault::CutWithin);
        let Piece { sent_at, bytes, .. } = piece;
        let arrived = if is_cut_within { self.part_of(bytes.len()) } else { bytes.len() };
        host.server().note_sending(micros_at(sent_at));
        let Some(mut answer) = link.session.receive(&bytes[..arrived]) else {
            return ControlFlow::Break(());
        };
        if is_cut_within || self.draw(odds.cut_after, Fault::CutAfter) {
            return ControlFlow::Break(());
        }
        if answer.is_empty() {
            return ControlFlow::Continue(());
        }
        let is_end = self.draw(odds.cut_answer, Fault::CutAnswer);
        if is_end {
            answer.truncate(self.part_of(answer.len()));
        }
        link.delivery = link.delivery.max(now() + self.latency());
        // Some arrive in two pieces.
        if self.dice.borrow_mut().u32(..16) == 0 {
            let rest = answer.split_off(self.part_of(answer.len()));
            let (piece, answers) = (answer, None);
            let first = Event::Deliver { link: number, piece, is_end: false, answers };
            self.schedule(link.delivery, first);
            (link.delivery, answer) = (link.delivery + self.latency(), rest);
        }
        let answers = (!is_end).then_some(came_at);
        let last = Event::Deliver { link: number, piece: answer, is_end, answers };
        self.schedule(link.delivery, last);
        ControlFlow::Continue(())
    }

    /// The client stood still: it does not know how long what it has lost was silent.
    pub fn stood_still(&self) {
        for link in self.links.borrow_mut().values_mut() {
            link.losses -= 1;
        }
    }

    /// Loses a piece. The client notices by calls without an answer: several of one moment, or one
    /// of each of few moments. What it loses after that is its own fault.
    fn lose(&self, link: &mut Link, fault: usize) {
        if now() > link.last_lost + MOMENT {
            link.losses += 1;
        }
        link.last_lost = now();
        if link.losses <= FREE_LOSSES {
            self.last_until(fault, elapsed() + NOTICED);
        }
    }

    fn close(&self, link: u64) {
        let Some(link) = self.links.borrow_mut().remove(&link) else { return };
        let mut inbox = link.inbox.lock().expect("no panic");
        inbox.is_closed = true;
        inbox.wake();
    }

    /// Now and then it is long, so that connections overtake each other.
    fn latency(&self) -> Duration {
        let mut dice = self.dice.borrow_mut();
        let is_long = dice.u32(..4) == 0;
        Duration::from_micros(if is_long { dice.u64(400..6_000) } else { dice.u64(20..400) })
    }

    fn stall(&self) -> Duration {
        Duration::from_millis(self.dice.borrow_mut().u64(1..3_000))
    }

    fn part_of(&self, length: usize) -> usize {
        self.dice.borrow_mut().usize(..length.max(1))
    }

    fn draw(&self, odds: u32, fault: Fault) -> bool {
        self.draw_lasting(odds, fault).is_some()
    }

    /// Draws a fault. Its number: it lasts until it is ended.
    fn draw_lasting(&self, odds: u32, fault: Fault) -> Option<usize> {
        let is_drawn = odds > 0 && self.dice.borrow_mut().u32(..odds) == 0;
        is_drawn.then(|| {
            let mut disturbances = self.disturbances.borrow_mut();
            let now = elapsed();
            disturbances.push(Disturbance { fault, from: now, until: now });
            disturbances.len() - 1
        })
    }

    /// Says when a fault ends, unless it is forgotten.
    fn last_until(&self, fault: usize, until: Duration) {
        if let Some(one) = self.disturbances.borrow_mut().get_mut(fault) {
            one.until = until;
        }
    }

    fn end(&self, disturbance: usize) {
        self.last_until(disturbance, elapsed());
    }
}
