//! Values of fields in any format: those that JSON has, and the reason why others are invalid.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The name of a map's only field by which serde_json passes a number with all of its digits.
const NUMBER: &str = "$serde_json::private::Number";

/// A value, or the reason why JSON has none: it is infinite, or a field is there twice.
pub(super) struct Parsed(pub(super) Result<Value, String>);

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
        Ok(Parsed(number.ok_or_else(|| format!("{value} is no finite number"))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parsed, E> {
        Ok(Parsed::valid(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Parsed, E> {
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
        let (mut values, mut why) = (Vec::new(), None);
        while let Some(Parsed(element)) = elements.next_element()? {
            match element {
                Ok(value) => values.push(value),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Ok(Parsed(why.map_or(Ok(Value::Array(values)), Err)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Parsed, A::Error> {
        let (mut values, mut why) = (Map::new(), None);
        while let Some((field, Parsed(value))) = fields.next_entry::<String, Parsed>()? {
            let added = value.and_then(|value| add(&mut values, field, value));
            why = why.or(added.err());
        }
        let number = values.get(NUMBER).and_then(Value::as_str);
        let number = number.and_then(|digits| serde_json::from_str(digits).ok());
        Ok(Parsed(why.map_or(Ok(number.unwrap_or(Value::Object(values))), Err)))
    }
}

/// Adds a field, unless it is there.
pub(super) fn add(
    values: &mut Map<String, Value>,
    field: String,
    value: Value,
) -> Result<(), String> {
    match values.contains_key(&field) {
        true => Err(format!("{field:?} is there twice")),
        false => {
            values.insert(field, value);
            Ok(())
        }
    }
}

fn too_large(number: impl fmt::Display) -> String {
    format!("{number} is too large")
}

/// The same with whole numbers as integers: some formats and sources write 5 as 5.0.
pub(super) fn with_whole_numbers(value: Value) -> Value {
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
            let each = fields.into_iter().map(|(name, value)| (name, with_whole_numbers(value)));
            Value::Object(each.collect())
        }
        value => value,
    }
}
