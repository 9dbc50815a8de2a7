use super::*;

fn host(name: &str) -> Host {
    Host { name: name.to_owned(), port: 6_379 }
}

fn says(name: &str, epoch: u64) -> SentinelReport {
    SentinelReport::Primary { host: host(name), epoch }
}

/// The reports of some sentinels.
fn reports<const N: usize>(said: [SentinelReport; N]) -> Reports {
    let mut reports = Reports::new(N);
    for (sentinel, report) in said.into_iter().enumerate() {
        reports.record(sentinel, report);
    }
    reports
}

fn chosen(reports: &Reports) -> Option<String> {
    reports.choose().map(|host| host.name)
}

fn away() -> SentinelReport {
    SentinelReport::Unreachable(Error::new(ErrorKind::Infrastructure, "refused"))
}

#[test]
fn at_the_start_most_votes_win() {
    let mut reports = reports([says("wrong", 99), SentinelReport::Missing, says("one", 5)]);
    assert!(!reports.are_complete());
    reports.record(1, says("one", 5));
    assert!(reports.are_complete());
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    reports.follow(&host("one"));
    // The first sentinel reports nothing new, even if it was away.
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    reports.record(0, away());
    reports.record(0, says("wrong", 99));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    // Nor is it followed to another server.
    reports.record(0, says("two", 100));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

#[test]
fn one_sentinel_that_answers_is_enough() {
    let reports = reports([away(), says("one", 0), SentinelReport::UnknownService]);
    assert!(reports.are_complete());
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

#[test]
fn a_switch_is_followed_once_two_report_it_and_never_back() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    reports.record(1, says("two", 6));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    reports.record(0, says("two", 6));
    assert_eq!(chosen(&reports).as_deref(), Some("two"));
    reports.follow(&host("two"));
    // The first sentinel that knew is cut off, and the others have learnt of the switch.
    reports.record(2, says("two", 6));
    reports.record(1, away());
    assert_eq!(chosen(&reports).as_deref(), Some("two"));
    // A sentinel that was away comes back with its old report.
    reports.record(1, says("one", 5));
    assert_eq!(chosen(&reports).as_deref(), Some("two"));
}

#[test]
fn of_five_two_are_followed_to_a_newer_epoch_alone() {
    for (epoch, is_followed) in [(6, true), (4, false)] {
        let mut reports = reports([(); 5].map(|()| says("one", 5)));
        reports.follow(&host("one"));
        reports.record(0, says("two", epoch));
        reports.record(1, says("two", epoch));
        let expected = if is_followed { "two" } else { "one" };
        assert_eq!(chosen(&reports).as_deref(), Some(expected));
    }
}

#[test]
fn one_wrong_sentinel_is_followed_only_while_no_other_answers() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    reports.record(2, says("wrong", 9));
    reports.record(0, away());
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    reports.record(1, away());
    assert_eq!(chosen(&reports).as_deref(), Some("wrong"));
    reports.follow(&host("wrong"));
    reports.record(0, says("one", 5));
    assert_eq!(chosen(&reports).as_deref(), Some("wrong"));
    // Most of them agree again.
    reports.record(1, says("one", 5));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

#[test]
fn sentinels_that_were_set_up_anew_begin_at_zero() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    for sentinel in 0..3 {
        reports.record(sentinel, says("one", 0));
    }
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    for sentinel in 0..3 {
        reports.record(sentinel, says("two", 0));
    }
    assert_eq!(chosen(&reports).as_deref(), Some("two"));
}

#[test]
fn a_server_that_is_no_primary_is_left_out() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    (0..2).for_each(|sentinel| reports.record(sentinel, says("replica", 6)));
    assert_eq!(chosen(&reports).as_deref(), Some("replica"));
    reports.refute(&host("replica"));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    // A later switch makes it the primary nevertheless.
    (0..2).for_each(|sentinel| reports.record(sentinel, says("replica", 7)));
    assert_eq!(chosen(&reports).as_deref(), Some("replica"));
}

/// The one sentinel that names it has not learnt of the switch.
#[test]
fn a_server_that_is_no_primary_does_not_outvote_the_new_one() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    reports.record(0, says("two", 6));
    reports.record(1, away());
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
    reports.refute(&host("one"));
    assert_eq!(chosen(&reports).as_deref(), Some("two"));
    // A third opinion counts, as before.
    reports.record(1, says("three", 4));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

/// The server was read-only for some time, and no switch followed.
#[test]
fn a_server_that_is_no_primary_is_asked_again_if_no_other_is_named() {
    let mut reports = reports([says("one", 5), says("one", 5), says("two", 4)]);
    reports.follow(&host("one"));
    reports.refute(&host("one"));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

/// The attempt to connect to it ended after a switch that made it a replica.
#[test]
fn a_server_that_was_left_out_late_becomes_the_primary_again() {
    let mut reports = reports([says("one", 5), says("one", 5), says("one", 5)]);
    reports.follow(&host("one"));
    (0..3).for_each(|sentinel| reports.record(sentinel, says("two", 6)));
    reports.refute(&host("one"));
    reports.follow(&host("two"));
    // The third sentinel has not learnt of the next switch yet.
    (0..2).for_each(|sentinel| reports.record(sentinel, says("one", 7)));
    assert_eq!(chosen(&reports).as_deref(), Some("one"));
}

#[test]
fn when_all_are_away_nothing_changes() {
    let mut reports = reports([says("one", 5), away(), away()]);
    reports.follow(&host("one"));
    reports.record(0, away());
    assert_eq!(reports.choose(), None);
}

#[test]
fn errors_say_what_is_wrong() {
    let unknown = reports([away(), SentinelReport::UnknownService, SentinelReport::Missing]);
    let error = unknown.error("main");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("\"main\""), "{error}");
    let password = Error::new(ErrorKind::Configuration, "redis answered: WRONGPASS");
    let wrong = reports([away(), SentinelReport::Unreachable(password), SentinelReport::Missing]);
    assert_eq!(wrong.error("main").kind(), ErrorKind::Configuration);
    let load = Error::new(ErrorKind::Saturation, "this process is too busy");
    let busy = reports([away(), SentinelReport::Unreachable(load), away()]);
    assert_eq!(busy.error("main").kind(), ErrorKind::Saturation);
    let gone = reports([away(), SentinelReport::Missing, SentinelReport::Missing]);
    assert_eq!(gone.error("main").kind(), ErrorKind::Infrastructure);
}
