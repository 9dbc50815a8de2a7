//! The options: the policy to try, and where to decide.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use tower_sluice::Quota;
use tower_sluice::algorithm::{
    Budget, Calendar, Concurrency, FixedWindow, QuotaError, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, Weekday,
};
use tower_sluice_policies::parse_duration;

use command::Stop;

/// The rest of `--help`.
const MANUAL: &str = r#"
Input:
  JSON lines, such as {"t":1767225600000000,"key":"alice","cost":1}. Times are
  microseconds. A line may also have max_wait, limit, period, burst and op.

Output:
  A JSON line for each on stdout, such as {"line":1,"verdict":"allow",
  "wait_us":0,"remaining":9,"reset_after_us":100000}, and a summary on stderr.
  Verdicts are allow, wait, deny, never, error and done.

Variables:
  REDIS_CA  A file in PEM with the authority that addresses with TLS are
            checked against, in place of the system's

Examples:
  replay --algorithm token_bucket --limit 10 --period 1s <traffic.jsonl
  replay --algorithm fixed_window --limit 1000 --calendar day <traffic.jsonl
  replay --algorithm concurrency --limit 10 --max-hold 60s <traffic.jsonl
"#;

/// What would this policy have done to last night's traffic?
#[derive(Debug, Parser)]
#[command(name = "replay", version)]
#[command(after_long_help = format!("{}\n{}", MANUAL.trim_start(), command::EXIT_CODES))]
pub(crate) struct Options {
    /// The algorithm.
    #[arg(long, value_enum)]
    pub(crate) algorithm: Name,
    /// The units in a period. concurrency: the units at the same time.
    #[arg(long)]
    pub(crate) limit: u64,
    /// The period, such as 250us, 500ms, 1s or 7d. Not of concurrency and of a calendar.
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
    /// fixed_window: windows by a calendar, in place of a period.
    #[arg(long, value_enum, conflicts_with_all = ["period", "burst", "anchored"])]
    calendar: Option<Span>,
    /// The time zone of the calendar, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "NAME")]
    time_zone: Option<String>,
    /// --calendar week: its first day [default: monday].
    #[arg(long, value_name = "DAY")]
    week_begins: Option<Weekday>,
    /// --calendar month: its first day, 1 to 31 [default: 1].
    #[arg(long, value_name = "DAY", value_parser = clap::value_parser!(u8).range(1..=31))]
    month_begins: Option<u8>,
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
    /// Block a key that is refused so often [with --ban-window and --ban-time].
    #[arg(long, value_name = "REFUSALS", requires_all = ["ban_window", "ban_time"])]
    ban_after: Option<u64>,
    /// The time in which these refusals count.
    #[arg(long, value_parser = parse_duration, requires = "ban_after")]
    ban_window: Option<Duration>,
    /// How long the key is blocked.
    #[arg(long, value_parser = parse_duration, requires = "ban_after")]
    ban_time: Option<Duration>,
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
enum Span {
    Day,
    Week,
    Month,
    Year,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Start {
    Full,
    Empty,
}

impl Options {
    /// The quota of lines that bring none.
    pub(crate) fn quota(&self) -> Result<Quota, Stop> {
        if let Some(calendar) = self.calendar()? {
            return calendar.try_quota(self.limit).map_err(invalid_limit);
        }
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
        if (self.algorithm == Concurrency || self.calendar.is_some()) == self.period.is_some() {
            let needs = if self.period.is_none() { "needs --period" } else { "has no --period" };
            return Err(Stop::Asked(format!("this algorithm {needs}")));
        }
        if self.algorithm == Concurrency && self.burst.is_some() {
            return Err(Stop::Asked(String::from("--burst is not for this algorithm")));
        }
        if self.max_hold == Some(Duration::ZERO) {
            return Err(Stop::Asked(String::from("--max-hold must be above 0")));
        }
        let options: [(&str, bool, &[Name]); 9] = [
            ("--max-hold", self.max_hold.is_some(), &[Budget, Concurrency]),
            ("--cells", self.cells.is_some(), &[SlidingWindow]),
            ("--anchored", self.anchored, &[FixedWindow]),
            ("--calendar", self.calendar.is_some(), &[FixedWindow]),
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

    pub(crate) fn fixed_window(&self, quota: Quota) -> Result<FixedWindow, Stop> {
        let window = match self.calendar()? {
            Some(calendar) => {
                FixedWindow::try_calendar(quota.limit(), calendar).map_err(invalid_limit)?
            }
            None => FixedWindow::new(quota),
        };
        let window = window.horizon(self.horizon);
        Ok(if self.anchored { window.anchored() } else { window })
    }

    fn calendar(&self) -> Result<Option<Calendar>, Stop> {
        let options = [
            ("--time-zone", self.time_zone.is_some(), self.calendar.is_some()),
            ("--week-begins", self.week_begins.is_some(), self.calendar == Some(Span::Week)),
            ("--month-begins", self.month_begins.is_some(), self.calendar == Some(Span::Month)),
        ];
        for (option, given, fits) in options {
            if given && !fits {
                let why = format!("{option} is not for this --calendar, or for none");
                return Err(Stop::Asked(why));
            }
        }
        let Some(span) = self.calendar else { return Ok(None) };
        let calendar = match span {
            Span::Day => Calendar::day(),
            Span::Week => Calendar::week(self.week_begins.unwrap_or(Weekday::Monday)),
            Span::Month => Calendar::month_from(self.month_begins.unwrap_or(1)),
            Span::Year => Calendar::year(),
        };
        let unknown = |error| Stop::Asked(format!("--time-zone: {error}"));
        let zone = self.time_zone.as_deref().map_or(Ok(calendar), |name| calendar.time_zone(name));
        zone.map(Some).map_err(unknown)
    }

    /// The refusals of a ban, and its time.
    pub(crate) fn ban(&self) -> Result<Option<(Quota, Duration)>, Stop> {
        let Some((refusals, window)) = self.ban_after.zip(self.ban_window) else { return Ok(None) };
        let invalid = |error| Stop::Asked(format!("--ban-after, --ban-window: {error}"));
        let refusals = Quota::try_new(refusals.max(1), window).map_err(invalid)?;
        Ok(self.ban_time.map(|time| (refusals, time)))
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

fn invalid_limit(error: QuotaError) -> Stop {
    Stop::Asked(format!("--limit: {error}"))
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
