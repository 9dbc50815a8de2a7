//! A policy: a row whose every field was checked.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::error::{RowError, TableError};
use super::fields::Fields;
use super::gate::shared_limiters;
use super::key::Key;
use super::on_error::{self, OnError};
use super::pattern::{Matcher, Pattern};
use super::row::{Row, Rows};
use super::setting::{Choice, Setting};
use crate::algorithm::AnyAlgorithm;
use crate::decision::is_policy_name;
use crate::{Head, Quota};

/// The bytes of a unit where the length of a body is the cost.
const KB: u64 = 1_024;

/// The largest cost. It is above every capacity, so what costs more can never pass either.
const MAX_COST: u64 = 1 << 53;

/// A policy of the table in force. It serializes as a row that decides alike: with the defaults of
/// what every algorithm has, and with those settings of its own algorithm that its row states. A
/// `cache_ratio` becomes the `max_wait` that it means, and an interface a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Policy {
    name: String,
    algorithm: &'static str,
    limit: u64,
    #[serde(serialize_with = "as_text")]
    period: Duration,
    /// The settings of its own algorithm.
    #[serde(flatten)]
    settings: Map<String, Value>,
    #[serde(serialize_with = "as_text")]
    max_wait: Duration,
    key: Key,
    #[serde(rename = "match")]
    pattern: Pattern,
    cost: Cost,
    on_error: OnError,
    enabled: bool,
    shadow: bool,
    #[serde(skip)]
    pub(super) choice: Choice,
    /// What this process admits while the store cannot decide, if the row says so.
    #[serde(skip)]
    pub(super) share: Option<AnyAlgorithm>,
    #[serde(skip)]
    quota: Quota,
    #[serde(skip)]
    matcher: Matcher,
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    Units(u64),
    /// The length of its body in units of 1,024 bytes, rounded up, at least 1.
    ContentLengthKb,
}

impl Policy {
    /// Its name, which is also that of its keys.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its algorithm, as a row writes it.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        self.algorithm
    }

    /// Its quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The longest wait that it reserves for a request.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// What becomes of a request while the store cannot decide.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Whether its row turns it on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether its row puts it into a shadow.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether both decide alike about a key, whatever requests they take.
    pub(super) fn decides_as(&self, other: &Self) -> bool {
        self.choice == other.choice
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    /// The units that a request costs.
    pub(super) fn cost_of(&self, head: &Head<'_>) -> u64 {
        match self.cost {
            Cost::Units(units) => units,
            Cost::ContentLengthKb => {
                let length = head.headers().get(http::header::CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok());
                let bytes = length.and_then(|length| length.trim().parse::<u64>().ok());
                bytes.unwrap_or(0).div_ceil(KB).clamp(1, MAX_COST)
            }
        }
    }

    /// Checks the rows of a table.
    pub(super) fn of_rows(rows: &Rows) -> Result<Vec<Self>, TableError> {
        let (mut policies, mut errors, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        let tables = [("policy", &rows.policy), ("interface", &rows.interface)];
        for (table, rows) in tables {
            for (index, row) in rows.iter().enumerate() {
                let read = if table == "policy" { Self::read } else { Self::interface };
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
            errors.push(RowError::new("policy", Some(&policy.name), 0).with("name", why));
        }
        if errors.is_empty() { Ok(policies) } else { Err(TableError::new(errors)) }
    }

    fn read(row: &Row, index: usize) -> Result<Self, Vec<RowError>> {
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
                let share = on_error::share(units, setting.quota.period());
                share.or_else(|why| fields.wrong("on_error", why).ok_or(())).ok()
            }
            _ => None,
        };
        let enabled = fields.optional::<Switched>("enabled");
        let shadow = fields.optional::<Switched>("shadow");
        let pattern = pattern.unwrap_or_default();
        let matcher = pattern.matcher();
        let matcher = matcher.or_else(|why| fields.wrong("match", why).ok_or(()));
        Self::of(fields, name, setting, matcher.ok(), |setting| Written {
            key: key.unwrap_or_else(Key::global),
            pattern,
            cost: cost.unwrap_or(Cost::Units(1)),
            on_error: on_error.unwrap_or_default(),
            share,
            enabled: enabled.is_none_or(|Switched(on)| on),
            shadow: shadow.is_some_and(|Switched(on)| on),
            settings: setting.stated(row),
        })
    }

    /// A row of a supplier's interface.
    fn interface(row: &Row, index: usize) -> Result<Self, Vec<RowError>> {
        let mut fields = Fields::new("interface", row, index);
        let name = name(&mut fields);
        let setting = Setting::interface(&mut fields);
        let status = fields.optional::<Switched>("status");
        let pattern = Pattern::interface(name.as_deref().unwrap_or_default());
        let matcher = pattern.matcher();
        let matcher = matcher.or_else(|why| fields.wrong("name", why).ok_or(()));
        Self::of(fields, name, setting, matcher.ok(), |_| Written {
            key: Key::global(),
            pattern,
            cost: Cost::Units(1),
            on_error: OnError::default(),
            share: None,
            enabled: status.is_none_or(|Switched(on)| on),
            shadow: false,
            settings: Map::from_iter([(String::from("wait_for_own_cost"), Value::Bool(true))]),
        })
    }

    /// The policy of a row that was read, unless something was wrong.
    fn of(
        fields: Fields,
        name: Option<String>,
        setting: Option<Setting>,
        matcher: Option<Matcher>,
        written: impl FnOnce(&Setting) -> Written,
    ) -> Result<Self, Vec<RowError>> {
        let errors = fields.end();
        let (Some(name), Some(setting), Some(matcher), []) = (name, setting, matcher, &errors[..])
        else {
            return Err(errors);
        };
        let Written { key, pattern, cost, on_error, share, enabled, shadow, settings } =
            written(&setting);
        let Setting { name: algorithm, quota, choice, max_wait } = setting;
        let (limit, period) = (quota.limit(), quota.period());
        Ok(Self {
            name,
            algorithm,
            limit,
            period,
            settings,
            max_wait,
            key,
            pattern,
            cost,
            on_error,
            enabled,
            shadow,
            choice,
            share,
            quota,
            matcher,
        })
    }
}

/// What a row says besides its name and its algorithm.
struct Written {
    key: Key,
    pattern: Pattern,
    cost: Cost,
    on_error: OnError,
    share: Option<AnyAlgorithm>,
    enabled: bool,
    shadow: bool,
    settings: Map<String, Value>,
}

/// A name that response headers and labels can hold as it is.
fn name(fields: &mut Fields) -> Option<String> {
    let name: String = fields.required("name")?;
    match is_policy_name(&name) {
        true => Some(name),
        false => fields.wrong("name", "a name has 1 to 64 letters, digits and characters of _.:-"),
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

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = serde_json::Value::deserialize(deserializer)?;
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

fn as_text<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}
