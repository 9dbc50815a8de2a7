//! The header fields that show a caller its limits, and the responses that have them.

use std::fmt;
use std::str::FromStr;

use crate::core::{Error, ErrorKind};

/// The names and the form of the header fields that show a caller its limits. Default:
/// [`Draft11`](HeaderStyle::Draft11).
///
/// | style | a limit of 100 in 60 s, 42 left, complete in 13 s |
/// |---|---|
/// | `Draft11` | `RateLimit-Policy: "api";q=100;w=60`, `RateLimit: "api";r=42;t=13` |
/// | `Draft07` | `RateLimit-Policy: 100;w=60`, `RateLimit: limit=100, remaining=42, reset=13` |
/// | `Draft06` | `RateLimit-Policy: 100;w=60`, |
/// | | `RateLimit-Limit: 100`, `RateLimit-Remaining: 42`, `RateLimit-Reset: 13` |
/// | `Legacy` | `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 42`, `X-RateLimit-Reset: 13` |
/// | `LegacyEpoch` | the same with `X-RateLimit-Reset: 1767225613` |
///
/// Its text forms are `draft-11`, `draft-07`, `draft-06`, `legacy`, `legacy-epoch` and `none`, for
/// `parse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `draft-ietf-httpapi-ratelimit-headers`-11: structured fields with the names of the policies.
    #[default]
    Draft11,
    /// The same document's version 07: a dictionary.
    Draft07,
    /// The same document's version 06: a field for each number.
    Draft06,
    /// The older fields of many services, with the seconds until the reset.
    Legacy,
    /// The same fields, with the reset in seconds of the Unix epoch, by the clock of the decision.
    LegacyEpoch,
    /// No fields.
    None,
}

const NAMES: [(&str, HeaderStyle); 6] = [
    ("draft-11", HeaderStyle::Draft11),
    ("draft-07", HeaderStyle::Draft07),
    ("draft-06", HeaderStyle::Draft06),
    ("legacy", HeaderStyle::Legacy),
    ("legacy-epoch", HeaderStyle::LegacyEpoch),
    ("none", HeaderStyle::None),
];

/// The admitted requests whose responses have the fields. Default: [`Never`](OnAdmitted::Never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnAdmitted {
    /// No admitted request: only refusals have the fields.
    #[default]
    Never,
    /// The requests after which less than this percentage of the quota is left.
    LeftBelowPercent(u8),
    /// All admitted requests.
    Always,
}

/// The settings of the header fields that show a caller its limits: see
/// [`HttpResponder::headers`](crate::HttpResponder::headers).
///
/// Refusals have the fields, by default in the style `draft-11`. Responses to admitted requests
/// have them if [`on_admitted`](RateLimitHeaders::on_admitted) says so.
///
/// # The fields
///
/// | | |
/// |---|---|
/// | name | that of the [policy](crate::limiter::PolicyReport::name) |
/// | `q`, limit | the most units at once: the limit, or the store of a bucket or a smooth limiter |
/// | `w` | the [window](crate::limiter::PolicyReport::window), if it has whole seconds |
/// | `r`, remaining | the units left under this policy |
/// | `t`, reset | admitted: the seconds until the whole quota is available, rounded up |
/// | | refused: the same as `Retry-After` |
/// | `qu`, `pk` | the unit and the partition key of a [described] limiter |
///
/// In a name, every character except letters, digits and `_.:-` becomes `-`. `t` is absent if
/// nothing is taken.
///
/// [described]: crate::LimiterExt::describe
///
/// With several policies, `RateLimit-Policy` lists all. The other fields are about the
/// [tightest](crate::Decision::tightest) policy.
///
/// A policy in a [shadow](crate::limiter::Shadow) is not listed. Responses without a decision have
/// no fields: 400, 503, [`FailOpen`](crate::FailOpen), a [`Switch`](crate::limiter::Switch) that is
/// off. A refused gRPC request gets `RetryInfo` and pushback instead. Your own limiter names its
/// policies with [`Decision::with_policies`](crate::Decision::with_policies).
///
/// Lists are appended to those of the inner service. If the inner service has set one of the other
/// fields, it stays, and no other field is added. With two layers of this crate, these fields show
/// the tighter policy. The page [what callers see][page] has the rules of CORS.
///
/// [page]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/what_callers_see/
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RateLimitHeaders {
    pub(super) style: HeaderStyle,
    pub(super) on_admitted: OnAdmitted,
    pub(super) caps_rate: bool,
    pub(super) skips_redirects: bool,
}

impl RateLimitHeaders {
    /// Sets fields of this style, on refusals.
    pub const fn new(style: HeaderStyle) -> Self {
        let on_admitted = OnAdmitted::Never;
        Self { style, on_admitted, caps_rate: false, skips_redirects: false }
    }

    /// Sets when the response to an admitted request has the fields. Default:
    /// [`OnAdmitted::Never`].
    pub const fn on_admitted(mut self, when: OnAdmitted) -> Self {
        self.on_admitted = when;
        self
    }

    /// Raises the reset of an admitted request, so that `r / t` is at most `q / w`. A client that
    /// spreads its remaining units over the reset then keeps to the rate of the policy. Default:
    /// the reset is when the whole quota is available.
    pub const fn cap_rate(mut self) -> Self {
        self.caps_rate = true;
        self
    }

    /// Leaves the fields out of redirects (3xx) of the inner service. Default: redirects have them.
    pub const fn skip_redirects(mut self) -> Self {
        self.skips_redirects = true;
        self
    }
}

impl From<HeaderStyle> for RateLimitHeaders {
    fn from(style: HeaderStyle) -> Self {
        Self::new(style)
    }
}

impl FromStr for HeaderStyle {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, style)| *style).ok_or_else(|| {
            let known = NAMES.map(|(known, _)| known).join(", ");
            Error::new(ErrorKind::Configuration, format!("a header style must be one of {known}"))
        })
    }
}

impl fmt::Display for HeaderStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, style)| style == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests;
