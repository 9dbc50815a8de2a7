//! The counters, in Redis or in this process. The crate decides, and this file asks it.
//!
//! All counters of one algorithm belong to one limiter. Each charge brings its limit along, so that
//! rules of one unit share a counter, and a changed number keeps its count.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::{FutureExt, TryFutureExt, join_all};
use sha2::{Digest, Sha256};
use tower_sluice::algorithm::{AnyAlgorithm, FixedWindow, TokenBucket};
use tower_sluice::limiter::{Boxed, Breaker, Metered, MetricsExt, Operation};
use tower_sluice::redis::AllAtOnce;
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, Limiter, LimiterExt, Memory, Pool, Quota, Redis,
};

/// The name of both limiters, which begins their keys in Redis.
const NAME: &str = "envoy";
/// The most counters that one call decides about: the most members of an [`AllAtOnce`].
const IN_ONE_CALL: usize = 8;
/// The largest limit of a quota.
const MAX_LIMIT: u64 = 1 << 50;
/// The longest name of a counter that is kept as it is, in bytes. A caller may choose values of any
/// length, and the crate takes no key above 64 KiB.
const LONGEST_NAME: usize = 1_024;
/// The most live counters in this process.
const MAX_KEYS: usize = 1_000_000;

/// One counter, and what is asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Arc<str>,
    pub(crate) is_bucket: bool,
    pub(crate) quota: Quota,
    pub(crate) cost: u64,
}

impl Ask {
    pub(crate) fn bucket(key: Arc<str>, quota: Quota, cost: u64) -> Self {
        Self { key, is_bucket: true, quota, cost }
    }

    /// A window. One without a limit is asked about 1: the caller refuses its requests.
    pub(crate) fn window(key: Arc<str>, limit: u64, period: Duration, cost: u64) -> Self {
        Self { key, is_bucket: false, quota: Quota::new(limit.clamp(1, MAX_LIMIT), period), cost }
    }

    /// A window that counts over any limit of a rule.
    pub(crate) fn window_without_limit(key: Arc<str>, period: Duration, cost: u64) -> Self {
        Self::window(key, MAX_LIMIT, period, cost)
    }
}

/// The state of one counter afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// The units that are left of the quota.
    pub(crate) remaining: u64,
    /// The time until nothing of it is used.
    pub(crate) reset_after: Duration,
    /// The time of the decision, since the Unix epoch.
    pub(crate) now: Duration,
}

/// What is done to counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterUse {
    /// Takes the costs of all, or nothing.
    Take,
    /// Takes nothing.
    Look,
    /// Takes the costs, whether or not they fit.
    Spend,
    /// Gives the costs back, until nothing is taken.
    GiveBack,
}

/// All counters. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Counters(Arc<CounterStore>);

#[derive(Debug)]
enum CounterStore {
    Redis {
        window: Redis<AnyAlgorithm>,
        bucket: Redis<AnyAlgorithm>,
        breaker: Breaker,
        /// The limiter over so many windows and so many buckets, once it is needed.
        known: Box<[OnceLock<Boxed>]>,
        /// Counters of this process, for the time when Redis is away.
        local: Option<Counters>,
    },
    Memory {
        window: Metered<Memory<AnyAlgorithm>>,
        bucket: Metered<Memory<AnyAlgorithm>>,
        /// Several counters are decided about while nobody else decides.
        alone: RwLock<()>,
    },
}

/// The name of a counter. Each part is written so that no two lists of parts become one name. A
/// long name becomes its digest, without the `/` that each other name has.
pub(crate) fn key<'a>(
    domain: &str,
    unit: &str,
    entries: impl Iterator<Item = (&'a str, &'a str)>,
) -> Arc<str> {
    let mut key = String::with_capacity(64);
    let mut push = |text: &str| {
        for letter in text.chars() {
            match letter {
                '~' => key.push_str("~0"),
                '/' => key.push_str("~1"),
                ':' => key.push_str("~2"),
                letter => key.push(letter),
            }
        }
        std::mem::take(&mut key)
    };
    let mut name = push(domain);
    let _ = write!(name, "/{unit}");
    for (entry, value) in entries {
        name.push('/');
        name.push_str(&push(entry));
        name.push(':');
        name.push_str(&push(value));
    }
    match name.len() {
        ..=LONGEST_NAME => name.into(),
        _ => {
            let digest = Sha256::digest(&name);
            let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("~{digits}").into()
        }
    }
}

impl Counters {
    /// Counters in Redis, whose decisions may take so long. With `falls_back` the process counts by
    /// itself while Redis is away.
    ///
    /// # Errors
    ///
    /// If the URL is none.
    pub(crate) fn in_redis(
        url: &str,
        prefix: &str,
        time: Duration,
        falls_back: bool,
    ) -> Result<Self, String> {
        let pool = Pool::connect(url).map_err(|error| format!("REDIS_URL: {error:#}"))?;
        let pool = pool.prefix(prefix);
        let (window, bucket) = algorithms();
        let redis = |algorithm| {
            Redis::<AnyAlgorithm>::new(NAME, algorithm, pool.clone()).decision_timeout(time)
        };
        Ok(Self(Arc::new(CounterStore::Redis {
            window: redis(window),
            bucket: redis(bucket),
            breaker: Breaker::new().name(NAME),
            known: (0..(IN_ONE_CALL + 1).pow(2)).map(|_| OnceLock::new()).collect(),
            local: falls_back.then(Self::in_memory),
        })))
    }

    /// Counters in this process.
    pub(crate) fn in_memory() -> Self {
        let (window, bucket) = algorithms();
        let memory = |algorithm| Memory::new(NAME, algorithm).max_keys(MAX_KEYS).metrics(NAME);
        let (window, bucket) = (memory(window), memory(bucket));
        Self(Arc::new(CounterStore::Memory { window, bucket, alone: RwLock::default() }))
    }

    /// Asks these counters, each once. Returns whether all admitted, and their states in order.
    pub(crate) async fn ask(
        &self,
        way: CounterUse,
        asks: &[Ask],
    ) -> Result<(bool, Vec<State>), Error> {
        match &*self.0 {
            CounterStore::Memory { window, bucket, alone } => {
                let of = |ask: &Ask| if ask.is_bucket { bucket } else { window };
                if asks.len() == 1 {
                    let _others = alone.read().unwrap_or_else(PoisonError::into_inner);
                    return in_turn(way, asks, of);
                }
                let _nobody = alone.write().unwrap_or_else(PoisonError::into_inner);
                in_turn(way, asks, of)
            }
            CounterStore::Redis { local, .. } => match (self.ask_redis(way, asks).await, local) {
                (Err(error), Some(local)) if error.kind() == ErrorKind::Infrastructure => {
                    // Counters of a process have no further fallback.
                    Box::pin(local.ask(way, asks)).await
                }
                (answer, _) => answer,
            },
        }
    }

    /// Asks in one call for each eight counters. Several calls run beside one another; where one
    /// refuses, what the others took is given back.
    async fn ask_redis(&self, way: CounterUse, asks: &[Ask]) -> Result<(bool, Vec<State>), Error> {
        let mut order: Vec<usize> = (0..asks.len()).collect();
        // Alike sets of members share a limiter, and so its batches.
        order.sort_by_key(|index| asks[*index].is_bucket);
        let calls = order.chunks(IN_ONE_CALL).map(|places| {
            let buckets = places.iter().filter(|index| asks[**index].is_bucket).count();
            let limiter = self.limiter(places.len() - buckets, buckets);
            let charge = match places {
                [index] => charge(&asks[*index]),
                _ => Charge::several(places.iter().map(|index| charge(&asks[*index]))),
            };
            call(&limiter, way, &charge).map_ok(move |decision| RedisDecision { limiter, decision })
        });
        let mut states = vec![State::default(); asks.len()];
        let mut answers = join_all(calls).await;
        let mut is_admitted = true;
        for (answer, places) in answers.iter().zip(order.chunks(IN_ONE_CALL)) {
            let Ok(RedisDecision { decision, .. }) = answer else {
                is_admitted = false;
                continue;
            };
            is_admitted &= decision.is_admitted();
            for (policy, index) in decision.policies().zip(places) {
                let (remaining, reset_after) = (policy.remaining(), policy.reset_after());
                states[*index] = state_of(decision, remaining, reset_after);
            }
        }
        let mut given_back = Vec::new();
        for (answer, places) in answers.iter_mut().zip(order.chunks(IN_ONE_CALL)) {
            let Ok(decided) = answer else { continue };
            if let Some(taken) = decided.decision.take_reservation().filter(|_| !is_admitted) {
                given_back.extend(decided.limiter.settle(taken, 0).ok());
                places.iter().for_each(|index| states[*index].remaining += asks[*index].cost);
            }
        }
        // What cannot be given back stays taken: the store is away.
        drop(join_all(given_back).await);
        for answer in answers {
            answer?;
        }
        Ok((is_admitted, states))
    }

    /// The limiter over so many windows and buckets: one to eight in all.
    fn limiter(&self, windows: usize, buckets: usize) -> Boxed {
        let CounterStore::Redis { window, bucket, breaker, known, .. } = &*self.0 else {
            unreachable!("only Redis has them")
        };
        let limiter = known[windows * (IN_ONE_CALL + 1) + buckets].get_or_init(|| {
            let at = |place: usize| if place < windows { window } else { bucket }.clone();
            macro_rules! several {
                ($($place:literal)+) => {
                    AllAtOnce::of_parts(($(at($place),)+)).boxed()
                };
            }
            let limiter = match windows + buckets {
                1 => at(0).boxed(),
                2 => several!(0 1),
                3 => several!(0 1 2),
                4 => several!(0 1 2 3),
                5 => several!(0 1 2 3 4),
                6 => several!(0 1 2 3 4 5),
                7 => several!(0 1 2 3 4 5 6),
                _ => several!(0 1 2 3 4 5 6 7),
            };
            limiter.breaker(breaker.clone()).metrics(NAME).boxed()
        });
        limiter.clone()
    }
}

/// The decision of one call of several. What it took goes back if the request ends before the other
/// calls are answered.
struct RedisDecision {
    limiter: Boxed,
    decision: Decision,
}

impl Drop for RedisDecision {
    fn drop(&mut self) {
        if let Some(taken) = self.decision.take_reservation() {
            drop(self.limiter.settle(taken, 0));
        }
    }
}

/// What counts in windows and in buckets. Each charge brings its quota along.
fn algorithms() -> (AnyAlgorithm, AnyAlgorithm) {
    let any = Quota::per_second(1);
    (FixedWindow::new(any).into(), TokenBucket::new(any).into())
}

fn charge(ask: &Ask) -> Charge {
    Charge::new(Arc::clone(&ask.key)).cost(ask.cost).quota(ask.quota)
}

fn state_of(decision: &Decision, remaining: Option<u64>, reset_after: Option<Duration>) -> State {
    State {
        remaining: remaining.unwrap_or(0),
        reset_after: reset_after.unwrap_or_default(),
        now: decision.decided_at().unwrap_or_default(),
    }
}

fn call<L: Limiter<Future: Send + 'static>>(
    limiter: &L,
    way: CounterUse,
    charge: &Charge,
) -> impl Future<Output = Result<Decision, Error>> + Send + use<L> {
    let operation = match way {
        CounterUse::Take => return limiter.check(charge).right_future(),
        CounterUse::Look => Operation::Estimate,
        CounterUse::Spend => Operation::Penalize,
        CounterUse::GiveBack => Operation::Grant,
    };
    let asked = limiter.operate(operation, charge);
    async move {
        let none = || Error::new(ErrorKind::Configuration, "the limiter has no such operation");
        asked.ok_or_else(none)?.await
    }
    .left_future()
}

/// Asks a limiter in this process, which answers when it is polled first.
fn at_once(
    limiter: &Metered<Memory<AnyAlgorithm>>,
    way: CounterUse,
    ask: &Ask,
) -> Result<Decision, Error> {
    let answer = call(limiter, way, &charge(ask)).now_or_never();
    answer.unwrap_or_else(|| Err(Error::new(ErrorKind::State, "memory did not answer at once")))
}

/// Asks limiters in this process, one after another, while nobody else does. If one refuses, those
/// after it are looked at, and what the ones before it took is given back.
fn in_turn<'a>(
    way: CounterUse,
    asks: &[Ask],
    of: impl Fn(&Ask) -> &'a Metered<Memory<AnyAlgorithm>>,
) -> Result<(bool, Vec<State>), Error> {
    let (mut states, mut taken) = (Vec::with_capacity(asks.len()), Vec::new());
    let mut answer = Ok(());
    let mut is_admitted = true;
    for ask in asks {
        let way = if is_admitted || way != CounterUse::Take { way } else { CounterUse::Look };
        match at_once(of(ask), way, ask) {
            Ok(mut decision) => {
                let (remaining, reset_after) = (decision.remaining(), decision.reset_after());
                let state = state_of(&decision, remaining, reset_after);
                is_admitted &= decision.is_admitted();
                states.push(state);
                if way == CounterUse::Take {
                    taken.push(decision.take_reservation());
                }
            }
            Err(error) => {
                answer = Err(error);
                break;
            }
        }
    }
    if !is_admitted || answer.is_err() {
        for ((ask, taken), state) in asks.iter().zip(taken).zip(&mut states) {
            if let Some(taken) = taken {
                let _ = of(ask).settle(taken, 0);
                state.remaining += ask.cost;
            }
        }
    }
    answer.map(|()| (is_admitted, states))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_parts_have_one_name() {
        let name =
            |domain: &str, entries: &[(&str, &str)]| key(domain, "second", entries.iter().copied());
        assert_eq!(&*name("edge", &[("path", "/a")]), "edge/second/path:~1a");
        let lists: [&[(&str, &str)]; 8] = [
            &[("a", "b"), ("c", "d")],
            &[("a", "b/c:d")],
            &[("a", "b~1c~2d")],
            &[("a:b", ""), ("c", "d")],
            &[("a", ""), ("b:c", "d")],
            &[("a_b", "c")],
            &[("a", "b_c")],
            &[("a", "b"), ("c", "d"), ("", "")],
        ];
        let names: std::collections::HashSet<_> = lists.iter().map(|one| name("x", one)).collect();
        assert_eq!(names.len(), lists.len());
        assert_ne!(name("x/second/a:b", &[]), name("x", &[("a", "b")]));
        let long = |value: char| name("x", &[("a", &value.to_string().repeat(70_000))]);
        assert_eq!(long('a').len(), 65);
        assert_ne!(long('a'), long('/'));
    }

    fn asks(costs: &[u64]) -> Vec<Ask> {
        let ask = |(index, cost): (usize, &u64)| {
            let (key, quota) = (format!("key-{index}").into(), Quota::per_hour(10));
            match index % 2 {
                0 => Ask::window(key, 10, quota.period(), *cost),
                _ => Ask::bucket(key, quota, *cost),
            }
        };
        costs.iter().enumerate().map(ask).collect()
    }

    /// A request that ends while one of its calls is under way.
    #[tokio::test]
    async fn a_decision_that_nobody_waits_for_gives_its_units_back() {
        let limiter = Memory::new("one", FixedWindow::new(Quota::per_hour(10)).anchored()).boxed();
        let charge = Charge::new("key").cost(4);
        let decision = limiter.check(&charge).await.unwrap();
        drop(RedisDecision { limiter: limiter.clone(), decision });
        let left = limiter.estimate(Charge::new("key")).await.unwrap().remaining();
        assert_eq!(left, Some(10));
    }

    #[tokio::test]
    async fn a_refusal_takes_nothing_and_says_what_is_left() {
        let counters = Counters::in_memory();
        let left = |states: Vec<State>| states.iter().map(|one| one.remaining).collect::<Vec<_>>();
        let (admitted, states) = counters.ask(CounterUse::Take, &asks(&[3, 10, 1])).await.unwrap();
        assert!(admitted);
        assert_eq!(left(states), [7, 0, 9]);
        let (admitted, states) = counters.ask(CounterUse::Take, &asks(&[3, 1, 1])).await.unwrap();
        assert!(!admitted);
        assert_eq!(left(states), [7, 0, 9]);
        let (_, states) = counters.ask(CounterUse::Look, &asks(&[1, 1, 1])).await.unwrap();
        assert_eq!(left(states), [7, 0, 9]);
        let (_, states) = counters.ask(CounterUse::Spend, &asks(&[9, 1, 1])).await.unwrap();
        assert_eq!(left(states), [0, 0, 8]);
    }

    /// Also one of which the products exceed what a bucket computes with exactly.
    #[tokio::test]
    async fn a_window_counts_any_limit() {
        let counters = Counters::in_memory();
        let year = Duration::from_secs(365 * 86_400);
        let ask = |cost| [Ask::window("a".into(), 10_007, year, cost)];
        assert!(counters.ask(CounterUse::Take, &ask(10_000)).await.unwrap().0);
        assert!(!counters.ask(CounterUse::Take, &ask(8)).await.unwrap().0);
        let (admitted, states) = counters.ask(CounterUse::Take, &ask(7)).await.unwrap();
        assert!(admitted, "nothing stayed taken");
        assert_eq!(states[0].remaining, 0);
        for limit in [0, 4_294_967_291, 4_294_967_295, u64::MAX] {
            let quota = Ask::window("a".into(), limit, year, 1).quota;
            assert_eq!(quota.limit(), limit.clamp(1, MAX_LIMIT));
        }
    }
}
