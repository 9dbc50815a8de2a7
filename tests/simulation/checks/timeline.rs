//! All that happened in a world, in the order of time.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Seen, since_begin};
use crate::plan::Ask;

/// All that happened, in order.
pub fn timeline(seen: &Seen<'_>) -> String {
    let mut lines: Vec<(Duration, String)> = Vec::new();
    for record in seen.records {
        let Ask { process, key, cost, max_wait, way, .. } = seen.ask(record);
        let number = record.ask;
        let waits = match max_wait.is_zero() {
            true => String::new(),
            false => format!(", may wait {max_wait:?}"),
        };
        let asks = format!("caller {number} of process {process}: {way:?} {cost} of {key}{waits}");
        lines.push((record.asked, asks));
        lines.push((record.ended, format!("caller {number}: {:?}", record.fate)));
    }
    for one in &seen.account.bookings {
        let key: Vec<_> =
            one.keys.iter().map(|(limiter, key)| format!("{limiter}/{key}")).collect();
        let (wait, left) = (one.at - one.now, one.taken);
        let renewals = one.renewals();
        lines.push((
            since_begin(one.now),
            format!(
                "server {}: {} of {}, due in {wait} us; renewed {renewals} times; {left} of them are \
                 left at the end",
                one.server,
                one.cost,
                key.join(" and ")
            ),
        ));
    }
    for one in seen.disturbances {
        lines.push((one.from, format!("network: {:?} until {:?}", one.fault, one.until)));
    }
    for (from, until, kind) in seen.strikes {
        lines.push((*from, format!("strike: {kind:?} until {until:?}")));
    }
    for (from, until) in seen.freezes {
        lines.push((*from, format!("all processes stand still until {until:?}")));
    }
    lines.sort();
    lines.iter().fold(String::new(), |mut text, (at, line)| {
        let _ = writeln!(text, "{:>12.6} s  {line}", at.as_secs_f64());
        text
    })
}
