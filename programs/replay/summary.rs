//! The summary of all lines, on standard error.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::StdinLock;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::traffic::{Told, Verdict};

/// The number of keys that the summary names.
const NAMED: usize = 5;

#[derive(Default)]
pub(crate) struct Summary {
    keys: HashMap<Arc<str>, Counts>,
    waits: Vec<u64>,
    errors: u64,
    refunds: u64,
    refunded: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    at_once: u64,
    delayed: u64,
    refused: u64,
    never: u64,
}

impl Counts {
    fn charges(&self) -> u64 {
        self.at_once + self.delayed + self.refused
    }
}

impl Summary {
    /// The key, stored once.
    pub(crate) fn name(&mut self, key: &str) -> Arc<str> {
        if let Some((held, _)) = self.keys.get_key_value(key) {
            return Arc::clone(held);
        }
        let key: Arc<str> = key.into();
        self.keys.insert(Arc::clone(&key), Counts::default());
        key
    }

    /// Counts a charge.
    pub(crate) fn count(&mut self, key: &str, told: &Told) {
        let Some(counts) = self.keys.get_mut(key) else { return };
        match told.verdict {
            Verdict::Allow => counts.at_once += 1,
            Verdict::Wait => {
                counts.delayed += 1;
                self.waits.extend(told.wait_us);
            }
            Verdict::Deny => counts.refused += 1,
            Verdict::Never => {
                counts.refused += 1;
                counts.never += 1;
            }
            Verdict::Error => self.errors += 1,
            Verdict::Done | Verdict::Settled => {}
        }
    }

    pub(crate) fn count_refund(&mut self, told: &Told) {
        self.refunds += 1;
        self.refunded += told.refunded.or(told.given_back).unwrap_or(0);
    }

    pub(crate) fn print(mut self) {
        let mut all = Counts::default();
        for counts in self.keys.values() {
            all.at_once += counts.at_once;
            all.delayed += counts.delayed;
            all.refused += counts.refused;
            all.never += counts.never;
        }
        let share = |count: u64| 100.0 * count as f64 / all.charges().max(1) as f64;
        let row = |name: &str, count: u64, more: &str| {
            let line = format!("{name:<17} {count:>12} {:>6.1} %  {more}", share(count));
            eprintln!("{}", line.trim_end());
        };
        eprintln!("{:<17} {:>12}           to {} keys", "charges", all.charges(), self.keys.len());
        row("admitted at once", all.at_once, "");
        self.waits.sort_unstable();
        let at = |share: f64| {
            let place = (self.waits.len() as f64 * share).ceil() as usize;
            self.waits
                .get(place.saturating_sub(1))
                .map_or(Duration::ZERO, |wait| Duration::from_micros(*wait))
        };
        let waits =
            format!("p50 {}, p99 {}, longest {}", shown(at(0.5)), shown(at(0.99)), shown(at(1.0)));
        row("delayed", all.delayed, if all.delayed > 0 { &waits } else { "" });
        let never = format!("{} of them could never fit", all.never);
        row("refused", all.refused, if all.never > 0 { &never } else { "" });
        if self.refunds > 0 {
            eprintln!(
                "{:<17} {:>12}           {} units came back",
                "refunds", self.refunds, self.refunded
            );
        }
        if self.errors > 0 {
            eprintln!("{:<17} {:>12}", "errors", self.errors);
        }

        let mut keys: Vec<_> = self.keys.into_iter().collect();
        print_keys("busiest keys", &mut keys, Counts::charges);
        keys.retain(|(_, counts)| counts.refused > 0);
        print_keys("most refused keys", &mut keys, |counts| counts.refused);
    }
}

fn print_keys(title: &str, keys: &mut [(Arc<str>, Counts)], rank: fn(&Counts) -> u64) {
    if keys.is_empty() {
        return;
    }
    keys.sort_by(|one, other| {
        (Reverse(rank(&one.1)), &one.0).cmp(&(Reverse(rank(&other.1)), &other.0))
    });
    eprintln!("\n{title:<40} {:>12} {:>12} {:>12}", "at once", "delayed", "refused");
    for (key, counts) in keys.iter().take(NAMED) {
        let key: String = key.escape_debug().take(38).collect();
        eprintln!(
            "  {key:<38} {:>12} {:>12} {:>12}",
            counts.at_once, counts.delayed, counts.refused
        );
    }
}

/// A wait, to a thousandth of a second or better.
fn shown(wait: Duration) -> String {
    let micros =
        if wait.as_millis() > 100 { wait.as_micros() / 1_000 * 1_000 } else { wait.as_micros() };
    humantime::format_duration(Duration::from_micros(micros as u64)).to_string()
}

/// A progress bar if standard error is a terminal. It has an end if the traffic comes from a file.
pub(crate) fn progress(input: &StdinLock<'_>) -> ProgressBar {
    let file = input.as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    match file {
        Ok(data) if data.is_file() => {
            let style = "{wide_bar} {bytes} of {total_bytes}, {eta} left";
            ProgressBar::new(data.len())
                .with_style(ProgressStyle::with_template(style).expect("a template"))
        }
        _ => {
            let style = "{spinner} {bytes}, {bytes_per_sec}";
            ProgressBar::new_spinner()
                .with_style(ProgressStyle::with_template(style).expect("a template"))
        }
    }
}
