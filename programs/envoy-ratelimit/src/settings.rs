//! The settings of the environment. An empty variable counts as absent.

use std::path::PathBuf;
use std::time::Duration;

use serving::open_files;
use serving::port::{Bounds, Timeouts};

/// The settings of a process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `LISTEN`, for gRPC. Default: `127.0.0.1:8081`.
    pub(crate) listen: String,
    /// `HTTP`. Default: `127.0.0.1:8080`.
    pub(crate) http: String,
    /// `CONFIG`: a file, or a folder of files `*.yaml`.
    pub(crate) config: PathBuf,
    /// `REDIS_URL`. Default: none, and counters are kept in this process.
    pub(crate) redis_url: Option<String>,
    /// `REDIS_TIMEOUT` of a decision, in seconds. Default: 0.6, so an error comes within about a
    /// second.
    pub(crate) redis_timeout: Duration,
    /// `ON_ERROR`: `local` counts in this process while Redis is away. Default: `error`.
    pub(crate) falls_back: bool,
    /// `SHADOW_MODE`: refuses nothing. Default: false.
    pub(crate) shadow_mode: bool,
    /// `RESPONSE_HEADERS`: answers bring fields for the caller along. Default: false.
    pub(crate) response_headers: bool,
    /// The bounds of callers of the gRPC port.
    pub(crate) bounds: Bounds,
}

/// The most connections of the HTTP port, which are kept free for it.
pub(crate) fn http_connections() -> usize {
    (open_files::limit() / 4).min(256)
}

impl Settings {
    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    ///
    /// A text that names the variable whose value is wrong.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = &|name: &str| get(name).filter(|value| !value.is_empty());
        let config =
            get("CONFIG").ok_or("CONFIG must name a YAML file, or a folder of such files")?;
        let flag = |name: &str| match get(name).map(|text| text.to_ascii_lowercase()).as_deref() {
            None | Some("false" | "0" | "off" | "no") => Ok(false),
            Some("true" | "1" | "on" | "yes") => Ok(true),
            Some(other) => Err(format!("{name} is {other:?}, and must be true or false")),
        };
        // Envoy keeps a connection for an hour, and sends a message at once.
        let (body, idle) = (Duration::from_secs(10), Duration::from_secs(3_600));
        let default = Timeouts { body, idle, ..Timeouts::default() };
        let most = open_files::most_connections(http_connections(), 1);
        Ok(Self {
            listen: get("LISTEN").unwrap_or_else(|| "127.0.0.1:8081".to_owned()),
            http: get("HTTP").unwrap_or_else(|| "127.0.0.1:8080".to_owned()),
            config: config.into(),
            redis_url: get("REDIS_URL"),
            redis_timeout: match get("REDIS_TIMEOUT") {
                None => Duration::from_millis(600),
                Some(text) => seconds("REDIS_TIMEOUT", &text)?,
            },
            falls_back: match get("ON_ERROR").as_deref() {
                None | Some("error") => false,
                Some("local") => true,
                Some(other) => {
                    return Err(format!("ON_ERROR is {other:?}, and must be error or local"));
                }
            },
            shadow_mode: flag("SHADOW_MODE")?,
            response_headers: flag("RESPONSE_HEADERS")?,
            bounds: Bounds::read(get, most, Timeouts::read(get, default)?)?,
        })
    }
}

/// Reads a number of seconds, such as `1`, `0.5` or `2s`.
fn seconds(name: &str, text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| (0.001..=3_600.0).contains(seconds));
    let known = "must be a number of seconds from 0.001 to 3600";
    let seconds = seconds.ok_or_else(|| format!("{name} is {text:?}, and {known}"))?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(|name| {
            set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_the_defaults_hold_and_a_file_is_needed() {
        let settings = read(&[("CONFIG", "rules"), ("REDIS_URL", "")]).unwrap();
        assert_eq!(settings.listen, "127.0.0.1:8081");
        assert_eq!(settings.http, "127.0.0.1:8080");
        assert_eq!(settings.redis_url, None);
        assert!(!settings.shadow_mode && !settings.response_headers);
        assert!(read(&[]).unwrap_err().starts_with("CONFIG"));
    }

    #[test]
    fn flags_are_words() {
        let shadow = |text| read(&[("CONFIG", "x"), ("SHADOW_MODE", text)]).map(|s| s.shadow_mode);
        assert_eq!((shadow("TRUE"), shadow("1"), shadow("off")), (Ok(true), Ok(true), Ok(false)));
        assert!(shadow("maybe").unwrap_err().starts_with("SHADOW_MODE"));
        let local = |text| read(&[("CONFIG", "x"), ("ON_ERROR", text)]).map(|s| s.falls_back);
        assert_eq!((local("local"), local("")), (Ok(true), Ok(false)));
        let time = |text| read(&[("CONFIG", "x"), ("REDIS_TIMEOUT", text)]);
        let millis = |text| time(text).map(|settings| settings.redis_timeout.as_millis());
        assert_eq!((millis(""), millis("0.25"), millis("2s")), (Ok(600), Ok(250), Ok(2_000)));
        assert!(millis("0").unwrap_err().starts_with("REDIS_TIMEOUT"));
        assert!(local("allow").unwrap_err().starts_with("ON_ERROR"));
    }
}
