//! The account of a world: what the servers' books say about charges. Each call is read
//! (`calls.rs`), and replayed by the reference. `booking.rs` is an admission, `operations.rs` is
//! what is no check, `births.rs` knows what is of before a reset, and `ledger.rs` keeps each hold of
//! units by itself.
//!
//! A state is known by the version of the stored value that it stands for. So the account follows
//! values to replicas and to other nodes of a cluster, and knows what a failover has lost.

mod births;
mod booking;
mod calls;
mod ledger;
mod operations;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use tower_sluice::algorithm::{Algorithm, AnyAlgorithm, Check, Refund, Verdict};

use self::births::{births, is_any_other, keep_born, state_born};
pub use self::booking::Booking;
use self::calls::scripts;
pub use self::calls::{Charge, Limit, Op};
use self::ledger::{Ledger, hold, release};
pub use self::operations::Blocking;
use self::operations::{
    block, block_ends, blocked_until, is_of_pause, pause, paused_until, unblock, without_pause,
};
use super::book::{Book, Change, Event, ScriptCall};
use super::keyspace::Stored;
use super::packing::Packed;

type List = Vec<AnyAlgorithm>;
type Rule = <List as Algorithm>::Rule;
type State = <List as Algorithm>::State;
type MemberState = <State as IntoIterator>::Item;

/// The states of a charge's keys.
fn state_of(charge: &Charge, works: &Works) -> Option<State> {
    Some(charge.keys.iter().map(|key| works[key].standing.state.clone()).collect())
}

fn keep(charge: &Charge, state: Option<State>, is_changed: bool, works: &mut Works) {
    let mut members = state.unwrap_or_default().into_iter();
    for key in &*charge.keys {
        let work = works.get_mut(key).expect("it was read");
        let state = members.next().flatten();
        work.is_changed |= is_changed && work.standing.state != state;
        work.standing.state = state;
    }
}

/// An admission leaves as many units free at its slot as it says: those that the reports of the
/// states before it show, less its cost. What a new key stores from then on is in the states after
/// it alone, where a price that is owed hides what is left.
///
/// Guava's warm-up stores parts of units as floating-point numbers. Its script takes 5.9999999 for
/// six, a report for five: there the units count that are left a microsecond later.
fn leaves_free(
    charge: &Charge,
    [before, after]: [Option<&State>; 2],
    at: i64,
) -> Result<(), String> {
    let Op::Check { cost, keep_free, .. } = &charge.op else { return Ok(()) };
    let has_parts = charge.keys.iter().any(|key| key.contains("su1:{"));
    let at = if has_parts { at + 1 } else { at };
    let left = |state: Option<&State>| {
        let clamped = state.and_then(|state| List::clamp(&charge.rule, state, charge.now));
        let seen = clamped.as_ref().or(state);
        let left = List::estimate(&charge.rule, seen, at, Check::new(0, 0));
        let each: Vec<_> = left.members.iter().map(|one| one.report.remaining).collect();
        if each.is_empty() { vec![left.report.remaining] } else { each }
    };
    let (before, after) = (left(before), left(after));
    let is_short = |((before, after), kept): ((&i64, &i64), &i64)| {
        *kept > 0 && (before - cost).max(*after) < *kept
    };
    match before.iter().zip(&after).zip(keep_free).any(is_short) {
        true => Err(format!("free: {charge:?}: {before:?} were left at {at}, then {after:?}")),
        false => Ok(()),
    }
}

/// Forgets the states of a charge's keys that have expired: a settlement finds nothing of them.
fn forget_expired(charge: &Charge, works: &mut Works) {
    for key in &*charge.keys {
        let work = works.get_mut(key).expect("it was read");
        work.standing.state.take_if(|_| work.has_expired);
    }
}

/// A refusal that a server made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub now: i64,
    pub limiter: &'static str,
    pub label: String,
    pub cost: i64,
    /// The units that were to stay free of its first quota.
    pub keep_free: i64,
    /// The wait in µs. `None`: it never fits.
    pub wait: Option<i64>,
}

/// The state of a key, as the reference knows it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Standing {
    state: MemberState,
    /// The number of its last reset, 0 if it was not reset.
    birth: i64,
    blocked_until: Option<i64>,
    /// 0 if it is not paused.
    paused_until: i64,
    /// The units that are held of it.
    ledger: Ledger,
}

/// A state, the one before it, and the admissions between both.
#[derive(Debug)]
struct Node {
    key: Rc<str>,
    standing: Standing,
    before: Option<u64>,
    bookings: Vec<usize>,
}

/// A key of a call under way: its value before the call, and the reference's state so far.
#[derive(Debug)]
struct Work {
    before: Option<u64>,
    standing: Standing,
    bookings: Vec<usize>,
    /// The call has to write the key.
    is_changed: bool,
    /// The value expired before the call.
    has_expired: bool,
}

type Works = HashMap<String, Work>;

/// The value that stands under a key of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    version: Option<u64>,
    /// The instant at which the value expired, if it did. A charge of an earlier instant, by a
    /// clock that was set back, finds no state.
    expired_at: Option<i64>,
}

/// All that the servers did for charges.
#[derive(Debug, Default)]
pub struct Account {
    pub bookings: Vec<Booking>,
    pub refusals: HashSet<Refusal>,
    /// Every other operation that changes a key, by its name, the limiter, and the label.
    pub operations: BTreeMap<(&'static str, &'static str, String), usize>,
    /// Units that were taken whether or not they fit: a key's label, and when.
    pub taken_more: Vec<(String, i64)>,
    /// The units of all penalties, by the limiter and the label.
    pub penalties: BTreeMap<(&'static str, String), i64>,
    /// Units that were given back or cut, such as by a smaller quota, and keys that were reset: a
    /// key's label, and when.
    pub freed: Vec<(String, i64)>,
    /// The pauses of keys: a key's label, when it was paused, and until when.
    pub pauses: Vec<(String, i64, i64)>,
    /// The units that were granted: of a key, when, and how many at most.
    pub grants: Vec<(String, i64, i64)>,
    pub blocks: Vec<Blocking>,
    /// True if a client may have taken a server for a proxy, since the network cut its greetings.
    /// Then a call has one key.
    pub may_be_apart: bool,
    nodes: HashMap<u64, Node>,
    limits: Vec<Limit>,
    /// The number of keys of a charge, by the script's digest.
    scripts: HashMap<String, usize>,
}

impl Account {
    /// Reads the books of all servers. The error says what the reference does not agree with.
    pub fn of(limits: &[Limit], books: &[&Book]) -> Result<Self, String> {
        let may_be_apart = books.iter().any(|book| book.was_asked_by_resp2);
        let (limits, scripts) = (limits.to_vec(), scripts(limits));
        let mut account = Self { limits, scripts, may_be_apart, ..Self::default() };
        let mut current: Vec<HashMap<String, Current>> = vec![HashMap::new(); books.len()];
        let mut events: Vec<(u64, usize, usize)> = Vec::new();
        for (server, book) in books.iter().enumerate() {
            let numbered = book.sequence().iter().enumerate();
            events.extend(numbered.map(|(place, number)| (*number, server, place)));
        }
        events.sort_unstable();
        for (_, server, place) in events {
            let book = books[server];
            match &book.events()[place] {
                Event::Change(change) => account.follow(change, &mut current[server]),
                Event::Call(call) => {
                    let changes = &book.events()[call.first_change..place];
                    account.replay(server, call, changes, &current[server])?;
                }
                Event::Crash { keeps_data: true } => {}
                Event::Crash { keeps_data: false } => current[server].clear(),
                // The changes say which keys are others now.
                Event::Replaced { .. } => {}
            }
        }
        for one in &mut account.bookings {
            one.read_at = books[one.server].read_at(one.session, one.now);
        }
        Ok(account)
    }

    /// Notes which value stands under a key.
    fn follow(&mut self, change: &Change, current: &mut HashMap<String, Current>) {
        let key = String::from_utf8_lossy(&change.key).into_owned();
        let node_key = key.as_str().into();
        let standing = current.entry(key).or_default();
        match (&change.before, &change.after) {
            (_, Some(after)) => {
                let before = standing.version;
                *standing = Current { version: Some(after.version), expired_at: None };
                // A write outside of a script: a placeholder, or a new time to live.
                let is_none = matches!(&*after.stored, Stored::Text(text) if text == b"none");
                let known = before.and_then(|version| self.nodes.get(&version));
                let kept = known.filter(|_| !is_none).map(|node| node.standing.clone());
                self.nodes.entry(after.version).or_insert_with(|| Node {
                    key: node_key,
                    standing: kept.unwrap_or_default(),
                    before,
                    bookings: Vec::new(),
                });
            }
            (Some(before), None) => {
                let is_old = |at: &i64| *at <= change.at.div_euclid(1_000);
                match before.expires_at.filter(is_old) {
                    Some(at) => standing.expired_at = Some(at * 1_000),
                    None => *standing = Current::default(),
                }
            }
            (None, None) => {}
        }
    }

    /// Replays a call on the values that it found.
    fn replay(
        &mut self,
        server: usize,
        call: &ScriptCall,
        changes: &[Event],
        current: &HashMap<String, Current>,
    ) -> Result<(), String> {
        let Some(charges) = self.charges(server, call)? else { return Ok(()) };
        let mut works = Works::new();
        let mut first_of: HashMap<String, Option<u64>> = HashMap::new();
        for change in changes {
            let Event::Change(change) = change else { continue };
            let key = String::from_utf8_lossy(&change.key).into_owned();
            first_of.entry(key).or_insert_with(|| change.before.as_ref().map(|one| one.version));
        }
        for charge in &charges {
            for key in &*charge.keys {
                if works.contains_key(key) {
                    continue;
                }
                let now_there = current.get(key).copied().unwrap_or_default();
                let before = match first_of.get(key) {
                    // Written by this call: what stood there, or what had expired before it.
                    Some(Some(version)) => Some(*version),
                    Some(None) => self.version_before(now_there.version),
                    None => {
                        let lasts = now_there.expired_at.is_none_or(|at| at <= charge.now);
                        now_there.version.filter(|_| lasts)
                    }
                };
                let known = before.and_then(|version| self.nodes.get(&version));
                let mut standing = known.map(|node| node.standing.clone()).unwrap_or_default();
                if let Some(expired) = now_there.version.filter(|_| before.is_none()) {
                    let expired = self.nodes.get(&expired);
                    let ledger = expired.map(|node| node.standing.ledger.clone());
                    standing.ledger = ledger.unwrap_or_default();
                }
                let (bookings, is_changed) = (Vec::new(), false);
                let has_expired = now_there.expired_at.is_some_and(|at| at <= charge.now);
                let work = Work { before, standing, bookings, is_changed, has_expired };
                works.insert(key.clone(), work);
            }
        }
        for charge in charges {
            self.judge(&charge, &mut works)?;
        }
        for (key, work) in works {
            let Work { before, mut standing, bookings, is_changed, .. } = work;
            // A write removes a block or a pause that is over.
            standing.blocked_until = standing.blocked_until.filter(|until| *until > call.at);
            if standing.paused_until <= call.at {
                standing.paused_until = 0;
            }
            let written = current.get(&key).and_then(|current| current.version);
            if !first_of.contains_key(&key) {
                if is_changed {
                    return Err(format!("once: {key} at {}: a decision was not stored", call.at));
                }
            } else if let Some(version) = written.filter(|version| Some(*version) != before) {
                let key = key.as_str().into();
                self.nodes.insert(version, Node { key, standing, before, bookings });
            }
        }
        Ok(())
    }

    /// The version before one, which its key does not hold any more.
    fn version_before(&self, version: Option<u64>) -> Option<u64> {
        self.nodes.get(&version?)?.before
    }

    /// Compares one answer with the reference, and takes the charge.
    fn judge(&mut self, charge: &Charge, works: &mut Works) -> Result<(), String> {
        self.compare(charge, works)?;
        self.check_held(charge, works)
    }

    fn compare(&mut self, charge: &Charge, works: &mut Works) -> Result<(), String> {
        let Charge { now, op, rule, .. } = charge;
        let now = *now;
        let until = blocked_until(charge, works);
        match op {
            // The answer tells the pause that follows. A charge that fails pauses all the same.
            Op::Pause { .. } => pause(charge, works),
            Op::Unblock => {
                unblock(charge, works);
                // Others need not wait any more for the end of a pause, for which some wait.
                self.free(charge);
            }
            _ => {}
        }
        // The ends of pauses stand before the answer.
        let paused = paused_until(charge, works);
        let told = without_pause(&charge.answer);
        let (ends, told) = told.unwrap_or_else(|| (Vec::new(), charge.answer.clone()));
        if ends != paused && is_of_pause(&told, charge) {
            return Err(format!("truth: {charge:?}: paused until {paused:?}"));
        }
        let answer = match &told {
            Packed::Integer(told) if charge.is_short => {
                self.in_full(charge, *told, state_of(charge, works))?
            }
            Packed::Integer(answer) => *answer,
            // Units of a key that was reset, and each key's birth.
            Packed::Text(text) if text.starts_with("RESET ") => {
                let mut numbers = text.split(' ').skip(1).filter_map(|one| one.parse().ok());
                let answer = numbers.next().filter(|answer| *answer < 0);
                if !numbers.eq(births(charge, works)) {
                    return Err(format!("truth: {charge:?}: wrong births"));
                }
                answer.ok_or_else(|| format!("truth: {charge:?}: nothing was taken"))?
            }
            Packed::Text(text) if text.starts_with("BLOCKED") => {
                self.note_block(charge, works);
                let not_taken = self.operate(charge, works);
                let told: Vec<_> =
                    text.split(' ').skip(1).map(|number| number.parse().ok()).collect();
                let right = block_ends(charge, works).into_iter();
                let is_penalty = matches!(op, Op::Penalize { .. });
                let right = right.chain(is_penalty.then_some(not_taken));
                let right: Vec<_> = right.map(Some).collect();
                let is_blocked = blocked_until(charge, works).is_some();
                if let Op::Pause { .. } = op {
                    self.note_pause(charge, &paused);
                }
                return match is_blocked && told == right {
                    true => Ok(()),
                    false => Err(format!("truth: {charge:?}: blocked until {right:?}")),
                };
            }
            // Why this charge failed, such as a lack of memory: one of its keys was not written.
            _ => {
                self.fail(charge, works);
                return Ok(());
            }
        };
        let wrong =
            |expected: i64| Err(format!("truth: {charge:?}: the reference says {expected}"));
        match op {
            Op::Check { cost, max_wait, keep_free }
            | Op::Estimate { cost, max_wait, keep_free } => {
                let check = Check::new(*cost, *max_wait).keeping(keep_free).paused_until(&paused);
                let is_estimate = matches!(op, Op::Estimate { .. });
                let mut state = state_of(charge, works);
                let is_cut = |state| List::clamp(rule, state, now).is_some();
                if !is_estimate && state.as_ref().is_some_and(is_cut) {
                    self.free(charge);
                }
                let before = if keep_free.is_empty() { None } else { state.clone() };
                let said = match is_estimate {
                    true => List::estimate(rule, state.as_ref(), now, check),
                    false => List::step(rule, &mut state, now, check),
                };
                let takes = *cost > 0 && !is_estimate;
                let expected = match said.verdict {
                    Verdict::Allow if takes => -1,
                    Verdict::Wait(wait) if takes => -1 - wait,
                    Verdict::Deny(wait) | Verdict::Wait(wait) => wait,
                    _ => 0,
                };
                if until.is_some() || answer != expected {
                    return wrong(expected);
                }
                // Not by the reference alone: nobody goes in a pause.
                let slot = now - 1 - answer;
                if answer < 0 && paused.iter().any(|until| slot < *until) {
                    return Err(format!("paused: {charge:?}: admitted at {slot}"));
                }
                if answer < 0 && !keep_free.is_empty() {
                    let states = [before.as_ref(), state.as_ref()];
                    leaves_free(charge, states, now - 1 - answer)?;
                }
                keep(charge, state, answer < 0, works);
                if let (Some(mark), true) = (said.mark, answer < 0) {
                    let (at, index) = (now - 1 - answer, self.bookings.len());
                    let (cost, names) = (*cost, Rc::clone(&charge.keys));
                    let births = births(charge, works);
                    for key in &*names {
                        works.get_mut(key).expect("it was read").bookings.push(index);
                    }
                    let (server, keys) = (charge.server, self.named(charge));
                    let (session, sent_at) = (charge.session, charge.sent_at);
                    let (taken, settlements) = (cost, 0);
                    self.bookings.push(Booking {
                        server,
                        session,
                        sent_at,
                        now,
                        at,
                        read_at: None,
                        keys,
                        names,
                        births,
                        quotas: charge.quotas.clone(),
                        cost,
                        taken,
                        settlements,
                        releases: 0,
                        was_settled_in_part: false,
                        given_for_lost: 0,
                        keep_free: keep_free.first().copied().unwrap_or(0),
                        mark,
                        former_marks: Vec::new(),
                    });
                    hold(charge, cost, Some(index), works);
                    self.check_at_once(charge, works)?;
                } else if let Verdict::Deny(_) | Verdict::Never = said.verdict {
                    let wait = (said.verdict != Verdict::Never).then_some(answer);
                    self.refuse(charge, *cost, keep_free, wait);
                }
            }
            Op::Settle { used, cost, mark, born } => {
                let Some(index) = self.booking_of(charge, works, *cost, (mark, born)) else {
                    return Err(format!("once: {charge:?}: nothing of it was taken"));
                };
                let one = &mut self.bookings[index];
                let own = one.marked(&charge.keys, mark).expect("it was found by that");
                let refund = Refund { units: cost - used, cost: *cost, mark: &own };
                forget_expired(charge, works);
                let mut state = state_born(charge, born, works);
                let back = List::settle(rule, &mut state, now, &refund);
                release(charge, (*cost, index), (mark, born), false, works);
                let one = &mut self.bookings[index];
                let back = match used <= cost || !is_any_other(charge, born, works) {
                    true => back.unwrap_or((cost - used).min(0)),
                    // What was used beyond a charge of before a reset is not taken.
                    false => cost - used,
                };
                if answer != back {
                    return wrong(back);
                }
                let back = back.max(0);
                match charge.keys.len() < one.names.len() {
                    true => one.releases += 1,
                    false => one.settlements += 1,
                }
                if used > cost {
                    self.taken_more.push((charge.label(0).to_owned(), now));
                }
                one.taken -= back;
                if one.taken < 0 {
                    // Of two with one mark, as where charges were lost, it may be the other's.
                    one.taken += back;
                    let mut alike = self.all_alike(index).into_iter();
                    let Some(twin) = alike.find(|other| self.bookings[*other].taken >= back) else {
                        return Err(format!("once: {charge:?}: given back twice"));
                    };
                    self.bookings[twin].taken -= back;
                }
                if back > 0 {
                    self.give_for_lost(index, back, charge, works);
                    self.free(charge);
                }
                keep_born(charge, state, Some(born), back > 0, works);
            }
            Op::Renew { cost, mark, born } => {
                let Some(index) = self.booking_of(charge, works, *cost, (mark, born)) else {
                    return Err(format!("once: {charge:?}: nothing of it was taken"));
                };
                let one = &mut self.bookings[index];
                let own = one.marked(&charge.keys, mark).expect("it was found by that");
                forget_expired(charge, works);
                let mut state = state_born(charge, born, works);
                let (next, is_held) = List::renew(rule, &mut state, now, *cost, &own);
                let expected = if is_held { *cost } else { 0 };
                if answer != expected {
                    return wrong(expected);
                }
                let former = std::mem::replace(&mut one.mark, next);
                one.former_marks.push(former);
                // The client computes the mark from the state alone, which shows no reset.
                let mut seen = state_of(charge, works);
                one.former_marks.push(List::renew(rule, &mut seen, now, *cost, &own).0);
                release(charge, (*cost, index), (mark, born), true, works);
                keep_born(charge, state, Some(born), is_held, works);
            }
            Op::Block { .. } => return wrong(0),
            Op::Pause { .. } => {
                self.note_pause(charge, &paused);
                let wait = paused.iter().max().map_or(0, |until| until - now);
                let state = state_of(charge, works);
                let check = Check::new(0, 0).paused_until(&paused);
                let said = List::estimate(rule, state.as_ref(), now, check);
                let is_right =
                    matches!(said.verdict, Verdict::Deny(expected) if expected == answer);
                if until.is_some() || !is_right || answer < wait {
                    return wrong(wait);
                }
            }
            Op::Penalize { .. } => {
                let not_taken = self.operate(charge, works);
                if answer != not_taken {
                    return wrong(not_taken);
                }
            }
            Op::Reset | Op::Unblock => {
                self.operate(charge, works);
            }
            Op::Grant { .. } => {
                self.operate(charge, works);
                let left = |state: Option<&State>| List::report(rule, state, now).remaining;
                let is_above = |place: usize, own: &MemberState| {
                    let (limit, member) = self.limit_of(&charge.keys[place]).expect("known");
                    // A pace that has stored nothing yet admits all the same.
                    let algorithm = self.limits[limit].algorithms[member];
                    let is_pace = matches!(
                        algorithm,
                        AnyAlgorithm::SmoothBursty(_) | AnyAlgorithm::SmoothWarmingUp(_)
                    );
                    let rule = vec![rule[place].clone()];
                    let left = |state: Option<&State>| List::report(&rule, state, now).remaining;
                    !is_pace && left(Some(&vec![own.clone()])) > left(None)
                };
                let state = state_of(charge, works).unwrap_or_default();
                if state.iter().enumerate().any(|(place, own)| is_above(place, own)) {
                    return Err(format!("granted: {charge:?}: {} are left", left(Some(&state))));
                }
            }
        }
        Ok(())
    }

    /// Does what a charge did that failed. The script decided it before it wrote, so the charges
    /// behind it, and its keys that were written, know it all the same.
    fn fail(&mut self, charge: &Charge, works: &mut Works) {
        let (now, rule, mut state) = (charge.now, &charge.rule, state_of(charge, works));
        match &charge.op {
            // Under a block it took nothing, whatever failed besides.
            Op::Check { .. } if blocked_until(charge, works).is_some() => return,
            Op::Check { cost, max_wait, keep_free } => {
                let paused = paused_until(charge, works);
                let check = Check::new(*cost, *max_wait).keeping(keep_free).paused_until(&paused);
                let said = List::step(rule, &mut state, now, check);
                if let (Verdict::Allow | Verdict::Wait(_), 1..) = (said.verdict, *cost) {
                    hold(charge, *cost, None, works);
                }
            }
            Op::Penalize { cost, born } => {
                List::penalize(rule, &mut state, now, *cost);
                let before = state_of(charge, works);
                keep_born(charge, state, born.as_deref(), false, works);
                return self.note_penalty(charge, before.as_ref(), works);
            }
            Op::Settle { used, cost, mark, born } => {
                let booking = self.booking_of(charge, works, *cost, (mark, born));
                let Some(index) = booking else { return };
                let one = &mut self.bookings[index];
                one.was_settled_in_part = true;
                let own = one.marked(&charge.keys, mark).expect("it was found by that");
                let refund = Refund { units: cost - used, cost: *cost, mark: &own };
                state = state_born(charge, born, works);
                List::settle(rule, &mut state, now, &refund);
                release(charge, (*cost, index), (mark, born), false, works);
                return keep_born(charge, state, Some(born), false, works);
            }
            Op::Renew { cost, mark, born } => {
                let booking = self.booking_of(charge, works, *cost, (mark, born));
                let Some(index) = booking else { return };
                let own =
                    self.bookings[index].marked(&charge.keys, mark).expect("it was found by that");
                state = state_born(charge, born, works);
                let (next, _) = List::renew(rule, &mut state, now, *cost, &own);
                // Its client gets an error, and knows the former mark alone.
                self.bookings[index].former_marks.push(next);
                release(charge, (*cost, index), (mark, born), true, works);
                return keep_born(charge, state, Some(born), false, works);
            }
            Op::Grant { cost } => {
                List::grant(rule, &mut state, now, *cost);
            }
            Op::Block { .. } => return block(charge, works),
            // A pause or its end counts already.
            _ => return,
        }
        keep(charge, state, false, works);
    }

    /// Notes that units of a charge's keys are free again.
    fn free(&mut self, charge: &Charge) {
        let labels = (0..charge.keys.len()).map(|place| charge.label(place).to_owned());
        self.freed.extend(labels.map(|label| (label, charge.now)));
    }

    fn refuse(&mut self, charge: &Charge, cost: i64, keep_free: &[i64], wait: Option<i64>) {
        let keep_free = keep_free.first().copied().unwrap_or(0);
        for (limiter, label) in self.named(charge) {
            self.refusals.insert(Refusal {
                now: charge.now,
                limiter,
                label,
                cost,
                keep_free,
                wait,
            });
        }
    }

    /// The labels of a charge's keys, by the names of their limiters.
    fn named(&self, charge: &Charge) -> Vec<(&'static str, String)> {
        let named = |place: usize| {
            let (limit, _) = self.limit_of(&charge.keys[place]).expect("it was read");
            (self.limits[limit].name, charge.label(place).to_owned())
        };
        (0..charge.keys.len()).map(named).collect()
    }

    /// The limiters of the world.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The admissions of each history of a key: those that one stored value has seen. What a server
    /// lost is in a history of its own.
    pub fn histories(&self) -> Vec<(Rc<str>, Vec<&Booking>)> {
        let followed: HashSet<u64> = self.nodes.values().filter_map(|node| node.before).collect();
        let mut last: Vec<u64> =
            self.nodes.keys().filter(|version| !followed.contains(version)).copied().collect();
        last.sort_unstable();
        let history = |version: u64| {
            let (mut bookings, mut next) = (Vec::new(), Some(version));
            while let Some(node) = next.and_then(|version| self.nodes.get(&version)) {
                bookings.extend(node.bookings.iter().rev().map(|index| &self.bookings[*index]));
                next = node.before;
            }
            bookings.reverse();
            (Rc::clone(&self.nodes[&version].key), bookings)
        };
        last.into_iter().map(history).collect()
    }
}
