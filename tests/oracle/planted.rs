//! The judge bites: honest traces pass, and one planted mistake in them is found.

use std::time::Duration;

use tower_sluice::Quota;

use crate::history::{START, honest, quota};
use support::trial::algorithms::ALGORITHMS;
use support::trial::judge::{Distance, Findings, judge};
use support::trial::leases::{judge_leases, may_lease};
use support::trial::model::{Bucket, Bursty, Model, Permits, Window};
use support::trial::trace::{Event, Row};
use support::trial::workload::Workload;

/// Plants a mistake in the first row that can have it; histories without one are left out.
fn planted(mistake: impl Fn(&mut Row) -> bool) -> Vec<Findings> {
    let mut found = Vec::new();
    for algorithm in &ALGORITHMS {
        for seed in 0..20 {
            let model = || (algorithm.model)(quota(algorithm));
            let mut rows = honest(model(), seed);
            if rows.iter_mut().any(&mistake) {
                found.push(judge(&rows, Distance::Near, model).0);
            }
        }
    }
    assert!(found.len() >= ALGORITHMS.len() * 10, "a mistake that is rarely possible");
    found
}

#[test]
fn honest_traces_pass() {
    for algorithm in &ALGORITHMS {
        for seed in 0..200 {
            let model = || (algorithm.model)(quota(algorithm));
            let findings = judge(&honest(model(), seed), Distance::Near, model).0;
            assert_eq!((findings.over, findings.unjustified), (0, 0), "{:?}", findings.faults);
            assert_eq!(findings.faults, Vec::<String>::new());
        }
    }
}

/// Changes a row if it can have the mistake, and returns true if so.
type Mistake = fn(&mut Row) -> bool;

/// Gives a row another event and another wait if so.
fn becomes(event: Event, wait: i64, if_so: bool, row: &mut Row) -> bool {
    if if_so {
        (row.event, row.wait) = (event, wait);
    }
    if_so
}

fn is_denied(row: &Row) -> bool {
    row.event == Event::Denied && row.cost > 0
}

#[test]
fn too_much_is_found_over() {
    let mistakes: [(&str, Mistake); 4] = [
        ("a unit over", |row| becomes(Event::Allowed, 0, is_denied(row), row)),
        ("a wait one microsecond short", |row| {
            let is_long = row.wait > 1;
            row.wait -= i64::from(is_long);
            is_long
        }),
        ("a reservation beyond patience", |row| {
            becomes(Event::Waited, row.wait, is_denied(row), row)
        }),
        ("units that came back from nowhere", |row| {
            let none = row.event == Event::Refunded && row.units == 0;
            row.units += u32::from(none);
            none
        }),
    ];
    for (name, mistake) in mistakes {
        assert!(planted(mistake).iter().all(|findings| findings.over > 0), "{name}");
    }
}

#[test]
fn too_little_is_found_unjustified() {
    let mistakes: [(&str, Mistake); 4] = [
        ("a wait one microsecond long", |row| {
            row.wait += i64::from(row.wait > 0);
            row.wait > 0
        }),
        ("a refusal without a reason", |row| {
            let is_admitted = matches!(row.event, Event::Allowed | Event::Waited) && row.cost > 0;
            becomes(Event::Denied, row.wait.max(1), is_admitted, row)
        }),
        ("a refusal for ever of what fits later", |row| {
            becomes(Event::Never, 0, row.event == Event::Denied, row)
        }),
        ("units that were kept", |row| {
            let some = row.event == Event::Refunded && row.units > 1;
            row.units -= u32::from(some);
            some
        }),
    ];
    for (name, mistake) in mistakes {
        assert!(planted(mistake).iter().all(|findings| findings.unjustified > 0), "{name}");
    }
}

#[test]
fn a_wrong_report_and_a_strange_clock_are_faults() {
    let mistakes: [fn(&mut Row); 4] = [
        |row| row.remaining += 1,
        |row| row.reset -= 1,
        |row| row.sent += 2_000,
        |row| row.received -= 2_000,
    ];
    for mistake in mistakes {
        let found = planted(|row| {
            if !row.event.returns() {
                mistake(row);
            }
            !row.event.returns()
        });
        assert!(found.iter().all(|findings| !findings.faults.is_empty()));
    }
}

#[test]
fn error_and_tie_without_an_order_are_faults() {
    for algorithm in &ALGORITHMS {
        let model = || (algorithm.model)(quota(algorithm));
        let rows: Vec<_> =
            honest(model(), 1).into_iter().filter(|row| !row.event.returns()).collect();
        let faults = |rows: &[Row]| judge(rows, Distance::Near, model).0.faults.join("\n");
        let mut tie = [rows[3], rows[3]];
        assert!(faults(&tie).contains("two decisions at"));
        tie[1].place = 1;
        assert!(!faults(&tie).contains("two decisions at"));
        assert!(faults(&[Row { event: Event::Error, ..rows[3] }]).contains("no decision"));
        let mut shared = honest(model(), 1);
        shared[0].task = 1;
        assert!(faults(&shared).contains("has no order"));
    }
}

#[test]
fn one_unit_more_of_capacity_is_found() {
    for algorithm in &ALGORITHMS {
        let fair = quota(algorithm);
        let more = (algorithm.quota)(Quota::new(8, fair.period()), fair.burst_size() + 1);
        let findings: Vec<_> = (0..20)
            .map(|seed| honest((algorithm.model)(more), seed))
            .map(|rows| judge(&rows, Distance::Near, || (algorithm.model)(fair)).0)
            .collect();
        assert!(findings.iter().all(|findings| findings.over > 0));
    }
}

/// The bound of every window is judged apart from the replay, from nothing but the grants.
#[test]
fn bucket_that_admits_twice_at_the_edge_of_a_window_is_over() {
    let quota = Quota::new(7, Duration::from_micros(1_000));
    let edge = i128::from(START) + 1_000;
    let twice = [(edge - 1, 7), (edge, 7)];
    assert_eq!(Window::new(quota).excess(&twice), 0);
    assert_eq!(Bucket::new(quota).excess(&twice), 1);
    assert_eq!(Window::new(quota).excess(&[(edge, 7), (edge + 999, 1)]), 1);
    assert_eq!(Window::new(quota).excess(&[(edge, 7), (edge + 1_000, 1)]), 0);

    // A unit takes 142 6/7 µs: 143 µs after the bucket was emptied there is one, and
    // not a µs before.
    assert_eq!(Bucket::new(quota).excess(&[(edge, 7), (edge + 143, 1)]), 0);
    assert_eq!(Bucket::new(quota).excess(&[(edge, 7), (edge + 142, 1)]), 1);
    assert_eq!(Bucket::new(quota).excess(&[(edge, 4), (edge + 142, 4)]), 1);
    assert_eq!(Bucket::new(quota).excess(&[(edge, 1), (edge + 1_000, 7), (edge + 1_142, 1)]), 1);
}

/// An admission by the first task at `now`, in this place of its batch.
fn admitted(now: i64, place: u16, cost: u32) -> Row {
    let (sent, received) = (now.cast_unsigned() * 1_000, (now.cast_unsigned() + 9) * 1_000);
    let base = honest(Bucket::boxed(Quota::per_second(1)), 0)[0];
    let row = Row { event: Event::Allowed, wait: 0, of: 0, units: 0, ..base };
    Row { now, place, cost, number: u32::from(place) + 1, sent, received, ..row }
}

/// Lost calls may have counted, so of their keys only the bound is judged.
#[test]
fn too_much_is_found_beside_calls_that_got_lost() {
    for algorithm in &ALGORITHMS {
        let fair = quota(algorithm);
        let more = (algorithm.quota)(Quota::new(28, fair.period()), 4 * fair.burst_size());
        let judged = |of: Quota, seed| {
            let mut rows = honest((algorithm.model)(of), seed);
            rows.insert(0, Row { event: Event::Lost, ..rows[0] });
            judge(&rows, Distance::Afar, || (algorithm.model)(fair)).0
        };
        for seed in 0..20 {
            let findings = judged(fair, seed);
            assert_eq!((findings.over, findings.by_bound), (0, 1), "{}", algorithm.name);
            assert!(judged(more, seed).over > 0, "{}", algorithm.name);
        }
    }
}

/// The first charge is stored, and the second is Guava's one that is admitted in advance.
#[test]
fn charges_of_one_instant_are_judged_in_the_order_of_their_batch() {
    let quota = Quota::new(7, Duration::from_secs(1));
    let lost = Row { event: Event::Lost, ..admitted(0, 0, 1) };
    for (first, over) in [(1, 0), (15, 1)] {
        let rows = [lost, admitted(START, 1, 15), admitted(START, 0, first)];
        let findings = judge(&rows, Distance::Afar, || Bursty::boxed(quota)).0;
        assert_eq!((findings.over, findings.by_bound), (over, 1));
    }
}

/// It was taken in the millisecond of its instant, but reports what was free when it arrived again.
#[test]
fn a_grant_that_was_sent_again_is_judged_by_the_bound() {
    let quota = Quota::new(7, Duration::from_secs(1));
    let begin = START - START % 1_000;
    let judged = |now, limit| {
        let again = Row { remaining: 3, reset: 0, ..admitted(now, 0, 2) };
        let between = Row { remaining: 3, reset: 999_500, ..admitted(begin + 500, 0, 2) };
        let quota = Quota::new(limit, quota.period());
        judge(&[again, between], Distance::Afar, || Permits::boxed(quota)).0
    };
    let findings = judged(begin, 7);
    assert_eq!((findings.by_bound, findings.over, findings.faults.len()), (1, 0, 0));
    assert_eq!(judged(begin, 3).over, 1);
    assert!(!judged(begin + 1, 7).faults.is_empty());

    // It excuses nothing that is wrong in another millisecond.
    let again = Row { remaining: 3, reset: 0, ..admitted(begin, 0, 2) };
    let wrong = Row { remaining: 4, reset: 999_500, ..admitted(begin + 1_500, 0, 2) };
    let findings = judge(&[again, wrong], Distance::Afar, || Permits::boxed(quota)).0;
    assert_eq!((findings.by_bound, findings.faults.is_empty()), (0, false));
}

/// A lease is one grant of all of its units.
#[test]
fn leases_over_the_bound_are_found() {
    for algorithm in ALGORITHMS.iter().filter(|algorithm| may_lease(algorithm)) {
        let most = Workload::Leased.quota(algorithm.quota).burst_size() as u32;
        let lease = |now: i64| (0..10).map(move |_| admitted(now, 0, most / 10));
        let judged = |rows: Vec<Row>| judge_leases(algorithm, &rows, Distance::Near).over;
        assert_eq!(judged(lease(START).collect()), 0, "{}", algorithm.name);
        let three = (0..3).flat_map(|number| lease(START + number));
        assert!(judged(three.collect()) > 0, "{}", algorithm.name);
    }
}

#[test]
fn state_in_redis_that_is_not_the_models_is_found() {
    let mut bucket = Bucket::new(Quota::new(3, Duration::from_secs(1)));
    bucket.take(1_000_000, 1_000_000, 1);
    assert!(bucket.is_stored_as("1333333+1/3"));
    assert!(
        ["1333333", "1333333+2/3", "1333334", "1333333+1/4", "", "x"]
            .iter()
            .all(|text| !bucket.is_stored_as(text))
    );
    let mut window = Window::new(Quota::per_second(3));
    window.take(1_500_000, 1_500_000, 2);
    assert!(window.is_stored_as("1000000:2") && window.is_stored_as("1999999:2"));
    assert!(
        ["1000000:1", "2000000:2", "1000000", ":"].iter().all(|text| !window.is_stored_as(text))
    );
}

#[test]
fn rows_survive_their_file() {
    for algorithm in &ALGORITHMS {
        for row in honest((algorithm.model)(quota(algorithm)), 3) {
            let mut bytes = Vec::new();
            row.write(&mut bytes);
            assert_eq!(Row::read(bytes.as_slice().try_into().expect("a whole row")), row);
        }
    }
}
