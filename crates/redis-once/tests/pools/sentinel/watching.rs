//! The watch over the sentinels, when what watched or was watched is gone.

use tokio::runtime;

use super::*;

/// The watch is a task of one runtime. Without it nobody would leave the old primary, which answers
/// on for about ten seconds.
// Case 46.
#[test]
fn a_switch_is_followed_although_a_sentinel_and_the_watching_runtime_are_gone() {
    let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let mut replicated = second.block_on(Replicated::start());
    let counter = counter_at(&replicated.url());
    first.block_on(until_well(&counter));
    drop(first);
    replicated.sentinels[0].kill();
    second.block_on(async {
        until_well(&counter).await;
        replicated.sentinels[1].fail_over().await;
        let [old, new] = &replicated.servers;
        let begun = Instant::now();
        while asked(new).await == 0 {
            let _ = counter.add().await;
            assert!(begun.elapsed() < LONG, "the new primary is not asked");
            sleep(Duration::from_millis(5)).await;
        }
        let before = asked(old).await;
        // Until the sentinels make it a replica, the old one says that it is a primary.
        for _ in 0..100 {
            until_well(&counter).await;
        }
        assert_eq!(asked(old).await, before);
    });
    second.block_on(async { drop(replicated) });
}

/// An earlier failure says nothing about a sentinel that is silent since, however long an attempt
/// to connect may take.
#[tokio::test]
async fn a_sentinel_that_refused_to_answer_and_is_silent_since_is_away() {
    let server = Server::start();
    let refusing = "user default on nopass ~* &* +@all -sentinel";
    let sentinel = Sentinel::with(server.port(), refusing);
    let proxy = Proxy::before(sentinel.port).await;
    let builder = Pool::builder(&url(&[proxy.port()])).unwrap().connect_timeout(2 * LONG);
    let counter = over(builder.build().unwrap());
    until(&counter, ErrorKind::Configuration).await;
    proxy.set(Fault::BlackHole);
    until(&counter, ErrorKind::Infrastructure).await;
}

/// Its epoch is newer than that of all switches, and only the others are right.
// Case 46.
#[tokio::test]
async fn one_wrong_sentinel_of_three_moves_no_pool() {
    let (server, elsewhere) = (Server::start(), Server::start());
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(Proxy::before(fake::sentinel(server.port(), 5).await).await);
    }
    let wrong = Proxy::before(fake::sentinel(elsewhere.port(), 99).await).await;
    wrong.set(Fault::BlackHole);
    let counter = counter_at(&url(&[others[0].port(), others[1].port(), wrong.port()]));
    until_well(&counter).await;
    wrong.set(Fault::None);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let _ = counter.add().await;
        assert_eq!(asked(&elsewhere).await, 0, "after {:?}", begun.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    // The only sentinel that answers is trusted.
    others.iter().for_each(|other| other.set(Fault::Reset));
    eventually("the last sentinel is followed", async || {
        let _ = counter.add().await;
        asked(&elsewhere).await > 0
    })
    .await;
}
