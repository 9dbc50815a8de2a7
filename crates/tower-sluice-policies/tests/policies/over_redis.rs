//! Policies over a real server decide as in the memory of a process, in one call where several
//! share it.

use std::sync::atomic::AtomicU64;

use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::limiter::Description;
use tower_sluice::respond::{HeaderStyle, OnAdmitted, RateLimitHeaders};
use tower_sluice::{HttpResponder, LimiterExt, Pool, RateLimitLayer};
use tower_sluice_policies::PoliciesBuilder;

use super::settling::{COSTS, each_policy_settles_its_own_units};
use super::*;

use support::stats::script_calls;
use support::{Server, eventually};

/// Long enough for the slowest machine: no test here is about speed.
pub(super) const PATIENT: Duration = Duration::from_secs(20);

pub(super) fn over(server: &Server) -> PoliciesBuilder {
    Policies::builder().redis(server.pool()).decision_timeout(PATIENT)
}

fn said(decision: &Decision) -> String {
    let report =
        (decision.limiter(), decision.quota(), decision.remaining(), decision.reset_after());
    let each: Vec<_> = decision.policies().map(|one| (one.outcome(), one.remaining())).collect();
    format!("{:?} {report:?} {each:?} {}", decision.outcome(), decision.reservation().is_some())
}

/// Runs random requests through a table in memory and the same one in Redis.
async fn assert_same(server: &Server, table: &str, steps: usize) {
    let table: Rows = rows(table);
    let mut connection = server.connection().await;
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("an empty server");
    let now = Arc::new(AtomicU64::new(1_767_225_600_000_000));
    let memory = Policies::builder().clock(support::clock_at(&now)).build(&table).expect("a table");
    let redis = over(server).clock(support::clock_at(&now)).build(&table).expect("a table");
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut waiting = Vec::new();
    let mut seen = [0; 3];
    for step in 0..steps {
        now.fetch_add(dice.pick(&[0, 0, 1, 50_000, 200_000, 1_000_000, 3_000_000]), Relaxed);
        if dice.below(4) == 0
            && let Some((one, other)) = waiting.pop()
        {
            let units = memory.refund(one).unwrap().await.expect("given back");
            let others = redis.refund(other).unwrap().await.expect("given back");
            assert_eq!(units, others, "step {step}");
            continue;
        }
        let user = format!("x-user: {}", dice.below(2));
        let length = format!("content-length: {}", dice.pick(&[0, 900, 1_100, 3_000, 9_000]));
        let call = request("GET", "/", &[&user, &length]);
        let mut one = decide(&memory, &call).await;
        let mut other = decide(&redis, &call).await;
        assert_eq!(said(&one), said(&other), "step {step} {call:?}");
        seen[usize::from(!one.is_admitted()) * 2 + usize::from(!one.waited().is_zero())] += 1;
        if let Some(pair) = one.take_reservation().zip(other.take_reservation()) {
            waiting.push(pair);
        }
    }
    assert!(seen[0] + seen[1] > 0 && seen[2] > 0, "{seen:?}: {table:?}");
}

/// All algorithms at once, each with its own cost, its own wait and its own keys.
#[tokio::test]
async fn several_policies_decide_alike_in_memory_and_in_redis() {
    let server = Server::start();
    let row = |place: usize, algorithm: &str, rest: &str| {
        format!(
            "[[policy]]\nname = 'p{place}'\nalgorithm = '{algorithm}'\nlimit = {}\nperiod = '{}s'\n{rest}\n",
            5 + place,
            1 + place / 2,
        )
    };
    let all = [
        row(0, "token_bucket", "key = 'header:x-user'\nmax_wait = '900ms'"),
        row(1, "fixed_window", "max_wait = '1s'"),
        row(2, "sliding_log", "max_wait = '2s'\ncost = 2"),
        row(3, "sliding_window", "max_wait = '1s'\nkey = 'header:x-user'"),
        row(4, "sliding_counter", "max_wait = '2s'"),
        row(5, "smooth_bursty", "max_wait = '2s'\ncost = 'content_length_kb'"),
        row(6, "smooth_warming_up", "max_wait = '3s'\nwarm_up = '1s'"),
    ];
    assert_same(&server, &all.concat(), 150).await;
    let two = [
        row(0, "token_bucket", "max_wait = '900ms'"),
        row(3, "token_bucket", "cost = 'content_length_kb'\nkey = 'header:x-user'\nlimit2 = 1"),
    ];
    assert_same(&server, &two.concat().replace("limit2 = 1", ""), 150).await;
    // What is held refills only once its time is over.
    let held = [
        row(0, "budget", "max_wait = '900ms'\nmax_hold = '1s'\nkey = 'header:x-user'"),
        row(1, "budget", "max_hold = '3s'\ncost = 'content_length_kb'"),
        row(2, "token_bucket", "max_wait = '900ms'"),
    ];
    assert_same(&server, &held.concat(), 150).await;
    // Some wait, and others do not.
    let mixed = [
        row(0, "token_bucket", "max_wait = '900ms'"),
        row(1, "fixed_window", ""),
        row(2, "sliding_log", "cost = 2"),
        row(3, "sliding_window", "key = 'header:x-user'"),
        row(4, "sliding_counter", ""),
        row(5, "token_bucket", "burst = 2\ncost = 'content_length_kb'\nmax_wait = '3s'"),
    ];
    assert_same(&server, &mixed.concat(), 150).await;
    // Some never fit: they wait for their own cost, and may not for so long.
    let own = [
        row(0, "smooth_bursty", "wait_for_own_cost = true\ncost = 'content_length_kb'"),
        row(1, "smooth_warming_up", "wait_for_own_cost = true\nwarm_up = '1s'\nmax_wait = '2s'"),
        row(2, "token_bucket", "max_wait = '900ms'\nkey = 'header:x-user'"),
    ];
    assert_same(&server, &own.concat(), 150).await;
    // The largest script: seven of the algorithm with the most variables.
    let seven: String =
        (0..7).map(|place| row(place, "smooth_warming_up", "max_wait = '1s'")).collect();
    assert_same(&server, &seven, 40).await;
}

/// A script decides about eight policies at most, and about fewer if its algorithms are long.
#[tokio::test]
async fn many_policies_of_one_request_take_few_calls() {
    let server = Server::start();
    let row = |number: u64| {
        format!("[[policy]]\nname = 'p{number}'\nlimit = {}\nperiod = '1h'\n", 30 - number)
    };
    let policies = over(&server).build(&rows(&(0..20).map(row).collect::<String>())).unwrap();
    let mut connection = server.connection().await;
    let call = request("GET", "/", &[]);
    let _ = decide(&policies, &call).await;
    let before = script_calls(&mut connection).await;
    assert_eq!(burst(&policies, &call, 9).await, (9, vec![], 0));
    // Four charges, and a peek before each.
    assert_eq!(script_calls(&mut connection).await, before + 9 * 8);
    // The last of them refuses, and the others get back what they took.
    assert!(decide(&policies, &call).await.is_admitted());
    assert!(!decide(&policies, &call).await.is_admitted());
    for (name, units) in [("p0", 19), ("p7", 12), ("p8", 11), ("p15", 4), ("p19", 0)] {
        let what = format!("{name} has {units} left");
        eventually(&what, async || left(&policies, name, "global").await == units).await;
    }
}

/// A busy bucket could not refund what callers take whom the next policy refuses.
#[tokio::test]
async fn a_caller_whom_a_later_policy_refuses_leaves_a_shared_bucket_in_another_slot() {
    let server = Server::start();
    let table = rows(
        "{ name = 'everybody', limit = 100, period = '1h' },
         { name = 'own', limit = 1, period = '1h', key = 'header:x-user' },",
    );
    let pool = server.pool().by_hash_slot();
    let policies = Policies::builder().redis(pool).decision_timeout(PATIENT).build(&table).unwrap();
    let call = request("GET", "/", &["x-user: alice"]);
    assert!(decide(&policies, &call).await.is_admitted());
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let (policies, call) = (policies.clone(), call.clone());
        asking.spawn(async move { decide(&policies, &call).await.is_admitted() });
    }
    assert_eq!(asking.join_all().await, [false; 50]);
    assert_eq!(left(&policies, "everybody", "global").await, 99);
}

#[tokio::test]
async fn a_request_that_cost_more_or_less_does_so_under_every_policy_in_redis() {
    let server = Server::start();
    for table in [COSTS, &COSTS.replace("cost = 3", "cost = 3, shadow = true")] {
        let mut connection = server.connection().await;
        redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("an empty server");
        let policies = over(&server).build(&rows(table)).unwrap();
        each_policy_settles_its_own_units(&policies).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_once_for_all_policies_in_a_shadow() {
    // It takes connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let row =
        |n: u32| format!("[[policy]]\nname = 'p{n}'\nlimit = 5\nperiod = '1h'\nshadow = true\n");
    let policies = Policies::builder()
        .redis(Pool::connect(&url).unwrap())
        .decision_timeout(PATIENT)
        .build(&rows(&(0..6).map(row).collect::<String>()))
        .unwrap();
    let begun = tokio::time::Instant::now();
    assert!(decide(&policies, &request("GET", "/", &[])).await.is_admitted());
    assert!(begun.elapsed() < PATIENT * 2, "{:?}", begun.elapsed());
}

/// Those that take a request are asked in one call, and wait, whichever others do not take it.
// Case 158.
#[tokio::test]
async fn whichever_policies_take_a_request_one_call_decides() {
    const NAMES: [&str; 3] = ["user", "address", "login"];
    let server = Server::start();
    let row = |name: &str| {
        let limit = NAMES.iter().position(|known| *known == name).unwrap() + 10;
        format!(
            "[[policy]]\nname = '{name}'\nlimit = {limit}\nperiod = '10000h'\nmax_wait = '2000h'\n\
             horizon = '5000h'\nkey = 'header:x-{name}'\nmatch.header = 'x-{name}'\n"
        )
    };
    let table: Rows = rows(&NAMES.map(row).concat());
    let memory = Policies::builder().build(&table).unwrap();
    let redis = over(&server).build(&table).unwrap();
    let mut connection = server.connection().await;
    for bits in 1..8 {
        let present: Vec<usize> = (0..3).filter(|index| bits >> index & 1 == 1).collect();
        let headers: Vec<_> =
            present.iter().map(|index| format!("x-{}: {bits}", NAMES[*index])).collect();
        let call = request("GET", "/", &headers.iter().map(String::as_str).collect::<Vec<_>>());
        let least = present[0] as u32 + 10;
        for policies in [&memory, &redis] {
            // The script travels with the first.
            let found = named(policies, &call).await;
            let expected: Vec<_> = present
                .iter()
                .map(|index| (NAMES[*index].to_owned(), *index as u64 + 10))
                .collect();
            assert_eq!(found, expected, "{bits:03b}");
            let before = script_calls(&mut connection).await;
            let (admitted, waits, _) = burst(policies, &call, least as usize).await;
            let calls = script_calls(&mut connection).await - before;
            assert_eq!((admitted, waits.len()), (least - 1, 1), "{bits:03b}: it waits");
            let expected =
                if std::ptr::eq(policies, &raw const redis) { u64::from(least) } else { 0 };
            assert_eq!(calls, expected, "{bits:03b}");
        }
    }
}

/// The names of the policies in the header fields of an answer, each with its limit. A description
/// renames none: rows have names.
async fn named(policies: &Policies, call: &http::Request<()>) -> Vec<(String, u64)> {
    let described = policies.clone().describe(Description::new().names(["a", "b", "c"]));
    let headers = RateLimitHeaders::new(HeaderStyle::Draft11).on_admitted(OnAdmitted::Always);
    let layer = RateLimitLayer::new(described, policies.clone())
        .respond(HttpResponder::new().headers(headers));
    let inner = service_fn(async |_: http::Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(()))
    });
    let answer = layer.layer(inner).oneshot(call.clone()).await.unwrap();
    let field = answer.headers()["ratelimit-policy"].to_str().unwrap();
    let policy = |text: &str| {
        let (name, limit) = text.split_once(";q=").unwrap();
        (name.trim_matches('"').to_owned(), limit.split(';').next().unwrap().parse().unwrap())
    };
    field.split(", ").map(policy).collect()
}
