//! Right at the edge, with a clock of the test's own: waits are exact to the microsecond (S3), and
//! a refusal or a peek leaves nothing behind (S5).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::runtime::{Builder, Runtime};
use tower_sluice::{Charge, Outcome, Quota};

use crate::turn;
use support::trial::algorithms::{Site, chosen, pool};
use support::trial::{crew, edges, stock};
use support::{Server, expires};

const START: u64 = 1_767_225_600_000_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn refused_one_microsecond_before_the_wait_and_admitted_at_it() {
    let _turn = turn();
    // States of each algorithm in which it is asked at the edges.
    let states: usize = crew::number("ORACLE_STATES", 600);
    for algorithm in chosen().filter(|algorithm| algorithm.at_once) {
        let server = Server::with(&[]);
        edges::walk(algorithm, &server.url(), states);
        println!("oracle algorithm={} exact waits={states}", algorithm.name);
    }
}

/// The value and the deadline of every key, and the writes so far.
async fn trace_of(connection: &mut MultiplexedConnection) -> (Vec<(String, String, i64)>, usize) {
    let mut names: Vec<String> = cmd("KEYS").arg("*").query_async(connection).await.expect("names");
    names.sort();
    let mut values = Vec::new();
    for name in names {
        let value = stock::value(connection, &name).await.expect("an answer").expect("a value");
        let end = expires(connection, &name).await;
        values.push((name, value, end));
    }
    (values, stock::counted(connection).await.1)
}

// Case 59.
#[test]
fn refusal_and_peek_leave_value_and_deadline_as_they_were() {
    let _turn = turn();
    let server = Server::with(&[]);
    let pool = pool(&server.url());
    runtime().block_on(async {
        let mut connection = server.connection().await;
        let slow = Quota::new(3, Duration::from_secs(3_600));
        for algorithm in chosen() {
            for clock in [None, Some(Arc::new(AtomicU64::new(START)))] {
                let site = Site { clock, ..Site::new(pool.clone()) };
                let limiter = (algorithm.limiter)((algorithm.quota)(slow, 3), site);
                let ask = async |key: &'static str, cost| {
                    let charge = Charge::new(key).cost(cost);
                    limiter.check(&charge).await.expect("a decision").outcome()
                };
                for &taken in algorithm.openings {
                    let key = ["untouched", "begun", "", "full", "indebted"][taken as usize];
                    if taken > 0 {
                        assert_eq!(ask(key, taken).await, Outcome::Allow, "{}", algorithm.name);
                    }
                    let before = trace_of(&mut connection).await;
                    for cost in [0, 4, 3, 0, 3] {
                        if taken > 0 || cost != 3 {
                            ask(key, cost).await;
                        }
                    }
                    assert_eq!(trace_of(&mut connection).await, before, "{}", algorithm.name);
                }
                let _: () = cmd("FLUSHALL").query_async(&mut connection).await.expect("emptied");
            }
        }
    });
}
