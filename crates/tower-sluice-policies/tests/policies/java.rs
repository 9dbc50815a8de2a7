//! Policies of Redisson, over a real server and in this process: each keeps to the keys that Java
//! knows.

use tokio::time::{Instant, sleep};
use tower_sluice::{LimiterExt, Pool, Refusal};

use super::over_redis::PATIENT;
use super::*;

use support::Server;
use support::faults::eventually;

#[tokio::test]
async fn javas_limiter_keeps_to_its_own_keys() {
    let server = Server::for_redisson();
    // Of both kinds of limiters.
    let pool = Pool::connect(&server.admin_url()).unwrap();
    let policies = Policies::builder()
        .redis(pool)
        .decision_timeout(PATIENT)
        .build(&rows(
            "{ name = 'orders', algorithm = 'redisson', limit = 5, period = '1h' },
             { name = 'users', algorithm = 'redisson', limit = 2, period = '1h', \
               key = 'header:x-user', match = '/u' },
             { name = 'mine', limit = 3, period = '1h', match = '/m' },",
        ))
        .unwrap();
    assert_eq!(burst(&policies, &request("GET", "/m", &[]), 4).await, (3, vec![], 1));
    let orders = policies.get("orders").unwrap();
    let mut connection = server.connection().await;
    // The refund of the fourth is on its way.
    let left = async || orders.peek(&["global"]).await.unwrap().remaining();
    eventually("the refund", async || left().await == Some(2)).await;
    let exists: bool =
        redis::cmd("EXISTS").arg("orders").query_async(&mut connection).await.unwrap();
    assert!(exists);
    assert_eq!(
        burst(&policies, &request("GET", "/u", &["x-user: {a}b{"]), 3).await,
        (2, vec![], 1)
    );
    assert_eq!(orders.peek(&["global"]).await.unwrap().remaining(), Some(0));

    // Fields and metrics name the policy, not the algorithm.
    assert_eq!(orders.reset(&["global"]).await.unwrap().limiter(), Some("orders"));
    let both = decide(&policies, &request("GET", "/u", &["x-user: bob"])).await;
    let names: Vec<_> = both.policies().map(|policy| policy.name().to_owned()).collect();
    assert_eq!(names, ["orders", "users"]);
    assert_eq!(orders.penalize(&["global"], 3).await.unwrap().remaining(), Some(1));
    assert_eq!(orders.penalize(&["global"], 3).await.unwrap().remaining(), Some(0));
}

/// `global` is a name that a host can have.
#[tokio::test]
async fn only_the_key_of_all_requests_is_javas_limiter_of_the_policys_name() {
    let server = Server::for_redisson();
    let pool = Pool::connect(&server.admin_url()).unwrap();
    let table = "[[policy]]\nname = 'orders'\nalgorithm = 'redisson'\nlimit = 5\nperiod = '1h'
        key = 'host'";
    let policies = Policies::builder().redis(pool).decision_timeout(PATIENT);
    let policies = policies.build(&rows(table)).unwrap();
    let _ = decide(&policies, &request("GET", "/", &["host: global"])).await;
    let mut connection = server.connection().await;
    let exists = async |key: &str, connection: &mut _| -> bool {
        redis::cmd("EXISTS").arg(key).query_async(connection).await.unwrap()
    };
    assert!(exists("orders:global", &mut connection).await);
    assert!(!exists("orders", &mut connection).await);
}

/// Each policy's own `max_wait` ends its waits, even beside a policy with a longer one.
#[tokio::test(start_paused = true)]
async fn javas_limiter_waits_no_longer_in_all_than_its_row_allows() {
    let policies = super::policies(
        "{ name = 'java', algorithm = 'redisson', limit = 2, cost = 2, period = '800ms', \
           max_wait = '1s' },
         { name = 'patient', limit = 100, period = '1s', max_wait = '1m' },",
    );
    let java = policies.get("java").unwrap();
    let begun = Instant::now();
    java.penalize(&["global"], 1).await.unwrap();
    let waiter = policies.acquire(charge(&policies, &request("GET", "/", &[])));
    let competitor = async {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(java.penalize(&["global"], 1).await.unwrap().remaining(), Some(0));
    };
    let (_, refused) = tokio::join!(competitor, waiter);
    assert!(matches!(refused, Err(Refusal::Denied(_))), "{refused:?}");
    assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A meter of events counts such a request as delayed.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_request_that_asked_again_has_its_wait() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let waits = Arc::clone(&seen);
    let policies = Policies::builder().on_decision(move |event| {
        waits.lock().unwrap().push(event.decision().unwrap().waited());
    });
    let table =
        "{ name = 'java', algorithm = 'redisson', limit = 1, period = '1s', max_wait = '2s' }";
    let policies = policies.build(&rows(table)).unwrap();
    for _ in 0..2 {
        policies.acquire(charge(&policies, &request("GET", "/", &[]))).await.unwrap();
    }
    let seen = seen.lock().unwrap();
    let second = Duration::from_secs(1);
    assert!(matches!(seen[..], [Duration::ZERO, waited] if waited >= second), "{seen:?}");
}

/// A grant has fewer permits than a limit may have.
#[test]
fn a_cost_that_no_grant_has_is_an_error_of_its_row() {
    let row = "name = 'java'\nalgorithm = 'redisson'\nlimit = 10000000000\nperiod = '1s'\n";
    let build =
        |cost: u64| Policies::builder().build(&rows(&format!("[[policy]]\n{row}cost = {cost}")));
    assert!(build(u32::MAX.into()).is_ok());
    assert_eq!(build(1 << 32).unwrap_err().rows()[0].field(), Some("cost"));
}
