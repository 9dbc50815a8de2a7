//! Turns, with paused time.

use tokio::time::{advance, sleep};

use super::known_refusal::REFUSAL_LIFETIME;
use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(100);

async fn turn(queues: &Arc<Queues>, permits: u32) -> Turn {
    queues.turn("r", permits, None, Instant::now() + MINUTE).await
}

async fn attempt(queues: &Arc<Queues>, permits: u32) -> Attempt {
    match turn(queues, permits).await {
        Turn::Ask(attempt) => attempt,
        Turn::Wait(pause) => panic!("only after {pause:?}"),
    }
}

async fn pause(queues: &Arc<Queues>, permits: u32) -> Duration {
    match turn(queues, permits).await {
        Turn::Ask(_) => panic!("asks"),
        Turn::Wait(pause) => pause,
    }
}

/// Returns true if a new caller waits to be woken.
async fn must_wait(queues: &Arc<Queues>, permits: u32) -> bool {
    tokio::select! {
        biased;
        _ = turn(queues, permits) => false,
        () = tokio::task::yield_now() => true,
    }
}

#[tokio::test(start_paused = true)]
async fn all_ask_while_none_is_refused() {
    let queues = Arc::default();
    let (one, two) = (attempt(&queues, 1).await, attempt(&queues, 1).await);
    one.admitted(1, Duration::ZERO, 9);
    two.admitted(0, Duration::ZERO, 9);
    assert!(queues.lock().by_name.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_for_all_that_need_as_much() {
    let queues = Arc::default();
    let nine = attempt(&queues, 9).await;
    attempt(&queues, 2).await.refused(WAIT, 9);
    assert_eq!([pause(&queues, 2).await, pause(&queues, 9).await], [WAIT; 2]);
    attempt(&queues, 1).await.refused(WAIT / 2, 9);
    assert_eq!(pause(&queues, 1).await, WAIT / 2);
    nine.refused(WAIT * 2, 9);
    assert_eq!(pause(&queues, 9).await, WAIT / 2, "a refusal of one covers nine");
    let impatient =
        queues.turn("r", 1, Some(Instant::now() + WAIT / 4), Instant::now() + MINUTE).await;
    assert!(matches!(impatient, Turn::Ask(_)), "only Redis refuses");
    drop(attempt(&queues, 10).await);
    queues.forget_refusal("r");
    drop(attempt(&queues, 1).await);
}

#[tokio::test(start_paused = true)]
async fn one_asks_and_the_others_learn_the_result() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = attempt(&queues, 1).await;
    assert!(must_wait(&queues, 1).await);
    let (one, other) = (Arc::clone(&queues), Arc::clone(&queues));
    let second = tokio::spawn(async move { attempt(&one, 1).await });
    let third = tokio::spawn(async move { pause(&other, 1).await });
    tokio::task::yield_now().await;
    first.admitted(0, Duration::ZERO, 9);
    second.await.unwrap().refused(WAIT, 9);
    assert_eq!(third.await.unwrap(), WAIT);
}

#[tokio::test(start_paused = true)]
async fn the_last_permit_comes_with_the_wait_for_the_next() {
    let queues = Arc::default();
    attempt(&queues, 3).await.admitted(0, WAIT, 9);
    assert_eq!(pause(&queues, 1).await, WAIT);
}

#[tokio::test(start_paused = true)]
async fn as_many_ask_at_once_as_there_was_room_for() {
    let queues = Arc::default();
    attempt(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    attempt(&queues, 1).await.admitted(3, Duration::ZERO, 9);
    let held = [attempt(&queues, 1).await, attempt(&queues, 2).await];
    assert!(must_wait(&queues, 1).await);
    drop(held);
    drop(attempt(&queues, 5).await);
}

#[tokio::test(start_paused = true)]
async fn waiters_survive_a_dropped_attempt_and_end_in_time() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = attempt(&queues, 1).await;
    let one = Arc::clone(&queues);
    let second = tokio::spawn(async move { attempt(&one, 1).await });
    tokio::task::yield_now().await;
    drop(first);
    let second = second.await.unwrap();
    let begun = Instant::now();
    let third = queues.turn("r", 1, None, begun + WAIT).await;
    assert!(matches!(third, Turn::Ask(_)));
    assert!(begun.elapsed() >= WAIT);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn one_caller_asks_after_an_old_refusal() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(MINUTE, 9);
    advance(REFUSAL_LIFETIME / 2).await;
    // Until one asks again.
    assert_eq!(pause(&queues, 1).await, REFUSAL_LIFETIME / 2);
    advance(REFUSAL_LIFETIME / 2).await;
    let first = attempt(&queues, 1).await;
    assert!(must_wait(&queues, 1).await);
    first.refused(MINUTE, 9);
    assert_eq!(pause(&queues, 1).await, REFUSAL_LIFETIME);
}

#[tokio::test(start_paused = true)]
async fn a_wakeup_of_a_dropped_waiter_wakes_the_next() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = attempt(&queues, 1).await;
    let waiters = [(); 3].map(|()| {
        let queues = Arc::clone(&queues);
        tokio::spawn(async move { attempt(&queues, 1).await })
    });
    tokio::task::yield_now().await;
    let begun = Instant::now();
    // The second and the third are woken one after another, and are dropped before they run.
    drop(first);
    let [second, third, fourth] = waiters;
    second.abort();
    third.abort();
    drop(fourth.await.unwrap());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn idle_queues_are_dropped() {
    let queues = Arc::new(Queues::default());
    let refuse =
        async |name: String| match queues.turn(&name, 1, None, Instant::now() + MINUTE).await {
            Turn::Ask(attempt) => attempt.refused(WAIT, 9),
            Turn::Wait(_) => panic!("a name of its own"),
        };
    for number in 0..SWEEP_FROM {
        refuse(number.to_string()).await;
    }
    sleep(REFUSAL_LIFETIME + IDLE_LIFETIME).await;
    refuse(String::from("another")).await;
    assert_eq!(queues.lock().by_name.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_little_time_never_waits_for_others() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(MINUTE, 9);
    // The refusal is too old, and one caller asks.
    advance(REFUSAL_LIFETIME).await;
    let first = attempt(&queues, 1).await;
    assert!(must_wait(&queues, 1).await);
    let begun = Instant::now();
    for _ in 0..5 {
        let attempt = queues.turn("r", 1, Some(begun + WAIT), begun + MINUTE).await;
        assert!(matches!(attempt, Turn::Ask(_)));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn queues_outlive_a_long_refusal() {
    let queues: Arc<Queues> = Arc::default();
    attempt(&queues, 1).await.refused(MINUTE, 9);
    advance(MINUTE).await;
    let first = attempt(&queues, 1).await;
    assert!(must_wait(&queues, 1).await, "all would ask at once");
    drop(first);
    // A name of this length has no queue.
    let long = "x".repeat(MAX_NAME_LENGTH + 1);
    let turn = queues.turn(&long, 1, None, Instant::now()).await;
    if let Turn::Ask(attempt) = turn {
        attempt.refused(MINUTE, 9);
    }
    assert_eq!(queues.lock().by_name.len(), 1);
}
