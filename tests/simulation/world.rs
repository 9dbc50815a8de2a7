//! A world: callers of a few processes, a network that fails, and servers that are struck. It lives
//! a plan, and then all of it is checked against the servers' own books.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{self, Duration};

use fastrand::Rng;
use http::{Request, StatusCode};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, advance, sleep, sleep_until, timeout, timeout_at};
use tower_sluice::algorithm::Quotas;
use tower_sluice::key::{Head, Keyed};
use tower_sluice::limiter::{Done, Origin, Reservation, ShadowCounts, SwitchMode};
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, FailOpen, Limiter, LimiterExt, Outcome, Refusal,
};

use super::account::Account;
use super::checks::{self, Seen};
use super::clients::Process;
use super::clock;
use super::network::{Network, Odds};
use super::plan::{Ask, At, MILLISECOND, Plan, SECOND, Then, Way};
use super::policies::Table;
use super::servers::{Servers, StrikeKind};

/// The longest time that a decision may take.
pub const TIMEOUT: Duration = Duration::from_millis(100);

/// A process that stands still for longer finds its timers late.
const NOTICEABLE: Duration = Duration::from_millis(10);

/// A settlement ends within this time, whatever happens.
const MAX_SETTLEMENT: Duration = Duration::from_secs(10);

/// All tasks of a world have ended by then.
const END: Duration = Duration::from_secs(120);

/// A caller's record. Times are since the world began.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place in the plan.
    pub ask: usize,
    /// Its place among all that ask.
    pub number: usize,
    pub asked: Duration,
    pub ended: Duration,
    pub fate: Fate,
    /// The instant of the decision, by the clock that decided.
    pub decided_at: Option<i64>,
    /// The instant at which units were given back, or more were taken.
    pub settled_at: Option<Duration>,
    /// True if it was asked again, at its `Retry-After`.
    pub is_second: bool,
    /// The result of its settlement.
    pub settlement: Option<Settled>,
    /// Its renewals that said that its units were still held: when each was asked.
    pub renewed: Vec<Duration>,
    /// The instant at which it began to renew its units by itself, if it did.
    pub guarded_at: Option<Duration>,
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    GaveBack(u64),
    Failed,
    Never,
}

/// The fate of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Admitted by the store, at this slot.
    Admitted {
        at: i64,
        settled: Option<u64>,
    },
    /// Admitted, and not by the store.
    AdmittedBy(Origin),
    /// Admitted in a shadow, though the store refused it.
    Spared {
        retry_after: Option<Duration>,
    },
    /// An operation that is done.
    Done,
    Refused {
        by: Option<Origin>,
        retry_after: Option<Duration>,
    },
    Failed(Option<ErrorKind>),
    /// Hung up, so that nobody knows.
    Left,
    Panicked,
}

/// The result of one world.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub simulated: Duration,
    pub callers: usize,
    pub injected: BTreeMap<String, u64>,
    /// The promise that was broken, if one was: the name of the check, and why.
    pub violation: Option<String>,
    /// The events in order: equal for equal seeds. Empty if all promises were kept and nobody asked
    /// for it.
    pub timeline: String,
    /// The longest turn of the runtime's thread while the plan was lived, in real time.
    pub longest_turn: Duration,
}

thread_local! {
    /// The begin of the turn that this thread makes.
    static TURN: Cell<Option<time::Instant>> = const { Cell::new(None) };
    static LONGEST_TURN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Measures the turns of a runtime's thread.
pub fn watch_turns(runtime: &mut Builder) {
    runtime.on_thread_unpark(begin_turn).on_thread_park(end_turn);
}

/// Forgets the turns so far.
pub fn begin_turns() {
    LONGEST_TURN.set(Duration::ZERO);
    begin_turn();
}

/// Returns the longest turn of this thread, in real time.
pub fn longest_turn() -> Duration {
    end_turn();
    LONGEST_TURN.get()
}

fn begin_turn() {
    TURN.set(Some(time::Instant::now()));
}

fn end_turn() {
    let turn = TURN.take().map_or(Duration::ZERO, |begun| begun.elapsed());
    LONGEST_TURN.set(LONGEST_TURN.get().max(turn));
}

struct World {
    begun: Instant,
    plan: Plan,
    network: Rc<Network>,
    servers: Rc<Servers>,
    processes: Vec<Process>,
    records: RefCell<Vec<Record>>,
    /// The number of those who have asked.
    count: Cell<usize>,
    /// Stretches in which a server was struck, and what struck it.
    strikes: RefCell<Vec<(Duration, Duration, StrikeKind)>>,
    freezes: RefCell<Vec<(Duration, Duration)>>,
    /// The processes that were killed, and when.
    deaths: RefCell<Vec<At<usize>>>,
    /// Wakes the callers of processes that are killed.
    death: Notify,
    /// The modes of the switches, each with the instant at which it was set.
    modes: RefCell<Vec<(Duration, SwitchMode)>>,
    /// The tables of policies, each with the instant at which it came into force.
    tables: RefCell<Vec<At<Table>>>,
    /// The counts that each process made in its shadow.
    shadow_counts: Vec<ShadowCounts>,
}

/// Runs the world of a plan. Its report holds a timeline if a promise was broken.
pub fn run(plan: &Plan) -> Report {
    run_and_tell(plan, false)
}

/// Runs the world of a plan, and tells its timeline also if all promises were kept.
pub fn run_and_tell(plan: &Plan, tells: bool) -> Report {
    let world = || {
        fastrand::seed(plan.seed);
        let mut runtime = Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        watch_turns(&mut runtime);
        let runtime = runtime.build().expect("a runtime");
        LocalSet::new().block_on(&runtime, World::live(plan.clone(), tells))
    };
    catch_unwind(AssertUnwindSafe(world))
        .unwrap_or_else(|_| Report { violation: Some("panic".to_owned()), ..Report::default() })
}

/// Lets the thread stand still, and the network go on.
pub async fn stand_still(network: &Network, time: Duration) {
    // What was written before has left.
    network.run_until(Instant::now());
    let mut advancing = pin!(advance(time));
    // The clock goes on with the first poll. Before any task runs, the network does.
    poll_fn(|cx| {
        let _ = advancing.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    network.run_until(Instant::now());
    advancing.await;
}

impl World {
    async fn live(plan: Plan, tells: bool) -> Report {
        let mut dice = Rng::with_seed(plan.seed);
        clock::begin_at(plan.begins_at, plan.present);
        let network = Network::start(dice.u64(..));
        let servers = Servers::start(&plan.topology, &network, dice.u64(..));
        let processes = (0..plan.processes)
            .map(|process| {
                let pool = servers.pool_by(&network.dialer_of(process), plan.is_resp2);
                Process::new(&plan, &pool.build().expect("a pool"))
            })
            .collect();
        let world = Rc::new(World {
            begun: Instant::now(),
            plan,
            network,
            servers,
            processes,
            records: RefCell::default(),
            count: Cell::default(),
            strikes: RefCell::default(),
            freezes: RefCell::default(),
            deaths: RefCell::default(),
            death: Notify::new(),
            modes: RefCell::new(vec![(Duration::ZERO, SwitchMode::On)]),
            tables: RefCell::default(),
            shadow_counts: Vec::new(),
        });
        let mut tasks = Vec::new();
        for (index, (_, strike)) in world.plan.strikes.iter().enumerate() {
            let task = spawn_local(Rc::clone(&world).strike(index));
            tasks.push((format!("{strike:?}"), task));
        }
        tasks.push(("network".to_owned(), spawn_local(Rc::clone(&world).disturb_network())));
        tasks.push(("freezes".to_owned(), spawn_local(Rc::clone(&world).freeze())));
        tasks.push(("deaths".to_owned(), spawn_local(Rc::clone(&world).kill())));
        tasks.push(("tables".to_owned(), spawn_local(Rc::clone(&world).exchange_tables())));
        tasks.push(("switches".to_owned(), spawn_local(Rc::clone(&world).turn_switches())));
        for (index, ask) in world.plan.asks.iter().enumerate() {
            let task = spawn_local(Rc::clone(&world).call_until_death(index));
            tasks.push((format!("caller {index}, {ask:?}"), task));
        }
        // Neither what was made so far nor the report is a turn of the crate's.
        begin_turns();
        for (name, task) in tasks {
            // A planned panic is a caller's.
            if timeout_at(world.begun + END, task).await.is_err() {
                let violation = Some(format!("stuck: {name}"));
                return Report { violation, ..Report::default() };
            }
        }
        let mut world = Rc::into_inner(world).expect("all tasks have ended");
        // Refunds that are under way, leases that end.
        sleep(2 * SECOND).await;
        world.shadow_counts = world.processes.iter().map(Process::shadow_counts).collect();
        world.processes.clear();
        // Connections that close.
        sleep(5 * SECOND).await;
        world.servers.shut_down();
        sleep(MILLISECOND).await;
        world.report(tells)
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    async fn strike(self: Rc<Self>, index: usize) {
        let (at, strike) = &self.plan.strikes[index];
        sleep_until(self.begun + *at).await;
        let begun = self.elapsed();
        self.servers.strike(strike).await;
        let stretch = (begun, self.elapsed(), strike.kind);
        self.strikes.borrow_mut().push(stretch);
    }

    async fn disturb_network(self: Rc<Self>) {
        sleep_until(self.begun + SECOND / 2).await;
        self.network.set_odds(self.plan.odds);
        sleep_until(self.begun + self.plan.odds_until).await;
        self.network.set_odds(Odds::default());
    }

    /// Lets the thread of all processes stand still.
    async fn freeze(self: Rc<Self>) {
        let mut freezes = self.plan.freezes.clone();
        freezes.sort_unstable();
        for (at, time) in freezes {
            sleep_until(self.begun + at).await;
            let begun = self.elapsed();
            stand_still(&self.network, time).await;
            if time > NOTICEABLE {
                self.network.stood_still();
            }
            self.freezes.borrow_mut().push((begun, self.elapsed()));
        }
    }

    async fn turn_switches(self: Rc<Self>) {
        let modes = [SwitchMode::Off, SwitchMode::Shadow, SwitchMode::On];
        for (at, mode) in self.plan.stack.switches.iter().zip(modes.iter().cycle()) {
            sleep_until(self.begun + *at).await;
            self.turn(*mode);
        }
        self.turn(SwitchMode::On);
    }

    async fn exchange_tables(self: Rc<Self>) {
        for (at, table) in &self.plan.tables {
            sleep_until(self.begun + *at).await;
            let rows = self.plan.rows(table);
            for policies in self.processes.iter().filter_map(|process| process.policies.as_ref()) {
                policies.load(&rows).expect("a table");
            }
            self.tables.borrow_mut().push((self.elapsed(), table.clone()));
        }
    }

    fn turn(&self, mode: SwitchMode) {
        for process in &self.processes {
            process.switch.set(mode);
        }
        self.modes.borrow_mut().push((self.elapsed(), mode));
    }

    /// Kills processes.
    async fn kill(self: Rc<Self>) {
        for &(at, process) in &self.plan.deaths {
            sleep_until(self.begun + at).await;
            self.network.kill(process);
            self.deaths.borrow_mut().push((self.elapsed(), process));
            self.death.notify_waiters();
        }
    }

    fn is_dead(&self, process: usize) -> bool {
        self.deaths.borrow().iter().any(|(_, dead)| *dead == process)
    }

    /// Asks as planned, until its process is killed.
    async fn call_until_death(self: Rc<Self>, index: usize) {
        let process = self.plan.asks[index].process;
        let death = async {
            loop {
                let next = self.death.notified();
                if self.is_dead(process) {
                    return;
                }
                next.await;
            }
        };
        tokio::select! {
            biased;
            () = death => {}
            () = self.call(index) => {}
        }
    }

    /// Asks as planned.
    async fn call(&self, index: usize) {
        let ask = &self.plan.asks[index];
        sleep_until(self.begun + ask.at).await;
        let retry_after = self.ask(index, false).await;
        let is_soon = |retry_after: &Duration| *retry_after < END / 2;
        if let (Then::Obey, Some(retry_after)) = (ask.then, retry_after.filter(is_soon)) {
            sleep(retry_after).await;
            self.ask(index, true).await;
        }
    }

    /// Asks once, and notes the answer. Returns when a refused caller may ask again.
    async fn ask(&self, index: usize, is_second: bool) -> Option<Duration> {
        let ask = &self.plan.asks[index];
        let process = &self.processes[ask.process];
        let number = self.count.get();
        self.count.set(number + 1);
        let asked = self.elapsed();
        let mut note = Note { world: self, index, number, is_second, asked, answer: None };
        let answer = match ask.patience {
            Some(patience) => timeout(patience, self.answer(ask, process)).await,
            None => Ok(self.answer(ask, process).await),
        };
        let mut answer = answer.unwrap_or_else(|_| Fate::Left.into());
        let reservation = answer.reservation.take();
        let retry_after = match answer.fate {
            Fate::Refused { retry_after, .. } => retry_after,
            _ => None,
        };
        note.answer = Some(answer);
        let place = note.write();
        if let Some(reservation) = reservation {
            self.end(ask, place, reservation).await;
        }
        retry_after
    }

    /// Ends an admission as planned, of which the record stands at a place.
    async fn end(&self, ask: &Ask, place: usize, mut reservation: Reservation) {
        let limiter = &self.processes[ask.process].limiter;
        let actual = match ask.then {
            Then::Settle(actual, time) => {
                sleep(time).await;
                actual
            }
            Then::Hold(time) => {
                self.records.borrow_mut()[place].guarded_at = Some(self.elapsed());
                let guard = limiter.hold(reservation);
                sleep(time).await;
                self.note_settlement(place, ask.cost);
                return drop(guard);
            }
            Then::Renew(times, pause) => {
                for _ in 0..times {
                    sleep(pause).await;
                    let asked = self.elapsed();
                    let Some(renewal) = limiter.renew(&mut reservation) else { break };
                    match timeout(MAX_SETTLEMENT, renewal).await {
                        Ok(Ok(true)) => self.records.borrow_mut()[place].renewed.push(asked),
                        Ok(_) => {}
                        Err(_) => {
                            self.records.borrow_mut()[place].settlement = Some(Settled::Never);
                        }
                    }
                }
                sleep(pause).await;
                0
            }
            Then::Keep | Then::Obey => return,
        };
        if let Ok(settlement) = limiter.settle(reservation, actual) {
            self.note_settlement(place, actual);
            let result = match timeout(MAX_SETTLEMENT, settlement).await {
                Ok(Ok(settled)) => Settled::GaveBack(settled.given_back),
                Ok(Err(_)) => Settled::Failed,
                Err(_) => Settled::Never,
            };
            self.records.borrow_mut()[place].settlement = Some(result);
        }
    }

    /// Notes that an admission is settled now.
    fn note_settlement(&self, place: usize, actual: u64) {
        let record = &mut self.records.borrow_mut()[place];
        if let Fate::Admitted { settled, .. } = &mut record.fate {
            *settled = Some(actual);
            record.settled_at = Some(self.elapsed());
        }
    }

    async fn answer(&self, ask: &Ask, process: &Process) -> Answer {
        let charge = self.charge(ask, process);
        match ask.way {
            Way::Acquire if ask.fails_open => {
                process.limiter.clone().or_else(FailOpen).acquire(charge).await.into()
            }
            Way::Acquire => process.limiter.acquire(charge).await.into(),
            Way::Layer | Way::Panic => match process.send(charge, ask.way == Way::Panic).await {
                Ok(report) => Answer::admitted(&report),
                Err(StatusCode::TOO_MANY_REQUESTS) => {
                    Fate::Refused { by: None, retry_after: None }.into()
                }
                Err(_) => Fate::Failed(None).into(),
            },
            Way::Unready | Way::Refunded => {
                let is_ready = ask.way == Way::Refunded;
                let most = ask.max_wait + TIMEOUT + TIMEOUT / 2;
                drop(timeout(most, process.send_in_vain(charge, is_ready)).await);
                Fate::Left.into()
            }
            Way::Peek => process.limiter.peek(charge).await.into(),
            Way::Estimate => process.limiter.estimate(charge).await.into(),
            Way::Penalize => process.limiter.penalize(charge).await.into(),
            Way::Grant => process.limiter.grant(charge, ask.cost).await.into(),
            Way::Reset => process.limiter.reset(charge).await.into(),
            Way::Block => {
                let time = MILLISECOND * 50 * u32::try_from(ask.cost).expect("few");
                process.limiter.block(charge, time).await.into()
            }
            Way::Pause => {
                let time = MILLISECOND * 40 * u32::try_from(ask.cost).expect("few");
                process.limiter.pause(charge, time).await.into()
            }
            Way::Unblock => process.limiter.unblock(charge).await.into(),
        }
    }

    fn charge(&self, ask: &Ask, process: &Process) -> Charge {
        if let Some(policies) = &process.policies {
            let request = Request::get(format!("/{}", ask.key)).body(()).expect("a path");
            let Keyed::Charge(charge) = policies.charge(Head::from(&request)) else {
                panic!("no policy takes a request");
            };
            return charge;
        }
        let charge = Charge::new(ask.key).cost(ask.cost).max_wait(ask.max_wait);
        let charge = charge.keep_free(ask.keep_free);
        match ask.own_quota {
            Some(which) => {
                let quotas = &self.plan.limits[0].own_quotas[which];
                charge.quota(Quotas::from(quotas.as_slice()))
            }
            None => charge,
        }
    }

    /// Checks what happened.
    fn report(self, tells: bool) -> Report {
        let longest_turn = longest_turn();
        let mut records = self.records.take();
        records.sort_by_key(|record| (record.asked, record.ask));
        let mut injected: BTreeMap<String, u64> = BTreeMap::new();
        let disturbances = self.network.disturbances();
        for disturbance in &disturbances {
            *injected.entry(format!("{:?}", disturbance.fault)).or_default() += 1;
        }
        for (_, _, kind) in &*self.strikes.borrow() {
            *injected.entry(format!("{kind:?}")).or_default() += 1;
        }
        let left = |record: &&Record| record.fate == Fate::Left;
        let panicked = |record: &&Record| record.fate == Fate::Panicked;
        injected.insert("Death".to_owned(), self.deaths.borrow().len() as u64);
        injected.insert("Freeze".to_owned(), self.freezes.borrow().len() as u64);
        injected.insert("CallerLeaves".to_owned(), records.iter().filter(left).count() as u64);
        injected.insert("Panic".to_owned(), records.iter().filter(panicked).count() as u64);
        injected.retain(|_, times| *times > 0);
        let simulated = self.elapsed();
        let hosts = self.servers.hosts();
        let servers: Vec<_> = hosts.iter().map(|(_, host)| host.server()).collect();
        let books: Vec<_> = servers.iter().map(|server| server.book()).collect();
        let strikes = self.strikes.take();
        let (freezes, modes) = (self.freezes.take(), self.modes.take());
        let deaths = self.deaths.take();
        let tables = self.tables.take();
        let read = judged(|| Account::of(&self.plan.limits, &books)).and_then(|read| read);
        let (account, unread) = match read {
            Ok(account) => (account, None),
            Err(why) => (Account::default(), Some(why)),
        };
        let dials = self.network.dials();
        let seen = Seen {
            plan: &self.plan,
            records: &records,
            account: &account,
            disturbances: &disturbances,
            strikes: &strikes,
            freezes: &freezes,
            deaths: &deaths,
            modes: &modes,
            tables: &tables,
            shadow_counts: &self.shadow_counts,
            dials: &dials,
            namings: &checks::read_namings(&hosts, &books, &dials),
            open_connections: self.network.open(),
            tasks: Handle::current().metrics().num_alive_tasks(),
        };
        let checked = || judged(|| checks::violation(&seen)).unwrap_or_else(Some);
        let violation = unread.or_else(checked);
        let tells = tells || violation.is_some();
        let timeline = if tells { checks::timeline(&seen) } else { String::new() };
        let callers = records.len();
        Report { simulated, callers, injected, violation, timeline, longest_turn }
    }
}

/// Judges a world. A judge that panics is a violation of the world with this seed, and nothing of
/// the world is unwound.
fn judged<T>(judge: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(judge)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("judge: {}", text.unwrap_or("a panic"))
    })
}

#[test]
fn a_judge_that_panics_is_a_violation() {
    let words = ["refund"];
    let judge = |length: usize| judged(|| words[..length].concat());
    assert_eq!(judge(1).as_deref(), Ok("refund"));
    let why = judge(3).expect_err("a panic");
    assert!(why.starts_with("judge: range end index 3"), "{why}");
}

/// Notes a caller's record, even if it panics.
struct Note<'a> {
    world: &'a World,
    index: usize,
    number: usize,
    is_second: bool,
    asked: Duration,
    answer: Option<Answer>,
}

impl Note<'_> {
    /// Writes the record. Returns its place.
    fn write(mut self) -> usize {
        self.record();
        self.world.records.borrow().len() - 1
    }

    fn record(&mut self) {
        let Some(Answer { fate, decided_at, .. }) = self.answer.take() else { return };
        let Self { index: ask, number, is_second, asked, .. } = *self;
        let ended = self.world.elapsed();
        let (settled_at, settlement, guarded_at) = (None, None, None);
        let record = Record {
            ask,
            number,
            asked,
            ended,
            fate,
            decided_at,
            settled_at,
            is_second,
            settlement,
            renewed: Vec::new(),
            guarded_at,
        };
        self.world.records.borrow_mut().push(record);
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.answer = Some(Fate::Panicked.into());
            self.record();
        } else if self.world.is_dead(self.world.plan.asks[self.index].process) {
            self.answer = Some(Fate::Left.into());
            self.record();
        }
    }
}

/// The answer that a caller got.
struct Answer {
    fate: Fate,
    decided_at: Option<i64>,
    reservation: Option<Reservation>,
}

impl Answer {
    fn admitted(decision: &Decision) -> Self {
        if decision.origin() != Origin::Store {
            return Fate::AdmittedBy(decision.origin()).into();
        }
        let decided_at = instant(decision.decided_at());
        let at = |waits| Some(decided_at? + instant(Some(waits))?);
        let fate = match decision.shadowed() {
            Some(Ok(Outcome::Deny { retry_after })) => Fate::Spared { retry_after },
            Some(Ok(Outcome::Retry(pause))) => Fate::Spared { retry_after: Some(pause) },
            // Its slot is reserved, and nobody waits for it.
            Some(Ok(Outcome::Wait(wait))) => {
                Fate::Admitted { at: at(wait).expect("of the store"), settled: None }
            }
            _ => {
                let at = instant(decision.slot()).expect("of the store");
                Fate::Admitted { at, settled: None }
            }
        };
        Self { decided_at, ..fate.into() }
    }
}

impl From<Fate> for Answer {
    fn from(fate: Fate) -> Self {
        Self { fate, decided_at: None, reservation: None }
    }
}

impl From<Result<Done, Refusal>> for Answer {
    fn from(answer: Result<Done, Refusal>) -> Self {
        match answer {
            Err(Refusal::Undecided(error)) => Fate::Failed(Some(error.kind())).into(),
            Err(Refusal::Denied(decision)) => {
                let (by, retry_after) = (Some(decision.origin()), decision.retry_after());
                let decided_at = instant(decision.decided_at());
                Self { decided_at, ..Fate::Refused { by, retry_after }.into() }
            }
            Err(_) => Fate::Failed(None).into(),
            Ok(mut decision) => {
                let answer = Self::admitted(&decision);
                let is_of_store = decision.origin() == Origin::Store;
                let reservation = decision.take_reservation().filter(|_| is_of_store);
                Self { reservation, ..answer }
            }
        }
    }
}

impl From<Result<Done, Error>> for Answer {
    fn from(answer: Result<Done, Error>) -> Self {
        answer.map(|done| done.0).into()
    }
}

impl From<Result<Decision, Error>> for Answer {
    fn from(answer: Result<Decision, Error>) -> Self {
        match answer {
            Ok(decision) => {
                Self { decided_at: instant(decision.decided_at()), ..Fate::Done.into() }
            }
            Err(error) => Fate::Failed(Some(error.kind())).into(),
        }
    }
}

/// An instant in µs since the epoch.
fn instant(at: Option<Duration>) -> Option<i64> {
    at.map(|at| i64::try_from(at.as_micros()).expect("an instant"))
}
