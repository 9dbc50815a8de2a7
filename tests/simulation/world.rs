//! A world with a seed: callers of a few processes, a network that fails, and a server that is
//! stopped and crashes. What happens there is checked against the server's own book.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{
    Charge, Decision, ErrorKind, FailOpen, Limiter, LimiterExt, Origin, Pool, Quota, Redis, Refusal,
};

use super::account::{Admission, admissions, excess};
use super::network::{Host, Network, Odds};
use super::server::Server;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Faults happen in this stretch of the world.
const FAULTS: (Duration, Duration) = (SECOND, Duration::from_secs(6));

/// How long after the last fault everything is decided again.
const RECOVERY: Duration = SECOND;

/// How long a decision may take, and the grace beyond it, in which this process finds out whose
/// fault a missing answer is.
const TIMEOUT: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_millis(60);

/// How a caller fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Admitted by the store, at this slot.
    Admitted(i64),
    /// The same, and given back.
    Returned(i64),
    Refused,
    FailedOpen,
    Failed(ErrorKind),
    /// It hung up, so nobody knows.
    Left,
}

/// A caller's record. Times are since the world began.
#[derive(Debug)]
struct Record {
    key: &'static str,
    cost: i64,
    asked: Duration,
    ended: Duration,
    /// The latest end.
    limit: Duration,
    fate: Fate,
}

/// What became of one world.
#[derive(Debug, Default)]
pub struct Report {
    pub simulated: Duration,
    pub callers: usize,
    pub injected: BTreeMap<String, u64>,
    /// What is wrong, if anything is.
    pub violation: Option<String>,
    /// What happened, in order: equal for equal seeds.
    pub timeline: String,
}

struct World {
    begun: Instant,
    dice: RefCell<Rng>,
    network: Rc<Network>,
    host: Rc<Host>,
    records: RefCell<Vec<Record>>,
    crashes: Cell<u64>,
    has_lost_data: Cell<bool>,
    stops: Cell<u64>,
    /// When the last fault was over.
    quiet: Cell<Duration>,
}

/// Runs the world of a seed in a thread of its own, so that nothing is left of the one before.
pub fn run(seed: u64) -> Report {
    let world = move || {
        fastrand::seed(seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        LocalSet::new().block_on(&runtime, World::live(seed))
    };
    std::thread::spawn(world)
        .join()
        .unwrap_or_else(|_| Report { violation: Some("a panic".to_owned()), ..Report::default() })
}

impl World {
    async fn live(seed: u64) -> Report {
        let mut dice = Rng::with_seed(seed);
        let network = Network::new(dice.u64(..));
        let host = Host::new(Server::new("redis", 6_379));
        network.add_host("redis", Rc::clone(&host));
        let pace = dice.u32(1..40);
        let burst = dice.u64(1..8);
        let bucket = TokenBucket::new(Quota::new(1, MILLISECOND * pace).burst(burst));
        let processes = dice.usize(1..4);
        let dialer = network.dialer();
        let limiters: Vec<_> = (0..processes)
            .map(|_| {
                let dialer = dialer.clone();
                let pool = Pool::builder("redis://redis").expect("an address");
                let pool = pool.dial(move |host, _| dialer.clone().dial(host)).build();
                let limiter = Redis::new("api", bucket, pool.expect("a pool"));
                limiter.decision_timeout(TIMEOUT)
            })
            .collect();
        let world = Rc::new(World {
            begun: Instant::now(),
            dice: RefCell::new(dice),
            network,
            host,
            records: RefCell::default(),
            crashes: Cell::default(),
            has_lost_data: Cell::default(),
            stops: Cell::default(),
            quiet: Cell::default(),
        });
        let faults = spawn_local(Rc::clone(&world).faults());
        let callers: Vec<_> = (0..world.draw(5..60))
            .map(|_| {
                let limiter = limiters[world.draw(0..processes as u32) as usize].clone();
                spawn_local(Rc::clone(&world).caller(limiter))
            })
            .collect();
        faults.await.expect("faults");
        for caller in callers {
            caller.await.expect("a caller");
        }
        drop((limiters, dialer));
        // Refunds that are under way, and connections that close.
        sleep(5 * SECOND).await;
        world.report(bucket, i64::from(pace) * 1_000, burst)
    }

    fn draw(&self, range: std::ops::Range<u32>) -> u32 {
        self.dice.borrow_mut().u32(range)
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Lets things fail for a while, then no more.
    async fn faults(self: Rc<Self>) {
        sleep_until(self.begun + FAULTS.0).await;
        let mut odds = Odds::default();
        for odd in [
            &mut odds.refuse,
            &mut odds.silence,
            &mut odds.cut_before,
            &mut odds.cut_within,
            &mut odds.cut_after,
            &mut odds.cut_answer,
            &mut odds.stall,
            &mut odds.half_open,
        ] {
            // Half of the kinds, each as often as it likes.
            if self.draw(0..2) == 0 {
                *odd = self.draw(5..200);
            }
        }
        self.network.set_odds(odds);
        while self.elapsed() < FAULTS.1 {
            sleep(MILLISECOND * self.draw(10..900)).await;
            match self.draw(0..5) {
                0 => {
                    let keeps_data = self.draw(0..2) == 0;
                    self.host.crash(keeps_data);
                    self.crashes.set(self.crashes.get() + 1);
                    self.has_lost_data.set(self.has_lost_data.get() || !keeps_data);
                    sleep(MILLISECOND * self.draw(1..500)).await;
                    self.host.server().go_on();
                }
                1 => {
                    self.stops.set(self.stops.get() + 1);
                    self.host.stand_for(MILLISECOND * self.draw(1..600));
                }
                _ => {}
            }
        }
        self.network.set_odds(Odds::default());
        sleep(self.host.standing()).await;
        self.quiet.set(self.elapsed());
    }

    /// Asks again and again, in one of the ways in which callers do.
    async fn caller(self: Rc<Self>, limiter: Redis<TokenBucket>) {
        while self.elapsed() < FAULTS.1 + 2 * SECOND {
            sleep(MILLISECOND * self.draw(1..400)).await;
            let key = ["hot", "hot", "cold"][self.draw(0..3) as usize];
            let cost = u64::from(self.draw(1..4));
            let max_wait = MILLISECOND * [0, 0, self.draw(1..500)][self.draw(0..3) as usize];
            let charge = Charge::new(key).cost(cost).max_wait(max_wait);
            let patience = match self.draw(0..4) {
                0 => MILLISECOND * self.draw(0..300),
                _ => 60 * SECOND,
            };
            let asked = self.elapsed();
            let answer = match self.draw(0..3) {
                0 => timeout(patience, limiter.clone().or_else(FailOpen).acquire(charge)).await,
                _ => timeout(patience, limiter.acquire(charge)).await,
            };
            let ended = self.elapsed();
            let fate = match answer {
                Err(_) => Fate::Left,
                Ok(Err(Refusal::Undecided(error))) => Fate::Failed(error.kind()),
                Ok(Err(_)) => Fate::Refused,
                Ok(Ok(decision)) if decision.origin() == Origin::FailOpen => Fate::FailedOpen,
                Ok(Ok(mut decision)) => {
                    let at = slot(&decision);
                    if let Some(reservation) = decision.take_reservation()
                        && self.draw(0..4) == 0
                    {
                        let _ = limiter.settle(reservation, 0);
                        Fate::Returned(at)
                    } else {
                        Fate::Admitted(at)
                    }
                }
            };
            let limit = asked + max_wait + TIMEOUT + GRACE;
            let cost = cost.cast_signed();
            self.records.borrow_mut().push(Record { key, cost, asked, ended, limit, fate });
        }
    }

    /// Checks what happened.
    fn report(&self, bucket: TokenBucket, pace: i64, burst: u64) -> Report {
        let records = self.records.borrow();
        let violation = self.violation(&records, bucket, pace, burst.cast_signed());
        let mut injected: BTreeMap<String, u64> = self
            .network
            .injected()
            .iter()
            .map(|(kind, times)| (format!("{kind:?}"), *times))
            .collect();
        injected.insert("Crash".to_owned(), self.crashes.get());
        injected.insert("Stop".to_owned(), self.stops.get());
        let timeline = records.iter().map(|record| format!("{record:?}\n")).collect();
        let simulated = self.elapsed();
        Report { simulated, callers: records.len(), injected, violation, timeline }
    }

    fn violation(
        &self,
        records: &[Record],
        bucket: TokenBucket,
        pace: i64,
        burst: i64,
    ) -> Option<String> {
        let server = self.host.server();
        let booked = match admissions(server.book().events(), bucket) {
            Ok(booked) => booked,
            Err(why) => return Some(format!("truth: {why}")),
        };
        if !self.has_lost_data.get()
            && let Some(why) = booked.values().find_map(|one| excess(one, pace, burst))
        {
            return Some(format!("bound: {why}"));
        }
        let quiet = self.quiet.get() + RECOVERY;
        for record in records {
            let is_disturbed = record.ended >= FAULTS.0 && record.asked <= quiet;
            match record.fate {
                Fate::FailedOpen if !is_disturbed => return Some(format!("unasked: {record:?}")),
                Fate::Failed(_) if !is_disturbed => return Some(format!("recovery: {record:?}")),
                Fate::Left => {}
                _ if record.ended > record.limit => return Some(format!("time: {record:?}")),
                _ => {}
            }
        }
        if let Some(why) = unaccounted(records, &booked) {
            return Some(format!("once: {why}"));
        }
        let open = self.network.open();
        (open > 0).then(|| format!("leak: {open} connections are open"))
    }
}

/// When an admission goes, in µs since the epoch.
fn slot(decision: &Decision) -> i64 {
    let at = decision.decided_at().expect("of the store") + decision.waited();
    i64::try_from(at.as_micros()).expect("an instant")
}

/// What was admitted and not booked, or booked for nobody.
fn unaccounted(records: &[Record], booked: &BTreeMap<String, Vec<Admission>>) -> Option<String> {
    for key in ["hot", "cold"] {
        let tag = format!("{{{key}}}");
        let mut open: Vec<&Admission> = booked
            .iter()
            .filter(|(name, _)| name.ends_with(&tag))
            .flat_map(|(_, all)| all)
            .collect();
        // Those who keep their units first: what was given back stands for nobody else.
        let returned = |record: &&Record| matches!(record.fate, Fate::Returned(_));
        let mut own: Vec<&Record> = records.iter().filter(|record| record.key == key).collect();
        own.sort_by_key(returned);
        for record in own {
            if let Fate::Admitted(at) | Fate::Returned(at) = record.fate {
                let is_kept = matches!(record.fate, Fate::Admitted(_));
                let is_own = |one: &&Admission| {
                    let is_taken = one.taken == one.cost || !is_kept;
                    one.at == at && one.cost == record.cost && is_taken
                };
                match open.iter().position(is_own) {
                    Some(place) => drop(open.swap_remove(place)),
                    None => return Some(format!("no charge stands for {record:?}")),
                }
            }
        }
        for cost in 1..4 {
            let nobodys = open.iter().filter(|one| one.cost == cost && one.taken > 0).count();
            let unknown = records.iter().filter(|record| {
                let is_unknown =
                    matches!(record.fate, Fate::Left | Fate::Failed(_) | Fate::FailedOpen);
                is_unknown && (record.key, record.cost) == (key, cost)
            });
            let unknown = unknown.count();
            if nobodys > unknown {
                return Some(format!(
                    "{nobodys} charges of {cost} for {key} are nobody's, and {unknown} callers left"
                ));
            }
        }
    }
    None
}
