//! The callers that wait for a refill of one key, first come, first served.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::Answer;
use crate::limiter::Limiter;

/// A caller that waits for a refill.
pub(super) struct Waiter<L: Limiter> {
    pub(super) cost: u64,
    pub(super) since: Instant,
    pub(super) sender: oneshot::Sender<Answer<L>>,
}

pub(super) struct Queue<L: Limiter> {
    waiters: VecDeque<Waiter<L>>,
    /// The units that the waiters need.
    units: u64,
}

impl<L: Limiter> Default for Queue<L> {
    fn default() -> Self {
        Self { waiters: VecDeque::new(), units: 0 }
    }
}

impl<L: Limiter> Queue<L> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Lets a caller wait from now on.
    pub(super) fn push(&mut self, cost: u64, now: Instant) -> oneshot::Receiver<Answer<L>> {
        let (sender, receiver) = oneshot::channel();
        self.units += cost;
        self.waiters.push_back(Waiter { cost, since: now, sender });
        receiver
    }

    /// Takes the first caller, if it needs at most `units` and came before `end`.
    pub(super) fn pop_first(&mut self, units: u64, end: Instant) -> Option<Waiter<L>> {
        let first = self.waiters.front()?;
        if first.cost > units || first.since >= end {
            return None;
        }
        let waiter = self.waiters.pop_front()?;
        self.units -= waiter.cost;
        Some(waiter)
    }

    /// Takes the last caller.
    pub(super) fn pop_last(&mut self) -> Option<Waiter<L>> {
        let waiter = self.waiters.pop_back()?;
        self.units -= waiter.cost;
        Some(waiter)
    }

    pub(super) fn into_waiters(self) -> impl Iterator<Item = Waiter<L>> {
        self.waiters.into_iter()
    }

    /// Sends all to the inner limiter.
    pub(super) fn send_away(self) {
        for waiter in self.into_waiters() {
            let _ = waiter.sender.send(Answer::AskAlone);
        }
    }
}
