//! Decides why an answer is missing at its deadline: the process is busy, or the server failed.
//!
//! [`judge`] asks the rules in order: of the evidence, the first that fits decides. The last rule
//! is about the connection, and stands with the facts ([`Facts::no_answer`]). The sources of
//! connections say what they know ([`Facts`]), and a charge what it saw while it waited ([`Seen`]).
//!
//! A timer that fires late, or a reply that arrived meanwhile, counts as load of this process,
//! which `FailOpen` does not admit. The timers of all charges count: a busy process delays some of
//! them, and reads all replies late. A cluster is at fault if it turns a charge away for most of
//! its time while this process is on time.

use std::future::Future;
use std::pin::Pin;

use tokio::select;
use tokio::time::{Instant, timeout_at};

#[cfg(feature = "redisson")]
use super::connection::SharedConnection;
use super::facts::Facts;
use super::pool::Pool;
use super::times::MAX_ERROR_AGE;
use crate::limiter::on_time::{GracePeriod, Timers};
use crate::sync::{Mutex, lock};
use crate::{Error, ErrorKind};

/// The evidence of a wait that ended without an answer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start: Instant,
    /// The instant until which the last late timer of this process counts.
    late_until: Option<Instant>,
    /// True if a server of the cluster turned the charge away in the first half of the wait. If it
    /// was first turned away in the second half, this process may have sent it late.
    was_turned_away: bool,
    /// True if another call was answered in time. If the charge was sent, and its server is known
    /// to be silent, the answers of other servers do not count.
    others_answer: bool,
}

/// Returns the error of a charge without an answer: the first rule that fits decides.
fn judge(facts: &Facts, seen: &Seen, now: Instant) -> Error {
    let was_late = seen.late_until >= Some(seen.start);
    // A busy process may have had no time for another attempt: then only a fresh failure counts.
    let since = seen.start.checked_sub(MAX_ERROR_AGE).filter(|_| was_late);
    if let Some(error) = facts.failure_since(since) {
        return error.clone();
    }
    if !was_late && seen.was_turned_away {
        let message = "the cluster is moving the key to another server";
        return Error::new(ErrorKind::Infrastructure, message);
    }
    if was_late || seen.others_answer {
        let message = "this process asks more than it can read in time";
        return Error::new(ErrorKind::Saturation, message);
    }
    facts.no_answer(seen.start, seen.late_until, now)
}

/// The stage of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits to be sent.
    Queued,
    /// It was sent, and a reply is awaited.
    Sent,
    /// Servers of a cluster have turned it away from the instant `since` on. It waits to be sent
    /// again.
    TurnedAway { since: Instant },
}

/// The stage of a charge, set by the task that sends it, and read by its caller.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<Stage>);

impl Progress {
    pub(crate) fn set(&self, stage: Stage) {
        *lock(&self.0) = stage;
    }

    pub(crate) fn stage(&self) -> Stage {
        *lock(&self.0)
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self(Mutex::new(Stage::Queued))
    }
}

/// The instant by which an answer is needed, and the start of the wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    start: Instant,
    grace_period: GracePeriod,
    pub(crate) hash_slot: u16,
}

impl Deadline {
    /// A deadline for a call to the server that holds `hash_slot`.
    pub(crate) fn new(at: Instant, hash_slot: u16) -> Self {
        let start = Instant::now();
        let grace_period = GracePeriod::before(at, start);
        Self { at, start, grace_period, hash_slot }
    }

    /// Returns whether no time was left when the wait began.
    pub(crate) fn is_over(&self) -> bool {
        self.at <= self.start
    }

    /// Returns whether the process has been too busy since the wait began.
    pub(crate) fn is_busy(&self, pool: &Pool) -> bool {
        if self.grace_period.is_late() {
            pool.last_late().record();
        }
        pool.late_until() >= Some(self.start)
    }

    /// The instant at which half of the time is over.
    fn half(&self) -> Instant {
        self.start + self.at.saturating_duration_since(self.start) / 2
    }

    /// The timers of the wait, the last of which fires early enough to catch up.
    pub(crate) fn timers(&self) -> Timers {
        Timers::until(self.grace_period.begin())
    }

    /// Records that one of the timers has fired, and a busy process if they show one. A process
    /// that stands still for much of a charge's time may be on time again at its end, so each timer
    /// counts. Returns whether it was the last one.
    pub(crate) fn record_timer(&self, timers: &mut Timers, pool: &Pool) -> bool {
        let was_last = timers.record();
        if timers.show_load() {
            pool.last_late().record();
        }
        was_last
    }

    /// Returns the error of a charge that has no answer now. For a charge that was not sent, the
    /// replies of all servers count.
    pub(crate) fn missed_error(&self, pool: &Pool, stage: Stage) -> Error {
        let facts = pool.facts(self.hash_slot);
        let was_sent = stage != Stage::Queued;
        let seen = Seen {
            was_turned_away: matches!(stage, Stage::TurnedAway { since } if since <= self.half()),
            others_answer: pool.last_reply().get() > Some(self.start)
                && !(was_sent && facts.is_silent),
            ..self.seen(pool)
        };
        judge(&facts, &seen, Instant::now())
    }

    /// Returns whether the wait ended so late that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        self.grace_period.is_late()
    }

    /// Returns the error of a wait for a connection that is over now. Replies say nothing about it.
    pub(crate) fn missed_connection(&self, pool: &Pool, facts: &Facts) -> Error {
        judge(facts, &self.seen(pool), Instant::now())
    }

    fn seen(&self, pool: &Pool) -> Seen {
        self.is_busy(pool);
        let (start, late_until) = (self.start, pool.late_until());
        Seen { start, late_until, was_turned_away: false, others_answer: false }
    }

    /// Waits for an answer until the deadline, and a little longer if the process is busy. Returns
    /// `None` if no answer came.
    pub(crate) async fn wait_for<F: Future + ?Sized>(
        self,
        pool: &Pool,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut timers = self.timers();
        loop {
            if let Ok(output) = timeout_at(timers.next(), &mut future).await {
                return Some(output);
            }
            if self.record_timer(&mut timers, pool) {
                break;
            }
        }
        select! {
            biased;
            output = future => Some(output),
            () = self.catch_up() => None,
        }
    }

    /// Waits like [`wait_for`](Self::wait_for), and records the reply of the server, or that none
    /// came.
    #[cfg(feature = "redisson")]
    pub(crate) async fn wait_for_reply<F: Future>(
        self,
        pool: &Pool,
        connection: &dyn SharedConnection,
        reply: Pin<&mut F>,
        was_answered: impl FnOnce(&F::Output) -> bool,
    ) -> Option<F::Output> {
        let sent = Instant::now();
        let reply = self.wait_for(pool, reply).await;
        match &reply {
            Some(reply) if was_answered(reply) => pool.last_reply().record(),
            Some(_) => {}
            None => connection.record_timeout(sent, self.is_busy(pool)),
        }
        reply
    }

    /// Lets the runtime read the replies that have arrived.
    pub(crate) async fn catch_up(self) {
        self.grace_period.catch_up().await;
    }
}

#[cfg(test)]
mod tests;
