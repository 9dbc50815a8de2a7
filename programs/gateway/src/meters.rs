//! The counters of all requests, and of each policy in force.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use tower_sluice::Charge;
use tower_sluice::observe::Meter;
use tower_sluice_policies::PolicyEvent;

use serving::metrics::Metrics;

/// The label of the counters of all requests. No policy has such a name.
pub(crate) const REQUESTS: &str = "all requests";

/// The outcomes of a request, or of its part under one policy, as the page calls them. Only a
/// request that no policy takes has the last one.
pub(crate) const OUTCOMES: [&str; 8] =
    ["allowed", "delayed", "limited", "errors", "shadow", "failed_open", "off", "no_policy"];

/// The number of times that each of [`OUTCOMES`] came.
pub(crate) type OutcomeCounts = [u64; OUTCOMES.len()];

/// The counters, which `/metrics` shows too. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    metrics: Metrics,
    requests: Arc<Tally>,
    by_policy: Arc<RwLock<Arc<ByPolicy>>>,
}

type ByPolicy = HashMap<Arc<str>, Arc<OfPolicy>>;

#[derive(Debug)]
struct OfPolicy {
    meter: Meter,
    tally: Tally,
}

/// The counters of one name.
#[derive(Debug)]
struct Tally {
    /// In the order of [`OUTCOMES`], without those in a shadow.
    outcomes: [Tallied; OUTCOMES.len() - 1],
    /// Denied and undecided ones, and those without a key, in a shadow. They are among the outcomes
    /// too.
    shadowed: [Tallied; 3],
}

/// A counter, and its value when it was last read.
#[derive(Debug)]
struct Tallied {
    count: Arc<AtomicU64>,
    last: AtomicU64,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let requests = Arc::new(Tally::new(metrics, REQUESTS));
        Self { metrics: metrics.clone(), requests, by_policy: Arc::default() }
    }

    /// Counts for these policies: their counters are there from now on, at 0. Those of all others
    /// are gone.
    pub(crate) fn keep<'a>(&self, policies: impl Iterator<Item = &'a str>) {
        let before = Arc::clone(&self.by_policy.read().unwrap_or_else(PoisonError::into_inner));
        let of_policy = |name: &str| match before.get_key_value(name) {
            Some((name, known)) => (Arc::clone(name), Arc::clone(known)),
            None => {
                let name: Arc<str> = name.into();
                let meter = Meter::new(Arc::clone(&name));
                let tally = Tally::new(&self.metrics, &name);
                (name, Arc::new(OfPolicy { meter, tally }))
            }
        };
        let kept = Arc::new(policies.map(of_policy).collect());
        *self.by_policy.write().unwrap_or_else(PoisonError::into_inner) = kept;
        drop(before);
        self.metrics.sweep();
    }

    /// Counts what a policy decided. A refusal in a shadow is counted as one besides.
    pub(crate) fn record(&self, event: &PolicyEvent<'_>) {
        let meters = self.by_policy.read().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = meters.get(event.policy.name()) else { return };
        let decision = event.decision();
        // What counts is the outcome: the key is nobody's business here.
        one.meter.record(&Charge::from_static(""), decision.as_ref());
    }

    /// Returns the outcomes of all requests since the last call.
    pub(crate) fn new_requests(&self) -> OutcomeCounts {
        self.requests.new_counts()
    }

    /// Returns the decisions since the last call, of the policies that decided anything.
    pub(crate) fn new_decisions(&self) -> Vec<(Arc<str>, OutcomeCounts)> {
        let policies = Arc::clone(&self.by_policy.read().unwrap_or_else(PoisonError::into_inner));
        let counts = policies.iter().map(|(name, one)| (name, one.tally.new_counts()));
        let counts = counts.filter(|(_, counts)| *counts != OutcomeCounts::default());
        counts.map(|(name, counts)| (Arc::clone(name), counts)).collect()
    }
}

impl Tally {
    fn new(metrics: &Metrics, limiter: &str) -> Self {
        let by_outcome = |name, outcome| {
            Tallied::of(metrics.count(name, &[("limiter", limiter), ("outcome", outcome)]))
        };
        let decisions = |outcome| by_outcome("rate_limit_decisions_total", outcome);
        let shadowed = |outcome| by_outcome("rate_limit_shadow_refusals_total", outcome);
        let of = |name| Tallied::of(metrics.count(name, &[("limiter", limiter)]));
        let outcomes = [
            decisions("admitted"),
            decisions("delayed"),
            decisions("denied"),
            decisions("undecided"),
            of("rate_limit_fail_open_total"),
            of("rate_limit_switched_off_total"),
            Tallied::of(match limiter {
                // The crate counts on it, and does not hold it.
                REQUESTS => metrics.count("rate_limit_unmatched_total", &[]),
                _ => Arc::default(),
            }),
        ];
        Self { outcomes, shadowed: ["denied", "undecided", "invalid"].map(shadowed) }
    }

    /// Returns the counts since the last call. A refusal in a shadow is counted as `denied` or
    /// `undecided` besides, and is shown once.
    fn new_counts(&self) -> OutcomeCounts {
        let [allowed, delayed, denied, undecided, failed_open, off, no_policy] =
            self.outcomes.each_ref().map(Tallied::newly);
        let [would_deny, would_not_decide, invalid] = self.shadowed.each_ref().map(Tallied::newly);
        let limited = denied.saturating_sub(would_deny);
        let errors = undecided.saturating_sub(would_not_decide + invalid);
        let shadow = would_deny + would_not_decide + invalid;
        [allowed, delayed, limited, errors, shadow, failed_open, off, no_policy]
    }
}

impl Tallied {
    fn of(count: Arc<AtomicU64>) -> Self {
        Self { count, last: AtomicU64::new(0) }
    }

    /// Returns by how much it grew since the last call.
    fn newly(&self) -> u64 {
        let now = self.count.load(Relaxed);
        now.saturating_sub(self.last.swap(now, Relaxed))
    }
}
