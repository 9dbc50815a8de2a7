//! Pages that lead through the crate: recipes, failures, bounds, and the way from Redisson.

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/cookbook.md")]
pub mod cookbook {}

#[doc = include_str!("../docs/when-redis-fails.md")]
pub mod when_redis_fails {}

// In rustdoc this definition of the link holds, in the repository that of the page.
#[doc = "[cookbook]: crate::guide::cookbook"]
#[doc = ""]
#[doc = include_str!("../docs/what-the-bound-means.md")]
pub mod what_the_bound_means {}

#[cfg(feature = "redisson")]
#[doc = include_str!("../docs/redisson.md")]
pub mod from_redisson {}
