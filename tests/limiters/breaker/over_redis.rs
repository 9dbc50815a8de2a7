//! A real server that stops and goes on, under load.

use super::*;
use support::faults::{D, SLACK, in_time, until_decided, yearly};

// Cases 7 to 9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_left_and_found_again() {
    let server = Server::start();
    let redis = yearly(&server.url());
    until_decided(&redis, ErrorKind::Infrastructure).await;
    let breaker = Breaker::new();
    let limiter = redis.breaker(breaker.clone()).or_else(FailOpen);
    // Sixteen callers ask until it is so. A machine that is too busy causes saturation, which
    // admits nobody. Each is answered by its deadline.
    let ask_until = async |is_so: &(dyn Fn() -> bool + Sync)| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "{breaker:?}");
            let mut callers = JoinSet::new();
            for _ in 0..16 {
                let answer = limiter.check(&one());
                callers.spawn(in_time(D + SLACK, answer));
            }
            for answer in callers.join_all().await {
                assert!(
                    answer.map_or_else(|error| error.kind() == ErrorKind::Saturation, |_| true)
                );
            }
            sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    };
    server.signal("STOP");
    let open_after = ask_until(&|| breaker.state() != BreakerState::Closed).await;
    let (probes, refused) = (breaker.counts().probes, breaker.counts().refused);
    let begun = Instant::now();
    ask_until(&|| begun.elapsed() > SECOND).await;
    let probes = breaker.counts().probes - probes;
    let tenths = begun.elapsed().as_millis() / 100;
    server.signal("CONT");
    let back = ask_until(&|| breaker.state() == BreakerState::Closed).await;
    until_decided(&yearly(&server.url()), ErrorKind::Infrastructure).await;
    println!(
        "fault case=7 open_after_ms={} probes={probes} back_ms={}",
        open_after.as_millis(),
        back.as_millis()
    );
    // One in at least 100 ms, and the one that was under way.
    assert!(u128::from(probes) <= tenths + 2, "{probes} probes in {tenths} tenths of a second");
    assert!(breaker.counts().refused > refused, "{breaker:?}");
}

// Case 28.
#[tokio::test]
async fn a_full_server_opens_no_breaker() {
    let server = Server::with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let breaker = Breaker::new();
    let limiter =
        yearly(&server.url()).decision_timeout(LONG).breaker(breaker.clone()).or_else(FailOpen);
    for _ in 0..20 {
        assert_eq!(limiter.check(&one()).await.unwrap_err().kind(), ErrorKind::Capacity);
    }
    assert_eq!((breaker.state(), breaker.counts().opened), (BreakerState::Closed, 0));
}
