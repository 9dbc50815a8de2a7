//! Reads the fields of a row one by one, and keeps the error of each.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::RowError;
use super::row::Row;
use super::value::with_whole_numbers;

/// The fields of a row that are not read yet.
pub(super) struct Fields {
    row: RowError,
    rest: Map<String, Value>,
    /// The fields with values that no field can have, each with the reason.
    invalid: BTreeMap<String, String>,
    /// The fields that were asked for, and may be there.
    known: Vec<&'static str>,
    errors: Vec<RowError>,
}

impl Fields {
    pub(super) fn new(table: &'static str, row: &Row, index: usize) -> Self {
        let error = RowError::new(table, row.name(), index);
        let (rest, invalid) = (row.fields(), row.invalid().clone());
        Self { row: error, rest, invalid, known: Vec::new(), errors: Vec::new() }
    }

    /// The value of a field. `None` if it is absent, or not a value that the field can have.
    pub(super) fn optional<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        self.known.push(field);
        if let Some(why) = self.invalid.remove(field) {
            return self.wrong(field, why);
        }
        match serde_json::from_value(with_whole_numbers(self.rest.remove(field)?)) {
            Ok(value) => Some(value),
            Err(error) => self.wrong(field, error),
        }
    }

    /// The same for a field that must be there.
    pub(super) fn required<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        if self.has(field) {
            return self.optional(field);
        }
        self.known.push(field);
        self.wrong(field, "it is missing")
    }

    /// A duration, such as `500ms`.
    pub(super) fn duration(&mut self, field: &'static str) -> Option<Duration> {
        self.optional(field).map(|Span(duration)| duration)
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, field: &'static str) -> Option<bool> {
        self.optional(field).map(|Switched(on)| on)
    }

    /// A number that is at least 1.
    pub(super) fn count(&mut self, field: &'static str) -> Option<u64> {
        match self.optional(field) {
            Some(0) => self.wrong(field, "it is at least 1"),
            count => count,
        }
    }

    /// A ratio, which is no less than 0.
    pub(super) fn ratio(&mut self, field: &'static str) -> Option<f64> {
        match self.optional::<f64>(field) {
            Some(ratio) if !(0.0..=1_000.0).contains(&ratio) => {
                self.wrong(field, "a ratio is from 0 to 1000")
            }
            ratio => ratio,
        }
    }

    /// Returns true if a field is there and not read yet.
    pub(super) fn has(&self, field: &str) -> bool {
        self.rest.contains_key(field) || self.invalid.contains_key(field)
    }

    /// Passes over a field that may be there, but that nothing depends on now.
    pub(super) fn skip(&mut self, field: &'static str) {
        self.known.push(field);
        if let Some(why) = self.invalid.remove(field) {
            self.wrong::<()>(field, why);
        }
        self.rest.remove(field);
    }

    /// Refuses a field that has no meaning here, if it is there.
    pub(super) fn refuse(&mut self, field: &'static str, why: impl fmt::Display) {
        if self.rest.remove(field).is_some() || self.invalid.remove(field).is_some() {
            self.wrong::<()>(field, why);
        }
    }

    /// Keeps the error of a field.
    pub(super) fn wrong<T>(&mut self, field: &str, why: impl fmt::Display) -> Option<T> {
        let error = self.row.with(field, why);
        self.errors.push(error);
        None
    }

    /// Returns the faults of the row, which has been read.
    pub(super) fn end(mut self) -> Vec<RowError> {
        let unknown: Vec<_> = self.rest.keys().chain(self.invalid.keys()).cloned().collect();
        for field in unknown {
            let meant = match &*field {
                "allow_empty" => "it stands at the top, before the first `[[policy]]`".to_owned(),
                _ => format!("there are `{}`", self.known.join("`, `")),
            };
            self.wrong::<()>(&field, format!("no such field; {meant}"));
        }
        self.errors
    }
}

/// A duration as people write it.
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = Value::deserialize(deserializer)?;
        let expected = "a duration such as 500ms, 1s or 1h";
        let Value::String(text) = value else {
            return Err(D::Error::custom(format!("{value} is not {expected}")));
        };
        match humantime::parse_duration(&text) {
            Ok(duration) => Ok(Self(duration)),
            Err(error) => Err(D::Error::custom(format!("{text:?} is not {expected}: {error}"))),
        }
    }
}

/// `true`, or 1 as a table of numbers has it.
#[derive(Deserialize)]
#[serde(from = "Flag")]
struct Switched(bool);

#[derive(Deserialize)]
#[serde(untagged, expecting = "true or false, or 1 or 0")]
enum Flag {
    Bool(bool),
    Number(Bit),
}

#[derive(Deserialize)]
#[serde(try_from = "u8")]
struct Bit(bool);

impl TryFrom<u8> for Bit {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self(false)),
            1 => Ok(Self(true)),
            _ => Err("it is 1 or 0"),
        }
    }
}

impl From<Flag> for Switched {
    fn from(flag: Flag) -> Self {
        match flag {
            Flag::Bool(on) | Flag::Number(Bit(on)) => Self(on),
        }
    }
}

/// One value, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Vec<String> {
    fn from(values: OneOrMany) -> Self {
        match values {
            OneOrMany::One(value) => vec![value],
            OneOrMany::Many(values) => values,
        }
    }
}
