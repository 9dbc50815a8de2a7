//! Whom a request is charged to.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::Charge;

/// Finds in a request the key to charge, and the cost.
///
/// Every closure `Fn(&Req) -> C` is one, if `C` is [`IntoCharge`]. [`by_head`](crate::by_head)
/// makes one from a closure over the head of a request, which serves every body type.
///
/// No key is not a free pass: a request for which the closure returns `None` or `Err` is refused,
/// with 400 unless set otherwise. Return [`Exempt`] to let a request pass without a limit. A cost
/// of 0 counts as 1; [`Charge::peek`] takes nothing.
///
/// An empty key is refused with 400. A key composed of parts is never empty, so check each part in
/// the closure: `head.header("x-user").filter(|user| !user.is_empty())?`.
///
/// ```
/// use tower_sluice::{Exempt, IntoCharge, KeyExtractor, Keyed};
///
/// // One header; a request without it is refused.
/// let by_tenant = |request: &http::Request<()>| {
///     let tenant = request.headers().get("x-tenant")?;
///     tenant.to_str().ok().map(str::to_owned)
/// };
/// assert!(matches!(by_tenant.extract(&http::Request::new(())), Keyed::Missing));
///
/// // Health checks pass without a limit; everything else shares one key.
/// let but_health = |request: &http::Request<()>| match request.uri().path() {
///     "/health" => Exempt.into_charge(),
///     _ => "everyone".into_charge(),
/// };
/// assert!(matches!(but_health.extract(&http::Request::new(())), Keyed::Charge(_)));
/// ```
///
/// A closure cannot wait, so it finds no key in a database. Look the key up in a middleware outside
/// of the layer, put it into the request's extensions, and read it from there: the
/// [cookbook](crate::guide::cookbook) has an example.
pub trait KeyExtractor<Req> {
    /// Returns what `request` is charged to.
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

/// Charges every request to one key, `"global"`: a limit for the whole service.
///
/// A worker shares that limit with `limiter.acquire("global")`, and `limiter.reset("global")`
/// starts it anew. Two global limits differ by the names of their limiters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl<Req> KeyExtractor<Req> for Global {
    fn extract(&self, _request: &Req) -> Keyed {
        Keyed::Charge(Charge::from_static("global"))
    }
}

/// What an extractor found in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Keyed {
    /// The key to charge, and the cost.
    Charge(Charge),
    /// This request is not limited.
    Exempt,
    /// There is no key: the responder answers, with 400 unless configured otherwise.
    Missing,
}

/// Lets a request pass without a limit. The absence of a key never does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exempt;

/// What a key closure may return: `&'static str`, `String`, `Arc<str>`, `Box<str>`,
/// `Cow<'static, str>`, [`IpAddr`], [`Charge`], [`Exempt`], [`Keyed`], a type of your own, and an
/// `Option` or `Result` of these, where `None` and `Err` mean that there is no key.
///
/// ```
/// use tower_sluice::{Charge, IntoCharge, Keyed, RateLimitLayer, by_head, testing::Scripted};
///
/// #[derive(Clone, Copy)]
/// struct TenantId(u64);
///
/// impl IntoCharge for TenantId {
///     fn into_charge(self) -> Keyed {
///         Keyed::Charge(Charge::new(self.0.to_string()))
///     }
/// }
///
/// // A middleware has put the tenant into the request.
/// let tenant = by_head(|head| head.extensions().get::<TenantId>().copied());
/// let layer = RateLimitLayer::new(Scripted::new(), tenant);
/// # let _ = layer;
/// ```
///
/// Keys are owned. A closure that returns a borrowed part of its request fails to compile with a
/// lifetime error: end it with `.to_owned()`. Arms of a `match` that return different types end
/// with `.into_charge()`, which makes a [`Keyed`] of each; else they fail to compile with "`match`
/// arms have incompatible types".
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    note = "return a `&'static str`, `String`, `Arc<str>`, `Charge`, `Exempt` or `Keyed`, or an `Option` or `Result` of one",
    note = "implement `IntoCharge` for a type of your own",
    note = "a borrowed key must be owned: end the closure with `.to_owned()`",
    note = "arms of a `match` that return different types end with `.into_charge()`"
)]
pub trait IntoCharge {
    /// Converts it.
    fn into_charge(self) -> Keyed;
}

/// The types whose conversion to [`Keyed`] is one expression.
macro_rules! into_charge {
    ($($type:ty => |$value:pat_param| $keyed:expr;)*) => {$(
        impl IntoCharge for $type {
            fn into_charge(self) -> Keyed {
                let $value = self;
                $keyed
            }
        }
    )*};
}

into_charge! {
    &'static str => |key| Keyed::Charge(Charge::from_static(key));
    String => |key| Keyed::Charge(key.into());
    Arc<str> => |key| Keyed::Charge(key.into());
    Box<str> => |key| Keyed::Charge(String::from(key).into());
    Cow<'static, str> => |key| match key {
        Cow::Borrowed(key) => Keyed::Charge(Charge::from_static(key)),
        Cow::Owned(key) => Keyed::Charge(key.into()),
    };
    IpAddr => |address| Keyed::Charge(address.to_string().into());
    Charge => |charge| Keyed::Charge(charge);
    Exempt => |_| Keyed::Exempt;
    Keyed => |keyed| keyed;
}

impl<C: IntoCharge> IntoCharge for Option<C> {
    fn into_charge(self) -> Keyed {
        self.map_or(Keyed::Missing, C::into_charge)
    }
}

impl<C: IntoCharge, E> IntoCharge for Result<C, E> {
    fn into_charge(self) -> Keyed {
        self.map_or(Keyed::Missing, C::into_charge)
    }
}
