//! A closure around `HttpResponder` would lose the header fields of admitted responses.

use http::{Request, Response};
use tower::{BoxError, Layer, Service, service_fn};
use tower_sluice::key::Global;
use tower_sluice::testing::Scripted;
use tower_sluice::{HttpResponder, RateLimitLayer, Refusal};

fn main() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(String::new())));
    let http = HttpResponder::new().text();
    let layer = RateLimitLayer::new(Scripted::new(), Global)
        .respond(move |request: Request<()>, refusal: Refusal| http.reject(request, refusal));
    serve(layer.layer(inner));
}

fn serve(_: impl Service<Request<()>>) {}
