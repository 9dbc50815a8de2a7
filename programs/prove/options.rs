//! The options: where to prove, and for how long.

use std::time::Duration;

use clap::Parser;

use support::trial::algorithms::ALGORITHMS;
use support::trial::twins::TWINS;

#[derive(Debug, Parser)]
#[command(about = "Proves the promises of tower-sluice on a server of yours")]
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
