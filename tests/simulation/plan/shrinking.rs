//! The shortest history that breaks a promise.

use std::time::Duration;

use super::super::network::Odds;
use super::super::servers::Topology;
use super::{Plan, Stack, Then, Way};

impl Plan {
    /// The smallest plan that is found which breaks a promise as this one does.
    pub fn shrunk(&self, breaks: impl Fn(&Self) -> bool) -> Self {
        let mut plan = self.clone();
        while let Some(smaller) = plan.smaller().into_iter().find(&breaks) {
            plan = smaller;
        }
        plan
    }

    /// The plans that are smaller by one part, the largest parts first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                plans.push(plan);
            }
        };
        let mut size = self.asks.len().div_ceil(2);
        while size > 0 {
            for begin in (0..self.asks.len()).step_by(size) {
                let end = (begin + size).min(self.asks.len());
                add(&|plan| drop(plan.asks.drain(begin..end)));
            }
            size /= 2;
        }
        for index in 0..self.strikes.len() {
            add(&|plan| {
                plan.strikes.remove(index);
            });
        }
        for index in 1..self.tables.len() {
            add(&|plan| {
                plan.tables.remove(index);
            });
        }
        for index in 0..self.freezes.len() {
            add(&|plan| {
                plan.freezes.remove(index);
            });
        }
        add(&|plan| plan.deaths.clear());
        add(&|plan| plan.odds = Odds::default());
        for kind in 0..Odds::default().all_mut().len() {
            add(&|plan| *plan.odds.all_mut()[kind] = 0);
        }
        add(&|plan| plan.stack = Stack::default());
        add(&|plan| plan.stack.lease = None);
        add(&|plan| plan.stack.has_deny_cache = false);
        add(&|plan| plan.stack.has_breaker = false);
        add(&|plan| plan.stack.slow_after = None);
        add(&|plan| plan.stack.max_keys = None);
        add(&|plan| plan.stack.timeout = None);
        add(&|plan| plan.stack.has_fallback = false);
        add(&|plan| plan.stack.ban = None);
        add(&|plan| plan.topology = Topology::One);
        for index in 0..self.asks.len() {
            add(&|plan| plan.asks[index].patience = None);
            add(&|plan| plan.asks[index].then = Then::Keep);
            add(&|plan| plan.asks[index].max_wait = Duration::ZERO);
            add(&|plan| plan.asks[index].way = Way::Acquire);
            add(&|plan| plan.asks[index].own_quota = None);
            add(&|plan| plan.asks[index].keep_free = 0);
        }
        plans
    }
}
