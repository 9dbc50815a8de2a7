//! The sliding log, as a list of everything that was ever admitted.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Grant, Mark, Model, numbers, over_any_window};

/// `limit` units in any `period` µs.
#[derive(Clone, Debug)]
pub struct Log {
    limit: i128,
    period: i128,
    grants: Vec<Grant>,
    /// The instant at which something was taken last, which may have been given back since.
    taken: i128,
}

impl Log {
    pub fn boxed(quota: Quota) -> Box<dyn Model> {
        let (limit, period, _) = numbers(quota);
        Box::new(Self { limit, period, grants: Vec::new(), taken: 0 })
    }

    /// Returns the instant that reservations have come to.
    fn latest(&self) -> Option<i128> {
        self.grants.last().map(|grant| grant.0)
    }
}

impl Model for Log {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        if cost > self.limit {
            return None;
        }
        let from = self.latest().map_or(now, |latest| latest.max(now));
        let mut units = cost;
        let leaver = self.grants.iter().rev().find(|grant| {
            units += grant.1;
            units > self.limit
        });
        Some(leaver.map_or(from, |leaver| from.max(leaver.0 + self.period)))
    }

    fn take(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        self.taken = self.taken.max(now);
        self.grants.push((at, cost));
        [at, self.grants.len() as i128]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        let newest = self.latest().map(|latest| [latest, self.grants.len() as i128]);
        if newest == Some(mark) && mark[0] + self.period > now { cost } else { 0 }
    }

    fn put_back(&mut self, _mark: Mark, _units: i128) {
        self.grants.pop();
    }

    /// The newest units, until none count.
    fn grant(&mut self, now: i128, mut units: i128) {
        let counts = |grants: &[Grant]| {
            let inside = grants.iter().filter(|grant| grant.0 > now - self.period);
            inside.map(|grant| grant.1).sum::<i128>() > 0
        };
        while units > 0 && counts(&self.grants) {
            let newest = self.grants.last_mut().expect("it counts");
            let given = units.min(newest.1);
            (newest.1, units) = (newest.1 - given, units - given);
            self.grants.pop_if(|newest| newest.1 == 0);
        }
        if !counts(&self.grants) {
            self.grants.clear();
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        if self.latest().is_some_and(|latest| latest > now) {
            return 0;
        }
        let inside = self.grants.iter().rev().take_while(|grant| grant.0 > now - self.period);
        (self.limit - inside.map(|grant| grant.1).sum::<i128>()).max(0)
    }

    fn reset_after(&self, now: i128) -> i128 {
        self.latest().map_or(0, |latest| (latest + self.period - now).max(0))
    }

    /// `total:units@instant` for each of the newest members, but for those that were old when
    /// something was taken, the totals rising by the units.
    fn is_stored_as(&self, text: &str) -> bool {
        let member = |text: &str| {
            let (total, rest) = text.split_once(':')?;
            let (units, at) = rest.split_once('@')?;
            let numbers = (at.parse().ok()?, units.parse().ok()?);
            Some((numbers, total.parse::<i128>().ok()?)).filter(|_| total.len() == 20)
        };
        let Some(members) = text.split(' ').map(member).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let rising = members.windows(2).all(|pair| pair[0].1 + pair[1].0.1 == pair[1].1);
        let Some(older) = self.grants.len().checked_sub(members.len()) else { return false };
        let (gone, kept) = self.grants.split_at(older);
        rising
            && gone.iter().all(|grant| grant.0 <= self.taken - self.period)
            && members.iter().map(|member| &member.0).eq(kept)
    }

    fn excess(&self, grants: &[Grant]) -> usize {
        over_any_window(grants, self.period, self.limit)
    }

    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let periods = (last - first) / self.period;
        (first..first + periods * self.period, periods * self.limit)
    }
}
