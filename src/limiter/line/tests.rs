use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::task::Wake;

use tokio::time::{advance, sleep_until, timeout, timeout_at};

use super::*;
use crate::algorithm::TokenBucket;
use crate::core::{Charge, Outcome, Quota};
use crate::limiter::{Limiter, LimiterExt, Memory};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A caller that was served.
#[derive(Debug)]
struct Served {
    process: usize,
    asked: Instant,
    /// The latest instant at which it was to be served.
    told: Instant,
    at: Instant,
}

/// A random history of callers that leave, over a store that a few processes share.
struct LineHistory {
    pace: u32,
    burst: u64,
    processes: usize,
    served: Vec<Served>,
}

async fn history(seed: u64) -> LineHistory {
    let mut dice = fastrand::Rng::with_seed(seed);
    let (pace, burst, processes) = (dice.u32(1..30), dice.u64(1..4), dice.usize(1..4));
    let quota = Quota::new(1, MILLISECOND * pace).burst(burst);
    let store = Memory::new("supplier", TokenBucket::new(quota));
    let limiters: Vec<_> = (0..processes).map(|_| store.in_another_process()).collect();
    let (served, results) = mpsc::channel();
    let begun = Instant::now();
    let callers: Vec<_> = (0..dice.u32(1..150))
        .map(|_| {
            let process = dice.usize(..processes);
            let asked = begun + MILLISECOND * dice.u32(..600);
            let patience = asked + MILLISECOND * dice.u32(1..400);
            let max_wait = MILLISECOND * dice.u32(..500);
            let (limiter, served) = (limiters[process].clone(), served.clone());
            tokio::spawn(async move {
                sleep_until(asked).await;
                let told = Mutex::new(asked);
                let limiter = limiter.inspect(|_: &Charge, answer: Result<&Decision, _>| {
                    if let Outcome::Wait(wait) = answer.expect("a decision").outcome() {
                        *told.lock().unwrap() += wait;
                    }
                });
                let charge = Charge::new("key").max_wait(max_wait);
                if let Ok(Ok(_)) = timeout_at(patience, limiter.acquire(charge)).await {
                    let (told, at) = (*told.lock().unwrap(), Instant::now());
                    served.send(Served { process, asked, told, at }).unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    drop(served);
    for limiter in &limiters {
        limiter.assert_nobody_waits();
    }
    LineHistory { pace, burst, processes, served: results.into_iter().collect() }
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_before_a_slot_or_late_or_out_of_turn_and_no_slot_is_lost() {
    for seed in 0..250 {
        let LineHistory { pace, burst, processes, mut served } = history(seed).await;
        served.sort_by_key(|one| one.at);
        let pace = MILLISECOND * pace;
        for (index, one) in served.iter().enumerate() {
            assert!(one.at <= one.told, "late in {seed}: {one:?}");
            for (between, earlier) in (2..).zip(served[..index].iter().rev()) {
                let most = burst as u128 + (one.at - earlier.at).as_nanos() / pace.as_nanos();
                assert!(between <= most, "too soon in {seed}: {earlier:?} {one:?}");
                let is_overtaken = earlier.process == one.process && earlier.asked > one.asked;
                assert!(!is_overtaken || earlier.at == one.at, "{seed}: {earlier:?} {one:?}");
            }
            // In the only process, each waiter goes one pace after the waiter before.
            let before = index.checked_sub(1).map(|before| served[before].at);
            if processes == 1 && one.at > one.asked {
                assert!(before.is_some_and(|at| one.at - at <= pace), "lost in {seed}: {one:?}");
            }
        }
    }
}

/// Makes a limiter of one a second, whose only immediate slot is taken.
async fn one_a_second() -> Memory<TokenBucket> {
    let limiter = Memory::new("api", TokenBucket::new(Quota::per_second(1).burst(1)));
    limiter.acquire("key").await.unwrap();
    limiter
}

fn patient() -> Charge {
    Charge::new("key").max_wait(10 * SECOND)
}

/// Makes a waiter leave a slot that is kept, since another process has reserved the next one.
async fn keep_a_slot(limiter: &Memory<TokenBucket>) {
    let mut waiter = Box::pin(limiter.acquire(patient()));
    assert!(timeout(Duration::ZERO, &mut waiter).await.is_err());
    let behind = limiter.in_another_process().check(&patient()).await.unwrap();
    assert_eq!(behind.waited(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn who_waited_at_a_reset_leaves_no_slot_behind() {
    let limiter = one_a_second().await;
    let mut waiters = [(); 3].map(|()| Box::pin(limiter.acquire(patient())));
    for waiter in &mut waiters {
        assert!(timeout(Duration::ZERO, waiter).await.is_err());
    }
    limiter.reset("key").await.unwrap();
    drop(waiters);
    assert_eq!(limiter.check(&patient()).await.unwrap().outcome(), Outcome::Allow);
}

/// Another process has blocked the key. Whoever is refused tells that to all who come later.
#[tokio::test(start_paused = true)]
async fn a_block_that_an_answer_shows_ends_the_kept_slots() {
    let limiter = one_a_second().await;
    keep_a_slot(&limiter).await;
    limiter.in_another_process().block("key", SECOND / 2).await.unwrap();
    assert!(!limiter.check(&Charge::new("key")).await.unwrap().is_admitted());
    assert!(!limiter.check(&patient()).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_block_of_another_key_ends_no_kept_slot() {
    let limiter = one_a_second().await;
    limiter.block("other", 10 * SECOND).await.unwrap();
    keep_a_slot(&limiter).await;
    assert!(!limiter.check(&Charge::new("other")).await.unwrap().is_admitted());
    assert_eq!(limiter.check(&patient()).await.unwrap().waited(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_kept_slot_that_is_given_back_is_kept_again() {
    let limiter = one_a_second().await;
    keep_a_slot(&limiter).await;
    for _ in 0..2 {
        let mut decision = limiter.check(&patient()).await.unwrap();
        assert_eq!(decision.waited(), SECOND);
        let reservation = decision.take_reservation().unwrap();
        assert_eq!(limiter.settle(reservation, 0).unwrap().await.unwrap().given_back, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_at_a_block_gives_its_slot_back() {
    let limiter = one_a_second().await;
    let mut waiters = [(); 3].map(|()| Box::pin(limiter.acquire(patient())));
    for waiter in &mut waiters {
        assert!(timeout(Duration::ZERO, waiter).await.is_err());
    }
    limiter.block("key", SECOND / 2).await.unwrap();
    drop(waiters);
    let left = limiter.unblock("key").await.unwrap().reset_after();
    assert_eq!(left, Some(SECOND));
}

/// A slot that cannot be given back must not be used by a blocked key.
#[tokio::test(start_paused = true)]
async fn who_waited_at_a_block_leaves_no_slot_at_hand() {
    let limiter = one_a_second().await;
    let mut waiter = Box::pin(limiter.acquire(patient()));
    assert!(timeout(Duration::ZERO, &mut waiter).await.is_err());
    let _ = limiter.in_another_process().check(&patient()).await.unwrap();
    limiter.block("key", SECOND / 2).await.unwrap();
    drop(waiter);
    let refused = limiter.check(&patient()).await.unwrap();
    assert_eq!(refused.retry_after(), Some(SECOND / 2));
}

/// Any of the limiters that are asked together may block or reset its key.
#[tokio::test(start_paused = true)]
async fn a_slot_of_several_keys_is_forgotten_with_each_of_them() {
    use crate::algorithm::AnyAlgorithm;
    use crate::limiter::combination::at_once::Together;

    for is_reset in [false, true] {
        let bucket = AnyAlgorithm::from(TokenBucket::new(Quota::per_second(1).burst(1)));
        let members = [(); 2].map(|()| Memory::new("api", bucket));
        let [one, other] = &members;
        let together = || Together::of_memory(&[one, other]).expect("two limiters").0;
        let both = together();
        let charges = ["key", "other"].map(|key| Charge::new(key).max_wait(10 * SECOND));
        let charges = charges.each_ref();
        let _ = both.check(&charges).unwrap().await.unwrap();
        let mut waiting = both.check(&charges).unwrap().await.unwrap();
        let waiters = crate::core::waiters::Waiter::new(waiting.take_waiters().unwrap()).0;
        let _ = together().check(&charges).unwrap().await.unwrap();
        let reservation = waiting.take_reservation().unwrap();
        both.settle(reservation, &|_, _| 0).unwrap().await.unwrap();
        drop(waiters);
        if is_reset {
            one.reset("key").await.unwrap();
            other.reset("other").await.unwrap();
            assert_eq!(both.check(&charges).unwrap().await.unwrap().outcome(), Outcome::Allow);
        } else {
            other.block("other", SECOND / 2).await.unwrap();
            assert!(!both.check(&charges).unwrap().await.unwrap().is_admitted());
        }
    }
}

/// A store that gives back this number of units.
struct GivesBack(u64);

impl SettleUnits for GivesBack {
    fn settle_units(&self, _: &ReservedUnits, _: u64, _: u64) -> Settlement {
        Settlement::gave_back(self.0)
    }
}

/// A store that panics, for example in a clock of the application.
struct Panics;

impl SettleUnits for Panics {
    fn settle_units(&self, _: &ReservedUnits, _: u64, _: u64) -> Settlement {
        panic!("in code of the application");
    }
}

fn id(key: &str) -> LineId {
    let (quota, keep_free) = (Quota::per_second(1).into(), KeepFree::default());
    LineId { key: key.into(), quota, cost: 1, keep_free }
}

/// Makes the place of a wait for the slot in this number of seconds.
fn place(lines: &Arc<Lines>, seconds: u32, store: impl SettleUnits + 'static) -> Arc<Place> {
    marked(lines, seconds, Mark::default(), store)
}

/// Makes the place of a wait for a slot with a mark.
fn marked(
    lines: &Arc<Lines>,
    seconds: u32,
    mark: Mark,
    store: impl SettleUnits + 'static,
) -> Arc<Place> {
    let wait = seconds * SECOND;
    let decision = Decision::new(Outcome::Wait(wait));
    let slot = Slot::new(&decision, wait, mark, lines.known());
    Place::new(lines, id("key"), slot, Arc::new(store))
}

#[tokio::test(start_paused = true)]
async fn a_kept_slot_that_is_past_costs_other_keys_nothing() {
    let lines = Arc::<Lines>::default();
    let waiter = place(&lines, 1, GivesBack(0));
    waiter.add();
    assert!(waiter.leave().is_some() && lines.have_spares());
    advance(2 * SECOND).await;
    assert!(lines.take(&id("other"), SECOND).is_none());
    assert!(!lines.have_spares() && lock(&lines.by_key).lines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_store_leaves_nobody_in_line() {
    let lines = Arc::<Lines>::default();
    let leaving = place(&lines, 1, GivesBack(0));
    leaving.add();
    assert!(leaving.leave().is_some());
    let waiter = place(&lines, 2, Panics);
    assert!(catch_unwind(AssertUnwindSafe(|| waiter.add())).is_err());
    drop(waiter);
    lines.assert_nobody_waits();
}

/// Records if the lines are locked when it is dropped, like the last handle of a task.
struct DropsTask(Arc<Lines>, Arc<AtomicBool>);

impl Wake for DropsTask {
    fn wake(self: Arc<Self>) {}
}

impl Drop for DropsTask {
    fn drop(&mut self) {
        self.1.fetch_or(self.0.by_key.try_lock().is_err(), Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_may_be_dropped_with_its_waker() {
    let lines = Arc::<Lines>::default();
    let was_locked = Arc::default();
    let waker = || Waker::from(Arc::new(DropsTask(Arc::clone(&lines), Arc::clone(&was_locked))));
    let leaving = place(&lines, 1, GivesBack(0));
    let going = place(&lines, 2, GivesBack(0));
    for waiter in [&leaving, &going] {
        waiter.add();
        // The second waker replaces the first one.
        assert!(waiter.due(Some(&waker())).is_some() && waiter.due(Some(&waker())).is_some());
    }
    assert!(leaving.leave().is_some() && going.remove().is_some());
    assert!(!was_locked.load(Relaxed));
}

/// Counts the wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_wakes_only_the_next_one() {
    let lines = Arc::<Lines>::default();
    let waiters: Vec<_> = (1..=5)
        .map(|seconds| {
            let (place, woken) = (place(&lines, seconds, GivesBack(1)), Arc::<Woken>::default());
            place.add();
            place.due(Some(&Waker::from(Arc::clone(&woken))));
            (place, woken)
        })
        .collect();
    let woken = || waiters.iter().map(|(_, woken)| woken.0.load(Relaxed)).collect::<Vec<_>>();
    assert!(waiters[0].0.leave().is_some());
    assert_eq!(woken(), [0, 1, 0, 0, 0]);
    let (second, its) = &waiters[1];
    second.due(Some(&Waker::from(Arc::clone(its))));
    assert_eq!(woken(), [0, 1, 0, 0, 0]);
    advance(SECOND).await;
    assert!(second.remove().is_some());
    assert_eq!(woken(), [0, 1, 1, 0, 0]);
}

/// The marks of several algorithms have no order.
#[tokio::test(start_paused = true)]
async fn of_one_instant_the_first_that_came_moves_up_first() {
    let lines = Arc::<Lines>::default();
    let [first, second] = [2, 1].map(|mark| {
        let place = marked(&lines, 2, Mark::from([mark, 0, 0, 0]), GivesBack(0));
        place.add();
        place
    });
    let leaving = place(&lines, 1, GivesBack(0));
    leaving.add();
    assert!(leaving.leave().is_some());
    let now = Instant::now();
    let due = |place: &Place| Instant::from_std(Waiters::due(place, None).unwrap()) - now;
    assert_eq!((due(&first), due(&second)), (SECOND, 2 * SECOND));
}

/// The processor time that 60,000 waiters in so many lines take to come, and to leave in a random
/// order.
fn time_of_leaving(lines: u32) -> Duration {
    let processor_time = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let lines: Vec<_> = (0..lines).map(|_| Arc::<Lines>::default()).collect();
    let begun = processor_time();
    let mut places: Vec<_> = (1..=60_000)
        .zip(lines.iter().cycle())
        .map(|(millis, lines)| {
            let mark = Mark::from([millis.into(), 0, 0, 0]);
            let place = marked(lines, 1_000 + millis, mark, GivesBack(1));
            place.add();
            place
        })
        .collect();
    fastrand::Rng::with_seed(7).shuffle(&mut places);
    assert!(places.drain(..).all(|place| place.leave().is_some()));
    lines.iter().for_each(|lines| lines.assert_nobody_waits());
    processor_time() - begun
}

/// With a cost of O(n) each, a line of 60 times as many takes 60 times as long. As many waiters take
/// as much memory, so caches, and who else uses them, count alike.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_costs_little_more_among_many() {
    let quickest = |lines| (0..3).map(|_| time_of_leaving(lines)).min().unwrap();
    let (few, many) = (quickest(60), quickest(1));
    println!("line waiters=1000 come_and_leave={few:?} waiters=60000 come_and_leave={many:?}");
    assert!(many < few * 4, "{few:?} {many:?}");
}

/// A store that takes each slot back, and a request of another key that comes and goes meanwhile.
struct OtherKey {
    lines: Arc<Lines>,
    turns: Arc<AtomicUsize>,
}

impl SettleUnits for OtherKey {
    fn settle_units(&self, _: &ReservedUnits, cost: u64, _: u64) -> Settlement {
        come_and_go(&self.lines);
        self.turns.fetch_add(1, Relaxed);
        Settlement::gave_back(cost)
    }
}

fn come_and_go(lines: &Arc<Lines>) {
    let decision = Decision::new(Outcome::Wait(SECOND));
    let slot = Slot::new(&decision, SECOND, Mark::default(), lines.known());
    let place = Place::new(lines, id("other"), slot, Arc::new(GivesBack(1)));
    place.add();
    assert!(place.leave().is_some());
}

/// All keys share one lock, which is held for one step: another key has its turn between any two
/// of 60,000 that leave. A second thread measures its longest wait for a turn.
#[tokio::test(start_paused = true)]
async fn another_key_has_its_turn_between_any_two_that_leave() {
    const WAITERS: u32 = 60_000;
    let lines = Arc::<Lines>::default();
    let turns = Arc::<AtomicUsize>::default();
    let mut places: Vec<_> = (1..=WAITERS)
        .map(|millis| {
            let mark = Mark::from([millis.into(), 0, 0, 0]);
            let store = OtherKey { lines: Arc::clone(&lines), turns: Arc::clone(&turns) };
            let place = marked(&lines, 1_000 + millis, mark, store);
            place.add();
            place
        })
        .collect();
    fastrand::Rng::with_seed(7).shuffle(&mut places);
    let begun = std::time::Instant::now();
    for place in &places[..places.len() / 2] {
        assert!(place.leave().is_some());
    }
    assert_eq!(turns.load(Relaxed), places.len() / 2);
    let half = begun.elapsed();
    // The second is the longest time of a turn at a lock that nobody else takes.
    let (mut others, mut longest) = (0, [Duration::ZERO; 2]);
    let alone = Arc::<Lines>::default();
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            places[places.len() / 2..].iter().for_each(|place| drop(place.leave()));
        });
        while !leaving.is_finished() {
            for (lines, longest) in [&lines, &alone].into_iter().zip(&mut longest) {
                let begun = std::time::Instant::now();
                let _ = lines.take(&id("other"), Duration::ZERO);
                *longest = begun.elapsed().max(*longest);
            }
            others += 1;
        }
    });
    println!(
        "line waiters={WAITERS} half_leave={half:?} turns_of_another_key={others} longest={longest:?}"
    );
    assert_eq!(turns.load(Relaxed), places.len());
    lines.assert_nobody_waits();
}

/// A reply that arrives late does not change who comes first, even if others have moved up.
#[tokio::test(start_paused = true)]
async fn who_moved_up_stays_before_a_reply_that_comes_out_of_order() {
    let lines = Arc::<Lines>::default();
    let [leaving, gone, first] = [1, 2, 3].map(|seconds| place(&lines, seconds, GivesBack(1)));
    for waiter in [&leaving, &gone, &first] {
        waiter.add();
    }
    assert!(leaving.leave().is_some() && gone.leave().is_some());
    // Their slots are given again, and the second reply comes first.
    let [second, third] = [2, 3].map(|seconds| place(&lines, seconds, GivesBack(1)));
    third.add();
    second.add();
    for waiter in [first, second, third] {
        let due = Waiters::due(&*waiter, None).unwrap();
        assert_eq!(Instant::from_std(due), Instant::now() + SECOND);
        advance(SECOND).await;
        assert!(waiter.remove().is_some());
    }
}
