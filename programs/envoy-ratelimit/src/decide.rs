//! A decision: from the descriptors of a request to the counters that they claim, and from the
//! states of those to an answer.
//!
//! All claims of a request are taken, or none. A claim that must not refuse, of a rule in a shadow,
//! is left out where it does not fit, and the others are asked again. Two claims on one counter are
//! one charge, whose limit is such that it fits exactly if both do, one after the other.
//! Negative hits are given back after that, and refuse nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit as CurrentLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::Duration as ProtobufDuration;
use serving::log::Log;
use tonic::Status;
use tower_sluice::{Error, ErrorKind, Quota};

use crate::counters::{Ask, CounterUse, Counters, State, key};
use crate::limit::{Counting, Limit, Unit};
use crate::rules::{Match, Mode};
use crate::stats::{Labels, RuleCounts, Stats};
use crate::table::RuleTable;

/// The most hits that one claim counts: more than any limit, and so as good as all of them.
const MOST_HITS: u64 = 1 << 34;
/// The most descriptors of a request.
pub(crate) const MOST_DESCRIPTORS: usize = 1_000;
/// The number of descriptors after which others have their turn.
const TURN: usize = 64;
/// The most times that the counters are asked about one request.
const ROUNDS: usize = 6;

/// Decides about requests. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Decider {
    pub(crate) table: Arc<ArcSwap<RuleTable>>,
    pub(crate) counters: Counters,
    pub(crate) stats: Arc<Stats>,
    /// The time until an answer.
    pub(crate) time: Duration,
    /// Refuses nothing.
    pub(crate) in_shadow: bool,
    pub(crate) with_headers: bool,
}

/// What a descriptor comes to.
enum DescriptorLimit<'a> {
    /// No rule, or one that is replaced.
    Free,
    Unlimited(Match<'a>),
    Limited {
        limit: Cow<'a, Limit>,
        mode: Mode,
        /// `None`: the descriptor brought the limit along.
        rule: Option<Match<'a>>,
    },
}

/// A descriptor's units of a counter.
#[derive(Clone, Copy, Debug)]
struct Claim {
    counter: usize,
    /// The most that the counter may hold.
    room: u64,
    cost: u64,
    mode: Mode,
    /// It claims nothing, and gives its cost back.
    gives_back: bool,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimOutcome {
    Over,
    /// The units that are left after it.
    Left(u64),
}

/// A counter that a request claims.
#[derive(Debug)]
struct Counter {
    key: Arc<str>,
    unit: Unit,
    /// The quota of a bucket. `None`: a window.
    bucket: Option<Quota>,
    /// The units that were used before the request. `None`: not asked.
    used: Option<u64>,
    state: State,
}

impl Decider {
    /// Decides about a request, and counts it.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` for a request that nobody can decide about, `UNAVAILABLE` while the
    /// counters do not answer.
    pub(crate) async fn decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitAnswer, Status> {
        let begun = std::time::Instant::now();
        let late = |_| Err(Status::unavailable("the counters did not answer in time"));
        let answer =
            tokio::time::timeout(self.time, self.answer(request)).await.unwrap_or_else(late);
        self.stats.answered(begun.elapsed(), answer.as_ref().err().map(Status::code));
        answer
    }

    async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitAnswer, Status> {
        let invalid = |why: &str| Err(Status::invalid_argument(why));
        if request.domain.is_empty() {
            return invalid("the domain is empty");
        }
        if request.descriptors.is_empty() {
            return invalid("there are no descriptors");
        }
        if request.descriptors.len() > MOST_DESCRIPTORS {
            return Err(too_many());
        }
        let table = self.table.load_full();
        let found = self.found(&table, request).await?;
        let hits = |descriptor: &RateLimitDescriptor| match &descriptor.hits_addend {
            Some(own) => own.value.min(MOST_HITS),
            None => u64::from(request.hits_addend.max(1)),
        };

        let gives_back =
            |descriptor: &RateLimitDescriptor| descriptor.is_negative_hits && hits(descriptor) > 0;
        let is_own = |one: &RateLimitDescriptor| one.hits_addend.is_some() && !gives_back(one);
        let is_report = request.descriptors.iter().any(is_own);

        let (mut counters, mut known) = (Vec::new(), HashMap::new());
        let mut claims: Vec<Option<Claim>> = Vec::with_capacity(found.len());
        for (index, (found, descriptor)) in found.iter().zip(&request.descriptors).enumerate() {
            others_turn(index).await;
            claims.push(match found {
                DescriptorLimit::Limited { limit, mode, rule } => Some(Claim {
                    counter: counter(&mut counters, &mut known, request, descriptor, limit, rule),
                    room: room(limit),
                    cost: hits(descriptor),
                    mode: *mode,
                    gives_back: gives_back(descriptor),
                }),
                _ => None,
            });
        }
        let (returned, present): (Vec<Claim>, Vec<Claim>) =
            claims.iter().flatten().partition(|claim| claim.gives_back);
        let decided = match is_report {
            true => report(&self.counters, &present, &mut counters).await,
            false => take(&self.counters, &present, &mut counters).await,
        };
        let outcomes = decided.map_err(|error| status(&error))?;
        let is_over = refuses(&present, &outcomes);
        let none_left_out = vec![false; returned.len()];
        let returned = asked(&returned, &none_left_out, counters.len());
        let returned = returned.iter().map(|one| (one.counter, one.cost));
        let given_back = see(&self.counters, CounterUse::GiveBack, returned, &mut counters).await;
        if let Err(error) = given_back {
            static LOG: Log = Log::new();
            LOG.say(|| format!("hits were not given back: {error:#}"));
            // Claims that were taken would be taken again if the request were.
            if present.is_empty() {
                return Err(status(&error));
            }
        }
        let mut outcomes = outcomes.into_iter();
        let outcome = |claim: &Claim| match claim.gives_back {
            true => {
                // What is not known is taken for used.
                let used = counters[claim.counter].used.unwrap_or(claim.room);
                Some(ClaimOutcome::Left(claim.room.saturating_sub(used)))
            }
            false => outcomes.next(),
        };
        let outcomes: Vec<_> = claims.iter().flatten().filter_map(outcome).collect();
        let response = self.response(request, &found, &claims, &outcomes, &counters, hits);
        if is_over && self.in_shadow {
            self.stats.shadowed.increment(1);
        }
        Ok(RateLimitAnswer::new(response, is_over && !self.in_shadow))
    }

    /// The rule of each descriptor, without those that others replace.
    async fn found<'a>(
        &self,
        table: &'a RuleTable,
        request: &RateLimitRequest,
    ) -> Result<Vec<DescriptorLimit<'a>>, Status> {
        let domain = table.domain(&request.domain);
        if domain.is_none() {
            self.stats.not_found.increment(1);
        }
        let mut all = Vec::with_capacity(request.descriptors.len());
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            others_turn(index).await;
            let limit = own_limit(descriptor)?;
            all.push(match (domain, limit) {
                (None, _) => DescriptorLimit::Free,
                (Some(_), Some(limit)) => DescriptorLimit::Limited {
                    limit: Cow::Owned(limit),
                    mode: Mode::Limit,
                    rule: None,
                },
                (Some(domain), None) => match domain.find(entries(descriptor)) {
                    None => DescriptorLimit::Free,
                    Some(rule) => match &rule.limit.limit {
                        None => DescriptorLimit::Unlimited(rule),
                        Some(limit) => DescriptorLimit::Limited {
                            limit: Cow::Borrowed(limit),
                            mode: rule.limit.mode,
                            rule: Some(rule),
                        },
                    },
                },
            });
        }
        let replaced: HashSet<&str> = all
            .iter()
            .filter_map(|one| match one {
                DescriptorLimit::Limited { rule, .. } => rule.as_ref(),
                DescriptorLimit::Unlimited(rule) => Some(rule),
                DescriptorLimit::Free => None,
            })
            .flat_map(|rule| rule.limit.replaces.iter().map(String::as_str))
            .collect();
        if !replaced.is_empty() {
            for one in &mut all {
                let is_replaced = match one {
                    DescriptorLimit::Limited { rule: Some(rule), .. } => {
                        rule.limit.is_one_of(&replaced)
                    }
                    _ => false,
                };
                if is_replaced {
                    *one = DescriptorLimit::Free;
                }
            }
        }
        Ok(all)
    }

    /// The response but its overall code. Its outcomes are counted.
    fn response(
        &self,
        request: &RateLimitRequest,
        found: &[DescriptorLimit<'_>],
        claims: &[Option<Claim>],
        outcomes: &[ClaimOutcome],
        counters: &[Counter],
        hits: impl Fn(&RateLimitDescriptor) -> u64,
    ) -> RateLimitResponse {
        let (mut statuses, mut outcomes) = (Vec::with_capacity(found.len()), outcomes.iter());
        // The place of the status that the fields show.
        let (mut shown, mut least) = (None, u32::MAX);
        for (index, (found, claim)) in found.iter().zip(claims).enumerate() {
            let hits = hits(&request.descriptors[index]);
            let is_negative = request.descriptors[index].is_negative_hits;
            let DescriptorLimit::Limited { limit, mode, rule } = found else {
                let is_free = matches!(found, DescriptorLimit::Free);
                if let DescriptorLimit::Unlimited(rule) = found {
                    let counts = self.counts(&request.domain, Some(rule));
                    match is_negative {
                        true => counts.given_back(hits),
                        false => counts.unlimited(hits),
                    }
                }
                statuses.push(DescriptorStatus {
                    code: Code::Ok.into(),
                    limit_remaining: if is_free { 0 } else { u32::MAX },
                    ..DescriptorStatus::default()
                });
                continue;
            };
            let (Some(claim), Some(outcome)) = (claim, outcomes.next()) else { continue };
            let counts = self.counts(&request.domain, rule.as_ref());
            let (code, left) = match *outcome {
                ClaimOutcome::Over => {
                    counts.over(hits, *mode == Mode::Shadow);
                    let code = if *mode == Mode::Shadow { Code::Ok } else { Code::OverLimit };
                    (code, 0)
                }
                ClaimOutcome::Left(left) => {
                    match is_negative {
                        true => counts.given_back(hits),
                        false => counts.within(hits, claim.room, left),
                    }
                    (Code::Ok, u32::try_from(left).unwrap_or(u32::MAX))
                }
            };
            let is_refused = code == Code::OverLimit && *mode == Mode::Limit;
            if is_refused || left < least {
                (shown, least) = (Some(index), left);
            }
            statuses.push(DescriptorStatus {
                code: code.into(),
                current_limit: Some(CurrentLimit {
                    name: limit.name.clone(),
                    requests_per_unit: limit.requests,
                    unit: limit.unit as i32,
                }),
                limit_remaining: left,
                duration_until_reset: Some(ProtobufDuration {
                    seconds: counters[claim.counter].seconds_until_reset(),
                    nanos: 0,
                }),
                ..DescriptorStatus::default()
            });
        }
        let shown = shown.filter(|_| self.with_headers);
        let response_headers_to_add = shown.map_or_else(Vec::new, |shown| fields(&statuses[shown]));
        RateLimitResponse { statuses, response_headers_to_add, ..RateLimitResponse::default() }
    }

    fn counts(&self, domain: &str, rule: Option<&Match<'_>>) -> Arc<RuleCounts> {
        match rule {
            None => self.stats.rule(&Labels::of_overrides(domain)),
            Some(Match { labels: Some(labels), .. }) => self.stats.values(labels),
            Some(Match { limit, .. }) => {
                Arc::clone(limit.counts.get_or_init(|| self.stats.rule(&limit.labels)))
            }
        }
    }
}

/// The status of a request with more descriptors than [`MOST_DESCRIPTORS`].
pub(crate) fn too_many() -> Status {
    Status::invalid_argument(format!("there are more than {MOST_DESCRIPTORS} descriptors"))
}

/// Lets others run, of a worker that computes for a large request.
async fn others_turn(index: usize) {
    if index % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}

/// A response, and whether it refuses.
#[derive(Debug)]
pub(crate) struct RateLimitAnswer {
    pub(crate) response: RateLimitResponse,
    pub(crate) is_over: bool,
}

impl RateLimitAnswer {
    fn new(response: RateLimitResponse, is_over: bool) -> Self {
        let code = if is_over { Code::OverLimit } else { Code::Ok };
        Self { response: RateLimitResponse { overall_code: code.into(), ..response }, is_over }
    }
}

impl Counter {
    /// What is asked of it. `None`: a window counts over any limit.
    fn ask(&self, limit: Option<u64>, cost: u64) -> Ask {
        let (key, period) = (Arc::clone(&self.key), self.unit.period());
        match (self.bucket, limit) {
            (Some(quota), _) => Ask::bucket(key, quota, cost),
            (None, Some(limit)) => Ask::window(key, limit, period, cost),
            (None, None) => Ask::window_without_limit(key, period, cost),
        }
    }

    /// Notes its state after it was asked, of which `taken` units are the request's.
    fn note(&mut self, ask: &Ask, taken: u64, state: State) {
        let quota = &ask.quota;
        let owed = u64::from(ask.is_bucket && is_in_debt(quota, state.reset_after));
        let after = quota.burst_size().saturating_sub(state.remaining) + owed;
        (self.used, self.state) = (Some(after.saturating_sub(taken)), state);
    }

    /// Whole seconds until the window ends, or until the bucket is full.
    fn seconds_until_reset(&self) -> i64 {
        let time = match self.bucket {
            Some(_) => self.state.reset_after,
            None => {
                let clock = || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let now = Some(self.state.now).filter(|now| !now.is_zero()).unwrap_or_else(clock);
                let period = self.unit.period().as_secs();
                Duration::from_secs(period - now.as_secs() % period)
            }
        };
        let more = u64::from(time.subsec_nanos() > 0);
        i64::try_from(time.as_secs() + more).unwrap_or(i64::MAX)
    }
}

/// True if a bucket takes longer to be full than an empty one.
fn is_in_debt(quota: &Quota, reset_after: Duration) -> bool {
    reset_after > quota.time_of(quota.burst_size())
}

/// The limit that a descriptor brings along.
fn own_limit(descriptor: &RateLimitDescriptor) -> Result<Option<Limit>, Status> {
    let Some(own) = &descriptor.limit else { return Ok(None) };
    let Some(unit) = Unit::of_number(own.unit) else {
        let why = format!("a descriptor's own limit has the unknown unit {}", own.unit);
        return Err(Status::invalid_argument(why));
    };
    let (requests, counting) = (own.requests_per_unit, Counting::FixedWindow);
    Ok(Some(Limit { requests, unit, counting, name: String::new() }))
}

fn entries(
    descriptor: &RateLimitDescriptor,
) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
    descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value))
}

/// The most units that a counter may hold.
fn room(limit: &Limit) -> u64 {
    match limit.counting {
        Counting::TokenBucket { burst } if limit.requests > 0 => burst.into(),
        // A bucket of nothing is a window of nothing.
        _ => limit.requests.into(),
    }
}

/// The place of a descriptor's counter, which is added where it is new.
fn counter(
    counters: &mut Vec<Counter>,
    known: &mut HashMap<(Arc<str>, bool), usize>,
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
    limit: &Limit,
    rule: &Option<Match<'_>>,
) -> usize {
    let shared = rule.as_ref().map_or(&[][..], |rule| &rule.shared);
    let entries = entries(descriptor).enumerate().map(|(index, (key, value))| {
        let pattern = shared.iter().find(|(place, _)| *place == index);
        (key, pattern.map_or(value, |(_, pattern)| *pattern))
    });
    let key = key(&request.domain, limit.unit.word(), entries);
    let is_bucket = limit.bucket().is_some();
    *known.entry((Arc::clone(&key), is_bucket)).or_insert_with(|| {
        let (unit, state, bucket) = (limit.unit, State::default(), limit.bucket());
        counters.push(Counter { key, unit, bucket, used: None, state });
        counters.len() - 1
    })
}

/// Takes all claims or none.
async fn take(
    store: &Counters,
    claims: &[Claim],
    counters: &mut [Counter],
) -> Result<Vec<ClaimOutcome>, Error> {
    // Those that do not fit, and must not refuse.
    let mut left_out: Vec<bool> =
        claims.iter().map(|claim| claim.mode != Mode::Limit && claim.cost > claim.room).collect();
    let never_fits = claims.iter().any(|one| one.mode == Mode::Limit && one.cost > one.room);
    for _ in 0..ROUNDS {
        let quotas = || claims.iter().zip(&left_out).filter(|(one, _)| one.mode == Mode::Quota);
        let no_quota = quotas().next().is_some() && quotas().all(|(_, is_out)| *is_out);
        let asked = asked(claims, &left_out, counters.len());
        let is_refused = never_fits || no_quota;
        if is_refused {
            let mut fits = vec![false; counters.len()];
            claims.iter().for_each(|one| fits[one.counter] |= one.cost <= one.room);
            let seen = asked.iter().map(|one| one.counter).filter(|place| fits[*place]);
            look(store, seen, counters).await?;
        } else {
            let ask = |one: &CounterClaims| counters[one.counter].ask(Some(one.limit), one.cost);
            let asks: Vec<Ask> = asked.iter().map(ask).collect();
            let (is_admitted, states) = match &asks[..] {
                [] => (true, Vec::new()),
                asks => store.ask(CounterUse::Take, asks).await?,
            };
            let mut is_unknown = false;
            for ((one, ask), state) in asked.iter().zip(&asks).zip(&states) {
                let taken = if is_admitted { one.cost } else { 0 };
                counters[one.counter].note(ask, taken, *state);
                // More may be used than this limit, and another one of the same counter may not be
                // reached.
                let is_window = counters[one.counter].bucket.is_none();
                is_unknown |= is_window && state.remaining == 0 && !one.is_alike;
            }
            if is_admitted {
                return Ok(judge(claims, &left_out, counters, false));
            }
            if is_unknown {
                look(store, asked.iter().map(|one| one.counter), counters).await?;
            }
        }
        let mut outcomes = judge(claims, &left_out, counters, false);
        if is_refused || refuses(claims, &outcomes) {
            for (claim, outcome) in claims.iter().zip(&mut outcomes) {
                if let ClaimOutcome::Left(left) = outcome {
                    *left = claim.room.saturating_sub(counters[claim.counter].used.unwrap_or(0));
                }
            }
            return Ok(outcomes);
        }
        for ((claim, outcome), is_out) in claims.iter().zip(&outcomes).zip(&mut left_out) {
            *is_out |= claim.mode != Mode::Limit && *outcome == ClaimOutcome::Over;
        }
    }
    Err(Error::new(ErrorKind::Saturation, "the counters changed all the time"))
}

/// Counts all claims, over their limits too.
async fn report(
    store: &Counters,
    claims: &[Claim],
    counters: &mut [Counter],
) -> Result<Vec<ClaimOutcome>, Error> {
    let asked = asked(claims, &vec![false; claims.len()], counters.len());
    let is_bucket = |one: &CounterClaims| counters[one.counter].bucket.is_some();
    let (costly, free): (Vec<CounterClaims>, Vec<CounterClaims>) =
        asked.into_iter().partition(|one| one.cost > 0);
    let (buckets, mut windows): (Vec<CounterClaims>, Vec<CounterClaims>) =
        costly.into_iter().partition(is_bucket);
    let asks = |of: &[CounterClaims], counters: &[Counter]| -> Vec<Ask> {
        of.iter().map(|one| counters[one.counter].ask(None, one.cost)).collect()
    };
    if !buckets.is_empty() {
        let asks = asks(&buckets, counters);
        let (_, states) = store.ask(CounterUse::Spend, &asks).await?;
        for ((one, ask), state) in buckets.iter().zip(&asks).zip(states) {
            counters[one.counter].note(ask, one.cost, state);
        }
    }
    look(store, free.iter().map(|one| one.counter), counters).await?;
    for _ in 0..ROUNDS {
        if windows.is_empty() {
            break;
        }
        let asks = asks(&windows, counters);
        let (is_admitted, states) = store.ask(CounterUse::Take, &asks).await?;
        let mut full = Vec::new();
        for ((one, ask), state) in windows.iter().zip(&asks).zip(states) {
            // A counter that holds as much as can be counted is over every limit.
            let is_full = state.remaining < one.cost && !is_admitted;
            full.push(is_full);
            let taken = if is_admitted { one.cost } else { 0 };
            counters[one.counter].note(ask, taken, state);
        }
        if is_admitted {
            break;
        }
        let mut full = full.into_iter();
        windows.retain(|_| !full.next().unwrap_or(false));
    }
    Ok(judge(claims, &vec![false; claims.len()], counters, true))
}

/// Reads counters, and takes nothing.
async fn look(
    store: &Counters,
    places: impl Iterator<Item = usize>,
    counters: &mut [Counter],
) -> Result<(), Error> {
    see(store, CounterUse::Look, places.map(|place| (place, 1)), counters).await
}

/// Uses counters in a way that takes nothing, each with so many units, and notes their states.
async fn see(
    store: &Counters,
    way: CounterUse,
    of: impl Iterator<Item = (usize, u64)>,
    counters: &mut [Counter],
) -> Result<(), Error> {
    let ask = |(place, cost): (usize, u64)| (place, counters[place].ask(None, cost));
    let (places, asks): (Vec<usize>, Vec<Ask>) = of.map(ask).unzip();
    if !asks.is_empty() {
        let (_, states) = store.ask(way, &asks).await?;
        for ((place, ask), state) in places.into_iter().zip(&asks).zip(states) {
            counters[place].note(ask, 0, state);
        }
    }
    Ok(())
}

/// The claims on one counter together.
#[derive(Clone, Copy, Debug)]
struct CounterClaims {
    counter: usize,
    cost: u64,
    /// The limit under which this cost fits exactly if each claim does, after those before it.
    limit: u64,
    /// True if all have one room.
    is_alike: bool,
}

/// The counters of the claims that are not left out and that can fit.
fn asked(claims: &[Claim], left_out: &[bool], counters: usize) -> Vec<CounterClaims> {
    let mut all: Vec<Option<(CounterClaims, u64)>> = vec![None; counters];
    let present = claims.iter().zip(left_out).filter(|(_, is_out)| !**is_out);
    for (claim, _) in present {
        let Claim { counter, room, cost, .. } = *claim;
        let new = || (CounterClaims { counter, cost: 0, limit: u64::MAX, is_alike: true }, room);
        let (one, first) = all[counter].get_or_insert_with(new);
        one.cost += cost;
        one.is_alike &= room == *first;
        // Less what is claimed after it, which is added when that is known.
        one.limit = one.limit.saturating_add(cost).min(room);
    }
    all.into_iter().flatten().map(|(one, _)| one).collect()
}

/// What each claim comes to, one after another. One that is over counts, for those after it, if it
/// refuses the request anyway, or if `all_count`.
fn judge(
    claims: &[Claim],
    left_out: &[bool],
    counters: &[Counter],
    all_count: bool,
) -> Vec<ClaimOutcome> {
    let mut used: Vec<u64> = counters.iter().map(|one| one.used.unwrap_or(0)).collect();
    let outcome = |(claim, is_out): (&Claim, &bool)| {
        let after = used[claim.counter].saturating_add(claim.cost);
        let is_over = *is_out || after > claim.room;
        if all_count || !is_over || claim.mode == Mode::Limit {
            used[claim.counter] = after;
        }
        match is_over {
            true => ClaimOutcome::Over,
            false => ClaimOutcome::Left(claim.room - after),
        }
    };
    claims.iter().zip(left_out).map(outcome).collect()
}

/// True if a claim refuses the request, or all do that refuse it together only.
fn refuses(claims: &[Claim], outcomes: &[ClaimOutcome]) -> bool {
    let over = |mode| {
        let of_mode = claims.iter().zip(outcomes).filter(move |(claim, _)| claim.mode == mode);
        of_mode.map(|(_, outcome)| *outcome == ClaimOutcome::Over)
    };
    let mut quotas = over(Mode::Quota).peekable();
    over(Mode::Limit).any(|is_over| is_over) || quotas.peek().is_some() && quotas.all(|over| over)
}

/// `RateLimit-Limit`, `-Remaining` and `-Reset` of a status.
fn fields(status: &DescriptorStatus) -> Vec<HeaderValue> {
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let reset = status.duration_until_reset.as_ref().map_or(0, |time| time.seconds);
    let field = |key: &str, value: String| HeaderValue {
        key: key.to_owned(),
        value,
        ..HeaderValue::default()
    };
    vec![
        field("RateLimit-Limit", limit.to_string()),
        field("RateLimit-Remaining", status.limit_remaining.to_string()),
        field("RateLimit-Reset", reset.to_string()),
    ]
}

fn status(error: &Error) -> Status {
    let why = format!("{error:#}");
    match error.kind() {
        ErrorKind::Request => Status::invalid_argument(why),
        ErrorKind::Capacity => Status::resource_exhausted(why),
        ErrorKind::Configuration => Status::internal(why),
        _ => Status::unavailable(why),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// One worker: nobody else runs unless the computation lets them.
    #[tokio::test]
    async fn a_computation_yields_after_so_many_descriptors() {
        let table = RuleTable::read(&[(PathBuf::from("x.yaml"), "domain: x".to_owned())]).unwrap();
        let decider = Decider {
            table: Arc::new(ArcSwap::from_pointee(table)),
            counters: Counters::in_memory(),
            stats: Arc::new(Stats::new()),
            time: Duration::from_secs(60),
            in_shadow: false,
            with_headers: false,
        };
        for (descriptors, turns) in [(TURN - 1, 0), (MOST_DESCRIPTORS, MOST_DESCRIPTORS / TURN)] {
            let request = RateLimitRequest {
                domain: "x".to_owned(),
                descriptors: vec![RateLimitDescriptor::default(); descriptors],
                ..RateLimitRequest::default()
            };
            let mut others = 0;
            let other = async {
                loop {
                    others += 1;
                    tokio::task::yield_now().await;
                }
            };
            let answer = tokio::select! {
                biased;
                answer = decider.decide(&request) => answer.unwrap(),
                () = other => unreachable!("it has no end"),
            };
            assert_eq!(answer.response.statuses.len(), descriptors);
            // Rules are found for all descriptors, and then the claims are made.
            assert_eq!(others, 2 * turns, "{descriptors}");
        }
    }
}
