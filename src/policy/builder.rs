//! Settings of policies.

use std::sync::Arc;
use std::time::Duration;

use super::error::TableError;
use super::gate::{Place, Store};
use super::key::FindAddress;
use super::observe::{Event, Observer};
use super::policies::Policies;
use super::row::Rows;
#[cfg(feature = "redis")]
use crate::Pool;
use crate::http::{ClientIp, FindPeer};
use crate::limiter::memory::{Clock as MemoryClock, DEFAULT_MAX_KEYS};

/// Settings of [`Policies`]: made by [`Policies::builder`].
#[derive(Clone)]
#[must_use = "it makes no policies until `build` is called"]
pub struct PoliciesBuilder {
    store: Store,
    addresses: Arc<dyn FindAddress>,
    observer: Option<Observer>,
    refuses_ambiguous: bool,
}

impl Policies {
    /// Settings of policies, each with a default.
    pub fn builder() -> PoliciesBuilder {
        PoliciesBuilder::new()
    }
}

impl PoliciesBuilder {
    fn new() -> Self {
        let store = Store {
            place: Place::Memory,
            max_keys: DEFAULT_MAX_KEYS,
            #[cfg(feature = "redis")]
            decision_timeout: crate::limiter::redis::DEFAULT_DECISION_TIMEOUT,
            clock: None,
            own_clock: MemoryClock::tokio(),
        };
        let addresses = Arc::new(ClientIp::new());
        Self { store, addresses, observer: None, refuses_ambiguous: false }
    }

    /// Counts the taken units in the Redis of `pool`, which other processes share. Policies of one
    /// request are decided in one call. Default: in this process.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, pool: Pool) -> Self {
        self.store.place = Place::Redis(pool);
        self
    }

    /// Sets how long a call to Redis may take. Default: 100 ms.
    ///
    /// The policies of a request share a call where they can. Where they cannot, a
    /// [`timeout`](crate::LimiterExt::timeout) around the policies bounds all calls together.
    #[cfg(feature = "redis")]
    pub fn decision_timeout(mut self, timeout: Duration) -> Self {
        self.store.decision_timeout = timeout;
        self
    }

    /// Sets how a key of `client_ip` is found: which proxies are trusted, and how IPv6 addresses
    /// are grouped. Default: the peer of the connection, and no header is believed.
    pub fn client_ip<P>(mut self, client_ip: ClientIp<P>) -> Self
    where
        P: FindPeer + Send + Sync + 'static,
    {
        self.addresses = Arc::new(client_ip);
        self
    }

    /// Refuses a path that servers read in several ways, if a policy takes some of them and not
    /// others, or if they are several keys: the request gets 400, as one without a key. Default:
    /// the policy takes it.
    ///
    /// `/login/x/..` is such a path where only `/login` is limited, and so is `//login`.
    /// `/login/..` is not: it leads to `/`. `//x/a` is one too where the key is `path`: it may be
    /// `/x/a` or `/a`.
    pub fn refuse_ambiguous_paths(mut self) -> Self {
        self.refuses_ambiguous = true;
        self
    }

    /// Sets how many live keys each policy has in the memory of this process: those of its local
    /// share too, if it is in Redis. Default: 100,000.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.store.max_keys = keys;
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: the store's.
    ///
    /// For tests and replays: see [`Memory::clock`](crate::Memory::clock) and
    /// [`Redis::clock`](crate::Redis::clock).
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.store.clock = Some(Arc::new(clock));
        self
    }

    /// Shows each decision of each policy to a closure, for metrics and logs. Default: none. For a
    /// policy that is off, the closure sees the requests that pass, with
    /// [`Origin::Off`](crate::limiter::Origin::Off).
    ///
    /// It runs in the request's task, so it must not block.
    pub fn on_decision(self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Arc::new(observe)), ..self }
    }

    /// The policies of a table.
    ///
    /// # Errors
    ///
    /// If something is wrong with a row, or there is none: see [`TableError`].
    pub fn build(self, rows: &Rows) -> Result<Policies, TableError> {
        let policies =
            Policies::new(self.store, self.addresses, self.observer, self.refuses_ambiguous);
        policies.load(rows)?;
        Ok(policies)
    }
}

debug_by_name!([] PoliciesBuilder);

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settings_hold_in_any_order() {
        let (second, pool) = (Duration::from_secs(1), Pool::connect("redis://127.0.0.1:1"));
        let pool = pool.expect("an address");
        for builder in [
            PoliciesBuilder::new().decision_timeout(second).redis(pool.clone()),
            PoliciesBuilder::new().redis(pool).decision_timeout(second),
        ] {
            assert_eq!(builder.store.decision_timeout, second);
        }
    }
}
