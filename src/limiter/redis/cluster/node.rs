//! One server of a cluster.

use std::sync::Arc;

use super::super::address::Host;
use super::super::own_pool::OwnPool;
use super::super::server::{Connector, Server};
use crate::Error;

/// What the connections to all servers of a cluster have in common.
#[derive(Clone)]
pub(in super::super) struct NodeSettings {
    pub(in super::super) connector: Connector,
    /// The connections to each server, for each runtime.
    pub(in super::super) size: usize,
}

impl NodeSettings {
    /// The server at an address. Fails if it cannot be used.
    pub(super) fn server(&self, host: &Host) -> Result<Server, Error> {
        self.connector.server(host).map(Server::in_cluster)
    }
}

/// A server, and the connections to it.
pub(super) struct Node {
    host: Host,
    server: Server,
    pool: Arc<OwnPool>,
}

impl Node {
    pub(super) fn new(host: &Host, settings: &NodeSettings) -> Result<Self, Error> {
        let server = settings.server(host)?;
        let pool = Arc::new(OwnPool::new(server.clone(), settings.size));
        Ok(Self { host: host.clone(), server, pool })
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn pool(&self) -> &Arc<OwnPool> {
        &self.pool
    }
}
