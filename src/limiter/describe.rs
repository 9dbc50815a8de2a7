//! The description of a limiter's policies for callers: names, units, and partition keys.

use std::sync::Arc;

use super::Operation;
use super::wrapped::{Around, Begin, Wrapped};
use crate::core::decision::{QuotaUnit, is_policy_name};
use crate::core::{Charge, Decision, Error, ErrorKind, digest};

/// The names, the unit and the partition key of a limiter's [policies](Decision::policies), which
/// callers read in header fields: see [`LimiterExt::describe`](crate::LimiterExt::describe).
///
/// ```
/// use tower_sluice::algorithm::{FixedWindow, TokenBucket};
/// use tower_sluice::limiter::{Description, QuotaUnit};
/// use tower_sluice::{LimiterExt, Memory, Quota};
///
/// let second = TokenBucket::new(Quota::per_second(65_536));
/// let day = FixedWindow::new(Quota::per_day(10_000_000));
/// let description =
///     Description::new().names(["burst", "daily"]).unit(QuotaUnit::ContentBytes).partition_key();
/// let bytes = Memory::new("bytes", (second, day)).describe(description);
/// # let _ = bytes;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Description {
    names: Vec<Arc<str>>,
    unit: Option<QuotaUnit>,
    partition_key: bool,
}

impl Description {
    /// A description that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the names of the policies, in order. A name is 1 to 64 letters, digits or any of
    /// `_.:-`. If there are more policies than names, the others keep their own. Default: the name
    /// of the limiter, with a number if it has several quotas.
    ///
    /// The order is that of all policies of the limiter, even if a charge leaves some out. A member
    /// of an [`AllInTurn`](crate::limiter::AllInTurn) counts as one policy until its first answer.
    /// So put a member with several quotas last, or describe that member itself. The policies of a
    /// table keep the names of their rows.
    ///
    /// # Panics
    ///
    /// If [`try_names`](Description::try_names) returns an error.
    #[track_caller]
    pub fn names(self, names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        match self.try_names(names) {
            Ok(described) => described,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets the names of the policies, for names that come from a file or a user.
    ///
    /// # Errors
    ///
    /// An error of kind [`Configuration`](ErrorKind::Configuration), if a name has another form, or
    /// two names are equal.
    pub fn try_names(
        mut self,
        names: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Result<Self, Error> {
        self.names = names.into_iter().map(Into::into).collect();
        let refuse = |message| Err(Error::new(ErrorKind::Configuration, message));
        if !self.names.iter().all(|name| is_policy_name(name)) {
            return refuse("a policy's name must be 1 to 64 letters, digits or any of _.:-");
        }
        let is_repeated = |index: usize| self.names[..index].contains(&self.names[index]);
        if (1..self.names.len()).any(is_repeated) {
            return refuse("two policies have the same name");
        }
        Ok(self)
    }

    /// Sets the unit of the quotas. Default: the limiter's unit, or else [`QuotaUnit::Requests`].
    pub fn unit(mut self, unit: QuotaUnit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Shows a partition key, which identifies the owner of the quota: the first 8 bytes of the
    /// SHA-256 digest of the charge's key. Default: not shown.
    ///
    /// A reader who guesses a key can compute its digest. Describe the members of an
    /// [`AllInTurn`](crate::limiter::AllInTurn), not the combination. A charge of
    /// [several](Charge::several) keys has no partition key.
    pub fn partition_key(mut self) -> Self {
        self.partition_key = true;
        self
    }

    fn apply(&self, decision: &mut Decision, partition_key: Option<[u8; 8]>) {
        let mut policies = decision.to_policies();
        for policy in &mut policies {
            if let Some(name) = self.names.get(policy.place) {
                policy.name = Arc::clone(name);
            }
            policy.figures.unit = self.unit.unwrap_or(policy.figures.unit);
            policy.figures.partition_key = partition_key.or(policy.figures.partition_key);
        }
        decision.set_policies(policies.into());
    }
}

/// A limiter whose policies are described. Made by
/// [`LimiterExt::describe`](crate::LimiterExt::describe).
pub type Described<L> = Wrapped<L, Arc<Description>>;

impl Around for Arc<Description> {
    /// The partition key of the charge, if it is shown.
    type Open = (Self, Option<[u8; 8]>);

    fn open(&self, charge: &Charge) -> Begin<Self::Open> {
        let shows_key = self.partition_key && !charge.has_parts();
        let partition_key = shows_key.then(|| digest::partition_key(charge.key()));
        Begin::Seen((Self::clone(self), partition_key))
    }

    fn open_operation(&self, _: Operation, charge: &Charge) -> Begin<Self::Open> {
        self.open(charge)
    }

    fn close(
        (description, partition_key): Self::Open,
        answer: Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        let mut decision = answer?;
        description.apply(&mut decision, partition_key);
        Ok(decision)
    }
}

#[cfg(test)]
mod tests;
