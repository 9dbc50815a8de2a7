use std::time::Duration;

use tokio::time::advance;

use super::*;

const D: Duration = Duration::from_millis(20);

/// No server is there, and nobody asks.
fn pool() -> Pool {
    Pool::connect("redis://127.0.0.1:1").expect("an address")
}

fn deadline(pool: &Pool) -> Deadline {
    Deadline::new(Instant::now() + D, pool, 0)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_missed_in_time_is_the_servers() {
    let pool = pool();
    let deadline = deadline(&pool);
    advance(D).await;
    assert_eq!(deadline.missed(&pool).class(), Class::Infrastructure);
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_is_load_for_every_charge_of_the_moment() {
    let pool = pool();
    let late = deadline(&pool);
    advance(D).await;
    let other = deadline(&pool);
    advance(D).await;
    assert_eq!(late.missed(&pool).class(), Class::Saturation);
    assert_eq!(other.missed(&pool).class(), Class::Saturation);
    advance(D).await;
    let later = deadline(&pool);
    advance(D).await;
    assert_eq!(later.missed(&pool).class(), Class::Infrastructure);
}

#[tokio::test(start_paused = true)]
async fn a_reply_meanwhile_is_load() {
    let pool = pool();
    pool.record_reply(0);
    let [alone, answered] = [(); 2].map(|()| deadline(&pool));
    advance(D).await;
    assert_eq!(alone.missed(&pool).class(), Class::Infrastructure);
    pool.record_reply(0);
    assert_eq!(answered.missed(&pool).class(), Class::Saturation);
}

/// What arrives while the runtime catches up is still an answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_the_runtime_catches_up_counts() {
    let pool = pool();
    let deadline = deadline(&pool);
    let answer = async {
        advance(D).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        7
    };
    assert_eq!(deadline.answer(std::pin::pin!(answer)).await, Some(7));
}
