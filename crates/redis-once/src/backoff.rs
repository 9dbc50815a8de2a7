//! The attempts to reach a server: their pauses after failures, their last error, and the time
//! after which one blames the server.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::error::{Error, ErrorKind};
use super::fault::Failed;
use super::on_time::is_late;
use super::times::{
    FORGET_AFTER, HANGS_AFTER, INTERRUPTED_PAUSE, MAX_FIRST_PAUSE, MAX_PAUSE, OVERDUE_AFTER,
};

/// The attempts to reach a server: the pauses between them, and the last error.
///
/// Without failures, an attempt may begin at once. After one, there are at most ten attempts a
/// second for all connections together, besides those of runtimes without a connection, of which
/// one follows each success. A third of each pause is random, so that many processes do
/// not connect at the same moment.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// True if a connection was found to be unusable: then a successful attempt proves nothing.
    was_unusable: bool,
    /// True if the last event was a success. It proves enough for a runtime without a connection,
    /// whose calls fail during a pause.
    has_just_succeeded: bool,
    failed: Option<Instant>,
    next: Option<Instant>,
    /// The error of the last attempt, or of the last connection that became unusable. `None` after
    /// a success. An attempt that this process was too busy for removes a fault of the server, and
    /// sets none.
    pub(super) last_error: Option<Failed>,
    /// The time that the last attempt took.
    last_took: Duration,
}

impl Backoff {
    /// Returns the instant at which the next attempt may begin, if it may not begin now.
    pub(super) fn retry_at(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|next| *next > now)
    }

    /// Returns the same for a runtime without a connection: it may follow a success at once.
    pub(super) fn retry_at_without_connection(&self, now: Instant) -> Option<Instant> {
        self.retry_at(now).filter(|_| !self.has_just_succeeded)
    }

    /// Records that an attempt begins.
    pub(super) fn record_attempt(&mut self, now: Instant) {
        self.has_just_succeeded = false;
        self.next = self.in_trouble(now).then(|| now + self.pause());
    }

    /// Records the end of an attempt that began at `begun`. `None`: its runtime ended.
    pub(super) fn record_end(&mut self, begun: Instant, outcome: Option<Result<(), Error>>) {
        let (now, is_success) = (Instant::now(), matches!(outcome, Some(Ok(()))));
        match outcome {
            Some(Ok(())) => {
                self.last_error = None;
                if !self.was_unusable {
                    *self = Self::default();
                }
            }
            // This process was too busy. The server may work again now, so its earlier error no
            // longer counts.
            Some(Err(error)) if error.kind() == ErrorKind::Saturation => {
                self.last_error.take_if(|last| last.error.kind() == ErrorKind::Infrastructure);
                self.hold_until(now + INTERRUPTED_PAUSE);
            }
            Some(Err(error)) => {
                self.last_error = Some(Failed { error, at: Some(now) });
                self.record_failure(begun);
            }
            None => self.hold_until(now + INTERRUPTED_PAUSE),
        }
        self.has_just_succeeded = is_success;
        self.last_took = now.saturating_duration_since(begun);
    }

    /// Records that an attempt gets no answer, although this process waits for it.
    pub(super) fn record_overdue(&mut self, error: Error) {
        self.last_error = Some(Failed { error, at: Some(Instant::now()) });
    }

    /// Records that a connection became unusable, at an instant that may be long ago.
    pub(super) fn record_unusable(&mut self, at: Instant, error: Error) {
        self.last_error = Some(Failed { error, at: Some(at) });
        self.record_failure(at);
        (self.was_unusable, self.has_just_succeeded) = (true, false);
    }

    /// Records the failure of an attempt that began at `begun`. The pause counts from there, since
    /// an attempt that waited long for an answer does not show the current state of the server.
    fn record_failure(&mut self, begun: Instant) {
        self.was_unusable &= self.in_trouble(begun);
        self.failures = if self.in_trouble(begun) { self.failures.saturating_add(1) } else { 0 };
        self.failed = self.failed.max(Some(begun));
        self.next = self.next.max(Some(begun + self.pause()));
    }

    /// Lets no attempt begin before `instant`.
    pub(super) fn hold_until(&mut self, instant: Instant) {
        self.next = self.next.max(Some(instant));
    }

    /// Lets the next attempt begin at `instant` at the latest.
    pub(super) fn wait_at_most_until(&mut self, instant: Instant) {
        self.next = self.next.min(Some(instant));
    }

    fn in_trouble(&self, now: Instant) -> bool {
        self.failed.is_some_and(|failed| now < failed + FORGET_AFTER)
    }

    fn pause(&self) -> Duration {
        let max_pause = if self.failures == 0 { MAX_FIRST_PAUSE } else { MAX_PAUSE };
        max_pause * 2 / 3 + max_pause.mul_f64(fastrand::f64() / 3.0)
    }

    /// Returns the time after which an attempt blames its server, although it goes on. It is short
    /// after a refusal, which is not the reason of a server that is silent now. But an attempt to a
    /// far server may take as long as the last one.
    pub(super) fn patience(&self) -> Duration {
        match self.last_error.as_ref().map(|last| last.error.kind()) {
            None | Some(ErrorKind::Infrastructure | ErrorKind::Saturation) => OVERDUE_AFTER,
            Some(_) => HANGS_AFTER.max(2 * self.last_took),
        }
    }
}

/// Runs an attempt, and calls `overdue` once if it takes longer than `patience`. A process that
/// stands still meanwhile waits longer: it had no turn to notice an answer.
pub(super) async fn with_patience<T>(
    attempt: impl Future<Output = T>,
    patience: Duration,
    overdue: impl FnOnce(),
) -> T {
    const TURNS: u32 = 10;
    let mut attempt = pin!(attempt);
    let mut turns = 0;
    while turns < TURNS {
        let due = Instant::now() + patience / TURNS;
        match timeout_at(due, &mut attempt).await {
            Ok(result) => return result,
            Err(_) => turns += u32::from(!is_late(due)),
        }
    }
    overdue();
    attempt.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Error {
        Error::new(ErrorKind::Infrastructure, "away")
    }

    #[tokio::test(start_paused = true)]
    async fn in_trouble_there_are_at_most_ten_attempts_a_second() {
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        let (mut now, mut attempts) = (begun, 0);
        backoff.record_failure(now);
        while now < begun + Duration::from_secs(60) {
            if backoff.retry_at(now).is_none() {
                attempts += 1;
                backoff.record_attempt(now);
                // Half of the attempts fail.
                if fastrand::bool() {
                    backoff.record_failure(now);
                }
            }
            now += Duration::from_millis(1);
        }
        assert!((60..=600).contains(&attempts), "{attempts}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_became_unusable_long_ago_is_no_reason_to_pause() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let later = now + MAX_PAUSE;
        backoff.record_unusable(now, away());
        assert_eq!(backoff.retry_at(later), None);
        // An older failure does not shorten a pause.
        backoff.record_failure(later);
        let pause = backoff.retry_at(later);
        backoff.record_unusable(now, away());
        assert_eq!(backoff.retry_at(later), pause);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_took_long_is_no_reason_to_pause() {
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        backoff.record_attempt(begun);
        let ended = begun + MAX_FIRST_PAUSE;
        backoff.record_failure(begun);
        assert_eq!(backoff.retry_at(ended), None);
        backoff.record_attempt(ended);
        assert!(backoff.retry_at(ended).is_some(), "the next one is an attempt in trouble");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_the_pauses_unless_connections_are_unusable() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        backoff.record_failure(now);
        backoff.record_end(now, Some(Ok(())));
        assert_eq!(backoff.retry_at(now), None);
        backoff.record_unusable(now, away());
        backoff.record_end(now, Some(Ok(())));
        assert!(backoff.retry_at(now).is_some());
    }

    #[test]
    fn a_silent_server_is_given_up_within_half_a_second() {
        let most = super::super::times::MAX_SILENCE + MAX_FIRST_PAUSE;
        assert!(most < Duration::from_millis(490), "{most:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_trouble_nothing_pauses() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(backoff.retry_at(now), None);
            backoff.record_attempt(now);
        }
        backoff.record_failure(now);
        let first = backoff.retry_at(now).expect("a pause") - now;
        assert!((MAX_FIRST_PAUSE / 2..=MAX_FIRST_PAUSE).contains(&first), "{first:?}");
        let later = now + FORGET_AFTER;
        assert_eq!(backoff.retry_at(later), None);
        backoff.record_attempt(later);
        assert_eq!(backoff.retry_at(later), None);
    }
}
