//! Charges that share a call: each is answered as if it were sent alone, and no caller
//! waits for another.

use std::pin::Pin;

use super::*;

use support::cluster::Cluster;
use support::faults::cut;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn yearly(url: &str, limit: u64) -> Redis<FixedWindow> {
    let pool = Pool::builder(url).and_then(|pool| pool.size(1).build()).expect("an address");
    Redis::new("test", FixedWindow::new(Quota::new(limit, YEAR)), pool).decision_timeout(PATIENT)
}

type Asker = tokio_test::task::Spawn<Pin<Box<tower_sluice::future::RedisFuture<FixedWindow>>>>;

/// Asks about a unit of `k`, to be polled by hand.
fn begin(limiter: &Redis<FixedWindow>) -> Asker {
    tokio_test::task::spawn(Box::pin(limiter.check(&"k".into())))
}

/// Answers to `asked`, which are polled at the same moment.
async fn together<L, C>(
    limiter: &L,
    asked: impl IntoIterator<Item = C>,
) -> Vec<Result<Outcome, ErrorKind>>
where
    L: Limiter<Future: Send + 'static>,
    C: Into<Charge>,
{
    let mut tasks = JoinSet::new();
    for (at, charge) in asked.into_iter().enumerate() {
        let answer = limiter.check(&charge.into());
        tasks.spawn(async move {
            (at, answer.await.map(|decision| decision.outcome()).map_err(|error| error.kind()))
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|answer| answer.0);
    answers.into_iter().map(|answer| answer.1).collect()
}

// Case 165.
#[tokio::test]
async fn any_number_of_calls_may_be_under_way() {
    let server = Server::start();
    for calls in [1 << (usize::BITS - 1), usize::MAX] {
        let pool = Pool::builder(&server.url()).and_then(|pool| pool.size(2).build());
        let limiter = Redis::new("any", TokenBucket::new(Quota::per_hour(1_000)), pool.unwrap());
        let limiter = limiter.decision_timeout(PATIENT).max_in_flight(calls);
        let answers = together(&limiter, [const { "k" }; 100]).await;
        assert_eq!(answers, [Ok(Outcome::Allow); 100], "{calls}");
    }
}

#[tokio::test]
async fn what_waits_at_one_moment_leaves_in_one_call() {
    let server = Server::start();
    let limiter = yearly(&server.url(), 500).max_batch_size(100);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = server.connection().await;
    let before = calls(&mut connection, "evalsha").await;
    let answers = together(&limiter, (0..1_000).map(|_| "k")).await;
    assert_eq!(answers.iter().filter(|answer| **answer == Ok(Outcome::Allow)).count(), 500);
    assert!(answers.iter().all(Result::is_ok));
    let sent = calls(&mut connection, "evalsha").await - before;
    // The first alone, then batches of a hundred; a few more if answers come while
    // others still ask.
    assert!((10..=20).contains(&sent), "{sent} calls");
}

#[tokio::test]
async fn one_alone_is_one_call_and_a_batch_of_one_is_a_setting() {
    let server = Server::start();
    let limiter = yearly(&server.url(), 100).max_batch_size(1);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = server.connection().await;
    let before = calls(&mut connection, "evalsha").await;
    together(&limiter, (0..20).map(|_| "k")).await;
    assert_eq!(calls(&mut connection, "evalsha").await - before, 20);
}

#[tokio::test]
async fn a_broken_key_fails_its_own_charges_and_no_others() {
    let server = Server::start();
    let limiter = yearly(&server.url(), 1_000);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = server.connection().await;
    run(&mut connection, &["RPUSH", "sluice:test:fw1:{list}", "x"]).await;
    run(&mut connection, &["SET", "sluice:test:fw1:{corrupt}", "nan"]).await;
    let own = |limit| Charge::new("own").quota(Quota::new(limit, YEAR));
    let asked = [
        Charge::new("fine"),
        Charge::new("fine"),
        Charge::new("list"),
        Charge::new("corrupt"),
        Charge::new(String::new()),
        Charge::new("x".repeat(65 * 1024)),
        own(1),
        own(1),
        Charge::new("fine").cost(1_001),
        Charge::new("fine").cost(u64::MAX),
    ];
    run(&mut connection, &["SCRIPT", "FLUSH"]).await;
    let answers = together(&limiter, asked).await;
    assert_eq!(answers[..2], [Ok(Outcome::Allow); 2]);
    assert_eq!(
        answers[2..6],
        [
            Err(ErrorKind::State),
            Err(ErrorKind::State),
            Err(ErrorKind::Request),
            Err(ErrorKind::Request)
        ]
    );
    assert_eq!(answers[6], Ok(Outcome::Allow));
    assert!(matches!(answers[7], Ok(Outcome::Deny { retry_after: Some(_) })), "{answers:?}");
    assert_eq!(answers[8..], [Ok(Outcome::Deny { retry_after: None }), Err(ErrorKind::Request)]);
    // Charged once each, although the script had to be sent again.
    assert_eq!(limiter.check(&Charge::new("fine").cost(0)).await.unwrap().remaining(), Some(998));
}

// Case 115.
#[tokio::test]
async fn who_leaves_before_departure_is_not_charged() {
    let server = Server::start();
    let limiter = yearly(&server.url(), 1_000);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut askers: Vec<_> = (0..10).map(|_| begin(&limiter)).collect();
    // None of them is sent before this task yields, but for the first.
    assert!(askers.iter_mut().all(|asker| asker.poll().is_pending()));
    askers.truncate(4);
    for asker in askers {
        assert_eq!(asker.into_inner().await.unwrap().outcome(), Outcome::Allow);
    }
    let mut connection = server.connection().await;
    assert_eq!(limiter.check(&Charge::new("k").cost(0)).await.unwrap().remaining(), Some(996));
    // Nor was anything given back: they were never sent.
    assert!(calls(&mut connection, "evalsha").await <= 6);
}

// Case 118.
#[tokio::test]
async fn a_full_queue_is_saturation_and_never_fails_open() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url(), 1_000_000).queue_capacity(10);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    // No answer comes until all have asked.
    let release = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        proxy.set(Fault::None);
    };
    proxy.set(Fault::Hold);
    let (answers, ()) = tokio::join!(together(&limiter, (0..1_000).map(|_| "k")), release());
    let full = answers.iter().filter(|answer| **answer == Err(ErrorKind::Saturation)).count();
    let decided = answers.iter().filter(|answer| **answer == Ok(Outcome::Allow)).count();
    assert_eq!(
        (full + decided, full > 900, decided >= 11),
        (1_000, true, true),
        "{full} and {decided}"
    );

    let open = limiter.clone().or_else(tower_sluice::FailOpen);
    proxy.set(Fault::Hold);
    let (answers, ()) = tokio::join!(together(&open, (0..1_000).map(|_| "k")), release());
    assert!(answers.iter().filter(|answer| **answer == Err(ErrorKind::Saturation)).count() > 900);
    // The charges that failed make room.
    let answers = together(&limiter, (0..10).map(|_| "k")).await;
    assert_eq!(answers, [Ok(Outcome::Allow); 10]);
}

#[tokio::test]
async fn one_bound_holds_for_all_that_waits_of_a_combination() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let member = yearly(&proxy.url(), 1_000_000).queue_capacity(100);
    let member = member.max_batch_size(1).max_in_flight(1);
    let limiter = AllAtOnce::of_parts((member.clone(), member.clone(), member));
    let keys = |of: [Option<&str>; 3]| Charge::several(of.map(|key| key.map(Charge::new)));
    let _ = limiter.check(&keys([Some("a"), Some("b"), Some("c")])).await.unwrap();
    proxy.set(Fault::Hold);
    // Each pair of members is asked in calls of its own.
    let pairs =
        [[Some("a"), Some("b"), None], [Some("a"), None, Some("c")], [None, Some("b"), Some("c")]];
    let asked = (0..3_000).map(|n| keys(pairs[n % 3]));
    let (answers, ()) = tokio::join!(together(&limiter, asked), async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        proxy.set(Fault::None);
    });
    let decided = answers.iter().filter(|answer| **answer == Ok(Outcome::Allow)).count();
    let full = answers.iter().filter(|answer| **answer == Err(ErrorKind::Saturation)).count();
    assert_eq!(decided + full, 3_000);
    // Those that wait, and those on their way: one or two for each pair.
    assert!((100..150).contains(&decided), "{decided}");
}

#[tokio::test]
async fn who_waits_too_long_while_others_are_answered_meets_saturation() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url(), 1_000_000).max_batch_size(1).max_in_flight(1);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let hurried = limiter.clone().decision_timeout(Duration::from_millis(500));
    let answers = together(&hurried, (0..200).map(|_| "k")).await;
    let late = answers.iter().filter(|answer| **answer == Err(ErrorKind::Saturation)).count();
    assert!(late > 100, "{late} of 200");
    assert!(answers.contains(&Ok(Outcome::Allow)));
}

// Case 146.
#[tokio::test]
async fn a_lost_connection_ends_its_batch_and_nothing_is_sent_twice() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url(), 1_000_000);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = server.connection().await;
    let mut lost = 0;
    // The answer to the first call comes too late in any case, and the others by chance.
    proxy.set(Fault::ResetNext);
    for _ in 0..20 {
        let answers = {
            let asked = together(&limiter, (0..50).map(|_| "k"));
            let cut = async {
                tokio::task::yield_now().await;
                cut(&mut connection).await;
            };
            tokio::join!(asked, cut).0
        };
        let odd = |answer: &&Result<Outcome, ErrorKind>| {
            !matches!(answer, Ok(Outcome::Allow) | Err(ErrorKind::Infrastructure))
        };
        assert_eq!(answers.iter().find(odd), None);
        lost += answers.iter().filter(|answer| answer.is_err()).count();
    }
    assert!(lost > 0, "no cut met a call");
    // No charge more than was asked for, whatever became of the answers.
    let begun = Instant::now();
    let peek = loop {
        match limiter.check(&Charge::new("k").cost(0)).await {
            Ok(peek) => break peek,
            Err(error) => assert!(begun.elapsed() < PATIENT, "{error:?}"),
        }
    };
    assert!(peek.remaining().unwrap() >= 1_000_000 - 20 * 50);
}

// Case 36.
#[tokio::test]
async fn in_a_cluster_a_batch_holds_keys_of_one_slot() {
    let cluster = Cluster::with(1, 0, 15_000).await;
    let pool = Pool::connect(&cluster.url()).unwrap();
    let quota = Quota::new(1_000, YEAR);
    let limiter = Redis::new("test", TokenBucket::new(quota), pool).decision_timeout(PATIENT);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = cluster.connection(0).await;
    let before = calls(&mut connection, "evalsha").await;
    // Twenty keys of as many slots, five times each: none shares a call with another.
    let asked = (0..100).map(|number| format!("key {}", number % 20));
    let answers = together(&limiter, asked).await;
    assert_eq!(answers, [Ok(Outcome::Allow); 100]);
    let sent = calls(&mut connection, "evalsha").await - before;
    assert!((20..=80).contains(&sent), "{sent} calls");
}

// Case 112.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_starves() {
    let server = Server::start();
    let limiter = yearly(&server.url(), 1_000_000);
    let mut tasks = JoinSet::new();
    for task in 0..256 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            for _ in 0..50 {
                let _ = limiter.check(&format!("key {task}").into()).await.unwrap();
            }
        });
    }
    // All of them end: a starving one would meet its deadline.
    tasks.join_all().await;
}

/// Asks until it is decided, and returns how long that took.
async fn until_decided(limiter: &Redis<FixedWindow>) -> Duration {
    let begun = Instant::now();
    while let Err(error) = limiter.check(&"k".into()).await {
        assert!(begun.elapsed() < PATIENT, "{error:?}");
    }
    begun.elapsed()
}

// Case 142.
#[tokio::test]
async fn a_long_deadline_delays_no_short_one() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let short = yearly(&proxy.url(), 1_000_000).decision_timeout(Duration::from_millis(20));
    let long = short.clone().decision_timeout(Duration::from_secs(6));
    until_decided(&short).await;
    proxy.strand();
    let mut waiting = JoinSet::new();
    for _ in 0..200 {
        let long = long.clone();
        waiting.spawn(async move { long.check(&"k".into()).await.map(drop) });
    }
    tokio::task::yield_now().await;
    let undecided = until_decided(&short).await;
    println!("undecided for {undecided:?}");
    assert!(undecided < Duration::from_secs(3), "undecided for {undecided:?}");
    waiting.shutdown().await;
}

// Case 148.
#[tokio::test]
async fn the_largest_batch_of_many_quotas_is_answered() {
    let server = Server::start();
    let pool = Pool::builder(&server.url()).and_then(|pool| pool.size(1).build()).unwrap();
    let window = || FixedWindow::new(Quota::new(1_000_000, YEAR));
    let eight = [(); 8].map(|()| window());
    let [a, b, c, d, e, f, g, h] = eight;
    let limiter = Redis::new("test", (a, b, c, d, e, f, g, h), pool)
        .decision_timeout(PATIENT)
        .max_batch_size(1_000);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let answers = together(&limiter, (0..3_000).map(|number| format!("key {number}"))).await;
    assert_eq!(answers.iter().find(|answer| **answer != Ok(Outcome::Allow)), None);
}

// Case 78.
#[tokio::test]
async fn a_key_that_is_too_long_is_refused_before_it_is_digested() {
    let limiter = yearly("redis://127.0.0.1:1", 1);
    let long = "x".repeat(16 << 20);
    let charge = Charge::new(long.clone());
    let (mut read_once, mut refused) = (Duration::MAX, Duration::MAX);
    // The best of several, since this thread may wait for a processor at any time.
    for _ in 0..10 {
        let begun = std::time::Instant::now();
        std::hint::black_box(
            long.bytes().fold(0_u64, |sum, byte| sum.rotate_left(1) ^ u64::from(byte)),
        );
        read_once = read_once.min(begun.elapsed());
        let begun = std::time::Instant::now();
        let error = limiter.check(&charge).await.unwrap_err();
        refused = refused.min(begun.elapsed());
        assert_eq!(error.kind(), ErrorKind::Request);
    }
    println!("read once in {read_once:?}, refused in {refused:?}");
    assert!(refused < read_once, "refused in {refused:?}, which is longer than reading it");
}

#[tokio::test]
async fn a_script_whose_callers_have_left_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = yearly(&proxy.url(), 1_000_000);
    let _ = limiter.check(&"warm".into()).await.unwrap();
    let mut connection = server.connection().await;
    for batch in [1, 10] {
        run(&mut connection, &["SCRIPT", "FLUSH"]).await;
        let before = calls(&mut connection, "eval").await;
        let unknown = calls(&mut connection, "evalsha").await;
        proxy.set(Fault::Delay(Duration::from_millis(300)));
        let mut askers: Vec<_> = (0..batch).map(|_| begin(&limiter)).collect();
        assert!(askers.iter_mut().all(|asker| asker.poll().is_pending()));
        // The server has refused every call; the refusals are on their way.
        let begun = Instant::now();
        let expected = unknown + u64::from(batch > 1) + 1;
        while calls(&mut connection, "evalsha").await < expected && begun.elapsed() < PATIENT {
            tokio::task::yield_now().await;
        }
        drop(askers);
        proxy.set(Fault::None);
        // A later charge sends the script; no earlier one did.
        let _ = limiter.check(&"k".into()).await.unwrap();
        assert_eq!(calls(&mut connection, "eval").await - before, 1, "a batch of {batch}");
    }
}
