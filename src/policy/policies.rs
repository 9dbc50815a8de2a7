//! Policies as the key extractor and the limiter of a layer.

use std::fmt;
use std::sync::Arc;

use http::Request;

use super::decide::decide;
use super::error::TableError;
use super::gate::Store;
use super::key::FindAddress;
use super::observe::{Event, Observer};
use super::policy_handle::PolicyHandle;
use super::row::Rows;
use super::shared::Shared;
use super::table::{NoKey, Selection};
use crate::future::BoxedFuture;
use crate::http::Head;
use crate::key_extractor::{KeyExtractor, Keyed};
use crate::limiter::Switch;
use crate::limiter::combination::held_reservations::HeldReservations;
use crate::reservation::Reservation;
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error, ErrorKind, Limiter};

/// Policies from a table: the key extractor and the limiter of a layer. Cheap to clone: clones
/// share one table.
///
/// The [module](super) lists the fields of a row.
///
/// Limiters that watch, such as [`inspect`](crate::LimiterExt::inspect), fit around it, and so do
/// [`timeout`](crate::LimiterExt::timeout) and [`deny_cache`](crate::LimiterExt::deny_cache). A
/// [`lease`](crate::LimiterExt::lease) does not: it asks for several units at once, and each policy
/// has a cost of its own, so that is an error of kind [`Configuration`](ErrorKind::Configuration).
///
/// ```
/// use http::{Request, Response};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_sluice::RateLimitLayer;
/// use tower_sluice::policy::{Policies, Rows};
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
/// let limit = RateLimitLayer::new(policies.clone(), policies.clone());
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
    pub(super) shared: Arc<Shared>,
}

impl Policies {
    pub(super) fn new(
        store: Store,
        addresses: Arc<dyn FindAddress>,
        observer: Option<Observer>,
        refuses_ambiguous: bool,
    ) -> Self {
        Self { shared: Arc::new(Shared::new(store, addresses, observer, refuses_ambiguous)) }
    }

    /// Puts another table in force, from the next request on. Requests that were charged under the
    /// one before it end under that one.
    ///
    /// A policy that keeps its name and its algorithm keeps what was taken under it, as
    /// [`Charge::quota`](crate::Charge::quota) says. Switches stay where they are.
    ///
    /// An event of `tracing` says how many policies the table has, and how many of them are on, in
    /// a shadow and off.
    ///
    /// # Errors
    ///
    /// If something is wrong with a row, or there is none. The table in force then stays.
    pub fn load(&self, rows: &Rows) -> Result<(), TableError> {
        self.shared.load(rows)
    }

    /// The policies in force, in the order of their rows.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyHandle> {
        let armed = self.shared.table().armed.clone();
        let handle = |armed| PolicyHandle::new(Arc::clone(&self.shared), armed);
        armed.into_iter().map(handle).collect()
    }

    /// The policy with this name, if it is in force.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<PolicyHandle> {
        let armed = self.shared.table().get(name).cloned()?;
        Some(PolicyHandle::new(Arc::clone(&self.shared), armed))
    }

    /// The switch of all policies. The most permissive of three settings holds: this switch, the
    /// policy's own, and `enabled` and `shadow` in its row. [`PolicyHandle::mode`] says which.
    ///
    /// Its [`shadow_counts`](Switch::shadow_counts) are those of all policies while it is set to
    /// [`Shadow`](crate::limiter::SwitchMode::Shadow), one for each policy of a request.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.shared.global
    }

    /// Returns the charge of a request: [`Keyed::Exempt`] if no policy takes it. If all that take
    /// it are off, its charge is admitted with [`Origin::Off`](crate::limiter::Origin::Off).
    #[must_use]
    pub fn charge(&self, head: Head<'_>) -> Keyed {
        self.shared.charge(&head, None)
    }

    /// A key extractor for requests that are given a name: policies whose `match` has that name
    /// take them, and no others.
    ///
    /// ```
    /// use tower_sluice::RateLimitLayer;
    /// use tower_sluice::policy::{Policies, Row, Rows};
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
    /// let layer = RateLimitLayer::new(policies.clone(), policies.named("upload"));
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::policy::TableError>(())
    /// ```
    #[must_use]
    pub fn named(&self, name: impl Into<Arc<str>>) -> Named {
        Named { policies: self.clone(), name: name.into() }
    }
}

impl<B> KeyExtractor<Request<B>> for Policies {
    fn extract(&self, request: &Request<B>) -> Keyed {
        self.shared.charge(&Head::from(request), None)
    }
}

/// Charges requests that are given a name: made by [`Policies::named`].
#[derive(Clone, Debug)]
pub struct Named {
    policies: Policies,
    name: Arc<str>,
}

impl<B> KeyExtractor<Request<B>> for Named {
    fn extract(&self, request: &Request<B>) -> Keyed {
        self.policies.shared.charge(&Head::from(request), Some(&self.name))
    }
}

impl Limiter for Policies {
    type Future = BoxedFuture;

    /// Decides about a charge that these policies made of a request.
    fn check(&self, charge: &Charge) -> BoxedFuture {
        let Some(selection) = charge.attachment::<Arc<Selection>>().cloned() else {
            let message = "policies decide about charges that they made of a request";
            let error = Error::new(ErrorKind::Configuration, message);
            return Box::pin(std::future::ready(Err(error)));
        };
        // A lease, for instance, asks for more units than one request.
        if ![0, selection.cost()].contains(&charge.units()) {
            let message = "a charge of policies keeps the cost that they gave it";
            let error = Error::new(ErrorKind::Configuration, message);
            return Box::pin(std::future::ready(Err(error)));
        }
        let (charge, shared) = (charge.clone(), Arc::clone(&self.shared));
        Box::pin(async move {
            let cost = charge.units();
            let (decision, tentative) = decide(selection, charge, shared.observer.as_ref()).await?;
            let decision = decision.keeping_name();
            Ok(match tentative.keep().into_reservation(shared.owner, cost) {
                Some(reservation) => decision.with_reservation(reservation),
                None => decision,
            })
        })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.shared.owner {
            return Err(reservation);
        }
        let cost = reservation.cost();
        let held = HeldReservations::of(reservation)?;
        // Best effort: units that no limiter can settle stay taken.
        Ok(held.settle(|_, own| in_proportion(own, cost, actual)).0)
    }

    /// Shows a request without a key to the observer, and lets it be refused. A policy that is off
    /// takes no request, and a policy in a shadow refuses none.
    fn check_keyless(&self, why: &Error) -> Option<Decision> {
        let source = std::error::Error::source(why);
        let no_key = source.and_then(|source| source.downcast_ref::<NoKey>());
        if let (Some(observer), Some(no_key)) = (&self.shared.observer, no_key) {
            observer(&Event::keyless(&no_key.armed, why));
        }
        None
    }

    /// Returns true, whatever the table will hold: otherwise a layer refuses requests. A policy of
    /// Redisson does not take the additional units.
    fn can_take_more(&self) -> bool {
        true
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

/// Returns the units that are in the same proportion to `own` as `actual` is to `cost`, rounded up.
fn in_proportion(own: u64, cost: u64, actual: u64) -> u64 {
    let units = u128::from(own) * u128::from(actual);
    u64::try_from(units.div_ceil(u128::from(cost.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
