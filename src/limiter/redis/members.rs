//! Two to eight limiters in one Redis as one limiter over a tuple of their algorithms.

use super::Redis;
use crate::algorithm::InLua;
use crate::limiter::named::{NamedAlgorithm, expect_valid_quota};
use crate::limiter::{Boxed, LimiterExt};

mod sealed {
    pub trait Sealed {}
}

/// The members of an [`AllAtOnce`](crate::AllAtOnce): a tuple of two to eight
/// [`Redis`](crate::Redis) limiters over one pool. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot decide in one call to Redis",
    label = "no tuple of two to eight `Redis` limiters",
    note = "`AllAtOnce` takes a tuple of two to eight `Redis` limiters, and a closure that returns as many charges",
    note = "for `Memory` and any other limiters take `AllInTurn::new([one.boxed(), other.boxed()], ..)`"
)]
pub trait Members<const N: usize>: sealed::Sealed {
    /// The tuple of their algorithms.
    type Algorithm: InLua;

    #[doc(hidden)]
    fn joined(self) -> Redis<Self::Algorithm>;

    #[doc(hidden)]
    fn boxed_members(&self) -> [Boxed; N];
}

macro_rules! members {
    ($count:literal: $($member:ident $index:tt),+) => {
        impl<$($member: InLua),+> sealed::Sealed for ($(Redis<$member>,)+) {}

        impl<$($member),+> Members<$count> for ($(Redis<$member>,)+)
        where
            $($member: InLua,)+
            ($($member,)+): InLua,
        {
            type Algorithm = ($($member,)+);

            fn joined(self) -> Redis<Self::Algorithm> {
                let first = &self.0.inner;
                let config = first.batcher.config();
                $(
                    let pool = &self.$index.inner.batcher.config().pool;
                    assert!(config.pool.is_same_as(pool), "limiters over one pool");
                )+
                let names = [$(self.$index.inner.named.name().clone()),+].to_vec();
                let algorithm = ($(self.$index.inner.named.algorithm().clone(),)+);
                let key_prefixes = [$(self.$index.inner.batcher.config().key_prefixes.clone()),+].concat();
                // Each member's algorithm follows its quota, and a tuple asks for no more.
                let named = expect_valid_quota(NamedAlgorithm::named(names, algorithm));
                let joined = Redis::under(named, key_prefixes, config.pool.clone());
                let buckets = [$(self.$index.inner.batcher.config().buckets.clone()),+].concat();
                joined.decision_timeout(first.decision_timeout).configure(|joined| {
                    joined.buckets = buckets;
                    joined.set_max_batch_size(config.max_batch_size);
                    joined.clock = config.clock.clone();
                    joined.max_in_flight = config.max_in_flight;
                    joined.queue_capacity = config.queue_capacity;
                })
            }

            fn boxed_members(&self) -> [Boxed; $count] {
                [$(self.$index.clone().boxed()),+]
            }
        }
    };
}

members!(2: A 0, B 1);
members!(3: A 0, B 1, C 2);
members!(4: A 0, B 1, C 2, D 3);
members!(5: A 0, B 1, C 2, D 3, E 4);
members!(6: A 0, B 1, C 2, D 3, E 4, F 5);
members!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
members!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
