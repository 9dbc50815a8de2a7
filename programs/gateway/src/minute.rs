//! The outcomes of requests in the last minute, second by second: for the page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::meters::{Meters, OUTCOMES, OutcomeCounts};

/// The number of seconds that are kept.
const SECONDS: usize = 60;

/// The counts of one second. A policy that decided nothing takes no place.
#[derive(Debug, Default)]
struct Second {
    requests: OutcomeCounts,
    policies: Vec<(Arc<str>, OutcomeCounts)>,
}

/// The last seconds, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minute {
    seconds: Arc<Mutex<VecDeque<Second>>>,
}

impl Minute {
    /// Begins to read the counters each second.
    pub(crate) fn start(meters: Meters) -> Self {
        let this = Self::default();
        let minute = this.clone();
        tokio::spawn(async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                let (requests, policies) = (meters.new_requests(), meters.new_decisions());
                minute.push(Second { requests, policies });
            }
        });
        this
    }

    fn push(&self, second: Second) {
        let mut kept = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == SECONDS {
            kept.pop_front();
        }
        kept.push_back(second);
    }

    /// All requests by outcome, and what each policy decided: `{"allowed": [0, 5, ..]}` and
    /// `{"api": {"allowed": [0, 5, ..]}}`. What never came is left out.
    pub(crate) fn seconds(&self) -> (Value, Value) {
        let kept = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests = BTreeMap::new();
        let mut policies: BTreeMap<&str, BTreeMap<&str, Vec<u64>>> = BTreeMap::new();
        for (place, second) in kept.iter().enumerate() {
            let add = |series: &mut BTreeMap<_, Vec<u64>>, counts: &OutcomeCounts| {
                for (outcome, count) in OUTCOMES.into_iter().zip(counts).filter(|(_, n)| **n > 0) {
                    let series = series.entry(outcome).or_insert_with(|| vec![0; kept.len()]);
                    series[place] = *count;
                }
            };
            add(&mut requests, &second.requests);
            for (name, counts) in &second.policies {
                add(policies.entry(name).or_default(), counts);
            }
        }
        let policies = policies.into_iter().map(|(name, series)| (name.to_owned(), json!(series)));
        (json!(requests), Value::Object(policies.collect::<Map<_, _>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(allowed: u64, limited: u64) -> Second {
        let counts = [allowed, 0, limited, 0, 0, 0, 0, 0];
        let policies =
            if counts == OutcomeCounts::default() { vec![] } else { vec![("api".into(), counts)] };
        Second { requests: counts, policies }
    }

    #[test]
    fn each_second_has_its_counts() {
        let minute = Minute::default();
        [second(0, 0), second(5, 0), second(7, 3)].into_iter().for_each(|one| minute.push(one));
        let expected = json!({ "allowed": [0, 5, 7], "limited": [0, 0, 3] });
        assert_eq!(minute.seconds(), (expected.clone(), json!({ "api": expected })));
    }

    #[test]
    fn a_minute_is_kept() {
        let minute = Minute::default();
        (1..200).for_each(|count| minute.push(second(count, 0)));
        let (requests, _) = minute.seconds();
        assert_eq!(requests["allowed"].as_array().map(Vec::len), Some(SECONDS));
        assert_eq!(requests["allowed"][59], 199);
    }

    #[test]
    fn a_second_without_decisions_keeps_no_names() {
        let minute = Minute::default();
        minute.push(second(1, 0));
        (0..SECONDS).for_each(|_| minute.push(second(0, 0)));
        assert_eq!(minute.seconds(), (json!({}), json!({})));
    }
}
