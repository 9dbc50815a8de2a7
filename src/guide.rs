//! Pages that lead through the crate: recipes, failures, what an operator sees, security, tests,
//! bounds, capacity, and the way from Redisson.

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/cookbook.md")]
pub mod cookbook {}

#[cfg_attr(feature = "metrics", doc = "[operator]: crate::guide::what_an_operator_sees")]
#[doc = ""]
#[doc = include_str!("../docs/when-redis-fails.md")]
pub mod when_redis_fails {}

#[cfg(feature = "metrics")]
#[doc = "[failures]: crate::guide::when_redis_fails"]
#[doc = ""]
#[doc = include_str!("../docs/what-an-operator-sees.md")]
pub mod what_an_operator_sees {}

// Of two definitions of a link the first counts: in rustdoc these, in the repository the page's.
#[cfg(feature = "redis")]
#[doc = "[assembled]: https://docs.rs/crate/tower-sluice/latest/source/scripts/assembled/"]
#[doc = "[scripts]: https://docs.rs/crate/tower-sluice/latest/source/scripts/README.md"]
#[doc = "[bound]: crate::guide::what_the_bound_means"]
#[doc = "[failures]: crate::guide::when_redis_fails"]
#[doc = "[capacity]: crate::guide::capacity"]
#[doc = ""]
#[doc = include_str!("../SECURITY.md")]
pub mod security {}

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/how-it-is-tested.md")]
pub mod how_it_is_tested {}

#[doc = "[cookbook]: crate::guide::cookbook"]
#[doc = ""]
#[doc = include_str!("../docs/what-the-bound-means.md")]
pub mod what_the_bound_means {}

// In rustdoc, the address of the picture holds the whole picture.
#[cfg(feature = "redis")]
#[doc = include_str!("../docs/growth.url")]
#[doc = ""]
#[doc = include_str!("../docs/capacity.md")]
pub mod capacity {}

#[cfg(feature = "redisson")]
#[doc = include_str!("../docs/redisson.md")]
pub mod from_redisson {}
