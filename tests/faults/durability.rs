//! The cost of a server that loses state, in units: the figures of `SECURITY.md`.

use super::*;

use support::faults::*;

const LIMIT: u64 = 10;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Ten units of a year.
fn ten(server: &Server) -> Yearly {
    let pool = server.pool();
    Redis::new("durable", FixedWindow::new(Quota::new(LIMIT, YEAR)), pool).decision_timeout(LONG)
}

/// Returns how many of `asked` charges are admitted, over connections of its own.
async fn admitted(server: &Server, asked: u64) -> u64 {
    let (limiter, mut admitted) = (ten(server), 0);
    for _ in 0..asked {
        admitted += u64::from(limiter.check(&one()).await.expect("a decision").is_admitted());
    }
    admitted
}

/// A field of the server's own report.
async fn info(connection: &mut MultiplexedConnection, section: &str, name: &str) -> Option<String> {
    let report: String =
        redis::cmd("INFO").arg(section).query_async(connection).await.expect("a report");
    let field = report.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    field.map(|value| value.trim().to_owned())
}

/// Makes `replica` one of the server at `port`, and waits until it has all.
async fn replicate(replica: &Server, port: u16, primary: &Server) {
    let (mut ours, mut theirs) = (replica.connection().await, primary.connection().await);
    run(&mut ours, &["REPLICAOF", "127.0.0.1", &port.to_string()]).await;
    let begun = Instant::now();
    loop {
        let up = info(&mut ours, "replication", "master_link_status").await;
        let behind = info(&mut ours, "replication", "slave_repl_offset").await
            != info(&mut theirs, "replication", "master_repl_offset").await;
        if up.as_deref() == Some("up") && !behind {
            return;
        }
        assert!(begun.elapsed() < LONG, "the replica does not follow");
        sleep(Duration::from_millis(10)).await;
    }
}

// Case 47.
#[tokio::test]
async fn a_restart_without_persistence_costs_one_more_quota() {
    let mut server = Server::start();
    assert_eq!(admitted(&server, 2 * LIMIT).await, LIMIT);
    server.kill();
    server.restart();
    let more = admitted(&server, 2 * LIMIT).await;
    println!("fault case=47 limit={LIMIT} admitted={}", LIMIT + more);
    assert_eq!(more, LIMIT);
}

// Case 48.
#[tokio::test]
async fn with_an_append_only_file_a_crash_costs_nothing() {
    for fsync in ["always", "everysec"] {
        let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", fsync]);
        assert_eq!(admitted(&server, 7).await, 7);
        // While the disk is slow, `everysec` holds writes back for up to two seconds.
        let mut connection = server.connection().await;
        let written = async || {
            info(&mut connection, "persistence", "aof_buffer_length").await.as_deref() == Some("0")
        };
        eventually("all writes are in the file", written).await;
        server.kill();
        server.restart();
        let more = admitted(&server, 2 * LIMIT).await;
        println!("fault case=48 appendfsync={fsync} limit={LIMIT} admitted={}", 7 + more);
        assert_eq!(more, LIMIT - 7);
    }
}

// Case 49.
#[tokio::test]
async fn a_flush_under_load_costs_one_more_quota_for_each_key() {
    const KEYS: usize = 20;
    let server = Server::start();
    let limiter = ten(&server);
    let mut callers = JoinSet::new();
    for key in 0..KEYS {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let charge = Charge::new(format!("key {key}"));
            let mut admitted = 0;
            for _ in 0..200 {
                admitted += u64::from(limiter.check(&charge).await.expect("decided").is_admitted());
            }
            admitted
        });
    }
    let mut connection = server.connection().await;
    eventually("calls", async || calls(&mut connection, "evalsha").await >= 5).await;
    run(&mut connection, &["FLUSHALL"]).await;
    let all = callers.join_all().await;
    println!("fault case=49 keys={KEYS} limit={LIMIT} most={}", all.iter().max().expect("keys"));
    assert!(all.iter().all(|admitted| (LIMIT..=2 * LIMIT).contains(admitted)), "{all:?}");
}

// Case 43.
#[tokio::test]
async fn a_failover_costs_the_units_that_the_replica_never_got() {
    let (mut primary, replica) = (Server::with(&[]), Server::with(&[]));
    let between = Proxy::before(primary.port()).await;
    let port = between.url().rsplit(':').next().and_then(|port| port.parse().ok());
    assert_eq!(admitted(&primary, 4).await, 4);
    replicate(&replica, port.expect("a port"), &primary).await;
    // From here on, nothing reaches the replica.
    between.set(Fault::BlackHole);
    let lost = admitted(&primary, 3).await;
    primary.kill();
    run(&mut replica.connection().await, &["REPLICAOF", "NO", "ONE"]).await;
    let more = admitted(&replica, 2 * LIMIT).await;
    println!("fault case=43 limit={LIMIT} lost={lost} admitted={}", 4 + lost + more);
    assert_eq!(4 + lost + more, LIMIT + lost, "no unit beyond those that were lost");
}

// Case 44.
#[tokio::test]
async fn a_primary_without_its_replica_admits_nothing_if_it_must_have_one() {
    let fenced = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    let (primary, replica) = (Server::with(&fenced), Server::with(&[]));
    replicate(&replica, primary.port(), &primary).await;
    let limiter = yearly(&primary.url()).decision_timeout(LONG);
    until_well(&limiter).await;
    replica.signal("STOP");
    // It notices within the lag that is allowed.
    let begun = Instant::now();
    let mut since = 0;
    while limiter.check(&one()).await.is_ok() {
        since += 1;
        assert!(begun.elapsed() < LONG, "it goes on alone");
        sleep(Duration::from_millis(10)).await;
    }
    println!("fault case=44 fenced_ms={} admitted={since}", begun.elapsed().as_millis());
    for _ in 0..100 {
        assert_eq!(trouble(&limiter, &one()).await.kind(), ErrorKind::Infrastructure);
    }
    replica.signal("CONT");
    until_well(&limiter).await;
}

/// Keys of strangers, more than the server has room for, and now and then the exhausted key.
/// Returns how many were refused for want of room.
async fn flood(limiter: &Redis<TokenBucket>, keys: usize) -> usize {
    let mut full = 0;
    for round in 0..keys / 500 {
        let mut calls = JoinSet::new();
        for key in 0..500 {
            let (limiter, charge) = (limiter.clone(), Charge::new(format!("{round} {key}")));
            calls.spawn(async move { limiter.check(&charge).await });
        }
        for answer in calls.join_all().await {
            if let Err(error) = answer {
                assert_eq!(error.kind(), ErrorKind::Capacity, "{error:?}");
                full += 1;
            }
        }
        assert!(!limiter.check(&one()).await.expect("decided").is_admitted(), "round {round}");
    }
    full
}

// Case 90.
#[tokio::test]
async fn a_flood_of_keys_frees_no_exhausted_key_that_is_asked_on() {
    for policy in ["noeviction", "allkeys-lfu", "volatile-lfu"] {
        let server = Server::with(&["--maxmemory-policy", policy]);
        let mut connection = server.connection().await;
        let bucket = TokenBucket::new(Quota::new(LIMIT, YEAR / 4));
        let limiter = Redis::new("flood", bucket, server.pool()).decision_timeout(LONG);
        for _ in 0..LIMIT {
            assert!(limiter.check(&one()).await.expect("decided").is_admitted());
        }
        let used = info(&mut connection, "memory", "used_memory").await.expect("a number");
        let room = used.parse::<u64>().expect("a number") + 300_000;
        run(&mut connection, &["CONFIG", "SET", "maxmemory", &room.to_string()]).await;

        let keys = size("FLOOD_KEYS", 6_000) as usize;
        let full = flood(&limiter, keys).await;
        let evicted = figure(&mut connection, "evicted_keys").await;
        println!("fault case=90 policy={policy} keys={keys} evicted={evicted} refused={full}");
        assert!(evicted + full as u64 > 1_000, "the server was never full");
        assert_eq!(evicted > 0, policy != "noeviction");
    }
}
