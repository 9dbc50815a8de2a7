//! `q` is what goes at once, also where an algorithm stores more or less than its limit.

use tower_sluice::algorithm::{AnyAlgorithm, IntoAlgorithm, SmoothBursty, SmoothWarmingUp};
use tower_sluice::{Charge, Limiter, Memory};

use super::*;

/// The two fields of draft-11 after a first charge of so many units; 0 peeks.
async fn fields(algorithm: impl IntoAlgorithm, units: u64) -> [String; 2] {
    let decision = Memory::new("api", algorithm).check(&Charge::new("key").cost(units)).await;
    let headers = annotated(always(HeaderStyle::Draft11), decision.unwrap());
    ["ratelimit-policy", "ratelimit"].map(|name| headers[name].to_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_pace_shows_what_it_stores() {
    let five = Quota::per_second(5);
    for (millis, units, expected) in [
        (1_000, 0, [r#""api";q=5;w=1"#, r#""api";r=5"#]),
        (10_000, 0, [r#""api";q=50;w=10"#, r#""api";r=50"#]),
        (10_000, 20, [r#""api";q=50;w=10"#, r#""api";r=30;t=4"#]),
        (200, 0, [r#""api";q=1;w=1"#, r#""api";r=1"#]),
        (0, 0, [r#""api";q=1;w=1"#, r#""api";r=1"#]),
    ] {
        let burst = Duration::from_millis(millis);
        let pace = SmoothBursty::new(five).max_burst(burst);
        assert_eq!(fields(pace, units).await, expected);
        assert_eq!(fields(AnyAlgorithm::from(pace), units).await, expected);
        let both = fields((pace, pace), units).await;
        let policy = expected[0].strip_prefix(r#""api""#).unwrap();
        assert_eq!(both[0], format!(r#""api-1"{policy}, "api-2"{policy}"#));
    }
    let warm = |seconds| SmoothWarmingUp::new(five, Duration::from_secs(seconds));
    assert_eq!(fields(warm(1), 0).await, [r#""api";q=5;w=1"#, r#""api";r=5"#]);
    assert_eq!(fields(warm(4), 0).await, [r#""api";q=20;w=4"#, r#""api";r=20"#]);
}
