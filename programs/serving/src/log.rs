//! Lines on stderr. What callers can cause as often as they like is at most one line a second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::port::now;
use crate::program;

/// The lines about one kind of event.
pub struct Log {
    /// The instant from which on the next line may be written, in milliseconds.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Log {
    /// No line yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a static needs a constant")]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Writes a line, or counts it where one was written within the last second.
    pub fn say(&self, line: impl FnOnce() -> String) {
        if let Some(line) = self.line(now(), line) {
            eprintln!("{}: {line}", program());
        }
    }

    fn line(&self, now: u64, line: impl FnOnce() -> String) -> Option<String> {
        let next = self.next.load(Relaxed);
        let wins =
            now >= next && self.next.compare_exchange(next, now + 1_000, Relaxed, Relaxed).is_ok();
        if !wins {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        Some(match self.left_out.swap(0, Relaxed) {
            0 => line(),
            more => format!("{} ({more} such lines left out)", line()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_is_written_and_the_others_are_counted() {
        let log = Log::new();
        let line = |now| log.line(now, || "full".to_owned());
        assert_eq!(line(0).as_deref(), Some("full"));
        assert_eq!((line(1), line(999)), (None, None));
        assert_eq!(line(1_000).as_deref(), Some("full (2 such lines left out)"));
        assert_eq!(line(2_000).as_deref(), Some("full"));
    }
}
