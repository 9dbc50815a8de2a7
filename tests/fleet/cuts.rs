//! Charges over a cluster whose connections are cut every 50 ms: none is counted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_sluice::{Charge, ErrorKind, Limiter, LimiterExt, Pool};

use crate::server;
use crate::worker::counter;
use support::cluster::Cluster;
use support::faults::{LONG, MILLION, size};

const TASKS: u64 = 256;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts() {
    let charges = size("FLEET_CHARGES", MILLION);
    let cluster = Cluster::start().await;
    let mut killers = JoinSet::new();
    for master in 0..3 {
        let mut connection = cluster.connection(master).await;
        killers.spawn(async move {
            loop {
                let mut kill = cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
                let cut = kill.query_async::<u64>(&mut connection).await.expect("cut");
                CUTS.fetch_add(cut, Relaxed);
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    let limiter = counter(Pool::connect(&cluster.url()).expect("an address"));
    let (next, errors) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (limiter, next, errors) = (limiter.clone(), Arc::clone(&next), Arc::clone(&errors));
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= charges {
                    return admitted;
                }
                match limiter.check(&Charge::new(number.to_string())).await {
                    Ok(_) => admitted.push(number),
                    Err(error) => {
                        let is_expected = [ErrorKind::Infrastructure, ErrorKind::Saturation]
                            .contains(&error.kind());
                        assert!(is_expected, "{error:?}");
                        errors.fetch_add(1, Relaxed);
                    }
                }
            }
        });
    }
    let admitted = tasks.join_all().await.concat();
    killers.abort_all();
    while let Some(ended) = killers.join_next().await {
        assert!(ended.is_err_and(|why| why.is_cancelled()), "nobody cut connections any more");
    }
    let mut was_admitted = vec![false; charges as usize];
    for number in admitted {
        was_admitted[number as usize] = true;
    }

    let limiter = counter(Pool::connect(&cluster.url()).expect("an address"));
    let limiter = limiter.decision_timeout(LONG);
    let (mut twice, mut lost, mut unknown) = (0, 0, 0);
    let numbers: Vec<_> = (0..charges).collect();
    for chunk in numbers.chunks(500) {
        let mut peeks = JoinSet::new();
        for number in chunk {
            let (limiter, number) = (limiter.clone(), *number);
            peeks.spawn(async move {
                let left = limiter.peek(number.to_string()).await.expect("a decision").remaining();
                (number, MILLION * MILLION - left.expect("known"))
            });
        }
        for (number, taken) in peeks.join_all().await {
            let was_admitted = was_admitted[number as usize];
            twice += u64::from(taken > 1);
            lost += u64::from(was_admitted && taken == 0);
            unknown += u64::from(!was_admitted && taken == 1);
        }
    }
    println!(
        "fleet name=cuts server={} charges={charges} twice={twice} lost={lost} \
         counted_without_an_answer={unknown} cut_connections={} over={twice} errors={}",
        server(),
        CUTS.load(Relaxed),
        errors.load(Relaxed),
    );
    assert_eq!((twice, lost), (0, 0));
    // Else nothing was put to the test.
    assert!(CUTS.load(Relaxed) > charges / 10_000, "connections were seldom cut");
    assert!(errors.load(Relaxed) > 0, "no call was on its way when a connection was cut");
}

/// The connections that were cut.
static CUTS: AtomicU64 = AtomicU64::new(0);
