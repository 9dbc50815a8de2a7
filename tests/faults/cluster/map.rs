//! The times at which the slot map is read anew.

use super::*;

/// Returns how often a node answered with an error of this code.
async fn errors(cluster: &Cluster, node: usize, code: &str) -> u64 {
    let stats: String = cluster.ask(node, cmd("INFO").arg("errorstats")).await;
    let count =
        |line: &str| line.strip_prefix(&format!("errorstat_{code}:count="))?.parse::<u64>().ok();
    stats.lines().find_map(count).unwrap_or(0)
}

/// Returns how often the nodes were asked for the map.
async fn reads(cluster: &Cluster) -> u64 {
    let mut reads = 0;
    for node in 0..cluster.nodes.len() {
        let section: String = cluster.ask(node, cmd("INFO").arg("commandstats")).await;
        let all = stats::read(&section);
        // 6.2 counts all commands of `CLUSTER` together.
        let of_map = ["cluster", "cluster|slots"].iter().filter_map(|name| all.get(*name));
        reads += of_map.map(|of| of.calls).sum::<u64>();
    }
    reads
}

/// A master that is cut off from the others, and has forgotten its slots, says so
/// (`CLUSTERDOWN`) over a connection that is well.
#[tokio::test]
async fn a_master_that_cannot_serve_its_slots_is_left_for_the_one_that_does() {
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let key = keys_in(5..=5).next().unwrap();
    charge_all(&limiter, from_ref(&key)).await;
    cluster.ask::<()>(0, &mut cmd("FLUSHALL")).await;
    cluster.ask::<()>(0, cmd("CLUSTER").arg("RESET")).await;
    let error = limiter.check(&Charge::new(key.as_str())).await.expect_err("no master");
    assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
    cluster.give_slot(5, 1).await;
    let begun = Instant::now();
    while let Err(error) = limiter.check(&Charge::new(key.as_str())).await {
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}");
        assert!(begun.elapsed() < LONG, "{error:?}");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(taken(&limiter, &key).await, 1);
    assert!(errors(&cluster, 0, "CLUSTERDOWN").await > 0, "it was connected all the time");
    assert_eq!(cluster.ask::<usize>(1, &mut cmd("DBSIZE")).await, 1);
}

/// One redirect tells that slots move. The others are not asked for at their old master.
// Case 37.
#[tokio::test]
async fn one_slot_that_has_moved_shows_where_the_others_are() {
    const MOVED: u16 = 100;
    const READING_PAUSES: Duration = Duration::from_millis(400);
    let cluster = Cluster::start().await;
    let limiter = patient(pool(&cluster));
    let keys: Vec<_> = (0..MOVED).map(|slot| keys_in(slot..=slot).next().expect("a key")).collect();
    charge_all(&limiter, &keys).await;
    for slot in 0..MOVED {
        cluster.move_slot(slot, 1).await;
    }
    let before = reads(&cluster).await;
    // One redirect starts no read while reading pauses.
    let (begun, mut asked) = (Instant::now(), 0_u16);
    while reads(&cluster).await == before {
        assert!(begun.elapsed() < LONG, "the map is not read");
        if begun.elapsed() >= READING_PAUSES * u32::from(asked) {
            charge_all(&limiter, from_ref(&keys[usize::from(asked)])).await;
            asked += 1;
        }
        sleep(Duration::from_millis(5)).await;
    }
    for key in &keys[asked.into()..] {
        charge_all(&limiter, from_ref(key)).await;
    }
    // The map is read a moment before it is used.
    let redirects = errors(&cluster, 0, "MOVED").await;
    assert!((1..u64::from(MOVED) / 2).contains(&redirects), "{redirects} redirects");
    for key in &keys {
        assert_eq!(taken(&limiter, key).await, 2, "{key}");
    }
}
