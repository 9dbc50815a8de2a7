//! Connections that are lost, silent, demoted or never finished: when they are replaced, how often,
//! and by which runtime.

use super::*;

use support::faults::*;

// Case 141.
#[tokio::test]
async fn pauses_longer_than_the_deadline_replace_no_connection() {
    let server = Server::start();
    let limiter = yearly(&server.url()).decision_timeout(Duration::from_millis(20));
    until_well(&limiter).await;
    let mut connection = server.connection().await;
    let load = Load::on(&limiter, 8);
    let before = figure(&mut connection, RECEIVED).await;
    let mut stalls = 0;
    for _ in 0..100 {
        let begun = Instant::now();
        run(&mut connection, &["CLIENT", "PAUSE", "24", "ALL"]).await;
        // Answered when the pause is over.
        figure(&mut connection, RECEIVED).await;
        sleep(Duration::from_millis(5)).await;
        // A machine that is too busy makes a pause as long as a silence.
        stalls += begun.elapsed().as_millis() as u64 / 200;
    }
    let replaced = figure(&mut connection, RECEIVED).await - before;
    load.stop().await;
    println!("fault case=141 pauses=100 replaced={replaced} stalls={stalls}");
    assert!(replaced <= 2 * stalls, "{replaced} in {stalls} stalls");
}

// Cases 22, 23 and 140.
#[tokio::test]
async fn a_demoted_primary_is_infrastructure_and_reconnected_to_with_pauses() {
    let server = Server::start();
    let limiter = yearly(&server.url());
    until_well(&limiter).await;
    let mut connection = server.connection().await;
    let old = others(&mut connection).await;
    let load = Load::on(&limiter, 8);
    run(&mut connection, &["REPLICAOF", "127.0.0.1", &NOWHERE.to_string()]).await;
    until(&limiter, ErrorKind::Infrastructure).await;
    let (before, begun) = (figure(&mut connection, RECEIVED).await, Instant::now());
    let patient = limiter.clone().decision_timeout(LONG);
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(trouble(&patient, &one()).await.kind(), ErrorKind::Infrastructure);
        sleep(Duration::from_millis(5)).await;
    }
    let kept = others(&mut connection).await.into_iter().filter(|id| old.contains(id)).count();
    assert_eq!(kept, 0, "it stays connected to a replica");
    let connects = figure(&mut connection, RECEIVED).await - before;
    let seconds = begun.elapsed().as_secs_f64();
    run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
    let back = until_well(&limiter).await;
    load.stop().await;
    println!(
        "fault case=140 connects={connects} seconds={seconds:.1} back_ms={}",
        back.as_millis()
    );
    assert!(connects as f64 <= 10.0 * seconds, "{connects} in {seconds} s");
    assert!(back < Duration::from_secs(1) + SLACK, "{back:?}");
}
