//! Traffic through `replay`, in memory and over Redis: every answer is that of a model that shares
//! nothing with the crate.
//!
//! The traffic has what no trace of the workloads has: units that stay free, units that are given
//! by hand, pauses, blocks, suspended plans, windows of a calendar, and units in flight.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::Server;
use support::trial::held::{self, Terms, YEAR};
use support::trial::model::{
    Anchored, Bucket, Bursty, Calendar, Cells, Counter, InFlight, Log, Mark, Model, Span, Warm,
    Window, Zone,
};
use tower_sluice::Quota;

use crate::{crew, turn};

/// 2026-03-27 17:00 UTC, two days before the clocks change in Berlin.
const START: i128 = 1_774_630_800_000_000;
const SECOND: i128 = 1_000_000;
const HOUR: i128 = 3_600 * SECOND;
const DAY: i128 = 24 * HOUR;
const HORIZON: i128 = 10 * SECOND;
/// A charge that waits for units in flight is to ask again after this time.
const FIRST_PAUSE: i128 = 10_000;
const STEPS: usize = 300;

/// A policy, and its model.
struct Case {
    options: String,
    /// The most units that fit at once, and the time of one.
    burst: i128,
    unit: i128,
    /// The longest wait that is reserved.
    horizon: i128,
    /// Units are held for this time at least.
    holds: Option<i128>,
    model: Box<dyn Fn() -> Units>,
}

/// The units of a key.
enum Units {
    Plain { model: Box<dyn Model>, taken: BTreeMap<usize, Taken> },
    Budget(held::Model),
    InFlight(InFlight),
}

/// An admitted charge. Of one that went when a pause was over, also the state that it left, and the
/// one before.
struct Taken {
    cost: i128,
    mark: Mark,
    undo: Option<(String, Box<dyn Model>)>,
}

/// One key: its units, and the ends of its block and its pause.
struct Key {
    units: Units,
    blocked: i128,
    paused: i128,
}

/// When a charge fits.
enum Fit {
    Never,
    /// At an instant, for which it may wait.
    At(i128),
    /// At an instant that nobody can promise.
    Guess(i128),
    /// Nobody knows when. It is to ask again in 1 to 3 s.
    Unknown,
}

impl Units {
    fn go_on(&mut self, now: i128) {
        match self {
            Self::Plain { .. } => {}
            Self::Budget(model) => model.go_on(now),
            Self::InFlight(model) => model.go_on(now),
        }
    }

    fn fit(&self, now: i128, cost: i128, kept: i128, burst: i128) -> Fit {
        match self {
            Self::Plain { model, .. } => {
                model.earliest_keeping(now, cost, kept).map_or(Fit::Never, Fit::At)
            }
            Self::Budget(model) => match model.fits(now, cost + kept) {
                None => Fit::Never,
                Some((at, true)) => Fit::At(at),
                Some((at, false)) => Fit::Guess(at),
            },
            Self::InFlight(_) if cost + kept > burst => Fit::Never,
            Self::InFlight(model) if cost + kept > model.remaining() => Fit::Unknown,
            Self::InFlight(_) => Fit::At(now),
        }
    }

    fn take(&mut self, number: usize, now: i128, at: i128, [cost, kept, paused]: [i128; 3]) {
        match self {
            Self::Plain { model, taken } => {
                let before = model.clone();
                let mark = model.take_keeping(now, at, cost, kept);
                let undo = (paused > now).then(|| (format!("{model:?}"), before));
                taken.insert(number, Taken { cost, mark, undo });
            }
            Self::Budget(model) => model.hold(number, now, at, cost),
            Self::InFlight(model) => model.hold(number, now, cost),
        }
    }

    /// Settles a charge. Returns what it gives back.
    fn settle(&mut self, (number, cost): (usize, i128), now: i128, used: i128) -> i128 {
        match self {
            Self::Plain { model, taken } => match taken.remove(&number) {
                Some(Taken { undo: Some((after, before)), .. })
                    if after == format!("{model:?}") =>
                {
                    *model = before;
                    cost
                }
                Some(Taken { cost, mark, .. }) => {
                    let units = model.returnable(now, cost, mark);
                    if units > 0 {
                        model.put_back(mark, units);
                    }
                    units
                }
                None => 0,
            },
            Self::Budget(model) => model.settle((number, cost), now, used).0,
            Self::InFlight(model) => model.release(number).map_or(0, |units| (units - used).max(0)),
        }
    }

    fn renew(&mut self, number: usize, now: i128) -> bool {
        match self {
            Self::Plain { .. } => unreachable!("it holds nothing"),
            Self::Budget(model) => model.renew(number, now),
            Self::InFlight(model) => {
                let units = model.release(number);
                units.is_some_and(|units| {
                    model.hold(number, now, units);
                    true
                })
            }
        }
    }

    /// Returns true if what a charge still gives back is promised. A grant may have given it back,
    /// and the state of an idle key may be forgotten. Of a charge that waits for the end of a
    /// pause, nothing else may have changed since.
    fn promises(&self, of: usize, now: i128) -> bool {
        let Self::Plain { model, taken } = self else { return true };
        let is_last = |(after, _): &(String, _)| *after == format!("{model:?}");
        let charge = taken.get(&of).filter(|_| model.reset_after(now) > 0);
        charge.is_some_and(|charge| charge.undo.as_ref().is_none_or(is_last))
    }

    /// Returns false if nothing can be granted.
    fn grant(&mut self, now: i128, units: i128) -> bool {
        match self {
            Self::Plain { model, taken } => {
                if units > 0 {
                    model.grant(now, units);
                    taken.clear();
                }
            }
            Self::Budget(model) => model.grant(now, units),
            Self::InFlight(_) => return false,
        }
        true
    }

    /// The units that are left, and the time until all are.
    fn report(&self, now: i128) -> [i128; 2] {
        match self {
            Self::Plain { model, .. } => [model.remaining(now), model.reset_after(now)],
            Self::Budget(model) => model.report(now).into(),
            Self::InFlight(model) => {
                [model.remaining().max(0), model.end().map_or(0, |end| end - now)]
            }
        }
    }
}

impl Key {
    fn new(units: Units) -> Self {
        Self { units, blocked: 0, paused: 0 }
    }

    /// Adds what a line says of the state afterwards.
    fn report(&self, now: i128, line: &mut Value) {
        let [mut remaining, mut reset] = self.units.report(now);
        if self.paused > now {
            (remaining, reset) = (0, reset.max(self.paused - now));
        }
        if self.blocked > now {
            (remaining, reset) = (0, self.blocked - now);
        }
        line["remaining"] = number(remaining);
        line["reset_after_us"] = number(reset);
    }

    /// The answer to a charge.
    fn check(
        &mut self,
        line: usize,
        now: i128,
        [cost, kept, max_wait]: [i128; 3],
        case: &Case,
    ) -> Value {
        let denied = |wait| json!({"verdict": "deny", "retry_after_us": wait});
        if self.blocked > now {
            return denied(number(self.blocked - now));
        }
        let pause = (self.paused - now).max(0);
        // Units in flight: one that may wait joins a queue, which asks again.
        let is_queued = matches!(self.units, Units::InFlight(_))
            && cost > 0
            && max_wait > 0
            && pause <= max_wait;
        let (at, may_wait) = match self.units.fit(now, cost, kept, case.burst) {
            Fit::Never => return json!({"verdict": "never"}),
            Fit::Unknown if is_queued => return denied(number(FIRST_PAUSE)),
            Fit::Unknown => {
                let range = [SECOND, 3 * SECOND].map(|time| time.max(pause));
                return denied(range.map(number).to_vec().into());
            }
            Fit::At(at) => (at.max(self.paused), cost > 0),
            Fit::Guess(at) => (at.max(self.paused), false),
        };
        let wait = at - now;
        let most = max_wait.min(case.horizon);
        let least = match &self.units {
            Units::Plain { model, .. } => model.least_wait(cost),
            _ => 0,
        };
        if wait > 0 && !(may_wait && wait <= most) {
            return match least > most {
                true => json!({"verdict": "never"}),
                false if is_queued => denied(number(FIRST_PAUSE)),
                false => denied(number(wait)),
            };
        }
        if cost > 0 {
            self.units.take(line, now, at, [cost, kept, self.paused]);
        }
        json!({"verdict": if wait > 0 { "wait" } else { "allow" }, "wait_us": number(wait)})
    }
}

fn micros(time: i128) -> Duration {
    Duration::from_micros(time.try_into().expect("a time"))
}

fn number(number: i128) -> Value {
    i64::try_from(number).expect("a number").into()
}

/// An admitted charge: its line, its key, its units and the instant at which it goes.
type Charged = (usize, usize, i128, i128);

/// A random history that lands on the edges, and the answer to each line.
struct Player<'a> {
    case: &'a Case,
    dice: fastrand::Rng,
    now: i128,
    keys: Vec<Key>,
    /// Instants at which an answer says that something changes.
    edges: Vec<i128>,
    charged: Vec<Charged>,
    lines: Vec<(Value, Value)>,
}

impl<'a> Player<'a> {
    fn new(case: &'a Case, seed: u64) -> Self {
        let keys = (0..3).map(|_| Key::new((case.model)())).collect();
        let dice = fastrand::Rng::with_seed(seed);
        let (edges, charged, lines) = (Vec::new(), Vec::new(), Vec::new());
        Self { case, dice, now: START, keys, edges, charged, lines }
    }

    fn any(&mut self, of: &[i128]) -> i128 {
        of[self.dice.usize(..of.len())]
    }

    fn play(mut self) -> Vec<(Value, Value)> {
        while self.lines.len() < STEPS {
            self.go_on();
            let (mut asked, mut told) = match self.dice.u8(..24) {
                0..=4 if self.charged.is_empty() => continue,
                0..=4 => match self.settle() {
                    Some(line) => line,
                    None => continue,
                },
                5 => self.grant(),
                6..=8 => self.hinder(),
                9 => self.suspend(),
                _ => self.charge(),
            };
            asked["t"] = number(self.now);
            told["line"] = (self.lines.len() + 1).into();
            for name in ["wait_us", "retry_after_us", "reset_after_us"] {
                self.edges.extend(told[name].as_i64().map(|wait| self.now + i128::from(wait)));
            }
            self.lines.push((asked, told));
        }
        self.lines
    }

    fn go_on(&mut self) {
        let (now, unit) = (self.now, self.case.unit);
        self.edges.retain(|edge| *edge >= now && *edge < now + 400 * DAY);
        let step = match (self.dice.u8(..5), self.edges.len()) {
            (0, edges @ 1..) => self.edges[self.dice.usize(..edges)] - now + self.any(&[-1, 0, 1]),
            (1, _) => self.any(&[1, unit - 1, unit, unit + 1]),
            _ => 0,
        };
        self.now += step.max(0);
        self.keys.iter_mut().for_each(|key| key.units.go_on(self.now));
    }

    /// Settles, refunds or renews an earlier charge. Nothing, if what it gives back is not
    /// promised.
    fn settle(&mut self) -> Option<(Value, Value)> {
        let (now, place) = (self.now, self.dice.usize(..self.charged.len()));
        let (of, index, units, at) = self.charged[place];
        let (key, holds) = (&mut self.keys[index], self.case.holds.is_some());
        let (mut asked, mut told) = (json!({"of": of}), json!({}));
        if holds && self.dice.bool() {
            asked["op"] = "renew".into();
            told["renewed"] = key.units.renew(of, now).into();
        } else {
            self.charged.remove(place);
            if !key.units.promises(of, now) {
                return None;
            }
            let used = if holds && at <= now { self.dice.i64(0..=units as i64) } else { 0 };
            let back = key.units.settle((of, units), now, used.into());
            if used == 0 && self.dice.bool() {
                asked["op"] = "refund".into();
                (told["verdict"], told["refunded"]) = ("done".into(), number(back));
            } else {
                (asked["op"], asked["used"]) = ("settle".into(), used.into());
                told["given_back"] = number(back);
            }
        }
        key.report(now, &mut told);
        Some((asked, told))
    }

    fn grant(&mut self) -> (Value, Value) {
        let (index, cost) = (self.dice.usize(..self.keys.len()), self.any(&[0, 1, 2]));
        let key = &mut self.keys[index];
        let is_granted = key.units.grant(self.now, cost);
        let mut told = json!({"verdict": if is_granted { "done" } else { "error" }});
        match is_granted {
            true => key.report(self.now, &mut told),
            false => (told["remaining"], told["reset_after_us"]) = (Value::Null, Value::Null),
        }
        (json!({"key": index.to_string(), "op": "grant", "cost": number(cost)}), told)
    }

    /// Pauses or blocks a key, or ends both.
    fn hinder(&mut self) -> (Value, Value) {
        const OPS: [&str; 3] = ["pause", "block", "unblock"];
        let Case { unit, burst, .. } = *self.case;
        let (index, op) = (self.dice.usize(..self.keys.len()), self.dice.usize(..3));
        let time = self.any(&[1, unit, 2 * unit, burst * unit]);
        let key = &mut self.keys[index];
        let mut asked = json!({"key": index.to_string(), "op": OPS[op]});
        match op {
            0 => key.paused = key.paused.max(self.now + time),
            1 => key.blocked = key.blocked.max(self.now + time),
            _ => (key.paused, key.blocked) = (0, 0),
        }
        if op < 2 {
            asked["time"] = number(time);
        }
        let mut told = json!({"verdict": "done"});
        key.report(self.now, &mut told);
        (asked, told)
    }

    /// A charge of a suspended plan.
    fn suspend(&mut self) -> (Value, Value) {
        let (index, cost) = (self.dice.usize(..self.keys.len()), self.any(&[1, 2]));
        let key = &self.keys[index];
        let mut told = json!({"verdict": "never", "remaining": 0, "reset_after_us": ANY});
        if key.blocked > self.now {
            told["verdict"] = "deny".into();
            told["retry_after_us"] = number(key.blocked - self.now);
        }
        let key = index.to_string();
        (json!({"key": key, "limit": 0, "cost": number(cost), "max_wait": number(HORIZON)}), told)
    }

    /// A charge, or a peek.
    fn charge(&mut self) -> (Value, Value) {
        let Case { unit, burst, horizon, .. } = *self.case;
        let index = self.dice.usize(..self.keys.len());
        let mut cost = self.any(&[0, 1, 1, 1, 2, 2, burst, burst + 1]);
        let kept = self.any(&[0, 0, 0, 0, 1, 2, burst - 1, burst]);
        let max_wait = self.any(&[0, 0, unit, 3 * unit, HORIZON, horizon]);
        let mut asked = json!({"key": index.to_string(), "cost": number(cost)});
        (asked["keep_free"], asked["max_wait"]) = (number(kept), number(max_wait));
        if self.dice.u8(..8) == 0 {
            (asked["op"], cost) = ("peek".into(), 0);
        }
        let (line, key) = (self.lines.len() + 1, &mut self.keys[index]);
        let mut told = key.check(line, self.now, [cost, kept, max_wait], self.case);
        if let Some(wait) = told["wait_us"].as_i64().filter(|_| cost > 0) {
            self.charged.push((line, index, cost, self.now + i128::from(wait)));
        }
        if told["wait_us"].is_null() {
            told.as_object_mut().expect("fields").remove("wait_us");
        }
        key.report(self.now, &mut told);
        (asked, told)
    }
}

/// Stands for any number.
const ANY: &str = "any";

/// Returns true if a line of the replay is the answer. Beside it, an error has its reason.
fn is_told(answer: &Value, line: &Value) -> bool {
    let (answer, line) = (answer.as_object().expect("fields"), line.as_object().expect("fields"));
    let is_same = |(name, value): (&String, &Value)| match (value, line.get(name)) {
        (Value::String(any), Some(Value::Number(_))) if any == ANY => true,
        // Units in flight: 1 to 3 s, or the end of a pause.
        (Value::Array(range), Some(told)) => {
            let [least, most] = [&range[0], &range[1]].map(Value::as_i64);
            told.as_i64() >= least && told.as_i64() <= most
        }
        (value, told) => Some(value) == told,
    };
    let known = |name: &String| answer.contains_key(name) || name == "error";
    answer.iter().all(is_same) && line.keys().all(known)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (limit, period, burst) in [(5, SECOND, 8), (7, 1_000, 3), (3, 10, 4)] {
        let quota = Quota::new(limit as u64, micros(period));
        let options = |algorithm: &str, more: &str| {
            format!("{algorithm} --limit {limit} --period {period}us --horizon 10s {more}")
        };
        let plain = |options, burst, model: fn(Quota) -> Box<dyn Model>, quota: Quota| Case {
            options,
            burst,
            unit: (period / limit).max(1),
            horizon: HORIZON,
            holds: None,
            model: Box::new(move || Units::Plain { model: model(quota), taken: BTreeMap::new() }),
        };
        let with_burst = format!("--burst {burst}");
        let bucket = options("token_bucket", &with_burst);
        cases.push(plain(bucket, burst, Bucket::boxed, quota.burst(burst as u64)));
        let smooth = [
            ("smooth_bursty", format!("--max-burst {period}us"), Bursty::boxed as fn(_) -> _),
            (
                "smooth_bursty",
                format!("--max-burst {period}us --own-debt"),
                Bursty::wait_for_own_cost,
            ),
        ];
        let windows = [
            ("fixed_window", "", Window::boxed as fn(_) -> _),
            ("fixed_window", "--anchored", Anchored::boxed),
            ("sliding_log", "", Log::boxed),
            ("sliding_window", "", Cells::boxed),
            ("sliding_counter", "", Counter::boxed),
        ];
        for (name, more, model) in windows {
            cases.push(plain(options(name, more), limit, model, quota));
        }
        for (name, more, model) in smooth {
            cases.push(plain(options(name, &more), limit, model, quota));
        }
        if period == SECOND {
            let warm_up = format!("--warm-up {}us", period / 10);
            for (more, model) in [
                (warm_up.clone(), Warm::boxed as fn(_) -> _),
                (format!("{warm_up} --own-debt"), Warm::wait_for_own_cost),
            ] {
                cases.push(plain(options("smooth_warming_up", &more), limit, model, quota));
            }
        }
        let hold = 3 * period;
        let terms = Terms { limit, period, burst, hold, horizon: HORIZON.min(hold), debt: YEAR };
        cases.push(Case {
            options: options("budget", &format!("{with_burst} --max-hold {hold}us")),
            burst,
            unit: (period / limit).max(1),
            horizon: terms.horizon,
            holds: Some(hold),
            model: Box::new(move || Units::Budget(held::Model::new(terms))),
        });
        cases.push(Case {
            options: format!("concurrency --limit {burst} --max-hold {hold}us --horizon 10s"),
            burst,
            unit: hold,
            horizon: HORIZON.min(hold - hold / 3),
            holds: Some(hold),
            model: Box::new(move || Units::InFlight(InFlight::new(burst, hold))),
        });
    }
    let shortest = 12 * HOUR;
    for (span, zone, words) in [
        (Span::Day, Zone::Berlin, "day"),
        (Span::Day, Zone::NewYork, "day"),
        (Span::Week(0), Zone::Utc, "week"),
        (Span::Week(6), Zone::Kolkata, "week --week-begins sunday"),
        (Span::Month(1), Zone::Berlin, "month"),
        (Span::Month(31), Zone::NewYork, "month --month-begins 31"),
        (Span::Year, Zone::Kolkata, "year"),
    ] {
        let calendar = Calendar { span, zone };
        let model = move || Units::Plain { model: Window::of(calendar, 4), taken: BTreeMap::new() };
        cases.push(Case {
            options: format!(
                "fixed_window --limit 4 --horizon 12h --calendar {words} --time-zone {}",
                zone.name()
            ),
            burst: 4,
            unit: HOUR,
            horizon: shortest,
            holds: None,
            model: Box::new(model),
        });
    }
    cases
}

#[test]
fn every_answer_is_that_of_a_model() {
    let _turn = turn();
    let histories = crew::number("ORACLE_REPLAYS", 2);
    let (program, server) = (support::example::built("replay"), Server::start());
    for case in cases() {
        let (mut lines, mut waits, mut refusals) = (0, 0, 0);
        for seed in 0..histories {
            let played = Player::new(&case, seed).play();
            let traffic: String = played.iter().map(|(asked, _)| format!("{asked}\n")).collect();
            for place in [String::new(), format!(" --redis {}", server.url())] {
                let mut command = Command::new(&program);
                let options = format!("--algorithm {}{place}", case.options);
                command.args(options.split_whitespace());
                let output = support::example::fed(&mut command, &traffic);
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{options}: {said}");
                let told = String::from_utf8_lossy(&output.stdout);
                assert_eq!(told.lines().count(), played.len(), "{options}");
                for ((asked, answer), line) in played.iter().zip(told.lines()) {
                    let line: Value = serde_json::from_str(line).expect("JSON");
                    let place = format!("{options}, seed {seed}");
                    assert!(is_told(answer, &line), "{place}: {asked}: {line}, not {answer}");
                }
            }
            let are =
                |verdict: &str| played.iter().filter(|line| line.1["verdict"] == verdict).count();
            lines += played.len();
            waits += are("wait");
            refusals += are("deny") + are("never");
        }
        let policy = case.options.replace(' ', "_");
        println!("oracle replay={policy} lines={lines} waits={waits} refusals={refusals} wrong=0");
    }
}
