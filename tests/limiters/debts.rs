//! What is used beyond a charge is owed in full: a debt has a bound of its own, and the horizon
//! bounds waits alone. The twins of `tests/algorithms/twins.rs` owe as much over Redis.

use tower_sluice::Pool;
use tower_sluice::algorithm::InLua;

use super::*;

const START: u64 = 1_767_225_600_000_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// A clock that a test sets, as `clock` takes it.
#[derive(Clone, Default)]
struct Stepped(Arc<AtomicU64>);

impl Stepped {
    fn set(&self, micros: u64) {
        self.0.store(START + micros, Relaxed);
    }

    fn clock(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        support::clock_at(&self.0)
    }
}

/// Every algorithm that can owe.
fn debtors(quota: Quota) -> [AnyAlgorithm; 4] {
    [
        TokenBucket::new(quota).into(),
        Budget::new(quota).into(),
        SmoothBursty::new(quota).into(),
        SmoothWarmingUp::new(quota, Duration::from_secs(1)).into(),
    ]
}

/// Each algorithm alone, and in a tuple with a bucket that has room.
fn limits(quota: Quota) -> Vec<Vec<AnyAlgorithm>> {
    let wide = TokenBucket::new(Quota::per_second(1_000_000_000)).into();
    debtors(quota).into_iter().flat_map(|one| [vec![one], vec![one, wide]]).collect()
}

fn in_memory<A: Algorithm>(
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    clock: &Stepped,
) -> Memory<A> {
    Memory::new("debts", algorithm).clock(clock.clock())
}

fn over_redis<A: InLua>(
    algorithm: impl IntoAlgorithm<Algorithm = A>,
    pool: &Pool,
    clock: &Stepped,
) -> Redis<A> {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = format!("debts-{}", NAMES.fetch_add(1, Relaxed));
    let redis = Redis::new(name, algorithm, pool.clone()).clock(clock.clock());
    redis.decision_timeout(Duration::from_secs(60))
}

/// Asks for one unit each `every` for so long, and uses `cost` each time. Returns all units used.
async fn used(limiter: &impl Limiter, clock: &Stepped, cost: u64, every: u64, long: u64) -> u64 {
    let mut used = 0;
    for at in (0..long).step_by(usize::try_from(every).unwrap()) {
        clock.set(at);
        let mut decision = limiter.check(&Charge::new("alice")).await.expect("a decision");
        if let Some(reservation) = decision.take_reservation() {
            let settled = limiter.settle(reservation, cost).expect("its own");
            settled.await.expect("settled");
            used += cost;
        }
    }
    used
}

/// A request is admitted while one unit is free, so the last one may go over by what it owes.
fn assert_within(name: &str, used: u64, right: u64, cost: u64) {
    println!("{name}: {used} used, {right} right");
    assert!((right - right / 10 - cost..right + cost).contains(&used), "{name}: {used}");
}

/// Each request uses 15 of ten an hour, or 5,000 of a million tokens a day.
#[tokio::test]
async fn what_was_charged_one_and_settled_at_more_is_owed() {
    for (quota, cost, hours, right) in [
        (Quota::per_hour(10), 15, 10, [110; 2]),
        (Quota::per_day(1_000_000), 5_000, 72, [3_000_000, 4_000_000]),
    ] {
        for limit in limits(quota) {
            let clock = Stepped::default();
            let name = format!("{limit:?}");
            let used =
                used(&in_memory(limit, &clock), &clock, cost, 10 * SECOND, hours * HOUR).await;
            // A smooth limiter begins empty.
            assert_within(&name, used, right[usize::from(!name.contains("Smooth"))], cost);
        }
    }
}

/// A limiter with a clock of its own.
fn own(algorithm: impl IntoAlgorithm) -> (Boxed, Stepped) {
    let clock = Stepped::default();
    clock.set(0);
    (in_memory(algorithm, &clock).boxed(), clock)
}

/// Charges `cost` units of alice and settles them at `used`. Returns the units given back, and
/// those that were not taken.
async fn settled(limiter: &impl Limiter, cost: u64, used: u64) -> (u64, u64) {
    let charge = Charge::new("alice").cost(cost);
    let decision = limiter.check(&charge).await.expect("a decision");
    let reservation = decision.into_reservation().expect("it fits");
    let settled = limiter.settle(reservation, used).expect("its own").await.expect("settled");
    (settled.given_back, settled.not_taken)
}

async fn retry_after(limiter: &impl Limiter, max_wait: Duration) -> Duration {
    let charge = Charge::new("alice").max_wait(max_wait);
    let decision = limiter.check(&charge).await.expect("a decision");
    let Outcome::Deny { retry_after: Some(time) } = decision.outcome() else {
        panic!("{decision:?}");
    };
    time
}

const MINUTE: Duration = Duration::from_secs(60);

/// In seconds: 10 an hour come back one each 6 minutes.
#[tokio::test]
async fn a_refusal_tells_the_whole_debt_and_no_wait_is_reserved_behind_it() {
    let quota = Quota::per_hour(10);
    let (limiter, clock) = own(TokenBucket::new(quota));
    assert_eq!(settled(&limiter, 1, 40).await, (0, 0));
    // 30 units are owed, and one more is asked for.
    assert_eq!(retry_after(&limiter, Duration::ZERO).await, 31 * 6 * MINUTE);
    assert_eq!(retry_after(&limiter, Duration::MAX).await, 31 * 6 * MINUTE);
    clock.set(31 * 360 * SECOND - SECOND);
    let waits = limiter.check(&Charge::new("alice").max_wait(MINUTE)).await.unwrap();
    assert_eq!(waits.outcome(), Outcome::Wait(Duration::from_secs(1)));
}

/// The clock of a promoted replica may be late.
#[tokio::test]
async fn a_clock_that_is_set_back_forgives_no_debt_and_locks_no_other_key_longer() {
    let quota = Quota::per_hour(10);
    let (limiter, clock) = own(TokenBucket::new(quota));
    clock.set(100 * HOUR);
    assert_eq!(settled(&limiter, 1, 40).await, (0, 0));
    let bob = Charge::new("bob").cost(10);
    assert!(limiter.check(&bob).await.unwrap().is_admitted());
    clock.set(50 * HOUR);
    let owed = 31 * 6 * MINUTE + Duration::from_secs(50 * 3_600);
    assert_eq!(retry_after(&limiter, Duration::ZERO).await, owed);
    let bob = limiter.check(&Charge::new("bob")).await.unwrap();
    assert_eq!(bob.retry_after(), Some(MINUTE + 6 * MINUTE));
}

/// In every form in which a limit is asked.
#[tokio::test]
async fn what_may_not_be_owed_is_told() {
    let (quota, hour) = (Quota::per_hour(10), Duration::from_secs(3_600));
    let (bucket, budget) =
        (TokenBucket::new(quota).max_debt(hour), Budget::new(quota).max_debt(hour));
    let wide = TokenBucket::new(Quota::per_hour(1_000));
    let members = [Memory::new("one", bucket).boxed(), Memory::new("two", wide).boxed()];
    let in_turn = AllInTurn::new(members, |charge: &Charge| {
        [(); 2].map(|()| Charge::new(charge.key().to_owned()))
    });
    let limiters = [
        own(bucket).0,
        own(budget).0,
        own((bucket, wide)).0,
        own((wide, bucket)).0,
        own((budget, wide)).0,
        own((wide, budget)).0,
        in_turn.boxed(),
    ];
    for limiter in &limiters {
        assert_eq!(settled(limiter, 3, 25).await, (0, 5), "{limiter:?}");
        let penalty = limiter.penalize(Charge::new("alice").cost(7)).await.unwrap();
        assert_eq!(penalty.not_taken(), 7, "{limiter:?}");
        let penalty = limiter.penalize(Charge::new("bob").cost(7)).await.unwrap();
        assert_eq!((penalty.not_taken(), penalty.remaining()), (0, Some(3)), "{limiter:?}");
        // A block hides the state, and not what was taken.
        limiter.block("bob", hour).await.unwrap();
        let penalty = limiter.penalize(Charge::new("bob").cost(17)).await.unwrap();
        assert_eq!((penalty.not_taken(), penalty.is_admitted()), (4, false), "{limiter:?}");
    }
}

/// Smooth limiters store a second here, so a debt is nearly all that they can take.
#[tokio::test]
async fn what_a_smooth_limiter_may_not_owe_is_told() {
    let quota = Quota::per_hour(10);
    let (second, most) = (Duration::from_secs(1), 61 * MINUTE);
    let bursty = SmoothBursty::new(quota).max_debt(most);
    let warming_up = SmoothWarmingUp::new(quota, second).max_debt(most);
    let wide = TokenBucket::new(Quota::per_hour(1_000));
    let limiters = [
        own(bursty).0,
        own(warming_up).0,
        own((bursty, wide)).0,
        own((wide, bursty)).0,
        own((warming_up, wide)).0,
        own((wide, warming_up)).0,
    ];
    for limiter in limiters {
        assert_eq!(settled(&limiter, 3, 25).await, (0, 15), "{limiter:?}");
        for (key, units, not_taken) in [("alice", 7, 7), ("bob", 7, 0), ("bob", 17, 14)] {
            let penalty = limiter.penalize(Charge::new(key).cost(units)).await.unwrap();
            let told = (penalty.not_taken(), penalty.remaining());
            assert_eq!(told, (not_taken, Some(0)), "{limiter:?}");
        }
    }
}

/// In every algorithm that can owe, over a limiter of leases of up to 100 units. Units that were
/// leased before a debt may still be spent while they are valid.
#[tokio::test(start_paused = true)]
async fn a_lease_owes_all_that_its_charges_used() {
    let ten_seconds = Duration::from_secs(10);
    for algorithm in debtors(Quota::per_hour(10)) {
        for validity in [Duration::from_millis(100), 60 * MINUTE] {
            let limiter = Memory::new("debts", algorithm).lease(100).valid_for(validity);
            let mut used = 0;
            for _ in 0..3_600 {
                let decision = limiter.check(&Charge::new("alice")).await.expect("a decision");
                if let Some(reservation) = decision.into_reservation() {
                    let settled = limiter.settle(reservation, 15).expect("its own");
                    assert_eq!(settled.await.expect("settled").not_taken, 0);
                    used += 15;
                }
                tokio::time::advance(ten_seconds).await;
            }
            assert_within(&format!("{algorithm:?} for {validity:?}"), used, 110, 15);
        }
    }
}

/// A debt within the horizon of the process that wrote it has no mark, as a wait has none. So a
/// process with a shorter horizon cuts it to its own. A longer debt has the mark, and stays.
#[tokio::test]
async fn of_processes_with_two_horizons_the_shorter_one_cuts_what_has_no_mark() {
    let server = Server::start();
    let (pool, quota) = (server.pool(), Quota::per_hour(10));
    let clock = Stepped::default();
    clock.set(0);
    let hour = 60 * MINUTE;
    let [bucket, budget] = [false, true].map(|is_budget| {
        [MINUTE, hour].map(|horizon| -> AnyAlgorithm {
            match is_budget {
                false => TokenBucket::new(quota).horizon(horizon).into(),
                true => Budget::new(quota).max_hold(horizon).horizon(horizon).into(),
            }
        })
    });
    for (number, [short, long]) in [bucket, budget].into_iter().enumerate() {
        let redis = |algorithm: AnyAlgorithm| {
            let redis = Redis::new(format!("horizons-{number}"), algorithm, pool.clone());
            redis.clock(clock.clock()).decision_timeout(hour)
        };
        let (short, long) = (redis(short), redis(long));
        // By which process so many units are owed, and how long that lasts once the other has read
        // it, beside the unit of a caller.
        let unit = 6 * MINUTE;
        for (key, writer, units, left) in [
            ("within the long one", &long, 5, MINUTE),
            ("beyond the long one", &long, 15, 15 * unit),
            ("beyond the short one", &short, 5, 5 * unit),
            ("beyond both", &short, 15, 15 * unit),
        ] {
            writer.penalize(Charge::new(key).cost(10 + units)).await.unwrap();
            for (reader, right) in [(&long, units as u32 * unit), (&short, left), (&long, left)] {
                let refused = reader.check(&Charge::new(key)).await.unwrap();
                assert_eq!(refused.retry_after(), Some(right + unit), "{key}: {reader:?}");
            }
        }
        // Beyond the short horizon, and within the long one, which drops the mark.
        short.penalize(Charge::new("both").cost(13)).await.unwrap();
        long.penalize(Charge::new("both")).await.unwrap();
        let refused = short.check(&Charge::new("both")).await.unwrap();
        assert_eq!(refused.retry_after(), Some(MINUTE + unit));
    }
}

/// The burst of the short quota refills in a second, that of the long one in an hour. A debt
/// without a mark is cut to this second and the horizon, one with a mark to this second and
/// `max_debt`.
#[tokio::test]
async fn a_shorter_period_cuts_a_debt_to_its_own_burst_and_the_horizon_or_the_longest_debt() {
    let (long, short) = (Quota::per_hour(10), Quota::per_second(10));
    let (hour, tenth) = (60 * MINUTE, Duration::from_millis(100));
    let bucket = TokenBucket::new(long).horizon(hour);
    let budget = Budget::new(long).max_hold(hour).horizon(hour);
    for (longest, cost, left) in [
        // Half an hour is owed: no mark.
        (24 * hour, 15, hour + 10 * tenth),
        // An hour and a half is owed: a mark.
        (24 * hour, 25, 150 * MINUTE),
        (90 * MINUTE, 25, 90 * MINUTE + 10 * tenth),
    ] {
        for algorithm in [
            AnyAlgorithm::from(bucket.max_debt(longest)),
            AnyAlgorithm::from(budget.max_debt(longest)),
        ] {
            let (limiter, _) = own(algorithm);
            let place = format!("{cost} {limiter:?} {algorithm:?}");
            limiter.penalize(Charge::new("alice").cost(cost)).await.expect("a decision");
            let refused = limiter.check(&Charge::new("alice").quota(short)).await.unwrap();
            assert_eq!(refused.retry_after(), Some(left - 9 * tenth), "{place}");
            let refused = limiter.check(&Charge::new("alice")).await.unwrap();
            assert_eq!(refused.retry_after(), Some(left - 54 * MINUTE), "{place}");
        }
    }
}

/// More than the limit counts in no window, and a window's end cancels it.
#[tokio::test]
async fn a_window_takes_its_limit_at_most_and_tells_the_rest() {
    let quota = Quota::per_hour(10);
    let algorithms: [AnyAlgorithm; 5] = [
        FixedWindow::new(quota).into(),
        FixedWindow::new(quota).anchored().into(),
        SlidingLog::new(quota).into(),
        SlidingWindow::new(quota).into(),
        SlidingCounter::new(quota).into(),
    ];
    for algorithm in algorithms {
        let (limiter, clock) = own(algorithm);
        assert_eq!(settled(&limiter, 1, 15).await, (0, 4), "{algorithm:?}");
        // Now more than the limit counts.
        let penalty = limiter.penalize("alice").await.unwrap();
        assert_eq!((penalty.not_taken(), penalty.remaining()), (1, Some(0)), "{algorithm:?}");
        clock.set(2 * HOUR + HOUR / 10);
        let left = limiter.peek("alice").await.unwrap().remaining();
        assert_eq!(left, Some(10), "{algorithm:?}");
    }
}

/// A value that somebody else wrote locks a key for no longer than the longest debt.
#[tokio::test]
async fn a_forged_mark_locks_a_key_for_the_longest_debt_at_most() {
    let (server, mut connection) = Server::connected().await;
    let (pool, quota) = (server.pool(), Quota::per_hour(10));
    let day = Duration::from_secs(86_400);
    let clock = Stepped::default();
    clock.set(0);
    let bucket = over_redis(TokenBucket::new(quota).max_debt(day), &pool, &clock);
    let budget = over_redis(Budget::new(quota).max_debt(day), &pool, &clock);
    for forged in ["-9007199254740991", "-9007199254740991+1/3", "-9007199254740991:0:0:0"] {
        let keys: Vec<String> = async_keys(&mut connection, "*").await;
        for key in keys {
            redis::cmd("DEL").arg(key).exec_async(&mut connection).await.unwrap();
        }
        bucket.penalize("alice").await.unwrap();
        budget.penalize("alice").await.unwrap();
        let is_of_budget = forged.contains(':');
        let tag = if is_of_budget { "*:bg1:*" } else { "*:tb1:*" };
        for key in async_keys(&mut connection, tag).await {
            redis::cmd("SET").arg(key).arg(forged).exec_async(&mut connection).await.unwrap();
        }
        for at in [0, 12 * HOUR] {
            clock.set(at);
            let limiter =
                if is_of_budget { budget.clone().boxed() } else { bucket.clone().boxed() };
            let refused = limiter.check(&Charge::new("alice")).await.unwrap();
            let right = day + 6 * MINUTE - Duration::from_micros(at);
            assert_eq!(refused.retry_after(), Some(right), "{forged} at {at}");
        }
        clock.set(0);
    }
}

async fn async_keys(
    connection: &mut redis::aio::MultiplexedConnection,
    pattern: &str,
) -> Vec<String> {
    redis::cmd("KEYS").arg(pattern).query_async(connection).await.unwrap()
}

/// What users of other limiters asked for, or met.
mod of_others {
    use super::*;

    /// Bucket4j, discussion 383: a key over 100 an hour is blocked for two hours, which its author
    /// says to emulate by consumption beyond the limit.
    #[tokio::test]
    async fn consumption_beyond_the_limit_blocks_for_two_hours() {
        let (limiter, clock) = own(TokenBucket::new(Quota::per_hour(100)));
        let all = Charge::new("alice").cost(100);
        assert!(limiter.check(&all).await.unwrap().is_admitted());
        assert!(!limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
        limiter.penalize(Charge::new("alice").cost(200)).await.unwrap();
        clock.set(2 * HOUR);
        assert!(!limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
        clock.set(2 * HOUR + 36 * SECOND);
        assert!(limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
    }

    /// APISIX, issue 13755: the request that crosses the quota still completes, and everything
    /// after it is blocked, however far it went.
    #[tokio::test]
    async fn the_request_that_crosses_the_quota_completes_and_all_later_ones_are_refused() {
        let month = Quota::new(100_000, Duration::from_secs(30 * 86_400));
        let (limiter, clock) = own(Budget::new(month));
        assert_eq!(settled(&limiter, 99_999, 99_999).await, (0, 0));
        assert_eq!(settled(&limiter, 1, 250_000).await, (0, 0));
        // 249,999 tokens take 75 days, at 3,333 a day.
        for day in [1, 30, 60, 74] {
            clock.set(day * 24 * HOUR);
            assert!(!limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
        }
        clock.set(75 * 24 * HOUR);
        assert!(limiter.check(&Charge::new("alice")).await.unwrap().is_admitted());
    }
}

/// A third of a µs beyond the horizon, behind which a burst is held.
#[tokio::test]
async fn a_debt_that_is_held_at_the_edge_of_the_horizon_has_its_mark() {
    let budget = Budget::new(Quota::per_second(3)).horizon(Duration::from_micros(1_333_333));
    let (limiter, clock) = own(budget);
    clock.set(10 * SECOND);
    let three = Charge::new("alice").cost(3);
    let held = limiter.check(&three).await.unwrap().into_reservation().expect("it fits");
    limiter.penalize(Charge::new("alice").cost(4)).await.unwrap();
    clock.set(8 * SECOND);
    limiter.settle(held, 0).expect("its own").await.unwrap();
    assert_eq!(retry_after(&limiter, Duration::ZERO).await, Duration::from_micros(2_666_667));
}
