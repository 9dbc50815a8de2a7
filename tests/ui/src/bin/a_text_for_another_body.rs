//! `HttpResponder::text` around a service whose body is not made of a `String`, as that of tonic.

use http::{Request, Response};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{HttpResponder, RateLimitLayer};

#[derive(Default)]
struct Body(Vec<u8>);

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(Body(vec![1]))));
    let layer = RateLimitLayer::new(Scripted::new(), Global).respond(HttpResponder::new().text());
    serve(layer.layer(inner)); //~ `text` and `problem_json` need a body that is `From<String>`
}

fn serve(_: impl Service<Request<()>>) {}
