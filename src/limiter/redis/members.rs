//! Several limiters in one Redis as one limiter over a list of their algorithms.

use std::sync::Arc;

use super::Redis;
use crate::algorithm::{AnyAlgorithm, InLua};
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
    /// The members as limiters of one type.
    #[doc(hidden)]
    fn members(&self) -> [Redis<AnyAlgorithm>; N];

    /// The members themselves.
    #[doc(hidden)]
    fn boxed_members(&self) -> [Boxed; N];
}

/// The members at some places as one limiter, of an algorithm that `named` makes of theirs. Each
/// keeps its own keys. The time for a decision, the clock and the settings of batches are those of
/// the first of all members, and its queue's bound holds for all of them together.
pub(super) fn join<A: InLua, B: InLua>(
    all: &[&Redis<A>],
    places: &[usize],
    named: NamedAlgorithm<B>,
) -> Redis<B> {
    let first = &all[0].inner;
    let config = first.batcher.config();
    let configs = || places.iter().map(|place| all[*place].inner.batcher.config());
    let key_prefixes = configs().flat_map(|one| one.key_prefixes.clone()).collect();
    let named = named.asking_several(places.iter().map(|place| &all[*place].inner.named));
    let joined = Redis::under(named, key_prefixes, config.pool.clone());
    joined.decision_timeout(first.decision_timeout).configure(|joined| {
        joined.buckets = configs().flat_map(|one| one.buckets.clone()).collect();
        joined.set_max_batch_size(config.max_batch_size);
        joined.clock = config.clock.clone();
        joined.max_in_flight = config.max_in_flight;
        joined.queue_permits = Arc::clone(&config.queue_permits);
    })
}

impl<A: InLua + Into<AnyAlgorithm>> Redis<A> {
    /// The same limiter, of an algorithm that is known at run time.
    fn of_any_algorithm(&self) -> Redis<AnyAlgorithm> {
        let name = self.inner.named.name().clone();
        let algorithm = self.inner.named.algorithm().clone().into();
        // The algorithm follows its quota already.
        let named = NamedAlgorithm::new(name.clone(), algorithm);
        join(&[self], &[0], expect_valid_quota(&name, named))
    }
}

macro_rules! members {
    ($count:literal: $($member:ident $index:tt),+) => {
        impl<$($member: InLua),+> sealed::Sealed for ($(Redis<$member>,)+) {}

        impl<$($member: InLua + Into<AnyAlgorithm>),+> Members<$count> for ($(Redis<$member>,)+) {
            fn members(&self) -> [Redis<AnyAlgorithm>; $count] {
                [$(self.$index.of_any_algorithm()),+]
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
