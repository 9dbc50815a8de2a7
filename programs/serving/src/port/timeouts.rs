//! The times that a program waits for its callers.

use std::time::Duration;

use clap::Args;

/// The times of a port, as options and as variables.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Seconds until a new connection sends its first byte
    #[arg(long, env, value_parser = seconds, default_value = "10")]
    pub first_byte_timeout: Duration,
    /// Seconds from the first byte of a head to its last
    #[arg(long, env, value_parser = seconds, default_value = "30")]
    pub head_timeout: Duration,
    /// Seconds between two parts of a body
    #[arg(long, env, value_parser = seconds, default_value = "60")]
    pub body_timeout: Duration,
    /// Bytes of a body for which a caller has a second more than BODY_TIMEOUT in all; 0: any time
    #[arg(long, env, default_value_t = 500)]
    pub body_rate: u64,
    /// Seconds between two requests of a connection
    #[arg(long, env, value_parser = seconds, default_value = "60")]
    pub idle_timeout: Duration,
}

/// Reads a number of seconds, such as `60`, `0.5` or `2s`.
///
/// # Errors
///
/// A text that says what is known.
pub fn seconds(text: &str) -> Result<Duration, String> {
    const MOST: f64 = 31_536_000.0;
    let seconds = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|seconds| (0.001..=MOST).contains(seconds));
    let seconds = seconds.ok_or("it must be a number of seconds from 0.001 to 31536000")?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
impl Default for Timeouts {
    fn default() -> Self {
        use clap::{Command, FromArgMatches};
        let matches = Self::augment_args(Command::new("port")).get_matches_from(["port"]);
        Self::from_arg_matches(&matches).expect("each has a default")
    }
}
