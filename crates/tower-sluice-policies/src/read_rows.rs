//! Reads the rows of a table into policies, and checks them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower_sluice::Quota;

use super::chosen_algorithm::Name;
use super::fields::Fields;
use super::limited_policy::shared_limiters;
use super::path::Allowed;
use super::pattern::{self, Matcher, Pattern};
use super::plans::Plans;
use super::policy::{self, OnError, Policy};
use super::policy_cost::{PolicyCost, StatedBy};
use super::policy_key::{Finders, PolicyKey};
use super::row::{Row, Rows};
use super::setting::Setting;
use super::table_error::{RowError, TableError};
use super::values::Flag;
use super::written::Written;

/// Checks the rows of a table, and the parts that it allows in paths.
pub(crate) fn policies(rows: &Rows, finders: &Finders) -> Result<Read, TableError> {
    let (mut policies, mut errors, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let mut exempt = Vec::new();
    let allowed = Allowed::new(&rows.allow_in_paths).unwrap_or_else(|unknown| {
        let error = |(text, why)| RowError::new("allow_in_paths", Some(text), 0).with(None, why);
        errors.extend(unknown.into_iter().map(error));
        Allowed::default()
    });
    let tables = [("policy", &rows.policy), ("interface", &rows.interface)];
    for (table, rows) in tables {
        for (index, row) in rows.iter().enumerate() {
            let read = if table == "policy" { policy } else { interface };
            if table == "policy" && is_exempt(row) {
                match exemption(row, index, &allowed) {
                    Ok(exemption) => exempt.push(Arc::new(exemption)),
                    Err(wrong) => errors.extend(wrong),
                }
            } else {
                match read(row, index, &allowed, finders) {
                    Ok(policy) => policies.push(policy),
                    Err(wrong) => errors.extend(wrong),
                }
            }
            if let Some(name) = row.name()
                && !names.insert(name)
            {
                let error = RowError::new(table, Some(name), index);
                errors.push(error.with(Some("name"), "another row has this name"));
            }
        }
    }
    for (policy, why) in shared_limiters(&policies) {
        errors.push(RowError::new("policy", Some(policy.name()), 0).with(Some("name"), why));
    }
    if !errors.is_empty() || policies.is_empty() && !rows.allow_empty {
        return Err(TableError(errors));
    }
    Ok(Read { policies, exempt, allowed })
}

/// The rows of a valid table.
pub(crate) struct Read {
    pub(crate) policies: Vec<Policy>,
    pub(crate) exempt: Vec<Arc<Exemption>>,
    pub(crate) allowed: Allowed,
}

/// Returns true if a row exempts requests.
fn is_exempt(row: &Row) -> bool {
    let of_row = row.fields().find(|(field, _)| *field == "exempt");
    let value = of_row.and_then(|(_, value)| value.as_ref().ok());
    value.is_some_and(|value| Flag::try_from(value.clone()).is_ok_and(|Flag(on)| on))
}

/// The fields of a row that exempts requests.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Exempting {
    name: Option<String>,
    #[serde(rename = "exempt")]
    _exempt: Option<Flag>,
    #[serde(rename = "match", deserialize_with = "pattern::written")]
    pattern: Pattern,
    enabled: Option<Flag>,
}

/// A row of the table in force that [exempts](crate::guide#exempt-requests) requests from all
/// policies. It serializes as that row.
#[derive(Clone, Debug, Serialize)]
pub struct Exemption {
    name: String,
    exempt: bool,
    #[serde(rename = "match")]
    pattern: Pattern,
    pub(crate) enabled: bool,
    #[serde(skip)]
    pub(crate) matcher: Matcher,
}

impl Exemption {
    /// The name of the row.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns false if the row is disabled: it then exempts nothing.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }
}

/// Returns true if a table has an empty part, which elsewhere counts as absent.
fn has_null(value: &Value) -> bool {
    let Value::Object(fields) = value else { return false };
    fields.values().any(|value| value.is_null() || has_null(value))
}

/// Reads a row that exempts requests.
fn exemption(row: &Row, index: usize, allowed: &Allowed) -> Result<Exemption, Vec<RowError>> {
    let mut fields = Fields::new("policy", row, index);
    let written = row.fields().find(|(field, _)| *field == "match");
    let has_null = written.is_some_and(|(_, value)| value.as_ref().is_ok_and(has_null));
    let row: Exempting = fields.read();
    let name = name(row.name, &mut fields);
    if row.pattern == Pattern::default() && !fields.is_wrong("match") {
        fields.wrong::<()>("match", "it is missing: no request would be limited");
    }
    if has_null {
        fields.wrong::<()>("match", "a part of it is empty: the row would exempt more than that");
    }
    let matcher = fields.checked("match", row.pattern.matcher(allowed));
    let (Some(name), Some(matcher), []) = (name, matcher, &fields.errors[..]) else {
        return Err(fields.errors);
    };
    let enabled = row.enabled.is_none_or(|Flag(on)| on);
    Ok(Exemption { name, exempt: true, pattern: row.pattern, enabled, matcher })
}

/// Reads the row of a policy.
fn policy(
    row: &Row,
    index: usize,
    allowed: &Allowed,
    finders: &Finders,
) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("policy", row, index);
    let mut row: Written = fields.read();
    let name = name(row.name.take(), &mut fields);
    let setting = if fields.is_wrong("algorithm") { None } else { Setting::of(&row, &mut fields) };
    let plans = setting.map(|_| Plans::of(&mut row, finders, &mut fields));
    let Written { on_error, .. } = row;
    let cost = row.cost.unwrap_or(PolicyCost::Units(1));
    match cost.stated_by() {
        Some(_) if row.algorithm == Name::Concurrency => {
            fields
                .wrong::<()>("cost", "a concurrency counts requests only until they are answered");
        }
        Some(StatedBy::Json(_)) if !finders.reads_bodies => {
            fields.wrong::<()>("cost", "this program does not read the bodies of responses");
        }
        _ => {}
    }
    if let (Some(units), Some(setting)) = (cost.fixed(), setting) {
        fields.checked("cost", setting.check_cost(units));
    } else if let Some(setting) = setting.filter(|setting| setting.keep_free > 0) {
        // Without a cost of the row, no request costs less.
        fields.checked("keep_free", setting.check_cost(1));
    }
    let share = match on_error {
        OnError::Local(0) => fields.wrong("on_error", "a local share must be at least 1"),
        OnError::Local(units) if cost.fixed().is_some_and(|own| own > units) => {
            fields.wrong("on_error", "a request costs more than the local share")
        }
        OnError::Local(units) => setting.and_then(|setting| {
            // Of a suspended plan, no share admits anything either.
            let units = if setting.quota.is_none() { 0 } else { units };
            fields.checked("on_error", policy::share(units, setting.quota.period()))
        }),
        OnError::Deny | OnError::Allow => None,
    };
    if let Some(ban) = &row.ban_after {
        fields.checked("ban_after", ban.check(row.algorithm));
    }
    let matcher = fields.checked("match", row.pattern.matcher(allowed));
    if let Some(key) = &row.key {
        fields.checked("key", key.check(finders));
    }
    let Fields { valid, errors, .. } = fields;
    let (Some(name), Some(setting), Some(matcher), []) = (name, setting, matcher, &errors[..])
    else {
        return Err(errors);
    };
    let (algorithm, own) = row.algorithm.written();
    let common = ["ban_after", "horizon", "plan", "quotas"];
    let is_own = |field: &String| common.contains(&&**field) || own.contains(&&**field);
    let mut settings: Map<_, _> = valid.into_iter().filter(|(field, _)| is_own(field)).collect();
    if matches!(row.algorithm, Name::TokenBucket | Name::Budget) {
        settings.insert("burst".into(), setting.quota.burst_size().into());
    }
    Ok(Policy {
        name,
        algorithm,
        limit: setting.quota.limit(),
        // The windows of a calendar have no equal length.
        period: row.calendar.map_or(setting.quota.period(), |_| Duration::ZERO),
        settings,
        max_wait: setting.max_wait,
        keep_free: setting.keep_free,
        key: row.key.unwrap_or_else(PolicyKey::global).ignoring_case(row.pattern.ignore_case),
        pattern: row.pattern,
        cost,
        on_error,
        enabled: row.enabled.is_none_or(|Flag(on)| on),
        shadow: row.shadow.is_some_and(|Flag(on)| on),
        choice: setting.choice,
        share,
        quota: setting.quota,
        plans: plans.unwrap_or_default(),
        ban: row.ban_after,
        matcher,
    })
}

/// The fields of a supplier's interface.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Interface {
    name: Option<String>,
    rate: Option<u64>,
    cache: Option<f64>,
    status: Option<Flag>,
}

/// Reads the row of a supplier's interface: a policy that takes every path under its name.
fn interface(
    row: &Row,
    index: usize,
    allowed: &Allowed,
    finders: &Finders,
) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("interface", row, index);
    let row: Interface = fields.read();
    let name = name(row.name, &mut fields);
    let rate = fields.required("rate", row.rate);
    let ratio = fields.within("cache", row.cache, [0, 1_000]).unwrap_or(0.5);
    let second = Duration::from_secs(1);
    let rate = rate.filter(|rate| fields.checked("rate", Quota::try_new(*rate, second)).is_some());
    let errors = fields.errors;
    let (Some(name), Some(rate), []) = (name, rate, &errors[..]) else { return Err(errors) };
    // In other routers, a segment that begins with a colon is a placeholder.
    let segment = name.strip_prefix(':').map_or(name.clone(), |rest| format!("%3A{rest}"));
    let paths = ["", "/{*rest}"].map(|end| format!("/{segment}{end}"));
    let policy_row = Row::new().with("name", name).with("algorithm", "smooth_bursty");
    let policy_row = policy_row.with("limit", rate).with("period", "1s").with("cache_ratio", ratio);
    let policy_row = policy_row.with("wait_for_own_cost", true);
    let is_on = row.status.is_none_or(|Flag(on)| on);
    let policy_row = policy_row.with("enabled", is_on).with("match", paths.to_vec());
    let of_rate = |mut error: RowError| {
        (error.table, error.field) = ("interface", Some("rate".into()));
        error
    };
    policy(&policy_row, index, allowed, finders)
        .map_err(|errors| errors.into_iter().map(of_rate).collect())
}

/// Checks a name, which response headers and labels contain unchanged.
fn name(name: Option<String>, fields: &mut Fields) -> Option<String> {
    let name = fields.required("name", name)?;
    if matches!(name.as_str(), "." | "..") {
        return fields.wrong("name", "a name is used in paths, where . and .. are not names");
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    match (1..=64).contains(&name.len()) && name.bytes().all(is_of_name) {
        true => Some(name),
        false => fields.wrong("name", "a name has 1 to 64 letters, digits and characters of _.:-"),
    }
}
