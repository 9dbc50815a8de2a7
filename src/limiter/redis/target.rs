//! What the connections of a pool lead to.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::Connection;
use super::sentinel::Sentinels;
use super::server::{Failure, Server};

/// One server, or the primary that sentinels name.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<Server>),
    Primary(Arc<Sentinels>),
}

impl From<Server> for Target {
    fn from(server: Server) -> Self {
        Self::Server(Box::new(server))
    }
}

impl Target {
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        match self {
            Self::Server(server) => {
                server.connect().await.map_err(|cause| Failure::new(server.address(), cause))
            }
            Self::Primary(sentinels) => sentinels.connect().await,
        }
    }

    /// For errors.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Server(server) => server.address(),
            Self::Primary(sentinels) => sentinels.address(),
        }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        match self {
            Self::Server(server) => server.connect_timeout,
            Self::Primary(sentinels) => sentinels.connect_timeout(),
        }
    }

    /// Finds out on `runtime` when the server changes.
    pub(super) fn keep_watching(&self, runtime: &Handle) {
        if let Self::Primary(sentinels) = self {
            sentinels.keep_watching(runtime);
        }
    }

    /// Returns how often the server, or the user there, has changed.
    pub(super) fn switches(&self) -> u64 {
        match self {
            Self::Server(server) => server.login_changes(),
            Self::Primary(sentinels) => sentinels.switches(),
        }
    }
}
