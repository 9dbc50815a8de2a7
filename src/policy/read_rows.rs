//! Reads the rows of a table, checks each of their fields, and keeps the error of each.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::checked_policy::{self, Cost, OnError, Policy, Written};
use super::chosen_algorithm::Setting;
use super::limited_policy::shared_limiters;
use super::pattern::{Matcher, Pattern, tell_apart};
use super::policy_key::Key;
use super::row::{Row, Rows, with_whole_numbers};
use crate::decision::is_policy_name;

/// Checks the rows of a table.
pub(super) fn policies(rows: &Rows) -> Result<Vec<Policy>, TableError> {
    let (mut policies, mut errors, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let tables = [("policy", &rows.policy), ("interface", &rows.interface)];
    for (table, rows) in tables {
        for (index, row) in rows.iter().enumerate() {
            let read = if table == "policy" { policy } else { interface };
            match read(row, index) {
                Ok(policy) => policies.push(policy),
                Err(wrong) => errors.extend(wrong),
            }
            if let Some(name) = row.name()
                && !names.insert(name)
            {
                let error = RowError::new(table, Some(name), index);
                errors.push(error.with("name", "another row has this name"));
            }
        }
    }
    for (policy, why) in shared_limiters(&policies) {
        errors.push(RowError::new("policy", Some(policy.name()), 0).with("name", why));
    }
    if !errors.is_empty() {
        return Err(TableError::new(errors));
    }
    if policies.is_empty() && !rows.allow_empty {
        return Err(TableError::empty());
    }
    tell_apart(policies.iter_mut().map(Policy::matcher_mut));
    Ok(policies)
}

/// A row of a policy.
fn policy(row: &Row, index: usize) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("policy", row, index);
    let name = name(&mut fields);
    let setting = Setting::read(&mut fields);
    let key = fields.optional("key");
    let pattern: Option<Pattern> = fields.optional("match");
    let cost = fields.optional("cost");
    if let (Some(Cost::Units(units)), Some(setting)) = (cost, setting)
        && let Err(why) = setting.check_cost(units)
    {
        fields.wrong::<()>("cost", why);
    }
    let on_error: Option<OnError> = fields.optional("on_error");
    let share = match (on_error, &setting) {
        (Some(OnError::Local(0)), _) => fields.wrong("on_error", "a local share is at least 1"),
        (Some(OnError::Local(units)), Some(setting)) => {
            let share = checked_policy::share(units, setting.quota.period());
            share.or_else(|why| fields.wrong("on_error", why).ok_or(())).ok()
        }
        _ => None,
    };
    let enabled = fields.flag("enabled");
    let shadow = fields.flag("shadow");
    let pattern = pattern.unwrap_or_default();
    let matcher = pattern.matcher();
    let matcher = matcher.or_else(|why| fields.wrong("match", why).ok_or(()));
    made(fields, name, setting, matcher.ok(), |setting| Written {
        key: key.unwrap_or_else(Key::global).ignoring_case(pattern.ignores_case()),
        pattern,
        cost: cost.unwrap_or(Cost::Units(1)),
        on_error: on_error.unwrap_or_default(),
        share,
        enabled: enabled.unwrap_or(true),
        shadow: shadow.unwrap_or(false),
        settings: setting.stated(row),
    })
}

/// A row of a supplier's interface.
fn interface(row: &Row, index: usize) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("interface", row, index);
    let name = name(&mut fields);
    let setting = Setting::interface(&mut fields);
    let status = fields.flag("status");
    let pattern = Pattern::interface(name.as_deref().unwrap_or_default());
    let matcher = pattern.matcher();
    let matcher = matcher.or_else(|why| fields.wrong("name", why).ok_or(()));
    made(fields, name, setting, matcher.ok(), |_| Written {
        key: Key::global(),
        pattern,
        cost: Cost::Units(1),
        on_error: OnError::default(),
        share: None,
        enabled: status.unwrap_or(true),
        shadow: false,
        settings: Map::from_iter([(String::from("wait_for_own_cost"), Value::Bool(true))]),
    })
}

/// The policy of a row that was read, unless something was wrong.
fn made(
    fields: Fields,
    name: Option<String>,
    setting: Option<Setting>,
    matcher: Option<Matcher>,
    written: impl FnOnce(&Setting) -> Written,
) -> Result<Policy, Vec<RowError>> {
    let errors = fields.end();
    let (Some(name), Some(setting), Some(matcher), []) = (name, setting, matcher, &errors[..])
    else {
        return Err(errors);
    };
    let written = written(&setting);
    Ok(Policy::new(name, setting, matcher, written))
}

/// A name that response headers and labels can hold as it is.
fn name(fields: &mut Fields) -> Option<String> {
    let name: String = fields.required("name")?;
    if matches!(name.as_str(), "." | "..") {
        return fields.wrong("name", "a name stands in paths, which . and .. change");
    }
    match is_policy_name(&name) {
        true => Some(name),
        false => fields.wrong("name", "a name has 1 to 64 letters, digits and characters of _.:-"),
    }
}

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

/// The longest part of an error, in bytes.
const MAX_SHOWN: usize = 500;

/// The text in one line of bounded length, whatever a row holds.
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

/// The faults of a table: those of its rows, or that it has no row. The table that was in force
/// stays.
///
/// Its text is one line that names each: by the row's name, or by its number from 1 if it has none.
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
/// Its `Debug` is the same text, so that `unwrap` and a `?` in `main` print it.
#[derive(Clone, PartialEq, Eq)]
pub struct TableError(Vec<RowError>);

/// The fault of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    table: &'static str,
    row: String,
    is_named: bool,
    field: Option<String>,
    message: String,
}

impl TableError {
    pub(super) fn new(rows: Vec<RowError>) -> Self {
        Self(rows)
    }

    /// The error of a table without any policy.
    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Each error, in the order of the rows. None if the table has no policy at all.
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
    /// An error of the row with this name, or else with this index in its table. A very long name
    /// does not help to find the row.
    pub(super) fn new(table: &'static str, name: Option<&str>, index: usize) -> Self {
        let name = name.filter(|name| name.len() <= MAX_SHOWN);
        let row = name.map_or_else(|| (index + 1).to_string(), str::to_owned);
        Self { table, row, is_named: name.is_some(), field: None, message: String::new() }
    }

    /// The same row, with a message about one of its fields.
    pub(super) fn with(&self, field: &str, message: impl fmt::Display) -> Self {
        Self { field: Some(shown(field)), message: shown(&message.to_string()), ..self.clone() }
    }

    /// The table that it stands in: `policy` or `interface`.
    #[must_use]
    pub fn table(&self) -> &str {
        self.table
    }

    /// The name of the row, or its number from 1.
    #[must_use]
    pub fn row(&self) -> &str {
        &self.row
    }

    /// The field, if one is to blame.
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
