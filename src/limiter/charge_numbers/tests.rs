use super::*;

#[test]
fn a_time_without_an_end_is_cut_to_a_year() {
    let left = deadline(&Charge::new("key"), Duration::MAX) - Instant::now();
    assert_eq!(left.as_secs().div_ceil(86_400), 365);
}
