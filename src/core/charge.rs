//! A charge is the question to a limiter: a key, a cost, and the longest wait. `charge/parts.rs`
//! has charges of several keys.

mod keep_free;
mod parts;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, iter, mem};

pub use self::keep_free::KeepFree;
use crate::core::quota::Quotas;

/// An owned key, kept as it was given: a clone of a constant or of an [`Arc`] allocates nothing.
///
/// Keys are often secrets, so `Debug` prints only the length. Every type that holds a key prints it
/// through this type.
#[derive(Clone)]
pub(crate) enum Key {
    Constant(&'static str),
    Owned(String),
    Shared(Arc<str>),
    Several(Arc<[Option<Charge>]>),
}

impl Key {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Key::Constant(key) => key,
            Key::Owned(key) => key,
            Key::Shared(key) => key,
            Key::Several(_) => "",
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Key::Several(parts) = self {
            return f.debug_list().entries(&**parts).finish();
        }
        write!(f, "<{} bytes>", self.as_str().len())
    }
}

/// Who said how many units a charge asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cost {
    /// Nobody.
    Unstated,
    /// The charge that the members of a combination decide about.
    Inherited,
    Stated,
    /// It asks for none.
    Peek,
}

/// A request for units of a key's quota: a key, a cost, and the longest wait.
///
/// A string converts to a charge of one unit.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::Charge;
///
/// let one = Charge::new("user-42");
/// assert_eq!((one.key(), one.units(), one.longest_wait()), ("user-42", 1, None));
///
/// let upload = Charge::new(String::from("user-42")).cost(8).max_wait(Duration::from_secs(2));
/// assert_eq!(upload.units(), 8);
/// ```
///
/// Its `Debug` output does not show the key. But a short key is part of a name in
/// [`Redis`](crate::Redis). So hash a secret before you use it as a key, as
/// [`by_api_key`](crate::by_api_key) does.
#[derive(Clone, Debug)]
#[must_use]
pub struct Charge {
    key: Key,
    units: u64,
    cost: Cost,
    pub(crate) quota: Option<Quotas>,
    pub(crate) keep_free: KeepFree,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    /// True for a member's charge whose cost a settlement of the whole states.
    pub(crate) is_settled: bool,
    /// The time that the same request has already waited, in milliseconds.
    retried_for: u32,
    extensions: Option<Arc<Extension>>,
}

/// A value that travels with a charge, before those that were added earlier.
struct Extension<T: ?Sized = dyn Any + Send + Sync> {
    rest: Option<Arc<Extension>>,
    value: T,
}

debug_by_name!([] Extension);

impl Charge {
    /// A charge of one unit of `key`: a `&str`, which is copied, a `String` or an `Arc<str>`.
    pub fn new(key: impl Into<Charge>) -> Self {
        key.into()
    }

    /// A charge of one unit of a constant key, which is not copied.
    pub fn from_static(key: &'static str) -> Self {
        Self::of(Key::Constant(key))
    }

    /// Sets the units asked for. Default: 1, and for a member of [`AllInTurn`] or [`AllAtOnce`] the
    /// cost of the whole charge.
    ///
    /// **A cost of 0 is a peek** if you call a limiter yourself: nothing is taken. **Through a
    /// layer it counts as 1.** It also counts as 1 for a member of a combination, and for a part of
    /// a charge of several keys. To take nothing there, use [`peek`](Charge::peek).
    ///
    /// [`AllInTurn`]: crate::limiter::AllInTurn
    /// [`AllAtOnce`]: crate::redis::AllAtOnce
    pub fn cost(mut self, units: u64) -> Self {
        (self.units, self.cost) = (units, Cost::Stated);
        self
    }

    /// Asks what is left, and takes nothing: the cost is 0, even through a layer.
    ///
    /// The request then passes even if the key has nothing left, unless the key owes units. If the
    /// cost is known only after the response, charge an estimate and [settle](crate::Settle) it.
    pub fn peek(mut self) -> Self {
        (self.units, self.cost) = (0, Cost::Peek);
        self
    }

    /// Sets the units that others still find after this charge. It is admitted only if these are
    /// left. It takes its cost alone. Default: 0.
    ///
    /// So a batch job leaves a part of a limit to people:
    ///
    /// ```
    /// use tower_sluice::algorithm::TokenBucket;
    /// use tower_sluice::{Charge, Limiter, Memory, Quota};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build().unwrap().block_on(async {
    /// let api = Memory::new("api", TokenBucket::new(Quota::per_hour(100)));
    /// let export = Charge::new("acme").cost(50).keep_free(20);
    /// assert!(api.check(&export).await?.is_admitted());
    /// let refused = api.check(&export).await?;
    /// assert!(!refused.is_admitted());
    /// assert_eq!((refused.remaining(), refused.kept_free()), (Some(50), 20));
    /// assert!(api.check(&Charge::new("acme").cost(50)).await?.is_admitted());
    /// # Ok::<(), tower_sluice::Error>(()) }).unwrap();
    /// ```
    ///
    /// A charge whose cost and these units together exceed what the limit ever has is denied
    /// without a time to come back. A number goes for each quota of a limiter; a tuple has one for
    /// each, such as `keep_free((2, 200))` for 10 per second and 1,000 per day. A
    /// [peek](Charge::peek) is admitted if so many units are left.
    ///
    /// [`remaining`](crate::Decision::remaining) is what is left of the limit. Header fields have
    /// the units that this caller may still take. A batch with such a charge runs the complete
    /// script, which is longer.
    ///
    /// **Give such a charge no `max_wait`**, and let it come back. Its slot is where the cost and
    /// these units fit: only in a bucket or a budget do others go before.
    pub fn keep_free(mut self, units: impl Into<KeepFree>) -> Self {
        self.keep_free = units.into();
        self
    }

    /// Sets a quota of this key's own, for tiers and plans. Default: the limiter's.
    ///
    /// For a limiter of several quotas, it is a tuple with one quota for each.
    ///
    /// # When a key's quota changes
    ///
    /// The stored state stays: the units that a window, a log or a counter took, and the time at
    /// which a bucket or a smooth limiter is full again. Let the burst change with the limit, or call
    /// [`reset`](crate::LimiterExt::reset) when a plan changes. **Give all plans the same period**:
    /// otherwise callers can avoid the limit by switching plans. [Tiers and plans][tiers] has the
    /// figures.
    ///
    /// [tiers]: https://docs.rs/tower-sluice-guide/latest/tower_sluice_guide/tiers/
    pub fn quota(mut self, quota: impl Into<Quotas>) -> Self {
        self.quota = Some(quota.into());
        self
    }

    /// Sets the longest wait that may be reserved; 0 admits now or not at all.
    /// Default: the layer's.
    ///
    /// No wait is longer than the algorithm's horizon, 60 s by default: see
    /// [`TokenBucket::horizon`](crate::algorithm::TokenBucket::horizon).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// The key. Empty for a charge of several keys: see [`parts`](Charge::parts).
    #[must_use]
    #[inline]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Takes out the key as it was given. The charge then has an empty key.
    pub(crate) fn take_key(&mut self) -> Key {
        mem::replace(&mut self.key, Key::Constant(""))
    }

    /// The units asked for; 0 peeks.
    #[must_use]
    #[inline]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The quota that this charge states.
    #[must_use]
    #[inline]
    pub fn own_quota(&self) -> Option<&Quotas> {
        self.quota.as_ref()
    }

    /// The units that stay free of the quota at `index`, after this charge.
    #[must_use]
    pub fn kept_free(&self, index: usize) -> u64 {
        self.keep_free.of(index)
    }

    /// The longest wait that may be reserved, if the charge states one.
    #[must_use]
    #[inline]
    pub fn longest_wait(&self) -> Option<Duration> {
        self.max_wait
    }

    /// The instant by which the decision is needed, if a [`timeout`] set one.
    ///
    /// It is an instant of tokio's clock: to sleep until it, use `tokio::time::Instant::from_std`.
    /// A limiter that calls other limiters passes this instant on, so that all of them keep it
    /// together.
    ///
    /// [`timeout`]: crate::LimiterExt::timeout
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the time that the same request has already waited, in whole milliseconds, if it asks
    /// again because nothing could be reserved. 0 for the first attempt.
    #[must_use]
    pub fn retried_for(&self) -> Duration {
        Duration::from_millis(self.retried_for.into())
    }

    /// Sets how long the same request has already waited: at least 1 ms.
    pub(crate) fn with_retried_for(mut self, time: Duration) -> Self {
        self.retried_for = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1);
        self
    }

    /// Sets the instant by which the decision is needed, for limiters of your own that ask others.
    /// An earlier one stays. Default: the limiter's own.
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self
    }

    /// Adds a value that travels with the charge: for a limiter of your own whose key extractor
    /// knows more of a request than its key. Clones share it. Of two values of one type, the later
    /// one counts.
    ///
    /// Charges that need different decisions need different keys too: wrappers know a charge by its
    /// key, cost and quota.
    pub fn with_extension(mut self, value: impl Any + Send + Sync) -> Self {
        let rest = self.extensions.take();
        self.extensions = Some(Arc::new(Extension { rest, value }));
        self
    }

    /// Returns the value of this type that travels with the charge.
    #[must_use]
    pub fn extension<T: Any>(&self) -> Option<&T> {
        let mut extensions =
            iter::successors(self.extensions.as_deref(), |one| one.rest.as_deref());
        extensions.find_map(|one| one.value.downcast_ref())
    }

    /// The charges of a combination's members. A settlement states the cost of those without one,
    /// or, if this has none either, of the only one that has one.
    pub(crate) fn with_members<const N: usize>(
        &self,
        members: [Option<Self>; N],
    ) -> [Option<Self>; N] {
        let count = |cost| members.iter().flatten().filter(|one| one.cost == cost).count();
        let is_of_one =
            self.cost == Cost::Unstated && (count(Cost::Inherited), count(Cost::Stated)) == (0, 1);
        members.map(|member| {
            let mut member = member?;
            member.is_settled =
                member.cost != Cost::Peek && is_of_one == (member.cost == Cost::Stated);
            Some(member.for_member_of(self))
        })
    }

    /// The charge of one member of a combination that decides about `charge`. It inherits the cost
    /// of `charge` unless it states one. It takes nothing if `charge` takes nothing. It has the
    /// same longest wait and the same deadline.
    fn for_member_of(mut self, charge: &Charge) -> Self {
        match (charge.units, self.cost) {
            (0, _) => self = self.peek(),
            (units, Cost::Unstated) => self = self.cost(units),
            // A cost that is computed from a request never lets it pass for free.
            _ => self.at_least_one_unit(),
        }
        if self.keep_free.is_none() {
            self.keep_free = charge.keep_free.clone();
        }
        self.retried_for = charge.retried_for;
        self.max_wait = charge.max_wait;
        match charge.deadline {
            Some(deadline) => self.with_deadline(deadline),
            None => self,
        }
    }

    /// The same charge, for the closure that makes the members' charges: a clone of it inherits the
    /// cost.
    pub(crate) fn for_members(&self) -> Self {
        let cost = match self.cost {
            Cost::Peek => Cost::Peek,
            _ => Cost::Inherited,
        };
        Self { cost, ..self.clone() }
    }

    /// Makes the charge of a request through a layer cost at least 1, unless it is a peek.
    #[inline]
    pub(crate) fn at_least_one_unit(&mut self) {
        if self.cost == Cost::Stated {
            self.units = self.units.max(1);
        }
    }

    #[inline]
    fn of(key: Key) -> Self {
        Self {
            key,
            units: 1,
            cost: Cost::Unstated,
            quota: None,
            keep_free: KeepFree::default(),
            max_wait: None,
            deadline: None,
            is_settled: false,
            retried_for: 0,
            extensions: None,
        }
    }
}

/// Copies the key. For a constant, [`Charge::from_static`] does not.
impl From<&str> for Charge {
    fn from(key: &str) -> Self {
        Self::of(Key::Owned(key.to_owned()))
    }
}

impl From<&String> for Charge {
    fn from(key: &String) -> Self {
        key.as_str().into()
    }
}

impl From<String> for Charge {
    fn from(key: String) -> Self {
        Self::of(Key::Owned(key))
    }
}

impl From<Arc<str>> for Charge {
    fn from(key: Arc<str>) -> Self {
        Self::of(Key::Shared(key))
    }
}
