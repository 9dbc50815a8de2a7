//! Whom a request is charged to: a closure over the request, or a type of your own.
//!
//! No key is not a free pass: `None` and `Err` get the configured answer, 400 unless set otherwise.
//! Exemption is said with [`Exempt`](crate::Exempt).
//!
//! A cost computed from the request counts as at least 1: [`Charge::peek`](crate::Charge::peek)
//! lets a request pass and takes nothing.
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

use std::sync::Arc;

use crate::Charge;

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

/// What an extractor found in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Keyed {
    /// Whom to charge, and how much.
    Charge(Charge),
    /// This request is not limited.
    Exempt,
    /// There is no key: the responder answers, with 400 unless configured otherwise.
    Missing,
}

/// Lets a request pass without a limit. The absence of a key never does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exempt;

/// What a key closure may return: `&'static str`, `String`, `Arc<str>`, [`Charge`], [`Exempt`],
/// [`Keyed`], and an `Option` or `Result` of these, where `None` and `Err` mean that
/// there is no key.
///
/// Keys are owned. A closure that returns a borrowed part of its request fails to compile with a
/// lifetime error: end it with `.to_owned()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    note = "return a `&'static str`, `String`, `Arc<str>`, `Charge`, `Exempt` or `Keyed`, or an `Option` or `Result` of one",
    note = "a borrowed key must be owned: end the closure with `.to_owned()`"
)]
pub trait IntoCharge: sealed::Sealed {
    /// What was found.
    fn into_charge(self) -> Keyed;
}

mod sealed {
    pub trait Sealed {}
}

/// The types whose conversion to [`Keyed`] is one expression.
macro_rules! into_charge {
    ($($type:ty => |$value:pat_param| $keyed:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl IntoCharge for $type {
            fn into_charge(self) -> Keyed {
                let $value = self;
                $keyed
            }
        }
    )*};
}

into_charge! {
    &'static str => |key| Keyed::Charge(key.into());
    String => |key| Keyed::Charge(key.into());
    Arc<str> => |key| Keyed::Charge(key.into());
    Charge => |charge| Keyed::Charge(charge);
    Exempt => |_| Keyed::Exempt;
    Keyed => |keyed| keyed;
}

impl<C: IntoCharge> sealed::Sealed for Option<C> {}
impl<C: IntoCharge> IntoCharge for Option<C> {
    fn into_charge(self) -> Keyed {
        self.map_or(Keyed::Missing, C::into_charge)
    }
}

impl<C: IntoCharge, E> sealed::Sealed for Result<C, E> {}
impl<C: IntoCharge, E> IntoCharge for Result<C, E> {
    fn into_charge(self) -> Keyed {
        self.map_or(Keyed::Missing, C::into_charge)
    }
}
