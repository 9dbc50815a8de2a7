//! The algorithm of a policy, with the settings that are its own.

use std::time::Duration;

use super::fields::Fields;
use crate::Quota;
use crate::algorithm::DEFAULT_HORIZON;
use crate::algorithm::{
    Algorithm, AnyAlgorithm, Budget, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};
#[cfg(feature = "redisson")]
use crate::redisson::{PermitLog, Rate};

/// The names of algorithms, each with the settings that not every algorithm has.
pub(super) const ALGORITHMS: [(&str, &[&str]); 9] = [
    ("token_bucket", &["burst"]),
    ("budget", &["burst", "max_hold"]),
    ("fixed_window", &["anchored"]),
    ("sliding_log", &["max_limit"]),
    ("sliding_window", &["cells"]),
    ("sliding_counter", &[]),
    ("smooth_bursty", &["burst", "max_burst", "start_empty", "wait_for_own_cost"]),
    ("smooth_warming_up", &["burst", "warm_up", "cold_factor", "wait_for_own_cost"]),
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

/// An algorithm without its horizon, the longest wait that it reserves.
pub(super) struct Unhorizoned {
    kind: Kind,
    /// The time that its whole store takes to fill.
    pub(super) stored: Duration,
    /// The field that sets the store.
    store: &'static str,
}

enum Kind {
    Bucket,
    Held {
        max_hold: Option<Duration>,
    },
    Fixed {
        anchored: bool,
    },
    Log {
        max_limit: Option<u64>,
    },
    Cells(Option<u8>),
    Counter,
    Bursty(SmoothBursty),
    Warming(SmoothWarmingUp),
    #[cfg(feature = "redisson")]
    Redisson(Rate),
}

impl Unhorizoned {
    /// Reads the settings of the algorithm with this name, and the quota with its burst. `None` if
    /// one of them is wrong.
    pub(super) fn read(
        fields: &mut Fields,
        name: &'static str,
        quota: Quota,
    ) -> Option<(Quota, Self)> {
        let (_, own) = ALGORITHMS.iter().find(|(other, _)| *other == name)?;
        for setting in ALGORITHMS.iter().flat_map(|(_, settings)| *settings) {
            if !own.contains(setting) && fields.has(setting) {
                fields.refuse(setting, format!("a {name} has none"));
            }
        }
        let bursts = fields.count("burst");
        let (mut quota, period) = (quota, quota.period());
        let (mut stored, mut store) = (period, "limit");
        let kind = match name {
            "token_bucket" | "budget" => {
                if let Some(burst) = bursts {
                    quota = match quota.try_burst(burst) {
                        Ok(quota) => quota,
                        Err(error) => return fields.wrong("burst", error),
                    };
                    stored = time_of(quota, burst);
                }
                match name {
                    "budget" => Kind::Held { max_hold: fields.duration("max_hold") },
                    _ => Kind::Bucket,
                }
            }
            "fixed_window" => {
                Kind::Fixed { anchored: fields.optional("anchored").unwrap_or_default() }
            }
            "sliding_log" => Kind::Log { max_limit: fields.count("max_limit") },
            "sliding_window" => {
                let cells = fields.optional("cells");
                if cells.is_some_and(|cells| !(1..=60).contains(&cells)) {
                    return fields.wrong("cells", "there are 1 to 60 cells");
                }
                Kind::Cells(cells)
            }
            "sliding_counter" => Kind::Counter,
            "smooth_bursty" => {
                let stated = fields.duration("max_burst");
                if stated.is_some() && bursts.is_some() {
                    return fields.wrong("max_burst", "a row has burst or max_burst, not both");
                }
                stored = stated.unwrap_or_else(|| bursts.map_or(period, |all| time_of(quota, all)));
                store = match (stated, bursts) {
                    (Some(_), _) => "max_burst",
                    (_, Some(_)) => "burst",
                    _ => store,
                };
                let mut pace = SmoothBursty::new(quota).max_burst(stored);
                if fields.optional("start_empty").unwrap_or_default() {
                    pace = pace.start_empty();
                }
                if fields.optional("wait_for_own_cost").unwrap_or_default() {
                    pace = pace.wait_for_own_cost();
                }
                Kind::Bursty(pace)
            }
            "smooth_warming_up" => {
                only_the_limit(fields, quota, bursts, "what is stored follows from warm_up")?;
                let warm_up = fields.duration("warm_up");
                store = warm_up.map_or(store, |_| "warm_up");
                let warm_up = warm_up.unwrap_or(period);
                let mut pace = SmoothWarmingUp::new(quota, warm_up);
                if let Some(factor) = fields.optional::<f64>("cold_factor") {
                    if !(1.0..=1_000.0).contains(&factor) {
                        return fields.wrong("cold_factor", "it is from 1 to 1000");
                    }
                    pace = pace.cold_factor(factor);
                }
                if fields.optional("wait_for_own_cost").unwrap_or_default() {
                    pace = pace.wait_for_own_cost();
                }
                stored = pace.cache(1.0);
                Kind::Warming(pace)
            }
            #[cfg(feature = "redisson")]
            _ => {
                only_the_limit(fields, quota, bursts, "Redisson has no burst")?;
                Kind::Redisson(redisson(fields, quota)?)
            }
            #[cfg(not(feature = "redisson"))]
            _ => return None,
        };
        Some((quota, Self { kind, stored, store }))
    }

    /// The algorithm, which reserves no further ahead than `horizon`. Its requests wait for
    /// `max_wait` at most.
    pub(super) fn with_horizon(
        self,
        fields: &mut Fields,
        quota: Quota,
        horizon: Duration,
        max_wait: Duration,
    ) -> Option<Choice> {
        let any: AnyAlgorithm = match self.kind {
            Kind::Bucket => TokenBucket::new(quota).horizon(horizon).into(),
            Kind::Held { max_hold } => {
                if max_hold.is_some_and(|time| time.is_zero() || time < max_wait) {
                    return fields.wrong("max_hold", "it is above 0, and no shorter than max_wait");
                }
                let max_hold = max_hold.unwrap_or(max_wait.max(DEFAULT_HORIZON));
                Budget::new(quota).horizon(horizon).max_hold(max_hold).into()
            }
            Kind::Fixed { anchored } => {
                let window = FixedWindow::new(quota).horizon(horizon);
                if anchored { window.anchored() } else { window }.into()
            }
            Kind::Log { max_limit } => {
                let log = SlidingLog::new(quota).horizon(horizon);
                max_limit.map_or(log, |units| log.max_limit(units)).into()
            }
            Kind::Cells(cells) => {
                let window = SlidingWindow::new(quota).horizon(horizon);
                cells.map_or(window, |cells| window.cells(cells)).into()
            }
            Kind::Counter => SlidingCounter::new(quota).horizon(horizon).into(),
            Kind::Bursty(pace) => pace.horizon(horizon).into(),
            Kind::Warming(pace) => pace.horizon(horizon).into(),
            #[cfg(feature = "redisson")]
            Kind::Redisson(rate) => {
                if let Err(error) = PermitLog::new(quota).rule(quota) {
                    return fields.wrong("period", error);
                }
                return Some(Choice::Redisson(rate));
            }
        };
        match any.rule(quota) {
            Ok(_) => Some(Choice::Any(any)),
            Err(error) => fields.wrong(self.store, error),
        }
    }
}

/// Returns the time in which the quota refills `units` units, rounded up: a store of less would not
/// hold them.
fn time_of(quota: Quota, units: u64) -> Duration {
    let micros = quota.period().as_micros() * u128::from(units);
    let micros = micros.div_ceil(u128::from(quota.limit()));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Accepts a burst that is equal to the limit, which changes nothing, and refuses every other.
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
        Some(_) => return fields.wrong("rate_type", "it is `overall` or `per_client`"),
    };
    match fields.duration("keep_alive") {
        Some(time) if time < period => {
            fields.wrong("keep_alive", "it is no shorter than the period")
        }
        time => Some(rate.keep_alive(time.unwrap_or_default())),
    }
}
