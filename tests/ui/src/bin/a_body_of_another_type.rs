//! The closure of `HttpResponder::body` returns a `String`, and the service has another body.

use http::{Request, Response};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{HttpResponder, RateLimitLayer};

#[derive(Default)]
struct Body(Vec<u8>);

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(Body(vec![1]))));
    let responder = HttpResponder::new().body(|refusal| refusal.to_string());
    let layer = RateLimitLayer::new(Scripted::new(), Global).respond(responder);
    serve(layer.layer(inner)); //~ the closure of `HttpResponder::body` returns the service's body type
}

fn serve(_: impl Service<Request<()>>) {}
