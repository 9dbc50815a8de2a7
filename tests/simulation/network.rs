//! The network between simulated clients and servers: sockets in memory, and what goes wrong on
//! them. Every delay and fault is drawn from one seed.
//!
//! Bytes travel in order and take time. A fault holds for one connection, or for all to a server.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::select;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};

use super::keyspace::reset_versions;
use super::server::{Address, ConnectionId, Server};

/// When the world begins, in µs since the epoch.
const START: i64 = 1_767_225_600_000_000;

/// How a host is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    #[default]
    Open,
    /// New connections are refused.
    Refuses,
    /// Nothing arrives or leaves, and nobody is told.
    Silent,
    /// Its name leads nowhere.
    Nameless,
}

/// A server, and the clock and the place in the network that it has.
pub struct Host {
    server: RefCell<Server>,
    /// The difference of its clock to that of the world, in µs.
    clock: Cell<i64>,
    /// How much its clock gains on the world's, in ‰, and since when.
    drift: Cell<(i64, i64)>,
    reach: watch::Sender<Reach>,
    /// Changes when all connections to it end.
    life: watch::Sender<u64>,
    /// Changes when something is published.
    news: watch::Sender<()>,
    /// Changes when something is written.
    written: watch::Sender<()>,
    stands_until: Cell<Option<Instant>>,
}

/// One connection of a host.
struct Session {
    host: Rc<Host>,
    id: ConnectionId,
}

impl Host {
    pub fn new(server: Server) -> Rc<Self> {
        Rc::new(Self {
            server: RefCell::new(server),
            clock: Cell::default(),
            drift: Cell::default(),
            reach: watch::Sender::default(),
            life: watch::Sender::default(),
            news: watch::Sender::default(),
            written: watch::Sender::default(),
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
        self.life.send_modify(|life| *life += 1);
    }

    /// Lets a server run that has ended.
    pub fn go_on(&self) {
        self.server.borrow_mut().go_on();
    }

    pub fn set_reach(&self, reach: Reach) {
        self.reach.send_replace(reach);
    }

    /// Whether its replicas and the other servers hear of it.
    pub fn is_up(&self) -> bool {
        let is_silent = *self.reach.borrow() == Reach::Silent;
        !is_silent && self.standing().is_zero() && self.server.borrow().runs()
    }

    /// Changes whenever something is written.
    pub fn written(&self) -> watch::Receiver<()> {
        self.written.subscribe()
    }

    /// Says that something was written.
    pub fn touch(&self) {
        self.written.send_replace(());
    }

    /// Lets a sentinel follow another primary, and publishes that.
    pub fn switch_primary(&self, name: &str, primary: Address, epoch: u64) {
        self.server.borrow_mut().switch_primary(name, primary, epoch);
        self.news.send_replace(());
    }

    /// Publishes a message, as sentinels do.
    pub fn publish(&self, channel: &str, message: &str) {
        self.server.borrow_mut().publish(channel, message);
        self.news.send_replace(());
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
        self.stands_until.set(Some(Instant::now() + time));
    }

    /// How long it reads nothing yet.
    pub fn standing(&self) -> Duration {
        let until = self.stands_until.get();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// The server's clock, in µs since the epoch.
    pub fn now(&self) -> i64 {
        let (gain, since) = self.drift.get();
        micros() + self.clock.get() + (micros() - since) * gain / 1_000
    }

    fn connect(self: &Rc<Self>) -> Option<Session> {
        let id = self.server.borrow_mut().connect()?;
        Some(Session { host: Rc::clone(self), id })
    }
}

impl Session {
    /// Takes bytes that have arrived, and returns the answer's. The error: the host has closed.
    fn receive(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let now = self.host.now();
        let mut server = self.host.server.borrow_mut();
        let before = server.book().len();
        let answer = server.feed(self.id, now, bytes);
        if server.book().len() > before {
            self.host.written.send_replace(());
        }
        answer.ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.host.server.borrow_mut().disconnect(self.id);
    }
}

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time of the world, in µs since the epoch. The world begins with its network.
pub fn micros() -> i64 {
    let begun = BEGUN.get().expect("a network");
    START + i64::try_from(begun.elapsed().as_micros()).expect("few")
}

/// How often each fault is drawn: one in so many, 0 being never.
#[derive(Clone, Copy, Debug, Default)]
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
    /// Nothing arrives any more, and nobody is told.
    pub half_open: u32,
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

/// A request for a socket.
struct Dial {
    host: String,
    socket: oneshot::Sender<io::Result<DuplexStream>>,
}

/// Opens sockets, from any thread as the crate wants it.
#[derive(Clone)]
pub struct Dialer(mpsc::UnboundedSender<Dial>);

impl Dialer {
    pub async fn dial(self, host: String) -> io::Result<DuplexStream> {
        let (socket, opened) = oneshot::channel();
        let _ = self.0.send(Dial { host, socket });
        opened.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionRefused.into()))
    }
}

/// The network.
pub struct Network {
    hosts: RefCell<BTreeMap<String, Rc<Host>>>,
    dice: RefCell<Rng>,
    odds: RefCell<Odds>,
    injected: RefCell<BTreeMap<Fault, u64>>,
    /// Connections that are open.
    open: RefCell<usize>,
}

impl Network {
    /// Begins a world: its time, and the numbers of its writes.
    pub fn new(seed: u64) -> Rc<Self> {
        BEGUN.set(Some(Instant::now()));
        reset_versions();
        Rc::new(Self {
            hosts: RefCell::default(),
            dice: RefCell::new(Rng::with_seed(seed)),
            odds: RefCell::default(),
            injected: RefCell::default(),
            open: RefCell::default(),
        })
    }

    pub fn add_host(&self, name: &str, host: Rc<Host>) {
        self.hosts.borrow_mut().insert(name.to_owned(), host);
    }

    pub fn set_odds(&self, odds: Odds) {
        *self.odds.borrow_mut() = odds;
    }

    /// The faults that were drawn, by kind.
    pub fn injected(&self) -> BTreeMap<Fault, u64> {
        self.injected.borrow().clone()
    }

    pub fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Serves those who dial.
    pub fn dialer(self: &Rc<Self>) -> Dialer {
        let (sender, mut dials) = mpsc::unbounded_channel::<Dial>();
        let network = Rc::clone(self);
        spawn_local(async move {
            while let Some(dial) = dials.recv().await {
                let network = Rc::clone(&network);
                spawn_local(async move { network.open_socket(dial).await });
            }
        });
        Dialer(sender)
    }

    async fn open_socket(self: Rc<Self>, Dial { host, socket }: Dial) {
        sleep(self.latency()).await;
        let odds = *self.odds.borrow();
        if self.draw(odds.silence, Fault::Silence) {
            let mut socket = socket;
            return socket.closed().await;
        }
        let host = self.hosts.borrow().get(&host).cloned();
        let refused = self.draw(odds.refuse, Fault::Refuse);
        match host.as_ref().map(|host| *host.reach.borrow()) {
            Some(Reach::Silent) => {
                let mut socket = socket;
                return socket.closed().await;
            }
            Some(Reach::Nameless) | None => {
                let _ = socket.send(Err(io::Error::other("the name does not resolve")));
                return;
            }
            Some(Reach::Open | Reach::Refuses) => {}
        }
        let is_open = |host: &Rc<Host>| !refused && *host.reach.borrow() == Reach::Open;
        let session = host.filter(is_open).and_then(|host| host.connect());
        let Some(session) = session else {
            let _ = socket.send(Err(io::ErrorKind::ConnectionRefused.into()));
            return;
        };
        let (near, far) = duplex(64 * 1024);
        if socket.send(Ok(near)).is_ok() {
            *self.open.borrow_mut() += 1;
            let mut life = session.host.life.subscribe();
            select! {
                biased;
                _ = life.changed() => {}
                _ = self.carry(far, &session) => {}
            }
            *self.open.borrow_mut() -= 1;
        }
    }

    /// Carries bytes to the host and back until either side closes or a fault does.
    async fn carry(self: &Rc<Self>, far: DuplexStream, session: &Session) {
        let (mut requests, mut answers) = tokio::io::split(far);
        let (arrived, arrivals) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let (answered, mut deliveries) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let network = Rc::clone(self);
        let reading = async move {
            let mut last = Instant::now();
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(size @ 1..) = requests.read(&mut buffer).await {
                last = last.max(Instant::now() + network.latency());
                if arrived.send((last, buffer[..size].to_vec())).is_err() {
                    break;
                }
            }
        };
        let writing = async move {
            while let Some((at, answer)) = deliveries.recv().await {
                sleep_until(at).await;
                answers.write_all(&answer).await?;
            }
            io::Result::Ok(())
        };
        let mut carried =
            pin!(async { tokio::join!(self.serve(session, arrivals, answered), writing) });
        select! {
            biased;
            _ = &mut carried => return,
            () = reading => {}
        }
        carried.await;
    }

    /// Gives the host what arrives, and sends its answers and what it publishes.
    async fn serve(
        self: &Rc<Self>,
        session: &Session,
        mut arrivals: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
        answers: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    ) -> io::Result<()> {
        let host = &session.host;
        let (mut news, mut reach) = (host.news.subscribe(), host.reach.subscribe());
        let mut last = Instant::now();
        loop {
            let piece = select! {
                biased;
                arrival = arrivals.recv() => {
                    let Some((at, piece)) = arrival else { return Ok(()) };
                    sleep_until(at).await;
                    piece
                }
                _ = news.changed() => Vec::new(),
            };
            let odds = *self.odds.borrow();
            if self.draw(odds.stall, Fault::Stall) {
                sleep(self.stall()).await;
            }
            let is_silent = *reach.borrow() == Reach::Silent;
            let is_forgotten = is_silent && self.dice.borrow_mut().bool();
            if is_forgotten || self.draw(odds.half_open, Fault::HalfOpen) {
                while arrivals.recv().await.is_some() {}
                return Ok(());
            }
            if is_silent {
                // It is sent again, the later the longer the silence is.
                let _ = reach.wait_for(|reach| *reach != Reach::Silent).await;
                let pause = self.dice.borrow_mut().u64(1..300);
                sleep(Duration::from_millis(pause)).await;
            }
            while !host.standing().is_zero() {
                sleep(host.standing()).await;
            }
            if self.draw(odds.cut_before, Fault::CutBefore) {
                return Ok(());
            }
            if self.draw(odds.cut_within, Fault::CutWithin) {
                session.receive(&piece[..self.part_of(piece.len())])?;
                return Ok(());
            }
            let mut answer = session.receive(&piece)?;
            if self.draw(odds.cut_after, Fault::CutAfter) {
                return Ok(());
            }
            if answer.is_empty() {
                continue;
            }
            last = last.max(Instant::now() + self.latency());
            let is_cut = self.draw(odds.cut_answer, Fault::CutAnswer);
            if is_cut {
                answer.truncate(self.part_of(answer.len()));
            }
            let _ = answers.send((last, answer));
            if is_cut {
                return Ok(());
            }
        }
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(self.dice.borrow_mut().u64(20..400))
    }

    fn stall(&self) -> Duration {
        Duration::from_millis(self.dice.borrow_mut().u64(1..3_000))
    }

    fn part_of(&self, length: usize) -> usize {
        self.dice.borrow_mut().usize(..length.max(1))
    }

    fn draw(&self, odds: u32, fault: Fault) -> bool {
        let is_drawn = odds > 0 && self.dice.borrow_mut().u32(..odds) == 0;
        if is_drawn {
            *self.injected.borrow_mut().entry(fault).or_default() += 1;
        }
        is_drawn
    }
}
