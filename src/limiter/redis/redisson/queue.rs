//! Who of this process asks for a limiter that others wait for.
//!
//! The format books nothing, so everybody who was refused asks again, and of many who wait for one permit all but one
//! would ask in vain. Those who would wait therefore share what is known: while the last refusal holds, and is no older
//! than a second, they are told the same without asking; after that one asks, or as many as were left room for, and the
//! others wait for the word. Who waits for nothing always asks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How long a queue that nobody stands in is kept: those who sleep until its refusal ends come back soon after.
const LINGER: Duration = Duration::from_secs(1);

/// How long a refusal is taken for granted: permits may be given back, or the rate be raised, by others.
const FRESH: Duration = Duration::from_secs(1);

/// So many queues are kept before idle ones are looked for, and so many at the most.
const FEW: usize = 64;
const MOST: usize = 65_536;

/// The queues of one limiter, by the name that is asked for.
#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<String, Queue>,
    /// Idle queues are looked for when there are so many.
    sweep: usize,
}

#[derive(Debug)]
struct Queue {
    /// So many permits do not fit before this instant.
    refused: u32,
    until: Instant,
    /// When that was told.
    heard: Instant,
    /// The permits that were free when somebody was last admitted.
    free: u64,
    /// The permits that are being asked for.
    asked: u64,
    /// Those who wait for the word.
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// Whether to ask.
pub(super) enum Turn {
    /// Now; say what came of it.
    Now(Asker),
    /// Not before so long.
    Later(Duration),
}

/// Somebody who asks, and whom others may wait for.
pub(super) struct Asker {
    queues: Arc<Queues>,
    name: String,
    permits: u32,
    /// Whether the queue counts him.
    is_counted: bool,
}

impl Queues {
    /// Waits for a turn to ask for permits of `name`, for somebody who would wait for them so long; he who is held up
    /// until `end` asks himself.
    pub(super) async fn turn(
        self: &Arc<Self>,
        name: &str,
        permits: u32,
        patience: Duration,
        end: Instant,
    ) -> Turn {
        let asker = |is_counted| {
            Turn::Now(Asker {
                queues: Arc::clone(self),
                name: name.to_owned(),
                permits,
                is_counted,
            })
        };
        loop {
            let word = {
                let mut state = self.lock();
                let now = Instant::now();
                if state.by_name.get(name).is_some_and(|queue| queue.is_idle(now)) {
                    state.by_name.remove(name);
                }
                let Some(queue) = state.by_name.get_mut(name) else { return asker(false) };
                if let Some(pause) = queue.pause(permits, now) {
                    if pause <= patience {
                        return Turn::Later(pause);
                    }
                    return asker(queue.count(permits));
                }
                if queue.asked == 0 || queue.asked + u64::from(permits) <= queue.free || now >= end
                {
                    return asker(queue.count(permits));
                }
                let (sender, word) = oneshot::channel();
                queue.waiting.push_back(sender);
                word
            };
            // However it ends, the queue says what to do.
            let _ = timeout_at(end, word).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was refused: permits were given back.
    pub(super) fn forget(&self, name: &str) {
        if let Some(queue) = self.lock().by_name.get_mut(name) {
            queue.until = Instant::now();
        }
    }
}

impl Queue {
    fn count(&mut self, permits: u32) -> bool {
        self.asked += u64::from(permits);
        true
    }

    /// How long permits are known not to be free.
    fn pause(&self, permits: u32, now: Instant) -> Option<Duration> {
        let is_known = permits >= self.refused && now < self.until && now < self.heard + FRESH;
        is_known.then(|| self.until - now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.asked == 0 && self.waiting.is_empty() && now >= self.until + LINGER
    }

    /// Gives the word to those who may ask or be told now; the others wait on.
    fn give_word(&mut self, now: Instant) {
        let most = if now < self.until.min(self.heard + FRESH) {
            usize::MAX
        } else {
            self.free.max(1) as usize
        };
        let mut given = 0;
        while given < most
            && let Some(next) = self.waiting.pop_front()
        {
            given += usize::from(next.send(()).is_ok());
        }
    }
}

impl Asker {
    /// Was admitted, and so many permits are left; if none is, the next comes free after so long.
    pub(super) fn admitted(self, left: u64, next: Duration) {
        if left == 0 && !next.is_zero() {
            return self.learned(1, next);
        }
        if let Some(queue) = self.queues.lock().by_name.get_mut(&self.name) {
            queue.free = left;
        }
    }

    /// Was refused for so long, and will come back.
    pub(super) fn refused(self, wait: Duration) {
        let permits = self.permits;
        self.learned(permits, wait);
    }

    /// So many permits are not free for so long.
    fn learned(mut self, permits: u32, wait: Duration) {
        let now = Instant::now();
        let mut state = self.queues.lock();
        let State { by_name, sweep } = &mut *state;
        if by_name.len() >= (*sweep).max(FEW) {
            by_name.retain(|_, queue| !queue.is_idle(now));
            *sweep = 2 * by_name.len();
        }
        if by_name.len() >= MOST && !by_name.contains_key(&self.name) {
            return;
        }
        let queue = by_name.entry(self.name.clone()).or_insert_with(|| Queue {
            refused: permits,
            until: now,
            heard: now,
            free: 0,
            asked: 0,
            waiting: VecDeque::new(),
        });
        queue.free = 0;
        // A refusal of fewer permits that still holds says more.
        if queue.pause(permits, now).is_none() || permits <= queue.refused {
            (queue.refused, queue.until, queue.heard) = (permits, now + wait, now);
        }
        drop(state);
        self.leave();
    }

    fn leave(&mut self) {
        let mut state = self.queues.lock();
        if let Some(queue) = state.by_name.get_mut(&self.name) {
            if std::mem::take(&mut self.is_counted) {
                queue.asked = queue.asked.saturating_sub(self.permits.into());
            }
            queue.give_word(Instant::now());
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const WAIT: Duration = Duration::from_millis(100);

    async fn turn(queues: &Arc<Queues>, permits: u32) -> Turn {
        queues.turn("r", permits, MINUTE, Instant::now() + MINUTE).await
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
        one.admitted(1, Duration::ZERO);
        two.admitted(0, Duration::ZERO);
        assert!(queues.lock().by_name.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_told_to_all_who_need_as_much() {
        let queues = Arc::default();
        let nine = asker(&queues, 9).await;
        asker(&queues, 2).await.refused(WAIT);
        assert_eq!([pause(&queues, 2).await, pause(&queues, 9).await], [WAIT; 2]);
        asker(&queues, 1).await.refused(WAIT / 2);
        assert_eq!(pause(&queues, 1).await, WAIT / 2);
        nine.refused(WAIT * 2);
        assert_eq!(pause(&queues, 9).await, WAIT / 2, "what is known of one is known of nine");
        let impatient = queues.turn("r", 1, WAIT / 4, Instant::now() + MINUTE).await;
        assert!(matches!(impatient, Turn::Now(_)), "a refusal is always Redis' own");
        queues.forget("r");
        drop(asker(&queues, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_and_the_others_hear_of_it() {
        let queues: Arc<Queues> = Arc::default();
        asker(&queues, 1).await.refused(WAIT);
        advance(WAIT).await;
        let first = asker(&queues, 1).await;
        assert!(is_held_up(&queues, 1).await);
        let (one, other) = (Arc::clone(&queues), Arc::clone(&queues));
        let second = tokio::spawn(async move { asker(&one, 1).await });
        let third = tokio::spawn(async move { pause(&other, 1).await });
        tokio::task::yield_now().await;
        first.admitted(0, Duration::ZERO);
        second.await.unwrap().refused(WAIT);
        assert_eq!(third.await.unwrap(), WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_the_last_one_tells_when_the_next_comes() {
        let queues = Arc::default();
        asker(&queues, 3).await.admitted(0, WAIT);
        assert_eq!(pause(&queues, 1).await, WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_ask_at_once_as_there_was_room_for() {
        let queues = Arc::default();
        asker(&queues, 1).await.refused(WAIT);
        advance(WAIT).await;
        asker(&queues, 1).await.admitted(3, Duration::ZERO);
        let held = [asker(&queues, 1).await, asker(&queues, 2).await];
        assert!(is_held_up(&queues, 1).await);
        drop(held);
        drop(asker(&queues, 5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_one_who_is_gone_or_for_ever() {
        let queues: Arc<Queues> = Arc::default();
        asker(&queues, 1).await.refused(WAIT);
        advance(WAIT).await;
        let first = asker(&queues, 1).await;
        let one = Arc::clone(&queues);
        let second = tokio::spawn(async move { asker(&one, 1).await });
        tokio::task::yield_now().await;
        drop(first);
        let second = second.await.unwrap();
        let begun = Instant::now();
        let third = queues.turn("r", 1, MINUTE, begun + WAIT).await;
        assert!(matches!(third, Turn::Now(_)));
        assert!(begun.elapsed() >= WAIT);
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_refusal_is_asked_about_by_one() {
        let queues: Arc<Queues> = Arc::default();
        asker(&queues, 1).await.refused(MINUTE);
        advance(FRESH / 2).await;
        assert_eq!(pause(&queues, 1).await, MINUTE - FRESH / 2);
        advance(FRESH / 2).await;
        let first = asker(&queues, 1).await;
        assert!(is_held_up(&queues, 1).await);
        first.refused(MINUTE);
        assert_eq!(pause(&queues, 1).await, MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn queues_that_nobody_needs_are_forgotten() {
        let queues = Arc::new(Queues::default());
        let refuse =
            async |name: String| match queues.turn(&name, 1, MINUTE, Instant::now() + MINUTE).await
            {
                Turn::Now(asker) => asker.refused(WAIT),
                Turn::Later(_) => panic!("a name of its own"),
            };
        for number in 0..FEW {
            refuse(number.to_string()).await;
        }
        sleep(WAIT + LINGER).await;
        refuse(String::from("another")).await;
        assert_eq!(queues.lock().by_name.len(), 1);
    }
}
