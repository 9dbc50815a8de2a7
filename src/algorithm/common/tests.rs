use super::*;
use crate::algorithm::{Algorithm, SlidingWindow, SmoothWarmingUp, TokenBucket};

#[test]
fn setters_cut_what_is_out_of_range() {
    let quota = Quota::per_second(5);
    let year = 365 * 86_400 * 1_000_000;
    let bucket = TokenBucket::new(quota).horizon(Duration::MAX);
    let rule = bucket.rule(quota).unwrap();
    assert_eq!(<TokenBucket as Algorithm>::horizon(&rule), year);
    let window = |cells| SlidingWindow::new(quota).cells(cells).rule(quota).unwrap();
    assert_eq!((window(0), window(u8::MAX)), (window(1), window(60)));
    let warm = |factor| {
        let pace = SmoothWarmingUp::new(quota, Duration::from_secs(1)).cold_factor(factor);
        pace.rule(quota).unwrap()
    };
    assert_eq!((warm(0.5), warm(f64::NAN), warm(1e9)), (warm(1.0), warm(1.0), warm(1_000.0)));
}
