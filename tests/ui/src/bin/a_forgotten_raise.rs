//! A service that does not speak HTTP, and a layer without `.respond(Raise)`.

use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::RateLimitLayer;

fn main() {
    let inner = service_fn(async |order: u32| Ok::<_, BoxError>(order));
    serve(RateLimitLayer::new(Scripted::new(), Global).layer(inner)); //~ a service that does not speak HTTP needs `.respond(Raise)`
}

fn serve(_: impl Service<u32>) {}
