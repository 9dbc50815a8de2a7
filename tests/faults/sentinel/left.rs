//! Calls on their way to a primary that stands still while sentinels replace it.

use super::*;

/// The number of units.
const UNITS: u64 = 10;

// Case 153.
#[tokio::test]
async fn what_a_replaced_primary_still_admits_reaches_nobody() {
    let replicated = Replicated::start_impatient().await;
    let [old, new] = &replicated.servers;
    let pool = Pool::connect(&replicated.url()).unwrap();
    let quota = Quota::new(UNITS, Duration::from_secs(365 * 86_400));
    let limiter = Redis::new("left", FixedWindow::new(quota), pool).decision_timeout(LONG);
    let _ = limiter.check(&one().cost(0)).await.expect("a decision");

    old.signal("STOP");
    let ask = || {
        let limiter = limiter.clone();
        async move { limiter.check(&one()).await }
    };
    let mut sent: JoinSet<_> = (0..5).map(|_| ask()).collect();
    until_named(&replicated, new.port()).await;
    let mut admitted = 0;
    eventually("the new primary has admitted all", async || {
        match ask().await {
            Ok(decision) if decision.is_admitted() => admitted += 1,
            Ok(_) => return true,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Infrastructure, "{error:?}"),
        }
        false
    })
    .await;
    old.signal("CONT");
    let (mut late, mut kinds) = (0, Vec::new());
    while let Some(answer) = sent.join_next().await {
        match answer.expect("no panic") {
            Ok(decision) => late += u64::from(decision.is_admitted()),
            Err(error) => kinds.push((error.kind(), chain(&error))),
        }
    }
    println!("fault case=153 sentinels admitted={admitted} of={UNITS} late={late} {kinds:?}");
    assert_eq!((admitted, late), (UNITS, 0));
    assert!(kinds.iter().all(|(kind, _)| *kind == ErrorKind::Infrastructure), "{kinds:?}");
    let named = format!("redis at 127.0.0.1:{} was left", old.port());
    assert!(kinds.iter().all(|(_, text)| text.contains(&named)), "{kinds:?}");
}
