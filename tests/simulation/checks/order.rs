//! First come, first served; and a caller that waits goes at its slot.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{GRACE, Seen, since_begin};
use crate::account::{Booking, Refusal};
use crate::clients::EVERYBODY;
use crate::plan::{SECOND, Way};
use crate::servers::{StrikeKind, Topology};
use crate::world::{Fate, Record, TIMEOUT};

/// Timers of a process that is on time fire that much later, and answers take as long.
const SLOT_GRACE: Duration = Duration::from_millis(20);

impl Seen<'_> {
    /// First come, first served, by key and process: one that was decided before another one asked
    /// goes first.
    pub(super) fn order(&self) -> Option<String> {
        // A table in which there is more room lets others pass.
        let is_exchanged = self.plan.tables.len() > 1;
        if is_exchanged || !self.is_exact() || self.has_odd_clocks() {
            return None;
        }
        let admitted = self.records.iter().filter_map(|record| {
            let Fate::Admitted { at, .. } = record.fate else { return None };
            let ask = self.ask(record);
            let alike = (ask.process, ask.key, (ask.cost, ask.keep_free), ask.own_quota);
            // One that takes a slot at hand knows the store's clock but for the way of a reply.
            let decided = since_begin(record.decided_at?).max(record.asked);
            Some((alike, decided, at, record))
        });
        let admitted: Vec<_> = admitted.collect();
        for (alike, decided, at, first) in &admitted {
            // A slot at hand, and perhaps not the one that it went at: it may have moved up.
            let had_one = first.decided_at.is_some_and(|at| since_begin(at) < first.asked);
            let reserved = match had_one {
                true => self.spare_since(first, *at),
                false => self.reserved(first, *at),
            };
            let is_freed = |second: &Record| {
                let mut freed = self.account.freed.iter();
                freed.any(|(label, now)| {
                    [alike.1, EVERYBODY].contains(&label.as_str())
                        && (reserved..=second.ended).contains(&since_begin(*now))
                })
            };
            // Charges over one connection are decided in the order in which they were asked. Of
            // several each may be the first.
            let is_one_connection = || {
                let own =
                    self.account.bookings.iter().filter(|one| {
                        since_begin(one.now) == *decided && one.label("api") == alike.1
                    });
                own.map(|one| (one.server, one.session)).collect::<BTreeSet<_>>().len() == 1
            };
            // A server may have turned both away, since the slot moved or it did not know the
            // script: then each goes on alone. Of a cluster, one server at a time learns a script.
            let mut before = self.strikes.iter().filter(|(begin, _, _)| begin < decided);
            let may_be_redirected = matches!(self.plan.topology, Topology::Cluster { .. })
                && self.is_first_there(first)
                || before.any(|(_, _, kind)| moves_slots(*kind) || loses_scripts(*kind));
            let known = self.known(first, *decided);
            // One that was refused for units that others hold waits in the process, and asks again
            // when they are released: behind newcomers that were on their way then.
            let has_queued = || {
                let is_own = |one: &Refusal| {
                    one.label == alike.1
                        && one.cost.cast_unsigned() == alike.2.0
                        && (first.asked..*decided).contains(&since_begin(one.now))
                };
                self.holds_at_once()
                    && !self.ask(first).max_wait.is_zero()
                    && self.account.refusals.iter().any(is_own)
            };
            let is_overtaking = |(other, when, earlier, second): &&(_, Duration, i64, &Record)| {
                // One that asks again, since its key was paused, may do so behind a newcomer.
                let was_asked_once = *decided < first.asked + TIMEOUT;
                let is_beside = *when == *decided && first.number < second.number && was_asked_once;
                let is_beside =
                    is_beside && !may_be_redirected && is_one_connection() && !has_queued();
                let is_behind = known.is_some_and(|known| known < second.asked) || is_beside;
                // In a shadow nobody waits.
                let has_waited = since_begin(*at) <= first.ended;
                // A process that stood still at a slot lets all go at once that are due by then.
                let stood_still = !self.frozen(since_begin(*at), first.ended).is_zero();
                // So do timers of one tick, a millisecond, which wake in any order. Who goes last
                // then has the slot that is left: one whose reply was slow is due later.
                let tick = 1_000 + self.lag(second, *earlier);
                let is_one_tick = *at - *earlier < tick || self.tells_no_slot(second);
                let is_at_once = second.ended == first.ended && (stood_still || is_one_tick);
                alike == other
                    && is_behind
                    && has_waited
                    && earlier < at
                    && second.ended <= first.ended
                    && !is_at_once
                    && !is_freed(second)
                    && !self.is_disturbed(first.asked, second.ended)
            };
            if let Some((_, _, _, second)) = admitted.iter().find(is_overtaking) {
                return Some(format!("{} before {}", self.shown(second), self.shown(first)));
            }
        }
        None
    }

    /// Returns the instant since which a slot may have been at hand for an admission: of those that
    /// were reserved before it asked, and are not earlier than its own one, the first.
    pub(super) fn spare_since(&self, record: &Record, at: i64) -> Duration {
        let ask = self.ask(record);
        let may_be_it = |one: &&Booking| {
            let is_of_key = one.label("api") == ask.key && one.cost.cast_unsigned() == ask.cost;
            is_of_key && one.at >= at && since_begin(one.now) <= record.asked
        };
        let own = self.account.bookings.iter().filter(may_be_it);
        own.map(|one| since_begin(one.now)).min().unwrap_or(record.asked)
    }

    /// Returns by how much later than on the store's clock a slot is due in its process, in µs.
    fn lag(&self, record: &Record, at: i64) -> i64 {
        let is_its = |one: &&Booking| one.at == at && one.label("api") == self.ask(record).key;
        let own = self.account.bookings.iter().filter(is_its);
        own.filter_map(|one| Some(one.read_at? - one.now)).max().unwrap_or_default()
    }

    /// Returns the instant since which a process knows that one of its callers waits: it has read
    /// the answer, or it had the slot at hand. `None`: the answer did not arrive whole.
    pub(super) fn known(&self, record: &Record, decided: Duration) -> Option<Duration> {
        let key = self.ask(record).key;
        let is_its = |one: &&Booking| since_begin(one.now) == decided && one.label("api") == key;
        let own = self.account.bookings.iter().filter(is_its);
        own.map(|one| one.read_at.map(since_begin))
            .try_fold(decided, |last, read| Some(last.max(read?)))
    }

    /// True if its server had decided nothing when an admission was asked for: it may have been
    /// sent before the server knew the script.
    pub(super) fn is_first_there(&self, record: &Record) -> bool {
        let bookings = &self.account.bookings;
        let is_its = |one: &&Booking| Some(one.now) == record.decided_at;
        let own = bookings.iter().find(is_its);
        own.is_none_or(|own| {
            let is_before = |one: &Booking| since_begin(one.now) < record.asked;
            !bookings.iter().any(|one| one.server == own.server && is_before(one))
        })
    }

    /// Returns the instant at which the slot of an admission was reserved: before it was asked for,
    /// if it was at hand. A reset by its own process voids what is at hand.
    pub(super) fn reserved(&self, record: &Record, at: i64) -> Duration {
        let ask = self.ask(record);
        let is_its = |one: &&Booking| one.at == at && one.label("api") == ask.key;
        let own = self.account.bookings.iter().filter(is_its);
        let reserved = own.map(|one| since_begin(one.now)).min().unwrap_or(record.asked);
        // It may have been the slot of another caller during the reset, who left after that.
        let is_held = |reset: &Record| {
            self.records.iter().any(|one| {
                let holder = self.ask(one);
                let is_own = (holder.process, holder.key) == (ask.process, ask.key);
                let holds = one.asked <= reset.ended && one.ended > reset.ended;
                is_own && holds && one.fate == Fate::Left && one.ended <= record.ended
            })
        };
        let voids = |other: &Record| {
            let (other_ask, is_done) = (self.ask(other), other.fate == Fate::Done);
            let is_own = (other_ask.process, other_ask.key) == (ask.process, ask.key);
            let is_between = other.asked > reserved && other.ended < record.asked;
            is_own && is_done && is_between && other_ask.way == Way::Reset && !is_held(other)
        };
        let is_void = self.records.iter().any(voids);
        if is_void { record.asked } else { reserved.min(record.asked) }
    }

    /// A caller that waits goes at its slot: not before it, and not long after it.
    pub(super) fn slot(&self) -> Option<String> {
        // In a shadow nobody waits.
        let waits = !self.plan.stack.is_shadow && self.plan.stack.switches.is_empty();
        if !waits || !self.is_exact() || self.has_odd_clocks() {
            return None;
        }
        let is_wrong = |record: &&Record| {
            let Fate::Admitted { at, .. } = record.fate else { return false };
            let (slot, ask) = (since_begin(at), self.ask(record));
            // A slot of before its decision was reserved by who left, at most so long ago.
            let reserved = match self.tells_no_slot(record) {
                true => record.asked.saturating_sub(SECOND),
                false => self.reserved(record, at),
            };
            // Nor does it go before one that it waits behind.
            let is_before = |one: &&Record| {
                let other = self.ask(one);
                let is_own = (other.process, other.key) == (ask.process, ask.key);
                is_own && one.asked <= record.asked && (slot..=record.ended).contains(&one.ended)
            };
            let before = self.records.iter().filter(is_before).map(|one| one.asked).min();
            let reserved = before.map_or(reserved, |before| reserved.min(before));
            // A slot is due as late as its reply came.
            let goes_late = record.ended > slot + SLOT_GRACE
                && record.ended > record.asked + TIMEOUT + GRACE
                && !self.was_frozen(reserved, record.ended);
            matches!(ask.way, Way::Acquire | Way::Layer) && (record.ended < slot || goes_late)
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }
}

/// True if scripts are forgotten by such a strike: another server is asked afterwards, or one that
/// was started again.
fn loses_scripts(kind: StrikeKind) -> bool {
    use StrikeKind::{
        CrashKeepingData, CrashLosingData, Failover, Loading, ManualFailover, ScriptFlush,
        SplitBrain,
    };
    matches!(
        kind,
        CrashKeepingData
            | CrashLosingData
            | Failover
            | Loading
            | ManualFailover
            | ScriptFlush
            | SplitBrain
    )
}

/// True if keys of a cluster may have another server since such a strike.
pub(super) fn moves_slots(kind: StrikeKind) -> bool {
    use StrikeKind::{MoveSlots, NodeFailover, SlotMapStale, TakeSlots};
    matches!(kind, MoveSlots | NodeFailover | SlotMapStale | TakeSlots)
}
