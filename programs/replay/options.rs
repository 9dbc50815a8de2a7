//! The options: the policy to try, and where to decide.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Budget, Concurrency, FixedWindow, SlidingWindow, SmoothBursty, SmoothWarmingUp,
};
use tower_sluice_policies::parse_duration;

use crate::Stop;

#[derive(Debug, Parser)]
#[command(about = "What would this policy have done to last night's traffic?")]
pub(crate) struct Options {
    /// The algorithm.
    #[arg(long, value_enum)]
    pub(crate) algorithm: Name,
    /// The units in a period. concurrency: the units at the same time.
    #[arg(long)]
    pub(crate) limit: u64,
    /// The period, such as 250us, 500ms, 1s or 7d. Not of concurrency.
    #[arg(long, value_parser = parse_duration)]
    period: Option<Duration>,
    /// The most units that may go at once [default: the limit].
    #[arg(long)]
    pub(crate) burst: Option<u64>,
    /// The longest delay of a charge [default: none].
    #[arg(long, value_parser = parse_duration)]
    max_wait: Option<Duration>,
    /// The longest wait that the algorithm reserves.
    #[arg(long, value_parser = horizon, default_value = "60s")]
    pub(crate) horizon: Duration,
    /// budget, concurrency: how long a charge is held at least, unless a line settles it [default:
    /// 60s].
    #[arg(long, value_parser = horizon)]
    max_hold: Option<Duration>,
    /// sliding_window: the cells of a period.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=60))]
    cells: Option<u8>,
    /// fixed_window: the window of a key begins with its first charge.
    #[arg(long)]
    anchored: bool,
    /// smooth_warming_up: the time to warm up.
    #[arg(long, value_parser = parse_duration)]
    warm_up: Option<Duration>,
    /// smooth_warming_up: how many times as long a permit takes after a long rest [default: 3].
    #[arg(long, value_parser = cold_factor)]
    cold_factor: Option<f64>,
    /// smooth_bursty: how long an idle limiter stores permits [default: 1s].
    #[arg(long, value_parser = parse_duration)]
    max_burst: Option<Duration>,
    /// smooth_bursty, smooth_warming_up: each caller waits for its own permits.
    #[arg(long)]
    own_debt: bool,
    /// Sets --max-wait in proportion to the stored permits [without a number: 0.5].
    #[arg(long, value_name = "X", num_args = 0..=1, default_missing_value = "0.5", value_parser = ratio, conflicts_with = "max_wait")]
    cache_ratio: Option<f64>,
    /// smooth_bursty: what a new key has stored [default: full].
    #[arg(long, value_enum)]
    start: Option<Start>,
    /// Decide in this Redis instead of in memory, under names that no other replay uses.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// Accept lines that are earlier than the line before.
    #[arg(long)]
    pub(crate) allow_clock_steps: bool,
}

/// The algorithms, by the names of their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Name {
    TokenBucket,
    Budget,
    Concurrency,
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
    SmoothBursty,
    SmoothWarmingUp,
    Redisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Start {
    Full,
    Empty,
}

impl Options {
    /// The quota of lines that bring none.
    pub(crate) fn quota(&self) -> Result<Quota, Stop> {
        let quota = match self.period {
            None => Quota::try_at_once(self.limit),
            Some(period) => Quota::try_new(self.limit, period)
                .and_then(|quota| quota.try_burst(self.burst.unwrap_or(self.limit))),
        };
        quota.map_err(|error| Stop::Asked(format!("--limit, --period, --burst: {error}")))
    }

    /// Fails if an option is not for the algorithm.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        use Name::{
            Budget, Concurrency, FixedWindow, SlidingWindow, SmoothBursty, SmoothWarmingUp,
        };
        if (self.algorithm == Concurrency) == self.period.is_some() {
            let needs = if self.period.is_none() { "needs --period" } else { "has no --period" };
            return Err(Stop::Asked(format!("this algorithm {needs}")));
        }
        if self.algorithm == Concurrency && self.burst.is_some() {
            return Err(Stop::Asked(String::from("--burst is not for this algorithm")));
        }
        let options: [(&str, bool, &[Name]); 8] = [
            ("--max-hold", self.max_hold.is_some(), &[Budget, Concurrency]),
            ("--cells", self.cells.is_some(), &[SlidingWindow]),
            ("--anchored", self.anchored, &[FixedWindow]),
            ("--warm-up", self.warm_up.is_some(), &[SmoothWarmingUp]),
            ("--cold-factor", self.cold_factor.is_some(), &[SmoothWarmingUp]),
            ("--max-burst", self.max_burst.is_some(), &[SmoothBursty]),
            ("--own-debt", self.own_debt, &[SmoothBursty, SmoothWarmingUp]),
            ("--start empty", self.start == Some(Start::Empty), &[SmoothBursty]),
        ];
        for (option, given, of) in options {
            if given && !of.contains(&self.algorithm) {
                return Err(Stop::Asked(format!("{option} is not for this algorithm")));
            }
        }
        Ok(())
    }

    pub(crate) fn budget(&self, quota: Quota) -> Budget {
        let budget = Budget::new(quota).horizon(self.horizon);
        self.max_hold.map_or(budget, |time| budget.max_hold(time))
    }

    pub(crate) fn concurrency(&self, quota: Quota) -> Concurrency {
        let limit = Concurrency::of(quota).horizon(self.horizon);
        self.max_hold.map_or(limit, |time| limit.max_hold(time))
    }

    pub(crate) fn fixed_window(&self, quota: Quota) -> FixedWindow {
        let window = FixedWindow::new(quota).horizon(self.horizon);
        if self.anchored { window.anchored() } else { window }
    }

    pub(crate) fn sliding_window(&self, quota: Quota) -> SlidingWindow {
        let window = SlidingWindow::new(quota).horizon(self.horizon);
        self.cells.map_or(window, |cells| window.cells(cells))
    }

    pub(crate) fn smooth_bursty(&self, quota: Quota) -> SmoothBursty {
        let mut pace = SmoothBursty::new(quota).horizon(self.horizon);
        if let Some(burst) = self.max_burst {
            pace = pace.max_burst(burst);
        }
        if self.own_debt {
            pace = pace.wait_for_own_cost();
        }
        if self.start == Some(Start::Empty) { pace.start_empty() } else { pace }
    }

    pub(crate) fn smooth_warming_up(&self, quota: Quota) -> Result<SmoothWarmingUp, Stop> {
        let Some(warm_up) = self.warm_up else {
            return Err(Stop::Asked(String::from("smooth_warming_up needs --warm-up")));
        };
        let mut pace = SmoothWarmingUp::new(quota, warm_up).horizon(self.horizon);
        if let Some(factor) = self.cold_factor {
            pace = pace.cold_factor(factor);
        }
        Ok(if self.own_debt { pace.wait_for_own_cost() } else { pace })
    }

    /// The longest delay of lines that state none. `bucket` returns what a ratio of the
    /// bucket is in time.
    pub(crate) fn max_wait(&self, bucket: impl Fn(f64) -> Duration) -> Duration {
        self.cache_ratio.map(bucket).or(self.max_wait).unwrap_or_default()
    }
}

fn cold_factor(text: &str) -> Result<f64, String> {
    number_within(text, 1.0, 1_000.0)
}

fn ratio(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e6)
}

fn number_within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("not a number from {least} to {most}")),
    }
}

fn horizon(text: &str) -> Result<Duration, String> {
    let horizon = parse_duration(text)?;
    let year = Duration::from_secs(365 * 86_400);
    if horizon > year { Err(String::from("more than 365 days")) } else { Ok(horizon) }
}
