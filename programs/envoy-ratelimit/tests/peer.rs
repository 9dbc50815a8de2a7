//! envoyproxy/ratelimit beside this service: the same random calls to both, and each difference
//! computed. `peer.sh` builds the peer and runs this.
//!
//! A model says what each of the two answers, call by call. It has a switch for each rule by which
//! they differ on purpose, so a difference is the work of those switches that make it.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::time::{Instant, SystemTime};

use common::Service;
use common::ask::{about, ask, client};
use common::peer::Peer;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use support::Server;

/// Units by their numbers: seconds, and the word of a file.
const UNITS: [(u64, &str); 8] = [
    (0, "unknown"),
    (1, "second"),
    (60, "minute"),
    (3_600, "hour"),
    (86_400, "day"),
    (30 * 86_400, "month"),
    (365 * 86_400, "year"),
    (7 * 86_400, "week"),
];

/// A rule of a configuration. Rules of one level stand in one list.
#[derive(Clone, Default)]
struct Rule {
    key: &'static str,
    value: &'static str,
    /// Requests a unit; `None` with `unlimited` or without a limit.
    limit: Option<(u32, usize)>,
    unlimited: bool,
    name: &'static str,
    replaces: &'static [&'static str],
    shadow: bool,
    quota: bool,
    share: bool,
    rules: Vec<Rule>,
}

impl Rule {
    fn new(key: &'static str, value: &'static str) -> Self {
        Self { key, value, ..Self::default() }
    }

    fn limit(self, requests: u32, unit: usize) -> Self {
        Self { limit: Some((requests, unit)), ..self }
    }

    fn yaml(rules: &[Self], indent: usize) -> String {
        let (space, mut text) = (" ".repeat(indent), String::new());
        for rule in rules {
            text += &format!("{space}- key: '{}'\n", rule.key);
            let mut line = |more: String| text += &format!("{space}  {more}\n");
            if !rule.value.is_empty() {
                line(format!("value: '{}'", rule.value));
            }
            for (flag, name) in [
                (rule.shadow, "shadow_mode"),
                (rule.quota, "quota_mode"),
                (rule.share, "share_threshold"),
            ] {
                if flag {
                    line(format!("{name}: true"));
                }
            }
            let replaces: Vec<String> =
                rule.replaces.iter().map(|name| format!("{{name: {name}}}")).collect();
            let more = format!("name: '{}', replaces: [{}]", rule.name, replaces.join(", "));
            match rule.limit {
                Some((requests, unit)) => line(format!(
                    "rate_limit: {{unit: {}, requests_per_unit: {requests}, {more}}}",
                    UNITS[unit].1
                )),
                None if rule.unlimited => line(format!("rate_limit: {{unlimited: true, {more}}}")),
                None => {}
            }
            if !rule.rules.is_empty() {
                line("descriptors:".to_owned());
                text += &Self::yaml(&rule.rules, indent + 4);
            }
        }
        text
    }
}

/// Every feature of a file, in windows that do not end meanwhile.
fn rules() -> Vec<Rule> {
    let (day, month, year, week) = (4, 5, 6, 7);
    vec![
        Rule::new("a", "").limit(20, day),
        Rule::new("a", "1").limit(7, month),
        Rule { share: true, ..Rule::new("p", "x/*").limit(30, year) },
        Rule::new("p", "x/y").limit(9, day),
        Rule::new("p", "*/z/*").limit(11, week),
        Rule::new("p", "").limit(15, year),
        Rule { shadow: true, ..Rule::new("s", "").limit(5, year) },
        Rule { quota: true, ..Rule::new("q", "").limit(6, year) },
        Rule { quota: true, ..Rule::new("r", "").limit(4, week) },
        Rule { unlimited: true, replaces: &["n"], ..Rule::new("u", "") },
        Rule { name: "n", ..Rule::new("n", "").limit(12, year) },
        Rule { name: "m", replaces: &["n"], ..Rule::new("m", "").limit(25, year) },
        Rule { replaces: &["m"], ..Rule::new("l", "").limit(25, year) },
        Rule::new("zero", "").limit(0, year),
        Rule {
            rules: vec![
                Rule::new("to", "").limit(8, year),
                Rule { share: true, ..Rule::new("to", "b*").limit(18, year) },
                Rule { rules: vec![Rule::new("deep", "1").limit(3, year)], ..Rule::new("on", "") },
            ],
            ..Rule::new("t", "").limit(10, year)
        },
        Rule { rules: vec![Rule::new("to", "b1").limit(5, year)], ..Rule::new("t", "1") },
        Rule::new("a_2", "").limit(50, year),
        Rule::new("free", ""),
    ]
}

/// The rules by which this service differs from the peer.
#[derive(Clone, Copy, Default)]
struct Switches {
    /// A refused request takes nothing, and what has no room and must not refuse takes nothing.
    refusals: bool,
    /// A counter is a list of keys, values and a unit, not one text and the begin of a window.
    identity: bool,
    /// A rule is met by its key and its value, not by the text of both.
    pairs: bool,
}

/// What a service holds and answers.
struct Model {
    switches: Switches,
    rules: Vec<Rule>,
    used: HashMap<String, u64>,
}

struct Met {
    requests: u32,
    unit: usize,
    name: &'static str,
    shadow: bool,
    quota: bool,
    counter: String,
}

/// A status in short: its code, what remains, its limit, its unit and its name.
type Status = (i32, u32, Option<(u32, i32, String)>);

impl Model {
    fn new(switches: Switches) -> Self {
        Self { switches, rules: rules(), used: HashMap::new() }
    }

    /// The rule of entries, and the values of its counter.
    fn find(&self, entries: &[(&str, &str)]) -> Option<(&Rule, Vec<String>)> {
        let (mut level, mut values, mut found) = (&self.rules, Vec::new(), None);
        for (index, (key, value)) in entries.iter().enumerate() {
            let both = format!("{key}_{value}");
            let text = |rule: &Rule| match rule.value {
                "" => rule.key.to_owned(),
                value => format!("{}_{value}", rule.key),
            };
            let is_exact = |rule: &&Rule| match self.switches.pairs {
                true => rule.key == *key && !rule.value.is_empty() && rule.value == *value,
                false => text(rule) == both,
            };
            let is_wild = |rule: &&Rule| {
                rule.value.contains('*') && rule.key == *key && wild(rule.value, value)
            };
            let is_key = |rule: &&Rule| match self.switches.pairs {
                true => rule.key == *key && rule.value.is_empty(),
                false => text(rule) == *key,
            };
            let exact = level.iter().find(is_exact);
            let by_pattern = || level.iter().find(is_wild);
            let rule = exact.or_else(by_pattern).or_else(|| level.iter().find(is_key))?;
            let is_shared = exact.is_none() && rule.value.contains('*') && rule.share;
            values.push(if is_shared { rule.value } else { value }.to_owned());
            if index == entries.len() - 1 {
                found = Some(rule);
            } else if rule.rules.is_empty() {
                return None;
            }
            level = &rule.rules;
        }
        let found = found.filter(|rule| rule.limit.is_some() || rule.unlimited);
        found.map(|rule| (rule, values))
    }

    fn answer(&mut self, request: &RateLimitRequest, now: u64) -> (i32, Vec<Status>) {
        let mut replaced: Vec<&str> = Vec::new();
        let mut all: Vec<Result<Met, u32>> = Vec::new();
        for descriptor in &request.descriptors {
            let entries: Vec<(&str, &str)> =
                descriptor.entries.iter().map(|one| (&*one.key, &*one.value)).collect();
            let counter = |values: &[String], unit: usize| {
                let period = UNITS[unit].0;
                let pairs = entries.iter().zip(values);
                match self.switches.identity {
                    true => {
                        let pairs: Vec<_> = pairs.map(|((key, _), value)| (key, value)).collect();
                        format!("{pairs:?} {unit}")
                    }
                    false => {
                        let text: String =
                            pairs.map(|((key, _), value)| format!("{key}_{value}_")).collect();
                        format!("{text}{}", now / period * period)
                    }
                }
            };
            if let Some(own) = &descriptor.limit {
                let unit = usize::try_from(own.unit).unwrap();
                let values: Vec<String> =
                    entries.iter().map(|(_, one)| (*one).to_owned()).collect();
                all.push(Ok(Met {
                    requests: own.requests_per_unit,
                    unit,
                    name: "",
                    shadow: false,
                    quota: false,
                    counter: counter(&values, unit),
                }));
                continue;
            }
            let Some((rule, values)) = self.find(&entries) else {
                all.push(Err(0));
                continue;
            };
            replaced.extend(rule.replaces);
            all.push(match rule.limit {
                None => Err(u32::MAX),
                Some((requests, unit)) => Ok(Met {
                    requests,
                    unit,
                    name: rule.name,
                    shadow: rule.shadow,
                    quota: rule.quota,
                    counter: counter(&values, unit),
                }),
            });
        }
        for one in &mut all {
            if one.as_ref().is_ok_and(|met| !met.name.is_empty() && replaced.contains(&met.name)) {
                *one = Err(0);
            }
        }
        let is_report = request.descriptors.iter().any(|one| one.hits_addend.is_some());
        let hits: Vec<u64> = request
            .descriptors
            .iter()
            .map(|one| {
                one.hits_addend.as_ref().map_or(request.hits_addend.max(1).into(), |own| own.value)
            })
            .collect();
        let takes_all = is_report || !self.switches.refusals;
        let (mut left, mut used) = (Vec::new(), self.used.clone());
        for (one, hits) in all.iter().zip(&hits) {
            let Ok(met) = one else {
                left.push(None);
                continue;
            };
            let count = used.entry(met.counter.clone()).or_default();
            let after = *count + hits;
            let room = u64::from(met.requests).checked_sub(after);
            if takes_all || room.is_some() || !(met.shadow || met.quota) {
                *count = after;
            }
            left.push(room);
        }
        let over = |is_quota: bool| {
            let of_kind =
                all.iter().zip(&left).filter_map(|(one, left)| Some((one.as_ref().ok()?, left)));
            let of_kind = of_kind.filter(move |(met, _)| met.quota == is_quota);
            of_kind.map(|(met, left)| left.is_none() && !met.shadow)
        };
        let mut quotas = over(true).peekable();
        let is_refused = over(false).any(|is_over| is_over)
            || quotas.peek().is_some() && quotas.all(|is_over| is_over);
        if !takes_all && is_refused {
            // Nothing was taken, and that is what is left.
            for (one, left) in all.iter().zip(&mut left) {
                if let (Ok(met), Some(left)) = (one, left) {
                    let before = self.used.get(&met.counter).copied().unwrap_or(0);
                    *left = u64::from(met.requests).saturating_sub(before);
                }
            }
        } else {
            self.used = used;
        }
        let status = |(one, left): (&Result<Met, u32>, &Option<u64>)| match one {
            Err(left) => (1, *left, None),
            Ok(met) => {
                let limit = Some((met.requests, met.unit as i32, met.name.to_owned()));
                match left {
                    Some(left) => (1, u32::try_from(*left).unwrap(), limit),
                    None => (if met.shadow { 1 } else { 2 }, 0, limit),
                }
            }
        };
        (1 + i32::from(is_refused), all.iter().zip(&left).map(status).collect())
    }
}

fn wild(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((first, rest)) => text
            .strip_prefix(first)
            .is_some_and(|text| (0..=text.len()).any(|place| wild(rest, &text[place..]))),
    }
}

fn shown(response: &RateLimitResponse) -> (i32, Vec<Status>) {
    let status = |one: &DescriptorStatus| {
        let limit = one.current_limit.as_ref();
        let limit = limit.map(|one| (one.requests_per_unit, one.unit, one.name.clone()));
        (one.code, one.limit_remaining, limit)
    };
    (response.overall_code, response.statuses.iter().map(status).collect())
}

/// A random request of up to five descriptors.
fn request(random: &mut Random) -> RateLimitRequest {
    const FIRST: [&str; 16] =
        ["a", "p", "s", "q", "r", "u", "n", "m", "l", "zero", "t", "a_2", "free", "none", "p", "a"];
    let value = |random: &mut Random| {
        let values = ["", "1", "2", "x/y", "x/1", "x/2", "w/z/1", "b1", "b2", "B1", "1_1"];
        values[random.below(values.len())].to_owned()
    };
    let descriptors: Vec<String> = (0..1 + random.below(5))
        .map(|_| {
            let key = FIRST[random.below(FIRST.len())];
            let mut text = format!("{key}={}", value(random));
            if key == "t" && random.below(4) > 0 {
                text += &format!(",{}={}", ["to", "on"][random.below(2)], value(random));
                if random.below(3) == 0 {
                    text += &format!(",deep={}", random.below(3));
                }
            }
            if random.below(20) == 0 {
                text += &format!("+{}", [0_u64, 1, 2, 40, 1 << 33][random.below(5)]);
            }
            if random.below(10) == 0 {
                text +=
                    &format!("@{}/{}", [0, 3, 10, u32::MAX][random.below(4)], 4 + random.below(4));
            }
            text
        })
        .collect();
    let descriptors: Vec<&str> = descriptors.iter().map(String::as_str).collect();
    let domain = if random.below(50) == 0 { "other" } else { "x" };
    about(domain, &descriptors, [0, 0, 0, 1, 2, 5][random.below(6)])
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the peer: peer.sh"]
async fn every_difference_is_computed() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect(name))
    };
    let (calls, seed) = (number("CALLS", 5_000), number("SEED", 1));
    let yaml = format!("domain: x\ndescriptors:\n{}", Rule::yaml(&rules(), 2));
    let (mine, theirs) = (Server::start(), Server::with(&[]));
    let service = Service::start(&yaml, &[("REDIS_URL", &mine.url()), ("REDIS_TIMEOUT", "30")]);
    let peer = Peer::start(&yaml, &theirs.url());
    let (client, of_peer) = (client(service.grpc), client(peer.grpc));
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let all = Switches { refusals: true, identity: true, pairs: true };
    let named = [
        ("refusals take nothing", Switches { refusals: true, ..Switches::default() }),
        ("a counter's identity", Switches { identity: true, ..Switches::default() }),
        ("exact key and value", Switches { pairs: true, ..Switches::default() }),
    ];
    let (mut own, mut other) = (Model::new(all), Model::new(Switches::default()));
    let mut single = named.map(|(name, switches)| (name, Model::new(switches)));
    let mut causes: BTreeMap<Vec<&str>, u32> = BTreeMap::new();
    let (mut same, mut unexplained) = (0, 0);
    // Counters fill up, so that every few hundred calls the keys are others.
    for call in 0..calls {
        let mut request = request(&mut random);
        let round = call / 250;
        for entry in request.descriptors.iter_mut().flat_map(|one| &mut one.entries) {
            let is_value = ["a", "s", "q", "r", "n", "m", "l", "zero"].contains(&&*entry.key);
            if is_value && entry.value == "b2" {
                entry.value = format!("b2-{round}");
            }
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let begun = Instant::now();
        let mine = shown(&ask(&client, request.clone()).await.unwrap());
        let theirs = shown(&ask(&of_peer, request.clone()).await.unwrap());
        assert!(begun.elapsed().as_secs() < 30);
        if request.domain != "x" {
            let free = (1, vec![(1, 0, None); request.descriptors.len()]);
            assert_eq!((&mine, &theirs), (&free, &free));
            same += 1;
            continue;
        }
        let expected = (own.answer(&request, now), other.answer(&request, now));
        let variants = single.each_mut().map(|(name, model)| (*name, model.answer(&request, now)));
        if (&mine, &theirs) != (&expected.0, &expected.1) {
            unexplained += 1;
            if unexplained < 4 {
                println!(
                    "{request:?}\nmine {mine:?}\nexpected {:?}\ntheirs {theirs:?}\nexpected {:?}",
                    expected.0, expected.1
                );
            }
        } else if mine == theirs {
            same += 1;
        } else {
            let of = variants.iter().filter(|(_, answer)| *answer != theirs);
            let mut names: Vec<&str> = of.map(|(name, _)| *name).collect();
            if names.is_empty() {
                names.push("several together");
            }
            *causes.entry(names).or_default() += 1;
        }
    }
    println!("calls={calls} seed={seed} same={same} unexplained={unexplained}");
    for (names, count) in &causes {
        println!("differ={count} by={}", names.join(" + "));
    }
    assert_eq!(unexplained, 0);
}
