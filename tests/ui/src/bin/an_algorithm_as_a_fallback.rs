//! An algorithm, and a mode, in place of a fallback.

use tower_sluice::algorithm::TokenBucket;
use tower_sluice::{LimiterExt, Quota, testing::Scripted};

fn main() {
    let share = TokenBucket::new(Quota::per_second(5));
    let _ = Scripted::new().or_else(share); //~ a fallback is `FailOpen`, or a limiter such as `Memory::new("share", algorithm)`
    let _ = Scripted::new().or_else("fail open"); //~ `&str` is not a fallback
}
