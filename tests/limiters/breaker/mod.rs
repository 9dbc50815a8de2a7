//! The breaker: it asks a limiter that fails no more, and notices when that is well again.

mod composition;
mod failures;
#[cfg(feature = "redis")]
mod over_redis;
mod probes;

use tower_sluice::limiter::{BreakerState, WithBreaker};

use crate::*;

/// The longest pause before a probe.
const PAUSE: Duration = Duration::from_millis(200);

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "as the charge says")
}

/// A store that does what the key says: `well`, `away`, `hangs`, or the name of a kind. It counts
/// its calls.
#[derive(Clone, Debug, Default)]
struct Store(Arc<AtomicU64>);

impl Store {
    fn calls(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn limiter(&self) -> Boxed {
        let calls = Arc::clone(&self.0);
        let answer = move |charge: &Charge| {
            let (calls, key) = (Arc::clone(&calls), charge.key().to_owned());
            async move {
                calls.fetch_add(1, Relaxed);
                let takes = ["takes ms ", "busy after ms "];
                if let Some(millis) = takes.iter().find_map(|prefix| key.strip_prefix(prefix)) {
                    sleep(Duration::from_millis(millis.parse().expect("a number"))).await;
                }
                let kind = match &*key {
                    "hangs" => std::future::pending().await,
                    "away" => ErrorKind::Infrastructure,
                    _ if key.starts_with("busy") => ErrorKind::Saturation,
                    "full" => ErrorKind::Capacity,
                    "unset" => ErrorKind::Configuration,
                    "corrupt" => ErrorKind::State,
                    "invalid" => ErrorKind::Request,
                    _ => return Ok(Decision::new(Outcome::Allow)),
                };
                Err(error(kind))
            }
        };
        answer.boxed()
    }
}

async fn ask(limiter: &impl Limiter, key: &'static str) -> Result<Decision, Error> {
    limiter.check(&Charge::from_static(key)).await
}

/// A limiter with this breaker, which is closed.
fn closed(breaker: Breaker) -> (WithBreaker<Boxed>, Breaker) {
    (Store::default().limiter().breaker(breaker.clone()), breaker)
}

/// A limiter whose breaker has just opened, with its store.
async fn opened(breaker: Breaker) -> (Store, WithBreaker<Boxed>, Breaker) {
    let store = Store::default();
    let limiter = store.limiter().breaker(breaker.clone());
    for _ in 0..5 {
        assert_eq!(breaker.state(), BreakerState::Closed);
        ask(&limiter, "away").await.expect_err("away");
    }
    assert_eq!((breaker.state(), breaker.counts().opened), (BreakerState::Open, 1));
    (store, limiter, breaker)
}
