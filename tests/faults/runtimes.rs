//! Runtimes that end, or that nobody polls: neither connections nor charges depend on them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use tokio::runtime::{Handle, Runtime};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::limiter::{AllInTurn, Breaker, Operation};
use tower_sluice::respond::Raise;
use tower_sluice::{Memory, Outcome, RateLimitLayer, Refusal};

use super::*;

use support::faults::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A runtime with `workers` threads.
fn threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("a runtime")
}

/// A limiter with one connection and a long deadline.
fn patient(url: &str) -> Yearly {
    over(Pool::builder(url).and_then(|pool| pool.size(1).build()).expect("an address"))
        .decision_timeout(LONG)
}

/// Polls once.
async fn is_pending(asked: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *asked).poll(cx).is_pending())).await
}

// Case 136.
#[test]
fn runtimes_may_end_while_they_connect() {
    let mut server = Server::start();
    let limiter = yearly(&server.url());
    let lasting = runtime();
    lasting.block_on(until_well(&limiter));
    // Refused: they end while they pause between attempts.
    server.kill();
    for _ in 0..5 {
        runtime().block_on(until(&limiter, ErrorKind::Infrastructure));
    }
    server.restart();
    lasting.block_on(until_well(&limiter));
    // Silent: they end while they wait for the handshake.
    lasting.block_on(async {
        let mut connection = server.connection().await;
        cut(&mut connection).await;
    });
    server.signal("STOP");
    for _ in 0..5 {
        runtime().block_on(until(&limiter, ErrorKind::Infrastructure));
    }
    server.signal("CONT");
    let back = lasting.block_on(until_well(&limiter));
    println!("fault case=136 runtimes=10 back_ms={}", back.as_millis());
    // Nor does another runtime need the lasting one.
    drop(lasting);
    runtime().block_on(until_well(&limiter));
}

/// They end while they wait for a sentinel, or for the map of a cluster.
// Case 136.
#[test]
fn runtimes_may_end_while_they_look_for_a_server() {
    let lasting = threads(1);
    let (server, cluster) = (Server::start(), lasting.block_on(Cluster::start()));
    let sentinel = lasting.block_on(fake::sentinel(server.port(), 1));
    for (scheme, port) in [("redis-cluster", cluster.nodes[0].port()), ("redis-sentinel", sentinel)]
    {
        let proxy = lasting.block_on(Proxy::before(port));
        proxy.set(Fault::Hold);
        let name = if port == sentinel { "?sentinelServiceName=main" } else { "" };
        let limiter = yearly(&format!("{scheme}://127.0.0.1:{}{name}", proxy.port()));
        for _ in 0..5 {
            let answer = runtime().block_on(ask(&limiter));
            assert!(answer.is_err(), "{answer:?}");
        }
        proxy.set(Fault::None);
        let back = runtime().block_on(until_well(&limiter));
        println!("fault case=136 scheme={scheme} runtimes=5 back_ms={}", back.as_millis());
    }
    lasting.block_on(async { drop((server, cluster)) });
}

/// A call there ends: with an error, or by tokio's panic at the first timer.
// Case 136.
#[test]
fn a_call_on_a_runtime_that_has_shut_down_ends() {
    for scheme in ["redis", "redis-cluster", "redis-sentinel"] {
        let name = if scheme == "redis-sentinel" { "?sentinelServiceName=main" } else { "" };
        let pool = Pool::connect(&format!("{scheme}://127.0.0.1:{NOWHERE}{name}")).unwrap();
        let runtime = threads(1);
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            let _ended = ended;
            handle.block_on(pool.ready()).unwrap_err();
        });
        let end = end.recv_timeout(LONG);
        assert_eq!(end, Err::<(), _>(mpsc::RecvTimeoutError::Disconnected), "{scheme}");
    }
}

// Case 136.
#[test]
fn a_runtime_that_never_begins_to_connect_is_not_waited_for() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    // It starts the attempt, and drops it before its first poll.
    runtime().block_on(async {
        assert!(is_pending(&mut Box::pin(limiter.check(&one()))).await);
    });
    runtime().block_on(until_well(&limiter));
}

// Case 139.
#[test]
fn attempts_to_connect_end_with_the_pool() {
    // It accepts, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", silent.local_addr().expect("an address"));
    let pool = Pool::builder(&url).unwrap().connect_timeout(LONG * 10).build().unwrap();
    runtime().block_on(async {
        let limiter = over(pool);
        assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
        drop(limiter);
        eventually("the end of its tasks", async || {
            Handle::current().metrics().num_alive_tasks() == 0
        })
        .await;
    });
}

// Case 143.
#[test]
fn a_runtime_parked_while_it_connects_does_not_block_others() {
    let (_server, pool) = Server::pooled();
    let parked = runtime();
    let (first, second) = (over(pool.clone()), over(pool));
    let mut asked = Box::pin(first.check(&one()));
    assert!(parked.block_on(is_pending(&mut asked)));
    let back = runtime().block_on(until_well(&second));
    println!("fault case=143 connecting back_ms={}", back.as_millis());
    drop((asked, parked));
}

#[tokio::test]
async fn a_charge_whose_carrier_ended_with_its_runtime_is_carried_by_another() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = patient(&proxy.url()).max_batch_size(1).max_in_flight(1);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    let doomed = threads(1);
    let begun = limiter.clone();
    doomed
        .spawn(async move {
            let mut askers: Vec<_> =
                (0..3).map(|_| tokio_test::task::spawn(begun.check(&one()))).collect();
            for asker in &mut askers {
                assert!(asker.poll().is_pending());
            }
            // Their call runs in this runtime. The callers themselves are never polled again.
            std::mem::forget(askers);
        })
        .await
        .unwrap();
    let mut mine = tokio_test::task::spawn(Box::pin(limiter.check(&one())));
    assert!(mine.poll().is_pending());
    doomed.shutdown_background();
    assert_eq!(mine.into_inner().await.unwrap().outcome(), Outcome::Allow);
}

#[test]
fn a_runtime_that_nobody_polls_delays_no_other() {
    let server = Server::start();
    let limiter = patient(&server.url());
    let parked = runtime();
    parked.block_on(async {
        let _ = limiter.check(&"warm".into()).await.unwrap();
        for _ in 0..100 {
            tokio::spawn(limiter.check(&one()));
        }
        // Some of them are sent, some wait.
        tokio::task::yield_now().await;
    });
    let other = runtime();
    let hurried = limiter.clone().decision_timeout(Duration::from_millis(500));
    let took = other.block_on(until_well(&hurried));
    println!("decided after {took:?}");
    assert!(took < Duration::from_secs(5), "decided after {took:?}");
    // The parked runtime goes on where it was.
    parked.block_on(until_well(&limiter));
}

/// Polls a future until it is ready, outside of every runtime.
fn block_without_runtime<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..1_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
    panic!("it is never ready");
}

// Case 166.
#[test]
fn a_limiter_asked_outside_of_a_runtime_answers_with_an_error() {
    let server = Server::start();
    let redis = yearly(&server.url());
    let pool = server.pool();
    let pending = |_: &Charge| std::future::pending::<Result<Decision, Error>>();
    let breaker = || Breaker::new().slow_after(LONG);
    let mut limiters = vec![
        ("redis", redis.clone().boxed()),
        ("timeout", redis.clone().timeout(LONG).boxed()),
        ("breaker", redis.clone().breaker(breaker()).boxed()),
        ("deny cache", redis.clone().deny_cache().boxed()),
        ("lease", redis.clone().lease(100).boxed()),
        ("timeout of one that never answers", pending.timeout(LONG).boxed()),
        ("breaker of one that never answers", pending.breaker(breaker()).boxed()),
        (
            "in turn",
            AllInTurn::of_parts([redis.clone().timeout(LONG).boxed()]).timeout(LONG).boxed(),
        ),
    ];
    #[cfg(feature = "redisson")]
    {
        use tower_sluice_redisson::{Rate, Redisson};
        let redisson = Redisson::new(pool.clone()).default_rate(Rate::overall(5, LONG));
        limiters.push(("redisson", redisson.clone().boxed()));
        limiters.push(("timeout of redisson", redisson.clone().timeout(LONG).boxed()));
        let java = redisson.rate_limiter("java").expect("a name");
        assert_error("available permits", block_without_runtime(java.available_permits()).err());
        assert_error("delete", block_without_runtime(java.delete()).err());
        assert_error("try acquire", block_without_runtime(java.try_acquire(1)).err());
        assert_error("acquire", block_without_runtime(java.acquire(1)).err());
    }
    assert_error("ready", block_without_runtime(pool.ready()).err());
    for (name, limiter) in limiters {
        let charge = || match name {
            "in turn" => Charge::new(["key"]),
            _ => one(),
        };
        for wait in [Duration::ZERO, LONG] {
            let charge = charge().max_wait(wait);
            assert_error(name, block_without_runtime(limiter.check(&charge)).err());
            let Err(Refusal::Undecided(error)) = block_without_runtime(limiter.acquire(charge))
            else {
                panic!("{name} admits")
            };
            assert_error(name, Some(error));
        }
        for operation in [Operation::Estimate, Operation::Penalize, Operation::Reset] {
            if let Some(answer) = limiter.operate(operation, &charge()) {
                assert_error(name, block_without_runtime(answer).err());
            }
        }
        // Behind a layer, the caller gets an answer too.
        let inner = service_fn(async |_: ()| Ok::<_, BoxError>(()));
        let layer = RateLimitLayer::new(limiter, move |_: &()| charge()).respond(Raise);
        let error = block_without_runtime(layer.layer(inner).oneshot(())).unwrap_err();
        assert!(error.to_string().contains("could not be decided"), "{name}: {error}");
    }
}

/// A limiter that needs no runtime answers without one, until it has to wait.
// Case 166.
#[test]
fn a_limiter_that_needs_no_runtime_answers_without_one() {
    let quota = Quota::new(1, LONG);
    let memory = Memory::new("api", TokenBucket::new(quota).horizon(2 * LONG));
    let limiter =
        memory.clone().timeout(LONG).breaker(Breaker::new().slow_after(LONG)).deny_cache();
    let check = |charge: &Charge| block_without_runtime(limiter.check(charge)).expect("a decision");
    assert_eq!(check(&one()).outcome(), Outcome::Allow);
    assert!(!check(&one()).is_admitted());
    // It cannot sleep, so it gives back the slot that it reserved.
    let Err(Refusal::Undecided(error)) = block_without_runtime(limiter.acquire(one())) else {
        panic!("it waited")
    };
    assert_error("acquire", Some(error));
    let reserved = check(&one().max_wait(2 * LONG));
    assert!(matches!(reserved.outcome(), Outcome::Wait(wait) if wait <= LONG), "{reserved:?}");
}

#[track_caller]
fn assert_error(name: &str, error: Option<Error>) {
    let error = error.unwrap_or_else(|| panic!("{name}: no error"));
    assert_eq!(error.kind(), ErrorKind::Configuration, "{name}: {error}");
    assert!(error.to_string().contains("needs a tokio runtime"), "{name}: {error}");
}

/// The tasks that are left once the limiter is dropped and its callers have their errors.
fn tasks_left(pool: Pool, asks: usize) -> usize {
    let runtime = threads(2);
    runtime.block_on(async {
        let limiter = over(pool);
        let mut tasks = JoinSet::new();
        for number in 0..asks {
            tasks.spawn(limiter.check(&format!("key {number}").into()));
        }
        drop(limiter);
        assert!(tasks.join_all().await.iter().all(Result::is_err));
        let begun = Instant::now();
        let tasks = || Handle::current().metrics().num_alive_tasks();
        while tasks() > 0 && begun.elapsed() < LONG {
            sleep(Duration::from_millis(10)).await;
        }
        tasks()
    })
}

#[test]
fn no_task_outlives_the_limiter_when_redis_is_away() {
    let pool = |url: &str| Pool::connect(url).unwrap();
    let [server, cluster] =
        ["redis", "redis-cluster"].map(|scheme| format!("{scheme}://127.0.0.1:{NOWHERE}"));
    let sentinel = format!("redis-sentinel://127.0.0.1:{NOWHERE}?sentinelServiceName=main");
    let left = [
        tasks_left(pool(&server), 20),
        tasks_left(pool(&cluster), 20_000),
        tasks_left(pool(&sentinel), 20),
    ];
    println!("tasks left={left:?}");
    assert_eq!(left, [0; 3]);
}
