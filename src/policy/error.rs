//! The error of a table that is refused.

use std::error::Error;
use std::fmt;

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
