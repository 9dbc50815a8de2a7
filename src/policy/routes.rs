//! Finds the policies that may take a path without asking each of them.

use std::collections::HashMap;

use super::path::Readings;
use super::pattern::Matcher;

/// The places of policies, by the beginnings of the paths that they take.
#[derive(Default)]
pub(super) struct Routes {
    /// The places of policies that take every path.
    everywhere: Vec<usize>,
    by_beginning: HashMap<Box<str>, Vec<usize>>,
    /// The places of policies that ignore case, by beginnings in lower case.
    ignoring_case: HashMap<Box<str>, Vec<usize>>,
    /// The length of the longest beginning, in bytes.
    longest: usize,
    /// The number of policies.
    policies: usize,
}

impl Routes {
    pub(super) fn new<'a>(matchers: impl Iterator<Item = &'a Matcher>) -> Self {
        let mut routes = Self::default();
        for (place, matcher) in matchers.enumerate() {
            routes.policies = place + 1;
            let Some(beginnings) = matcher.beginnings() else {
                routes.everywhere.push(place);
                continue;
            };
            let index = match matcher.ignores_case() {
                true => &mut routes.ignoring_case,
                false => &mut routes.by_beginning,
            };
            for beginning in beginnings {
                routes.longest = routes.longest.max(beginning.len());
                index.entry(beginning.into()).or_default().push(place);
            }
        }
        routes
    }

    /// The places of the policies that may take a path, in order.
    pub(super) fn places(&self, path: &Readings<'_>) -> Vec<usize> {
        let Some(readings) = path.each() else { return (0..self.policies).collect() };
        let mut places = self.everywhere.clone();
        for reading in readings {
            let lower = (!self.ignoring_case.is_empty()).then(|| reading.to_ascii_lowercase());
            let slashes = reading.match_indices('/').map(|(end, _)| end);
            for end in slashes.take_while(|end| *end <= self.longest).chain([reading.len()]) {
                places.extend(self.by_beginning.get(&reading[..end]).into_iter().flatten());
                let alike = lower.as_ref().and_then(|lower| self.ignoring_case.get(&lower[..end]));
                places.extend(alike.into_iter().flatten());
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
        let matcher = |(path, ignore_case)| {
            let table = serde_json::json!({ "path": path, "ignore_case": ignore_case });
            serde_json::from_value::<Pattern>(table).expect("a pattern").matcher().expect("a path")
        };
        let rows =
            [("/Users/{id}", true), ("/users/{id}", false), ("/caf\u{e9}", true), ("/x", true)];
        let matchers: Vec<_> = rows.into_iter().map(matcher).collect();
        let routes = Routes::new(matchers.iter());
        for (path, places) in [
            ("/users/7", &[0, 1][..]),
            ("/USERS/7", &[0]),
            ("/x/..;/useRS/7", &[0, 3]),
            ("/CAF%c3%A9/", &[2]),
            ("/y", &[]),
        ] {
            assert_eq!(routes.places(&Readings::of(path)), places, "{path}");
        }
    }
}
