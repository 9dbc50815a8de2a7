//! Redisson's limiter, whose keys share the hash slot of its name.

use crate::*;

use support::cluster::{Cluster, slot_of};
use support::documented_rights;
use support::faults::{LONG, trouble};

#[tokio::test]
async fn redissons_keys_are_decided_by_the_master_of_their_name() {
    let cluster = Cluster::start().await;
    let rights = documented_rights(include_str!("../../redisson.md"));
    for node in 0..3 {
        let mut limit = cmd("ACL");
        limit.arg("SETUSER").arg("default").arg("-@all").arg("~*").arg(&rights);
        cluster.ask::<()>(node, &mut limit).await;
    }
    let redisson =
        Redisson::new(Pool::connect(&cluster.url()).expect("an address")).decision_timeout(LONG);
    let names = (0..12).map(|number| match number % 2 {
        0 => format!("limit-{number}"),
        _ => format!("{{tag-{number}}}:limit"),
    });
    let admitted = async |name: &str, cost| {
        let decision = redisson.check(&Charge::new(name).cost(cost)).await;
        decision.expect("a decision").is_admitted()
    };
    for name in names {
        let limiter = redisson.rate_limiter(&name).expect("a name");
        let rate = Rate::overall(10, Duration::from_secs(3_600));
        assert!(limiter.try_set_rate(rate).await.expect("set"), "{name}");
        assert!(admitted(&name, 4).await && !admitted(&name, 7).await, "{name}");
        assert_eq!(limiter.available_permits().await.expect("permits"), 6, "{name}");
    }
    for node in 0..3 {
        assert!(cluster.ask::<usize>(node, &mut cmd("DBSIZE")).await > 0, "master {node}");
    }

    // Keys that are on two servers are asked for again until the slot has moved.
    let name = "limit-0";
    let slot = slot_of(name);
    let from = cluster.master_of(slot).await;
    let to = (from + 1) % 3;
    cluster.begin_move(slot, to).await;
    let mut connection = cluster.connection(from).await;
    cluster.move_key(&mut connection, to, &[name]).await;
    let (asking, charge) = (redisson.clone(), Charge::new(name).cost(5));
    let asking = tokio::spawn(async move { asking.check(&charge).await });
    let hasty = redisson.clone().decision_timeout(Duration::from_millis(100));
    // A busy machine may take it for load first.
    let mut kinds = Vec::new();
    while kinds.len() < 10 && kinds.last() != Some(&ErrorKind::Infrastructure) {
        kinds.push(trouble(&hasty, &Charge::new(name)).await.kind());
    }
    assert_eq!(kinds.last(), Some(&ErrorKind::Infrastructure), "{kinds:?}");
    cluster.move_keys(slot, from, to).await;
    cluster.end_move(slot, from, to).await;
    assert!(asking.await.expect("no panic").expect("a decision").is_admitted());
    assert!(admitted(name, 1).await && !admitted(name, 1).await);
}
