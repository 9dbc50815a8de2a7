//! Limiters: the trait, its wrappers, and the limiters of this crate.
//!
//! A [`Limiter`] decides about a [`Charge`]. [`Redis`] decides on a server that many processes
//! share, [`Memory`] in this process. [`LimiterExt`] adds wrappers. [Tuning] has their order.
//! Several limiters decide together by [`AllAtOnce`], in one call to Redis, or [`AllInTurn`], which
//! takes limiters of any type.
//!
//! [`AllAtOnce`]: crate::redis::AllAtOnce
//! [`Charge`]: crate::Charge
//! [`Redis`]: crate::redis::Redis
//! [Tuning]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/tuning/

#[macro_use]
mod pass_on;

pub(crate) mod acquire;
pub(crate) mod all_in_turn;
mod ban_after;
mod boxed;
mod breaker;
pub(crate) mod charge_numbers;
pub(crate) mod combination;
pub(crate) mod configured;
mod deny_cache;
mod describe;
mod ext;
pub(crate) mod hold;
mod inspect;
mod lease;
#[expect(clippy::module_inception, reason = "the trait, alone")]
mod limiter;
pub(crate) mod line;
pub(crate) mod memory;
#[cfg(feature = "metrics")]
mod metered;
pub(crate) mod on_time;
pub(crate) mod operate;
mod or_else;
pub(crate) mod queues;
pub(crate) mod runtime;
mod shadow;
pub(crate) mod shards;
mod switch;
pub(crate) mod timeout;
#[cfg(feature = "tracing")]
mod traced;
mod wrapped;

pub(crate) use acquire::{Admission, DEFAULT_MAX_WAITERS};
pub use all_in_turn::AllInTurn;
pub use ban_after::BanAfter;
pub use boxed::Boxed;
pub use breaker::{Breaker, BreakerCounts, BreakerState, WithBreaker};
pub use combination::{MemberCharges, Parts};
pub use deny_cache::DenyCache;
pub use describe::{Described, Description};
pub use ext::LimiterExt;
pub use hold::Hold;
pub use inspect::Inspect;
pub use lease::Lease;
pub use limiter::Limiter;
pub use memory::Memory;
#[cfg(feature = "metrics")]
pub use metered::{Metered, MetricsExt};
pub use operate::Operation;
pub use or_else::{FailOpen, Fallback, OrElse};
pub use shadow::{Shadow, ShadowCounts};
pub use switch::{Switch, SwitchMode, WithSwitch};
pub use timeout::Timeout;
#[cfg(feature = "tracing")]
pub use traced::{TraceExt, Traced};
pub use wrapped::Wrapped;

/// The types that some wrappers add to their limiter, for code that writes out a [`Wrapped`]. The
/// others are [`Breaker`], [`Description`] and [`Switch`].
pub mod around {
    pub use super::deny_cache::Cache;
    pub use super::inspect::Closure;
    #[cfg(feature = "metrics")]
    pub use super::metered::Counts;
    #[cfg(feature = "tracing")]
    pub use super::traced::Events;
}

/// The limiters' futures, which are public in [`crate::future`].
pub(crate) mod futures {
    pub use super::acquire::AcquireFuture;
    pub use super::ban_after::BanAfterFuture;
    pub use super::boxed::BoxedFuture;
    pub use super::lease::LeaseFuture;
    pub use super::memory::MemoryFuture;
    pub use super::operate::OperationFuture;
    pub use super::or_else::OrElseFuture;
    pub use super::timeout::TimeoutFuture;
    pub use super::wrapped::WrappedFuture;
}

pub use crate::core::decision::{Done, Origin, PolicyReport, QuotaUnit};
pub use crate::core::reservation::{Owner, Reservation};
