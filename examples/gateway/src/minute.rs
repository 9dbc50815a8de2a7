//! What each policy decided in the last minute, second by second: for the page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::metrics::Metrics;

/// How many seconds are kept.
const SECONDS: usize = 60;

/// The outcome that refusals in a shadow are shown as. They are `denied` or `undecided` besides.
const SHADOW: &str = "shadow";

/// How often each policy decided, by outcome: `counts["api"]["denied"]`.
type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// The counts of the last seconds, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minute {
    counts: Arc<Mutex<VecDeque<Counts>>>,
}

impl Minute {
    /// Begins to read the counters each second.
    pub(crate) fn start(metrics: &Metrics) -> Self {
        let (this, metrics) = (Self::default(), metrics.clone());
        let minute = this.clone();
        tokio::spawn(async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                minute.push(decisions(&metrics.render()));
            }
        });
        this
    }

    fn push(&self, counts: Counts) {
        let mut kept = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // A second lies between two readings.
        if kept.len() > SECONDS {
            kept.pop_front();
        }
        kept.push_back(counts);
    }

    /// For each policy the decisions of each second: `{"api": {"admitted": [0, 5, ..]}}`.
    pub(crate) fn seconds(&self) -> Value {
        let kept = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = kept.back() else { return json!({}) };
        let count = |counts: &Counts, policy: &str, outcome: &str| {
            counts.get(policy).and_then(|counts| counts.get(outcome)).copied().unwrap_or(0)
        };
        let of = |policy: &str, outcome: &str| -> Vec<u64> {
            let readings: Vec<u64> =
                kept.iter().map(|counts| count(counts, policy, outcome)).collect();
            readings.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
        };
        let policies = last.iter().map(|(policy, outcomes)| {
            let outcomes =
                outcomes.keys().map(|outcome| (outcome.clone(), json!(of(policy, outcome))));
            (policy.clone(), Value::Object(outcomes.collect()))
        });
        Value::Object(policies.collect())
    }
}

/// Reads the counters of decisions from Prometheus' text.
fn decisions(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let Some((name, (labels, value))) =
            line.split_once('{').and_then(|(name, rest)| Some((name, rest.rsplit_once("} ")?)))
        else {
            continue;
        };
        // Names of policies hold neither quotes nor commas.
        let label = |name: &str| {
            let text = labels.split(',').find_map(|label| label.strip_prefix(name))?;
            text.strip_prefix("=\"")?.strip_suffix('"')
        };
        let outcome = match name {
            "rate_limit_decisions_total" => label("outcome"),
            "rate_limit_shadow_refusals_total" => Some(SHADOW),
            _ => None,
        };
        if let (Some(limiter), Some(outcome), Ok(value)) =
            (label("limiter"), outcome, value.parse::<u64>())
        {
            *counts
                .entry(limiter.to_owned())
                .or_default()
                .entry(outcome.to_owned())
                .or_default() += value;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(admitted: u64, denied: u64) -> String {
        format!(
            "# TYPE rate_limit_decisions_total counter\n\
             rate_limit_decisions_total{{limiter=\"api\",outcome=\"admitted\"}} {admitted}\n\
             rate_limit_decisions_total{{limiter=\"api\",outcome=\"denied\"}} {denied}\n\
             rate_limit_shadow_refusals_total{{limiter=\"api\"}} {denied}\n\
             other_total{{limiter=\"api\",outcome=\"denied\"}} 9\n"
        )
    }

    #[test]
    fn each_second_is_the_difference_of_two_readings() {
        let minute = Minute::default();
        minute.push(decisions(""));
        minute.push(decisions(&text(5, 0)));
        minute.push(decisions(&text(7, 3)));
        let expected = json!({ "api": { "admitted": [5, 2], "denied": [0, 3], "shadow": [0, 3] } });
        assert_eq!(minute.seconds(), expected);
    }

    #[test]
    fn a_minute_is_kept() {
        let minute = Minute::default();
        for second in 0..200 {
            minute.push(decisions(&text(second, 0)));
        }
        let seconds = minute.seconds();
        assert_eq!(seconds["api"]["admitted"].as_array().map(Vec::len), Some(SECONDS));
    }
}
