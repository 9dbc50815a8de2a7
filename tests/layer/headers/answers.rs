//! Random answers, which `tests/headers.sh` lets Python's `http_sf` read back. `styles.rs` and
//! `examples.rs` have the fields byte for byte.

use std::fs;
use std::future::ready;
use std::sync::Mutex;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use fastrand::Rng;
use serde_json::{Value, json};
use sha2::Digest;
use tower_sluice::limiter::{Description, PolicyReport, QuotaUnit};
use tower_sluice::{Charge, Error, Limiter, LimiterExt};

use super::*;

const ANSWERS: usize = 10_000;

/// The fields of a decision of one to four policies, and what they are to say: name, `q`, `qu`, `w`
/// of each, name, `r` and `t` of the one that is shown, and the key whose digest is `pk`.
struct Answer {
    policy: String,
    limit: String,
    policies: Vec<Value>,
    shown: Value,
    key: Option<String>,
}

/// The standing of a caller under one policy.
struct Standing {
    name: String,
    q: u64,
    r: u64,
    /// Until all is back.
    reset: Duration,
    /// The time for which it refuses, if it does.
    refusal: Option<Duration>,
}

/// A refusal that does not end.
const NEVER: Duration = Duration::MAX;

/// The one that refuses longest, else the one with the smallest part left.
fn shown(all: &[Standing]) -> Value {
    let part = |one: &Standing, whole: &Standing| u128::from(one.r) * u128::from(whole.q);
    let shown = all.iter().min_by(|one, other| {
        let longest = other.refusal.cmp(&one.refusal);
        let least = longest.then_with(|| part(one, other).cmp(&part(other, one)));
        least.then_with(|| other.reset.cmp(&one.reset))
    });
    let Standing { name, q, r, reset, refusal } = shown.expect("a policy");
    let t = match refusal {
        Some(NEVER) => None,
        Some(wait) => Some(*wait),
        None if r == q => None,
        None => Some(*reset),
    };
    let t = t.map(|time| time.as_micros().div_ceil(1_000_000).max(1) as u64);
    json!({ "name": name, "r": r, "t": t })
}

fn answer(dice: &mut Rng) -> Answer {
    let names: Vec<String> = (1..=dice.usize(1..=4)).map(|number| name(dice, number)).collect();
    let refuses = dice.bool().then(|| dice.usize(..names.len()));
    let mut expected = Vec::new();
    let mut policies = Vec::new();
    let mut standings = Vec::new();
    for (index, name) in names.iter().enumerate() {
        // One refuses, and others may refuse too.
        let refuses = refuses == Some(index) || refuses.is_some() && dice.bool();
        let refusal = refuses.then(|| match dice.u8(..4) {
            0 => NEVER,
            _ => Duration::from_millis(dice.u64(..100_000_000)),
        });
        let outcome = match refusal {
            Some(wait) => Outcome::Deny { retry_after: (wait != NEVER).then_some(wait) },
            None => Outcome::Allow,
        };
        let (quota, period) = quota(dice);
        let unit = [QuotaUnit::Requests, QuotaUnit::ContentBytes, QuotaUnit::ConcurrentRequests]
            [dice.usize(..3)];
        let report = PolicyReport::new(name, quota).with_unit(unit).with_outcome(outcome);
        let reset = Duration::from_micros(dice.u64(..1 << 50));
        // More may be left than the quota says, such as after it was lowered.
        let most = if names.len() == 1 { 2 * quota.limit() } else { quota.limit() };
        let left = dice.u64(..=most);
        policies.push(report.with_report(left, reset));
        let q = quota.limit();
        standings.push(Standing { name: name.clone(), q, r: left.min(q), reset, refusal });
        let window = (period % 1_000_000 == 0).then_some(period / 1_000_000);
        let unit = match unit {
            QuotaUnit::ContentBytes => Some("content-bytes"),
            QuotaUnit::ConcurrentRequests => Some("concurrent-requests"),
            _ => None,
        };
        expected.push(json!({ "name": name, "q": quota.limit(), "qu": unit, "w": window }));
    }
    let outcome = match standings.iter().filter_map(|one| one.refusal).max() {
        Some(wait) => Outcome::Deny { retry_after: (wait != NEVER).then_some(wait) },
        None => Outcome::Allow,
    };
    let decision = Decision::new(outcome).with_policies(policies);
    let key = dice.bool().then(|| format!("user:{}", dice.u32(..)));
    let decision = match &key {
        Some(key) => with_partition_key(decision, key),
        None => decision,
    };
    let headers = match decision.is_admitted() {
        true => annotated(always(HeaderStyle::Draft11), decision),
        false => rejected(HeaderStyle::Draft11, decision),
    };
    let text = |name| headers[name].to_str().unwrap().to_owned();
    let shown = shown(&standings);
    let [policy, limit] = ["ratelimit-policy", "ratelimit"].map(text);
    Answer { policy, limit, policies: expected, shown, key }
}

fn with_partition_key(decision: Decision, key: &str) -> Decision {
    let decision = Mutex::new(Some(decision));
    let once = move |_: &Charge| ready(Ok::<_, Error>(decision.lock().unwrap().take().unwrap()));
    let limiter = once.describe(Description::new().partition_key());
    tokio_test::block_on(limiter.check(&Charge::new(key))).unwrap()
}

/// A byte sequence of the first 8 bytes of a key's digest.
fn digest(key: &str) -> String {
    let digest = sha2::Sha256::digest(key.as_bytes());
    format!(":{}:", BASE64_STANDARD.encode(&digest[..8]))
}

/// A quota in the range of exact integers, and its period in microseconds.
fn quota(dice: &mut Rng) -> (Quota, u64) {
    loop {
        let limit = (1 << dice.u32(..=40)) + dice.u64(..1_000);
        let period = dice.u64(1..=86_400) * if dice.bool() { 1_000_000 } else { 1_000 };
        if let Ok(quota) = Quota::try_new(limit, Duration::from_micros(period)) {
            return (quota, period);
        }
    }
}

/// A name that begins with its number, so that all are different.
fn name(dice: &mut Rng, number: usize) -> String {
    let others = b"abcxyzABCXYZ0189_.:-";
    let rest = (0..dice.usize(..=63)).map(|_| char::from(others[dice.usize(..others.len())]));
    format!("{number}{}", rest.collect::<String>())
}

/// The policies are the same, and the fields of one request are never those of another.
#[test]
fn a_partition_key_is_that_of_the_request() {
    let decision = || api(Outcome::Allow, 42, 13 * SECOND);
    let shown = |decision| {
        let headers = annotated(always(HeaderStyle::Draft11), decision);
        ["ratelimit-policy", "ratelimit"].map(|name| headers[name].to_str().unwrap().to_owned())
    };
    let plain = [r#""api";q=100;w=60"#, r#""api";r=42;t=13"#];
    for _ in 0..2 {
        assert_eq!(shown(decision()), plain);
        for key in ["user:1", "user:2"] {
            let expected = plain.map(|field| format!("{field};pk={}", digest(key)));
            assert_eq!(shown(with_partition_key(decision(), key)), expected);
        }
    }
}

/// Writes the answers for another parser, one JSON object in a line.
#[test]
#[ignore = "tests/headers.sh runs it"]
fn write_answers() {
    let path = std::env::var_os("ANSWERS").expect("the path of a file");
    let mut dice = Rng::new();
    let lines = (0..ANSWERS).map(|_| {
        let Answer { policy, limit, policies, shown, key } = answer(&mut dice);
        let line = json!({
            "policy": policy, "limit": limit, "policies": policies, "shown": shown, "key": key,
        });
        line.to_string() + "\n"
    });
    fs::write(path, lines.collect::<String>()).expect("a file");
}
