//! Reads the fields of a row one by one, and keeps the error of each.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::row::{self, Row, with_whole_numbers};

/// The fields of a row that are not read yet.
pub(super) struct Fields {
    row: RowError,
    rest: row::Fields,
    /// The valid fields: those that were asked for.
    known: Vec<&'static str>,
    errors: Vec<RowError>,
}

impl Fields {
    pub(super) fn new(table: &'static str, row: &Row, index: usize) -> Self {
        let error = RowError::new(table, row.name(), index);
        Self { row: error, rest: row.fields(), known: Vec::new(), errors: Vec::new() }
    }

    /// Reads the value of a field. `None` if it is absent, or invalid for this field.
    pub(super) fn optional<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        self.known.push(field);
        let value = self.rest.remove(field)?;
        let value = self.checked(field, value)?;
        self.checked(field, serde_json::from_value(with_whole_numbers(value)))
    }

    /// Reads the value of a field that must be present.
    pub(super) fn required<T: DeserializeOwned>(&mut self, field: &'static str) -> Option<T> {
        if self.has(field) {
            return self.optional(field);
        }
        self.known.push(field);
        self.wrong(field, "it is missing")
    }

    /// Reads a duration, such as `500ms`.
    pub(super) fn duration(&mut self, field: &'static str) -> Option<Duration> {
        let value: Value = self.optional(field)?;
        let expected = "a duration such as 500ms, 1s or 1h";
        let Value::String(text) = value else {
            return self.wrong(field, format!("{value} is not {expected}"));
        };
        if text.contains('M') {
            let why = format!("{text:?} is not {expected}: M is a month: write 1min or 30days");
            return self.wrong(field, why);
        }
        let wrong = |error| format!("{text:?} is not {expected}: {error}");
        self.checked(field, humantime::parse_duration(&text).map_err(wrong))
    }

    /// Reads `true` or `false`. Tables of numbers have 1 or 0.
    pub(super) fn flag(&mut self, field: &'static str) -> Option<bool> {
        let value: Value = self.optional(field)?;
        match (value.as_bool(), value.as_u64()) {
            (Some(on), _) => Some(on),
            (_, Some(number @ 0..=1)) => Some(number == 1),
            _ => self.wrong(field, "true or false, or 1 or 0"),
        }
    }

    /// Reads a setting of an algorithm that is `true` or `false`. Default: `false`.
    pub(super) fn is_set(&mut self, field: &'static str) -> bool {
        self.optional(field).unwrap_or_default()
    }

    /// Reads a number that is at least 1.
    pub(super) fn count(&mut self, field: &'static str) -> Option<u64> {
        match self.optional(field) {
            Some(0) => self.wrong(field, "it must be at least 1"),
            count => count,
        }
    }

    /// Reads a ratio, which is at least 0.
    pub(super) fn ratio(&mut self, field: &'static str) -> Option<f64> {
        match self.optional::<f64>(field) {
            Some(ratio) if !(0.0..=1_000.0).contains(&ratio) => {
                self.wrong(field, "a ratio must be from 0 to 1000")
            }
            ratio => ratio,
        }
    }

    /// Returns true if a field is present and not read yet.
    pub(super) fn has(&self, field: &str) -> bool {
        self.rest.contains_key(field)
    }

    /// Skips a field that is valid but has no effect now.
    pub(super) fn skip(&mut self, field: &'static str) {
        self.known.push(field);
        if let Some(Err(why)) = self.rest.remove(field) {
            self.wrong::<()>(field, why);
        }
    }

    /// Rejects a field that has no meaning here, if it is present.
    pub(super) fn refuse(&mut self, field: &'static str, why: impl fmt::Display) {
        if self.rest.remove(field).is_some() {
            self.wrong::<()>(field, why);
        }
    }

    /// Keeps the error of a field.
    pub(super) fn wrong<T>(&mut self, field: &str, why: impl fmt::Display) -> Option<T> {
        self.errors.push(self.row.with(field, why));
        None
    }

    /// Returns the value of a checked field. Keeps the error if it is wrong.
    pub(super) fn checked<T>(
        &mut self,
        field: &str,
        value: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        value.or_else(|why| self.wrong(field, why).ok_or(())).ok()
    }

    /// Returns the errors of the row, after all fields were read.
    pub(super) fn end(mut self) -> Vec<RowError> {
        for field in std::mem::take(&mut self.rest).into_keys() {
            let meant = match &*field {
                "allow_empty" => "it belongs at the top, before the first `[[policy]]`".to_owned(),
                _ => format!("there are `{}`", self.known.join("`, `")),
            };
            self.wrong::<()>(&field, format!("no such field; {meant}"));
        }
        self.errors
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

/// The longest part of an error, in bytes.
const MAX_SHOWN: usize = 500;

/// Shortens a text of a row to one line of limited length.
fn shown(text: &str) -> String {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= MAX_SHOWN).last().unwrap_or(0);
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    let mut shown: String = text[..end].chars().map(plain).collect();
    if end < text.len() {
        shown.push_str(" ..");
    }
    shown
}

/// The errors of a table: those of its rows, or the lack of rows. The table that was in force
/// stays.
///
/// Its text is one line with all errors. Each names its row: by the row's name, or by its number
/// from 1 if it has no name.
///
/// ```
/// use tower_sluice::policy::{Policies, Row, Rows};
///
/// let row = Row::new().with("name", "api").with("limit", 0).with("period", "1s");
/// let rows = Rows::from_iter([row]);
/// let error = Policies::builder().build(&rows).unwrap_err();
/// assert_eq!(error.to_string(), r#"policy "api": limit: a quota of 0 admits nothing"#);
/// assert_eq!((error.rows()[0].row(), error.rows()[0].field()), ("api", Some("limit")));
/// ```
///
/// Its `Debug` output is the same text, so that `unwrap` and a `?` in `main` print it.
#[derive(Clone, PartialEq, Eq)]
pub struct TableError(pub(super) Vec<RowError>);

/// The error of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    pub(super) table: &'static str,
    row: String,
    is_named: bool,
    pub(super) field: Option<String>,
    message: String,
}

impl TableError {
    /// The errors, in the order of the rows. Empty if the error is that the table has no policy.
    #[must_use]
    pub fn rows(&self) -> &[RowError] {
        &self.0
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "there is no policy, so nothing would be limited; `allow_empty = true` at the top \
                 of the table says that this is meant",
            );
        }
        for (place, row) in self.0.iter().enumerate() {
            let separator = if place > 0 { "; " } else { "" };
            write!(f, "{separator}{row}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for TableError {}

impl RowError {
    /// An error of the row with this name, or without a name, with this index in its table. A very
    /// long name is shortened.
    pub(super) fn new(table: &'static str, name: Option<&str>, index: usize) -> Self {
        let name = name.filter(|name| name.len() <= MAX_SHOWN);
        let row = name.map_or_else(|| (index + 1).to_string(), str::to_owned);
        Self { table, row, is_named: name.is_some(), field: None, message: String::new() }
    }

    /// The error of the same row, with a message about one of its fields.
    pub(super) fn with(&self, field: &str, message: impl fmt::Display) -> Self {
        self.about(Some(field), message)
    }

    /// The error of the same row, with a message about a field or about all of it.
    pub(super) fn about(&self, field: Option<&str>, message: impl fmt::Display) -> Self {
        Self { field: field.map(shown), message: shown(&message.to_string()), ..self.clone() }
    }

    /// The table of the row: `policy` or `interface`. Or `allow_in_paths`, whose rows are texts.
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// The name of the row, or its number from 1.
    #[must_use]
    pub fn row(&self) -> &str {
        &self.row
    }

    /// The field that is wrong, if the error is about one field.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Returns the message, which says what is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_named {
            true => write!(f, "{} {:?}: ", self.table, self.row)?,
            false => write!(f, "{} {}: ", self.table, self.row)?,
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}
