//! Key extractors, which find the key that a request is charged to.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::core::{Charge, Error, ErrorKind};

/// Finds in a request the key to charge, and the cost.
///
/// Every closure `Fn(&Req) -> C` is an extractor if `C` is [`IntoCharge`].
/// [`by_head`](crate::by_head) makes one that works with every body type.
///
/// If the closure returns `None` or `Err`, the request is refused, with 400 unless set otherwise.
/// Return [`Exempt`] to let a request pass without a limit. A cost of 0 counts as 1;
/// [`Charge::peek`] takes nothing.
///
/// An empty key is refused with 400. A key composed of parts is never empty, so check each part in
/// the closure: `head.header("x-user").filter(|user| !user.is_empty())?`.
///
/// ```
/// use tower_sluice::key::{IntoCharge, KeyExtractor, Keyed};
/// use tower_sluice::Exempt;
///
/// // One header; a request without it is refused.
/// let by_tenant = |request: &http::Request<()>| {
///     let tenant = request.headers().get("x-tenant")?;
///     tenant.to_str().ok().map(str::to_owned)
/// };
/// assert!(matches!(by_tenant.extract(&http::Request::new(())), Keyed::Missing(_)));
///
/// // Health checks pass without a limit; everything else shares one key.
/// let but_health = |request: &http::Request<()>| match request.uri().path() {
///     "/health" => Exempt.into_charge(),
///     _ => "everyone".into_charge(),
/// };
/// assert!(matches!(but_health.extract(&http::Request::new(())), Keyed::Charge(_)));
/// ```
///
/// A closure cannot await. The [guide] looks a key up in a database, by a middleware outside of the
/// layer.
///
/// [guide]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/keys_and_client_addresses/
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no key in a `{Req}`",
    note = "a closure over the head needs `by_head(|head| ..)`",
    note = "a closure over the whole request states its type, such as `|request: &http::Request<Body>| ..`, and returns a key: a `String`, a `Charge`, or another `IntoCharge`",
    note = "`Global` is one key for all requests"
)]
pub trait KeyExtractor<Req> {
    /// Returns the charge of `request`, an exemption, or the lack of a key.
    fn extract(&self, request: &Req) -> Keyed;
}

#[diagnostic::do_not_recommend]
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
/// resets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl<Req> KeyExtractor<Req> for Global {
    fn extract(&self, _request: &Req) -> Keyed {
        Keyed::Charge(Charge::from_static("global"))
    }
}

/// The result of a key extractor: a charge, an exemption, or the lack of a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Keyed {
    /// The key to charge, and the cost.
    Charge(Charge),
    /// This request is not limited.
    Exempt,
    /// The reason why there is no key. The responder answers, with 400 unless configured otherwise.
    ///
    /// An error of kind [`Request`](ErrorKind::Request) tells the caller what its request lacks.
    /// One of another kind is for the operator, and its caller gets 400.
    Missing(Error),
    /// The reason why the key is unknown, although the request has one. It is
    /// [undecided](crate::Refusal::Undecided): 400, whatever is set for a request without a key,
    /// since authentication would not help.
    Invalid(Error),
}

impl Keyed {
    /// The lack of a key, without a known reason.
    fn missing() -> Self {
        Keyed::Missing(Error::new(ErrorKind::Request, "request has no key to limit by"))
    }

    /// Lets a request without a key pass. Otherwise it is refused.
    ///
    /// As one of several keys, it means that this part is absent: its limiter is not asked.
    ///
    /// A request whose key cannot be read passes too, for example if it has two lines of the
    /// header. If callers could use that to avoid the limit, exempt only requests for which
    /// `head.headers().contains_key("x-user")` is false.
    ///
    /// The IP address always counts, and the user where there is one:
    /// `by_head(|head| (head.header("x-user").into_charge().or_exempt(), "192.0.2.1"))`.
    #[must_use]
    pub fn or_exempt(self) -> Self {
        match self {
            Keyed::Missing(_) => Keyed::Exempt,
            found => found,
        }
    }

    /// Joins these parts in one charge. If one part is missing, there is no key. An exempt part is
    /// absent.
    fn several<const N: usize>(parts: [Keyed; N]) -> Self {
        if N == 0 {
            return Keyed::missing();
        }
        let is_refused = |part: &&Keyed| matches!(part, Keyed::Missing(_) | Keyed::Invalid(_));
        if let Some(refused) = parts.iter().find(is_refused) {
            return refused.clone();
        }
        if parts.iter().all(|part| matches!(part, Keyed::Exempt)) {
            return Keyed::Exempt;
        }
        Keyed::Charge(Charge::several(parts.map(|part| match part {
            Keyed::Charge(charge) => Some(charge),
            Keyed::Exempt | Keyed::Missing(_) | Keyed::Invalid(_) => None,
        })))
    }
}

/// Lets a request pass without a limit. A missing key never does so.
///
/// As one of several keys, it means that this part is absent: its limiter is not asked. A request
/// passes if all of its parts are exempt.
#[doc(alias("skip", "allowlist"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Exempt;

/// The types that a key closure may return: `&'static str`, `String`, `Arc<str>`, `Box<str>`,
/// `Cow<'static, str>`, [`IpAddr`], [`Charge`], [`Exempt`], [`Keyed`], a type of your own, and an
/// `Option` or `Result` of these, where `None` and `Err` mean that there is no key.
///
/// Several keys of one request are a tuple of two to eight of them, or an array: see
/// [`Charge::several`]. If one of them is missing, the request has no key; one that is [`Exempt`]
/// is left out.
///
/// ```
/// use tower_sluice::key::{IntoCharge, Keyed};
/// use tower_sluice::testing::Scripted;
/// use tower_sluice::{Charge, RateLimitLayer, by_head};
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
/// lifetime error: end it with `.to_owned()`, or `.map(str::to_owned)`. If the arms of a `match`
/// return different types, end each with `.into_charge()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    note = "return a `&'static str`, `String`, `Arc<str>`, `Charge`, `Exempt` or `Keyed`, or an `Option` or `Result` of one",
    note = "several keys of one request are a tuple or an array of these",
    note = "implement `IntoCharge` for a type of your own",
    note = "a borrowed key must be owned: end the closure with `.to_owned()`, or with `.map(str::to_owned)` where it is an `Option`",
    note = "arms of a `match` that return different types end with `.into_charge()`"
)]
pub trait IntoCharge {
    /// Converts the value to a charge, an exemption, or the lack of a key.
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
        self.map_or_else(Keyed::missing, C::into_charge)
    }
}

impl<C: IntoCharge, E> IntoCharge for Result<C, E> {
    fn into_charge(self) -> Keyed {
        self.ok().into_charge()
    }
}

impl<C: IntoCharge, const N: usize> IntoCharge for [C; N] {
    fn into_charge(self) -> Keyed {
        Keyed::several(self.map(C::into_charge))
    }
}

macro_rules! into_charge_of_parts {
    ($size:literal: $($part:ident $index:tt),+) => {
        impl<$($part: IntoCharge),+> IntoCharge for ($($part,)+) {
            fn into_charge(self) -> Keyed {
                Keyed::several([$(self.$index.into_charge()),+])
            }
        }
    };
}

for_each_tuple!(into_charge_of_parts);
