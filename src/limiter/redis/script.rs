//! A limiter's script: its text, its digest, and the arguments of a call.
//!
//! `scripts/README.md` describes the arguments and the reply, which `reply.rs` reads.

use redis::{Cmd, cmd};
use sha1_smol::Sha1;

use super::key;
use super::request::{Op, Request};
use crate::algorithm::{InLua, ScriptPart};

const HEAD: &str = include_str!("../../../scripts/head.lua");
const TAIL: &str = include_str!("../../../scripts/tail.lua");
const SEVERAL: &str = include_str!("../../../scripts/several.lua");

/// The text that Redis runs, and its digest for EVALSHA.
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
        for ScriptPart { name, script, .. } in &parts {
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
        Self::new(text)
    }

    /// A script that makes its own decisions and writes; the sources follow the head.
    #[cfg(feature = "redisson")]
    pub(crate) fn from_sources(sources: &[&str]) -> Self {
        Self::new([&[HEAD], sources].concat().join("\n"))
    }

    fn new(text: String) -> Self {
        let digest = Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }

    /// The command EVALSHA, without keys and arguments.
    pub(super) fn evalsha(&self) -> Cmd {
        cmd("EVALSHA").arg(&self.digest).take()
    }

    /// The command EVAL, without keys and arguments.
    pub(super) fn eval(&self) -> Cmd {
        cmd("EVAL").arg(&self.text).take()
    }
}

/// The keys and arguments of a call.
pub(super) struct Arguments<'a> {
    pub(super) now: Option<i64>,
    /// The prefixes of a charge's keys, one for each quota.
    pub(super) key_prefixes: &'a [String],
    pub(super) rule: &'a [i64],
    pub(super) requests: &'a [&'a Request],
}

impl Arguments<'_> {
    pub(super) fn append_to(&self, command: &mut Cmd) {
        command.arg(self.requests.len() * self.key_prefixes.len());
        let mut name = String::new();
        for request in self.requests {
            let mut suffixes = key::key_suffixes(&request.key);
            let mut suffix = suffixes.next().unwrap_or_default();
            for prefix in self.key_prefixes {
                name.clear();
                name.extend([prefix.as_str(), suffix]);
                command.arg(&name);
                suffix = suffixes.next().unwrap_or(suffix);
            }
        }
        match self.now {
            Some(now) => command.arg(now),
            None => command.arg(""),
        };
        command.arg(self.rule);
        for run in self.requests.chunk_by(|one, next| one.differs_in_key_only(next)) {
            command.arg(run.len());
            if let Some(rule) = &run[0].rule {
                command.arg("quota").arg(rule);
            }
            match &run[0].op {
                Op::Check { cost, max_wait } => command.arg(cost).arg(max_wait),
                Op::Refund { units, cost, mark } => {
                    if units == cost {
                        command.arg("refund").arg(cost);
                    } else {
                        command.arg("refund_part").arg(units).arg(cost);
                    }
                    let numbers = [mark.first].into_iter().chain(mark.more.iter().copied());
                    for (index, [one, two, three, four]) in numbers.enumerate() {
                        command.arg(one).arg(two).arg(three);
                        match mark.list(index) {
                            [] => command.arg(four),
                            list => command.arg(unit_list(list)),
                        };
                    }
                    &mut *command
                }
                Op::Estimate { cost, max_wait } => command.arg("estimate").arg(cost).arg(max_wait),
                Op::Penalize { cost } => command.arg("penalize").arg(cost),
                Op::Reset => command.arg("reset"),
            };
        }
    }
}

/// Units as the script lists them.
fn unit_list(units: &[i64]) -> String {
    units.iter().map(|units| format!(",{units}")).collect()
}
