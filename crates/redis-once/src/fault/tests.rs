use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::advance;

use super::super::pool::Pool;
use super::super::silent::Silent;
use super::super::times::MAX_CONNECTION_WAIT;
use super::*;

const D: Duration = Duration::from_millis(20);

fn pool() -> Pool {
    Pool::new(Arc::<Silent>::default(), None)
}

fn deadline() -> Deadline {
    Deadline::new(Instant::now() + D, 0)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_over_once_no_time_is_left() {
    let now = Instant::now();
    let over = [now - D, now, now + D].map(|at| Deadline::new(at, 0).is_over());
    assert_eq!(over, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_missed_in_time_is_the_servers() {
    let pool = pool();
    let deadline = deadline();
    advance(D).await;
    assert_eq!(pool.missed_error(&deadline, &Stage::Sent).kind(), ErrorKind::Infrastructure);
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_is_load_for_every_charge_of_the_moment() {
    let pool = pool();
    let late = deadline();
    advance(D).await;
    let other = deadline();
    advance(D).await;
    assert_eq!(pool.missed_error(&late, &Stage::Sent).kind(), ErrorKind::Saturation);
    assert_eq!(pool.missed_error(&other, &Stage::Sent).kind(), ErrorKind::Saturation);
    advance(D).await;
    let later = deadline();
    advance(D).await;
    assert_eq!(pool.missed_error(&later, &Stage::Sent).kind(), ErrorKind::Infrastructure);
}

/// Each rule decides before those after it, and only on its own evidence.
#[tokio::test(start_paused = true)]
async fn the_first_rule_that_fits_names_the_fault() {
    let start = Instant::now();
    advance(2 * MAX_ERROR_AGE).await;
    let (start, now) = (start + 2 * MAX_ERROR_AGE, start + 2 * MAX_ERROR_AGE + D);
    let facts = |link| Facts { link, ..Facts::given() };
    let refused = |age| {
        let error = Error::new(ErrorKind::Configuration, "refused");
        Facts {
            failure: Some(Failed { error, at: Some(start - age) }),
            ..facts(Link::Attempted(start))
        }
    };
    let hanging = |link| Facts { attempt_hangs: true, ..facts(link) };
    let seen = Seen { start, late_until: None, was_turned_away: false, others_answer: false };
    let late_at = |late_until| Seen { late_until: Some(late_until), ..seen };
    let (late, late_before) = (late_at(start), late_at(start - D / 2));
    let turned_away = Seen { was_turned_away: true, others_answer: true, ..seen };
    let (fresh, old) = (MAX_ERROR_AGE, MAX_ERROR_AGE + D);
    let moving = "the cluster is moving the key to another server";
    let load = "this process asks more than it can read in time";
    let (silent, unconnected) = ("redis did not answer in time", "no connection to redis in time");
    let not_ready = "the connection to redis is not ready yet";
    let table = [
        // A failure to connect counts, and in a process that was late only a fresh one.
        (refused(fresh), seen, "refused"),
        (refused(old), seen, "refused"),
        (refused(fresh), late, "refused"),
        (refused(old), late, load),
        (refused(old), turned_away, "refused"),
        // The cluster is at fault if this process was on time.
        (Facts::given(), turned_away, moving),
        (Facts::given(), Seen { late_until: late.late_until, ..turned_away }, load),
        // An answer or a late timer is load.
        (Facts::given(), late, load),
        (Facts::given(), Seen { others_answer: true, ..seen }, load),
        (hanging(Link::Missing), late, load),
        // The server did not answer, and this process was on time.
        (Facts::given(), seen, silent),
        (Facts::given(), late_before, silent),
        (facts(Link::Made(start)), seen, silent),
        // The connection did not exist during the whole wait.
        (facts(Link::Made(start + D / 2)), seen, not_ready),
        (hanging(Link::Made(now)), seen, not_ready),
        // There is no connection.
        (facts(Link::Attempted(now - MAX_CONNECTION_WAIT)), seen, unconnected),
        (facts(Link::Attempted(now - MAX_CONNECTION_WAIT / 2)), seen, not_ready),
        // A process that stood still had no time to connect.
        (facts(Link::Attempted(now - MAX_CONNECTION_WAIT)), late_before, not_ready),
        (hanging(Link::Attempted(now)), seen, unconnected),
        (hanging(Link::Missing), seen, unconnected),
        (facts(Link::Missing), seen, not_ready),
    ];
    for (facts, seen, message) in table {
        let error = judge(&facts, &seen, now);
        assert_eq!(error.to_string(), message, "{facts:?} {seen:?}");
        let kind = match message {
            "refused" => ErrorKind::Configuration,
            _ if [load, not_ready].contains(&message) => ErrorKind::Saturation,
            _ => ErrorKind::Infrastructure,
        };
        assert_eq!(error.kind(), kind, "{message}");
    }
}

/// A call that a cluster rejects is sent again and again within one deadline.
#[tokio::test(start_paused = true)]
async fn a_wait_that_begins_late_is_no_load() {
    let pool = pool();
    let deadline = Deadline::new(Instant::now() + 5 * D, 0);
    advance(4 * D).await;
    let pending = std::future::pending::<()>();
    assert!(deadline.wait_for(pool.signs(), pin!(pending)).await.is_none());
    assert_eq!(pool.missed_error(&deadline, &Stage::Sent).kind(), ErrorKind::Infrastructure);
}

#[tokio::test(start_paused = true)]
async fn a_reply_meanwhile_is_load() {
    let pool = pool();
    pool.signs().reply.record();
    let [alone, answered] = [(); 2].map(|()| deadline());
    advance(D).await;
    assert_eq!(pool.missed_error(&alone, &Stage::Sent).kind(), ErrorKind::Infrastructure);
    pool.signs().reply.record();
    assert_eq!(pool.missed_error(&answered, &Stage::Sent).kind(), ErrorKind::Saturation);
}

/// The cluster is at fault even if its servers answer other calls. A busy process sends the
/// call again late.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_turns_a_charge_away_for_most_of_its_time_is_at_fault() {
    let pool = pool().with_signs_of_a_cluster();
    let kind = async |refused_after: Duration, is_late: bool| {
        let deadline = deadline();
        advance(refused_after).await;
        let stage = Stage::TurnedAway { since: Instant::now() };
        pool.signs().reply.record();
        advance(D - refused_after + if is_late { D } else { Duration::ZERO }).await;
        pool.missed_error(&deadline, &stage).kind()
    };
    assert_eq!(kind(D / 4, false).await, ErrorKind::Infrastructure);
    assert_eq!(kind(D * 3 / 4, false).await, ErrorKind::Saturation);
    assert_eq!(kind(D / 4, true).await, ErrorKind::Saturation);
}

/// A reply that arrives while the runtime catches up is still an answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_the_runtime_catches_up_counts() {
    let pool = pool();
    let deadline = deadline();
    let answer = async {
        advance(D).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        7
    };
    assert_eq!(deadline.wait_for(pool.signs(), pin!(answer)).await, Some(7));
}

/// The loss of a connection ends a call too.
#[tokio::test(start_paused = true)]
async fn only_replies_of_the_server_count_as_replies() {
    let pool = pool();
    for is_reply in [false, true] {
        let reply = pin!(std::future::ready(()));
        pool.reply_by(&deadline(), None, reply, |()| is_reply).await;
        assert_eq!(pool.signs().reply.get().is_some(), is_reply);
    }
}
