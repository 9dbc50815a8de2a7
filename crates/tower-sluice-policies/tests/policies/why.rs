//! While the store is away, decisions and events say why something else decides.

use tower_sluice::Pool;

use super::*;

use support::NOWHERE;

/// A policy of each kind that goes on, alone and with others.
const GO_ON: &str = "{ name = 'open', limit = 5, period = '1h', on_error = 'allow', \
       match = { path = ['/open', '/both'] } },
     { name = 'share', limit = 5, period = '1h', on_error = { local = 2 }, \
       match = { path = ['/share', '/both', '/shares'] } },
     { name = 'other', limit = 5, period = '1h', on_error = { local = 9 }, \
       match = { path = ['/shares'] } },";

/// A pool of a port that nobody listens to.
fn away() -> Pool {
    Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).expect("an address")
}

#[tokio::test]
async fn a_decision_keeps_the_error_that_on_error_stands_in_for() {
    for (path, origin) in [
        ("/open", Origin::FailOpen),
        ("/share", Origin::Local),
        ("/shares", Origin::Local),
        // One decided, so it did not fail open.
        ("/both", Origin::Local),
    ] {
        let policies = Policies::builder().redis(away()).build(&rows(GO_ON)).unwrap();
        let call = request("GET", path, &[]);
        for attempt in 0..3 {
            let decision = decide(&policies, &call).await;
            assert_eq!(decision.origin(), origin, "{path}");
            assert_eq!(decision.is_admitted(), path == "/open" || attempt < 2, "{path}");
            let cause = decision.fallback_cause().map(tower_sluice::Error::kind);
            assert_eq!(cause, Some(ErrorKind::Infrastructure), "{path}");
        }
    }
}

#[tokio::test]
async fn an_event_says_why_something_else_decided() {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let policies = Policies::builder().redis(away()).on_decision(move |event| {
        let admits = matches!(event.result, Ok(Outcome::Allow));
        let cause = event.cause.map(tower_sluice::Error::kind);
        let decision = event.decision().unwrap();
        assert_eq!(decision.fallback_cause().map(tower_sluice::Error::kind), cause);
        let name = event.policy.name().to_owned();
        sink.lock().unwrap().push((name, admits, event.origin, cause));
    });
    let policies = policies.build(&rows(GO_ON)).unwrap();
    let why = Some(ErrorKind::Infrastructure);
    let told = async |path| {
        let _ = decide(&policies, &request("GET", path, &[])).await;
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let open = || ("open".to_owned(), true, Some(Origin::FailOpen), why);
    let share = |admits| ("share".to_owned(), admits, Some(Origin::Local), why);
    assert_eq!(told("/open").await, [open()]);
    assert_eq!(told("/both").await, [open(), share(true)]);
    assert_eq!(told("/share").await, [share(true)]);
    // Nothing was taken under the one that would have admitted.
    assert_eq!(told("/both").await, [share(false)]);
    assert_eq!(told("/shares").await, [share(false)]);
}
