//! Reads the rows of a table into policies, and checks them.

use std::collections::HashSet;
use std::time::Duration;

use super::checked_policy::{self, Cost, OnError, Policy};
use super::chosen_algorithm::Setting;
use super::limited_policy::shared_limiters;
use super::path::Allowed;
use super::pattern::{Pattern, Written};
use super::policy_key::Key;
use super::row::{Row, Rows};
use super::row_fields::{Fields, RowError, TableError};
use crate::Quota;
use crate::decision::is_policy_name;

/// Checks the rows of a table, and the parts that it allows in paths.
pub(super) fn policies(rows: &Rows) -> Result<(Vec<Policy>, Allowed), TableError> {
    let (mut policies, mut errors, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let allowed = Allowed::new(&rows.allow_in_paths).unwrap_or_else(|unknown| {
        let error = |(text, why)| RowError::new("allow_in_paths", Some(text), 0).about(None, why);
        errors.extend(unknown.into_iter().map(error));
        Allowed::default()
    });
    let tables = [("policy", &rows.policy), ("interface", &rows.interface)];
    for (table, rows) in tables {
        for (index, row) in rows.iter().enumerate() {
            let read = if table == "policy" { policy } else { interface };
            match read(row, index, &allowed) {
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
    if !errors.is_empty() || policies.is_empty() && !rows.allow_empty {
        return Err(TableError(errors));
    }
    Ok((policies, allowed))
}

/// Reads the row of a policy.
fn policy(row: &Row, index: usize, allowed: &Allowed) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("policy", row, index);
    let name = name(&mut fields);
    let setting = Setting::read(&mut fields);
    let key = fields.optional("key");
    let written: Option<Written> = fields.optional("match");
    let pattern = written.and_then(|written| fields.checked("match", Pattern::try_from(written)));
    let cost = fields.optional("cost");
    if let (Some(Cost::Units(units)), Some(setting)) = (cost, setting)
        && let Err(why) = setting.check_cost(units)
    {
        fields.wrong::<()>("cost", why);
    }
    let on_error: Option<OnError> = fields.optional("on_error");
    let share = match (on_error, &setting) {
        (Some(OnError::Local(0)), _) => {
            fields.wrong("on_error", "a local share must be at least 1")
        }
        (Some(OnError::Local(units)), _) if matches!(cost, Some(Cost::Units(own)) if own > units) => {
            fields.wrong("on_error", "a request costs more than the local share")
        }
        (Some(OnError::Local(units)), Some(setting)) => {
            fields.checked("on_error", checked_policy::share(units, setting.quota.period()))
        }
        _ => None,
    };
    let enabled = fields.flag("enabled");
    let shadow = fields.flag("shadow");
    let pattern = pattern.unwrap_or_default();
    let matcher = fields.checked("match", pattern.matcher(allowed));
    let errors = fields.end();
    let (Some(name), Some(setting), Some(matcher), []) = (name, setting, matcher, &errors[..])
    else {
        return Err(errors);
    };
    Ok(Policy {
        name,
        algorithm: setting.name,
        limit: setting.quota.limit(),
        period: setting.quota.period(),
        settings: setting.stated(row),
        max_wait: setting.max_wait,
        key: key.unwrap_or_else(Key::global).ignoring_case(pattern.ignore_case),
        pattern,
        cost: cost.unwrap_or(Cost::Units(1)),
        on_error: on_error.unwrap_or_default(),
        enabled: enabled.unwrap_or(true),
        shadow: shadow.unwrap_or(false),
        choice: setting.choice,
        share,
        quota: setting.quota,
        matcher,
    })
}

/// Reads the row of a supplier's interface: a policy that takes every path under its name.
fn interface(row: &Row, index: usize, allowed: &Allowed) -> Result<Policy, Vec<RowError>> {
    let mut fields = Fields::new("interface", row, index);
    let name = name(&mut fields);
    let rate: Option<u64> = fields.required("rate");
    let ratio = fields.ratio("cache").unwrap_or(0.5);
    if let Some(rate) = rate {
        fields.checked("rate", Quota::try_new(rate, Duration::from_secs(1)));
    }
    let status = fields.flag("status").unwrap_or(true);
    let errors = fields.end();
    let (Some(name), Some(rate), []) = (name, rate, &errors[..]) else { return Err(errors) };
    // In other routers, a segment that begins with a colon is a placeholder.
    let segment = name.strip_prefix(':').map_or(name.clone(), |rest| format!("%3A{rest}"));
    let paths = ["", "/", "/{*rest}"].map(|end| format!("/{segment}{end}"));
    let row = Row::new().with("name", name).with("algorithm", "smooth_bursty");
    let row = row.with("limit", rate).with("period", "1s").with("cache_ratio", ratio);
    let row = row.with("wait_for_own_cost", true).with("enabled", status);
    let of_rate = |mut error: RowError| {
        (error.table, error.field) = ("interface", Some("rate".into()));
        error
    };
    policy(&row.with("match", paths.to_vec()), index, allowed)
        .map_err(|errors| errors.into_iter().map(of_rate).collect())
}

/// Reads a name, which response headers and labels contain unchanged.
fn name(fields: &mut Fields) -> Option<String> {
    let name: String = fields.required("name")?;
    if matches!(name.as_str(), "." | "..") {
        return fields.wrong("name", "a name is used in paths, where . and .. are not names");
    }
    match is_policy_name(&name) {
        true => Some(name),
        false => fields.wrong("name", "a name has 1 to 64 letters, digits and characters of _.:-"),
    }
}
