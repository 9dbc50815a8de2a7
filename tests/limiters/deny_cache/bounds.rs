//! The bounds of the cache, and its work around and inside of every other limiter. Time is paused.

use std::convert::Infallible;

use tokio_test::assert_ready;

use super::*;

fn refuses(_: &Charge) -> std::future::Ready<Result<tower_sluice::Decision, tower_sluice::Error>> {
    let retry_after = Some(HOUR);
    std::future::ready(Ok(tower_sluice::Outcome::Deny { retry_after }.into()))
}

// Case 92.
#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_in_keys() {
    for keys in [1, 3, 1_000] {
        let limiter = refuses.deny_cache().max_keys(keys);
        for key in 0..10 * keys {
            let charge = Charge::new(key.to_string());
            let _ = limiter.check(&charge).await.unwrap();
            // The newest is always there.
            assert_eq!(limiter.check(&charge).await.unwrap().origin(), Origin::Cache);
        }
        assert_eq!(limiter.len(), keys);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_over_makes_room_before_others() {
    let scripted = Scripted::new().deny(HOUR).deny(SECOND).deny(HOUR).deny(HOUR);
    let limiter = scripted.clone().deny_cache().max_age(HOUR).max_keys(3);
    for key in ["a", "b", "c"] {
        let _ = limiter.check(&Charge::new(key)).await.unwrap();
    }
    advance(SECOND).await;
    let _ = limiter.check(&Charge::new("d")).await.unwrap();
    for key in ["a", "c", "d"] {
        assert!(refused_from_cache(&limiter, key).await);
    }
}

/// The longest keys take no more than short ones, also while the tables have just grown.
// Case 92.
#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_in_bytes() {
    let bytes_of = |length: usize, keys: usize| {
        let charges = (0..keys).map(|key| Charge::new(format!("{key:0length$}")));
        let charges: Vec<Charge> = charges.collect();
        let limiter = refuses.deny_cache();
        let allocated = allocation_counter::measure(|| {
            for charge in &charges {
                let answer = task::spawn(limiter.check(charge)).poll();
                assert!(!assert_ready!(answer).unwrap().is_admitted());
            }
        });
        assert_eq!(limiter.len(), keys);
        allocated.bytes_current / keys as i64
    };
    let bytes = [8, 64, 16 * 1024].map(|length| bytes_of(length, 2_000));
    assert!(bytes.iter().all(|bytes| *bytes <= 400), "{bytes:?} bytes for a key");
    let bytes = (1_000..10_000).step_by(500).map(|keys| bytes_of(8, keys));
    let bytes: Vec<_> = bytes.collect();
    println!("deny_cache bytes_of_a_key={bytes:?}");
    assert!(bytes.iter().all(|bytes| *bytes <= 400), "{bytes:?} bytes for a key");
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_cache_until_one_is_set_up_anew() {
    let limiter = refuses.deny_cache();
    assert!(!refused_from_cache(&limiter, "key").await);
    assert!(refused_from_cache(&limiter.clone(), "key").await);
    let [other, another] = [limiter.clone().max_age(HOUR), limiter.clone().max_keys(9)];
    assert!(other.is_empty() && another.is_empty());
    advance(2 * SECOND).await;
    assert!(!refused_from_cache(&other, "key").await);
    advance(2 * SECOND).await;
    assert!(refused_from_cache(&other, "key").await);
    assert_eq!((limiter.len(), other.len(), another.len()), (1, 1, 0));
}

// Composition.

#[tokio::test(start_paused = true)]
async fn a_layer_refuses_from_the_cache_and_sees_its_own_refunds() {
    let counted = Scripted::new().allow().deny(HOUR).allow();
    let inner = service_fn(|request: http::Request<()>| async move {
        let status = if request.uri().path() == "/" { 200 } else { 304 };
        Ok::<_, Infallible>(http::Response::builder().status(status).body(String::new()).unwrap())
    });
    let limiter = counted.clone().deny_cache().max_age(HOUR);
    let service = RateLimitLayer::new(limiter, by_head(|head| head.header("x-user")))
        .settle(|answer| match answer.status() {
            Some(304) => Settle::Refund,
            _ => Settle::Keep,
        })
        .layer(inner);
    let ask = async |path: &'static str| {
        let request = http::Request::get(path).header("x-user", "alice").body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ask("/").await, 200);
    for _ in 0..100 {
        assert_eq!(ask("/").await, 429);
    }
    assert_eq!(counted.charges().len(), 2);
    advance(HOUR).await;
    assert_eq!(ask("/unchanged").await, 304);
    assert_eq!(counted.refunds(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_is_asked_while_the_store_is_away_and_not_repeated() {
    let store = Scripted::new().fail(ErrorKind::Infrastructure).deny(HOUR);
    let share = Scripted::new().deny(HOUR);
    let limiter = store.clone().deny_cache().or_else(share.clone());
    for _ in 0..3 {
        assert!(!limiter.check(&one()).await.unwrap().is_admitted());
    }
    assert_eq!((store.charges().len(), share.charges().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn limiters_in_turn_and_several_quotas_are_cached_as_one() {
    let tuple = (TokenBucket::new(Quota::per_second(1)), FixedWindow::new(Quota::per_day(2)));
    let user = Memory::new("user", tuple);
    let calls = Scripted::new().allow().deny(HOUR);
    let all = AllInTurn::new([user.clone().boxed(), calls.clone().boxed()], |charge| {
        [charge.clone(), Charge::new("all")]
    });
    // The second one is peeked at before.
    let limiter = all.deny_cache();
    assert!(!refused_from_cache(&limiter, "key").await);
    assert!(refused_from_cache(&limiter, "key").await);
    assert_eq!(calls.charges().len(), 2);

    let limiter = user.deny_cache().boxed();
    let all = AllInTurn::new([limiter.clone()], |charge| [charge.clone()]);
    let mut admitted = all.check(&one()).await.unwrap();
    assert!(!refused_from_cache(&limiter, "key").await);
    assert!(refused_from_cache(&limiter, "key").await);
    assert_eq!(limiter.check(&one()).await.unwrap().quota(), Some(Quota::per_second(1)));
    assert!(all.refund(admitted.take_reservation().unwrap()).is_ok());
    assert!(limiter.check(&one()).await.unwrap().is_admitted());
}

#[test]
fn debug_output_has_the_settings() {
    let limiter = slow().deny_cache().max_keys(7);
    let printed = format!("{limiter:?}");
    assert!(printed.contains("max_age: 1s, max_keys: 7, len: 0 }"), "{printed}");
}
