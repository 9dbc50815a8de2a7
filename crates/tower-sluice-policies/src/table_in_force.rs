//! The table in force, and the search for its policies that take a request.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sluice::Error;
use tower_sluice::key::{Head, Keyed};
use tower_sluice::limiter::{Switch, SwitchMode};

use super::combinations::Combinations;
use super::limited_policy::{AskedPolicy, LimitedPolicy};
use super::path::{Allowed, Ambiguous, Reading};
use super::pattern::Matcher;
use super::policy_key::Finders;
use super::read_rows::Exemption;
use super::table_watch::TableWatch;

/// A cost that no response has stated yet.
const UNSTATED: u64 = u64::MAX;

/// A table of policies.
pub(crate) struct Table {
    pub(crate) policies: Vec<Arc<LimitedPolicy>>,
    /// The place of each policy by its name.
    places: HashMap<String, usize>,
    routes: PathIndex,
    pub(crate) exempt: Vec<Arc<Exemption>>,
    exempt_routes: PathIndex,
    pub(crate) allowed: Allowed,
    pub(crate) combinations: Combinations,
    /// Tables of the same patterns share it.
    watch: Arc<TableWatch>,
}

/// The policies that take one request, from the table in force when the request came.
pub(crate) struct Selection {
    pub(crate) table: Arc<Table>,
    pub(crate) in_force: Vec<AskedPolicy>,
    pub(crate) in_shadow: Vec<AskedPolicy>,
    /// The policies in a shadow for which the request has no key, each with the reason.
    pub(crate) keyless: Vec<NoKey>,
    /// The policies that would take the request, but are off: they let it pass.
    pub(crate) off: Vec<Arc<LimitedPolicy>>,
    /// The switch of all policies, if it puts them into a shadow.
    pub(crate) global_shadow: Option<Switch>,
    /// The costs that the response has stated, by the places of the policies. Empty if none of them
    /// asks for it.
    pub(crate) stated: Box<[AtomicU64]>,
}

/// A policy that takes a request without a key for it. Or a policy for which it is unknown if it
/// takes the request.
#[derive(Debug)]
pub(crate) struct NoKey {
    pub(crate) limited: Arc<LimitedPolicy>,
    pub(crate) why: Error,
}

/// Shows the name of the policy, so that the cause of a refusal has it.
impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of the policy {:?}", self.limited.policy.name())
    }
}

impl std::error::Error for NoKey {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.why)
    }
}

impl From<NoKey> for Keyed {
    fn from(no_key: NoKey) -> Self {
        let is_ambiguous =
            std::error::Error::source(&no_key.why).is_some_and(|source| source.is::<Ambiguous>());
        let why = no_key.why.clone().with_source(no_key);
        if is_ambiguous { Keyed::Invalid(why) } else { Keyed::Missing(why) }
    }
}

impl Table {
    /// Makes the table that follows the table `before`.
    pub(crate) fn new(
        mut policies: Vec<Arc<LimitedPolicy>>,
        exempt: Vec<Arc<Exemption>>,
        allowed: Allowed,
        before: Option<&Table>,
    ) -> Self {
        // It was collected in place, in the memory of policies, which are many times larger.
        policies.shrink_to_fit();
        let names = policies.iter().map(|one| one.policy.name().to_owned());
        let places = names.zip(0..).collect();
        let routes = PathIndex::new(policies.iter().map(|one| &one.policy.matcher));
        let exempt_routes = PathIndex::new(exempt.iter().map(|one| &one.matcher));
        let combinations = before.map(|before| before.combinations.kept(&policies));
        let is_like = |before: &&Table| {
            let patterns = before.policies.iter().map(|one| &one.policy.pattern);
            patterns.eq(policies.iter().map(|one| &one.policy.pattern))
        };
        let watch = before.filter(is_like).map(|before| Arc::clone(&before.watch));
        let (combinations, watch) = (combinations.unwrap_or_default(), watch.unwrap_or_default());
        Self { policies, places, routes, exempt, exempt_routes, allowed, combinations, watch }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<LimitedPolicy>> {
        self.places.get(name).map(|place| &self.policies[*place])
    }

    /// Finds the policies that take a request. `None` if a row exempts it.
    pub(crate) fn select(
        self: &Arc<Self>,
        head: &Head<'_>,
        name: Option<&str>,
        global: &Switch,
        finders: &Finders,
    ) -> Result<Option<Selection>, NoKey> {
        let all = global.mode();
        let (mut in_force, mut in_shadow, mut keyless) = (Vec::new(), Vec::new(), Vec::new());
        let mut off = Vec::new();
        let [path, inner] = [head.original_uri(), head.uri()].map(http::Uri::path);
        // Inside of a router, a row may write the caller's path, or the rest of it.
        let inner = Some(inner).filter(|inner| *inner != path);
        let paths: Vec<_> =
            [path].into_iter().chain(inner).map(|one| self.allowed.read(one)).collect();
        // If it is unknown whether a row takes the request, it does not exempt it.
        let exempts = |place: usize| {
            let one = &self.exempt[place];
            let is_taken = || one.matcher.takes(head, &paths, name, true, finders);
            one.enabled && matches!(is_taken(), Ok(true))
        };
        if !self.exempt.is_empty() && self.exempt_routes.places(&paths).into_iter().any(exempts) {
            self.watch.selected(self.policies.len(), false);
            return Ok(None);
        }
        for place in self.routes.places(&paths) {
            let limited = &self.policies[place];
            let policy = &limited.policy;
            let mode = limited.mode(all);
            let key = match policy.matcher.takes(head, &paths, name, false, finders) {
                Ok(false) => continue,
                // It is unknown if the policy would have taken it.
                Err(_) if mode == SwitchMode::Off => continue,
                Ok(true) if mode == SwitchMode::Off => {
                    off.push(Arc::clone(limited));
                    continue;
                }
                Err(why) => Err(why),
                Ok(true) => policy.key.of_request(head, &paths[0], finders),
            };
            let key = key.and_then(|key| Ok((key, policy.cost.of_request(head)?)));
            let (key, cost) = match key {
                Ok(charged) => charged,
                Err(why) => {
                    let no_key = NoKey { limited: Arc::clone(limited), why };
                    // A policy in a shadow refuses no request.
                    if mode == SwitchMode::Shadow {
                        keyless.push(no_key);
                        continue;
                    }
                    return Err(no_key);
                }
            };
            let charge = limited.charge(key).cost(cost);
            let charge = charge.max_wait(policy.max_wait()).keep_free(policy.keep_free);
            let charge = policy.plans.charge(charge, head, finders);
            let asked = AskedPolicy { limited: Arc::clone(limited), charge };
            match mode {
                SwitchMode::Shadow => in_shadow.push(asked),
                _ => in_force.push(asked),
            }
        }
        let global_shadow = (all == SwitchMode::Shadow).then(|| global.clone());
        let (table, stated) = (Arc::clone(self), Box::default());
        let mut selection =
            Selection { table, in_force, in_shadow, keyless, off, global_shadow, stated };
        let awaits = |asked: &AskedPolicy| asked.limited.policy.cost.stated_by().is_some();
        if selection.asked().any(awaits) {
            selection.stated = selection.asked().map(|_| AtomicU64::new(UNSTATED)).collect();
        }
        self.watch.selected(self.policies.len(), selection.is_empty());
        Ok(Some(selection))
    }

    /// Returns the numbers of policies that are on, in a shadow, and off.
    #[cfg(feature = "tracing")]
    pub(crate) fn counts(&self, global: SwitchMode) -> [usize; 3] {
        let modes = [SwitchMode::On, SwitchMode::Shadow, SwitchMode::Off];
        modes.map(|mode| self.policies.iter().filter(|one| one.mode(global) == mode).count())
    }
}

impl Selection {
    /// The policies that are asked, in the order of their places.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &AskedPolicy> {
        self.in_force.iter().chain(&self.in_shadow)
    }

    /// The cost under the policy at this place, if the response has stated it.
    pub(crate) fn stated(&self, place: usize) -> Option<u64> {
        let stated = self.stated.get(place)?.load(Relaxed);
        Some(stated).filter(|units| *units != UNSTATED)
    }

    /// The longest wait that any of the policies in force allows.
    pub(crate) fn max_wait(&self) -> Duration {
        let waits = self.in_force.iter().map(|asked| asked.limited.policy.max_wait());
        waits.max().unwrap_or_default()
    }

    /// The cost of the whole charge: that of the first policy.
    pub(crate) fn cost(&self) -> u64 {
        self.asked().next().map_or(1, |asked| asked.charge.units())
    }

    /// Returns a unique text for this selection: each policy with its settings and its key. So an
    /// outer limiter that remembers decisions does not use them after a row or a switch changes. It
    /// does after a load of equal rows: a fallback goes on counting. The text also holds the costs,
    /// because the charge states only the first, and the quotas of plans.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (sign, asked) in [('+', &self.in_force), ('-', &self.in_shadow)] {
            for (place, AskedPolicy { limited, charge, .. }) in asked.iter().enumerate() {
                let (name, key) = (limited.policy.name(), charge.key());
                let (digest, length) = (limited.digest, key.len());
                write!(text, "{sign}{name}/{digest:x}={length}:{key}").expect("a string takes all");
                if (sign, place) != ('+', 0) && charge.units() != 1 {
                    write!(text, "*{}", charge.units()).expect("a string takes all");
                }
                for own in charge.own_quota().iter().flat_map(|own| own.as_slice()) {
                    write!(text, "@{}/{}", own.limit(), own.burst_size())
                        .expect("a string takes all");
                }
            }
        }
        for NoKey { limited, .. } in &self.keyless {
            write!(text, "?{}", limited.policy.name()).expect("a string takes all");
        }
        text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_force.is_empty()
            && self.in_shadow.is_empty()
            && self.keyless.is_empty()
            && self.off.is_empty()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies.iter().map(|limited| limited.policy.name())).finish()
    }
}

/// The places of policies, by the beginnings of their paths.
#[derive(Default)]
struct PathIndex {
    /// The places of policies that take every path.
    everywhere: Vec<usize>,
    /// The places of the others. The beginnings are in lower case: some policies ignore case.
    by_beginning: HashMap<Box<str>, Vec<usize>>,
    /// The length of the longest beginning, in bytes.
    longest: usize,
    /// The number of policies.
    policies: usize,
}

impl PathIndex {
    fn new<'a>(matchers: impl Iterator<Item = &'a Matcher>) -> Self {
        let mut routes = Self::default();
        for (place, matcher) in matchers.enumerate() {
            routes.policies = place + 1;
            let Some(beginnings) = matcher.beginnings() else {
                routes.everywhere.push(place);
                continue;
            };
            for beginning in beginnings {
                routes.longest = routes.longest.max(beginning.len());
                let places = routes.by_beginning.entry(beginning.to_ascii_lowercase().into());
                places.or_default().push(place);
            }
        }
        routes
    }

    /// The places of the policies that may take one of these paths, in order: all of them, if a
    /// path has several readings.
    fn places(&self, paths: &[Reading<'_>]) -> Vec<usize> {
        let mut places = self.everywhere.clone();
        for path in paths {
            let Ok(path) = path else { return (0..self.policies).collect() };
            let path = path.to_ascii_lowercase();
            let slashes = path.match_indices('/').map(|(end, _)| end);
            for end in slashes.take_while(|end| *end <= self.longest).chain([path.len()]) {
                places.extend(self.by_beginning.get(&path[..end]).into_iter().flatten());
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Pattern;
    use super::*;

    #[test]
    fn rows_that_ignore_case_are_found_by_their_beginnings() {
        let allowed = Allowed::default();
        let matcher = |(path, ignore_case)| {
            let table = serde_json::json!({ "path": path, "ignore_case": ignore_case });
            let pattern: Pattern = serde_json::from_value(table).expect("a pattern");
            pattern.matcher(&allowed).expect("a path")
        };
        let rows =
            [("/Users/{id}", true), ("/users/{id}", false), ("/caf\u{e9}", true), ("/x", true)];
        let matchers: Vec<_> = rows.into_iter().map(matcher).collect();
        let routes = PathIndex::new(matchers.iter());
        for (path, places) in [
            ("/users/7", &[0, 1][..]),
            ("/USERS/7", &[0, 1]),
            ("/x/../useRS/7", &[0, 1, 2, 3]),
            ("/CAF%c3%A9/", &[2]),
            ("/y", &[]),
        ] {
            assert_eq!(routes.places(&[allowed.read(path)]), places, "{path}");
        }
    }
}
