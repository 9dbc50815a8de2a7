//! Rows that nobody would write: each is a policy that decides, or an error with row and field.

use serde_json::{Value, json};

use super::*;

const FIELDS: &str = "name|algorithm|limit|period|burst|max_wait|cache_ratio|horizon|key|match|\
    cost|on_error|enabled|shadow|anchored|max_limit|cells|max_burst|start_empty|\
    wait_for_own_cost|warm_up|cold_factor|rate_type|keep_alive|max_hold|max_debt|\
    calendar|time_zone|week_begins|month_begins|plan|quotas|exempt";

const ALGORITHMS: &str = "token_bucket|budget|fixed_window|sliding_log|sliding_window|\
    sliding_counter|smooth_bursty|smooth_warming_up|concurrency|redisson";

/// A number at an edge, or none at all.
fn number(dice: &mut Dice) -> Value {
    match dice.below(3) {
        0 => json!(dice.pick(&[0_u64, 1, 2, 5, 7, 60, 61, 1_000, 1_001, 10_001, 1 << 20])),
        1 => json!(dice.pick(&[1_u64 << 31, 1 << 50, 1 << 53, (1 << 53) + 1, 1 << 63, u64::MAX])),
        _ => dice.pick(&[-1.0, -0.0, 0.5, 1.0, 3.0, 1e9, 1e18, 1e300, f64::MIN_POSITIVE]).into(),
    }
}

fn duration(dice: &mut Dice) -> Value {
    let texts = "0s|1us|3us|1ns|500ms|999999us|1s|7s|1m|1h|1day|365days|35years|36years|\
        1000000years|1e400s|18446744073709551615s|99999999999999999999s|-1s|1.5s|1s 1us|s|NaN|\
        \u{664}s|1\u{b5}s";
    dice.word(texts).into()
}

fn text(dice: &mut Dice) -> Value {
    let long = "x".repeat(100_000);
    let texts = "| |a|global|client_ip|header:x-a|header:|header:\u{e4}|path|\u{0}|a\nb|\
        \u{202e}|/|/{|/{a}|/{a}/{a}|/{*a}/b|/a/{*rest}|{}|get|G\u{c9}T|allow|overall|per_client|\
        content_length_kb|__proto__|day|week|month|year|UTC|cookie:a|query:b|request_header:x-a|client_ip/24|client_ip/56|Europe/Berlin|sunday";
    dice.word(&format!("{texts}|{long}")).into()
}

fn nested(dice: &mut Dice) -> Value {
    let (one, two) = (text(dice), text(dice));
    match dice.below(9) {
        0 => json!([]),
        1 => json!({}),
        2 => json!([one, two]),
        3 => json!({ "local": number(dice) }),
        4 => json!({ "path": one, "method": two }),
        5 => json!({ "path": [one, two], "header": two }),
        6 => json!({ "header": { "x-a": one } }),
        7 => json!({ "name": one, "header": [two] }),
        _ => json!([[one]]),
    }
}

fn value(dice: &mut Dice) -> Value {
    match dice.below(6) {
        0 | 1 => number(dice),
        2 => duration(dice),
        3 => text(dice),
        4 => nested(dice),
        _ => dice.pick(&[Value::Null, true.into(), false.into(), "on".into()]),
    }
}

/// A row that is right but for a few fields.
fn row(dice: &mut Dice, name: &str) -> Row {
    let mut row = Row::new().with("name", name).with("limit", 5);
    let algorithm = (dice.below(4) > 0).then(|| dice.word(ALGORITHMS));
    row = match algorithm {
        Some("concurrency") => row,
        _ => row.with("period", "1s"),
    };
    if let Some(algorithm) = algorithm {
        row = row.with("algorithm", algorithm);
    }
    for _ in 0..dice.below(4) {
        let field = match dice.below(20) {
            0 => text(dice).as_str().unwrap_or_default().to_owned(),
            _ => dice.word(FIELDS).to_owned(),
        };
        let value = match (&*field, dice.below(3)) {
            (_, 0) => value(dice),
            ("limit" | "burst" | "cost" | "cells" | "cold_factor" | "cache_ratio", _) => {
                number(dice)
            }
            (
                "period" | "max_wait" | "horizon" | "warm_up" | "max_burst" | "keep_alive"
                | "max_hold" | "max_debt",
                _,
            ) => duration(dice),
            ("key" | "match" | "on_error", 1) => nested(dice),
            ("key", _) => text(dice),
            _ => value(dice),
        };
        row = row.with(field, value);
    }
    row
}

#[tokio::test(start_paused = true)]
async fn an_odd_row_is_a_policy_or_an_error_of_its_field() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let good = Row::new().with("name", "good").with("limit", 5).with("period", "1h");
    let good = Rows::from_iter([good]);
    let policies = Policies::builder().build(&good).unwrap();
    let calls = [
        request("GET", "/a/b", &["x-a: 1", "content-length: 18446744073709551615"]),
        request("POST", "/", &["x-a: 2", "content-length: 7", "host: a.example"]),
    ];
    let (mut made, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let odd = row(&mut dice, "odd");
        let rows = Rows::from_iter([odd.clone()]);
        let Err(error) = policies.load(&rows) else {
            made += 1;
            for call in &calls {
                for _ in 0..3 {
                    let Keyed::Charge(charge) = policies.charge(Head::from(call)) else { break };
                    if let Err(error) = policies.check(&charge).await {
                        // No request and no row is a reason to let others pass.
                        assert_ne!(error.kind(), ErrorKind::Infrastructure, "{odd:?}: {error}");
                    }
                }
            }
            policies.load(&good).unwrap();
            continue;
        };
        refused += 1;
        assert!(!error.rows().is_empty());
        for wrong in error.rows() {
            assert!(matches!(wrong.row(), "odd" | "1") || odd_name(&odd), "{odd:?}: {wrong}");
            assert!(wrong.field().is_some() && !wrong.message().is_empty(), "{odd:?}: {wrong}");
        }
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.len() < 4_000, "{} bytes", text.len());
    }
    assert!(made > 1_000 && refused > 1_000, "{made} {refused}");
    // The last good table is still in force.
    assert_eq!(burst(&policies, &request("GET", "/", &[]), 7).await, (5, vec![], 2));
}

/// Returns true if the row's name was replaced.
fn odd_name(row: &Row) -> bool {
    !format!("{row:?}").contains(r#""name": String("odd")"#)
}

#[test]
fn an_odd_row_of_a_supplier_is_a_policy_or_an_error_of_its_field() {
    let mut dice = Dice(7);
    for _ in 0..5_000 {
        let mut row = Row::new().with("name", "odd").with("rate", 5);
        for _ in 0..=dice.below(2) {
            row = row.with(dice.pick(&["name", "rate", "cache", "status", "x"]), value(&mut dice));
        }
        let mut rows = Rows::default();
        rows.interface.push(row.clone());
        if let Err(error) = Policies::builder().build(&rows) {
            assert!(error.rows().iter().all(|wrong| wrong.field().is_some()), "{row:?}: {error}");
        }
    }
}

#[test]
fn a_share_of_this_process_is_checked_with_the_row() {
    for units in [0, (1 << 50) + 1, u64::MAX] {
        let row = Row::new().with("name", "a").with("limit", 5).with("period", "1s");
        let row = row.with("on_error", json!({ "local": units }));
        let error = Policies::builder().build(&Rows::from_iter([row]));
        assert_eq!(error.unwrap_err().rows()[0].field(), Some("on_error"), "{units}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_any_length_is_refused_for_good_where_it_cannot_fit() {
    for algorithm in ALGORITHMS.split('|').take(5) {
        let row = Row::new().with("name", "a").with("limit", 5).with("period", "1s");
        let row = row.with("algorithm", algorithm).with("cost", "content_length_kb");
        let rows = Rows::from_iter([row]);
        let policies = Policies::builder().build(&rows).unwrap();
        for length in ["6000", "18446744073709551614", "18446744073709551615"] {
            let call = request("POST", "/", &[&format!("content-length: {length}")]);
            let decision = super::decide(&policies, &call).await;
            let answer = (decision.is_admitted(), decision.retry_after());
            assert_eq!(answer, (false, None), "{algorithm} {length}");
        }
    }
}
