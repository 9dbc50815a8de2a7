//! The connections of one runtime, and which of them to make or use next.

use std::sync::Arc;

use tokio::runtime;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::connection::Connection;
use super::connections::LONGEST_WAIT;

/// The connections of one runtime.
pub(super) struct Slots {
    pub(super) runtime: runtime::Id,
    pub(super) slots: Vec<Slot>,
    /// Where the search for the next connection begins.
    next: usize,
}

#[derive(Clone, Default)]
pub(super) struct Slot {
    pub(super) connection: Option<Arc<Connection>>,
    /// The begin of the attempt to connect that is under way.
    pub(super) attempt: Option<Instant>,
}

impl Slot {
    pub(super) fn is_empty(&self) -> bool {
        self.connection.is_none() && self.attempt.is_none()
    }
}

impl Slots {
    /// The connections of `runtime`.
    pub(super) fn of(runtimes: &mut Vec<Self>, runtime: runtime::Id, size: usize) -> &mut Self {
        let known = runtimes.iter().position(|slots| slots.runtime == runtime);
        let at = known.unwrap_or_else(|| {
            runtimes.push(Self { runtime, slots: vec![Slot::default(); size], next: 0 });
            runtimes.len() - 1
        });
        &mut runtimes[at]
    }

    /// Begins the attempts to connect that are due: returns their slots, and when to look again.
    pub(super) fn begin_attempts(
        &mut self,
        now: Instant,
        backoff: &mut Backoff,
    ) -> (Vec<usize>, Instant) {
        let mut begun = Vec::new();
        let mut look_again = now + LONGEST_WAIT;
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_empty())
        {
            if let Some(later) = backoff.wait(now) {
                look_again = look_again.min(later);
                continue;
            }
            backoff.begin(now);
            slot.attempt = Some(now);
            begun.push(number);
        }
        (begun, look_again)
    }

    /// The usable connections take turns.
    pub(super) fn pick(&mut self) -> Option<Arc<Connection>> {
        let (before, after) = self.slots.split_at(self.next);
        let at = after.iter().chain(before).position(|slot| slot.connection.is_some())?;
        let at = (self.next + at) % self.slots.len();
        self.next = (at + 1) % self.slots.len();
        self.slots[at].connection.clone()
    }
}
