use super::super::{Check, Verdict};
use super::*;

/// The start of a cell and of a period.
const T0: i64 = 1_767_225_600_000_000;

fn run(window: SlidingWindow, asks: &[(i64, i64, i64)]) -> Vec<(Verdict, i64, i64)> {
    let rule = window.rule(window.quota()).unwrap();
    let mut state = None;
    let answers = asks.iter().map(|&(at, cost, max_wait)| {
        let step = SlidingWindow::step(&rule, &mut state, T0 + at, Check::new(cost, max_wait));
        (step.verdict, step.report.remaining, step.report.reset_after)
    });
    answers.collect()
}

#[test]
fn what_is_taken_comes_back_a_period_and_a_cell_later() {
    let window = SlidingWindow::new(Quota::per_second(5));
    let answers = run(
        window,
        &[
            (0, 3, 0),
            (150_000, 2, 0),
            (999_999, 1, 0),
            (1_099_999, 1, 0),
            (1_100_000, 3, 0),
            (1_100_000, 1, 0),
        ],
    );
    assert_eq!(
        answers,
        [
            (Verdict::Allow, 2, 1_100_000),
            (Verdict::Allow, 0, 1_050_000),
            (Verdict::Deny(100_001), 0, 200_001),
            (Verdict::Deny(1), 0, 100_001),
            (Verdict::Allow, 0, 1_100_000),
            (Verdict::Deny(100_000), 0, 1_100_000),
        ]
    );
}

#[test]
fn reserved_units_lie_in_the_cell_of_their_slot_and_the_newest_stays() {
    let window = SlidingWindow::new(Quota::per_second(5)).cells(1);
    let rule = window.rule(window.quota()).unwrap();
    let check = |cost| Check::new(cost, 10_000_000);
    let mut state = None;
    SlidingWindow::step(&rule, &mut state, T0, check(5));
    let reserved = SlidingWindow::step(&rule, &mut state, T0, check(1));
    assert_eq!(reserved.verdict, Verdict::Wait(2_000_000));
    let mark = reserved.mark.unwrap();
    assert_eq!(SlidingWindow::refund(&rule, &mut state, T0, &Refund::of_all(1, &mark)), Some(1));
    let report = SlidingWindow::report(&rule, state.as_ref(), T0);
    assert_eq!(report.reset_after, 2_000_000);
    // The newest cell stays even when it is empty, so that no charge overtakes.
    let next = SlidingWindow::step(&rule, &mut state, T0 + 1, check(1));
    assert_eq!(next.verdict, Verdict::Wait(1_999_999));
}

#[test]
fn under_another_width_units_move_to_the_cell_of_their_last_instant() {
    let window = SlidingWindow::new(Quota::per_second(5));
    let rule = window.rule(window.quota()).unwrap();
    let state = SlidingWindow::spend(&rule, None, T0, 3, T0);
    let longer = window.rule(Quota::new(5, Duration::from_secs(10))).unwrap();
    let moved = longer.rebase(Some(&state), T0).unwrap();
    assert_eq!((moved.newest, moved.units_at(0)), (T0 / 1_000_000, 3));
    let finer = window.cells(60).rule(window.quota()).unwrap();
    // No later than now, or than the start of a cell that has not begun.
    for (now, last) in [(-1, 0), (0, 0), (50_000, 50_000), (99_999, 99_999), (1 << 40, 99_999)] {
        let moved = finer.rebase(Some(&state), T0 + now).unwrap();
        assert_eq!((moved.newest, moved.units_at(0)), ((T0 + last) / 16_667, 3), "{now}");
    }
}

/// A rolling deploy: two periods by turns, on a clock that never moves back.
#[test]
fn a_shorter_period_finds_the_units_and_clamps_nothing() {
    const HOUR: i64 = 3_600_000_000;
    let window = SlidingWindow::new(Quota::per_day(1_000));
    let rule =
        |hours: u64| window.rule(Quota::new(1_000, Duration::from_secs(hours * 3_600))).unwrap();
    for at in [0, 1, HOUR, 2 * HOUR] {
        let mut state = None;
        for (step, hours) in [(0, 24), (1, 12), (2, 24), (3, 1), (4, 24)] {
            let check = Check::new(1, 0);
            let answer = SlidingWindow::step(&rule(hours), &mut state, T0 + at + step, check);
            assert_eq!(answer.verdict, Verdict::Allow, "{at} {step}");
            assert_eq!(answer.report.remaining, 999 - step, "{at} {step}");
        }
    }
}

// Case 67.
#[test]
fn clock_set_back_locks_for_a_period_and_a_cell_at_most() {
    let window = SlidingWindow::new(Quota::per_second(5));
    let rule = window.rule(window.quota()).unwrap();
    let far = SlidingWindow::spend(&rule, None, T0 + 3_600_000_000, 1, T0 + 3_600_000_000);
    let step = SlidingWindow::step(&rule, &mut Some(far), T0, Check::new(1, 0));
    assert_eq!(step.verdict, Verdict::Deny(1_100_000));
    assert!(step.mark.is_some());
}
