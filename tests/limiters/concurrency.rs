//! Limits of concurrency: who holds units, for how long, and when they are released.

#[cfg(feature = "redis")]
mod storm;

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower_sluice::crates::http_body::{Body, Frame};
use tower_sluice::limiter::Hold;
use tower_sluice::respond::{SettleHandle, WithBody};

use super::*;

const FOUR: Duration = Duration::from_secs(4);

fn limit(units: u64) -> Memory<Concurrency> {
    Memory::new("at once", Concurrency::new(units).max_hold(FOUR))
}

async fn left<L: Limiter>(limiter: &L) -> u64 {
    limiter.peek("key").await.expect("a peek").remaining().expect("reported")
}

async fn reserved<L: Limiter>(limiter: &L) -> Reservation {
    let decision = limiter.check(&one()).await.expect("a decision");
    decision.into_reservation().expect("it holds a unit")
}

async fn held<L: Limiter + Clone + Send + Sync + 'static>(limiter: &L) -> Hold {
    limiter.hold(reserved(limiter).await)
}

#[tokio::test(start_paused = true)]
async fn a_guard_holds_for_an_hour_and_its_drop_releases() {
    let limiter = limit(2);
    let hold = held(&limiter).await;
    for _ in 0..3_600 {
        assert_eq!(left(&limiter).await, 1);
        sleep(SECOND).await;
    }
    drop(hold);
    assert_eq!(left(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_holder_held_is_free_after_max_hold_and_a_quarter() {
    let limiter = limit(1);
    mem::forget(reserved(&limiter).await);
    sleep(FOUR - Duration::from_millis(1)).await;
    assert_eq!(left(&limiter).await, 0);
    sleep(SECOND + Duration::from_millis(2)).await;
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_release_takes_no_units_of_others() {
    let limiter = limit(1);
    let late = reserved(&limiter).await;
    sleep(2 * FOUR).await;
    let other = held(&limiter).await;
    assert_eq!(limiter.settle(late, 0).unwrap().await.unwrap().given_back, 0);
    assert_eq!(left(&limiter).await, 0);
    assert_eq!(other.settle(0).await.unwrap().given_back, 1);
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn renewing_what_is_no_longer_held_says_so() {
    let limiter = limit(1);
    let mut mine = reserved(&limiter).await;
    let renewal = limiter.renew(&mut mine).expect("it is held");
    assert_eq!(renewal.max_hold(), FOUR);
    assert!(renewal.await.unwrap());
    limiter.reset("key").await.unwrap();
    assert!(!limiter.renew(&mut mine).expect("it was held").await.unwrap());
    // Another limiter's, and units that are spent.
    assert!(limit(1).renew(&mut mine).is_none());
    let bucket = Memory::new("bucket", TokenBucket::new(Quota::per_second(1)));
    assert!(bucket.renew(&mut reserved(&bucket).await).is_none());
}

/// Wrappers and combinations renew what their members hold.
#[tokio::test(start_paused = true)]
async fn a_guard_renews_through_wrappers_tuples_and_combinations() {
    let at_once = || Concurrency::new(2).max_hold(FOUR);
    let bucket = TokenBucket::new(Quota::per_hour(5));
    let tuple = Memory::new("tuple", (bucket, at_once()));
    let in_turn = AllInTurn::new([tuple.clone().boxed(), limit(2).boxed()], |charge: &Charge| {
        [charge.clone(), charge.clone()]
    });
    let away = |_: &Charge| {
        ready(Err::<Decision, _>(Error::new(ErrorKind::Infrastructure, "the store is away")))
    };
    let all = [
        tuple.timeout(SECOND).shadow().boxed(),
        away.or_else(limit(2)).boxed(),
        limit(2).deny_cache().boxed(),
        limit(2).lease(10).boxed(),
        in_turn.boxed(),
    ];
    for limiter in all {
        let mut mine = reserved(&limiter).await;
        for _ in 0..10 {
            sleep(2 * SECOND).await;
            assert!(limiter.renew(&mut mine).expect("it is held").await.unwrap());
        }
        limiter.settle(mine, 1).unwrap().await.unwrap();
    }
}

/// A key is reset, as if the store had lost it. The guard of two limits goes on for the other one,
/// and releases nothing of who came later.
#[tokio::test(start_paused = true)]
async fn a_guard_tells_that_units_were_lost_and_renews_the_others() {
    let [one, other] = [2, 2].map(limit);
    let both = AllInTurn::new([one.clone().boxed(), other.clone().boxed()], |charge: &Charge| {
        [charge.clone(), charge.clone()]
    });
    let (alone, pair) = (held(&one).await, held(&both).await);
    sleep(2 * FOUR).await;
    assert!(alone.is_held() && pair.is_held());
    one.reset("key").await.unwrap();
    sleep(2 * FOUR).await;
    assert!(!alone.is_held() && !pair.is_held());
    assert_eq!((left(&one).await, left(&other).await), (2, 1));
    let later = held(&one).await;
    sleep(100 * FOUR).await;
    drop((alone, pair));
    assert_eq!((left(&one).await, left(&other).await), (1, 2));
    assert!(later.is_held());
}

/// Units that waited for another limit are renewed when they are used, not a third of `max_hold`
/// later: a guard does so, and a layer. So they are still held after a pause of the process.
#[tokio::test(start_paused = true)]
async fn what_waited_for_another_limit_is_renewed_when_it_is_used() {
    let bucket = TokenBucket::new(Quota::new(2, 5 * SECOND).burst(1));
    let limiter = Memory::new("tuple", (Concurrency::new(3).max_hold(FOUR), bucket));
    let wait = Duration::from_millis(2_500);
    let charge = one().max_wait(FOUR);
    let pause = async || {
        sleep(Duration::from_millis(1)).await;
        tokio::time::advance(FOUR - Duration::from_millis(100)).await;
        sleep(Duration::from_millis(1)).await;
    };
    limiter.settle(reserved(&limiter).await, 1).unwrap().await.unwrap();
    let mut waited = limiter.acquire(charge.clone()).await.expect("its slot comes");
    assert_eq!(waited.waited(), wait);
    let hold = limiter.hold(waited.take_reservation().expect("it holds a unit"));
    pause().await;
    assert!(hold.is_held());

    limiter.settle(reserved(&limiter).await, 1).unwrap().await.unwrap();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let begin = Arc::new(Mutex::new(Some(begin)));
    let slow = service_fn(move |()| {
        begin.lock().unwrap().take().expect("one call").send(()).unwrap();
        pending::<Result<(), BoxError>>()
    });
    let layer = RateLimitLayer::new(limiter.clone(), move |_: &()| charge.clone()).respond(Raise);
    let call = tokio::spawn(layer.layer(slow).oneshot(()));
    begun.await.unwrap();
    pause().await;
    sleep(SECOND).await;
    let peeked = limiter.peek("key").await.unwrap();
    let left: Vec<_> = peeked.policies().map(|one| one.remaining()).collect();
    assert_eq!(left[0], Some(1));
    call.abort();
}

// Layers.

/// A body whose frames come from a channel.
struct Frames(mpsc::UnboundedReceiver<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_held_until_its_body_has_ended_or_was_dropped() {
    let limiter = limit(2);
    let (bodies, mut senders) = mpsc::unbounded_channel();
    let inner = service_fn(move |_: Request<()>| {
        let (sender, frames) = mpsc::unbounded_channel();
        bodies.send(sender).expect("received");
        ready(Ok::<_, BoxError>(Response::new(Frames(frames))))
    });
    let layer = RateLimitLayer::new(limiter.clone(), |_: &Request<()>| one()).respond(Raise);
    let service = layer.settle_later(WithBody).layer(inner);
    let ask = || service.clone().oneshot(Request::new(()));
    let (ends, dropped) = (ask().await.unwrap(), ask().await.unwrap());
    assert!(ask().await.is_err());
    // Far longer than `max_hold`.
    sleep(100 * FOUR).await;
    assert_eq!(left(&limiter).await, 0);
    drop(dropped);
    assert_eq!(left(&limiter).await, 1);
    // Trailers, as of gRPC, are its last frame.
    let sender = senders.recv().await.expect("a channel");
    let reading = tokio::spawn(ends.into_body().collect());
    sender.send(Frame::data(Bytes::from("hello"))).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(left(&limiter).await, 1);
    sender.send(Frame::trailers(HeaderMap::new())).unwrap();
    drop(sender);
    assert!(reading.await.unwrap().unwrap().trailers().is_some());
    assert_eq!(left(&limiter).await, 2);
}

/// Without a body, until the response; also if the caller leaves, or the service fails or panics.
#[tokio::test(start_paused = true)]
async fn every_end_of_a_request_releases_it() {
    let limiter = limit(1);
    let layer = RateLimitLayer::new(limiter.clone(), |_: &&'static str| one()).respond(Raise);
    let service = layer.layer(service_fn(|what: &'static str| async move {
        match what {
            "answers" => Ok(()),
            "fails" => Err(BoxError::from("it fails")),
            "panics" => panic!("it panics"),
            _ => pending().await,
        }
    }));
    for what in ["answers", "fails", "panics"] {
        let ended = tokio::spawn(service.clone().oneshot(what)).await;
        assert_eq!(ended.is_err(), what == "panics");
        assert_eq!(ended.is_ok_and(|answer| answer.is_ok()), what == "answers");
        assert_eq!(left(&limiter).await, 1);
    }
    let mut hangs = task::spawn(service.clone().oneshot("hangs"));
    assert_pending!(hangs.poll());
    assert_eq!(left(&limiter).await, 0);
    drop(hangs);
    assert_eq!(left(&limiter).await, 1);
    let at_once =
        service_fn(|_: &'static str| -> Ready<Result<(), BoxError>> { panic!("at once") });
    let at_once = layer.layer(at_once);
    let panics = tokio::spawn(at_once.oneshot("panics"));
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(left(&limiter).await, 1);
}

/// A call that takes longer than `max_hold` holds its units, whoever settles them.
#[tokio::test(start_paused = true)]
async fn a_slow_service_holds_its_units_until_it_answers() {
    let limiter = limit(1);
    let slow = service_fn(|_: Request<()>| async {
        sleep(100 * FOUR).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = RateLimitLayer::new(limiter.clone(), |_: &Request<()>| one());
    let (alone, by_body) = (layer.clone().layer(slow), layer.settle_later(WithBody).layer(slow));
    let mut calls: [Pin<Box<dyn Future<Output = ()>>>; 2] = [
        Box::pin(async move { drop(alone.oneshot(Request::new(())).await) }),
        Box::pin(async move { drop(by_body.oneshot(Request::new(())).await) }),
    ];
    for call in &mut calls {
        for _ in 0..99 {
            let running = tokio::time::timeout(FOUR, call.as_mut()).await;
            assert!(running.is_err());
            assert_eq!(left(&limiter).await, 0);
        }
        call.as_mut().await;
        assert_eq!(left(&limiter).await, 1);
    }
}

/// The second request holds its unit while it waits until the service is ready.
#[tokio::test(start_paused = true)]
async fn a_request_whose_service_is_not_ready_holds_its_units() {
    let limiter = limit(2);
    let slow = service_fn(|_: Request<()>| async {
        sleep(10 * FOUR).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let one_at_a_time = tower::limit::ConcurrencyLimitLayer::new(1).layer(slow);
    let service =
        RateLimitLayer::new(limiter.clone(), |_: &Request<()>| one()).layer(one_at_a_time);
    let [first, second] = [(); 2].map(|()| tokio::spawn(service.clone().oneshot(Request::new(()))));
    for quarter in 1..80 {
        sleep(FOUR / 4).await;
        if quarter != 40 {
            assert_eq!(left(&limiter).await, u64::from(quarter > 40), "{quarter}");
        }
    }
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(left(&limiter).await, 2);
}

/// The handler of an upgraded connection takes the units out of its handle.
#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_holds_what_its_handler_took() {
    let limiter = limit(1);
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let closed = Arc::new(Mutex::new(Some(closed)));
    let inner = service_fn(move |request: Request<()>| {
        let closed = closed.lock().unwrap().take().expect("one request");
        async move {
            let handle = request.extensions().get::<SettleHandle>().expect("the layer adds it");
            let hold = handle.take().expect("it holds a unit").hold();
            tokio::spawn(async move {
                closed.await.ok();
                drop(hold);
            });
            let response = Response::builder().status(101).body(Full::<Bytes>::default());
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    let layer = RateLimitLayer::new(limiter.clone(), |_: &Request<()>| one());
    let response = layer.settle_later(WithBody).layer(inner).oneshot(Request::new(())).await;
    assert_eq!(response.unwrap().into_body().collect().await.unwrap().to_bytes(), "");
    sleep(100 * FOUR).await;
    assert_eq!(left(&limiter).await, 0);
    drop(close);
    tokio::task::yield_now().await;
    assert_eq!(left(&limiter).await, 1);
}

#[cfg(feature = "redis")]
mod over_redis {
    use std::sync::atomic::Ordering::Relaxed;

    use tower_sluice::redis::AllAtOnce;

    use super::*;

    /// The CPU-bound part of a request runs on a thread of its own, which has no runtime.
    #[tokio::test]
    async fn a_guard_that_a_plain_thread_drops_releases() {
        let server = Server::start();
        let limiter = Redis::new("at once", Concurrency::new(1), server.pool())
            .decision_timeout(Duration::from_secs(20));
        for _ in 0..3 {
            let hold = held(&limiter).await;
            std::thread::spawn(move || drop(hold)).join().expect("it drops the guard");
            // It is sent before this charge, by the same task.
            assert_eq!(left(&limiter).await, 1);
        }
    }

    /// The holds of a process are renewed in few calls.
    #[tokio::test]
    async fn holds_are_renewed_in_few_calls() {
        const HOLDS: usize = 256;
        let server = Server::start();
        let limiter = Redis::new("at once", Concurrency::new(300), server.pool());
        let limiter = limiter.decision_timeout(LONG);
        let mut mine = Vec::new();
        for _ in 0..HOLDS {
            mine.push(reserved(&limiter).await);
        }
        let before = script_calls(&mut server.connection().await).await;
        let mut renewals = JoinSet::new();
        for reservation in &mut mine {
            renewals.spawn(limiter.renew(reservation).expect("it is held"));
        }
        assert!(renewals.join_all().await.into_iter().all(|renewed| renewed.unwrap()));
        let calls = script_calls(&mut server.connection().await).await - before;
        assert!(calls <= 16, "{HOLDS} renewals took {calls} calls");
        for reservation in mine {
            assert_eq!(limiter.settle(reservation, 0).unwrap().await.unwrap().given_back, 1);
        }
        assert_eq!(left(&limiter).await, 300);
    }

    /// Tokens per minute, requests per day, and requests at the same time, for one key in one call.
    #[tokio::test]
    async fn tokens_requests_and_concurrency_are_all_or_nothing() {
        let server = Server::start();
        let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
        let pool = server.pool();
        let patient = |one: Redis<AnyAlgorithm>| {
            one.decision_timeout(LONG).clock(support::clock_at(&now)).buckets(1)
        };
        let limiter =
            |name: &'static str, one: AnyAlgorithm| patient(Redis::new(name, one, pool.clone()));
        let tokens = limiter("tokens", Budget::new(Quota::per_minute(10_000)).into());
        let requests = limiter("requests", FixedWindow::new(Quota::per_day(100)).into());
        let at_once = limiter("at once", Concurrency::new(2).into());
        let members = (tokens.clone(), requests.clone(), at_once.clone());
        let all = AllAtOnce::new(members, |charge: &Charge| {
            let one = Charge::new(charge.key()).cost(1);
            [charge.clone(), one.clone(), one]
        });
        let estimate = Charge::new("key").cost(1_000);
        let ask = async || all.check(&estimate).await.expect("a decision");
        let before = script_calls(&mut server.connection().await).await;
        let mut first = ask().await.into_reservation().expect("it holds units");
        let second = ask().await.into_reservation().expect("it holds units");
        assert_eq!(script_calls(&mut server.connection().await).await - before, 2);
        let refused = ask().await;
        assert_eq!((refused.is_admitted(), refused.limiter()), (false, Some("at once")));
        let state = async || (left(&tokens).await, left(&requests).await, left(&at_once).await);
        assert_eq!(state().await, (8_000, 98, 0));

        // Beyond `max_hold`, what is renewed is still held. What is not renewed is free, or spent.
        for _ in 0..4 {
            now.fetch_add(30_000_000, Relaxed);
            assert!(all.renew(&mut first).expect("it is held").await.unwrap());
        }
        assert_eq!(left(&at_once).await, 1);
        all.settle(second, 100).unwrap().await.unwrap();
        assert_eq!(left(&at_once).await, 1);
        all.settle(first, 300).unwrap().await.unwrap();
        assert_eq!((left(&requests).await, left(&at_once).await), (98, 2));
        // The second was spent when its time was over, and is owed.
        assert_eq!(left(&tokens).await, 8_700);
    }

    /// A tenant with many jobs leaves workers to the others, and a job that ends makes room for it.
    #[tokio::test]
    async fn one_tenant_never_takes_all_workers() {
        let (_server, pool) = Server::pooled();
        let limit = |name, units| {
            let limiter = Redis::new(name, Concurrency::new(units), pool.clone());
            limiter.decision_timeout(LONG).buckets(1)
        };
        let jobs = AllAtOnce::of_parts((limit("tenant", 2), limit("workers", 3)));
        let begin = async |tenant: &'static str| {
            let mut admitted = jobs.try_acquire((tenant, "all")).await.ok()?;
            Some(jobs.hold(admitted.take_reservation().expect("it holds units")))
        };
        let first = begin("acme").await.expect("a worker");
        let _second = begin("acme").await.expect("a worker");
        assert!(begin("acme").await.is_none());
        let _other = begin("small").await.expect("a worker");
        assert!(begin("third").await.is_none());
        first.settle(0).await.expect("it is released");
        assert!(begin("acme").await.is_some());
    }
}
