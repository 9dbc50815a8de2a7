//! Chooses the primary from the reports of several sentinels, some of which may be dead, late or
//! wrong.
//!
//! Sentinels number each switch: the epoch. At the start, the server with the most votes wins.
//! Later, the pool follows a switch that is newer than all earlier ones as soon as two sentinels
//! report it: after a switch, the others learn of it at once. One sentinel is enough if no other
//! one names a primary. A server with an older epoch needs more than half of all sentinels, for
//! example after they were set up again. So one wrong sentinel moves nothing while two others
//! answer.

use super::super::address::Host;
use super::super::error::{Error, ErrorKind};
use super::super::error_reply::{before_asking, weight};

/// The last report of one sentinel.
#[derive(Clone, Debug)]
pub(super) enum SentinelReport {
    /// No report yet.
    Missing,
    /// The reason why the sentinel gave no answer.
    Unreachable(Error),
    /// An answer of a sentinel that does not know the service.
    UnknownService,
    /// The address of the primary, and the epoch of its configuration.
    Primary { host: Host, epoch: u64 },
}

/// The last reports of all sentinels.
#[derive(Debug)]
pub(super) struct Reports {
    all: Vec<SentinelReport>,
    /// The primary that the pool follows, and the newest epoch when it first connected to it.
    followed: Option<(Host, u64)>,
    /// The last server that was not a primary, and its epoch then.
    refuted: Option<(Host, u64)>,
}

/// A server that some sentinels name.
struct PrimaryCandidate<'a> {
    host: &'a Host,
    epoch: u64,
    votes: usize,
}

impl Reports {
    pub(super) fn new(sentinels: usize) -> Self {
        Self { all: vec![SentinelReport::Missing; sentinels], followed: None, refuted: None }
    }

    pub(super) fn record(&mut self, sentinel: usize, report: SentinelReport) {
        self.all[sentinel] = report;
    }

    /// Returns true if the reports suffice for the first choice: more than half of the sentinels
    /// agree, or all have reported.
    pub(super) fn are_complete(&self) -> bool {
        let is_missing = |report: &SentinelReport| matches!(report, SentinelReport::Missing);
        self.candidates().iter().any(|one| self.has_majority(one))
            || !self.all.iter().any(is_missing)
    }

    /// Returns true if all sentinels have reported, and none names a primary.
    pub(super) fn name_none(&self) -> bool {
        let names_none = |report: &SentinelReport| {
            matches!(report, SentinelReport::Unreachable(_) | SentinelReport::UnknownService)
        };
        self.all.iter().all(names_none)
    }

    /// Chooses the primary. `None`: it does not change.
    pub(super) fn choose(&self) -> Option<Host> {
        let candidates = self.candidates();
        let is_refuted = |one: &PrimaryCandidate<'_>| self.is_refuted(one.host);
        let best = match &self.followed {
            None => candidates.iter().max_by_key(|one| (!is_refuted(one), one.votes, one.epoch)),
            Some((followed, epoch)) => {
                // A server that said that it is not a primary has no say.
                let is_alone = |one: &PrimaryCandidate<'_>| {
                    candidates.iter().all(|other| other.host == one.host || is_refuted(other))
                };
                let has_support = |one: &PrimaryCandidate<'_>| one.votes > 1 || is_alone(one);
                let is_newer = |one: &PrimaryCandidate<'_>| {
                    one.epoch > *epoch && !is_refuted(one) && has_support(one)
                };
                let is_followed = |one: &PrimaryCandidate<'_>| one.host == followed;
                let may_follow = |one: &&PrimaryCandidate<'_>| {
                    is_newer(one) || is_followed(one) || self.has_majority(one)
                };
                candidates.iter().filter(may_follow).max_by_key(|one| {
                    let stays = is_followed(one) && has_support(one);
                    (is_newer(one), !is_refuted(one), stays, self.has_majority(one), one.epoch)
                })
            }
        };
        best.map(|candidate| candidate.host.clone())
    }

    fn has_majority(&self, candidate: &PrimaryCandidate<'_>) -> bool {
        2 * candidate.votes > self.all.len()
    }

    /// Records that a connection to the primary at `host` was made.
    pub(super) fn follow(&mut self, host: &Host) {
        if self.followed.as_ref().is_none_or(|(followed, _)| followed != host) {
            self.followed = Some((host.clone(), self.newest_epoch()));
        }
    }

    /// Records that the server at `host` is not a primary.
    pub(super) fn refute(&mut self, host: &Host) {
        // Sentinels may now name another server. A later switch may make this server the primary
        // again.
        let epoch = self.epoch_of(host).unwrap_or_else(|| self.newest_epoch());
        self.refuted = Some((host.clone(), epoch));
    }

    /// Returns the error that says why there is no primary.
    pub(super) fn error(&self, service_name: &str) -> Error {
        if self.all.iter().any(|report| matches!(report, SentinelReport::UnknownService)) {
            let message = format!("the sentinels know no service called {service_name:?}");
            return Error::new(ErrorKind::Configuration, message);
        }
        let errors = self.all.iter().filter_map(|report| match report {
            SentinelReport::Unreachable(error) => Some(error),
            _ => None,
        });
        match errors.max_by_key(|error| weight(error)) {
            Some(cause) => {
                before_asking("no sentinel says which server is the primary", cause.clone())
            }
            None => Error::new(ErrorKind::Infrastructure, "no sentinel has answered in time"),
        }
    }

    fn candidates(&self) -> Vec<PrimaryCandidate<'_>> {
        let mut candidates: Vec<PrimaryCandidate<'_>> = Vec::new();
        for report in &self.all {
            let SentinelReport::Primary { host, epoch } = report else { continue };
            match candidates.iter_mut().find(|candidate| candidate.host == host) {
                Some(known) => {
                    known.epoch = known.epoch.max(*epoch);
                    known.votes += 1;
                }
                None => candidates.push(PrimaryCandidate { host, epoch: *epoch, votes: 1 }),
            }
        }
        candidates
    }

    fn newest_epoch(&self) -> u64 {
        self.candidates().iter().map(|candidate| candidate.epoch).max().unwrap_or(0)
    }

    fn epoch_of(&self, host: &Host) -> Option<u64> {
        let candidates = self.candidates();
        candidates.iter().find(|candidate| candidate.host == host).map(|one| one.epoch)
    }

    /// Returns true if the server at `host` is left out. A later switch ends that, since it may
    /// have made the server the primary.
    fn is_refuted(&self, host: &Host) -> bool {
        let refuted = self.refuted.as_ref().filter(|(refuted, _)| refuted == host);
        refuted.is_some_and(|(_, epoch)| self.epoch_of(host).is_none_or(|now| now <= *epoch))
    }
}

#[cfg(test)]
mod tests;
