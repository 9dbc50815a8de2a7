//! The errors of callers whose answer never comes, in paused time.

use std::future::poll_fn;
use std::time::Duration;

use redis_once::testing::SilentFake;
use tokio::runtime::Builder;
use tokio::time::advance;

use super::super::super::Pool;
use super::*;
use crate::algorithm::FixedWindow;
use crate::core::{Charge, Quota};
use crate::limiter::Limiter;
use crate::redis::Redis;

const D: Duration = Duration::from_millis(80);

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_at_the_deadline_missed_it() {
    let deadline = Deadline::new(Instant::now() + D, 0);
    let early = dropped_error(&deadline).and_then(Result::err).expect("it ended before");
    assert_eq!(early.kind(), ErrorKind::State);
    advance(D).await;
    assert!(dropped_error(&deadline).is_none());
}

/// The timers and the connection of a call live in its runtime, and end with it.
#[test]
fn a_call_whose_caller_leaves_stays_in_its_runtime() {
    let [own, other] = [(); 2].map(|()| Builder::new_current_thread().enable_time().build());
    let [own, other] = [own.expect("a runtime"), other.expect("a runtime")];
    let pool = Pool::new(Arc::<SilentFake>::default());
    let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(9)), pool);
    for (place, tasks) in [(&own, 1), (&other, 0)] {
        let mut asked = Box::pin(limiter.check(&Charge::new("a")));
        let poll = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending()));
        assert!(own.block_on(poll));
        let before = place.handle().metrics().num_alive_tasks();
        let _context = place.enter();
        drop(asked);
        assert_eq!(place.handle().metrics().num_alive_tasks(), before + tasks);
    }
}

/// A process that is on time catches up before the deadline, and not after it.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_on_time_gives_up_at_the_deadline() {
    for millis in [5, 50, 80] {
        let (pool, timeout) =
            (Pool::new(Arc::<SilentFake>::default()), Duration::from_millis(millis));
        let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(9)), pool);
        let begun = Instant::now();
        limiter.decision_timeout(timeout).check(&Charge::new("a")).await.expect_err("no answer");
        let late = begun.elapsed().checked_sub(timeout).expect("no error before the deadline");
        assert!(late <= Duration::from_millis(1), "{late:?} after {timeout:?}");
    }
}

/// A caller that asks in turn polls the second decision only when the first has come.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_decision_begins_with_its_first_poll() {
    let pool = Pool::new(Arc::<SilentFake>::default());
    let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(9)), pool);
    let asked = limiter.decision_timeout(D).check(&Charge::new("a"));
    advance(D).await;
    let begun = Instant::now();
    let error = asked.await.expect_err("no answer");
    assert_eq!((begun.elapsed(), error.kind()), (D, ErrorKind::Infrastructure));
}

#[tokio::test(start_paused = true)]
async fn a_charge_whose_time_ends_before_it_is_sent_blames_no_server() {
    let pool = Pool::new(Arc::<SilentFake>::default());
    let limiter = Redis::new("api", FixedWindow::new(Quota::per_second(9)), pool);
    let charge = Charge::new("a").with_deadline((Instant::now() + D).into_std());
    let asked = limiter.check(&charge);
    advance(D).await;
    assert_eq!(asked.await.expect_err("no time").kind(), ErrorKind::Saturation);
}
