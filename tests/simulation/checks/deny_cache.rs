//! The promises of a deny cache: what it repeats is true still, and this process has changed
//! nothing since.

use std::time::Duration;

use tower_sluice::limiter::Origin;

use super::{MIN_TIMEOUT, Seen, kept_free, since_begin};
use crate::account::Refusal;
use crate::plan::{SECOND, Way};
use crate::world::{Fate, Record, TIMEOUT};

/// The longest time for which a refusal is repeated.
const MAX_AGE: Duration = SECOND;

/// So long after a settlement what is refused is repeated for a shorter time.
const SETTLING_TIME: Duration = SECOND;

/// That shorter time.
const SETTLING_AGE: Duration = Duration::from_millis(100);

/// Something that a process did to a key, after which its refusals are not what they were.
struct Change {
    at: Duration,
    /// The instant by which it was done.
    done_by: Duration,
    /// The instant at which its question was asked, if nobody knows whether it was charged.
    lost_since: Option<Duration>,
    /// It may be on its way still.
    is_settling: bool,
}

impl Seen<'_> {
    /// Each refusal that was repeated was due.
    pub(super) fn repeated(&self) -> Option<String> {
        if !self.plan.stack.has_deny_cache || self.has_odd_clocks() {
            return None;
        }
        self.records.iter().find_map(|record| {
            let Fate::Refused { by: Some(Origin::Cache), retry_after } = record.fate else {
                return None;
            };
            let decided_at = record.decided_at?;
            let why = match self.is_true_still(record, decided_at, retry_after) {
                false => Some("is not what the store said"),
                true => self.outlived(record, since_begin(decided_at)),
            };
            why.map(|why| format!("{} {why}", self.shown(record)))
        })
    }

    /// True if the store refused as much then, and the wait that it told is not over.
    fn is_true_still(&self, record: &Record, at: i64, retry_after: Option<Duration>) -> bool {
        let (ask, Some(left)) = (self.ask(record), retry_after) else { return false };
        let is_its = |refusal: &Refusal, wait: i64| {
            let fits_at = since_begin(at + wait);
            // Who waits in a queue asks again, and may wait for what is left.
            let max_wait = ask.max_wait.saturating_sub(record.ended - record.asked);
            let may_queue = self.holds_at_once() && !ask.max_wait.is_zero();
            // A refusal that bans is told when the block is there.
            let by_ban = self.plan.stack.ban.map_or(Duration::ZERO, |_| TIMEOUT);
            let told = if may_queue { record.ended.saturating_sub(by_ban) } else { record.asked };
            let is_over = told + left > fits_at || left <= max_wait;
            let is_less = refusal.keep_free <= kept_free(ask);
            refusal.cost <= ask.cost.cast_signed() && is_less && !is_over
        };
        // Of limiters that are asked in turn, the longest wait is told.
        self.asks_in_turn()
            || self.refusals_of(record).any(|one| one.wait.is_some_and(|wait| is_its(one, wait)))
    }

    /// Returns why a refusal of the instant `refused` should have been forgotten.
    fn outlived(&self, record: &Record, refused: Duration) -> Option<&'static str> {
        let now = record.asked;
        // Limiters that are asked in turn say when one of them decided.
        if now >= refused + MAX_AGE && !self.asks_in_turn() {
            return Some("is too old");
        }
        let outlives = |change: Change| {
            let is_soon_after = refused > change.at && refused < change.at + SETTLING_TIME;
            let is_lost_from = change.lost_since.is_some_and(|asked| refused >= asked);
            match change.lost_since {
                Some(_) if refused <= change.at => is_lost_from && now > change.at + SETTLING_AGE,
                None if refused < change.at => now > change.done_by,
                _ => change.is_settling && is_soon_after && now > refused + SETTLING_AGE,
            }
        };
        let mut changes = self.changes_before(record);
        changes.any(outlives).then_some("was repeated after a change")
    }

    /// Returns what this process did to the key before it was asked.
    fn changes_before<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = Change> + 'a {
        let own = self.ask(record);
        let is_own = move |other: &&Record| {
            let ask = self.ask(other);
            ask.process == own.process && ask.key == own.key
        };
        let changes = self.records.iter().filter(is_own).filter_map(|other| {
            let ask = self.ask(other);
            let is_charge = matches!(ask.way, Way::Acquire | Way::Layer);
            let operates = {
                use Way::{Block, Grant, Pause, Penalize, Reset, Unblock};
                matches!(ask.way, Penalize | Grant | Reset | Block | Pause | Unblock)
            };
            // A hold of units at once frees them, however many were used.
            let frees = self.holds_at_once();
            let (at, lost_since, is_settling) = match other.fate {
                // A breaker answers before the cache is asked.
                Fate::Failed(_) if self.plan.stack.has_breaker => return None,
                Fate::Left if self.may_be_open(other) => return None,
                // Between two questions of one that waits in a queue, none is open.
                Fate::Left if frees && !ask.max_wait.is_zero() => return None,
                // A guard that is renewed settles when the answer is there.
                Fate::Admitted { settled: Some(_), .. } if other.guarded_at.is_some() => {
                    let (dropped, now) = (other.settled_at?, record.asked);
                    let is_late = self.is_disturbed(dropped, now) || self.was_frozen(dropped, now);
                    (if is_late { now } else { dropped }, None, true)
                }
                Fate::Admitted { settled: Some(actual), .. } if actual != ask.cost || frees => {
                    (other.settled_at?, None, true)
                }
                Fate::Done if operates => (other.ended, None, false),
                Fate::Left | Fate::Failed(_) if operates => (other.ended, None, true),
                Fate::Left | Fate::Failed(_) if is_charge => {
                    // Its last question may have been asked at any time.
                    let may_queue = frees && !ask.max_wait.is_zero();
                    let asked = if may_queue { other.ended } else { other.asked };
                    (other.ended, Some(asked), true)
                }
                _ => return None,
            };
            let by_guard = if other.guarded_at.is_some() { MIN_TIMEOUT } else { Duration::ZERO };
            Some(Change { at, done_by: at + by_guard, lost_since, is_settling })
        });
        changes.filter(|change| change.at < record.asked)
    }
}
