//! The cost of a request, as a row states it.

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use tower_sluice::key::Head;
use tower_sluice::{Error, ErrorKind};

use super::values::Texts;

/// The bytes of a unit if the length of a body is the cost.
const KB: u64 = 1_024;

/// The largest cost. It is above every capacity, so a request of this cost can never pass.
pub(crate) const MAX_COST: u64 = 1 << 53;

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum PolicyCost {
    /// The length of its body in units of 1,024 bytes, rounded up, at least 1.
    ContentLengthKb,
    /// The number in a header, and the cost of requests without a valid one. `None`: they are
    /// refused.
    RequestHeader {
        name: HeaderName,
        default: Option<u64>,
    },
    Units(u64),
    /// The response states it. Until then the request is charged a cost that is known before.
    Response {
        stated: StatedBy,
        charge: Box<PolicyCost>,
    },
}

/// The part of a response that states a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatedBy {
    Header(HeaderName),
    /// The sum of the numbers at these JSON pointers.
    Json(Texts),
}

impl PolicyCost {
    /// The units that each request is charged. `None`: they depend on the request.
    pub(crate) fn fixed(&self) -> Option<u64> {
        match self {
            Self::Units(units) => Some(*units),
            Self::Response { charge, .. } => charge.fixed(),
            _ => None,
        }
    }

    /// The part of the response that states the cost in the end.
    pub(crate) fn stated_by(&self) -> Option<&StatedBy> {
        match self {
            Self::Response { stated, .. } => Some(stated),
            _ => None,
        }
    }

    /// Returns the units that a request is charged.
    ///
    /// # Errors
    ///
    /// If a header should state it, and does not.
    pub(crate) fn of_request(&self, head: &Head<'_>) -> Result<u64, Error> {
        Ok(match self {
            Self::Units(units) => *units,
            Self::Response { charge, .. } => charge.of_request(head)?,
            Self::ContentLengthKb => {
                let length = head.headers().get(http::header::CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok());
                let bytes = length.and_then(|length| length.trim().parse::<u64>().ok());
                bytes.unwrap_or(0).div_ceil(KB).clamp(1, MAX_COST)
            }
            Self::RequestHeader { name, default } => {
                // A cost above all others is read as one that never passes.
                let stated = head.header(name.as_str()).and_then(|text| whole(&text));
                let stated = stated.map(|units| units.min(MAX_COST)).filter(|units| *units > 0);
                stated.or(*default).ok_or_else(|| {
                    let why = format!("request has no valid cost in the header `{name}`");
                    Error::new(ErrorKind::Request, why)
                })?
            }
        })
    }

    /// Reads a header that states a cost, or a table of one.
    fn of_table(table: &Map<String, Value>) -> Option<Result<Self, String>> {
        let (kind, named) = table.iter().find(|(field, _)| !OTHER.contains(&field.as_str()))?;
        let other = if kind == "request_header" { "default" } else { "charge" };
        let number = table.get(other);
        if table.len() != 1 + usize::from(number.is_some()) {
            return None;
        }
        let header = || {
            let name = named.as_str().unwrap_or_default().trim();
            name.parse::<HeaderName>().map_err(|_| format!("{name:?} is not a header name"))
        };
        let stated = match kind.as_str() {
            "request_header" => {
                let default = number.map(|number| match units(number) {
                    Some(units) => units,
                    None => Err(String::from("the default of a cost is not a number")),
                });
                let read =
                    || Ok(Self::RequestHeader { name: header()?, default: default.transpose()? });
                return Some(read());
            }
            "response_header" => header().map(StatedBy::Header),
            "response_json" => pointers(named).map(StatedBy::Json),
            _ => return None,
        };
        let charge = number.map_or(Ok(Self::Units(1)), |charge| match charge.clone().try_into() {
            Ok(Self::Response { .. }) => Err(String::from("a charge is known before the response")),
            charge => charge,
        });
        Some(stated.and_then(|stated| Ok(Self::Response { stated, charge: Box::new(charge?) })))
    }
}

/// The fields beside the one that names the cost.
const OTHER: [&str; 2] = ["default", "charge"];

/// Reads a whole number. `None` if it is none.
fn whole(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads the cost in a header of a response. `None` if there is no valid one.
pub(crate) fn of_response(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut lines = headers.get_all(name).iter();
    let (only, None) = (lines.next()?, lines.next()) else { return None };
    whole(only.to_str().ok()?.trim()).filter(|units| *units <= MAX_COST)
}

/// Reads a number of units. `None` if the value is no number.
fn units(value: &Value) -> Option<Result<u64, String>> {
    value.as_u64().map(|units| match units {
        0 => Err(String::from("a cost must be at least 1")),
        1..=MAX_COST => Ok(units),
        _ => Err(String::from("a cost must be at most 2^53")),
    })
}

/// Reads one JSON pointer or several.
fn pointers(value: &Value) -> Result<Texts, String> {
    let wrong = || format!("{value} is not a JSON pointer such as /usage/total_tokens");
    let pointers = Texts::deserialize(value).map_err(|_| wrong())?;
    let is_pointer = |text: &String| text.starts_with('/');
    if pointers.0.iter().all(is_pointer) { Ok(pointers) } else { Err(wrong()) }
}

impl TryFrom<Value> for PolicyCost {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        if let Some(units) = units(&value) {
            return units.map(Self::Units);
        }
        let text = value.as_str().unwrap_or_default();
        if text == "content_length_kb" {
            return Ok(Self::ContentLengthKb);
        }
        let read = match (text.split_once(':'), &value) {
            (Some((kind, name)), _) if !OTHER.contains(&kind) => {
                Self::of_table(&Map::from_iter([(kind.to_owned(), name.into())]))
            }
            // Without a default, it is written as a text.
            (_, Value::Object(table))
                if table.len() > 1 || !table.contains_key("request_header") =>
            {
                Self::of_table(table)
            }
            _ => None,
        };
        read.unwrap_or_else(|| {
            Err(format!(
                "{value} is not a cost: write a number, `content_length_kb`, `request_header:NAME`, `response_header:NAME`, `response_json:/POINTER`, or a table such as {{ request_header = NAME, default = n }} or {{ response_header = NAME, charge = n }}"
            ))
        })
    }
}

impl Serialize for PolicyCost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let header = |name: &HeaderName| json!(name.as_str());
        let table = match self {
            Self::Units(units) => return serializer.serialize_u64(*units),
            Self::ContentLengthKb => return serializer.serialize_str("content_length_kb"),
            Self::RequestHeader { name, default } => {
                ("request_header", header(name), default.map(|units| ("default", json!(units))))
            }
            Self::Response { stated, charge } => {
                let (kind, named) = match stated {
                    StatedBy::Header(name) => ("response_header", header(name)),
                    StatedBy::Json(Texts(texts)) => match &texts[..] {
                        [one] => ("response_json", json!(one)),
                        several => ("response_json", json!(several)),
                    },
                };
                let charge = Some(&**charge).filter(|charge| **charge != Self::Units(1));
                (kind, named, charge.map(|charge| ("charge", json!(charge))))
            }
        };
        match table {
            (kind, Value::String(name), None) => {
                serializer.collect_str(&format_args!("{kind}:{name}"))
            }
            (kind, named, other) => {
                serializer.collect_map([(kind, named)].into_iter().chain(other))
            }
        }
    }
}
