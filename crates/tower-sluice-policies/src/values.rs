//! The values that several fields of rows have.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A duration, such as `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<Value> for Span {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let wrong = |why: &str| format!("{value} is not a duration such as 500ms, 1s or 1h{why}");
        let text = value.as_str().ok_or_else(|| wrong(""))?;
        parse_duration(text).map(Self).map_err(|why| wrong(&format!(": {why}")))
    }
}

/// Reads a duration as rows write it: `500ms`, `1h`, `1h 30min`.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice_policies::parse_duration;
///
/// assert_eq!(parse_duration("1min"), Ok(Duration::from_secs(60)));
/// assert!(parse_duration("1M").is_err());
/// ```
///
/// # Errors
///
/// A text that says what is wrong. Also for the letter `M`, which would be a month, and a limit
/// that is 43,830 times stricter than that of a minute.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.contains('M') {
        return Err("M is a month: write 1min or 30days".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Units that a policy leaves free: a number, or a share of what its limit can ever hold.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum KeptUnits {
    Units(u64),
    Percent(u64),
}

impl TryFrom<Value> for KeptUnits {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let percent = || value.as_str()?.strip_suffix('%')?.trim_end().parse().ok();
        match (value.as_u64(), percent()) {
            (Some(units), _) => Ok(Self::Units(units)),
            (_, Some(percent @ 0..=100)) => Ok(Self::Percent(percent)),
            _ => Err(format!(
                "{value} is not a number of units such as 20, or a share such as \"20%\""
            )),
        }
    }
}

impl KeptUnits {
    /// Returns the units of a limit that never has more than `most`. A share is rounded up.
    pub(crate) fn of(self, most: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::Percent(percent) => (u128::from(most) * u128::from(percent)).div_ceil(100) as u64,
        }
    }
}

/// True or false. Tables of numbers have 1 or 0.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Flag(pub(crate) bool);

impl TryFrom<Value> for Flag {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match (value.as_bool(), value.as_u64()) {
            (Some(on), _) => Ok(Self(on)),
            (_, Some(number @ 0..=1)) => Ok(Self(number == 1)),
            _ => Err(format!("{value} is not true or false, or 1 or 0")),
        }
    }
}

impl Flag {
    /// Reads a field that is false unless it is written.
    pub(crate) fn read<'de, D: Deserializer<'de>>(written: D) -> Result<bool, D::Error> {
        Self::deserialize(written).map(|flag| flag.0)
    }
}

/// One text, or a list of at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "OneOrMany")]
pub(crate) struct Texts(pub(crate) Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl TryFrom<OneOrMany> for Texts {
    type Error = &'static str;

    fn try_from(written: OneOrMany) -> Result<Self, &'static str> {
        match written {
            OneOrMany::One(text) => Ok(Self(vec![text])),
            OneOrMany::Many(texts) if texts.is_empty() => Err("the list is empty"),
            OneOrMany::Many(texts) => Ok(Self(texts)),
        }
    }
}

impl Texts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
