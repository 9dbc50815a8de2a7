//! Costs that a header of the request states.

use super::*;

fn priced(cost: &str) -> Policies {
    let row = format!(
        "{{ name = 'p', algorithm = 'fixed_window', limit = 100, period = '1h', cost = {cost} }}"
    );
    policies(&row)
}

#[tokio::test(start_paused = true)]
async fn a_header_states_the_cost_of_a_request() {
    for cost in ["'request_header:x-cost'", "{ request_header = 'x-cost', default = 7 }"] {
        let policies = priced(cost);
        let call = request("GET", "/", &["x-cost:  30 "]);
        assert_eq!(decide(&policies, &call).await.remaining(), Some(70));
        assert_eq!(decide(&policies, &call).await.remaining(), Some(40));
        // More than any limit: it never passes.
        for units in ["101", "9007199254740993", "99999999999999999999999"] {
            let call = request("GET", "/", &[&format!("x-cost: {units}")]);
            let refused = decide(&policies, &call).await;
            assert_eq!(refused.outcome(), Outcome::Deny { retry_after: None }, "{units}");
        }
        assert_eq!(left(&policies, "p", "global").await, 40);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_valid_cost_is_refused_or_pays_the_default() {
    let (strict, with_default) =
        (priced("'request_header:x-cost'"), priced("{ request_header = 'x-cost', default = 7 }"));
    let wrong: [&[&str]; 9] = [
        &[],
        &["x-cost: "],
        &["x-cost: 0"],
        &["x-cost: -1"],
        &["x-cost: +1"],
        &["x-cost: 1.5"],
        &["x-cost: 0x10"],
        &["x-cost: many"],
        &["x-cost: 1", "x-cost: 2"],
    ];
    for (headers, count) in wrong.into_iter().zip(1..) {
        let call = request("GET", "/", headers);
        match strict.charge(Head::from(&call)) {
            Keyed::Missing(why) => {
                assert_eq!(why.to_string(), "request has no valid cost in the header `x-cost`");
                assert_eq!(why.kind(), ErrorKind::Request);
            }
            other => panic!("{headers:?}: {other:?}"),
        }
        let decision = decide(&with_default, &call).await;
        assert_eq!(decision.remaining(), Some(100 - 7 * count), "{headers:?}");
    }
    assert_eq!(left(&strict, "p", "global").await, 100);
}

#[test]
fn a_wrong_cost_says_why() {
    for (cost, why) in [
        ("'request_header:'", "is not a header name"),
        ("'request_header:a b'", "is not a header name"),
        ("'header:x-cost'", "is not a cost"),
        ("{ request_header = 'x-cost' }", "is not a cost"),
        ("{ request_header = 'x-cost', default = 1, most = 2 }", "is not a cost"),
        ("{ request_header = 'x-cost', default = 0 }", "at least 1"),
        ("{ request_header = 'x-cost', default = '7' }", "is not a number"),
    ] {
        let row = format!("{{ name = 'p', limit = 9, period = '1h', cost = {cost} }}");
        let error = Policies::builder().build(&rows(&row)).unwrap_err().to_string();
        assert!(error.contains("cost: ") && error.contains(why), "{cost}: {error}");
    }
}
