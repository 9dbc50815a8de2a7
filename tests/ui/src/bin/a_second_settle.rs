//! A second closure would replace the first.

use http::Response;
use tower_sluice::key::Global;
use tower_sluice::respond::{Answer, InHandler, count_bytes};
use tower_sluice::testing::Scripted;
use tower_sluice::{RateLimitLayer, Settle};

fn main() {
    let layer = RateLimitLayer::new(Scripted::new(), Global);
    let _ = layer.clone().settle(failed).settle(failed); //~ a second `settle` or `settle_later` would replace the first
    let _ = layer.settle_later(InHandler).settle_later(count_bytes); //~ a second `settle` or `settle_later` would replace the first
}

fn failed(_: Answer<'_, Response<()>, std::io::Error>) -> Settle {
    Settle::Refund
}
