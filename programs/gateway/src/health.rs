//! The health of the gateway: it asks the store all the time, so it knows without traffic whether
//! it can decide.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::gate::Gate;

/// The time between two probes.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of the last probes. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    wrong: Arc<Mutex<Option<String>>>,
}

impl Health {
    /// Begins to probe. It is healthy until a probe has failed.
    pub(crate) fn start(gate: &Gate) -> Self {
        let this = Self::default();
        tokio::spawn(this.clone().probe(gate.clone()));
        this
    }

    /// Returns why nothing can be decided. `None` if decisions can be made.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One failure says little: a process that is busy for a moment misses a deadline. Two in a row
    /// say that nothing is decided.
    async fn probe(self, gate: Gate) {
        let mut failed = 0_u32;
        loop {
            let answer = gate.probe().await;
            failed = if answer.is_ok() { 0 } else { failed.saturating_add(1) };
            let wrong = answer.err().filter(|_| failed > 1);
            if failed != 1 {
                let before = self.set(wrong.clone());
                match (before, wrong) {
                    (None, Some(wrong)) => eprintln!("gateway: cannot decide: {wrong}"),
                    (Some(_), None) => eprintln!("gateway: can decide again"),
                    _ => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn set(&self, wrong: Option<String>) -> Option<String> {
        let mut now = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, wrong)
    }
}
