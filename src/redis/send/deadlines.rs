//! Wakes callers whose deadlines pass before their answers come.
//!
//! Almost every answer comes in time. So one task waits for the earliest deadline of all callers of
//! a runtime: a timer for each charge cost a twelfth of the client's work. The task is not the
//! worker's: a thread that stands still may be the one that runs the worker.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::answer_place::Alarm;
use crate::core::sync::{Mutex, lock};

/// The fewest waits before those that are over are removed.
const FIRST_SWEEP: usize = 64;

/// The deadlines of the callers of one runtime.
#[derive(Default)]
pub(super) struct Deadlines {
    waits: Mutex<Waits>,
    /// Notified when the task must wake earlier, or end.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Waits {
    /// By their deadlines. Those that are over are removed now and then.
    alarms: VecDeque<(Instant, Alarm)>,
    sweep_at: usize,
    /// When the task wakes. `None`: there is no task.
    next: Option<Instant>,
}

impl Deadlines {
    /// Adds a caller of the current runtime.
    pub(super) fn add(self: &Arc<Self>, deadline: Instant, alarm: Alarm) {
        let mut waits = lock(&self.waits);
        if waits.alarms.len() >= waits.sweep_at.max(FIRST_SWEEP) {
            waits.alarms.retain(|(_, alarm)| !alarm.is_over());
            waits.sweep_at = 2 * waits.alarms.len();
        }
        let is_last = waits.alarms.back().is_none_or(|(last, _)| *last <= deadline);
        let place = match is_last {
            true => waits.alarms.len(),
            false => waits.alarms.partition_point(|(earlier, _)| *earlier <= deadline),
        };
        waits.alarms.insert(place, (deadline, alarm));
        match waits.next {
            Some(next) if next <= deadline => return,
            Some(_) => self.changed.notify_one(),
            None => drop(tokio::spawn(watch(Arc::downgrade(self), Arc::clone(&self.changed)))),
        }
        waits.next = Some(deadline);
    }

    /// Wakes the callers whose deadlines have passed. Returns the next deadline.
    fn ring(&self) -> Option<Instant> {
        let (mut passed, now) = (Vec::new(), Instant::now());
        let next = {
            let mut waits = lock(&self.waits);
            while let Some((deadline, alarm)) = waits.alarms.front()
                && (*deadline <= now || alarm.is_over())
            {
                passed.extend(waits.alarms.pop_front());
            }
            waits.next = waits.alarms.front().map(|(deadline, _)| *deadline);
            waits.next
        };
        passed.iter().for_each(|(_, alarm)| alarm.ring());
        next
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// Waits for one deadline after another. Ends when nobody waits, and with the limiter.
async fn watch(deadlines: Weak<Deadlines>, changed: Arc<Notify>) {
    while let Some(next) = deadlines.upgrade().and_then(|deadlines| deadlines.ring()) {
        select! {
            biased;
            () = sleep_until(next) => {}
            () = changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
