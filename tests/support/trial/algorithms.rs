//! The algorithms that are judged: one line each, beside its model.
//!
//! The list of `tests/support/algorithms.rs` would not make this one shorter: each line has a model
//! and a setting that no other list has.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tower_sluice::algorithm::{
    FixedWindow, InLua, IntoAlgorithm, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};
use tower_sluice::future::Settlement;
use tower_sluice::limiter::Reservation;
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{Charge, Decision, Error, Limiter, LimiterExt, Pool, Quota, Redis};
use tower_sluice_redisson::{Rate, Redisson};

use super::crew;
use super::model::{
    Anchored, Both, Bucket, Bursty, Cells, Counter, Log, Model, Permits, Warm, Window,
};

/// A judged algorithm, and the model that judges it.
pub struct Algorithm {
    pub name: &'static str,
    /// The quota with a burst, if the algorithm knows bursts.
    pub quota: fn(Quota, u64) -> Quota,
    pub limiter: fn(Quota, Site) -> Arc<dyn Judged>,
    pub model: fn(Quota) -> Box<dyn Model>,
    /// The costs of the first charge on a key of 3 units, one key for each. After it no more than 3
    /// units fit.
    pub openings: &'static [u64],
    /// True if a refused charge goes at once when its wait is over.
    pub at_once: bool,
    /// True if it reserves waits; else a refused caller asks again.
    pub reserves: bool,
}

pub static ALGORITHMS: [Algorithm; 13] = [
    line("token_bucket", Quota::burst, |quota, at| at.of(TokenBucket::new(quota)), Bucket::boxed),
    line("fixed_window", no_burst, |quota, at| at.of(FixedWindow::new(quota)), Window::boxed),
    line(
        "fixed_window_anchored",
        no_burst,
        |quota, at| at.of(FixedWindow::new(quota).anchored()),
        Anchored::boxed,
    ),
    line(
        "sliding_log",
        no_burst,
        |quota, at| at.of(SlidingLog::new(quota).max_limit(1 << 30)),
        Log::boxed,
    ),
    line("sliding_window", no_burst, |quota, at| at.of(SlidingWindow::new(quota)), Cells::boxed),
    line(
        "sliding_counter",
        no_burst,
        |quota, at| at.of(SlidingCounter::new(quota)),
        Counter::boxed,
    ),
    line("smooth_bursty", no_burst, |quota, at| at.of(bursty(quota)), Bursty::boxed).paced(),
    line(
        "several",
        Quota::burst,
        |quota, at| at.of((TokenBucket::new(quota), TokenBucket::new(Both::faster(quota)))),
        Both::uneven,
    ),
    line("together", Quota::burst, Site::together, Both::buckets),
    line("redisson", millis, Site::redisson, Permits::boxed).without_reservation(),
    line(
        "smooth_bursty_own_debt",
        no_burst,
        |quota, at| at.of(bursty(quota).wait_for_own_cost()),
        Bursty::wait_for_own_cost,
    ),
    line("smooth_warming_up", no_burst, |quota, at| at.of(warming_up(quota)), Warm::boxed).paced(),
    line(
        "smooth_warming_up_own_debt",
        no_burst,
        |quota, at| at.of(warming_up(quota).wait_for_own_cost()),
        Warm::wait_for_own_cost,
    )
    .never_at_once(),
];

const fn line(
    name: &'static str,
    quota: fn(Quota, u64) -> Quota,
    limiter: fn(Quota, Site) -> Arc<dyn Judged>,
    model: fn(Quota) -> Box<dyn Model>,
) -> Algorithm {
    Algorithm { name, quota, limiter, model, openings: &[0, 1, 3], at_once: true, reserves: true }
}

/// Those whose names begin as the environment says, else all.
pub fn chosen() -> impl Iterator<Item = &'static Algorithm> {
    let only: String = crew::number("ORACLE_ONLY", String::new());
    ALGORITHMS.iter().filter(move |algorithm| algorithm.name.starts_with(&only))
}

/// Stores the permits of one period.
fn bursty(quota: Quota) -> SmoothBursty {
    SmoothBursty::new(quota).max_burst(quota.period())
}

/// Warms up for a tenth of a period.
fn warming_up(quota: Quota) -> SmoothWarmingUp {
    SmoothWarmingUp::new(quota, quota.period() / 10)
}

/// In whole milliseconds.
fn millis(quota: Quota, _burst: u64) -> Quota {
    Quota::new(quota.limit(), quota.period().max(Duration::from_millis(1)))
}

fn no_burst(quota: Quota, _burst: u64) -> Quota {
    quota
}

impl Algorithm {
    /// Admits any cost at once while it has no debt.
    const fn paced(self) -> Self {
        Self { openings: &[4], ..self }
    }

    /// Reserves nothing. A key that was not used has no configuration, so no opening is 0.
    const fn without_reservation(self) -> Self {
        Self { openings: &[1, 3], reserves: false, ..self }
    }

    /// The most scripts that run for a number of calls: a key without a configuration gets one, and
    /// is asked once more.
    pub fn runs(&self, calls: usize) -> usize {
        if self.reserves { calls } else { 3 * calls }
    }

    /// Makes every charge wait for every unit.
    const fn never_at_once(self) -> Self {
        Self { openings: &[0], at_once: false, ..self }
    }

    pub fn called(name: &str) -> &'static Self {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name).expect("a known algorithm")
    }
}

/// So long that the machine's speed decides nothing.
const DEADLINE: Duration = Duration::from_secs(30);

/// Connections to `url` that wait for an answer as long as the decisions do.
pub fn pool(url: &str) -> Pool {
    let builder = Pool::builder(url).expect("an address");
    builder.connect_timeout(DEADLINE).response_timeout(DEADLINE).build().expect("a pool")
}

/// The place where a limiter decides, and its clock: the server's unless one is given.
pub struct Site {
    pub pool: Pool,
    pub clock: Option<Arc<AtomicU64>>,
    /// The begin of the names of Redisson's limiters, which have no prefix of the pool.
    pub names: Arc<str>,
}

/// The second key of a charge, as far from the first.
pub const SECOND: u32 = 1_000_000;

fn keys(charge: &Charge) -> [Charge; 2] {
    let key: u32 = charge.key().parse().unwrap_or_default();
    [charge.clone(), Charge::new((key + SECOND).to_string())]
}

impl Site {
    /// Decides by the server's clock.
    pub fn new(pool: Pool) -> Self {
        Self { pool, clock: None, names: Arc::default() }
    }

    /// The same, under keys that begin with `prefix`.
    pub fn under(prefix: &str, pool: Pool) -> Self {
        Self { names: format!("{prefix}:").into(), ..Self::new(pool.prefix(prefix)) }
    }

    /// The same buckets under keys of different names, in one call.
    fn together(quota: Quota, at: Self) -> Arc<dyn Judged> {
        let limiter = |name, quota| {
            let limiter = Redis::new(name, TokenBucket::new(quota), at.pool.clone());
            // In a cluster, one call has only keys of one slot.
            let limiter = limiter.decision_timeout(DEADLINE).buckets(1);
            match &at.clock {
                Some(clock) => limiter.clock(crate::clock_at(clock)),
                None => limiter,
            }
        };
        let members = (limiter("oracle", quota), limiter("slower", Both::slower(quota)));
        let limiter = AllAtOnce::new(members, keys as fn(&Charge) -> [Charge; 2]);
        Arc::new(Plain { limiter, reserves: true })
    }

    /// Each key a limiter, which gets its rate when it is first asked for.
    fn redisson(quota: Quota, at: Self) -> Arc<dyn Judged> {
        let rate = Rate::overall(quota.limit(), quota.period());
        let redisson = Redisson::new(at.pool).default_rate(rate).decision_timeout(DEADLINE);
        let inner = match at.clock {
            Some(clock) => redisson.clock(crate::clock_at(&clock)),
            None => redisson,
        };
        Arc::new(Named { inner, names: at.names })
    }

    fn of<A: InLua>(self, algorithm: impl IntoAlgorithm<Algorithm = A>) -> Arc<dyn Judged> {
        let algorithm = algorithm.into_algorithm();
        let limiter = Redis::new("oracle", algorithm, self.pool).decision_timeout(DEADLINE);
        let limiter = match self.clock {
            Some(clock) => limiter.clock(crate::clock_at(&clock)),
            None => limiter,
        };
        Arc::new(Plain { limiter, reserves: true })
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A limiter in Redis, whatever its algorithm.
pub trait Judged: Debug + Send + Sync {
    fn check(&self, charge: &Charge) -> Answer<Decision>;

    /// Settles a reservation, best effort.
    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation>;

    /// Deletes all that is stored of a key.
    fn delete(&self, charge: &Charge) -> Answer<()>;

    /// Returns true if it reserves waits.
    fn reserves(&self) -> bool;
}

/// The time for which leased units may be spent.
pub const VALIDITY: Duration = Duration::from_millis(20);

/// A judged limiter as the inner one of a limiter around it.
#[derive(Clone, Debug)]
pub struct Inner(Arc<dyn Judged>);

impl Limiter for Inner {
    type Future = Answer<Decision>;

    fn check(&self, charge: &Charge) -> Answer<Decision> {
        self.0.check(charge)
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.0.settle(reservation, actual)
    }
}

/// A limiter as it is.
#[derive(Debug)]
struct Plain<L> {
    limiter: L,
    reserves: bool,
}

/// The same limiter with leases.
pub fn leased(limiter: Arc<dyn Judged>) -> Arc<dyn Judged> {
    let reserves = limiter.reserves();
    Arc::new(Plain { limiter: Inner(limiter).lease(100).valid_for(VALIDITY), reserves })
}

impl<L> Judged for Plain<L>
where
    L: Limiter<Future: Send + 'static> + Debug + Send + Sync + 'static,
{
    fn check(&self, charge: &Charge) -> Answer<Decision> {
        Box::pin(Limiter::check(&self.limiter, charge))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        Limiter::settle(&self.limiter, reservation, actual)
    }

    fn delete(&self, charge: &Charge) -> Answer<()> {
        let reset = LimiterExt::reset(&self.limiter, charge.clone());
        Box::pin(async move { reset.await.map(drop) })
    }

    fn reserves(&self) -> bool {
        self.reserves
    }
}

/// Redisson's limiters whose names begin alike.
#[derive(Debug)]
struct Named {
    inner: Redisson,
    names: Arc<str>,
}

impl Named {
    fn charge(&self, charge: &Charge) -> Charge {
        let named = Charge::new(format!("{}{}", self.names, charge.key())).cost(charge.units());
        match charge.longest_wait() {
            Some(wait) => named.max_wait(wait),
            None => named,
        }
    }
}

impl Judged for Named {
    fn check(&self, charge: &Charge) -> Answer<Decision> {
        Limiter::check(&self.inner, &self.charge(charge))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        Limiter::settle(&self.inner, reservation, actual)
    }

    /// Its rate too, which a reset leaves.
    fn delete(&self, charge: &Charge) -> Answer<()> {
        let limiter = self.inner.rate_limiter(self.charge(charge).key());
        Box::pin(async move { limiter?.delete().await.map(drop) })
    }

    fn reserves(&self) -> bool {
        false
    }
}
