//! For engines of your own: several limits of one store decide about a request, chosen when the
//! request comes.
//!
//! [`AllAtOnce`](crate::redis::AllAtOnce) and [`AllInTurn`](crate::limiter::AllInTurn) have a
//! fixed list of limiters. A table of limits has not: each request needs other rows of it. Then
//! build a limiter on this module, as the crate `tower-sluice-policies` does.
//!
//! 1. Make a [`Part`] for each limit of the request: its limiter, and the charge under it.
//! 2. [`decide`] asks all parts by your [`Rules`], all or nothing. The rules say which parts decide
//!    [`Together`], in one call, and which answer stands in for a store that fails.
//! 3. [`Decided`] has the decision of each part, and becomes one decision.
//! 4. [`settle`] settles the reservation of that decision, and [`renew`] renews what it holds.
//!
//! An engine of two limits for each user, in this process:
//!
//! ```
//! use tower_sluice::algorithm::{AnyAlgorithm, FixedWindow, TokenBucket};
//! use tower_sluice::future::{BoxedFuture, Settlement};
//! use tower_sluice::limiter::{Owner, Reservation};
//! use tower_sluice::store::{Part, Rules, Together, decide, settle};
//! use tower_sluice::{Charge, Limiter, LimiterExt, Memory, Quota};
//!
//! #[derive(Clone)]
//! struct PerUser {
//!     limits: Vec<Memory<AnyAlgorithm>>,
//!     together: Together,
//!     owner: Owner,
//! }
//!
//! impl Rules for PerUser {
//!     fn together(&self, parts: &[Part]) -> Option<Together> {
//!         (parts.len() == self.limits.len()).then(|| self.together.clone())
//!     }
//! }
//!
//! impl Limiter for PerUser {
//!     type Future = BoxedFuture;
//!
//!     fn check(&self, charge: &Charge) -> BoxedFuture {
//!         let (this, cost) = (self.clone(), charge.units());
//!         let limits = self.limits.iter().enumerate();
//!         let part = |(place, limit): (usize, &Memory<_>)| {
//!             Part::new(place, limit.clone().boxed(), charge.clone())
//!         };
//!         let parts = limits.map(part).collect();
//!         Box::pin(async move { decide(parts, &this).await?.into_decision(this.owner, cost) })
//!     }
//!
//!     fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
//!         settle(self.owner, reservation, |_, _| actual)
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! let second: AnyAlgorithm = TokenBucket::new(Quota::per_second(5)).into();
//! let day: AnyAlgorithm = FixedWindow::new(Quota::per_day(7)).into();
//! let second = Memory::new("second", second);
//! let day = Memory::new("day", day).clock_of(&second);
//! let together = Together::of_memory(&[&second, &day]).expect("two limiters");
//! let api = PerUser { limits: vec![second, day], together, owner: Owner::new() };
//!
//! let decision = api.check(&Charge::new("alice").cost(5)).await?;
//! let left: Vec<_> = decision.policies().map(|one| one.remaining()).collect();
//! assert_eq!(left, [Some(0), Some(2)]);
//! let refused = api.check(&Charge::new("alice")).await?;
//! assert_eq!(refused.limiter(), Some("second"));
//! // The request used 1 of its 5 units.
//! api.settle(decision.into_reservation().expect("it took units"), 1).expect("its own").await?;
//! assert!(api.check(&Charge::new("alice").cost(4)).await?.is_admitted());
//! # Ok::<(), tower_sluice::Error>(()) }).unwrap();
//! ```
//!
//! Over Redis, make the limiters with [`Redis::try_new`](crate::Redis::try_new), and [`Together`]
//! with [`Together::of_redis`]. [`Charge::with_extension`](crate::Charge::with_extension) takes the
//! limits of a request to its limiter. [`Memory::with_algorithm`] keeps the taken units when a
//! table changes.
//!
//! [`Memory::with_algorithm`]: crate::Memory::with_algorithm

pub use crate::limiter::combination::at_once::Together;
pub use crate::limiter::combination::decided::{Decided, Part, renew, settle};
pub use crate::limiter::combination::in_turn::{Rules, decide};
