//! Rows of `concurrency`: requests at the same time.

use axum::body::{Body, to_bytes};
use http::Response;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_sluice::Pool;
use tower_sluice::respond::WithBody;

use super::*;

use support::NOWHERE;

const AT_ONCE: &str =
    "[[policy]]\nname = 'at-once'\nalgorithm = 'concurrency'\nlimit = 2\nmax_hold = '3s'\n";

/// A request counts for as long as its body runs, alone, beside another row and in a shadow.
#[tokio::test(start_paused = true)]
async fn a_request_counts_until_its_body_has_ended() {
    let bucket = "[[policy]]\nname = 'bucket'\nlimit = 100\nperiod = '10000h'\n";
    for (table, refuses) in [
        (AT_ONCE.to_owned(), true),
        (format!("{AT_ONCE}{bucket}"), true),
        (format!("{AT_ONCE}shadow = true\n{bucket}"), false),
    ] {
        let policies = policies(&table);
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, BoxError>(Response::new(Body::from("hello")))
        });
        let service = policies.layer().settle_later(WithBody).layer(inner);
        let ask = async || service.clone().oneshot(request("GET", "/", &[])).await.unwrap();
        let (first, second) = (ask().await, ask().await);
        let third = ask().await;
        assert_eq!(third.status(), if refuses { 429 } else { 200 }, "{table}");
        drop(third);
        // What runs is renewed.
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(left(&policies, "at-once", "global").await, 0, "{table}");
        drop(first);
        assert_eq!(left(&policies, "at-once", "global").await, 1, "{table}");
        let body = to_bytes(Body::new(second.into_body()), 10).await.unwrap();
        assert_eq!(body, "hello");
        assert_eq!(left(&policies, "at-once", "global").await, 2, "{table}");
        if table.contains("bucket") {
            // A refused request takes nothing of other rows.
            let taken = if refuses { 2 } else { 3 };
            assert_eq!(left(&policies, "bucket", "global").await, 100 - taken, "{table}");
        }
    }
}

/// A policy of requests at the same time has no period, and serializes without one.
#[test]
fn a_row_at_once_has_no_period() {
    let all = policies(AT_ONCE).policies();
    let policy = all[0].policy();
    assert_eq!(policy.quota(), tower_sluice::Quota::at_once(2));
    let row = serde_json::to_value(policy).expect("a value");
    assert!(row.get("period").is_none(), "{row}");
    for (fields, field) in [
        ("period = '1s'", "period"),
        ("burst = 2", "burst"),
        ("max_debt = '1s'", "max_debt"),
        ("cost = 3", "cost"),
        ("limit = -1", "limit"),
        ("limit = 2000000000000000", "limit"),
        ("max_hold = '0s'", "max_hold"),
        ("on_error = { local = 0 }", "on_error"),
    ] {
        let name = fields.split_once(' ').expect("a field").0;
        let kept: String = AT_ONCE
            .lines()
            .filter(|line| !line.starts_with(name))
            .fold(String::new(), |kept, line| kept + line + "\n");
        let error = Policies::builder().build(&rows(&(kept + fields))).expect_err(fields);
        assert_eq!(error.rows()[0].field(), Some(field), "{error}");
    }
    let none = "[[policy]]\nname = 'a'\nalgorithm = 'concurrency'\n";
    let error = Policies::builder().build(&rows(none)).expect_err("no limit");
    assert_eq!(error.rows()[0].field(), Some("limit"), "{error}");
}

/// While the store is away, a local share is a number at the same time, too.
#[tokio::test]
async fn a_share_of_a_process_counts_at_once() {
    let pool = Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).unwrap();
    let table = format!("{AT_ONCE}on_error = {{ local = 1 }}");
    let policies = Policies::builder().redis(pool).build(&rows(&table)).unwrap();
    let call = request("GET", "/", &[]);
    let first = decide(&policies, &call).await.into_reservation().expect("it holds a unit");
    assert!(!decide(&policies, &call).await.is_admitted());
    policies.settle(first, 1).expect("its own").await.unwrap();
    assert!(decide(&policies, &call).await.is_admitted());
}
