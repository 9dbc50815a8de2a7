//! Redis answers, but does not decide: the kind of each error, and what happens to the charge.

use tower_sluice::Outcome;

use super::*;

use support::faults::*;

// Cases 19, 20 and 21.
#[tokio::test]
async fn a_script_that_the_server_forgot_is_sent_again() {
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    let _ = limiter.check(&one()).await.unwrap();
    let mut connection = server.connection().await;
    for number in 0..600 {
        let text = format!("return {number}");
        run(&mut connection, &["EVAL", &text, "0"]).await;
    }
    // Redis 7.4 and later keep 500 of them. The others keep all until they are flushed.
    let memory: String =
        redis::cmd("INFO").arg("memory").query_async(&mut connection).await.expect("figures");
    let cached = memory.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    if cached.expect("known").parse::<u64>().expect("a number") >= 600 {
        run(&mut connection, &["SCRIPT", "FLUSH"]).await;
    }
    let before = calls(&mut connection, "eval").await;
    let _ = limiter.check(&one()).await.unwrap();
    assert_eq!(calls(&mut connection, "eval").await, before + 1, "the script was there");
    assert_eq!(taken(&server).await, 2);
}

// Case 24.
#[tokio::test]
async fn a_loading_server_is_infrastructure() {
    let (mut server, mut connection) = Server::connected().await;
    // Large enough that 6.2 answers meanwhile: it looks at its sockets every 2 MB
    // that it has loaded.
    let mut fill = redis::pipe();
    for key in 0..2_000 {
        fill.set(key, "x".repeat(8 * 1024)).ignore();
    }
    fill.exec_async(&mut connection).await.unwrap();
    run(&mut connection, &["CONFIG", "SET", "rdbcompression", "no"]).await;
    run(&mut connection, &["SAVE"]).await;
    server.kill();
    server.option(&["--key-load-delay", "2000"]);
    server.restart_until("Server initialized");
    let limiter = yearly(&server.url()).decision_timeout(Duration::from_secs(1));
    let begun = Instant::now();
    assert_eq!(trouble(&limiter, &one()).await.kind(), ErrorKind::Infrastructure);
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    // A server that loads is not hammered: it has seen no more than 20 connections a second.
    let seconds = begun.elapsed().as_secs_f64();
    let attempts = figure(&mut server.connection().await, "total_connections_received").await;
    println!("fault case=24 connects={attempts} seconds={seconds:.1}");
    assert!(attempts as f64 <= 20.0 * (seconds + 1.0), "{attempts} in {seconds} s");
}

// Cases 25 and 26.
#[tokio::test]
async fn a_busy_server_is_infrastructure_and_its_script_is_not_killed() {
    let server = Server::with(&["--lua-time-limit", "1"]);
    let limiter = yearly(&server.url());
    until_decided(&limiter, ErrorKind::Infrastructure).await;
    let (mut busy, mut killer) = (server.connection().await, server.connection().await);
    let looping = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut busy).await
    });
    until(&limiter, ErrorKind::Infrastructure).await;
    assert!(!looping.is_finished(), "somebody killed another's script");
    eventually("the script is killed", async || {
        redis::cmd("SCRIPT").arg("KILL").exec_async(&mut killer).await.is_ok()
    })
    .await;
    let _ = looping.await;
    until_decided(&limiter, ErrorKind::Infrastructure).await;
}

// Case 27.
#[tokio::test]
async fn a_server_that_may_not_write_is_infrastructure() {
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    let _ = limiter.check(&one()).await.unwrap();
    let mut connection = server.connection().await;

    run(&mut connection, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    run(&mut connection, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;

    run(&mut connection, &["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &NOWHERE.to_string()]).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
    until_decided(&limiter, ErrorKind::Infrastructure).await;
}

// Cases 28 and 29.
#[tokio::test]
async fn a_full_server_is_capacity_and_grows_no_more() {
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(LONG);
    let mut connection = server.connection().await;
    let _ = limiter.check(&one()).await.unwrap();
    run(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for number in 0..100 {
        let error = limiter.check(&Charge::new(format!("new {number}"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
    }
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    assert_eq!(keys, 1);
    run(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let _ = limiter.check(&one()).await.unwrap();
}

// Cases 30 and 126.
#[tokio::test]
async fn a_wrong_password_is_configuration_and_told_without_it() {
    let server = Server::with(&["--requirepass", "right"]);
    for (user, kind) in [
        ("", Some(ErrorKind::Configuration)),
        (":wrong@", Some(ErrorKind::Configuration)),
        (":right@", None),
    ] {
        let url = format!("redis://{user}127.0.0.1:{}", server.port());
        let limiter = yearly(&url).decision_timeout(LONG);
        let answer = limiter.check(&one()).await;
        if let Err(error) = &answer {
            let told = format!("{error:?} {error}");
            assert!(!told.contains("wrong@") && !told.contains("\"wrong\""), "{told}");
        }
        assert_eq!(answer.err().map(|error| error.kind()), kind, "{user}");
    }
    let pool = Pool::builder(&format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let limiter =
        over(pool.credentials("default", "right").database(3).build().unwrap().prefix("mine"));
    let _ = limiter.clone().decision_timeout(LONG).check(&one()).await.unwrap();
}

// Case 31.
#[tokio::test]
async fn a_missing_right_is_configuration() {
    let (server, mut connection) = Server::connected().await;
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
    let limiter = yearly(&url).decision_timeout(LONG);
    for without in ["+evalsha", "+mget", "+set", "+time", "~sluice:*"] {
        let rules = rules(without);
        run(&mut connection, &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
        until(&limiter, ErrorKind::Configuration).await;
    }
    let rules = rules("");
    run(&mut connection, &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    until_decided(&limiter, ErrorKind::Configuration).await;
    let _ = limiter.check(&one().cost(0)).await.unwrap();
}

// Cases 107 and 111.
#[tokio::test]
async fn without_patience_the_true_wait_is_told_and_nothing_taken() {
    let server = Server::start();
    let quota = Quota::new(1, Duration::from_secs(1_000));
    let bucket = tower_sluice::algorithm::TokenBucket::new(quota);
    let limiter = Redis::new("faults", bucket, server.pool()).decision_timeout(LONG);
    let _ = limiter.check(&one()).await.unwrap();
    let denied = limiter.check(&one()).await.unwrap();
    assert!(matches!(denied.outcome(), Outcome::Deny { retry_after: Some(_) }));
    let again = limiter.check(&one()).await.unwrap();
    // The first unit comes back a thousand seconds after it was taken, whoever asks meanwhile.
    let wait = |decision: &Decision| decision.retry_after().expect("a wait").as_secs();
    assert!((900..=1_000).contains(&wait(&denied)), "{denied:?}");
    assert!((900..=wait(&denied)).contains(&wait(&again)), "{again:?}");
}

/// A reply without an end would fill the memory. The server is cut off, and nobody is admitted.
#[tokio::test]
async fn a_reply_without_an_end_is_cut_off() {
    const MIB: u64 = 1 << 20;
    let most = Arc::new(AtomicU64::new(0));
    let url = format!("redis://{}", fake::never_ending(Arc::clone(&most)).await);
    let pool = Pool::connect(&url).unwrap();
    let [limiter, another] = [(); 2].map(|()| over(pool.clone()).decision_timeout(LONG));
    // Calls that have the connection in common get no server's fault, either.
    let (error, other) = tokio::join!(limiter.check(&one()), another.check(&one()));
    let (error, other) = (error.expect_err("no reply"), other.expect_err("no reply"));
    assert_eq!(other.kind(), ErrorKind::State, "{}", chain(&other));
    println!("fault endless reply sent_mib={} kind={:?}", most.load(Relaxed) / MIB, error.kind());
    assert_eq!(error.kind(), ErrorKind::State, "{}", chain(&error));
    assert!(most.load(Relaxed) < 32 * MIB, "{most:?}");
}
