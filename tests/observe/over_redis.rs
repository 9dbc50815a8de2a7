//! The reports of a limiter in Redis about its calls and connections.

use std::time::Instant;

use tokio::task::JoinSet;
use tower_sluice::algorithm::{FixedWindow, TokenBucket};
use tower_sluice::limiter::{MetricsExt, TraceExt};
use tower_sluice::{Charge, ErrorKind, FailOpen, Limiter, LimiterExt, Memory, Pool, Quota, Redis};

use super::events::Lines;
use super::one;
use super::recorder::{Page, Recorder};
use support::cluster::{Cluster, keys_in};
use support::faults::{LONG, eventually, run, trouble};
use support::proxy::Proxy;
use support::sentinel::Replicated;
use support::{NOWHERE, Server};

fn limiter(pool: Pool) -> Redis<FixedWindow> {
    Redis::new("api", FixedWindow::new(Quota::per_day(1_000_000)), pool).decision_timeout(LONG)
}

#[tokio::test]
async fn calls_their_sizes_and_connections_are_counted() {
    let recorder = Recorder::new();
    let (_server, pool) = Server::pooled();
    let limiter = limiter(pool).metrics("outer");
    let mut tasks = JoinSet::new();
    for user in 0..500 {
        let limiter = limiter.clone();
        let charge = Charge::new(format!("user-{user}"));
        tasks.spawn(async move { limiter.check(&charge).await.unwrap() });
    }
    tasks.join_all().await;
    let series = recorder.take();
    let histogram = |name| Recorder::histogram_of(&series, name);
    let sizes = histogram("rate_limit_batch_size{limiter=api}");
    assert_eq!(sizes.iter().sum::<f64>(), 500.0);
    assert!(sizes.len() < 500, "{} calls", sizes.len());
    let times = histogram("rate_limit_call_seconds{limiter=api}");
    assert_eq!(times.len(), sizes.len());
    assert!(times.iter().all(|time| *time > 0.0));
    assert_eq!(histogram("rate_limit_decision_seconds{limiter=outer}").len(), 500);
    let counts = Recorder::counts_of(&series);
    let count = |name: &str| counts.iter().find(|(series, _)| series == name).map(|(_, n)| *n);
    assert!(count("rate_limit_connects_total{result=made}").is_some_and(|made| made >= 1));
    assert_eq!(count("rate_limit_connects_total{result=failed}"), None);
    assert!(series.iter().all(|(series, _)| !series.contains("user-")));
}

#[tokio::test]
async fn a_server_that_is_silent_leaves_calls_unanswered() {
    let page = Page::new();
    let (server, pool) = Server::pooled();
    let limiter = limiter(pool);
    let _ = limiter.check(&one()).await.unwrap();
    let unanswered = || page.value("rate_limit_unanswered_calls_total{limiter=\"api\"}").unwrap();
    assert_eq!(unanswered(), 0.0);
    server.signal("STOP");
    let limiter = limiter.decision_timeout(std::time::Duration::from_millis(50));
    eventually("a call without an answer", async || {
        let _ = limiter.check(&one()).await;
        unanswered() > 0.0
    })
    .await;
    server.signal("CONT");
}

#[tokio::test]
async fn a_server_that_is_away_is_said_once_a_second_and_without_a_password() {
    let (page, (lines, _guard), begun) = (Page::new(), Lines::listen(), Instant::now());
    let url = format!("redis://user:secret@127.0.0.1:{NOWHERE}");
    let limiter = limiter(Pool::connect(&url).expect("an address"));
    assert_eq!(trouble(&limiter, &one()).await.kind(), ErrorKind::Infrastructure);
    let open = limiter.clone().or_else(FailOpen).trace("open").metrics("open");
    let failed = || page.value("rate_limit_connects_total{result=\"failed\"}").unwrap_or(0.0);
    eventually("admissions and failed attempts", async || {
        let _ = open.check(&one()).await;
        page.value("rate_limit_fail_open_total{limiter=\"open\"}") >= Some(1.0) && failed() >= 9.0
    })
    .await;
    let (lines, seconds) = (lines.take(), begun.elapsed().as_secs() as usize);
    assert!(lines.iter().all(|line| !line.contains("secret")), "{lines:#?}");
    let said = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert!((1..=seconds + 1).contains(&said("could not connect")), "{seconds} s: {lines:#?}");
    assert!((1..=seconds + 1).contains(&said("its fallback answers")), "{seconds} s: {lines:#?}");
    let first = lines.iter().find(|line| line.contains("could not connect")).unwrap();
    assert!(first.starts_with("WARN tower_sluice::connection"), "{first}");
    assert!(first.contains("address=\"redis at 127.0.0.1:"), "{first}");
}

#[tokio::test]
async fn a_connection_that_comes_back_is_said() {
    let (lines, _guard) = Lines::listen();
    let mut server = Server::start();
    let limiter = limiter(server.pool());
    let _ = limiter.check(&one()).await.unwrap();
    server.kill();
    trouble(&limiter, &one()).await;
    server.restart();
    eventually("a decision", async || limiter.check(&one()).await.is_ok()).await;
    let lines = lines.take();
    let position = |text: &str| {
        lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| {
            panic!("{text} is not in {lines:#?}");
        })
    };
    assert!(position("DEBUG tower_sluice::connection  message=connected address") == 0);
    assert!(position("a connection was lost") < position("connected again"));
}

/// A server that lets callers in and closes each connection fills no log.
#[tokio::test]
async fn connections_that_come_and_go_are_said_once_a_second() {
    let (lines, _guard) = Lines::listen();
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let limiter = limiter(Pool::connect(&proxy.url()).expect("an address"));
    let mut admin = server.connection().await;
    let begun = Instant::now();
    for _ in 0..20 {
        let before = proxy.connections();
        eventually("a decision", async || limiter.check(&one()).await.is_ok()).await;
        run(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        eventually("a decision over another connection", async || {
            limiter.check(&one()).await.is_ok() && proxy.connections() > before
        })
        .await;
    }
    let lines = lines.take();
    for text in ["connected again", "a connection was lost"] {
        let said = lines.iter().filter(|line| line.contains(text)).count();
        assert!(said >= 1 && said as u64 <= begun.elapsed().as_secs() + 1, "{said} {text}");
    }
}

#[tokio::test]
async fn another_primary_is_said_once() {
    let (lines, _guard) = Lines::listen();
    let replicated = Replicated::start().await;
    let limiter = limiter(Pool::connect(&replicated.url()).expect("an address"));
    eventually("a decision", async || limiter.check(&one()).await.is_ok()).await;
    replicated.sentinels[0].fail_over().await;
    let mut said = Vec::new();
    eventually("a new connection", async || {
        let _ = limiter.check(&one()).await;
        said.extend(lines.of("connection"));
        said.iter().any(|line: &String| line.contains("connected again"))
    })
    .await;
    let of_primary: Vec<_> = said.iter().filter(|line| line.contains("name another")).collect();
    assert_eq!(of_primary.len(), 1, "{said:#?}");
    let port = replicated.servers[1].port();
    let expected = format!("service=\"main\" address=\"redis at 127.0.0.1:{port}\"");
    assert!(of_primary[0].contains(&expected), "{of_primary:?}");
}

#[tokio::test]
async fn slots_of_a_cluster_that_have_moved_are_said() {
    let cluster = Cluster::start().await;
    let (lines, _guard) = Lines::listen();
    let pool = Pool::connect(&cluster.url()).expect("an address");
    let limiter = limiter(pool);
    let charge = Charge::new(keys_in(7..=7).next().expect("a key"));
    let _ = limiter.check(&charge).await.unwrap();
    let said = || {
        let lines = lines.of("connection").into_iter();
        lines.filter(|line| line.contains("have moved")).collect::<Vec<_>>()
    };
    // The first map moves nothing.
    assert_eq!(said(), [] as [&str; 0]);
    // One that moves alone is said, whether or not the map is read soon after.
    cluster.move_slot(7, 1).await;
    let _ = limiter.check(&charge).await.unwrap();
    assert_eq!(
        said(),
        ["INFO tower_sluice::connection  message=slots of the cluster have moved slots=1"]
    );
    // The map tells of those that no charge was redirected for.
    cluster.until_agreed().await;
    for slot in 8..11 {
        cluster.move_slot(slot, 1).await;
    }
    let (mut redirected, mut moved) = (0, 0);
    eventually("slots have moved without a redirect", async || {
        // Back and forth, so that a redirect has the map read.
        let to = if cluster.master_of(7).await == 1 { 2 } else { 1 };
        cluster.move_slot(7, to).await;
        cluster.until_agreed().await;
        redirected += 1;
        let _ = limiter.check(&charge).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let slots = |line: String| line.rsplit('=').next()?.parse::<u32>().ok();
        moved += said().into_iter().filter_map(slots).sum::<u32>();
        moved > redirected
    })
    .await;
}

/// A newcomer who starts without Redis sees why it fails, and what decides meanwhile.
#[tokio::test]
async fn without_redis_one_line_says_why_and_one_what_the_fallback_does() {
    let (lines, _guard) = Lines::listen();
    let pool = Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).expect("an address");
    let share = Memory::new("api alone", TokenBucket::new(Quota::per_hour(10)));
    let limiter = limiter(pool).or_else(share);
    let mut admitted = 0;
    for _ in 0..12 {
        admitted += u32::from(limiter.check(&one()).await.unwrap().is_admitted());
    }
    assert_eq!(admitted, 10);
    let said = lines.take();
    let of = |target: &str| {
        said.iter().filter(|line| line.contains(target)).map(String::as_str).collect::<Vec<_>>()
    };
    // Attempts go on, and at most one a second is said.
    let why = of("WARN tower_sluice::connection");
    assert!(!why.is_empty() && why[0].contains("could not connect"), "{said:#?}");
    let [what] = of("WARN tower_sluice::fallback")[..] else { panic!("{said:#?}") };
    assert!(what.contains("fallback=\"api alone\"") && what.contains("127.0.0.1"), "{what}");
}
