//! A client that must not exceed its supplier's 5 calls per second: it waits for its turn instead
//! of failing.
//!
//! Start it twice against one Redis: both processes together keep to the supplier's quota.
//! `REDIS_URL=redis://127.0.0.1:6379 CALLS=20 cargo run --example outbound`

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower::{BoxError, Layer, Service, ServiceExt};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::{LimiterExt, Memory, Pool, Quota, RateLimitLayer, Redis};

/// The quota of the supplier: 5 calls per second, and never two at once.
const SUPPLIER: Quota = Quota::per_second(5).burst(1);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let calls = env::var("CALLS").map_or(Ok(10), |calls| calls.parse::<u32>())?;
    let bucket = TokenBucket::new(SUPPLIER);
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => {
            let redis = Redis::new("supplier", bucket, Pool::connect(&url)?);
            // A call that waits for its turn can wait for Redis too: the default is 100 ms.
            redis.decision_timeout(Duration::from_secs(5)).boxed()
        }
        Err(_) => Memory::new("supplier", bucket).boxed(),
    };

    // The layer is around the client. Here the client is a function that says when it was called.
    let mut client = RateLimitLayer::new(limiter, Global)
        .max_wait(Duration::from_secs(60))
        .respond(Raise)
        .layer(tower::service_fn(|order: u32| async move {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            Ok::<_, BoxError>(format!("{} order {order}", now.as_micros()))
        }));

    for order in 0..calls {
        println!("{}", client.ready().await?.call(order).await?);
    }
    Ok(())
}
