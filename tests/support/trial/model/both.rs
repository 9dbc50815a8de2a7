//! Two quotas at once: what fits both, taken from both.

use std::ops::Range;

use tower_sluice::Quota;

use super::{Bucket, Grant, Mark, Model};

/// Two models of one key, and the marks that each reservation has in them.
#[derive(Clone, Debug)]
pub struct Both {
    members: [Box<dyn Model>; 2],
    marks: Vec<([Mark; 2], i128)>,
}

impl Both {
    /// A bucket, and one of three quarters of its rate and twice its burst.
    pub fn buckets(quota: Quota) -> Box<dyn Model> {
        Self::of([quota, Self::slower(quota)])
    }

    /// A bucket, and one that is never in its way, and so always made to wait for it.
    pub fn uneven(quota: Quota) -> Box<dyn Model> {
        Self::of([quota, Self::faster(quota)])
    }

    fn of(quotas: [Quota; 2]) -> Box<dyn Model> {
        Box::new(Self { members: quotas.map(Bucket::boxed), marks: Vec::new() })
    }

    pub fn slower(quota: Quota) -> Quota {
        Quota::new(quota.limit() * 3, quota.period() * 4).burst(quota.burst_size() * 2)
    }

    pub fn faster(quota: Quota) -> Quota {
        Quota::new(quota.limit() * 10, quota.period()).burst(quota.burst_size())
    }
}

impl Model for Both {
    fn earliest(&self, now: i128, cost: i128) -> Option<i128> {
        let [one, other] = &self.members;
        Some(one.earliest(now, cost)?.max(other.earliest(now, cost)?))
    }

    fn least_wait(&self, cost: i128) -> i128 {
        let [one, other] = &self.members;
        one.least_wait(cost).max(other.least_wait(cost))
    }

    fn take(&mut self, now: i128, at: i128, cost: i128) -> Mark {
        let mut marks = [Mark::default(); 2];
        for (member, mark) in self.members.iter_mut().zip(&mut marks) {
            *mark = member.take_with_others(now, at, cost);
        }
        self.marks.push((marks, cost));
        [self.marks.len() as i128 - 1, 0]
    }

    fn returnable(&self, now: i128, cost: i128, mark: Mark) -> i128 {
        let (marks, _) = self.marks[mark[0] as usize];
        let units = self.members.iter().zip(marks);
        units.map(|(member, mark)| member.returnable(now, cost, mark)).fold(0, i128::max)
    }

    /// Each what it can, which for buckets does not depend on the instant.
    fn put_back(&mut self, mark: Mark, _units: i128) {
        let (marks, cost) = self.marks[mark[0] as usize];
        for (member, mark) in self.members.iter_mut().zip(marks) {
            let units = member.returnable(0, cost, mark);
            if units > 0 {
                member.put_back(mark, units);
            }
        }
    }

    fn remaining(&self, now: i128) -> i128 {
        let [one, other] = &self.members;
        one.remaining(now).min(other.remaining(now))
    }

    fn reset_after(&self, now: i128) -> i128 {
        let [one, other] = &self.members;
        one.reset_after(now).max(other.reset_after(now))
    }

    /// Each under a key of its own.
    fn is_stored_as(&self, text: &str) -> bool {
        let texts: Vec<_> = text.split(" & ").collect();
        texts.len() == 2
            && self.members.iter().zip(texts).all(|(member, text)| member.is_stored_as(text))
    }

    fn keys(&self) -> usize {
        2
    }

    fn excess(&self, grants: &[Grant]) -> usize {
        self.members.iter().map(|member| member.excess(grants)).sum()
    }

    /// As the one has it that admits less.
    fn most(&self, first: i128, last: i128) -> (Range<i128>, i128) {
        let [one, other] = self.members.each_ref().map(|member| member.most(first, last));
        if one.1 < other.1 { one } else { other }
    }
}
