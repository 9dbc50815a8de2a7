//! The algorithm of a row with its settings, its quota, and its longest wait.

use std::num::NonZeroU64;
use std::time::Duration;

use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Algorithm, AnyAlgorithm, Budget, Concurrency, FixedWindow, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
#[cfg(feature = "calendar")]
use tower_sluice::algorithm::{Calendar, Weekday};
#[cfg(feature = "redisson")]
use tower_sluice_redisson::{PermitLog, Rate};

#[cfg(feature = "redisson")]
use super::chosen_algorithm::JavaRateType;
use super::chosen_algorithm::{CalendarSpan, Choice, Name};
use super::fields::Fields;
use super::values::Span;
use super::written::Written;

/// The longest wait that an algorithm reserves unless its row says more.
const DEFAULT_HORIZON: Duration = Duration::from_secs(60);

/// The message about a cost that can never fit.
const NEVER: &str =
    "no request of this cost is ever admitted: write a smaller cost, or a larger limit or burst";

/// The same, if each request leaves units free.
const NEVER_BESIDE: &str = "no request of this cost is ever admitted, which also leaves keep_free \
                            units: write a smaller one of both, or a larger limit or burst";

/// An algorithm that follows its quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) quota: Quota,
    pub(crate) choice: Choice,
    pub(crate) max_wait: Duration,
    /// The units that each request leaves free.
    pub(crate) keep_free: u64,
}

/// The time in which an empty store fills, and the field that sets it.
type FillTime = (Duration, &'static str);

impl Setting {
    /// Makes the algorithm of a row. `None` if a field is wrong.
    pub(crate) fn of(row: &Written, fields: &mut Fields) -> Option<Self> {
        let (name, own) = row.algorithm.written();
        for setting in Name::OWN.iter().copied().flatten() {
            if !own.contains(setting) && fields.valid.remove(*setting).is_some() {
                fields.wrong::<()>(setting, format!("a {name} has no such setting"));
            }
        }
        let quota = quota(row, fields);
        let ratio = fields.within("cache_ratio", row.cache_ratio, [0, 1_000]);
        if row.max_wait.is_some() && ratio.is_some() {
            fields.wrong::<()>("cache_ratio", "a row has max_wait or cache_ratio, not both");
        }
        let max_wait = |stored: Duration| {
            let share = stored.as_secs_f64() * ratio.unwrap_or_default();
            let share = Duration::try_from_secs_f64(share).unwrap_or(Duration::MAX);
            row.max_wait.map_or(share, |Span(wait)| wait)
        };
        let (quota, algorithm, (stored, store)) = algorithm(row, quota?, max_wait, fields)?;
        let max_wait = max_wait(stored);
        let choice = match algorithm {
            Choice::Any(algorithm) => {
                // By default, the horizon covers the `max_wait` of the row.
                let longest = max_wait.max(DEFAULT_HORIZON);
                let algorithm = algorithm.with_horizon(row.horizon.map_or(longest, |own| own.0));
                let debt = row.max_debt.map(|Span(time)| algorithm.with_max_debt(time));
                let algorithm = debt.unwrap_or(algorithm);
                fields.checked(store, algorithm.rule(quota))?;
                Choice::Any(algorithm)
            }
            #[cfg(feature = "redisson")]
            javas => javas,
        };
        let most = match choice {
            Choice::Any(algorithm) => algorithm.reported(0, quota, 0).burst_size(),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) if row.keep_free.is_some() => {
                return fields.wrong("keep_free", "redisson leaves no units free");
            }
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => quota.limit(),
        };
        let keep_free = row.keep_free.map_or(0, |kept| kept.of(most));
        Some(Self { quota, choice, max_wait, keep_free })
    }

    /// Checks that a request of `units` units can ever be admitted. The error says why not.
    pub(crate) fn check_cost(&self, units: u64) -> Result<(), String> {
        let algorithm = match self.choice {
            Choice::Any(algorithm) => algorithm,
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) if units > self.quota.limit() => return Err(NEVER.to_owned()),
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) if units > u64::from(u32::MAX) => {
                return Err(String::from("a request has at most 4,294,967,295 permits"));
            }
            #[cfg(feature = "redisson")]
            Choice::Redisson(_) => return Ok(()),
        };
        let rule = algorithm.rule(self.quota).map_err(|error| error.to_string())?;
        if self.quota.is_none() {
            // A suspended plan: that no request is admitted is meant.
            return Ok(());
        }
        let never = if self.keep_free > 0 { NEVER_BESIDE } else { NEVER };
        let kept = [i64::try_from(self.keep_free).map_err(|_| never)?];
        let fits = |units: &i64| AnyAlgorithm::fit_keeping(&rule, None, 0, *units, &kept).is_some();
        let units = i64::try_from(units).ok().filter(fits).ok_or(never)?;
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

/// Makes the quota: `limit` units per `period`, or at the same time.
fn quota(row: &Written, fields: &mut Fields) -> Option<Quota> {
    if row.algorithm == Name::Concurrency {
        if row.period.is_some() {
            return fields.wrong("period", "a concurrency has no period");
        }
        let limit = fields.required("limit", row.limit)?;
        return fields.checked("limit", Quota::try_at_once(limit));
    }
    if let Some(span) = row.calendar.filter(|_| row.algorithm == Name::FixedWindow) {
        return calendar_quota(row, span, fields);
    }
    let (limit, period) =
        (fields.required("limit", row.limit), fields.required("period", row.period));
    let (limit, Span(period)) = limit.zip(period)?;
    // If the period is wrong, every limit is rejected, so the period is named.
    let blamed = if Quota::try_new(1, period).is_err() { "period" } else { "limit" };
    fields.checked(blamed, Quota::try_new(limit, period))
}

/// Makes the algorithm of a row, whose requests wait at most `max_wait` for its store. Its horizon
/// and its debts are not set yet. `None` if a setting is wrong.
fn algorithm(
    row: &Written,
    mut quota: Quota,
    max_wait: impl Fn(Duration) -> Duration,
    fields: &mut Fields,
) -> Option<(Quota, Choice, FillTime)> {
    let period = quota.period();
    let burst = row.burst.map(NonZeroU64::get);
    let mut store: FillTime = (period, "limit");
    let algorithm: AnyAlgorithm = match row.algorithm {
        Name::TokenBucket | Name::Budget => {
            if let Some(burst) = burst {
                quota = fields.checked("burst", quota.try_burst(burst))?;
                store = (quota.time_of(burst), "burst");
            }
            if row.algorithm == Name::TokenBucket {
                TokenBucket::new(quota).into()
            } else {
                Budget::new(quota).max_hold(max_hold(row, max_wait(store.0), fields)?).into()
            }
        }
        Name::Concurrency => {
            Concurrency::of(quota).max_hold(max_hold(row, Duration::ZERO, fields)?).into()
        }
        Name::FixedWindow => {
            let is_of = |span| row.calendar == Some(span);
            let own = [
                ("anchored", row.anchored, row.calendar.is_none()),
                ("time_zone", row.time_zone.is_some(), row.calendar.is_some()),
                ("week_begins", row.week_begins.is_some(), is_of(CalendarSpan::Week)),
                ("month_begins", row.month_begins.is_some(), is_of(CalendarSpan::Month)),
            ];
            if let Some((field, ..)) = own.into_iter().find(|(_, given, fits)| *given && !fits) {
                return fields.wrong(field, "it does not fit the calendar of the row");
            }
            let window = match row.calendar {
                None => FixedWindow::new(quota),
                #[cfg(feature = "calendar")]
                Some(span) => {
                    let window =
                        FixedWindow::try_calendar(quota.limit(), calendar(row, span, fields)?);
                    fields.checked("limit", window)?
                }
                #[cfg(not(feature = "calendar"))]
                Some(_) => return None, // `quota` found it.
            };
            if row.anchored { window.anchored() } else { window }.into()
        }
        Name::SlidingLog => {
            let log = SlidingLog::new(quota);
            row.max_limit.map_or(log, |units| log.max_limit(units.get())).into()
        }
        Name::SlidingWindow => {
            let window = SlidingWindow::new(quota);
            if row.cells.is_some_and(|cells| !(1..=60).contains(&cells)) {
                return fields.wrong("cells", "it must be from 1 to 60");
            }
            row.cells.map_or(window, |cells| window.cells(cells)).into()
        }
        Name::SlidingCounter => SlidingCounter::new(quota).into(),
        Name::SmoothBursty => {
            store = match (row.max_burst, burst) {
                (Some(_), Some(_)) => {
                    return fields.wrong("max_burst", "a row has burst or max_burst, not both");
                }
                (Some(Span(time)), _) => (time, "max_burst"),
                (_, Some(units)) => (quota.time_of(units), "burst"),
                _ => store,
            };
            let pace = SmoothBursty::new(quota).max_burst(store.0);
            let pace = if row.start_empty { pace.start_empty() } else { pace };
            if row.wait_for_own_cost { pace.wait_for_own_cost() } else { pace }.into()
        }
        // A burst that equals the limit changes nothing.
        Name::SmoothWarmingUp | Name::Redisson if burst.is_some_and(|own| own != quota.limit()) => {
            return fields.wrong("burst", "this algorithm has no burst but the limit");
        }
        Name::SmoothWarmingUp => {
            let warm_up = row.warm_up.map_or(period, |Span(time)| time);
            let factor = fields.within("cold_factor", row.cold_factor, [1, 1_000]);
            let pace = SmoothWarmingUp::new(quota, warm_up);
            let pace = factor.map_or(pace, |factor| pace.cold_factor(factor));
            store = (pace.cache(1.0), row.warm_up.map_or("limit", |_| "warm_up"));
            if row.wait_for_own_cost { pace.wait_for_own_cost() } else { pace }.into()
        }
        #[cfg(feature = "redisson")]
        Name::Redisson if quota.is_none() => {
            return fields.wrong("limit", "a rate of redisson is at least 1");
        }
        #[cfg(feature = "redisson")]
        Name::Redisson => {
            let rate = match row.rate_type {
                JavaRateType::Overall => Rate::overall(quota.limit(), period),
                JavaRateType::PerClient => Rate::per_client(quota.limit(), period),
            };
            let Span(keep_alive) = row.keep_alive.unwrap_or(Span(Duration::ZERO));
            if row.keep_alive.is_some() && keep_alive < period {
                return fields.wrong("keep_alive", "it must not be shorter than the period");
            }
            fields.checked("period", PermitLog::new(rate).map(drop))?;
            let rate = rate.keep_alive(keep_alive);
            fields.checked("keep_alive", PermitLog::new(rate).map(drop))?;
            return Some((quota, Choice::Redisson(rate), store));
        }
        #[cfg(not(feature = "redisson"))]
        Name::Redisson => return fields.wrong("algorithm", "built without the feature redisson"),
    };
    Some((quota, Choice::Any(algorithm), store))
}

/// Makes the quota of a row with a calendar.
#[cfg(feature = "calendar")]
fn calendar_quota(row: &Written, span: CalendarSpan, fields: &mut Fields) -> Option<Quota> {
    if row.period.is_some() {
        return fields.wrong("period", "a row has period or calendar, not both");
    }
    let limit = fields.required("limit", row.limit);
    let (calendar, limit) = calendar(row, span, fields).zip(limit)?;
    fields.checked("limit", calendar.try_quota(limit))
}

#[cfg(not(feature = "calendar"))]
fn calendar_quota(_: &Written, _: CalendarSpan, fields: &mut Fields) -> Option<Quota> {
    fields.wrong("calendar", "built without the feature calendar")
}

/// Makes the calendar of a row.
#[cfg(feature = "calendar")]
fn calendar(row: &Written, span: CalendarSpan, fields: &mut Fields) -> Option<Calendar> {
    let calendar = match span {
        CalendarSpan::Day => Calendar::day(),
        CalendarSpan::Week => {
            let begins = row.week_begins.as_deref().unwrap_or("monday");
            Calendar::week(fields.checked("week_begins", begins.parse::<Weekday>())?)
        }
        CalendarSpan::Month => match row.month_begins.unwrap_or(1) {
            day @ 1..=31 => Calendar::month_from(day),
            _ => return fields.wrong("month_begins", "it must be from 1 to 31"),
        },
        CalendarSpan::Year => Calendar::year(),
    };
    let name = row.time_zone.as_deref();
    name.map_or(Some(calendar), |name| fields.checked("time_zone", calendar.time_zone(name)))
}

/// Returns the shortest time for which a charge is held that waits for `longest`.
fn max_hold(row: &Written, longest: Duration, fields: &mut Fields) -> Option<Duration> {
    let hold = row.max_hold.map_or(longest.max(DEFAULT_HORIZON), |Span(time)| time);
    if hold.is_zero() || hold < longest {
        return fields.wrong("max_hold", "it must be above 0, and not shorter than max_wait");
    }
    Some(hold)
}
