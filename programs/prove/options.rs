//! The options: where to prove, and for how long.

use std::time::Duration;

use clap::Parser;

use support::trial::algorithms::ALGORITHMS;
use support::trial::twins::TWINS;

/// The rest of `--help`.
const MANUAL: &str = "\
It loads the server as much as its processes can. All its keys begin with
PREFIX:prove- and a random number, and are deleted at the end, also after Ctrl-C.
Without the right SCAN they stay, empty, for ten minutes.

Variables:
  REDIS_CA  A file in PEM with the authority that addresses with TLS are
            checked against, in place of the system's

Signals:
  TERM, INT  Deletes its keys, prints what was checked, and ends with code 2

Examples:
  prove redis://127.0.0.1:6379
  prove redis-cluster://10.0.0.1:7000 --minutes 1 --only token_bucket

Exit codes:
  0  All promises are kept
  1  A promise is broken
  2  A wrong option or address, no connection, or a signal
  3  Calls had no answer, so that a check proves nothing
  4  Not all was checked: five minutes were over, or the server has no memory";

/// Proves the promises of tower-sluice on a server of yours
#[derive(Debug, Parser)]
#[command(name = "prove", version, after_long_help = MANUAL)]
pub(crate) struct Options {
    /// The server, cluster or sentinels, such as redis://127.0.0.1:6379.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// About how long it takes, 4 at most.
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
    #[arg(value_parser = begin_of_a_name)]
    pub(crate) only: String,
}

impl Options {
    /// A share of the time, in percent.
    pub(crate) fn share(&self, percent: u32) -> Duration {
        self.minutes * percent / 100
    }
}

/// Reads the time for what may last longer or shorter. The other checks need the rest of the five
/// minutes.
fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.05..=4.0).contains(&minutes) => {
            Ok(Duration::from_secs_f64(60.0 * minutes))
        }
        _ => Err(String::from("not a number from 0.05 to 4")),
    }
}

fn begin_of_a_name(text: &str) -> Result<String, String> {
    let algorithms = ALGORITHMS.iter().map(|algorithm| algorithm.name);
    let mut names: Vec<&str> = algorithms.chain(TWINS.iter().map(|twins| twins.name)).collect();
    names.sort_unstable();
    names.dedup();
    match names.iter().any(|name| name.starts_with(text)) {
        true => Ok(text.to_owned()),
        false => Err(format!("no name begins so; the names are {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nothing_has_is_refused() {
        let only = |name: &str| {
            let options = Options::try_parse_from(["prove", "redis://127.0.0.1", "--only", name]);
            options.map(|options| options.only).map_err(|error| error.to_string())
        };
        assert_eq!(only("fixed"), Ok("fixed".to_owned()));
        assert_eq!(only("several"), Ok("several".to_owned()));
        let error = only("fixed_windows").unwrap_err();
        assert!(error.contains("fixed_windows") && error.contains("fixed_window,"), "{error}");
        assert!(Options::try_parse_from(["prove", "redis://127.0.0.1"]).is_ok());
    }
}
