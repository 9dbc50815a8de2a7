//! The promises, each checked against what was seen of a world: the callers' records beside the
//! servers' account.

mod at_once;
mod bans;
mod deny_cache;
mod leases;
mod left;
mod once;
mod order;
mod settlements;
mod shadow;
mod silence;
mod timeline;

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sluice::ErrorKind;
use tower_sluice::algorithm::{Algorithm, AnyAlgorithm};
use tower_sluice::limiter::{Origin, ShadowCounts, SwitchMode};

pub use self::left::{ReadNaming, read_namings};
pub use self::timeline::timeline;
use super::account::{Account, Booking, Limit, Refusal};
use super::clients::EVERYBODY;
use super::clock::begins_at;
use super::network::{Dial, Disturbance, Fault};
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

/// The longest time that a settlement takes to reach a server that is well.
const SETTLING: Duration = Duration::from_millis(500);

/// True if the network cut a connection.
fn is_cut(fault: Fault) -> bool {
    use Fault::{CutAfter, CutAnswer, CutBefore, CutWithin};
    matches!(fault, CutAfter | CutAnswer | CutBefore | CutWithin)
}

/// All that was seen of a world.
pub struct Seen<'a> {
    pub plan: &'a Plan,
    pub records: &'a [Record],
    pub account: &'a Account,
    pub disturbances: &'a [Disturbance],
    /// Strikes on servers: begin, end, kind.
    pub strikes: &'a [(Duration, Duration, StrikeKind)],
    pub freezes: &'a [(Duration, Duration)],
    /// The processes that were killed, and when.
    pub deaths: &'a [At<usize>],
    /// The modes of the switches, each with the instant at which it was set.
    pub modes: &'a [(Duration, SwitchMode)],
    /// The tables of policies, each with the instant at which it came into force.
    pub tables: &'a [At<Table>],
    /// The counts that each process made in its shadow.
    pub shadow_counts: &'a [ShadowCounts],
    /// The attempts to connect of all processes.
    pub dials: &'a [Dial],
    /// The answers of nodes of a cluster that name masters, as processes read them.
    pub namings: &'a [ReadNaming],
    pub open_connections: usize,
    pub tasks: usize,
}

/// The first promise that was broken.
pub fn violation(seen: &Seen<'_>) -> Option<String> {
    let named = |name: &str, why: Option<String>| why.map(|why| format!("{name}: {why}"));
    named("bound", seen.bound())
        .or_else(|| named("concurrent", seen.concurrent()))
        .or_else(|| named("released", seen.released()))
        .or_else(|| named("queued", seen.queued()))
        .or_else(|| named("banned", seen.banned()))
        .or_else(|| named("suspended", seen.suspended()))
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
        .or_else(|| named("left", seen.left()))
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
            Asking::Alone => false,
            Asking::Policies => self.account.may_be_apart,
            Asking::AllAtOnce => is_cluster || self.account.may_be_apart,
            Asking::AllInTurn => true,
        }
    }

    /// No window of a key holds more than its limit, but for what a server truly lost.
    fn bound(&self) -> Option<String> {
        if let Some(over) = self.calendar_bound() {
            return Some(over);
        }
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
            let granted = |until| self.account.granted(&key, until);
            let why = excess(&bookings, limit.algorithms[member], granted)?;
            Some(format!("{key}: {why}"))
        })
    }

    /// Nothing is decided without the store, and nothing fails, unless the store was away.
    fn unasked(&self) -> Option<String> {
        let is_broken = |record: &&Record| {
            let is_disturbed = self.is_disturbed(record.asked, record.ended);
            let was_frozen = self.was_frozen(record.asked, record.ended);
            let is_disturbed = is_disturbed || self.is_hasty() || self.may_be_open(record);
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

    /// True if so short a time is set that a server that is well need not answer.
    fn is_hasty(&self) -> bool {
        self.plan.stack.timeout.is_some_and(|time| time < MIN_TIMEOUT)
    }

    /// True if the process asked more at once than its calls carry.
    fn is_flooded(&self, record: &Record) -> bool {
        let process = self.ask(record).process;
        let is_beside = |one: &&Record| {
            let begin = record.asked.saturating_sub(TIMEOUT);
            self.ask(one).process == process && one.asked <= record.ended && one.ended >= begin
        };
        let carried = self.plan.max_batch_size * self.plan.max_in_flight;
        // In a cluster a charge of several limits asks one server after the other, and gives back
        // what the first one granted if the next one refuses: three calls in place of one.
        let is_clustered = matches!(self.plan.topology, Topology::Cluster { .. });
        let calls = if is_clustered && self.plan.limits.len() > 1 { 3 } else { 1 };
        let most = self.plan.queue_capacity.min(5 * carried / calls);
        self.records.iter().filter(is_beside).count() > most
    }

    /// True if a breaker may have opened in a fault, or since calls were slow, and had no success
    /// since that would close it.
    fn may_be_open(&self, record: &Record) -> bool {
        // Who waits in a queue asks again until it ends. Who waits for a slot of a fallback does not.
        let waits = self.holds_at_once() && !self.ask(record).max_wait.is_zero();
        self.may_be_open_at(record, record.asked)
            || waits && self.may_be_open_at(record, record.ended)
    }

    fn may_be_open_at(&self, record: &Record, last_asked: Duration) -> bool {
        let process = self.ask(record).process;
        let ends = self.strikes.iter().map(|(_, end, _)| *end);
        let ends = ends.chain(self.disturbances.iter().map(|one| one.until));
        let ends = ends.chain(self.freezes.iter().map(|(_, end)| *end));
        let is_slow = |one: &&Record| {
            let slow_after = self.plan.stack.slow_after.unwrap_or(Duration::MAX);
            self.ask(one).process == process && one.ended - one.asked >= slow_after
        };
        // A fallback hides the failure.
        let is_failed = |one: &&Record| {
            let has_failed = match &one.fate {
                Fate::Failed(_) | Fate::AdmittedBy(Origin::FailOpen | Origin::Local) => true,
                Fate::Refused { by, .. } => *by == Some(Origin::Local),
                _ => false,
            };
            has_failed
                && self.ask(one).process == process
                && self.is_disturbed(one.asked, one.ended)
        };
        let opens = |one: &&Record| is_slow(one) || is_failed(one);
        let ends = ends.chain(self.records.iter().filter(opens).map(|one| one.ended));
        let Some(last) = ends.filter(|end| *end < last_asked).max() else { return false };
        let is_decided = |fate: &Fate| match fate {
            Fate::Admitted { .. } => true,
            // Neither the layer nor an operation tells who answered.
            Fate::Done | Fate::Refused { by: None, .. } => !self.plan.stack.has_fallback,
            Fate::Refused { by, .. } => *by == Some(Origin::Store),
            _ => false,
        };
        let closes = |one: &Record| {
            let is_between = one.asked > last && one.ended < last_asked;
            is_between && self.ask(one).process == process && is_decided(&one.fate)
        };
        let is_beside = |one: &Record| {
            let is_other = one.ask != record.ask && self.ask(one).process == process;
            is_other && one.asked <= record.asked && one.ended + SECOND >= record.asked
        };
        // After so long the next call is a probe, unless there is one already.
        let is_soon = last + RECOVERY + SECOND > last_asked;
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
            // Each call of `AllInTurn` has its own time; those of `AllAtOnce` and of policies have
            // one. In turn, a charge peeks at the second of two limiters before. A lease asks alone
            // after a refill.
            let calls = match self.plan.asking {
                Asking::AllInTurn if ask.cost > 0 => 3,
                Asking::AllInTurn => 2,
                _ if self.plan.stack.lease.is_some() => 2,
                _ => 1,
            };
            // The last refusal waits for the block.
            let calls = calls + u32::from(self.plan.stack.ban.is_some());
            // A waiter whose key was paused meanwhile asks again at its slot.
            let is_pause = |one: &Ask| one.way == Way::Pause && one.key == ask.key;
            let calls = calls + u32::from(self.plan.asks.iter().any(is_pause));
            record.ended > record.asked + waits + TIMEOUT * calls + GRACE + frozen
        };
        self.records.iter().find(is_late).map(|record| self.shown(record))
    }

    /// Each refusal is one that the store made, with the wait that it returned.
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
                // Of limiters that are asked in turn, the longest wait counts.
                _ if self.asks_in_turn() => false,
                Origin::Store if self.is_of_ban(record, retry_after) => false,
                // It waited behind another one to the end, so that the store was not asked.
                Origin::Store if self.may_have_queued(record) => false,
                // In a shadow it would have waited so.
                _ if matches!(record.fate, Fate::Spared { .. }) && self.is_behind(record) => false,
                Origin::Store => !own.any(|one| {
                    let wait = one.wait.map(|wait| Duration::from_micros(wait.cast_unsigned()));
                    let is_asked = one.cost == cost && one.keep_free == kept_free(ask);
                    is_asked && (wait == retry_after || self.is_guess(record, retry_after))
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

    /// A caller that obeys its `Retry-After` is admitted if no other came first.
    fn obeyed(&self) -> Option<String> {
        let changes = |way| {
            use Way::{Block, Grant, Pause, Penalize, Reset, Unblock};
            matches!(way, Penalize | Grant | Block | Pause | Unblock | Reset)
        };
        if self.has_odd_clocks()
            || self.plan.stack.ban.is_some()
            || !self.is_exact()
            || self.plan.asking != Asking::Alone
            || self.plan.asks.iter().any(|ask| changes(ask.way) || ask.own_quota.is_some())
            // Nobody knows when what is held is settled.
            || self.plan.limits.iter().any(has_holds)
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

    /// A failure is the store's fault, or load, unless a server says otherwise.
    fn kind(&self) -> Option<String> {
        use StrikeKind::{DialerPanics, Login, OutOfMemory};
        let is_odd = |kind| matches!(kind, OutOfMemory | Login | DialerPanics);
        if self.strikes.iter().any(|(_, _, kind)| is_odd(*kind)) {
            return None;
        }
        // An address may be wrong that has led to no primary yet, or that only a proxy would have:
        // its greeting is cut twice, and no other answer. The error of an attempt to connect counts
        // until the next one ends, however late that is.
        let may_be_wrong = |record: &Record| {
            let is_one = self.plan.topology == Topology::One;
            let last = self.last_dial(record).unwrap_or_default();
            let since = last.min(record.asked);
            let is_felt = |from, until| self.is_felt(from, until, since, record.ended);
            let cuts = self.disturbances.iter().filter(|one| is_cut(one.fault));
            let cuts = cuts.filter(|one| is_felt(one.from, one.until)).count();
            let leads_nowhere = self.strikes.iter().any(|(begin, end, kind)| {
                is_one && *kind == StrikeKind::ReadOnly && is_felt(*begin, *end)
            });
            let is_known = is_one && self.is_connected(record, record.ended);
            !is_known && (leads_nowhere || cuts > 1)
        };
        let is_wrong = |record: &&Record| match record.fate {
            Fate::Failed(Some(ErrorKind::Configuration)) => !may_be_wrong(record),
            Fate::Failed(Some(kind)) => {
                ![ErrorKind::Infrastructure, ErrorKind::Saturation].contains(&kind)
            }
            _ => false,
        };
        self.records.iter().find(is_wrong).map(|record| self.shown(record))
    }

    /// The begin of the last attempt to connect of a caller's process that had time to end, and
    /// that neither a network nor its server held up.
    fn last_dial(&self, record: &Record) -> Option<Duration> {
        let process = self.ask(record).process;
        let is_held_up = |at| {
            let mut faults = self.disturbances.iter();
            let by_network = faults.any(|one| {
                matches!(one.fault, Fault::Stall | Fault::HalfOpen | Fault::Silence)
                    && one.from < at + MIN_TIMEOUT
                    && at < one.until
            });
            by_network || self.is_struck(at, at + MIN_TIMEOUT)
        };
        let has_ended = |one: &&Dial| {
            let has_time = one.at + TIMEOUT + GRACE < record.ended;
            one.client == process && has_time && !is_held_up(one.at)
        };
        self.dials.iter().filter(has_ended).map(|one| one.at).max()
    }

    /// True if a caller's process had an answer of the store by then.
    fn is_connected(&self, record: &Record, by: Duration) -> bool {
        let process = self.ask(record).process;
        self.records.iter().any(|one| {
            let is_admitted = matches!(one.fate, Fate::Admitted { .. });
            // A switch that is off does nothing, and says so. A fallback needs no store.
            let stack = &self.plan.stack;
            let is_stores = stack.switches.is_empty() && !stack.has_fallback;
            let is_done = one.fate == Fate::Done && is_stores;
            (is_admitted || is_done) && self.ask(one).process == process && one.ended < by
        })
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
            (Way::Grant, "grant"),
            (Way::Reset, "reset"),
            (Way::Block, "block"),
            (Way::Pause, "pause"),
            (Way::Unblock, "unblock"),
        ];
        let is_own = |way| way != Way::Block || self.plan.stack.ban.is_none();
        for (way, name) in names.into_iter().filter(|(way, _)| is_plain && is_own(*way)) {
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

/// The units that a caller leaves free.
fn kept_free(ask: &Ask) -> i64 {
    ask.keep_free.cast_signed()
}

/// True if units of a limit are held until they are settled.
fn has_holds(limit: &Limit) -> bool {
    let holds = |one| matches!(one, &AnyAlgorithm::Budget(_) | &AnyAlgorithm::Concurrency(_));
    limit.algorithms.iter().any(holds)
}

/// The time of the world at an instant of its clock.
fn since_begin(at: i64) -> Duration {
    Duration::from_micros(u64::try_from(at - begins_at()).unwrap_or(0))
}

/// The admissions that break the bound of an algorithm.
fn excess(
    bookings: &[&Booking],
    algorithm: AnyAlgorithm,
    granted: impl Fn(i64) -> i64,
) -> Option<String> {
    let quota = algorithm.quota().as_slice()[0];
    let limit = quota.limit().cast_signed();
    let period = i64::try_from(quota.period().as_micros()).expect("short");
    let most: Box<dyn Fn(i64) -> Option<i64>> = match algorithm {
        AnyAlgorithm::TokenBucket(_) => {
            let burst = quota.burst_size().cast_signed();
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
                Some(most) if units > most + granted(last.at) => {
                    return Some(format!("{units} units, not {most}: {:?}", &taken[begin..=index]));
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    None
}
