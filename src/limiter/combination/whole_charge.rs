//! Joins the charges of several members to one charge, for a list of their algorithms.

use crate::core::charge::{KeepFree, Key};
use crate::core::quota::{CostAndWait, Quota, Quotas};
use crate::core::reservation::ReservedUnits;
use crate::core::settlement::Settlement;
use crate::core::{Charge, Error, ErrorKind};
use crate::limiter::charge_numbers::{micros, units};
use crate::limiter::line::SettleUnits;

/// Joins charges with equal costs and longest waits. `own` are the limiters' quotas.
pub(crate) fn of_alike(charges: &[&Charge], own: &Quotas) -> Result<Charge, Error> {
    let whole = charges[0].clone().keep_free(keep_free(charges)?);
    match charges.iter().all(|charge| charge.own_quota().is_none()) {
        true => Ok(whole),
        false => Ok(whole.quota(Quotas::from(&*quotas(charges, own)?))),
    }
}

/// Joins charges that keep their own costs and longest waits. The result has the largest cost and
/// the longest wait. `own` are the limiters' quotas.
pub(crate) fn of_each(charges: &[&Charge], own: &Quotas) -> Result<Charge, Error> {
    let stated = charges.iter().map(|charge| CostAndWait {
        cost: units(charge.units()),
        max_wait: micros(charge.longest_wait().unwrap_or_default()),
    });
    let with_costs = Quotas::with_costs(quotas(charges, own)?.into_iter().zip(stated));
    let cost = charges.iter().map(|charge| charge.units()).max().unwrap_or(1);
    let max_wait = charges.iter().filter_map(|charge| charge.longest_wait()).max();
    let whole = charges[0].clone().cost(cost).max_wait(max_wait.unwrap_or_default());
    Ok(whole.keep_free(keep_free(charges)?).quota(with_costs))
}

fn keep_free(charges: &[&Charge]) -> Result<KeepFree, Error> {
    if charges.iter().all(|charge| charge.keep_free.is_none()) {
        return Ok(KeepFree::default());
    }
    let one = |charge: &&Charge| match charge.keep_free.as_slice() {
        [_, _, ..] => {
            Err(Error::new(ErrorKind::Configuration, "a member leaves free one number of units"))
        }
        _ => Ok(charge.kept_free(0)),
    };
    Ok(charges.iter().map(one).collect::<Result<Vec<_>, _>>()?.as_slice().into())
}

fn quotas(charges: &[&Charge], own: &Quotas) -> Result<Vec<Quota>, Error> {
    let quota = |(charge, own): (&&Charge, &Quota)| {
        charge.own_quota().map_or(Ok(*own), Quotas::only).map_err(|error| {
            Error::new(ErrorKind::Configuration, "a member takes one quota").with_source(error)
        })
    };
    charges.iter().zip(own.as_slice()).map(quota).collect()
}

/// Settles the part of each member in a reservation of `cost` units, each on its own. `members` are
/// the stores and their keys, `own` the limiters' quotas.
pub(crate) fn settle_each<'a>(
    members: impl Iterator<Item = (&'a dyn SettleUnits, &'a str)>,
    (cost, reserved): (u64, &ReservedUnits),
    own: &Quotas,
    actual: &dyn Fn(usize, u64) -> u64,
) -> Settlement {
    let quotas = reserved.quota.as_ref().unwrap_or(own);
    let parts = members.zip(quotas.as_slice()).enumerate();
    Settlement::all(parts.map(|(index, ((store, key), quota))| {
        let cost = quotas.stated(index).map_or(cost, |own| own.cost.cast_unsigned());
        let (key, quota) = (Key::Owned(key.to_owned()), Some((*quota).into()));
        let part = ReservedUnits { key, quota, mark: reserved.mark.of(index) };
        store.settle_units(&part, cost, actual(index, cost))
    }))
}
