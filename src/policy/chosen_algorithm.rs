//! The algorithm that a row names, with its settings, its quota, and its longest wait.

use std::time::Duration;

use serde_json::{Map, Value};

use super::row::Row;
use super::row_fields::Fields;
use crate::Quota;
use crate::algorithm::{
    Algorithm, AnyAlgorithm, Budget, DEFAULT_HORIZON, FixedWindow, INEXACT, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
#[cfg(feature = "redisson")]
use crate::redisson::{PermitLog, Rate, millis, permits};

/// The message about a cost that can never fit.
const NEVER: &str =
    "no request of this cost is ever admitted: write a smaller cost, or a larger limit or burst";

/// An algorithm, with the settings of its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The name, as the row writes it.
    pub(super) name: &'static str,
    pub(super) quota: Quota,
    pub(super) choice: Choice,
    pub(super) max_wait: Duration,
}

impl Setting {
    /// Reads it from the fields of a row. `None` if a field is wrong.
    pub(super) fn read(fields: &mut Fields) -> Option<Self> {
        let name = algorithm(fields);
        let quota = quota(fields);
        let (own_wait, ratio) = (fields.duration("max_wait"), fields.ratio("cache_ratio"));
        if own_wait.is_some() && ratio.is_some() {
            fields.wrong::<()>("cache_ratio", "a row has max_wait or cache_ratio, not both");
        }
        let horizon = fields.duration("horizon");
        let max_wait =
            |stored| own_wait.unwrap_or_else(|| share(stored, ratio.unwrap_or_default()));
        let read = |fields: &mut _| own_settings(fields, name?, quota?, max_wait);
        let Some(OwnSettings { quota, choice, stored, store }) = read(fields) else {
            // The row's other errors are reported as well.
            ALGORITHMS.iter().flat_map(|(_, settings)| *settings).for_each(|one| fields.skip(one));
            return None;
        };
        let (max_wait, max_debt) = (max_wait(stored), fields.duration("max_debt"));
        let choice = match choice {
            Choice::Any(algorithm) => {
                // By default, the horizon covers the `max_wait` of the row.
                let horizon = horizon.unwrap_or(max_wait.max(DEFAULT_HORIZON));
                let algorithm = algorithm.with_horizon(horizon);
                let algorithm = max_debt.map_or(algorithm, |time| algorithm.with_max_debt(time));
                fields.checked(store, algorithm.rule(quota))?;
                Choice::Any(algorithm)
            }
            #[cfg(feature = "redisson")]
            javas => {
                fields.checked("period", PermitLog::new(quota).rule(quota))?;
                javas
            }
        };
        Some(Self { name: name?, quota, choice, max_wait })
    }

    /// Returns the settings of only this algorithm that a row states, and the burst of a bucket.
    pub(super) fn stated(&self, row: &Row) -> Map<String, Value> {
        let own = ALGORITHMS.iter().find(|(name, _)| *name == self.name);
        let own = own.map_or(&[][..], |(_, own)| own);
        let is_own = |field: &String| field == "horizon" || own.contains(&&**field);
        let own = row.fields().into_iter().filter(|(field, _)| is_own(field));
        let mut stated: Map<_, _> =
            own.filter_map(|(field, value)| Some((field, value.ok()?))).collect();
        if matches!(self.name, "token_bucket" | "budget") {
            stated.insert(String::from("burst"), self.quota.burst_size().into());
        }
        stated
    }

    /// Checks that a request of `units` units can ever be admitted. The error says why not.
    pub(super) fn check_cost(&self, units: u64) -> Result<(), String> {
        match self.choice {
            Choice::Any(algorithm) => self.check_cost_under(algorithm, units),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) if units > self.quota.limit() => Err(NEVER.to_owned()),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => permits(units).map(drop).map_err(|error| error.to_string()),
        }
    }

    fn check_cost_under(&self, algorithm: AnyAlgorithm, units: u64) -> Result<(), String> {
        let rule = algorithm.rule(self.quota).map_err(|error| error.to_string())?;
        let units = i64::try_from(units).ok().filter(|units| *units <= INEXACT);
        let fits = |units: &i64| AnyAlgorithm::earliest_fit(&rule, None, 0, *units).is_some();
        let units = units.filter(fits).ok_or(NEVER)?;
        let micros = |time: i64| Duration::from_micros(time.max(0).cast_unsigned());
        let wait = micros(AnyAlgorithm::least_wait(&rule, units));
        let horizon = micros(AnyAlgorithm::horizon(&rule));
        if wait > self.max_wait.min(horizon) {
            let short = if wait > self.max_wait { "max_wait" } else { "horizon" };
            let wait = humantime::format_duration(wait);
            return Err(format!(
                "a request of this cost waits at least {wait}: write a smaller cost, or a longer {short}"
            ));
        }
        Ok(())
    }
}

/// Reads the name of the algorithm. Default: a token bucket.
fn algorithm(fields: &mut Fields) -> Option<&'static str> {
    if !fields.has("algorithm") {
        fields.skip("algorithm");
        return Some(ALGORITHMS[0].0);
    }
    let stated: String = fields.optional("algorithm")?;
    let is_there = |name: &str| name != "redisson" || cfg!(feature = "redisson");
    let names = ALGORITHMS.map(|(name, _)| name);
    match names.into_iter().find(|name| *name == stated) {
        Some(name) if is_there(name) => Some(name),
        Some(_) => fields.wrong("algorithm", "built without the feature redisson"),
        None => {
            let names = names.join("`, `");
            fields.wrong(
                "algorithm",
                format!("no algorithm is called {stated:?}; there are `{names}`"),
            )
        }
    }
}

/// Reads the quota: `limit` units per `period`.
fn quota(fields: &mut Fields) -> Option<Quota> {
    let limit: Option<u64> = fields.required("limit");
    let period = match fields.has("period") {
        true => fields.duration("period"),
        false => fields.required::<u64>("period").map(Duration::from_secs),
    };
    let (limit, period) = (limit?, period?);
    // If the period is wrong, every limit is rejected, so the period is named.
    let blamed = if Quota::try_new(1, period).is_err() { "period" } else { "limit" };
    fields.checked(blamed, Quota::try_new(limit, period))
}

/// Returns the wait that is this ratio of a store.
fn share(stored: Duration, ratio: f64) -> Duration {
    Duration::try_from_secs_f64(stored.as_secs_f64() * ratio).unwrap_or(Duration::MAX)
}

/// The names of the algorithms, each with the settings that only some algorithms have.
pub(super) const ALGORITHMS: [(&str, &[&str]); 9] = [
    ("token_bucket", &["burst", "max_debt"]),
    ("budget", &["burst", "max_debt", "max_hold"]),
    ("fixed_window", &["anchored"]),
    ("sliding_log", &["max_limit"]),
    ("sliding_window", &["cells"]),
    ("sliding_counter", &[]),
    ("smooth_bursty", &["burst", "max_debt", "max_burst", "start_empty", "wait_for_own_cost"]),
    ("smooth_warming_up", &["burst", "max_debt", "warm_up", "cold_factor", "wait_for_own_cost"]),
    ("redisson", &["burst", "rate_type", "keep_alive"]),
];

/// The algorithm that decides about the keys of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    Any(AnyAlgorithm),
    /// Java's limiter, on its own keys.
    #[cfg(feature = "redisson")]
    Redisson(Rate),
}

impl Choice {
    /// Returns true for Java's limiter, which decides separately from others.
    pub(super) fn is_javas(self) -> bool {
        match self {
            Choice::Any(_) => false,
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => true,
        }
    }
}

/// An algorithm with its own settings. Its horizon is not set yet.
struct OwnSettings {
    /// The quota with its burst.
    quota: Quota,
    choice: Choice,
    /// The time that its whole store takes to fill.
    stored: Duration,
    /// The field that sets the store.
    store: &'static str,
}

/// Reads the settings of the algorithm with this name, whose requests wait at most `max_wait` for
/// its store. `None` if a setting is wrong.
fn own_settings(
    fields: &mut Fields,
    name: &'static str,
    mut quota: Quota,
    max_wait: impl Fn(Duration) -> Duration,
) -> Option<OwnSettings> {
    let (_, own) = ALGORITHMS.iter().find(|(other, _)| *other == name)?;
    for setting in ALGORITHMS.iter().flat_map(|(_, settings)| *settings) {
        if !own.contains(setting) && fields.has(setting) {
            fields.refuse(setting, format!("a {name} has no such setting"));
        }
    }
    let (burst, period) = (fields.count("burst"), quota.period());
    let (mut stored, mut store) = (period, "limit");
    let algorithm: AnyAlgorithm = match name {
        "token_bucket" | "budget" => {
            if let Some(burst) = burst {
                quota = fields.checked("burst", quota.try_burst(burst))?;
                (stored, store) = (time_of(quota, burst), "burst");
            }
            match name {
                "budget" => {
                    let (max_hold, max_wait) = (fields.duration("max_hold"), max_wait(stored));
                    if max_hold.is_some_and(|time| time.is_zero() || time < max_wait) {
                        let why = "it must be above 0, and not shorter than max_wait";
                        return fields.wrong("max_hold", why);
                    }
                    let max_hold = max_hold.unwrap_or(max_wait.max(DEFAULT_HORIZON));
                    Budget::new(quota).max_hold(max_hold).into()
                }
                _ => TokenBucket::new(quota).into(),
            }
        }
        "fixed_window" => {
            let window = FixedWindow::new(quota);
            if fields.is_set("anchored") { window.anchored() } else { window }.into()
        }
        "sliding_log" => {
            let (log, max_limit) = (SlidingLog::new(quota), fields.count("max_limit"));
            max_limit.map_or(log, |units| log.max_limit(units)).into()
        }
        "sliding_window" => {
            let (window, cells) = (SlidingWindow::new(quota), fields.optional("cells"));
            if cells.is_some_and(|cells| !(1..=60).contains(&cells)) {
                return fields.wrong("cells", "it must be from 1 to 60");
            }
            cells.map_or(window, |cells| window.cells(cells)).into()
        }
        "sliding_counter" => SlidingCounter::new(quota).into(),
        "smooth_bursty" => {
            let stated = fields.duration("max_burst");
            if stated.is_some() && burst.is_some() {
                return fields.wrong("max_burst", "a row has burst or max_burst, not both");
            }
            (stored, store) = match (stated, burst) {
                (Some(time), _) => (time, "max_burst"),
                (_, Some(units)) => (time_of(quota, units), "burst"),
                _ => (stored, store),
            };
            let pace = SmoothBursty::new(quota).max_burst(stored);
            let pace = if fields.is_set("start_empty") { pace.start_empty() } else { pace };
            if fields.is_set("wait_for_own_cost") { pace.wait_for_own_cost() } else { pace }.into()
        }
        "smooth_warming_up" => {
            only_the_limit(fields, quota, burst, "what is stored follows from warm_up")?;
            let warm_up = fields.duration("warm_up");
            store = warm_up.map_or(store, |_| "warm_up");
            let mut pace = SmoothWarmingUp::new(quota, warm_up.unwrap_or(period));
            if let Some(factor) = fields.optional::<f64>("cold_factor") {
                if !(1.0..=1_000.0).contains(&factor) {
                    return fields.wrong("cold_factor", "it must be from 1 to 1000");
                }
                pace = pace.cold_factor(factor);
            }
            stored = pace.cache(1.0);
            if fields.is_set("wait_for_own_cost") { pace.wait_for_own_cost() } else { pace }.into()
        }
        #[cfg(feature = "redisson")]
        _ => {
            only_the_limit(fields, quota, burst, "Redisson has no burst")?;
            let choice = Choice::Redisson(redisson(fields, quota)?);
            return Some(OwnSettings { quota, choice, stored, store });
        }
        #[cfg(not(feature = "redisson"))]
        _ => return None,
    };
    Some(OwnSettings { quota, choice: Choice::Any(algorithm), stored, store })
}

/// Returns the time in which the quota refills `units` units, rounded up, since a smaller store
/// would not hold them.
fn time_of(quota: Quota, units: u64) -> Duration {
    let micros = quota.period().as_micros() * u128::from(units);
    let micros = micros.div_ceil(u128::from(quota.limit()));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Accepts a burst that equals the limit, which changes nothing, and rejects any other burst.
fn only_the_limit(fields: &mut Fields, quota: Quota, burst: Option<u64>, why: &str) -> Option<()> {
    match burst {
        Some(burst) if burst != quota.limit() => fields.wrong("burst", why),
        _ => Some(()),
    }
}

#[cfg(feature = "redisson")]
fn redisson(fields: &mut Fields, quota: Quota) -> Option<Rate> {
    let (limit, period) = (quota.limit(), quota.period());
    let rate = match fields.optional::<String>("rate_type").as_deref() {
        None | Some("overall") => Rate::overall(limit, period),
        Some("per_client") => Rate::per_client(limit, period),
        Some(_) => return fields.wrong("rate_type", "it must be `overall` or `per_client`"),
    };
    match fields.duration("keep_alive") {
        Some(time) if time < period => {
            fields.wrong("keep_alive", "it must not be shorter than the period")
        }
        Some(time) if millis(time).is_none() => {
            fields.wrong("keep_alive", "it must be whole milliseconds, up to 2^52")
        }
        time => Some(rate.keep_alive(time.unwrap_or_default())),
    }
}
