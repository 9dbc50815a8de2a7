//! A call of a script as `scripts/README.md` has it, without the crate's limiter in between.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Budget, Check, Concurrency, Element, FixedWindow, InLua, IntoAlgorithm, Mark, QuotaAnswer,
    Quotas, ScriptPart, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp,
    TokenBucket, Verdict,
};

const FIVE: Quota = Quota::per_second(5);
pub const TOKEN_BUCKET: TokenBucket = TokenBucket::new(FIVE);
pub const BUDGET: Budget = Budget::new(FIVE);
pub const CONCURRENCY: Concurrency = Concurrency::of(FIVE);
pub const FIXED_WINDOW: FixedWindow = FixedWindow::new(FIVE);
pub const SLIDING_LOG: SlidingLog = SlidingLog::new(FIVE);
pub const SLIDING_WINDOW: SlidingWindow = SlidingWindow::new(FIVE);
pub const SLIDING_COUNTER: SlidingCounter = SlidingCounter::new(FIVE);
pub const SMOOTH_BURSTY: SmoothBursty = SmoothBursty::new(FIVE);
pub const SMOOTH_WARMING_UP: SmoothWarmingUp = SmoothWarmingUp::new(FIVE, Duration::from_secs(1));

pub const NOW: i64 = 1_767_225_600_000_000;

/// One of the scripts of a limiter, put together once.
fn text<A: InLua>(algorithm: &A, complete: bool) -> String {
    static TEXTS: Mutex<BTreeMap<String, [String; 2]>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock().expect("the texts");
    let known = texts.entry(format!("{algorithm:?}"));
    known.or_insert_with(|| tower_sluice::redis::script_texts(algorithm))[usize::from(complete)]
        .clone()
}

/// The question of one charge: the words that a script takes, and the quota that it brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    words: Vec<String>,
    quotas: Option<Quotas>,
}

impl Form {
    pub fn new(words: &[&dyn std::fmt::Display]) -> Self {
        Self { words: words.iter().map(|word| word.to_string()).collect(), quotas: None }
    }

    pub fn refund(cost: i64, mark: &[String]) -> Self {
        let words = [&["refund".to_owned(), cost.to_string()], mark].concat();
        Self { words, quotas: None }
    }

    pub fn settle(used: i64, cost: i64, mark: &[String]) -> Self {
        let words = [&["settle".to_owned(), used.to_string(), cost.to_string()], mark];
        Self { words: words.concat(), quotas: None }
    }

    /// The operation; nothing for a check.
    fn operation(&self) -> &str {
        Some(self.words[0].as_str()).filter(|word| word.parse::<i64>().is_err()).unwrap_or("")
    }

    fn number(&self, place: usize) -> i64 {
        self.words[place].parse().expect("a number")
    }

    /// Returns the check that is replayed: of all but checks and estimates, a peek.
    fn check(&self) -> Check<'static> {
        let (cost, max_wait) = match self.operation() {
            "" => (self.number(0), self.number(1)),
            "estimate" => (self.number(1), self.number(2)),
            _ => (0, 0),
        };
        Check::new(cost, max_wait)
    }
}

/// One call, as the contract has it. Charge by charge, each for the next of some keys.
pub struct Call<A: InLua> {
    algorithm: A,
    now: Option<i64>,
    /// The present of the process that calls. `None`: that of the server.
    present: Option<i64>,
    /// The names of each charge's keys: one for each quota.
    keys: Vec<Vec<String>>,
    forms: Vec<Form>,
}

impl<A: InLua> Call<A> {
    pub fn new(
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        now: Option<i64>,
        keys: &[&str],
    ) -> Self {
        let algorithm = algorithm.into_algorithm();
        let keys = keys.iter().map(|key| vec![(*key).to_owned()]).collect();
        Self { algorithm, now, present: None, keys, forms: Vec::new() }
    }

    /// Of several quotas each charge has several keys.
    pub fn several(
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        now: Option<i64>,
        keys: Vec<Vec<String>>,
    ) -> Self {
        let algorithm = algorithm.into_algorithm();
        Self { algorithm, now, present: None, keys, forms: Vec::new() }
    }

    /// Sends the arguments of another present than the server's.
    pub fn present(self, present: i64) -> Self {
        Self { present: Some(present), ..self }
    }

    pub fn ask(mut self, form: Form) -> Self {
        self.forms.push(form);
        self
    }

    pub fn check(self, cost: i64, max_wait: i64) -> Self {
        self.ask(Form::new(&[&cost, &max_wait]))
    }

    pub fn refund(self, cost: i64, mark: [i64; 4]) -> Self {
        self.ask(Form::refund(cost, &mark.map(|number| number.to_string())))
    }

    pub fn estimate(self, cost: i64, max_wait: i64) -> Self {
        self.ask(Form::new(&[&"estimate", &cost, &max_wait]))
    }

    pub fn penalize(self, cost: i64) -> Self {
        self.ask(Form::new(&[&"penalize", &cost]))
    }

    pub fn reset(self) -> Self {
        self.ask(Form::new(&[&"reset"]))
    }

    pub fn check_under(self, quotas: impl Into<Quotas>, cost: i64, max_wait: i64) -> Self {
        let mut form = Form::new(&[&cost, &max_wait]);
        form.quotas = Some(quotas.into());
        self.ask(form)
    }

    /// Charges that ask alike.
    pub fn checks(self, count: usize, cost: i64, max_wait: i64) -> Self {
        (0..count).fold(self, |call, _| call.check(cost, max_wait))
    }

    /// The charges of each key, in order. Of several quotas, those that follow each other: others
    /// may share one of their keys.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for place in 0..self.forms.len() {
            let of_key = |group: &&mut Vec<usize>| self.keys[group[0]] == self.keys[place];
            let first = if self.keys[place].len() > 1 { groups.len().saturating_sub(1) } else { 0 };
            match groups[first..].iter_mut().find(of_key) {
                Some(group) => group.push(place),
                None => groups.push(vec![place]),
            }
        }
        groups
    }

    fn rule(&self, form: &Form) -> A::Rule {
        let quotas = form.quotas.clone().unwrap_or_else(|| self.algorithm.quota());
        self.algorithm.rule(quotas).expect("a rule")
    }

    /// The command. A script for checks alone runs if that is enough, unless it is `complete`.
    pub fn command(&self, complete: bool) -> Cmd {
        let groups = self.groups();
        let is_check = |form: &Form| form.operation().is_empty();
        let complete = complete || !self.forms.iter().all(is_check);
        let text = text(&self.algorithm, complete);
        let mut call = cmd("EVAL");
        // The reply comes unpacked, so that it can be read without the crate.
        call.arg(text.replace("cmsgpack.pack(reply)", "reply"));
        let keys: Vec<_> = groups.iter().flat_map(|group| &self.keys[group[0]]).collect();
        call.arg(keys.len()).arg(keys);
        call.arg(self.now.map_or(String::new(), |now| now.to_string()));
        let own = self.algorithm.rule(self.algorithm.quota()).expect("a rule");
        let present = self.present.or(self.now).unwrap_or_default();
        call.arg(A::arguments(&own, present));
        for group in groups {
            let segments: Vec<_> =
                group.chunk_by(|one, next| self.forms[*one] == self.forms[*next]).collect();
            call.arg(1).arg(segments.len());
            for segment in segments {
                let form = &self.forms[segment[0]];
                call.arg(segment.len());
                if form.quotas.is_some() {
                    call.arg("quota").arg(A::arguments(&self.rule(form), present));
                }
                call.arg(&form.words);
            }
        }
        call
    }

    /// The instant, and the entry of each charge.
    pub async fn on(self, connection: &mut MultiplexedConnection) -> (i64, Vec<Entry>) {
        let reply: Value = self.command(false).query_async(connection).await.expect("a reply");
        self.read(&reply)
    }

    /// The same by the complete script, whatever is asked.
    pub async fn on_complete(self, connection: &mut MultiplexedConnection) -> (i64, Vec<Entry>) {
        let reply: Value = self.command(true).query_async(connection).await.expect("a reply");
        self.read(&reply)
    }

    pub fn read(&self, reply: &Value) -> (i64, Vec<Entry>) {
        let Value::Array(elements) = reply else { panic!("{reply:?}") };
        let Value::Int(now) = elements[0] else { panic!("{elements:?}") };
        let parts = self.algorithm.parts();
        let width = 1 + parts.iter().map(ScriptPart::state_elements).sum::<usize>();
        let may_be_short = matches!(&parts[..], [only] if only.has_short_answers());
        let mut entries: Vec<_> = self.forms.iter().map(|_| Entry::Failed(String::new())).collect();
        let mut rest = &elements[1..];
        for place in self.groups().concat() {
            let is_short = may_be_short && rest[0] != Value::Nil;
            rest = &rest[usize::from(may_be_short && !is_short)..];
            let (told, after) = rest.split_at(if is_short { 1 } else { width });
            entries[place] = self.entry(now, &self.forms[place], told);
            rest = after;
        }
        assert_eq!(rest, [], "{elements:?}");
        (now, entries)
    }

    /// Reads what a script says of a charge. The twin computes the rest, and both agree.
    fn entry(&self, now: i64, form: &Form, told: &[Value]) -> Entry {
        // Of a key that was reset, the number stands in a text, and a birth follows.
        let of_reset = match &told[0] {
            Value::BulkString(text) => text.strip_prefix(b"RESET ").map(|text| {
                let text = String::from_utf8_lossy(text);
                Value::Int(text.split(' ').next().unwrap().parse().expect("a number"))
            }),
            _ => None,
        };
        let first = of_reset.as_ref().unwrap_or(&told[0]);
        let wait = match first {
            // Redis 6.2 puts the line of the script before the error: `@user_script: 30: -OOM ...`.
            Value::BulkString(text) => {
                let text = String::from_utf8_lossy(text);
                let code = text.split(' ').find(|word| !word.ends_with(':')).unwrap();
                return Entry::Failed(code.trim_start_matches('-').to_owned());
            }
            Value::Int(taken @ ..0) => -1 - taken,
            Value::Int(wait) => *wait,
            other => panic!("{other:?}"),
        };
        let is_taken = matches!(first, Value::Int(..0));
        if let ("refund" | "settle", Value::Int(units)) = (form.operation(), first) {
            let numbers = [5, *units, 0, 0];
            return Entry::Told { numbers, members: Box::default(), mark: Mark::default() };
        }
        let element = |value| match value {
            &Value::Int(number) => Element::Number(number),
            Value::BulkString(text) => Element::Text(text),
            other => panic!("{other:?}"),
        };
        let state: Vec<_> = told[1..].iter().map(element).collect();
        let (rule, check) = (self.rule(form), form.check());
        let is_short = state.is_empty();
        let mut state = match is_short {
            true => A::short_state(&rule, now, wait).expect("a state"),
            false => A::state(&rule, now, check, &mut &*state).expect("a state"),
        };
        let answer = match form.operation() {
            "estimate" => A::estimate(&rule, state.as_ref(), now, check),
            _ => A::step(&rule, &mut state, now, check),
        };
        let (outcome, expected) = match answer.verdict {
            Verdict::Allow => (0, 0),
            Verdict::Wait(wait) => (1, wait),
            Verdict::Deny(wait) => (2, wait),
            _ => (3, 0),
        };
        let takes = outcome < 2 && check.cost > 0 && form.operation().is_empty();
        match form.operation() {
            _ if is_short => assert_eq!(is_taken, takes, "{form:?}"),
            // What could not be taken.
            "penalize" => assert!(!is_taken, "{form:?}"),
            _ => assert_eq!((is_taken, wait), (takes, expected), "{form:?}"),
        }
        let numbers = [outcome, expected, answer.report.remaining, answer.report.reset_after];
        let mark = answer.mark.unwrap_or_default();
        Entry::Told { numbers, members: answer.members, mark }
    }
}

impl Call<TokenBucket> {
    pub fn bucket(now: Option<i64>, keys: &[&str]) -> Self {
        Self::new(TOKEN_BUCKET, now, keys)
    }
}

/// The decision about a charge.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Told {
        /// 0 allow, 1 wait, 2 deny, 3 never, 5 refund; wait, or units given back; remaining; reset
        /// after.
        numbers: [i64; 4],
        members: Box<[QuotaAnswer]>,
        mark: Mark,
    },
    Failed(String),
}

impl Entry {
    /// The entry of a charge that failed with this code.
    pub fn failed(code: &str) -> Self {
        Self::Failed(code.to_owned())
    }

    pub fn numbers(&self) -> [i64; 4] {
        match self {
            Entry::Told { numbers, .. } => *numbers,
            Entry::Failed(code) => panic!("{code}"),
        }
    }

    pub fn outcome(&self) -> i64 {
        self.numbers()[0]
    }

    /// The mark of what was taken, as a refund takes it.
    pub fn mark(&self) -> Vec<String> {
        match self {
            Entry::Told { mark, .. } => mark.words(),
            Entry::Failed(code) => panic!("{code}"),
        }
    }
}

/// Puts a thousand members that are old at [`NOW`] into a log of a second, and one that is not.
pub async fn put_old_log(connection: &mut MultiplexedConnection) {
    let mut old = cmd("ZADD");
    old.arg("k");
    for member in 1..=1_000_i64 {
        old.arg(NOW - 1_001_000 + member).arg(format!("{member:020}:1"));
    }
    old.arg(NOW - 1).arg(format!("{:020}:1", 1_001));
    old.exec_async(connection).await.expect("added");
}

pub async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &str,
) -> T {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query_async(connection).await.expect("a reply")
}
