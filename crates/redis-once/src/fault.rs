//! Decides why an answer is missing at its deadline: the process is busy, the server failed, or
//! it is set up wrongly.
//!
//! [`judge`] applies the rules in order: the first rule that fits decides. The evidence has three
//! parts. [`Facts`] is what a source of connections knows about a server. [`Signs`] are events in
//! this process, which the pool records. [`Seen`] are events during the wait of a call.
//!
//! A timer that fires late, or a reply to another call that came in the meantime, counts as load
//! of this process. Callers must not take load for an outage. The timers of all calls count: a
//! busy process delays some of them, and reads all replies late. A cluster is at fault if it
//! rejects a call for most of its time while this process is on time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::select;
use tokio::time::{Instant, timeout_at};

use super::address::Host;
use super::error::{Error, ErrorKind};
use super::lock::lock;
use super::on_time::{GracePeriod, Timers};
use super::times::{MAX_CONNECTION_WAIT, MAX_ERROR_AGE, MAX_SILENCE};

/// The last instant of an event.
#[derive(Debug)]
pub(super) struct LastTime {
    start: Instant,
    /// The instant in ns since `start`, at least 1. 0: never.
    last: AtomicU64,
}

impl LastTime {
    /// Records the event now.
    pub(super) fn record(&self) {
        self.last.fetch_max(self.start.elapsed().as_nanos() as u64 + 1, Relaxed);
    }

    pub(super) fn get(&self) -> Option<Instant> {
        let last = self.last.load(Relaxed).checked_sub(1)?;
        Some(self.start + Duration::from_nanos(last))
    }
}

impl Default for LastTime {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }
}

/// The signs of load in this process, and of answers. The clones of a pool share them.
#[derive(Debug)]
pub struct Signs {
    /// The last time that a timer fired late.
    late: LastTime,
    /// The time for which a late timer counts. In a cluster it is longer, since replies are too
    /// rare to show that the process is busy.
    late_counts_for: Duration,
    /// The last time that a server replied in time. A late reply is not a sign of load: the network
    /// may be slower than all timeouts.
    pub(super) reply: LastTime,
}

impl Signs {
    pub(super) fn new(is_cluster: bool) -> Self {
        let late_counts_for = if is_cluster { MAX_SILENCE } else { Duration::ZERO };
        Self { late: LastTime::default(), late_counts_for, reply: LastTime::default() }
    }

    /// Returns the instant until which the last late timer counts.
    fn late_until(&self) -> Option<Instant> {
        self.late.get().map(|late| late + self.late_counts_for)
    }
}

/// The facts of a source of connections about the server of a hash slot. They are collected only
/// when an answer is missing, not for each call.
#[derive(Debug)]
pub struct Facts {
    /// The server, or the cluster, for messages.
    pub(super) server: String,
    pub(super) link: Link,
    /// The last failure to connect, or the loss of a silent or read-only connection, if there was
    /// no connection since. A configuration error does not count while an attempt hangs.
    pub(super) failure: Option<Failed>,
    /// True if an attempt takes clearly longer than the last one did. Then the last error may be
    /// out of date: after a wrong password, say, the server may now be silent.
    pub(super) attempt_hangs: bool,
    /// True if connections to this server of a cluster were given up as silent, and it has not
    /// replied since.
    pub(super) is_silent: bool,
}

/// A failure to connect, and its instant, if known.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) at: Option<Instant>,
}

/// The connections of this runtime to a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    /// The application made the connection, at an unknown time.
    Given,
    /// There is a connection. The oldest was made at this instant.
    Made(Instant),
    /// There is no connection. The oldest attempt to make one began at this instant.
    Attempted(Instant),
    /// There is no connection, and no attempt to make one.
    Missing,
}

impl Facts {
    /// The facts about connections that the application made: only that they exist.
    pub fn given() -> Self {
        let (server, link) = (String::from("redis"), Link::Given);
        Self { server, link, failure: None, attempt_hangs: false, is_silent: false }
    }

    /// Returns the failure to connect, unless it was before `since`.
    pub(super) fn failure_since(&self, since: Option<Instant>) -> Option<&Error> {
        let failure = self.failure.as_ref().filter(|failure| failure.at >= since);
        failure.map(|failure| &failure.error)
    }

    /// Returns the error of a call that got no answer from `start` until now, in a process that
    /// was on time.
    #[cfg(test)]
    pub(super) fn judge_unheard(&self, start: Instant) -> Error {
        let (late_until, was_turned_away, others_answer) = (None, false, false);
        let seen = Seen { start, late_until, was_turned_away, others_answer };
        judge(self, &seen, Instant::now())
    }
}

/// The evidence of a wait that ended without an answer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start: Instant,
    /// The instant until which the last late timer of this process counts.
    late_until: Option<Instant>,
    /// True if a server of the cluster rejected the call in the first half of the wait. If it was
    /// first rejected in the second half, this process may have sent it late.
    was_turned_away: bool,
    /// True if another call was answered in time. If the call was sent, and its server is known
    /// to be silent, answers of other servers do not count.
    others_answer: bool,
}

/// Returns the error of a call without an answer: the first rule that fits decides.
fn judge(facts: &Facts, seen: &Seen, now: Instant) -> Error {
    let was_late = seen.late_until >= Some(seen.start);
    // A busy process may have had no time for another attempt: then only a fresh failure counts. In
    // one that is on time it counts until the next attempt ends, since rare calls may never see
    // an attempt that lasts as long as a silent server takes.
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
    // The server did not answer while this process was on time. An attempt to connect counts only
    // if it is old enough, and the process had time for it. A connection counts only if it existed
    // during the whole wait.
    let server = &facts.server;
    let is_overdue = match facts.link {
        Link::Given => true,
        Link::Made(since) => since <= seen.start,
        Link::Attempted(since) => {
            let since = seen.late_until.map_or(since, |late_until| since.max(late_until));
            facts.attempt_hangs || since + MAX_CONNECTION_WAIT <= now
        }
        Link::Missing => facts.attempt_hangs,
    };
    if !is_overdue {
        let message = format!("the connection to {server} is not ready yet");
        return Error::new(ErrorKind::Saturation, message);
    }
    let message = match facts.link {
        Link::Given | Link::Made(_) => "redis did not answer in time".into(),
        Link::Attempted(_) | Link::Missing => format!("no connection to {server} in time"),
    };
    Error::new(ErrorKind::Infrastructure, message)
}

/// The stage of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a connection: to the server of its slot, or to the one that a redirect names
    /// for this call alone. Replies do not count for that.
    Connecting {
        /// The server that a redirect names; `None`: the one of the slot.
        to: Option<Host>,
    },
    /// It waits to be sent.
    #[default]
    Queued,
    /// It was sent, and a reply is awaited.
    Sent,
    /// Servers of a cluster have rejected it. It waits to be sent again.
    TurnedAway {
        /// The instant at which a server first rejected it.
        since: Instant,
    },
}

/// The stage of a call, set by the task that sends it, and read by its caller.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Stage>);

impl Progress {
    /// Sets the stage.
    pub fn set(&self, stage: &Stage) {
        lock(&self.0).clone_from(stage);
    }

    /// Returns the stage.
    pub fn stage(&self) -> Stage {
        lock(&self.0).clone()
    }
}

/// The instant by which an answer is needed, and the start of the wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The instant by which an answer is needed.
    pub at: Instant,
    start: Instant,
    grace_period: GracePeriod,
    /// The hash slot whose server is asked.
    pub hash_slot: u16,
}

impl Deadline {
    /// Makes a deadline for a call to the server that holds `hash_slot`.
    pub fn new(at: Instant, hash_slot: u16) -> Self {
        let start = Instant::now();
        let grace_period = GracePeriod::before(at, start);
        Self { at, start, grace_period, hash_slot }
    }

    /// Returns true if no time was left when the wait began.
    pub fn is_over(&self) -> bool {
        self.at <= self.start
    }

    /// Returns true if the process has been too busy since the wait began.
    pub fn is_busy(&self, signs: &Signs) -> bool {
        if self.grace_period.is_late() {
            signs.late.record();
        }
        signs.late_until() >= Some(self.start)
    }

    /// Returns the instant at which half of the time is over.
    fn half(&self) -> Instant {
        self.start + self.at.saturating_duration_since(self.start) / 2
    }

    /// Returns the timers of the wait. The last one fires early enough to catch up.
    pub fn timers(&self) -> Timers {
        Timers::until(self.grace_period.begin())
    }

    /// Records that one of the timers has fired, and that the process is busy if the timers show
    /// it. A process that stands still for much of a call's time may be on time again at its end,
    /// so each timer counts. Returns true for the last timer.
    pub fn record_timer(&self, timers: &mut Timers, signs: &Signs) -> bool {
        let was_last = timers.record();
        if timers.show_load() {
            signs.late.record();
        }
        was_last
    }

    /// Returns the error of a call that has no answer now. For a call that was not sent, the
    /// replies of all servers count.
    pub(super) fn missed_error(&self, signs: &Signs, facts: &Facts, stage: &Stage) -> Error {
        self.is_busy(signs);
        let seen = Seen {
            start: self.start,
            late_until: signs.late_until(),
            was_turned_away: matches!(stage, Stage::TurnedAway { since } if *since <= self.half()),
            others_answer: !matches!(stage, Stage::Connecting { .. })
                && signs.reply.get() > Some(self.start)
                && !(*stage != Stage::Queued && facts.is_silent),
        };
        judge(facts, &seen, Instant::now())
    }

    /// Returns true if the wait ended so late that the process must be busy.
    pub(super) fn is_late(&self) -> bool {
        self.grace_period.is_late()
    }

    /// Waits for an answer until the deadline, and slightly longer if the process is busy. Returns
    /// `None` if no answer came.
    pub async fn wait_for<F: Future + ?Sized>(
        &self,
        signs: &Signs,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut timers = self.timers();
        loop {
            if let Ok(output) = timeout_at(timers.next(), &mut future).await {
                return Some(output);
            }
            if self.record_timer(&mut timers, signs) {
                break;
            }
        }
        // Rare, and large.
        let catch_up = Box::pin(self.catch_up());
        select! {
            biased;
            output = future => Some(output),
            () = catch_up => None,
        }
    }

    /// Lets the runtime read the replies that have arrived.
    pub async fn catch_up(self) {
        self.grace_period.catch_up().await;
    }
}

#[cfg(test)]
mod tests;
