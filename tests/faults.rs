//! Redis dying, silent, slow, exhausted and misconfigured: what every class of trouble looks like from here.
//!
//! Tests are named by the case that they show. They assert structure and generous limits; how fast things are is
//! measured by `faults_timed`.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use support::proxy::{Fault, Proxy};
use support::{Server, free_port};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::{
    Charge, Class, Decision, Error, Limiter, LimiterExt, Outcome, Pool, Quota, Redis,
};

/// The deadline of one decision.
const D: Duration = Duration::from_millis(50);
/// What a slow machine may add to it.
const SLACK: Duration = Duration::from_secs(2);
/// By when things must be well again, however slow the machine is.
const LONG: Duration = Duration::from_secs(30);

const MILLION: u64 = 1_000_000;

type Yearly = Redis<FixedWindow>;

/// A limiter that admits a million a year, so that its `remaining` counts what was taken.
fn yearly(url: &str) -> Yearly {
    over(Pool::connect(url).expect("an address"))
}

fn over(pool: Pool) -> Yearly {
    let quota = Quota::new(MILLION, Duration::from_secs(365 * 86_400));
    Redis::new("faults", FixedWindow::new(quota), pool).deadline(D)
}

fn one() -> Charge {
    Charge::new("key")
}

/// Asks, and sees to it that the answer comes in time.
async fn ask(limiter: &Yearly) -> Result<Decision, Error> {
    let begun = Instant::now();
    let answer = limiter.check(&one()).await;
    assert!(begun.elapsed() < D + SLACK, "past its deadline: {:?}", begun.elapsed());
    answer
}

async fn class(limiter: &Yearly) -> Class {
    ask(limiter).await.expect_err("no decision").class()
}

/// Asks until it is decided, and returns how many errors came before, all of one class.
async fn until_decided(limiter: &Yearly, class: Class) -> usize {
    let begun = Instant::now();
    let mut errors = 0;
    while let Err(error) = ask(limiter).await {
        assert_eq!(error.class(), class, "{error:?}");
        assert!(begun.elapsed() < LONG, "{error:?}");
        errors += 1;
        sleep(Duration::from_millis(1)).await;
    }
    errors
}

/// Asks until the answer is an error of `class`.
async fn until(limiter: &Yearly, class: Class) {
    let begun = Instant::now();
    loop {
        match ask(limiter).await {
            Err(error) if error.class() == class => return,
            other => assert!(begun.elapsed() < LONG, "{other:?}"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// The units taken, by a limiter of its own.
async fn taken(server: &Server) -> u64 {
    let limiter = yearly(&server.url()).deadline(LONG);
    let peek = limiter.check(&one().cost(0)).await.expect("a peek");
    MILLION - peek.remaining().expect("told")
}

async fn run(connection: &mut MultiplexedConnection, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec_async(connection).await.expect("a reply");
}

/// The numbers of the other connections that the server has.
async fn others(connection: &mut MultiplexedConnection) -> Vec<u64> {
    let own: u64 = redis::cmd("CLIENT").arg("ID").query_async(connection).await.expect("a number");
    let list: String =
        redis::cmd("CLIENT").arg("LIST").query_async(connection).await.expect("a list");
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok();
    list.lines().filter_map(id).filter(|id| *id != own).collect()
}

/// The size of a test that a command of its own makes larger.
fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[tokio::test]
async fn case_1_without_a_server_the_answer_is_an_error_in_time() {
    let limiter = yearly(&format!("redis://127.0.0.1:{}", free_port()));
    for _ in 0..5 {
        assert_eq!(class(&limiter).await, Class::Infrastructure);
    }
}

#[tokio::test]
async fn case_2_an_eager_start_says_where_and_why_and_no_password() {
    let port = free_port();
    let pool = Pool::connect(&format!("redis://me:secret@127.0.0.1:{port}")).unwrap();
    let error = pool.ready().await.unwrap_err();
    let told = format!("{error:?} {error}");
    assert!(told.contains(&format!("127.0.0.1:{port}")) && !told.contains("secret"), "{told}");
    assert!(told.to_lowercase().contains("refused"), "{told}");
}

#[tokio::test]
async fn case_3_a_server_that_comes_later_decides() {
    let mut server = Server::start();
    server.kill();
    let limiter = yearly(&server.url());
    assert_eq!(class(&limiter).await, Class::Infrastructure);
    server.restart();
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_4_and_5_a_crash_ends_every_call_and_recovery_costs_a_call_per_connection() {
    let mut server = Server::start();
    let limiter = yearly(&server.url());
    until_decided(&limiter, Class::Infrastructure).await;
    let mut callers = JoinSet::new();
    let crashed = Arc::new(AtomicU64::new(0));
    for _ in 0..64 {
        let (limiter, crashed) = (limiter.clone(), Arc::clone(&crashed));
        callers.spawn(async move {
            while crashed.load(Relaxed) == 0 {
                let _ = ask(&limiter).await;
            }
        });
    }
    sleep(Duration::from_millis(50)).await;
    server.kill();
    crashed.store(1, Relaxed);
    callers.join_all().await;
    assert_eq!(class(&limiter).await, Class::Infrastructure);
    server.restart();
    until_decided(&limiter, Class::Infrastructure).await;
    for _ in 0..100 {
        ask(&limiter.clone().deadline(LONG)).await.unwrap();
    }
}

#[tokio::test]
async fn case_6_connections_into_a_black_hole_are_given_up_together() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let pool = Pool::builder(&proxy.url()).unwrap().size(10).build().unwrap();
    let limiter = over(pool);
    until_decided(&limiter, Class::Infrastructure).await;
    proxy.strand();
    let errors = until_decided(&limiter, Class::Infrastructure).await;
    assert!(errors <= 10, "{errors} errors: each connection found out alone");
}

#[tokio::test]
async fn case_7_and_8_a_stopped_server_costs_the_deadline_and_no_more() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    until_decided(&limiter, Class::Infrastructure).await;
    server.signal("STOP");
    for _ in 0..10 {
        assert_eq!(class(&limiter).await, Class::Infrastructure);
    }
    server.signal("CONT");
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_9_a_sleeping_server_harms_only_the_calls_in_the_gap() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let limiter = yearly(&server.url());
    until_decided(&limiter, Class::Infrastructure).await;
    let mut connection = server.connection().await;
    let nap = tokio::spawn(async move { run(&mut connection, &["DEBUG", "SLEEP", "0.2"]).await });
    until(&limiter, Class::Infrastructure).await;
    nap.await.unwrap();
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_10_a_paused_server_is_silent_also_when_only_writes_pause() {
    for what in ["ALL", "WRITE"] {
        let server = Server::start();
        let limiter = yearly(&server.url());
        until_decided(&limiter, Class::Infrastructure).await;
        let mut connection = server.connection().await;
        run(&mut connection, &["CLIENT", "PAUSE", "1000", what]).await;
        assert_eq!(class(&limiter).await, Class::Infrastructure);
        until_decided(&limiter, Class::Infrastructure).await;
    }
}

#[tokio::test]
async fn case_11_a_bad_network_is_infrastructure_and_never_a_wrong_answer() {
    let faults = [
        Fault::Delay(Duration::from_millis(100)),
        Fault::Trickle(Duration::from_millis(10)),
        Fault::CutAfter(5),
        Fault::CutAfter(0),
        Fault::Reset,
        Fault::HalfClose,
        Fault::BlackHole,
    ];
    let server = Server::start();
    for fault in faults {
        let proxy = Proxy::before(server.port()).await;
        let limiter = yearly(&proxy.url());
        until_decided(&limiter, Class::Infrastructure).await;
        proxy.set(fault);
        for _ in 0..5 {
            assert_eq!(class(&limiter).await, Class::Infrastructure, "{fault:?}");
        }
        proxy.set(Fault::None);
        until_decided(&limiter, Class::Infrastructure).await;
    }
    let proxy = Proxy::before(server.port()).await;
    proxy.set(Fault::Delay(Duration::from_millis(5)));
    let limiter = yearly(&proxy.url()).deadline(LONG);
    limiter.check(&one()).await.unwrap();
}

/// Charges whose answers tell whose they are: key `k` has a quota of its own, so `remaining` is near a million `k`.
fn token(k: u64) -> Charge {
    let quota = Quota::new(MILLION * (k + 1), Duration::from_secs(365 * 86_400));
    Charge::new(format!("token {k}")).quota(quota)
}

#[tokio::test]
async fn case_12_and_98_cancelled_calls_never_steal_an_answer_nor_keep_a_unit() {
    const TOKENS: u64 = 50;
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
    let mut kept = vec![0; TOKENS as usize];
    let mut cancelled = vec![0; TOKENS as usize];
    let points = size("CANCEL_POINTS", 4_000);
    for round in 0..points {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let k = round % TOKENS;
        let mut call = Box::pin(limiter.check(&token(k)));
        let polls = dice >> 33 & 3;
        let mut answer = None;
        for _ in 0..polls {
            let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx)));
            if let std::task::Poll::Ready(decided) = poll.await {
                answer = Some(decided.unwrap());
                break;
            }
            if dice >> 40 & 1 == 0 {
                tokio::task::yield_now().await;
            } else {
                sleep(Duration::from_micros(dice >> 44 & 255)).await;
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
    // What was taken for nobody comes back, but for what another decision relies on by then.
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
    assert_eq!(others(&mut server.connection().await).await.len(), 2, "connections were lost");
    let cancelled: u64 = cancelled.iter().sum();
    println!("fault case=12 points={points} cancelled={cancelled} mismatched=0 lost=0");
}

#[tokio::test]
async fn case_13_a_crowd_waits_for_the_deadline_at_most() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url());
    until_decided(&limiter, Class::Infrastructure).await;
    proxy.set(Fault::Delay(Duration::from_millis(20)));
    let mut callers = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        callers.spawn(async move { drop(ask(&limiter).await) });
    }
    callers.join_all().await;
    proxy.set(Fault::None);
    until_decided(&limiter, Class::Infrastructure).await;
    let mut connection = server.connection().await;
    let begun = Instant::now();
    loop {
        let connections = others(&mut connection).await.len();
        if connections <= 2 {
            break;
        }
        assert!(begun.elapsed() < LONG, "the pool has grown to {connections}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn case_14_too_many_clients_is_infrastructure() {
    let server = Server::with(&["--maxclients", "1"]);
    let _only = server.connection().await;
    let limiter = yearly(&server.url()).deadline(Duration::from_secs(1));
    assert_eq!(limiter.check(&one()).await.unwrap_err().class(), Class::Infrastructure);
}

#[tokio::test]
async fn case_15_and_16_killed_idle_connections_are_not_used_again() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    let mut connection = server.connection().await;
    let mut errors = 0;
    for _ in 0..30 {
        limiter.check(&one()).await.unwrap();
        run(&mut connection, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        // The server's word that they are gone; the notice reaches this process within its next turns.
        loop {
            let list: String = redis::cmd("CLIENT")
                .arg("LIST")
                .query_async(&mut connection)
                .await
                .expect("a list");
            if list.lines().count() == 1 {
                break;
            }
        }
        sleep(Duration::from_millis(2)).await;
        errors += u64::from(limiter.check(&one()).await.is_err());
    }
    assert!(errors <= 3, "{errors} of 30 calls met a dead connection");
}

#[test]
fn case_18_nothing_outlives_the_runtime_or_the_limiter() {
    let server = Server::start();
    let url = server.url();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let limiter = yearly(&url).deadline(LONG);
            limiter.check(&one()).await.unwrap();
            let waiter = tokio_test::task::spawn(limiter.acquire("other")).poll().is_pending();
            assert!(waiter);
            drop(limiter);
            let begun = Instant::now();
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
                assert!(begun.elapsed() < LONG, "a task outlives its limiter");
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

#[tokio::test]
async fn case_21_a_script_that_the_server_forgot_is_sent_again() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    limiter.check(&one()).await.unwrap();
    let mut connection = server.connection().await;
    for number in 0..600 {
        let text = format!("return {number}");
        run(&mut connection, &["EVAL", &text, "0"]).await;
    }
    run(&mut connection, &["SCRIPT", "FLUSH"]).await;
    limiter.check(&one()).await.unwrap();
    assert_eq!(taken(&server).await, 2);
}

#[tokio::test]
async fn case_22_a_demoted_primary_is_infrastructure_and_its_connections_go() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    limiter.check(&one()).await.unwrap();
    let mut connection = server.connection().await;
    let nowhere = free_port().to_string();
    let before = others(&mut connection).await;
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &nowhere]).await;
    let begun = Instant::now();
    while others(&mut connection).await.iter().any(|id| before.contains(id)) {
        let error = limiter.check(&one()).await.unwrap_err();
        assert_eq!(error.class(), Class::Infrastructure);
        assert!(begun.elapsed() < LONG, "it stays connected to a replica");
    }
    run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
    until_decided(&limiter.deadline(D), Class::Infrastructure).await;
}

#[tokio::test]
async fn case_24_a_loading_server_is_infrastructure() {
    let mut server = Server::start();
    let mut connection = server.connection().await;
    for key in 0..2_000 {
        run(&mut connection, &["SET", &key.to_string(), "x"]).await;
    }
    run(&mut connection, &["SAVE"]).await;
    server.kill();
    server.option(&["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]);
    server.restart_until("Server initialized");
    let limiter = yearly(&server.url()).deadline(Duration::from_secs(1));
    assert_eq!(limiter.check(&one()).await.unwrap_err().class(), Class::Infrastructure);
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_25_and_26_a_busy_server_is_infrastructure_and_its_script_is_not_killed() {
    let server = Server::with(&["--lua-time-limit", "1"]);
    let limiter = yearly(&server.url());
    until_decided(&limiter, Class::Infrastructure).await;
    let (mut busy, mut killer) = (server.connection().await, server.connection().await);
    let looping = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut busy).await
    });
    until(&limiter, Class::Infrastructure).await;
    assert!(!looping.is_finished(), "somebody killed another's script");
    while redis::cmd("SCRIPT").arg("KILL").exec_async(&mut killer).await.is_err() {
        tokio::task::yield_now().await;
    }
    let _ = looping.await;
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_27_a_server_that_may_not_write_is_infrastructure() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    limiter.check(&one()).await.unwrap();
    let mut connection = server.connection().await;

    run(&mut connection, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    until(&limiter, Class::Infrastructure).await;
    run(&mut connection, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;

    let nowhere = free_port().to_string();
    run(&mut connection, &["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &nowhere]).await;
    until(&limiter, Class::Infrastructure).await;
    run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
    until_decided(&limiter, Class::Infrastructure).await;
}

#[tokio::test]
async fn case_28_and_29_a_full_server_is_capacity_and_grows_no_more() {
    let server = Server::start();
    let limiter = yearly(&server.url()).deadline(LONG);
    let mut connection = server.connection().await;
    limiter.check(&one()).await.unwrap();
    run(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for number in 0..100 {
        let error = limiter.check(&Charge::new(format!("new {number}"))).await.unwrap_err();
        assert_eq!(error.class(), Class::Capacity);
    }
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    assert_eq!(keys, 1);
    run(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]).await;
    limiter.check(&one()).await.unwrap();
}

#[tokio::test]
async fn case_30_a_wrong_password_is_configuration_and_told_without_it() {
    let server = Server::with(&["--requirepass", "right"]);
    for (user, class) in [
        ("", Some(Class::Configuration)),
        (":wrong@", Some(Class::Configuration)),
        (":right@", None),
    ] {
        let url = format!("redis://{user}127.0.0.1:{}", server.port());
        let limiter = yearly(&url).deadline(Duration::from_secs(1));
        let answer = limiter.check(&one()).await;
        if let Err(error) = &answer {
            let told = format!("{error:?} {error}");
            assert!(!told.contains("wrong@") && !told.contains("\"wrong\""), "{told}");
        }
        assert_eq!(answer.err().map(|error| error.class()), class, "{user}");
    }
    let pool = Pool::builder(&format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let limiter =
        over(pool.credentials("default", "right").database(3).build().unwrap().prefix("mine"));
    limiter.clone().deadline(LONG).check(&one()).await.unwrap();
}

#[tokio::test]
async fn case_31_a_missing_right_is_configuration() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let allowed = ["+eval", "+evalsha", "+get", "+incrby", "+mget", "+set", "+time", "~sluice:*"];
    let rules = |without: &str| {
        let rules = allowed.iter().copied().filter(|rule| *rule != without);
        ["ACL", "SETUSER", "app", "reset", "on", ">secret", "-@all", "+hello"]
            .into_iter()
            .chain(rules)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let limiter = yearly(&url).deadline(LONG);
    for without in ["+evalsha", "+mget", "+set", "+time", "~sluice:*"] {
        let rules = rules(without);
        run(&mut connection, &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
        until(&limiter, Class::Configuration).await;
    }
    let rules = rules("");
    run(&mut connection, &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    until_decided(&limiter, Class::Configuration).await;
    limiter.check(&one().cost(0)).await.unwrap();
}

/// The answer to one charge, by a server that replies to every script with `reply`.
async fn answered(reply: &[u8]) -> Result<Decision, Error> {
    let address = support::fake::answering(reply.to_vec()).await;
    yearly(&format!("redis://{address}")).deadline(LONG).check(&one()).await
}

#[tokio::test]
async fn case_32_an_unknown_error_is_of_state_and_short() {
    let long = format!("-FOO {}\r\n", "x".repeat(64 * 1024));
    for reply in [&b"-FOO bar\r\n"[..], b"-ERR \xFF\xFE\r\n", b"-\r\n", long.as_bytes()] {
        let error = answered(reply).await.unwrap_err();
        assert_ne!(error.class(), Class::Infrastructure, "{error:?}");
        assert!(format!("{error}").len() <= 512);
    }
}

#[tokio::test]
async fn case_33_an_odd_reply_never_admits() {
    let odd: [&[u8]; 14] = [
        b"$-1\r\n",
        b"_\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"$2\r\nok\r\n",
        b",1.5\r\n",
        b"#t\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"*0\r\n",
        b"*1\r\n:1767225600000000\r\n",
        b"*6\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        b"*7\r\n:-9223372036854775808\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        b"*7\r\n:1\r\n:1\r\n:-9223372036854775808\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        b"*7\r\n:1\r\n,0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
    ];
    for reply in odd {
        let error = answered(reply).await.unwrap_err();
        assert_eq!(error.class(), Class::State, "{}", String::from_utf8_lossy(reply));
    }
    // As the script packs it: now, then outcome, wait, remaining, reset after, and the state that was left.
    let fine = b"$16\r\n\x97\xcf\x00\x06\x47\x48\x46\x20\x40\x00\x00\x00\x04\x09\x00\x01\r\n";
    assert_eq!(answered(fine).await.unwrap().remaining(), Some(4));
}

#[tokio::test]
async fn a_late_answer_is_undone() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url());
    until_decided(&limiter, Class::Infrastructure).await;
    let before = taken(&server).await;
    proxy.set(Fault::Delay(Duration::from_millis(150)));
    assert_eq!(class(&limiter).await, Class::Infrastructure);
    proxy.set(Fault::None);
    let begun = Instant::now();
    while taken(&server).await != before {
        assert!(begun.elapsed() < LONG, "a unit was kept for nobody");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn case_107_and_111_without_patience_the_true_wait_is_told_and_nothing_taken() {
    let server = Server::start();
    let quota = Quota::new(1, Duration::from_secs(1_000));
    let pool = Pool::connect(&server.url()).unwrap();
    let bucket = tower_sluice::algorithm::TokenBucket::new(quota);
    let limiter = Redis::new("faults", bucket, pool).deadline(LONG);
    limiter.check(&one()).await.unwrap();
    let denied = limiter.check(&one()).await.unwrap();
    assert!(matches!(denied.outcome(), Outcome::Deny { retry_after: Some(_) }));
    let again = limiter.check(&one()).await.unwrap();
    assert!(again.retry_after() <= denied.retry_after());
}
