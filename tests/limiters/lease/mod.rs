//! Leases: fewer calls, the same units, and a bound that is wider by the validity of a lease.

mod demand;
mod ending;
#[cfg(feature = "redis")]
mod over_redis;
mod recorder;
mod settling;
mod waiting;

use recorder::Recorder;

use crate::*;

/// The time for which leased units may be spent unless set otherwise.
const VALIDITY: Duration = Duration::from_millis(100);

type Inner = Recorder<Memory<FixedWindow>>;
type Leased = (Lease<Inner>, Inner, Memory<FixedWindow>);

/// A window of so many units an hour, which refunds exactly, with leases of at most 100.
fn leased(limit: u64) -> Leased {
    let memory = Memory::new("api", FixedWindow::new(Quota::per_hour(limit)).anchored());
    let inner = Recorder::new(memory.clone());
    (inner.clone().lease(100), inner, memory)
}

async fn check<L: Limiter>(limiter: &L, key: &str) -> Decision {
    limiter.check(&Charge::new(key)).await.expect("a decision")
}

/// The units that are admitted before leases of 100 are worth it.
const WARM: u64 = 1_000;

/// Asks so often that leases of 100 are worth it, and ends the leases.
async fn warm_up(limiter: &Lease<Inner>, inner: &Inner, key: &str) {
    for _ in 0..WARM {
        assert!(check(limiter, key).await.is_admitted());
    }
    limiter.end_leases();
    inner.clear();
}

/// The same window, whose key `hot` was asked for so often.
async fn hot(limit: u64) -> Leased {
    let (limiter, inner, memory) = leased(limit);
    warm_up(&limiter, &inner, "hot").await;
    (limiter, inner, memory)
}

/// The reservations of so many charges.
async fn spend(limiter: &impl Limiter, charges: u64) -> Vec<Reservation> {
    let mut reservations = Vec::new();
    for _ in 0..charges {
        reservations.extend(check(limiter, "hot").await.take_reservation());
    }
    reservations
}

/// The units that are taken of a key.
async fn taken(memory: &Memory<FixedWindow>, limit: u64, key: &str) -> u64 {
    limit - memory.peek(key).await.expect("a peek").remaining().expect("told")
}
