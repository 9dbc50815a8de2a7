//! Limits of which each takes its own cost, in one call, in a world: callers of two processes ask
//! over a network that fails, and a server that is struck. In the end the keys say what was taken.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::{Builder, Handle};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_sluice::algorithm::{
    AnyAlgorithm, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow, TokenBucket,
};
use tower_sluice::limiter::{Origin, Parts};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, FailOpen, Limiter, LimiterExt, Pool, Quota, Redis, Refusal};

use super::clock::elapsed;
use super::network::{Network, Odds};
use super::number;
use super::plan::{MILLISECOND, SECOND};
use super::servers::{Servers, Strike, StrikeKind, Topology};
use super::world::TIMEOUT;

/// The most that a decision may be late.
const GRACE: Duration = Duration::from_millis(60);

/// The longest time after the last fault until everything is decided again.
const RECOVERY: Duration = SECOND;

/// The worlds of a run, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 12;

const USERS: [&str; 2] = ["alice", "bob"];
const EVERYBODY: &str = "all";

type Pair = AllAtOnce<2, Parts>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Admitted by the store, and whether the caller gave its units back.
    Admitted {
        gave_back: bool,
    },
    Refused,
    FailedOpen,
    Failed,
    Left,
}

/// A caller's record. Instants are since the world began.
#[derive(Clone, Copy, Debug)]
struct Record {
    user: usize,
    asked: Duration,
    ended: Duration,
    fate: Fate,
}

/// A caller, and the way in which it asks.
struct Caller {
    at: Instant,
    user: usize,
    costs: [u64; 2],
    limiter: Pair,
    patience: Option<Duration>,
    fails_open: bool,
    gives_back: bool,
}

impl Caller {
    async fn ask(self, records: Rc<RefCell<Vec<Record>>>) {
        sleep_until(self.at).await;
        let asked = elapsed();
        let patience = self.patience.unwrap_or(Duration::MAX);
        let fate = timeout(patience, self.fate()).await.unwrap_or(Fate::Left);
        records.borrow_mut().push(Record { user: self.user, asked, ended: elapsed(), fate });
    }

    async fn fate(&self) -> Fate {
        let parts = [(USERS[self.user], self.costs[0]), (EVERYBODY, self.costs[1])];
        let charge = Charge::several(parts.map(|(key, cost)| Charge::new(key).cost(cost)));
        let limiter = self.limiter.clone();
        let answer = match self.fails_open {
            true => limiter.or_else(FailOpen).acquire(charge).await,
            false => limiter.acquire(charge).await,
        };
        match answer {
            Ok(mut decision) if decision.origin() == Origin::Store => {
                let reservation = decision.take_reservation().filter(|_| self.gives_back);
                let gave_back = reservation.is_some_and(|one| self.limiter.settle(one, 0).is_ok());
                Fate::Admitted { gave_back }
            }
            Ok(_) => Fate::FailedOpen,
            Err(Refusal::Undecided(_)) => Fate::Failed,
            Err(_) => Fate::Refused,
        }
    }
}

/// All that was seen of a world.
struct Seen {
    costs: [u64; 2],
    limits: [u64; 2],
    records: Vec<Record>,
    /// The units that each user's key has taken in the end, and those of everybody's.
    taken: [u64; 3],
    /// Stretches of faults.
    disturbances: Vec<(Duration, Duration)>,
    open_connections: usize,
    tasks: usize,
}

/// An algorithm of which nothing comes back by itself while a world lasts. Unless nobody gives
/// units back, it takes back those of any charge, not only of the newest.
fn algorithm(limit: u64, is_kept: bool, dice: &mut Rng) -> AnyAlgorithm {
    let quota = Quota::per_day(limit);
    match dice.u32(0..5) {
        0 if is_kept => TokenBucket::new(quota).into(),
        1 if is_kept => SlidingLog::new(quota).into(),
        2 => SlidingWindow::new(quota).into(),
        3 => SlidingCounter::new(quota).into(),
        _ => FixedWindow::new(quota).into(),
    }
}

async fn live(seed: u64) -> Seen {
    let mut dice = Rng::with_seed(seed);
    let network = Network::start(dice.u64(..));
    let servers = Servers::start(&Topology::One, &network, dice.u64(..));
    let limits = [dice.u64(20..150), dice.u64(20..300)];
    let (is_quiet, all_keep) = (dice.u32(0..3) == 0, dice.u32(0..3) == 0);
    let [one, other] = limits.map(|limit| algorithm(limit, is_quiet && all_keep, &mut dice));
    let first = dice.u64(1..4);
    let costs = [first, first + dice.u64(1..3)];
    let costs = if dice.bool() { costs } else { [costs[1], costs[0]] };
    let batch = [1, 2, 8, 64][dice.usize(0..4)];
    let members = |pool: &Pool| {
        let member = |name, algorithm| {
            let member = Redis::new(name, algorithm, pool.clone()).decision_timeout(TIMEOUT);
            member.max_batch_size(batch)
        };
        (member("user", one), member("everybody", other))
    };
    let pools = [(); 2].map(|()| servers.pool(&network.dialer()).build().expect("a pool"));
    let processes = pools.map(|pool| AllAtOnce::of_parts(members(&pool)));
    let (records, last_fault) = (Rc::default(), MILLISECOND * dice.u32(700..3_000));
    let end = last_fault + 2 * SECOND;
    let callers: Vec<_> = (0..dice.usize(20..150))
        .map(|_| {
            let caller = Caller {
                at: Instant::now() + end.mul_f64(dice.f64()),
                user: dice.usize(0..2),
                costs,
                limiter: processes[dice.usize(0..2)].clone(),
                patience: (dice.u32(0..5) == 0 && !all_keep)
                    .then(|| Duration::from_micros(dice.u64(..9_000))),
                fails_open: dice.u32(0..4) == 0,
                gives_back: dice.u32(0..4) == 0 && !all_keep,
            };
            spawn_local(caller.ask(Rc::clone(&records)))
        })
        .collect();
    sleep(SECOND / 2).await;
    let mut disturbances = Vec::new();
    if !is_quiet {
        let mut odds = Odds::default();
        for odd in odds.all_mut() {
            *odd = if dice.bool() { dice.u32(5..200) } else { 0 };
        }
        network.set_odds(odds);
        let kinds = [StrikeKind::CrashKeepingData, StrikeKind::Stand, StrikeKind::ScriptFlush];
        for _ in 0..dice.u32(0..3) {
            let lasting = MILLISECOND * dice.u32(1..300);
            let begun = elapsed();
            let kind = kinds[dice.usize(0..3)];
            servers.strike(&Strike { kind, place: 0, lasting }).await;
            disturbances.push((begun, elapsed()));
        }
        sleep(last_fault.saturating_sub(elapsed())).await;
        network.set_odds(Odds::default());
    }
    for caller in callers {
        caller.await.expect("no panic");
    }
    // Refunds, and connections that close.
    sleep(2 * SECOND).await;
    drop(processes);
    sleep(5 * SECOND).await;
    disturbances.extend(network.disturbances().iter().map(|one| (one.from, one.until)));
    let (open_connections, tasks) = (network.open(), Handle::current().metrics().num_alive_tasks());
    let (user, everybody) = members(&servers.pool(&network.dialer()).build().expect("a pool"));
    let mut taken = [0; 3];
    for (place, key) in [USERS[0], USERS[1], EVERYBODY].into_iter().enumerate() {
        let (limiter, limit) = if place < 2 { (&user, limits[0]) } else { (&everybody, limits[1]) };
        let left = limiter.peek(key).await.expect("a decision").remaining().expect("told");
        taken[place] = limit - left;
    }
    let records = records.take();
    Seen { costs, limits, records, taken, disturbances, open_connections, tasks }
}

impl Seen {
    fn is_disturbed(&self, from: Duration, until: Duration) -> bool {
        let meets =
            |(begin, end): &(Duration, Duration)| *begin <= until && *end + RECOVERY >= from;
        self.disturbances.iter().any(meets)
    }

    /// The first promise that was broken.
    fn violation(&self) -> Option<String> {
        let broken = |record: &Record| {
            let is_quiet = !self.is_disturbed(record.asked, record.ended);
            match record.fate {
                Fate::FailedOpen | Fate::Failed if is_quiet => Some("unasked"),
                _ if record.ended - record.asked > TIMEOUT + GRACE => Some("time"),
                _ => None,
            }
        };
        let broken = self.records.iter().find_map(|one| Some((broken(one)?, one)));
        broken
            .map(|(promise, record)| format!("{promise}: {record:?}"))
            .or_else(|| self.once().map(|why| format!("once: {why}, taken {:?}", self.taken)))
            .or_else(|| {
                let is_left = self.open_connections > 0 || self.tasks > 0;
                is_left.then(|| {
                    format!("leak: {} connections, {} tasks", self.open_connections, self.tasks)
                })
            })
    }

    /// Each admission took its own cost of each limit, and no other charge took of one limit alone.
    /// What a fault did not keep from it came back.
    fn once(&self) -> Option<String> {
        let [cost, of_everybody] = self.costs;
        let [alice, bob, everybody] = self.taken;
        let charges = (alice + bob) / cost;
        if alice % cost + bob % cost > 0 || charges * of_everybody != everybody {
            return Some(format!("costs of {:?} were taken in part", self.costs));
        }
        for (user, taken) in [alice, bob].into_iter().enumerate() {
            let is_own = |fate: &dyn Fn(Fate) -> bool| {
                let own = self.records.iter().filter(|one| one.user == user && fate(one.fate));
                own.count() as u64 * cost
            };
            let kept = is_own(&|fate| fate == Fate::Admitted { gave_back: false });
            let refused = is_own(&|fate| fate == Fate::Refused);
            // A fault may lose a refund.
            let most = match self.disturbances.is_empty() {
                true => kept,
                false => is_own(&|_| true) - refused,
            };
            if !(kept..=most).contains(&taken) {
                return Some(format!("user {user}: {kept} to {most} units are held"));
            }
        }
        // What was refused did not fit, if nothing came back.
        let comes_back = |record: &Record| {
            !matches!(record.fate, Fate::Refused | Fate::Admitted { gave_back: false })
        };
        let fits = |record: &&Record| {
            record.fate == Fate::Refused
                && self.taken[record.user] + cost <= self.limits[0]
                && everybody + of_everybody <= self.limits[1]
        };
        let refused = self.records.iter().find(fits);
        refused
            .filter(|_| !self.records.iter().any(comes_back))
            .map(|record| format!("there was room for {record:?}"))
    }
}

#[test]
fn members_take_their_own_costs_all_or_nothing_whatever_the_network_does() {
    let (first, seeds) = (number("SEED", 0), number("SEEDS", DEFAULT_SEEDS));
    let (mut callers, mut faults, mut violations) = (0, 0, 0);
    for seed in first..first + seeds {
        fastrand::seed(seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let seen = LocalSet::new().block_on(&runtime.expect("a runtime"), live(seed));
        callers += seen.records.len();
        faults += seen.disturbances.len();
        if let Some(violation) = seen.violation() {
            violations += 1;
            println!("violation seed={seed} {violation}");
        }
    }
    println!("own costs: seeds={seeds} callers={callers} faults={faults} violations={violations}");
    assert_eq!(violations, 0);
}
