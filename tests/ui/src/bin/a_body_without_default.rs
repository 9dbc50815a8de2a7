//! A response body that cannot be empty.

use http::{Request, Response};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::RateLimitLayer;

struct Page(&'static str);

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(Page("hello"))));
    serve(RateLimitLayer::new(Scripted::new(), Global).layer(inner)); //~ a body without `Default` needs `.respond(HttpResponder::new().empty_body(|| ..))`
}

fn serve(_: impl Service<Request<()>>) {}
