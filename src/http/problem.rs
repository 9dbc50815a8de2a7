//! The problem document of a refusal (RFC 9457).

use std::fmt::Write as _;

use super::body::MakeBody;
use super::http_refusal::HttpRefusal;
use super::structured;
use crate::core::{Decision, ErrorKind, Refusal};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Makes problem documents: see
/// [`HttpResponder::problem_json`](crate::HttpResponder::problem_json).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<C: From<String>> MakeBody<C> for ProblemJson {
    fn body(&self, refusal: &HttpRefusal) -> Option<C> {
        Some(C::from(refusal.problem_json()))
    }

    fn connect_error(&self, json: String) -> Option<C> {
        Some(C::from(json))
    }
}

impl HttpRefusal {
    /// Returns the names of the policies that refuse, as in the response's header fields. Empty
    /// unless the request was denied.
    #[must_use]
    pub fn violated_policies(&self) -> Vec<String> {
        match self.refusal() {
            Refusal::Denied(decision) => violated(decision),
            _ => Vec::new(),
        }
    }

    /// Returns the refusal as a problem document. A denial has the type `quota-exceeded` and the
    /// names of the policies that refuse. Without a decision the document has no type.
    #[must_use]
    pub fn problem_json(&self) -> String {
        let status = self.status();
        let (kind, title) = match self.refusal() {
            Refusal::Denied(_) => (QUOTA_EXCEEDED, "Quota Exceeded"),
            _ => ("about:blank", status.canonical_reason().unwrap_or("Refused")),
        };
        // Enough for the names of one or two policies.
        let mut json = String::with_capacity(256);
        json.extend([r#"{"type":""#, kind, r#"","title":""#, title]);
        json.extend([r#"","status":"#, status.as_str()]);
        let of_request = match self.refusal() {
            Refusal::Denied(_) => false,
            Refusal::Undecided(error) => error.kind() == ErrorKind::Request,
            Refusal::NoKey(_) => true,
        };
        if of_request {
            json.push_str(r#","detail":"#);
            push_text(&mut json, &self.to_string());
        }
        if let Refusal::Denied(_) = self.refusal() {
            json.push_str(r#","violated-policies":["#);
            for (index, name) in self.violated_policies().iter().enumerate() {
                json.push_str(if index == 0 { "" } else { "," });
                push_text(&mut json, name);
            }
            json.push(']');
        }
        json.push('}');
        json
    }
}

fn violated(decision: &Decision) -> Vec<String> {
    let policies = decision.policies().filter(|policy| !policy.is_shadow());
    let names = structured::names(policies.clone());
    let refuses = policies.zip(names).filter(|(policy, _)| !policy.is_admitted());
    refuses.map(|(_, name)| name).collect()
}

pub(super) fn push_text(json: &mut String, text: &str) {
    json.push('"');
    // Names of policies need no escapes.
    if text.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\')) {
        json.extend([text, "\""]);
        return;
    }
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\0'..=' ' if character != ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests;
