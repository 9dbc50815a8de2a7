//! Units that policies took in turn are given back before a refusal is reported.

use super::*;

/// Name and units left of each policy in the report of a decision.
fn left(decision: &tower_sluice::Decision) -> Vec<(String, Option<u64>)> {
    decision.policies().map(|one| (one.name().to_owned(), one.remaining())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_turn_reports_what_was_given_back_as_left() {
    let policies = twelve();
    let call = request("GET", "/", &[]);
    assert_eq!(burst(&policies, &call, 9).await, (9, vec![], 0));
    let refused = decide(&policies, &call).await;
    let expected: Vec<_> =
        (0..12).map(|number| (format!("p{number}"), Some(11 - number))).collect();
    assert_eq!(left(&refused), expected);
    assert_eq!(refused.limiter(), Some("p11"));
    // All or nothing, though they are more than one decision takes.
    assert_eq!(super::left(&policies, "p0", "global").await, 11);
    assert_eq!(super::left(&policies, "p11", "global").await, 0);
}

#[cfg(feature = "redisson")]
#[tokio::test(start_paused = true)]
async fn javas_limiter_reports_what_it_gave_back_and_rows_keep_their_order() {
    let policies = policies(
        "{ name = 'mine', limit = 1, period = '1h' },
         { name = 'java', algorithm = 'redisson', limit = 5, period = '1h' },",
    );
    let call = request("GET", "/", &[]);
    let told = |mine, java| [("mine".to_owned(), Some(mine)), ("java".to_owned(), Some(java))];
    assert_eq!(left(&decide(&policies, &call).await), told(0, 4));
    assert_eq!(left(&decide(&policies, &call).await), told(0, 4));
}

#[cfg(feature = "redisson")]
#[tokio::test]
async fn javas_limiter_in_redis_is_called_as_its_policy() {
    use tower_sluice::Pool;

    use support::Server;

    let server = Server::for_redisson();
    let pool = Pool::connect(&server.admin_url()).unwrap();
    let denied: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&denied);
    let table = rows(
        "{ name = 'java', algorithm = 'redisson', limit = 5, period = '1h' },
         { name = 'other', algorithm = 'redisson', limit = 5, period = '1h', key = 'path' },
         { name = 'mine', limit = 1, period = '1h' },",
    );
    let policies = Policies::builder()
        .redis(pool)
        .decision_timeout(Duration::from_secs(20))
        .on_decision(move |event| {
            if let Ok(Outcome::Deny { .. }) = event.result {
                sink.lock().unwrap().push(event.policy.name().to_owned());
            }
        })
        .build(&table)
        .unwrap();
    let call = request("GET", "/", &[]);
    let told = |java| ["java", "other", "mine"].map(String::from).into_iter().zip(java);
    let first = decide(&policies, &call).await;
    assert_eq!(left(&first), told([Some(4), Some(4), Some(0)]).collect::<Vec<_>>());
    let refused = decide(&policies, &call).await;
    assert_eq!(left(&refused), told([Some(4), Some(4), Some(0)]).collect::<Vec<_>>());
    // What admitted and gave back is not blamed.
    assert_eq!(*denied.lock().unwrap(), ["mine"]);
}
