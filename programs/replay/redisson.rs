//! Redisson's limiter: a key is a limiter's name. A refused caller would ask again, and a replay
//! does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::future::Settlement;
use tower_sluice::limiter::{Operation, Reservation};
use tower_sluice::{Charge, Error, Limiter};
use tower_sluice_redisson::{PermitLog, Rate, Redisson};

use crate::options::Options;
use crate::replay::{Gate, KEYS, Replay, pool, unique};
use command::Stop;

/// Replays under a rate of the options' limit and period.
pub(crate) async fn run(options: &Options) -> Result<(), Stop> {
    let quota = options.quota()?;
    if quota.burst_size() != quota.limit() {
        return Err(Stop::Asked(String::from(
            "this quota: a rate limiter of Redisson has no burst",
        )));
    }
    let rate = Rate::overall(quota.limit(), quota.period());
    let log = PermitLog::new(rate).map_err(|error| Stop::Asked(format!("this quota: {error}")))?;
    let now = Arc::new(AtomicU64::new(0));
    let clock = {
        let now = Arc::clone(&now);
        move || Duration::from_millis(now.load(Relaxed) / 1_000)
    };
    let Some(url) = &options.redis else {
        let log = log.name("replay").max_keys(KEYS).clock(clock);
        return Replay::new(log, now, quota, Duration::ZERO).run(options).await;
    };
    let redisson = Redisson::new(pool(url).await?)
        .default_rate(rate)
        .decision_timeout(Duration::from_secs(5))
        .clock(clock);
    let named = Named { redisson, prefix: unique() };
    Replay::new(named, now, quota, Duration::ZERO).run(options).await
}

impl Gate for PermitLog {
    async fn release(&self, key: &str, permits: u64) -> Result<u64, Error> {
        Ok(PermitLog::release(self, key, permits))
    }
}

/// Limiters under names that no other replay uses.
struct Named {
    redisson: Redisson,
    prefix: String,
}

impl Named {
    /// The name of a key. A name may have no braces, so those of a key are escaped.
    fn name(&self, key: &str) -> String {
        match key {
            "" => String::new(),
            key => {
                let key = key.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
                format!("{}:{key}", self.prefix)
            }
        }
    }

    fn named(&self, charge: &Charge) -> Charge {
        Charge::new(self.name(charge.key())).cost(charge.units())
    }
}

impl Limiter for Named {
    type Future = <Redisson as Limiter>::Future;

    fn check(&self, charge: &Charge) -> Self::Future {
        self.redisson.check(&self.named(charge))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.redisson.settle(reservation, actual)
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<Self::Future> {
        self.redisson.operate(operation, &self.named(charge))
    }
}

impl Gate for Named {
    async fn release(&self, key: &str, permits: u64) -> Result<u64, Error> {
        self.redisson.rate_limiter(&self.name(key))?.release(permits).await
    }
}
