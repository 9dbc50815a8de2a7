//! The counts that `/metrics` shows, under the names of envoyproxy/ratelimit.
//!
//! A rule has the labels `domain`, `key1`, `key2` and so on, as the file states them. So there are
//! no more series than rules. Values of requests stand in labels only where the file asks for them.
//! Callers choose those, so their number and their length are bounded: further ones share a series.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics::{
    Counter, Histogram, Label, counter, describe_counter, describe_histogram, histogram,
};

/// The part of a limit from which on requests are near it.
const NEAR: f64 = 0.8;
/// The most labels with values of requests.
const MOST_VALUES: usize = 10_000;
/// The most bytes of them that have counts of their own.
const LONGEST_VALUES: usize = 512;

/// A domain, and what each level is called: a key, or a key and a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Labels {
    domain: Arc<str>,
    levels: Vec<String>,
}

impl Labels {
    pub(crate) fn of_domain(domain: &str) -> Self {
        Self { domain: domain.into(), levels: Vec::new() }
    }

    /// The labels of all limits that requests of a domain bring along.
    pub(crate) fn of_overrides(domain: &str) -> Self {
        Self { domain: domain.into(), levels: vec!["override".to_owned()] }
    }

    /// The labels of those values of a domain that have no series of their own.
    pub(crate) fn of_others(domain: &str) -> Self {
        Self { domain: domain.into(), levels: vec!["other".to_owned()] }
    }

    /// Adds a level. An empty value stands for all.
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.levels.push(match value {
            "" => key.to_owned(),
            _ => format!("{key}_{value}"),
        });
    }

    fn list(&self) -> Vec<Label> {
        let levels = self.levels.iter().enumerate();
        let levels = levels.map(|(at, one)| Label::new(format!("key{}", at + 1), one.clone()));
        [Label::new("domain", self.domain.to_string())].into_iter().chain(levels).collect()
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain)?;
        self.levels.iter().try_for_each(|level| write!(f, ".{level}"))
    }
}

/// The counts of a rule, in hits.
pub(crate) struct RuleCounts {
    total: Counter,
    within: Counter,
    near: Counter,
    over: Counter,
    shadow: Counter,
    negative: Counter,
}

impl fmt::Debug for RuleCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleCounts").finish_non_exhaustive()
    }
}

impl RuleCounts {
    fn new(labels: &Labels) -> Self {
        let labels = labels.list();
        Self {
            total: counter!("ratelimit_service_rate_limit_total_hits", labels.clone()),
            within: counter!("ratelimit_service_rate_limit_within_limit", labels.clone()),
            near: counter!("ratelimit_service_rate_limit_near_limit", labels.clone()),
            over: counter!("ratelimit_service_rate_limit_over_limit", labels.clone()),
            shadow: counter!("ratelimit_service_rate_limit_shadow_mode", labels.clone()),
            negative: counter!("ratelimit_service_rate_limit_total_negative_hits", labels),
        }
    }

    /// Counts hits that had so much left of `room` afterwards.
    pub(crate) fn within(&self, hits: u64, room: u64, left: u64) {
        self.total.increment(hits);
        self.within.increment(hits);
        // The room is below 2^53, and a rounded bound of a statistic is as good.
        let bound = (room as f64 * NEAR).floor() as u64;
        let used = room.saturating_sub(left);
        if used > bound {
            self.near.increment(hits.min(used - bound));
        }
    }

    /// Counts hits that had no room.
    pub(crate) fn over(&self, hits: u64, is_shadow: bool) {
        self.total.increment(hits);
        self.over.increment(hits);
        if is_shadow {
            self.shadow.increment(hits);
        }
    }

    /// Counts hits that were to be given back.
    pub(crate) fn given_back(&self, hits: u64) {
        self.negative.increment(hits);
    }

    /// Counts hits on a rule without a limit.
    pub(crate) fn unlimited(&self, hits: u64) {
        self.total.increment(hits);
        self.within.increment(hits);
    }
}

/// Counts by their labels, which live as long as the process.
type Known = RwLock<HashMap<Labels, Arc<RuleCounts>>>;

/// All counts of the process.
pub(crate) struct Stats {
    rules: Known,
    /// Those whose labels have values of requests.
    values: Known,
    requests: Counter,
    seconds: Histogram,
    of_service: Counter,
    of_redis: Counter,
    pub(crate) not_found: Counter,
    pub(crate) shadowed: Counter,
    pub(crate) loaded: Counter,
    pub(crate) not_loaded: Counter,
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats").finish_non_exhaustive()
    }
}

impl Stats {
    pub(crate) fn new() -> Self {
        for (name, help) in [
            ("total_hits", "Hits on a rule."),
            ("within_limit", "Hits on a rule that fit."),
            ("near_limit", "Hits on a rule that fit, with little left."),
            ("over_limit", "Hits on a rule that did not fit."),
            ("shadow_mode", "Hits on a rule that did not fit, and were not refused."),
            ("total_negative_hits", "Hits on a rule that were to be given back."),
        ] {
            describe_counter!(format!("ratelimit_service_rate_limit_{name}"), help);
        }
        let help = "Times until an answer.";
        describe_histogram!("ratelimit_service_response_time_seconds", help);
        let method = [Label::from_static_parts("grpc_method", "ShouldRateLimit")];
        let error = |kind| {
            let labels = [Label::from_static_parts("err_type", kind)];
            counter!("ratelimit_service_should_rate_limit_error", labels.iter())
        };
        Self {
            rules: Known::default(),
            values: Known::default(),
            requests: counter!("ratelimit_service_total_requests", method.iter()),
            seconds: histogram!("ratelimit_service_response_time_seconds", method.iter()),
            of_service: error("service_error"),
            of_redis: error("redis_error"),
            not_found: counter!("ratelimit_service_domain_not_found"),
            shadowed: counter!("ratelimit_service_global_shadow_mode"),
            loaded: counter!("ratelimit_service_config_load_success"),
            not_loaded: counter!("ratelimit_service_config_load_error"),
        }
    }

    /// The counts under the labels of a rule.
    pub(crate) fn rule(&self, labels: &Labels) -> Arc<RuleCounts> {
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(labels).cloned();
        known.or_else(|| added(&self.rules, labels, usize::MAX)).expect("they have no bound")
    }

    /// The counts under labels with values of a request, or those that further values share.
    pub(crate) fn values(&self, labels: &Labels) -> Arc<RuleCounts> {
        let (known, is_full) = {
            let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
            (values.get(labels).cloned(), values.len() >= MOST_VALUES)
        };
        let length = || labels.levels.iter().map(String::len).sum::<usize>();
        let known = known.or_else(|| match !is_full && length() <= LONGEST_VALUES {
            true => added(&self.values, labels, MOST_VALUES),
            false => None,
        });
        known.unwrap_or_else(|| self.rule(&Labels::of_others(&labels.domain)))
    }

    /// Counts an answer, and why it was none.
    pub(crate) fn answered(&self, time: Duration, error: Option<tonic::Code>) {
        self.requests.increment(1);
        self.seconds.record(time.as_secs_f64());
        match error {
            None => {}
            Some(tonic::Code::InvalidArgument) => self.of_service.increment(1),
            Some(_) => self.of_redis.increment(1),
        }
    }
}

/// Adds the counts under labels, unless there are `most` others. Another thread may have added
/// them.
fn added(known: &Known, labels: &Labels, most: usize) -> Option<Arc<RuleCounts>> {
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= most && !known.contains_key(labels) {
        return None;
    }
    let counts = known.entry(labels.clone()).or_insert_with(|| RuleCounts::new(labels).into());
    Some(Arc::clone(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_callers_choose_have_a_bounded_number_of_series() {
        let stats = Stats::new();
        let of = |value: &str| {
            let mut labels = Labels::of_domain("x");
            labels.push("user", value);
            stats.values(&labels)
        };
        let others = stats.rule(&Labels::of_others("x"));
        let is_other = |value: &str| Arc::ptr_eq(&of(value), &others);
        assert!(is_other(&"v".repeat(LONGEST_VALUES)), "with its key it is too long");
        let first: Vec<_> = (0..MOST_VALUES).map(|value| of(&value.to_string())).collect();
        assert!(first.iter().all(|counts| !Arc::ptr_eq(counts, &others)));
        assert!(is_other("one more") && is_other("and another"));
        assert!(Arc::ptr_eq(&of("7"), &first[7]), "a known one keeps its own");
        assert_eq!(stats.values.read().unwrap().len(), MOST_VALUES);
    }
}
