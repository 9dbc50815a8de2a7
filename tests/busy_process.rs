//! A process that is too busy to read its replies in time. Load alone never opens the gate.
//!
//! The timeout is long, so that a server on a busy machine answers within it; a thread of its own
//! sees whether it does. With the usual one, on an idle machine:
//!
//! ```sh
//! BUSY_TIMEOUT_MS=20 BUSY_REQUESTS=40 \
//!   cargo test --all-features --test busy_process -- --nocapture
//! ```

#![cfg(feature = "redis")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use redis::AsyncConnectionConfig;
use support::Server;
use support::cluster::Cluster;
use support::faults::{LONG, size};
use support::stats::calls;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{Charge, ErrorKind, FailOpen, Limiter, LimiterExt, Origin, Pool, Quota, Redis};

fn timeout() -> Duration {
    Duration::from_millis(size("BUSY_TIMEOUT_MS", 100))
}

/// What a handler costs: one of 200 clients has to wait for the timeout until it is its turn.
fn handler() -> Duration {
    timeout() / 200
}

#[derive(Default)]
struct Counts {
    decided: AtomicUsize,
    /// When each request was admitted unasked.
    unasked: Mutex<Vec<Instant>>,
    saturated: AtomicUsize,
}

/// A thread that pings the server all the time, over a connection of its own.
struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<[Instant; 2]>>,
}

impl Witness {
    fn start(server: &Server) -> Self {
        let (stop, port) = (Arc::new(AtomicBool::new(false)), server.port());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let mut silences = Vec::new();
            while !stopped.load(Relaxed) {
                let sent = Instant::now();
                stream.write_all(b"PING\r\n").expect("sent");
                stream.read_exact(&mut [0; b"+PONG\r\n".len()]).expect("a reply");
                if sent.elapsed() > timeout() / 4 {
                    silences.push([sent, Instant::now()]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            silences
        });
        Self { stop, thread }
    }

    /// The stretches in which the server, on a machine that is too busy, did not answer for long.
    fn silences(self) -> Vec<[Instant; 2]> {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn burn(time: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Asks, and runs the handler of a request that is admitted.
async fn client<L: Limiter>(limiter: Arc<L>, number: usize, counts: Arc<Counts>) {
    for _ in 0..size("BUSY_REQUESTS", 10) {
        match limiter.check(&Charge::new(format!("client {number}"))).await {
            Ok(decision) => {
                match decision.origin() {
                    Origin::FailOpen => counts.unasked.lock().expect("whole").push(Instant::now()),
                    _ => _ = counts.decided.fetch_add(1, Relaxed),
                }
                burn(handler());
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
                counts.saturated.fetch_add(1, Relaxed);
            }
        }
        yield_now().await;
    }
}

/// Runs `clients` against a limiter over `pool`, and asserts that load admits none of them.
async fn load(server: &Server, name: &str, pool: Pool, clients: usize) {
    let bucket = TokenBucket::new(Quota::per_second(1_000_000));
    let limiter = Redis::new("busy", bucket, pool).timeout(timeout()).or_else(FailOpen);
    let (limiter, counts) = (Arc::new(limiter), Arc::new(Counts::default()));
    let witness = Witness::start(server);
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        tasks.spawn(client(Arc::clone(&limiter), number, Arc::clone(&counts)));
    }
    tasks.join_all().await;
    let silences = witness.silences();
    let unasked = std::mem::take(&mut *counts.unasked.lock().expect("whole"));
    println!(
        "busy pool={name} clients={clients} decided={} unasked={} saturated={} silences={}",
        counts.decided.load(Relaxed),
        unasked.len(),
        counts.saturated.load(Relaxed),
        silences.len(),
    );
    // A server that is silent itself may be passed over.
    let while_silent =
        |at: &Instant| silences.iter().any(|[from, to]| *from <= *at && *at - timeout() <= *to);
    let by_load = unasked.iter().filter(|at| !while_silent(at)).count();
    assert_eq!(by_load, 0, "of {clients} clients");
}

// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_alone_never_opens_the_gate() {
    let server = Server::start();
    for clients in [200, 500, 1_000] {
        let pool = Pool::connect(&server.url()).expect("an address");
        load(&server, "own", pool, clients).await;
    }
}

/// As connections to a cluster are used: each key has a hash slot and batches of its own.
// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_alone_never_opens_the_gate_before_a_given_pool() {
    let server = Server::for_pool_that_pings();
    for clients in [200, 500] {
        let manager = RedisConnectionManager::new(server.url()).expect("an address");
        let pool = bb8::Pool::builder().build(manager).await.expect("a pool");
        load(&server, "given", Pool::from_bb8(pool).clustered(), clients).await;
    }
}

/// A limiter that has a connection, and time.
async fn connected(server: &Server) -> Redis<TokenBucket> {
    let bucket = TokenBucket::new(Quota::per_second(1_000_000));
    let limiter = Redis::new("busy", bucket, Pool::connect(&server.url()).expect("an address"));
    let limiter = limiter.decision_timeout(LONG);
    limiter.acquire("warm").await.expect("admitted");
    limiter
}

/// Blocks this thread until the server has run as many scripts as that, and the timeout has passed.
fn block_until(server: &Server, scripts: u64) {
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut connection = server.connection().await;
                while calls(&mut connection, "evalsha").await < scripts {}
            });
        });
    });
    burn((2 * timeout()).saturating_sub(begun.elapsed()));
}

/// A handler that blocks every worker thread for longer than the timeout: the reply is there when
/// the timer fires.
// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reply_that_is_there_when_the_timer_fires_is_read() {
    let server = Server::start();
    let limiter = connected(&server).await;
    let limiter = limiter.timeout(timeout());
    let task = tokio::spawn(async move {
        for scripts in 2..20 {
            let mut check = Box::pin(limiter.check(&"key".into()));
            let sent = std::future::poll_fn(|cx| std::task::Poll::Ready(check.as_mut().poll(cx)));
            assert!(sent.await.is_pending());
            // The connection's own task sends the call.
            yield_now().await;
            block_until(&server, scripts);
            check.await.expect("decided");
        }
    });
    task.await.expect("no panic");
}

/// A server that falls silent is not load: the gate may open.
// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_no_load() {
    let server = Server::start();
    let limiter = connected(&server).await;
    let limiter = limiter.timeout(timeout()).or_else(FailOpen);
    server.signal("STOP");
    let begun = Instant::now();
    // A busy machine may delay the timers of this process for a while.
    while limiter.check(&"key".into()).await.is_err() {
        assert!(begun.elapsed() < LONG, "the gate stays closed");
    }
    server.signal("CONT");
}

/// Blocks this thread, and leaves the processor to the other tests.
fn stand_still(time: Duration) {
    std::thread::sleep(time);
}

/// The system pauses one thread of two, in the middle of a call: the task that has to write the
/// calls of the other thread waits for it. The timers of the other thread fire in time.
// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_is_paused_opens_no_gate() {
    let server = Server::start();
    let limiter = connected(&server).await;
    for _ in 0..5 {
        let (paused, wait) = (limiter.clone(), Duration::from_millis(400));
        let (begins, begun) = tokio::sync::oneshot::channel();
        let paused = tokio::spawn(async move {
            let mut check = Box::pin(paused.check(&"key".into()));
            let sent = std::future::poll_fn(|cx| std::task::Poll::Ready(check.as_mut().poll(cx)));
            assert!(sent.await.is_pending());
            begins.send(()).expect("awaited");
            stand_still(wait);
            check.await.expect("decided");
        });
        begun.await.expect("begun");
        let counts = Arc::new(Counts::default());
        let mut callers = JoinSet::new();
        for number in 0..50 {
            let limiter = limiter.clone().timeout(wait / 4).or_else(FailOpen);
            callers.spawn(client(Arc::new(limiter), number, Arc::clone(&counts)));
        }
        callers.join_all().await;
        paused.await.expect("no panic");
        let unasked = counts.unasked.lock().expect("whole").len();
        let (decided, saturated) = (counts.decided.load(Relaxed), counts.saturated.load(Relaxed));
        println!("busy pool=paused decided={decided} unasked={unasked} saturated={saturated}");
        assert_eq!(unasked, 0);
    }
}

/// A client of the application has timers of its own, which fire as late as all others.
// Case 132.
#[tokio::test]
async fn a_late_timer_of_a_given_client_never_opens_the_gate() {
    let server = Server::for_pool_that_pings();
    let client = redis::Client::open(server.url()).expect("an address");
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(timeout() / 2));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    let manager = RedisConnectionManager::new(server.url()).expect("an address");
    let manager = bb8::Pool::builder().build(manager).await.expect("a pool");
    let pools = [Pool::from_connection(connection.expect("a connection")), Pool::from_bb8(manager)];
    for pool in pools {
        let bucket = TokenBucket::new(Quota::per_second(1_000_000));
        let limiter = Redis::new("busy", bucket, pool).decision_timeout(LONG);
        limiter.acquire("warm").await.expect("admitted");
        for _ in 0..5 {
            let mut check = Box::pin(limiter.check(&"key".into()));
            let sent = std::future::poll_fn(|cx| std::task::Poll::Ready(check.as_mut().poll(cx)));
            assert!(sent.await.is_pending());
            // Longer than both timers: half a second is what a client of `redis` has by default.
            stand_still(Duration::from_millis(600));
            if let Err(error) = check.await {
                assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
            }
        }
    }
}

/// A process that stands still again and again while it reads the map of a cluster for the first
/// time: all timers have expired whenever it goes on.
// Case 132.
#[tokio::test]
async fn a_slot_map_that_is_read_late_never_opens_the_gate() {
    let cluster = Cluster::start().await;
    let pool = Pool::builder(&cluster.url()).expect("an address").connect_timeout(timeout());
    let bucket = TokenBucket::new(Quota::per_second(1_000_000));
    let limiter = Redis::new("busy", bucket, pool.build().expect("a pool"));
    let limiter = Arc::new(limiter.timeout(timeout()).or_else(FailOpen));
    let counts = Arc::new(Counts::default());
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let (limiter, counts) = (Arc::clone(&limiter), Arc::clone(&counts));
        callers.spawn(async move {
            for _ in 0..10 {
                match limiter.check(&"key".into()).await {
                    Ok(decision) if decision.origin() == Origin::FailOpen => {
                        counts.unasked.lock().expect("whole").push(Instant::now());
                    }
                    Ok(_) => _ = counts.decided.fetch_add(1, Relaxed),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
                        counts.saturated.fetch_add(1, Relaxed);
                    }
                }
            }
        });
    }
    let begun = Instant::now();
    while begun.elapsed() < 20 * timeout() && counts.decided.load(Relaxed) == 0 {
        yield_now().await;
        stand_still(timeout() * 3 / 2);
    }
    callers.join_all().await;
    let unasked = counts.unasked.lock().expect("whole").len();
    let (decided, saturated) = (counts.decided.load(Relaxed), counts.saturated.load(Relaxed));
    println!("busy pool=cluster decided={decided} unasked={unasked} saturated={saturated}");
    assert_eq!(unasked, 0);
}
