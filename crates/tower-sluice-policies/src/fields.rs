//! Reads the fields of a row, and keeps the error of each.

use std::cell::Cell;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Error, Map, Value};

use super::row::{Row, with_whole_numbers};
use super::table_error::RowError;

/// The valid fields of a row, and the errors of the others.
pub(crate) struct Fields {
    row: RowError,
    pub(crate) valid: Map<String, Value>,
    pub(crate) errors: Vec<RowError>,
}

impl Fields {
    pub(crate) fn new(table: &'static str, row: &Row, index: usize) -> Self {
        let row_error = RowError::new(table, row.name(), index);
        let mut fields = Self { row: row_error, valid: Map::new(), errors: Vec::new() };
        for (field, value) in row.fields() {
            if let Some(value) = fields.checked(field, value.clone()) {
                fields.valid.insert(field.clone(), with_whole_numbers(value));
            }
        }
        fields
    }

    /// Reads the fields, each of which has a default in `T`. An invalid field counts as absent.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> T {
        let at = Cell::default();
        loop {
            let fields = self.valid.iter().map(|(field, value)| {
                at.set(field.clone());
                (field.as_str(), value.clone())
            });
            match T::deserialize(MapDeserializer::<_, Error>::new(fields)) {
                Ok(read) => return read,
                Err(why) => {
                    let field = at.take();
                    self.valid.remove(&field);
                    match &*field {
                        "allow_empty" | "allow_in_paths" => {
                            let why = "it belongs at the top, before the first `[[policy]]`";
                            self.wrong::<()>(&field, format!("no such field; {why}"))
                        }
                        _ => self.wrong(&field, why),
                    };
                }
            }
        }
    }

    /// Keeps an error if a field is absent.
    pub(crate) fn required<T>(&mut self, field: &str, value: Option<T>) -> Option<T> {
        match value {
            None if !self.is_wrong(field) => self.wrong(field, "it is missing"),
            value => value,
        }
    }

    /// Keeps an error if a ratio is not in a range.
    pub(crate) fn within(
        &mut self,
        field: &str,
        ratio: Option<f64>,
        [least, most]: [u32; 2],
    ) -> Option<f64> {
        let is_wrong = |ratio: &f64| !(f64::from(least)..=f64::from(most)).contains(ratio);
        match ratio.filter(is_wrong) {
            Some(_) => self.wrong(field, format!("it must be from {least} to {most}")),
            None => ratio,
        }
    }

    /// Keeps the error of a field.
    pub(crate) fn wrong<T>(&mut self, field: &str, why: impl fmt::Display) -> Option<T> {
        self.errors.push(self.row.with(Some(field), why));
        None
    }

    /// Returns the value of a checked field. Keeps the error if it is wrong.
    pub(crate) fn checked<T>(
        &mut self,
        field: &str,
        value: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        value.or_else(|why| self.wrong(field, why).ok_or(())).ok()
    }

    pub(crate) fn is_wrong(&self, field: &str) -> bool {
        self.errors.iter().any(|error| error.field() == Some(field))
    }
}
