//! A closure over the head without `by_head`, and a text instead of a closure.

use http::{Request, Response};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Head;
use tower_sluice::testing::Scripted;
use tower_sluice::RateLimitLayer;

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(String::new())));
    let by_user = |head: Head<'_>| head.header("x-user");
    serve(RateLimitLayer::new(Scripted::new(), by_user).layer(inner)); //~ type mismatch in closure arguments
    serve(RateLimitLayer::new(Scripted::new(), "everybody").layer(inner)); //~ a closure over the head needs `by_head(|head| ..)`
}

fn serve(_: impl Service<Request<()>>) {}
