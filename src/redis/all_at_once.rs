//! Limiters over different keys in one call: a limit per user *and* one for all users.

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use super::one_call::{OneCall, join};
use super::redis_limiter::Redis;
use crate::algorithm::{AnyAlgorithm, InLua};
use crate::core::Charge;
use crate::core::reservation::Reservation;
use crate::core::settlement::Settlement;
use crate::limiter::all_in_turn::{AllInTurn, whole_cost};
use crate::limiter::combination::at_once::{AtOnce, Together};
use crate::limiter::combination::decided::Part;
use crate::limiter::combination::held_reservations::{By, Charges, Tentative};
use crate::limiter::combination::in_turn::Rules;
use crate::limiter::configured::{ConfiguredAlgorithm, expect_valid_quota};
use crate::limiter::futures::BoxedFuture;
use crate::limiter::timeout::connected;
use crate::limiter::{Boxed, Limiter, LimiterExt, MemberCharges, Operation, Parts};

/// Limiters in one Redis over different keys, in one call, all or nothing: a limit per user *and*
/// one for all users.
///
/// ```no_run
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::redis::AllAtOnce;
/// use tower_sluice::{Charge, Pool, Quota, Redis};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::connect("redis://127.0.0.1:6379")?;
/// let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
/// let everybody = Redis::new("everybody", FixedWindow::new(Quota::per_hour(100_000)), pool);
/// let api = AllAtOnce::new((user, everybody), |charge| [charge.clone(), Charge::new("all")]);
/// # Ok(()) }
/// ```
///
/// Each member keeps its own keys. The closure returns each member's key, and its quota if it has
/// its own. [`of_parts`](AllAtOnce::of_parts) takes both from a charge of several keys. The
/// decision names the limiter and the quota that refuses or delays.
///
/// A member's charge without a cost has the cost of the whole charge. A peek takes nothing from any
/// member. The members are asked in turn, like in [`AllInTurn`], which reserves no waits: in a
/// cluster if the hash slots differ, behind a proxy with several servers, if some members take
/// nothing while others take units, and if the costs differ and one script is too small for the
/// members, such as eight token buckets.
///
/// A quota belongs to one member. If the whole charge states a quota that no member gets, the error
/// is of kind [`Configuration`](crate::ErrorKind::Configuration).
pub struct AllAtOnce<const N: usize, F> {
    sets: Arc<Sets<N>>,
    in_turn: AllInTurn<N, F>,
}

struct Sets<const N: usize> {
    members: [Redis<AnyAlgorithm>; N],
    /// The calls. The index has a bit for each member that is asked. Each call is made when a
    /// charge first needs it, and kept.
    one_calls: Box<[OnceLock<Arc<OneCall>>]>,
}

impl<const N: usize> Sets<N> {
    /// # Panics
    ///
    /// If the members do not share one pool.
    #[track_caller]
    fn new(members: [Redis<AnyAlgorithm>; N]) -> Self {
        let first = &members[0].inner;
        for one in members.iter().map(|one| &one.inner) {
            assert!(
                first.batcher.config().pool.is_same_as(&one.batcher.config().pool),
                "the limiters must share one pool: `{}` has another pool than `{}`",
                one.named.name(),
                first.named.name(),
            );
        }
        let this = Self { members, one_calls: (0..1 << N).map(|_| OnceLock::new()).collect() };
        this.of(&(0..N).collect::<Vec<_>>()).alike();
        this
    }

    fn of(&self, places: &[usize]) -> &Arc<OneCall> {
        let bits: usize = places.iter().map(|place| 1 << place).sum();
        self.one_calls[bits].get_or_init(|| OneCall::of_members(&self.members, places).into())
    }
}

/// The rules for members without a common call: they are asked in turn, several at a time if one
/// call can decide about them.
impl<const N: usize> Rules for Arc<Sets<N>> {
    fn together(&self, parts: &[Part]) -> Option<Together> {
        let places: Vec<usize> = parts.iter().map(|part| part.place).collect();
        Some(Together(Arc::clone(self.of(&places)) as _))
    }
}

impl<const N: usize, F> AllAtOnce<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// A limiter over these members. The closure returns the key of each.
    ///
    /// The decision timeout, the clock and the settings of batches are those of the first member.
    /// Its [`queue_capacity`](Redis::queue_capacity) bounds all charges that wait. The order has no
    /// other effect, unless members are asked in turn: see [`AllInTurn`].
    ///
    /// # Panics
    ///
    /// If they do not share one [`Pool`](crate::Pool).
    #[must_use]
    #[track_caller]
    pub fn new<T: Members<N>>(members: T, keys: F) -> Self {
        Self::asking(members, keys)
    }
}

impl<const N: usize> AllAtOnce<N, Parts> {
    /// A limiter over these members. Each member decides about its part of a charge of
    /// [`several`](Charge::several) keys.
    ///
    /// A charge with more or fewer parts is an error of kind
    /// [`Configuration`](crate::ErrorKind::Configuration). A member whose part is absent is not
    /// asked. All others are asked in one call.
    ///
    /// # Panics
    ///
    /// If they do not share one [`Pool`](crate::Pool).
    #[must_use]
    #[track_caller]
    pub fn of_parts<T: Members<N>>(members: T) -> Self {
        Self::asking(members, Parts)
    }
}

impl<const N: usize, F: MemberCharges<N>> AllAtOnce<N, F> {
    #[track_caller]
    fn asking<T: Members<N>>(members: T, keys: F) -> Self {
        let in_turn = AllInTurn::asking(members.boxed_members(), keys);
        Self { sets: Arc::new(Sets::new(members.members())), in_turn }
    }

    /// Asks in one call. If that is not possible, the members are asked `in_turn`. Before the first
    /// connection, that shows which of the two is right.
    fn ask(
        &self,
        operation: Option<Operation>,
        charge: &Charge,
        in_turn: impl FnOnce([Option<Charge>; N]) -> BoxedFuture,
    ) -> BoxedFuture {
        let charges = match self.in_turn.member_charges(charge) {
            Ok(charges) => charges,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let first = &self.sets.members[0];
        // Before the members are put together: a connection may be made meanwhile.
        let knows_servers = first.knows_servers();
        let at_once = self.ask_at_once(operation, charge, &charges);
        let at_once = match at_once {
            Some(at_once) if knows_servers => return at_once,
            Some(at_once) => at_once,
            None => return in_turn(self.with_deadline(charge, charges)),
        };
        let (first, deadline) = (first.clone(), first.deadline(charge));
        let in_turn = in_turn(self.with_deadline(charge, charges));
        Box::pin(async move {
            let connecting = first.clone().connected(deadline);
            let error_of = connected(connecting, Some(deadline)).await?;
            let answer = if first.keys_apart() { in_turn.await } else { at_once.await };
            answer.map_err(error_of)
        })
    }

    fn ask_at_once(
        &self,
        operation: Option<Operation>,
        charge: &Charge,
        charges: &[Option<Charge>; N],
    ) -> Option<BoxedFuture> {
        let (places, present): (Vec<usize>, Vec<&Charge>) = charges
            .iter()
            .enumerate()
            .filter_map(|(place, one)| Some((place, one.as_ref()?)))
            .unzip();
        if present.len() < 2 {
            return None;
        }
        let one_call = self.sets.of(&places);
        let decision = one_call.ask(operation, &present).ok()?;
        let cost = whole_cost(charge, charges);
        let charges = Charges::new(places.iter().copied().zip(present));
        let by = By::AtOnce(Together(Arc::clone(one_call) as Arc<dyn AtOnce>));
        let owner = self.in_turn.owner();
        Some(Box::pin(async move {
            let mut decision = decision.await?;
            let taken = Tentative::new(by, charges, decision.take_reservation()).keep();
            Ok(match taken.into_reservation(owner, cost) {
                Some(reservation) => decision.with_reservation(reservation),
                None => decision,
            })
        }))
    }

    fn with_deadline(&self, charge: &Charge, charges: [Option<Charge>; N]) -> [Option<Charge>; N] {
        let deadline = self.sets.members[0].deadline(charge).into_std();
        charges.map(|one| one.map(|one| one.with_deadline(deadline)))
    }
}

impl<const N: usize, F: MemberCharges<N>> Limiter for AllAtOnce<N, F> {
    type Future = BoxedFuture;

    fn keys(&self) -> Option<usize> {
        F::KEYS
    }

    fn check(&self, charge: &Charge) -> BoxedFuture {
        self.ask(None, charge, |charges| {
            let cost = whole_cost(charge, &charges);
            self.in_turn.ask(charges, cost, Arc::clone(&self.sets))
        })
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        self.in_turn.settle(reservation, actual)
    }

    pass_on!(self.in_turn, of self: renew);

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<BoxedFuture> {
        let in_turn = |charges| {
            let each = self.in_turn.operate_each(operation, charges);
            each.expect("a limiter in Redis does every operation")
        };
        Some(match operation {
            Operation::Estimate | Operation::Penalize | Operation::Grant => {
                self.ask(Some(operation), charge, in_turn)
            }
            // The others have no cost, so costs cannot differ.
            Operation::Reset | Operation::Block(_) | Operation::Pause(_) | Operation::Unblock => {
                self.ask(Some(operation), &charge.clone().peek(), in_turn)
            }
        })
    }
}

impl<const N: usize, F> Clone for AllAtOnce<N, F> {
    fn clone(&self) -> Self {
        Self { sets: Arc::clone(&self.sets), in_turn: self.in_turn.clone() }
    }
}

impl<const N: usize, F> fmt::Debug for AllAtOnce<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllAtOnce").field("members", &self.sets.members).finish_non_exhaustive()
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The members of an [`AllAtOnce`](crate::redis::AllAtOnce): a tuple of two to eight
/// [`Redis`](crate::Redis) limiters over one pool. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot decide in one call to Redis",
    label = "not a tuple of two to eight `Redis` limiters",
    note = "`AllAtOnce` takes a tuple of two to eight `Redis` limiters, and a closure that returns as many charges",
    note = "wrappers such as `describe` and `breaker` go around `AllAtOnce`, not around its members",
    note = "for `Memory` and any other limiters take `AllInTurn`, with an array `[one.boxed(), other.boxed()]`"
)]
pub trait Members<const N: usize>: sealed::Sealed {
    /// Returns the members as limiters of one type.
    #[doc(hidden)]
    fn members(&self) -> [Redis<AnyAlgorithm>; N];

    /// Returns the members themselves.
    #[doc(hidden)]
    fn boxed_members(&self) -> [Boxed; N];
}

impl<A: InLua + Into<AnyAlgorithm>> Redis<A> {
    /// Returns the same limiter, with an algorithm that is chosen at run time.
    fn of_any_algorithm(&self) -> Redis<AnyAlgorithm> {
        let name = self.inner.named.name().clone();
        let algorithm = self.inner.named.algorithm.clone().into();
        // The algorithm already follows its quota.
        let named = ConfiguredAlgorithm::new(name.clone(), algorithm);
        join(&[self], &[0], expect_valid_quota(&name, named))
    }
}

macro_rules! members {
    ($size:literal: $($member:ident $index:tt),+) => {
        impl<$($member: InLua),+> sealed::Sealed for ($(Redis<$member>,)+) {}

        impl<$($member: InLua + Into<AnyAlgorithm>),+> Members<$size> for ($(Redis<$member>,)+) {
            fn members(&self) -> [Redis<AnyAlgorithm>; $size] {
                [$(self.$index.of_any_algorithm()),+]
            }

            fn boxed_members(&self) -> [Boxed; $size] {
                [$(self.$index.clone().boxed()),+]
            }
        }
    };
}

for_each_tuple!(members);
