//! The judge of a trace with leases: units are spent at most the validity after they were leased.
//! By the instants of the leases nothing goes over. So a window of length `T` holds at most what
//! the limiter admits in a window of length `T + validity`.
//!
//! A leased unit is decided when it is leased, so its decision says nothing about the order among
//! those of other callers. Instead of the model's verdicts, this judge checks the bound of every
//! window.

use std::fmt;
use std::ops::AddAssign;

use super::algorithms::{Algorithm, VALIDITY};
use super::judge::Distance;
use super::model::Grant;
use super::trace::{Event, Row, by_key};
use super::workload::Workload;

/// All that this judge found.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseFindings {
    /// Admissions that break the bound of a window.
    pub over: usize,
    /// Admissions of units that were leased too long before, or only after the answer.
    pub late: usize,
    /// Admissions of units that were leased before they were asked for.
    pub of_leases: usize,
    pub admitted: usize,
    pub denied: usize,
    /// Calls without an answer.
    pub lost: usize,
    pub errors: usize,
}

impl LeaseFindings {
    /// Something that no way to the server excuses.
    pub fn is_wrong(&self) -> bool {
        self.over + self.late + self.errors > 0
    }
}

impl AddAssign for LeaseFindings {
    fn add_assign(&mut self, more: Self) {
        self.over += more.over;
        self.late += more.late;
        self.of_leases += more.of_leases;
        self.admitted += more.admitted;
        self.denied += more.denied;
        self.lost += more.lost;
        self.errors += more.errors;
    }
}

impl fmt::Display for LeaseFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over, late, of_leases, admitted, denied, lost, errors } = self;
        write!(
            f,
            "over={over} late={late} admitted={admitted} of_leases={of_leases} denied={denied} \
             lost={lost} errors={errors}"
        )
    }
}

/// While a limiter warms up, nothing is left that could be leased.
pub fn may_lease(algorithm: &Algorithm) -> bool {
    !algorithm.name.starts_with("smooth_warming_up")
}

/// Judges a trace of [`Workload::Leased`].
pub fn judge_leases(algorithm: &Algorithm, rows: &[Row], distance: Distance) -> LeaseFindings {
    let mut findings = LeaseFindings::default();
    for rows in by_key(rows).into_values() {
        judge(algorithm, rows, distance, &mut findings);
    }
    findings
}

fn judge(
    algorithm: &Algorithm,
    mut rows: Vec<Row>,
    distance: Distance,
    findings: &mut LeaseFindings,
) {
    let validity = i128::try_from(VALIDITY.as_nanos()).expect("nanoseconds");
    let ahead = distance.most_ahead(&rows);
    let (mut grants, mut leased): (Vec<Grant>, _) = (Vec::new(), None);
    // Those of one instant in the order in which they were decided.
    rows.sort_by_key(|row| (row.now, row.place));
    for row in rows {
        match row.event {
            Event::Allowed | Event::Waited => {}
            Event::Denied | Event::Never => {
                findings.denied += 1;
                continue;
            }
            Event::Lost => {
                findings.lost += 1;
                continue;
            }
            _ => {
                findings.errors += 1;
                continue;
            }
        }
        findings.admitted += 1;
        // The decision states its instant in whole microseconds. This is the same instant in ns,
        // by our clock, or later.
        let decided = i128::from(row.now) * 1_000 + ahead;
        let [sent, received] = [row.sent, row.received].map(i128::from);
        findings.of_leases += usize::from(decided + 999 < sent);
        // It was not spent before it was asked for.
        let in_time = sent <= decided + validity + 999;
        findings.late += usize::from(!in_time || decided > received);
        // The units of a lease are one charge, and Guava's limiters admit one before they have
        // stored all of it.
        let at = i128::from(row.now + row.wait);
        match leased.replace((row.now, row.place)) == Some((row.now, row.place)) {
            true => grants.last_mut().expect("the units before").1 += i128::from(row.cost),
            false => grants.push((at, row.cost.into())),
        }
    }
    grants.retain(|grant| grant.1 > 0);
    grants.sort_by_key(|grant| grant.0);
    let quota = Workload::Leased.quota(algorithm.quota);
    findings.over += (algorithm.model)(quota).excess(&grants);
}
