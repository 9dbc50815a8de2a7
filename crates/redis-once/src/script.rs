//! Scripts in Lua, and the two commands that run one: EVALSHA by its digest, EVAL by its text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis::{Cmd, cmd};
use sha1_smol::Sha1;

/// A script in Lua: its text, and the digest by which servers know it. Clones share both, and the
/// knowledge that a server has run it.
#[derive(Clone, Debug)]
pub struct Script {
    source: Arc<ScriptText>,
    /// True if a server has run it, so that a call may start with the digest.
    is_known: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ScriptText {
    text: String,
    digest: String,
}

impl Script {
    /// Makes a script, whose first calls send the text. A call with an unknown digest takes two
    /// round trips, and a later call could run in between.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let digest = Sha1::from(&text).digest().to_string();
        Self { source: Arc::new(ScriptText { text, digest }), is_known: Arc::default() }
    }

    /// Returns a script with the same text, whose first calls send the text.
    pub fn anew(&self) -> Self {
        Self { source: Arc::clone(&self.source), is_known: Arc::default() }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Returns the SHA-1 of the text, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.source.digest
    }

    /// Returns true if a call may start with the digest.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// Records that a server has run the script.
    pub(super) fn record_run(&self) {
        if !self.is_known() {
            self.is_known.store(true, Relaxed);
        }
    }

    /// Makes the command EVALSHA, without keys and arguments.
    pub(super) fn evalsha(&self) -> Cmd {
        // A call with one key fits, so that the command does not grow while it is built.
        let mut command = Cmd::with_capacity(24, 256);
        command.arg("EVALSHA").arg(self.digest());
        command
    }

    /// Makes the command EVAL, without keys and arguments.
    pub(super) fn eval(&self) -> Cmd {
        cmd("EVAL").arg(self.text()).take()
    }
}
