//! Keys of limiters as they lie in Redis: their names, and their states.

use std::fmt;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, cmd};
use tokio::time::Instant;

use super::key_names::{is_harmless, limiter_prefix, percent_decoded, safe_prefix};
use super::{Pool, Redis};
use crate::algorithm::{
    Algorithm, AnyAlgorithm, Check, InLua, LATEST, StoredMember, TAGS, Verdict, integer, stored_log,
};
use crate::core::{Error, ErrorKind, Quota};
use crate::limiter::charge_numbers::{duration, micros};

/// A key of a limiter in Redis, read from its name, for tools that look into Redis.
///
/// [`parse`](Self::parse) takes a name apart, such as one from `SCAN`, and [`Redis::stored_keys`]
/// makes the names of a charge's key. [`read`](Self::read) reads the state by `GET` or `ZRANGE`, so
/// it needs only the right to read.
///
/// ```no_run
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
/// use tower_sluice::algorithm::TokenBucket;
/// use tower_sluice::{Pool, Quota, Redis};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::connect("redis://dashboard:secret@127.0.0.1:6379")?;
/// let bucket = TokenBucket::new(Quota::per_second(50));
/// let api = Redis::new("api", bucket, pool.clone());
/// for key in api.stored_keys("alice") {
///     let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
///     let state = key.read(&pool, bucket, now, Duration::from_secs(1)).await?;
///     println!("{key}: {} of {}", state.remaining(), state.burst());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredKey {
    name: String,
    limiter: String,
    algorithm: &'static str,
    quota: Option<usize>,
    key: String,
}

impl StoredKey {
    /// Returns the pattern for the `MATCH` of a `SCAN` that finds the keys of a limiter, or of all
    /// limiters over a pool. Other keys may match, too: [`parse`](Self::parse) finds them.
    #[must_use]
    pub fn pattern(pool: &Pool, limiter: Option<&str>) -> String {
        let begin = match limiter {
            Some(name) => limiter_prefix(pool.key_prefix(), name),
            None => format!("{}:", safe_prefix(pool.key_prefix())),
        };
        let mut pattern = String::with_capacity(begin.len() + 1);
        for char in begin.chars() {
            if matches!(char, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(char);
        }
        pattern + "*"
    }

    /// Reads a name. `None`: no limiter over this pool writes it.
    #[must_use]
    pub fn parse(pool: &Pool, name: &str) -> Option<Self> {
        let rest = name.strip_prefix(&safe_prefix(pool.key_prefix()))?.strip_prefix(':')?;
        let (begin, tagged) = rest.split_at(rest.find('{')?);
        let (limiter, tag) = begin.strip_suffix(':')?.split_once(':')?;
        let place = tag.chars().next()?.to_digit(10);
        let tag = if place.is_some() { &tag[1..] } else { tag };
        let (_, algorithm) = TAGS.iter().find(|(own, _)| *own == tag)?;
        let (inside, after) = tagged[1..].split_once('}')?;
        // With buckets, a number is in the braces, and the key follows.
        let key = if after.is_empty() { inside } else { after.strip_prefix(':')? };
        if key.is_empty() || !key.bytes().all(is_harmless) {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            limiter: percent_decoded(limiter)?,
            algorithm,
            quota: place.map(|place| (place as usize).saturating_sub(1)),
            key: key.to_owned(),
        })
    }

    /// The name in Redis.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the limiter. A name of more than 64 bytes is a digest.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// The name of the algorithm, such as `token_bucket`.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The place of its quota among several, from 0 on. `None` for a limiter of one quota.
    #[must_use]
    pub fn quota(&self) -> Option<usize> {
        self.quota
    }

    /// The key of the charge, as the application wrote it, or its digest.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if the key is a digest: the application's own was longer than 64 bytes, or had
    /// other characters than letters, digits and `._~@:/-`.
    #[must_use]
    pub fn is_digest(&self) -> bool {
        self.key.starts_with("h:")
    }

    /// Reads the state of this key at the instant `now` since the Unix epoch, by the quota of
    /// `algorithm`.
    ///
    /// It runs no script and writes nothing. A peek of the limiter sees the same, if `now` is the
    /// time of the server.
    ///
    /// # Errors
    ///
    /// [`Configuration`](ErrorKind::Configuration) if the key is of another algorithm, or if the
    /// server refuses `GET` or `ZRANGE`. [`State`](ErrorKind::State) if the value is not one that
    /// the algorithm writes. Otherwise those of a connection.
    pub async fn read(
        &self,
        pool: &Pool,
        algorithm: impl Into<AnyAlgorithm>,
        now: Duration,
        timeout: Duration,
    ) -> Result<StoredState, Error> {
        let (algorithm, now) = (algorithm.into(), micros(now).min(LATEST));
        let tag = algorithm.parts()[0].tag;
        if !TAGS.contains(&(tag, self.algorithm)) {
            let why = format!("the key is of the algorithm {}", self.algorithm);
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        let rule = algorithm.rule(algorithm.quota()).map_err(|error| {
            Error::new(ErrorKind::Configuration, "the algorithm cannot follow the quota")
                .with_source(error)
        })?;
        let deadline = Instant::now() + timeout;
        let stored = match algorithm {
            AnyAlgorithm::SlidingLog(log) => {
                self.read_log(pool, log.quota().as_slice()[0], now, deadline).await?
            }
            _ => {
                let text: Option<Vec<u8>> = self.ask(pool, "GET", &[], deadline).await?;
                text.map(|text| {
                    let text = str::from_utf8(&text).ok()?;
                    Stored::of_text(text, |text| AnyAlgorithm::stored(&rule, text))
                })
            }
        };
        let is_stored = stored.is_some();
        let stored = stored.unwrap_or(Some(Stored::none()));
        let stored = stored.ok_or_else(|| {
            Error::new(ErrorKind::State, "the stored value is not one that this limiter writes")
        })?;
        let paused = stored.paused.filter(|until| *until > now);
        let check = Check::new(1, 0).paused_until(paused.as_slice());
        let until = stored.blocked.filter(|until| *until > now);
        let (verdict, report) = match until {
            Some(until) => {
                let blocked = AnyAlgorithm::blocked(&rule, None, now, check, &[until]);
                (blocked.verdict, blocked.report)
            }
            None => {
                let own = AnyAlgorithm::estimate(&rule, stored.state.as_ref(), now, check);
                (own.verdict, own.report)
            }
        };
        let quota = algorithm.reported(0, algorithm.quota().as_slice()[0], now);
        Ok(StoredState {
            is_stored,
            remaining: report.remaining.unsigned_abs(),
            burst: quota.burst_size(),
            retry_after: match verdict {
                Verdict::Allow => Some(Duration::ZERO),
                Verdict::Wait(wait) | Verdict::Deny(wait) => Some(duration(wait)),
                Verdict::Never => None,
            },
            reset_after: duration(report.reset_after),
            blocked_for: until.map(|until| duration(until - now)),
            paused_for: paused.map(|until| duration(until - now)),
            last_reset: stored.birth.map(duration),
        })
    }

    /// Reads the members of a log that are needed: the first of the period, and the newest.
    async fn read_log(
        &self,
        pool: &Pool,
        quota: Quota,
        now: i64,
        deadline: Instant,
    ) -> Result<Option<Option<Stored>>, Error> {
        // A birth, a pause and a block may follow the newest member.
        let words = ["-4", "-1", "WITHSCORES"];
        let mut newest: Vec<StoredMember> = self.ask(pool, "ZRANGE", &words, deadline).await?;
        if newest.is_empty() {
            return Ok(None);
        }
        let mut over = |form: &str| {
            let (text, score) = newest.last()?;
            let number = integer(text.strip_prefix(form)?).filter(|_| score.is_infinite())?;
            newest.pop();
            Some(number)
        };
        let (birth, paused, blocked) = (over("reset:"), over("paused:"), over("blocked:"));
        let stored = |state| Stored { blocked, paused, birth, state };
        let Some(newest) = newest.pop() else {
            return Ok(Some(Some(stored(None))));
        };
        let cutoff = (now as f64).max(newest.1) - quota.period().as_micros() as f64;
        let cutoff = format!("({cutoff}");
        let mut count = 1;
        loop {
            let number = count.to_string();
            let words = [&cutoff, "inf", "BYSCORE", "LIMIT", "0", &number, "WITHSCORES"];
            let mut first: Vec<StoredMember> = self.ask(pool, "ZRANGE", &words, deadline).await?;
            first.retain(|(_, score)| score.is_finite());
            let Some(state) = stored_log(quota.limit(), &first, &newest) else {
                return Ok(Some(None));
            };
            match state {
                Some((_, needed)) if needed > count => count = needed,
                state => {
                    return Ok(Some(Some(stored(state.map(|(state, _)| state.into())))));
                }
            }
        }
    }

    async fn ask<T: FromRedisValue>(
        &self,
        pool: &Pool,
        command: &str,
        words: &[&str],
        deadline: Instant,
    ) -> Result<T, Error> {
        let command: Cmd = cmd(command).arg(&self.name).arg(words).take();
        let reply = pool.client().send(command, &self.name, deadline).await;
        let reply = reply.map_err(|failure| Error::from(redis_once::Error::from(failure)))?;
        redis::from_redis_value(reply).map_err(|error| {
            Error::new(ErrorKind::State, "redis answered with another type").with_source(error)
        })
    }
}

/// Shows the key, with the place of its quota if there are several.
impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        self.quota.map_or(Ok(()), |place| write!(f, " (quota {})", place + 1))
    }
}

impl<A: InLua> Redis<A> {
    /// Returns the keys in Redis that belong to a charge's key: one for each quota.
    #[must_use]
    pub fn stored_keys(&self, key: &str) -> Vec<StoredKey> {
        let config = self.inner.batcher.config();
        let suffix = config.buckets[0].suffix(key);
        let names = config.key_prefixes.iter().map(|begin| format!("{begin}{suffix}"));
        names.filter_map(|name| StoredKey::parse(&config.pool, &name)).collect()
    }
}

/// A value in Redis: a state with a block, a pause or a reset over it.
struct Stored<S = <AnyAlgorithm as Algorithm>::State> {
    blocked: Option<i64>,
    paused: Option<i64>,
    birth: Option<i64>,
    state: Option<S>,
}

impl<S> Stored<S> {
    fn none() -> Self {
        Self { blocked: None, paused: None, birth: None, state: None }
    }

    /// Reads a text: the twin of `unread.lua`. `None`: no script writes it.
    fn of_text(text: &str, read: impl FnOnce(&str) -> Option<S>) -> Option<Self> {
        let (blocked, after_block) = over("blocked:", text)?;
        let (paused, after_pause) = over("paused:", after_block)?;
        let (birth, inner) = over("reset:", after_pause)?;
        let is_state = text != "none" && !(inner.is_empty() && text != inner);
        let state = if is_state { Some(read(inner)?) } else { None };
        Some(Self { blocked, paused, birth, state })
    }
}

/// Splits a text of this form, `form:number:text`. A text of another form is returned whole.
fn over<'a>(form: &str, text: &'a str) -> Option<(Option<i64>, &'a str)> {
    let Some(rest) = text.strip_prefix(form) else { return Some((None, text)) };
    let (digits, inner) = rest.split_once(':')?;
    Some((Some(integer(digits)?), inner))
}

/// The state of a key that [`StoredKey::read`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredState {
    is_stored: bool,
    remaining: u64,
    burst: u64,
    retry_after: Option<Duration>,
    reset_after: Duration,
    blocked_for: Option<Duration>,
    paused_for: Option<Duration>,
    last_reset: Option<Duration>,
}

impl StoredState {
    /// Returns false if nothing is stored: the key is new, or all of its units have come back.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// The units that remain: 0 while the key is blocked or paused.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The most units that can remain: the burst of the quota.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The time until a charge of one unit is admitted at once: zero if it is admitted now. `None`
    /// if it never is.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The time until all units are available again, if no more are taken.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// The rest of a block. `None` if the key is not blocked.
    #[must_use]
    pub fn blocked_for(&self) -> Option<Duration> {
        self.blocked_for
    }

    /// The rest of a pause. `None` if the key is not paused.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.paused_for
    }

    /// The instant of the last reset since the Unix epoch, while the key remembers it.
    #[must_use]
    pub fn last_reset(&self) -> Option<Duration> {
        self.last_reset
    }
}
