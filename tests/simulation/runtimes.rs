//! Runtimes of one process that take turns and end, with one limiter between them. No decision and
//! no charge depends on a runtime that is not its caller's.
//!
//! One runtime is polled at a time. The other stands still meanwhile, with the connections and the
//! charges that it carries. Neither the network nor the servers fail.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::select;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, advance, sleep, sleep_until};
use tower_sluice::algorithm::{AnyAlgorithm, FixedWindow, SlidingLog, TokenBucket};
use tower_sluice::limiter::{Boxed, Origin};
use tower_sluice::{Charge, Decision, ErrorKind, FailOpen, LimiterExt, Quota, Redis, Refusal};

use super::account::{Account, Limit};
use super::clock::{micros, now};
use super::network::Network;
use super::number;
use super::plan::{MILLISECOND, SECOND};
use super::servers::{Servers, Topology};
use super::world::TIMEOUT;

/// The most that a decision may be late for a caller whose runtime is polled.
const GRACE: Duration = Duration::from_millis(60);

/// The longest time after another runtime stood still or ended until every charge is decided again.
const RECOVERY: Duration = SECOND;

/// The worlds of a run, unless `SEEDS` says another number.
const DEFAULT_SEEDS: u64 = 15;

/// A runtime, and the tasks that live in it.
struct Place {
    // The tasks go before the runtime does.
    local: LocalSet,
    runtime: Runtime,
}

impl Place {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        Self { local: LocalSet::new(), runtime: runtime.expect("a runtime") }
    }

    /// Polls the runtime until `future` is ready. The network goes on meanwhile.
    fn run<F: Future>(&self, network: &Rc<Network>, future: F) -> F::Output {
        let network = Rc::downgrade(network);
        self.local.block_on(&self.runtime, async {
            advance(now().saturating_duration_since(Instant::now())).await;
            select! {
                biased;
                output = future => output,
                () = Network::serve(network) => unreachable!("it is held"),
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Admitted at this slot.
    Admitted(i64),
    Refused,
    FailedOpen,
    Failed(ErrorKind),
    /// Its runtime ended.
    Left,
}

/// A caller's record. Instants are in µs since the epoch.
#[derive(Clone, Debug)]
struct Record {
    place: usize,
    key: &'static str,
    cost: u64,
    max_wait: Duration,
    asked: i64,
    ended: i64,
    fate: Fate,
}

/// Notes the record of a caller, also of one whose runtime ends.
struct Note {
    record: Record,
    records: Rc<RefCell<Vec<Record>>>,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.record.ended = micros();
        if self.record.asked > 0 {
            self.records.borrow_mut().push(self.record.clone());
        }
    }
}

async fn call(limiter: Boxed, at: Instant, fails_open: bool, mut note: Note) {
    sleep_until(at).await;
    let record = &mut note.record;
    record.asked = micros();
    let charge = Charge::new(record.key).cost(record.cost).max_wait(record.max_wait);
    let answer = match fails_open {
        true => limiter.or_else(FailOpen).acquire(charge).await,
        false => limiter.acquire(charge).await,
    };
    record.fate = match answer {
        Ok(decision) if decision.origin() == Origin::Store => Fate::Admitted(slot(&decision)),
        Ok(_) => Fate::FailedOpen,
        Err(Refusal::Undecided(error)) => Fate::Failed(error.kind()),
        Err(_) => Fate::Refused,
    };
}

fn slot(decision: &Decision) -> i64 {
    let at = decision.slot().expect("by the store");
    i64::try_from(at.as_micros()).expect("an instant")
}

/// All that was seen of a world.
struct Seen {
    account: Result<Account, String>,
    records: Vec<Record>,
    /// The stretches in which a place was polled: the place, from when, until when.
    turns: Vec<(usize, i64, i64)>,
    open_connections: usize,
    tasks: usize,
}

fn live(seed: u64) -> Seen {
    fastrand::seed(seed);
    let mut dice = Rng::with_seed(seed);
    let network = Network::new(dice.u64(..));
    let quota = Quota::new(dice.u64(1..12), MILLISECOND * dice.u32(20..1_000));
    let algorithm: AnyAlgorithm = match dice.u32(0..3) {
        0 => TokenBucket::new(quota.burst(dice.u64(1..8))).into(),
        1 => FixedWindow::new(quota).into(),
        _ => SlidingLog::new(quota).into(),
    };
    let topology = match dice.u32(0..3) {
        0 => Topology::Cluster { masters: 3, replicas: 0 },
        _ => Topology::One,
    };
    let mut places = [Place::new(), Place::new()];
    let (servers, pool) = places[0].run(&network, async {
        let servers = Servers::start(&topology, &network, dice.u64(..));
        let pool = servers.pool(&network.dialer()).build().expect("a pool");
        (servers, pool)
    });
    let limiter = Redis::new("api", algorithm, pool)
        .decision_timeout(TIMEOUT)
        .max_batch_size([1, 8, 64][dice.usize(0..3)])
        .max_in_flight([1, 2, 8][dice.usize(0..3)])
        .boxed();
    let records = Rc::<RefCell<Vec<Record>>>::default();
    let mut turns = Vec::new();
    let number = dice.usize(3..9);
    for turn in 0..=number {
        let place = dice.usize(0..2);
        let (time, callers) = match turn == number {
            true => (3 * SECOND, 60),
            false => (MILLISECOND * dice.u32(1..400), dice.u32(0..20)),
        };
        let begun = places[place].run(&network, async {
            let begun = micros();
            for _ in 0..callers {
                let at = Instant::now() + time.mul_f64(dice.f64());
                let record = Record {
                    place,
                    key: ["hot", "hot", "cold"][dice.usize(0..3)],
                    cost: dice.u64(1..4),
                    max_wait: MILLISECOND * [0, 0, dice.u32(1..300)][dice.usize(0..3)],
                    asked: 0,
                    ended: 0,
                    fate: Fate::Left,
                };
                let note = Note { record, records: Rc::clone(&records) };
                spawn_local(call(limiter.clone(), at, dice.bool(), note));
            }
            sleep(time).await;
            begun
        });
        // What ends with a runtime ends at the instant of the one that goes on.
        let other = 1 - place;
        let _context = places[place].runtime.enter();
        turns.push((place, begun, micros()));
        if turn == number || dice.bool() {
            places[other] = Place::new();
        }
    }
    let place = turns[number].0;
    let tasks = places[place].run(&network, async {
        // Callers that wait, and refunds.
        sleep(SECOND).await;
        drop(limiter);
        sleep(SECOND).await;
        Handle::current().metrics().num_alive_tasks()
    });
    turns[number].2 = i64::MAX;
    let limits = [Limit { name: "api", algorithms: vec![algorithm], own_quotas: Vec::new() }];
    let hosts = servers.hosts();
    let servers: Vec<_> = hosts.iter().map(|(_, host)| host.server()).collect();
    let books: Vec<_> = servers.iter().map(|server| server.book()).collect();
    let account = Account::of(&limits, &books);
    let records = records.take();
    Seen { account, records, turns, open_connections: network.open(), tasks }
}

impl Seen {
    /// The first promise that was broken.
    fn violation(&self) -> Option<String> {
        let account = match &self.account {
            Ok(account) => account,
            Err(why) => return Some(why.clone()),
        };
        for record in &self.records {
            if let Some(promise) = self.broken(record) {
                return Some(format!("{promise}: {record:?}"));
            }
        }
        self.once(account).or_else(|| {
            let is_left = self.open_connections > 0 || self.tasks > 0;
            is_left.then(|| {
                format!("leak: {} connections, {} tasks", self.open_connections, self.tasks)
            })
        })
    }

    /// The promise to a caller that was broken.
    fn broken(&self, record: &Record) -> Option<&'static str> {
        let has_failed = matches!(record.fate, Fate::Failed(_));
        let (_, last, _) = self.turns[self.turns.len() - 1];
        if record.fate == Fate::FailedOpen || record.fate == Fate::Failed(ErrorKind::Infrastructure)
        {
            return Some("unasked");
        }
        if has_failed && record.asked > last + in_micros(RECOVERY) {
            return Some("recovery");
        }
        let polled = |(place, from, until): &(usize, i64, i64)| {
            let overlap = (*until).min(record.ended) - (*from).max(record.asked);
            if *place == record.place { overlap.max(0) } else { 0 }
        };
        let took: i64 = self.turns.iter().map(polled).sum();
        let most = in_micros(TIMEOUT + GRACE + record.max_wait);
        (record.fate != Fate::Left && took > most).then_some("time")
    }

    /// Each admission has a charge of its own. Any other charge is of a caller that has left.
    fn once(&self, account: &Account) -> Option<String> {
        let mut bookings: Vec<_> = account.bookings.iter().filter(|one| one.taken > 0).collect();
        for record in &self.records {
            let Fate::Admitted(at) = record.fate else { continue };
            let own = bookings.iter().position(|one| {
                (one.at, one.label("api"), one.cost) == (at, record.key, record.cost as i64)
            });
            match own {
                Some(own) => drop(bookings.swap_remove(own)),
                None => return Some(format!("once: nothing is booked of {record:?}")),
            }
        }
        bookings.sort_by_key(|booking| booking.now);
        let mut left: Vec<_> =
            self.records.iter().filter(|record| record.fate == Fate::Left).collect();
        for booking in bookings {
            let own = left.iter().position(|record| {
                let is_alike =
                    (record.key, record.cost as i64) == (booking.label("api"), booking.cost);
                is_alike && record.asked <= booking.now
            });
            match own {
                Some(own) => drop(left.swap_remove(own)),
                None => return Some(format!("once: nobody holds {booking:?}")),
            }
        }
        None
    }
}

fn in_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("little")
}

#[test]
fn a_runtime_that_ends_or_stands_still_takes_nothing_from_another() {
    let (first, seeds) = (number("SEED", 0), number("SEEDS", DEFAULT_SEEDS));
    let (mut callers, mut left, mut violations) = (0, 0, 0);
    for seed in first..first + seeds {
        let seen = live(seed);
        callers += seen.records.len();
        left += seen.records.iter().filter(|record| record.fate == Fate::Left).count();
        if let Some(violation) = seen.violation() {
            violations += 1;
            println!("violation seed={seed} {violation}");
            println!("turns: {:?}", seen.turns);
        }
    }
    println!("runtimes seeds={seeds} callers={callers} left={left} violations={violations}");
    assert_eq!(violations, 0);
}
