//! One policy in force: its keys, and its switch.

use std::sync::Arc;
use std::time::Duration;

use tower_sluice::future::{BoxedFuture, OperationFuture};
use tower_sluice::limiter::{Boxed, Done, Switch, SwitchMode};
use tower_sluice::{Charge, Decision, Error, ErrorKind, LimiterExt};

use super::limited_policy::LimitedPolicy;
use super::policies::Policies;
use super::policy::Policy;
use super::read_rows::Exemption;

/// A policy in force: its row, its switch, and its keys. Cheap to clone.
///
/// It refers to the policy by name. After a reload, it uses the keys of the new row, but
/// [`policy`](Self::policy) returns the row that was in force when the handle was made.
///
/// Write a key as a client sends it: an API key itself, an address, a host, or `global`. Its parts
/// are those of the row's `key`, in order. If the row has plans, name that of the key by
/// [`of_plan`](Self::of_plan).
///
/// ```
/// use tower_sluice_policies::{Policies, Row, Rows};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().build()?.block_on(async {
/// let row = Row::new().with("name", "api").with("limit", 5).with("period", "1h");
/// let row = row.with("key", vec!["header:x-api-key", "path"]);
/// let policies = Policies::builder().build(&Rows::from_iter([row]))?;
///
/// let api = policies.get("api").expect("a policy");
/// assert_eq!(api.peek(&["alice", "/users"]).await?.remaining(), Some(5));
/// assert_eq!(api.penalize(&["alice", "/users"], 2).await?.remaining(), Some(3));
/// assert_eq!(api.reset(&["alice", "/users"]).await?.remaining(), Some(5));
/// assert!(api.peek(&["alice"]).await.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PolicyHandle {
    policies: Policies,
    limited: Arc<LimitedPolicy>,
    plan: Option<Arc<str>>,
}

impl Policies {
    /// Returns the policies in force, in the order of their rows. Rows that exempt requests are no
    /// policies: [`exemptions`](Policies::exemptions) has them.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyHandle> {
        let handle = |limited| PolicyHandle { policies: self.clone(), limited, plan: None };
        self.table().policies.iter().cloned().map(handle).collect()
    }

    /// Returns the rows in force that exempt requests from all policies.
    #[must_use]
    pub fn exemptions(&self) -> Vec<Arc<Exemption>> {
        self.table().exempt.clone()
    }

    /// Returns the policy with this name, if it is in force.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<PolicyHandle> {
        let limited = self.table().get(name).cloned()?;
        Some(PolicyHandle { policies: self.clone(), limited, plan: None })
    }
}

impl PolicyHandle {
    /// Sets the plan of the keys, one of the row's `quotas`: they are shown, penalized and granted
    /// units by its quota. Default: no plan, and the quota of the row.
    ///
    /// A plan that the row does not have has the quota of the row, as for requests.
    ///
    /// ```
    /// use tower_sluice_policies::{Policies, Rows};
    ///
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().build()?.block_on(async {
    /// let rows: Rows = toml::from_str(
    ///     r#"
    ///     [[policy]]
    ///     name = "api"
    ///     limit = 10
    ///     period = "1h"
    ///     key = "header:x-user"
    ///     plan = "header:x-plan"
    ///     quotas = { gold = 1000 }
    ///     "#,
    /// )?;
    /// let policies = Policies::builder().build(&rows)?;
    /// let gold = policies.get("api").expect("a policy").of_plan("gold");
    /// assert_eq!(gold.penalize(&["alice"], 5).await?.remaining(), Some(995));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of_plan(mut self, plan: impl Into<Arc<str>>) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Returns the policy as its row stated it when the handle was made by
    /// [`Policies::get`](super::Policies::get).
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.limited.policy
    }

    /// The policy's own switch, which outlives the row and the table.
    ///
    /// Its [`shadow_counts`](Switch::shadow_counts) count the decisions of the policy in a shadow:
    /// by its row, this switch or the switch of all policies.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.limited.switch
    }

    /// Returns the mode that applies: the most permissive of its row, its own switch and the switch
    /// of all policies. [`Off`](SwitchMode::Off) if its row is gone.
    #[must_use]
    pub fn mode(&self) -> SwitchMode {
        let global = Policies::global_switch(&self.policies).mode();
        let table = self.policies.table();
        let limited = table.get(self.limited.policy.name());
        limited.map_or(SwitchMode::Off, |limited| limited.mode(global))
    }

    /// Returns the number of parts of each key.
    #[must_use]
    pub fn key_parts(&self) -> usize {
        self.limited.policy.key.len()
    }

    /// Returns the charge of a key: its text is the key that the limiter of this policy has. It
    /// costs 1 unit.
    ///
    /// # Errors
    ///
    /// Those of [`peek`](Self::peek), except the errors of a decision.
    pub fn charge<T: AsRef<str>>(&self, parts: &[T]) -> Result<Charge, Error> {
        Ok(self.charged(parts)?.1)
    }

    /// Returns the state of a key, and takes nothing. A new key has its whole quota.
    ///
    /// # Errors
    ///
    /// An error of kind [`Request`](ErrorKind::Request) if the parts are not a key of this policy,
    /// and of kind [`Configuration`](ErrorKind::Configuration) if its row is gone. Otherwise the
    /// errors of a decision.
    pub async fn peek<T: AsRef<str>>(&self, parts: &[T]) -> Result<Decision, Error> {
        let (limited, charge) = self.charged(parts)?;
        limited.limiter.boxed.peek(charge).await
    }

    /// Resets a key: all of its quota is available again.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn reset<T: AsRef<str>>(&self, parts: &[T]) -> Result<Done, Error> {
        self.with_share(parts, Boxed::reset).await
    }

    /// Refuses all requests of a key for this time: see
    /// [`LimiterExt::block`](tower_sluice::LimiterExt::block). A policy of Redisson cannot block.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn block<T: AsRef<str>>(&self, parts: &[T], time: Duration) -> Result<Done, Error> {
        self.with_share(parts, |limiter, charge| limiter.block(charge, time)).await
    }

    /// Pauses a key for this time: see
    /// [`LimiterExt::pause`](tower_sluice::LimiterExt::pause). A policy of Redisson cannot pause.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn pause<T: AsRef<str>>(&self, parts: &[T], time: Duration) -> Result<Done, Error> {
        self.with_share(parts, |limiter, charge| limiter.pause(charge, time)).await
    }

    /// Ends a block and a pause of a key. The units that were taken before it still count.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn unblock<T: AsRef<str>>(&self, parts: &[T]) -> Result<Done, Error> {
        self.with_share(parts, Boxed::unblock).await
    }

    /// Takes units of a key, even if they do not fit.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn penalize<T: AsRef<str>>(&self, parts: &[T], units: u64) -> Result<Done, Error> {
        let (limited, charge) = self.charged(parts)?;
        limited.limiter.boxed.penalize(charge.cost(units)).await
    }

    /// [Gives](LimiterExt::grant) taken units of a key back, up to a full limit.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek), and if the algorithm of the policy gives nothing.
    pub async fn grant<T: AsRef<str>>(&self, parts: &[T], units: u64) -> Result<Done, Error> {
        let (limited, charge) = self.charged(parts)?;
        limited.limiter.boxed.grant(charge, units).await
    }

    /// Runs an operation on a key in the local share, if there is one, and then in the store. An
    /// error of the share comes after the store was asked.
    async fn with_share<T: AsRef<str>>(
        &self,
        parts: &[T],
        operate: impl Fn(&Boxed, Charge) -> OperationFuture<BoxedFuture>,
    ) -> Result<Done, Error> {
        let (limited, charge) = self.charged(parts)?;
        let in_share = match &limited.share {
            // It has one quota for all plans.
            Some(share) => operate(&share.boxed, Charge::new(charge.key())).await.map(drop),
            None => Ok(()),
        };
        let decision = operate(&limited.limiter.boxed, charge).await?;
        in_share.map(|()| decision)
    }

    fn charged<T: AsRef<str>>(&self, parts: &[T]) -> Result<(Arc<LimitedPolicy>, Charge), Error> {
        let gone = || Error::new(ErrorKind::Configuration, "no policy of this name is in force");
        let table = self.policies.table();
        let limited = table.get(self.limited.policy.name()).cloned().ok_or_else(gone)?;
        let key = limited.policy.key.of_texts(parts, &table.allowed, self.policies.finders());
        let none = || Error::new(ErrorKind::Request, "the parts are not a key of this policy");
        let charge = limited.charge(key.ok_or_else(none)?);
        let quota = self.plan.as_ref().and_then(|plan| limited.policy.plans.quota(plan));
        let charge = quota.into_iter().fold(charge, Charge::quota);
        Ok((limited, charge))
    }
}
