//! A handler of axum may return a tuple. A responder returns the response.

use http::{Request, Response, StatusCode};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{RateLimitLayer, Refusal};

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(String::new())));
    let layer = RateLimitLayer::new(Scripted::new(), Global).respond(
        |_: Request<()>, refusal: &Refusal| (StatusCode::TOO_MANY_REQUESTS, refusal.to_string()),
    );
    serve(layer.layer(inner)); //~ with axum, end it with `.into_response()`
}

fn serve(_: impl Service<Request<()>>) {}
