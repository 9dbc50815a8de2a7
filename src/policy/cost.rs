//! The cost of a request under a policy.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::http::Head;

/// The bytes of a unit where the length of a body is the cost.
const KB: u64 = 1_024;

/// The largest cost. It is above every capacity, so what costs more can never pass either.
const MAX_COST: u64 = 1 << 53;

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Units(u64),
    /// The length of its body in units of 1,024 bytes, rounded up, at least 1.
    ContentLengthKb,
}

impl Cost {
    /// The units that a request costs.
    pub(super) fn of_request(self, head: &Head<'_>) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::ContentLengthKb => {
                let length = head.headers().get(http::header::CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok());
                let bytes = length.and_then(|length| length.trim().parse::<u64>().ok());
                bytes.unwrap_or(0).div_ceil(KB).clamp(1, MAX_COST)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_u64(), value.as_str()) {
            (Some(0), _) => Err(D::Error::custom("a cost is at least 1")),
            (Some(units), _) if units > MAX_COST => Err(D::Error::custom("a cost is at most 2^53")),
            (Some(units), _) => Ok(Self::Units(units)),
            (_, Some("content_length_kb")) => Ok(Self::ContentLengthKb),
            _ => Err(D::Error::custom(format!(
                "{value} is no cost, which is a number or `content_length_kb`"
            ))),
        }
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Units(units) => serializer.serialize_u64(*units),
            Self::ContentLengthKb => serializer.serialize_str("content_length_kb"),
        }
    }
}
