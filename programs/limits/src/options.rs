//! The command line. Settings of an algorithm have the words of `replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_sluice_policies::parse_duration;

/// The rest of `--help`.
const MANUAL: &str = "\
`limits help COMMAND` has the options of a command. Others can read a command
line with `ps`, so write an address with a password into REDIS_URL.

Variables:
  REDIS_CA  A file in PEM with the authority that addresses with TLS are
            checked against, in place of the system's

Files:
  --policies FILE  The TOML file of policies that the application has

Examples:
  limits ls
  limits peek api alice --algorithm token_bucket --limit 100 --period 1min
  limits block api alice --for 10m --policies limits.toml
";

/// Looks at limits in Redis, and changes them key by key
#[derive(Debug, Parser)]
#[command(name = "limits", version)]
#[command(after_long_help = format!("{MANUAL}\n{}", command::EXIT_CODES))]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// The address: redis://, redis-cluster://, redis-sentinel://, and rediss.. with TLS.
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    #[arg(default_value = "redis://127.0.0.1:6379")]
    pub(crate) redis: String,
    /// The first part of all keys, as the application sets it [default: sluice].
    #[arg(long, global = true)]
    pub(crate) prefix: Option<String>,
    /// Print JSON, one object in a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the limiters, or the keys of one.
    Ls(Listing),
    /// Show the keys with the least left, refreshed.
    Top(Top),
    /// Show one key.
    Peek(Named),
    /// Follow one key: a line for each change.
    Watch(Watch),
    /// Give a key its whole quota again.
    Reset(Change),
    /// Refuse all charges of a key for a time.
    Block {
        #[command(flatten)]
        change: Change,
        /// How long, such as 10m or 1day.
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Duration,
    },
    /// Let charges of a key wait until a time is over, or refuse them.
    Pause {
        #[command(flatten)]
        change: Change,
        /// How long, such as 30s or 5min.
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Duration,
    },
    /// End a block and a pause.
    Unblock(Change),
    /// Give taken units of a key back.
    Grant {
        #[command(flatten)]
        change: Change,
        /// How many, at most.
        #[arg(long)]
        units: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// The limiter or the policy [default: all].
    pub(crate) limiter: Option<String>,
    #[command(flatten)]
    pub(crate) rule: RuleOptions,
    /// A limiter of several quotas: the number of the one to read, from 1 on.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8).map(usize::from))]
    pub(crate) quota: Option<usize>,
    /// Stop after so many keys [default: 100000; top: 10000].
    #[arg(long)]
    pub(crate) most: Option<usize>,
    /// Stop looking for keys after this time.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub(crate) time: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) listing: Listing,
    /// The pause between two rounds.
    #[arg(long, value_parser = parse_duration, default_value = "2s")]
    pub(crate) interval: Duration,
    /// End after so many rounds [default: never; 1 if the output is not a terminal].
    #[arg(long)]
    pub(crate) rounds: Option<u64>,
    /// The most rows.
    #[arg(long, default_value_t = 20)]
    pub(crate) rows: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The limiter or the policy.
    pub(crate) limiter: String,
    /// The key, as the application writes it. With --policies, its parts as a client sends them.
    #[arg(required = true)]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) rule: RuleOptions,
    /// The key is written as `ls` shows it: a hash stays as it is.
    #[arg(long)]
    pub(crate) stored: bool,
    /// The number of `Redis::buckets`, if the application sets it.
    #[arg(long)]
    pub(crate) buckets: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The pause between two looks.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    pub(crate) interval: Duration,
    /// End after so many looks [default: never].
    #[arg(long)]
    pub(crate) rounds: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Show the key that would be changed, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A state means something only under its algorithm and its quota.
#[derive(Debug, Args)]
pub(crate) struct RuleOptions {
    /// A TOML file of policies, which has the algorithm and the quota of each.
    #[arg(long, value_name = "FILE", conflicts_with = "algorithm")]
    pub(crate) policies: Option<PathBuf>,
    /// The algorithm of the limiter.
    #[arg(long, value_enum, requires = "limit")]
    pub(crate) algorithm: Option<Name>,
    /// The units in a period; concurrency: at the same time.
    #[arg(long, requires = "algorithm")]
    pub(crate) limit: Option<u64>,
    /// The period, such as 250us, 500ms, 1s or 7d. Not of concurrency and of a calendar.
    #[arg(long, requires = "algorithm")]
    pub(crate) period: Option<String>,
    /// The most units that may go at once [default: the limit].
    #[arg(long)]
    pub(crate) burst: Option<u64>,
    /// The longest wait that the algorithm reserves [default: 60s].
    #[arg(long)]
    pub(crate) horizon: Option<String>,
    /// budget, concurrency: how long a charge is held at least [default: 60s].
    #[arg(long)]
    pub(crate) max_hold: Option<String>,
    /// sliding_window: the cells of a period [default: 10].
    #[arg(long)]
    pub(crate) cells: Option<u64>,
    /// fixed_window: the window of a key begins with its first charge.
    #[arg(long)]
    pub(crate) anchored: bool,
    /// fixed_window: windows by a calendar, in place of a period: day, week, month or year.
    #[arg(long, value_name = "SPAN")]
    pub(crate) calendar: Option<String>,
    /// The time zone of the calendar, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "NAME", requires = "calendar")]
    pub(crate) time_zone: Option<String>,
    /// --calendar week: its first day [default: monday].
    #[arg(long, value_name = "DAY", requires = "calendar")]
    pub(crate) week_begins: Option<String>,
    /// --calendar month: its first day, 1 to 31 [default: 1].
    #[arg(long, value_name = "DAY", requires = "calendar")]
    pub(crate) month_begins: Option<u8>,
    /// smooth_warming_up: the time to warm up.
    #[arg(long, required_if_eq("algorithm", "smooth_warming_up"))]
    pub(crate) warm_up: Option<String>,
    /// smooth_warming_up: how many times as long a permit takes after a long rest [default: 3].
    #[arg(long)]
    pub(crate) cold_factor: Option<f64>,
    /// smooth_bursty: how long an idle limiter stores permits [default: 1s].
    #[arg(long)]
    pub(crate) max_burst: Option<String>,
    /// smooth_bursty, smooth_warming_up: each caller waits for its own permits.
    #[arg(long)]
    pub(crate) own_debt: bool,
    /// smooth_bursty: what a new key has stored [default: full].
    #[arg(long, value_enum)]
    pub(crate) start: Option<Start>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    Full,
    Empty,
}
