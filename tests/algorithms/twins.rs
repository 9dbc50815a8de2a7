//! Lua and Rust are twins: on random histories that land on the edges they agree on every field of
//! every decision. `tests/support/trial/twins.rs` plays these histories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::algorithm::{Budget, SmoothBursty, SmoothWarmingUp};
use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Outcome, Quota, Redis};

use support::Server;
use support::dice::times;
use support::trial::twins::Twins;

const START: u64 = 1_767_225_600_000_000;

async fn agree(name: &str) {
    let (_server, pool) = Server::pooled();
    let steps = Twins::called(name).agree(pool, times()).await;
    println!("twins algorithm={name} steps={steps}");
}

macro_rules! each_agrees {
    ($($(#[$only:meta])? $name:ident: $twins:literal;)+) => {$(
        $(#[$only])?
        #[tokio::test]
        async fn $name() {
            agree($twins).await;
        }
    )+};
}

each_agrees! {
    token_bucket_agrees_with_its_script: "token_bucket";
    budget_agrees_with_its_script: "budget";
    concurrency_agrees_with_its_script: "concurrency";
    fixed_window_agrees_with_its_script: "fixed_window";
    #[cfg(feature = "calendar")]
    calendar_agrees_with_its_script: "calendar";
    sliding_window_agrees_with_its_script: "sliding_window";
    sliding_counter_agrees_with_its_script: "sliding_counter";
    sliding_log_agrees_with_its_script: "sliding_log";
    several_quotas_agree_with_their_script: "several";
    smooth_bursty_agrees_with_its_script: "smooth_bursty";
    smooth_warming_up_agrees_with_its_script: "smooth_warming_up";
}

/// A renewal writes the clamped state of the quota beside it, which holds nothing.
#[tokio::test]
async fn a_renewal_after_the_clock_stepped_back_moves_every_quota() {
    let server = Server::start();
    let now = Arc::new(AtomicU64::new(START));
    let clock = || support::clock_at(&now);
    let pace = SmoothBursty::new(Quota::per_second(3)).max_burst(Duration::from_secs(60));
    let pair = (Budget::new(Quota::per_second(5)), pace.wait_for_own_cost());
    let redis = Redis::new("pair", pair, server.pool()).decision_timeout(Duration::from_secs(30));
    let limiters = [redis.clock(clock()).boxed(), Memory::new("pair", pair).clock(clock()).boxed()];
    for limiter in limiters {
        now.store(START, Relaxed);
        let held = limiter.check(&Charge::new("key").cost(2)).await.expect("a decision");
        let mut reservation = held.into_reservation().expect("two are held");
        now.fetch_sub(200_000, Relaxed);
        assert!(limiter.renew(&mut reservation).expect("held").await.expect("an answer"));
        now.fetch_add(300_000, Relaxed);
        let peeked = limiter.peek("key").await.expect("a decision");
        let pace = peeked.policies().nth(1).expect("of two").reset_after();
        // The two permits, less what came back since the clock stepped back.
        assert_eq!(pace, Some(Duration::from_micros(666_667 - 300_000)));
    }
}

/// As Guava answers the same calls.
#[tokio::test]
async fn warming_up_at_a_lower_rate_waits_as_guava() {
    let server = Server::start();
    let now = Arc::new(AtomicU64::new(START));
    let clock = || support::clock_at(&now);
    let five = Quota::per_second(5);
    let pace = SmoothWarmingUp::new(five, Duration::from_millis(700)).cold_factor(1.5);
    let redis = Redis::new("pace", pace, server.pool()).decision_timeout(Duration::from_secs(30));
    let limiters = [redis.clock(clock()).boxed(), Memory::new("pace", pace).clock(clock()).boxed()];
    for limiter in limiters {
        now.store(START, Relaxed);
        let ask = async |cost, limit| {
            let charge = Charge::new("key").cost(cost).quota(Quota::per_second(limit));
            limiter.check(&charge).await.expect("a decision").outcome()
        };
        assert_eq!(ask(1, 5).await, Outcome::Allow);
        now.fetch_add(10_000_000, Relaxed);
        assert_eq!(ask(6, 4).await, Outcome::Allow);
        let retry_after = Some(Duration::from_micros(1_639_999));
        assert_eq!(ask(1, 4).await, Outcome::Deny { retry_after });
    }
}
