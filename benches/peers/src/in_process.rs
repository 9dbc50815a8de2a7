//! Limits in one process, on one thread and 100,000 keys: this crate and governor.
//!
//! A key comes back before its units do, so each decision finds the state of its key.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use governor::RateLimiter;
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};
use tower_sluice::algorithm::{Algorithm, FixedWindow, TokenBucket};
use tower_sluice::{Charge, Limiter, Memory, Quota, RateLimitLayer, by_head};

use crate::cost::median_of;
use crate::options::Options;
use crate::peers::{key_of, request};
use crate::site::KEYS;

const CALLS: usize = 200_000;

/// A unit comes back so much later, long after the next decision of its key.
const PERIOD: Duration = Duration::from_secs(10);
/// More than a run asks of a key.
const BURST: u32 = 1_000_000;

fn token_bucket() -> TokenBucket {
    TokenBucket::new(Quota::new(1, PERIOD).burst(BURST.into()))
}

/// Makes that many calls.
type Case = (&'static str, Box<dyn FnMut(usize)>);

/// Prints a line for each case.
pub(crate) fn run(options: &Options) {
    let mut cases: Vec<Case> = vec![
        ("service", served(service_fn(inner))),
        ("sluice_layer", sluice_layer()),
        ("tower_governor", tower_governor()),
        ("sluice_memory", sluice(token_bucket())),
        ("sluice_memory_window", sluice(FixedWindow::new(Quota::per_hour(1_000_000_000)))),
        ("governor", governor()),
    ];
    cases.retain(|(name, _)| options.includes(name));
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for (_, call) in &mut cases {
        call(2 * KEYS);
    }
    for _ in 0..options.rounds {
        for ((_, call), rounds) in cases.iter_mut().zip(&mut rounds) {
            let begun = Instant::now();
            call(CALLS);
            rounds.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    for ((name, call), rounds) in cases.iter_mut().zip(rounds) {
        let allocated = allocation_counter::measure(|| call(1_000)).count_total as f64 / 1_000.0;
        let ns = median_of(rounds.into_iter());
        println!("in_process name={name} ns={ns:.0} allocs={allocated:.2}");
    }
}

fn looped(mut call: impl FnMut(usize) + 'static) -> Box<dyn FnMut(usize)> {
    let mut at = 0;
    Box::new(move |calls| {
        for _ in 0..calls {
            at = (at + 7_919) % KEYS;
            call(at);
        }
    })
}

/// The answer of a future that never waits.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn inner(_: Request<()>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

/// A request with its key in a header, and the service's answer to it.
fn served<S>(mut service: S) -> Box<dyn FnMut(usize)>
where
    S: Service<Request<()>, Response = Response<Body>, Error = Infallible> + 'static,
{
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key {key}")).collect();
    looped(move |at| {
        let Poll::Ready(Ok(())) = service.poll_ready(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("it is not ready");
        };
        let Ok(response) = now(service.call(black_box(request(&keys[at]))));
        assert!(response.status().is_success(), "admitted");
    })
}

fn sluice_layer() -> Box<dyn FnMut(usize)> {
    let limiter = Memory::new("memory", token_bucket()).max_keys(2 * KEYS);
    let layer = RateLimitLayer::new(limiter, by_head(|head| head.header("x-api-key")));
    served(layer.layer(service_fn(inner)))
}

fn tower_governor() -> Box<dyn FnMut(usize)> {
    #[derive(Clone, Debug)]
    struct ApiKey;

    impl KeyExtractor for ApiKey {
        type Key = String;

        fn extract<B>(&self, request: &Request<B>) -> Result<String, GovernorError> {
            key_of(request).map(String::from).ok_or(GovernorError::UnableToExtractKey)
        }
    }

    let config = GovernorConfigBuilder::default()
        .period(PERIOD)
        .burst_size(BURST)
        .key_extractor(ApiKey)
        .finish()
        .expect("a quota");
    served(GovernorLayer::new(config).layer(service_fn(inner)))
}

fn sluice<A: Algorithm>(algorithm: A) -> Box<dyn FnMut(usize)> {
    let limiter = Memory::new("memory", algorithm).max_keys(2 * KEYS);
    let keys: Vec<Arc<str>> = (0..KEYS).map(|key| format!("key {key}").into()).collect();
    looped(move |at| {
        let decision = now(limiter.check(&Charge::new(Arc::clone(&keys[at])))).expect("a decision");
        let _ = black_box(decision);
    })
}

/// Keyed by String, with its default store.
fn governor() -> Box<dyn FnMut(usize)> {
    let quota = governor::Quota::with_period(PERIOD).expect("a period");
    let limiter = RateLimiter::keyed(quota.allow_burst(NonZeroU32::new(BURST).expect("some")));
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key {key}")).collect();
    looped(move |at| limiter.check_key(black_box(&keys[at])).expect("admitted"))
}
