//! The cost of a decision in this process alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::{HeaderName, Request, Response};
use tokio::runtime::Builder;
use tower::{Layer, Service};
use tower_sluice::algorithm::{Algorithm, FixedWindow, TokenBucket};
use tower_sluice::key::{ClientIp, Global, KeyExtractor, PeerAddr};
use tower_sluice::limiter::{Breaker, Origin};
use tower_sluice::respond::{HeaderStyle, OnAdmitted, Raise, RateLimitHeaders, Respond};
use tower_sluice::{
    Charge, Decision, Error, HttpResponder, Limiter, LimiterExt, Memory, Outcome, Quota,
    RateLimitLayer, Refusal, by_api_key, by_head,
};

use crate::measure::median_of;

const ROUNDS: usize = 15;
const CALLS: usize = 200_000;
const KEYS: usize = 100_000;

/// Each charge is admitted, and its key stays.
pub(crate) const BUCKET: TokenBucket = TokenBucket::new(Quota::per_day(1).burst(10_000));
pub(crate) const WINDOW: FixedWindow = FixedWindow::new(Quota::per_day(1_000_000_000));

/// Each charge finds that its key has expired.
const EXPIRING: TokenBucket = TokenBucket::new(Quota::per_second(1_000_000_000));

/// Makes a number of calls.
type Calls = Box<dyn FnMut(usize)>;

/// Prints a line for each case, measured in interleaved rounds.
pub(crate) fn run() {
    let mut cases = [
        ("service", repeated(bare())),
        ("layer", repeated(layer())),
        ("limiter", repeated(ready_limiter())),
        ("breaker", repeated(breaker())),
        ("key", making_keys()),
        ("memory", memory(BUCKET)),
        ("memory_fixed_window", memory(WINDOW)),
        ("memory_expired", memory(EXPIRING)),
        ("deny_cache", deny_cache(KEYS)),
        ("deny_cache_hot", deny_cache(1)),
        ("lease", lease()),
        ("http_service", repeated(bare_http())),
        ("http_layer", repeated(http_layer())),
        ("http", http(|_: Request<()>, _: &Refusal| Response::new(()))),
        ("http_bare", http(HttpResponder::new())),
        ("http_request_report", http(HttpResponder::new().report_in_request())),
        ("http_both_reports", http(both_reports())),
        ("http_draft_11", http(with_headers(HeaderStyle::Draft11))),
        ("http_draft_07", http(with_headers(HeaderStyle::Draft07))),
        ("http_draft_06", http(with_headers(HeaderStyle::Draft06))),
        ("http_legacy", http(with_headers(HeaderStyle::Legacy))),
        ("head", extracted(by_head(|_| "key"))),
        ("head_text", extracted(by_head(|head| head.header("x-api-key")))),
        ("client_ip", extracted(ClientIp::new())),
        ("client_ip_x_forwarded_for", extracted(behind_proxies())),
        ("client_ip_forwarded", extracted(behind_proxies().header(http::header::FORWARDED))),
        ("client_ip_v6", extracted(ClientIp::new().trusted_hops(1).header(CLIENT_V6))),
        ("api_key", extracted(by_api_key("x-api-key"))),
        ("api_key_secret", extracted(by_api_key("x-api-key").secret("pepper"))),
    ];
    let mut rounds = vec![Vec::new(); cases.len()];
    cases.iter_mut().for_each(|(_, calls)| calls(KEYS));
    for _ in 0..ROUNDS {
        for ((_, calls), took) in cases.iter_mut().zip(&mut rounds) {
            let begun = Instant::now();
            calls(CALLS);
            took.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    let median = |case: &str| {
        let at = cases.iter().position(|(name, _)| *name == case).expect("a case");
        median_of(rounds[at].iter().copied())
    };
    let medians = cases.each_ref().map(|(case, _)| median(case));
    let (service, key, limiter) = (median("service"), median("key"), median("limiter"));
    let (http, http_service) = (median("http"), median("http_service"));
    for ((case, calls), ns) in cases.iter_mut().zip(medians) {
        let allocs = allocation_counter::measure(|| calls(1_000)).count_total as f64 / 1_000.0;
        let beyond = match *case {
            "layer" => format!(" beyond_service={:.1}", ns - service),
            "http_service" => String::new(),
            "http_layer" => format!(" beyond_http_service={:.1}", ns - http_service),
            "breaker" => format!(" beyond_limiter={:.1}", ns - limiter),
            case if case.starts_with("http_") => format!(" beyond_http={:.1}", ns - http),
            case if case.starts_with("memory") => format!(" without_key={:.1}", ns - key),
            _ => String::new(),
        };
        println!("bench case={case} ns={ns:.1} per_second={:.0} allocs={allocs}{beyond}", 1e9 / ns);
    }
}

fn repeated(mut call: impl FnMut() + 'static) -> Calls {
    Box::new(move |calls| (0..calls).for_each(|_| call()))
}

/// The answer of a future that never waits.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn inner() -> impl Service<u64, Response = u64, Error = Infallible, Future: Future> + Clone {
    tower::service_fn(|request: u64| ready(Ok::<_, Infallible>(request)))
}

fn bare() -> impl FnMut() {
    let mut service = inner();
    move || {
        let _ = black_box(now(service.call(black_box(7))));
    }
}

/// A limiter that is ready at once.
fn allow(_: &Charge) -> Ready<Result<Decision, Error>> {
    ready(Ok(Decision::new(Outcome::Allow)))
}

fn ready_limiter() -> impl FnMut() {
    let charge = Charge::from_static("key");
    move || drop(black_box(now(allow.check(black_box(&charge)))))
}

/// The same behind a breaker that stays closed.
fn breaker() -> impl FnMut() {
    let (limiter, charge) = (allow.breaker(Breaker::new()), Charge::from_static("key"));
    move || drop(black_box(now(limiter.check(black_box(&charge)))))
}

/// The layer alone, around that limiter.
fn layer() -> impl FnMut() {
    let mut service = RateLimitLayer::new(allow, |_: &u64| "key").respond(Raise).layer(inner());
    move || drop(black_box(now(service.call(black_box(7)))))
}

/// A request that holds an extension, as those of a framework do.
fn request() -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(7_u64);
    request
}

fn http_service()
-> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Future> + Clone {
    tower::service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))))
}

fn bare_http() -> impl FnMut() {
    let mut service = http_service();
    move || drop(black_box(now(service.call(black_box(request())))))
}

/// The layer as it begins, with a limiter that is ready at once.
fn http_layer() -> impl FnMut() {
    let mut service = RateLimitLayer::new(allow, Global).layer(http_service());
    move || drop(black_box(now(service.call(black_box(request())))))
}

/// The layer over a memory around an HTTP service.
fn http<R>(respond: R) -> Calls
where
    R: Respond<Request<()>, Response<()>, Infallible, Error = Infallible> + 'static,
{
    let limiter = Memory::new("memory", WINDOW);
    let mut service = RateLimitLayer::new(limiter, Global).respond(respond).layer(http_service());
    repeated(move || drop(black_box(now(service.call(black_box(request()))))))
}

fn both_reports() -> HttpResponder {
    HttpResponder::new().report_in_request().report_in_response()
}

fn with_headers(style: HeaderStyle) -> HttpResponder {
    HttpResponder::new().headers(RateLimitHeaders::new(style).on_admitted(OnAdmitted::Always))
}

const CLIENT_V6: HeaderName = HeaderName::from_static("x-client");

fn behind_proxies() -> ClientIp {
    ClientIp::new().try_trusted_networks("10.0.0.0/8, fd00::/8").expect("networks")
}

/// The key of a request with a few headers, which two proxies have passed on.
fn extracted(key: impl KeyExtractor<Request<()>> + 'static) -> Calls {
    let request = Request::get("/api")
        .header("host", "example.com")
        .header("user-agent", "bench")
        .header("x-api-key", "sk_live_4242424242424242")
        .header("x-forwarded-for", "198.51.100.7, 203.0.113.9, 10.0.0.7")
        .header("forwarded", "for=198.51.100.7, for=203.0.113.9;proto=https, for=10.0.0.7")
        .header(CLIENT_V6, "2001:db8:1:2:3::9")
        .extension(PeerAddr(([10, 0, 0, 5], 443).into()))
        .body(())
        .expect("a request");
    repeated(move || drop(black_box(key.extract(black_box(&request)))))
}

/// Makes the keys, which all cases with keys do besides.
fn making_keys() -> Calls {
    let mut next = charges(KEYS);
    repeated(move || drop(black_box(next())))
}

/// The same arithmetic in the process, over 100,000 keys.
fn memory<A: Algorithm>(algorithm: A) -> Calls {
    let limiter = Memory::new("memory", algorithm).max_keys(2 * KEYS);
    let mut next = charges(KEYS);
    repeated(move || drop(black_box(now(limiter.check(&next())))))
}

/// Refusals that the cache repeats. The inner limiter has refused each key once.
fn deny_cache(keys: usize) -> Calls {
    const LONG: Duration = Duration::from_secs(86_400);
    let daily = Memory::new("daily", TokenBucket::new(Quota::per_day(1))).max_keys(2 * KEYS);
    let limiter = daily.deny_cache().max_age(LONG).max_keys(2 * KEYS);
    let mut next = charges(keys);
    for _ in 0..2 * keys {
        drop(now(limiter.check(&next())));
    }
    repeated(move || {
        let refused = black_box(now(limiter.check(&next())));
        assert!(refused.is_ok_and(|refused| refused.origin() == Origin::Cache));
    })
}

/// Charges of so many keys, each a new `String`, in an order that no cache of the processor
/// foresees.
fn charges(keys: usize) -> impl FnMut() -> Charge {
    let keys: Vec<String> = (0..keys).map(|key| format!("user-{key:08}")).collect();
    let mut next = 0;
    move || {
        next = (next + 7_919) % keys.len();
        Charge::new(keys[next].clone())
    }
}

/// One hot key with leases of 100, the refills included.
fn lease() -> Calls {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let memory = Memory::new("memory", TokenBucket::new(Quota::per_second(1 << 32)));
    let limiter = memory.lease(100);
    let charge = Charge::from_static("everybody");
    Box::new(move |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                drop(black_box(limiter.check(&charge).await));
            }
        });
    })
}
