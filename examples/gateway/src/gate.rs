//! The limits: what decides about a request, and what operators see and change of it.

use serde_json::{Value, json};

use crate::settings::Settings;

/// The table of policies. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Gate;

/// What an operator asks of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Show,
    Reset,
    Penalize(u64),
}

/// Why an operator's request fails.
#[derive(Debug)]
pub(crate) enum AdminError {
    UnknownPolicy,
    Invalid(String),
    Undecided(String),
}

/// What an operator sets: `on`, `off` or `shadow`.
pub(crate) type Mode = tower_sluice::SwitchMode;

impl Gate {
    pub(crate) fn new(_settings: &Settings) -> Result<Self, String> {
        Ok(Self)
    }

    /// Puts a table into force, or keeps the old one and says why.
    pub(crate) fn load(&self, _text: &str) -> Result<(), String> {
        Ok(())
    }

    /// Asks the store whether it decides, and returns why not.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        Ok(())
    }

    /// The policies, as `GET /policies` shows them.
    pub(crate) fn policies(&self) -> Value {
        json!([])
    }

    /// The policies, as the page shows them: nothing that a caller does not see in header fields.
    pub(crate) fn summary(&self) -> Value {
        json!([])
    }

    pub(crate) async fn key(
        &self,
        _policy: &str,
        _parts: Vec<String>,
        _action: KeyAction,
    ) -> Result<Value, AdminError> {
        Err(AdminError::UnknownPolicy)
    }

    /// Sets the switch of a policy, or of all.
    pub(crate) fn switch(&self, policy: Option<&str>, _mode: Mode) -> Result<(), AdminError> {
        policy.map_or(Ok(()), |_| Err(AdminError::UnknownPolicy))
    }

    /// The service that decides before `inner` is called.
    pub(crate) fn around<S>(&self, inner: S) -> S {
        inner
    }
}
