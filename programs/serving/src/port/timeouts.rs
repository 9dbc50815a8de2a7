//! The times that a program waits for its callers.

use std::time::Duration;

/// The times of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// `FIRST_BYTE_TIMEOUT` of a new connection. Default: 10 s.
    pub first_byte: Duration,
    /// `HEAD_TIMEOUT`, from its first byte to its last. Default: 30 s.
    pub head: Duration,
    /// `BODY_TIMEOUT`, between two parts of a body. Default: 60 s.
    pub body: Duration,
    /// `IDLE_TIMEOUT`, between two requests. Default: 60 s.
    pub idle: Duration,
    /// `BODY_RATE`: the bytes of a body for which a caller has a second more than `body` in all. 0:
    /// it has any time. Default: 500.
    pub body_rate: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(30),
            body: minute,
            idle: minute,
            body_rate: 500,
        }
    }
}

impl Timeouts {
    /// Reads the variables that `get` knows. The others are those of `default`.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub fn read(get: impl Fn(&str) -> Option<String>, default: Self) -> Result<Self, String> {
        Ok(Self {
            first_byte: seconds(&get, "FIRST_BYTE_TIMEOUT", default.first_byte)?,
            head: seconds(&get, "HEAD_TIMEOUT", default.head)?,
            body: seconds(&get, "BODY_TIMEOUT", default.body)?,
            idle: seconds(&get, "IDLE_TIMEOUT", default.idle)?,
            body_rate: match get("BODY_RATE") {
                None => default.body_rate,
                Some(text) => text.parse().map_err(|_| {
                    format!("BODY_RATE is {text:?}, and must be a number of bytes a second")
                })?,
            },
        })
    }
}

/// Reads a number of seconds, such as `60` or `0.5`.
///
/// # Errors
///
/// A text that names the variable.
pub fn seconds(
    get: impl Fn(&str) -> Option<String>,
    name: &str,
    default: Duration,
) -> Result<Duration, String> {
    const MOST: f64 = 31_536_000.0;
    let Some(text) = get(name) else { return Ok(default) };
    let seconds = text.parse().ok().filter(|seconds| (0.001..=MOST).contains(seconds));
    let known = "must be a number of seconds from 0.001 to 31536000";
    let seconds = seconds.ok_or_else(|| format!("{name} is {text:?}, and {known}"))?;
    Ok(Duration::from_secs_f64(seconds))
}
