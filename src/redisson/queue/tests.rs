//! Turns, with paused time.

use tokio::time::{advance, sleep};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(100);

async fn turn(queues: &Arc<Queues>, permits: u32) -> Turn {
    queues.turn("r", permits, None, Instant::now() + MINUTE).await
}

async fn asker(queues: &Arc<Queues>, permits: u32) -> Asker {
    match turn(queues, permits).await {
        Turn::Now(asker) => asker,
        Turn::Later(pause) => panic!("only after {pause:?}"),
    }
}

async fn pause(queues: &Arc<Queues>, permits: u32) -> Duration {
    match turn(queues, permits).await {
        Turn::Now(_) => panic!("asks"),
        Turn::Later(pause) => pause,
    }
}

/// Whether somebody who comes now waits for the word.
async fn is_held_up(queues: &Arc<Queues>, permits: u32) -> bool {
    tokio::select! {
        biased;
        _ = turn(queues, permits) => false,
        () = tokio::task::yield_now() => true,
    }
}

#[tokio::test(start_paused = true)]
async fn all_ask_as_long_as_nobody_is_refused() {
    let queues = Arc::default();
    let (one, two) = (asker(&queues, 1).await, asker(&queues, 1).await);
    one.admitted(1, Duration::ZERO, 9);
    two.admitted(0, Duration::ZERO, 9);
    assert!(queues.lock().by_name.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_to_all_who_need_as_much() {
    let queues = Arc::default();
    let nine = asker(&queues, 9).await;
    asker(&queues, 2).await.refused(WAIT, 9);
    assert_eq!([pause(&queues, 2).await, pause(&queues, 9).await], [WAIT; 2]);
    asker(&queues, 1).await.refused(WAIT / 2, 9);
    assert_eq!(pause(&queues, 1).await, WAIT / 2);
    nine.refused(WAIT * 2, 9);
    assert_eq!(pause(&queues, 9).await, WAIT / 2, "what is known of one is known of nine");
    let impatient =
        queues.turn("r", 1, Some(Instant::now() + WAIT / 4), Instant::now() + MINUTE).await;
    assert!(matches!(impatient, Turn::Now(_)), "a refusal is always Redis' own");
    drop(asker(&queues, 10).await);
    queues.forget("r");
    drop(asker(&queues, 1).await);
}

#[tokio::test(start_paused = true)]
async fn one_asks_and_the_others_hear_of_it() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = asker(&queues, 1).await;
    assert!(is_held_up(&queues, 1).await);
    let (one, other) = (Arc::clone(&queues), Arc::clone(&queues));
    let second = tokio::spawn(async move { asker(&one, 1).await });
    let third = tokio::spawn(async move { pause(&other, 1).await });
    tokio::task::yield_now().await;
    first.admitted(0, Duration::ZERO, 9);
    second.await.unwrap().refused(WAIT, 9);
    assert_eq!(third.await.unwrap(), WAIT);
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_last_one_tells_when_the_next_comes() {
    let queues = Arc::default();
    asker(&queues, 3).await.admitted(0, WAIT, 9);
    assert_eq!(pause(&queues, 1).await, WAIT);
}

#[tokio::test(start_paused = true)]
async fn as_many_ask_at_once_as_there_was_room_for() {
    let queues = Arc::default();
    asker(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    asker(&queues, 1).await.admitted(3, Duration::ZERO, 9);
    let held = [asker(&queues, 1).await, asker(&queues, 2).await];
    assert!(is_held_up(&queues, 1).await);
    drop(held);
    drop(asker(&queues, 5).await);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_one_who_is_gone_or_for_ever() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = asker(&queues, 1).await;
    let one = Arc::clone(&queues);
    let second = tokio::spawn(async move { asker(&one, 1).await });
    tokio::task::yield_now().await;
    drop(first);
    let second = second.await.unwrap();
    let begun = Instant::now();
    let third = queues.turn("r", 1, None, begun + WAIT).await;
    assert!(matches!(third, Turn::Now(_)));
    assert!(begun.elapsed() >= WAIT);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn an_old_refusal_is_asked_about_by_one() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(MINUTE, 9);
    advance(FRESH / 2).await;
    // Until one asks anew.
    assert_eq!(pause(&queues, 1).await, FRESH / 2);
    advance(FRESH / 2).await;
    let first = asker(&queues, 1).await;
    assert!(is_held_up(&queues, 1).await);
    first.refused(MINUTE, 9);
    assert_eq!(pause(&queues, 1).await, FRESH);
}

#[tokio::test(start_paused = true)]
async fn a_word_to_one_who_is_gone_goes_to_the_next() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(WAIT, 9);
    advance(WAIT).await;
    let first = asker(&queues, 1).await;
    let waiters = [(); 3].map(|()| {
        let queues = Arc::clone(&queues);
        tokio::spawn(async move { asker(&queues, 1).await })
    });
    tokio::task::yield_now().await;
    let begun = Instant::now();
    // The second and the third are given the word, one after another, and gone before they hear it.
    drop(first);
    let [second, third, fourth] = waiters;
    second.abort();
    third.abort();
    drop(fourth.await.unwrap());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn queues_that_nobody_needs_are_forgotten() {
    let queues = Arc::new(Queues::default());
    let refuse =
        async |name: String| match queues.turn(&name, 1, None, Instant::now() + MINUTE).await {
            Turn::Now(asker) => asker.refused(WAIT, 9),
            Turn::Later(_) => panic!("a name of its own"),
        };
    for number in 0..FEW {
        refuse(number.to_string()).await;
    }
    sleep(FRESH + LINGER).await;
    refuse(String::from("another")).await;
    assert_eq!(queues.lock().by_name.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_would_not_wait_is_never_held_up() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(MINUTE, 9);
    // Nothing is known any more, and somebody asks.
    advance(FRESH).await;
    let first = asker(&queues, 1).await;
    assert!(is_held_up(&queues, 1).await);
    let begun = Instant::now();
    for _ in 0..5 {
        let hasty = queues.turn("r", 1, Some(begun + WAIT), begun + MINUTE).await;
        assert!(matches!(hasty, Turn::Now(_)));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn those_who_slept_long_find_their_queue() {
    let queues: Arc<Queues> = Arc::default();
    asker(&queues, 1).await.refused(MINUTE, 9);
    advance(MINUTE).await;
    let first = asker(&queues, 1).await;
    assert!(is_held_up(&queues, 1).await, "all would ask at once");
    drop(first);
    // A name of that length is nobody's that is asked for often.
    let long = "x".repeat(LONGEST + 1);
    let turn = queues.turn(&long, 1, None, Instant::now()).await;
    if let Turn::Now(asker) = turn {
        asker.refused(MINUTE, 9);
    }
    assert_eq!(queues.lock().by_name.len(), 1);
}
