//! Redis dying, silent, slow and crowded: what trouble with the server and the way to it
//! looks like from here.
//!
//! Tests are named by the case that they show. They assert structure and generous limits;
//! `benches/measures/faults.rs` measures how fast things are. What Redis itself says against
//! deciding is in `replies`.

use std::future::ready;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::*;

use support::faults::*;

// Case 1.
#[tokio::test]
async fn without_a_server_the_answer_is_an_error_in_time() {
    let limiter = yearly(&format!("redis://me:secret@127.0.0.1:{NOWHERE}"));
    for _ in 0..5 {
        assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
    }
    let told = format!("{:?} {limiter:?}", trouble(&limiter, &one()).await);
    assert!(!told.contains("secret"), "{told}");
}

// Case 2.
#[tokio::test]
async fn an_eager_start_says_where_and_why_and_no_password() {
    let pool = Pool::connect(&format!("redis://me:secret@127.0.0.1:{NOWHERE}")).unwrap();
    let error = pool.ready().await.unwrap_err();
    let told = format!("{error:?} {error}");
    assert!(told.contains(&format!("127.0.0.1:{NOWHERE}")) && !told.contains("secret"), "{told}");
    assert!(told.to_lowercase().contains("refused"), "{told}");
}

// Case 3.
#[tokio::test]
async fn a_server_that_comes_later_decides() {
    let mut server = Server::start();
    server.kill();
    let limiter = yearly(&server.url());
    assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
    server.restart();
    until_decided(&limiter, ErrorKind::Infrastructure).await;
}

/// Callers run on a thread of their own, which a kill does not block.
// Cases 4 and 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_crash_ends_every_call_and_a_server_that_is_back_decides() {
    let mut server = Server::start();
    let limiter = yearly(&server.url());
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    let mut callers = JoinSet::new();
    let (asked, crashed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    for _ in 0..64 {
        let (limiter, asked, crashed) = (limiter.clone(), Arc::clone(&asked), Arc::clone(&crashed));
        callers.spawn(async move {
            while !crashed.load(Relaxed) {
                let _ = ask(&limiter).await;
                asked.fetch_add(1, Relaxed);
            }
        });
    }
    eventually("640 answers", async || asked.load(Relaxed) >= 640).await;
    server.kill();
    crashed.store(true, Relaxed);
    callers.join_all().await;
    assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
    server.restart();
    let begun = Instant::now();
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    println!("fault case=5 back_ms={}", begun.elapsed().as_millis());
    decides(&limiter).await;
}

/// A hundred calls in a row end with a decision.
async fn decides(limiter: &Yearly) {
    let patient = limiter.clone().decision_timeout(LONG);
    for _ in 0..100 {
        let _ = patient.check(&one()).await.unwrap();
    }
}

// Case 10.
#[tokio::test]
async fn a_server_whose_writes_are_paused_is_silent() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    let mut connection = server.connection().await;
    run(&mut connection, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    run(&mut connection, &["CLIENT", "UNPAUSE"]).await;
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    decides(&limiter).await;
}

// Case 11.
#[tokio::test]
async fn a_bad_network_is_infrastructure_and_never_a_wrong_answer() {
    let faults = [
        Fault::Delay(LONG),
        Fault::Trickle(LONG),
        Fault::CutAfter(12),
        Fault::CutAfter(0),
        Fault::Reset,
        Fault::HalfClose,
        Fault::BlackHole,
    ];
    let server = Server::start();
    for fault in faults {
        let proxy = Proxy::before(server.port()).await;
        let limiter = yearly(&proxy.url());
        until_decided(&limiter, ErrorKind::Infrastructure).await;
        proxy.set(fault);
        for _ in 0..5 {
            assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure, "{fault:?}");
        }
        proxy.set(Fault::None);
        until_decided(&limiter, ErrorKind::Infrastructure).await;
    }
    let proxy = Proxy::before(server.port()).await;
    proxy.set(Fault::Delay(Duration::from_millis(5)));
    let limiter = yearly(&proxy.url()).decision_timeout(LONG);
    let _ = limiter.check(&one()).await.unwrap();
}

/// Charges whose answers tell whose they are: key `k` has a quota of its own, so `remaining` is
/// near a million `k`.
fn token(k: u64) -> Charge {
    let quota = Quota::new(MILLION * (k + 1), Duration::from_secs(365 * 86_400));
    Charge::new(format!("token {k}")).quota(quota)
}

/// The open files of this process, other tests' included, so a test that counts them may
/// have to look again.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

// Cases 12 and 98.
#[tokio::test]
async fn cancelled_calls_never_steal_an_answer_nor_keep_a_unit() {
    const TOKENS: u64 = 50;
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    let mut dice = fastrand::Rng::with_seed(12);
    let mut kept = vec![0; TOKENS as usize];
    let mut cancelled = vec![0; TOKENS as usize];
    let points = size("CANCEL_POINTS", 4_000);
    let _ = limiter.check(&one()).await.unwrap();
    let before = (descriptors(), Handle::current().metrics().num_alive_tasks());
    for round in 0..points {
        let k = round % TOKENS;
        let mut call = Box::pin(limiter.check(&token(k)));
        let mut answer = None;
        for _ in 0..dice.u8(..4) {
            let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx)));
            if let std::task::Poll::Ready(decided) = poll.await {
                answer = Some(decided.unwrap());
                break;
            }
            if dice.bool() {
                tokio::task::yield_now().await;
            } else {
                sleep(Duration::from_micros(dice.u64(..256))).await;
            }
        }
        match answer {
            Some(decision) => {
                let used = MILLION * (k + 1) - decision.remaining().unwrap();
                assert!(used <= points / TOKENS, "key {k} was told of another: {used}");
                kept[k as usize] += 1;
            }
            None => cancelled[k as usize] += 1,
        }
    }
    // Units whose callers have left come back, unless another decision relies on them by then.
    let begun = Instant::now();
    loop {
        let mut lost = 0;
        for k in 0..TOKENS {
            let peek = limiter.check(&token(k).cost(0)).await.unwrap();
            let used = MILLION * (k + 1) - peek.remaining().unwrap();
            let (kept, cancelled) = (kept[k as usize], cancelled[k as usize]);
            assert!((kept..=kept + cancelled).contains(&used), "key {k}: {used}");
            lost += used - kept;
        }
        if lost == 0 {
            break;
        }
        assert!(begun.elapsed() < LONG, "{lost} units were kept for nobody");
        tokio::task::yield_now().await;
    }
    assert_eq!(others(&mut server.connection().await).await.len(), 1, "the connection was lost");
    let begun = Instant::now();
    while descriptors() > before.0 || Handle::current().metrics().num_alive_tasks() > before.1 {
        assert!(begun.elapsed() < 4 * LONG, "descriptors or tasks are left behind");
        sleep(Duration::from_millis(1)).await;
    }
    let cancelled: u64 = cancelled.iter().sum();
    println!("fault case=12 points={points} cancelled={cancelled} mismatched=0 lost=0");
}

// Case 13.
#[tokio::test]
async fn a_crowd_waits_for_the_deadline_at_most() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let pool = Pool::builder(&proxy.url()).and_then(|pool| pool.size(2).build());
    let limiter = over(pool.unwrap());
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    proxy.set(Fault::Delay(Duration::from_millis(20)));
    let mut callers = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        callers.spawn(async move { drop(ask(&limiter).await) });
    }
    callers.join_all().await;
    proxy.set(Fault::None);
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    let mut connection = server.connection().await;
    let begun = Instant::now();
    loop {
        let connections = others(&mut connection).await.len();
        if connections <= 2 {
            break;
        }
        assert!(begun.elapsed() < LONG, "the pool has grown to {connections}");
        // A limiter keeps what it asked over last until it asks again.
        until_decided(&limiter, ErrorKind::Infrastructure).await;
    }
}

// Case 14.
#[tokio::test]
async fn too_many_clients_is_infrastructure() {
    let server = Server::with(&["--maxclients", "1"]);
    let mut only = server.connection().await;
    let limiter = yearly(&server.url()).decision_timeout(Duration::from_secs(1));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let kind = limiter.check(&one()).await.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Infrastructure | ErrorKind::Saturation), "{kind:?}");
    }
    // Nor do callers connect to a full server without pauses.
    let seconds = begun.elapsed().as_secs_f64();
    let attempts = figure(&mut only, "rejected_connections").await;
    println!("fault case=14 connects={attempts} seconds={seconds:.1}");
    assert!(attempts as f64 <= 10.0 * seconds, "{attempts} in {seconds} s");
}

// Case 16.
#[tokio::test]
async fn connections_that_the_server_closes_as_idle_cost_no_error() {
    let server = Server::with(&["--timeout", "1"]);
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    for cycle in 0..size("IDLE_CYCLES", 2) {
        let _ =
            limiter.check(&one()).await.unwrap_or_else(|error| panic!("cycle {cycle}: {error:?}"));
        // This connection is not idle, since it asks.
        let mut connection = server.connection().await;
        eventually("idle connections end", async || others(&mut connection).await.is_empty()).await;
        notice().await;
    }
    let _ = limiter.check(&one()).await.unwrap();
}

/// Lets this process see what its sockets have to say: a closed connection is known by then.
async fn notice() {
    for _ in 0..100 {
        yield_now().await;
    }
}

// Case 17.
#[tokio::test]
async fn a_name_that_moves_is_followed() {
    let (mut dead, live) = (Server::start(), Server::start());
    let at = |server: &Server| SocketAddr::from(([127, 0, 0, 1], server.port()));
    let (before, after) = (at(&dead), at(&live));
    let moved = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&moved);
    let pool = Pool::builder("redis://redis.example")
        .unwrap()
        .resolver(move |host, port| {
            assert_eq!((host.as_str(), port), ("redis.example", 6379));
            ready(Ok(vec![if seen.load(Relaxed) { after } else { before }]))
        })
        .build()
        .unwrap();
    let limiter = over(pool);
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    dead.kill();
    until(&limiter, ErrorKind::Infrastructure).await;
    moved.store(true, Relaxed);
    let begun = Instant::now();
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    println!("fault case=17 back_ms={}", begun.elapsed().as_millis());
    assert!(taken(&live).await >= 1);
}

// Case 18.
#[test]
fn nothing_outlives_the_runtime_or_the_limiter() {
    let server = Server::start();
    let url = server.url();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let limiter = yearly(&url).decision_timeout(LONG);
            let _ = limiter.check(&one()).await.unwrap();
            let waiter = tokio_test::task::spawn(limiter.acquire("other")).poll().is_pending();
            assert!(waiter);
            drop(limiter);
            eventually("the end of its tasks", async || {
                tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0
            })
            .await;
        });
    }
}
