//! The judge bites: honest traces pass, and one planted mistake in them is found.

use std::time::Duration;

use tower_sluice::Quota;

use crate::history::{START, honest, quota};
use support::trial::algorithms::ALGORITHMS;
use support::trial::judge::{Distance, Findings, judge};
use support::trial::model::{Bucket, Model, Window};
use support::trial::trace::{Event, Row};

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

#[test]
fn one_unit_over_is_found() {
    let found = planted(|row| {
        let denied = row.event == Event::Denied && row.cost > 0;
        if denied {
            (row.event, row.wait) = (Event::Allowed, 0);
        }
        denied
    });
    assert!(found.iter().all(|findings| findings.over > 0));
}

#[test]
fn wait_one_microsecond_short_is_found() {
    let found = planted(|row| {
        let short = row.wait > 1;
        row.wait -= i64::from(short);
        short
    });
    assert!(found.iter().all(|findings| findings.over > 0));
}

#[test]
fn wait_one_microsecond_long_is_found() {
    let found = planted(|row| {
        row.wait += i64::from(row.wait > 0);
        row.wait > 0
    });
    assert!(found.iter().all(|findings| findings.unjustified > 0));
}

#[test]
fn refusal_without_a_reason_is_found() {
    let found = planted(|row| {
        let admitted = matches!(row.event, Event::Allowed | Event::Waited) && row.cost > 0;
        if admitted {
            (row.event, row.wait) = (Event::Denied, row.wait.max(1));
        }
        admitted
    });
    assert!(found.iter().all(|findings| findings.unjustified > 0));
}

#[test]
fn refusal_for_ever_of_what_fits_later_is_found() {
    let found = planted(|row| {
        let denied = row.event == Event::Denied;
        if denied {
            (row.event, row.wait) = (Event::Never, 0);
        }
        denied
    });
    assert!(found.iter().all(|findings| findings.unjustified > 0));
}

#[test]
fn reservation_beyond_patience_is_found() {
    let found = planted(|row| {
        let denied = row.event == Event::Denied && row.cost > 0;
        if denied {
            row.event = Event::Waited;
        }
        denied
    });
    assert!(found.iter().all(|findings| findings.over > 0));
}

#[test]
fn units_that_came_back_from_nowhere_or_were_kept_are_found() {
    let more = planted(|row| {
        let none = row.event == Event::Refunded && row.units == 0;
        row.units += u32::from(none);
        none
    });
    assert!(more.iter().all(|findings| findings.over > 0));
    let kept = planted(|row| {
        let some = row.event == Event::Refunded && row.units > 1;
        row.units -= u32::from(some);
        some
    });
    assert!(kept.iter().all(|findings| findings.unjustified > 0));
}

#[test]
fn wrong_report_and_strange_clock_are_found() {
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
