//! Limiters over different keys in one call: per user *and* for everybody.
//!
//! The algorithms of the members that a charge asks become one list, and each member keeps its own
//! keys, so that it can be asked alone as well. A cluster runs a script on keys of one hash slot
//! only, and a call has one cost for all its keys. Where slots or costs differ, the members are
//! asked in turn, as [`AllInTurn`] does.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::limiter::Redis;
use super::redis_future::RedisFuture;
use super::script::Op;
use crate::algorithm::{AnyAlgorithm, Check, InLua};
use crate::limiter::all_in_turn::AllInTurn;
use crate::limiter::named::{NamedAlgorithm, block_time, expect_valid_quota, one_key};
use crate::limiter::{
    Boxed, BoxedFuture, Limiter, LimiterExt, MemberCharges, Operation, Parts, timeout,
};
use crate::quota::{Quota, Quotas};
use crate::settlement::Settlement;
use crate::{Charge, Decision, Error, ErrorKind, Owner, Reservation};

/// Limiters in one Redis over different keys, in one call, all or nothing: per user *and* for
/// everybody.
///
/// ```no_run
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::{Charge, Pool, Quota, Redis, AllAtOnce};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::connect("redis://127.0.0.1:6379")?;
/// let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
/// let everybody = Redis::new("everybody", FixedWindow::new(Quota::per_hour(100_000)), pool);
/// let api = AllAtOnce::new((user, everybody), |charge| [charge.clone(), Charge::new("all")]);
/// # Ok(()) }
/// ```
///
/// Each member keeps its own keys, so it can be asked alone as well. The closure returns each
/// member's key, and its quota if it has one of its own. [`of_parts`](AllAtOnce::of_parts) takes
/// both from a charge of several keys. The charge's `max_wait` and deadline hold for all. The
/// decision names the limiter and the quota that refuses or delays. Everything else is as for a
/// tuple of algorithms over one key.
///
/// A member's charge that states no cost has the cost of the whole charge. A peek takes nothing
/// from any member. One call has one cost, and in a cluster keys of one hash slot. Where costs or
/// slots differ, the members are asked in turn, as [`AllInTurn`] does. That takes more round trips,
/// and reserves no waits.
///
/// A quota belongs to one member: the closure sets it on that member's charge, for instance on a
/// clone of the whole charge. If the charge brings a quota that no member gets, the error is of
/// kind [`Configuration`](ErrorKind::Configuration).
pub struct AllAtOnce<const N: usize, F> {
    owner: Owner,
    one_call: Arc<OneCall<N>>,
    in_turn: AllInTurn<N, F>,
}

/// A limiter that asks for several members in one call.
type Joined = Redis<Vec<AnyAlgorithm>>;

/// The members, and the limiters that ask for several of them in one call.
struct OneCall<const N: usize> {
    members: [Redis<AnyAlgorithm>; N],
    /// The limiters of several members. The index has a bit for each member that is asked. Each
    /// limiter is made when a charge first needs it, and kept.
    joined: Box<[OnceLock<Joined>]>,
}

impl<const N: usize> OneCall<N> {
    /// # Panics
    ///
    /// If the members are not over one pool.
    #[track_caller]
    fn new(members: [Redis<AnyAlgorithm>; N]) -> Self {
        let first = &members[0].inner;
        for one in members.iter().map(|one| &one.inner) {
            assert!(
                first.batcher.config().pool.is_same_as(&one.batcher.config().pool),
                "limiters over one pool: `{}` has another than `{}`",
                one.named.name(),
                first.named.name(),
            );
        }
        let this = Self { members, joined: (0..1 << N).map(|_| OnceLock::new()).collect() };
        this.joined(&(0..N).collect::<Vec<_>>());
        this
    }

    /// The limiter of the members at these places.
    fn joined(&self, places: &[usize]) -> &Joined {
        let bits: usize = places.iter().map(|place| 1 << place).sum();
        self.joined[bits].get_or_init(|| {
            let names = self.members.each_ref().map(|one| one.inner.named.name().clone());
            let algorithm = |place: &usize| *self.members[*place].inner.named.algorithm();
            let algorithms = places.iter().map(algorithm).collect();
            // Each member's algorithm follows its quota, and a list asks for no more.
            let named = NamedAlgorithm::of_members(&names, places, algorithms);
            let named = expect_valid_quota(&names[places[0]], named);
            join(&self.members.each_ref(), places, named)
        })
    }
}

impl<const N: usize, F> AllAtOnce<N, F>
where
    F: Fn(&Charge) -> [Charge; N],
{
    /// A limiter over these members. The closure returns the key of each.
    ///
    /// The time for a decision, the clock and the settings of batches are those of the first
    /// member. Its [`queue_capacity`](Redis::queue_capacity) bounds all charges that wait; its
    /// [`max_in_flight`](Redis::max_in_flight) holds for each set of members that charges ask. In
    /// one call the order means nothing else. Where members are asked in turn, put first
    /// the one with the fewest units for one caller: see [`AllInTurn`].
    ///
    /// # Panics
    ///
    /// If they are not over one [`Pool`](crate::Pool).
    #[must_use]
    #[track_caller]
    pub fn new<T: Members<N>>(members: T, keys: F) -> Self {
        Self::asking(members, keys)
    }
}

impl<const N: usize> AllAtOnce<N, Parts> {
    /// A limiter over these members. Each decides about its part of a charge of
    /// [`several`](Charge::several) keys.
    ///
    /// ```no_run
    /// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
    /// use tower_sluice::{AllAtOnce, Pool, Quota, RateLimitLayer, Redis, by_head};
    ///
    /// # fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::connect("redis://127.0.0.1:6379")?;
    /// let user = Redis::new("user", TokenBucket::new(Quota::per_second(10)), pool.clone());
    /// let everybody = Redis::new("everybody", FixedWindow::new(Quota::per_hour(100_000)), pool);
    /// let both = AllAtOnce::of_parts((user, everybody));
    /// let layer = RateLimitLayer::new(both, by_head(|head| (head.header("x-user"), "all")));
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    ///
    /// A charge with more or fewer parts is an error of kind
    /// [`Configuration`](ErrorKind::Configuration). A member whose part is absent is not asked. All
    /// others are asked in one call.
    ///
    /// # Panics
    ///
    /// If they are not over one [`Pool`](crate::Pool).
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
        Self { owner: Owner::new(), one_call: Arc::new(OneCall::new(members.members())), in_turn }
    }

    /// Asks in one call. If that is not possible, returns the members' charges, to be asked in
    /// turn.
    fn ask(
        &self,
        charge: &Charge,
        op: impl Fn(Check) -> Op,
    ) -> Result<AllAtOnceFuture, [Option<Charge>; N]> {
        let first = &self.one_call.members[0].inner;
        let charges = match self.in_turn.member_charges(charge) {
            Ok(charges) => charges,
            Err(error) => return Ok(AllAtOnceFuture::failed(error)),
        };
        let (places, present): (Vec<usize>, Vec<&Charge>) = charges
            .iter()
            .enumerate()
            .filter_map(|(place, one)| Some((place, one.as_ref()?)))
            .unzip();
        // A key that is too long is refused before it is digested.
        if let Err(error) = present.iter().try_for_each(|charge| one_key(charge).map(drop)) {
            return Ok(AllAtOnceFuture::failed(error));
        }
        let terms = |one: &Charge| (one.get_cost(), one.get_cost() > 0 && one.inherits_cost());
        let are_alike = present.windows(2).all(|pair| terms(pair[0]) == terms(pair[1]));
        if let [first, _, ..] = present[..]
            && are_alike
        {
            let joined = self.one_call.joined(&places);
            let config = joined.inner.batcher.config();
            let key_suffixes = config.key_suffixes(present.iter().copied());
            if config.share_a_call(&key_suffixes) {
                let whole = charge.clone().with_key_of(first).cost(first.get_cost());
                let asked = match charge_with_quotas(joined, whole, &present, &key_suffixes) {
                    Ok(whole) => joined.inner.ask_keys(key_suffixes.concat(), &whole, op),
                    Err(error) => return Ok(AllAtOnceFuture::failed(error)),
                };
                let (owner, cost) = (self.owner, charge.get_cost());
                let reserved = (owner, cost, joined.clone(), !first.inherits_cost());
                return Ok(AllAtOnceFuture::in_one_call(asked, reserved));
            }
        }
        let deadline = timeout::deadline(charge, first.decision_timeout).into_std();
        Err(charges.map(|one| one.map(|one| one.with_deadline(deadline))))
    }
}

/// The charge with the quotas of the members' charges.
fn charge_with_quotas(
    joined: &Joined,
    charge: Charge,
    charges: &[&Charge],
    key_suffixes: &[String],
) -> Result<Charge, Error> {
    let key_prefixes = &joined.inner.batcher.config().key_prefixes;
    let keys: Vec<_> = key_prefixes.iter().zip(key_suffixes).collect();
    if (1..keys.len()).any(|index| keys[..index].contains(&keys[index])) {
        return Err(Error::new(ErrorKind::Request, "one key is charged twice"));
    }
    if charges.iter().all(|charge| charge.get_quota().is_none()) {
        return Ok(charge);
    }
    let own = joined.inner.named.quota().as_slice();
    let quotas = charges
        .iter()
        .zip(own)
        .map(|(charge, own)| charge.get_quota().map_or(Ok(*own), Quotas::one))
        .collect::<Result<Vec<Quota>, _>>()
        .map_err(|error| {
            Error::new(ErrorKind::Configuration, "a member takes one quota").with_source(error)
        })?;
    Ok(charge.quota(Quotas::from(quotas.as_slice())))
}

impl<const N: usize, F: MemberCharges<N>> Limiter for AllAtOnce<N, F> {
    type Future = AllAtOnceFuture;

    fn check(&self, charge: &Charge) -> AllAtOnceFuture {
        match self.ask(charge, |Check { cost, max_wait }| Op::Check { cost, max_wait }) {
            Ok(decision) => decision,
            Err(charges) => AllAtOnceFuture::in_turn(self.in_turn.ask(charges, charge.get_cost())),
        }
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.owner {
            return self.in_turn.settle(reservation, actual);
        }
        let (cost, charged) = (reservation.cost(), reservation.charged());
        let TakenTogether { limiter, reservation, states_costs } = reservation.into_payload()?;
        // Stated costs stay, unless all is refunded.
        let actual = if states_costs && actual > 0 { reservation.cost() } else { actual };
        limiter.settle(reservation, actual).map_err(|reservation| {
            let held = reservation.is_held();
            let taken = TakenTogether { limiter, reservation, states_costs };
            Reservation::new(self.owner, cost, taken).with_charged(charged).with_held(held)
        })
    }

    fn can_take_more(&self) -> bool {
        true
    }

    fn operate(&self, operation: Operation, charge: &Charge) -> Option<AllAtOnceFuture> {
        let asked = match operation {
            Operation::Estimate => {
                self.ask(charge, |Check { cost, max_wait }| Op::Estimate { cost, max_wait })
            }
            Operation::Penalize => self.ask(charge, |Check { cost, .. }| Op::Penalize { cost }),
            // A reset has no cost, so costs cannot differ.
            Operation::Reset => self.ask(&charge.clone().peek(), |_| Op::Reset),
            Operation::Block(time) => {
                self.ask(&charge.clone().peek(), |_| Op::Block { time: block_time(time) })
            }
            Operation::Unblock => self.ask(&charge.clone().peek(), |_| Op::Unblock),
        };
        match asked {
            Ok(decision) => Some(decision),
            Err(charges) => {
                self.in_turn.operate_each(operation, &charges).map(AllAtOnceFuture::in_turn)
            }
        }
    }
}

impl<const N: usize, F> Clone for AllAtOnce<N, F> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner,
            one_call: Arc::clone(&self.one_call),
            in_turn: self.in_turn.clone(),
        }
    }
}

impl<const N: usize, F> fmt::Debug for AllAtOnce<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllAtOnce").field("members", &self.one_call.members).finish_non_exhaustive()
    }
}

/// The payload of a reservation that several members made in one call.
struct TakenTogether {
    limiter: Joined,
    reservation: Reservation,
    /// True if the members state their own costs.
    states_costs: bool,
}

/// The parts of a reservation: its owner, its cost, the limiter that settles it, and whether the
/// members state their own costs.
type Reserved = (Owner, u64, Joined, bool);

pin_project! {
    /// The future of [`AllAtOnce`](crate::AllAtOnce).
    #[must_use = "nothing is decided until it is awaited"]
    pub struct AllAtOnceFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        InOneCall { #[pin] decision: RedisFuture<Vec<AnyAlgorithm>>, reserved: Option<Reserved> },
        InTurn { decision: BoxedFuture },
    }
}

impl AllAtOnceFuture {
    fn in_one_call(decision: RedisFuture<Vec<AnyAlgorithm>>, reserved: Reserved) -> Self {
        Self { state: State::InOneCall { decision, reserved: Some(reserved) } }
    }

    fn in_turn(decision: BoxedFuture) -> Self {
        Self { state: State::InTurn { decision } }
    }

    fn failed(error: Error) -> Self {
        Self::in_turn(Box::pin(ready(Err(error))))
    }
}

impl Future for AllAtOnceFuture {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::InOneCall { decision, reserved } => {
                let mut decision = ready!(decision.poll(cx))?;
                if let Some(reservation) = decision.take_reservation()
                    && let Some((owner, cost, limiter, states_costs)) = reserved.take()
                {
                    let held = reservation.is_held();
                    let taken = TakenTogether { limiter, reservation, states_costs };
                    let reservation = Reservation::new(owner, cost, taken).with_held(held);
                    decision = decision.with_reservation(reservation);
                }
                Poll::Ready(Ok(decision))
            }
            StateProj::InTurn { decision } => decision.as_mut().poll(cx),
        }
    }
}

debug_by_name!([] AllAtOnceFuture);

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

/// Joins the members at `places` in one limiter with the algorithm `named`. Each keeps its own
/// keys. The time for a decision, the clock and the settings of batches are those of the first of
/// all members. The bound of its queue holds for all of them together.
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
    /// The same limiter, with an algorithm that is known only at run time.
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
