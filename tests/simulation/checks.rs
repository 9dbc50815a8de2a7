//! The promises, each checked against what was seen of a world: the callers' records beside the
//! servers' account.

mod deny_cache;
mod leases;
mod settlements;
mod shadow;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use tower_sluice::algorithm::{Algorithm, AnyAlgorithm};
use tower_sluice::{ErrorKind, Origin, ShadowCounts, SwitchMode};

use super::account::{Account, Booking, Limit, Refusal};
use super::clients::EVERYBODY;
use super::network::{Disturbance, Fault, START};
use super::plan::{Ask, Asking, At, Plan, SECOND, Then, Way};
use super::policies::{Table, taken_by_no_table};
use super::servers::{StrikeKind, Topology};
use super::world::{Fate, Record, Settled, TIMEOUT};

/// The longest time after the last fault until everything is decided again.
const RECOVERY: Duration = SECOND;

/// The grace beyond a deadline, in which this process finds out whose fault a missing answer is.
const GRACE: Duration = Duration::from_millis(60);

/// A connection and an answer may take so long.
const MIN_TIMEOUT: Duration = Duration::from_millis(60);

/// Timers of a process that is on time fire that much later, and answers take as long.
const SLOT_GRACE: Duration = Duration::from_millis(20);

/// An answer may be so late, and is awaited still.
const LATENESS: Duration = Duration::from_millis(300);

/// The longest time that a settlement takes to reach a server that is well.
const SETTLING: Duration = Duration::from_millis(500);

/// All that was seen of a world.
pub struct Seen<'a> {
    pub plan: &'a Plan,
    pub records: &'a [Record],
    pub account: &'a Account,
    pub disturbances: &'a [Disturbance],
    /// Strikes on servers: begin, end, kind.
    pub strikes: &'a [(Duration, Duration, StrikeKind)],
    pub freezes: &'a [(Duration, Duration)],
    /// The modes of the switches, each with the instant at which it was set.
    pub modes: &'a [(Duration, SwitchMode)],
    /// The tables of policies, each with the instant at which it came into force.
    pub tables: &'a [At<Table>],
    /// The counts that each process made in its shadow.
    pub shadow_counts: &'a [ShadowCounts],
    /// The hosts that clients dialled, each with the instant.
    pub dials: &'a [(Duration, String)],
    pub open_connections: usize,
    pub tasks: usize,
}

/// The first promise that was broken.
pub fn violation(seen: &Seen<'_>) -> Option<String> {
    let named = |name: &str, why: Option<String>| why.map(|why| format!("{name}: {why}"));
    named("bound", seen.bound())
        .or_else(|| named("unasked", seen.unasked()))
        .or_else(|| named("time", seen.time()))
        .or_else(|| named("once", seen.once()))
        .or_else(|| named("slot", seen.slot()))
        .or_else(|| named("kind", seen.kind()))
        .or_else(|| named("truth", seen.truth()))
        .or_else(|| named("repeated", seen.repeated()))
        .or_else(|| named("policies", seen.policies()))
        .or_else(|| named("shadow", seen.shadowed()))
        .or_else(|| named("switch", seen.switched()))
        .or_else(|| named("obeyed", seen.obeyed()))
        .or_else(|| named("order", seen.order()))
        .or_else(|| named("settled", seen.settled()))
        .or_else(|| named("settled", seen.settled_exactly()))
        .or_else(|| named("silence", seen.silence()))
        .or_else(|| named("panics", seen.panics()))
        .or_else(|| named("connects", seen.connects()))
        .or_else(|| named("operated", seen.operated()))
        .or_else(|| named("leak", seen.leak()))
}

impl Seen<'_> {
    fn ask(&self, record: &Record) -> &Ask {
        &self.plan.asks[record.ask]
    }

    /// True if a server or the network failed in this stretch, or so shortly before it that it may
    /// still be felt.
    fn is_disturbed(&self, from: Duration, until: Duration) -> bool {
        let mut disturbances = self.disturbances.iter();
        self.is_struck(from, until)
            || disturbances.any(|one| self.is_felt(one.from, one.until, from, until))
    }

    /// True if a server was struck in this stretch, or so shortly before.
    fn is_struck(&self, from: Duration, until: Duration) -> bool {
        self.strikes.iter().any(|(begin, end, kind)| {
            !self.is_harmless(*kind) && self.is_felt(*begin, *end, from, until)
        })
    }

    /// True if what begins and ends at such instants may be felt in a stretch.
    fn is_felt(&self, begin: Duration, end: Duration, from: Duration, until: Duration) -> bool {
        begin <= until && end + RECOVERY + self.frozen(end, from) >= from
    }

    /// True if no charge fails for a strike of this kind.
    fn is_harmless(&self, kind: StrikeKind) -> bool {
        use StrikeKind::{
            ClockDrift, ClockStepBack, ClockStepForward, MoveSlots, ScriptFlush, SentinelCrash,
            TakeSlots,
        };
        match kind {
            ScriptFlush | ClockDrift | ClockStepBack | ClockStepForward | TakeSlots => true,
            // A script runs on several keys only where all of them are.
            MoveSlots => {
                let mut limits = self.plan.limits.iter();
                let is_together = self.plan.asking == Asking::Policies && limits.len() > 1;
                !is_together && limits.all(|limit| limit.algorithms.len() == 1)
            }
            SentinelCrash => {
                matches!(self.plan.topology, Topology::Sentinels { sentinels: 3.., .. })
            }
            _ => false,
        }
    }

    /// The time in which the process stood still in this stretch.
    fn frozen(&self, from: Duration, until: Duration) -> Duration {
        let overlap = |(begin, end): &(Duration, Duration)| {
            (*end).min(until).saturating_sub((*begin).max(from))
        };
        self.freezes.iter().map(overlap).sum()
    }

    /// The end of a stretch in which the process ran for so long.
    fn after(&self, from: Duration, time: Duration) -> Duration {
        self.freezes.iter().fold(from + time, |until, (begin, end)| {
            let is_within = *end > from && *begin <= until;
            if is_within { until + (*end - (*begin).max(from)) } else { until }
        })
    }

    fn was_frozen(&self, from: Duration, until: Duration) -> bool {
        // What has waited meanwhile is answered after it.
        self.freezes.iter().any(|(begin, end)| *begin <= until && *end + TIMEOUT >= from)
    }

    /// True if the clock of a server may differ from the world's.
    fn has_odd_clocks(&self) -> bool {
        use StrikeKind::{ClockDrift, ClockStepBack, ClockStepForward};
        let is_odd = |kind| matches!(kind, ClockDrift | ClockStepBack | ClockStepForward);
        self.strikes.iter().any(|(_, _, kind)| is_odd(*kind))
    }

    /// True if every admission says the slot that the store gave.
    fn is_exact(&self) -> bool {
        self.plan.stack.is_exact() && !self.asks_in_turn()
    }

    /// True if several limiters are asked one after another: keys of a cluster lie in other slots.
    fn asks_in_turn(&self) -> bool {
        let is_cluster = matches!(self.plan.topology, Topology::Cluster { .. });
        match self.plan.asking {
            Asking::Alone | Asking::Policies => false,
            Asking::AllAtOnce => is_cluster,
            Asking::AllInTurn => true,
        }
    }

    /// No window of a key holds more than its limit, but for what a server truly lost.
    fn bound(&self) -> Option<String> {
        // What comes back of a charge from before a reset may be a unit of one that left the very
        // same state since.
        let has_resets = self.plan.asks.iter().any(|ask| ask.way == Way::Reset);
        if self.has_odd_clocks() || has_resets {
            return None;
        }
        self.account.histories().into_iter().find_map(|(key, bookings)| {
            let (limit, member) = self.account.limit_of(&key)?;
            let limit = &self.plan.limits[limit];
            if !limit.own_quotas.is_empty() {
                return None;
            }
            let why = excess(&bookings, limit.algorithms[member])?;
            Some(format!("{key}: {why}"))
        })
    }

    /// Nothing is decided without the store, and nothing fails, unless the store was away.
    fn unasked(&self) -> Option<String> {
        let is_broken = |record: &&Record| {
            let is_disturbed = self.is_disturbed(record.asked, record.ended);
            let was_frozen = self.was_frozen(record.asked, record.ended);
            // In so short a time a server that is well need not answer.
            let is_hasty = self.plan.stack.timeout.is_some_and(|time| time < MIN_TIMEOUT);
            let is_disturbed = is_disturbed || is_hasty || self.may_be_open(record);
            // Load of this process may keep it from asking.
            let is_loaded = || was_frozen || self.plan.is_flooded || self.is_flooded(record);
            let is_excused = match record.fate {
                Fate::AdmittedBy(Origin::FailOpen) => is_disturbed,
                Fate::Failed(Some(ErrorKind::Saturation) | None) => {
                    is_disturbed || is_loaded() || self.plan.stack.timeout.is_some()
                }
                // For either error.
                Fate::AdmittedBy(Origin::Local | Origin::Shadow)
                | Fate::Refused { by: Some(Origin::Local), .. } => is_disturbed || is_loaded(),
                Fate::Failed(_) => is_disturbed,
                _ => true,
            };
            !is_excused
        };
        self.records.iter().find(is_broken).map(|record| self.shown(record))
    }

    /// True if the process asked more at once than its calls carry.
    fn is_flooded(&self, record: &Record) -> bool {
        let process = self.ask(record).process;
        let is_beside = |one: &&Record| {
            let begin = record.asked.saturating_sub(TIMEOUT);
            self.ask(one).process == process && one.asked <= record.ended && one.ended >= begin
        };
        let carried = self.plan.max_batch_size * self.plan.max_in_flight;
        let most = self.plan.queue_capacity.min(5 * carried);
        self.records.iter().filter(is_beside).count() > most
    }

    /// True if a breaker may have opened in a fault, or since calls were slow, and had no success
    /// since that would close it.
    fn may_be_open(&self, record: &Record) -> bool {
        let process = self.ask(record).process;
        let ends = self.strikes.iter().map(|(_, end, _)| *end);
        let ends = ends.chain(self.disturbances.iter().map(|one| one.until));
        let ends = ends.chain(self.freezes.iter().map(|(_, end)| *end));
        let is_slow = |one: &&Record| {
            let slow_after = self.plan.stack.slow_after.unwrap_or(Duration::MAX);
            self.ask(one).process == process && one.ended - one.asked >= slow_after
        };
        let is_failed = |one: &&Record| {
            self.ask(one).process == process
                && matches!(one.fate, Fate::Failed(_) | Fate::AdmittedBy(Origin::FailOpen))
                && self.is_disturbed(one.asked, one.ended)
        };
        let opens = |one: &&Record| is_slow(one) || is_failed(one);
        let ends = ends.chain(self.records.iter().filter(opens).map(|one| one.ended));
        let Some(last) = ends.filter(|end| *end < record.asked).max() else { return false };
        let is_decided = |fate: &Fate| match fate {
            Fate::Admitted { .. } => true,
            // Neither the layer nor an operation tells who answered.
            Fate::Done | Fate::Refused { by: None, .. } => !self.plan.stack.has_fallback,
            Fate::Refused { by, .. } => *by != Some(Origin::Local),
            _ => false,
        };
        let closes = |one: &Record| {
            let is_between = one.asked > last && one.ended < record.asked;
            is_between && self.ask(one).process == process && is_decided(&one.fate)
        };
        let is_beside = |one: &Record| {
            let is_other = one.ask != record.ask && self.ask(one).process == process;
            is_other && one.asked <= record.asked && one.ended + SECOND >= record.asked
        };
        // After so long the next call is a probe, unless there is one already.
        let is_soon = last + RECOVERY + SECOND > record.asked;
        self.plan.stack.has_breaker
            && !self.records.iter().any(closes)
            && (is_soon || self.records.iter().any(is_beside))
    }

    /// Every decision ends in time.
    fn time(&self) -> Option<String> {
        let is_late = |record: &&Record| {
            let ask = self.ask(record);
            let waits = if ask.cost > 0 { ask.max_wait } else { Duration::ZERO };
            let frozen = self.frozen(record.asked, record.ended);
            // Each limiter that is asked alone has its own time, and so has a charge that is asked
            // alone after a refill.
            let in_turn = self.plan.asking == Asking::AllInTurn || self.plan.stack.lease.is_some();
            let members = if in_turn { 2 } else { 1 };
            record.ended > record.asked + waits + TIMEOUT * members + GRACE + frozen
        };
        self.records.iter().find(is_late).map(|record| self.shown(record))
    }

    /// Each admission was charged once, and what nobody has was given back.
    fn once(&self) -> Option<String> {
        if !self.is_exact() {
            return match self.plan.stack.lease {
                None => self.once_in_turn(),
                Some(_) => self.leased(),
            };
        }
        let mut open: Vec<&Booking> = self.account.bookings.iter().collect();
        let returned = |record: &&Record| (self.tells_no_slot(record), self.has_settled(record));
        let mut own: Vec<&Record> = self.records.iter().collect();
        own.sort_by_key(returned);
        for record in own {
            let Fate::Admitted { at, .. } = record.fate else { continue };
            let (ask, has_settled) = (self.ask(record), self.has_settled(record));
            let (cost, tells_no_slot) = (ask.cost.cast_signed(), self.tells_no_slot(record));
            let is_own = |one: &&&Booking| {
                let is_known = || self.has_unique_marks() && !self.account.has_twin(one);
                let is_kept = one.taken == one.cost || has_settled || !is_known();
                let is_at = one.at == at || tells_no_slot && one.at < at;
                let is_asked = one.cost == cost && one.label("api") == ask.key;
                is_at && is_asked && self.is_by_quota(ask, one) && is_kept
            };
            // Of charges that are alike, those who keep theirs have one that was not settled.
            let least = |one: &&&Booking| {
                let settlements = i64::from(one.settlements);
                let settled = if has_settled { -settlements } else { settlements };
                (at - one.at, settled, record.decided_at != Some(one.now), one.taken)
            };
            let Some(one) = open.iter().filter(is_own).min_by_key(least).copied() else {
                let went_on = |one: &Booking| has_settled && self.went_to_the_line(record, one);
                if self.account.bookings.iter().any(|one| is_own(&&one) && went_on(one)) {
                    continue;
                }
                return Some(format!("no charge stands for {}", self.shown(record)));
            };
            if let Some(wrong) = self.settled_wrongly(record, one) {
                return Some(wrong);
            }
            open.retain(|other| !std::ptr::eq(*other, one));
        }
        let mut unknown = self.unknown();
        for booking in open.iter().filter(|one| one.taken > 0) {
            let key = (booking.label("api").to_owned(), booking.cost.cast_unsigned());
            match unknown.get_mut(&key).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => return Some(format!("nobody has {booking:?}")),
            }
        }
        self.lost(&open)
    }

    /// True if a charge was asked by the quota that a caller brought, or by the limiter's own.
    fn is_by_quota(&self, ask: &Ask, one: &Booking) -> bool {
        if self.plan.asking == Asking::Policies {
            return true;
        }
        let limit = &self.plan.limits[0];
        let brought = limit.own_quotas.iter().map(|quotas| quotas[0]);
        let own = limit.algorithms[0].quota().as_slice()[0];
        let quotas: Vec<_> = [own].into_iter().chain(brought).collect();
        // The account knows equal ones as the first of them.
        let asked = quotas[ask.own_quota.map_or(0, |own| own + 1)];
        quotas.iter().position(|quota| *quota == asked) == Some(one.quotas[0])
    }

    /// True if a waiter may have gone at a slot of before its own decision, as the store's clock
    /// has it: who had that slot left. It did not wait, so it tells the instant of its decision.
    fn tells_no_slot(&self, record: &Record) -> bool {
        let Fate::Admitted { at, .. } = record.fate else { return false };
        let ask = self.ask(record);
        let may_wait = !ask.max_wait.is_zero() || self.plan.asking == Asking::Policies;
        let is_of_then = |one: &&Booking| one.now == at && one.label("api") == ask.key;
        let mut own = self.account.bookings.iter().filter(is_of_then).peekable();
        // One that took a slot at hand has reserved none.
        let took_spare = own.peek().is_none();
        let cost = ask.cost.cast_signed();
        may_wait
            && record.decided_at == Some(at)
            && (took_spare || own.any(|one| one.cost == cost && one.at > at))
    }

    /// True if the caller gave units back, or ended a hold.
    fn has_settled(&self, record: &Record) -> bool {
        self.plan.limits.iter().any(|limit| self.has_settled_at(limit.name, record))
    }

    /// The same at one limiter.
    fn has_settled_at(&self, limiter: &str, record: &Record) -> bool {
        let Fate::Admitted { settled: Some(actual), .. } = record.fate else { return false };
        let mut own = self.plan.limits.iter().filter(|limit| limit.name == limiter);
        actual < self.ask(record).cost || own.any(has_budget)
    }

    /// The same for limiters that are asked in turn. A decision says when one of them decided, so a
    /// charge is somebody's if it was made while that caller waited.
    fn once_in_turn(&self) -> Option<String> {
        for limiter in ["api", EVERYBODY] {
            let mut own: Vec<&Booking> = self.account.bookings.iter().collect();
            own.retain(|one| !one.label(limiter).is_empty());
            own.sort_by_key(|one| one.now);
            let mut callers: Vec<&Record> = self.records.iter().collect();
            let mut open = Vec::new();
            for booking in own {
                let at = since_begin(booking.now);
                let is_whose = |record: &&Record| {
                    let Fate::Admitted { .. } = record.fate else { return false };
                    let ask = self.ask(record);
                    let label = if limiter == "api" { ask.key } else { EVERYBODY };
                    ask.cost == booking.cost.cast_unsigned()
                        && booking.label(limiter) == label
                        && (record.asked..=record.ended).contains(&at)
                        && (self.has_settled_at(limiter, record) || booking.settlements == 0)
                };
                let whose = callers.iter().enumerate().filter(|(_, record)| is_whose(record));
                match whose.min_by_key(|(_, record)| record.ended) {
                    Some((place, _)) => drop(callers.swap_remove(place)),
                    None => open.push(booking),
                }
            }
            if self.has_unique_marks_of(limiter)
                && let Some(lost) = self.lost(&open)
            {
                return Some(lost);
            }
        }
        None
    }

    /// Callers of which nobody knows whether they were charged, by key and cost.
    fn unknown(&self) -> BTreeMap<(String, u64), usize> {
        let mut unknown = BTreeMap::new();
        for record in self.records {
            let may_be_charged = match record.fate {
                Fate::Left | Fate::Failed(_) | Fate::Panicked => true,
                Fate::AdmittedBy(origin) => origin != Origin::Off,
                // The layer does not tell who refused.
                Fate::Refused { by: None, .. } => self.plan.stack.has_fallback,
                Fate::Refused { by, .. } => by == Some(Origin::Local),
                _ => false,
            };
            let ask = self.ask(record);
            let charges = [Way::Acquire, Way::Layer, Way::Unready, Way::Refunded];
            if may_be_charged && charges.contains(&ask.way) {
                *unknown.entry((ask.key.to_owned(), ask.cost)).or_default() += 1;
            }
        }
        unknown
    }

    /// A charge whose caller has left was given back, or the store was asked to.
    fn lost(&self, open: &[&Booking]) -> Option<String> {
        if self.has_odd_clocks() || self.forgets() {
            return None;
        }
        let mut open =
            open.iter().filter(|one| !self.may_be_lost(one, SETTLING) && !self.is_kept(one));
        if self.has_unique_marks() {
            let lost = open.find(|one| one.settlements == 0);
            return lost.map(|booking| format!("never given back: {booking:?}"));
        }
        // Marks that are alike say how many were given back, and not which.
        let mut missing: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for one in open {
            *missing.entry((one.label("api"), one.cost)).or_default() += 1;
        }
        for record in self.records {
            let ask = self.ask(record);
            if let Some(at) = record.settled_at.filter(|_| self.has_settled(record))
                && let Some(count) = missing.get_mut(&(ask.key, ask.cost.cast_signed()))
            {
                let until = self.after(at, SETTLING);
                // Its answer may be too late to say that the slot has moved.
                let is_late = self.frozen(at, until) >= LATENESS;
                *count += i64::from(!is_late && !self.is_disturbed(at, until));
            }
        }
        for one in &self.account.bookings {
            if let Some(count) = missing.get_mut(&(one.label("api"), one.cost)) {
                *count -= i64::from(one.settlements);
            }
        }
        let lost = missing.into_iter().find(|(_, count)| *count > 0);
        lost.map(|((key, cost), count)| format!("{count} of {cost} for {key} never given back"))
    }

    /// True if the process of a waiter who left kept the slot: of slots that wait, a store takes
    /// back the newest alone.
    fn is_kept(&self, one: &Booking) -> bool {
        // They stand in the order of their decisions, those of one call, too.
        let behind = self.account.bookings.iter().skip_while(|other| !std::ptr::eq(*other, one));
        let is_newer = |other: &Booking| other.keys == one.keys && other.at >= one.at;
        one.at > one.now && behind.skip(1).any(is_newer)
    }

    /// True if somebody makes the store forget charges.
    fn forgets(&self) -> bool {
        let forgets = |way| matches!(way, Way::Reset | Way::Block | Way::Unblock | Way::Penalize);
        self.plan.asks.iter().any(|ask| forgets(ask.way))
    }

    /// True if a fault explains that nothing of a charge came back within this time.
    fn may_be_lost(&self, one: &Booking, settling: Duration) -> bool {
        let at = since_begin(one.now);
        // Who waits for a service that is never ready may leave much later.
        let leaves = |record: &&Record| {
            let ask = self.ask(record);
            let is_of_key = one.label("api") == ask.key || one.label("api").is_empty();
            record.fate == Fate::Left
                && (is_of_key && ask.cost.cast_signed() == one.cost)
                && (record.asked..=record.ended).contains(&at)
        };
        let left = self.records.iter().filter(leaves).map(|record| record.ended).max();
        let until = since_begin(one.at).max(left.unwrap_or_default()) + settling;
        // A process that stood still sends late, and waits for the answer no more.
        // An answer that is late for no longer is awaited.
        let is_awaited = |one: &Disturbance| {
            one.fault == Fault::Stall && one.until - one.from < LATENESS && self.is_exact()
        };
        let mut felt = self.disturbances.iter().filter(|one| !is_awaited(one));
        self.is_struck(at, until)
            || felt.any(|one| self.is_felt(one.from, one.until, at, until))
            || self.was_frozen(at.saturating_sub(TIMEOUT), until)
    }

    /// True if a mark tells a charge from all others.
    fn has_unique_marks(&self) -> bool {
        match self.plan.asking {
            // Rows come and go, but for the first one.
            Asking::Policies => self.has_unique_marks_of("api"),
            _ => self.plan.limits.iter().any(|limit| self.has_unique_marks_of(limit.name)),
        }
    }

    fn has_unique_marks_of(&self, limiter: &str) -> bool {
        let is_unique = |one: &AnyAlgorithm| {
            matches!(
                one,
                AnyAlgorithm::TokenBucket(_)
                    | AnyAlgorithm::SlidingLog(_)
                    | AnyAlgorithm::SmoothBursty(_)
                    | AnyAlgorithm::SmoothWarmingUp(_)
            )
        };
        let own = self.plan.limits.iter().filter(|limit| limit.name == limiter);
        own.flat_map(|limit| &limit.algorithms).any(is_unique)
    }

    /// Each refusal is one that the store made, with the wait that it told.
    fn truth(&self) -> Option<String> {
        let is_wrong = |record: &&Record| {
            let (by, retry_after) = match record.fate {
                Fate::Refused { by: Some(by), retry_after } => (by, retry_after),
                Fate::Spared { retry_after } => (Origin::Store, retry_after),
                _ => return false,
            };
            let ask = self.ask(record);
            let cost = ask.cost.cast_signed();
            let mut own = self.refusals_of(record);
            match by {
                // Of limiters that are asked in turn, the longest wait is told.
                _ if self.asks_in_turn() => false,
                Origin::Store => !own.any(|one| {
                    let wait = one.wait.map(|wait| Duration::from_micros(wait.cast_unsigned()));
                    one.cost == cost && wait == retry_after
                }),
                _ => false,
            }
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }

    /// Returns the refusals of the caller's keys by the store, at the instant that the caller was
    /// told.
    fn refusals_of(&self, record: &Record) -> impl Iterator<Item = &Refusal> {
        let labels = [self.ask(record).key, EVERYBODY];
        let now = record.decided_at.unwrap_or(0);
        let all = self.account.refusals.iter();
        all.filter(move |one| one.now == now && labels.contains(&one.label.as_str()))
    }

    /// A caller that asks again when it was told to is admitted if no other came first.
    fn obeyed(&self) -> Option<String> {
        let changes = |way| matches!(way, Way::Penalize | Way::Block | Way::Unblock | Way::Reset);
        if self.has_odd_clocks()
            || !self.is_exact()
            || self.plan.asking != Asking::Alone
            || self.plan.asks.iter().any(|ask| changes(ask.way) || ask.own_quota.is_some())
            // Nobody knows when what is held is settled.
            || self.plan.limits.iter().any(has_budget)
        {
            return None;
        }
        let seconds = self.records.iter().filter(|record| record.is_second);
        seconds.into_iter().find_map(|second| {
            let Fate::Refused { by: Some(Origin::Store), .. } = second.fate else { return None };
            let first = self.records.iter().find(|one| one.ask == second.ask && !one.is_second)?;
            let Fate::Refused { by: Some(Origin::Store), .. } = first.fate else { return None };
            let (from, until) = (first.decided_at?, second.decided_at?);
            let key = self.ask(second).key;
            let meets = |at: i64| from <= at && at <= until;
            let came = |one: &Booking| one.label("api") == key && meets(one.now);
            let took_more = |(label, at): &(String, i64)| label == key && meets(*at);
            let is_alone = !self.account.bookings.iter().any(came)
                && !self.account.taken_more.iter().any(took_more);
            let is_quiet = !self.is_disturbed(first.asked, second.ended);
            (is_alone && is_quiet)
                .then(|| format!("{} and then {}", self.shown(first), self.shown(second)))
        })
    }

    /// First come, first served, by key and process: one that was decided before another one asked
    /// goes first.
    fn order(&self) -> Option<String> {
        // A table in which there is more room lets others pass.
        let is_exchanged = self.plan.tables.len() > 1;
        if is_exchanged || !self.is_exact() || self.has_odd_clocks() {
            return None;
        }
        let admitted = self.records.iter().filter_map(|record| {
            let Fate::Admitted { at, .. } = record.fate else { return None };
            let ask = self.ask(record);
            let alike = (ask.process, ask.key, ask.cost, ask.own_quota);
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
            let is_overtaking = |(other, when, earlier, second): &&(_, Duration, i64, &Record)| {
                let is_beside = *when == *decided && first.number < second.number;
                let is_beside = is_beside && !may_be_redirected && is_one_connection();
                let is_behind = known.is_some_and(|known| known < second.asked) || is_beside;
                // In a shadow nobody waits.
                let has_waited = since_begin(*at) <= first.ended;
                alike == other
                    && is_behind
                    && has_waited
                    && earlier < at
                    && second.ended <= first.ended
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
    fn spare_since(&self, record: &Record, at: i64) -> Duration {
        let ask = self.ask(record);
        let may_be_it = |one: &&Booking| {
            let is_of_key = one.label("api") == ask.key && one.cost.cast_unsigned() == ask.cost;
            is_of_key && one.at >= at && since_begin(one.now) <= record.asked
        };
        let own = self.account.bookings.iter().filter(may_be_it);
        own.map(|one| since_begin(one.now)).min().unwrap_or(record.asked)
    }

    /// Returns the instant since which a process knows that one of its callers waits: it has read
    /// the answer, or it had the slot at hand. `None`: the answer did not arrive whole.
    fn known(&self, record: &Record, decided: Duration) -> Option<Duration> {
        let key = self.ask(record).key;
        let is_its = |one: &&Booking| since_begin(one.now) == decided && one.label("api") == key;
        let own = self.account.bookings.iter().filter(is_its);
        own.map(|one| one.read_at.map(since_begin))
            .try_fold(decided, |last, read| Some(last.max(read?)))
    }

    /// True if its server had decided nothing when an admission was asked for: it may have been sent
    /// before the server knew the script.
    fn is_first_there(&self, record: &Record) -> bool {
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
    fn reserved(&self, record: &Record, at: i64) -> Duration {
        let ask = self.ask(record);
        let is_its = |one: &&Booking| one.at == at && one.label("api") == ask.key;
        let own = self.account.bookings.iter().filter(is_its);
        let reserved = own.map(|one| since_begin(one.now)).min().unwrap_or(record.asked);
        let voids = |other: &Record| {
            let (other_ask, is_done) = (self.ask(other), other.fate == Fate::Done);
            let is_own = (other_ask.process, other_ask.key) == (ask.process, ask.key);
            let is_between = other.asked > reserved && other.ended < record.asked;
            is_own && is_done && is_between && other_ask.way == Way::Reset
        };
        let is_void = self.records.iter().any(voids);
        if is_void { record.asked } else { reserved.min(record.asked) }
    }

    /// A caller that waits goes at its slot: not before it, and not long after it.
    fn slot(&self) -> Option<String> {
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
            // A slot is due as late as its reply came.
            let goes_late = record.ended > slot + SLOT_GRACE
                && record.ended > record.asked + TIMEOUT + GRACE
                && !self.was_frozen(reserved, record.ended);
            matches!(ask.way, Way::Acquire | Way::Layer) && (record.ended < slot || goes_late)
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }

    /// A failure is the store's fault, or load, unless a server says otherwise.
    fn kind(&self) -> Option<String> {
        use StrikeKind::{DialerPanics, Login, OutOfMemory};
        let is_odd = |kind| matches!(kind, OutOfMemory | Login | DialerPanics);
        if self.strikes.iter().any(|(_, _, kind)| is_odd(*kind)) {
            return None;
        }
        let is_wrong = |record: &&Record| {
            let well = [ErrorKind::Infrastructure, ErrorKind::Saturation];
            matches!(record.fate, Fate::Failed(Some(kind)) if !well.contains(&kind))
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }

    /// A settlement ends, and says how many units the store gave back.
    fn settled(&self) -> Option<String> {
        let mut said: BTreeMap<&str, u64> = BTreeMap::new();
        for record in self.records {
            match record.settlement {
                Some(Settled::Never) => return Some(format!("never: {}", self.shown(record))),
                // What a fallback admitted, it gives back itself.
                Some(Settled::GaveBack(units)) if matches!(record.fate, Fate::Admitted { .. }) => {
                    *said.entry(self.ask(record).key).or_default() += units;
                }
                _ => {}
            }
        }
        if !self.is_exact() {
            return None;
        }
        let mut given: BTreeMap<&str, u64> = BTreeMap::new();
        for booking in &self.account.bookings {
            // What the store could not take back is kept for the next charge, and counts, too.
            let is_kept = booking.settlements > 0 && booking.taken == booking.cost;
            let left = if is_kept { 0 } else { booking.taken };
            let back = (booking.cost - left).cast_unsigned();
            *given.entry(booking.label("api")).or_default() += back;
        }
        let is_more = |(key, units): &(&&str, &u64)| given.get(**key).unwrap_or(&0) < *units;
        let more = said.iter().find(is_more);
        more.map(|(key, units)| format!("{units} units of {key} were said to be given back"))
    }

    /// Each operation that is done was done once, and one that failed once at most.
    fn operated(&self) -> Option<String> {
        let is_plain = self.plan.stack.switches.is_empty() && !self.asks_in_turn();
        let names = [
            (Way::Penalize, "penalize"),
            (Way::Reset, "reset"),
            (Way::Block, "block"),
            (Way::Unblock, "unblock"),
        ];
        for (way, name) in names.into_iter().filter(|_| is_plain) {
            for key in ["hot", "warm", "cold"] {
                let own =
                    |record: &&Record| (self.ask(record).way, self.ask(record).key) == (way, key);
                let done = |record: &&Record| record.fate == Fate::Done;
                let all = self.records.iter().filter(own).count();
                let done = self.records.iter().filter(own).filter(done).count();
                // A settlement that takes more is a penalty.
                let took_more = |record: &&Record| {
                    let ask = self.ask(record);
                    let more = matches!(ask.then, Then::Settle(actual, _) if actual > ask.cost);
                    way == Way::Penalize && ask.key == key && more
                };
                let more = self.records.iter().filter(took_more).count();
                let booked = self.account.operations.get(&(name, "api", key.to_owned()));
                let booked = *booked.unwrap_or(&0);
                if !(done..=all + more).contains(&booked) {
                    return Some(format!("{name} of {key}: {booked} of {done} to {all} + {more}"));
                }
                if way == Way::Penalize
                    && let Some(wrong) = self.penalized(key)
                {
                    return Some(wrong);
                }
            }
        }
        None
    }

    /// Policies decide by the table in force when a request came.
    fn policies(&self) -> Option<String> {
        if self.plan.asking != Asking::Policies || self.has_odd_clocks() {
            return None;
        }
        let is_excused =
            |from, until| self.is_disturbed(from, until) || self.was_frozen(from, until);
        taken_by_no_table(self.tables, self.account, is_excused, since_begin)
    }

    /// Nothing is left when all clients are gone.
    fn leak(&self) -> Option<String> {
        let Self { open_connections, tasks, .. } = self;
        (*open_connections > 0 || *tasks > 0)
            .then(|| format!("{open_connections} connections and {tasks} tasks are left"))
    }

    fn shown(&self, record: &Record) -> String {
        format!("{record:?} of {:?}", self.ask(record))
    }
}

fn has_budget(limit: &Limit) -> bool {
    limit.algorithms.iter().any(|one| matches!(one, AnyAlgorithm::Budget(_)))
}

/// The time of the world at an instant of its clock.
fn since_begin(at: i64) -> Duration {
    Duration::from_micros(u64::try_from(at - START).unwrap_or(0))
}

/// The admissions that break the bound of an algorithm.
fn excess(bookings: &[&Booking], algorithm: AnyAlgorithm) -> Option<String> {
    let quota = algorithm.quota().as_slice()[0];
    let limit = quota.limit().cast_signed();
    let period = i64::try_from(quota.period().as_micros()).expect("short");
    let most: Box<dyn Fn(i64) -> Option<i64>> = match algorithm {
        AnyAlgorithm::TokenBucket(_) => {
            let burst = quota.get_burst().cast_signed();
            Box::new(move |span| Some(burst + span * limit / period))
        }
        AnyAlgorithm::SlidingLog(_) | AnyAlgorithm::SlidingWindow(_) => {
            Box::new(move |span| (span < period).then_some(limit))
        }
        AnyAlgorithm::FixedWindow(_) | AnyAlgorithm::SlidingCounter(_) => {
            Box::new(move |span| (span < period).then_some(2 * limit))
        }
        _ => return None,
    };
    let is_taken = |one: &&&Booking| one.taken > 0 && !one.was_settled_in_part;
    let mut taken: Vec<&&Booking> = bookings.iter().filter(is_taken).collect();
    taken.sort_by_key(|one| one.at);
    for (index, last) in taken.iter().enumerate() {
        let mut units = 0;
        for (begin, first) in taken[..=index].iter().enumerate().rev() {
            units += first.taken - first.given_for_lost;
            match most(last.at - first.at) {
                Some(most) if units > most => {
                    return Some(format!("{units} units, not {most}: {:?}", &taken[begin..=index]));
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    None
}

/// All that happened, in order.
pub fn timeline(seen: &Seen<'_>) -> String {
    let mut lines: Vec<(Duration, String)> = Vec::new();
    for record in seen.records {
        let Ask { process, key, cost, max_wait, way, .. } = seen.ask(record);
        let number = record.ask;
        let waits = match max_wait.is_zero() {
            true => String::new(),
            false => format!(", may wait {max_wait:?}"),
        };
        let asks = format!("caller {number} of process {process}: {way:?} {cost} of {key}{waits}");
        lines.push((record.asked, asks));
        lines.push((record.ended, format!("caller {number}: {:?}", record.fate)));
    }
    for one in &seen.account.bookings {
        let key: Vec<_> =
            one.keys.iter().map(|(limiter, key)| format!("{limiter}/{key}")).collect();
        let (wait, left) = (one.at - one.now, one.taken);
        lines.push((
            since_begin(one.now),
            format!(
                "server {}: {} of {}, due in {wait} us; {left} of them are left at the end",
                one.server,
                one.cost,
                key.join(" and ")
            ),
        ));
    }
    for one in seen.disturbances {
        lines.push((one.from, format!("network: {:?} until {:?}", one.fault, one.until)));
    }
    for (from, until, kind) in seen.strikes {
        lines.push((*from, format!("strike: {kind:?} until {until:?}")));
    }
    for (from, until) in seen.freezes {
        lines.push((*from, format!("all processes stand still until {until:?}")));
    }
    lines.sort();
    lines.iter().fold(String::new(), |mut text, (at, line)| {
        let _ = writeln!(text, "{:>12.6} s  {line}", at.as_secs_f64());
        text
    })
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
fn moves_slots(kind: StrikeKind) -> bool {
    use StrikeKind::{MoveSlots, NodeFailover, SlotMapStale, TakeSlots};
    matches!(kind, MoveSlots | NodeFailover | SlotMapStale | TakeSlots)
}
