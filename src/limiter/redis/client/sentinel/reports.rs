//! Chooses the primary by the reports of several sentinels. Some may be dead, late or wrong.
//!
//! Sentinels number each switch: the epoch. At the start, the server with the most votes wins.
//! Later, the pool follows a report with a higher epoch at once, even if only one sentinel has it.
//! The others hear of it within two seconds. A sentinel that still disagrees after five seconds
//! loses to the majority.

use tokio::time::Instant;

use super::super::address::Host;
use super::super::error::{before_asking, weight};
use super::super::times::{AGREED_AFTER, REFUTED_FOR};
use crate::{Error, ErrorKind};

/// The last report of one sentinel.
#[derive(Clone, Debug)]
pub(super) enum Report {
    /// No report yet.
    Missing,
    /// The error why the sentinel gave no answer.
    Unreachable(Error),
    /// An answer of a sentinel that does not know the service.
    UnknownService,
    /// The address of the primary, and the epoch of its configuration.
    Primary { host: Host, epoch: u64 },
}

/// The reports of all sentinels.
#[derive(Debug)]
pub(super) struct Reports {
    all: Vec<Entry>,
    /// The primary that the pool last connected to, and its epoch.
    followed: Option<(Host, u64)>,
    /// A server that is not a primary, its epoch then, and the instant until which it is left out.
    refuted: Option<(Host, u64, Instant)>,
}

#[derive(Debug)]
struct Entry {
    report: Report,
    /// The primary that the sentinel named last, and the epoch; kept while the sentinel is away.
    claim: Option<(Host, u64)>,
    /// The instant at which the sentinel began to name it.
    since: Instant,
    /// True if the sentinel named another server when the pool first connected to the primary.
    is_outvoted: bool,
}

/// A server that some sentinels name.
struct Candidate<'a> {
    host: &'a Host,
    epoch: u64,
    votes: usize,
    /// True if all of them have named it for [`AGREED_AFTER`].
    is_old: bool,
    is_outvoted: bool,
}

impl Reports {
    pub(super) fn new(sentinels: usize, now: Instant) -> Self {
        let entry =
            |_| Entry { report: Report::Missing, claim: None, since: now, is_outvoted: false };
        Self { all: (0..sentinels).map(entry).collect(), followed: None, refuted: None }
    }

    pub(super) fn record(&mut self, sentinel: usize, report: Report, now: Instant) {
        let entry = &mut self.all[sentinel];
        if let Report::Primary { host, epoch } = &report {
            let claim = Some((host.clone(), *epoch));
            if entry.claim != claim {
                (entry.claim, entry.since, entry.is_outvoted) = (claim, now, false);
            }
        }
        entry.report = report;
    }

    /// Returns whether the reports suffice for the first choice: more than half of the sentinels
    /// agree, or all have reported.
    pub(super) fn are_complete(&self) -> bool {
        let is_missing = |entry: &Entry| matches!(entry.report, Report::Missing);
        let now = Instant::now();
        let most = self.candidates(now).iter().map(|candidate| candidate.votes).max();
        most.is_some_and(|votes| 2 * votes > self.all.len()) || !self.all.iter().any(is_missing)
    }

    /// Returns whether all sentinels have reported, and no one names a primary.
    pub(super) fn name_none(&self) -> bool {
        let names_none =
            |entry: &Entry| matches!(entry.report, Report::Unreachable(_) | Report::UnknownService);
        self.all.iter().all(names_none)
    }

    /// Chooses the primary. `None`: it does not change.
    pub(super) fn choose(&self, now: Instant) -> Option<Host> {
        let mut candidates = self.candidates(now);
        // If sentinels name no other server, it stays: it says itself whether it is the primary.
        let is_refuted = |candidate: &Candidate<'_>| self.is_refuted(candidate.host, now);
        if !candidates.iter().all(is_refuted) {
            candidates.retain(|candidate| !is_refuted(candidate));
        }
        let Some((followed, followed_epoch)) = &self.followed else {
            let best = candidates.iter().max_by_key(|candidate| (candidate.votes, candidate.epoch));
            return best.map(|candidate| candidate.host.clone());
        };
        let reporting: usize = candidates.iter().map(|candidate| candidate.votes).sum();
        let is_followed_still = candidates
            .iter()
            .any(|one| one.host == followed && (2 * one.votes > reporting || !one.is_old));
        candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.epoch, candidate.votes)));
        let is_acceptable = |candidate: &&Candidate<'_>| match candidate.epoch > *followed_epoch {
            _ if candidate.host == followed => is_followed_still,
            true if candidate.is_outvoted => false,
            true => 2 * candidate.votes > reporting || !candidate.is_old,
            false => 2 * candidate.votes > self.all.len() && !is_followed_still,
        };
        candidates.iter().find(is_acceptable).map(|candidate| candidate.host.clone())
    }

    /// Records that a connection to the primary at `host` was made.
    pub(super) fn follow(&mut self, host: &Host) {
        let epoch = self.epoch_of(host);
        if let Some((followed, known)) = &mut self.followed
            && followed == host
        {
            *known = epoch.unwrap_or(*known);
            return;
        }
        self.followed = Some((host.clone(), epoch.unwrap_or(0)));
        for entry in &mut self.all {
            entry.is_outvoted =
                matches!(&entry.report, Report::Primary { host: other, .. } if other != host);
        }
    }

    /// Records that the server at `host` is not a primary.
    pub(super) fn refute(&mut self, host: &Host, now: Instant) {
        // Sentinels may name another server by now. A switch after that one may make this server
        // the primary again.
        let epoch_of_other = || self.candidates(now).iter().map(|other| other.epoch).max();
        let epoch = self.epoch_of(host).or_else(epoch_of_other).unwrap_or(0);
        self.refuted = Some((host.clone(), epoch, now + REFUTED_FOR));
    }

    /// Returns whether sentinels still disagree about `host` after [`AGREED_AFTER`].
    pub(super) fn is_contested(&self, host: &Host, now: Instant) -> bool {
        let candidates = self.candidates(now);
        candidates.iter().any(|one| one.host != host)
            && candidates.iter().any(|one| one.host == host && one.is_old)
    }

    /// The error that says why there is no primary.
    pub(super) fn error(&self, service_name: &str) -> Error {
        let reports = || self.all.iter().map(|entry| &entry.report);
        if reports().any(|report| matches!(report, Report::UnknownService)) {
            let message = format!("the sentinels know no service called {service_name:?}");
            return Error::new(ErrorKind::Configuration, message);
        }
        let errors = reports().filter_map(|report| match report {
            Report::Unreachable(error) => Some(error),
            _ => None,
        });
        match errors.max_by_key(|error| weight(error)) {
            Some(cause) => {
                before_asking("no sentinel says which server is the primary", cause.clone())
            }
            None => Error::new(ErrorKind::Infrastructure, "no sentinel has answered in time"),
        }
    }

    fn candidates(&self, now: Instant) -> Vec<Candidate<'_>> {
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for entry in &self.all {
            let Report::Primary { host, epoch } = &entry.report else { continue };
            let (is_old, is_outvoted) = (entry.since + AGREED_AFTER <= now, entry.is_outvoted);
            match candidates.iter_mut().find(|candidate| candidate.host == host) {
                Some(known) => {
                    known.epoch = known.epoch.max(*epoch);
                    known.votes += 1;
                    known.is_old &= is_old;
                    known.is_outvoted &= is_outvoted;
                }
                None => candidates.push(Candidate {
                    host,
                    epoch: *epoch,
                    votes: 1,
                    is_old,
                    is_outvoted,
                }),
            }
        }
        candidates
    }

    fn epoch_of(&self, host: &Host) -> Option<u64> {
        let candidates = self.candidates(Instant::now());
        candidates.iter().find(|candidate| candidate.host == host).map(|one| one.epoch)
    }

    /// Returns whether the server at `host` is left out. A later switch ends that: it may have made
    /// the server the primary.
    fn is_refuted(&self, host: &Host, now: Instant) -> bool {
        self.refuted.as_ref().is_some_and(|(refuted, epoch, until)| {
            refuted == host && *until > now && self.epoch_of(host).is_none_or(|now| now <= *epoch)
        })
    }
}

#[cfg(test)]
mod tests;
