//! What each row does while no server answers.

use tower_sluice::policy::Policies;
use tower_sluice::{ErrorKind, Origin, Pool};

use super::over_redis::PATIENT;
use super::support::NOWHERE;
use super::{burst, check, decide, request, rows};

const ON_ERROR: &str = "
    [[policy]]
    name = 'deny'
    limit = 5
    period = '1h'
    match = { path = ['/deny', '/both'] }

    [[policy]]
    name = 'allow'
    limit = 5
    period = '1h'
    on_error = 'allow'
    match = { path = ['/allow', '/both', '/share'] }

    [[policy]]
    name = 'local'
    limit = 5
    period = '1h'
    key = 'header:x-user'
    on_error = { local = 2 }
    match = { path = ['/local', '/share'] }

    [[policy]]
    name = 'watched'
    limit = 5
    period = '1h'
    shadow = true
    match = '/shadow'
";

#[tokio::test]
async fn while_the_store_is_away_each_row_says_what_happens() {
    let url = format!("redis://127.0.0.1:{NOWHERE}");
    let pool = Pool::connect(&url).unwrap();
    let policies = Policies::builder().redis(pool).build(&rows(ON_ERROR)).unwrap();
    let call = |path: &str, user: &str| request("GET", path, &[&format!("x-user: {user}")]);
    for path in ["/deny", "/both"] {
        let error = check(&policies, &call(path, "a")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Infrastructure, "{path}");
    }
    let open = decide(&policies, &call("/allow", "a")).await;
    assert_eq!((open.is_admitted(), open.origin()), (true, Origin::FailOpen));
    for user in ["a", "b"] {
        assert_eq!(burst(&policies, &call("/local", user), 4).await, (2, vec![], 2), "{user}");
    }
    // The share is one for all requests of the key.
    assert!(!decide(&policies, &call("/share", "a")).await.is_admitted());
    assert!(decide(&policies, &call("/share", "c")).await.is_admitted());
    let watched = decide(&policies, &call("/shadow", "a")).await;
    assert_eq!((watched.is_admitted(), watched.origin()), (true, Origin::Shadow));
    // The settings hold in any order.
    for settings in [
        |pool| Policies::builder().max_keys(1).decision_timeout(PATIENT).redis(pool),
        |pool| Policies::builder().redis(pool).max_keys(1).decision_timeout(PATIENT),
    ] {
        let small = settings(Pool::connect(&url).unwrap()).build(&rows(ON_ERROR)).unwrap();
        decide(&small, &call("/local", "a")).await;
        let error = check(&small, &call("/local", "b")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
    }
    // A table may change meanwhile, and the share is kept.
    policies.load(&rows(&ON_ERROR.replace("limit = 5", "limit = 6"))).unwrap();
    assert!(!decide(&policies, &call("/local", "a")).await.is_admitted());
}
