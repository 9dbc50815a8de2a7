use std::pin::pin;
use std::time::Duration;

use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

fn deadline() -> Deadline {
    Deadline::new(Instant::now() + D, 0)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_over_once_no_time_is_left() {
    let now = Instant::now();
    let over = [now - D, now, now + D].map(|at| Deadline::new(at, 0).is_over());
    assert_eq!(over, [true, true, false]);
}

/// Each rule decides before those after it, and only on its own evidence.
#[tokio::test(start_paused = true)]
async fn the_first_rule_that_fits_names_the_fault() {
    advance(2 * MAX_ERROR_AGE).await;
    let start = Instant::now();
    let deadlines = [false, true].map(|is_late| {
        let at = start + if is_late { D / 4 } else { D };
        Deadline::new(at, 0)
    });
    let turned_away = [D / 4, D * 3 / 4].map(|after| Stage::TurnedAway(start + after));
    advance(D).await;
    let [in_time, late] = deadlines;
    let none = Facts::default;
    let failed = |age| {
        let error = Error::new(ErrorKind::Configuration, "refused");
        Facts { failure: Some(Failed { error, at: Some(start - age) }), ..Facts::default() }
    };
    let (fresh, old) = (MAX_ERROR_AGE, MAX_ERROR_AGE + D);
    let silent = |silent_for| Facts { silent_for, ..Facts::default() };
    let [early, too_late] = turned_away;
    let waiting = Stage::Waiting;
    let configuration = ErrorKind::Configuration;
    let (server, nobody) = (ErrorKind::Infrastructure, ErrorKind::Saturation);
    let table = [
        // A failure to connect counts, and in a process that is late only a fresh one.
        (failed(fresh), in_time, &waiting, configuration),
        (failed(old), in_time, &waiting, configuration),
        (failed(fresh), late, &waiting, configuration),
        (failed(old), late, &waiting, nobody),
        (failed(old), in_time, &early, configuration),
        // The cluster is at fault if it rejected the charge for most of its time.
        (none(), in_time, &early, server),
        (none(), in_time, &too_late, nobody),
        (none(), late, &early, nobody),
        // A silent connection is at fault, even if this process is late.
        (silent(D / 2), in_time, &waiting, server),
        (silent(D / 2), late, &waiting, nobody),
        (silent(MAX_SILENCE), late, &waiting, nobody),
        (silent(MAX_SILENCE + 3 * D * 3 / 4), late, &waiting, server),
        (silent(D / 2 - Duration::from_millis(1)), in_time, &waiting, nobody),
        (none(), in_time, &waiting, nobody),
        (none(), late, &waiting, nobody),
    ];
    for (facts, deadline, stage, kind) in table {
        let error = deadline.missed_error(&facts, stage);
        assert_eq!(error.kind(), kind, "{facts:?} {deadline:?} {stage:?}");
    }
}

/// A rare caller with little time knows no newer attempt, and learns how old that one is.
#[tokio::test(start_paused = true)]
async fn an_old_failure_to_connect_says_its_age() {
    let error = Error::new(ErrorKind::Configuration, "refused");
    let failure = Some(Failed { error, at: Some(Instant::now()) });
    let facts = Facts { failure, ..Facts::default() };
    let minute = Duration::from_secs(60);
    for (age, text) in [(MAX_ERROR_AGE - D, "refused"), (minute, "refused, 60 s ago")] {
        advance(age).await;
        let deadline = deadline();
        let error = deadline.missed_error(&facts, &Stage::Waiting);
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Configuration, text));
    }
}

/// A reply that arrives while the runtime catches up is still an answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_the_runtime_catches_up_counts() {
    let deadline = deadline();
    let answer = async {
        advance(D).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        7
    };
    assert_eq!(deadline.wait_for(pin!(answer)).await, Some(7));
}
