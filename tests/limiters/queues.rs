//! Requests that wait for units which others hold: in order, woken by a release.

use tokio::sync::mpsc;
use tower_sluice::key::Global;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

fn limit(units: u64) -> Memory<Concurrency> {
    Memory::new("at once", Concurrency::new(units))
}

fn patient() -> Charge {
    one().max_wait(MINUTE)
}

async fn reserved<L: Limiter>(limiter: &L) -> Reservation {
    limiter.check(&one()).await.expect("a decision").into_reservation().expect("it holds a unit")
}

/// Fails at its first question, then answers as a store does.
struct AwayAtFirst {
    store: Memory<Concurrency>,
    was_asked: AtomicU64,
}

impl Limiter for AwayAtFirst {
    type Future = tower_sluice::future::BoxedFuture;

    fn check(&self, charge: &Charge) -> Self::Future {
        if self.was_asked.fetch_add(1, Relaxed) == 0 {
            return Box::pin(ready(Err(Error::new(ErrorKind::Infrastructure, "away"))));
        }
        let decided = self.store.check(charge);
        Box::pin(async { Ok(decided.await?.with_origin(Origin::Store)) })
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_a_fallback_refused_waits_at_the_limiter_that_answers_again() {
    let (store, fallback) = (limit(1), limit(1));
    let (of_store, _of_fallback) = (reserved(&store).await, reserved(&fallback).await);
    let away = AwayAtFirst { store: store.clone(), was_asked: AtomicU64::new(0) };
    let mut waiting = Waiting::new();
    waiting.add(&Arc::new(away.or_else(fallback)), patient()).await;
    // It asks again, and the store refuses it.
    sleep(2 * LONGEST_PAUSE).await;
    let released = Instant::now();
    let _ = store.settle(of_store, 0);
    drop(waiting.next(0).await);
    assert_eq!(released.elapsed(), Duration::ZERO);
}

/// Tasks that wait for a unit one after another, and tell their places when they have one.
struct Waiting {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    told: mpsc::UnboundedReceiver<(usize, Reservation)>,
    tell: mpsc::UnboundedSender<(usize, Reservation)>,
}

impl Waiting {
    fn new() -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self { tasks: Vec::new(), told, tell }
    }

    /// Adds one, and lets it ask.
    async fn add<L>(&mut self, limiter: &L, charge: Charge)
    where
        L: Limiter<Future: Send> + Clone + Send + Sync + 'static,
    {
        let (limiter, tell, place) = (limiter.clone(), self.tell.clone(), self.tasks.len());
        self.tasks.push(tokio::spawn(async move {
            let admitted = limiter.acquire(charge).await.expect("a unit");
            tell.send((place, admitted.0.into_reservation().unwrap())).unwrap();
        }));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }

    /// The next one that has a unit, which must be at this place.
    async fn next(&mut self, place: usize) -> Reservation {
        let (next, reservation) = self.told.recv().await.unwrap();
        assert_eq!(next, place);
        reservation
    }

    fn nobody_has(&mut self) {
        assert!(self.told.try_recv().is_err());
    }
}

fn tuple() -> Memory<Vec<AnyAlgorithm>> {
    let tokens = TokenBucket::new(Quota::per_day(1_000_000));
    Memory::new("both", (tokens, Concurrency::new(1)))
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_first_of_those_that_wait() {
    for limiter in [limit(1).boxed(), tuple().boxed()] {
        let limiter = Arc::new(limiter);
        let (mut holder, mut waiting) = (reserved(&limiter).await, Waiting::new());
        for _ in 0..5 {
            waiting.add(&limiter, patient()).await;
        }
        for place in 0..5 {
            sleep(SECOND).await;
            waiting.nobody_has();
            let begin = Instant::now();
            assert!(limiter.settle(holder, 0).is_ok());
            holder = waiting.next(place).await;
            assert_eq!(begin.elapsed(), Duration::ZERO, "{place}");
        }
    }
}

/// It waited for the bucket, and held the unit meanwhile.
#[tokio::test(start_paused = true)]
async fn who_leaves_its_slot_wakes_the_first_of_those_that_wait() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1));
    let limiter = Arc::new(Memory::new("both", (bucket, Concurrency::new(1))));
    assert!(limiter.settle(reserved(&limiter).await, 1).is_ok());
    let mut leaves = Box::pin(limiter.acquire(patient()));
    assert!(tokio::time::timeout(Duration::ZERO, &mut leaves).await.is_err());
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient()).await;
    // Between two of its own questions.
    sleep(Duration::from_millis(990)).await;
    let left = Instant::now();
    drop(leaves);
    drop(waiting.next(0).await);
    assert!(left.elapsed() <= Duration::from_millis(11), "{:?}", left.elapsed());
}

/// A new request joins the end, whether units are free by then or not.
#[tokio::test(start_paused = true)]
async fn nobody_overtakes_but_who_may_not_wait() {
    let limiter = Arc::new(limit(2));
    let [one_unit, other] = [reserved(&limiter).await, reserved(&limiter).await];
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient().cost(2)).await;
    assert!(limiter.settle(one_unit, 0).is_ok());
    waiting.add(&limiter, patient()).await;
    sleep(SECOND).await;
    // One unit is free, for which the second has come too late.
    waiting.nobody_has();
    let now = limiter.check(&one()).await.unwrap();
    assert!(now.is_admitted());
    assert!(limiter.settle(now.into_reservation().unwrap(), 0).is_ok());
    assert!(limiter.settle(other, 0).is_ok());
    let first = waiting.next(0).await;
    sleep(SECOND).await;
    waiting.nobody_has();
    assert!(limiter.settle(first, 0).is_ok());
    waiting.next(1).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_lets_the_next_ask() {
    let limiter = Arc::new(limit(2));
    let _held = [reserved(&limiter).await];
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient().cost(2)).await;
    waiting.add(&limiter, patient()).await;
    sleep(SECOND).await;
    let begin = Instant::now();
    waiting.tasks[0].abort();
    waiting.next(1).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_wait_a_request_is_refused() {
    let limiter = limit(1);
    let _held = reserved(&limiter).await;
    let mut refused = JoinSet::new();
    for wait in [3, 2] {
        let (limiter, begin) = (limiter.clone(), Instant::now());
        refused.spawn(async move {
            let refusal = limiter.acquire(one().max_wait(wait * SECOND)).await.unwrap_err();
            let Refusal::Denied(decision) = refusal else { panic!("{refusal:?}") };
            (begin.elapsed(), decision.retry_after().unwrap())
        });
        tokio::task::yield_now().await;
    }
    for wait in [2, 3] {
        let (waited, retry_after) = refused.join_next().await.unwrap().unwrap();
        assert!(waited <= wait * SECOND && waited + LONGEST_PAUSE >= wait * SECOND, "{waited:?}");
        assert!((SECOND..=3 * SECOND).contains(&retry_after), "{retry_after:?}");
    }
    // Without a wait at once, and by the same guess.
    let refused = limiter.check(&one()).await.unwrap();
    let Outcome::Deny { retry_after: Some(guess) } = refused.outcome() else { panic!() };
    assert!((SECOND..=3 * SECOND).contains(&guess), "{guess:?}");
}

/// A dead process releases nothing: the pauses find out.
#[tokio::test(start_paused = true)]
async fn units_whose_time_is_over_are_found() {
    let limiter = Arc::new(Memory::new("at once", Concurrency::new(1).max_hold(4 * SECOND)));
    mem::forget(reserved(&limiter).await);
    let (begin, mut waiting) = (Instant::now(), Waiting::new());
    waiting.add(&limiter, patient()).await;
    waiting.next(0).await;
    assert!(begin.elapsed() <= 5 * SECOND + LONGEST_PAUSE, "{:?}", begin.elapsed());
}

/// Those behind it are refused at the end of their waits, and take no turn of the first one.
#[tokio::test(start_paused = true)]
async fn impatient_requests_do_not_delay_the_first() {
    let limiter = Arc::new(Memory::new("at once", Concurrency::new(1).max_hold(4 * SECOND)));
    mem::forget(reserved(&limiter).await);
    let (begin, mut waiting) = (Instant::now(), Waiting::new());
    waiting.add(&limiter, patient()).await;
    let impatient = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move {
            loop {
                let charge = one().max_wait(Duration::from_millis(20));
                drop(limiter.acquire(charge).await.map(drop));
                sleep(Duration::from_millis(30)).await;
            }
        }
    });
    waiting.next(0).await;
    assert!(begin.elapsed() <= 5 * SECOND + LONGEST_PAUSE, "{:?}", begin.elapsed());
    impatient.abort();
}

/// Timers of a clock that runs are rounded up: none of them is set anew at its end.
#[tokio::test]
async fn one_behind_the_first_is_refused_by_a_clock_that_runs() {
    let limiter = Arc::new(limit(1));
    let _held = reserved(&limiter).await;
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient()).await;
    for wait in [1, 20] {
        let charge = one().max_wait(Duration::from_millis(wait));
        let refused = tokio::time::timeout(SECOND * 20, limiter.acquire(charge)).await;
        assert!(matches!(refused, Ok(Err(Refusal::Denied(_)))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_key_has_no_queue() {
    let limiter = limit(1);
    limiter.block("key", HOUR).await.unwrap();
    let begin = Instant::now();
    let refusal = limiter.acquire(patient()).await.unwrap_err();
    let Refusal::Denied(decision) = refusal else { panic!("{refusal:?}") };
    assert_eq!((begin.elapsed(), decision.retry_after()), (Duration::ZERO, Some(HOUR)));
}

/// A job that leaves units free is in nobody's way.
#[tokio::test(start_paused = true)]
async fn who_needs_less_waits_in_a_queue_of_its_own() {
    let limiter = Arc::new(limit(4));
    let held = [reserved(&limiter).await, reserved(&limiter).await];
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient().keep_free(2)).await;
    waiting.nobody_has();
    waiting.add(&limiter, patient()).await;
    let urgent = waiting.next(1).await;
    for one in held {
        assert!(limiter.settle(one, 0).is_ok());
    }
    waiting.next(0).await;
    assert!(limiter.settle(urgent, 0).is_ok());
}

/// The first one of a queue that got its answer lets the next one ask, even before it is dropped.
#[tokio::test(start_paused = true)]
async fn an_answered_request_leaves_the_queue() {
    let limiter = Arc::new(limit(1));
    let held = reserved(&limiter).await;
    let mut first = Box::pin(limiter.acquire(one().max_wait(SECOND)));
    assert!(tokio::time::timeout(SECOND / 2, &mut first).await.is_err());
    let mut waiting = Waiting::new();
    waiting.add(&limiter, patient()).await;
    assert!(first.as_mut().await.is_err());
    assert!(limiter.settle(held, 0).is_ok());
    waiting.next(0).await;
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn too_many_that_wait_are_refused() {
    let limiter = Arc::new(limit(1));
    let _held = reserved(&limiter).await;
    let mut waiting = Waiting::new();
    for _ in 0..3 {
        waiting.add(&limiter, patient()).await;
    }
    let refused = limiter.acquire(patient()).max_waiters(3).await.unwrap_err();
    assert!(matches!(refused, Refusal::Denied(_)), "{refused:?}");
}

/// A limiter of an application may make new charges for each question.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_forgets_how_long_a_charge_waited_is_served() {
    let limiter = limit(1);
    let around = {
        let limiter = limiter.clone();
        move |charge: &Charge| {
            limiter.check(&one().max_wait(charge.longest_wait().unwrap_or_default()))
        }
    };
    let held = reserved(&limiter).await;
    let waiting = tokio::spawn(async move { around.acquire(patient()).await.is_ok() });
    sleep(SECOND).await;
    assert!(limiter.settle(held, 0).is_ok());
    assert!(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_layer_lets_requests_wait() {
    let limiter = limit(1);
    let slow = service_fn(|_: ()| async {
        sleep(SECOND).await;
        Ok::<_, BoxError>(())
    });
    let layer = RateLimitLayer::new(limiter, Global).max_wait(MINUTE).respond(Raise);
    let (service, begin, mut served) = (layer.layer(slow), Instant::now(), JoinSet::new());
    for _ in 0..10 {
        served.spawn(service.clone().oneshot(()));
    }
    while let Some(one) = served.join_next().await {
        one.unwrap().unwrap();
    }
    assert_eq!(begin.elapsed(), 10 * SECOND);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn units_that_another_process_releases_are_found() {
    let server = Server::start();
    let process = || {
        let limiter = Redis::new("at once", Concurrency::new(1), server.pool());
        Arc::new(limiter.decision_timeout(LONG))
    };
    let [mine, other] = [process(), process()];
    let (held, mut waiting) = (reserved(&other).await, Waiting::new());
    for _ in 0..2 {
        waiting.add(&mine, patient()).await;
    }
    // The holder's, the first one's, and a second one of the first.
    let connection = &mut server.connection().await;
    eventually("another question", async || script_calls(connection).await >= 3).await;
    waiting.nobody_has();
    assert!(other.settle(held, 0).is_ok());
    let first = waiting.next(0).await;
    // This one is woken, and asks behind the release.
    assert!(mine.settle(first, 0).is_ok());
    waiting.next(1).await;
}

/// Of limits that are asked in turn, the charges wait as those of one call do.
#[tokio::test(start_paused = true)]
async fn jobs_under_two_limits_in_turn_wait_for_what_others_hold() {
    let limits = [("tenant", 2), ("workers", 3)];
    let limits = limits.map(|(name, units)| Memory::new(name, Concurrency::new(units)).boxed());
    let jobs = AllInTurn::of_parts(limits);
    let begun = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for owner in [["big"; 20].as_slice(), &["small"; 3]].concat() {
        let jobs = jobs.clone();
        running.spawn(async move {
            let mut admitted = jobs.acquire((owner, "all")).await.expect("a worker");
            let _hold = jobs.hold(admitted.take_reservation().expect("it holds units"));
            let began = begun.elapsed();
            sleep(SECOND).await;
            (owner, began)
        });
    }
    let began = running.join_all().await;
    let last = |name| began.iter().filter(|one| one.0 == name).map(|one| one.1).max().unwrap();
    // Each waits at most a pause longer than until a worker is free.
    assert!(last("small") < 3 * (SECOND + LONGEST_PAUSE), "{began:?}");
    assert!(last("big") < 11 * (SECOND + LONGEST_PAUSE), "{began:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_in_turn_that_refuses_for_long_ends_the_wait_for_held_units() {
    let day = Memory::new("day", FixedWindow::new(Quota::per_day(2)).anchored());
    let both = AllInTurn::of_parts([limit(1).boxed(), day.boxed()]);
    let charge = || Charge::new(("one", "all"));
    let _held = both.check(&charge()).await.expect("a decision");
    let refused = both.check(&charge()).await.expect("a decision");
    assert!(matches!(refused.outcome(), Outcome::Deny { .. }));

    // The held unit does not come back in time.
    let begun = Instant::now();
    assert!(both.acquire(charge().max_wait(5 * SECOND)).await.is_err());
    assert!(begun.elapsed() > 4 * SECOND && begun.elapsed() <= 5 * SECOND);

    // No unit of the day is left.
    let second = both.acquire((Charge::new("other"), Charge::new("all"))).await;
    assert!(second.is_ok());
    let begun = Instant::now();
    let refusal = both.acquire(charge()).await.expect_err("the day is over");
    assert!(refusal.retry_after().is_some_and(|wait| wait > 3_600 * SECOND));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
