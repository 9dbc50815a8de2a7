//! Rows as they are written, with fields that are not checked yet.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The rows of a table, from a file, a database, or a Redis hash.
///
/// serde reads it from TOML, JSON, YAML and every other format of serde. The fields are checked
/// when [`Policies`](super::Policies) loads the table, so that each error names its row and its
/// field.
///
/// ```
/// use tower_sluice_policies::Rows;
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
///
/// A table without a policy is an error, since it would limit nothing: the file was perhaps emptied
/// by mistake, or a query found nothing. If you want such a table, write `allow_empty = true` at
/// the top of the file.
///
/// A program that makes rows itself can `collect` them into `Rows`, as policies. It sets the field
/// `allow_empty` if there may be no row.
///
/// ```
/// use tower_sluice_policies::{Row, Rows};
///
/// let api = Row::new().with("name", "api").with("limit", 5).with("period", "1s");
/// let mut rows = Rows::from_iter([api]);
/// rows.interface.push(Row::new().with("name", "weather").with("rate", 5));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Rows {
    /// Policies: the [guide](crate::guide) lists their fields.
    pub policy: Vec<Row>,
    /// Interfaces of suppliers, whose calls are limited: `name`, `rate`, `cache` and `status`.
    pub interface: Vec<Row>,
    /// True if the table may have no policy, so that nothing is limited. Default: `false`.
    pub allow_empty: bool,
    /// The parts of paths that servers read in several ways, but that are ordinary characters for
    /// the server of this table: see the [guide][paths]. Default: empty. A request with another
    /// such part is refused.
    ///
    /// [paths]: crate::guide#paths-that-servers-read-in-several-ways
    pub allow_in_paths: Vec<String>,
}

impl Rows {
    /// A table without policies, which limits nothing.
    ///
    /// ```
    /// use tower_sluice_policies::{Policies, Rows};
    ///
    /// assert!(Policies::builder().build(&Rows::default()).is_err());
    /// let policies = Policies::builder().build(&Rows::none())?;
    /// assert!(policies.policies().is_empty());
    /// # Ok::<(), tower_sluice_policies::TableError>(())
    /// ```
    #[must_use]
    pub fn none() -> Self {
        Self { allow_empty: true, ..Self::default() }
    }
}

/// The fields of one row, in any order.
///
/// ```
/// use tower_sluice_policies::Row;
///
/// let written = Row::new().with("name", "api").with("limit", 5).with("period", "1s");
/// // As a Redis hash or a table of texts has it:
/// let read = Row::from_texts([("name", "api"), ("limit", "5"), ("period", "1s")]);
/// assert_eq!(written, read);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Row(RowFields);

/// The fields of a row. An invalid value is replaced by the reason.
pub(crate) type RowFields = BTreeMap<String, Result<Value, String>>;

impl Row {
    /// A row without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field, or replaces it: a text, a number, `true`, or any other value of JSON.
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(field.into(), Ok(value.into()));
        self
    }

    /// A row of a source that has only texts, such as a Redis hash.
    ///
    /// A text that is valid JSON becomes that value: `5`, `true`, `["client_ip", "path"]`,
    /// `{"path": "/api/{*rest}"}`. Every other text stays a text, and a name always does. A field
    /// with an empty text is absent.
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
            let parsed = if field == "name" { None } else { serde_json::from_str(&text).ok() };
            let value = parsed.map_or(Ok(Value::String(text)), |Parsed(value)| value);
            row.0.insert(field, value);
        }
        row
    }

    /// Returns the fields, without empty ones.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&String, &Result<Value, String>)> {
        self.0.iter().filter(|(_, value)| **value != Ok(Value::Null))
    }

    /// Returns the row's name, if it states one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.get("name")?.as_ref().ok()?.as_str()
    }
}

impl<F: Into<String>, V: Into<Value>> FromIterator<(F, V)> for Row {
    fn from_iter<I: IntoIterator<Item = (F, V)>>(fields: I) -> Self {
        fields.into_iter().fold(Self::new(), |row, (field, value)| row.with(field, value))
    }
}

impl FromIterator<Row> for Rows {
    /// A table of policies.
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        Self { policy: rows.into_iter().collect(), ..Self::default() }
    }
}

/// A file without rows is a table without policies, which is an error when it is loaded.
impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Tables {
            policy: Option<Vec<Row>>,
            interface: Option<Vec<Row>>,
            allow_empty: Option<bool>,
            allow_in_paths: Option<Vec<String>>,
        }
        let tables: Tables = Option::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self {
            policy: tables.policy.unwrap_or_default(),
            interface: tables.interface.unwrap_or_default(),
            allow_empty: tables.allow_empty.unwrap_or_default(),
            allow_in_paths: tables.allow_in_paths.unwrap_or_default(),
        })
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowVisitor;
        impl<'de> Visitor<'de> for RowVisitor {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row, which has fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Row, A::Error> {
                fields_of(map).map(Row)
            }
        }
        deserializer.deserialize_map(RowVisitor)
    }
}

/// Reads the fields of a map. A field that occurs twice has no value.
fn fields_of<'de, A: MapAccess<'de>>(mut map: A) -> Result<RowFields, A::Error> {
    let mut fields = RowFields::new();
    while let Some((field, Parsed(value))) = map.next_entry::<String, Parsed>()? {
        let twice = format!("{field:?} occurs twice");
        let is_new = !fields.contains_key(&field);
        fields.insert(field, if is_new { value } else { value.and(Err(twice)) });
    }
    Ok(fields)
}

/// The name of the only field of the map in which serde_json passes a number with all of its
/// digits.
const NUMBER: &str = "$serde_json::private::Number";

/// A value, or the reason why it is invalid in JSON: it is infinite, or a field occurs twice.
pub(crate) struct Parsed(pub(crate) Result<Value, String>);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl Parsed {
    fn valid(value: impl Into<Value>) -> Self {
        Self(Ok(value.into()))
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parsed, E> {
        Ok(Parsed::valid(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parsed, E> {
        Ok(Parsed::valid(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parsed, E> {
        Ok(Parsed::valid(value))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Parsed, E> {
        Ok(Parsed(i64::try_from(value).map(Value::from).map_err(|_| too_large(value))))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Parsed, E> {
        Ok(Parsed(u64::try_from(value).map(Value::from).map_err(|_| too_large(value))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parsed, E> {
        let number = Number::from_f64(value).map(Value::Number);
        Ok(Parsed(number.ok_or_else(|| format!("{value} is not a finite number"))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parsed, E> {
        Ok(Parsed::valid(value))
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::valid(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::valid(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Parsed, D::Error> {
        Parsed::deserialize(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Parsed, A::Error> {
        let mut values = Vec::new();
        while let Some(Parsed(element)) = elements.next_element()? {
            values.push(element);
        }
        Ok(Parsed(values.into_iter().collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parsed, A::Error> {
        let fields = fields_of(map)?.into_iter().map(|(field, value)| Ok((field, value?)));
        Ok(Parsed(fields.collect::<Result<Map<_, _>, String>>().map(|values| {
            let digits = values.get(NUMBER).and_then(Value::as_str);
            let number = digits.and_then(|digits| serde_json::from_str(digits).ok());
            number.unwrap_or(Value::Object(values))
        })))
    }
}

fn too_large(number: impl fmt::Display) -> String {
    format!("{number} is too large")
}

/// Turns whole numbers into integers: some formats and sources write 5 as 5.0. A field of an
/// object that is null is absent.
pub(crate) fn with_whole_numbers(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() <= EXACT => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            let each = fields.into_iter().filter(|(_, value)| !value.is_null());
            let each = each.map(|(name, value)| (name, with_whole_numbers(value)));
            Value::Object(each.collect())
        }
        value => value,
    }
}
