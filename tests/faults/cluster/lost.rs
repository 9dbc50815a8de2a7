//! Connections, masters and whole clusters that are lost.

use super::*;

// Case 40.
#[tokio::test]
async fn a_master_that_dies_harms_its_own_slots_until_its_replica_is_promoted() {
    let mut cluster = Cluster::with(3, 1, 1_000).await;
    let quota = Quota::new(MILLION, YEAR);
    let limiter = Redis::new("cluster", FixedWindow::new(quota), pool(&cluster))
        .decision_timeout(Duration::from_secs(5));
    let [dead, alive] = [0, 1].map(|master| keys_in(cluster.share(master)).next().unwrap());
    charge_all(&limiter, &[dead.clone(), alive.clone()]).await;
    cluster.kill(0);
    // On a busy machine the replica may be promoted before the time of this charge is over.
    if let Err(error) = limiter.check(&Charge::new(dead.as_str())).await {
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    }
    let (others, charge) = (limiter.clone(), Charge::new(alive));
    let untouched = tokio::spawn(async move {
        loop {
            let _ = others.check(&charge).await.expect("an untouched slot");
            sleep(Duration::from_millis(1)).await;
        }
    });
    cluster.until_promoted(slot_of(&dead), 0).await;
    eventually("the promoted replica", async || {
        limiter.check(&Charge::new(dead.as_str())).await.is_ok()
    })
    .await;
    assert!(!untouched.is_finished(), "{:?}", untouched.await);
    untouched.abort();
    assert!(taken(&limiter, &dead).await >= 1);
}

// Case 153.
#[tokio::test]
async fn what_a_replaced_master_still_admits_reaches_nobody() {
    const UNITS: u64 = 10;
    let cluster = Cluster::with(3, 1, 1_000).await;
    let pool = pool(&cluster);
    let new = |name: &'static str, units| {
        let quota = FixedWindow::new(Quota::new(units, YEAR));
        Redis::new(name, quota, pool.clone()).decision_timeout(LONG)
    };
    let (limiter, others) = (new("left", UNITS), new("others", MILLION));
    let others = others.decision_timeout(Duration::from_millis(100));
    let key = keys_in(cluster.share(0)).next().unwrap();
    let _ = limiter.peek(key.as_str()).await.expect("a decision");

    cluster.nodes[0].signal("STOP");
    let ask = || {
        let (limiter, charge) = (limiter.clone(), Charge::new(key.as_str()));
        async move { limiter.check(&charge).await }
    };
    let mut sent: JoinSet<_> = (0..5).map(|_| ask()).collect();
    // Other callers notice that the master is away.
    eventually("the promoted replica", async || {
        others.check(&Charge::new(key.as_str())).await.is_ok()
    })
    .await;
    let mut admitted = 0;
    while ask().await.expect("a decision").is_admitted() {
        admitted += 1;
    }
    cluster.nodes[0].signal("CONT");
    let (mut late, mut errors) = (0, Vec::new());
    while let Some(answer) = sent.join_next().await {
        match answer.expect("no panic") {
            Ok(decision) => late += u64::from(decision.is_admitted()),
            Err(error) => errors.push(error),
        }
    }
    println!("fault case=153 cluster admitted={admitted} of={UNITS} late={late} {errors:?}");
    assert_eq!((admitted, late), (UNITS, 0));
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Infrastructure), "{errors:?}");
}

/// One runtime cannot connect to a master, while another waits for its answer. The master lives on
/// as a replica: the call on its way is answered.
#[tokio::test]
async fn a_master_that_one_runtime_cannot_connect_to_is_not_away() {
    let cluster = Cluster::with(3, 1, 15_000).await;
    let limiter = patient(pool(&cluster));
    let key = keys_in(cluster.share(1)).next().unwrap();
    let other = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ask_elsewhere = || {
        let (limiter, charge) = (limiter.clone(), Charge::new(key.as_str()));
        other.spawn(async move { limiter.check(&charge).await })
    };
    let _ = ask_elsewhere().await.unwrap().expect("a decision");
    let mut master = cluster.connection(1).await;
    run(&mut master, &["CONFIG", "SET", "maxclients", "1"]).await;
    run(&mut master, &["CLIENT", "PAUSE", "120000", "WRITE"]).await;
    let paused = ask_elsewhere();
    eventually("the call has arrived", async || {
        let clients: String = cmd("CLIENT").arg("LIST").query_async(&mut master).await.unwrap();
        clients.contains(" flags=b ")
    })
    .await;
    let here = limiter.clone().decision_timeout(Duration::from_millis(100));
    let error = trouble(&here, &Charge::new(key.as_str())).await;
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");

    cluster.fail_over(1).await;
    eventually("the new master decides here", async || {
        here.check(&Charge::new(key.as_str())).await.is_ok()
    })
    .await;
    // Redis 6.2 has ended the pause with the failover.
    run(&mut master, &["CLIENT", "UNPAUSE"]).await;
    let _ = paused.await.unwrap().expect("a decision");
    other.shutdown_background();
}

// Case 40.
#[tokio::test]
async fn a_slot_without_a_master_is_infrastructure_and_harms_no_other() {
    let cluster = Cluster::start().await;
    let quota = Quota::new(MILLION, YEAR);
    let limiter = Redis::new("cluster", FixedWindow::new(quota), pool(&cluster))
        .decision_timeout(Duration::from_secs(5));
    let [lost, other] = [5, 6].map(|slot| keys_in(slot..=slot).next().unwrap());
    charge_all(&limiter, &[lost.clone(), other.clone()]).await;
    for node in 0..3 {
        cluster.ask::<()>(node, cmd("CLUSTER").arg("DELSLOTS").arg(5)).await;
    }
    for _ in 0..3 {
        let error = trouble(&limiter, &Charge::new(lost.as_str())).await;
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
        charge_all(&limiter, from_ref(&other)).await;
    }
    // Callers with less time than it takes to read the map anew hear the same, not of load.
    let hasty = limiter.clone().decision_timeout(Duration::from_millis(100));
    let begun = Instant::now();
    loop {
        charge_all(&limiter, from_ref(&other)).await;
        let error = hasty.check(&Charge::new(lost.as_str())).await.expect_err("no master");
        if error.kind() == ErrorKind::Infrastructure
            && error.to_string().contains("no server of the cluster")
        {
            break;
        }
        assert!(begun.elapsed() < LONG, "{error:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_away_is_infrastructure_in_time() {
    let pool = Pool::connect(&format!("redis-cluster://127.0.0.1:{NOWHERE}")).unwrap();
    let limiter = over(pool);
    for _ in 0..5 {
        assert_eq!(kind(&limiter).await, ErrorKind::Infrastructure);
    }
}
