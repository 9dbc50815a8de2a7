//! Writes the lists and the dictionary of the drafts as structured fields (RFC 9651).

use std::iter;

use sfv::{Integer, KeyRef, ListSerializer, ParameterSerializer, StringRef, key_ref};

use super::standing::MAX_INTEGER;
use crate::core::decision::{
    MAX_POLICY_NAME, PolicyReport, QuotaUnit, is_policy_name, is_policy_name_byte,
};

const QUOTA: &KeyRef = key_ref("q");
const UNIT: &KeyRef = key_ref("qu");
const WINDOW: &KeyRef = key_ref("w");
const PARTITION_KEY: &KeyRef = key_ref("pk");

/// Writes `"burst";q=10;w=1, "daily";q=1000;w=86400`, as in draft-11. `None` without policies.
pub(super) fn policies<'a>(
    policies: impl Iterator<Item = PolicyReport<'a>> + Clone,
) -> Option<String> {
    let mut list = ListSerializer::new();
    for (policy, name) in policies.clone().zip(names(policies)) {
        let mut item = list.bare_item(StringRef::from_str(&name).ok()?);
        item = item.parameter(QUOTA, integer(policy.quota().burst_size()));
        item = match policy.unit() {
            QuotaUnit::Requests => item,
            QuotaUnit::ContentBytes => item.parameter(UNIT, CONTENT_BYTES),
            QuotaUnit::ConcurrentRequests => item.parameter(UNIT, CONCURRENT_REQUESTS),
        };
        item = with_window(item, &policy);
        _ = match policy.partition_key() {
            Some(key) => item.parameter(PARTITION_KEY, &key[..]),
            None => item,
        };
    }
    list.finish()
}

const CONTENT_BYTES: &StringRef = sfv::string_ref("content-bytes");
const CONCURRENT_REQUESTS: &StringRef = sfv::string_ref("concurrent-requests");

/// Writes `10;w=1, 1000;w=86400`, as in draft-07 and -06. `None` without policies.
pub(super) fn quotas<'a>(policies: impl Iterator<Item = PolicyReport<'a>>) -> Option<String> {
    let mut list = ListSerializer::new();
    for policy in policies {
        let item = list.bare_item(integer(policy.quota().burst_size()));
        _ = with_window(item, &policy);
    }
    list.finish()
}

type Parameters<'s> = ParameterSerializer<&'s mut String>;

/// Adds a window of whole seconds, if there is one.
fn with_window<'s>(item: Parameters<'s>, policy: &PolicyReport<'_>) -> Parameters<'s> {
    let window = policy.window();
    match window.subsec_nanos() {
        0 if !window.is_zero() => item.parameter(WINDOW, integer(window.as_secs())),
        _ => item,
    }
}

fn integer(number: u64) -> Integer {
    Integer::try_from(number.min(MAX_INTEGER)).unwrap_or_default()
}

/// Returns the names of the policies, with only the characters that a name may have. Names in a
/// list are distinct: a name that an earlier policy has gets a number.
pub(super) fn names<'a>(policies: impl Iterator<Item = PolicyReport<'a>>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, policy) in policies.enumerate() {
        let plain = permitted(policy.name());
        let numbered = (index + 1..).map(|number| {
            let number = format!("-{number}");
            let kept = plain.len().min(MAX_POLICY_NAME - number.len());
            plain[..kept].to_owned() + &number
        });
        let free = iter::once(plain.clone()).chain(numbered).find(|name| !names.contains(name));
        names.extend(free);
    }
    names
}

/// Returns the name itself, if it is valid. Otherwise every invalid character becomes a `-`.
fn permitted(name: &str) -> String {
    if is_policy_name(name) {
        return name.to_owned();
    }
    let permitted = |character: char| match u8::try_from(character) {
        Ok(byte) if is_policy_name_byte(byte) => character,
        _ => '-',
    };
    let permitted: String = name.chars().map(permitted).take(MAX_POLICY_NAME).collect();
    if permitted.is_empty() { "-".to_owned() } else { permitted }
}

#[cfg(test)]
mod tests;
