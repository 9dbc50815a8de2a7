//! The options: where to prove, and for how long.

use std::time::Duration;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(about = "Proves the promises of tower-sluice on a server of yours")]
pub(crate) struct Options {
    /// The server, cluster or sentinels, such as redis://127.0.0.1:6379.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// About how long it takes, 5 at most.
    #[arg(long, default_value = "2", value_parser = minutes)]
    minutes: Duration,
    /// The begin of the names of all keys, before a random part.
    #[arg(long, default_value = "sluice")]
    pub(crate) prefix: String,
    /// The processes that call at once.
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: u16,
    /// The callers in each process.
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) tasks: u16,
    /// Only the algorithms whose names begin so.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) only: String,
}

impl Options {
    /// A share of the time, in percent.
    pub(crate) fn share(&self, percent: u32) -> Duration {
        self.minutes * percent / 100
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.05..=5.0).contains(&minutes) => {
            Ok(Duration::from_secs_f64(60.0 * minutes))
        }
        _ => Err(String::from("not a number from 0.05 to 5")),
    }
}
