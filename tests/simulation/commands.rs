//! The commands: one row for each in [`COMMANDS`], and below it those that only touch data.
//!
//! A further command is a row, and a function that gets the words after the command's name. Those
//! that need the connection or the whole server stand in `session_commands.rs`.

use super::keyspace::{Entry, Keyspace, Stored, WrongType};
use super::resp::{Reply, Word, number};
use super::server::{Server, Session};
use super::session_commands as session;
use super::sorted_set::{Bound, SortedSet, score};

/// A reply, or the error reply: `?` ends a command early.
pub type Answer = Result<Reply, Reply>;

/// A command of the server.
pub struct Command {
    pub name: &'static str,
    /// The number of words, the name among them; negative: the least number.
    arity: i64,
    pub keys: Keys,
    pub flags: u8,
    pub run: Run,
}

/// The words of a command that are keys.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    None,
    First,
    All,
    /// As many as the word after the script says.
    Counted,
}

/// The function of a command, by what it works on.
pub enum Run {
    Data(fn(&mut Keyspace, &[Word]) -> Answer),
    Session(fn(&mut Server, &mut Session, &[Word]) -> Answer),
}

/// Replicas refuse it.
pub const WRITE: u8 = 1;
/// A server without free memory refuses it.
pub const NEEDS_MEMORY: u8 = 2;
/// It is answered before the login.
pub const BEFORE_LOGIN: u8 = 4;
/// It is answered while the server loads its data.
pub const WHILE_LOADING: u8 = 8;

use Keys::{All, Counted, First};
use Run::{Data, Session as OfSession};

#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    row("DEL", -2, All, WRITE, Data(del)),
    row("ECHO", 2, Keys::None, 0, Data(|_, words| Ok(Reply::text(&words[0])))),
    row("EXISTS", -2, All, 0, Data(exists)),
    row("FLUSHALL", -1, Keys::None, WRITE, Data(flush_all)),
    row("GET", 2, First, 0, Data(get)),
    row("HMGET", -3, First, 0, Data(hmget)),
    row("HSET", -4, First, WRITE | NEEDS_MEMORY, Data(hset)),
    row("INCRBY", 3, First, WRITE | NEEDS_MEMORY, Data(incrby)),
    row("MGET", -2, All, 0, Data(mget)),
    row("PERSIST", 2, First, WRITE, Data(persist)),
    row("PEXPIRE", 3, First, WRITE, Data(pexpire)),
    row("PEXPIREAT", 3, First, WRITE, Data(pexpireat)),
    row("PTTL", 2, First, 0, Data(pttl)),
    row("SET", -3, First, WRITE | NEEDS_MEMORY, Data(set)),
    row("TIME", 1, Keys::None, WHILE_LOADING, Data(time)),
    row("TYPE", 2, First, 0, Data(kind)),
    row("UNLINK", -2, All, WRITE, Data(del)),
    row("ZADD", -4, First, WRITE | NEEDS_MEMORY, Data(zadd)),
    row("ZCARD", 2, First, 0, Data(zcard)),
    row("ZCOUNT", 4, First, 0, Data(zcount)),
    row("ZRANGE", -4, First, 0, Data(zrange)),
    row("ZRANGEBYSCORE", -4, First, 0, Data(zrangebyscore)),
    row("ZREM", -3, First, WRITE, Data(zrem)),
    row("ZREMRANGEBYRANK", 4, First, WRITE, Data(zremrangebyrank)),
    row("ZREMRANGEBYSCORE", 4, First, WRITE, Data(zremrangebyscore)),
    row("ZSCORE", 3, First, 0, Data(zscore)),

    row("ASKING", 1, Keys::None, 0, OfSession(session::asking)),
    row("AUTH", -2, Keys::None, BEFORE_LOGIN | WHILE_LOADING, OfSession(session::auth)),
    row("CLIENT", -2, Keys::None, WHILE_LOADING, OfSession(session::client)),
    row("CLUSTER", -2, Keys::None, WHILE_LOADING, OfSession(session::cluster)),
    row("EVAL", -3, Counted, 0, OfSession(session::eval)),
    row("EVALSHA", -3, Counted, 0, OfSession(session::evalsha)),
    row("HELLO", -1, Keys::None, BEFORE_LOGIN | WHILE_LOADING, OfSession(session::hello)),
    row("INFO", -1, Keys::None, WHILE_LOADING, OfSession(session::info)),
    row("PING", -1, Keys::None, 0, OfSession(session::ping)),
    row("PUBLISH", 3, Keys::None, WHILE_LOADING, OfSession(session::publish)),
    row("READONLY", 1, Keys::None, WHILE_LOADING, OfSession(session::readonly)),
    row("ROLE", 1, Keys::None, WHILE_LOADING, OfSession(session::role)),
    row("SCRIPT", -2, Keys::None, 0, OfSession(session::script)),
    row("SELECT", 2, Keys::None, WHILE_LOADING, OfSession(session::select)),
    row("SENTINEL", -2, Keys::None, 0, OfSession(session::sentinel)),
    row("SUBSCRIBE", -2, Keys::None, WHILE_LOADING, OfSession(session::subscribe)),
];

const fn row(name: &'static str, arity: i64, keys: Keys, flags: u8, run: Run) -> Command {
    Command { name, arity, keys, flags, run }
}

impl Command {
    /// The command that a request names.
    pub fn find(words: &[Word]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| words[0].eq_ignore_ascii_case(command.name.as_bytes()))
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if a request has as many words as the command takes.
    pub fn takes(&self, words: &[Word]) -> bool {
        let count = words.len() as i64;
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }

    /// The keys of a request.
    pub fn keys_of<'a>(&self, words: &'a [Word]) -> &'a [Word] {
        match self.keys {
            Keys::None => &[],
            Keys::First => &words[1..2],
            Keys::All => &words[1..],
            Keys::Counted => {
                let count = number(&words[2]).and_then(|count| usize::try_from(count).ok());
                words[3..].get(..count.unwrap_or(0)).unwrap_or(&[])
            }
        }
    }
}

impl From<WrongType> for Reply {
    fn from(WrongType: WrongType) -> Self {
        Self::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    }
}

impl From<&str> for Reply {
    fn from(error: &str) -> Self {
        Self::error(error)
    }
}

const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_FLOAT: &str = "ERR value is not a valid float";
const NO_BOUND: &str = "ERR min or max is not a float";

fn integer(word: &[u8]) -> Result<i64, Reply> {
    number(word).ok_or_else(|| NO_INTEGER.into())
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

// Keys of any type.

fn del(data: &mut Keyspace, keys: &[Word]) -> Answer {
    let mut removed = 0;
    for key in keys {
        if data.get(key).is_some() {
            data.put(key, None);
            removed += 1;
        }
    }
    Ok(Reply::Integer(removed))
}

fn exists(data: &mut Keyspace, keys: &[Word]) -> Answer {
    Ok(Reply::count(keys.iter().filter(|key| data.get(key).is_some()).count()))
}

fn flush_all(data: &mut Keyspace, _: &[Word]) -> Answer {
    data.clear();
    Ok(Reply::ok())
}

fn kind(data: &mut Keyspace, words: &[Word]) -> Answer {
    let kind = data.get(&words[0]).map_or("none", |entry| entry.stored.kind());
    Ok(Reply::Status(kind.into()))
}

fn time(data: &mut Keyspace, _: &[Word]) -> Answer {
    let parts = [data.now.div_euclid(1_000_000), data.now.rem_euclid(1_000_000)];
    Ok(Reply::List(parts.map(|part| Reply::text(part.to_string())).to_vec()))
}

fn pttl(data: &mut Keyspace, words: &[Word]) -> Answer {
    let now = data.now_millis();
    let left = match data.get(&words[0]) {
        None => -2,
        Some(Entry { expires_at: None, .. }) => -1,
        Some(Entry { expires_at: Some(at), .. }) => (at - now).max(0),
    };
    Ok(Reply::Integer(left))
}

fn pexpire(data: &mut Keyspace, words: &[Word]) -> Answer {
    let at = integer(&words[1])?.checked_add(data.now_millis());
    expire(data, &words[0], at.ok_or("ERR invalid expire time in 'pexpire' command")?)
}

fn pexpireat(data: &mut Keyspace, words: &[Word]) -> Answer {
    expire(data, &words[0], integer(&words[1])?)
}

fn expire(data: &mut Keyspace, key: &[u8], at: i64) -> Answer {
    let Some(entry) = data.get(key).cloned() else { return Ok(Reply::Integer(0)) };
    let is_old = at <= data.now_millis();
    let later = Entry { expires_at: Some(at), ..entry };
    data.put(key, Some(later).filter(|_| !is_old));
    Ok(Reply::Integer(1))
}

fn persist(data: &mut Keyspace, words: &[Word]) -> Answer {
    let entry = data.get(&words[0]).cloned().filter(|entry| entry.expires_at.is_some());
    let Some(entry) = entry else { return Ok(Reply::Integer(0)) };
    data.put(&words[0], Some(Entry { expires_at: None, ..entry }));
    Ok(Reply::Integer(1))
}

// Texts.

fn get(data: &mut Keyspace, words: &[Word]) -> Answer {
    Ok(data.text(&words[0])?.map_or(Reply::Nil, Reply::text))
}

fn mget(data: &mut Keyspace, keys: &[Word]) -> Answer {
    // A key of another type reads as absent.
    let text = |key: &Word| data.text(key).ok().flatten().map_or(Reply::Nil, Reply::text);
    Ok(Reply::List(keys.iter().map(text).collect()))
}

fn set(data: &mut Keyspace, words: &[Word]) -> Answer {
    let (mut if_exists, mut keeps_expiry, mut expiry) = (None, false, None);
    let mut rest = words[2..].iter();
    while let Some(word) = rest.next() {
        if is(word, "NX") && if_exists != Some(true) {
            if_exists = Some(false);
        } else if is(word, "XX") && if_exists != Some(false) {
            if_exists = Some(true);
        } else if is(word, "KEEPTTL") && expiry.is_none() {
            keeps_expiry = true;
        } else if ["EX", "PX", "EXAT", "PXAT"].iter().any(|unit| is(word, unit))
            && expiry.is_none()
            && !keeps_expiry
        {
            expiry = Some((word.to_ascii_uppercase(), rest.next().ok_or(SYNTAX)?));
        } else {
            return Err(SYNTAX.into());
        }
    }
    let invalid = || Reply::error("ERR invalid expire time in 'set' command");
    let mut expires_at = None;
    if let Some((unit, amount)) = expiry {
        let amount = Some(integer(amount)?).filter(|amount| *amount > 0).ok_or_else(invalid)?;
        let factor = if unit.starts_with(b"E") { 1_000 } else { 1 };
        let base = if unit.ends_with(b"AT") { 0 } else { data.now_millis() };
        let at = amount.checked_mul(factor).and_then(|millis| millis.checked_add(base));
        expires_at = Some(at.ok_or_else(invalid)?);
    }
    let before = data.get(&words[0]).cloned();
    if if_exists.is_some_and(|expected| before.is_some() != expected) {
        return Ok(Reply::Nil);
    }
    if keeps_expiry {
        expires_at = before.and_then(|entry| entry.expires_at);
    }
    data.put(&words[0], Some(Entry::new(Stored::Text(words[1].clone()), expires_at)));
    Ok(Reply::ok())
}

fn incrby(data: &mut Keyspace, words: &[Word]) -> Answer {
    let amount = integer(&words[1])?;
    let before = data.text(&words[0])?.map_or(Ok(0), |text| integer(text))?;
    let sum = before.checked_add(amount).ok_or("ERR increment or decrement would overflow")?;
    data.put_value(&words[0], Stored::Text(sum.to_string().into_bytes()));
    Ok(Reply::Integer(sum))
}

// Hashes.

fn hset(data: &mut Keyspace, words: &[Word]) -> Answer {
    if words.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'hset' command".into());
    }
    let mut fields = data.hash(&words[0])?.cloned().unwrap_or_default();
    let before = fields.len();
    for pair in words[1..].chunks(2) {
        match fields.iter_mut().find(|(field, _)| *field == pair[0]) {
            Some((_, value)) => value.clone_from(&pair[1]),
            None => fields.push((pair[0].clone(), pair[1].clone())),
        }
    }
    let added = fields.len() - before;
    data.put_value(&words[0], Stored::Hash(fields));
    Ok(Reply::count(added))
}

fn hmget(data: &mut Keyspace, words: &[Word]) -> Answer {
    let fields = data.hash(&words[0])?;
    let value = |name: &Word| {
        let found = fields.and_then(|fields| fields.iter().find(|(field, _)| field == name));
        found.map_or(Reply::Nil, |(_, value)| Reply::text(value))
    };
    Ok(Reply::List(words[1..].iter().map(value).collect()))
}

// Sorted sets.

fn zadd(data: &mut Keyspace, words: &[Word]) -> Answer {
    let only_present = words[1].eq_ignore_ascii_case(b"XX");
    let pairs = &words[1 + usize::from(only_present)..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let scores = pairs.chunks(2).map(|pair| score(&pair[0]).ok_or(NO_FLOAT));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    let mut set = data.sorted_set(&words[0])?.cloned().unwrap_or_default();
    let mut added = 0;
    for (score, pair) in scores.into_iter().zip(pairs.chunks(2)) {
        if only_present && set.score(&pair[1]).is_none() {
            continue;
        }
        added += i64::from(set.insert(score, pair[1].clone()));
    }
    if !set.is_empty() {
        data.put_value(&words[0], Stored::SortedSet(set));
    }
    Ok(Reply::Integer(added))
}

fn zcard(data: &mut Keyspace, words: &[Word]) -> Answer {
    Ok(Reply::count(data.sorted_set(&words[0])?.map_or(0, SortedSet::len)))
}

fn zscore(data: &mut Keyspace, words: &[Word]) -> Answer {
    let set = data.sorted_set(&words[0])?;
    Ok(set.and_then(|set| set.score(&words[1])).map_or(Reply::Nil, Reply::Double))
}

fn bounds(low: &[u8], high: &[u8]) -> Result<(Bound, Bound), Reply> {
    Ok(Bound::read(low).zip(Bound::read(high)).ok_or(NO_BOUND)?)
}

fn zcount(data: &mut Keyspace, words: &[Word]) -> Answer {
    let (low, high) = bounds(&words[1], &words[2])?;
    let set = data.sorted_set(&words[0])?;
    Ok(Reply::count(set.map_or(0, |set| set.ranks_of(low, high).len())))
}

fn zrange(data: &mut Keyspace, words: &[Word]) -> Answer {
    range(data, words, false)
}

fn zrangebyscore(data: &mut Keyspace, words: &[Word]) -> Answer {
    range(data, words, true)
}

fn range(data: &mut Keyspace, words: &[Word], is_old_form: bool) -> Answer {
    let (mut by_score, mut reverse, mut with_scores, mut limit) = (is_old_form, false, false, None);
    let mut rest = words[3..].iter();
    while let Some(word) = rest.next() {
        if is(word, "WITHSCORES") {
            with_scores = true;
        } else if is(word, "LIMIT") && rest.len() >= 2 {
            let mut next = || integer(rest.next().expect("two words"));
            limit = Some((next()?, next()?));
        } else if is(word, "BYSCORE") && !by_score {
            by_score = true;
        } else if is(word, "REV") && !reverse && !is_old_form {
            reverse = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    // A limit of -1 is none.
    if limit.is_some_and(|(_, count)| count != -1) && !by_score {
        let message = "ERR syntax error, LIMIT is only supported in combination with either \
                       BYSCORE or BYLEX";
        return Err(message.into());
    }
    let (first, last) = (&words[1], &words[2]);
    type Ranks = Box<dyn Fn(&SortedSet) -> std::ops::Range<usize>>;
    let ranks: Ranks = if by_score {
        let (low, high) = if reverse { bounds(last, first)? } else { bounds(first, last)? };
        Box::new(move |set| set.ranks_of(low, high))
    } else {
        let (first, last) = (integer(first)?, integer(last)?);
        Box::new(move |set| {
            let ranks = set.ranks(first, last);
            let turned = || set.len() - ranks.end..set.len() - ranks.start;
            if reverse { turned() } else { ranks }
        })
    };
    let set = data.sorted_set(&words[0])?;
    let found = set.map_or(&[][..], |set| &set.members()[ranks(set)]);
    let mut found: Vec<_> = found.to_vec();
    if reverse {
        found.reverse();
    }
    if let Some((offset, count)) = limit.filter(|_| by_score) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        found = found.into_iter().skip(offset).take(count).collect();
    }
    match with_scores {
        true => Ok(Reply::Scored(found)),
        false => Ok(Reply::List(found.iter().map(|(_, member)| Reply::text(member)).collect())),
    }
}

fn zrem(data: &mut Keyspace, words: &[Word]) -> Answer {
    let Some(mut set) = data.sorted_set(&words[0])?.cloned() else { return Ok(Reply::Integer(0)) };
    let removed = words[1..].iter().filter(|member| set.remove(member)).count();
    data.put_value(&words[0], Stored::SortedSet(set));
    Ok(Reply::count(removed))
}

fn zremrangebyrank(data: &mut Keyspace, words: &[Word]) -> Answer {
    let (first, last) = (integer(&words[1])?, integer(&words[2])?);
    remove_ranks(data, &words[0], |set| set.ranks(first, last))
}

fn zremrangebyscore(data: &mut Keyspace, words: &[Word]) -> Answer {
    let (low, high) = bounds(&words[1], &words[2])?;
    remove_ranks(data, &words[0], |set| set.ranks_of(low, high))
}

fn remove_ranks(
    data: &mut Keyspace,
    key: &[u8],
    ranks: impl Fn(&SortedSet) -> std::ops::Range<usize>,
) -> Answer {
    let Some(mut set) = data.sorted_set(key)?.cloned() else { return Ok(Reply::Integer(0)) };
    let ranks = ranks(&set);
    set.remove_ranks(ranks.clone());
    data.put_value(key, Stored::SortedSet(set));
    Ok(Reply::count(ranks.len()))
}
