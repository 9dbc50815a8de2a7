//! A responder of an application's own cannot be replaced: the setters before it would go, too.

use http::{Request, Response};
use tower_sluice::key::Global;
use tower_sluice::respond::Raise;
use tower_sluice::testing::Scripted;
use tower_sluice::{RateLimitLayer, Refusal};

fn main() {
    let own = |_: Request<()>, _: Refusal| Response::new(String::new());
    let _ = RateLimitLayer::new(Scripted::new(), Global).respond(own).respond(Raise);
}
