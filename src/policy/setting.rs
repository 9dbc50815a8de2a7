//! The algorithm that a row names, with its quota, and the wait that it may reserve.

use std::time::Duration;

use serde_json::{Map, Value};

use super::choice::{ALGORITHMS, Choice, Unhorizoned};
use super::fields::Fields;
use super::row::Row;
use crate::Quota;
use crate::algorithm::{Algorithm, AnyAlgorithm, DEFAULT_HORIZON, INEXACT, SmoothBursty};

/// The message about a cost that no key has room for.
const NEVER: &str =
    "no request of this cost is ever admitted: write a smaller cost, or a larger limit or burst";

/// An algorithm with the settings of its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The name, as the row writes it.
    pub(super) name: &'static str,
    pub(super) quota: Quota,
    pub(super) choice: Choice,
    pub(super) max_wait: Duration,
}

impl Setting {
    /// Reads it from the fields of a row. `None` if one of them is wrong.
    pub(super) fn read(fields: &mut Fields) -> Option<Self> {
        let name = algorithm(fields);
        let quota = quota(fields);
        let (own_wait, ratio) = (fields.duration("max_wait"), fields.ratio("cache_ratio"));
        if own_wait.is_some() && ratio.is_some() {
            fields.wrong::<()>("cache_ratio", "a row has max_wait or cache_ratio, not both");
        }
        let horizon = fields.duration("horizon");
        let read = |fields: &mut _| Unhorizoned::read(fields, name?, quota?);
        let Some((quota, made)) = read(fields) else {
            // Other errors of the row are reported as well.
            ALGORITHMS.iter().flat_map(|(_, settings)| *settings).for_each(|one| fields.skip(one));
            return None;
        };
        let max_wait = own_wait.unwrap_or_else(|| share(made.stored, ratio.unwrap_or_default()));
        // A wait that the row allows is one that can be reserved.
        let horizon = horizon.unwrap_or(max_wait.max(DEFAULT_HORIZON));
        let choice = made.with_horizon(fields, quota, horizon, max_wait)?;
        Some(Self { name: name?, quota, choice, max_wait })
    }

    /// The settings of its own algorithm that a row states, and the burst of a bucket.
    pub(super) fn stated(&self, row: &Row) -> Map<String, Value> {
        let own = ALGORITHMS.iter().find(|(name, _)| *name == self.name);
        let own = own.map_or(&[][..], |(_, own)| own);
        let is_own = |field: &String| field == "horizon" || own.contains(&&**field);
        let mut stated: Map<_, _> =
            row.fields().into_iter().filter(|(field, _)| is_own(field)).collect();
        if matches!(self.name, "token_bucket" | "budget") {
            stated.insert(String::from("burst"), self.quota.burst_size().into());
        }
        stated
    }

    /// The pace of a supplier's interface: `rate` calls per second, of which a second's are stored.
    pub(super) fn interface(fields: &mut Fields) -> Option<Self> {
        let rate = fields.required::<u64>("rate");
        let ratio = fields.ratio("cache").unwrap_or(0.5);
        let quota = match Quota::try_new(rate?, Duration::from_secs(1)) {
            Ok(quota) => quota,
            Err(error) => return fields.wrong("rate", error),
        };
        let pace = SmoothBursty::new(quota).wait_for_own_cost();
        let max_wait = pace.cache(ratio);
        let pace = pace.horizon(max_wait.max(DEFAULT_HORIZON));
        if let Err(error) = pace.rule(quota) {
            return fields.wrong("rate", error);
        }
        Some(Self { name: "smooth_bursty", quota, choice: Choice::Any(pace.into()), max_wait })
    }

    /// Checks that a request of `units` units can ever be admitted. The error says why not.
    pub(super) fn check_cost(&self, units: u64) -> Result<(), String> {
        match self.choice {
            Choice::Any(algorithm) => self.check_cost_under(algorithm, units),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) if units > self.quota.limit() => Err(NEVER.to_owned()),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => Ok(()),
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
                "a request of this cost waits for {wait} at least: write a smaller cost, or a longer {short}"
            ));
        }
        Ok(())
    }
}

/// The algorithm that a row names. Default: a token bucket.
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

/// `limit` units per `period`.
fn quota(fields: &mut Fields) -> Option<Quota> {
    let limit: Option<u64> = fields.required("limit");
    let period = match fields.has("period") {
        true => fields.duration("period"),
        false => fields.required::<u64>("period").map(Duration::from_secs),
    };
    match Quota::try_new(limit?, period?) {
        Ok(quota) => Some(quota),
        // With this period no limit is right.
        Err(error) if Quota::try_new(1, period?).is_err() => fields.wrong("period", error),
        Err(error) => fields.wrong("limit", error),
    }
}

/// The wait that takes this ratio of a store.
fn share(stored: Duration, ratio: f64) -> Duration {
    Duration::try_from_secs_f64(stored.as_secs_f64() * ratio).unwrap_or(Duration::MAX)
}
