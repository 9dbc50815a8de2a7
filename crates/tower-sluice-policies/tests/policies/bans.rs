//! `ban_after`: a policy blocks a key that it refuses too often.

use support::stats::script_calls;
use support::{NOWHERE, Server};
use tower_sluice::{LimiterExt, Pool};

use super::over_redis::over;
use super::*;

/// Two a day for each user. Three refusals in a minute block a user for 48 hours.
const BANS: &str = "{ name = 'login', algorithm = 'fixed_window', anchored = true, limit = 2, \
    period = '24h', key = 'header:x-user', ban_after = { refusals = 3, window = '1m', time = '48h' } }";

const OTHER: &str = "{ name = 'all', limit = 100, period = '24h', key = 'header:x-user' }";

fn by(user: &str) -> Request<()> {
    request("GET", "/", &[&format!("x-user: {user}")])
}

async fn hours(policies: &Policies, user: &str) -> Option<u64> {
    let refused_for = decide(policies, &by(user)).await.retry_after()?;
    Some(refused_for.as_secs().div_ceil(3_600))
}

#[tokio::test]
async fn the_last_refusal_blocks_the_key_in_memory_and_over_redis() {
    let server = Server::start();
    for (place, table) in [BANS.to_owned(), format!("{OTHER}, {BANS}")].iter().enumerate() {
        for policies in [policies(table), over(&server).build(&rows(table)).unwrap()] {
            let [mallory, alice] = ["mallory", "alice"].map(|user| format!("{user}-{place}"));
            for expected in [None, None, Some(24), Some(24), Some(48), Some(48)] {
                assert_eq!(hours(&policies, &mallory).await, expected);
            }
            // The block is of this key, and holds beside what was taken.
            assert_eq!(hours(&policies, &alice).await, None);
            let login = policies.get("login").unwrap();
            assert!(!login.peek(&[&mallory]).await.unwrap().is_admitted());
            login.reset(&[&mallory]).await.unwrap();
            assert_eq!(hours(&policies, &mallory).await, Some(48));
            login.unblock(&[&mallory]).await.unwrap();
            assert_eq!(hours(&policies, &mallory).await, None);
            if place == 1 {
                // Refused requests take nothing of other rows.
                assert_eq!(left(&policies, "all", &mallory).await, 97);
            }
        }
    }
}

/// A flood costs the server one call each, with a ban or without, and one more for the ban.
#[tokio::test]
async fn a_flood_costs_the_server_one_more_call() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let (row, _) = BANS.split_once(", ban_after").unwrap();
    let without = row.replace("login", "plain") + " }";
    let mut calls = Vec::new();
    for table in [without, BANS.to_owned()] {
        let policies = over(&server).build(&rows(&table)).unwrap();
        let _ = decide(&policies, &by("mallory")).await;
        let before = script_calls(&mut connection).await;
        for _ in 0..500 {
            let _ = decide(&policies, &by("mallory")).await;
        }
        calls.push(script_calls(&mut connection).await - before);
    }
    assert_eq!(calls, [500, 501]);
}

/// A policy in a shadow blocks nobody, and neither does a refusal by another row, a peek, or a
/// request that may wait.
#[tokio::test(start_paused = true)]
async fn only_refusals_of_the_row_count() {
    let shadow = BANS.replace("limit = 2", "shadow = true, limit = 2");
    let policies = policies(&shadow);
    for _ in 0..20 {
        assert_eq!(hours(&policies, "alice").await, None);
    }
    let login = policies.get("login").unwrap();
    assert!(login.peek(&["alice"]).await.unwrap().reset_after() <= Some(24 * HOUR));

    let tight = OTHER.replace("100", "1");
    let policies = super::policies(&format!("{tight}, {BANS}"));
    assert_eq!(hours(&policies, "alice").await, None);
    for _ in 0..20 {
        assert_eq!(hours(&policies, "alice").await, Some(24));
    }
    assert_eq!(left(&policies, "login", "alice").await, 1);
    for _ in 0..20 {
        let charge = charge(&policies, &by("alice")).peek();
        let _ = policies.check(&charge).await.unwrap();
    }
    policies.get("all").unwrap().reset(&["alice"]).await.unwrap();
    assert_eq!(hours(&policies, "alice").await, None);

    let waits = "{ name = 'w', algorithm = 'concurrency', limit = 1, max_wait = '1min', \
        ban_after = { refusals = 3, window = '1m', time = '48h' } }";
    let policies = super::policies(waits);
    let held = decide(&policies, &by("alice")).await.into_reservation();
    let charge = charge(&policies, &by("alice"));
    let waiting = tokio::spawn({
        let policies = policies.clone();
        async move { policies.acquire(charge).await.is_ok() }
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(policies.settle(held.expect("units"), 0).is_ok());
    assert!(waiting.await.unwrap());
}

/// While Redis is away, a local share refuses and blocks nobody.
#[tokio::test]
async fn a_local_share_bans_nobody() {
    let table = BANS.replace("period", "on_error = { local = 1 }, period");
    let away =
        Policies::builder().redis(Pool::connect(&format!("redis://127.0.0.1:{NOWHERE}")).unwrap());
    let policies = away.build(&rows(&table)).unwrap();
    assert_eq!(hours(&policies, "alice").await, None);
    for _ in 0..6 {
        assert_eq!(hours(&policies, "alice").await, Some(24));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_count_of_a_ban_that_stays() {
    let policies = policies(BANS);
    for expected in [None, None, Some(24), Some(24)] {
        assert_eq!(hours(&policies, "alice").await, expected);
    }
    policies.load(&rows(&BANS.replace("limit = 2", "limit = 1"))).unwrap();
    assert_eq!(hours(&policies, "alice").await, Some(48));
    for expected in [None, Some(24), Some(24)] {
        assert_eq!(hours(&policies, "bob").await, expected);
    }
    policies.load(&rows(&BANS.replace("time = '48h'", "time = '72h'"))).unwrap();
    for expected in [None, Some(24), Some(24), Some(72)] {
        assert_eq!(hours(&policies, "bob").await, expected);
    }
}

#[test]
fn a_ban_is_written_and_read_back() {
    use tower_sluice_policies::serde_json::{from_str, json, to_string, to_value};
    let policies = policies(BANS);
    let policy = policies.policies().remove(0);
    let shown = to_value(policy.policy()).unwrap();
    assert_eq!(shown["ban_after"], json!({ "refusals": 3, "window": "1m", "time": "48h" }));
    let text = to_string(policy.policy()).unwrap();
    let again = Policies::builder().build(&from_str(&format!("{{\"policy\": [{text}]}}")).unwrap());
    assert_eq!(to_string(again.unwrap().policies()[0].policy()).unwrap(), text);
    for (ban, why) in [
        ("{ refusals = 0, window = '1m', time = '1h' }", "nonzero"),
        ("{ refusals = 3, window = '0s', time = '1h' }", "of the window: "),
        ("{ refusals = 3, window = '1m', time = '0s' }", "the time is 0"),
        ("{ refusals = 3, window = '1M', time = '1h' }", "M is a month"),
        ("{ refusals = 3, window = '1m' }", "missing field `time`"),
        ("{ refusals = 3, window = '1m', time = '1h', units = 1 }", "unknown field"),
        ("100", "invalid type"),
    ] {
        let row = format!("{{ name = 'p', limit = 9, period = '1h', ban_after = {ban} }}");
        let error = Policies::builder().build(&rows(&row)).unwrap_err().to_string();
        assert!(error.contains("ban_after: ") && error.contains(why), "{ban}: {error}");
    }
    let java = BANS.replace("fixed_window', anchored = true", "redisson'");
    let error = Policies::builder().build(&rows(&java)).unwrap_err().to_string();
    assert!(error.contains("ban_after: "), "{error}");
}
