//! Quotas by the plan of a request: a header, a cookie, or what the program finds.

use std::sync::atomic::AtomicU64;

use support::Server;
use tower_sluice::{LimiterExt, Pool};
use tower_sluice_policies::PoliciesBuilder;

use super::*;

#[derive(Clone)]
struct Plan(&'static str);

fn builder() -> PoliciesBuilder {
    Policies::builder().key("plan", |head| Some(head.extensions().get::<Plan>()?.0.to_owned()))
}

/// Windows, in which a caller with another plan has what is left of it.
const WINDOW: &str = "{ name = 'p', algorithm = 'fixed_window', limit = 2, period = '1h', \
    key = 'header:x-user', plan = 'header:x-plan', quotas = { gold = 5, free = 1 } }";

const ROW: &str = "{ name = 'p', limit = 2, period = '1h', key = 'header:x-user', \
    plan = 'header:x-plan', quotas = { gold = 5, big = { limit = 3, burst = 4 }, free = 1 } }";

fn by(user: &str, plan: &str) -> Request<()> {
    request("GET", "/", &[&format!("x-user: {user}"), &format!("x-plan: {plan}")])
}

async fn admitted(policies: &Policies, call: &Request<()>) -> u32 {
    burst(policies, call, 8).await.0
}

#[tokio::test]
async fn a_plan_has_its_quota_and_all_others_that_of_the_row() {
    let (_server, pool): (Server, Pool) = Server::pooled();
    let table = rows(ROW);
    for policies in [builder().build(&table), builder().redis(pool.clone()).build(&table)] {
        let policies = policies.unwrap();
        for (user, plan, units) in [
            ("a", "gold", 5),
            ("b", "free", 1),
            ("c", "big", 4),
            ("d", "platinum", 2),
            ("e", "Gold", 2),
            ("f", " gold ", 5),
        ] {
            assert_eq!(admitted(&policies, &by(user, plan)).await, units, "{plan}");
        }
        let none = request("GET", "/", &["x-user: g"]);
        assert_eq!(admitted(&policies, &none).await, 2);
        // Of two plans, another program may read either.
        let two = request("GET", "/", &["x-user: h", "x-plan: gold", "x-plan: gold"]);
        assert_eq!(admitted(&policies, &two).await, 2);
        let refused = decide(&policies, &by("a", "gold")).await;
        assert_eq!(refused.quota(), Some(tower_sluice::Quota::new(5, HOUR)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cookie_and_the_program_name_plans() {
    let row = |plan: &str| {
        let row = format!(
            "{{ name = 'p', algorithm = 'fixed_window', limit = 1, period = '1h', \
               plan = '{plan}', quotas = {{ gold = 3 }} }}"
        );
        builder().build(&rows(&row)).unwrap()
    };
    assert_eq!(
        admitted(&row("cookie:plan"), &request("GET", "/", &["cookie: plan=gold"])).await,
        3
    );
    let mut call = request("GET", "/", &[]);
    call.extensions_mut().insert(Plan("gold"));
    assert_eq!(admitted(&row("plan"), &call).await, 3);
    assert_eq!(admitted(&row("plan"), &request("GET", "/", &[])).await, 1);
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_has_quotas_by_plan() {
    for algorithm in [
        "budget",
        "concurrency",
        "fixed_window",
        "sliding_log",
        "sliding_window",
        "sliding_counter",
        "smooth_bursty",
    ] {
        let period = if algorithm == "concurrency" { "" } else { "period = '1h'," };
        let row = format!(
            "{{ name = 'p', algorithm = '{algorithm}', limit = 2, {period} \
               plan = 'header:x-plan', quotas = {{ gold = 5 }}, keep_free = '20%' }}"
        );
        let policies = builder().build(&rows(&row)).unwrap();
        let mut held = Vec::new();
        while held.len() < 9 {
            let decision = decide(&policies, &by("a", "gold")).await;
            if !decision.is_admitted() {
                break;
            }
            held.push(decision);
        }
        // A fifth of five is kept free. A smooth limiter lets one more go, which the next pays.
        let most = if algorithm == "smooth_bursty" { 4..=5 } else { 4..=4 };
        assert!(most.contains(&held.len()), "{algorithm}: {}", held.len());
    }
}

/// 5 units of a plan are not 5 units of the row: of a bucket of 2, they are more than all.
#[tokio::test]
async fn an_operator_counts_by_the_plan_of_a_key() {
    let (_server, pool): (Server, Pool) = Server::pooled();
    for row in [ROW, WINDOW] {
        let table = rows(row);
        for policies in [builder().build(&table), builder().redis(pool.clone()).build(&table)] {
            let policies = policies.unwrap();
            assert_eq!(admitted(&policies, &by("a", "gold")).await, 5);
            let gold = policies.get("p").unwrap().of_plan("gold");
            assert_eq!(gold.peek(&["a"]).await.unwrap().remaining(), Some(0));
            assert_eq!(gold.grant(&["a"], 3).await.unwrap().remaining(), Some(3));
            assert_eq!(gold.penalize(&["a"], 1).await.unwrap().remaining(), Some(2));
            assert_eq!(admitted(&policies, &by("a", "gold")).await, 2);
            assert_eq!(gold.reset(&["a"]).await.unwrap().remaining(), Some(5));
            let unknown = policies.get("p").unwrap().of_plan("platinum");
            assert_eq!(unknown.peek(&["a"]).await.unwrap().remaining(), Some(2));
            // The quota is that of the table in force.
            policies.load(&rows(&row.replace("gold = 5", "gold = 7"))).unwrap();
            assert_eq!(gold.peek(&["a"]).await.unwrap().remaining(), Some(7));
            policies.load(&table).unwrap();
            gold.reset(&["a"]).await.unwrap();
        }
    }
}

/// The begin of an hour, in µs.
const T0: u64 = 1_767_225_600_000_000;

/// A bucket keeps the share that is left, and a window the units that were taken.
#[tokio::test]
async fn an_empty_bucket_stays_as_empty_as_it_was_in_another_plan() {
    // What is left of 100 after 2 of 2, half an hour later, and of 2 after 50 of 100.
    for (algorithm, of_larger, later, of_smaller) in [
        ("token_bucket", 0, 50, 1),
        ("budget", 0, 50, 1),
        // It lets one more go, which the next pays.
        ("smooth_bursty", 1, 50, 1),
        ("fixed_window", 98, 98, 0),
        ("sliding_log", 98, 98, 0),
        ("sliding_window", 98, 98, 0),
        ("sliding_counter", 98, 98, 0),
    ] {
        let row = format!(
            "{{ name = 'p', algorithm = '{algorithm}', limit = 10, period = '1h', \
               key = 'header:x-user', plan = 'header:x-plan', \
               quotas = {{ gold = 100, free = 2 }} }}",
        );
        let now = Arc::new(AtomicU64::new(T0));
        let policies = builder().clock(support::clock_at(&now)).build(&rows(&row)).unwrap();
        let left = async |user: &str, plan| {
            let charge = charge(&policies, &by(user, plan)).peek();
            policies.check(&charge).await.unwrap().remaining().unwrap()
        };
        let take = async |user: &str, plan, units: u64| {
            for _ in 0..units {
                let taken = decide(&policies, &by(user, plan)).await.into_reservation();
                let settled = policies.settle(taken.expect("admitted"), 1).unwrap().await;
                settled.expect("settled");
            }
        };
        take("up", "free", 2).await;
        assert_eq!(left("up", "gold").await, of_larger, "{algorithm}");
        take("down", "gold", 50).await;
        assert_eq!(left("down", "free").await, of_smaller, "{algorithm}");
        now.store(T0 + 1_800_000_000, Relaxed);
        assert_eq!(left("up", "gold").await, later, "{algorithm}");
    }
}

/// A cache around the policies knows plans apart.
#[tokio::test(start_paused = true)]
async fn a_remembered_refusal_of_one_plan_is_not_that_of_another() {
    let policies = builder().build(&rows(WINDOW)).unwrap();
    let cached = policies.clone().deny_cache();
    let ask = async |plan| cached.check(&charge(&policies, &by("a", plan))).await.unwrap();
    assert!(ask("free").await.is_admitted());
    assert!(!ask("free").await.is_admitted());
    assert!(ask("gold").await.is_admitted());
}

#[test]
fn a_wrong_plan_names_its_field() {
    for (fields, field, why) in [
        ("plan = 'header:x'", "quotas", "it is missing"),
        ("quotas = { a = 1 }", "plan", "it is missing"),
        ("plan = 'header:x', quotas = {}", "quotas", "it is missing"),
        ("plan = 'path', quotas = { a = 1 }", "plan", "a plan is `header:NAME`"),
        ("plan = ['header:x', 'header:y'], quotas = { a = 1 }", "plan", "a plan is"),
        ("plan = 'tier', quotas = { a = 1 }", "plan", "no key is called \"tier\""),
        ("plan = 'header:x', quotas = { a = -1 }", "quotas", "a number of units"),
        (
            "plan = 'header:x', quotas = { a = 1, b = { limit = 1, period = '1s' } }",
            "quotas",
            "a number",
        ),
        (
            "plan = 'header:x', quotas = { free = 1 }, cost = 2",
            "quotas",
            "free: no request of this cost",
        ),
        (
            "algorithm = 'sliding_log', plan = 'header:x', quotas = { a = { limit = 1, burst = 2 } }",
            "quotas",
            "a: this algorithm has no burst",
        ),
        ("algorithm = 'sliding_log', plan = 'header:x', quotas = { a = 10001 }", "quotas", "a: "),
    ] {
        let row = format!("{{ name = 'p', limit = 9, period = '1h', {fields} }}");
        let error = builder().build(&rows(&row)).unwrap_err();
        let [row] = error.rows() else { panic!("{fields}: {error}") };
        assert_eq!(row.field(), Some(field), "{fields}: {error}");
        assert!(row.message().contains(why), "{fields}: {error}");
    }
}
