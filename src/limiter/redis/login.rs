//! The user and the password of connections, which may change while a pool is used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{ProtocolVersion, RedisConnectionInfo};

/// User, password and database. Clones share them.
#[derive(Clone)]
pub(super) struct Login(Arc<Mutex<State>>);

struct State {
    settings: RedisConnectionInfo,
    /// The number of changes of user and password.
    changes: u64,
}

impl Login {
    pub(super) fn new(settings: RedisConnectionInfo) -> Self {
        // RESP3 carries the notice of a lost connection.
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        Self(Arc::new(Mutex::new(State { settings, changes: 0 })))
    }

    /// Lets the connections that are made from now on log in so.
    pub(super) fn set(&self, user: &str, password: &str) {
        let mut state = self.lock();
        state.settings = state.settings.clone().set_username(user).set_password(password);
        state.changes += 1;
    }

    pub(super) fn settings(&self) -> RedisConnectionInfo {
        self.lock().settings.clone()
    }

    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
