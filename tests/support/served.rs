//! Callers that wait for a supplier of 50 a second, and hang up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::limiter::Boxed;
use tower_sluice::{Charge, LimiterExt, Quota};

pub const MILLISECOND: Duration = Duration::from_millis(1);

/// The time between two slots.
const PACE: Duration = Duration::from_millis(20);

/// The time that a caller waits before it hangs up, and the longest wait that its charge reserves,
/// in ms. Callers who wait longer than `max_wait` are refused, the others hang up.
pub const PATIENCE: [(u32, u32); 4] = [(3_000, 2_000), (500, 400), (900, 1_000), (500, 2_000)];

/// 50 a second, without a burst.
pub fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(50).burst(1))
}

pub fn charge(key: &'static str, max_wait: u32) -> Charge {
    Charge::new(key).max_wait(MILLISECOND * max_wait)
}

/// 100 callers of these limiters ask again and again, and hang up after their patience: how many
/// are served in each of four seconds.
pub async fn served(
    limiters: &[Boxed],
    patience: u32,
    charge: impl Fn() -> Charge + Clone + Send + 'static,
) -> [u32; 4] {
    let begun = Instant::now();
    let served = Arc::new(Mutex::new([0_u32; 4]));
    let callers = (0..100).map(|caller| {
        let limiter = limiters[caller % limiters.len()].clone();
        let (served, charge) = (Arc::clone(&served), charge.clone());
        tokio::spawn(async move {
            while begun.elapsed() < Duration::from_secs(4) {
                match timeout(MILLISECOND * patience, limiter.acquire(charge())).await {
                    Ok(Ok(_)) => {
                        let second = begun.elapsed().as_secs() as usize;
                        served.lock().unwrap().get_mut(second).into_iter().for_each(|n| *n += 1);
                    }
                    Ok(Err(_)) => sleep(PACE).await,
                    Err(_) => {}
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    *served.lock().unwrap()
}
