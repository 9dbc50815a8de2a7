//! Quotas by a value of the request: the plan of its caller.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU64;

use serde::Deserialize;
use tower_sluice::key::Head;
use tower_sluice::{Charge, Quota};

use super::chosen_algorithm::Name;
use super::fields::Fields;
use super::policy_cost::PolicyCost;
use super::policy_key::{Finders, PolicyKey};
use super::setting::Setting;
use super::written::Written;

/// The quotas of a row, by the names of plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    found_by: Option<PolicyKey>,
    quotas: BTreeMap<String, Plan>,
}

/// The quota of a plan, and the units that each of its requests leaves free.
#[derive(Clone, Copy, Debug)]
struct Plan {
    quota: Quota,
    keep_free: u64,
}

/// The quota of a plan as a row writes it. Its period is that of the row.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a number of units, or a table of limit and burst")]
pub(crate) enum PlanQuota {
    Limit(u64),
    Table(LimitAndBurst),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitAndBurst {
    limit: u64,
    burst: Option<NonZeroU64>,
}

impl Plans {
    /// Reads the plans of a row whose own quota is valid.
    pub(crate) fn of(row: &mut Written, finders: &Finders, fields: &mut Fields) -> Self {
        let (found_by, written) = match (row.plan.take(), row.quotas.take()) {
            (None, None) => return Self::default(),
            (Some(found_by), Some(written)) if !written.is_empty() => (found_by, written),
            (Some(_), _) => {
                fields.required::<()>("quotas", None);
                return Self::default();
            }
            (None, Some(_)) => {
                fields.required::<()>("plan", None);
                return Self::default();
            }
        };
        fields.checked("plan", found_by.check(finders).and_then(|()| found_by.check_plan()));
        if row.algorithm == Name::Redisson {
            fields.wrong::<()>("quotas", "redisson has one quota for all");
        }
        let has_burst = matches!(row.algorithm, Name::TokenBucket | Name::Budget);
        let own = (row.limit, row.burst);
        let mut quotas = BTreeMap::new();
        for (name, written) in written {
            let LimitAndBurst { limit, burst } = match written {
                PlanQuota::Limit(limit) => LimitAndBurst { limit, burst: None },
                PlanQuota::Table(both) => both,
            };
            if burst.is_some() && !has_burst {
                fields.wrong::<()>("quotas", format!("{name}: this algorithm has no burst"));
                continue;
            }
            row.limit = Some(limit);
            if has_burst {
                row.burst = burst;
            }
            let errors = mem::take(&mut fields.errors);
            let setting = Setting::of(row, fields);
            let units = row.cost.as_ref().and_then(PolicyCost::fixed).unwrap_or(1);
            let fits = setting.map_or(Ok(()), |setting| setting.check_cost(units));
            let wrong = mem::replace(&mut fields.errors, errors);
            let wrong = wrong.first().map(|error| error.message().to_owned()).or(fits.err());
            match (wrong, setting) {
                (None, Some(Setting { quota, keep_free, .. })) => {
                    quotas.insert(name, Plan { quota, keep_free });
                }
                (why, _) => {
                    fields.wrong::<()>("quotas", format!("{name}: {}", why.unwrap_or_default()));
                }
            }
        }
        (row.limit, row.burst) = own;
        Self { found_by: Some(found_by), quotas }
    }

    /// Returns the quota of this plan.
    pub(crate) fn quota(&self, plan: &str) -> Option<Quota> {
        self.quotas.get(plan).map(|plan| plan.quota)
    }

    /// Returns the charge with the quota of the request's plan. A request with another plan, or
    /// with none, keeps the quota of the row.
    pub(crate) fn charge(&self, charge: Charge, head: &Head<'_>, finders: &Finders) -> Charge {
        let Some(found_by) = &self.found_by else { return charge };
        let plan = found_by.plan(head, finders).and_then(|name| self.quotas.get(&name));
        match plan {
            Some(plan) => charge.quota(plan.quota).keep_free(plan.keep_free),
            None => charge,
        }
    }
}
