//! What a source of connections knows about a server when an answer is missing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::times::MAX_CONNECTION_WAIT;
use crate::{Error, ErrorKind};

/// The instant at which something last happened.
#[derive(Debug)]
pub(crate) struct LastTime {
    start: Instant,
    /// In ns since `start`, at least 1; 0: never.
    last: AtomicU64,
}

impl LastTime {
    /// Records that it happens now.
    pub(crate) fn record(&self) {
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

/// The facts that a source of connections knows about the server of a hash slot. They are gathered
/// when an answer is missing, and not for each charge.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The server, or the cluster, for messages.
    pub(super) server: String,
    pub(super) link: Link,
    /// The last failure to connect, if there was no connection since. It counts for nothing while
    /// an attempt hangs.
    pub(super) failure: Option<Failed>,
    /// True if an attempt takes clearly longer than the last one did, whose error said nothing of a
    /// server that is away or of load: it was a wrong password, say.
    pub(super) attempt_hangs: bool,
    /// True if connections to this server of a cluster were given up as silent, and it has said
    /// nothing since.
    pub(super) is_silent: bool,
}

/// A failure to connect, and its instant, if that is known.
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
    /// There is one. The oldest was made at this instant.
    Made(Instant),
    /// There is none. The oldest attempt to make one began at this instant.
    Attempted(Instant),
    /// There is none, and nobody makes one.
    Missing,
}

impl Facts {
    /// The facts about connections that the application made: nothing but that they are there.
    pub(crate) fn given() -> Self {
        let (server, link) = (String::from("redis"), Link::Given);
        Self { server, link, failure: None, attempt_hangs: false, is_silent: false }
    }

    /// Returns the failure to connect, unless it was before `since`.
    pub(super) fn failure_since(&self, since: Option<Instant>) -> Option<&Error> {
        let failure = self.failure.as_ref().filter(|failure| failure.at >= since);
        failure.map(|failure| &failure.error)
    }

    /// Returns the error of a call that waited from `start` to `now`, and got neither a connection
    /// nor a reply, in a process that was on time. An attempt says nothing about the server before
    /// it is old, and the process had time for it. Neither does a connection that was not there
    /// during the whole wait.
    pub(super) fn no_answer(
        &self,
        start: Instant,
        late_until: Option<Instant>,
        now: Instant,
    ) -> Error {
        let server = &self.server;
        if let Some(error) = self.failure_since(None) {
            return error.clone();
        }
        let is_overdue = match self.link {
            Link::Given => true,
            Link::Made(since) => since <= start,
            Link::Attempted(since) => {
                let since = late_until.map_or(since, |late_until| since.max(late_until));
                self.attempt_hangs || since + MAX_CONNECTION_WAIT <= now
            }
            Link::Missing => self.attempt_hangs,
        };
        if !is_overdue {
            let message = format!("the connection to {server} is not ready yet");
            return Error::new(ErrorKind::Saturation, message);
        }
        let message = match self.link {
            Link::Given | Link::Made(_) => "redis did not answer in time".into(),
            Link::Attempted(_) | Link::Missing => format!("no connection to {server} in time"),
        };
        Error::new(ErrorKind::Infrastructure, message)
    }
}
