//! A process that is too busy to read its replies in time. Load alone never fails open.
//!
//! The timeout is long, so that a server on a busy machine answers within it; a thread of its own
//! sees whether it does. With the usual one, on an idle machine:
//!
//! ```sh
//! BUSY_TIMEOUT_MS=20 BUSY_REQUESTS=40 \
//!   cargo test -p tests --all-features --test busy_process -- --nocapture
//! ```

#![cfg(feature = "redis")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use redis::AsyncConnectionConfig;
use support::cluster::{Cluster, keys_in};
use support::faults::{LONG, chain, size};
use support::sentinel::{self, Replicated};
use support::stats::script_calls;
use support::{NOWHERE, Server};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::Origin;
use tower_sluice::{Charge, ErrorKind, FailOpen, Limiter, LimiterExt, Pool, Quota, Redis};

fn timeout() -> Duration {
    Duration::from_millis(size("BUSY_TIMEOUT_MS", 100))
}

/// Returns the time that a handler takes: one of 200 clients has to wait for the timeout until it
/// is its turn.
fn handler() -> Duration {
    timeout() / 200
}

#[derive(Default)]
struct Counts {
    decided: AtomicUsize,
    /// Decided, and admitted.
    admitted: AtomicUsize,
    /// The calls that were admitted unasked: from when to when each waited.
    unasked: Mutex<Vec<[Instant; 2]>>,
    saturated: AtomicUsize,
    /// Admitted unasked, since a connection was lost or a server said that it cannot decide.
    lost: AtomicUsize,
}

impl Counts {
    /// Asks, and counts the answer. Returns true if there was one.
    async fn ask<L: Limiter>(&self, limiter: &L, key: &str) -> bool {
        let begun = Instant::now();
        match limiter.check(&Charge::new(key)).await {
            Ok(decision) if decision.origin() == Origin::FailOpen => {
                let cause = chain(decision.fallback_cause().expect("why"));
                let is_lost = ["broken pipe", "reset", "refused", "answered: "];
                if is_lost.iter().any(|lost| cause.contains(lost)) {
                    self.lost.fetch_add(1, Relaxed);
                } else {
                    println!("busy unasked cause={cause}");
                    self.unasked.lock().expect("whole").push([begun, Instant::now()]);
                }
                true
            }
            Ok(decision) => {
                self.decided.fetch_add(1, Relaxed);
                self.admitted.fetch_add(usize::from(decision.is_admitted()), Relaxed);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Saturation, "{error:?}");
                self.saturated.fetch_add(1, Relaxed);
                false
            }
        }
    }

    /// Asserts that load admitted nobody. A server that is silent itself may be passed over.
    fn report(&self, name: &str, silences: &[[Instant; 2]]) {
        let unasked = std::mem::take(&mut *self.unasked.lock().expect("whole"));
        println!(
            "busy pool={name} decided={} unasked={} lost={} saturated={} silences={}",
            self.decided.load(Relaxed),
            unasked.len(),
            self.lost.load(Relaxed),
            self.saturated.load(Relaxed),
            silences.len(),
        );
        let met_silence = |[begun, ended]: &&[Instant; 2]| {
            let met = |[from, to]: &[Instant; 2]| {
                // A silent connection is given up, and the next is there within half a second.
                let is_given_up = *to - *from >= Duration::from_millis(300);
                let known = if is_given_up { Duration::from_millis(500) } else { Duration::ZERO };
                from <= ended && *begun <= *to + known
            };
            silences.iter().any(met)
        };
        let by_load = unasked.iter().filter(|call| !met_silence(call)).count();
        assert_eq!(by_load, 0, "{name}");
    }

    /// Asserts that no connection was lost, and that no server said that it cannot decide.
    fn lost_none(&self, name: &str) {
        assert_eq!(self.lost.load(Relaxed), 0, "{name}");
    }
}

/// A thread that runs a script on the server all the time, over a connection of its own.
struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<[Instant; 2]>>,
}

impl Witness {
    fn start(server: &Server) -> Self {
        let (stop, port) = (Arc::new(AtomicBool::new(false)), server.port());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut stream, mut silences) = (connect(port), Vec::new());
            while !stopped.load(Relaxed) {
                let sent = Instant::now();
                if ask(&mut stream).is_err() {
                    // Sentinels end all connections of a server that is demoted.
                    stream = connect(port);
                    continue;
                }
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

fn connect(port: u16) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(("127.0.0.1", port)).expect("a connection"))
}

/// Runs a script, which each user of the tests may do, and reads the whole reply.
fn ask(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    stream.get_mut().write_all(b"EVAL 'return 1' 0\r\n")?;
    let mut reply = String::new();
    match stream.read_line(&mut reply)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// The witness reads each reply whole. What is left of one would answer for a silent server.
#[test]
fn a_witness_notices_a_silent_server() {
    let server = Server::start();
    let mut stream = connect(server.port());
    for _ in 0..100 {
        ask(&mut stream).expect("an answer");
    }
    stream.get_ref().set_read_timeout(Some(timeout())).expect("set");
    server.signal("STOP");
    ask(&mut stream).expect_err("silent");
    server.signal("CONT");
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
        if counts.ask(&*limiter, &format!("client {number}")).await {
            burn(handler());
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
    counts.report(&format!("{name} clients={clients}"), &witness.silences());
    counts.lost_none(name);
}

// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_alone_never_fails_open() {
    let server = Server::start();
    for clients in [200, 500, 1_000] {
        load(&server, "own", server.pool(), clients).await;
    }
}

// Case 132.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_alone_never_fails_open_before_a_given_pool() {
    let server = Server::for_pool_that_pings();
    for clients in [200, 500] {
        let manager = RedisConnectionManager::new(server.url()).expect("an address");
        let pool = bb8::Pool::builder().build(manager).await.expect("a pool");
        load(&server, "given", Pool::from_bb8(pool), clients).await;
    }
}

/// A limiter that has a connection, and time.
async fn connected(server: &Server) -> Redis<TokenBucket> {
    let bucket = TokenBucket::new(Quota::per_second(1_000_000));
    let limiter = Redis::new("busy", bucket, server.pool());
    let limiter = limiter.decision_timeout(LONG);
    limiter.acquire("warm").await.expect("admitted");
    limiter
}

/// Blocks this thread until the server has run that many scripts, and the timeout has passed.
fn block_until(server: &Server, scripts: u64) {
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut connection = server.connection().await;
                while script_calls(&mut connection).await < scripts {
                    assert!(begun.elapsed() < LONG, "never ran: {scripts} scripts");
                }
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
            let _ = check.await.expect("decided");
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
        let witness = Witness::start(&server);
        let (paused, wait) = (limiter.clone(), Duration::from_millis(400));
        let (begins, begun) = tokio::sync::oneshot::channel();
        let paused = tokio::spawn(async move {
            let mut check = Box::pin(paused.check(&"key".into()));
            let sent = std::future::poll_fn(|cx| std::task::Poll::Ready(check.as_mut().poll(cx)));
            assert!(sent.await.is_pending());
            begins.send(()).expect("awaited");
            stand_still(wait);
            let _ = check.await.expect("decided");
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
        counts.report("paused", &witness.silences());
        counts.lost_none("paused");
    }
}

/// A client of the application has timers of its own, which fire as late as all others.
// Case 132.
#[tokio::test]
async fn a_late_timer_of_a_given_client_never_fails_open() {
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

/// The processes behind a limiter whose keys are spent: whatever is admitted is too much.
struct Spent<'a> {
    name: &'static str,
    url: String,
    servers: &'a [Server],
    keys: Vec<String>,
}

/// The load of a process.
#[derive(Clone, Copy)]
struct Load {
    threads: usize,
    /// The tasks that block their thread for 10 ms at a time.
    busy: usize,
    callers: usize,
    /// The number of charges of each caller, which goes on while there is trouble.
    asks: usize,
}

impl Load {
    /// Tasks that block, on one thread and on two.
    const BUSY: [Self; 2] = [Self::with_threads(1), Self::with_threads(2)];

    const fn with_threads(threads: usize) -> Self {
        Self { threads, busy: 4 * threads, callers: 100, asks: 10 }
    }
}

/// Blocks its thread for 10 ms at a time.
async fn block(stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        burn(Duration::from_millis(10));
        yield_now().await;
    }
}

impl<'a> Spent<'a> {
    fn on_server(server: &'a Server) -> Self {
        let keys = keys_in(0..=16_383).take(100).collect();
        Self { name: "server", url: server.url(), servers: std::slice::from_ref(server), keys }
    }

    fn on_cluster(cluster: &'a Cluster) -> Self {
        let keys =
            [5, 6_000, 12_000].into_iter().flat_map(|slot| keys_in(slot..=slot + 9).take(34));
        let (url, servers) = (cluster.url(), &*cluster.nodes);
        Self { name: "cluster", url, servers, keys: keys.collect() }
    }

    fn on_sentinels(replicated: &'a Replicated) -> Self {
        let keys = keys_in(0..=16_383).take(100).collect();
        Self { name: "sentinels", url: replicated.url(), servers: &replicated.servers, keys }
    }

    /// Asks for the keys in a process of its own load while `trouble` runs, and asserts that it
    /// admits nobody.
    async fn refuses(&self, what: &str, load: Load, trouble: impl Future<Output = ()>) {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(load.threads).enable_all().build().expect("a runtime");
        let bucket = TokenBucket::new(Quota::per_hour(1));
        let limiter = Redis::new("spent", bucket, Pool::connect(&self.url).expect("an address"));
        let (patient, keys) = (limiter.clone().decision_timeout(LONG), self.keys.clone());
        let spend = async move {
            for key in keys {
                let _ = patient.check(&Charge::new(key)).await.expect("spent");
            }
        };
        runtime.spawn(spend).await.expect("no panic");
        for server in self.servers {
            forget_scripts(server).await;
        }
        let witnesses: Vec<_> = self.servers.iter().map(Witness::start).collect();

        let limiter = Arc::new(limiter.timeout(timeout()).or_else(FailOpen));
        let [over, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (mut tasks, mut callers) = (JoinSet::new(), JoinSet::new());
        for _ in 0..load.busy {
            tasks.spawn_on(block(Arc::clone(&stop)), runtime.handle());
        }
        let (counts, keys) = (Arc::new(Counts::default()), Arc::new(self.keys.clone()));
        for number in 0..load.callers {
            let (limiter, counts) = (Arc::clone(&limiter), Arc::clone(&counts));
            let (keys, over) = (Arc::clone(&keys), Arc::clone(&over));
            let ask = async move {
                for asked in 0.. {
                    if asked >= load.asks && over.load(Relaxed) {
                        break;
                    }
                    let key = keys[(number + asked * 7) % keys.len()].as_str();
                    counts.ask(&*limiter, key).await;
                    yield_now().await;
                }
            };
            callers.spawn_on(ask, runtime.handle());
        }
        trouble.await;
        over.store(true, Relaxed);
        callers.join_all().await;
        stop.store(true, Relaxed);
        tasks.join_all().await;
        runtime.shutdown_background();

        let silences: Vec<_> = witnesses.into_iter().flat_map(Witness::silences).collect();
        let name = format!("{} {what} threads={}", self.name, load.threads);
        counts.report(&name, &silences);
        // A failover ends connections, and may lose what was spent. A slot that moves keeps it, but
        // its servers may be unable to decide in time.
        if !what.starts_with("failover") {
            assert_eq!(counts.admitted.load(Relaxed), 0, "{name}");
            if what != "moved slots" {
                counts.lost_none(&name);
            }
        }
    }
}

/// Lets a server forget all scripts, so that each call is sent twice.
async fn forget_scripts(server: &Server) {
    let mut connection = server.connection().await;
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("flushed");
}

async fn forget_scripts_often(servers: &[Server]) {
    for _ in 0..20 {
        for server in servers {
            forget_scripts(server).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Each replica of a cluster takes over from its master. Its peers are connected.
async fn fail_over(cluster: &Cluster) {
    for master in 0..3 {
        cluster.fail_over(master).await;
    }
}

// Case 151.
#[tokio::test]
async fn a_busy_process_before_a_server_that_forgets_scripts_admits_nobody() {
    let server = Server::start();
    for load in Load::BUSY {
        let trouble = forget_scripts_often(std::slice::from_ref(&server));
        Spent::on_server(&server).refuses("flush", load, trouble).await;
    }
}

// Case 151.
#[tokio::test]
async fn a_busy_process_before_a_cluster_admits_nobody() {
    let cluster = Cluster::with(3, 1, 15_000).await;
    let spent = Spent::on_cluster(&cluster);
    for load in Load::BUSY {
        spent.refuses("flush", load, forget_scripts_often(&cluster.nodes[..3])).await;
        let at_once = Load { busy: 0, callers: 20_000, asks: 1, ..load };
        spent.refuses("at once", at_once, async {}).await;
        let moved = async {
            for number in 0..20 {
                cluster.move_slot(5 + number % 10, usize::from(1 + number / 10)).await;
                cluster.until_agreed().await;
            }
            for slot in 5..15 {
                cluster.move_slot(slot, 0).await;
            }
            cluster.until_agreed().await;
        };
        spent.refuses("moved slots", load, moved).await;
    }
    // The masters change places for good.
    spent.refuses("failovers", Load::BUSY[1], fail_over(&cluster)).await;
}

// Case 151.
#[tokio::test]
async fn a_busy_process_before_a_cluster_whose_masters_change_admits_nobody() {
    let cluster = Cluster::with(3, 1, 15_000).await;
    Spent::on_cluster(&cluster).refuses("failovers", Load::BUSY[0], fail_over(&cluster)).await;
}

// Case 151.
#[tokio::test]
async fn a_busy_process_before_sentinels_admits_nobody() {
    let replicated = Replicated::start().await;
    let spent = Spent::on_sentinels(&replicated);
    for load in Load::BUSY {
        let [primary, _] = &replicated.servers;
        spent.refuses("flush", load, forget_scripts_often(std::slice::from_ref(primary))).await;
    }
    let [primary, replica] = replicated.servers.each_ref().map(Server::port);
    for (load, new) in Load::BUSY.into_iter().zip([replica, primary]) {
        let fail_over = async {
            replicated.sentinels[0].fail_over().await;
            for sentinel in &replicated.sentinels {
                sentinel.until(|fields| fields.contains(&format!(" port {new} "))).await;
            }
        };
        spent.refuses("failover", load, fail_over).await;
    }
}

/// Keeps the only thread of a runtime so busy that no attempt to connect ends in time. Timers fire
/// late or not, by chance.
fn delay_timers(tasks: &mut JoinSet<()>, stop: &Arc<AtomicBool>, runtime: &Handle) {
    for _ in 0..8 {
        let stop = Arc::clone(stop);
        let busy = async move {
            while !stop.load(Relaxed) {
                burn(Duration::from_millis(10));
                sleep(Duration::from_millis(1)).await;
            }
        };
        tasks.spawn_on(busy, runtime);
    }
}

/// Asks for one key again and again.
async fn ask_until<L: Limiter>(limiter: L, stop: Arc<AtomicBool>, counts: Arc<Counts>) {
    while !stop.load(Relaxed) {
        counts.ask(&limiter, "key").await;
        yield_now().await;
    }
}

// Case 151.
#[tokio::test]
async fn a_busy_process_that_connects_admits_nobody() {
    let (server, cluster) = (Server::start(), Cluster::start().await);
    let replicated = Replicated::start().await;
    let ports = replicated.sentinels.iter().map(|sentinel| sentinel.port);
    let one_is_dead: Vec<_> = std::iter::once(NOWHERE).chain(ports).collect();
    for (name, url) in [
        ("server", server.url()),
        ("cluster", cluster.url()),
        ("sentinels", replicated.url()),
        ("a dead sentinel", sentinel::url(&one_is_dead)),
    ] {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let mut tasks = JoinSet::new();
        delay_timers(&mut tasks, &stop, runtime.handle());
        for _ in 0..20 {
            let pool = Pool::builder(&url).expect("an address").connect_timeout(timeout());
            let bucket = TokenBucket::new(Quota::per_hour(1));
            let limiter = Redis::new("first", bucket, pool.build().expect("a pool"));
            let limiter = limiter.timeout(timeout()).or_else(FailOpen);
            let ask = ask_until(limiter, Arc::clone(&stop), Arc::clone(&counts));
            tasks.spawn_on(ask, runtime.handle());
        }
        sleep(30 * timeout()).await;
        stop.store(true, Relaxed);
        tasks.join_all().await;
        runtime.shutdown_background();
        counts.report(&format!("{name} first connection"), &[]);
        counts.lost_none(name);
    }
}
