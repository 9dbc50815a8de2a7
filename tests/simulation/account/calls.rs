//! The calls of limiters, read as the contract of the scripts has it: which operation each of them
//! asks on which keys, by which quotas, and its answer.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::rc::Rc;

use tower_sluice::Quota;
use tower_sluice::algorithm::{Algorithm, AnyAlgorithm, Check, InLua, Verdict};
use tower_sluice::redis::script_texts;

use super::super::book::ScriptCall;
use super::super::clock::present;
use super::super::lua::digest;
use super::super::packing::{Packed, unpack};
use super::super::resp::Reply;
use super::{Account, List, Rule, State};

/// A limiter of the world, and the quotas that its charges may bring.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub name: &'static str,
    pub algorithms: List,
    /// For each of them as many quotas as the limiter has algorithms.
    pub own_quotas: Vec<Vec<Quota>>,
}

/// An operation on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Check {
        cost: i64,
        max_wait: i64,
        /// The units of each quota that stay free; empty if none do.
        keep_free: Vec<i64>,
    },
    /// Of keys with these births.
    Settle {
        used: i64,
        cost: i64,
        mark: Vec<String>,
        born: Vec<i64>,
    },
    /// Of keys with these births.
    Renew {
        cost: i64,
        mark: Vec<String>,
        born: Vec<i64>,
    },
    /// Of any keys, or of those with these births.
    Penalize {
        cost: i64,
        born: Option<Vec<i64>>,
    },
    Estimate {
        cost: i64,
        max_wait: i64,
        keep_free: Vec<i64>,
    },
    Grant {
        cost: i64,
    },
    Reset,
    Block {
        time: i64,
    },
    Pause {
        time: i64,
    },
    Unblock,
}

/// A call's question about one charge, and its answer.
#[derive(Clone, Debug)]
pub struct Charge {
    pub server: usize,
    pub(super) session: u64,
    /// The instant of the world at which a client sent it.
    pub(super) sent_at: i64,
    pub now: i64,
    /// The names of its keys: one for each quota.
    pub keys: Rc<[String]>,
    pub op: Op,
    pub answer: Packed,
    /// True if the answer is a number that tells the state.
    pub(super) is_short: bool,
    pub(super) rule: Rule,
    /// For each key, the place of its limiter's quota by which it is asked.
    pub(super) quotas: Vec<usize>,
}

impl Charge {
    /// The key that the client named, of the quota at `place`.
    pub(super) fn label(&self, place: usize) -> &str {
        label_of(&self.keys[place])
    }
}

fn label_of(key: &str) -> &str {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or("", |(label, _)| label.trim_start_matches('/'))
}

thread_local! {
    /// The digests of the scripts of each list of algorithms that a world of this thread had.
    static DIGESTS: RefCell<HashMap<Vec<Kind>, [String; 2]>> = RefCell::default();
}

/// An algorithm, and whether its windows are those of a calendar.
type Kind = (Discriminant<AnyAlgorithm>, bool);

/// The digests of the scripts that limiters with these algorithms run.
fn digests(algorithms: &List) -> [String; 2] {
    let is_dated = |one: &AnyAlgorithm| {
        let rule = one.rule(one.quota()).expect("a rule");
        AnyAlgorithm::is_dated(&rule)
    };
    let kinds = algorithms.iter().map(|one| (discriminant(one), is_dated(one))).collect();
    let assemble = || {
        let texts = match &algorithms[..] {
            [one] => script_texts(one),
            _ => script_texts(algorithms),
        };
        texts.map(|text| digest(text.as_bytes()))
    };
    DIGESTS.with_borrow_mut(|known| known.entry(kinds).or_insert_with(assemble).clone())
}

/// A digest for each script that the limiters run, alone and together.
pub(super) fn scripts(limits: &[Limit]) -> HashMap<String, usize> {
    let together: List = limits.iter().map(|limit| limit.algorithms[0]).collect();
    let lists = limits.iter().map(|limit| &limit.algorithms);
    let lists = lists.chain((limits.len() > 1).then_some(&together));
    lists.flat_map(|list| digests(list).map(|digest| (digest, list.len()))).collect()
}

impl Account {
    /// The limiter that a key belongs to, and which of its quotas: `prefix:name:2fw1:{key}`.
    pub fn limit_of(&self, key: &str) -> Option<(usize, usize)> {
        let mut parts = key.split(':');
        let (_, name, tag) = (parts.next()?, parts.next()?, parts.next()?);
        let limit = self.limits.iter().position(|limit| limit.name == name)?;
        let digits = tag.bytes().take_while(u8::is_ascii_digit).count();
        let place = tag[..digits].parse::<usize>().unwrap_or(1);
        Some((limit, place - 1))
    }

    /// The charges of a call. `None`: its reply is an error, or it is no limiter's.
    pub(super) fn charges(
        &self,
        server: usize,
        call: &ScriptCall,
    ) -> Result<Option<Vec<Charge>>, String> {
        let Reply::Text(packed) = &call.reply else { return Ok(None) };
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let words: Vec<String> = call.arguments.iter().map(text).collect();
        let keys: Vec<String> = call.keys.iter().map(text).collect();
        let (width, on_terms) = match self.scripts.get(&call.digest) {
            Some(width) => (*width, false),
            // Policies that decide together, each at its own cost. All keys are theirs in turn.
            None => match self.width_of(&keys) {
                Some(width) => (width, true),
                None => return Ok(None),
            },
        };
        let reply = unpack(packed);
        let Packed::Integer(now) = reply[0] else { panic!("{reply:?}") };
        let number = |at: usize| words[at].parse::<i64>().expect("a number");
        let (mut place, mut key, mut at) = (1, 0, 1);
        let members = |keys: &[String]| -> Result<Vec<(usize, usize)>, String> {
            let member = |key: &String| self.limit_of(key).ok_or(format!("whose is {key}?"));
            keys.iter().map(member).collect()
        };
        let rules_at = |members: &[(usize, usize)], at: &mut usize| {
            let (mut rule, mut quotas, mut terms) = (Rule::new(), Vec::new(), None);
            for member in members {
                let (one, quota) = self.rule_at(*member, &words, at)?;
                rule.extend(one);
                quotas.push(quota);
                if on_terms {
                    let own = (number(*at), number(*at + 1));
                    *at += 2;
                    if *terms.get_or_insert(own) != own {
                        return Err(format!("truth: not all costs are alike: {call:?}"));
                    }
                }
            }
            Ok((rule, quotas, terms))
        };
        let own = rules_at(&members(&keys[..width])?, &mut at)?;
        let mut charges = Vec::new();
        while key < keys.len() {
            let (alike, segments) = (number(at) as usize, number(at + 1));
            at += 2;
            let begin = at;
            for names in keys[key..key + alike * width].chunks(width) {
                at = begin;
                let names: Rc<[String]> = names.into();
                let members = members(&names)?;
                let algorithm =
                    |(limit, member): &(usize, usize)| self.limits[*limit].algorithms[*member];
                let parts: Vec<_> =
                    members.iter().map(algorithm).flat_map(|one| one.parts()).collect();
                let size = 1 + parts.iter().map(|part| part.state_elements()).sum::<usize>();
                let may_be_short = matches!(&parts[..], [only] if only.has_short_answers());
                for _ in 0..segments {
                    let repeats = number(at);
                    at += 1;
                    let mut stated = own.clone();
                    if words[at] == "quota" {
                        at += 1;
                        stated = rules_at(&members, &mut at)?;
                    }
                    let (rule, quotas, terms) = stated;
                    let marks = |at: usize| words[at..at + 4 * width].to_vec();
                    let mut keep_free = Vec::new();
                    if words[at] == "keep" {
                        keep_free.extend((1..=width).map(|place| number(at + place)));
                        at += 1 + width;
                    }
                    let mut born = None;
                    if words[at] == "born" {
                        born = Some((1..=width).map(|place| number(at + place)).collect());
                        at += 1 + width;
                    }
                    let births = || born.clone().unwrap_or(vec![0; width]);
                    let (op, length) = match words[at].as_str() {
                        "refund" => {
                            let (cost, mark) = (number(at + 1), marks(at + 2));
                            (Op::Settle { used: 0, cost, mark, born: births() }, 2 + 4 * width)
                        }
                        "settle" => {
                            let (used, cost) = (number(at + 1), number(at + 2));
                            let (mark, born) = (marks(at + 3), births());
                            (Op::Settle { used, cost, mark, born }, 3 + 4 * width)
                        }
                        "renew" => {
                            let (cost, mark) = (number(at + 1), marks(at + 2));
                            (Op::Renew { cost, mark, born: births() }, 2 + 4 * width)
                        }
                        "grant" => (Op::Grant { cost: number(at + 1) }, 2),
                        "penalize" => (Op::Penalize { cost: number(at + 1), born }, 2),
                        "estimate" => {
                            let (cost, max_wait) = (number(at + 1), number(at + 2));
                            (Op::Estimate { cost, max_wait, keep_free }, 3)
                        }
                        "reset" => (Op::Reset, 1),
                        "block" => (Op::Block { time: number(at + 1) }, 2),
                        "pause" => (Op::Pause { time: number(at + 1) }, 2),
                        "unblock" => (Op::Unblock, 1),
                        _ => {
                            let (cost, max_wait) = terms.unwrap_or((number(at), number(at + 1)));
                            (Op::Check { cost, max_wait, keep_free }, 2)
                        }
                    };
                    at += length;
                    for _ in 0..repeats {
                        let (keys, op, rule) = (Rc::clone(&names), op.clone(), rule.clone());
                        let (quotas, session) = (quotas.clone(), call.session);
                        let is_short = may_be_short && reply[place] != Packed::False;
                        place += usize::from(may_be_short && !is_short);
                        let sent_at = call.sent_at;
                        let answer = reply[place].clone();
                        charges.push(Charge {
                            server,
                            session,
                            sent_at,
                            now,
                            keys,
                            op,
                            answer,
                            is_short,
                            rule,
                            quotas,
                        });
                        place += if is_short { 1 } else { size };
                    }
                }
            }
            key += alike * width;
        }
        if (place, at) != (reply.len(), words.len()) {
            return Err(format!("truth: the reply does not fit its call: {call:?}"));
        }
        Ok(Some(charges))
    }

    /// The number of limiters that the keys of a call belong to, if all are limiters'.
    fn width_of(&self, keys: &[String]) -> Option<usize> {
        let members: Option<HashSet<_>> = keys.iter().map(|key| self.limit_of(key)).collect();
        members.map(|members| members.len()).filter(|width| *width > 1)
    }

    /// The rule whose numbers stand at a place of the arguments, and which quota it is of.
    /// The wait of a short answer, as other answers have it. The state in it and that of the
    /// reference decide alike.
    pub(super) fn in_full(
        &self,
        charge: &Charge,
        told: i64,
        known: Option<State>,
    ) -> Result<i64, String> {
        let Op::Check { cost: cost @ 1.., max_wait, .. } = charge.op else {
            return Err(format!("truth: {charge:?}: a short answer"));
        };
        let (limit, member) = self.limit_of(&charge.keys[0]).expect("its limiter");
        let Limit { algorithms, own_quotas, .. } = &self.limits[limit];
        let algorithm = algorithms[member];
        let quota = match charge.quotas[0] {
            0 => algorithm.quota(),
            place => own_quotas[place - 1][member].into(),
        };
        let rule = algorithm.rule(quota).map_err(|error| error.to_string())?;
        let (is_taken, number) = if told < 0 { (true, -1 - told) } else { (false, told) };
        let state = AnyAlgorithm::short_state(&rule, charge.now, number);
        let mut state = state.ok_or_else(|| format!("truth: {charge:?}: a short answer"))?;
        let mut known = known.and_then(|known| known.into_iter().next().flatten());
        let check = Check::new(cost, max_wait);
        let [said, right] = [&mut state, &mut known]
            .map(|state| AnyAlgorithm::step(&rule, state, charge.now, check));
        let (takes, wait) = match right.verdict {
            Verdict::Allow => (true, 0),
            Verdict::Wait(wait) => (true, wait),
            Verdict::Deny(wait) => (false, wait),
            _ => (false, 0),
        };
        if said != right || is_taken != takes {
            return Err(format!("truth: {charge:?}: the reference says {right:?}, not {said:?}"));
        }
        Ok(if takes { -1 - wait } else { wait })
    }

    fn rule_at(
        &self,
        (limit, member): (usize, usize),
        words: &[String],
        at: &mut usize,
    ) -> Result<(Rule, usize), String> {
        let Limit { algorithms, own_quotas, .. } = &self.limits[limit];
        let algorithm = algorithms[member];
        let brought = own_quotas.iter().map(|quotas| quotas[member].into());
        for (place, quota) in [algorithm.quota()].into_iter().chain(brought).enumerate() {
            let rule = vec![algorithm].rule(quota).map_err(|error| error.to_string())?;
            let numbers = List::arguments(&rule, present());
            let told = words.get(*at..*at + numbers.len()).unwrap_or_default();
            if numbers.iter().map(i64::to_string).eq(told.iter().cloned()) {
                *at += numbers.len();
                return Ok((rule, place));
            }
        }
        let told = &words[*at..];
        Err(format!("truth: no quota of {algorithm:?} has the numbers at the begin of {told:?}"))
    }
}
