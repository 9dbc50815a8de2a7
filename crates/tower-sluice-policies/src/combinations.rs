//! The limiters of policies that decide together. Each is made when a request first needs it, and
//! kept from one table to the next.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, PoisonError, RwLock};

use tower_sluice::store::Together;

use super::limited_policy::{LimitedPolicy, PolicyLimiter};

/// The most combinations of policies whose limiters are kept.
const MAX_COMBINATIONS: usize = 1_024;

/// The limiters that decide about several policies together.
#[derive(Default)]
pub(crate) struct Combinations {
    known: RwLock<Known>,
}

/// Those that requests used lately, and those that they used before. `None`: no limiter can decide
/// about all of the policies. The keys are the numbers of the policies' limiters, or of their local
/// shares.
#[derive(Default)]
struct Known {
    used: HashMap<Vec<u64>, Option<Together>>,
    before: HashMap<Vec<u64>, Option<Together>>,
}

impl Combinations {
    /// Returns the limiter that decides for these limiters together, and makes it if it is missing.
    /// `None` if no limiter can.
    pub(crate) fn of(&self, limiters: &[&PolicyLimiter]) -> Option<Together> {
        if limiters.len() > Together::MAX {
            return None;
        }
        let ids: Vec<_> = limiters.iter().map(|limiter| limiter.id).collect();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = known.used.get(&ids) {
            return used.clone();
        }
        let before = known.before.get(&ids).cloned();
        drop(known);
        // Made without the lock, so that other requests can decide.
        let together = before.unwrap_or_else(|| combined(limiters));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.used.len() >= MAX_COMBINATIONS / 2 && !known.used.contains_key(&ids) {
            // Those that requests need come back from there.
            known.before = mem::take(&mut known.used);
        }
        known.used.entry(ids).or_insert(together).clone()
    }

    /// Returns the limiters whose policies are all in `policies`, for the next table.
    pub(crate) fn kept(&self, policies: &[Arc<LimitedPolicy>]) -> Self {
        let limiters = policies.iter().flat_map(|one| [Some(&one.limiter), one.share.as_ref()]);
        let needed: HashSet<u64> = limiters.flatten().map(|limiter| limiter.id).collect();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |ids: &[u64]| ids.iter().all(|id| needed.contains(id));
        let kept = |known: &HashMap<Vec<u64>, Option<Together>>| {
            let kept = known.iter().filter(|(ids, _)| is_kept(ids));
            kept.map(|(ids, together)| (ids.clone(), together.clone())).collect()
        };
        let (used, before) = (kept(&known.used), kept(&known.before));
        Self { known: RwLock::new(Known { used, before }) }
    }
}

fn combined(limiters: &[&PolicyLimiter]) -> Option<Together> {
    let limiters = limiters.iter().copied();
    #[cfg(feature = "redis")]
    if let Some(members) = limiters.clone().map(PolicyLimiter::redis).collect::<Option<Vec<_>>>() {
        return Together::of_redis(&members);
    }
    Together::of_memory(&limiters.map(PolicyLimiter::memory).collect::<Option<Vec<_>>>()?)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::table_in_force::Selection;
    use crate::{Policies, Row, Rows};
    use tower_sluice::key::{Head, Keyed};

    /// Makes rows of policies. Each takes requests with a header of its name.
    fn rows(names: &[&str], limit: u64) -> Rows {
        let row = |name: &&str| {
            let of = serde_json::json!({ "header": name });
            Row::new()
                .with("name", *name)
                .with("limit", limit)
                .with("period", "1h")
                .with("match", of)
        };
        names.iter().map(row).collect()
    }

    /// Returns the numbers of the limiters that decide about a request with these headers.
    fn ids(policies: &Policies, headers: &[&str]) -> Vec<u64> {
        let mut request = Request::new(());
        for name in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, http::HeaderValue::from_static("1"));
        }
        let Keyed::Charge(charge) = policies.charge(Head::from(&request)) else { panic!() };
        let selection = charge.extension::<Arc<Selection>>().unwrap();
        let limiters: Vec<_> = selection.in_force.iter().map(|one| &one.limited.limiter).collect();
        selection.table.combinations.of(&limiters).expect("a memory");
        limiters.iter().map(|limiter| limiter.id).collect()
    }

    fn is_known(policies: &Policies, ids: &[u64]) -> bool {
        let table = policies.table();
        let known = table.combinations.known.read().unwrap();
        known.used.contains_key(ids) || known.before.contains_key(ids)
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_keeps_the_combinations_whose_policies_stay() {
        let policies = Policies::builder().build(&rows(&["a", "b", "c"], 5)).unwrap();
        let [ab, bc] = [["a", "b"], ["b", "c"]].map(|both| ids(&policies, &both));
        // The rows have other places, and one row is missing.
        policies.load(&rows(&["x", "b", "c"], 5)).unwrap();
        assert!(is_known(&policies, &bc) && ids(&policies, &["b", "c"]) == bc);
        policies.load(&rows(&["a", "b", "c"], 5)).unwrap();
        assert!(is_known(&policies, &bc) && !is_known(&policies, &ab));
        policies.load(&rows(&["a", "b", "c"], 6)).unwrap();
        assert!(!is_known(&policies, &bc) && ids(&policies, &["b", "c"]) != bc);
    }

    /// A client that chooses its headers can cause 2,000 combinations.
    #[tokio::test(start_paused = true)]
    async fn one_that_requests_need_outlives_a_flood_of_others() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let policies = Policies::builder().build(&rows(&names, 5)).unwrap();
        let needed = ids(&policies, &["a", "b"]);
        for subset in 1_u32..1 << names.len() {
            let headers: Vec<_> = (0..names.len()).filter(|bit| subset >> bit & 1 == 1).collect();
            if (2..=8).contains(&headers.len()) {
                let headers: Vec<_> = headers.into_iter().map(|bit| names[bit]).collect();
                ids(&policies, &headers);
                assert!(is_known(&policies, &needed), "{headers:?}");
                ids(&policies, &["a", "b"]);
                let table = policies.table();
                let known = table.combinations.known.read().unwrap();
                assert!(known.used.len() + known.before.len() <= MAX_COMBINATIONS);
            }
        }
    }
}
