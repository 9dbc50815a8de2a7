//! The judge: what a trace shows, event by event, against the model that the spec documents.
//!
//! - `over`: admissions that the model does not make or that come earlier than it reserves them,
//!   waits that are too short, units given back too many (S2), and grants that break the bound of
//!   some window (S1).
//! - `unjustified`: refusals where the model admits, waits longer than the model's, units kept.
//! - `faults`: these in words, and whatever else is not as it must be: an error, a wrong
//!   `remaining` or `reset_after`, an order that cannot be known, a `now` outside of its call.
//!
//! After a difference the model takes over the limiter's answer, so that one mistake is not counted
//! again with every later event.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::model::{Grant, Mark, Model};
use super::trace::{Event, Row, by_key, order};

/// The longest wait that an algorithm reserves unless set otherwise.
const HORIZON: i128 = 60_000_000;

/// The faults that are described; further ones are only counted.
const TOLD: usize = 20;

/// All that the judge found.
#[derive(Debug, Default)]
pub struct Findings {
    pub over: usize,
    pub unjustified: usize,
    pub faults: Vec<String>,
    /// Units admitted where use can be measured, and the most that could have been.
    pub admitted: i128,
    pub most: i128,
    /// Events that change what is stored, and the fewest writes that do: a call writes a key once.
    pub changes: usize,
    pub fewest: usize,
    /// Keys with calls that got lost, which may have been counted, or were sent again: of those
    /// only the bound is judged.
    pub by_bound: usize,
    /// The instants of the events that are not as they must be.
    wrong_at: Vec<i64>,
    counts: HashMap<u8, usize>,
}

impl Findings {
    pub fn count(&self, event: Event) -> usize {
        self.counts.get(&(event as u8)).copied().unwrap_or_default()
    }

    /// The share that was admitted of what could have been, if it is known.
    pub fn utilisation(&self) -> Option<f64> {
        (self.most > 0).then(|| self.admitted as f64 / self.most as f64)
    }

    /// Adds what was found on one key.
    fn add(&mut self, own: Self) {
        self.over += own.over;
        self.unjustified += own.unjustified;
        self.faults.extend(own.faults);
        self.faults.truncate(TOLD);
        self.admitted += own.admitted;
        self.most += own.most;
        self.changes += own.changes;
        self.fewest += own.fewest;
        self.by_bound += own.by_bound;
    }

    fn tell(&mut self, row: &Row, why: &str) {
        self.wrong_at.push(row.now);
        if self.faults.len() < TOLD {
            self.faults.push(format!("{why}: {row:?}"));
        }
    }
}

/// The way between those who write a trace and the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The server runs on this machine: it has the same clock, and every call is answered.
    Near,
    /// Each key's own server has a clock of its own. It is some unknown time from ours, and as
    /// fast. Calls may get lost on their way.
    Afar,
}

/// The time by which our clock may be ahead of the server's, in ns: at least, and at most.
type Ahead = (i128, i128);

/// The time by which two clocks may drift apart during a trace.
const DRIFT: i128 = 20_000_000;

impl Distance {
    /// The time by which ours is ahead of the one that decided `rows`: each decision lies between
    /// its call and its answer.
    fn ahead(self, rows: &[Row]) -> Result<Ahead, String> {
        if self == Self::Near {
            return Ok((0, 0));
        }
        let decided = || rows.iter().filter(|row| !row.event.returns());
        let now = |row: &Row| i128::from(row.now) * 1_000;
        let least = decided().map(|row| i128::from(row.sent) - now(row) - 999).max();
        match (least.unwrap_or_default(), self.most_ahead(rows)) {
            (least, most) if least > most + DRIFT => {
                Err(format!("the clocks drifted apart by {} us", (least - most) / 1_000))
            }
            (one, other) => Ok((one.min(other), one.max(other))),
        }
    }

    /// The time in ns by which our clock is at most ahead: each decision was made before its
    /// answer, even that of a leased unit.
    pub(super) fn most_ahead(self, rows: &[Row]) -> i128 {
        if self == Self::Near {
            return 0;
        }
        let is_decided =
            |row: &&Row| !row.event.returns() && !matches!(row.event, Event::Error | Event::Lost);
        let decided = rows.iter().filter(is_decided);
        let most = decided.map(|row| i128::from(row.received) - i128::from(row.now) * 1_000).min();
        most.unwrap_or_default()
    }
}

/// Judges a trace, and returns with it the state in which each key should be.
pub fn judge(
    rows: &[Row],
    distance: Distance,
    model: impl Fn() -> Box<dyn Model>,
) -> (Findings, BTreeMap<u32, Box<dyn Model>>) {
    let mut findings = Findings::default();
    let mut models = BTreeMap::new();
    for (key, mut rows) in by_key(rows) {
        for row in &rows {
            *findings.counts.entry(row.event as u8).or_default() += 1;
            if row.event == Event::Error || row.event == Event::Lost && distance == Distance::Near {
                findings.tell(row, "no decision");
            }
        }
        let (mut own, mut end) = (Findings::default(), None);
        let is_lost = rows.iter().any(|row| row.event == Event::Lost);
        if distance == Distance::Near || !is_lost {
            rows.retain(|row| !matches!(row.event, Event::Error | Event::Lost));
            end = replay(&mut rows, distance, model(), &mut own);
        }
        let was_sent_again = || end.is_some() && only_sent_again(&rows, &*model(), &own.wrong_at);
        if distance == Distance::Afar && (is_lost || was_sent_again()) {
            let over = excess(&mut rows, &*model());
            (own, end) = (Findings { by_bound: 1, over, ..Findings::default() }, None);
        }
        findings.add(own);
        end.and_then(|end| models.insert(key, end));
    }
    (findings, models)
}

/// Returns true if every wrong event is in the millisecond of a charge that may have been sent
/// again: it reports what is free later, and its place within its millisecond is unknown.
fn only_sent_again(rows: &[Row], model: &dyn Model, wrong_at: &[i64]) -> bool {
    let may_be = |row: &&Row| row.event == Event::Allowed && row.now % 1_000 == 0;
    let millis: HashSet<_> = rows.iter().filter(may_be).map(|row| row.now / 1_000).collect();
    model.may_be_sent_again()
        && !wrong_at.is_empty()
        && wrong_at.iter().all(|at| millis.contains(&(at / 1_000)))
}

/// Judges the events of one key. Returns the model at their end.
fn replay(
    rows: &mut [Row],
    distance: Distance,
    model: Box<dyn Model>,
    findings: &mut Findings,
) -> Option<Box<dyn Model>> {
    let key = rows.first().map_or(0, |row| row.key);
    let why = match (order(rows), distance.ahead(rows)) {
        (Ok(()), Ok(ahead)) => {
            let mut replay = Replay::new(model, ahead, findings);
            rows.iter().for_each(|row| replay.follow(row));
            return Some(replay.end(rows));
        }
        (Err(why), _) => why,
        (_, Err(why)) => format!("key {key}: {why}"),
    };
    findings.faults.push(why);
    None
}

/// Counts the admissions of one key that break the bound of some window, but for units that may
/// have been given back.
fn excess(rows: &mut [Row], model: &dyn Model) -> usize {
    // Those of one instant in the order in which they were decided.
    rows.sort_by_key(|row| (row.now, row.place));
    let caller = |row: &Row, number| (row.process, row.task, number);
    let mut back: HashMap<_, i64> = HashMap::new();
    for row in rows.iter().filter(|row| row.of > 0) {
        let units = if row.event == Event::Lost { row.cost } else { row.units };
        *back.entry(caller(row, row.of)).or_default() += i64::from(units);
    }
    let mut grants: Vec<Grant> = Vec::new();
    for row in rows.iter().filter(|row| matches!(row.event, Event::Allowed | Event::Waited)) {
        let back = back.get(&caller(row, row.number)).copied().unwrap_or_default();
        grants.push(((row.now + row.wait).into(), (i64::from(row.cost) - back).into()));
    }
    grants.retain(|grant| grant.1 > 0);
    grants.sort_by_key(|grant| grant.0);
    model.excess(&grants)
}

/// One key's events, played to its model.
struct Replay<'a> {
    model: Box<dyn Model>,
    ahead: Ahead,
    findings: &'a mut Findings,
    grants: Vec<Grant>,
    /// The instant at which something was taken last: what is taken at one instant is taken by one
    /// call.
    taken_at: Option<i64>,
    /// The reservations by task and number of their call: the mark, and the place of the grant.
    reserved: HashMap<(u16, u16, u32), (Mark, usize)>,
}

impl<'a> Replay<'a> {
    fn new(model: Box<dyn Model>, ahead: Ahead, findings: &'a mut Findings) -> Self {
        Self {
            model,
            ahead,
            findings,
            grants: Vec::new(),
            taken_at: None,
            reserved: HashMap::new(),
        }
    }

    fn follow(&mut self, row: &Row) {
        if row.event.returns() {
            return self.refund(row);
        }
        let [now, cost, wait, patience] =
            [row.now, i64::from(row.cost), row.wait, row.patience].map(i128::from);
        let (least, most) = self.ahead;
        let (sent, received) = (i128::from(row.sent) - most, i128::from(row.received) - least);
        if now * 1_000 + 999 < sent || now * 1_000 > received {
            self.findings.tell(row, "a now outside of its call");
        }
        if matches!(row.event, Event::Waited | Event::Denied) != (wait > 0) {
            self.findings.tell(row, "a wait that its outcome cannot have");
        }

        let due = self.model.earliest(now, cost);
        // Even after the longest rest it would wait longer than it may.
        let due = due.filter(|_| self.model.least_wait(cost) <= patience.min(HORIZON));
        let fits = due.is_some_and(|due| match cost {
            0 => due == now,
            _ => due - now <= patience.min(HORIZON),
        });
        let admitted = matches!(row.event, Event::Allowed | Event::Waited);
        let told = if row.event == Event::Never { i128::MAX } else { now + wait };
        let right = due.unwrap_or(i128::MAX);
        if told < right || (admitted && !fits) {
            self.findings.over += 1;
            self.findings.tell(row, &format!("over, fits at {due:?}"));
        } else if told > right || (!admitted && fits) {
            self.findings.unjustified += 1;
            self.findings.tell(row, &format!("unjustified, fits at {due:?}"));
        }

        if admitted && cost > 0 {
            let mark = self.model.take(now, told, cost);
            self.reserved.insert((row.process, row.task, row.number), (mark, self.grants.len()));
            self.grants.push((told, cost));
            self.findings.changes += 1;
            self.findings.fewest += usize::from(self.taken_at != Some(row.now));
            self.taken_at = Some(row.now);
        }
        let report = (self.model.remaining(now), self.model.reset_after(now));
        if (i128::from(row.remaining), i128::from(row.reset)) != report {
            self.findings.tell(row, &format!("should report {report:?}"));
        }
    }

    /// The reply tells no `now`, but it lies between sent and received: what is given back
    /// must be right at either end, or between them if they are far apart. Nothing is right too
    /// once the state is old, since then it may have expired.
    fn refund(&mut self, row: &Row) {
        let Some((mark, grant)) = self.reserved.remove(&(row.process, row.task, row.of)) else {
            return self.findings.tell(row, "gives back what was not reserved");
        };
        let (cost, units) = (i128::from(row.cost), i128::from(row.units));
        let (least, most) = self.ahead;
        let ends = [i128::from(row.sent) - most, i128::from(row.received) - least];
        let ends = ends.map(|at| at.div_euclid(1_000));
        let returnable = |now| self.model.returnable(now, cost, mark);
        let right = ends.map(returnable);
        let expired = units == 0 && self.model.reset_after(ends[1]) == 0;
        // More than a millisecond apart, as where the server is far away.
        let between = || {
            ends[1] - ends[0] > 1_000
                && (ends[0]..ends[1]).step_by(100).any(|at| returnable(at) == units)
        };
        if !right.contains(&units) && !expired && !between() {
            let kept = right.iter().all(|right| units < *right);
            *(if kept { &mut self.findings.unjustified } else { &mut self.findings.over }) += 1;
            self.findings.tell(row, &format!("should give back one of {right:?}"));
        }
        if units > 0 {
            self.model.put_back(mark, units);
            self.grants[grant].1 -= units;
            self.findings.changes += 1;
        }
    }

    /// Judges the whole: what was granted and not given back, over every window.
    fn end(mut self, rows: &[Row]) -> Box<dyn Model> {
        self.grants.sort_by_key(|grant| grant.0);
        let kept: Vec<_> = self.grants.iter().copied().filter(|grant| grant.1 > 0).collect();
        self.findings.over += self.model.excess(&kept);
        let nows = || rows.iter().filter(|row| !row.event.returns()).map(|row| i128::from(row.now));
        if let (Some(first), Some(last)) = (nows().min(), nows().max()) {
            let (stretch, most) = self.model.most(first, last);
            let used = self.grants.iter().filter(|grant| stretch.contains(&grant.0));
            self.findings.admitted += used.map(|grant| grant.1).sum::<i128>();
            self.findings.most += most;
        }
        self.model
    }
}
