//! A key closure that returns a number.

use tower_sluice::{RateLimitLayer, by_head, testing::Scripted};

fn main() {
    let key = by_head(|head| head.uri().path().len()); //~ `usize` is not a key
    let _ = RateLimitLayer::new(Scripted::new(), key);
}
