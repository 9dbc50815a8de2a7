use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn left(units: u64, quota: Quota) -> Figures {
    let report = PolicyReport::new("x", quota).with_report(units, SECOND);
    report.figures
}

#[test]
fn a_window_is_a_period_and_a_bucket_fills_in_whole_seconds() {
    let window =
        |quota, refills| PolicyReport::of("x", Figures { refills, ..Figures::new(quota) }).window();
    let odd = Quota::new(5, Duration::from_millis(1_500));
    assert_eq!(window(odd, false), Duration::from_millis(1_500));
    assert_eq!(window(odd, true), 2 * SECOND);
    assert_eq!(window(Quota::per_second(3).burst(10), true), 4 * SECOND);
    // Only buckets have a burst.
    assert_eq!(window(Quota::per_second(3).burst(10), false), 4 * SECOND);
    assert_eq!(window(Quota::per_minute(100), true), 60 * SECOND);
}

#[test]
fn tighter_is_what_refuses_longest_then_the_smallest_part() {
    let tightest = |all: &[Figures]| {
        let smallest = all.iter().enumerate().min_by(|a, b| a.1.compare_tightness(b.1));
        smallest.unwrap().0
    };
    let (ten, hundred) = (Quota::per_second(10), Quota::per_second(100));
    assert_eq!(tightest(&[left(5, ten), left(40, hundred)]), 1);
    assert_eq!(tightest(&[left(4, ten), left(40, hundred)]), 0);
    let deny = |figures, retry_after| {
        let outcome = Outcome::Deny { retry_after };
        Figures { outcome, ..figures }
    };
    let [short, long] = [SECOND, 2 * SECOND].map(|wait| deny(left(9, ten), Some(wait)));
    assert_eq!(tightest(&[left(0, ten), short, long]), 2);
    assert_eq!(tightest(&[deny(left(9, ten), None), long]), 0);
    let shadow = Figures { is_shadow: true, ..long };
    assert_eq!(tightest(&[shadow, left(9, ten)]), 1);
    let full_later = Figures { reset_after: Some(2 * SECOND), ..left(0, ten) };
    assert_eq!(tightest(&[left(0, ten), full_later]), 1);
    let unknown = Figures { remaining: None, ..left(0, ten) };
    assert_eq!(tightest(&[unknown, left(10, ten)]), 1);
}

#[test]
fn no_two_names_are_alike() {
    let names = |limiters: &[&str], quotas| {
        let limiters: Vec<Arc<str>> = limiters.iter().map(|name| (*name).into()).collect();
        distinct_names(&limiters, quotas).iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["api"], 1), ["api"]);
    assert_eq!(names(&["api"], 3), ["api-1", "api-2", "api-3"]);
    assert_eq!(names(&["a", "b"], 2), ["a", "b"]);
    assert_eq!(names(&["a", "a", "a-2", "a"], 4), ["a", "a-3", "a-2", "a-4"]);
}
