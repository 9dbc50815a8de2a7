//! Judges what went over, and why.
//!
//! Units that go over are compared with the acknowledged writes that a promoted replica never had.
//! The bucket and the counter of a key are written together, so the counter tells how many are
//! lost.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::sleep;
use tower_sluice::{LimiterExt, Pool};

use crate::worker::{Answer, BURST, KEYS, Kind, RATE, counter, key};
use support::faults::{LONG, MILLION};

/// Units.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Beyond what the buckets admit, and not explained by lost writes.
    over: u64,
    over_by_lost_writes: u64,
    lost_writes: u64,
    /// Counted for charges that were not made.
    twice: u64,
}

impl Judged {
    pub(crate) fn assert_well(&self) {
        assert_eq!((self.over, self.twice), (0, 0));
    }

    /// For servers that keep what they have answered.
    pub(crate) fn assert_none_lost(&self) {
        assert_eq!(self.lost_writes, 0);
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over, over_by_lost_writes, lost_writes, twice } = self;
        write!(
            f,
            "over={over} over_by_lost_writes={over_by_lost_writes} lost_writes={lost_writes} \
             twice={twice}"
        )
    }
}

/// Compares the answers with what the servers at `url` have counted.
pub(crate) async fn judge(answers: &[Answer], url: &str) -> Judged {
    // Late charges are decided before the counters are read.
    sleep(Duration::from_secs(2)).await;
    let limiter = counter(Pool::connect(url).expect("an address")).decision_timeout(LONG);
    let mut judged = Judged::default();
    for number in 0..KEYS {
        let of_key: Vec<_> = answers.iter().filter(|answer| answer.key == number).collect();
        let mut admitted: Vec<_> = of_key
            .iter()
            .filter_map(|answer| match answer.kind {
                Kind::Admitted(decided) => Some(decided),
                _ => None,
            })
            .collect();
        admitted.sort_unstable();
        let failed = of_key.iter().filter(|answer| is_error(answer)).count() as u64;
        let left = limiter.peek(key(number)).await.expect("a decision").remaining();
        let kept = MILLION * MILLION - left.expect("known");
        let lost = (admitted.len() as u64).saturating_sub(kept);
        let over = excess(&admitted);
        judged.lost_writes += lost;
        judged.over += over.saturating_sub(lost);
        judged.over_by_lost_writes += over.min(lost);
        // A charge that failed may have been counted, and no charge twice.
        judged.twice += kept.saturating_sub(admitted.len() as u64 + failed);
    }
    judged
}

pub(crate) fn is_error(answer: &Answer) -> bool {
    !matches!(answer.kind, Kind::Admitted(_) | Kind::Refused)
}

/// The units beyond what the bucket admits, by the instants of the decisions.
fn excess(admitted: &[u64]) -> u64 {
    let unit = 1_000_000 / RATE;
    let (mut full_at, mut over) = (0, 0);
    for instant in admitted {
        let next = full_at.max(*instant) + unit;
        if next > instant + BURST * unit {
            over += 1;
        } else {
            full_at = next;
        }
    }
    over
}

/// The errors by their kind.
pub(crate) fn kinds(answers: &[Answer]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for answer in answers.iter().filter(|answer| is_error(answer)) {
        *kinds.entry(format!("{:?}", answer.kind)).or_default() += 1;
    }
    kinds
}

/// The longest time without a decision.
pub(crate) fn longest_gap_ms(answers: &[Answer]) -> u64 {
    let decided = answers.iter().filter(|answer| !is_error(answer));
    let mut instants: Vec<_> = decided.map(|answer| answer.at).collect();
    instants.sort_unstable();
    instants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) / 1_000
}
