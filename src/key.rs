//! Whom a request is charged to: a closure over the request, or a type of your own.
//!
//! No key is not a free pass: `None` and `Err` get the configured answer, 400 unless set otherwise.
//! Exemption is said with [`Exempt`](crate::Exempt).
//!
//! A cost computed from the request counts as at least 1: [`Charge::peek`](crate::Charge::peek) lets a request pass and
//! takes nothing.
//!
//! ```
//! use tower_sluice::{Exempt, IntoCharge, KeyExtractor, Keyed};
//!
//! // One header; a request without it is refused.
//! let by_tenant = |request: &http::Request<()>| {
//!     let tenant = request.headers().get("x-tenant")?;
//!     tenant.to_str().ok().map(str::to_owned)
//! };
//! assert!(matches!(by_tenant.extract(&http::Request::new(())), Keyed::Missing));
//!
//! // Health checks pass unlimited; everything else shares one key.
//! let but_health = |request: &http::Request<()>| match request.uri().path() {
//!     "/health" => Exempt.into_charge(),
//!     _ => "everyone".into_charge(),
//! };
//! assert!(matches!(but_health.extract(&http::Request::new(())), Keyed::Charge(_)));
//! ```

use crate::{IntoCharge, Keyed};

/// Finds in a request whom to charge, and how much.
///
/// Every `Fn(&Req) -> C` is one, if `C` is [`IntoCharge`].
pub trait KeyExtractor<Req> {
    /// What `request` is charged to.
    fn extract(&self, request: &Req) -> Keyed;
}

impl<F, Req, C> KeyExtractor<Req> for F
where
    F: Fn(&Req) -> C,
    C: IntoCharge,
{
    fn extract(&self, request: &Req) -> Keyed {
        self(request).into_charge()
    }
}

/// Charges every request to one key: a limit for the whole service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl<Req> KeyExtractor<Req> for Global {
    fn extract(&self, _request: &Req) -> Keyed {
        Keyed::Charge("global".into())
    }
}
