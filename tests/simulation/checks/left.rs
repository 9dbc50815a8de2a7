//! A master that was replaced is left, even if a redirect named it before: a process that knows
//! that it is away dials it no more.

use std::time::Duration;

use super::{Seen, since_begin};
use crate::book::{Book, Naming};
use crate::network::Dial;
use crate::plan::Plan;
use crate::servers::{Strike, StrikeKind};

/// An answer arrives, and what it means is done, within this time.
const SETTLED: Duration = Duration::from_millis(20);

/// A call that a redirect sent may name its server for so long.
const LATE: Duration = Duration::from_millis(300);

/// The pool is built with these addresses, which it asks again if all others are slow.
const SEEDS: [&str; 2] = ["redis", "redis-2"];

/// An answer that names masters, and the process that has read it.
#[derive(Clone, Debug)]
pub struct ReadNaming {
    client: usize,
    read_at: Duration,
    naming: Naming,
}

/// The answers that processes have read. Each book is that of the host at its place.
pub fn read_namings<T>(hosts: &[(String, T)], books: &[&Book], dials: &[Dial]) -> Vec<ReadNaming> {
    let of_host = |((host, _), book): (&(String, T), &&Book)| {
        let read = |naming: &Naming| {
            let is_own = |dial: &&Dial| dial.host == *host && dial.session == Some(naming.session);
            let client = dials.iter().find(is_own)?.client;
            let read_at = since_begin(book.read_at(naming.session, naming.came_at)?);
            Some(ReadNaming { client, read_at, naming: naming.clone() })
        };
        book.namings().iter().filter_map(read).collect::<Vec<_>>()
    };
    hosts.iter().zip(books).flat_map(of_host).collect()
}

/// True if every answer comes at once, or never. Of two nodes that are asked for the map, the one
/// that is late has no say.
fn is_prompt(plan: &Plan) -> bool {
    let is_late = |strike: &Strike| match strike.kind {
        StrikeKind::Stand | StrikeKind::Silence => true,
        StrikeKind::NodeFailover => !strike.dies(),
        _ => false,
    };
    let odds = plan.odds;
    (odds.stall, odds.silence, odds.half_open) == (0, 0, 0)
        && plan.freezes.is_empty()
        && !plan.strikes.iter().any(|(_, strike)| is_late(strike))
}

impl Seen<'_> {
    /// No process dials a host that it knows to be away and without slots.
    pub(super) fn left(&self) -> Option<String> {
        if !is_prompt(self.plan) {
            return None;
        }
        let ended = self.dials.iter().filter_map(|dial| Some((dial, dial.found_ended?)));
        for (dial, ended) in ended.filter(|(dial, _)| !SEEDS.contains(&dial.host.as_str())) {
            let own = || {
                let is_own = |one: &&Dial| one.client == dial.client && one.host == dial.host;
                self.dials.iter().filter(is_own)
            };
            let read = || self.namings.iter().filter(|one| one.client == dial.client);
            let names = |one: &ReadNaming| one.naming.hosts.contains(&dial.host);
            let maps = read().filter(|one| one.naming.is_map && one.read_at > ended + SETTLED);
            for at in maps.filter(|one| !names(one)).map(|one| one.read_at) {
                let Some(next) = own().find(|one| one.at > at + SETTLED) else { continue };
                let was_named = read().any(|one| {
                    let late = if one.naming.is_map { SETTLED } else { LATE };
                    names(one) && one.read_at + late > at && one.read_at <= next.at
                });
                // Another dial may have found it well, or may not know yet.
                let is_away = own()
                    .filter(|one| one.at + LATE > dial.at && one.at <= at)
                    .all(|one| one.found_ended.is_some());
                if is_away && !was_named {
                    return Some(format!("{dial:?}, a map without it at {at:?}, and {next:?}"));
                }
            }
        }
        None
    }
}
