//! The rules of a domain, and the rule that a descriptor meets.
//!
//! A level is a list of rules. A descriptor walks down, one level for each of its entries, and the
//! rule at its last entry limits it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::limit::Limit;
use crate::stated::{Descriptor, File};
use crate::stats::{Labels, RuleCounts};
use crate::yaml::at;

/// The effect of a rule on the request that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Refuses it.
    Limit,
    /// Refuses nothing: `shadow_mode`.
    Shadow,
    /// Refuses it if all rules of this mode do: `quota_mode`.
    Quota,
}

/// The part of a rule that limits.
#[derive(Debug)]
pub(crate) struct RuleLimit {
    /// `None`: unlimited.
    pub(crate) limit: Option<Limit>,
    /// The name that others replace.
    name: String,
    pub(crate) replaces: Vec<String>,
    pub(crate) mode: Mode,
    is_detailed: bool,
    pub(crate) labels: Labels,
    /// The counts under these labels, once a request has met the rule.
    pub(crate) counts: OnceLock<Arc<RuleCounts>>,
}

#[derive(Debug, Default)]
struct Rule {
    limit: Option<Arc<RuleLimit>>,
    children: Level,
    value_to_metric: bool,
    share_threshold: bool,
}

#[derive(Debug, Default)]
struct Level {
    /// By key and value.
    exact: HashMap<(Box<str>, Box<str>), Arc<Rule>>,
    /// By key alone.
    by_key: HashMap<Box<str>, Arc<Rule>>,
    /// In the order of the file.
    wildcards: Vec<Wildcard>,
}

#[derive(Debug)]
struct Wildcard {
    key: Box<str>,
    /// Empty where the key alone has the `*`.
    value: Box<str>,
    rule: Arc<Rule>,
}

/// The rules of one domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) name: Arc<str>,
    level: Level,
}

/// The rule that a descriptor meets.
#[derive(Debug)]
pub(crate) struct Match<'a> {
    pub(crate) limit: &'a RuleLimit,
    /// The patterns that stand in a counter for the values of these entries.
    pub(crate) shared: Vec<(usize, &'a str)>,
    /// The labels with values that the file does not have. `None`: those of the rule.
    pub(crate) labels: Option<Labels>,
}

impl RuleLimit {
    /// True if a rule of this name is replaced.
    pub(crate) fn is_one_of(&self, replaced: &HashSet<&str>) -> bool {
        !self.name.is_empty() && replaced.contains(&*self.name)
    }
}

impl Domain {
    /// Reads the rules of a file.
    ///
    /// # Errors
    ///
    /// A text that begins with the line.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let file = File::read(text)?;
        let labels = Labels::of_domain(&file.domain);
        let level = Level::of(file.descriptors, &labels)?;
        Ok(Self { name: file.domain.into(), level })
    }

    /// Finds the rule that these entries meet.
    pub(crate) fn find<'a>(
        &self,
        entries: impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Option<Match<'_>> {
        let last = entries.len().checked_sub(1)?;
        let (mut level, mut shared, mut shows_values) = (&self.level, Vec::new(), false);
        let mut is_exact = true;
        for (index, (key, value)) in entries.clone().enumerate() {
            let (rule, found) = level.find(key, value)?;
            if let Found::Wildcard(pattern) = found
                && rule.share_threshold
            {
                shared.push((index, pattern));
            }
            is_exact &= matches!(found, Found::Exact);
            shows_values |= rule.value_to_metric && !matches!(found, Found::Exact);
            if index == last {
                let limit = rule.limit.as_ref()?;
                // If the file has each value, these are the labels of the rule.
                let labels = match shows_values || limit.is_detailed && !is_exact {
                    true => Some(self.labels(entries, &shared, limit.is_detailed)),
                    false => None,
                };
                return Some(Match { limit, shared, labels });
            }
            level = &rule.children;
        }
        None
    }

    /// The labels of entries that met a rule: with all values, or with those of the levels that ask
    /// for them.
    fn labels<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a str)>,
        shared: &[(usize, &str)],
        is_detailed: bool,
    ) -> Labels {
        let (mut level, mut labels) = (&self.level, Labels::of_domain(&self.name));
        for (index, (key, value)) in entries.enumerate() {
            let Some((rule, found)) = level.find(key, value) else { break };
            let pattern = shared.iter().find(|(place, _)| *place == index).map(|(_, one)| *one);
            let shows = is_detailed || rule.value_to_metric;
            let shown = match found {
                Found::Exact => value,
                Found::Wildcard(own) if !shows => own,
                Found::Key if !shows => "",
                _ => pattern.unwrap_or(value),
            };
            labels.push(key, shown);
            level = &rule.children;
        }
        labels
    }

    /// The rules, one a line, sorted.
    pub(crate) fn dump(&self) -> String {
        let mut lines = Vec::new();
        self.level.dump(&mut lines);
        lines.sort_unstable();
        lines.concat()
    }
}

/// The way in which a rule was found.
#[derive(Clone, Copy)]
enum Found<'a> {
    Exact,
    Wildcard(&'a str),
    Key,
}

impl Level {
    fn find(&self, key: &str, value: &str) -> Option<(&Arc<Rule>, Found<'_>)> {
        // An empty value is that of a rule for all values.
        let exact = || {
            let pair: &dyn Pair = &(key, value);
            self.exact.get(pair).map(|rule| (rule, Found::Exact))
        };
        let wildcard = || {
            let found = self.wildcards.iter().find(|one| one.matches(key, value))?;
            let pattern = if found.value.is_empty() { &found.key } else { &found.value };
            Some((&found.rule, Found::Wildcard(pattern)))
        };
        let by_key = || self.by_key.get(key).map(|rule| (rule, Found::Key));
        exact().or_else(wildcard).or_else(by_key)
    }

    fn of(descriptors: Vec<Descriptor>, parent: &Labels) -> Result<Self, String> {
        let mut level = Self::default();
        for descriptor in descriptors {
            level.add(descriptor, parent)?;
        }
        Ok(level)
    }

    fn add(&mut self, descriptor: Descriptor, parent: &Labels) -> Result<(), String> {
        let Descriptor { line, key, value, rate_limit, descriptors, .. } = descriptor;
        let (key, value) = (&*key, &*value);
        if key.is_empty() {
            return Err(at(line, "a descriptor has no `key`"));
        }
        let both = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        let is_known = match value {
            "" => self.by_key.contains_key(key),
            _ => self.exact.contains_key(&(key, value) as &dyn Pair),
        };
        if is_known {
            return Err(at(line, format_args!("the descriptor `{both}` stands there twice")));
        }
        let is_wildcard = both.contains('*');
        if descriptor.share_threshold && !is_wildcard {
            let why = format!("`share_threshold` needs a `*`, which `{both}` has not");
            return Err(at(line, why));
        }
        let mut labels = parent.clone();
        labels.push(key, value);
        let mode = match (descriptor.shadow_mode, descriptor.quota_mode) {
            (true, _) => Mode::Shadow,
            (false, true) => Mode::Quota,
            _ => Mode::Limit,
        };
        let is_detailed = descriptor.detailed_metric;
        let limit = rate_limit.map(|stated| {
            let limit = stated.checked()?;
            let (name, replaces) = (stated.name, stated.replaces);
            let (labels, counts) = (labels.clone(), OnceLock::new());
            let limit = RuleLimit { limit, name, replaces, mode, is_detailed, labels, counts };
            Ok::<_, String>(Arc::new(limit))
        });
        let rule = Arc::new(Rule {
            limit: limit.transpose()?,
            children: Self::of(descriptors, &labels)?,
            value_to_metric: descriptor.value_to_metric,
            share_threshold: descriptor.share_threshold,
        });
        if is_wildcard {
            let rule = Arc::clone(&rule);
            self.wildcards.push(Wildcard { key: key.into(), value: value.into(), rule });
        }
        match value {
            "" => self.by_key.insert(key.into(), rule),
            _ => self.exact.insert((key.into(), value.into()), rule),
        };
        Ok(())
    }

    fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.exact.values().chain(self.by_key.values())
    }

    fn dump(&self, lines: &mut Vec<String>) {
        for rule in self.rules() {
            if let Some(limit) = &rule.limit {
                let (labels, is_shadow) = (&limit.labels, limit.mode == Mode::Shadow);
                lines.push(match &limit.limit {
                    Some(Limit { requests, unit, .. }) => format!(
                        "{labels}: unit={} requests_per_unit={requests}, shadow_mode: {is_shadow}, \
                         quota_mode: {}\n",
                        unit.word().to_ascii_uppercase(),
                        limit.mode == Mode::Quota
                    ),
                    None => format!("{labels}: unlimited, shadow_mode: {is_shadow}\n"),
                });
            }
            rule.children.dump(lines);
        }
    }
}

/// A key and a value, whoever owns them: one looks up without copies.
trait Pair {
    fn pair(&self) -> (&str, &str);
}

impl Pair for (&str, &str) {
    fn pair(&self) -> (&str, &str) {
        *self
    }
}

impl Pair for (Box<str>, Box<str>) {
    fn pair(&self) -> (&str, &str) {
        (&self.0, &self.1)
    }
}

impl std::hash::Hash for dyn Pair + '_ {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.pair().hash(state);
    }
}

impl PartialEq for dyn Pair + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.pair() == other.pair()
    }
}

impl Eq for dyn Pair + '_ {}

impl<'a> std::borrow::Borrow<dyn Pair + 'a> for (Box<str>, Box<str>) {
    fn borrow(&self) -> &(dyn Pair + 'a) {
        self
    }
}

impl Wildcard {
    fn matches(&self, key: &str, value: &str) -> bool {
        match (self.key.contains('*'), self.value.is_empty()) {
            (false, _) => &*self.key == key && matches(&self.value, value),
            (true, false) => matches(&self.key, key) && matches(&self.value, value),
            // A key with a `*` and no value takes all values.
            (true, true) => matches(&self.key, key),
        }
    }
}

/// Returns true if `text` is `pattern`, where each `*` stands for any text and for nothing.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next_back() else { return pattern == text };
    let Some(rest) = text.strip_prefix(first) else { return false };
    let Some(mut rest) = rest.strip_suffix(last) else { return false };
    parts.all(|part| match rest.find(part) {
        Some(place) => {
            rest = &rest[place + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Counting, Unit};

    fn domain(text: &str) -> Domain {
        Domain::read(text).unwrap()
    }

    fn wrong(text: &str) -> String {
        Domain::read(text).unwrap_err()
    }

    /// The number of the rule that entries meet. `None`: no limit.
    fn met(domain: &Domain, entries: &[(&str, &str)]) -> Option<u32> {
        let found = domain.find(entries.iter().copied())?;
        found.limit.limit.as_ref().map(|limit| limit.requests)
    }

    /// Such series are as many as the rules: they have no bound, and take no place of others.
    #[test]
    fn values_that_the_file_has_make_the_labels_of_the_rule() {
        let text = "
domain: edge
descriptors:
  - key: path
    value: /login
    detailed_metric: true
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: path
    detailed_metric: true
    rate_limit: {unit: second, requests_per_unit: 2}
";
        let domain = domain(text);
        let labels = |path| domain.find([("path", path)].into_iter()).unwrap().labels;
        assert_eq!(labels("/login"), None);
        assert_eq!(labels("/x").unwrap().to_string(), "edge.path_/x");
    }

    const MATCHING: &str = "
domain: edge
descriptors:
  - key: path
    value: /api/*
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: path
    value: /api/a
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: '/*/a/*/b'
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: any
    value: '*'
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: user
    value: alice
    descriptors:
      - key: to
        rate_limit: {unit: second, requests_per_unit: 6}
  - key: user
    rate_limit: {unit: second, requests_per_unit: 7}
    descriptors:
      - key: to
        value: bob
        rate_limit: {unit: second, requests_per_unit: 8}
  - key: free
  - key: wide*
    rate_limit: {unit: second, requests_per_unit: 9}
";

    #[test]
    fn exact_comes_first_then_wildcards_in_order_then_the_key_alone() {
        let domain = domain(MATCHING);
        let path = |value: &str| met(&domain, &[("path", value)]);
        assert_eq!(path("/api/a"), Some(2));
        assert_eq!(path("/api/b"), Some(1));
        assert_eq!(path("/api/"), Some(1));
        assert_eq!(path("/api/a/x/b"), Some(1), "the first of two wildcards");
        assert_eq!(path("/x/a/y/b"), Some(3));
        assert_eq!(path("//a//b"), Some(3), "each * stands for nothing too");
        assert_eq!(path("/x/a/b"), Some(4));
        assert_eq!(path("/API/a"), Some(4), "case matters");
        assert_eq!(path(""), Some(4));
        assert_eq!(met(&domain, &[("any", "")]), Some(5));
        assert_eq!(met(&domain, &[("widest", "x")]), Some(9));
        assert_eq!(met(&domain, &[("free", "x")]), None);
        assert_eq!(met(&domain, &[("other", "x")]), None);
        assert_eq!(met(&domain, &[("path_/api/a", "")]), None, "keys that join differently");
        assert_eq!(met(&domain, &[]), None);
    }

    #[test]
    fn no_way_leads_back_and_the_depth_is_equal() {
        let domain = domain(MATCHING);
        assert_eq!(met(&domain, &[("user", "alice"), ("to", "bob")]), Some(6));
        assert_eq!(met(&domain, &[("user", "carol"), ("to", "bob")]), Some(8));
        assert_eq!(met(&domain, &[("user", "alice")]), None, "the rule for all is not met");
        assert_eq!(met(&domain, &[("user", "carol")]), Some(7));
        assert_eq!(met(&domain, &[("user", "carol"), ("to", "dave")]), None);
        assert_eq!(met(&domain, &[("path", "/api/a"), ("to", "bob")]), None);
    }

    #[test]
    fn wildcards_match_without_overlap() {
        let table = [
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("*b*", "b", true),
            ("**", "x", true),
            ("a*", "b", false),
        ];
        for (pattern, text, is_match) in table {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn a_shared_threshold_stands_at_its_level() {
        let domain = domain(
            "
domain: x
descriptors:
  - key: files
    value: a/*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 1}
      - key: user
        value: b*
        share_threshold: true
        rate_limit: {unit: hour, requests_per_unit: 1}
",
        );
        let shared = |entries: &[(&str, &str)]| {
            let found = domain.find(entries.iter().copied()).unwrap();
            found.shared.iter().map(|(at, one)| (*at, (*one).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(shared(&[("files", "a/1"), ("user", "x")]), [(0, "a/*".to_owned())]);
        let both = [(0, "a/*".to_owned()), (1, "b*".to_owned())];
        assert_eq!(shared(&[("files", "a/1"), ("user", "bob")]), both);
    }

    #[test]
    fn labels_have_no_values_but_where_the_file_asks_for_them() {
        let domain = domain(
            "
domain: x
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: {unit: minute, requests_per_unit: 1}
  - key: detail
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: wild
    value: a*
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: shared
    value: a*
    share_threshold: true
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 1}
",
        );
        let labels = |entries: &[(&str, &str)]| {
            let found = domain.find(entries.iter().copied()).unwrap();
            found.labels.as_ref().unwrap_or(&found.limit.labels).to_string()
        };
        assert_eq!(labels(&[("route", "api"), ("method", "GET")]), "x.route_api.method");
        assert_eq!(labels(&[("detail", "v")]), "x.detail_v");
        assert_eq!(labels(&[("plain", "v")]), "x.plain");
        assert_eq!(labels(&[("wild", "abc")]), "x.wild_a*");
        assert_eq!(labels(&[("shared", "abc")]), "x.shared_a*");
    }

    #[test]
    fn scalars_of_texts_are_their_text() {
        let text = "domain: 010\ndescriptors:\n- key: yes\n  value: 0x10\n  rate_limit: {unit: DAY, \
                    requests_per_unit: 0x10, name: On}\n";
        let domain = domain(text);
        assert_eq!(&*domain.name, "010");
        let found = domain.find([("yes", "0x10")].into_iter()).unwrap();
        let limit = found.limit.limit.as_ref().unwrap();
        assert_eq!((limit.requests, limit.unit, &*limit.name), (16, Unit::Day, "On"));
    }

    #[test]
    fn a_merge_key_fills_the_same_fields_again() {
        let text = "
domain: x
descriptors:
  - &base
    key: a
    value: b
    rate_limit: {unit: hour, requests_per_unit: 1}
  - <<: *base
    value: c
    rate_limit: {requests_per_unit: 2}
    metadata: {what: {ever: [1.5, x]}}
";
        let domain = domain(text);
        assert_eq!(met(&domain, &[("a", "b")]), Some(1));
        assert_eq!(met(&domain, &[("a", "c")]), Some(2));
    }

    #[test]
    fn an_extension_names_another_algorithm() {
        let limit = |more: &str| {
            let text = "domain: x\ndescriptors:\n- key: a\n  rate_limit:\n    unit: hour\n    \
                        requests_per_unit: 5\n";
            Domain::read(&format!("{text}{more}")).map(|domain| {
                let found = domain.find([("a", "")].into_iter()).unwrap();
                found.limit.limit.as_ref().unwrap().counting
            })
        };
        assert_eq!(limit(""), Ok(Counting::FixedWindow));
        let bucket = limit("    algorithm: token_bucket\n");
        assert_eq!(bucket, Ok(Counting::TokenBucket { burst: 5 }));
        let bucket = limit("    algorithm: token_bucket\n    burst: 9\n");
        assert_eq!(bucket, Ok(Counting::TokenBucket { burst: 9 }));
        let odd = limit("    algorithm: token_bucket\n    requests_per_unit: 1000003\n");
        assert_eq!(odd, Ok(Counting::TokenBucket { burst: 1_000_003 }));
        let odd =
            limit("    algorithm: token_bucket\n    unit: year\n    requests_per_unit: 10007\n");
        assert_eq!(odd, Ok(Counting::TokenBucket { burst: 10_007 }));
        let slow = "    algorithm: token_bucket\n    unit: year\n    requests_per_unit: 1\n";
        assert!(limit(&format!("{slow}    burst: 40\n")).unwrap_err().contains("35 years"));
        assert!(limit("    burst: 9\n").unwrap_err().contains("token_bucket"));
        assert!(limit("    algorithm: leaky\n").unwrap_err().contains("leaky"));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let rule = |text: &str| wrong(&format!("domain: x\ndescriptors:\n- key: a\n{text}"));
        let limit = |text: &str| rule(&format!("  rate_limit:\n    {text}\n"));
        let table = [
            (wrong(""), "line 1: the file has no `domain`"),
            (wrong("domain: ~"), "line 1: the file has no `domain`"),
            (wrong("- a"), "line 1: a map is needed, not a list"),
            (wrong("domain: x\nother: y"), "line 2: the key `other` is unknown"),
            (wrong("domain: x\n1: y"), "line 2: `1` is not a key"),
            (wrong("domain: x\nalgorithm: y"), "line 2: the key `algorithm` is unknown"),
            (wrong("domain: x\ndescriptors: [a]"), "line 2: `descriptors` has `a`"),
            (wrong("domain: x\ndescriptors: {key: a}"), "line 2: `descriptors` needs a list"),
            (wrong("domain: x\ndescriptors:\n- value: a"), "line 3: a descriptor has no `key`"),
            (wrong("domain: 1.5"), "line 1: `domain` is the fraction `1.5`"),
            (rule("  value: 1.5"), "line 4: `value` is the fraction `1.5`"),
            (rule("  value: [{key: b}]"), "line 4: `value` needs a text"),
            (rule("- key: a"), "line 4: the descriptor `a` stands there twice"),
            (rule("  share_threshold: yes"), "line 3: `share_threshold` needs a `*`"),
            (rule("  shadow_mode: 1"), "line 4: `shadow_mode` needs true or false, not `1`"),
            (rule("  shadow_mode: 'yes'"), "line 4: `shadow_mode` needs true or false"),
            (rule("  rate_limit: 5"), "line 4: a map is needed, not `5`"),
            (limit("requests_per_unit: 5"), "line 5: the unit `` is unknown"),
            (limit("unit: fortnight"), "line 5: the unit `fortnight` is unknown"),
            (limit("unit: unknown"), "line 5: the unit `unknown` is unknown"),
            (limit("{unit: day, unlimited: true}"), "line 5: an unlimited rule has no `unit`"),
            (limit("{unit: day, requests_per_unit: -1}"), "line 5: `requests_per_unit` needs"),
            (limit("{unit: day, requests_per_unit: 4294967296}"), "line 5: `requests_per_unit`"),
            (limit("{unit: day, requests_per_unit: '5'}"), "line 5: `requests_per_unit` needs"),
            (limit("{unit: day, replaces: [{name: ''}]}"), "line 5: `replaces` has an entry"),
            (limit("{unit: day, name: n, replaces: [{name: n}]}"), "line 5: `n` replaces itself"),
            (wrong("domain: x\ndescriptors:\n  - key: [\n"), "line "),
        ];
        for (error, expected) in table {
            assert!(error.starts_with(expected), "{error} / {expected}");
        }
    }

    #[test]
    fn what_the_peer_takes_is_taken() {
        let table = [
            "domain: x",
            "domain: x\ndescriptors: ~",
            "domain: x\nunit: stands elsewhere\ndescriptors: []",
            "{\"domain\": \"x\", \"descriptors\": [{\"key\": \"a\", \"rate_limit\": null}]}",
            "domain: x\ndescriptors:\n- key: a\n  rate_limit: {unlimited: on}",
            "domain: x\ndescriptors:\n- key: a\n  value: ~\n  quota_mode: y",
            "domain: x\ndescriptors:\n- key: 2024-01-01\n  value: 2024-01-01",
            "domain: x\ndomain: y",
        ];
        for text in table {
            assert!(Domain::read(text).is_ok(), "{text}: {:?}", Domain::read(text));
        }
    }

    #[test]
    fn the_dump_has_a_line_for_each_limit() {
        let text = "domain: x\ndescriptors:\n- key: a\n  value: b\n  shadow_mode: y\n  rate_limit: \
                    {unit: day, requests_per_unit: 5}\n";
        let line = "x.a_b: unit=DAY requests_per_unit=5, shadow_mode: true, quota_mode: false\n";
        assert_eq!(domain(text).dump(), line);
    }
}
