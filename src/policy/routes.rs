//! Finds the policies that may take a path without asking each of them.

use std::collections::HashMap;

use super::path::Readings;
use super::pattern::Matcher;

/// The places of policies by how the paths that they take begin.
#[derive(Default)]
pub(super) struct Routes {
    /// Those that take every path.
    everywhere: Vec<usize>,
    by_beginning: HashMap<Box<str>, Vec<usize>>,
    /// The length of the longest beginning, in bytes.
    longest: usize,
    /// How many there are.
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
            for beginning in beginnings {
                routes.longest = routes.longest.max(beginning.len());
                routes.by_beginning.entry(beginning.into()).or_default().push(place);
            }
        }
        routes
    }

    /// The places of those that may take a path, in order.
    pub(super) fn places(&self, path: &Readings<'_>) -> Vec<usize> {
        let Some(readings) = path.each() else { return (0..self.policies).collect() };
        let mut places = self.everywhere.clone();
        for reading in readings {
            let slashes = reading.match_indices('/').map(|(end, _)| end);
            for end in slashes.take_while(|end| *end <= self.longest).chain([reading.len()]) {
                places.extend(self.by_beginning.get(&reading[..end]).into_iter().flatten());
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}
