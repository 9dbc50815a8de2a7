//! Reads the rows of a table, and checks each of their fields.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::cost::Cost;
use super::error::{RowError, TableError};
use super::fields::Fields;
use super::gate::shared_limiters;
use super::key::Key;
use super::on_error::{self, OnError};
use super::pattern::{Matcher, Pattern, tell_apart};
use super::row::{Row, Rows};
use super::rule::{Policy, Written};
use super::setting::Setting;
use crate::decision::is_policy_name;

/// Checks the rows of a table.
pub(super) fn policies(rows: &Rows) -> Result<Vec<Policy>, TableError> {
    let (mut policies, mut errors, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let tables = [("policy", &rows.policy), ("interface", &rows.interface)];
    for (table, rows) in tables {
        for (index, row) in rows.iter().enumerate() {
            let read = if table == "policy" { policy } else { interface };
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
        errors.push(RowError::new("policy", Some(policy.name()), 0).with("name", why));
    }
    if !errors.is_empty() {
        return Err(TableError::new(errors));
    }
    if policies.is_empty() && !rows.allow_empty {
        return Err(TableError::empty());
    }
    tell_apart(policies.iter_mut().map(Policy::matcher_mut));
    Ok(policies)
}

/// A row of a policy.
fn policy(row: &Row, index: usize) -> Result<Policy, Vec<RowError>> {
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
    let enabled = fields.flag("enabled");
    let shadow = fields.flag("shadow");
    let pattern = pattern.unwrap_or_default();
    let matcher = pattern.matcher();
    let matcher = matcher.or_else(|why| fields.wrong("match", why).ok_or(()));
    made(fields, name, setting, matcher.ok(), |setting| Written {
        key: key.unwrap_or_else(Key::global).ignoring_case(pattern.ignores_case()),
        pattern,
        cost: cost.unwrap_or(Cost::Units(1)),
        on_error: on_error.unwrap_or_default(),
        share,
        enabled: enabled.unwrap_or(true),
        shadow: shadow.unwrap_or(false),
        settings: setting.stated(row),
    })
}

/// A row of a supplier's interface.
fn interface(row: &Row, index: usize) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("interface", row, index);
    let name = name(&mut fields);
    let setting = Setting::interface(&mut fields);
    let status = fields.flag("status");
    let pattern = Pattern::interface(name.as_deref().unwrap_or_default());
    let matcher = pattern.matcher();
    let matcher = matcher.or_else(|why| fields.wrong("name", why).ok_or(()));
    made(fields, name, setting, matcher.ok(), |_| Written {
        key: Key::global(),
        pattern,
        cost: Cost::Units(1),
        on_error: OnError::default(),
        share: None,
        enabled: status.unwrap_or(true),
        shadow: false,
        settings: Map::from_iter([(String::from("wait_for_own_cost"), Value::Bool(true))]),
    })
}

/// The policy of a row that was read, unless something was wrong.
fn made(
    fields: Fields,
    name: Option<String>,
    setting: Option<Setting>,
    matcher: Option<Matcher>,
    written: impl FnOnce(&Setting) -> Written,
) -> Result<Policy, Vec<RowError>> {
    let errors = fields.end();
    let (Some(name), Some(setting), Some(matcher), []) = (name, setting, matcher, &errors[..])
    else {
        return Err(errors);
    };
    let written = written(&setting);
    Ok(Policy::new(name, setting, matcher, written))
}

/// A name that response headers and labels can hold as it is.
fn name(fields: &mut Fields) -> Option<String> {
    let name: String = fields.required("name")?;
    if matches!(name.as_str(), "." | "..") {
        return fields.wrong("name", "a name stands in paths, which . and .. change");
    }
    match is_policy_name(&name) {
        true => Some(name),
        false => fields.wrong("name", "a name has 1 to 64 letters, digits and characters of _.:-"),
    }
}
