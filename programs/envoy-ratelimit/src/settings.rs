//! The settings: an option, and a variable, for each.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser, ValueEnum};
use serving::open_files;
use serving::port::{Bounds, Callers, seconds};

/// The rest of `--help`.
const MANUAL: &str = "\
Each option has a variable, which it overrides. An empty variable counts as
absent. Others can read a command line with `ps`, so write an address with a
password into REDIS_URL.

Files:
  CONFIG is YAML as envoyproxy/ratelimit reads it. Files are read again when
  they change. One that is wrong changes nothing: stderr and /healthcheck say
  why, and the rules from before stay.

Signals:
  TERM, INT  Accepts no more, and ends with code 0 when what runs has ended,
             after 10 s at the latest; a second one ends it at once, with code 1
  HUP        Reads the files again

Examples:
  envoy-ratelimit --print-config >rules.yaml
  envoy-ratelimit --config rules.yaml
  REDIS_URL=redis://127.0.0.1:6379 envoy-ratelimit --config rules/
";

/// Envoy's rate limit service, by the YAML of envoyproxy/ratelimit
#[derive(Debug, Parser)]
#[command(name = "envoy-ratelimit", version)]
#[command(after_long_help = format!("{MANUAL}\n{}", command::EXIT_CODES))]
// Envoy keeps a connection for an hour, and sends a message at once.
#[command(mut_arg("body_timeout", |option| option.default_value("10")))]
#[command(mut_arg("idle_timeout", |option| option.default_value("3600")))]
pub(crate) struct Settings {
    /// The address for gRPC; port 0 takes a free one, which the first line on stdout names
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub(crate) listen: String,
    /// The address for POST /json, and GET /healthcheck, /metrics and /rlconfig
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub(crate) http: String,
    /// A YAML file, or a folder of files *.yaml and *.yml, each one domain
    #[arg(long, env)]
    pub(crate) config: PathBuf,
    /// The address of Redis: redis://, redis-cluster://, redis-sentinel://, and rediss.. with TLS
    /// [default: none, and counters are kept in this process]
    #[arg(long, env, hide_env_values = true)]
    pub(crate) redis_url: Option<String>,
    /// The first part of the keys in Redis, where several environments share one
    #[arg(long, env, default_value = "sluice")]
    pub(crate) redis_prefix: String,
    /// Seconds for a decision of Redis; an answer takes half as long again at most
    #[arg(long, env, value_parser = seconds, default_value = "0.6")]
    pub(crate) redis_timeout: Duration,
    /// While Redis is away: an error, or counters of this process
    #[arg(long, env, value_enum, default_value = "error")]
    pub(crate) on_error: OnError,
    /// Refuse nothing; statuses say what would be
    #[arg(long, env, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true")]
    pub(crate) shadow_mode: bool,
    /// Answers add RateLimit-Limit, -Remaining and -Reset
    #[arg(long, env, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true")]
    pub(crate) response_headers: bool,
    #[command(flatten)]
    callers: Callers,
}

/// The answer while Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    Error,
    Local,
}

/// The most connections of the HTTP port, which are kept free for it.
pub(crate) fn http_connections() -> usize {
    (open_files::limit() / 4).min(256)
}

impl Settings {
    /// The bounds of callers of the gRPC port.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub(crate) fn bounds(&self) -> Result<Bounds, String> {
        Bounds::new(&self.callers, open_files::most_connections(http_connections(), 1), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_the_times_of_envoy() {
        let settings = Settings::try_parse_from(["envoy-ratelimit", "--config", "rules"]).unwrap();
        let timeouts = settings.bounds().unwrap().timeouts;
        let seconds = [timeouts.head_timeout, timeouts.body_timeout, timeouts.idle_timeout];
        assert_eq!(seconds.map(|time| time.as_secs()), [30, 10, 3_600]);
    }
}
