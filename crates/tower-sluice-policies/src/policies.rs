//! Policies as the key extractor and the limiter of a layer: their settings, their source, and the
//! state that they share with handles.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::Request;
#[cfg(feature = "redis")]
use tower_sluice::Pool;
use tower_sluice::algorithm::TokenBucket;
use tower_sluice::future::{BoxedFuture, Renewal, Settlement};
use tower_sluice::key::{ClientIp, FindPeer, Head, KeyExtractor, Keyed};
use tower_sluice::limiter::{Owner, Reservation, Switch, SwitchMode};
use tower_sluice::{
    Charge, Decision, Error, ErrorKind, HttpResponder, Limiter, Memory, Quota, RateLimitLayer,
    store,
};

use super::decide_policies::decide;
use super::limited_policy::{LimitedPolicy, PolicyStore, StorePlace};
use super::path::Allowed;
use super::policy::Policy;
use super::policy_event::{PolicyEvent, PolicyObserver};
use super::policy_key::Finders;
use super::read_rows::{self, Read};
use super::response_costs::{answered, held};
use super::row::Rows;
use super::table_error::TableError;
use super::table_in_force::{NoKey, Selection, Table};
#[cfg(feature = "tracing")]
use super::table_watch::table_in_force;
use super::table_watch::{OnUnmatched, Unmatched};

/// Policies from a table: the key extractor and the limiter of a layer. Cheap to clone: clones
/// share one table.
///
/// The [guide](crate::guide) lists the fields of a row.
///
/// You can wrap it in limiters such as [`inspect`](tower_sluice::LimiterExt::inspect),
/// [`timeout`](tower_sluice::LimiterExt::timeout) and
/// [`deny_cache`](tower_sluice::LimiterExt::deny_cache). You cannot wrap it in a
/// [`lease`](tower_sluice::LimiterExt::lease): a lease asks for several units at once, but each
/// policy has its own cost. That is an error of kind [`Configuration`](ErrorKind::Configuration).
///
/// ```
/// use http::{Request, Response};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_sluice_policies::{Policies, Rows};
///
/// let rows: Rows = toml::from_str(
///     r#"
///     [[policy]]
///     name = "api"
///     algorithm = "fixed_window"
///     limit = 1
///     period = "1h"
///     key = "header:x-api-key"
///     match = { path = "/api/{*rest}" }
///     "#,
/// )?;
/// let policies = Policies::builder().build(&rows)?;
/// let limit = policies.layer();
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new("hello")) });
/// let service = limit.layer(inner);
/// let get = |path| Request::get(path).header("x-api-key", "alice").body(()).unwrap();
/// assert_eq!(service.clone().oneshot(get("/api/users")).await?.status(), 200);
/// assert_eq!(service.clone().oneshot(get("/api/users")).await?.status(), 429);
/// // No policy takes this one.
/// assert_eq!(service.clone().oneshot(get("/health")).await?.status(), 200);
///
/// // Another table, from the next request on. The units that alice took stay taken.
/// let api = rows.policy[0].clone().with("limit", 3);
/// policies.load(&Rows::from_iter([api]))?;
/// assert_eq!(service.oneshot(get("/api/users")).await?.status(), 200);
/// # Ok::<(), BoxError>(()) })?;
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone)]
pub struct Policies {
    shared: Arc<SharedPolicies>,
}

/// The state that [`Policies`], its clones and its handles share.
struct SharedPolicies {
    settings: PoliciesBuilder,
    /// The table in use, which can be replaced while requests use it.
    table: RwLock<Arc<Table>>,
    /// The switches, by the names of policies. A switch that was set outlives its row.
    switches: Mutex<HashMap<String, Switch>>,
    global: Switch,
    unmatched: Unmatched,
    /// Identifies the reservations of this limiter.
    owner: Owner,
}

impl Policies {
    /// Returns a builder. Each setting has a default.
    pub fn builder() -> PoliciesBuilder {
        PoliciesBuilder::new()
    }

    /// Returns a layer that limits requests by these policies.
    ///
    /// With a wrapper around the policies, write the layer in two parts:
    /// `RateLimitLayer::new(policies.clone().timeout(..), policies)`.
    pub fn layer(&self) -> RateLimitLayer<Self, Self, HttpResponder> {
        RateLimitLayer::new(self.clone(), self.clone())
    }

    /// Puts another table in force, from the next request on. Requests that were charged under the
    /// old table are settled under the old table.
    ///
    /// A policy that keeps its name and its algorithm keeps its taken units, as
    /// [`Charge::quota`](tower_sluice::Charge::quota) describes. Switches keep their modes.
    ///
    /// An event of `tracing` has the number of policies of the table: all, and those on, in a
    /// shadow and off.
    ///
    /// To follow changes of a source, read and load its rows from time to time:
    ///
    /// ```
    /// use tower_sluice_policies::{Policies, Rows};
    ///
    /// # type BoxError = Box<dyn std::error::Error + Send + Sync>;
    /// # fn run(policies: Policies) {
    /// async fn file() -> Result<Rows, BoxError> {
    ///     Ok(toml::from_str(&std::fs::read_to_string("policies.toml")?)?)
    /// }
    ///
    /// tokio::spawn(async move {
    ///     loop {
    ///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ///         let rows = file().await;
    ///         if let Err(error) = rows.and_then(|rows| Ok(policies.load(&rows)?)) {
    ///             eprintln!("the policies stay as they were: {error}");
    ///         }
    ///     }
    /// });
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If a row is wrong, or if there is no row. The table in force then stays.
    pub fn load(&self, rows: &Rows) -> Result<(), TableError> {
        let Read { policies, exempt, allowed } = read_rows::policies(rows, self.finders())?;
        // Held until the table is replaced, so that loads run one after another.
        let switches = self.shared.switches.lock();
        let mut switches = switches.unwrap_or_else(PoisonError::into_inner);
        let before = self.table();
        let limited = |policy: Policy| {
            let switch = switches.entry(policy.name().to_owned()).or_default().clone();
            let before = before.get(policy.name()).map(|limited| &**limited);
            Arc::new(LimitedPolicy::new(policy, &self.shared.settings.store, switch, before))
        };
        let policies = policies.into_iter().map(limited).collect();
        let table = Arc::new(Table::new(policies, exempt, allowed, Some(&before)));
        let of_rows = Arc::clone(&table);
        *self.shared.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        // A switch that is off or in a shadow is kept, in case its row comes back.
        drop(before);
        switches.retain(|name, switch| {
            switch.mode() != SwitchMode::On || switch.is_shared() || of_rows.get(name).is_some()
        });
        drop(switches);
        #[cfg(feature = "tracing")]
        table_in_force(of_rows.counts(self.shared.global.mode()));
        Ok(())
    }

    /// The switch of all policies. The most permissive of three settings applies: this switch, the
    /// policy's own switch, and `enabled` and `shadow` in its row.
    /// [`PolicyHandle::mode`](super::PolicyHandle::mode) returns the result.
    ///
    /// While it is set to [`Shadow`](tower_sluice::limiter::SwitchMode::Shadow), its
    /// [`shadow_counts`](Switch::shadow_counts) count the decisions of all policies: one for each
    /// policy of a request.
    #[must_use]
    pub fn global_switch(&self) -> &Switch {
        &self.shared.global
    }

    /// Returns the charge of a request, or [`Keyed::Exempt`] if no policy takes it. If all policies
    /// that take it are off, its charge is admitted with
    /// [`Origin::Off`](tower_sluice::limiter::Origin::Off).
    #[must_use]
    pub fn charge(&self, head: Head<'_>) -> Keyed {
        self.charge_of(&head, None)
    }

    /// Returns a key extractor that gives its requests a name. Only policies whose `match` has that
    /// name take them.
    ///
    /// ```
    /// use tower_sluice_policies::{Policies, Row, Rows};
    ///
    /// let row = Row::from_texts([
    ///     ("name", "uploads"),
    ///     ("limit", "3"),
    ///     ("period", "1h"),
    ///     ("match", r#"{"name": "upload"}"#),
    /// ]);
    /// let rows = Rows::from_iter([row]);
    /// let policies = Policies::builder().build(&rows)?;
    /// // Around the routes that take uploads:
    /// let layer = policies.named("upload").layer();
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice_policies::TableError>(())
    /// ```
    #[must_use]
    pub fn named(&self, name: impl Into<Arc<str>>) -> Named {
        Named { policies: self.clone(), name: name.into() }
    }

    /// The table in use.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.shared.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn finders(&self) -> &Finders {
        &self.shared.settings.finders
    }

    /// Returns the charge of a request that may have a name.
    fn charge_of(&self, head: &Head<'_>, name: Option<&str>) -> Keyed {
        let selected = self.table().select(head, name, &self.shared.global, self.finders());
        let selection = match selected {
            Ok(Some(selection)) => selection,
            Ok(None) => return Keyed::Exempt,
            Err(no_key) => return no_key.into(),
        };
        if selection.is_empty() {
            self.shared.unmatched.saw(head, self.shared.settings.on_unmatched.as_deref());
            return Keyed::Exempt;
        }
        let (text, cost, max_wait) = (selection.text(), selection.cost(), selection.max_wait());
        let charge = Charge::new(Arc::<str>::from(text)).with_extension(Arc::new(selection));
        Keyed::Charge(charge.cost(cost).max_wait(max_wait))
    }
}

impl<B> KeyExtractor<Request<B>> for Policies {
    fn extract(&self, request: &Request<B>) -> Keyed {
        self.charge_of(&Head::from(request), None)
    }
}

/// A key extractor that gives its requests a name. Made by [`Policies::named`].
#[derive(Clone, Debug)]
pub struct Named {
    policies: Policies,
    name: Arc<str>,
}

impl Named {
    /// Returns a layer that limits requests with this name: see [`Policies::layer`].
    pub fn layer(&self) -> RateLimitLayer<Policies, Self, HttpResponder> {
        RateLimitLayer::new(self.policies.clone(), self.clone())
    }
}

impl<B> KeyExtractor<Request<B>> for Named {
    fn extract(&self, request: &Request<B>) -> Keyed {
        self.policies.charge_of(&Head::from(request), Some(&self.name))
    }
}

impl Limiter for Policies {
    type Future = BoxedFuture;

    /// Decides about a charge that these policies made from a request.
    fn check(&self, charge: &Charge) -> BoxedFuture {
        let asked = match charge.extension::<Arc<Selection>>() {
            None => Err("policies decide only about charges that they made from a request"),
            // A lease, for example, asks for more units than one request.
            Some(selection) if ![0, selection.cost()].contains(&charge.units()) => {
                Err("the cost of a charge of policies must not be changed")
            }
            Some(selection) => Ok(Arc::clone(selection)),
        };
        let charge = self.shared.settings.store.with_deadline(charge.clone());
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let wrong = |message| Error::new(ErrorKind::Configuration, message);
            let selection = asked.map_err(wrong)?;
            decide(selection, charge, shared.owner, shared.settings.observer.as_ref()).await
        })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        let (owner, cost) = (self.shared.owner, reservation.cost());
        if reservation.owner() != owner {
            return Err(reservation);
        }
        let (reservation, response) = answered(reservation);
        store::settle(owner, reservation, |place, own| {
            let stated = response.as_ref().and_then(|response| response.stated(place));
            stated.unwrap_or_else(|| in_proportion(own, cost, actual))
        })
    }

    fn renew(&self, reservation: &mut Reservation) -> Option<Renewal> {
        store::renew(self.shared.owner, held(reservation))
    }

    /// Shows a request without a key to the observer, and returns `None`, so that it is refused. A
    /// policy that is off takes no request, and a policy in a shadow refuses no request.
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        let source = std::error::Error::source(why);
        let no_key = source.and_then(|source| source.downcast_ref::<NoKey>());
        if let (Some(observer), Some(no_key)) = (&self.shared.settings.observer, no_key) {
            observer(&PolicyEvent::of(&no_key.limited, Err(why)));
        }
        None
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("policies", &self.table())
            .field("switch", &self.shared.global)
            .finish_non_exhaustive()
    }
}

/// Returns the units that are in the same proportion to `own` as `actual` is to `cost`, rounded up.
fn in_proportion(own: u64, cost: u64, actual: u64) -> u64 {
    let units = u128::from(own) * u128::from(actual);
    u64::try_from(units.div_ceil(u128::from(cost.max(1)))).unwrap_or(u64::MAX)
}

/// Settings of [`Policies`]. Made by [`Policies::builder`].
#[derive(Clone)]
#[must_use = "it makes no policies until `build` is called"]
pub struct PoliciesBuilder {
    store: PolicyStore,
    finders: Finders,
    observer: Option<PolicyObserver>,
    on_unmatched: Option<Arc<OnUnmatched>>,
}

impl PoliciesBuilder {
    fn new() -> Self {
        let store = PolicyStore {
            place: StorePlace::Memory,
            max_keys: 100_000,
            #[cfg(feature = "redis")]
            decision_timeout: Duration::from_millis(100),
            clock: None,
            clock_of: Memory::new("clock", TokenBucket::new(Quota::per_second(1))),
        };
        let (addresses, own) = (Arc::new(ClientIp::new()), BTreeMap::new());
        let finders = Finders { addresses, own, reads_bodies: false };
        Self { store, finders, observer: None, on_unmatched: None }
    }

    /// Counts the taken units in the Redis of `pool`, which other processes share. The policies of
    /// a request decide in one call if one script holds them, such as seven token buckets.
    /// Default: in this process.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, pool: Pool) -> Self {
        self.store.place = StorePlace::Redis(pool);
        self
    }

    /// Sets the longest time in which Redis decides about a request, however many calls that takes.
    /// Default: 100 ms.
    ///
    /// The policies of a request share one call if possible. If not, several calls share this time:
    /// in a cluster, behind a proxy with several servers, and for Redisson's algorithms. If it ends
    /// after one of them was answered, the error is of kind
    /// [`Saturation`](tower_sluice::ErrorKind::Saturation).
    #[cfg(feature = "redis")]
    pub fn decision_timeout(mut self, timeout: Duration) -> Self {
        self.store.decision_timeout = timeout;
        self
    }

    /// Sets how a key of `client_ip` is found: which proxies are trusted, and how IPv6 addresses
    /// are grouped. Default: the peer of the connection; headers are ignored.
    pub fn client_ip<P>(mut self, client_ip: ClientIp<P>) -> Self
    where
        P: FindPeer + Send + Sync + 'static,
    {
        self.finders.addresses = Arc::new(client_ip);
        self
    }

    /// Lets rows write `key = "name"` for what a closure finds in a request, such as the user in a
    /// claim or a tenant. `None` or an empty text: the request has no such key. Stores see a digest
    /// of it. Default: no such keys.
    ///
    /// A name that rows know already, such as `path`, keeps its meaning there.
    ///
    /// ```
    /// use tower_sluice_policies::{Policies, Row, Rows};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// let row = Row::from_texts([
    ///     ("name", "api"),
    ///     ("limit", "5"),
    ///     ("period", "1s"),
    ///     ("key", "user"),
    /// ]);
    /// let policies = Policies::builder()
    ///     .key("user", |head| Some(head.extensions().get::<User>()?.0.clone()))
    ///     .build(&Rows::from_iter([row]))?;
    /// # Ok::<(), tower_sluice_policies::TableError>(())
    /// ```
    pub fn key(
        mut self,
        name: impl Into<String>,
        find: impl Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.finders.own.insert(name.into(), Arc::new(find));
        self
    }

    /// Lets rows take a cost from the body of a response: `cost = "response_json:/POINTER"`. The
    /// program reads it, with [`ResponseCosts`](super::ResponseCosts). Default: such a row is an
    /// error.
    pub fn reads_bodies(mut self) -> Self {
        self.finders.reads_bodies = true;
        self
    }

    /// Sets the most live keys that each policy has in the memory of this process. For a policy in
    /// Redis, these are the keys of its local share. Default: 100,000.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.store.max_keys = keys;
        self
    }

    /// Decides by `clock`, the time since the Unix epoch. Default: the store's clock.
    ///
    /// It is for tests and replays: see [`Memory::clock`](tower_sluice::Memory::clock) and
    /// [`Redis::clock`](tower_sluice::Redis::clock).
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let clock = Arc::new(clock);
        self.store.clock = Some(Arc::clone(&clock) as _);
        self.store.clock_of = self.store.clock_of.clock(move || clock());
        self
    }

    /// Shows each decision of each policy to a closure, for metrics and logs. Default: no closure.
    /// For a policy that is off, the closure sees the requests that pass, with
    /// [`Origin::Off`](tower_sluice::limiter::Origin::Off).
    ///
    /// The closure runs in the request's task, so it must not block.
    pub fn on_decision(self, observe: impl Fn(&PolicyEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Arc::new(observe)), ..self }
    }

    /// Shows a request that no row takes to a closure, at most one a minute: its path, and the
    /// number of such requests since the last one that was shown. Default: no closure. The feature
    /// `tracing` emits an event for the same requests.
    ///
    /// A request that a row with `exempt = true` takes is not shown.
    pub fn on_unmatched(self, show: impl Fn(&str, u64) + Send + Sync + 'static) -> Self {
        Self { on_unmatched: Some(Arc::new(show)), ..self }
    }

    /// Makes the policies of a table.
    ///
    /// # Errors
    ///
    /// If a row is wrong, or if there is no row: see [`TableError`].
    pub fn build(self, rows: &Rows) -> Result<Policies, TableError> {
        let policies = Policies {
            shared: Arc::new(SharedPolicies {
                settings: self,
                table: RwLock::new(Arc::new(Table::new(
                    Vec::new(),
                    Vec::new(),
                    Allowed::default(),
                    None,
                ))),
                switches: Mutex::default(),
                global: Switch::new(),
                unmatched: Unmatched::default(),
                owner: Owner::new(),
            }),
        };
        policies.load(rows)?;
        Ok(policies)
    }
}

impl fmt::Debug for PoliciesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoliciesBuilder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;

    #[test]
    fn every_cost_changes_in_the_same_proportion() {
        for ((own, cost, actual), units) in [
            ((1, 1, 7), 7),
            ((3, 1, 7), 21),
            ((3, 3, 0), 0),
            ((10, 4, 1), 3),
            ((1, 10, 4), 1),
            ((1, 10, 11), 2),
            ((0, 1, 5), 0),
            ((u64::MAX, 1, u64::MAX), u64::MAX),
        ] {
            assert_eq!(in_proportion(own, cost, actual), units);
        }
    }

    #[cfg(feature = "redis")]
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

    fn rows(name: &str) -> Rows {
        let row = Row::new().with("name", name).with("limit", 5).with("period", "1s");
        Rows::from_iter([row])
    }

    #[test]
    fn only_a_switch_that_somebody_uses_outlives_its_row() {
        let policies = Policies::builder().build(&rows("off")).unwrap();
        policies.get("off").unwrap().switch().set(SwitchMode::Off);
        policies.load(&rows("held")).unwrap();
        let held = policies.get("held").unwrap();
        for name in 0..100 {
            policies.load(&rows(&name.to_string())).unwrap();
        }
        assert_eq!(policies.shared.switches.lock().unwrap().len(), 3);
        held.switch().set(SwitchMode::Shadow);
        drop(held);
        policies.load(&rows("held")).unwrap();
        assert_eq!(policies.get("held").unwrap().mode(), SwitchMode::Shadow);
        policies.load(&rows("off")).unwrap();
        assert_eq!(policies.get("off").unwrap().mode(), SwitchMode::Off);
        policies.get("off").unwrap().switch().set(SwitchMode::On);
        policies.load(&rows("last")).unwrap();
        assert_eq!(policies.shared.switches.lock().unwrap().len(), 2);
    }
}
