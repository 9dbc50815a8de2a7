//! Policies as data: what a row means, which rows are wrong, and that a table is exchanged while
//! requests run.

#![cfg(feature = "redis")]

mod again;
mod at_once;
mod bans;
mod blocking;
#[cfg(feature = "calendar")]
mod calendars;
mod costs;
mod errors;
mod exempt;
mod formats;
mod given_back;
mod handlers;
#[cfg(feature = "redisson")]
mod java;
mod odd_rows;
mod over_redis;
mod own_keys;
mod paths;
mod plans;
mod reload;
mod response_costs;
mod routers;
mod rows;
mod settling;
mod several;
mod shadow_counts;
mod shadows;
mod store_away;
mod switches;
mod why;
mod wrapped;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use tokio::task::JoinSet;
use tower_sluice::key::{Head, Keyed};
use tower_sluice::limiter::{Origin, SwitchMode};
use tower_sluice::{Charge, Decision, Error, ErrorKind, Limiter, Outcome};
use tower_sluice_policies::{Policies, Row, Rows};

use support::dice::Dice;

/// Reads a table, or a list of policies in braces.
fn rows(text: &str) -> Rows {
    let list = text.starts_with('{').then(|| format!("policy = [{text}]"));
    toml::from_str(list.as_deref().unwrap_or(text)).expect("rows")
}

fn policies(text: &str) -> Policies {
    Policies::builder().build(&rows(text)).expect("a table")
}

/// More policies than one call decides about. The limit of each is one less than that before it.
fn twelve() -> Policies {
    let row = |number: u64| {
        format!("[[policy]]\nname = 'p{number}'\nlimit = {}\nperiod = '1h'\n", 20 - number)
    };
    policies(&(0..12).map(row).collect::<String>())
}

/// A request without a body, with headers as `name: value`.
fn request(method: &str, path: &str, headers: &[&str]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    for header in headers {
        let (name, value) = header.split_once(": ").expect("a header");
        request = request.header(name, value);
    }
    request.body(()).expect("a request")
}

/// Decides about a request; `None` if no policy takes it but some that are off.
async fn check(policies: &Policies, request: &Request<()>) -> Option<Result<Decision, Error>> {
    match policies.charge(Head::from(request)) {
        Keyed::Charge(charge) => {
            let answer = policies.check(&charge).await;
            let is_off = answer.as_ref().is_ok_and(|decision| decision.origin() == Origin::Off);
            Some(answer).filter(|_| !is_off)
        }
        Keyed::Exempt => None,
        other => panic!("{other:?}"),
    }
}

/// Decides about a request that one of the policies takes.
async fn decide(policies: &Policies, request: &Request<()>) -> Decision {
    check(policies, request).await.expect("a policy takes it").expect("a decision")
}

/// The charge of a request that one of the policies takes.
fn charge(policies: &Policies, request: &Request<()>) -> Charge {
    match policies.charge(Head::from(request)) {
        Keyed::Charge(charge) => charge,
        other => panic!("{other:?}"),
    }
}

/// The units that are left of a policy's key.
async fn left(policies: &Policies, name: &str, key: &str) -> u64 {
    let policy = policies.get(name).expect("a policy");
    policy.peek(&[key]).await.expect("a decision").remaining().expect("told")
}

/// Outcomes as short words: how often admitted at once, after which waits, and how often refused.
async fn burst(policies: &Policies, request: &Request<()>, times: usize) -> (u32, Vec<u64>, u32) {
    let (mut admitted, mut waits, mut refused) = (0, Vec::new(), 0);
    for _ in 0..times {
        match decide(policies, request).await.outcome() {
            Outcome::Allow => admitted += 1,
            Outcome::Wait(wait) => waits.push(wait.as_millis() as u64),
            _ => refused += 1,
        }
    }
    (admitted, waits, refused)
}

const HOUR: Duration = Duration::from_secs(3_600);
