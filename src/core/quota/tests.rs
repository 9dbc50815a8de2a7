use super::*;

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

// Cases 58 and 62.
#[test]
fn slowest_and_fastest_are_accepted() {
    for (limit, period, burst) in [
        (1, YEAR, 1),
        (1, YEAR / 365, 10_000),
        (1_000_000_000, SECOND, 1),
        (1_000_000_000, SECOND, 1_000_000),
        (MAX_LIMIT, SECOND, 1),
        // The product of the limit exceeds the range, that of the burst does not.
        (999_983, YEAR / 365, 1),
        // Plans from a table, which nobody chose for their factors.
        (999_983, YEAR / 365, 999_983),
        (1_234_567, YEAR / 365, 1_234_567),
        (5_003, YEAR / 12, 5_003),
    ] {
        let quota = Quota::try_new(limit, period).and_then(|quota| quota.try_burst(burst));
        assert!(quota.unwrap().unit().is_ok(), "{quota:?}");
    }
}

// Case 58.
#[test]
fn out_of_range_is_told_by_product() {
    fn reason<T: fmt::Debug>(result: Result<T, QuotaError>) -> String {
        result.unwrap_err().to_string()
    }
    assert_eq!(reason(Quota::per_second(5).try_burst(0)), "a burst of 0 admits nothing");
    assert_eq!(reason(Quota::try_new(1, Duration::ZERO)), "the period is 0");
    assert!(reason(Quota::try_new(1, Duration::from_nanos(1_500))).contains("whole number"));
    assert!(reason(Quota::try_new(1, Duration::MAX)).contains("the period exceeds"));
    assert!(reason(Quota::try_new(u64::MAX, SECOND)).contains("2^50 units"));
    assert!(reason(Quota::per_second(1).try_burst(u64::MAX)).contains("2^50 units"));
    assert!(reason(Quota::per_day(1).burst(1 << 20).unit()).contains("too large for the time"));
    assert!(reason(Quota::per_day(MAX_LIMIT - 1).unit()).contains("too large for the time"));
    assert!(reason(Quota::per_day(1).burst(20_000).unit()).contains("35 years"));
}

#[test]
fn debug_output_has_the_period_with_its_unit() {
    let quota = Quota::new(5, Duration::from_millis(1_100));
    assert_eq!(format!("{quota:?}"), "Quota { limit: 5, period: 1.1s, burst: 5 }");
}

#[test]
fn unit_is_a_reduced_fraction() {
    assert_eq!(Quota::per_second(5).unit(), Ok((200_000, 1)));
    assert_eq!(Quota::per_second(3).unit(), Ok((1_000_000, 3)));
    assert_eq!(Quota::per_second(1_000_000_000).unit(), Ok((1, 1_000)));
}

/// A plan with many prime factors is slower by a trifle, and no faster.
#[test]
fn a_unit_whose_products_are_not_exact_is_rounded_up() {
    // Knuth's generator of pseudorandom numbers, of which the high bits are good.
    let (mut dice, mut rounded) = (0x5EED_u64, 0);
    let mut number = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (bits, digits) = ((dice >> 58) % 50, dice >> 8);
        1 + digits % (1 << bits)
    };
    for _ in 0..100_000 {
        let [limit, micros, burst] = [(); 3].map(|()| number());
        let period = Duration::from_micros(micros);
        let quota = Quota::new(limit, period).burst(burst);
        let Ok((p, l)) = quota.unit() else { continue };
        assert!(quota.burst_size() * p <= INEXACT, "{quota:?}");
        let exact = period.as_micros() * u128::from(l);
        let slower = u128::from(p) * u128::from(limit) - exact;
        assert!(slower * 1_000_000 <= exact, "{quota:?}: {p} / {l}");
        rounded += u64::from(slower > 0);
    }
    assert!(rounded > 1_000, "{rounded}");
}

#[test]
fn a_quota_of_0_is_stated_on_purpose() {
    for quota in [Quota::none(), Quota::try_new(0, SECOND).unwrap(), Quota::try_at_once(0).unwrap()]
    {
        assert!(quota.is_none());
        assert_eq!((quota.limit(), quota.burst_size()), (0, 0));
        assert_eq!(quota.try_burst(5), Ok(quota));
        assert_eq!(quota.unit(), Ok((INEXACT, 1)));
    }
    for by_mistake in [|| Quota::per_second(0), || Quota::at_once(0)] {
        let panic = std::panic::catch_unwind(by_mistake).unwrap_err();
        let why = panic.downcast_ref::<&str>().expect("a text");
        assert!(why.contains("write Quota::none()"), "{why}");
    }
}
