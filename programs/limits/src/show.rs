//! Prints tables and JSON.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::time::Duration;

use tower_sluice_policies::serde_json::{Value, json};

use crate::read::{Clock, Row};
use crate::rights::Stop;
use crate::scan::Found;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    pub(crate) json: bool,
}

/// What `watch` printed last.
pub(crate) type Last = Option<String>;

impl Show {
    fn line(self, text: &str) -> Result<(), Stop> {
        let mut out = stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|_| Stop::Unread)
    }

    /// Clears the screen.
    pub(crate) fn clear(self) -> Result<(), Stop> {
        write!(stdout(), "\x1b[H\x1b[2J").map_err(|_| Stop::Unread)
    }

    /// The first line of `top`.
    pub(crate) fn head(self, clock: &Clock, read: usize, took: Duration) -> Result<(), Stop> {
        if self.json {
            return Ok(());
        }
        let time = clock_time(clock.now);
        self.line(&format!("{time} UTC, {read} keys read in {} ms", took.as_millis()))
    }

    /// A table. Columns of numbers are on the right.
    fn table(self, heads: &[&str], rows: &[Vec<String>]) -> Result<(), Stop> {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heads[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..heads.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&widths).zip(heads).map(|((cell, width), head)| {
                match matches!(*head, "KEYS" | "LEFT" | "OF") {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.line(&line(heads.to_vec()))?;
        rows.iter().try_for_each(|row| self.line(&line(row.iter().map(String::as_str).collect())))
    }

    /// What `ls` says of all limiters.
    pub(crate) fn limiters(
        self,
        counts: &BTreeMap<(&str, &str, Option<usize>), u64>,
        found: &Found,
    ) -> Result<(), Stop> {
        if self.json {
            let each = counts.iter().map(|((limiter, algorithm, quota), keys)| {
                json!({ "limiter": limiter, "algorithm": algorithm, "keys": keys,
                    "quota": quota.map(|place| place + 1) })
            });
            return self.line(&with_end(json!({ "limiters": each.collect::<Value>() }), found));
        }
        let rows: Vec<_> = counts
            .iter()
            .map(|((limiter, algorithm, quota), keys)| {
                let of = quota.map_or(String::new(), |place| format!(" (quota {})", place + 1));
                vec![printable(limiter), format!("{algorithm}{of}"), keys.to_string()]
            })
            .collect();
        self.table(&["LIMITER", "ALGORITHM", "KEYS"], &rows)?;
        self.end(found)
    }

    /// What `ls` says of a limiter whose rule is not known.
    pub(crate) fn keys(self, found: &Found) -> Result<(), Stop> {
        let mut keys: Vec<_> = found.keys.iter().collect();
        keys.sort_by(|a, b| a.name().cmp(b.name()));
        if self.json {
            let each = keys.iter().map(|key| {
                json!({ "key": key.key(), "digest": key.is_digest(), "name": key.name(),
                    "algorithm": key.algorithm() })
            });
            return self.line(&with_end(json!({ "keys": each.collect::<Value>() }), found));
        }
        let row = |key: &&tower_sluice::redis::StoredKey| {
            vec![key.to_string(), key.algorithm().to_owned()]
        };
        self.table(&["KEY", "ALGORITHM"], &keys.iter().map(row).collect::<Vec<_>>())?;
        self.end(found)?;
        self.line("for the states: --algorithm, --limit and --period, or --policies")
    }

    /// Keys with their states. `often` says in how many rounds of how many nothing was left.
    pub(crate) fn rows(
        self,
        rows: &[Row],
        often: &[(u64, u64)],
        found: &Found,
        clock: &Clock,
    ) -> Result<(), Stop> {
        if self.json {
            let empty = |place: usize| often.get(place).map(|(empty, _)| *empty);
            let each = rows.iter().enumerate().map(|(place, row)| {
                let mut told = object(row, clock);
                if let Some(rounds) = empty(place) {
                    told["empty_rounds"] = rounds.into();
                }
                told
            });
            return self.line(&with_end(json!({ "keys": each.collect::<Value>() }), found));
        }
        let mut heads = vec!["LIMITER", "KEY", "LEFT", "OF", "NEXT UNIT", "ALL UNITS"];
        if !often.is_empty() {
            heads.push("EMPTY");
        }
        heads.push("");
        let cells = |(place, row): (usize, &Row)| {
            let mut cells = vec![printable(row.key.limiter()), row.key.to_string()];
            cells.extend(figures(row));
            if let Some((empty, rounds)) = often.get(place) {
                cells.push(format!("{empty}/{rounds}"));
            }
            cells.push(note(row));
            cells
        };
        self.table(&heads, &rows.iter().enumerate().map(cells).collect::<Vec<_>>())?;
        self.end(found)?;
        self.clock(clock)
    }

    /// One key.
    pub(crate) fn row(self, row: &Row, clock: &Clock) -> Result<(), Stop> {
        if self.json {
            return self.line(&object(row, clock).to_string());
        }
        let found = Found { keys: vec![row.key.clone()], ..Found::default() };
        self.rows(std::slice::from_ref(row), &[], &found, clock)
    }

    /// A line of `watch`, if it differs from the last one.
    pub(crate) fn change(self, row: &Row, clock: &Clock, last: &mut Last) -> Result<(), Stop> {
        let [left, of, next, all] = figures(row);
        let stopped = row.is_stopped();
        let reset = row.known().and_then(|state| state.last_reset());
        let what = format!("{left} {stopped} {reset:?} {} {}", row.is_stored(), row.state.is_err());
        if last.replace(what.clone()).is_some_and(|last| last == what) {
            return Ok(());
        }
        if self.json {
            return self.line(&object(row, clock).to_string());
        }
        let time = clock_time(clock.now);
        let note = note(row);
        self.line(
            format!("{time}  {left} of {of} left  next unit {next}  all units {all}  {note}")
                .trim_end(),
        )
    }

    /// A line of `watch` about a server that is away.
    pub(crate) fn trouble(self, stop: &Stop, last: &mut Last) -> Result<(), Stop> {
        let text = stop.to_string();
        if last.replace(text.clone()).is_some_and(|last| last == text) {
            return Ok(());
        }
        match self.json {
            true => self.line(&json!({ "error": text }).to_string()),
            false => self.line(&text),
        }
    }

    /// What a command did, or would do.
    pub(crate) fn done(self, what: &str, row: &Row) -> Result<(), Stop> {
        if self.json {
            let left = row.left();
            return self.line(
                &json!({ "done": what, "name": row.key.name(), "remaining": left.map(|(left, _)| left),
                    "limit": left.map(|(_, most)| most), "note": note(row) })
                .to_string(),
            );
        }
        let [left, of, ..] = figures(row);
        let note = note(row);
        let note = if note.is_empty() { note } else { format!(", {note}") };
        self.line(&format!("{what} {}: {left} of {of} left{note}", row.key.name()))
    }

    /// Says why a list is not complete.
    fn end(self, found: &Found) -> Result<(), Stop> {
        if let Some(bound) = found.ended_by {
            let all = found.on_servers.map_or(String::new(), |all| format!(", of {all} in Redis"));
            let (keys, foreign) = (found.keys.len(), found.foreign);
            self.line(&format!("not complete: {bound} ended it at {} keys{all}", keys + foreign))?;
        }
        if found.ended_by.is_none() && found.keys.is_empty() && found.of_other_quotas == 0 {
            self.line("no keys: nothing was taken, or the limiter or --prefix is another one")?;
        }
        if found.of_other_quotas > 0 {
            let others = found.of_other_quotas;
            self.line(&format!("{others} keys are of other quotas: choose one with --quota"))?;
        }
        if found.foreign > 0 {
            self.line(&format!("{} keys are not of limiters", found.foreign))?;
        }
        Ok(())
    }

    fn clock(self, clock: &Clock) -> Result<(), Stop> {
        match clock.is_local {
            true => self.line("by the clock of this machine: this user lacks the right +time"),
            false => Ok(()),
        }
    }
}

/// Adds how a list ended.
fn with_end(mut list: Value, found: &Found) -> String {
    list["complete"] = found.ended_by.is_none().into();
    list["ended_by"] = found.ended_by.into();
    list["not_of_limiters"] = found.foreign.into();
    list["of_other_quotas"] = found.of_other_quotas.into();
    list["keys_on_servers"] = found.on_servers.into();
    list.to_string()
}

fn object(row: &Row, clock: &Clock) -> Value {
    let (state, left) = (row.known(), row.left());
    let micros = |time: Duration| Value::from(time.as_micros() as u64);
    json!({
        "limiter": row.key.limiter(),
        "key": row.key.key(),
        "digest": row.key.is_digest(),
        "name": row.key.name(),
        "algorithm": row.key.algorithm(),
        "quota": row.key.quota().map(|place| place + 1),
        "stored": row.is_stored(),
        "remaining": left.map(|(left, _)| left),
        "limit": left.map(|(_, most)| most),
        "retry_after_us": state.and_then(|state| state.retry_after()).map(micros),
        "reset_after_us": state.map(|state| micros(state.reset_after())),
        "blocked_for_us": state.and_then(|state| state.blocked_for()).map(micros),
        "paused_for_us": state.and_then(|state| state.paused_for()).map(micros),
        "last_reset_us": state.and_then(|state| state.last_reset()).map(micros),
        "error": row.state.as_ref().err().map(|error| format!("{error:#}")),
        "now_us": micros(clock.now),
        "local_clock": clock.is_local,
    })
}

/// The units that are left, the most, and the times until the next unit and until all.
fn figures(row: &Row) -> [String; 4] {
    let Some(state) = row.known() else { return ["?"; 4].map(String::from) };
    let next = state.retry_after().map_or_else(|| String::from("never"), time);
    let (left, most) = (state.remaining().to_string(), state.burst().to_string());
    [left, most, next, time(state.reset_after())]
}

/// What is unusual about a key.
fn note(row: &Row) -> String {
    match &row.state {
        Err(error) => printable(&format!("{error:#}")),
        Ok(state) if !state.is_stored() => String::from("nothing is stored"),
        Ok(state) => match (state.blocked_for(), state.paused_for()) {
            (Some(rest), _) => format!("blocked for {}", time(rest)),
            (None, Some(rest)) => format!("paused for {}", time(rest)),
            (None, None) => String::new(),
        },
    }
}

/// A time in at most two units.
fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, 0) if time.is_zero() => String::from("now"),
        (0, 0, 0, 0) => format!("{} ms", time.as_micros().div_ceil(1_000)),
        (0, 0, 0, seconds) => format!("{seconds}.{} s", time.subsec_millis() / 100),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, ..) => format!("{days}d {hours}h"),
    }
}

/// The time of a day in UTC.
fn clock_time(now: Duration) -> String {
    let day = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60)
}

/// Text without control characters, so that no name of others moves the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}
