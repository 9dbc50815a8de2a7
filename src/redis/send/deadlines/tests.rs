use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};
use tokio::time::advance;

use super::super::answer_place::{News, place};
use super::*;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn callers_are_woken_at_their_deadlines_in_whichever_order_they_come() {
    let (deadlines, begun) = (Arc::<Deadlines>::default(), Instant::now());
    let mut waits = JoinSet::new();
    let times = [30, 10, 20, 20, 5, 40].map(Duration::from_millis);
    for time in times {
        let (sender, receiver) = place();
        deadlines.add(begun + time, receiver.alarm());
        waits.spawn(async move {
            let news = poll_fn(|cx| receiver.poll(Some(cx))).await;
            assert!(matches!(news, News::Late));
            // The answer may still come, and the caller does not wait for it twice.
            assert!(matches!(receiver.poll(None), Poll::Ready(News::Late)));
            drop(sender);
            assert!(matches!(receiver.poll(None), Poll::Ready(News::Dropped)));
            (time, begun.elapsed())
        });
    }
    let woken = waits.join_all().await;
    assert!(woken.iter().all(|(time, at)| time == at), "{woken:?}");
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_when_nobody_waits_and_with_the_limiter() {
    let (deadlines, day) = (Arc::<Deadlines>::default(), Duration::from_secs(86_400));
    let before = tasks();
    deadlines.add(Instant::now() + day, place().1.alarm());
    assert_eq!(tasks(), before + 1);
    yield_now().await;
    assert_eq!(tasks(), before, "nobody waits");
    let (_sender, receiver) = place();
    deadlines.add(Instant::now() + day, receiver.alarm());
    yield_now().await;
    assert_eq!(tasks(), before + 1);
    drop(deadlines);
    advance(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before, "the limiter is gone");
}

#[tokio::test(start_paused = true)]
async fn charges_that_were_answered_take_no_memory_until_their_deadlines() {
    let (deadlines, deadline) = (Arc::<Deadlines>::default(), Instant::now() + FAR);
    let waiting: Vec<_> = (0..100).map(|_| place()).collect();
    for (_, receiver) in &waiting {
        deadlines.add(deadline, receiver.alarm());
    }
    for _ in 0..10_000 {
        deadlines.add(deadline, place().1.alarm());
    }
    let kept = lock(&deadlines.waits).alarms.len();
    assert!((100..=300).contains(&kept), "{kept}");
}

const FAR: Duration = Duration::from_secs(60);
