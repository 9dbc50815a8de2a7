//! A limiter's script: put together once, and called by its digest.
//!
//! The contract between both sides is `scripts/README.md`; the reply is read in `reply.rs`.

use redis::{Cmd, cmd};
use sha1_smol::Sha1;

use super::key;
use super::request::{Op, Request};
use crate::algorithm::{InLua, Part};

const HEAD: &str = include_str!("../../../scripts/head.lua");
const TAIL: &str = include_str!("../../../scripts/tail.lua");
const SEVERAL: &str = include_str!("../../../scripts/several.lua");

/// A text that Redis runs, and the digest that it is called by.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: String,
    digest: String,
}

impl Script {
    pub(super) fn of<A: InLua>() -> Self {
        let parts = A::parts();
        let mut text = String::from(HEAD);
        let mut names = Vec::new();
        for Part { name, script, .. } in &parts {
            if !names.contains(name) {
                text.extend(["\n", script]);
            }
            names.push(name);
        }
        text.extend(["\n", TAIL]);
        match &parts[..] {
            [part] => text.extend(["\nreturn run(", part.name, ")\n"]),
            _ => {
                let names: Vec<_> = parts.iter().map(|part| part.name).collect();
                text.extend(["\n", SEVERAL, "\nreturn run(all_of(", &names.join(", "), "))\n"]);
            }
        }
        Self::whole(text)
    }

    /// A script that makes its own decisions and writes; `parts` follow the head.
    #[cfg(feature = "redisson")]
    pub(crate) fn with_head(parts: &[&str]) -> Self {
        Self::whole([&[HEAD], parts].concat().join("\n"))
    }

    fn whole(text: String) -> Self {
        let digest = Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }

    /// What a call by digest begins with.
    pub(super) fn digest_call(&self) -> Cmd {
        cmd("EVALSHA").arg(&self.digest).take()
    }

    /// What a call by text begins with.
    pub(super) fn text_call(&self) -> Cmd {
        cmd("EVAL").arg(&self.text).take()
    }
}

/// What a script is called with.
pub(super) struct Call<'a> {
    pub(super) now: Option<i64>,
    /// What the names of a charge's keys begin with: one for each quota.
    pub(super) key_prefixes: &'a [String],
    pub(super) rule: &'a [i64],
    pub(super) requests: &'a [&'a Request],
}

impl Call<'_> {
    pub(super) fn append_to(&self, call: &mut Cmd) {
        call.arg(self.requests.len() * self.key_prefixes.len());
        let mut name = String::new();
        for request in self.requests {
            let mut ends = key::key_suffixes(&request.key);
            let mut end = ends.next().unwrap_or_default();
            for prefix in self.key_prefixes {
                name.clear();
                name.extend([prefix.as_str(), end]);
                call.arg(&name);
                end = ends.next().unwrap_or(end);
            }
        }
        match self.now {
            Some(now) => call.arg(now),
            None => call.arg(""),
        };
        call.arg(self.rule);
        for run in self.requests.chunk_by(|one, next| one.differs_in_key_only(next)) {
            call.arg(run.len());
            if let Some(rule) = &run[0].rule {
                call.arg("quota").arg(rule);
            }
            match &run[0].op {
                Op::Check { cost, max_wait } => call.arg(cost).arg(max_wait),
                Op::Refund { units, cost, mark } => {
                    if units == cost {
                        call.arg("refund").arg(cost);
                    } else {
                        call.arg("refund_part").arg(units).arg(cost);
                    }
                    let numbers = [mark.first].into_iter().chain(mark.more.iter().copied());
                    for (place, [one, two, three, four]) in numbers.enumerate() {
                        call.arg(one).arg(two).arg(three);
                        match mark.list(place) {
                            [] => call.arg(four),
                            list => call.arg(listed(list)),
                        };
                    }
                    &mut *call
                }
                Op::Estimate { cost, max_wait } => call.arg("estimate").arg(cost).arg(max_wait),
                Op::Penalize { cost } => call.arg("penalize").arg(cost),
                Op::Reset => call.arg("reset"),
            };
        }
    }
}

/// Units as the script lists them.
fn listed(units: &[i64]) -> String {
    units.iter().map(|units| format!(",{units}")).collect()
}
