//! The callers that wait for a slot, and the slots of those that leave.

use tokio::sync::mpsc;
use tokio::time::timeout;
use tower_sluice::key::Global;

use super::*;

use support::served::{MILLISECOND, PATIENCE, bucket, charge, served};

/// Ten slots a minute.
const SLOW: Quota = Quota::per_minute(10);

/// The longest wait of a charge that may wait for 200 of them, in ms.
const PATIENT: u32 = 3_000_000;

#[tokio::test(start_paused = true)]
async fn impatient_callers_are_served_at_the_full_rate() {
    for (patience, max_wait) in PATIENCE {
        let bucket = Memory::new("bucket", bucket()).boxed();
        let log = Memory::new("log", SlidingLog::new(Quota::per_second(50))).boxed();
        for (name, limiter) in [("bucket", bucket), ("log", log)] {
            let each = served(&[limiter], patience, move || charge("supplier", max_wait)).await;
            assert!(each.iter().all(|served| *served >= 48), "{name} {patience}: {each:?}");
        }
    }
}

/// 200 waiters come, and leave one by one, first come first. Returns how long a charge then waits.
async fn left_behind(limiter: Boxed, charge: impl Fn() -> Charge) -> Duration {
    let (decided, mut decisions) = mpsc::unbounded_channel();
    let limiter = limiter.inspect(move |_, _| decided.send(()).unwrap()).boxed();
    assert!(limiter.check(&charge()).await.unwrap().is_admitted());
    decisions.recv().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..200 {
        let (limiter, charge) = (limiter.clone(), charge());
        waiters.push(tokio::spawn(async move { limiter.acquire(charge).await }));
        decisions.recv().await.unwrap();
    }
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.is_err_and(|error| error.is_cancelled()));
    }
    limiter.check(&charge()).await.unwrap().waited()
}

/// A slot every 6 s, which no test reaches unless it pauses the time.
fn slow() -> TokenBucket {
    TokenBucket::new(SLOW.burst(1)).horizon(3_600 * SECOND)
}

#[tokio::test(start_paused = true)]
async fn waiters_that_leave_first_come_first_leave_nothing_reserved() {
    let limiters = [
        Memory::new("bucket", slow()).boxed(),
        Memory::new("two", (slow(), TokenBucket::new(SLOW).horizon(3_600 * SECOND))).boxed(),
    ];
    for limiter in limiters {
        let wait = left_behind(limiter, || charge("supplier", PATIENT)).await;
        assert!(wait <= 6 * SECOND, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_behind_go_at_the_slots_of_those_who_left() {
    let bucket = TokenBucket::new(Quota::per_second(10).burst(1));
    let limiter = Memory::new("bucket", bucket).boxed();
    let begun = Instant::now();
    limiter.acquire("supplier").await.unwrap();
    let (went, mut order) = mpsc::unbounded_channel();
    let waiters: Vec<_> = (1..=6_u32)
        .map(|place| {
            let (limiter, went) = (limiter.clone(), went.clone());
            tokio::spawn(async move {
                let decision = limiter.acquire(charge("supplier", 10_000)).await.unwrap();
                went.send((place, begun.elapsed(), decision.waited())).unwrap();
            })
        })
        .collect();
    sleep(MILLISECOND).await;
    // The first, and later one in the middle.
    waiters[0].abort();
    sleep(150 * MILLISECOND).await;
    waiters[3].abort();
    drop(went);
    let slot = |index: u32| index * SECOND / 10;
    for (index, place) in (1..).zip([2, 3, 5, 6]) {
        let (who, when, waited) = order.recv().await.unwrap();
        assert_eq!((who, waited), (place, slot(index)));
        // Timers count in milliseconds.
        assert!((slot(index)..=slot(index) + MILLISECOND).contains(&when), "{when:?}");
    }
    assert_eq!(order.recv().await, None);
    // The two slots at the end were given back.
    let next = limiter.check(&charge("supplier", 10_000)).await.unwrap();
    assert!(next.waited() <= slot(1), "{next:?}");
}

/// A request that leaves makes way for the one behind it, and no further one waits than may.
#[tokio::test(start_paused = true)]
async fn requests_behind_a_layer_move_up() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(Memory::new("api", bucket), Global).respond(Raise);
    let inner = tower::service_fn(async |name: &'static str| Ok::<_, BoxError>(name));
    let gate = layer.max_wait(10 * SECOND).max_waiters(2).layer(inner);
    let begun = Instant::now();
    gate.clone().oneshot("first").await.unwrap();
    let mut leaving = Box::pin(gate.clone().oneshot("leaving"));
    let mut behind = Box::pin(gate.clone().oneshot("behind"));
    assert!(timeout(MILLISECOND, &mut leaving).await.is_err());
    assert!(timeout(MILLISECOND, &mut behind).await.is_err());
    assert!(gate.clone().oneshot("one too many").await.is_err());
    drop(leaving);
    let mut last = Box::pin(gate.clone().oneshot("last"));
    assert!(timeout(MILLISECOND, &mut last).await.is_err());
    for (index, request) in (1..).zip([behind, last]) {
        request.await.unwrap();
        assert!(begun.elapsed() - index * SECOND <= 2 * MILLISECOND, "{:?}", begun.elapsed());
    }
}

#[cfg(feature = "redis")]
mod over_redis {
    use tower_sluice::redis::AllAtOnce;
    use tower_sluice::{Decision, Outcome, Pool, Redis};

    use super::*;
    use support::Server;
    use support::proxy::{Fault, Proxy};

    /// The time that a busy machine may take to answer.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn redis(server: &Server, name: &'static str, algorithm: TokenBucket) -> Redis<TokenBucket> {
        Redis::new(name, algorithm, server.pool()).decision_timeout(TIMEOUT)
    }

    /// Limiters of one name as so many processes have them.
    fn processes(server: &Server, name: &'static str, count: usize) -> Vec<Boxed> {
        (0..count).map(|_| redis(server, name, bucket()).boxed()).collect()
    }

    /// A busy machine may wake callers late, so this counts less than the full rate. Where nobody
    /// moves up, next to none is served after the first second.
    #[tokio::test(flavor = "multi_thread")]
    async fn impatient_callers_of_several_processes_are_served() {
        let server = Server::start();
        let one = processes(&server, "one", 1);
        let three = processes(&server, "three", 3);
        let charge = || charge("supplier", 2_000);
        let (one, three) = tokio::join!(served(&one, 500, charge), served(&three, 500, charge));
        for each in [one, three] {
            assert!(each.iter().sum::<u32>() >= 120 && each[3] >= 20, "{each:?}");
        }
    }

    #[tokio::test]
    async fn waiters_that_leave_first_come_first_leave_nothing_reserved() {
        let (_server, pool) = Server::pooled();
        let member = |name| Redis::new(name, slow(), pool.clone()).decision_timeout(TIMEOUT);
        let both = AllAtOnce::new((member("user"), member("everybody")), |charge| {
            [charge.clone(), Charge::new("all")]
        });
        for limiter in [member("alone").boxed(), both.boxed()] {
            let wait = left_behind(limiter, || charge("supplier", PATIENT)).await;
            assert!(wait <= 6 * SECOND, "{wait:?}");
        }
    }

    /// A charge begins to wait, and leaves after something else has happened. Returns how long it
    /// would have waited.
    async fn leave<L>(limiter: &L, charge: Charge, meanwhile: impl AsyncFnOnce()) -> Duration
    where
        L: Limiter + Clone,
    {
        let (decided, mut decisions) = mpsc::unbounded_channel();
        let limiter = limiter.clone().inspect(move |_: &Charge, answer: Result<&Decision, _>| {
            decided.send(answer.unwrap().waited()).unwrap();
        });
        let mut waiter = Box::pin(limiter.acquire(charge));
        let wait = tokio::select! {
            biased;
            _ = &mut waiter => panic!("it does not wait"),
            wait = decisions.recv() => wait.unwrap(),
        };
        meanwhile().await;
        drop(waiter);
        // Whose answer follows that of the refund.
        let _ = limiter.peek("supplier").await.unwrap();
        wait
    }

    /// Two processes wait, and the first one's waiter leaves. Its slot is not the newest, so the
    /// store cannot take it back.
    async fn kept_slot(server: &Server) -> (Boxed, Boxed, Duration) {
        kept_slot_over(&server.url(), server).await
    }

    /// The first process asks over this URL.
    async fn kept_slot_over(url: &str, server: &Server) -> (Boxed, Boxed, Duration) {
        let slow = TokenBucket::new(Quota::per_minute(1).burst(1)).horizon(3_600 * SECOND);
        let [first, second] = [url, &server.url()].map(|url| {
            Redis::new("api", slow, Pool::connect(url).unwrap()).decision_timeout(TIMEOUT).boxed()
        });
        first.acquire("supplier").await.unwrap();
        let wait = leave(&first, charge("supplier", 600_000), async || {
            let behind = second.check(&charge("supplier", 600_000)).await.unwrap();
            assert!(behind.waited() > 100 * SECOND, "{behind:?}");
        })
        .await;
        (first, second, wait)
    }

    #[tokio::test]
    async fn a_slot_that_the_store_cannot_take_back_goes_to_the_next_charge_without_a_call() {
        let server = Server::start();
        let (first, second, wait) = kept_slot(&server).await;
        // Not for a charge that may not wait for it, of another key, or of another cost.
        for other in
            [charge("supplier", 30_000), charge("other", 0), charge("supplier", 600_000).cost(2)]
        {
            let other = first.check(&other).await.unwrap();
            assert!(other.waited() <= Duration::ZERO || !other.is_admitted(), "{other:?}");
        }
        server.signal("STOP");
        let next = first.check(&charge("supplier", 600_000)).await.unwrap();
        assert!(next.is_admitted() && next.waited() <= wait, "{next:?}");
        assert_eq!((next.limiter(), next.quota().unwrap().limit()), (Some("api"), 1));
        server.signal("CONT");
        // There was one, and the other process has none.
        for limiter in [first, second] {
            let later = limiter.check(&charge("supplier", 600_000)).await.unwrap();
            assert!(later.waited() > wait + 30 * SECOND, "{later:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_forgets_the_slots_at_hand() {
        let server = Server::start();
        let (first, ..) = kept_slot(&server).await;
        first.reset("supplier").await.unwrap();
        let next = first.check(&charge("supplier", 600_000)).await.unwrap();
        assert_eq!(next.outcome(), Outcome::Allow);
    }

    /// The server has run it, and the caller has left before the answer came.
    #[tokio::test]
    async fn a_reset_or_a_block_without_an_answer_voids_the_slots_at_hand() {
        for is_reset in [true, false] {
            let server = Server::start();
            let proxy = Proxy::before(server.port()).await;
            let (first, second, _) = kept_slot_over(&proxy.url(), &server).await;
            proxy.set(Fault::Hold);
            let change = async {
                match is_reset {
                    true => drop(first.reset("supplier").await),
                    false => drop(first.block("supplier", 3_600 * SECOND).await),
                }
            };
            let is_run = async {
                loop {
                    let now = second.peek("supplier").await.unwrap();
                    let is_blocked = now.retry_after() > Some(1_800 * SECOND);
                    if if is_reset { now.is_admitted() } else { is_blocked } {
                        break;
                    }
                }
            };
            tokio::select! {
                biased;
                () = change => panic!("its answer is held"),
                () = is_run => {}
            }
            proxy.set(Fault::None);
            let next = first.check(&charge("supplier", 600_000)).await.unwrap();
            let admits_at_once = next.outcome() == Outcome::Allow;
            assert_eq!((admits_at_once, next.is_admitted()), (is_reset, is_reset), "{next:?}");
        }
    }

    /// Of limiters that decide at once, whichever of them resets its key or blocks it.
    #[tokio::test]
    async fn a_reset_or_a_block_of_a_member_voids_the_slots_at_hand() {
        let server = Server::start();
        let slow = TokenBucket::new(Quota::per_minute(1).burst(1)).horizon(3_600 * SECOND);
        let both = |one: &Redis<TokenBucket>, other: &Redis<TokenBucket>| {
            AllAtOnce::new((one.clone(), other.clone()), |charge| {
                [charge.clone(), Charge::new("all")]
            })
        };
        for (user, everybody, is_reset) in [("a", "b", true), ("c", "d", false)] {
            let pool = server.pool();
            let member = |name| Redis::new(name, slow, pool.clone()).decision_timeout(TIMEOUT);
            let members = || [user, everybody].map(member);
            let ([one, other], [third, fourth]) = (members(), members());
            let (first, second) = (both(&one, &other), both(&third, &fourth));
            first.acquire("supplier").await.unwrap();
            leave(&first, charge("supplier", 600_000), async || {
                let _ = second.check(&charge("supplier", 600_000)).await.unwrap();
            })
            .await;
            if is_reset {
                one.reset("supplier").await.unwrap();
                other.reset("all").await.unwrap();
            } else {
                other.block("all", SECOND * 3_600).await.unwrap();
            }
            let next = first.check(&charge("supplier", 600_000)).await.unwrap();
            let admits_at_once = next.outcome() == Outcome::Allow;
            assert_eq!((admits_at_once, next.is_admitted()), (is_reset, is_reset), "{next:?}");
        }
    }

    #[tokio::test]
    async fn a_deny_cache_lets_a_charge_have_the_slot_at_hand() {
        let server = Server::start();
        let slow = TokenBucket::new(Quota::per_minute(1).burst(1)).horizon(150 * SECOND);
        let [first, second] = [(); 2].map(|()| redis(&server, "api", slow).deny_cache());
        first.acquire("supplier").await.unwrap();
        let patient = charge("supplier", 150_000);
        let wait = leave(&first, patient.clone(), async || {
            assert!(second.check(&patient).await.unwrap().is_admitted());
            assert!(!first.check(&patient).await.unwrap().is_admitted());
        })
        .await;
        let next = first.check(&patient).await.unwrap();
        assert!(next.is_admitted() && next.waited() <= wait, "{next:?}");
        assert!(!first.check(&patient).await.unwrap().is_admitted());
    }
}
