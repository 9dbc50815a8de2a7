//! Redisson's limiter in a world: callers of two processes take permits over a network that fails.
//! The servers' books say which grants there were.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::{Builder, Handle};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_sluice::limiter::Origin;
use tower_sluice::{Charge, ErrorKind, FailOpen, Limiter, LimiterExt, Refusal};
use tower_sluice_redisson::{Rate, Redisson};

use super::book::{Event, ScriptCall};
use super::clock::{START, micros};
use super::network::{Disturbance, Fault, Network, Odds};
use super::number;
use super::plan::{MILLISECOND, SECOND};
use super::resp::Reply;
use super::servers::{Servers, Topology};
use super::world::TIMEOUT;

/// The most that a decision may be late.
const GRACE: Duration = Duration::from_millis(60);

/// The longest time after the last fault until everything is decided again.
const RECOVERY: Duration = SECOND;

/// A connection that is silent for longer is left.
const LEFT_AFTER: Duration = Duration::from_millis(250);

/// The worlds of a run, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Admitted at this instant, and whether it gave its permits back.
    Admitted {
        at: i64,
        gave_back: bool,
    },
    Refused,
    FailedOpen,
    Failed(ErrorKind),
    Left,
}

/// A caller's record. Instants are in µs since the epoch.
#[derive(Clone, Copy, Debug)]
struct Record {
    limiter: &'static str,
    permits: u64,
    max_wait: Duration,
    asked: i64,
    ended: i64,
    fate: Fate,
}

/// A caller, and the way in which it asks.
struct Caller {
    at: Instant,
    redisson: Redisson,
    record: Record,
    patience: Option<Duration>,
    fails_open: bool,
    gives_back: bool,
}

impl Caller {
    async fn ask(mut self, records: Rc<RefCell<Vec<Record>>>) {
        sleep_until(self.at).await;
        self.record.asked = micros();
        let patience = self.patience.unwrap_or(Duration::MAX);
        self.record.fate = timeout(patience, self.fate()).await.unwrap_or(Fate::Left);
        self.record.ended = micros();
        records.borrow_mut().push(self.record);
    }

    async fn fate(&self) -> Fate {
        let Record { limiter, permits, max_wait, .. } = self.record;
        let charge = Charge::new(limiter).cost(permits).max_wait(max_wait);
        let redisson = self.redisson.clone();
        let answer = match self.fails_open {
            true => redisson.or_else(FailOpen).acquire(charge).await,
            false => redisson.acquire(charge).await,
        };
        match answer {
            Ok(mut decision) if decision.origin() == Origin::Store => {
                let at = decision.decided_at().expect("by the store").as_micros();
                let reservation = decision.take_reservation().filter(|_| self.gives_back);
                let gave_back = reservation
                    .is_some_and(|reservation| self.redisson.settle(reservation, 0).is_ok());
                Fate::Admitted { at: i64::try_from(at).expect("an instant"), gave_back }
            }
            Ok(_) => Fate::FailedOpen,
            Err(Refusal::Undecided(error)) => Fate::Failed(error.kind()),
            Err(_) => Fate::Refused,
        }
    }
}

/// All that was seen of a world.
struct Seen {
    rate: u64,
    interval: i64,
    records: Vec<Record>,
    grants: BTreeMap<Vec<u8>, Grant>,
    bound: Option<String>,
    disturbances: Vec<Disturbance>,
    open_connections: usize,
    tasks: usize,
}

async fn live(seed: u64) -> Seen {
    let mut dice = Rng::with_seed(seed);
    let network = Network::start(dice.u64(..));
    let topology = match dice.u32(0..3) {
        0 => Topology::Cluster { masters: 3, replicas: 0 },
        _ => Topology::One,
    };
    let servers = Servers::start(&topology, &network, dice.u64(..));
    let (rate, interval) = (dice.u64(2..12), MILLISECOND * dice.u32(20..1_000));
    let redisson = |_| {
        let pool = servers.pool(&network.dialer()).build().expect("a pool");
        let redisson = Redisson::new(pool).default_rate(Rate::overall(rate, interval));
        redisson.decision_timeout(TIMEOUT)
    };
    let processes: Vec<_> = (0..2).map(redisson).collect();
    let (records, last_fault) = (Rc::default(), MILLISECOND * dice.u32(700..3_000));
    let end = last_fault + 2 * SECOND;
    let callers: Vec<_> = (0..150)
        .map(|_| {
            let record = Record {
                limiter: ["hot", "hot", "cold"][dice.usize(0..3)],
                permits: dice.u64(1..4),
                max_wait: MILLISECOND * [0, 0, dice.u32(1..500)][dice.usize(0..3)],
                asked: 0,
                ended: 0,
                fate: Fate::Left,
            };
            let caller = Caller {
                at: Instant::now() + end.mul_f64(dice.f64()),
                redisson: processes[dice.usize(0..2)].clone(),
                record,
                patience: (dice.u32(0..5) == 0).then(|| MILLISECOND * dice.u32(0..100)),
                fails_open: dice.u32(0..4) == 0,
                gives_back: dice.u32(0..4) == 0,
            };
            spawn_local(caller.ask(Rc::clone(&records)))
        })
        .collect();
    sleep(SECOND / 2).await;
    let mut odds = Odds::default();
    for odd in odds.all_mut() {
        *odd = if dice.bool() { dice.u32(5..200) } else { 0 };
    }
    network.set_odds(odds);
    sleep(last_fault.saturating_sub(SECOND / 2)).await;
    network.set_odds(Odds::default());
    for caller in callers {
        caller.await.expect("no panic");
    }
    // Refunds, and connections that close.
    sleep(2 * SECOND).await;
    drop(processes);
    sleep(5 * SECOND).await;
    let mut seen = Seen {
        rate,
        interval: in_micros(interval),
        records: records.take(),
        grants: BTreeMap::new(),
        bound: None,
        disturbances: network.disturbances(),
        open_connections: network.open(),
        tasks: Handle::current().metrics().num_alive_tasks(),
    };
    for (_, host) in servers.hosts() {
        for event in host.server().book().events() {
            if let Event::Call(call) = event {
                seen.read(call);
            }
        }
    }
    seen
}

/// The grant that stands under its random bytes.
#[derive(Clone, Debug)]
struct Grant {
    limiter: String,
    at: i64,
    /// The instants at which a client was told of it.
    told: Vec<i64>,
    permits: u64,
    left: u64,
}

impl Seen {
    /// Reads a call of Redisson's script: an instant, an operation, permits, a grant.
    fn read(&mut self, call: &ScriptCall) {
        let Reply::List(numbers) = &call.reply else { return };
        let [Reply::Integer(0), Reply::Integer(now), Reply::Integer(first), ..] = numbers[..]
        else {
            return;
        };
        let [_, operation, permits, grant, ..] = &call.arguments[..] else { return };
        let permits: u64 = String::from_utf8_lossy(permits).parse().unwrap_or(0);
        let limiter = String::from_utf8_lossy(&call.keys[0]).into_owned();
        match &operation[..] {
            b"acquire" => {
                // It was sent again: it holds what it held.
                if let Some(one) = self.grants.get_mut(grant) {
                    return one.told.push(now);
                }
                let new = Grant { limiter, at: now, told: vec![now], permits, left: permits };
                self.grants.insert(grant.clone(), new.clone());
                let lasting = self.grants.values().filter(|one| {
                    one.limiter == new.limiter
                        && now / 1_000 - one.at / 1_000 < self.interval / 1_000
                });
                let held: u64 = lasting.map(|one| one.left).sum();
                if held > self.rate {
                    self.bound = Some(format!("bound: {held} of {} held by {new:?}", self.rate));
                }
            }
            b"refund" => {
                if let Some(one) = self.grants.get_mut(grant) {
                    one.left -= first.cast_unsigned();
                }
            }
            _ => {}
        }
    }

    fn is_disturbed(&self, from: i64, until: i64) -> bool {
        self.disturbances.iter().any(|one| meets(one, from, until))
    }

    /// True if a refund of that time may be lost. What only comes late is not, unless its
    /// connection was left meanwhile.
    fn may_lose(&self, from: i64, until: i64) -> bool {
        let is_loss =
            |one: &&Disturbance| one.fault != Fault::Stall || one.until - one.from > LEFT_AFTER;
        self.disturbances.iter().filter(is_loss).any(|one| meets(one, from, until))
    }

    /// The first promise that was broken.
    fn violation(&self) -> Option<String> {
        let broken = |record: &Record| {
            let most = in_micros(record.max_wait + TIMEOUT + GRACE);
            let is_quiet = !self.is_disturbed(record.asked, record.ended);
            match record.fate {
                Fate::FailedOpen if is_quiet => Some("unasked"),
                Fate::Failed(_) if is_quiet => Some("recovery"),
                _ if record.ended - record.asked > most => Some("time"),
                _ => None,
            }
        };
        let broken = self.records.iter().find_map(|one| Some((broken(one)?, one)));
        self.bound
            .clone()
            .or_else(|| broken.map(|(promise, record)| format!("{promise}: {record:?}")))
            .or_else(|| self.once())
            .or_else(|| {
                let is_left = self.open_connections > 0 || self.tasks > 0;
                is_left.then(|| {
                    format!("leak: {} connections, {} tasks", self.open_connections, self.tasks)
                })
            })
    }

    /// Each admission has a grant of its own. Others hold nothing, but for what a fault has lost.
    fn once(&self) -> Option<String> {
        let mut grants: Vec<_> = self.grants.values().collect();
        for record in &self.records {
            let Fate::Admitted { at, gave_back } = record.fate else { continue };
            let is_own = |one: &&Grant| {
                (&*one.limiter, one.permits) == (record.limiter, record.permits)
                    && one.told.contains(&at)
            };
            // Alike grants of one instant: the one that fits.
            let fits = |one: &&Grant| is_own(one) && (one.left == 0) == gave_back;
            let any = || grants.iter().position(is_own);
            let Some(own) = grants.iter().position(fits).or_else(any) else {
                return Some(format!("once: nothing is granted to {record:?}"));
            };
            let own = grants.swap_remove(own);
            let is_right = (own.left == 0) == gave_back;
            let is_excused = gave_back && self.may_lose(own.at, record.ended + 500_000);
            if !is_right && !is_excused {
                return Some(format!("once: {record:?} holds {own:?}"));
            }
        }
        let kept = grants.iter().find(|one| {
            one.left > 0 && !self.may_lose(one.at - in_micros(TIMEOUT), one.at + 500_000)
        });
        kept.map(|one| format!("once: nobody holds {one:?}"))
    }
}

/// True if a disturbance may be felt in this stretch.
fn meets(one: &Disturbance, from: i64, until: i64) -> bool {
    let at = |time: Duration| START + in_micros(time);
    at(one.from) <= until && at(one.until) + in_micros(RECOVERY) >= from
}

fn in_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("little")
}

#[test]
fn redissons_permits_are_granted_once_whatever_the_network_does() {
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
    println!("redisson seeds={seeds} callers={callers} faults={faults} violations={violations}");
    assert_eq!(violations, 0);
}
