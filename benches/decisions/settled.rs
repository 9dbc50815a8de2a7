//! The cost of settling for a response: the same layer with and without it, in Redis, in
//! interleaved rounds.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::respond::Answer;
use tower_sluice::{LimiterExt, Quota, RateLimitLayer, Settle, by_head};

use crate::measure::{Cost, median_of};
use crate::site::Site;

const ROUNDS: usize = 15;
const REQUESTS: usize = 1_000;
const BODY: &str = "a body of 24 bytes, here";

pub(crate) fn run() {
    let site = Site::new();
    let quota = Quota::per_second(1_000_000_000).burst(1_000_000_000);
    let limiter = site.limiter(TokenBucket::new(quota));
    let slow = Quota::new(1, std::time::Duration::from_secs(1_000)).burst(1_000_000);
    let metered = site.limiter(TokenBucket::new(slow));
    let layer = || RateLimitLayer::new(limiter.clone(), by_head(|_| Some("plain")));
    let bytes = |answer: Answer<Response<String>, Infallible>| match answer.response() {
        Some(response) => Settle::Cost(response.body().len() as u64),
        None => Settle::Keep,
    };
    let meter = by_head(|_| Some("metered"));
    let settling =
        RateLimitLayer::new(metered.clone(), meter).settle(bytes).layer(service_fn(answer));
    let plain = layer().layer(service_fn(answer));

    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(drive(&site, &plain));
        with.push(drive(&site, &settling));
    }
    let ratio = |of: fn(&Cost) -> f64| {
        median_of(with.iter().zip(&without).map(|(with, without)| of(with) / of(without)))
    };
    let taken = site.runtime.block_on(async {
        let most = (ROUNDS * REQUESTS * BODY.len()) as u64;
        loop {
            let peek = metered.peek("metered").await.expect("an answer");
            let taken = 1_000_000 - peek.remaining().expect("told");
            if taken >= most {
                return taken;
            }
        }
    });
    println!(
        "bench case=settle requests={REQUESTS} p99_ratio={:.2} p50_ratio={:.2} bytes={taken} of {}",
        ratio(|cost| cost.p99_us),
        ratio(|cost| cost.p50_us),
        ROUNDS * REQUESTS * BODY.len()
    );
}

async fn answer(_request: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(BODY.to_owned()))
}

/// The requests of one round, one after another.
fn drive<S>(site: &Site, service: &S) -> Cost
where
    S: Service<Request<()>, Response = Response<String>, Future: Send> + Clone + Send + 'static,
    S::Error: std::fmt::Debug,
{
    let service = service.clone();
    site.drive(1, REQUESTS, 1, move |_| {
        let service = service.clone();
        async move {
            let response = service.oneshot(Request::new(())).await.expect("an answer");
            assert_eq!(response.status(), 200);
        }
    })
}
