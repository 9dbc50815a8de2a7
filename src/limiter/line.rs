//! The reserved waits of one limiter, in a line for each key. When a waiter leaves, the waiters
//! behind it move up.
//!
//! A store gives back only the newest slot, but the waiters that leave are usually the oldest. The
//! process that reserved the slots knows its waiters: **waiter `k` of a line uses slot `k`**, even
//! if another waiter reserved it. Slots beyond the last waiter are spare. The newest spare slot is
//! given back. If the store cannot take it back, it is kept until it is due, and the next charge of
//! that key that may wait for it takes it, without a call.
//!
//! No waiter goes before a slot of the store, none goes later than its own slot, and none overtakes
//! another.
//!
//! All keys share one lock, which is held for one step of O(log n). Only the first waiter of a key
//! goes before its own slot, and takes a slot that is due.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::hold::RenewalTimes;
use super::on_time::MAX_TIMEOUT;
use super::queues::KeyQueues;
use crate::core::Decision;
use crate::core::charge::{KeepFree, Key};
use crate::core::mark::Mark;
use crate::core::quota::Quotas;
use crate::core::reservation::ReservedUnits;
use crate::core::settlement::{Settled, Settlement};
use crate::core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::core::sync::{Mutex, lock};
use crate::core::waiters::{Turn, Waiters};

const FIRST_SWEEP: usize = 64;

/// Settles units, and so takes slots back. Implemented by the store that gave them.
pub(crate) trait SettleUnits: Send + Sync {
    /// Settles the units that a charge of `cost` units took, of which `actual` are used.
    fn settle_units(&self, reserved: &ReservedUnits, cost: u64, actual: u64) -> Settlement;
}

#[derive(Default)]
pub(crate) struct Lines {
    by_key: Mutex<ByKey>,
    /// The number of spare slots in all lines, so that a charge searches only if there are any.
    spares: AtomicUsize,
    waiters: AtomicUsize,
    /// The number of keys that are known to be paused, so that an answer searches only if there are
    /// any.
    paused: AtomicUsize,
    /// The requests that wait for units which others hold.
    pub(crate) queues: Arc<KeyQueues>,
    pub(crate) renewals: RenewalTimes,
    changes: Arc<KeyChanges>,
    /// The changes of the members, if these lines belong to limiters that are asked together.
    of_members: Vec<Arc<KeyChanges>>,
}

/// The number of resets and blocks of a limiter's keys.
#[derive(Default)]
struct KeyChanges {
    all: AtomicUsize,
    /// The changes through a limiter that asks several together.
    by_several: AtomicUsize,
}

/// The resets and blocks that lines have seen: of all keys, and of other limiters' keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ResetsSeen {
    all: usize,
    unnamed: usize,
}

#[derive(Default)]
struct ByKey {
    lines: HashMap<Box<str>, Vec<Line>>,
    /// The number of keys at which the next search for unused lines begins.
    sweep_at: usize,
    /// The end of the last of all spare slots, or a later instant.
    spares_until: Option<Instant>,
    /// The ends of the pauses in answers of the store: since the Unix epoch, by the clock of
    /// the decision, and by this process's clock.
    paused: HashMap<Box<str>, (Duration, Instant)>,
}

/// The identity of a line: charges with the same key, quota and cost share it, if they
/// leave as many units free.
pub(crate) struct LineId {
    pub(crate) key: Box<str>,
    pub(crate) quota: Quotas,
    pub(crate) cost: u64,
    pub(crate) keep_free: KeepFree,
}

/// The slots that charges with the same identity reserved, and the waiters.
struct Line {
    quota: Quotas,
    cost: u64,
    keep_free: KeepFree,
    /// The slots of the waiters, as many as there are waiters.
    slots: Slots,
    /// The slots beyond the last waiter, all after those of the waiters.
    spares: Slots,
    /// The waiters, first come, first served: a ring of links, so that any of them leaves in one
    /// step. The element at index 0 is not a waiter: it links the last waiter to the first.
    waiters: Vec<LineWaiter>,
    /// The elements of waiters that left.
    unused: Vec<usize>,
    added: usize,
}

/// Slots by their instants and marks. Their numbers distinguish equal ones.
type Slots = BTreeMap<(Duration, Mark, usize), Slot>;

pub(crate) struct Slot {
    /// Its instant since the Unix epoch, by the clock of the decision.
    at: Duration,
    mark: Mark,
    /// The same instant by this process's clock, or slightly later, since a reply takes time to
    /// arrive.
    due: Instant,
    /// The decision that reserved it, without its reservation.
    report: Decision,
    /// True if the store could not take it back.
    is_kept: bool,
    /// True if the key was reset since: the store has forgotten the slot.
    is_forgotten: bool,
    /// True if the key may have been reset or blocked since: no charge may use the slot.
    is_void: bool,
    /// The resets and blocks that the lines had seen when the slot was added or left.
    known: ResetsSeen,
}

struct LineWaiter {
    /// The instant of its own slot.
    told: Instant,
    /// The instant to which its timer was last set.
    armed: Instant,
    waker: Option<Waker>,
    before: usize,
    behind: usize,
}

pub(crate) struct Place {
    lines: Arc<Lines>,
    id: LineId,
    /// The latest end of its wait.
    told: Instant,
    /// The same since the Unix epoch, by the clock of the decision.
    at: Duration,
    store: Arc<dyn SettleUnits>,
    /// Its slot, except while it is in line. If both are locked, the lines are locked first.
    slot: Mutex<Option<Slot>>,
    /// The index of its waiter in the line, or 0. It changes only while the lines are locked.
    index: AtomicUsize,
    /// A reference to itself, for use beyond a call.
    this: Weak<Self>,
}

impl Slot {
    /// Makes the slot of a decision that waits for it from now on. `known` is the state of the
    /// lines before the store was asked.
    pub(crate) fn new(decision: &Decision, wait: Duration, mark: Mark, known: ResetsSeen) -> Self {
        let now = Instant::now();
        Self {
            at: decision.decided_at().unwrap_or_default().saturating_add(wait),
            mark,
            due: now + wait.min(MAX_TIMEOUT),
            report: decision.without_reservation(),
            is_kept: false,
            is_forgotten: false,
            is_void: false,
            known,
        }
    }

    /// Returns the decision about a charge that takes the slot now, and the mark of its
    /// reservation.
    pub(crate) fn decision(&self) -> (Decision, Mark) {
        let wait = self.due.saturating_duration_since(Instant::now());
        (self.report.waiting_until(self.at, wait), self.mark.clone())
    }

    /// Returns true if no charge may use it, while it is in line.
    fn is_void_in_line(&self, known: ResetsSeen) -> bool {
        self.is_void || self.known.unnamed != known.unnamed
    }

    /// Returns the slot, void if any key was reset or blocked since it left the line.
    fn back_in_line(mut self, known: ResetsSeen) -> Self {
        self.is_void |= self.known != known;
        self.known = known;
        self
    }

    /// Returns the slot as it leaves the line.
    fn out_of_line(mut self, known: ResetsSeen) -> Self {
        self.is_void = self.is_void_in_line(known);
        self.known = known;
        self
    }
}

impl Lines {
    #[inline]
    pub(crate) fn have_spares(&self) -> bool {
        self.spares.load(Relaxed) > 0
    }

    pub(crate) fn take(&self, id: &LineId, max_wait: Duration) -> Option<Slot> {
        let mut by_key = lock(&self.by_key);
        if !by_key.lines.contains_key(&id.key) {
            // The keys of past slots may never be charged again, so charges of other keys remove
            // them.
            if by_key.spares_until <= Some(Instant::now()) {
                self.sweep(&mut by_key);
            }
            return None;
        }
        drop(by_key);
        self.change(id, |line| {
            let spare = line.spares.first_entry()?;
            let wait = spare.get().due.saturating_duration_since(Instant::now());
            (wait <= max_wait).then(|| spare.remove().out_of_line(self.known()))
        })
    }

    /// Makes the lines of limiters that are asked together. Their spare slots are void after a key
    /// of one of the limiters is reset or blocked.
    pub(crate) fn of_several<'a>(members: impl Iterator<Item = &'a Self>) -> Self {
        let changes = |lines: &Self| match &lines.of_members[..] {
            [] => vec![Arc::clone(&lines.changes)],
            several => several.to_vec(),
        };
        Self { of_members: members.flat_map(changes).collect(), ..Self::default() }
    }

    /// Returns the resets and blocks so far. A charge reads them before it asks the store: a slot
    /// from before a reset must not count as one from after it.
    pub(crate) fn known(&self) -> ResetsSeen {
        let unnamed = match &self.of_members[..] {
            [] => self.changes.by_several.load(Relaxed),
            several => several.iter().map(|member| member.all.load(Relaxed)).sum(),
        };
        ResetsSeen { all: self.changes.all.load(Relaxed) + unnamed, unnamed }
    }

    /// Drops the spare slots of a key that was reset or blocked. The store has forgotten slots from
    /// before a reset, so these are not given back.
    pub(crate) fn forget(&self, key: &str, is_reset: bool) {
        let mut by_key = lock(&self.by_key);
        // Under the lock: a slot that leaves its line has seen this change, or is found below.
        self.changes.all.fetch_add(1, Relaxed);
        for member in &self.of_members {
            member.all.fetch_add(1, Relaxed);
            member.by_several.fetch_add(1, Relaxed);
        }
        self.clear(&mut by_key, key, is_reset);
    }

    /// Drops the spare slots of a key that an answer shows to be blocked. Other keys keep theirs.
    #[cold]
    pub(crate) fn drop_spares(&self, key: &str) {
        self.clear(&mut lock(&self.by_key), key, false);
    }

    fn clear(&self, by_key: &mut ByKey, key: &str, is_reset: bool) {
        let Some(lines) = by_key.lines.get_mut(key) else { return };
        lines.retain_mut(|line| {
            self.spares.fetch_sub(line.spares.len(), Relaxed);
            line.spares.clear();
            for slot in line.slots.values_mut() {
                (slot.is_forgotten, slot.is_void) = (slot.is_forgotten || is_reset, true);
            }
            !line.slots.is_empty()
        });
        if lines.is_empty() {
            by_key.lines.remove(key);
        }
    }

    /// Notes that a key is paused `until` an instant since the Unix epoch, when it is `now` there. A
    /// request that waits looks for it at the end of its wait: see [`Waiters::is_paused`].
    pub(crate) fn pause(&self, key: &str, now: Duration, until: Duration) {
        let (own_now, time) = (Instant::now(), until.saturating_sub(now).min(MAX_TIMEOUT));
        let mut by_key = lock(&self.by_key);
        let paused = &mut by_key.paused;
        if paused.len() >= FIRST_SWEEP && paused.len() == paused.capacity() {
            paused.retain(|_, (_, until)| *until > own_now);
        }
        match paused.get_mut(key) {
            Some(known) => *known = (until, own_now + time),
            None => drop(paused.insert(key.into(), (until, own_now + time))),
        }
        self.paused.store(paused.len(), Relaxed);
    }

    pub(crate) fn resume(&self, key: &str) {
        if self.paused.load(Relaxed) > 0 {
            let paused = &mut lock(&self.by_key).paused;
            paused.remove(key);
            self.paused.store(paused.len(), Relaxed);
        }
    }

    /// Returns true if a key is known to be paused now, and at the instant `at` since the Unix
    /// epoch.
    fn is_paused(&self, key: &str, at: Duration) -> bool {
        let ends = lock(&self.by_key).paused.get(key).copied();
        ends.is_some_and(|(until, own)| at < until && Instant::now() < own)
    }

    /// Changes a line. Then wakes the first waiter if it may go earlier than its timer.
    ///
    /// `change` returns the wakers that it replaces or removes. They are dropped after the lock,
    /// since the last waker of a task could drop another waiter of these lines.
    fn change<T>(&self, id: &LineId, change: impl FnOnce(&mut Line) -> T) -> T {
        let LineId { key, quota, cost, keep_free } = id;
        let mut locked = lock(&self.by_key);
        let by_key = &mut *locked;
        if !by_key.lines.contains_key(key) {
            if by_key.lines.len() >= by_key.sweep_at.max(FIRST_SWEEP) {
                self.sweep(by_key);
            }
            by_key.lines.insert(key.clone(), Vec::new());
        }
        let lines = by_key.lines.get_mut(key).expect("inserted if there was none");
        let is_it = |line: &Line| {
            line.cost == *cost && line.quota == *quota && line.keep_free == *keep_free
        };
        let index = lines.iter().position(is_it).unwrap_or_else(|| {
            lines.push(Line::new(id));
            lines.len() - 1
        });
        let line = &mut lines[index];
        let (waiters, spares) = (line.slots.len(), line.spares.len());
        line.drop_useless_spares(self.known());
        let (changed, waker) = (change(line), line.wake_first());
        // One addition each, since callers read the sums without the lock. If a line has fewer now,
        // the difference wraps around, and so does the sum.
        self.spares.fetch_add(line.spares.len().wrapping_sub(spares), Relaxed);
        self.waiters.fetch_add(line.slots.len().wrapping_sub(waiters), Relaxed);
        let last = line.spares.last_key_value().map(|(_, slot)| slot.due);
        by_key.spares_until = by_key.spares_until.max(last);
        if line.slots.len() + line.spares.len() == 0 {
            lines.swap_remove(index);
            if lines.is_empty() {
                by_key.lines.remove(key);
            }
        }
        drop(locked);
        waker.into_iter().for_each(Waker::wake);
        changed
    }

    /// Drops unused lines. The next search begins when there are twice as many lines as now, or
    /// when all spare slots are past.
    fn sweep(&self, by_key: &mut ByKey) {
        by_key.lines.retain(|_, lines| {
            lines.retain_mut(|line| {
                let spares = line.spares.len();
                line.drop_useless_spares(self.known());
                self.spares.fetch_sub(spares - line.spares.len(), Relaxed);
                line.slots.len() + line.spares.len() > 0
            });
            !lines.is_empty()
        });
        by_key.sweep_at = 2 * by_key.lines.len();
    }

    #[cfg(test)]
    pub(crate) fn assert_nobody_waits(&self) {
        let by_key = lock(&self.by_key);
        let lines = || by_key.lines.values().flatten();
        assert_eq!(self.waiters.load(Relaxed), 0);
        assert_eq!(lines().map(|line| line.spares.len()).sum::<usize>(), self.spares.load(Relaxed));
    }
}

impl Line {
    fn new(LineId { quota, cost, keep_free, .. }: &LineId) -> Self {
        let waiters = vec![LineWaiter::new(Instant::now())];
        let (slots, spares) = (Slots::new(), Slots::new());
        let (quota, cost, keep_free) = (quota.clone(), *cost, keep_free.clone());
        Self { quota, cost, keep_free, slots, spares, waiters, unused: Vec::new(), added: 0 }
    }

    /// Drops slots that cannot be used any more: past and void ones. Those behind the first usable
    /// slot are dropped later.
    fn drop_useless_spares(&mut self, known: ResetsSeen) {
        while let Some(first) = self.spares.first_entry()
            && (first.get().due <= Instant::now() || first.get().is_void_in_line(known))
        {
            first.remove();
        }
    }

    /// Adds a slot. Returns true if a spare slot is before it. Waiters of later slots move up.
    fn add_slot(&mut self, slot: Slot) -> bool {
        self.added += 1;
        let key = (slot.at, slot.mark.clone(), self.added);
        let is_spare = self.spares.first_key_value().is_some_and(|(first, _)| *first < key);
        let slots = if is_spare { &mut self.spares } else { &mut self.slots };
        slots.insert(key, slot);
        self.balance();
        is_spare
    }

    /// Moves a slot between the waiters' and the spare ones after one came, or a waiter came or
    /// left.
    fn balance(&mut self) {
        let waiters = self.waiters.len() - 1 - self.unused.len();
        if self.slots.len() > waiters {
            self.spares.extend(self.slots.pop_last());
        } else if self.slots.len() < waiters {
            self.slots.extend(self.spares.pop_first());
        }
    }

    /// Adds a waiter, behind all those whose slots are not later than `at`, and returns its index.
    /// Equal instants are not later, since marks do not show which came first.
    fn add_waiter(&mut self, told: Instant, at: Duration) -> usize {
        let later = self.slots.keys().rev().take_while(|slot| slot.0 > at).count();
        let behind = (0..later).fold(0, |index, _| self.waiters[index].before);
        let before = self.waiters[behind].before;
        let index = self.unused.pop().unwrap_or(self.waiters.len());
        if index == self.waiters.len() {
            self.waiters.push(LineWaiter::new(told));
        }
        self.waiters[index] = LineWaiter { before, behind, ..LineWaiter::new(told) };
        (self.waiters[before].behind, self.waiters[behind].before) = (index, index);
        index
    }

    fn remove_waiter(&mut self, index: usize) -> Option<Waker> {
        let LineWaiter { before, behind, ref mut waker, .. } = self.waiters[index];
        let waker = waker.take();
        (self.waiters[before].behind, self.waiters[behind].before) = (behind, before);
        self.unused.push(index);
        self.balance();
        waker
    }

    fn due(&self, index: usize) -> Instant {
        let LineWaiter { told, before, .. } = self.waiters[index];
        let first = self.slots.first_key_value().filter(|_| before == 0);
        // Its own reply may have been faster than the reply of the waiter before it.
        first.map_or(told, |(_, slot)| told.min(slot.due))
    }

    /// Returns the first waiter's waker if it may go earlier than its timer. Those behind it are
    /// woken one by one, each when the waiter before it goes.
    fn wake_first(&mut self) -> Option<Waker> {
        let first = self.waiters[0].behind;
        let due = self.due(first);
        let waiter = &mut self.waiters[first];
        let before = mem::replace(&mut waiter.armed, due);
        waiter.waker.take_if(|_| due < before)
    }
}

impl Place {
    pub(crate) fn new(
        lines: &Arc<Lines>,
        id: LineId,
        slot: Slot,
        store: Arc<dyn SettleUnits>,
    ) -> Arc<Self> {
        let (lines, told, at) = (Arc::clone(lines), slot.due, slot.at);
        let (slot, index) = (Mutex::new(Some(slot)), AtomicUsize::new(0));
        Arc::new_cyclic(|this| Self { lines, id, told, at, store, slot, index, this: this.clone() })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        self.lines.change(&self.id, change)
    }

    /// The index of its waiter, while that is in this line.
    fn index(&self) -> Option<usize> {
        Some(self.index.load(Relaxed)).filter(|index| *index > 0)
    }

    /// Removes its waiter. If there is a slot more than waiters, the last one is spare.
    fn remove_from(&self, line: &mut Line) -> Option<Waker> {
        let index = self.index()?;
        self.index.store(0, Relaxed);
        line.remove_waiter(index)
    }

    /// Leaves the line and uses a slot. At its own instant this is the last one until then, so that
    /// it is not before its decision. Earlier it is the first one, or if that is not due, the last.
    fn leave_line(&self) {
        if lock(&self.slot).is_none() {
            self.change(|line| {
                let (now, due) = (Instant::now(), line.due(self.index()?));
                let (slots, later) = (&mut line.slots, self.at + Duration::from_nanos(1));
                let (key, _) = match (self.told <= now, due <= now) {
                    (true, _) => slots.range(..(later, Mark::default(), 0)).next_back(),
                    (false, true) => slots.first_key_value(),
                    (false, false) => slots.last_key_value(),
                }
                .or(slots.first_key_value())?;
                let slot = slots.remove(&key.clone())?;
                *lock(&self.slot) = Some(slot.out_of_line(self.lines.known()));
                self.remove_from(line)
            });
        }
    }

    /// Gives back the newest slot of the line, if it has no waiter. If the store cannot take it, it
    /// is kept.
    fn give_back_newest(&self) -> Option<Settlement> {
        self.give_back(self.change(|line| self.pop_newest(line))?)
    }

    /// Takes out the newest slot, if it has no waiter and the store may take it back.
    fn pop_newest(&self, line: &mut Line) -> Option<Slot> {
        let newest = line.spares.last_entry()?;
        let is_takeable = !newest.get().is_kept && !newest.get().is_forgotten;
        is_takeable.then(|| newest.remove().out_of_line(self.lines.known()))
    }

    fn give_back(&self, slot: Slot) -> Option<Settlement> {
        let place = self.this.upgrade()?;
        let LineId { key, quota, cost, .. } = &self.id;
        let (key, quota) = (Key::Owned(key.to_string()), Some(quota.clone()));
        let reserved = ReservedUnits { key, quota, mark: slot.mark.clone() };
        let reclaimed = self.store.settle_units(&reserved, *cost, 0);
        // Held units may be free now.
        self.lines.queues.release(&self.id.key);
        Some(reclaimed.map(move |result| match result {
            Ok(Settled { given_back: 0, .. }) if slot.due > Instant::now() => {
                let kept = place.keep(Slot { is_kept: true, ..slot });
                let given_back = kept.map_or(0, |()| place.id.cost);
                Ok(Settled { given_back, not_taken: 0 })
            }
            result => result,
        }))
    }

    /// Keeps a slot for the next charge. `None` if it is void.
    fn keep(&self, slot: Slot) -> Option<()> {
        self.change(|line| {
            let slot = slot.back_in_line(self.lines.known());
            (!slot.is_void).then(|| line.add_slot(slot))
        })?;
        // Waiters that came in between may have moved up.
        let _ = self.give_back_newest();
        Some(())
    }
}

impl Waiters for Place {
    /// Joins the line, behind all waiters whose slots are not later.
    fn add(&self) -> usize {
        let own = lock(&self.slot).take();
        let joined = own.map(|slot| {
            self.change(|line| {
                let slot = slot.back_in_line(self.lines.known());
                self.index.store(line.add_waiter(self.told, slot.at), Relaxed);
                // Under the lock: a waiter does not count those that join after it.
                (line.add_slot(slot), self.lines.waiters.load(Relaxed) + 1)
            })
        });
        let (has_earlier, waiters) = joined.unwrap_or_default();
        if has_earlier {
            // A spare slot replaces its own one.
            let _ = self.give_back_newest();
        }
        waiters
    }

    fn remove(&self) -> Option<Duration> {
        self.leave_line();
        lock(&self.slot).as_ref().map(|slot| slot.at)
    }

    fn is_paused(&self, at: Duration) -> bool {
        self.lines.is_paused(&self.id.key, at)
    }

    fn due(&self, waker: Option<&Waker>) -> Option<std::time::Instant> {
        let mut waker = waker.cloned();
        let due = self.change(|line| {
            let index = self.index()?;
            let due = line.due(index);
            if waker.is_some() {
                let waiter = &mut line.waiters[index];
                waiter.armed = due;
                mem::swap(&mut waiter.waker, &mut waker);
            }
            Some(due)
        });
        Some(due.unwrap_or(self.told).into_std())
    }
}

impl Turn for Place {
    /// Leaves the line. The units of a slot that is kept for the next charge count as given back.
    fn leave(&self) -> Option<Settlement> {
        let now = Instant::now();
        // The store already failed to take back a kept slot.
        let kept = lock(&self.slot).take_if(|slot| slot.is_kept && slot.due > now);
        if let Some(kept) = kept {
            return Some(Settlement::gave_back(self.keep(kept).map_or(0, |()| self.id.cost)));
        }
        if lock(&self.slot).is_some() {
            return None;
        }
        let left = self.change(|line| {
            self.index().filter(|index| line.due(*index) > now)?;
            let left = self.remove_from(line);
            // Done at once, since a void spare slot is dropped.
            let newest = self.pop_newest(line);
            line.drop_useless_spares(self.lines.known());
            Some((newest, left))
        });
        let (newest, _) = left?;
        let given_back = newest.and_then(|slot| self.give_back(slot));
        Some(given_back.unwrap_or_else(|| Settlement::gave_back(self.id.cost)))
    }

    fn mark(&self) -> Option<Mark> {
        self.leave_line();
        lock(&self.slot).as_ref().map(|slot| slot.mark.clone())
    }

    fn wait(&self) -> Duration {
        lock(&self.slot).as_ref().map_or(Duration::MAX, |slot| {
            slot.at.saturating_sub(slot.report.decided_at().unwrap_or_default())
        })
    }
}

/// Leaves the line if a panic has prevented the end of the wait. Its slot is then spare.
impl Drop for Place {
    fn drop(&mut self) {
        if lock(&self.slot).is_none() {
            self.change(|line| self.remove_from(line));
        }
    }
}

impl LineWaiter {
    fn new(told: Instant) -> Self {
        Self { told, armed: told, waker: None, before: 0, behind: 0 }
    }
}

debug_by_name!([] Lines: spares);

#[cfg(test)]
mod tests;

#[cfg(all(test, interleavings))]
mod interleavings;
