//! The errors of a table.

use std::error::Error;
use std::fmt;

/// The longest part of an error, in characters.
const MAX_SHOWN: usize = 500;

/// Shortens a text of a row to one line of limited length.
fn shown(text: &str) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    let mut characters = text.chars().map(plain);
    let mut shown: String = characters.by_ref().take(MAX_SHOWN).collect();
    if characters.next().is_some() {
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
/// use tower_sluice_policies::{Policies, Row, Rows};
///
/// let row = Row::new().with("name", "api").with("limit", 5).with("period", "0s");
/// let rows = Rows::from_iter([row]);
/// let error = Policies::builder().build(&rows).unwrap_err();
/// assert_eq!(error.to_string(), r#"policy "api": period: the period is 0"#);
/// assert_eq!((error.rows()[0].row(), error.rows()[0].field()), ("api", Some("period")));
/// ```
///
/// Its `Debug` output is the same text, so that `unwrap` and a `?` in `main` print it.
#[derive(Clone, PartialEq, Eq)]
pub struct TableError(pub(crate) Vec<RowError>);

/// The error of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    pub(crate) table: &'static str,
    row: String,
    is_named: bool,
    pub(crate) field: Option<String>,
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
    pub(crate) fn new(table: &'static str, name: Option<&str>, index: usize) -> Self {
        let name = name.filter(|name| name.len() <= MAX_SHOWN);
        let row = name.map_or_else(|| (index + 1).to_string(), str::to_owned);
        Self { table, row, is_named: name.is_some(), field: None, message: String::new() }
    }

    /// The error of the same row, with a message about a field or about all of it.
    pub(crate) fn with(&self, field: Option<&str>, message: impl fmt::Display) -> Self {
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
