//! Bans: a policy blocks a key that it refuses too often.

use std::num::NonZeroU64;

use serde::Deserialize;
use tower_sluice::algorithm::FixedWindow;
use tower_sluice::limiter::{BanAfter, Boxed};
use tower_sluice::store::Decided;
use tower_sluice::{Decision, LimiterExt, Memory, Outcome, Quota};

use super::chosen_algorithm::Name;
use super::limited_policy::{AskedPolicy, PolicyStore};
use super::values::Span;

/// A ban as a row writes it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BanRow {
    refusals: NonZeroU64,
    window: Span,
    time: Span,
}

impl BanRow {
    /// Checks that a row of this algorithm can ban.
    pub(crate) fn check(&self, algorithm: Name) -> Result<(), String> {
        if algorithm == Name::Redisson {
            return Err(String::from("redisson has no blocks"));
        }
        if self.time.0.is_zero() {
            return Err(String::from("the time is 0"));
        }
        let quota = Quota::try_new(self.refusals.get(), self.window.0);
        quota.map(drop).map_err(|why| format!("of the window: {why}"))
    }
}

/// The refusals of a policy, which this process counts, and its limiter, which blocks.
#[derive(Clone, Debug)]
pub(crate) struct Ban {
    row: BanRow,
    count: Memory<FixedWindow>,
    by: BanAfter<Boxed>,
}

impl Ban {
    /// Counts on from the ban `before` if its row says the same.
    pub(crate) fn new(
        row: BanRow,
        limiter: Boxed,
        store: &PolicyStore,
        before: Option<&Ban>,
    ) -> Self {
        let BanRow { refusals, window: Span(window), time: Span(time) } = row;
        let count = before.filter(|before| before.row == row).map(|before| before.count.clone());
        let count = count.unwrap_or_else(|| {
            let count = FixedWindow::new(Quota::new(refusals.get(), window)).anchored();
            let count = Memory::new("refusals", count).clock_of(&store.clock_of);
            count.max_keys(store.max_keys)
        });
        let by = limiter.ban_after(refusals.get(), window, time).count_by(count.clone());
        Self { row, count, by }
    }
}

/// Counts the refusals that the store has decided, and blocks the keys that are refused too often.
/// The policy of a longer block then answers alone.
pub(crate) async fn with_bans(mut decided: Decided, asked: &[AskedPolicy]) -> Decided {
    let mut counted = Vec::new();
    for (part, outcome, decision) in decided.each() {
        // A store that is away cannot block either.
        if let Outcome::Deny { retry_after } = outcome
            && let Some(ban) = &asked[part.place].limited.ban
            && decision.fallback_cause().is_none()
        {
            let refused = ban.by.refused(&part.charge, Decision::new(outcome));
            counted.push((part.clone(), retry_after, refused));
        }
    }
    for (part, retry_after, refused) in counted {
        if let Ok(blocked) = refused.await
            && retry_after.is_some()
            && blocked.retry_after() > retry_after
        {
            decided = Decided::new(vec![part], blocked);
        }
    }
    decided
}
