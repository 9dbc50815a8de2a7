//! The primary that sentinels name: found, and followed through failovers under load.

use crate::*;

use support::faults::*;
use support::sentinel::Replicated;

// Case 46.
#[tokio::test]
async fn a_primary_without_sentinels_decides_on() {
    let mut replicated = Replicated::start().await;
    let limiter = yearly(&replicated.url());
    until_well(&limiter).await;
    replicated.sentinels.iter_mut().for_each(Sentinel::kill);
    let patient = limiter.clone().decision_timeout(LONG);
    let mut connection = replicated.servers[0].connection().await;
    for _ in 0..3 {
        cut(&mut connection).await;
        until_well(&limiter).await;
        let (begun, mut errors) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(500) {
            errors += u64::from(patient.check(&one()).await.is_err());
            sleep(Duration::from_millis(5)).await;
        }
        assert!(errors <= 1, "{errors} errors over one connection");
        assert!(!others(&mut connection).await.is_empty(), "it is not connected");
    }
}

/// Asks from many tasks until `is_enough` holds for the number of units that were admitted, and for
/// that of refusals. Returns the units.
async fn admitted(limiter: &Yearly, is_enough: fn(u64, u64) -> bool) -> u64 {
    let (begun, counts) = (Instant::now(), Arc::new([const { AtomicU64::new(0) }; 2]));
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        let (limiter, counts) = (limiter.clone(), Arc::clone(&counts));
        callers.spawn(async move {
            while !is_enough(counts[0].load(Relaxed), counts[1].load(Relaxed)) {
                assert!(begun.elapsed() < LONG, "{counts:?}");
                match limiter.check(&one()).await {
                    Ok(decision) => {
                        counts[usize::from(!decision.is_admitted())].fetch_add(1, Relaxed)
                    }
                    Err(_) => 0,
                };
            }
        });
    }
    callers.join_all().await;
    counts[0].load(Relaxed)
}

// Case 46.
#[tokio::test]
async fn a_killed_primary_is_replaced_and_only_lost_writes_are_admitted_twice() {
    const LIMIT: u64 = 4_000;
    let mut replicated = Replicated::start_impatient().await;
    let pool = Pool::connect(&replicated.url()).unwrap();
    let quota = Quota::new(LIMIT, Duration::from_secs(365 * 86_400));
    let counted = Redis::new("counted", FixedWindow::new(quota), pool.clone());
    let (counted, limiter) = (counted.decision_timeout(D), over(pool));
    until_well(&limiter).await;
    let load = Load::on(&limiter, 8);
    let before = admitted(&counted, |admitted, _| admitted >= LIMIT / 2).await;
    replicated.servers[0].kill();
    let named = format!(" port {} ", replicated.servers[1].port());
    replicated.sentinels[0].until(|fields| fields.contains(&named)).await;
    let switched = Instant::now();
    for sentinel in &replicated.sentinels {
        sentinel.until(|fields| fields.contains(&named)).await;
    }
    until_well(&limiter).await;
    let back = switched.elapsed();
    load.stop().await;
    // What the promoted replica has.
    let kept = LIMIT - counted.peek("key").await.expect("a decision").remaining().expect("known");
    let lost = before.saturating_sub(kept);
    let total = before + admitted(&counted, |_, refused| refused >= 100).await;
    let over = total.saturating_sub(LIMIT + lost);
    println!("sentinel back_after_switch_ms={} lost={lost} over={over}", back.as_millis());
    assert_eq!(over, 0);
    assert!(back < Duration::from_secs(2) + SLACK, "{back:?}");
}
