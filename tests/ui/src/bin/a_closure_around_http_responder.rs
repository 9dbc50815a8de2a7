//! A closure around `HttpResponder` would lose the header fields of admitted responses.

use http::{Request, Response};
use tower_sluice::key::Global;
use tower_sluice::respond::Respond;
use tower_sluice::testing::Scripted;
use tower_sluice::{HttpResponder, RateLimitLayer, Refusal};

fn main() {
    let http = HttpResponder::new();
    let _ = RateLimitLayer::new(Scripted::new(), Global).respond(
        move |request: Request<()>, refusal: &Refusal| -> Response<String> {
            http.refuse_in_handler(request, refusal) //~ expected `Refusal`, found `&Refusal`
        },
    );
    let _ = RateLimitLayer::new(Scripted::new(), Global).respond(
        |request: Request<()>, refusal: &Refusal| -> Response<String> {
            let refused: Result<_, std::io::Error> = HttpResponder::new().reject(request, refusal); //~ expected `Refusal`, found `&Refusal`
            refused.unwrap()
        },
    );
}
