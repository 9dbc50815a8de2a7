//! Rows as they are written: fields with values that nobody has checked yet.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The rows of a table, as a file or another [`Source`](super::Source) has them.
///
/// It is read by serde, so from TOML, JSON, YAML and every other format that serde knows. What a
/// row says is checked when [`Policies`](super::Policies) takes the table, so that each error names
/// its row and its field.
///
/// ```
/// use tower_sluice::policy::Rows;
///
/// let rows: Rows = toml::from_str(
///     r#"
///     [[policy]]
///     name = "api"
///     limit = 5
///     period = "1s"
///
///     [[interface]]
///     name = "weather"
///     rate = 5
///     "#,
/// )?;
/// assert_eq!((rows.policy.len(), rows.interface.len()), (1, 1));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Policies: the [module](super) lists their fields.
    #[serde(default)]
    pub policy: Vec<Row>,
    /// Interfaces of suppliers, whose calls are limited: `name`, `rate`, `cache` and `status`.
    #[serde(default)]
    pub interface: Vec<Row>,
}

/// The fields of one row, in whatever order they came.
///
/// ```
/// use tower_sluice::policy::Row;
///
/// let written = Row::new().with("name", "api").with("limit", 5).with("period", "1s");
/// // As a Redis hash or a table of texts has it:
/// let read = Row::from_texts([("name", "api"), ("limit", "5"), ("period", "1s")]);
/// assert_eq!(written, read);
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(transparent)]
pub struct Row(Map<String, Value>);

impl Row {
    /// A row without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field, or replaces it: a text, a number, `true`, or any other value of JSON.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(field.into(), value.into());
        self
    }

    /// A row of a source that knows texts alone, such as a Redis hash.
    ///
    /// A text that is a value of JSON stands for it: `5`, `true`, `["client_ip", "path"]`,
    /// `{"path": "/api/{*rest}"}`. Every other text is itself, and so is a name. A field whose text
    /// is empty is absent.
    #[must_use]
    pub fn from_texts<F, T>(fields: impl IntoIterator<Item = (F, T)>) -> Self
    where
        F: Into<String>,
        T: Into<String>,
    {
        let mut row = Self::default();
        for (field, text) in fields {
            let (field, text): (String, String) = (field.into(), text.into());
            if text.is_empty() {
                continue;
            }
            let value = match &*field {
                "name" => Value::String(text),
                _ => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            };
            row.0.insert(field, value);
        }
        row
    }

    /// The fields, without those that a source has left empty.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let is_present = |(_, value): &(&String, &Value)| !value.is_null();
        let own = |(field, value): (&String, &Value)| (field.clone(), value.clone());
        self.0.iter().filter(is_present).map(own).collect()
    }

    /// The row's name, if it states one.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.get("name").and_then(Value::as_str)
    }
}

impl<F: Into<String>, V: Into<Value>> FromIterator<(F, V)> for Row {
    fn from_iter<I: IntoIterator<Item = (F, V)>>(fields: I) -> Self {
        let fields = fields.into_iter();
        Self(fields.map(|(field, value)| (field.into(), value.into())).collect())
    }
}
