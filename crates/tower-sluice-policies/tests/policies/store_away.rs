//! The decisions of each row while no server answers.

use std::sync::atomic::AtomicUsize;

use tokio::time::{Instant, timeout};
use tower_sluice::{LimiterExt, Pool};

use super::over_redis::PATIENT;
use super::*;

use support::proxy::{Fault, Proxy};
use support::{NOWHERE, Server};

const ON_ERROR: &str =
    "{ name = 'deny', limit = 5, period = '1h', match = { path = ['/deny', '/both'] } },
     { name = 'allow', limit = 5, period = '1h', on_error = 'allow', \
       match = { path = ['/allow', '/both', '/share'] } },
     { name = 'local', limit = 5, period = '1h', key = 'header:x-user', \
       on_error = { local = 2 }, match = { path = ['/local', '/share'] } },
     { name = 'watched', limit = 5, period = '1h', shadow = true, match = '/shadow' },";

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
        let _ = decide(&small, &call("/local", "a")).await;
        let error = check(&small, &call("/local", "b")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
    }
    // A table may change meanwhile, and the share is kept.
    policies.load(&rows(&ON_ERROR.replace("limit = 5", "limit = 6"))).unwrap();
    assert!(!decide(&policies, &call("/local", "a")).await.is_admitted());
}

/// The policy would admit it, and so it must not be told that it never passes.
#[tokio::test]
async fn a_request_that_costs_more_than_a_share_is_undecided() {
    let table = "[[policy]]\nname = 'a'\nlimit = 100\nperiod = '1h'\n\
                 cost = 'content_length_kb'\non_error = { local = 5 }";
    let pool = Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).unwrap();
    let policies = Policies::builder().redis(pool).build(&rows(table)).unwrap();
    let call = |bytes: u32| request("GET", "/", &[&format!("content-length: {bytes}")]);
    let error = check(&policies, &call(6 * 1_024)).await.unwrap().unwrap_err();
    // `FailOpen` must not admit what a caller can cause by a length.
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(decide(&policies, &call(5 * 1_024)).await.is_admitted());
    assert!(decide(&policies, &call(1_024)).await.retry_after().is_some());
}

/// While the store is away, a waiter that leaves passes its slot on, as it does otherwise.
#[tokio::test]
async fn shares_that_decide_together_let_waiters_move_up() {
    let row = |name: &str| {
        format!(
            "[[policy]]\nname = '{name}'\nlimit = 1\nperiod = '1s'\nmax_wait = '20s'\n\
             on_error = {{ local = 1 }}\n"
        )
    };
    let pool = Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).unwrap();
    let policies = Policies::builder().redis(pool);
    let policies = policies.build(&rows(&["one", "other"].map(row).concat())).unwrap();
    let call = request("GET", "/", &[]);
    let charge = charge(&policies, &call);
    assert!(decide(&policies, &call).await.is_admitted());
    let begun = Instant::now();
    let mut waiters = [(); 5].map(|()| {
        let (policies, charge) = (policies.clone(), charge.clone());
        Box::pin(async move { policies.acquire(charge).await })
    });
    // Each waits a second longer than the one before it, once the store has not decided.
    for waiter in &mut waiters {
        assert!(timeout(Duration::from_millis(200), waiter).await.is_err());
    }
    let [first, left @ .., last] = waiters;
    drop((first, left));
    last.await.expect("its turn");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A share of this process answers for a store that is full, and `allow` admits nothing.
// Case 118.
#[tokio::test]
async fn of_a_full_store_a_share_decides_and_allow_does_not_admit() {
    let server = Server::with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let policies = Policies::builder().decision_timeout(PATIENT).redis(server.pool());
    let policies = policies.build(&rows(ON_ERROR)).unwrap();
    let call = |path| request("GET", path, &["x-user: a"]);
    for path in ["/deny", "/both", "/allow"] {
        let error = check(&policies, &call(path)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity, "{path}");
    }
    assert_eq!(burst(&policies, &call("/local"), 4).await, (2, vec![], 2));
}

/// Two calls do not fit into the time for a decision. The only server answers the first.
// Case 133.
#[tokio::test]
async fn a_late_reply_to_the_last_policies_of_many_never_fails_open() {
    const LATE: Duration = Duration::from_millis(100);
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let row = |number: u32| {
        format!("[[policy]]\nname = 'p{number}'\nlimit = 100\nperiod = '1h'\non_error = 'allow'\n")
    };
    let pool = Pool::connect(&proxy.url()).unwrap();
    let policies = Policies::builder().redis(pool).decision_timeout(PATIENT);
    let policies = policies.build(&rows(&(0..12).map(row).collect::<String>())).unwrap();
    let call = request("GET", "/", &[]);
    assert!(decide(&policies, &call).await.is_admitted());
    proxy.set(Fault::Delay(LATE));
    let charge = charge(&policies, &call);
    // The time ends in the first call or in the second, after all peeks were answered.
    for time in [LATE * 8 / 5, LATE * 5 / 2] {
        let error = policies.clone().timeout(time).check(&charge).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Saturation, "{time:?}");
    }
}

/// Policies of several hash slots have one time together. One call answers within it, and two do
/// not: those of two policies in force, or of one in force and one in a shadow.
#[tokio::test]
async fn policies_in_turn_share_one_deadline() {
    const LATE: Duration = Duration::from_millis(200);
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let row = |name: &str, more: &str| {
        let key = format!("limit = 90\nperiod = '1h'\nkey = 'header:{name}'\n{more}\n");
        format!("[[policy]]\nname = '{name}'\n{key}")
    };
    let in_force = rows(&[row("a", ""), row("b", "")].concat());
    let with_shadow = rows(&[row("a", ""), row("b", "shadow = true")].concat());
    let call = request("GET", "/", &["a: one", "b: other"]);
    let pool = Pool::connect(&proxy.url()).unwrap().by_hash_slot();
    let undecided = Arc::new(AtomicUsize::new(0));
    let policies = |rows, timeout| {
        let count = Arc::clone(&undecided);
        let builder = Policies::builder().redis(pool.clone()).decision_timeout(timeout);
        let builder = builder.on_decision(move |event| {
            count.fetch_add(usize::from(event.in_shadow && event.result.is_err()), Relaxed);
        });
        builder.build(rows).unwrap()
    };
    for rows in [&in_force, &with_shadow] {
        assert!(decide(&policies(rows, PATIENT), &call).await.is_admitted());
    }
    proxy.set(Fault::Delay(LATE));
    let late = check(&policies(&in_force, LATE * 8 / 5), &call).await.unwrap();
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Saturation);
    assert!(decide(&policies(&with_shadow, LATE * 8 / 5), &call).await.is_admitted());
    assert_eq!(undecided.load(Relaxed), 1);
}
